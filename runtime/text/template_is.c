// The tests behind `is` in templates.
#include <string.h>

#include "text/parts.h"
#include "text/template_parts.h"

typedef pgd_status (*test_run)(render *r, const value *v, const call_args *args, int32_t *out);

static pgd_status needs_argument(render *r) {
    return TPL_FAIL(r, "a test lacks its argument");
}

#define SIMPLE(name, condition)                                                                   \
    static pgd_status is_##name(render *r, const value *v, const call_args *args, int32_t *out) { \
        (void)r;                                                                                  \
        (void)args;                                                                               \
        *out = (condition);                                                                       \
        return PGD_OK;                                                                            \
    }

SIMPLE(defined, v->kind != V_UNDEFINED)
SIMPLE(undefined, v->kind == V_UNDEFINED)
SIMPLE(none, v->kind == V_NONE)
SIMPLE(string, v->kind == V_STRING)
SIMPLE(number, pgd_text_template_is_number(v))
SIMPLE(integer, v->kind == V_INT)
SIMPLE(float, v->kind == V_FLOAT)
SIMPLE(boolean, v->kind == V_BOOL)
SIMPLE(true, v->kind == V_BOOL && v->i)
SIMPLE(false, v->kind == V_BOOL && !v->i)
SIMPLE(mapping, v->kind == V_DICT)
SIMPLE(sequence, v->kind == V_STRING || v->kind == V_LIST || v->kind == V_TUPLE ||
                     v->kind == V_DICT || v->kind == V_UNDEFINED)
SIMPLE(iterable, v->kind == V_STRING || pgd_text_template_is_list(v) || v->kind == V_DICT ||
                     v->kind == V_UNDEFINED || v->kind == V_LOOP)
SIMPLE(callable, v->kind == V_MACRO || v->kind == V_METHOD || v->kind == V_GLOBAL)

#define COMPARES(name, op)                                                                        \
    static pgd_status is_##name(render *r, const value *v, const call_args *args, int32_t *out) { \
        return args->n == 1 ? pgd_text_template_compare(r, (op), v, &args->items[0], out)         \
                            : needs_argument(r);                                                  \
    }

COMPARES(eq, OP_EQ)
COMPARES(ne, OP_NE)
COMPARES(lt, OP_LT)
COMPARES(le, OP_LE)
COMPARES(gt, OP_GT)
COMPARES(ge, OP_GE)
COMPARES(in, OP_IN)

static pgd_status remainder_is(render *r, const value *v, const value *by, int64_t wanted,
                               int32_t *out) {
    value rest;
    value want = pgd_text_template_int(wanted);
    if (!pgd_text_template_is_number(v) || !pgd_text_template_is_number(by)) {
        return TPL_FAIL(r, "odd, even and divisibleby need numbers, not a %s",
                        pgd_text_template_type(v));
    }
    PGD_TRY(pgd_text_template_binary(r, OP_MOD, v, by, &rest));
    *out = pgd_text_template_equal(&rest, &want);
    return PGD_OK;
}

static pgd_status is_odd(render *r, const value *v, const call_args *args, int32_t *out) {
    value two = pgd_text_template_int(2);
    (void)args;
    return remainder_is(r, v, &two, 1, out);
}

static pgd_status is_even(render *r, const value *v, const call_args *args, int32_t *out) {
    value two = pgd_text_template_int(2);
    (void)args;
    return remainder_is(r, v, &two, 0, out);
}

static pgd_status is_divisible(render *r, const value *v, const call_args *args, int32_t *out) {
    return args->n == 1 ? remainder_is(r, v, &args->items[0], 0, out) : needs_argument(r);
}

static pgd_status is_same(render *r, const value *v, const call_args *args, int32_t *out) {
    if (args->n != 1) {
        return needs_argument(r);
    }
    const value *b = &args->items[0];
    int32_t object = pgd_text_template_is_list(v) || v->kind == V_DICT;
    *out = v->kind == b->kind && (object ? v->list == b->list : pgd_text_template_equal(v, b));
    return PGD_OK;
}

static pgd_status is_cased(render *r, const value *v, int32_t how, int32_t *out) {
    value text;
    value cased;
    PGD_TRY(pgd_text_template_text_of(r, v, &text));
    PGD_TRY(pgd_text_template_case(r, text.str, how, &cased));
    // lower and upper need a letter that has the case
    value other;
    int32_t against = how == CASE_UPPER ? CASE_LOWER : CASE_UPPER;
    PGD_TRY(pgd_text_template_case(r, text.str, against, &other));
    *out = pgd_str_equal(text.str, cased.str) && !pgd_str_equal(text.str, other.str);
    return PGD_OK;
}

static pgd_status is_lower(render *r, const value *v, const call_args *args, int32_t *out) {
    (void)args;
    return is_cased(r, v, CASE_LOWER, out);
}

static pgd_status is_upper(render *r, const value *v, const call_args *args, int32_t *out) {
    (void)args;
    return is_cased(r, v, CASE_UPPER, out);
}

static const struct {
    const char *name;
    test_run run;
} tests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"none", is_none},
    {"string", is_string},
    {"number", is_number},
    {"integer", is_integer},
    {"float", is_float},
    {"boolean", is_boolean},
    {"true", is_true},
    {"false", is_false},
    {"mapping", is_mapping},
    {"sequence", is_sequence},
    {"iterable", is_iterable},
    {"callable", is_callable},
    {"equalto", is_eq},
    {"eq", is_eq},
    {"==", is_eq},
    {"ne", is_ne},
    {"!=", is_ne},
    {"lt", is_lt},
    {"lessthan", is_lt},
    {"<", is_lt},
    {"le", is_le},
    {"<=", is_le},
    {"gt", is_gt},
    {"greaterthan", is_gt},
    {">", is_gt},
    {"ge", is_ge},
    {">=", is_ge},
    {"in", is_in},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"sameas", is_same},
    {"lower", is_lower},
    {"upper", is_upper},
};

static test_run find(pgd_str name) {
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        if (pgd_str_is(name, tests[i].name)) {
            return tests[i].run;
        }
    }
    return NULL;
}

int32_t pgd_text_template_has_test(pgd_str name) {
    return find(name) != NULL;
}

pgd_status pgd_text_template_test(render *r, pgd_str name, const value *v, const call_args *args,
                                  int32_t *out) {
    test_run run = find(name);
    if (run == NULL) {
        return TPL_FAIL(r, "test '%.*s' is not supported", (int)(name.len < 60 ? name.len : 60),
                        name.ptr);
    }
    return run(r, v, args, out);
}
