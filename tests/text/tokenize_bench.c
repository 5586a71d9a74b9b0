// How fast a tokenizer is, on one core: bytes of text a second.
//
//   tokenize_bench TOKENIZER_FOLDER TEXT_FILE [SECONDS]
//
// The file is encoded as one text, again and again; the best round counts, since others only add
// what the machine did besides. English text that is on every Debian:
//
//   cat /usr/share/common-licenses/{Apache-2.0,GFDL-1.3,GPL-2,GPL-3,LGPL-2.1,MPL-2.0} > english.txt
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "os/file.h"
#include "text/tokenizer.h"

typedef struct {
    pgd_str text;
    pgd_text_ids ids;
    pgd_text back;
    uint64_t encode_ns;
    uint64_t decode_ns;
} bench;

static pgd_status measure_round(const pgd_text_tokenizer *t, bench *b) {
    b->ids.n = 0;
    pgd_text_clear(&b->back);
    uint64_t start = pgd_clock_ns();
    PGD_TRY(pgd_text_encode(t, b->text, 0, &b->ids));
    uint64_t middle = pgd_clock_ns();
    PGD_TRY(pgd_text_decode(t, b->ids.ids, b->ids.n, 0, &b->back));
    uint64_t end = pgd_clock_ns();
    b->encode_ns = middle - start < b->encode_ns ? middle - start : b->encode_ns;
    b->decode_ns = end - middle < b->decode_ns ? end - middle : b->decode_ns;
    return PGD_OK;
}

static pgd_status read_text(const char *path, pgd_str *out) {
    uint64_t bytes = 0;
    uint64_t n = 0;
    if (pgd_os_kind(path, &bytes) != PGD_OS_REGULAR || bytes == 0) {
        return pgd_fail(PGD_NOT_FOUND, "%s: no file with text in it", path);
    }
    char *text = pgd_mem_alloc((size_t)bytes, 1);
    if (text == NULL) {
        return PGD_MEM_FAIL("the text", bytes);
    }
    *out = (pgd_str){text, (size_t)bytes};
    return pgd_os_read_file(path, text, bytes, &n);
}

int main(int argc, char **argv) {
    double seconds = argc > 3 ? strtod(argv[3], NULL) : 1;
    pgd_text_tokenizer *t = NULL;
    bench b = {.encode_ns = UINT64_MAX, .decode_ns = UINT64_MAX};
    if (argc < 3) {
        fprintf(stderr, "usage: tokenize_bench TOKENIZER_FOLDER TEXT_FILE [SECONDS]\n");
        return 2;
    }
    pgd_status status = pgd_text_tokenizer_open(argv[1], &t);
    if (status == PGD_OK) {
        status = read_text(argv[2], &b.text);
    }
    uint64_t begin = pgd_clock_ns();
    while (status == PGD_OK && (double)(pgd_clock_ns() - begin) < seconds * 1e9) {
        status = measure_round(t, &b);
    }
    if (status == PGD_OK) {
        printf("%s: %zu bytes, %zu ids, encode %.1f MB/s, decode %.1f MB/s\n", argv[1], b.text.len,
               b.ids.n, (double)b.text.len * 1e3 / (double)b.encode_ns,
               (double)b.back.len * 1e3 / (double)b.decode_ns);
    } else {
        fprintf(stderr, "tokenize_bench: %s\n", pgd_fail_text(status));
    }
    pgd_mem_free((void *)(uintptr_t)b.text.ptr);
    pgd_text_ids_free(&b.ids);
    pgd_text_free(&b.back);
    pgd_text_tokenizer_close(t);
    return status == PGD_OK ? 0 : 1;
}
