// The products on matrix units (kernels/matrix) as the shared op layer asks for them: which chips
// have which unit.
#include <stdio.h>

#include "ze.h"

static const gpu_kernel kernels[PGD_MATRIX_COUNT] = {GPU_MATRIX_ROWS(16, 64)};

// Level Zero does not say it. Xe HPC and Xe2 have the unit and are the only chips without
// sub-groups of 8; of those with them Xe HPG has it.
int32_t ze_unit_of(uint32_t vendor, uint32_t device, uint32_t least_lanes) {
    enum { INTEL = 0x8086, XE_HPC_WITHOUT = 0x0bd4, XE_HPG = 0x5600, XE_HPG_EARLY = 0x4f80 };
    if (vendor != INTEL || device == XE_HPC_WITHOUT) {
        return ZE_UNIT_NONE;
    }
    if (least_lanes == 16) {
        return ZE_UNIT_DPAS16;
    }
    return least_lanes == 8 && ((device & 0xff00) == XE_HPG || (device & 0xfff0) == XE_HPG_EARLY)
               ? ZE_UNIT_DPAS8
               : ZE_UNIT_NONE;
}

static bool usable(const pgd_host *host, const gpu_device_facts *facts, char *reason,
                   size_t bytes) {
    if (!gpu_tuned_wanted(host, true, "", reason, bytes)) {
        return false;
    }
    if (facts->unit == ZE_UNIT_NONE) {
        snprintf(reason, bytes, "%s has no matrix unit that tuned kernels know", facts->arch);
        return false;
    }
    return true;
}

static const pgd_matrix_unit *unit(int32_t number) {
    return &pgd_matrix_units[number == ZE_UNIT_DPAS8 ? PGD_UNIT_dpas8 : PGD_UNIT_dpas16];
}

// The two units differ in lanes only, which scratch does not depend on.
static const char *product(const pgd_weight_desc *w, const pgd_tensor *x, uint64_t *out_scratch) {
    return gpu_matrix_product(unit(ZE_UNIT_DPAS16), w, x, out_scratch);
}

static void emit_product(gpu_op *op, const gpu_work *made, const k_gemm_params *p,
                         const pgd_weight *w, const pgd_tensor *x, gpu_product *of) {
    (void)of; // norms and heads are portable kernels
    gpu_matrix_emit(unit(gpu_of(op->d)->facts.unit), op, made, p, w, x);
}

const gpu_tuned ze_tuned = {
    .kernels = kernels,
    .n_kernels = PGD_MATRIX_COUNT,
    .usable = usable,
    .act_dtype = PGD_BF16,
    .dot_dtype = PGD_BF16,
    .product = product,
    .emit_product = emit_product,
};
