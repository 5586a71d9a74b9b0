// The products on matrix units (kernels/matrix) as the shared op layer asks for them: which chips
// have which unit.
#include "../gpu/matrix.h"

#include <stdio.h>
#include <string.h>

#include "hip.h"

static const gpu_kernel kernels[PGD_MATRIX_COUNT] = {GPU_MATRIX_ROWS(64, 256)};

// CDNA's units come with the wide bf16 product of gfx90a, RDNA's with gfx11.
const pgd_matrix_unit *hip_matrix_unit(const char *arch) {
    static const struct {
        const char *head;
        int32_t unit;
    } chips[] = {{"gfx90a", PGD_UNIT_mfma},
                 {"gfx94", PGD_UNIT_mfma},
                 {"gfx95", PGD_UNIT_mfma},
                 {"gfx11", PGD_UNIT_wmma},
                 {"gfx12", PGD_UNIT_wmma12}};
    for (size_t i = 0; i < sizeof(chips) / sizeof(chips[0]); i++) {
        if (strncmp(arch, chips[i].head, strlen(chips[i].head)) == 0) {
            return &pgd_matrix_units[chips[i].unit];
        }
    }
    return NULL;
}

static bool usable(const pgd_host *host, const gpu_device_facts *facts, char *reason,
                   size_t bytes) {
    if (!gpu_tuned_wanted(host, hip_tuned_images[0].data != NULL, "clang-19", reason, bytes)) {
        return false;
    }
    if (hip_matrix_unit(facts->arch) == NULL) {
        snprintf(reason, bytes, "%s has no matrix unit that tuned kernels know", facts->arch);
    } else if (gpu_stream_image_of(hip_tuned_images, facts->arch) == NULL) {
        snprintf(reason, bytes, "there are no tuned kernels for %s", facts->arch);
    } else {
        return true;
    }
    return false;
}

// AMD's units differ in lanes only, which scratch does not depend on.
static const char *product(const pgd_weight_desc *w, const pgd_tensor *x, uint64_t *out_scratch) {
    return gpu_matrix_product(&pgd_matrix_units[PGD_UNIT_mfma], w, x, out_scratch);
}

static void emit_product(gpu_op *op, const gpu_work *made, const k_gemm_params *p,
                         const pgd_weight *w, const pgd_tensor *x, gpu_product *of) {
    (void)of; // norms and heads are portable kernels
    gpu_matrix_emit(hip_matrix_unit(gpu_of(op->d)->facts.arch), op, made, p, w, x);
}

const gpu_tuned hip_tuned = {
    .kernels = kernels,
    .n_kernels = PGD_MATRIX_COUNT,
    .usable = usable,
    .act_dtype = PGD_BF16,
    .dot_dtype = PGD_BF16,
    .product = product,
    .emit_product = emit_product,
};
