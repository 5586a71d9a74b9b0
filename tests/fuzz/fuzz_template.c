// A chat template, a line "----", its variables as JSON: rendered text is UTF-8 when both were.
#include "base/json.h"
#include "text/template.h"

#include "fuzz.h"

static const char variables[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":"
    "[{\"type\":\"text\",\"text\":\"x\"}],\"n\":1.5}],\"tools\":null,\"bos_token\":\"<s>\","
    "\"add_generation_prompt\":true,\"n\":-3,\"d\":{\"a\":[1,2,{\"b\":\"c\"}]}}";

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    pgd_json_doc *doc = NULL;
    pgd_text_template *t = NULL;
    pgd_text out = {0};
    pgd_str vars;
    pgd_str source = fuzz_cut((pgd_str){(const char *)data, size}, &vars);
    vars = vars.len == 0 ? PGD_STR(variables) : vars;
    pgd_status status = pgd_text_template_parse(source, &t);
    FUZZ_CHECK((status == PGD_OK) == (t != NULL));
    if (status == PGD_OK) {
        status = pgd_json_parse(vars, "variables", 0, &doc);
    }
    if (status == PGD_OK) {
        status = pgd_text_template_render(t, pgd_json_root(doc), &out);
    }
    FUZZ_CHECK(status != PGD_OK || !pgd_utf8_valid(source) || pgd_utf8_valid(pgd_text_view(&out)));
    FUZZ_CHECK(status == PGD_OK || out.len == 0);
    pgd_text_free(&out);
    pgd_text_template_close(t);
    pgd_json_free(doc);
    return status;
}
