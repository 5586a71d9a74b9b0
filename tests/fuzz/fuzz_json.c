// JSON: what is parsed and written is parsed again, and written the same.
#include "base/json.h"

#include "fuzz.h"

static pgd_status again(const pgd_text *first) {
    pgd_json_doc *doc = NULL;
    pgd_text second = {0};
    pgd_status status = pgd_json_parse(pgd_text_view(first), "the second text", 1024, &doc);
    FUZZ_CHECK(status == PGD_OK || status == PGD_OUT_OF_MEMORY);
    if (status == PGD_OK) {
        status = pgd_json_add(&second, pgd_json_root(doc));
    }
    FUZZ_CHECK(status != PGD_OK || pgd_str_equal(pgd_text_view(first), pgd_text_view(&second)));
    pgd_text_free(&second);
    pgd_json_free(doc);
    return status;
}

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    pgd_json_doc *doc = NULL;
    pgd_text text = {0};
    pgd_status status = pgd_json_parse((pgd_str){(const char *)data, size}, "x.json", 0, &doc);
    if (status == PGD_OK) {
        const pgd_json *root = pgd_json_root(doc);
        FUZZ_CHECK(pgd_json_get(root, "a") == NULL || pgd_json_is(root, PGD_JSON_OBJECT));
        status = pgd_json_add(&text, root);
        FUZZ_CHECK(status != PGD_OK || pgd_utf8_valid(pgd_text_view(&text)));
    }
    if (status == PGD_OK) {
        status = again(&text);
    }
    pgd_text_free(&text);
    pgd_json_free(doc);
    return status;
}
