// Operators of templates with Python's meaning: arithmetic, comparison and slices.
#include <math.h>
#include <string.h>

#include "text/parts.h"
#include "text/template_parts.h"

static pgd_status wrong(render *r, const char *op, const value *a, const value *b) {
    return TPL_FAIL(r, "%s does not work on a %s and a %s", op, pgd_text_template_type(a),
                    pgd_text_template_type(b));
}

static pgd_status overflow(render *r) {
    return TPL_FAIL(r, "an integer is outside 64 bits");
}

// ---- arithmetic --------------------------------------------------------------------------------

static pgd_status power(render *r, int64_t base, int64_t exponent, value *out) {
    if (exponent < 0) {
        if (base == 0) {
            return TPL_FAIL(r, "division by zero");
        }
        *out = pgd_text_template_float(pow((double)base, (double)exponent));
        return PGD_OK;
    }
    int64_t result = 1;
    for (int64_t i = 0; i < exponent && base != 1 && !(base == 0 && i > 0); i++) {
        if (base == -1) {
            result = exponent % 2 == 0 ? 1 : -1;
            break;
        }
        if (base != 0 && (result > INT64_MAX / (base < 0 ? -base : base) ||
                          result < INT64_MIN / 2 / (base < 0 ? -base : base))) {
            return overflow(r);
        }
        result *= base;
    }
    *out = pgd_text_template_int(result);
    return PGD_OK;
}

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static pgd_status integers(render *r, int64_t op, int64_t a, int64_t b, value *out) {
    *out = (value){.kind = V_INT};
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0) {
        return TPL_FAIL(r, "division by zero");
    }
    if ((op == OP_FLOORDIV || op == OP_MOD) && a == INT64_MIN && b == -1) {
        return overflow(r);
    }
    switch (op) {
    case OP_ADD:
        if ((b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b)) {
            return overflow(r);
        }
        out->i = a + b;
        return PGD_OK;
    case OP_SUB:
        if ((b < 0 && a > INT64_MAX + b) || (b > 0 && a < INT64_MIN + b)) {
            return overflow(r);
        }
        out->i = a - b;
        return PGD_OK;
    case OP_MUL: {
        double size = fabs((double)a) * fabs((double)b);
        if (size > 9.2e18) {
            return overflow(r);
        }
        out->i = a * b;
        return PGD_OK;
    }
    case OP_FLOORDIV: out->i = floor_div(a, b); return PGD_OK;
    case OP_MOD: out->i = a - floor_div(a, b) * b; return PGD_OK;
    case OP_DIV: *out = pgd_text_template_float((double)a / (double)b); return PGD_OK;
    default: return power(r, a, b, out);
    }
}

static pgd_status floats(render *r, int64_t op, double a, double b, value *out) {
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0) {
        return TPL_FAIL(r, "division by zero");
    }
    double f = 0;
    switch (op) {
    case OP_ADD: f = a + b; break;
    case OP_SUB: f = a - b; break;
    case OP_MUL: f = a * b; break;
    case OP_DIV: f = a / b; break;
    case OP_FLOORDIV:
    case OP_MOD:
        f = fmod(a, b);
        f = f != 0 && (f < 0) != (b < 0) ? f + b : f;
        f = op == OP_MOD ? f : rint((a - f) / b);
        break;
    default: f = pow(a, b); break;
    }
    *out = pgd_text_template_float(f);
    return PGD_OK;
}

// ---- sequences ---------------------------------------------------------------------------------

static pgd_status join_strings(render *r, pgd_str a, pgd_str b, value *out) {
    void *bytes = NULL;
    PGD_TRY(pgd_text_template_alloc(r, a.len + b.len + 1, 1, &bytes));
    char *to = bytes;
    if (a.len > 0) {
        memcpy(to, a.ptr, a.len);
    }
    if (b.len > 0) {
        memcpy(to + a.len, b.ptr, b.len);
    }
    *out = pgd_text_template_str((pgd_str){to, a.len + b.len});
    return PGD_OK;
}

static pgd_status join_lists(render *r, const value *a, const value *b, value *out) {
    PGD_TRY(pgd_text_template_new_list(r, a->list->n + b->list->n, a->kind, out));
    PGD_TRY(pgd_text_template_steps(r, (a->list->n + b->list->n) / 16));
    for (size_t i = 0; i < a->list->n; i++) {
        PGD_TRY(pgd_text_template_append(r, out, a->list->items[i]));
    }
    for (size_t i = 0; i < b->list->n; i++) {
        PGD_TRY(pgd_text_template_append(r, out, b->list->items[i]));
    }
    return PGD_OK;
}

static pgd_status repeat(render *r, const value *what, int64_t times, value *out) {
    times = times < 0 ? 0 : times;
    if (what->kind != V_STRING) {
        PGD_TRY(pgd_text_template_new_list(r, 0, what->kind, out));
        for (int64_t i = 0; i < times && what->list->n > 0; i++) {
            PGD_TRY(pgd_text_template_steps(r, what->list->n));
            for (size_t k = 0; k < what->list->n; k++) {
                PGD_TRY(pgd_text_template_append(r, out, what->list->items[k]));
            }
        }
        return PGD_OK;
    }
    uint64_t bytes = 0;
    if (!pgd_size_mul(what->str.len, (uint64_t)times, &bytes) || bytes > TPL_MAX_OUTPUT) {
        return TPL_FAIL(r, "a repeated string is longer than %d MiB", TPL_MAX_OUTPUT >> 20);
    }
    void *made = NULL;
    PGD_TRY(pgd_text_template_alloc(r, (size_t)bytes + 1, 1, &made));
    char *to = made;
    for (int64_t i = 0; i < times && what->str.len > 0; i++) {
        memcpy(to + (size_t)i * what->str.len, what->str.ptr, what->str.len);
    }
    *out = pgd_text_template_str((pgd_str){to, (size_t)bytes});
    return PGD_OK;
}

static int32_t is_whole(const value *v) {
    return v->kind == V_INT || v->kind == V_BOOL;
}

static int32_t repeats(const value *v) {
    return v->kind == V_STRING || v->kind == V_LIST || v->kind == V_TUPLE;
}

pgd_status pgd_text_template_binary(render *r, int64_t op, const value *a, const value *b,
                                    value *out) {
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (is_whole(a) && is_whole(b)) {
        return integers(r, op, a->i, b->i, out);
    }
    if (pgd_text_template_is_number(a) && pgd_text_template_is_number(b)) {
        return floats(r, op, pgd_text_template_number(a), pgd_text_template_number(b), out);
    }
    if (op == OP_ADD && a->kind == V_STRING && b->kind == V_STRING) {
        return join_strings(r, a->str, b->str, out);
    }
    if (op == OP_ADD && a->kind == b->kind && (a->kind == V_LIST || a->kind == V_TUPLE)) {
        return join_lists(r, a, b, out);
    }
    if (op == OP_MUL && repeats(a) && is_whole(b)) {
        return repeat(r, a, b->i, out);
    }
    if (op == OP_MUL && repeats(b) && is_whole(a)) {
        return repeat(r, b, a->i, out);
    }
    if (op == OP_MOD && a->kind == V_STRING) {
        return b->kind == V_TUPLE
                   ? pgd_text_template_format(r, a->str, b->list->items, b->list->n, 0, out)
                   : pgd_text_template_format(r, a->str, b, 1,
                                              b->kind == V_DICT || b->kind == V_LIST, out);
    }
    if (a->kind == V_UNDEFINED || b->kind == V_UNDEFINED) {
        pgd_str name = a->kind == V_UNDEFINED ? a->str : b->str;
        return TPL_FAIL(r, "'%.*s' is undefined", (int)(name.len < 100 ? name.len : 100),
                        name.ptr != NULL ? name.ptr : "");
    }
    return wrong(r, names[op], a, b);
}

pgd_status pgd_text_template_compare(render *r, int32_t op, const value *a, const value *b,
                                     int32_t *out) {
    int32_t order = 0;
    switch (op) {
    case OP_EQ: *out = pgd_text_template_equal(a, b); return PGD_OK;
    case OP_NE: *out = !pgd_text_template_equal(a, b); return PGD_OK;
    case OP_IN: return pgd_text_template_contains(r, b, a, out);
    case OP_NOT_IN:
        PGD_TRY(pgd_text_template_contains(r, b, a, out));
        *out = !*out;
        return PGD_OK;
    default: break;
    }
    PGD_TRY(pgd_text_template_order(r, a, b, &order));
    *out = op == OP_LT   ? order < 0
           : op == OP_LE ? order <= 0
           : op == OP_GT ? order > 0
                         : order >= 0;
    return PGD_OK;
}

// ---- slices ------------------------------------------------------------------------------------

static int64_t clip(int64_t i, int64_t n, int64_t least, int64_t most) {
    i = i < 0 ? i + n : i;
    return i < least ? least : i > most ? most : i;
}

static pgd_status slice_part(render *r, const value *v, int64_t otherwise, int64_t *out) {
    if (v->kind == V_NONE) {
        *out = otherwise;
        return PGD_OK;
    }
    if (v->kind != V_INT && v->kind != V_BOOL) {
        return TPL_FAIL(r, "a slice needs integers, not a %s", pgd_text_template_type(v));
    }
    *out = v->i;
    return PGD_OK;
}

static pgd_status slice_items(render *r, const list *l, int64_t start, int64_t stop, int64_t step,
                              value *out) {
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
        PGD_TRY(pgd_text_template_append(r, out, l->items[i]));
    }
    return PGD_OK;
}

// Bytes before the i-th character.
static size_t char_offset(pgd_str s, int64_t i) {
    size_t at = 0;
    while (i-- > 0 && at < s.len) {
        pgd_text_char(s, at, &at);
    }
    return at;
}

// The first and one past the last index that a slice visits, for n items.
static pgd_status slice_range(render *r, const value parts[3], int64_t n, int64_t *start,
                              int64_t *stop, int64_t *step) {
    PGD_TRY(slice_part(r, &parts[2], 1, step));
    if (*step == 0) {
        return TPL_FAIL(r, "the step of a slice is zero");
    }
    *step = *step > n ? n + 1 : *step < -n ? -n - 1 : *step;
    int32_t up = *step > 0;
    PGD_TRY(slice_part(r, &parts[0], up ? 0 : INT64_MAX, start));
    PGD_TRY(slice_part(r, &parts[1], up ? INT64_MAX : -1 - n, stop));
    *start = clip(*start, n, up ? 0 : -1, up ? n : n - 1);
    *stop = clip(*stop, n, up ? 0 : -1, up ? n : n - 1);
    return PGD_OK;
}

pgd_status pgd_text_template_slice(render *r, const value *v, const value parts[3], value *out) {
    if (v->kind == V_UNDEFINED) {
        return TPL_FAIL(r, "'%.*s' is undefined", (int)(v->str.len < 100 ? v->str.len : 100),
                        v->str.ptr != NULL ? v->str.ptr : "");
    }
    if (v->kind != V_STRING && v->kind != V_LIST && v->kind != V_TUPLE) {
        return TPL_FAIL(r, "a %s cannot be sliced", pgd_text_template_type(v));
    }
    int64_t start = 0;
    int64_t stop = 0;
    int64_t step = 1;
    size_t n = v->kind == V_STRING ? pgd_text_template_count_chars(v->str) : v->list->n;
    PGD_TRY(pgd_text_template_steps(r, n / 16));
    PGD_TRY(slice_range(r, parts, (int64_t)n, &start, &stop, &step));
    if (v->kind == V_STRING && step == 1) {
        size_t from = char_offset(v->str, start);
        size_t to = stop > start ? char_offset(v->str, stop) : from;
        *out = pgd_text_template_str((pgd_str){v->str.ptr + from, to - from});
        return PGD_OK;
    }
    list *l = NULL;
    PGD_TRY(pgd_text_template_items(r, v, &l));
    value made;
    PGD_TRY(pgd_text_template_new_list(r, 0, v->kind == V_TUPLE ? V_TUPLE : V_LIST, &made));
    PGD_TRY(slice_items(r, l, start, stop, step, &made));
    if (v->kind != V_STRING) {
        *out = made;
        return PGD_OK;
    }
    pgd_text text = {0};
    pgd_status status = PGD_OK;
    for (size_t i = 0; i < made.list->n && status == PGD_OK; i++) {
        status = pgd_text_add_str(&text, made.list->items[i].str);
    }
    if (status != PGD_OK) {
        pgd_text_free(&text);
        return status;
    }
    return pgd_text_template_take(r, &text, out);
}
