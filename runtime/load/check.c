// A look at the scales of quantized weights before they are used (see plan.h).
#include "base/fail.h"
#include "load/plan.h"

// Offsets of the f16 scales of a block, -1 = none.
typedef struct scales_row {
    int32_t scheme;
    int32_t at[2];
} scales_row;

static const scales_row rows[] = {
    {PGD_SCHEME_Q8_0, {0, -1}},   {PGD_SCHEME_Q4_0, {0, -1}},   {PGD_SCHEME_Q4_1, {0, 2}},
    {PGD_SCHEME_Q5_0, {0, -1}},   {PGD_SCHEME_Q5_1, {0, 2}},    {PGD_SCHEME_Q2_K, {80, 82}},
    {PGD_SCHEME_Q3_K, {108, -1}}, {PGD_SCHEME_Q4_K, {0, 2}},    {PGD_SCHEME_Q5_K, {0, 2}},
    {PGD_SCHEME_Q6_K, {208, -1}}, {PGD_SCHEME_IQ4_NL, {0, -1}},
};

// Exponent of all ones: infinite or no number.
static int32_t is_finite(const uint8_t *half) {
    return (half[1] & 0x7C) != 0x7C;
}

// First block with a bad scale, or n.
static uint64_t find_bad(int32_t scheme, const uint8_t *p, uint64_t n) {
    const uint32_t bytes = pgd_scheme_bytes(scheme);
    const scales_row *row = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        row = rows[i].scheme == scheme ? &rows[i] : row;
    }
    for (uint64_t i = 0; i < n; i++, p += bytes) {
        if (scheme == PGD_SCHEME_MXFP4
                ? p[0] == 0xFF
                : row != NULL && (!is_finite(p + row->at[0]) ||
                                  (row->at[1] >= 0 && !is_finite(p + row->at[1])))) {
            return i;
        }
    }
    return n;
}

pgd_status pgd_load_plan_check(const pgd_load_matrix *matrix) {
    for (uint32_t i = 0; i < matrix->n_parts; i++) {
        const pgd_weight_part *p = &matrix->parts[i];
        const int32_t scheme = matrix->scheme == PGD_SCHEME_PARTS ? p->scheme : matrix->scheme;
        if (pgd_scheme_bytes(scheme) == 0) {
            continue;
        }
        uint64_t n = p->data.bytes / pgd_scheme_bytes(scheme);
        uint64_t bad = find_bad(scheme, p->data.ptr, n);
        if (bad < n) {
            return pgd_fail(PGD_DATA_LOSS,
                            "%s: damaged: block %llu of part %u (%s) has a scale that is no finite "
                            "number",
                            matrix->name, (unsigned long long)bad, i, pgd_scheme_name(scheme));
        }
    }
    return PGD_OK;
}
