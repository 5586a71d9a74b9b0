// The tensor-core kernels (kernels/cuda) as the shared op layer asks for them: whether a device has
// them, which products are theirs, and their launches.
//
//   x -> pack_x or norm -> gemm_small (few rows; slices merged by the last group) or gemm_large
//   x -> pack_x_cores -> gemm_wgmma for many rows on sm_90, where trial.c found it right
//
// What stands around a product in an op: tuned_fused.c.
#include "../gpu/tuned.h"

#include <stdio.h>
#include <string.h>

#include "choose.h"
#include "cuda.h"

enum { LEAST_CAPABILITY = 80 };

static const gpu_kernel kernels[PGD_CUDA_COUNT] = {
#define TUNED_ROW(kernel, items, params, bytes, rows, columns, sm) \
    {.name = "pgd_cuda_" #kernel,                                  \
     .n_items = (items),                                           \
     .params_bytes = sizeof(params),                               \
     .shared = (bytes),                                            \
     .arch = (sm) == 90 ? "sm_90" : NULL},
    PGD_CUDA_KERNELS(TUNED_ROW)
#undef TUNED_ROW
};

_Static_assert((int)PGD_CUDA_COUNT <= (int)GPU_MOST_TUNED, "room for the functions of a device");
_Static_assert(sizeof(kc_gemm_params) <= GPU_PARAMS_BYTES, "room for the parameters");

static bool usable(const pgd_host *host, const gpu_device_facts *facts, char *reason,
                   size_t bytes) {
    if (!gpu_tuned_wanted(host, cuda_tuned_images[0].data != NULL, "nvcc", reason, bytes)) {
        return false;
    }
    if (cuda_capability(facts->arch) < LEAST_CAPABILITY) {
        snprintf(reason, bytes, "tuned kernels need sm_%d, this is %s", LEAST_CAPABILITY,
                 facts->arch);
        return false;
    }
    return true;
}

static const char *product_of(int32_t family, const pgd_weight_desc *w, const pgd_tensor *x,
                              uint64_t *out_scratch) {
    static const char *const names[2][2] = {{"mma_bf16", "mma_f16"}, {"wgmma_bf16", "wgmma_f16"}};
    cuda_product p;
    *out_scratch = 0;
    if (!gpu_tuned_takes(w, x)) {
        return NULL;
    }
    cuda_choose_product(family, w->dtype, (int32_t)w->n, (int32_t)w->k,
                        gpu_weight_layout(w) == K_LAYOUT_GATED, x->shape[0], &p);
    *out_scratch = p.scratch_bytes;
    return names[family][w->dtype != PGD_BF16];
}

static const char *product(const pgd_weight_desc *w, const pgd_tensor *x, uint64_t *out_scratch) {
    return product_of(CUDA_MMA, w, x, out_scratch);
}

static const char *hopper_product(const pgd_weight_desc *w, const pgd_tensor *x,
                                  uint64_t *out_scratch) {
    return product_of(CUDA_WGMMA, w, x, out_scratch);
}

// Packs x at the start of scratch for steps of rows_least to rows_most rows.
static void pack(gpu_op *op, int32_t kernel, const cuda_product *p, const pgd_weight_desc *w,
                 const pgd_tensor *x, int32_t rows_least, int32_t rows_most) {
    const pgd_cuda_kernel *k = &pgd_cuda_kernels[kernel];
    gpu_work work = gpu_work_of(op, PGD_PORTABLE_COUNT + kernel, 1, (int32_t)k->rows);
    kc_pack_x_params params = {.x = gpu_bind(op, &work, 1, "x", x),
                               .out_s0 = kernel == PGD_CUDA_pack_x ? p->k_pad : p->x_step,
                               .rows = gpu_rows(op),
                               .n = (int32_t)w->k,
                               .dtype = w->dtype};
    params.out_at = gpu_bind_scratch(op, &work, 2, p->scratch_bytes).at;
    work.launch.groups[0] = gpu_ceil(p->k_pad, k->columns);
    work.when = GPU_IF_BETWEEN;
    work.rows_least = rows_least;
    work.rows_most = rows_most;
    gpu_emit(op, &work, &params);
}

// x in the order in which the products read it, unless the norm has packed it or the kernel for
// fewest rows reads it as it is; in cores for the rows that gemm_wgmma takes.
static void pack_x(gpu_op *op, const cuda_product *p, const pgd_weight_desc *w, const pgd_tensor *x,
                   bool is_packed, bool reads_x) {
    const bool has_cores = p->x_step > 0;
    if (!is_packed) {
        pack(op, PGD_CUDA_pack_x, p, w, x, reads_x ? p->choices[0].rows_most + 1 : 1,
             has_cores ? CUDA_SMALL_ROWS : INT32_MAX);
    }
    if (has_cores) {
        pack(op, PGD_CUDA_pack_x_cores, p, w, x, CUDA_SMALL_ROWS + 1, INT32_MAX);
    }
}

// What a kernel for few rows takes beside what all take: parts of slices, and what follows.
static void set_small(gpu_op *op, gpu_work *work, kc_gemm_params *p, const cuda_product *product,
                      gpu_product *of) {
    p->g.rows.n = p->g.rows.n < product->small_cap ? p->g.rows.n : product->small_cap;
    work->launch.memories[6] = work->launch.memories[2];
    work->launch.memories[7] = op->x->queue->counters;
    cuda_tuned_set_tail(op, work, p, of);
}

static void emit_family(int32_t family, gpu_op *op, const gpu_work *made,
                        const k_gemm_params *plain, const pgd_weight *weight, const pgd_tensor *x,
                        gpu_product *of) {
    const pgd_weight_desc *w = &weight->desc;
    const bool is_packed = of != NULL && of->norm_w->rank != 0; // by the norm
    const bool reads_x = !is_packed && x->dtype == w->dtype && w->k % KC_STEP == 0;
    cuda_product p;
    cuda_choose_product(family, w->dtype, (int32_t)w->n, (int32_t)w->k,
                        plain->w.layout == K_LAYOUT_GATED, x->shape[0], &p);
    pack_x(op, &p, w, x, is_packed, reads_x);
    for (int32_t i = 0; i < CUDA_CHOICES; i++) {
        const cuda_choice *c = &p.choices[i];
        gpu_work work = *made;
        const k_view scratch = gpu_bind_scratch(op, &work, 2, p.scratch_bytes);
        kc_gemm_params params = {.g = *plain,
                                 .parts_at = scratch.at + (int64_t)p.parts_at,
                                 .slice = p.slice,
                                 .n_slices = p.n_slices,
                                 .panels = p.panels,
                                 .merges = p.n_slices > 1};
        params.g.x = (k_view){.at = scratch.at, .s0 = p.k_pad, .dtype = w->dtype};
        if (p.x_step > 0 && c->rows_least > CUDA_SMALL_ROWS) {
            params.g.x.s0 = p.x_step;
        }
        if (c->rows_axis == 2) {
            set_small(op, &work, &params, &p, of);
        }
        if (i == 0 && reads_x) { // the kernel for fewest rows takes them as they are
            params.g.x = gpu_bind(op, &work, 2, "x", x);
            params.x_plain = 1;
        }
        work.launch.kernel = PGD_PORTABLE_COUNT + c->kernel;
        memcpy(work.launch.groups, c->groups, sizeof(c->groups));
        work.rows_axis = c->rows_axis;
        work.rows_unit = c->rows_unit;
        work.when = GPU_IF_BETWEEN;
        work.rows_least = c->rows_least;
        work.rows_most = c->rows_most;
        gpu_emit(op, &work, &params);
    }
}

static void emit_product(gpu_op *op, const gpu_work *made, const k_gemm_params *plain,
                         const pgd_weight *weight, const pgd_tensor *x, gpu_product *of) {
    emit_family(CUDA_MMA, op, made, plain, weight, x, of);
}

static void emit_hopper(gpu_op *op, const gpu_work *made, const k_gemm_params *plain,
                        const pgd_weight *weight, const pgd_tensor *x, gpu_product *of) {
    emit_family(CUDA_WGMMA, op, made, plain, weight, x, of);
}

const gpu_tuned cuda_hopper_tuned = {
    .kernels = kernels,
    .n_kernels = PGD_CUDA_COUNT,
    .usable = usable,
    .act_dtype = PGD_BF16,
    .dot_dtype = PGD_BF16,
    .product = hopper_product,
    .emit_product = emit_hopper,
    .emit_front = cuda_tuned_emit_front,
    .emit_norm = cuda_tuned_emit_norm,
    .best = cuda_tuned_best,
    .emit_draw = cuda_tuned_emit_draw,
    .attention = cuda_tuned_attention,
    .emit_attention = cuda_tuned_emit_attention,
};

const gpu_tuned cuda_tuned = {
    .better = cuda_better,
    .kernels = kernels,
    .n_kernels = PGD_CUDA_COUNT,
    .usable = usable,
    .act_dtype = PGD_BF16,
    .dot_dtype = PGD_BF16,
    .product = product,
    .emit_product = emit_product,
    .emit_front = cuda_tuned_emit_front,
    .emit_norm = cuda_tuned_emit_norm,
    .best = cuda_tuned_best,
    .emit_draw = cuda_tuned_emit_draw,
    .attention = cuda_tuned_attention,
    .emit_attention = cuda_tuned_emit_attention,
};
