// What GPUs take: their rules for the checks that backends share.
#include "gpu.h"

#define FLOATS (1u << PGD_F32 | 1u << PGD_BF16 | 1u << PGD_F16)

// x stays as it is; a weight may ask for any type of numbers that holds it.
static bool rounding(common_check *c, const pgd_weight_desc *w) {
    return (w->act_dtype >= 0 && w->act_dtype < 32 && ((FLOATS | 1u) >> w->act_dtype & 1u) != 0) ||
           common_refuse(c, PGD_UNSUPPORTED, "activations rounded to %s",
                         pgd_dtype_name(w->act_dtype));
}

const common_rules gpu_rules = {
    .acts = FLOATS,
    .rows = FLOATS | 1u << PGD_I32,
    .head_most = K_HEAD_MAX,
    .n_most = INT32_MAX - K_COLUMNS,
    .k_most = INT32_MAX - K_SPAN,
    .rounding = rounding,
};
