// Matching of stop strings. See stop.h.
#include "text/stop.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

typedef struct stop_string {
    char text[PGD_TEXT_MAX_STOP_BYTES + 1];
    uint16_t len;
    // border[i]: length of the longest proper suffix of the first i bytes that is a prefix.
    uint16_t border[PGD_TEXT_MAX_STOP_BYTES + 1];
} stop_string;

struct pgd_text_stop {
    uint32_t n;
    uint32_t reserved0;
    stop_string strings[]; // [n]
};

// The state behind one more byte.
static uint16_t next_of(const stop_string *s, uint16_t matched, char byte) {
    uint16_t at = matched == s->len ? s->border[matched] : matched;
    while (at > 0 && s->text[at] != byte) {
        at = s->border[at];
    }
    return s->text[at] == byte ? (uint16_t)(at + 1) : 0;
}

static void set_string(stop_string *s, const char *text, size_t len) {
    memcpy(s->text, text, len);
    s->len = (uint16_t)len;
    for (uint16_t i = 2; i <= s->len; i++) {
        s->border[i] = next_of(s, s->border[i - 1], s->text[i - 1]);
    }
}

static pgd_status check_string(const char *text, uint32_t i) {
    size_t len = text != NULL ? strlen(text) : 0;
    if (len < 1 || len > PGD_TEXT_MAX_STOP_BYTES) {
        return pgd_fail(PGD_OUT_OF_RANGE, "stop[%u] has %zu bytes; 1 to %d are allowed", i, len,
                        PGD_TEXT_MAX_STOP_BYTES);
    }
    if (!pgd_utf8_valid((pgd_str){text, len})) {
        return pgd_fail(PGD_INVALID, "stop[%u] is not UTF-8", i);
    }
    return PGD_OK;
}

pgd_status pgd_text_stop_create(const char *const *strings, uint32_t n, pgd_text_stop **out) {
    *out = NULL;
    if (n > PGD_TEXT_MAX_STOPS) {
        return pgd_fail(PGD_OUT_OF_RANGE, "stop has %u strings; 0 to %d are allowed", n,
                        PGD_TEXT_MAX_STOPS);
    }
    for (uint32_t i = 0; i < n; i++) {
        PGD_TRY(check_string(strings[i], i));
    }
    size_t bytes = sizeof(pgd_text_stop) + n * sizeof(stop_string);
    pgd_text_stop *s = pgd_mem_alloc(1, bytes);
    if (s == NULL) {
        return PGD_MEM_FAIL("the stop strings", bytes);
    }
    s->n = n;
    for (uint32_t i = 0; i < n; i++) {
        set_string(&s->strings[i], strings[i], strlen(strings[i]));
    }
    *out = s;
    return PGD_OK;
}

void pgd_text_stop_destroy(pgd_text_stop *s) {
    pgd_mem_free(s);
}

size_t pgd_text_stop_scan(const pgd_text_stop *s, pgd_text_stop_state *state, pgd_str bytes,
                          int32_t *out_which) {
    *out_which = -1;
    for (size_t at = 0; at < bytes.len; at++) {
        for (uint32_t i = s->n; i-- > 0;) {
            const stop_string *string = &s->strings[i];
            state->matched[i] = next_of(string, state->matched[i], bytes.ptr[at]);
            if (state->matched[i] == string->len) {
                *out_which = (int32_t)i;
            }
        }
        if (*out_which >= 0) {
            return at + 1;
        }
    }
    return bytes.len;
}

size_t pgd_text_stop_held(const pgd_text_stop *s, const pgd_text_stop_state *state) {
    size_t held = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const stop_string *string = &s->strings[i];
        uint16_t n = state->matched[i];
        n = n == string->len ? string->border[n] : n;
        held = n > held ? n : held;
    }
    return held;
}

pgd_str pgd_text_stop_string(const pgd_text_stop *s, int32_t which) {
    return (pgd_str){s->strings[which].text, s->strings[which].len};
}
