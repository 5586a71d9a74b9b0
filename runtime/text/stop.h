// Stop strings: found in text as it comes, piece by piece.
//
//   text so far   ... and that was it. \nUs
//                                      ^^^^  held back: "\nUs" may begin "\nUser:"
//
// Each string has its own matching automaton (Knuth, Morris, Pratt 1977), whose state is the
// longest suffix of the text that is a prefix of the string. So the first string to be completed is
// seen at its last byte, and the longest state is what must be held back, no byte more. Strings and
// text are UTF-8, so both ends lie between characters. Sets are read only: [any].
#ifndef PGD_TEXT_STOP_H
#define PGD_TEXT_STOP_H

#include <stdint.h>

#include "base/str.h"

#define PGD_TEXT_MAX_STOPS      16
#define PGD_TEXT_MAX_STOP_BYTES 256

typedef struct pgd_text_stop pgd_text_stop;

// Where a text stands; zero = at its start.
typedef struct pgd_text_stop_state {
    uint16_t matched[PGD_TEXT_MAX_STOPS]; // bytes
} pgd_text_stop_state;

// Copies the strings.
//   fails  OUT_OF_RANGE (too many, empty, too long), INVALID (not UTF-8), OUT_OF_MEMORY
pgd_status pgd_text_stop_create(const char *const *strings, uint32_t n,
                                pgd_text_stop **out) PGD_MUST_USE;
void pgd_text_stop_destroy(pgd_text_stop *s); // NULL is fine

// Reads the next bytes of a text up to the first end of a string; of several that end there the
// first in the list counts. Returns the bytes read; *out_which is the string, -1 = none and all was
// read. Calling it again goes on behind the string.
size_t pgd_text_stop_scan(const pgd_text_stop *s, pgd_text_stop_state *state, pgd_str bytes,
                          int32_t *out_which);
// Bytes at the end of the text that may be the beginning of a string.
size_t pgd_text_stop_held(const pgd_text_stop *s, const pgd_text_stop_state *state);
// String `which`, NUL-terminated; borrowed.
pgd_str pgd_text_stop_string(const pgd_text_stop *s, int32_t which);

#endif
