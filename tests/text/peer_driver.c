// What tokenizer_peer_test.py talks to: encodes and decodes records of stdin, in order.
//
//   in   u8 kind, u32 n, then n bytes of text ('e') or n ids i32 ('d')
//   out  'e': u32 n and the ids, special ones added; both: u32 n and the text of the ids with
//        special tokens, u32 n and the text without
//
// Numbers are little-endian, as the machine has them. Usage: peer_driver FOLDER
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/str.h"
#include "text/tokenizer.h"

enum { MOST_BYTES = 1 << 28 };

static void put(const void *data, size_t n, size_t item_bytes) {
    uint32_t count = (uint32_t)n;
    fwrite(&count, sizeof(count), 1, stdout);
    if (n > 0) {
        fwrite(data, item_bytes, n, stdout);
    }
}

static pgd_status answer(const pgd_text_tokenizer *t, int kind, const pgd_text *in) {
    pgd_text_ids ids = {0};
    pgd_text out = {0};
    pgd_status status = PGD_OK;
    if (kind == 'e') {
        status = pgd_text_encode(t, pgd_text_view(in), PGD_TEXT_ADD_SPECIAL, &ids);
        put(ids.ids, ids.n, sizeof(*ids.ids));
    }
    for (size_t i = 0; kind == 'd' && i + 4 <= in->len && status == PGD_OK; i += 4) {
        int32_t id = 0;
        memcpy(&id, in->ptr + i, sizeof(id));
        status = pgd_text_ids_add(&ids, id);
    }
    for (int32_t skip = 0; skip < 2 && status == PGD_OK; skip++) {
        pgd_text_clear(&out);
        status = pgd_text_decode(t, ids.ids, ids.n, skip, &out);
        put(out.ptr, out.len, 1);
    }
    pgd_text_free(&out);
    pgd_text_ids_free(&ids);
    return status;
}

// 1 when a record was read, 0 at the end of the input.
static int read_record(int *kind, pgd_text *in) {
    uint32_t n = 0;
    *kind = getchar();
    if (*kind == EOF || fread(&n, sizeof(n), 1, stdin) != 1) {
        return 0;
    }
    size_t bytes = *kind == 'd' ? (size_t)n * sizeof(int32_t) : n;
    pgd_text_clear(in);
    if (bytes > MOST_BYTES || pgd_text_reserve(in, bytes + 1) != PGD_OK ||
        fread(in->ptr, 1, bytes, stdin) != bytes) {
        return 0;
    }
    in->len = bytes;
    return 1;
}

int main(int argc, char **argv) {
    pgd_text_tokenizer *t = NULL;
    pgd_text in = {0};
    int kind = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: peer_driver FOLDER\n");
        return 2;
    }
    pgd_status status = pgd_text_tokenizer_open(argv[1], &t);
    while (status == PGD_OK && read_record(&kind, &in)) {
        status = answer(t, kind, &in);
    }
    if (status != PGD_OK) {
        fprintf(stderr, "peer_driver: %s\n", pgd_fail_text(status));
    }
    pgd_text_free(&in);
    pgd_text_tokenizer_close(t);
    return status == PGD_OK && fflush(stdout) == 0 ? 0 : 1;
}
