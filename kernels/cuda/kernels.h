// The tensor-core kernels as their host sees them. They replace portable kernels where they win.
//
// A launch is that of a portable kernel: eight memories, one block of parameters, the step's batch
// block as memory 0. Two things are new: `shared` bytes of dynamic shared memory (above 48 KiB the
// function's attribute MAX_DYNAMIC_SHARED_SIZE_BYTES has to be raised once), and counters: u32 that
// are zero before a kernel runs and zero again when it has ended. One set of counters belongs to
// one queue.
//
//   kernel            memories                                    groups
//   pack_x            batch, x, out                               ceil(k_pad / 512), rows
//   norm              batch, x, residual, w, out, packed          1, rows
//   gemm_large_*_tR   batch, w, x, y, bias, aux                   ceil(panels / 16), ceil(rows / R)
//   pack_x_cores      batch, x, out                               ceil(k_pad / 128), ceil(rows / 8)
//   gemm_wgmma_*_tR   batch, w, x, y, bias, aux                   ceil(rows / R), ceil(panels / 16)
//   gemm_small_*_rR   batch, w, x, y, bias, aux, parts, counters  ceil(panels / 32), n_slices,
//                                                                 ceil(rows / R)
//   gemm_merge        batch, -, -, y, bias, aux, parts            ceil(panels / 32), rows
//   draw              batch, logits, scratch, ids, -, -, -, state rows
//   attn_prefill_*    batch, q, cache, out, sinks, -, lse         ceil(rows / (64 / share)), heads
//   attn_decode_*     batch, q, cache, out, sinks, counters,      ceil(max keys / 256),
//                     lse, parts                                  heads * ceil(share / 16), rows
//   heads: of the cache; share: query heads of one of them
//
// **One order of summation.** A weight's k is cut into slices of kc_gemm_slice(n, k) by its shape
// alone. A slice is one chain of mma over k = 0, 16, 32 ...; slices are added to 0 from left to
// right. All gemm kernels do that, for any number of rows, so their bits are equal and a host may
// choose by rows. Attention takes tiles of 64 keys aligned to position 0, each from nothing, and
// merges them left to right: attn_prefill and attn_decode give the same bits. A norm adds as norm.k
// says. What stands behind a product (below) has the bits of the portable kernel that it replaces,
// and a drawn token is the portable one.
// The counters of gemm_small are [groups 0 * groups 2], those of attn_decode [rows][groups 1].
//
// **Behind a product of few rows** (params.h, tail) gemm_small does in the same launch, with merges
// or with one slice:
//   KC_TAIL_HEADS  what `heads` does behind qkv: q into y, k and v into the cache (memory 5, for
//                  aux) and not into y. Heads of 64 or 128, q | k | v in y. Table and norms are
//                  addresses in the parameters.
//   KC_TAIL_BEST   of logits (no bias, no activation, y f32) beside y the best column of each row
//                  of a group, a u64, larger = better, 0 = none, for `draw`.
// gemm_large has no tail: `heads` is launched behind it, and `draw` looks through the logits.
//
// **Programmatic dependent launch.** An item of a kernel lets the next kernel come, and waits for
// the one before to end before it reads what that wrote, and before it ends itself. So on
// sm_90 and later each of them may be launched with programmatic stream serialization; gemm_small
// has the first 64 to 128 k of its weight on their way by then. Without it nothing changes.
//
// The bits differ from those of the portable kernels: a step, or a device, uses one kind.
//
// **When a kernel may be taken** (else the portable one):
//   gemm_*   weight bf16 or f16, packed (K_LAYOUT_PANELS or K_LAYOUT_GATED) at an address that is a
//            multiple of 16; x is of the weight's dtype or is to be rounded to it (act_dtype).
//            y, aux f32, bf16 or f16; any n, k, rows, activation; k >= 1. x_plain, of
//            gemm_small_*_r8: x of the weight's dtype, k a multiple of 64.
//   gemm_wgmma_*  the same, x from pack_x_cores; sm_90a alone, and only where its bits were seen to
//            be those of gemm_large: nobody promises that (backends/cuda/trial.c).
//   norm     x, residual, out f32, bf16 or f16; any n; rows may begin at odd addresses.
//   draw     what portable's change and draw take; fewer than 2^21 tokens.
//   attn_*   cache of one dtype, bf16 or f16, k_dim = v_dim = 64 or 128; tokens of a block a power
//            of two >= 8; no slopes; prefill: share <= 64. q is rounded to the cache's dtype, so it
//            should be of it. The weights of a tile are rounded to it as well.
#ifndef PGD_KERNELS_CUDA_KERNELS_H
#define PGD_KERNELS_CUDA_KERNELS_H

#ifndef PGD_PORTABLE_HOST
#define PGD_PORTABLE_HOST 1
#endif
#include "cuda/params.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/list.inc"

enum {
#define PGD_CUDA_ENUM(name, items, params, shared, rows, columns, sm) PGD_CUDA_##name,
    PGD_CUDA_KERNELS(PGD_CUDA_ENUM)
#undef PGD_CUDA_ENUM
        PGD_CUDA_COUNT
};

typedef struct pgd_cuda_kernel {
    const char *name; // of the compiled function: "pgd_cuda_pack_x"
    uint32_t n_items; // threads of a group
    uint32_t params_bytes;
    uint32_t shared;  // bytes of dynamic shared memory
    uint32_t rows;    // rows of x a group takes; of attention: rows (token, head)
    uint32_t columns; // packed columns a group takes; of attention: the head's dim
    uint32_t sm;      // least compute capability, 10 * major + minor
} pgd_cuda_kernel;

// One row for each PGD_CUDA_ number.
extern const pgd_cuda_kernel pgd_cuda_kernels[PGD_CUDA_COUNT];

// k of a slice of a weight [n, k]: a multiple of KC_STEP, at least 256, such that the warps of one
// row's product are about 512 where the weight is large enough for that.
static inline int32_t kc_gemm_slice(int32_t n, int32_t k) {
    const int32_t groups = n / 64 + 1;
    const int32_t steps = (k + KC_STEP - 1) / KC_STEP;
    int32_t slices = (512 + groups - 1) / groups;
    int32_t each = (steps + slices - 1) / slices;
    each = each < 4 ? 4 : each;
    return each * KC_STEP;
}

// Rows of x in cores, for a step of at most so many: whole tiles of each size.
static inline int64_t kc_gemm_cores_rows(int64_t rows) {
    const int64_t by_128 = (rows + 127) / 128 * 128;
    const int64_t by_192 = (rows + 191) / 192 * 192;
    return by_128 > by_192 ? by_128 : by_192;
}

#ifdef __cplusplus
}
#endif
#endif
