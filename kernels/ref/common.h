// What the files of this room share: checks of arguments, addresses, and the steps that fused ops
// reuse. Nothing outside kernels/ref includes it.
//
// Each op is a check and a loop: pgd_ref_check_OP looks at everything and writes nothing, so that a
// refused call has changed nothing, also when a fused op is refused in its last part.
#ifndef PGD_KERNELS_REF_COMMON_H
#define PGD_KERNELS_REF_COMMON_H

#include "ref/ref.h"

#define PGD_REF_CHUNK 256 // elements read at a time into a local array

// Sets of dtypes for the checks: bit d = dtype d.
#define PGD_REF_FLOATS (1u << PGD_F32 | 1u << PGD_BF16 | 1u << PGD_F16)
#define PGD_REF_F32    (1u << PGD_F32)
#define PGD_REF_I32    (1u << PGD_I32)

// Puts a sentence where the exec has a host; gives code either way.
#define PGD_REF_FAIL(x, code, ...)                             \
    ((x) != NULL && (x)->dev != NULL && (x)->dev->host != NULL \
         ? PGD_HOST_FAIL((x)->dev->host, (code), __VA_ARGS__)  \
         : (code))

// UNSUPPORTED when a newer caller's args carry a field this version does not know.
#define PGD_REF_TAIL(x, T, args)                                                                  \
    do {                                                                                          \
        if (!pgd_args_tail_is_zero((args), (args)->size, (uint32_t)sizeof(T))) {                  \
            return PGD_REF_FAIL((x), PGD_UNSUPPORTED, #T ": %u bytes of arguments, known are %u", \
                                (unsigned)(args)->size, (unsigned)sizeof(T));                     \
        }                                                                                         \
    } while (0)

// What a tensor has to look like. dims: exact size, -1 = any; dims[0] of a tensor with rows is its
// cap and must be at least `rows`.
typedef struct pgd_ref_want {
    const char *name;
    uint32_t dtypes;
    uint32_t rank;
    int64_t rows; // -1: dims[0] is exact
    int64_t dims[PGD_MAX_RANK];
} pgd_ref_want;

pgd_status pgd_ref_check_tensor(const pgd_exec *x, const pgd_tensor *t,
                                const pgd_ref_want *want) PGD_MUST_USE;
pgd_status pgd_ref_check_vector(const pgd_exec *x, const char *name, const pgd_tensor *t,
                                uint32_t dtypes, int64_t n) PGD_MUST_USE;
pgd_status pgd_ref_check_absent(const pgd_exec *x, const char *name,
                                const pgd_tensor *t) PGD_MUST_USE;
pgd_status pgd_ref_check_weight(const pgd_exec *x, const pgd_ref_weight *w) PGD_MUST_USE;
pgd_status pgd_ref_check_kv(const pgd_exec *x, const pgd_ref_kv *kv, const pgd_batch *batch,
                            int32_t layer, int32_t group) PGD_MUST_USE;
// The batch is there and lies in host memory.
pgd_status pgd_ref_check_batch(const pgd_exec *x, const pgd_batch *batch) PGD_MUST_USE;
// Live rows, at most shape0.
pgd_status pgd_ref_live(const pgd_exec *x, const pgd_batch *batch, int32_t rows, int64_t shape0,
                        int64_t *out) PGD_MUST_USE;

// Address of element [i, j, l, 0] of a tensor on the host; indices behind the rank must be 0.
void *pgd_ref_at(const pgd_tensor *t, int64_t i, int64_t j, int64_t l);
// n elements from element i on as doubles.
void pgd_ref_read(int32_t dtype, const void *base, int64_t i, int64_t n, double *out);

// The values of 4-bit elements: those of IQ4_NL, and twice those of MXFP4.
extern const signed char pgd_ref_iq4_nl[16];
extern const signed char pgd_ref_mxfp4[16];

// Start of an array of the batch block, NULL if it is absent (offset 0).
void *pgd_ref_array(const pgd_batch *batch, uint64_t offset);
const pgd_batch_head *pgd_ref_head(const pgd_batch *batch);
// out_slot of rows [0, n) lies in [-1, cap_slots).
pgd_status pgd_ref_check_tokens(const pgd_exec *x, const pgd_batch *batch, int64_t n) PGD_MUST_USE;
// Writes last (not for slot -1) and sampled of output row r; rows behind the live outputs write
// nothing.
void pgd_ref_put_token(const pgd_batch *batch, int64_t r, int32_t id);

// Index of the largest of n f32, lowest on a tie, -1 if all are NaN.
int32_t pgd_ref_argmax_row(const float *x, int64_t n);
// One value through an activation (PGD_ACT_...), alpha 0 = 1.
double pgd_ref_activate(int32_t act, double alpha, double v);
// E and L of sample.c.
double pgd_ref_exp(double v);
double pgd_ref_log(double v);

#define PGD_REF_DECLARE_CHECK(name, family) \
    pgd_status pgd_ref_check_##name(const pgd_exec *x, const pgd_##name##_args *a) PGD_MUST_USE;
PGD_OP_LIST(PGD_REF_DECLARE_CHECK)
#undef PGD_REF_DECLARE_CHECK

#endif
