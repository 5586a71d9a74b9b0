// What the files of the chat template share.
//
//   source -> template_lex.c: tokens -> template_parse.c: nodes -> template_eval.c: text
//                                       template_call.c, _filter.c, _list.c, _is.c, _string.c ...
//
// Nodes live in the template's arena; values in the arena of one rendering. Both are plain structs
// that are never freed alone. Budgets: nesting while parsing, and steps, bytes and nesting while
// rendering.
#ifndef PGD_TEXT_TEMPLATE_PARTS_H
#define PGD_TEXT_TEMPLATE_PARTS_H

#include "base/arena.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "text/template.h"

enum {
    TPL_MAX_SOURCE = 4 << 20,  // bytes of a template
    TPL_MAX_NESTING = 100,     // levels of expressions and blocks in the source
    TPL_MAX_DEPTH = 400,       // nested evaluations
    TPL_MAX_STEPS = 20000000,  // evaluations and loop turns of one rendering
    TPL_MAX_BYTES = 512 << 20, // memory for values of one rendering
    TPL_MAX_OUTPUT = 64 << 20, // bytes of text
};

// ---- tokens ------------------------------------------------------------------------------------

typedef enum {
    TOK_END,
    TOK_DATA,
    TOK_VAR_BEGIN,
    TOK_VAR_END,
    TOK_BLOCK_BEGIN,
    TOK_BLOCK_END,
    TOK_NAME,
    TOK_STRING,
    TOK_INT,
    TOK_FLOAT,
    TOK_OP
} token_kind;

typedef struct token {
    token_kind kind;
    uint32_t line;
    pgd_str text; // data, name, the string's value, the operator
    int64_t i;
    double f;
} token;

typedef struct tokens {
    token *items;
    size_t n;
    size_t cap;
} tokens;

// source: line ends are \n only. Strings are made in the arena.
pgd_status pgd_text_template_lex(pgd_str source, pgd_arena *arena, tokens *out) PGD_MUST_USE;

// ---- nodes -------------------------------------------------------------------------------------

typedef enum {
    // expressions
    N_NONE,
    N_BOOL,
    N_INT,
    N_FLOAT,
    N_STRING,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,   // items: key, value, key, value ...
    N_ATTR,   // a . text
    N_INDEX,  // a [ b ]
    N_SLICE,  // a [ items[0] : items[1] : items[2] ], parts may be NULL
    N_CALL,   // a ( items, named )
    N_FILTER, // a | text ( items, named ); a NULL in a filter block
    N_TEST,   // a is text ( items )
    N_NOT,
    N_NEG,
    N_POS,
    N_AND,
    N_OR,
    N_IF,      // a if b else c (may be NULL)
    N_BINARY,  // a op b, op in i
    N_CONCAT,  // items
    N_COMPARE, // a, then items with ops
    // statements
    N_DATA,
    N_OUTPUT,       // a
    N_IF_BLOCK,     // a: condition, body, other
    N_FOR,          // a: target, b: what, c: condition, body, other
    N_SET,          // a: target, b: value
    N_SET_BLOCK,    // a: target, body, b: filter or NULL
    N_FILTER_BLOCK, // b: filter, body
    N_WITH,         // named, body
    N_MACRO,        // text, named: parameters with defaults (value may be NULL), body
    N_GENERATION,   // body
    N_BREAK,
    N_CONTINUE
} node_kind;

enum { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW };
enum { OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOT_IN };

typedef struct node node;
typedef struct list_of_nodes {
    node **items;
    size_t n;
    size_t cap;
} nodes;

struct node {
    node_kind kind;
    uint32_t line;
    pgd_str text;
    int64_t i;
    double f;
    node *a, *b, *c;
    nodes items;
    nodes body;
    nodes other;
    pgd_str *names; // of the last n_named of `named`
    nodes named;
    uint8_t *ops; // N_COMPARE
};

struct pgd_text_template {
    pgd_arena *arena;
    nodes body;
};

// Finds filters and tests by name; NULL = none. Used while parsing to refuse unknown ones.
int32_t pgd_text_template_has_filter(pgd_str name);
int32_t pgd_text_template_has_test(pgd_str name);
pgd_status pgd_text_template_build(const tokens *t, pgd_arena *arena, nodes *out) PGD_MUST_USE;

// ---- values ------------------------------------------------------------------------------------

typedef enum {
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_TUPLE,
    V_LAZY, // what map, select ... give: a list that is always true
    V_DICT,
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_METHOD, // a bound method
    V_GLOBAL, // a function of the sandbox
} value_kind;

typedef struct value value;
typedef struct dict dict;
typedef struct loop_state loop_state;
typedef struct scope scope;

typedef struct list {
    value *items;
    size_t n;
    size_t cap;
} list;

typedef struct macro {
    const node *node;
    scope *home;
} macro;

struct value {
    value_kind kind;
    pgd_str str; // V_STRING; the name of V_UNDEFINED, V_METHOD, V_GLOBAL
    union {
        int64_t i;
        double f;
        list *list;
        dict *dict; // V_DICT, V_NAMESPACE
        loop_state *loop;
        macro *macro;
        value *self; // V_METHOD
    };
};

struct dict {
    value *keys;
    value *values;
    size_t n;
    size_t cap;
};

struct loop_state {
    const list *items;
    size_t at;
};

struct scope {
    scope *parent;
    int32_t kept; // a macro hangs below: its names stay
    pgd_str *names;
    value *values;
    size_t n;
    size_t cap;
};

typedef struct call_args {
    value *items; // by position
    size_t n;
    pgd_str *names; // by name
    value *named;
    size_t n_named;
} call_args;

typedef struct render {
    pgd_arena *arena;
    uint64_t bytes;
    uint64_t steps;
    uint32_t depth;
    uint32_t line;
    scope *global;
    int32_t jump; // 0, N_BREAK or N_CONTINUE
} render;

// A failure of the rendering at the current line.
#define TPL_FAIL(r, ...) pgd_text_template_fail((r), __VA_ARGS__)
pgd_status pgd_text_template_fail(const render *r, const char *fmt, ...) PGD_PRINTF(2, 3);

// ---- template_value.c --------------------------------------------------------------------------

pgd_status pgd_text_template_alloc(render *r, size_t n, size_t item_bytes, void **out) PGD_MUST_USE;
pgd_status pgd_text_template_steps(render *r, uint64_t n) PGD_MUST_USE;
value pgd_text_template_bool(int32_t b);
value pgd_text_template_int(int64_t i);
value pgd_text_template_float(double f);
value pgd_text_template_str(pgd_str s); // a view; bytes live as long as the rendering
value pgd_text_template_undefined(pgd_str name);
// Takes the text of t into the arena and frees t.
pgd_status pgd_text_template_take(render *r, pgd_text *t, value *out) PGD_MUST_USE;
// The same when making the text ended well; else frees t and gives that status.
pgd_status pgd_text_template_finish(render *r, pgd_text *t, pgd_status status,
                                    value *out) PGD_MUST_USE;
pgd_status pgd_text_template_copy(render *r, pgd_str s, value *out) PGD_MUST_USE;
pgd_status pgd_text_template_new_list(render *r, size_t cap, value_kind kind,
                                      value *out) PGD_MUST_USE;
pgd_status pgd_text_template_append(render *r, value *list, value item) PGD_MUST_USE;
pgd_status pgd_text_template_new_dict(render *r, size_t cap, value *out) PGD_MUST_USE;
pgd_status pgd_text_template_dict_set(render *r, dict *d, value key, value item) PGD_MUST_USE;
const value *pgd_text_template_dict_get(const dict *d, const value *key);
pgd_status pgd_text_template_from_json(render *r, const pgd_json *json, value *out) PGD_MUST_USE;
int32_t pgd_text_template_is_list(const value *v); // V_LIST, V_TUPLE, V_LAZY
int32_t pgd_text_template_is_true(const value *v);
int32_t pgd_text_template_is_number(const value *v); // booleans too
double pgd_text_template_number(const value *v);
const char *pgd_text_template_type(const value *v);
int32_t pgd_text_template_equal(const value *a, const value *b);
// *out < 0, 0, > 0; fails for kinds without an order.
pgd_status pgd_text_template_order(render *r, const value *a, const value *b,
                                   int32_t *out) PGD_MUST_USE;
pgd_status pgd_text_template_contains(render *r, const value *box, const value *item,
                                      int32_t *out) PGD_MUST_USE;
// What a for loop sees: items of a list, keys of a dict, characters of a string.
pgd_status pgd_text_template_items(render *r, const value *v, list **out) PGD_MUST_USE;

// ---- template_print.c --------------------------------------------------------------------------

// As {{ v }} prints it.
pgd_status pgd_text_template_print(render *r, const value *v, pgd_text *out) PGD_MUST_USE;
// The same as a string value.
pgd_status pgd_text_template_text_of(render *r, const value *v, value *out) PGD_MUST_USE;
typedef struct json_style {
    int32_t ascii;
    int32_t sort_keys;
    int64_t indent; // -1 = one line
    pgd_str item_separator;
    pgd_str key_separator;
} json_style;
pgd_status pgd_text_template_to_json(render *r, const value *v, const json_style *style,
                                     uint32_t level, pgd_text *out) PGD_MUST_USE;
pgd_status pgd_text_template_add_float(pgd_text *t, double f) PGD_MUST_USE;

// ---- template_eval.c ---------------------------------------------------------------------------

pgd_status pgd_text_template_eval(render *r, scope *s, const node *n, value *out) PGD_MUST_USE;
pgd_status pgd_text_template_run(render *r, scope *s, const nodes *body,
                                 pgd_text *out) PGD_MUST_USE;
pgd_status pgd_text_template_new_scope(render *r, scope *parent, scope **out) PGD_MUST_USE;
pgd_status pgd_text_template_set(render *r, scope *s, pgd_str name, value v) PGD_MUST_USE;
// attribute 1: a.name (methods first); 0: a["name"] (items first).
pgd_status pgd_text_template_attr(render *r, const value *v, pgd_str name, int32_t attribute,
                                  value *out) PGD_MUST_USE;
pgd_status pgd_text_template_index(render *r, const value *v, const value *key,
                                   value *out) PGD_MUST_USE;

// ---- template_operator.c -----------------------------------------------------------------------

pgd_status pgd_text_template_binary(render *r, int64_t op, const value *a, const value *b,
                                    value *out) PGD_MUST_USE;
pgd_status pgd_text_template_compare(render *r, int32_t op, const value *a, const value *b,
                                     int32_t *out) PGD_MUST_USE;
// parts: start, stop, step; V_NONE = left out.
pgd_status pgd_text_template_slice(render *r, const value *v, const value parts[3],
                                   value *out) PGD_MUST_USE;

// ---- template_call.c ---------------------------------------------------------------------------

pgd_status pgd_text_template_call(render *r, const value *f, const call_args *args,
                                  value *out) PGD_MUST_USE;
int32_t pgd_text_template_has_global(pgd_str name);
int32_t pgd_text_template_has_method(const value *self, pgd_str name);
// Argument `at`, or by name; NULL when it was not given.
const value *pgd_text_template_arg(const call_args *args, size_t at, const char *name);
// An integer argument, `otherwise` when it was not given.
pgd_status pgd_text_template_int_arg(render *r, const call_args *args, size_t at, const char *name,
                                     int64_t otherwise, int64_t *out) PGD_MUST_USE;
pgd_status pgd_text_template_str_arg(render *r, const call_args *args, size_t at, const char *name,
                                     pgd_str otherwise, pgd_str *out) PGD_MUST_USE;

// ---- template_string.c -------------------------------------------------------------------------

// name: split or rsplit.
pgd_status pgd_text_template_split(render *r, pgd_str name, pgd_str s, const call_args *args,
                                   value *out) PGD_MUST_USE;
enum { CASE_UPPER, CASE_LOWER, CASE_CAPITAL, CASE_TITLE, CASE_TITLE_FILTER };
pgd_status pgd_text_template_case(render *r, pgd_str s, int32_t how, value *out) PGD_MUST_USE;
// which: 1 left, 2 right, 3 both; chars empty = white space.
pgd_str pgd_text_template_strip(pgd_str s, const pgd_str *chars, int32_t which);
pgd_status pgd_text_template_replace(render *r, pgd_str s, pgd_str from, pgd_str to, int64_t max,
                                     value *out) PGD_MUST_USE;
pgd_status pgd_text_template_lines(render *r, pgd_str s, int32_t keep_ends,
                                   value *out) PGD_MUST_USE;
// printf-style: format % values; spare 1: values without a place are fine.
pgd_status pgd_text_template_format(render *r, pgd_str format, const value *items, size_t n,
                                    int32_t spare, value *out) PGD_MUST_USE;
size_t pgd_text_template_count_chars(pgd_str s);

// ---- template_method.c -------------------------------------------------------------------------

pgd_status pgd_text_template_string_method(render *r, pgd_str name, pgd_str self,
                                           const call_args *args, value *out) PGD_MUST_USE;
int32_t pgd_text_template_has_string_method(pgd_str name);

// ---- template_filter.c, template_list.c, template_is.c -----------------------------------------

typedef pgd_status (*filter_run)(render *r, const value *v, const call_args *args, value *out);
filter_run pgd_text_template_list_filter(pgd_str name); // NULL = none
pgd_status pgd_text_template_filter(render *r, pgd_str name, const value *v, const call_args *args,
                                    value *out) PGD_MUST_USE;
pgd_status pgd_text_template_test(render *r, pgd_str name, const value *v, const call_args *args,
                                  int32_t *out) PGD_MUST_USE;

#endif
