// What an op with a norm in front of its product, or with something behind it, launches: which
// kernels for how many rows, what they are told, and that nothing is fused where it may not be.
#include "test_tuned.h"

// The plugin's own list holds images only where there is nvcc.
const gpu_stream_image cuda_tuned_images[] = {{"", "an image"}, {"", NULL}};

enum { MIB = 1 << 20, HIDDEN = 1024, DIM = 128, Q_HEADS = 4, KV_HEADS = 2 };

#define TUNED(name) (PGD_PORTABLE_COUNT + PGD_CUDA_##name)

static pgd_tensor vector(pgd_buffer *b, uint64_t offset, int64_t n) {
    return (pgd_tensor){
        .buffer = b, .offset = offset, .dtype = PGD_F32, .rank = 1, .shape = {n}, .stride = {1}};
}

// Kernels of the launches, in their order, up to a -1.
static void assert_kernels(const int32_t *want, const char *what, int32_t rows) {
    int32_t n = 0;
    for (; want[n] >= 0; n++) {
        if (n >= n_launches || launches[n].kernel != want[n]) {
            fail_msg("%s of %d rows: launch %d is %d, not %d", what, rows, n,
                     n < n_launches ? launches[n].kernel : -1, want[n]);
        }
    }
    assert_int_equal(n_launches, n);
}

static const kc_gemm_params *gemm_of(int32_t i) {
    return (const kc_gemm_params *)(const void *)launches[i].params;
}

static const kc_norm_params *norm_of(int32_t i) {
    return (const kc_norm_params *)(const void *)launches[i].params;
}

// The norm in front packs into the product's scratch, and writes normed only for a library.
static void assert_front(const setup *s, int32_t i, int32_t rows, int32_t writes) {
    const kc_norm_params *p = norm_of(i);
    assert_int_equal(launches[i].kernel, TUNED(norm));
    assert_int_equal(launches[i].groups[0], 1);
    assert_int_equal(launches[i].groups[1], rows);
    assert_int_equal(p->packed_at, (int64_t)s->x.scratch.offset);
    assert_int_equal(p->packed_s0, HIDDEN);
    assert_int_equal(p->dtype, PGD_BF16);
    assert_int_equal(p->adds, 0);
    assert_int_equal(p->writes, writes);
    assert_true(p->n.eps == 1e-5F && p->n.n == HIDDEN);
}

// ---- qkv ---------------------------------------------------------------------------------------

typedef struct qkv {
    setup s;
    pgd_kv *kv;
    pgd_qkv_rope_write_args a;
} qkv;

static void view_of(pgd_tensor *t, const pgd_tensor *of, int64_t first, int64_t heads) {
    *t = *of;
    t->offset += (uint64_t)first * 2;
    t->rank = 3;
    t->shape[1] = heads;
    t->shape[2] = DIM;
    t->stride[1] = DIM;
    t->stride[2] = 1;
}

static void open_qkv(qkv *t, int32_t k_norm) {
    enum { WIDE = (Q_HEADS + 2 * KV_HEADS) * DIM };
    setup *s = &t->s;
    pgd_kv_plan plan = {.size = sizeof(plan)};
    open_chip(s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM, WIDE, HIDDEN);
    const pgd_kv_desc desc = {.size = sizeof(desc),
                              .layers = 1,
                              .heads = KV_HEADS,
                              .k_dim = DIM,
                              .v_dim = DIM,
                              .k_dtype = PGD_BF16,
                              .v_dtype = PGD_BF16,
                              .block_tokens = 16};
    assert_int_equal(gpu_kv_table.plan(&s->d, &desc, &plan), PGD_OK);
    const pgd_range mem = {s->memory, 0, MIB};
    assert_int_equal(gpu_kv_table.bind(&s->d, &desc, &plan, &mem, 4, &t->kv), PGD_OK);
    s->batch.n_axes = 1;
    s->batch.n_groups = 1;
    s->batch.positions = 4096;
    s->batch.slots[0] = 8192;
    pgd_qkv_rope_write_args *a = &t->a;
    *a = (pgd_qkv_rope_write_args){.size = sizeof(*a),
                                   .rows = PGD_ROWS_TOKENS,
                                   .batch = &s->batch,
                                   .w = s->w,
                                   .kv = t->kv,
                                   .x = product_tensor(s->memory, 2 * MIB, PGD_F32, CAP, HIDDEN),
                                   .norm_w = vector(s->memory, 16384, HIDDEN),
                                   .normed =
                                       product_tensor(s->memory, 20 * MIB, PGD_BF16, CAP, HIDDEN),
                                   .qkv = product_tensor(s->memory, 24 * MIB, PGD_BF16, CAP, WIDE),
                                   .table = product_tensor(s->memory, 32768, PGD_F32, 64, DIM / 2),
                                   .eps = 1e-5F,
                                   .style = PGD_ROPE_INTERLEAVED,
                                   .rot_dim = DIM,
                                   .sections = {64, 0, 0, 0}};
    a->table.rank = 3;
    a->table.shape[2] = 2;
    a->table.stride[0] = DIM;
    a->table.stride[1] = 2;
    a->table.stride[2] = 1;
    view_of(&a->q, &a->qkv, 0, Q_HEADS);
    view_of(&a->k, &a->qkv, Q_HEADS * DIM, KV_HEADS);
    view_of(&a->v, &a->qkv, (Q_HEADS + KV_HEADS) * DIM, KV_HEADS);
    if (k_norm) {
        a->k_norm = vector(s->memory, 65536, DIM);
    }
}

static void run_qkv(qkv *t, int32_t rows) {
    t->s.head.n_tokens = rows;
    n_launches = 0;
    assert_int_equal(gpu_op_qkv_rope_write(&t->s.x, &t->a), PGD_OK);
}

static void close_qkv(qkv *t) {
    gpu_kv_table.destroy(&t->s.d, t->kv);
    product_close(&t->s);
}

static void test_qkv_of_few_rows_is_two_launches(void **state) {
    static const struct {
        int32_t rows, kernel;
    } want[] = {{1, TUNED(gemm_small_bf16_r8)},
                {9, TUNED(gemm_small_bf16_r16)},
                {30, TUNED(gemm_small_bf16_r32)},
                {64, TUNED(gemm_small_bf16_r64)}};
    (void)state;
    qkv t;
    open_qkv(&t, 1);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        run_qkv(&t, want[i].rows);
        assert_kernels((const int32_t[]){TUNED(norm), want[i].kernel, -1}, "qkv", want[i].rows);
        assert_front(&t.s, 0, want[i].rows, 0);
        const gpu_launch *l = &launches[1];
        const kc_heads *h = &gemm_of(1)->heads;
        assert_int_equal(gemm_of(1)->tail, KC_TAIL_HEADS);
        assert_int_equal(gemm_of(1)->x_plain, 0);
        assert_true(h->q_heads == Q_HEADS && h->kv_heads == KV_HEADS && h->dim == DIM);
        assert_true(h->rot_dim == DIM && h->style == PGD_ROPE_INTERLEAVED && h->has_norms == 2);
        assert_true(h->sections[0] == 64 && h->sections[1] == 0 && h->eps == 1e-5F);
        assert_true(h->positions_at == 4096 && h->slots_at == 8192 && h->cap_tokens == CAP);
        assert_true(h->table == 32768 && h->k_norm == 65536 && h->table_rows == 64);
        assert_int_equal(h->cache.n_blocks, 4);
        assert_ptr_equal(l->memories[5], t.s.memory->memory); // the cache
        assert_int_equal(l->n_others, 3);
        assert_int_equal(l->others_at, offsetof(kc_gemm_params, heads.table));
        assert_ptr_equal(l->others[0], t.s.memory->memory);
        assert_null(l->others[1]); // there is no q_norm
        assert_ptr_equal(l->others[2], t.s.memory->memory);
    }
    close_qkv(&t);
}

static void test_qkv_of_many_rows_is_three(void **state) {
    (void)state;
    qkv t;
    open_qkv(&t, 0);
    run_qkv(&t, 65);
    assert_kernels(
        (const int32_t[]){TUNED(norm), TUNED(gemm_large_bf16_t64), PGD_PORTABLE_heads, -1}, "qkv",
        65);
    assert_int_equal(gemm_of(1)->tail, KC_TAIL_STORE);
    assert_int_equal(launches[1].n_others, 0);
    assert_int_equal(launches[2].groups[1], 65);
    run_qkv(&t, 0);
    assert_int_equal(n_launches, 0);
    close_qkv(&t);
}

// With wgmma the norm packs few rows as everywhere; many are packed in cores from what it writes.
static void test_qkv_of_many_rows_on_hopper(void **state) {
    (void)state;
    qkv t;
    open_qkv(&t, 1);
    t.s.self.tuned = &cuda_hopper_tuned;
    run_qkv(&t, 64);
    assert_kernels((const int32_t[]){TUNED(norm), TUNED(gemm_small_bf16_r64), -1}, "qkv", 64);
    assert_true(norm_of(0)->packed_s0 == HIDDEN && norm_of(0)->writes == 0);
    run_qkv(&t, 65);
    assert_kernels((const int32_t[]){TUNED(norm), TUNED(pack_x_cores), TUNED(gemm_wgmma_bf16_t64),
                                     PGD_PORTABLE_heads, -1},
                   "qkv", 65);
    assert_true(norm_of(0)->packed_s0 == 0 && norm_of(0)->writes == 1);
    const kc_pack_x_params *p = (const kc_pack_x_params *)(const void *)launches[1].params;
    assert_int_equal(p->x.at, norm_of(0)->n.out.at);
    close_qkv(&t);
}

// Heads that are not columns of qkv in its order stay with the portable kernel.
static void test_qkv_that_does_not_fit(void **state) {
    (void)state;
    qkv t;
    open_qkv(&t, 0);
    const pgd_tensor q = t.a.q, k = t.a.k;
    for (int32_t i = 0; i < 3; i++) {
        t.a.q = q;
        t.a.k = k;
        if (i == 0) { // elsewhere
            t.a.k.offset += UINT64_C(8) * MIB;
        } else if (i == 1) { // v and k change places
            const uint64_t at = t.a.k.offset;
            t.a.k.offset = t.a.v.offset;
            t.a.v.offset = at;
        } else {
            t.a.q.stride[1] = 2 * (int64_t)DIM;
        }
        run_qkv(&t, 3);
        assert_kernels(
            (const int32_t[]){TUNED(norm), TUNED(gemm_small_bf16_r8), PGD_PORTABLE_heads, -1},
            "qkv", 3);
        assert_int_equal(gemm_of(1)->tail, KC_TAIL_STORE);
    }
    close_qkv(&t);
}

// ---- products whose x comes as it is, and gate_up ----------------------------------------------

static void test_x_of_few_rows_is_not_packed(void **state) {
    (void)state;
    setup s;
    open_chip(&s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM, N, HIDDEN);
    pgd_gemm_add_args a = {.size = sizeof(a),
                           .rows = PGD_ROWS_TOKENS,
                           .batch = &s.batch,
                           .w = s.w,
                           .x = product_tensor(s.memory, MIB, PGD_BF16, CAP, HIDDEN),
                           .y = product_tensor(s.memory, 24 * MIB, PGD_F32, CAP, N),
                           .aux_kind = PGD_AUX_ADD};
    a.aux = a.y;
    static const struct {
        int32_t rows, kernels[3];
    } want[] = {{1, {TUNED(gemm_small_bf16_r8), -1}},
                {8, {TUNED(gemm_small_bf16_r8), -1}},
                {9, {TUNED(pack_x), TUNED(gemm_small_bf16_r16), -1}},
                {600, {TUNED(pack_x), TUNED(gemm_large_bf16_t128), -1}}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        s.head.n_tokens = want[i].rows;
        n_launches = 0;
        assert_int_equal(gpu_op_gemm_add(&s.x, &a), PGD_OK);
        assert_kernels(want[i].kernels, "o", want[i].rows);
        const kc_gemm_params *p = gemm_of(n_launches - 1);
        assert_int_equal(p->x_plain, want[i].rows <= 8);
        assert_int_equal(p->g.x.at, want[i].rows <= 8 ? MIB : 32 * MIB);
        assert_int_equal(p->g.x.s0, HIDDEN);
        assert_int_equal(p->tail, KC_TAIL_STORE);
        assert_true(p->parts_at >= 32 * MIB);
    }
    a.x.dtype = PGD_F32; // is rounded, so packed
    s.w->desc.act_dtype = PGD_BF16;
    s.head.n_tokens = 1;
    n_launches = 0;
    assert_int_equal(gpu_op_gemm_add(&s.x, &a), PGD_OK);
    assert_kernels((const int32_t[]){TUNED(pack_x), TUNED(gemm_small_bf16_r8), -1}, "f32", 1);
    assert_int_equal(gemm_of(1)->x_plain, 0);
    product_close(&s);
}

static void test_gate_up_is_two_launches(void **state) {
    static const int32_t rows[] = {1, 64, 65, 1000};
    (void)state;
    setup s;
    open_chip(&s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GATE_UP, 2 * N, HIDDEN);
    const pgd_gate_up_args a = {.size = sizeof(a),
                                .rows = PGD_ROWS_TOKENS,
                                .batch = &s.batch,
                                .w = s.w,
                                .x = product_tensor(s.memory, 2 * MIB, PGD_F32, CAP, HIDDEN),
                                .norm_w = vector(s.memory, 16384, HIDDEN),
                                .normed = product_tensor(s.memory, 20 * MIB, PGD_BF16, CAP, HIDDEN),
                                .tmp = product_tensor(s.memory, 24 * MIB, PGD_BF16, CAP, 2 * N),
                                .out = product_tensor(s.memory, 28 * MIB, PGD_BF16, CAP, N),
                                .eps = 1e-5F,
                                .act = PGD_ACT_SILU};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        s.head.n_tokens = rows[i];
        n_launches = 0;
        assert_int_equal(gpu_op_gate_up(&s.x, &a), PGD_OK);
        assert_int_equal(n_launches, 2);
        assert_front(&s, 0, rows[i], 0);
        assert_int_equal(gemm_of(1)->g.act, PGD_ACT_SILU);
        assert_int_equal(gemm_of(1)->g.w.layout, K_LAYOUT_GATED);
        assert_int_equal(gemm_of(1)->g.y.at, 28 * MIB);
        assert_int_equal(gemm_of(1)->g.x.at, 32 * MIB);
    }
    product_close(&s);
}

// ---- the head ----------------------------------------------------------------------------------

enum { VOCABULARY = 700 };

static pgd_head_sample_args head_of(setup *s) {
    const pgd_tensor ids = {.buffer = s->memory,
                            .offset = 12288,
                            .dtype = PGD_I32,
                            .rank = 1,
                            .shape = {CAP},
                            .stride = {1}};
    s->batch.sampling = UINT64_C(4) * MIB;
    s->batch.sampling_stride = sizeof(pgd_sampling);
    return (pgd_head_sample_args){
        .size = sizeof(pgd_head_sample_args),
        .rows = PGD_ROWS_OUTPUTS,
        .batch = &s->batch,
        .w = s->w,
        .x = product_tensor(s->memory, 2 * MIB, PGD_F32, CAP, HIDDEN),
        .norm_w = vector(s->memory, 16384, HIDDEN),
        .normed = product_tensor(s->memory, 20 * MIB, PGD_BF16, CAP, HIDDEN),
        .logits = product_tensor(s->memory, 24 * MIB, PGD_F32, CAP, VOCABULARY),
        .ids = ids,
        .eps = 1e-5F};
}

// The mirror has no parameters of rows; the recording of a step does not look at them.
static void run_head(setup *s, const pgd_head_sample_args *a, int32_t rows) {
    static char mirror[8 * MIB];
    pgd_batch_head *head = (pgd_batch_head *)(void *)mirror;
    const pgd_sampling greedy = {.flags = PGD_SAMPLE_GREEDY};
    memset(mirror, 0, sizeof(mirror));
    head->n_out = rows;
    for (int32_t r = 0; r < CAP; r++) {
        memcpy(mirror + s->batch.sampling + (size_t)r * sizeof(greedy), &greedy, sizeof(greedy));
    }
    s->batch.mirror = mirror;
    n_launches = 0;
    assert_int_equal(gpu_op_head_sample(&s->x, a), PGD_OK);
}

static const kc_draw_params *draw_of(int32_t i) {
    return (const kc_draw_params *)(const void *)launches[i].params;
}

static void test_the_head_keeps_the_best_of_few_rows(void **state) {
    (void)state;
    setup s;
    open_chip(&s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM, VOCABULARY, HIDDEN);
    const pgd_head_sample_args a = head_of(&s);
    run_head(&s, &a, 3);
    assert_kernels((const int32_t[]){TUNED(norm), TUNED(gemm_small_bf16_r8), TUNED(draw), -1},
                   "head", 3);
    assert_front(&s, 0, 3, 0);
    const kc_gemm_params *p = gemm_of(1);
    assert_int_equal(p->tail, KC_TAIL_BEST);
    assert_ptr_equal(launches[1].memories[6], launches[2].memories[2]);
    assert_int_equal(draw_of(2)->best_at, p->best_at);
    assert_int_equal(draw_of(2)->n_best, (VOCABULARY + 255) / 256);
    assert_int_equal(draw_of(2)->n_best, launches[1].groups[0]);
    assert_int_equal(p->best_at % 8, 0);
    const int64_t parts = (int64_t)p->n_slices * p->g.rows.n * p->panels * 8 * 4;
    assert_true(p->n_slices > 1 && p->best_at >= p->parts_at + parts);
    assert_true(p->best_at >= 32 * MIB + 32 * VOCABULARY * 4); // and behind the changed rows
    assert_int_equal(launches[2].groups[0], 3);
    run_head(&s, &a, 64);
    assert_int_equal(n_launches, 4); // two lots of 32 rows
    assert_int_equal(draw_of(3)->s.first, 32);
    assert_int_equal(draw_of(3)->n_best, 3);
    run_head(&s, &a, 65);
    assert_kernels((const int32_t[]){TUNED(norm), TUNED(gemm_large_bf16_t64), TUNED(draw),
                                     TUNED(draw), TUNED(draw), -1},
                   "head", 65);
    assert_int_equal(draw_of(2)->n_best, 0);
    assert_int_equal(launches[4].groups[0], 1);
    product_close(&s);
}

static void test_the_heads_scratch_is_planned(void **state) {
    (void)state;
    setup s;
    open_chip(&s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM, VOCABULARY, HIDDEN);
    const pgd_head_sample_args a = head_of(&s);
    s.x.scratch.bytes = gpu_head_scratch(&s.d, &s.w->desc, &a.normed, &a.logits);
    run_head(&s, &a, 3);
    assert_int_equal(n_launches, 3);
    s.x.scratch.bytes--;
    n_launches = 0;
    assert_int_equal(gpu_op_head_sample(&s.x, &a), PGD_INVALID);
    product_close(&s);
}

// A library that takes steps of few rows leaves nothing behind a product.
static void test_no_tail_where_a_library_may_come(void **state) {
    (void)state;
    setup s;
    open_chip(&s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM, VOCABULARY, HIDDEN);
    const pgd_head_sample_args a = head_of(&s);
    s.self.library = "a library";
    s.self.library_rows = 512;
    s.self.library_columns = 1024;
    s.self.library_part = MIB;
    run_head(&s, &a, 3);
    assert_front(&s, 0, 3, 1); // the library reads what is normed
    assert_int_equal(gemm_of(1)->tail, KC_TAIL_BEST);
    s.self.library_rows = 64;
    run_head(&s, &a, 3);
    assert_int_equal(gemm_of(1)->tail, KC_TAIL_STORE);
    assert_int_equal(draw_of(2)->n_best, 0);
    product_close(&s);
}

// ---- norms by themselves -----------------------------------------------------------------------

static void test_norms_of_rows(void **state) {
    (void)state;
    setup s;
    open_chip(&s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM, N, HIDDEN);
    pgd_rmsnorm_args a = {.size = sizeof(a),
                          .rows = PGD_ROWS_TOKENS,
                          .batch = &s.batch,
                          .x = product_tensor(s.memory, MIB, PGD_BF16, CAP, HIDDEN),
                          .w = vector(s.memory, 16384, HIDDEN),
                          .out = product_tensor(s.memory, 20 * MIB, PGD_BF16, CAP, HIDDEN),
                          .eps = 1e-5F};
    const pgd_add_rmsnorm_args b = {.size = sizeof(b),
                                    .rows = PGD_ROWS_TOKENS,
                                    .batch = &s.batch,
                                    .x = a.x,
                                    .residual =
                                        product_tensor(s.memory, 4 * MIB, PGD_F32, CAP, HIDDEN),
                                    .w = a.w,
                                    .out = a.out,
                                    .eps = 1e-5F};
    s.head.n_tokens = 5;
    n_launches = 0;
    assert_int_equal(gpu_op_rmsnorm(&s.x, &a), PGD_OK);
    assert_int_equal(gpu_op_add_rmsnorm(&s.x, &b), PGD_OK);
    assert_kernels((const int32_t[]){TUNED(norm), TUNED(norm), -1}, "norms", 5);
    for (int32_t i = 0; i < 2; i++) {
        const kc_norm_params *p = norm_of(i);
        assert_int_equal(launches[i].groups[1], 5);
        assert_int_equal(p->adds, i);
        assert_true(p->writes == 1 && p->packed_s0 == 0);
        assert_true(p->n.x.at == MIB && p->n.w_at == 16384 && p->n.out.at == 20 * MIB);
        assert_ptr_equal(launches[i].memories[1], s.memory->memory);
        assert_ptr_equal(launches[i].memories[3], s.memory->memory);
        assert_ptr_equal(launches[i].memories[4], s.memory->memory);
        assert_ptr_equal(launches[i].memories[2], i == 0 ? NULL : s.memory->memory);
    }
    a.x.rank = a.out.rank = 3; // of each head: portable
    a.x.shape[1] = a.out.shape[1] = 8;
    a.x.shape[2] = a.out.shape[2] = DIM;
    a.x.stride[1] = a.out.stride[1] = DIM;
    a.x.stride[2] = a.out.stride[2] = 1;
    a.w.shape[0] = DIM;
    n_launches = 0;
    assert_int_equal(gpu_op_rmsnorm(&s.x, &a), PGD_OK);
    assert_kernels((const int32_t[]){PGD_PORTABLE_rmsnorm, -1}, "heads", 5);
    product_close(&s);
}

// ---- memories beyond the eight -----------------------------------------------------------------

static kc_gemm_params launched;

static int fake_enter(const gpu_stream_device *d) {
    (void)d;
    return 0;
}

static int fake_make(void **out, unsigned flags) {
    (void)flags;
    *out = NULL;
    return 0;
}

static int fake_alloc(uint64_t *out, size_t bytes) {
    static uint64_t next = UINT64_C(0x7f0000000000);
    *out = next;
    next += bytes;
    return 0;
}

static int fake_fill(uint64_t dst, unsigned pattern, size_t n, void *stream) {
    (void)dst;
    (void)pattern;
    (void)n;
    (void)stream;
    return 0;
}

static int fake_wait(void *stream) {
    (void)stream;
    return 0;
}

static int fake_free(uint64_t address) {
    (void)address;
    return 0;
}

static int fake_launch(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                       void **extra) {
    (void)function;
    assert_true(gx == 1 && gy == 1 && gz == 1 && bx == 128 && by == 1 && bz == 1 && shared == 0);
    assert_null(stream);
    assert_null(extra);
    memcpy(&launched, params[GPU_MEMORIES], sizeof(launched));
    return 0;
}

// Offsets in the parameters become addresses of the other memories, and the launch stays as it is.
static void test_other_memories_are_addresses(void **state) {
    static const gpu_stream_api api = {.stream_create = fake_make,
                                       .event_create = fake_make,
                                       .alloc = fake_alloc,
                                       .free = fake_free,
                                       .fill = fake_fill,
                                       .stream_synchronize = fake_wait,
                                       .launch = fake_launch};
    const char *names[GPU_STREAM_COUNT];
    const gpu_stream_vendor vendor = {.names = names, .tuned = &cuda_tuned, .enter = fake_enter};
    const gpu_stream_library library = {.vendor = &vendor};
    gpu_stream_device d = {.library = &library, .api = &api};
    (void)state;
    for (int i = 0; i < GPU_STREAM_COUNT; i++) {
        names[i] = "a call";
    }
    void *queue = NULL, *table = NULL, *norm = NULL;
    assert_int_equal(gpu_stream_queue_create(&host, &d, 0, &queue), PGD_OK);
    assert_int_equal(gpu_stream_create(&host, &d, 4096, PGD_PLACE_DEVICE, &table), PGD_OK);
    assert_int_equal(gpu_stream_create(&host, &d, 4096, PGD_PLACE_DEVICE, &norm), PGD_OK);
    gpu_launch l = {.kernel = TUNED(gemm_small_bf16_r8),
                    .groups = {1, 1, 1},
                    .others = {table, NULL, norm},
                    .others_at = offsetof(kc_gemm_params, heads),
                    .n_others = 3};
    const kc_gemm_params p = {.slice = 5, .heads = {.table = 16, .q_norm = 7, .k_norm = 256}};
    memcpy(l.params, &p, sizeof(p));
    assert_int_equal(gpu_stream_launch(&host, queue, &l), PGD_OK);
    assert_true(launched.heads.table == INT64_C(0x7f0000000000) + 16);
    assert_true(launched.heads.q_norm == 7); // no memory
    assert_true(launched.heads.k_norm == INT64_C(0x7f0000001000) + 256);
    assert_int_equal(launched.slice, 5);
    assert_memory_equal(l.params, &p, sizeof(p));
    l.n_others = 0;
    assert_int_equal(gpu_stream_launch(&host, queue, &l), PGD_OK);
    assert_memory_equal(&launched, &p, sizeof(p));
    gpu_stream_destroy(&host, &d, table);
    gpu_stream_destroy(&host, &d, norm);
    gpu_stream_queue_destroy(&host, queue);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qkv_of_few_rows_is_two_launches),
        cmocka_unit_test(test_qkv_of_many_rows_is_three),
        cmocka_unit_test(test_qkv_of_many_rows_on_hopper),
        cmocka_unit_test(test_qkv_that_does_not_fit),
        cmocka_unit_test(test_x_of_few_rows_is_not_packed),
        cmocka_unit_test(test_gate_up_is_two_launches),
        cmocka_unit_test(test_the_head_keeps_the_best_of_few_rows),
        cmocka_unit_test(test_the_heads_scratch_is_planned),
        cmocka_unit_test(test_no_tail_where_a_library_may_come),
        cmocka_unit_test(test_norms_of_rows),
        cmocka_unit_test(test_other_memories_are_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
