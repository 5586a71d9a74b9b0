// What the two halves of the template parser share: the place in the tokens, and small steps on it.
// template_expression.c parses expressions, template_parse.c statements.
#ifndef PGD_TEXT_TEMPLATE_PARSER_H
#define PGD_TEXT_TEMPLATE_PARSER_H

#include <stdio.h>
#include <string.h>

#include "text/template_parts.h"

typedef struct parser {
    const token *at;
    pgd_arena *arena;
    uint32_t depth;
    uint32_t loops; // nested for loops, for break and continue
} parser;

#define FAIL(p, ...) fail_at((p), PGD_INVALID, __VA_ARGS__)

static inline pgd_status fail_at(const parser *p, pgd_status code, const char *fmt, ...)
    PGD_PRINTF(3, 4);

static inline pgd_status fail_at(const parser *p, pgd_status code, const char *fmt, ...) {
    char buffer[300];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(buffer, sizeof(buffer), fmt, args);
    va_end(args);
    return pgd_fail(code, "chat template, line %u: %s", p->at->line, buffer);
}

static inline pgd_status new_node(parser *p, node_kind kind, node **out) {
    node *n = pgd_arena_alloc(p->arena, 1, sizeof(*n));
    if (n == NULL) {
        return PGD_MEM_FAIL("a chat template", sizeof(*n));
    }
    n->kind = kind;
    n->line = p->at->line;
    *out = n;
    return PGD_OK;
}

static inline pgd_status push(parser *p, nodes *to, node *item) {
    if (to->n == to->cap) {
        size_t cap = to->cap == 0 ? 4 : to->cap * 2;
        node **items = pgd_arena_alloc(p->arena, cap, sizeof(*items));
        if (items == NULL) {
            return PGD_MEM_FAIL("a chat template", cap * sizeof(*items));
        }
        if (to->n > 0) {
            memcpy(items, to->items, to->n * sizeof(*items));
        }
        to->items = items;
        to->cap = cap;
    }
    to->items[to->n++] = item;
    return PGD_OK;
}

// Adds a named item: names[i] belongs to named.items[i].
static inline pgd_status push_named(parser *p, node *n, pgd_str name, node *item) {
    pgd_str *names = pgd_arena_alloc(p->arena, n->named.n + 1, sizeof(*names));
    if (names == NULL) {
        return PGD_MEM_FAIL("a chat template", sizeof(*names));
    }
    if (n->named.n > 0) {
        memcpy(names, n->names, n->named.n * sizeof(*names));
    }
    names[n->named.n] = name;
    n->names = names;
    return push(p, &n->named, item);
}

// ---- tokens ------------------------------------------------------------------------------------

static inline int32_t is_op(const parser *p, const char *op) {
    return p->at->kind == TOK_OP && pgd_str_is(p->at->text, op);
}

static inline int32_t is_name(const parser *p, const char *name) {
    return p->at->kind == TOK_NAME && pgd_str_is(p->at->text, name);
}

static inline int32_t skip_op(parser *p, const char *op) {
    int32_t yes = is_op(p, op);
    p->at += yes;
    return yes;
}

static inline int32_t skip_name(parser *p, const char *name) {
    int32_t yes = is_name(p, name);
    p->at += yes;
    return yes;
}

static inline pgd_str shown(const token *t) {
    switch (t->kind) {
    case TOK_END: return PGD_STR("end of the template");
    case TOK_DATA: return PGD_STR("text");
    case TOK_VAR_BEGIN: return PGD_STR("{{");
    case TOK_VAR_END: return PGD_STR("}}");
    case TOK_BLOCK_BEGIN: return PGD_STR("{%");
    case TOK_BLOCK_END: return PGD_STR("%}");
    default: return (pgd_str){t->text.ptr, t->text.len < 60 ? t->text.len : 60};
    }
}

static inline pgd_status unexpected(const parser *p, const char *wanted) {
    pgd_str s = shown(p->at);
    return FAIL(p, "%s expected, found '%.*s'", wanted, (int)s.len, s.ptr);
}

static inline pgd_status expect_op(parser *p, const char *op) {
    return skip_op(p, op) ? PGD_OK : unexpected(p, op);
}

static inline pgd_status expect(parser *p, token_kind kind, const char *what) {
    if (p->at->kind != kind) {
        return unexpected(p, what);
    }
    p->at++;
    return PGD_OK;
}

static inline pgd_status expect_name(parser *p, pgd_str *out) {
    *out = p->at->text;
    return expect(p, TOK_NAME, "a name");
}

// ---- template_expression.c ---------------------------------------------------------------------

// An expression; the other stops before an inline if.
pgd_status pgd_text_template_expression(parser *p, node **out) PGD_MUST_USE;
pgd_status pgd_text_template_simple_expression(parser *p, node **out) PGD_MUST_USE;
// A filter behind its |.
pgd_status pgd_text_template_parse_filter(parser *p, node *input, node **out) PGD_MUST_USE;

#endif
