// Statements of chat templates: tokens to nodes. What the subset lacks is refused by name and line.
#include "text/template_parser.h"

#define STATEMENTS "if, for, set, with, macro, filter, generation, break, continue and raw"

typedef pgd_status (*part_fn)(parser *p, node **out);

// One expression, or several with commas as a tuple.
static pgd_status tuple(parser *p, part_fn part, node **out) {
    PGD_TRY(part(p, out));
    if (!is_op(p, ",")) {
        return PGD_OK;
    }
    node *n = NULL;
    PGD_TRY(new_node(p, N_TUPLE, &n));
    PGD_TRY(push(p, &n->items, *out));
    while (skip_op(p, ",")) {
        if (p->at->kind == TOK_BLOCK_END || p->at->kind == TOK_VAR_END) {
            break;
        }
        node *item = NULL;
        PGD_TRY(part(p, &item));
        PGD_TRY(push(p, &n->items, item));
    }
    *out = n;
    return PGD_OK;
}

// ---- statements --------------------------------------------------------------------------------

static pgd_status body_until(parser *p, nodes *body, const char *const *ends, size_t n_ends,
                             size_t *which);

static pgd_status target_part(parser *p, node **out) {
    PGD_TRY(new_node(p, N_NAME, out));
    if (skip_op(p, "(")) {
        (*out)->kind = N_TUPLE;
        do {
            node *item = NULL;
            PGD_TRY(new_node(p, N_NAME, &item));
            PGD_TRY(expect_name(p, &item->text));
            PGD_TRY(push(p, &(*out)->items, item));
        } while (skip_op(p, ","));
        return expect_op(p, ")");
    }
    PGD_TRY(expect_name(p, &(*out)->text));
    if (is_op(p, ".")) {
        node *n = NULL;
        PGD_TRY(new_node(p, N_ATTR, &n));
        p->at++;
        n->a = *out;
        *out = n;
        return expect_name(p, &n->text);
    }
    return PGD_OK;
}

static pgd_status block_end(parser *p) {
    return expect(p, TOK_BLOCK_END, "%}");
}

static pgd_status if_block(parser *p, node *n) {
    static const char *const ends[] = {"elif", "else", "endif"};
    size_t which = 0;
    PGD_TRY(pgd_text_template_expression(p, &n->a));
    PGD_TRY(block_end(p));
    PGD_TRY(body_until(p, &n->body, ends, 3, &which));
    while (which == 0) { // elif: an if in the else part
        node *inner = NULL;
        PGD_TRY(new_node(p, N_IF_BLOCK, &inner));
        PGD_TRY(push(p, &n->other, inner));
        PGD_TRY(pgd_text_template_expression(p, &inner->a));
        PGD_TRY(block_end(p));
        PGD_TRY(body_until(p, &inner->body, ends, 3, &which));
        n = inner;
    }
    if (which == 1) {
        PGD_TRY(block_end(p));
        PGD_TRY(body_until(p, &n->other, ends + 2, 1, &which));
    }
    return block_end(p);
}

static pgd_status for_block(parser *p, node *n) {
    static const char *const ends[] = {"else", "endfor"};
    size_t which = 0;
    PGD_TRY(tuple(p, target_part, &n->a));
    if (!skip_name(p, "in")) {
        return unexpected(p, "in");
    }
    PGD_TRY(tuple(p, pgd_text_template_simple_expression, &n->b));
    if (skip_name(p, "if")) {
        PGD_TRY(pgd_text_template_expression(p, &n->c));
    }
    if (is_name(p, "recursive")) {
        return fail_at(p, PGD_UNSUPPORTED, "recursive loops are not supported");
    }
    PGD_TRY(block_end(p));
    p->loops++;
    PGD_TRY(body_until(p, &n->body, ends, 2, &which));
    p->loops--;
    if (which == 0) {
        PGD_TRY(block_end(p));
        PGD_TRY(body_until(p, &n->other, ends + 1, 1, &which));
    }
    return block_end(p);
}

static pgd_status set_block(parser *p, node *n) {
    static const char *const ends[] = {"endset"};
    size_t which = 0;
    PGD_TRY(tuple(p, target_part, &n->a));
    if (skip_op(p, "=")) {
        PGD_TRY(tuple(p, pgd_text_template_expression, &n->b));
        return block_end(p);
    }
    n->kind = N_SET_BLOCK;
    while (skip_op(p, "|")) {
        PGD_TRY(pgd_text_template_parse_filter(p, n->b, &n->b));
    }
    PGD_TRY(block_end(p));
    PGD_TRY(body_until(p, &n->body, ends, 1, &which));
    return block_end(p);
}

static pgd_status filter_block(parser *p, node *n) {
    static const char *const ends[] = {"endfilter"};
    size_t which = 0;
    do {
        PGD_TRY(pgd_text_template_parse_filter(p, n->b, &n->b));
    } while (skip_op(p, "|"));
    PGD_TRY(block_end(p));
    PGD_TRY(body_until(p, &n->body, ends, 1, &which));
    return block_end(p);
}

static pgd_status macro_block(parser *p, node *n) {
    static const char *const ends[] = {"endmacro"};
    size_t which = 0;
    PGD_TRY(expect_name(p, &n->text));
    PGD_TRY(expect_op(p, "("));
    while (!skip_op(p, ")")) {
        if (n->named.n > 0) {
            PGD_TRY(expect_op(p, ","));
        }
        pgd_str name;
        node *otherwise = NULL;
        PGD_TRY(expect_name(p, &name));
        if (skip_op(p, "=")) {
            PGD_TRY(pgd_text_template_expression(p, &otherwise));
        }
        PGD_TRY(push_named(p, n, name, otherwise));
    }
    PGD_TRY(block_end(p));
    uint32_t loops = p->loops;
    p->loops = 0;
    PGD_TRY(body_until(p, &n->body, ends, 1, &which));
    p->loops = loops;
    return block_end(p);
}

static pgd_status with_block(parser *p, node *n) {
    static const char *const ends[] = {"endwith"};
    size_t which = 0;
    while (p->at->kind != TOK_BLOCK_END) {
        pgd_str name;
        node *v = NULL;
        if (n->named.n > 0) {
            PGD_TRY(expect_op(p, ","));
        }
        PGD_TRY(expect_name(p, &name));
        PGD_TRY(expect_op(p, "="));
        PGD_TRY(pgd_text_template_expression(p, &v));
        PGD_TRY(push_named(p, n, name, v));
    }
    PGD_TRY(block_end(p));
    PGD_TRY(body_until(p, &n->body, ends, 1, &which));
    return block_end(p);
}

static pgd_status generation_block(parser *p, node *n) {
    static const char *const ends[] = {"endgeneration"};
    size_t which = 0;
    PGD_TRY(block_end(p));
    PGD_TRY(body_until(p, &n->body, ends, 1, &which));
    return block_end(p);
}

static pgd_status jump(parser *p, node *n) {
    (void)n;
    if (p->loops == 0) {
        return FAIL(p, "break and continue belong inside a for loop");
    }
    return block_end(p);
}

static pgd_status statement(parser *p, node **out) {
    static const struct {
        const char *name;
        node_kind kind;
        pgd_status (*parse)(parser *p, node *n);
    } known[] = {
        {"if", N_IF_BLOCK, if_block},
        {"for", N_FOR, for_block},
        {"set", N_SET, set_block},
        {"with", N_WITH, with_block},
        {"macro", N_MACRO, macro_block},
        {"filter", N_FILTER_BLOCK, filter_block},
        {"generation", N_GENERATION, generation_block},
        {"break", N_BREAK, jump},
        {"continue", N_CONTINUE, jump},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (is_name(p, known[i].name)) {
            PGD_TRY(new_node(p, known[i].kind, out));
            p->at++;
            return known[i].parse(p, *out);
        }
    }
    pgd_str s = shown(p->at);
    if (p->at->kind != TOK_NAME) {
        return unexpected(p, "a statement");
    }
    return fail_at(p, PGD_UNSUPPORTED,
                   "statement '%.*s' is not supported here; known are " STATEMENTS, (int)s.len,
                   s.ptr);
}

static pgd_status body_part(parser *p, nodes *body) {
    node *n = NULL;
    if (p->at->kind == TOK_DATA) {
        PGD_TRY(new_node(p, N_DATA, &n));
        n->text = p->at->text;
        p->at++;
    } else if (p->at->kind == TOK_VAR_BEGIN) {
        PGD_TRY(new_node(p, N_OUTPUT, &n));
        p->at++;
        PGD_TRY(tuple(p, pgd_text_template_expression, &n->a));
        PGD_TRY(expect(p, TOK_VAR_END, "}}"));
    } else {
        PGD_TRY(expect(p, TOK_BLOCK_BEGIN, "{%"));
        PGD_TRY(statement(p, &n));
    }
    return push(p, body, n);
}

// Parses until a block that begins with one of the ends; stands behind its name then.
static pgd_status body_until(parser *p, nodes *body, const char *const *ends, size_t n_ends,
                             size_t *which) {
    if (++p->depth > TPL_MAX_NESTING) {
        return FAIL(p, "expressions and blocks are nested more than %d deep", TPL_MAX_NESTING);
    }
    while (p->at->kind != TOK_END) {
        if (p->at->kind == TOK_BLOCK_BEGIN && p->at[1].kind == TOK_NAME) {
            for (size_t i = 0; i < n_ends; i++) {
                if (pgd_str_is(p->at[1].text, ends[i])) {
                    p->at += 2;
                    *which = i;
                    p->depth--;
                    return PGD_OK;
                }
            }
        }
        PGD_TRY(body_part(p, body));
    }
    return n_ends == 0 ? PGD_OK : FAIL(p, "the template ends where %s should be", ends[n_ends - 1]);
}

pgd_status pgd_text_template_build(const tokens *t, pgd_arena *arena, nodes *out) {
    parser p = {.at = t->items, .arena = arena};
    size_t which = 0;
    return body_until(&p, out, NULL, 0, &which);
}
