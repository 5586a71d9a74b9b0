// The lexer of chat templates: data, {{ }}, {% %}, {# #}, raw blocks, and what is inside.
//
// White space as transformers sets Jinja up (trim_blocks, lstrip_blocks): the first newline behind
// a block or comment goes; blanks between a line's start and a block or comment go. A `-` at a tag
// takes all white space on that side, a `+` keeps it.
#include <string.h>

#include "text/parts.h"
#include "text/template_parts.h"

typedef struct {
    pgd_str s;
    size_t at;
    uint32_t line;
    int32_t line_start; // the data ahead begins a line
    pgd_arena *arena;
    tokens *out;
} lexer;

static pgd_status add(lexer *x, token_kind kind, pgd_str text, token more) {
    void *items = x->out->items;
    PGD_TRY(pgd_text_grow(&items, &x->out->cap, x->out->n + 1, sizeof(token), "a chat template"));
    x->out->items = items;
    more.kind = kind;
    more.line = x->line;
    more.text = text;
    x->out->items[x->out->n++] = more;
    return PGD_OK;
}

static void count_lines(lexer *x, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        x->line += x->s.ptr[i] == '\n';
    }
}

static int32_t is_at(const lexer *x, size_t at, const char *text) {
    size_t n = strlen(text);
    return x->s.len - at >= n && at <= x->s.len && memcmp(x->s.ptr + at, text, n) == 0;
}

static size_t skip_spaces(const lexer *x, size_t at) {
    size_t end = at;
    while (at < x->s.len && (pgd_text_class(pgd_text_char(x->s, at, &end)) & PGD_TEXT_SPACE)) {
        at = end;
    }
    return at;
}

// ---- data --------------------------------------------------------------------------------------

// Adds data that ends at a tag: sign is the tag's - or +, block 1 when it is no {{.
static pgd_status add_data(lexer *x, size_t from, size_t to, char sign, int32_t block) {
    pgd_str text = {x->s.ptr + from, to - from};
    if (sign == '-') {
        text = pgd_text_template_strip(text, NULL, 2);
    } else if (sign != '+' && block) {
        size_t start = text.len;
        while (start > 0 && text.ptr[start - 1] != '\n') {
            start--;
        }
        pgd_str last = {text.ptr + start, text.len - start};
        if ((start > 0 || x->line_start) && pgd_text_template_strip(last, NULL, 2).len == 0) {
            text.len = start;
        }
    }
    if (text.len > 0) {
        PGD_TRY(add(x, TOK_DATA, text, (token){0}));
    }
    count_lines(x, from, to);
    return PGD_OK;
}

// Behind the end of a block or comment whose closing text starts at `at` (its sign first).
static size_t end_of_block(lexer *x, size_t at) {
    char sign = x->s.ptr[at];
    size_t end = at + (sign == '-' || sign == '+' ? 3 : 2);
    if (sign == '-') {
        end = skip_spaces(x, end);
    } else if (sign != '+' && end < x->s.len && x->s.ptr[end] == '\n') {
        end++;
    }
    x->line_start = x->s.ptr[end - 1] == '\n';
    count_lines(x, at, end);
    return end;
}

static pgd_status lex_comment(lexer *x) {
    for (size_t i = x->at + 2; i + 1 < x->s.len; i++) {
        if (!is_at(x, i, "#}")) {
            continue;
        }
        char before = x->s.ptr[i - 1];
        size_t close = (before == '-' || before == '+') && i - 1 >= x->at + 2 ? i - 1 : i;
        count_lines(x, x->at, close);
        x->at = end_of_block(x, close);
        return PGD_OK;
    }
    return pgd_fail(PGD_INVALID, "chat template, line %u: a comment {# without #}", x->line);
}

// ---- raw ---------------------------------------------------------------------------------------

// Behind "{% name %}" at `at`, 0 = it is not there. *close: where its end begins; *sign: at {%.
static size_t plain_tag(const lexer *x, size_t at, const char *name, size_t *close, char *sign) {
    if (!is_at(x, at, "{%")) {
        return 0;
    }
    size_t i = at + 2;
    *sign = i < x->s.len && (x->s.ptr[i] == '-' || x->s.ptr[i] == '+') ? x->s.ptr[i++] : 0;
    i = skip_spaces(x, i);
    if (!is_at(x, i, name)) {
        return 0;
    }
    i = skip_spaces(x, i + strlen(name));
    *close = i;
    i += i < x->s.len && (x->s.ptr[i] == '-' || x->s.ptr[i] == '+');
    return is_at(x, i, "%}") ? i + 2 : 0;
}

static pgd_status lex_raw(lexer *x, size_t close, size_t start) {
    uint32_t line = x->line;
    if (x->s.ptr[close] == '-') {
        start = skip_spaces(x, start);
    }
    count_lines(x, x->at, start);
    x->line_start = x->s.ptr[start - 1] == '\n';
    for (size_t i = start; i < x->s.len; i++) {
        char sign = 0;
        if (plain_tag(x, i, "endraw", &close, &sign) != 0) {
            PGD_TRY(add_data(x, start, i, sign, 1));
            count_lines(x, i, close);
            x->at = end_of_block(x, close);
            return PGD_OK;
        }
    }
    return pgd_fail(PGD_INVALID, "chat template, line %u: {%% raw %%} without {%% endraw %%}",
                    line);
}

// ---- expressions -------------------------------------------------------------------------------

static int32_t is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int32_t is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) ||
           (uint8_t)c >= 0x80;
}

static int32_t hex_value(pgd_str s, size_t at, size_t digits, uint32_t *out) {
    uint32_t made = 0;
    if (s.len - at < digits) {
        return 0;
    }
    for (size_t i = at; i < at + digits; i++) {
        char c = (char)(s.ptr[i] | 0x20);
        if (!is_digit(s.ptr[i]) && !(c >= 'a' && c <= 'f')) {
            return 0;
        }
        made = made * 16 + (uint32_t)(is_digit(s.ptr[i]) ? s.ptr[i] - '0' : c - 'a' + 10);
    }
    *out = made;
    return 1;
}

// One escape behind a backslash at s[*at]; moves *at behind it.
static pgd_status unescape(const lexer *x, pgd_str s, size_t *at, pgd_text *out) {
    static const char from[] = "ntrabfv\\'\"";
    static const char to[] = "\n\t\r\a\b\f\v\\'\"";
    char c = s.ptr[*at];
    const char *simple = c != 0 ? strchr(from, c) : NULL;
    if (simple != NULL) {
        *at += 1;
        return pgd_text_add(out, &to[simple - from], 1);
    }
    if (c == '\n') {
        *at += 1;
        return PGD_OK;
    }
    uint32_t cp = 0;
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
        char bytes[4];
        size_t n = hex_value(s, *at + 1, digits, &cp) ? pgd_utf8_encode(cp, bytes) : 0;
        if (n == 0) {
            return pgd_fail(PGD_INVALID, "chat template, line %u: bad escape \\%c in a string",
                            x->line, c);
        }
        *at += 1 + digits;
        return pgd_text_add(out, bytes, n);
    }
    if (c >= '0' && c <= '7') {
        size_t n = 0;
        for (; n < 3 && *at < s.len && s.ptr[*at] >= '0' && s.ptr[*at] <= '7'; n++, (*at)++) {
            cp = cp * 8 + (uint32_t)(s.ptr[*at] - '0');
        }
        char bytes[4];
        return pgd_text_add(out, bytes, pgd_utf8_encode(cp, bytes));
    }
    return pgd_text_add(out, "\\", 1); // an unknown escape stays as it is
}

static pgd_status lex_string(lexer *x) {
    char quote = x->s.ptr[x->at];
    size_t end = x->at + 1;
    while (end < x->s.len && x->s.ptr[end] != quote) {
        end += x->s.ptr[end] == '\\' ? 2 : 1;
    }
    if (end >= x->s.len) {
        return pgd_fail(PGD_INVALID, "chat template, line %u: a string without its end", x->line);
    }
    pgd_str s = {x->s.ptr + x->at + 1, end - x->at - 1};
    pgd_text made = {0};
    pgd_status status = PGD_OK;
    for (size_t i = 0; i < s.len && status == PGD_OK;) {
        if (s.ptr[i] == '\\' && i + 1 < s.len) {
            i++;
            status = unescape(x, s, &i, &made);
        } else {
            status = pgd_text_add(&made, &s.ptr[i++], 1);
        }
    }
    pgd_str kept = {0};
    if (status == PGD_OK) {
        kept = pgd_arena_copy(x->arena, pgd_text_view(&made));
        status = kept.ptr == NULL ? PGD_MEM_FAIL("a chat template", made.len)
                                  : add(x, TOK_STRING, kept, (token){0});
    }
    pgd_text_free(&made);
    count_lines(x, x->at, end);
    x->at = end + 1;
    return status;
}

static size_t digits_end(const lexer *x, size_t at) {
    while (at < x->s.len && (is_digit(x->s.ptr[at]) || (x->s.ptr[at] == '_' && at + 1 < x->s.len &&
                                                        is_digit(x->s.ptr[at + 1])))) {
        at++;
    }
    return at;
}

static pgd_status lex_number(lexer *x) {
    size_t end = digits_end(x, x->at);
    token_kind kind = TOK_INT;
    if (end + 1 < x->s.len && x->s.ptr[end] == '.' && is_digit(x->s.ptr[end + 1])) {
        kind = TOK_FLOAT;
        end = digits_end(x, end + 1);
    }
    if (end < x->s.len && (x->s.ptr[end] == 'e' || x->s.ptr[end] == 'E')) {
        size_t power = end + 1;
        power += power < x->s.len && (x->s.ptr[power] == '+' || x->s.ptr[power] == '-');
        if (power < x->s.len && is_digit(x->s.ptr[power])) {
            kind = TOK_FLOAT;
            end = digits_end(x, power);
        }
    }
    char digits[64];
    size_t n = 0;
    for (size_t i = x->at; i < end && n < sizeof(digits); i++) {
        if (x->s.ptr[i] != '_') {
            digits[n++] = x->s.ptr[i];
        }
    }
    token t = {0};
    pgd_str text = {digits, n};
    if (n == sizeof(digits) ||
        !(kind == TOK_INT ? pgd_str_to_i64(text, &t.i) : pgd_str_to_f64(text, &t.f)) ||
        (end < x->s.len && is_name_char(x->s.ptr[end]))) {
        return pgd_fail(PGD_INVALID, "chat template, line %u: bad number '%.*s'", x->line,
                        (int)(end - x->at < 40 ? end - x->at + 1 : 40), x->s.ptr + x->at);
    }
    PGD_TRY(add(x, kind, (pgd_str){x->s.ptr + x->at, end - x->at}, t));
    x->at = end;
    return PGD_OK;
}

static pgd_status lex_operator(lexer *x, int32_t *depth) {
    static const char *const pairs[] = {"==", "!=", ">=", "<=", "//", "**"};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (is_at(x, x->at, pairs[i])) {
            x->at += 2;
            return add(x, TOK_OP, (pgd_str){x->s.ptr + x->at - 2, 2}, (token){0});
        }
    }
    char c = x->s.ptr[x->at];
    if (c == 0 || strchr("+-/*%~[](){}<>=.:|,;", c) == NULL) {
        return pgd_fail(PGD_INVALID, "chat template, line %u: unexpected character '%c'", x->line,
                        c);
    }
    *depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    x->at++;
    return add(x, TOK_OP, (pgd_str){x->s.ptr + x->at - 1, 1}, (token){0});
}

// Where the end "%}" or "}}" begins when it stands here, its sign first.
static int32_t tag_ends(const lexer *x, const char *end) {
    char c = x->s.ptr[x->at];
    int32_t signed_end = c == '-' || (c == '+' && end[0] == '%');
    return is_at(x, x->at, end) || (signed_end && is_at(x, x->at + 1, end));
}

static pgd_status lex_inside(lexer *x, const char *end) {
    uint32_t line = x->line;
    int32_t depth = 0;
    while (x->at < x->s.len) {
        char c = x->s.ptr[x->at];
        if (depth == 0 && tag_ends(x, end)) {
            int32_t block = end[0] == '%';
            PGD_TRY(add(x, block ? TOK_BLOCK_END : TOK_VAR_END, (pgd_str){0}, (token){0}));
            if (block) {
                x->at = end_of_block(x, x->at);
                return PGD_OK;
            }
            size_t behind = x->at + (c == '-' ? 3 : 2);
            behind = c == '-' ? skip_spaces(x, behind) : behind;
            count_lines(x, x->at, behind);
            x->line_start = x->s.ptr[behind - 1] == '\n';
            x->at = behind;
            return PGD_OK;
        }
        size_t next = skip_spaces(x, x->at);
        if (next > x->at) {
            count_lines(x, x->at, next);
            x->at = next;
        } else if (c == '\'' || c == '"') {
            PGD_TRY(lex_string(x));
        } else if (is_digit(c)) {
            PGD_TRY(lex_number(x));
        } else if (is_name_char(c)) {
            size_t stop = x->at;
            while (stop < x->s.len && is_name_char(x->s.ptr[stop])) {
                stop++;
            }
            PGD_TRY(add(x, TOK_NAME, (pgd_str){x->s.ptr + x->at, stop - x->at}, (token){0}));
            x->at = stop;
        } else {
            PGD_TRY(lex_operator(x, &depth));
        }
    }
    return pgd_fail(PGD_INVALID, "chat template, line %u: a tag without its end %s", line, end);
}

pgd_status pgd_text_template_lex(pgd_str source, pgd_arena *arena, tokens *out) {
    lexer x = {.s = source, .line = 1, .line_start = 1, .arena = arena, .out = out};
    while (x.at < source.len) {
        size_t tag = x.at;
        while (tag < source.len && !is_at(&x, tag, "{{") && !is_at(&x, tag, "{%") &&
               !is_at(&x, tag, "{#")) {
            tag++;
        }
        if (tag == source.len) {
            PGD_TRY(add_data(&x, x.at, tag, '+', 0));
            break;
        }
        char kind = source.ptr[tag + 1];
        char sign = tag + 2 < source.len ? source.ptr[tag + 2] : 0;
        PGD_TRY(add_data(&x, x.at, tag, sign, kind != '{'));
        x.at = tag;
        size_t close = 0;
        size_t behind = plain_tag(&x, tag, "raw", &close, &sign);
        if (kind == '#') {
            PGD_TRY(lex_comment(&x));
        } else if (behind != 0) {
            PGD_TRY(lex_raw(&x, close, behind));
        } else {
            x.at = tag + 2 + (sign == '-' || sign == '+');
            token_kind begin = kind == '%' ? TOK_BLOCK_BEGIN : TOK_VAR_BEGIN;
            PGD_TRY(add(&x, begin, (pgd_str){0}, (token){0}));
            PGD_TRY(lex_inside(&x, kind == '%' ? "%}" : "}}"));
        }
    }
    return add(&x, TOK_END, (pgd_str){0}, (token){0});
}
