// What test_template_peer.py talks to: renders records of stdin, in order.
//
//   in   u32 n and the template's n bytes, u32 n and its variables as JSON
//   out  u32 status (0 = rendered), u32 n and the text, or the sentence that says what failed
//
// Numbers are little-endian, as the machine has them.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/str.h"
#include "text/template.h"

enum { MOST_BYTES = 1 << 28 };

// 1 when a piece was read, 0 at the end of the input.
static int read_piece(pgd_text *in) {
    uint32_t n = 0;
    pgd_text_clear(in);
    if (fread(&n, sizeof(n), 1, stdin) != 1 || n > MOST_BYTES ||
        pgd_text_reserve(in, (size_t)n + 1) != PGD_OK || fread(in->ptr, 1, n, stdin) != n) {
        return 0;
    }
    in->len = n;
    return 1;
}

static pgd_status render(const pgd_text *source, const pgd_text *vars, pgd_text *out) {
    pgd_text_template *t = NULL;
    pgd_json_doc *doc = NULL;
    PGD_TRY(pgd_json_parse(pgd_text_view(vars), "variables", 0, &doc));
    pgd_status status = pgd_text_template_parse(pgd_text_view(source), &t);
    if (status == PGD_OK) {
        status = pgd_text_template_render(t, pgd_json_root(doc), out);
    }
    pgd_text_template_close(t);
    pgd_json_free(doc);
    return status;
}

int main(void) {
    pgd_text source = {0};
    pgd_text vars = {0};
    pgd_text out = {0};
    while (read_piece(&source) && read_piece(&vars)) {
        pgd_text_clear(&out);
        uint32_t status = (uint32_t)render(&source, &vars, &out);
        const char *words = status == 0 ? out.ptr : pgd_fail_text((pgd_status)status);
        uint32_t n = status == 0 ? (uint32_t)out.len : (uint32_t)strlen(words);
        fwrite(&status, sizeof(status), 1, stdout);
        fwrite(&n, sizeof(n), 1, stdout);
        if (n > 0) {
            fwrite(words, 1, n, stdout);
        }
        fflush(stdout);
    }
    pgd_text_free(&source);
    pgd_text_free(&vars);
    pgd_text_free(&out);
    return 0;
}
