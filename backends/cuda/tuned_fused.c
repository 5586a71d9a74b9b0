// What stands around a product and is one launch with it, or one where there were two: the norm in
// front that packs (kernels/cuda/norm.k), heads and best columns behind it (tail.k), and the draw
// of a token (draw.k).
//
//   qkv      norm -> gemm_small with heads      | more than 64 rows: norm -> gemm_large -> heads
//   gate_up  norm -> gemm_small with SiLU
//   o, down  gemm_small (8 rows at most)        | pack_x -> gemm_small, or gemm_large
//   head     norm -> gemm_small with best -> draw
#include "../gpu/tuned.h"

#include <stddef.h>
#include <string.h>

#include "choose.h"
#include "cuda.h"

_Static_assert(sizeof(kc_norm_params) <= GPU_PARAMS_BYTES, "room for the parameters");
_Static_assert(sizeof(kc_draw_params) <= GPU_PARAMS_BYTES, "room for the parameters");
_Static_assert((int)KC_HEADS_OTHERS <= (int)GPU_OTHERS, "room for the memories of heads");
_Static_assert(offsetof(kc_heads, q_norm) == 8 && offsetof(kc_heads, k_norm) == 16,
               "addresses one behind the other");

void cuda_tuned_emit_norm(gpu_op *op, const gpu_work *made, const k_norm_params *plain) {
    gpu_work work = *made;
    kc_norm_params p = {.n = *plain, .adds = work.launch.memories[2] != NULL, .writes = 1};
    work.launch.kernel = PGD_PORTABLE_COUNT + PGD_CUDA_norm;
    work.launch.groups[0] = 1;
    gpu_emit(op, &work, &p);
}

void cuda_tuned_emit_front(gpu_op *op, const gpu_product *of, bool writes) {
    const pgd_weight_desc *w = &of->w->desc;
    gpu_work work = gpu_work_of(op, PGD_PORTABLE_COUNT + PGD_CUDA_norm, 1, 1);
    kc_norm_params p = {.n = {.x = gpu_bind(op, &work, 1, "x", of->x),
                              .out = gpu_bind(op, &work, 4, "normed", of->normed),
                              .w_at = gpu_bind(op, &work, 3, "norm_w", of->norm_w).at,
                              .rows = gpu_rows(op),
                              .heads = 1,
                              .n = (int32_t)w->k,
                              .eps = of->eps},
                        .dtype = w->dtype,
                        .writes = writes};
    const bool is_hopper = gpu_of(op->d)->tuned == &cuda_hopper_tuned;
    cuda_product product;
    cuda_choose_product(is_hopper ? CUDA_WGMMA : CUDA_MMA, w->dtype, (int32_t)w->n, (int32_t)w->k,
                        gpu_weight_layout(w) == K_LAYOUT_GATED, of->normed->shape[0], &product);
    p.packed_at = gpu_bind_scratch(op, &work, 5, product.scratch_bytes).at;
    p.packed_s0 = product.k_pad;
    if (is_hopper) { // many rows are packed from what is written
        work.when = GPU_IF_BETWEEN;
        work.rows_least = 1;
        work.rows_most = CUDA_SMALL_ROWS;
        gpu_emit(op, &work, &p);
        work.rows_least = CUDA_SMALL_ROWS + 1;
        work.rows_most = INT32_MAX;
        p.packed_s0 = 0;
        p.writes = 1;
    }
    gpu_emit(op, &work, &p);
}

// q, k and v are columns of y one behind the other, in whole heads of one size.
static bool has_heads(const gpu_work *made, const k_gemm_params *g, const gpu_product *of) {
    const k_heads_params *h = of->heads;
    const int64_t item = (int64_t)pgd_dtype_bytes(g->y.dtype);
    const k_view *views[3] = {&h->q, &h->k, &h->v};
    const int32_t first[3] = {0, h->q_heads, h->q_heads + h->k_heads};
    for (int i = 0; i < 3; i++) {
        if (of->heads_work->launch.memories[1 + i] != made->launch.memories[3] ||
            views[i]->dtype != g->y.dtype || views[i]->s0 != g->y.s0 || views[i]->s1 != h->q_dim ||
            views[i]->at != g->y.at + first[i] * h->q_dim * item) {
            return false;
        }
    }
    return (h->q_dim == 64 || h->q_dim == 128) && h->k_dim == h->q_dim && h->v_dim == h->q_dim &&
           h->cache.tokens > 0 && h->cache.heads == h->k_heads && made->rows_mode != 0 &&
           g->w.layout == K_LAYOUT_PANELS && g->aux_kind == 0 && g->act == 0 &&
           g->w.n == (h->q_heads + 2 * h->k_heads) * h->q_dim;
}

static void set_heads(gpu_work *work, kc_gemm_params *p, const gpu_product *of) {
    const k_heads_params *h = of->heads;
    gpu_launch *l = &work->launch;
    p->tail = KC_TAIL_HEADS;
    p->heads = (kc_heads){.table = h->table_at,
                          .q_norm = h->q_norm_at,
                          .k_norm = h->k_norm_at,
                          .cache = h->cache,
                          .positions_at = h->positions_at,
                          .slots_at = h->slots_at,
                          .q_heads = h->q_heads,
                          .kv_heads = h->k_heads,
                          .dim = h->q_dim,
                          .table_rows = h->table_rows,
                          .cap_tokens = h->cap_tokens,
                          .rot_dim = h->rot_dim,
                          .style = h->style,
                          .has_norms = h->has_norms,
                          .eps = h->eps};
    memcpy(p->heads.sections, h->sections, sizeof(h->sections));
    l->memories[5] = of->heads_work->launch.memories[7];
    memcpy((void *)l->others, &of->heads_work->launch.memories[4],
           KC_HEADS_OTHERS * sizeof(l->others[0])); // table, q_norm, k_norm
    l->others_at = offsetof(kc_gemm_params, heads);
    l->n_others = KC_HEADS_OTHERS;
}

int32_t cuda_tuned_best(const pgd_weight_desc *w, int32_t *out_rows) {
    *out_rows = CUDA_SMALL_ROWS;
    return (int32_t)gpu_ceil(w->n, KC_SMALL);
}

// The columns of a product that is nothing but logits.
static bool has_best(const k_gemm_params *g) {
    return g->w.layout == K_LAYOUT_PANELS && g->y.dtype == K_F32 && g->alpha == 1.0F &&
           g->has_bias == 0 && g->act == 0 && g->aux_kind == 0;
}

void cuda_tuned_set_tail(gpu_op *op, gpu_work *work, kc_gemm_params *p, gpu_product *of) {
    const gpu_self *self = gpu_of(op->d);
    if (of == NULL || (self->library != NULL && self->library_rows <= CUDA_SMALL_ROWS)) {
        return; // a product by the library has no tail
    }
    if (of->heads != NULL && has_heads(work, &p->g, of)) {
        set_heads(work, p, of);
        of->tail_rows = CUDA_SMALL_ROWS;
    } else if (of->best_at != 0 && has_best(&p->g)) {
        const uint64_t bytes = (uint64_t)gpu_ceil(p->g.w.n, KC_SMALL) * (uint64_t)p->g.rows.n * 8;
        p->tail = KC_TAIL_BEST;
        p->best_at = gpu_bind_scratch(op, work, 6, (uint64_t)of->best_at + bytes).at + of->best_at;
        of->tail_rows = CUDA_SMALL_ROWS;
    }
}

void cuda_tuned_emit_draw(gpu_op *op, const gpu_work *made, const k_sample_params *plain,
                          int64_t best_at, int32_t n_best) {
    gpu_work work = *made;
    const kc_draw_params p = {.s = *plain, .best_at = best_at, .n_best = n_best};
    work.launch.kernel = PGD_PORTABLE_COUNT + PGD_CUDA_draw;
    gpu_emit(op, &work, &p);
}
