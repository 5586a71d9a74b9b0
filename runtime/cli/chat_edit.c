// One line on a terminal, with the keys people know: arrows, Home, End, Backspace, Delete, history
// with Up and Down, Ctrl-A E B F K U W L P N. A line may be longer than the terminal is wide (it
// scrolls) and than the 4,095 bytes that a terminal's own editing passes on. What is pasted is
// taken as it is, newlines included, and shows them as a sign.
//
//   > |visible part of the line|      start: first byte shown, at: the cursor, both on characters
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "cli/chat.h"
#include "os/interrupt.h"
#include "os/terminal.h"

#define STDIN        0
#define STDERR       2
#define MAX_LINE     ((size_t)16 << 20)
#define NEWLINE_SIGN "\xe2\x86\xb5"

// Keys above Unicode.
enum {
    KEY_UP = 0x110000,
    KEY_DOWN,
    KEY_RIGHT,
    KEY_LEFT,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_PASTE,
    KEY_OTHER,
    KEY_GONE,        // the terminal's other side has ended
    KEY_INTERRUPTED, // Ctrl-C
};

typedef struct editor {
    cli_chat_lines *lines;
    const char *prompt; // as it is written
    int32_t prompt_width;
    pgd_text *text;
    size_t at;
    size_t start;
    size_t history; // the entry shown, n_history = the line that is typed
    pgd_text typed; // that line while an entry is shown
} editor;

// ---- keys --------------------------------------------------------------------------------------

// The next byte, or KEY_GONE or KEY_INTERRUPTED.
static int32_t next_byte(cli_chat_lines *l) {
    char bytes[4096];
    if (l->taken == l->pending.len) {
        pgd_text_clear(&l->pending);
        l->taken = 0;
        // Again each time: a stop (Ctrl-Z) puts the terminal back behind our back.
        if (pgd_os_terminal_keys(STDIN, 1) != PGD_OK) {
            return KEY_GONE;
        }
        int64_t n = pgd_os_interrupt_read(STDIN, bytes, sizeof(bytes));
        if (n == PGD_OS_READ_INTERRUPTED) {
            return KEY_INTERRUPTED;
        }
        if (n <= 0 || pgd_text_add(&l->pending, bytes, (size_t)n) != PGD_OK) {
            return KEY_GONE;
        }
    }
    return (unsigned char)l->pending.ptr[l->taken++];
}

// What follows an escape: "[A", "OA", "[3~", "[200~" ...
static int32_t escape_key(cli_chat_lines *l) {
    static const struct {
        const char *bytes;
        int32_t key;
    } keys[] = {
        {"A", KEY_UP},   {"B", KEY_DOWN}, {"C", KEY_RIGHT},   {"D", KEY_LEFT},
        {"H", KEY_HOME}, {"F", KEY_END},  {"1~", KEY_HOME},   {"7~", KEY_HOME},
        {"4~", KEY_END}, {"8~", KEY_END}, {"3~", KEY_DELETE}, {"200~", KEY_PASTE},
    };
    char bytes[16] = "";
    int32_t byte = next_byte(l);
    if (byte != '[' && byte != 'O') {
        return byte > 0xff ? byte : KEY_OTHER;
    }
    for (size_t n = 0; n + 1 < sizeof(bytes); n++) {
        byte = next_byte(l);
        if (byte > 0xff) {
            return byte;
        }
        bytes[n] = (char)byte;
        if (byte >= 0x40) { // the last byte of a sequence
            break;
        }
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(bytes, keys[i].bytes) == 0) {
            return keys[i].key;
        }
    }
    return KEY_OTHER;
}

// A key: a code point, or one of KEY_... .
static int32_t next_key(cli_chat_lines *l) {
    char bytes[4];
    int32_t byte = next_byte(l);
    if (byte == 0x1b) {
        return escape_key(l);
    }
    if (byte < 0xc0 || byte > 0xf4) {
        return byte >= 0x80 && byte <= 0xff ? KEY_OTHER : byte;
    }
    size_t n = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    bytes[0] = (char)byte;
    for (size_t i = 1; i < n; i++) {
        byte = next_byte(l);
        if (byte > 0xff) {
            return byte;
        }
        bytes[i] = (char)byte;
    }
    uint32_t cp = 0;
    return pgd_utf8_decode(bytes, n, &cp) == n && cp != PGD_UTF8_BAD ? (int32_t)cp : KEY_OTHER;
}

// ---- what is shown -----------------------------------------------------------------------------

// Columns of a character: the East Asian wide ones and pictures take two, combining marks none.
static int32_t width_of(uint32_t cp) {
    static const uint32_t wide[][2] = {{0x1100, 0x115f},  {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
                                       {0xf900, 0xfaff},  {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                       {0xffe0, 0xffe6},  {0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff},
                                       {0x20000, 0x3fffd}};
    if ((cp >= 0x300 && cp <= 0x36f) || cp == 0x200d || (cp >= 0xfe00 && cp <= 0xfe0f)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
        if (cp >= wide[i][0] && cp <= wide[i][1]) {
            return 2;
        }
    }
    return 1;
}

// Columns of the line from byte `from` to byte `to`.
static int32_t columns(const pgd_text *t, size_t from, size_t to) {
    int32_t n = 0;
    for (size_t i = from; i < to;) {
        uint32_t cp = 0;
        i += pgd_utf8_decode(t->ptr + i, t->len - i, &cp);
        n += width_of(cp);
    }
    return n;
}

static size_t after(const pgd_text *t, size_t at) {
    uint32_t cp = 0;
    return at < t->len ? at + pgd_utf8_decode(t->ptr + at, t->len - at, &cp) : at;
}

static size_t before(const pgd_text *t, size_t at) {
    while (at > 0 && ((unsigned char)t->ptr[--at] & 0xc0) == 0x80) {
    }
    return at;
}

static void draw(editor *e) {
    const pgd_text *t = e->text;
    int32_t room = pgd_os_terminal_width(STDERR) - e->prompt_width - 1;
    room = room < 8 ? 8 : room;
    // Only as far back as the cursor's column needs: a long paste stays quick.
    e->start = e->start > e->at ? e->at : e->start;
    size_t start = e->at;
    for (int32_t used = 0; start > e->start;) {
        size_t back = before(t, start);
        used += columns(t, back, start);
        if (used > room) {
            break;
        }
        start = back;
    }
    e->start = start;
    (void)fprintf(stderr, "\r%s", e->prompt);
    int32_t used = 0;
    for (size_t i = start; i < t->len;) {
        uint32_t cp = 0;
        size_t n = pgd_utf8_decode(t->ptr + i, t->len - i, &cp);
        used += width_of(cp);
        if (used > room) {
            break;
        }
        if (cp == '\n') {
            (void)fputs(NEWLINE_SIGN, stderr);
        } else {
            cli_chat_print(stderr, t->ptr + i, n, 1);
        }
        i += n;
    }
    (void)fprintf(stderr, "\033[K\r\033[%dC", e->prompt_width + columns(t, start, e->at));
    (void)fflush(stderr);
}

// ---- what keys do ------------------------------------------------------------------------------

static void erase(editor *e, size_t from, size_t to) {
    if (from < to) {
        memmove(e->text->ptr + from, e->text->ptr + to, e->text->len - to);
        e->text->len -= to - from;
        e->text->ptr[e->text->len] = '\0';
        e->at = from;
    }
}

static pgd_status insert(editor *e, const char *bytes, size_t n) {
    size_t len = e->text->len;
    if (n > MAX_LINE - len) {
        return pgd_fail(PGD_INVALID, "a line of the input has more than %zu bytes", MAX_LINE);
    }
    PGD_TRY(pgd_text_add(e->text, bytes, n));
    memmove(e->text->ptr + e->at + n, e->text->ptr + e->at, len - e->at);
    memcpy(e->text->ptr + e->at, bytes, n);
    e->at += n;
    return PGD_OK;
}

// Everything up to the mark that ends a paste, as it is but for other kinds of newlines.
static pgd_status paste(editor *e) {
    static const char mark[] = "\033[201~";
    pgd_text all = {0};
    pgd_status status = PGD_OK;
    while (status == PGD_OK && !pgd_str_ends(pgd_text_view(&all), PGD_STR(mark))) {
        int32_t byte = next_byte(e->lines);
        if (byte > 0xff) {
            break;
        }
        char c = byte == '\r' ? '\n' : (char)byte;
        status = pgd_text_add(&all, &c, 1);
    }
    if (status == PGD_OK && pgd_str_ends(pgd_text_view(&all), PGD_STR(mark))) {
        all.len -= sizeof(mark) - 1;
        status = pgd_utf8_valid(pgd_text_view(&all)) ? insert(e, all.ptr, all.len) : PGD_OK;
    }
    pgd_text_free(&all);
    return status;
}

// Shows another entry of the history; the line that is typed stays at its end.
static pgd_status go_to(editor *e, size_t entry) {
    const cli_chat_lines *l = e->lines;
    if (e->history == l->n_history) {
        pgd_text_clear(&e->typed);
        PGD_TRY(pgd_text_add_str(&e->typed, pgd_text_view(e->text)));
    }
    const pgd_text *from = entry == l->n_history ? &e->typed : &l->history[entry];
    e->history = entry;
    pgd_text_clear(e->text);
    PGD_TRY(pgd_text_add_str(e->text, pgd_text_view(from)));
    e->at = e->text->len;
    return PGD_OK;
}

// Where the word before the cursor begins.
static size_t word_start(const editor *e) {
    size_t at = e->at;
    while (at > 0 && e->text->ptr[at - 1] == ' ') {
        at--;
    }
    while (at > 0 && e->text->ptr[at - 1] != ' ') {
        at--;
    }
    return at;
}

#define CTRL(letter) ((letter) - 'A' + 1)

static pgd_status move_or_erase(editor *e, int32_t key) {
    pgd_text *t = e->text;
    switch (key) {
    case CTRL('A'):
    case KEY_HOME: e->at = 0; break;
    case CTRL('E'):
    case KEY_END: e->at = t->len; break;
    case CTRL('B'):
    case KEY_LEFT: e->at = before(t, e->at); break;
    case CTRL('F'):
    case KEY_RIGHT: e->at = after(t, e->at); break;
    case CTRL('H'):
    case 0x7f: erase(e, before(t, e->at), e->at); break;
    case CTRL('D'):
    case KEY_DELETE: erase(e, e->at, after(t, e->at)); break;
    case CTRL('U'): erase(e, 0, e->at); break;
    case CTRL('K'): erase(e, e->at, t->len); break;
    case CTRL('W'): erase(e, word_start(e), e->at); break;
    case CTRL('L'): (void)fputs("\033[H\033[2J", stderr); break;
    case CTRL('P'):
    case KEY_UP: return e->history > 0 ? go_to(e, e->history - 1) : PGD_OK;
    case CTRL('N'):
    case KEY_DOWN: return e->history < e->lines->n_history ? go_to(e, e->history + 1) : PGD_OK;
    case KEY_PASTE: return paste(e);
    default: break;
    }
    return PGD_OK;
}

static pgd_status on_key(editor *e, int32_t key) {
    char bytes[4];
    if ((key >= 0x20 && key < 0x7f) || (key >= 0xa0 && key < KEY_UP) || key == '\t') {
        bytes[0] = ' ';
        return insert(e, bytes, key == '\t' ? 1 : pgd_utf8_encode((uint32_t)key, bytes));
    }
    return move_or_erase(e, key);
}

static pgd_status edit(editor *e, int32_t *out_kind) {
    for (;;) {
        // What comes in one piece is drawn once.
        if (e->lines->taken == e->lines->pending.len) {
            draw(e);
        }
        int32_t key = next_key(e->lines);
        int32_t ends = key == KEY_GONE || (key == CTRL('D') && e->text->len == 0);
        if (ends || key == KEY_INTERRUPTED) {
            *out_kind = ends ? CLI_LINE_END : CLI_LINE_INTERRUPTED;
            return PGD_OK;
        }
        if (key == '\n' || key == '\r') {
            e->at = e->text->len;
            draw(e);
            (void)fputs("\n", stderr);
            *out_kind = CLI_LINE;
            return cli_chat_remember(e->lines, pgd_text_view(e->text));
        }
        PGD_TRY(on_key(e, key));
    }
}

pgd_status cli_chat_edit(cli_chat_lines *l, const char *prompt, int32_t prompt_width,
                         pgd_text *line, int32_t *out_kind) {
    editor e = {.lines = l,
                .prompt = prompt,
                .prompt_width = prompt_width,
                .text = line,
                .history = l->n_history};
    pgd_text_clear(line);
    PGD_TRY(pgd_text_reserve(line, 256));
    PGD_TRY(pgd_os_terminal_keys(STDIN, 1));
    (void)fputs("\033[?2004h", stderr); // pastes come marked
    pgd_status status = edit(&e, out_kind);
    (void)fputs("\033[?2004l", stderr);
    (void)fflush(stderr);
    if (*out_kind == CLI_LINE_INTERRUPTED) {
        pgd_text_clear(&l->pending);
        l->taken = 0;
    }
    if (pgd_os_terminal_keys(STDIN, 0) != PGD_OK && status == PGD_OK) {
        *out_kind = CLI_LINE_END; // the terminal is gone
    }
    pgd_text_free(&e.typed);
    return status;
}
