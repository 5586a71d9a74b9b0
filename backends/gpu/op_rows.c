// Ops that go row by row: embed, gather_rows, norms, rope, kv_write, add, act_mul.
#include "gpu.h"
#include "tuned.h"

static uint64_t i32s(int64_t n) {
    return (uint64_t)n * sizeof(int32_t);
}

pgd_status gpu_op_embed(const pgd_exec *x, const pgd_embed_args *a) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->out.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_embed, 1, 1);
    k_embed_params p = {.w = gpu_bind_weight(&op, &w, 1, a->w),
                        .out = gpu_bind(&op, &w, 2, "out", &a->out),
                        .rows = gpu_rows(&op),
                        .scale = a->scale == 0 ? 1.0F : a->scale};
    p.ids_at = op.batch == NULL
                   ? 0
                   : gpu_array(&op, "token ids", op.batch->token_ids, i32s(op.batch->cap_tokens));
    if (op.batch != NULL && op.batch->last != 0) {
        p.last_at = gpu_array(&op, "last", op.batch->last, i32s(op.batch->cap_slots));
        p.n_slots = op.batch->cap_slots;
    } else if (op.batch == NULL) {
        (void)gpu_array(&op, "token ids", 0, 0);
    }
    if (op.batch != NULL && p.rows.n > op.batch->cap_tokens) {
        p.rows.n = op.batch->cap_tokens;
    }
    w.launch.groups[0] = gpu_ceil(p.w.k, K_SPAN);
    for (uint32_t i = 0; i < a->w->n_matrices; i++) { // each adds its rows to what lacks them
        p.w = a->w->matrices[i].w;
        p.row_start = (int32_t)(a->row_start + a->w->matrices[i].first);
        p.keeps = i > 0;
        gpu_emit(&op, &w, &p);
    }
    return op.code;
}

pgd_status gpu_op_gather_rows(const pgd_exec *x, const pgd_gather_rows_args *a) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->out.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_gather, 1, 1);
    k_gather_params p = {.x = gpu_bind(&op, &w, 1, "x", &a->x),
                         .out = gpu_bind(&op, &w, 2, "out", &a->out),
                         .rows = gpu_rows(&op),
                         .n = (int32_t)a->x.shape[1],
                         .n_from = (int32_t)a->x.shape[0]};
    const int32_t cap = op.batch == NULL ? 0 : op.batch->cap_out;
    p.from_at = gpu_array(&op, "output rows", op.batch == NULL ? 0 : op.batch->out_rows, i32s(cap));
    p.rows.n = p.rows.n < cap ? p.rows.n : cap;
    w.launch.groups[0] = gpu_ceil(p.n, K_SPAN);
    gpu_emit(&op, &w, &p);
    return op.code;
}

// Norms of whole rows are the tuned kernels' where a device has them, whatever the rows.
static bool is_tuned_norm(const gpu_op *op, const k_norm_params *p) {
    const gpu_tuned *tuned = gpu_of(op->d)->tuned;
    return tuned != NULL && tuned->emit_norm != NULL && p->heads == 1 && p->n > 0;
}

pgd_status gpu_op_rmsnorm(const pgd_exec *x, const pgd_rmsnorm_args *a) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->x.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_rmsnorm, 1, 1);
    const k_norm_params p = {.x = gpu_bind(&op, &w, 1, "x", &a->x),
                             .w_at = gpu_bind(&op, &w, 2, "w", &a->w).at,
                             .out = gpu_bind(&op, &w, 3, "out", &a->out),
                             .rows = gpu_rows(&op),
                             .heads = a->x.rank == 3 ? (int32_t)a->x.shape[1] : 1,
                             .n = (int32_t)a->x.shape[a->x.rank - 1],
                             .eps = a->eps};
    w.launch.groups[0] = p.n == 0 ? 0 : (uint32_t)p.heads;
    if (is_tuned_norm(&op, &p)) { // whose memories are those of add_rmsnorm
        w.launch.memories[4] = w.launch.memories[3];
        w.launch.memories[3] = w.launch.memories[2];
        w.launch.memories[2] = NULL;
        gpu_of(op.d)->tuned->emit_norm(&op, &w, &p);
        return op.code;
    }
    gpu_emit(&op, &w, &p);
    return op.code;
}

pgd_status gpu_op_add_rmsnorm(const pgd_exec *x, const pgd_add_rmsnorm_args *a) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->x.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_add_rmsnorm, 1, 1);
    const k_norm_params p = {.x = gpu_bind(&op, &w, 1, "x", &a->x),
                             .residual = gpu_bind(&op, &w, 2, "residual", &a->residual),
                             .w_at = gpu_bind(&op, &w, 3, "w", &a->w).at,
                             .out = gpu_bind(&op, &w, 4, "out", &a->out),
                             .rows = gpu_rows(&op),
                             .heads = 1,
                             .n = (int32_t)a->x.shape[1],
                             .eps = a->eps};
    w.launch.groups[0] = p.n == 0 ? 0 : 1;
    if (is_tuned_norm(&op, &p)) {
        gpu_of(op.d)->tuned->emit_norm(&op, &w, &p);
        return op.code;
    }
    gpu_emit(&op, &w, &p);
    return op.code;
}

pgd_status gpu_op_add(const pgd_exec *x, const pgd_add_args *a) {
    const bool is_vector = a->a.rank == 1;
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->a.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_add, 1, 1);
    k_pair_params p = {.a = gpu_bind(&op, &w, 1, "a", &a->a),
                       .b = gpu_bind(&op, &w, 2, "b", &a->b),
                       .out = gpu_bind(&op, &w, 3, "out", &a->out),
                       .rows = gpu_rows(&op),
                       .heads = a->a.rank == 3 ? (int32_t)a->a.shape[1] : 1,
                       .n = is_vector ? 1 : (int32_t)a->a.shape[a->a.rank - 1]};
    if (is_vector) { // rows of one element
        p.a.s0 = p.b.s0 = p.out.s0 = 1;
    }
    w.launch.groups[0] = gpu_ceil(p.n, K_SPAN);
    w.launch.groups[2] = (uint32_t)p.heads;
    gpu_emit(&op, &w, &p);
    return op.code;
}

pgd_status gpu_op_act_mul(const pgd_exec *x, const pgd_act_mul_args *a) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->out.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_act_mul, 1, 1);
    const k_pair_params p = {.a = gpu_bind(&op, &w, 1, "x", &a->x),
                             .out = gpu_bind(&op, &w, 3, "out", &a->out),
                             .rows = gpu_rows(&op),
                             .heads = 1,
                             .n = (int32_t)a->out.shape[1],
                             .act = a->act,
                             .act_alpha = a->act_alpha,
                             .act_limit = a->act_limit};
    w.launch.groups[0] = gpu_ceil(p.n, K_SPAN);
    gpu_emit(&op, &w, &p);
    return op.code;
}

// ---- heads: rope, kv_write, and what follows the product of qkv --------------------------------

// Positions of the step for the axes that are in use.
static void bind_positions(gpu_op *op, k_heads_params *p) {
    int32_t n_axes = 1;
    for (int i = 1; i < 4; i++) {
        n_axes = p->sections[i] > 0 ? i + 1 : n_axes;
    }
    if (op->batch == NULL || p->rot_dim == 0 || op->code != PGD_OK) {
        return;
    }
    if (n_axes > op->batch->n_axes || p->rows.n > op->batch->cap_tokens || p->table_rows < 1) {
        p->rows.n = op->batch->cap_tokens < p->rows.n ? op->batch->cap_tokens : p->rows.n;
        if (n_axes > op->batch->n_axes || (p->table_rows < 1 && p->rows.n > 0)) {
            op->code = GPU_FAIL(op->d, PGD_INVALID, "%d position axes of %d, a table of %d rows",
                                (int)n_axes, (int)op->batch->n_axes, (int)p->table_rows);
            return;
        }
    }
    p->cap_tokens = op->batch->cap_tokens;
    p->positions_at = gpu_array(op, "positions", op->batch->positions,
                                i32s((int64_t)op->batch->cap_tokens * n_axes));
}

static void bind_slots(gpu_op *op, k_heads_params *p, int32_t group) {
    if (op->batch == NULL) {
        (void)gpu_array(op, "cache slots", 0, 0);
        return;
    }
    p->slots_at =
        gpu_array(op, "cache slots", op->batch->slots[group], i32s(op->batch->cap_tokens));
    p->rows.n = op->batch->cap_tokens < p->rows.n ? op->batch->cap_tokens : p->rows.n;
}

static void emit_heads(gpu_op *op, gpu_work *w, const k_heads_params *p) {
    w->launch.groups[0] = (uint32_t)(p->q_heads + p->k_heads);
    gpu_emit(op, w, p);
}

pgd_status gpu_op_rope(const pgd_exec *x, const pgd_rope_args *a) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->q.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_heads, 1, 1);
    k_heads_params p = {.q = gpu_bind(&op, &w, 1, "q", &a->q),
                        .k = gpu_bind(&op, &w, 2, "k", &a->k),
                        .table_at = gpu_bind(&op, &w, 4, "table", &a->table).at,
                        .rows = gpu_rows(&op),
                        .q_heads = (int32_t)a->q.shape[1],
                        .k_heads = a->k.rank != 0 ? (int32_t)a->k.shape[1] : 0,
                        .q_dim = (int32_t)a->q.shape[2],
                        .k_dim = (int32_t)a->q.shape[2],
                        .table_rows = (int32_t)a->table.shape[0],
                        .rot_dim = a->rot_dim,
                        .style = a->style};
    for (int i = 0; i < 4; i++) {
        p.sections[i] = a->sections[i];
    }
    if (op.batch == NULL) {
        (void)gpu_array(&op, "positions", 0, 0);
    }
    bind_positions(&op, &p);
    emit_heads(&op, &w, &p);
    return op.code;
}

pgd_status gpu_op_kv_write(const pgd_exec *x, const pgd_kv_write_args *a) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->k.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_heads, 1, 1);
    k_heads_params p = {.k = gpu_bind(&op, &w, 2, "k", &a->k),
                        .v = gpu_bind(&op, &w, 3, "v", &a->v),
                        .cache = gpu_bind_cache(&op, &w, 7, a->kv, a->layer),
                        .rows = gpu_rows(&op),
                        .k_heads = a->kv->desc.heads,
                        .k_dim = a->kv->desc.k_dim,
                        .v_dim = a->kv->desc.v_dim,
                        .writes = 1};
    bind_slots(&op, &p, a->group);
    emit_heads(&op, &w, &p);
    return op.code;
}

pgd_status gpu_op_qkv_rope_write(const pgd_exec *x, const pgd_qkv_rope_write_args *a) {
    gpu_product product = {.rows = a->rows,
                           .eps = a->eps,
                           .batch = a->batch,
                           .w = a->w,
                           .x = &a->x,
                           .norm_w = &a->norm_w,
                           .normed = &a->normed,
                           .bias = &a->bias,
                           .y = &a->qkv};
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->q.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_heads, 1, 1);
    k_heads_params p = {.q = gpu_bind(&op, &w, 1, "q", &a->q),
                        .k = gpu_bind(&op, &w, 2, "k", &a->k),
                        .v = gpu_bind(&op, &w, 3, "v", &a->v),
                        .cache = gpu_bind_cache(&op, &w, 7, a->kv, a->layer),
                        .table_at = gpu_bind(&op, &w, 4, "table", &a->table).at,
                        .q_norm_at = gpu_bind(&op, &w, 5, "q_norm", &a->q_norm).at,
                        .k_norm_at = gpu_bind(&op, &w, 6, "k_norm", &a->k_norm).at,
                        .rows = gpu_rows(&op),
                        .q_heads = (int32_t)a->q.shape[1],
                        .k_heads = (int32_t)a->k.shape[1],
                        .q_dim = (int32_t)a->q.shape[2],
                        .k_dim = (int32_t)a->k.shape[2],
                        .v_dim = (int32_t)a->v.shape[2],
                        .table_rows = (int32_t)a->table.shape[0],
                        .rot_dim = a->rot_dim,
                        .style = a->style,
                        .has_norms = (a->q_norm.rank != 0) | (a->k_norm.rank != 0) << 1,
                        .writes = 1,
                        .eps = a->eps};
    for (int i = 0; i < 4; i++) {
        p.sections[i] = a->sections[i];
    }
    bind_positions(&op, &p);
    bind_slots(&op, &p, a->group);
    PGD_TRY(op.code); // before the first launch
    product.heads = &p;
    product.heads_work = &w;
    PGD_TRY(gpu_run_product(x, &product));
    if (product.tail_rows > 0) {
        w.when = GPU_IF_BETWEEN;
        w.rows_least = product.tail_rows + 1;
        w.rows_most = INT32_MAX;
    }
    emit_heads(&op, &w, &p);
    return op.code;
}
