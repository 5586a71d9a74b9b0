// simdjson's document, copied into plain C values. Built without exceptions and RTTI: simdjson
// then reports by code only and allocates with nothrow new.
#include "base/json_simdjson.h"

#include <simdjson.h>

static_assert(simdjson::SIMDJSON_PADDING <= PGD_JSON_PADDING, "the padding must suffice");

namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

// Where a copy stands: what it may use, and how many levels may still be opened.
struct place {
    const pgd_json_memory &memory;
    uint32_t depth;

    void *alloc(size_t n, size_t item_bytes) const {
        return memory.alloc(memory.arg, n, item_bytes);
    }
};

// All of these return PGD_JSON_PARSED, PGD_JSON_NO_MEMORY or PGD_JSON_BAD (too many levels).
int32_t put_value(const place &at, element from, pgd_json *to);

int32_t put_str(const place &at, std::string_view from, pgd_str *to) {
    to->ptr = at.memory.copy(at.memory.arg, from.data(), from.size());
    to->len = from.size();
    return to->ptr != nullptr ? PGD_JSON_PARSED : PGD_JSON_NO_MEMORY;
}

int32_t put_array(const place &at, simdjson::dom::array from, pgd_json *to) {
    const place below = {at.memory, at.depth - 1};
    size_t n = 0;
    if (at.depth == 0) {
        return PGD_JSON_BAD;
    }
    for (element child : from) {
        (void)child;
        n++;
    }
    auto *items = static_cast<pgd_json *>(at.alloc(n, sizeof(pgd_json)));
    if (items == nullptr) {
        return PGD_JSON_NO_MEMORY;
    }
    to->kind = PGD_JSON_ARRAY;
    to->n = static_cast<uint32_t>(n);
    to->items = items;
    for (element child : from) {
        int32_t rc = put_value(below, child, items++);
        if (rc != PGD_JSON_PARSED) {
            return rc;
        }
    }
    return PGD_JSON_PARSED;
}

int32_t put_object(const place &at, simdjson::dom::object from, pgd_json *to) {
    const place below = {at.memory, at.depth - 1};
    size_t n = 0;
    if (at.depth == 0) {
        return PGD_JSON_BAD;
    }
    for (simdjson::dom::key_value_pair field : from) {
        (void)field;
        n++;
    }
    auto *items = static_cast<pgd_json *>(at.alloc(n, sizeof(pgd_json)));
    auto *keys = static_cast<pgd_str *>(at.alloc(n, sizeof(pgd_str)));
    if (items == nullptr || keys == nullptr) {
        return PGD_JSON_NO_MEMORY;
    }
    to->kind = PGD_JSON_OBJECT;
    to->n = static_cast<uint32_t>(n);
    to->items = items;
    to->keys = keys;
    for (simdjson::dom::key_value_pair field : from) {
        int32_t rc = put_str(at, field.key, keys++);
        if (rc == PGD_JSON_PARSED) {
            rc = put_value(below, field.value, items++);
        }
        if (rc != PGD_JSON_PARSED) {
            return rc;
        }
    }
    return PGD_JSON_PARSED;
}

// The getters cannot fail: each is called for its own type.
int32_t put_value(const place &at, element from, pgd_json *to) {
    switch (from.type()) {
    case element_type::ARRAY: return put_array(at, from.get_array().value_unsafe(), to);
    case element_type::OBJECT: return put_object(at, from.get_object().value_unsafe(), to);
    case element_type::INT64:
        to->kind = PGD_JSON_INT;
        to->i = from.get_int64().value_unsafe();
        return PGD_JSON_PARSED;
    case element_type::UINT64:
        to->kind = PGD_JSON_UINT;
        to->u = from.get_uint64().value_unsafe();
        return PGD_JSON_PARSED;
    case element_type::DOUBLE:
        to->kind = PGD_JSON_FLOAT;
        to->f = from.get_double().value_unsafe();
        return PGD_JSON_PARSED;
    case element_type::STRING:
        to->kind = PGD_JSON_STRING;
        return put_str(at, from.get_string().value_unsafe(), &to->str);
    case element_type::BOOL:
        to->kind = from.get_bool().value_unsafe() ? PGD_JSON_TRUE : PGD_JSON_FALSE;
        return PGD_JSON_PARSED;
    case element_type::NULL_VALUE: break;
    }
    to->kind = PGD_JSON_NULL;
    return PGD_JSON_PARSED;
}

} // namespace

int32_t pgd_json_simdjson(const char *text, size_t len, uint32_t depth,
                          const pgd_json_memory *memory, pgd_json *root, const char **out_why) {
    simdjson::dom::parser parser;
    element value;
    // simdjson counts the document itself as a level and does not count empty arrays and objects.
    simdjson::error_code error = parser.allocate(len, size_t(depth) + 1);
    if (error == simdjson::SUCCESS) {
        error = parser.parse(text, len, false).get(value);
    }
    if (error == simdjson::MEMALLOC) {
        return PGD_JSON_NO_MEMORY;
    }
    if (error != simdjson::SUCCESS) {
        *out_why = simdjson::error_message(error);
        return error == simdjson::NUMBER_ERROR ? PGD_JSON_BIG : PGD_JSON_BAD;
    }
    *out_why = simdjson::error_message(simdjson::DEPTH_ERROR);
    return put_value(place{*memory, depth}, value, root);
}
