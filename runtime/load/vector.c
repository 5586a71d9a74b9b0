// Small stored tensors as f32 (see vector.h).
#include "load/vector.h"

#include <string.h>

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

// IEEE 754 half to single: a subnormal half is mantissa * 2^-24.
static float half_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0) {
        float x = (float)mantissa * (1.0f / 16777216.0f);
        return sign != 0 ? -x : x;
    }
    if (exponent == 31) {
        return float_of(sign | 0x7f800000u | (mantissa << 13));
    }
    return float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

void pgd_load_vector_to_f32(const pgd_load_tensor *t, float *out) {
    const uint8_t *from = t->ptr;
    if (t->bytes == 0) {
        return;
    }
    if (t->dtype == PGD_F32) {
        memcpy(out, from, (size_t)t->bytes);
        return;
    }
    for (uint64_t i = 0; i < t->bytes / 2; i++) {
        uint16_t bits = (uint16_t)(from[2 * i] | from[2 * i + 1] << 8);
        out[i] = t->dtype == PGD_BF16 ? float_of((uint32_t)bits << 16) : half_to_f32(bits);
    }
}

pgd_status pgd_load_vector_show_shape(const pgd_load_tensor *t, pgd_text *out) {
    PGD_TRY(pgd_text_add(out, "[", 1));
    for (uint32_t i = 0; i < t->rank && i < PGD_MAX_RANK; i++) {
        PGD_TRY(pgd_text_format(out, "%s%lld", i == 0 ? "" : ", ", (long long)t->shape[i]));
    }
    return pgd_text_format(out, "%s]", t->rank > PGD_MAX_RANK ? ", ..." : "");
}
