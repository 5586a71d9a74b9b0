// Lines in, model text out. See chat.h.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "cli/chat.h"
#include "os/interrupt.h"

#define MAX_LINE ((size_t)16 << 20)
#define STDIN    0

// Moves the first line of pending to line: 1 when there was one.
static pgd_status take_line(cli_chat_lines *l, pgd_text *line, int32_t *out_found) {
    const char *end = l->pending.len > 0 ? memchr(l->pending.ptr, '\n', l->pending.len) : NULL;
    *out_found = end != NULL || (l->ended && l->pending.len > 0);
    if (!*out_found) {
        return PGD_OK;
    }
    size_t n = end != NULL ? (size_t)(end - l->pending.ptr) : l->pending.len;
    size_t with_end = end != NULL ? n + 1 : n;
    size_t shown = n > 0 && l->pending.ptr[n - 1] == '\r' ? n - 1 : n;
    PGD_TRY(pgd_text_add(line, l->pending.ptr, shown));
    memmove(l->pending.ptr, l->pending.ptr + with_end, l->pending.len - with_end);
    l->pending.len -= with_end;
    if (!pgd_utf8_valid(pgd_text_view(line))) {
        return pgd_fail(PGD_INVALID, "a line of the input is not UTF-8");
    }
    return PGD_OK;
}

pgd_status cli_chat_line(cli_chat_lines *l, pgd_text *line, int32_t *out_kind) {
    char bytes[4096];
    *out_kind = CLI_LINE;
    pgd_text_clear(line);
    for (;;) {
        int32_t found = 0;
        PGD_TRY(take_line(l, line, &found));
        if (found) {
            return PGD_OK;
        }
        if (l->ended) {
            *out_kind = CLI_LINE_END;
            return PGD_OK;
        }
        int64_t n = pgd_os_interrupt_read(STDIN, bytes, sizeof(bytes));
        if (n == PGD_OS_READ_INTERRUPTED) {
            pgd_text_clear(&l->pending);
            *out_kind = CLI_LINE_INTERRUPTED;
            return PGD_OK;
        }
        if (n < 0) {
            return pgd_fail(PGD_DATA_LOSS, "reading the input failed");
        }
        l->ended = n == 0;
        PGD_TRY(pgd_text_add(&l->pending, bytes, (size_t)n));
        if (l->pending.len > MAX_LINE) {
            return pgd_fail(PGD_INVALID, "a line of the input has more than %zu bytes", MAX_LINE);
        }
    }
}

pgd_status cli_chat_remember(cli_chat_lines *l, pgd_str line) {
    if (line.len == 0 ||
        (l->n_history > 0 && pgd_str_equal(pgd_text_view(&l->history[l->n_history - 1]), line))) {
        return PGD_OK;
    }
    if (l->n_history == CLI_CHAT_HISTORY) {
        pgd_text_free(&l->history[0]);
        memmove(&l->history[0], &l->history[1], (CLI_CHAT_HISTORY - 1) * sizeof(l->history[0]));
        l->n_history--;
    }
    l->history[l->n_history] = (pgd_text){0};
    PGD_TRY(pgd_text_add_str(&l->history[l->n_history], line));
    l->n_history++;
    return PGD_OK;
}

void cli_chat_lines_free(cli_chat_lines *l) {
    pgd_text_free(&l->pending);
    for (size_t i = 0; i < l->n_history; i++) {
        pgd_text_free(&l->history[i]);
    }
}

// 1 for what a terminal takes as an order: C0 but newline and tab, DEL, and C1.
static int32_t is_order(uint32_t cp) {
    return (cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7f && cp < 0xa0);
}

void cli_chat_print(void *stream, const char *text, size_t len, int32_t is_terminal) {
    size_t at = 0;
    while (is_terminal && at < len) {
        uint32_t cp = 0;
        size_t n = pgd_utf8_decode(text + at, len - at, &cp);
        if (is_order(cp)) {
            (void)fputc('?', stream);
        } else {
            (void)fwrite(text + at, 1, n, stream);
        }
        at += n;
    }
    (void)fwrite(text + at, 1, len - at, stream);
    (void)fflush(stream);
}
