// The status slot of a thread. A sentence is first built beside the slot, because its arguments
// may point into it ("%s" of pgd_fail_text).
#include "base/fail.h"

#include <stdio.h>
#include <string.h>

#include <pagoda/pagoda.h>

enum { TEXT_BYTES = 1000, NOTE_BYTES = 200, N_NOTES = 4 };

typedef struct slot {
    pgd_status code;
    int32_t line;
    const char *file; // NULL = none; a literal of the caller
    int32_t n_notes;
    char text[TEXT_BYTES + 1];
    char notes[N_NOTES][NOTE_BYTES + 1];
    char joined[TEXT_BYTES + N_NOTES * (NOTE_BYTES + 16) + 1];
} slot;

static _Thread_local slot this_slot;

static const struct {
    pgd_status code;
    const char *name;
    const char *text;
} codes[] = {
#define PGD_STATUS_ROW(name, number, text) {number, #name, text},
    PGD_STATUS_LIST(PGD_STATUS_ROW)
#undef PGD_STATUS_ROW
};

const char *pgd_status_name(pgd_status code) {
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (codes[i].code == code) {
            return codes[i].name;
        }
    }
    return "UNKNOWN";
}

const char *pgd_status_text(pgd_status code) {
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (codes[i].code == code) {
            return codes[i].text;
        }
    }
    return "unknown status code";
}

// Ends text after at most cap bytes, not inside a UTF-8 sequence that the cut broke.
static void cut_text(char *text, size_t cap) {
    size_t n = cap;
    while (n > 0 && cap - n < 3 && ((unsigned char)text[n] & 0xC0) == 0x80) {
        n--;
    }
    text[((unsigned char)text[n] & 0xC0) == 0x80 ? cap : n] = '\0';
}

// One byte more than is kept is formatted, so that cut_text sees what follows.
static void format_text(char *out, size_t cap, const char *fmt, va_list args) {
    int n = vsnprintf(out, cap + 2, fmt, args);
    if (n < 0) {
        out[0] = '\0';
    } else if ((size_t)n > cap) {
        cut_text(out, cap);
    }
}

pgd_status pgd_fail_va(pgd_status code, const char *file, int32_t line, const char *fmt,
                       va_list args) {
    char text[TEXT_BYTES + 2];
    format_text(text, TEXT_BYTES, fmt, args);
    memcpy(this_slot.text, text, strlen(text) + 1);
    this_slot.code = code;
    this_slot.file = file;
    this_slot.line = line;
    this_slot.n_notes = 0;
    return code;
}

pgd_status pgd_fail_at(pgd_status code, const char *file, int32_t line, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)pgd_fail_va(code, file, line, fmt, args);
    va_end(args);
    return code;
}

void pgd_fail_set(pgd_status code, const char *text) {
    (void)pgd_fail_at(code, NULL, 0, "%s", text);
}

pgd_status pgd_fail_note(pgd_status code, const char *fmt, ...) {
    if (code == PGD_OK) {
        return code;
    }
    if (this_slot.code != code) {
        pgd_fail_set(code, pgd_status_text(code));
    }
    if (this_slot.n_notes < N_NOTES) {
        char note[NOTE_BYTES + 2];
        va_list args;
        va_start(args, fmt);
        format_text(note, NOTE_BYTES, fmt, args);
        va_end(args);
        memcpy(this_slot.notes[this_slot.n_notes++], note, strlen(note) + 1);
    }
    return code;
}

const char *pgd_fail_text(pgd_status code) {
    slot *s = &this_slot;
    if (code == PGD_OK || s->code != code) {
        return pgd_status_text(code);
    }
    if (s->n_notes == 0) {
        return s->text;
    }
    int n = snprintf(s->joined, sizeof(s->joined), "%s (", s->text);
    for (int32_t i = 0; i < s->n_notes; i++) {
        // A note may bring its own "while".
        const char *word = strncmp(s->notes[i], "while ", 6) == 0 ? "" : "while ";
        n += snprintf(s->joined + n, sizeof(s->joined) - (size_t)n, "%s%s%s", i > 0 ? "; " : "",
                      word, s->notes[i]);
    }
    (void)snprintf(s->joined + n, sizeof(s->joined) - (size_t)n, ")");
    return s->joined;
}

const char *pgd_fail_last(void) {
    return this_slot.code == PGD_OK ? "" : pgd_fail_text(this_slot.code);
}

const char *pgd_fail_file(void) {
    return this_slot.file != NULL ? this_slot.file : "";
}

int32_t pgd_fail_line(void) {
    return this_slot.line;
}
