// What a fuzz target is: one function over bytes nobody trusts.
//
// fuzz_NAME.c defines fuzz_one; libfuzzer.c lets libFuzzer call it, replay.c calls it for the files
// of a corpus, again with every allocation failing in turn.
#ifndef PGD_TESTS_FUZZ_H
#define PGD_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"

// Parses and uses the bytes, checks what must hold whatever they are, frees everything.
// Returns the first status that was not PGD_OK.
pgd_status fuzz_one(const uint8_t *data, size_t size);

// Ends the process: what must hold does not.
#define FUZZ_CHECK(holds)                                                                   \
    do {                                                                                    \
        if (!(holds)) {                                                                     \
            fprintf(stderr, "%s:%d: this does not hold: %s\n", __FILE__, __LINE__, #holds); \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

// Cuts the bytes at the first line that is "----", which the targets with two texts use; without
// one the second text is empty.
static inline pgd_str fuzz_cut(pgd_str all, pgd_str *behind) {
    static const char line[] = "\n----\n";
    const size_t n = sizeof(line) - 1;
    *behind = (pgd_str){0};
    for (size_t i = 0; i + n <= all.len; i++) {
        if (pgd_str_starts((pgd_str){all.ptr + i, all.len - i}, PGD_STR(line))) {
            *behind = (pgd_str){all.ptr + i + n, all.len - i - n};
            return (pgd_str){all.ptr, i};
        }
    }
    return all;
}

#endif
