// Numbers, addresses and checks of the reference kernels.
//
// Narrow types are made from double in one rounding to nearest, ties to even (IEEE 754-2019,
// section 4.3.1), subnormals kept, overflow to infinity.
#include "ref/common.h"

#include <string.h>

// ---- numbers ---------------------------------------------------------------------------------

// Rounds to a type with `mant` fraction bits and `ebits` exponent bits.
static uint16_t narrow(double value, int mant, int ebits) {
    const int bias = (1 << (ebits - 1)) - 1;
    const uint32_t infinity = (uint32_t)((1 << ebits) - 1) << mant;
    uint64_t bits, fraction, half, rest, kept;
    uint32_t sign, code;
    int exponent, shift;
    memcpy(&bits, &value, sizeof(bits));
    sign = (uint32_t)(bits >> 63) << 15;
    exponent = (int)((bits >> 52) & 0x7ff);
    fraction = bits & ((UINT64_C(1) << 52) - 1);
    if (exponent == 0x7ff) {
        code = infinity | (fraction != 0 ? 1u << (mant - 1) : 0);
        return (uint16_t)(sign | code);
    }
    if (exponent == 0) {
        return (uint16_t)sign; // far below the smallest subnormal
    }
    exponent -= 1023;
    fraction |= UINT64_C(1) << 52;
    shift = 52 - mant;
    if (exponent < 1 - bias) {
        shift += 1 - bias - exponent;
    }
    if (shift > 54) {
        return (uint16_t)sign;
    }
    half = UINT64_C(1) << (shift - 1);
    rest = fraction & ((half << 1) - 1);
    kept = fraction >> shift;
    if (rest > half || (rest == half && (kept & 1) != 0)) {
        kept++;
    }
    code = (uint32_t)kept; // a carry runs on into the exponent by itself
    if (exponent >= 1 - bias) {
        code += (uint32_t)(exponent + bias - 1) << mant;
    }
    if (code > infinity) {
        code = infinity;
    }
    return (uint16_t)(sign | code);
}

static double from_bf16(uint16_t code) {
    uint32_t bits = (uint32_t)code << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

static double from_f16(uint16_t code) {
    uint64_t sign = (uint64_t)(code >> 15) << 63;
    uint64_t exponent = (code >> 10) & 0x1f;
    uint64_t fraction = code & 0x3ff;
    uint64_t bits;
    double value;
    if (exponent == 0) {
        value = (double)fraction * 0x1p-24;
        return sign != 0 ? -value : value;
    }
    exponent = exponent == 0x1f ? 0x7ff : exponent + 1023 - 15;
    bits = sign | exponent << 52 | fraction << 42;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

double pgd_ref_load(int32_t dtype, const void *base, int64_t i) {
    const unsigned char *p = (const unsigned char *)base + i * (int64_t)pgd_dtype_bytes(dtype);
    uint16_t code = 0;
    int32_t integer = 0;
    float value = 0;
    switch (dtype) {
    case PGD_F32: memcpy(&value, p, sizeof(value)); return (double)value;
    case PGD_BF16: memcpy(&code, p, sizeof(code)); return from_bf16(code);
    case PGD_F16: memcpy(&code, p, sizeof(code)); return from_f16(code);
    case PGD_I32: memcpy(&integer, p, sizeof(integer)); return (double)integer;
    case PGD_I8: return (double)(signed char)*p;
    default: return 0;
    }
}

void pgd_ref_store(int32_t dtype, void *base, int64_t i, double value) {
    unsigned char *p = (unsigned char *)base + i * (int64_t)pgd_dtype_bytes(dtype);
    uint16_t code;
    int32_t integer;
    float single;
    switch (dtype) {
    case PGD_F32:
        single = (float)value;
        memcpy(p, &single, sizeof(single));
        break;
    case PGD_BF16:
        code = narrow(value, 7, 8);
        memcpy(p, &code, sizeof(code));
        break;
    case PGD_F16:
        code = narrow(value, 10, 5);
        memcpy(p, &code, sizeof(code));
        break;
    case PGD_I32:
        integer = (int32_t)value;
        memcpy(p, &integer, sizeof(integer));
        break;
    default: break;
    }
}

void pgd_ref_read(int32_t dtype, const void *base, int64_t i, int64_t n, double *out) {
    const unsigned char *p = (const unsigned char *)base + i * (int64_t)pgd_dtype_bytes(dtype);
    uint16_t code;
    float value;
    int64_t j;
    if (dtype == PGD_F32) {
        for (j = 0; j < n; j++) {
            memcpy(&value, p + 4 * j, sizeof(value));
            out[j] = (double)value;
        }
    } else if (dtype == PGD_BF16) {
        for (j = 0; j < n; j++) {
            memcpy(&code, p + 2 * j, sizeof(code));
            out[j] = from_bf16(code);
        }
    } else {
        for (j = 0; j < n; j++) {
            out[j] = pgd_ref_load(dtype, base, i + j);
        }
    }
}

// One of ten rounds; the key is raised between them (Salmon et al. 2011, section 3.3).
static void philox_round(uint32_t c[4], const uint32_t k[2]) {
    uint64_t a = (uint64_t)UINT32_C(0xD2511F53) * c[0];
    uint64_t b = (uint64_t)UINT32_C(0xCD9E8D57) * c[2];
    uint32_t c0 = (uint32_t)(b >> 32) ^ c[1] ^ k[0];
    uint32_t c2 = (uint32_t)(a >> 32) ^ c[3] ^ k[1];
    c[0] = c0;
    c[1] = (uint32_t)b;
    c[2] = c2;
    c[3] = (uint32_t)a;
}

void pgd_ref_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};
    int round;
    for (round = 0; round < 10; round++) {
        philox_round(c, k);
        k[0] += UINT32_C(0x9E3779B9);
        k[1] += UINT32_C(0xBB67AE85);
    }
    memcpy(out, c, sizeof(c));
}

// ---- addresses -------------------------------------------------------------------------------

void *pgd_ref_at(const pgd_tensor *t, int64_t i, int64_t j, int64_t l) {
    int64_t at = 0;
    if (t->rank > 1) {
        at += i * t->stride[0];
    }
    if (t->rank > 2) {
        at += j * t->stride[1];
    }
    if (t->rank > 3) {
        at += l * t->stride[2];
    }
    at *= (int64_t)pgd_dtype_bytes(t->dtype);
    return (void *)(uintptr_t)(t->offset + (uint64_t)at); // an absent tensor gives NULL
}

void *pgd_ref_array(const pgd_batch *batch, uint64_t offset) {
    return offset == 0 ? NULL : (unsigned char *)(uintptr_t)batch->mirror + offset;
}

const pgd_batch_head *pgd_ref_head(const pgd_batch *batch) {
    return (const pgd_batch_head *)batch->mirror;
}

int64_t pgd_ref_rows(const pgd_batch *batch, int32_t rows, int64_t shape0) {
    if (rows == PGD_ROWS_SHAPE) {
        return shape0;
    }
    if (batch == NULL || batch->mirror == NULL) {
        return -1;
    }
    if (rows == PGD_ROWS_TOKENS) {
        return pgd_ref_head(batch)->n_tokens;
    }
    return rows == PGD_ROWS_OUTPUTS ? pgd_ref_head(batch)->n_out : -1;
}

void pgd_ref_put_token(const pgd_batch *batch, int64_t r, int32_t id) {
    int32_t *sampled, *last;
    const int32_t *slot;
    if (batch == NULL || r >= pgd_ref_head(batch)->n_out) {
        return;
    }
    sampled = pgd_ref_array(batch, batch->sampled);
    last = pgd_ref_array(batch, batch->last);
    slot = pgd_ref_array(batch, batch->out_slot);
    if (sampled != NULL) {
        sampled[r] = id;
    }
    if (last != NULL && slot != NULL && slot[r] >= 0) {
        last[slot[r]] = id;
    }
}

// ---- checks ----------------------------------------------------------------------------------

static pgd_status check_shape(const pgd_exec *x, const pgd_tensor *t, const pgd_ref_want *want) {
    uint32_t i;
    for (i = 0; i < want->rank; i++) {
        int64_t dim = t->shape[i];
        if (i == 0 && want->rows >= 0) {
            if (dim < want->rows) {
                return PGD_REF_FAIL(x, PGD_INVALID, "%s holds %lld rows, the step has %lld",
                                    want->name, (long long)dim, (long long)want->rows);
            }
        } else if (dim < 0 || (want->dims[i] >= 0 && dim != want->dims[i])) {
            return PGD_REF_FAIL(x, PGD_INVALID, "%s: dimension %u is %lld, not %lld", want->name,
                                (unsigned)i, (long long)dim, (long long)want->dims[i]);
        }
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_tensor(const pgd_exec *x, const pgd_tensor *t, const pgd_ref_want *want) {
    if (t->rank != want->rank) {
        return PGD_REF_FAIL(x, PGD_INVALID, "%s has rank %u, not %u", want->name, (unsigned)t->rank,
                            (unsigned)want->rank);
    }
    if (t->dtype < 1 || t->dtype > 31 || (want->dtypes >> t->dtype & 1u) == 0) {
        return PGD_REF_FAIL(x, PGD_INVALID, "%s: dtype %s does not fit", want->name,
                            pgd_dtype_name(t->dtype));
    }
    PGD_TRY(check_shape(x, t, want));
    if (t->buffer != NULL) {
        return PGD_REF_FAIL(x, PGD_INVALID, "%s is not host memory", want->name);
    }
    if (t->stride[t->rank - 1] != 1 && t->shape[t->rank - 1] > 1) {
        return PGD_REF_FAIL(x, PGD_INVALID, "%s: the last stride is %lld, not 1", want->name,
                            (long long)t->stride[t->rank - 1]);
    }
    if (t->offset == 0 && want->rows != 0) {
        uint32_t i;
        for (i = 0; i < t->rank; i++) {
            if (t->shape[i] == 0) {
                return PGD_OK;
            }
        }
        return PGD_REF_FAIL(x, PGD_INVALID, "%s has no address", want->name);
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_vector(const pgd_exec *x, const char *name, const pgd_tensor *t,
                                uint32_t dtypes, int64_t n) {
    const pgd_ref_want want = {name, dtypes, 1, -1, {n, 0, 0, 0}};
    return pgd_ref_check_tensor(x, t, &want);
}

pgd_status pgd_ref_check_absent(const pgd_exec *x, const char *name, const pgd_tensor *t) {
    if (t->rank != 0) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "%s is not supported in this version", name);
    }
    return PGD_OK;
}

// One matrix: its scheme can be read.
static pgd_status check_matrix(const pgd_exec *x, const pgd_ref_weight *w) {
    if (w->n < 0 || w->k < 0 || (w->rows == NULL && w->n > 0 && w->k > 0)) {
        return PGD_REF_FAIL(x, PGD_INVALID, "the weight is not there");
    }
    if (w->scheme == PGD_SCHEME_PLAIN &&
        (w->dtype < 1 || w->dtype > 31 || (PGD_REF_FLOATS >> w->dtype & 1u) == 0)) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "weights of dtype %s", pgd_dtype_name(w->dtype));
    }
    if (w->k > 0 && pgd_ref_row_bytes(w->scheme, w->dtype, w->k) == 0) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "%lld columns of scheme %s", (long long)w->k,
                            pgd_scheme_name(w->scheme));
    }
    if (w->scheme == PGD_SCHEME_INT8 && w->scales == NULL && w->n > 0) {
        return PGD_REF_FAIL(x, PGD_INVALID, "an int8 weight without scales");
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_weight(const pgd_exec *x, const pgd_ref_weight *w) {
    int64_t n = 0;
    uint32_t i;
    if (w == NULL) {
        return PGD_REF_FAIL(x, PGD_INVALID, "the weight is not there");
    }
    if (w->act_dtype < 0 || w->act_dtype > 31 ||
        (w->act_dtype != 0 && (PGD_REF_FLOATS >> w->act_dtype & 1u) == 0)) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "activations rounded to %s",
                            pgd_dtype_name(w->act_dtype));
    }
    if (w->scheme != PGD_SCHEME_PARTS) {
        return check_matrix(x, w);
    }
    for (i = 0; i < w->n_parts; i++) {
        PGD_TRY(check_matrix(x, &w->parts[i]));
        if (w->parts[i].k != w->k) {
            return PGD_REF_FAIL(x, PGD_INVALID, "part %u has %lld columns, the weight %lld",
                                (unsigned)i, (long long)w->parts[i].k, (long long)w->k);
        }
        n += w->parts[i].n;
    }
    if (n != w->n) {
        return PGD_REF_FAIL(x, PGD_INVALID, "parts of %lld rows in a weight of %lld", (long long)n,
                            (long long)w->n);
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_batch(const pgd_exec *x, const pgd_batch *batch) {
    if (batch == NULL || batch->mirror == NULL || batch->mem != NULL) {
        return PGD_REF_FAIL(x, PGD_INVALID, "the batch is not there or not host memory");
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_kv(const pgd_exec *x, const pgd_ref_kv *kv, const pgd_batch *batch,
                            int32_t layer, int32_t group) {
    PGD_TRY(pgd_ref_check_batch(x, batch));
    if (kv == NULL || kv->mem == NULL || pgd_ref_kv_block_bytes(&kv->desc) == 0) {
        return PGD_REF_FAIL(x, PGD_INVALID, "the cache is not there");
    }
    if (kv->desc.kind != PGD_KV_ATTENTION || !pgd_ref_kv_is_known(&kv->desc)) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "cache kind %d of %s and %s with scale mode %d",
                            (int)kv->desc.kind, pgd_dtype_name(kv->desc.k_dtype),
                            pgd_dtype_name(kv->desc.v_dtype), (int)kv->desc.scale_mode);
    }
    if (layer < 0 || layer >= kv->desc.layers) {
        return PGD_REF_FAIL(x, PGD_INVALID, "layer %d of a cache of %d", (int)layer,
                            (int)kv->desc.layers);
    }
    if (group < 0 || group >= batch->n_groups || group >= PGD_MAX_GROUPS) {
        return PGD_REF_FAIL(x, PGD_INVALID, "cache group %d of %d", (int)group,
                            (int)batch->n_groups);
    }
    return PGD_OK;
}

pgd_status pgd_ref_live(const pgd_exec *x, const pgd_batch *batch, int32_t rows, int64_t shape0,
                        int64_t *out) {
    int64_t n;
    *out = 0;
    if (rows != PGD_ROWS_SHAPE) {
        PGD_TRY(pgd_ref_check_batch(x, batch));
    }
    n = pgd_ref_rows(batch, rows, shape0);
    if (n < 0 || n > shape0) {
        return PGD_REF_FAIL(x, PGD_INVALID, "%lld live rows in a tensor of %lld", (long long)n,
                            (long long)shape0);
    }
    *out = n;
    return PGD_OK;
}

pgd_status pgd_ref_check_tokens(const pgd_exec *x, const pgd_batch *batch, int64_t n) {
    const int32_t *slot;
    int64_t r;
    if (batch == NULL) {
        return PGD_OK;
    }
    PGD_TRY(pgd_ref_check_batch(x, batch));
    slot = pgd_ref_array(batch, batch->out_slot);
    if (slot == NULL || batch->last == 0) {
        return PGD_OK;
    }
    for (r = 0; r < n && r < pgd_ref_head(batch)->n_out; r++) {
        if (slot[r] < -1 || slot[r] >= batch->cap_slots) {
            return PGD_REF_FAIL(x, PGD_INVALID, "output %lld goes to slot %d of %d", (long long)r,
                                (int)slot[r], (int)batch->cap_slots);
        }
    }
    return PGD_OK;
}
