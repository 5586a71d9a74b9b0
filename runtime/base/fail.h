// The status slot: one per thread; holds the code, the sentence, where it was put, and up to four
// notes added on the way up. Nothing to free.
#ifndef PGD_BASE_FAIL_H
#define PGD_BASE_FAIL_H

#include <stdarg.h>

#include <pagoda/status.h>

// Puts a sentence into this thread's slot and returns code: `return pgd_fail(PGD_INVALID, "...");`
#define pgd_fail(code, ...) pgd_fail_at((code), __FILE__, __LINE__, __VA_ARGS__)

// [any] The sentence is cut at 1,000 bytes. Notes of an earlier failure are dropped.
pgd_status pgd_fail_at(pgd_status code, const char *file, int32_t line, const char *fmt, ...)
    PGD_PRINTF(4, 5);
pgd_status pgd_fail_va(pgd_status code, const char *file, int32_t line, const char *fmt,
                       va_list args);

// [any] Adds "while ..." to the slot on the way up and returns code; nothing when code is PGD_OK.
pgd_status pgd_fail_note(pgd_status code, const char *fmt, ...) PGD_PRINTF(2, 3);

// [any] This thread's last sentence with its notes ("sentence (while a; while b)"); borrow, valid
// until the thread's next failure. If the slot holds another code: that code's general sentence.
const char *pgd_fail_text(pgd_status code);
// [any] The same for whatever this thread failed with last; "" if it never failed.
const char *pgd_fail_last(void);
// [any] File and line of the last failure of this thread; "" and 0 if none.
const char *pgd_fail_file(void);
int32_t pgd_fail_line(void);
// [any] Takes a sentence from another thread's slot text: sets this thread's slot.
void pgd_fail_set(pgd_status code, const char *text);
// [any] "OUT_OF_MEMORY"; "UNKNOWN" for a number that is no code.
const char *pgd_status_name(pgd_status code);
// [any] The general sentence of a code.
const char *pgd_status_text(pgd_status code);

#endif
