// What this backend takes: its rules for the checks that backends share.
#include "cpu.h"

// x of products with quantized weights becomes int8, whatever is asked for; with bf16 weights it
// may be rounded to bf16.
static bool rounding(common_check *c, const pgd_weight_desc *w) {
    const bool quantized = cpu_is_quantized(w);
    if (w->act_dtype == 0 || (quantized && w->act_dtype == PGD_I8) ||
        (!quantized &&
         (w->act_dtype == PGD_F32 || (w->act_dtype == PGD_BF16 && w->dtype == PGD_BF16)))) {
        return true;
    }
    return common_refuse(c, PGD_UNSUPPORTED, "activations rounded to %s for weights of %s",
                         pgd_dtype_name(w->act_dtype),
                         quantized ? pgd_scheme_name(w->scheme) : pgd_dtype_name(w->dtype));
}

const common_rules cpu_rules = {
    .acts = 1u << PGD_F32,
    .rounded = 1u << PGD_BF16,
    .rows = UINT32_MAX,
    .head_most = CPU_HEAD_MOST,
    .n_most = INT32_MAX,
    .k_most = INT32_MAX,
    .int8_cache = true,
    .rounding = rounding,
};

bool cpu_is_dot_form(const pgd_cpu_kernels *k, const pgd_weight_desc *w, const pgd_tensor *x) {
    return x->dtype == PGD_BF16 && k->dot_bytes == (int64_t)sizeof(uint16_t) && w->k % 2 == 0;
}

uint64_t cpu_round_bytes(const pgd_cpu_kernels *k, const pgd_weight_desc *w, const pgd_tensor *x) {
    uint64_t row = 0;
    uint64_t bytes = 0;
    if (cpu_is_quantized(w)) {
        row = (uint64_t)cpu_int8_ld(w->k) * sizeof(pgd_cpu_int8);
    } else if (w->act_dtype == PGD_BF16 && !cpu_is_dot_form(k, w, x)) {
        row = (uint64_t)k->dot_bytes * (uint64_t)cpu_round_ld(w->k);
    }
    if (x->shape[0] < 0 || __builtin_mul_overflow((uint64_t)x->shape[0], row, &bytes)) {
        return 0;
    }
    return bytes;
}
