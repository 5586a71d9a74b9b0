// A layer of a model on devices with holes against the reference kernels on host memory: equal to
// the last bit, whatever way the tensors went. Two steps: a prefill of two sequences, then a decode
// that reads its token from `last` beside a chunk.
#include "dev/odd_test.h" // first, see there

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "dev/batch.h"
#include "dev/inner.h"

#include "base/mem.h"
#include "base/test_ok.h"

enum {
    T = 9, // rows at most
    S = 2,
    H = 16,
    HQ = 4,
    HKV = 2,
    HD = 4,
    N = (HQ + 2 * HKV) * HD,
    I = 10,
    V = 13,
    BLOCK = 4,
    BLOCKS = 7,
    ARENA = 1 << 16,
};

// The same tensors twice: in host memory for the reference, in a buffer of the device.
typedef struct world {
    pgd_dev *dev; // NULL: the reference
    const pgd_device *d;
    const pgd_ops *ops;
    pgd_queue *q;
    pgd_exec *x;
    pgd_buffer *buffer;
    unsigned char *host; // the reference's memory
    pgd_buffer *kv_buffer;
    pgd_kv *kv;
    pgd_weight *w[5];
    pgd_ref_weight ref_w[5];
    pgd_ref_kv ref_kv;
    pgd_dev_batch *batch;
    pgd_batch ref_batch;
} world;

enum { W_EMBED = 0, W_QKV = 1, W_O = 2, W_GATE_UP = 3, W_DOWN = 4 };

static const int64_t w_shape[5][2] = {{V, H}, {N, H}, {H, HQ *HD}, {2 * I, H}, {H, I}};
static float w_data[5][32 * 32];

static const pgd_kv_desc kv_desc = {
    .size = sizeof(pgd_kv_desc),
    .layers = 2,
    .heads = HKV,
    .k_dim = HD,
    .v_dim = HD,
    .k_dtype = PGD_BF16,
    .v_dtype = PGD_F32,
    .block_tokens = BLOCK,
};

static float noise(uint32_t i) {
    uint32_t h = (i + 1u) * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (float)(h & 0xffffu) / 65536.0f - 0.5f;
}

// ---- the two worlds ----------------------------------------------------------------------------

static pgd_weight_desc weight_desc(int32_t i, pgd_weight_part *part) {
    uint32_t uses = i == W_EMBED     ? PGD_USE_EMBED | PGD_USE_GEMM
                    : i == W_GATE_UP ? PGD_USE_GATE_UP
                                     : PGD_USE_GEMM;
    *part = (pgd_weight_part){
        .rows = w_shape[i][0],
        .cols = w_shape[i][1],
        .row_count = w_shape[i][0],
        .col_count = w_shape[i][1],
        .data = {.ptr = w_data[i], .bytes = (uint64_t)(w_shape[i][0] * w_shape[i][1]) * 4},
    };
    return (pgd_weight_desc){
        .size = sizeof(pgd_weight_desc),
        .uses = uses,
        .dtype = PGD_F32,
        .n_parts = 1,
        .part_stride = sizeof(*part),
        .n = w_shape[i][0],
        .k = w_shape[i][1],
        .max_rows = T,
        .parts = part,
        .name = "test",
    };
}

static void open_weights(world *w) {
    for (int32_t i = 0; i < 5; i++) {
        pgd_weight_part part;
        pgd_weight_desc desc = weight_desc(i, &part);
        for (uint32_t k = 0; k < 32 * 32; k++) {
            w_data[i][k] = noise((uint32_t)i * 5000 + k);
        }
        if (w->dev == NULL) {
            w->ref_w[i] =
                (pgd_ref_weight){.dtype = PGD_F32, .n = desc.n, .k = desc.k, .rows = w_data[i]};
            w->w[i] = (pgd_weight *)&w->ref_w[i];
            continue;
        }
        pgd_weight_plan plan = {.size = sizeof(plan)};
        OK(w->d->weight->plan(w->d, &desc, &plan));
        pgd_range dst = {.buffer = w->buffer, .offset = 32768 + (uint64_t)i * 4096};
        dst.bytes = plan.bytes;
        pgd_range scratch = {0};
        OK(w->d->weight->prepare(w->d, w->q, &desc, &dst, &scratch, &w->w[i]));
    }
}

static void open_kv(world *w) {
    uint64_t bytes = pgd_ref_kv_block_bytes(&kv_desc) * BLOCKS;
    if (w->dev == NULL) {
        w->ref_kv = (pgd_ref_kv){.desc = kv_desc, .n_blocks = BLOCKS};
        w->ref_kv.mem = pgd_mem_alloc(bytes, 1);
        w->kv = (pgd_kv *)&w->ref_kv;
        return;
    }
    pgd_kv_plan plan = {.size = sizeof(plan)};
    OK(w->d->kv->plan(w->d, &kv_desc, &plan));
    assert_int_equal(plan.block_tokens, BLOCK);
    pgd_buffer_desc desc = {.size = sizeof(desc), .use = PGD_USE_KV};
    desc.bytes = plan.fixed_bytes + BLOCKS * plan.block_bytes;
    OK(w->d->memory->create(w->d, &desc, &w->kv_buffer));
    pgd_range mem = {.buffer = w->kv_buffer, .bytes = desc.bytes};
    OK(w->d->kv->bind(w->d, &kv_desc, &plan, &mem, BLOCKS, &w->kv));
}

static const pgd_dev_batch_desc batch_desc = {
    .cap_tokens = T, .cap_seqs = S, .cap_kv = 16, .cap_blocks = 4};

static void open_world(world *w, pgd_dev *dev, const pgd_batch *view) {
    *w = (world){.dev = dev};
    if (dev == NULL) {
        w->ops = pgd_ref_ops();
        w->host = pgd_mem_alloc(ARENA, 1);
        w->ref_batch = *view;
        w->ref_batch.mem = NULL;
        w->ref_batch.mirror = pgd_mem_alloc(pgd_dev_batch_bytes(&batch_desc), 1);
    } else {
        pgd_queue_desc queue = {.size = sizeof(queue)};
        pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = ARENA};
        w->d = pgd_dev_device(dev);
        w->ops = w->d->ops;
        OK(w->d->queue->create(w->d, &queue, &w->q));
        OK(w->d->memory->create(w->d, &desc, &w->buffer));
        OK(pgd_dev_exec_create(dev, w->q, 0, &w->x));
        OK(pgd_dev_batch_create(w->d, &batch_desc, &w->batch));
    }
    open_weights(w);
    open_kv(w);
}

static void close_world(world *w) {
    if (w->dev == NULL) {
        pgd_mem_free((void *)(uintptr_t)w->ref_batch.mirror);
        pgd_mem_free(w->ref_kv.mem);
        pgd_mem_free(w->host);
        return;
    }
    w->d->kv->destroy(w->d, w->kv);
    for (int32_t i = 0; i < 5; i++) {
        w->d->weight->destroy(w->d, w->w[i]);
    }
    pgd_dev_batch_destroy(w->batch);
    pgd_dev_exec_destroy(w->dev, w->x);
    w->d->queue->destroy(w->d, w->q);
    w->d->memory->destroy(w->d, w->kv_buffer);
    w->d->memory->destroy(w->d, w->buffer);
}

// ---- tensors at fixed offsets of the arena -----------------------------------------------------

enum {
    AT_X = 0,
    AT_NORMED = 1024,
    AT_QKV = 2048,
    AT_ATTN = 4096,
    AT_TMP = 6144,
    AT_ACT = 8192,
    AT_OUT = 10240,
    AT_LOGITS = 11264,
    AT_IDS = 12288,
    AT_NORM = 13312,
    AT_HEAD_NORM = 14336,
    AT_BIAS = 15360,
    AT_ROPE = 16384,
    AT_HIDDEN = 18432,
    AT_LOGPROBS = 19456,
    AT_TOP_IDS = 20480,
    AT_RANKS = 21504,
    AT_STATE = 22528,
};

enum { BEST = 4 };

static pgd_tensor tensor(const world *w, uint64_t at, int32_t dtype, uint32_t rank, int64_t a,
                         int64_t b, int64_t c) {
    int64_t shape[3] = {a, b, c};
    int64_t stride = 1;
    pgd_tensor t = {.buffer = w->buffer, .offset = at, .dtype = dtype, .rank = rank};
    if (w->dev == NULL) {
        t.offset = (uint64_t)(uintptr_t)(w->host + at);
    }
    for (uint32_t i = rank; i-- > 0;) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        stride *= shape[i];
    }
    return t;
}

// A view of heads in the joined rows.
static pgd_tensor view(const world *w, int64_t first, int64_t heads) {
    pgd_tensor t = tensor(w, AT_QKV, PGD_F32, 3, T, heads, HD);
    t.offset += (uint64_t)(first * HD) * 4;
    t.stride[0] = N;
    return t;
}

static void put(const world *w, uint64_t at, const void *from, uint64_t bytes) {
    if (w->dev == NULL) {
        memcpy(w->host + at, from, bytes);
        return;
    }
    pgd_copy copy = {.dst = w->buffer, .dst_offset = at, .bytes = bytes};
    copy.src_offset = (uint64_t)(uintptr_t)from;
    OK(w->d->queue->copy(w->d, w->q, &copy, 1));
    OK(pgd_dev_drain(w->d, w->q));
}

static void get(const world *w, pgd_buffer *buffer, uint64_t at, void *to, uint64_t bytes) {
    pgd_copy copy = {.src = buffer, .src_offset = at, .bytes = bytes};
    copy.dst_offset = (uint64_t)(uintptr_t)to;
    OK(w->d->queue->copy(w->d, w->q, &copy, 1));
    OK(pgd_dev_drain(w->d, w->q));
}

static void put_constants(const world *w) {
    float data[256];
    for (uint32_t i = 0; i < 256; i++) {
        data[i] = 1.0f + noise(90000 + i) / 4;
    }
    put(w, AT_NORM, data, H * 4);
    put(w, AT_HEAD_NORM, data + 100, HD * 4);
    put(w, AT_BIAS, data + 150, N * 4);
    put(w, AT_ROPE, data, 16 * HD * 4);
    const int32_t state[S * V] = {[3] = 1 << 30, [5] = 2, [V + 1] = 1 << 30 | 1, [V + 7] = 1 << 30};
    put(w, AT_STATE, state, sizeof(state));
    put(w, AT_LOGPROBS, data, S * (1 + BEST) * 4);
    put(w, AT_TOP_IDS, data, S * (1 + BEST) * 4);
}

// ---- a step ------------------------------------------------------------------------------------

typedef struct step {
    int32_t n_tokens;
    int32_t tokens[T];
    int32_t positions[T];
    int32_t q_start[S + 1];
    int32_t kv_len[S];
    int32_t n_out;
    int32_t out_rows[S];
} step;

static const int32_t tables[S][4] = {{3, 1, 5, 0}, {2, 6, 0, 0}};

static int32_t *array(world *w, uint64_t offset) {
    if (w->dev != NULL) {
        return pgd_dev_batch_array(w->batch, offset);
    }
    return (int32_t *)(uintptr_t)((const unsigned char *)w->ref_batch.mirror + offset);
}

static const pgd_batch *fill_batch(world *w, const step *s) {
    const pgd_batch *b = w->dev == NULL ? &w->ref_batch : pgd_dev_batch_view(w->batch);
    pgd_batch_head *head = w->dev == NULL ? (void *)array(w, 0) : pgd_dev_batch_begin(w->batch);
    *head = (pgd_batch_head){
        .n_tokens = s->n_tokens, .n_seqs = S, .n_out = s->n_out, .max_q = T, .max_kv = 16};
    for (int32_t i = 0; i < S; i++) {
        for (int32_t row = s->q_start[i]; row < s->q_start[i + 1]; row++) {
            int32_t p = s->positions[row];
            array(w, b->token_ids)[row] = s->tokens[row];
            array(w, b->positions)[row] = p;
            array(w, b->slots[0])[row] = tables[i][p / BLOCK] * BLOCK + p % BLOCK;
        }
        array(w, b->kv_len)[i] = s->kv_len[i];
        array(w, b->seq_slot)[i] = 1 - i; // slots are not in the order of the rows
        array(w, b->out_rows)[i] = s->out_rows[i];
        array(w, b->out_slot)[i] = 1 - i;
        if (w->dev == NULL) {
            memcpy(array(w, b->block_table[0]) + (1 - i) * 4, tables[i], sizeof(tables[i]));
        } else {
            pgd_dev_batch_blocks(w->batch, 0, 1 - i, 0, tables[i], 4);
        }
        pgd_sampling *rows = (pgd_sampling *)(void *)array(w, b->sampling);
        rows[i] = (pgd_sampling){.temperature = 0.7f, .top_k = 5, .seed = 11, .counter = 3};
        rows[i].flags = PGD_SAMPLE_LOGPROBS | (i == 0 ? PGD_SAMPLE_GREEDY : 0);
        rows[i].n_logprobs = BEST - i;
        rows[i].state_row = S - i;
        rows[i].repetition = 1.5f;
        rows[i].frequency = 0.25f;
    }
    memcpy(array(w, b->q_start), s->q_start, sizeof(s->q_start));
    if (w->dev != NULL) {
        OK(pgd_dev_upload_batch(w->batch, w->q));
    }
    return b;
}

static void attention(world *w, const pgd_batch *b) {
    pgd_qkv_rope_write_args qkv = {
        .size = sizeof(qkv),
        .rows = PGD_ROWS_TOKENS,
        .batch = b,
        .w = w->w[W_QKV],
        .kv = w->kv,
        .layer = 1,
        .x = tensor(w, AT_X, PGD_F32, 2, T, H, 0),
        .norm_w = tensor(w, AT_NORM, PGD_F32, 1, H, 0, 0),
        .normed = tensor(w, AT_NORMED, PGD_F32, 2, T, H, 0),
        .bias = tensor(w, AT_BIAS, PGD_F32, 1, N, 0, 0),
        .qkv = tensor(w, AT_QKV, PGD_F32, 2, T, N, 0),
        .q = view(w, 0, HQ),
        .k = view(w, HQ, HKV),
        .v = view(w, HQ + HKV, HKV),
        .table = tensor(w, AT_ROPE, PGD_F32, 3, 16, HD / 2, 2),
        .q_norm = tensor(w, AT_HEAD_NORM, PGD_F32, 1, HD, 0, 0),
        .k_norm = tensor(w, AT_HEAD_NORM, PGD_F32, 1, HD, 0, 0),
        .eps = 1e-5f,
        .rot_dim = HD,
    };
    OK(w->ops->qkv_rope_write(w->x, &qkv));
    pgd_attn_args attn = {
        .size = sizeof(attn),
        .rows = PGD_ROWS_TOKENS,
        .batch = b,
        .kv = w->kv,
        .layer = 1,
        .q = qkv.q,
        .out = tensor(w, AT_ATTN, PGD_F32, 3, T, HQ, HD),
        .scale = 0.5f,
        .causal = 1,
    };
    OK(w->ops->attn_plan(w->x, &attn));
    OK(w->ops->attn(w->x, &attn));
    pgd_gemm_add_args o = {
        .size = sizeof(o),
        .rows = PGD_ROWS_TOKENS,
        .batch = b,
        .w = w->w[W_O],
        .x = tensor(w, AT_ATTN, PGD_F32, 2, T, HQ * HD, 0),
        .y = tensor(w, AT_X, PGD_F32, 2, T, H, 0),
        .aux = tensor(w, AT_X, PGD_F32, 2, T, H, 0),
        .aux_kind = PGD_AUX_ADD,
    };
    OK(w->ops->gemm_add(w->x, &o));
}

static void mlp(world *w, const pgd_batch *b) {
    pgd_gate_up_args up = {
        .size = sizeof(up),
        .rows = PGD_ROWS_TOKENS,
        .batch = b,
        .w = w->w[W_GATE_UP],
        .x = tensor(w, AT_X, PGD_F32, 2, T, H, 0),
        .norm_w = tensor(w, AT_NORM, PGD_F32, 1, H, 0, 0),
        .normed = tensor(w, AT_NORMED, PGD_F32, 2, T, H, 0),
        .tmp = tensor(w, AT_TMP, PGD_F32, 2, T, 2 * I, 0),
        .out = tensor(w, AT_ACT, PGD_F32, 2, T, I, 0),
        .eps = 1e-5f,
        .act = PGD_ACT_SILU,
    };
    OK(w->ops->gate_up(w->x, &up));
    pgd_gemm_args down = {
        .size = sizeof(down),
        .rows = PGD_ROWS_TOKENS,
        .batch = b,
        .w = w->w[W_DOWN],
        .x = up.out,
        .y = tensor(w, AT_OUT, PGD_F32, 2, T, H, 0),
    };
    OK(w->ops->gemm(w->x, &down));
    pgd_add_rmsnorm_args norm = {
        .size = sizeof(norm),
        .rows = PGD_ROWS_TOKENS,
        .batch = b,
        .x = down.y,
        .residual = up.x,
        .w = up.norm_w,
        .out = up.normed,
        .eps = 1e-5f,
    };
    OK(w->ops->add_rmsnorm(w->x, &norm));
}

static void run_step(world *w, const step *s) {
    const pgd_batch *b = fill_batch(w, s);
    pgd_embed_args embed = {
        .size = sizeof(embed),
        .rows = PGD_ROWS_TOKENS,
        .batch = b,
        .w = w->w[W_EMBED],
        .out = tensor(w, AT_X, PGD_F32, 2, T, H, 0),
        .scale = 1.5f,
    };
    OK(w->ops->embed(w->x, &embed));
    attention(w, b);
    mlp(w, b);
    pgd_gather_rows_args gather = {
        .size = sizeof(gather),
        .rows = PGD_ROWS_OUTPUTS,
        .batch = b,
        .x = embed.out,
        .out = tensor(w, AT_HIDDEN, PGD_F32, 2, S, H, 0),
    };
    OK(w->ops->gather_rows(w->x, &gather));
    pgd_head_sample_args head = {
        .size = sizeof(head),
        .rows = PGD_ROWS_OUTPUTS,
        .batch = b,
        .w = w->w[W_EMBED],
        .x = gather.out,
        .norm_w = tensor(w, AT_NORM, PGD_F32, 1, H, 0, 0),
        .normed = tensor(w, AT_NORMED, PGD_F32, 2, S, H, 0),
        .logits = tensor(w, AT_LOGITS, PGD_F32, 2, S, V, 0),
        .ids = tensor(w, AT_IDS, PGD_I32, 1, S, 0, 0),
        .logprobs = tensor(w, AT_LOGPROBS, PGD_F32, 2, S, 1 + BEST, 0),
        .top_ids = tensor(w, AT_TOP_IDS, PGD_I32, 2, S, 1 + BEST, 0),
        .state = tensor(w, AT_STATE, PGD_I32, 2, S, V, 0),
        .ranks = tensor(w, AT_RANKS, PGD_I32, 1, S, 0, 0),
        .eps = 1e-5f,
        .keep_logits = 1,
    };
    OK(w->ops->head_sample(w->x, &head));
}

static const step steps[2] = {
    {
        .n_tokens = 8,
        .tokens = {1, 2, 3, 4, 5, 12, 0, 7},
        .positions = {0, 1, 2, 3, 4, 0, 1, 2},
        .q_start = {0, 5, 8},
        .kv_len = {5, 3},
        .n_out = 2,
        .out_rows = {4, 7},
    },
    {
        .n_tokens = 4,
        .tokens = {-2, 6, 8, 9}, // sequence 0 sits in slot 1
        .positions = {5, 3, 4, 5},
        .q_start = {0, 1, 4},
        .kv_len = {6, 6},
        .n_out = 2,
        .out_rows = {0, 3},
    },
};

// ---- comparison --------------------------------------------------------------------------------

static void compare_at(const world *dev, const world *ref, uint64_t at, uint64_t bytes) {
    unsigned char found[4096];
    get(dev, dev->buffer, at, found, bytes);
    assert_memory_equal(found, ref->host + at, bytes);
}

// Tokens counted in the state so far, those that put_constants began with taken off.
static int32_t counted(const world *ref) {
    const int32_t *state = (const int32_t *)(const void *)(ref->host + AT_STATE);
    int32_t n = -3;
    for (int32_t i = 0; i < S * V; i++) {
        n += state[i] & ((1 << 30) - 1);
    }
    return n;
}

static void compare_worlds(const world *dev, const world *ref, const step *s) {
    const pgd_batch *b = &ref->ref_batch;
    int32_t found[S] = {0};
    compare_at(dev, ref, AT_X, (uint64_t)s->n_tokens * H * 4);
    compare_at(dev, ref, AT_ATTN, (uint64_t)s->n_tokens * HQ * HD * 4);
    compare_at(dev, ref, AT_IDS, sizeof(found));
    compare_at(dev, ref, AT_LOGITS, S * V * 4);
    compare_at(dev, ref, AT_LOGPROBS, S * (1 + BEST) * 4);
    compare_at(dev, ref, AT_TOP_IDS, S * (1 + BEST) * 4);
    compare_at(dev, ref, AT_RANKS, S * 4);
    compare_at(dev, ref, AT_STATE, S * V * 4);
    assert_int_equal(counted(ref), S * (1 + (int32_t)(s - steps)));
    const unsigned char *block = b->mirror;
    get(dev, pgd_dev_batch_view(dev->batch)->mem, b->last, found, sizeof(found));
    assert_memory_equal(found, block + b->last, sizeof(found));
    get(dev, pgd_dev_batch_view(dev->batch)->mem, b->sampled, found, sizeof(found));
    assert_memory_equal(found, block + b->sampled, sizeof(found));
    assert_memory_equal(found, ref->host + AT_IDS, sizeof(found));
}

// The cache of both worlds as a canonical image, read through the table.
static void compare_caches(const world *dev, const world *ref) {
    static float found[4096];
    static float want[4096];
    const int32_t ids[3] = {3, 1, 6};
    pgd_kv_image image = {
        .size = sizeof(image),
        .format = PGD_KV_CANONICAL,
        .dtype = PGD_F32,
        .n_ids = 3,
        .n_tokens = 11,
        .ids = ids,
        .mem = {.offset = (uint64_t)(uintptr_t)found},
    };
    image.mem.bytes = pgd_dev_kv_image_bytes(&ref->ref_kv, &image);
    assert_true(image.mem.bytes <= sizeof(found));
    OK(dev->d->kv->read_blocks(dev->d, dev->q, dev->kv, &image));
    OK(pgd_dev_kv_convert(&ref->ref_kv, &image, (unsigned char *)want, 1));
    assert_memory_equal(found, want, image.mem.bytes);
}

static void check_variant(int32_t variant) {
    world ref;
    world dev;
    pgd_dev *device = NULL;
    uint64_t live = pgd_mem_live();
    OK(pgd_dev_open_plugin(odd_plugin(variant), (pgd_str){0}, 0, NULL, 1, &device));
    open_world(&dev, device, NULL);
    open_world(&ref, NULL, pgd_dev_batch_view(dev.batch));
    put_constants(&ref);
    put_constants(&dev);
    for (int32_t i = 0; i < 2; i++) {
        run_step(&ref, &steps[i]);
        run_step(&dev, &steps[i]);
        compare_worlds(&dev, &ref, &steps[i]);
    }
    compare_caches(&dev, &ref);
    close_world(&dev);
    close_world(&ref);
    pgd_dev_close(device);
    assert_int_equal(pgd_mem_live(), live);
}

static void test_copies(void **state) {
    (void)state;
    check_variant(ODD_MINIMAL);
}

static void test_in_place(void **state) {
    (void)state;
    check_variant(ODD_VISIBLE);
}

static void test_mirrors(void **state) {
    (void)state;
    check_variant(ODD_HALF);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_mirrors),

    };
    return cmocka_run_group_tests_name("dev.fallback", tests, NULL, NULL);
}
