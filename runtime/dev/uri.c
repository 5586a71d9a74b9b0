// Device names: KIND[:N], pci:0000:65:00.0, uuid:GPU-..., each with [{key=value;...}] behind it;
// layers around it: LAYER[{key=value;...}](DEVICE).
#include "dev/inner.h"

#include <string.h>

#include "base/fail.h"

#define MAX_KIND 24

static int32_t is_kind_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static pgd_status bad(const char *uri, const char *why) {
    return pgd_fail(PGD_INVALID,
                    "device '%s': %s; a device is written KIND[:N][{key=value;...}], for example "
                    "cpu, acme:0 or null{step_us=5000}, a layer around it "
                    "LAYER[{key=value;...}](DEVICE)",
                    uri, why);
}

static pgd_status parse_index(const char *uri, pgd_str *at, pgd_dev_uri_parts *out) {
    size_t n = 0;
    uint64_t value = 0;
    while (n < at->len && at->ptr[n] >= '0' && at->ptr[n] <= '9') {
        n++;
    }
    if (!pgd_str_to_u64((pgd_str){at->ptr, n}, &value) || value > 65535) {
        return bad(uri, "behind the colon stands no number from 0 to 65535");
    }
    out->index = (uint32_t)value;
    out->has_index = 1;
    at->ptr += n;
    at->len -= n;
    return PGD_OK;
}

static int32_t hex_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : c;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// `least` to `most` hex digits at the beginning of *at, which is moved behind them.
static int32_t take_hex(pgd_str *at, size_t least, size_t most, uint32_t *out) {
    size_t n = 0;
    *out = 0;
    while (n < at->len && n < most && hex_value(at->ptr[n]) >= 0) {
        *out = *out * 16 + (uint32_t)hex_value(at->ptr[n]);
        n++;
    }
    at->ptr += n;
    at->len -= n;
    return n >= least;
}

static int32_t take_byte(pgd_str *at, char c) {
    if (at->len == 0 || at->ptr[0] != c) {
        return 0;
    }
    at->ptr++;
    at->len--;
    return 1;
}

int32_t pgd_dev_uri_pci(pgd_str text, pgd_dev_pci *out) {
    pgd_str at = text;
    *out = (pgd_dev_pci){0};
    if (take_hex(&at, 4, 8, &out->domain) && take_byte(&at, ':')) {
        text = at;
    } else {
        out->domain = 0;
        at = text;
    }
    return take_hex(&at, 2, 2, &out->bus) && take_byte(&at, ':') &&
           take_hex(&at, 2, 2, &out->slot) && take_byte(&at, '.') &&
           take_hex(&at, 1, 1, &out->function) && at.len == 0;
}

int32_t pgd_dev_uri_same_pci(const pgd_dev_pci *a, const pgd_dev_pci *b) {
    return a->domain == b->domain && a->bus == b->bus && a->slot == b->slot &&
           a->function == b->function;
}

// 32 hex digits, dashes anywhere between them, "GPU-" before them or not.
static int32_t parse_uuid(pgd_str at, uint8_t out[16]) {
    int32_t n = 0;
    if (pgd_str_starts(at, PGD_STR("GPU-")) || pgd_str_starts(at, PGD_STR("MIG-"))) {
        at.ptr += 4;
        at.len -= 4;
    }
    for (size_t i = 0; i < at.len; i++) {
        int32_t value = hex_value(at.ptr[i]);
        if (at.ptr[i] == '-') {
            continue;
        }
        if (value < 0 || n == 32) {
            return 0;
        }
        out[n / 2] = (uint8_t)(out[n / 2] * 16 + value);
        n++;
    }
    return n == 32;
}

// What stands behind "pci:" or "uuid:", up to the options.
static pgd_status parse_chip(const char *uri, pgd_str *at, pgd_dev_uri_parts *out) {
    const char *brace = memchr(at->ptr, '{', at->len);
    size_t n = brace != NULL ? (size_t)(brace - at->ptr) : at->len;
    pgd_str name = {at->ptr, n};
    at->ptr += n;
    at->len -= n;
    if (pgd_str_is(out->kind, "pci")) {
        out->by = PGD_DEV_BY_PCI;
        return pgd_dev_uri_pci(name, &out->pci)
                   ? PGD_OK
                   : pgd_fail(PGD_INVALID,
                              "device '%s': pci is followed by the address of a chip, for example "
                              "pci:0000:65:00.0",
                              uri);
    }
    out->by = PGD_DEV_BY_UUID;
    return parse_uuid(name, out->uuid)
               ? PGD_OK
               : pgd_fail(PGD_INVALID,
                          "device '%s': uuid is followed by 32 hex digits, for example "
                          "uuid:GPU-01234567-89ab-cdef-0123-456789abcdef",
                          uri);
}

pgd_status pgd_dev_uri_parse(const char *uri, pgd_dev_uri_parts *out) {
    *out = (pgd_dev_uri_parts){0};
    pgd_str at = pgd_str_trim(pgd_str_of(uri));
    size_t n = 0;
    while (n < at.len && is_kind_byte(at.ptr[n])) {
        n++;
    }
    if (n == 0 || n > MAX_KIND) {
        return bad(uri, "the kind is missing, too long, or not in lower-case letters");
    }
    out->kind = (pgd_str){at.ptr, n};
    at.ptr += n;
    at.len -= n;
    if (at.len > 0 && at.ptr[0] == ':') {
        at.ptr++;
        at.len--;
        int32_t is_chip = pgd_str_is(out->kind, "pci") || pgd_str_is(out->kind, "uuid");
        PGD_TRY(is_chip ? parse_chip(uri, &at, out) : parse_index(uri, &at, out));
    }
    if (out->by == PGD_DEV_BY_KIND &&
        (pgd_str_is(out->kind, "pci") || pgd_str_is(out->kind, "uuid"))) {
        return parse_chip(uri, &at, out);
    }
    if (at.len > 0 && at.ptr[0] == '{') {
        const char *end = memchr(at.ptr, '}', at.len);
        if (end == NULL) {
            return bad(uri, "the brace is not closed");
        }
        out->options = (pgd_str){at.ptr + 1, (size_t)(end - at.ptr) - 1};
        at.len -= (size_t)(end + 1 - at.ptr);
        at.ptr = end + 1;
    }
    if (at.len > 0 && at.ptr[0] == '(') {
        return bad(uri, "a layer takes no number");
    }
    if (at.len > 0) {
        return bad(uri, "there is text behind the name");
    }
    return PGD_OK;
}

// ---- layers ------------------------------------------------------------------------------------

// The layer that `at` begins with, and where its parenthesis opens; 0 if it begins with none.
static size_t take_layer(pgd_str at, pgd_dev_uri_layer *out) {
    size_t n = 0;
    while (n < at.len && is_kind_byte(at.ptr[n])) {
        n++;
    }
    *out = (pgd_dev_uri_layer){.kind = {at.ptr, n}};
    if (n > 0 && n < at.len && at.ptr[n] == '{') {
        const char *end = memchr(at.ptr, '}', at.len);
        size_t close = end != NULL ? (size_t)(end - at.ptr) : at.len;
        out->options = (pgd_str){at.ptr + n + 1, close - n - 1};
        n = close + 1;
    }
    return n > 0 && n < at.len && at.ptr[n] == '(' ? n : 0;
}

pgd_status pgd_dev_uri_layers(const char *uri, pgd_dev_uri_layer *layers, uint32_t *out_n,
                              pgd_str *out_device) {
    pgd_dev_uri_layer layer = {0};
    pgd_str at = pgd_str_trim(pgd_str_of(uri));
    *out_n = 0;
    for (size_t open = take_layer(at, &layer); open > 0; open = take_layer(at, &layer)) {
        if (at.ptr[at.len - 1] != ')') {
            return bad(uri, "the parenthesis of a layer is not closed at the end");
        }
        if (layer.kind.len > MAX_KIND) {
            return bad(uri, "the name of a layer is too long");
        }
        if (*out_n == PGD_DEV_MAX_LAYERS) {
            return bad(uri, "there are more than 8 layers");
        }
        layers[(*out_n)++] = layer;
        at = pgd_str_trim((pgd_str){at.ptr + open + 1, at.len - open - 2});
    }
    *out_device = at;
    return PGD_OK;
}
