// Kernels that a driver has beside the portable ones, for chips where they win.
//
// Whether an op is theirs is decided by what does not change from step to step (dtypes, layout,
// chip): their bits are not those of the portable kernels, and an op has one kind. Which of them it
// is may depend on the rows. In a launch they are the numbers from PGD_PORTABLE_COUNT on.
#ifndef PGD_BACKENDS_GPU_TUNED_H
#define PGD_BACKENDS_GPU_TUNED_H

#include "gpu.h"

enum {
    GPU_MOST_TUNED = 64,
    GPU_DRAW_TOKENS = 1 << 21, // emit_draw takes rows of fewer
    // Of each queue: zero before a kernel runs and zero again when it has ended.
    GPU_COUNTERS_BYTES = 1 << 20,
};

typedef struct gpu_kernel {
    const char *name; // of the compiled function
    uint32_t n_items; // of a group
    uint32_t params_bytes;
    uint32_t shared;  // bytes of dynamic shared memory
    const char *arch; // the one chip that has code for it, NULL: all have
} gpu_kernel;

struct gpu_tuned {
    const gpu_kernel *kernels; // [n_kernels]
    uint32_t n_kernels;
    uint32_t reserved0;
    // [setup] Whether a device has them; if not, `reason` says why.
    bool (*usable)(const pgd_host *host, const gpu_device_facts *facts, char *reason, size_t bytes);
    // Optional [setup]: another table of the same kernels for a device that is open, where they
    // may be tried first; NULL: this one.
    const gpu_tuned *(*better)(const pgd_host *host, const gpu_driver *driver, void *device,
                               const gpu_device_facts *facts);
    // What activations are to be on such a device.
    int32_t act_dtype;
    int32_t dot_dtype;
    // The name of the kernels of a product, NULL: it is not theirs, whatever the rows; the bytes of
    // scratch. The same of attention, whose batch may be NULL; no function: it is never theirs.
    const char *(*product)(const pgd_weight_desc *w, const pgd_tensor *x, uint64_t *out_scratch);
    const char *(*attention)(const pgd_attn_args *a, const pgd_kv_desc *kv, const pgd_batch *b,
                             uint64_t *out_scratch);
    // Launches it. made: memories 0, 1 (w) and 3 to 5 (y, bias, aux) are bound; p: all but x. Of
    // `of` (NULL: none) what emit_front has done, and what follows; it sets of->tail_rows.
    void (*emit_product)(gpu_op *op, const gpu_work *made, const k_gemm_params *p,
                         const pgd_weight *w, const pgd_tensor *x, gpu_product *of);
    // What follows, down to emit_draw, is optional: without it portable kernels do it.
    //
    // The norm in front of a product, into the product's own scratch; writes: into of->normed too.
    void (*emit_front)(gpu_op *op, const gpu_product *of, bool writes);
    // A norm of whole rows. made: memories 0 to 4 (x, residual, w, out) are bound.
    void (*emit_norm)(gpu_op *op, const gpu_work *made, const k_norm_params *p);
    // Best columns that a product keeps of a row, and the most rows of a step that it does so for;
    // 0: none.
    int32_t (*best)(const pgd_weight_desc *w, int32_t *out_rows);
    // Draws rows as `change` and `draw` together. made: as of those; n_best: of each row at best_at
    // in memory 2, 0: the logits are looked through.
    void (*emit_draw)(gpu_op *op, const gpu_work *made, const k_sample_params *p, int64_t best_at,
                      int32_t n_best);
    // made: memories 0 to 4 and 6 are bound; p: all but parts_at and n_parts.
    void (*emit_attention)(gpu_op *op, const gpu_work *made, const k_attn_params *p,
                           const pgd_attn_args *a);
};

// What drivers of such kernels ask first: that they are wanted (option tuned), that portable ones
// do not come from a file, and that the plugin was built with images; else `reason` says why not.
bool gpu_tuned_wanted(const pgd_host *host, bool has_images, const char *compiler, char *reason,
                      size_t bytes);
// A product of bf16 or f16 weights in panels by x of the same type, or rounded to it.
bool gpu_tuned_takes(const pgd_weight_desc *w, const pgd_tensor *x);

#endif
