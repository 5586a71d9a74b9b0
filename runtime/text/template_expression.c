// Expressions of chat templates: tokens to nodes, by recursive descent. Precedence, loosest first:
//
//   a if b else c | or | and | not | comparison, in | + - | ~ | * / // % | ** | sign
//   | .x [x] (x), then |filter and is
//
// Unknown filters and tests are refused here.
#include "text/template_parser.h"

static pgd_status unary(parser *p, int32_t with_filters, node **out);

static pgd_status arguments(parser *p, node *n) {
    while (!skip_op(p, ")")) {
        if (n->items.n + n->named.n > 0) {
            PGD_TRY(expect_op(p, ","));
            if (skip_op(p, ")")) {
                return PGD_OK;
            }
        }
        if (is_op(p, "*") || is_op(p, "**")) {
            return fail_at(p, PGD_UNSUPPORTED, "* and ** arguments are not supported");
        }
        pgd_str name = {0};
        if (p->at->kind == TOK_NAME && p->at[1].kind == TOK_OP && pgd_str_is(p->at[1].text, "=")) {
            name = p->at->text;
            p->at += 2;
        } else if (n->named.n > 0) {
            return FAIL(p, "an argument without a name behind a named one");
        }
        node *item = NULL;
        PGD_TRY(pgd_text_template_expression(p, &item));
        PGD_TRY(name.ptr != NULL ? push_named(p, n, name, item) : push(p, &n->items, item));
    }
    return PGD_OK;
}

// Items up to the closing operator; a comma at the end is fine.
static pgd_status items_until(parser *p, const char *close, node *n, int32_t *commas) {
    *commas = 0;
    while (!skip_op(p, close)) {
        if (n->items.n > 0) {
            PGD_TRY(expect_op(p, ","));
            *commas += 1;
            if (skip_op(p, close)) {
                return PGD_OK;
            }
        }
        node *item = NULL;
        PGD_TRY(pgd_text_template_expression(p, &item));
        PGD_TRY(push(p, &n->items, item));
    }
    return PGD_OK;
}

static pgd_status dict_literal(parser *p, node *n) {
    while (!skip_op(p, "}")) {
        if (n->items.n > 0) {
            PGD_TRY(expect_op(p, ","));
            if (skip_op(p, "}")) {
                return PGD_OK;
            }
        }
        node *item = NULL;
        PGD_TRY(pgd_text_template_expression(p, &item));
        PGD_TRY(push(p, &n->items, item));
        PGD_TRY(expect_op(p, ":"));
        PGD_TRY(pgd_text_template_expression(p, &item));
        PGD_TRY(push(p, &n->items, item));
    }
    return PGD_OK;
}

static pgd_status string_literal(parser *p, node *n) {
    n->text = p->at->text;
    p->at++;
    while (p->at->kind == TOK_STRING) { // strings side by side are one
        char *both = pgd_arena_alloc(p->arena, n->text.len + p->at->text.len + 1, 1);
        if (both == NULL) {
            return PGD_MEM_FAIL("a chat template", n->text.len);
        }
        memcpy(both, n->text.ptr, n->text.len);
        memcpy(both + n->text.len, p->at->text.ptr, p->at->text.len);
        n->text = (pgd_str){both, n->text.len + p->at->text.len};
        p->at++;
    }
    return PGD_OK;
}

static pgd_status name_or_constant(parser *p, node *n) {
    pgd_str s = p->at->text;
    if (pgd_str_is(s, "true") || pgd_str_is(s, "True")) {
        n->kind = N_BOOL;
        n->i = 1;
    } else if (pgd_str_is(s, "false") || pgd_str_is(s, "False")) {
        n->kind = N_BOOL;
    } else if (pgd_str_is(s, "none") || pgd_str_is(s, "None")) {
        n->kind = N_NONE;
    } else {
        static const char *const lacking[] = {"cycler", "joiner", "lipsum",
                                              "self",   "super",  "caller"};
        for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
            if (pgd_str_is(s, lacking[i]) && p->at[1].kind == TOK_OP &&
                pgd_str_is(p->at[1].text, "(")) {
                return fail_at(p, PGD_UNSUPPORTED, "%s() is not supported", lacking[i]);
            }
        }
        n->text = s;
    }
    p->at++;
    return PGD_OK;
}

static pgd_status primary(parser *p, node **out) {
    const token *t = p->at;
    node *n = NULL;
    PGD_TRY(new_node(p, N_NAME, &n));
    *out = n;
    int32_t commas = 0;
    switch (t->kind) {
    case TOK_NAME: return name_or_constant(p, n);
    case TOK_STRING: n->kind = N_STRING; return string_literal(p, n);
    case TOK_INT:
    case TOK_FLOAT:
        n->kind = t->kind == TOK_INT ? N_INT : N_FLOAT;
        n->i = t->i;
        n->f = t->f;
        p->at++;
        return PGD_OK;
    default: break;
    }
    if (skip_op(p, "(")) {
        n->kind = N_TUPLE;
        PGD_TRY(items_until(p, ")", n, &commas));
        if (n->items.n == 1 && commas == 0) {
            *out = n->items.items[0];
        }
        return PGD_OK;
    }
    if (skip_op(p, "[")) {
        n->kind = N_LIST;
        return items_until(p, "]", n, &commas);
    }
    if (skip_op(p, "{")) {
        n->kind = N_DICT;
        return dict_literal(p, n);
    }
    return unexpected(p, "an expression");
}

static pgd_status subscript(parser *p, node *n) {
    node *part[3] = {NULL, NULL, NULL};
    size_t k = 0;
    while (!is_op(p, "]")) {
        if (skip_op(p, ":")) {
            if (++k == 3) {
                return FAIL(p, "a slice has at most three parts");
            }
            n->kind = N_SLICE;
        } else if (part[k] == NULL) {
            PGD_TRY(pgd_text_template_expression(p, &part[k]));
        } else {
            return unexpected(p, "]");
        }
    }
    p->at++;
    if (n->kind == N_SLICE) {
        for (size_t i = 0; i < 3; i++) {
            PGD_TRY(push(p, &n->items, part[i]));
        }
        return PGD_OK;
    }
    n->b = part[0];
    return n->b == NULL ? FAIL(p, "an index expected inside []") : PGD_OK;
}

static pgd_status postfix(parser *p, node **io) {
    for (;;) {
        node *n = NULL;
        PGD_TRY(new_node(p, N_ATTR, &n));
        n->a = *io;
        if (skip_op(p, ".")) {
            if (p->at->kind == TOK_INT) {
                n->kind = N_INDEX;
                PGD_TRY(primary(p, &n->b));
            } else {
                PGD_TRY(expect_name(p, &n->text));
            }
        } else if (skip_op(p, "[")) {
            n->kind = N_INDEX;
            PGD_TRY(subscript(p, n));
        } else if (skip_op(p, "(")) {
            n->kind = N_CALL;
            PGD_TRY(arguments(p, n));
        } else {
            return PGD_OK;
        }
        *io = n;
    }
}

pgd_status pgd_text_template_parse_filter(parser *p, node *input, node **out) {
    node *n = NULL;
    PGD_TRY(new_node(p, N_FILTER, &n));
    PGD_TRY(expect_name(p, &n->text));
    if (!pgd_text_template_has_filter(n->text)) {
        return fail_at(p, PGD_UNSUPPORTED, "filter '%.*s' is not supported",
                       (int)(n->text.len < 60 ? n->text.len : 60), n->text.ptr);
    }
    n->a = input;
    *out = n;
    return skip_op(p, "(") ? arguments(p, n) : PGD_OK;
}

static int32_t starts_test_argument(const parser *p) {
    if (p->at->kind == TOK_NAME) {
        return !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and") &&
               !is_name(p, "if") && !is_name(p, "not") && !is_name(p, "is") && !is_name(p, "in");
    }
    return p->at->kind == TOK_STRING || p->at->kind == TOK_INT || p->at->kind == TOK_FLOAT ||
           is_op(p, "[") || is_op(p, "{");
}

static pgd_status test(parser *p, node *input, node **out) {
    node *n = NULL;
    int32_t negated = skip_name(p, "not");
    PGD_TRY(new_node(p, N_TEST, &n));
    PGD_TRY(expect_name(p, &n->text));
    if (!pgd_text_template_has_test(n->text)) {
        return fail_at(p, PGD_UNSUPPORTED, "test '%.*s' is not supported",
                       (int)(n->text.len < 60 ? n->text.len : 60), n->text.ptr);
    }
    n->a = input;
    *out = n;
    if (skip_op(p, "(")) {
        PGD_TRY(arguments(p, n));
    } else if (starts_test_argument(p)) {
        node *item = NULL;
        PGD_TRY(primary(p, &item));
        PGD_TRY(postfix(p, &item));
        PGD_TRY(push(p, &n->items, item));
    }
    if (negated) {
        PGD_TRY(new_node(p, N_NOT, out));
        (*out)->a = n;
    }
    return PGD_OK;
}

static pgd_status filters(parser *p, node **io) {
    for (;;) {
        if (skip_op(p, "|")) {
            PGD_TRY(pgd_text_template_parse_filter(p, *io, io));
        } else if (skip_name(p, "is")) {
            PGD_TRY(test(p, *io, io));
        } else if (is_op(p, "(")) {
            PGD_TRY(postfix(p, io));
        } else {
            return PGD_OK;
        }
    }
}

static pgd_status unary(parser *p, int32_t with_filters, node **out) {
    if (++p->depth > TPL_MAX_NESTING) {
        return FAIL(p, "expressions and blocks are nested more than %d deep", TPL_MAX_NESTING);
    }
    int32_t minus = is_op(p, "-");
    if (minus || is_op(p, "+")) {
        node *n = NULL;
        PGD_TRY(new_node(p, minus ? N_NEG : N_POS, &n));
        p->at++;
        PGD_TRY(unary(p, 0, &n->a));
        *out = n;
    } else {
        PGD_TRY(primary(p, out));
    }
    PGD_TRY(postfix(p, out));
    PGD_TRY(with_filters ? filters(p, out) : PGD_OK);
    p->depth--;
    return PGD_OK;
}

typedef struct {
    const char *text;
    int64_t op;
} operator_name;

typedef pgd_status (*level_fn)(parser *p, node **out);

static pgd_status binary_level(parser *p, level_fn next, const operator_name *ops, size_t n_ops,
                               node **out) {
    PGD_TRY(next(p, out));
    for (size_t i = 0; i < n_ops;) {
        if (!is_op(p, ops[i].text)) {
            i++;
            continue;
        }
        node *n = NULL;
        PGD_TRY(new_node(p, N_BINARY, &n));
        p->at++;
        n->i = ops[i].op;
        n->a = *out;
        PGD_TRY(next(p, &n->b));
        *out = n;
        i = 0;
    }
    return PGD_OK;
}

static pgd_status plain_unary(parser *p, node **out) {
    return unary(p, 1, out);
}

static pgd_status pow_level(parser *p, node **out) {
    static const operator_name ops[] = {{"**", OP_POW}};
    return binary_level(p, plain_unary, ops, 1, out);
}

static pgd_status mul_level(parser *p, node **out) {
    static const operator_name ops[] = {
        {"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOORDIV}, {"%", OP_MOD}};
    return binary_level(p, pow_level, ops, 4, out);
}

static pgd_status concat_level(parser *p, node **out) {
    PGD_TRY(mul_level(p, out));
    if (!is_op(p, "~")) {
        return PGD_OK;
    }
    node *n = NULL;
    PGD_TRY(new_node(p, N_CONCAT, &n));
    PGD_TRY(push(p, &n->items, *out));
    while (skip_op(p, "~")) {
        node *item = NULL;
        PGD_TRY(mul_level(p, &item));
        PGD_TRY(push(p, &n->items, item));
    }
    *out = n;
    return PGD_OK;
}

static pgd_status add_level(parser *p, node **out) {
    static const operator_name ops[] = {{"+", OP_ADD}, {"-", OP_SUB}};
    return binary_level(p, concat_level, ops, 2, out);
}

// The comparison that stands here, -1 = none; skips it.
static int32_t comparison(parser *p) {
    static const operator_name ops[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT},
                                        {"<=", OP_LE}, {">", OP_GT},  {">=", OP_GE}};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (skip_op(p, ops[i].text)) {
            return (int32_t)ops[i].op;
        }
    }
    if (skip_name(p, "in")) {
        return OP_IN;
    }
    if (is_name(p, "not") && p->at[1].kind == TOK_NAME && pgd_str_is(p->at[1].text, "in")) {
        p->at += 2;
        return OP_NOT_IN;
    }
    return -1;
}

static pgd_status compare_level(parser *p, node **out) {
    PGD_TRY(add_level(p, out));
    node *n = NULL;
    for (int32_t op = comparison(p); op >= 0; op = comparison(p)) {
        if (n == NULL) {
            PGD_TRY(new_node(p, N_COMPARE, &n));
            n->a = *out;
            *out = n;
        }
        node *item = NULL;
        PGD_TRY(add_level(p, &item));
        uint8_t *ops = pgd_arena_alloc(p->arena, n->items.n + 1, 1);
        if (ops == NULL) {
            return PGD_MEM_FAIL("a chat template", n->items.n);
        }
        if (n->items.n > 0) {
            memcpy(ops, n->ops, n->items.n);
        }
        ops[n->items.n] = (uint8_t)op;
        n->ops = ops;
        PGD_TRY(push(p, &n->items, item));
    }
    return PGD_OK;
}

static pgd_status not_level(parser *p, node **out) {
    if (!is_name(p, "not")) {
        return compare_level(p, out);
    }
    if (++p->depth > TPL_MAX_NESTING) {
        return FAIL(p, "expressions and blocks are nested more than %d deep", TPL_MAX_NESTING);
    }
    PGD_TRY(new_node(p, N_NOT, out));
    p->at++;
    PGD_TRY(not_level(p, &(*out)->a));
    p->depth--;
    return PGD_OK;
}

static pgd_status word_level(parser *p, level_fn next, const char *word, node_kind kind,
                             node **out) {
    PGD_TRY(next(p, out));
    while (is_name(p, word)) {
        node *n = NULL;
        PGD_TRY(new_node(p, kind, &n));
        p->at++;
        n->a = *out;
        PGD_TRY(next(p, &n->b));
        *out = n;
    }
    return PGD_OK;
}

static pgd_status and_level(parser *p, node **out) {
    return word_level(p, not_level, "and", N_AND, out);
}

pgd_status pgd_text_template_simple_expression(parser *p, node **out) {
    return word_level(p, and_level, "or", N_OR, out);
}

pgd_status pgd_text_template_expression(parser *p, node **out) {
    if (++p->depth > TPL_MAX_NESTING) {
        return FAIL(p, "expressions and blocks are nested more than %d deep", TPL_MAX_NESTING);
    }
    PGD_TRY(pgd_text_template_simple_expression(p, out));
    while (is_name(p, "if")) {
        node *n = NULL;
        PGD_TRY(new_node(p, N_IF, &n));
        p->at++;
        n->a = *out;
        PGD_TRY(pgd_text_template_simple_expression(p, &n->b));
        if (skip_name(p, "else")) {
            PGD_TRY(pgd_text_template_expression(p, &n->c));
        }
        *out = n;
    }
    p->depth--;
    return PGD_OK;
}
