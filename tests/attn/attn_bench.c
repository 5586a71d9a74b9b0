// Times attn alone on a device, beside the device's own limits taken before and after each case.
//
//   attn_bench --plugin-dir DIR [--device URI] [--threads N] [--heads 32] [--kv-heads 8] [--dim 64]
//              [--layers 16] [--dtype bf16|f16|f32|int8] [--window 0] [--ms 400]
//              SEQSxROWS@CONTEXT...
//
// A case runs one step of SEQS sequences with ROWS rows each, the last of them at position
// CONTEXT - 1, over all layers (so that a long cache does not stay in the processor's caches), and
// prints a layer's time, the bytes of K and V a second, and the products a second.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagoda/limits.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/str.h"
#include "dev/dev.h"

enum { TOKENS = 16, LIMIT_NS = 60000000 };

typedef struct options {
    const char *folder;
    const char *uri;
    uint64_t threads, heads, kv_heads, dim, layers, window, ms;
    int32_t dtype;
} options;

typedef struct bench {
    options o;
    pgd_team *team;
    pgd_dev_registry *registry;
} bench;

// What one case holds on the device.
typedef struct shape {
    int64_t seqs, rows, context;
    pgd_dev *dev;
    const pgd_device *d;
    pgd_queue *queue;
    pgd_exec *exec;
    pgd_kv *kv;
    pgd_buffer *cache, *batch_mem, *q, *out;
    pgd_batch batch;
    pgd_attn_args args;
} shape;

static pgd_status buffer(const shape *s, uint64_t bytes, pgd_buffer **out, void **ptr) {
    const pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = bytes, .align = 4096};
    PGD_TRY(s->d->memory->create(s->d, &desc, out));
    return s->d->memory->map(s->d, *out, ptr);
}

// Finite numbers of about 1 whatever the dtype.
static void fill(void *to, uint64_t bytes, int32_t dtype) {
    uint16_t *half = to;
    uint32_t state = 1;
    for (uint64_t i = 0; i < bytes / 2; i++) {
        state = state * 1664525u + 1013904223u;
        uint16_t noise = (uint16_t)(state >> 16);
        if (dtype == PGD_F16) {
            half[i] = (uint16_t)((noise & 0x83FF) | 0x3800);
        } else if (dtype == PGD_BF16 || i % 2 == 1) {
            half[i] = (uint16_t)((noise & 0x807F) | 0x3F00);
        } else {
            half[i] = noise;
        }
    }
}

static pgd_status make_batch(shape *s) {
    const int64_t n = s->seqs * s->rows;
    const int64_t blocks = (s->context + TOKENS - 1) / TOKENS;
    uint64_t at = sizeof(pgd_batch_head);
    void *ptr = NULL;
    s->batch = (pgd_batch){.size = sizeof(s->batch),
                           .cap_tokens = (int32_t)n,
                           .cap_seqs = (int32_t)s->seqs,
                           .cap_out = 1,
                           .cap_slots = (int32_t)s->seqs,
                           .n_groups = 1,
                           .n_axes = 1,
                           .cap_blocks = {(int32_t)blocks}};
    s->batch.q_start = at;
    at += 4 * (uint64_t)(s->seqs + 1);
    s->batch.kv_len = at;
    at += 4 * (uint64_t)s->seqs;
    s->batch.seq_slot = at;
    at += 4 * (uint64_t)s->seqs;
    s->batch.block_table[0] = at;
    at += 4 * (uint64_t)(s->seqs * blocks);
    PGD_TRY(buffer(s, at, &s->batch_mem, &ptr));
    s->batch.mem = s->batch_mem;
    pgd_batch_head *head = ptr;
    *head = (pgd_batch_head){.n_tokens = (int32_t)n, .n_seqs = (int32_t)s->seqs};
    unsigned char *base = ptr;
    for (int32_t i = 0; i <= s->seqs; i++) {
        ((int32_t *)(void *)(base + s->batch.q_start))[i] = i * (int32_t)s->rows;
    }
    for (int32_t i = 0; i < s->seqs; i++) {
        ((int32_t *)(void *)(base + s->batch.kv_len))[i] = (int32_t)s->context;
        ((int32_t *)(void *)(base + s->batch.seq_slot))[i] = i;
    }
    // Block ids in an order that neither rises nor repeats.
    const int64_t all = s->seqs * blocks;
    int32_t *table = (int32_t *)(void *)(base + s->batch.block_table[0]);
    for (int64_t i = 0; i < all; i++) {
        table[i] = 1 + (int32_t)i;
    }
    uint32_t state = 7;
    for (int64_t i = all - 1; i > 0; i--) {
        state = state * 1664525u + 1013904223u;
        const int64_t j = (int64_t)(state >> 8) % (i + 1);
        const int32_t t = table[i];
        table[i] = table[j];
        table[j] = t;
    }
    return PGD_OK;
}

static pgd_status make_cache(const bench *b, shape *s) {
    const pgd_kv_desc desc = {.size = sizeof(desc),
                              .layers = (int32_t)b->o.layers,
                              .heads = (int32_t)b->o.kv_heads,
                              .k_dim = (int32_t)b->o.dim,
                              .v_dim = (int32_t)b->o.dim,
                              .k_dtype = b->o.dtype,
                              .v_dtype = b->o.dtype,
                              .scale_mode = b->o.dtype == PGD_I8 ? PGD_KV_SCALE_TOKEN_HEAD
                                                                 : PGD_KV_SCALE_NONE,
                              .block_tokens = TOKENS};
    const pgd_query query = {.size = sizeof(query),
                             .op = PGD_OP_attn,
                             .args = &s->args,
                             .kv = &desc,
                             .batch = &s->batch};
    const int64_t n = 1 + s->seqs * ((s->context + TOKENS - 1) / TOKENS);
    pgd_kv_plan plan = {.size = sizeof(plan)};
    pgd_dev_place place;
    void *ptr = NULL;
    PGD_TRY(pgd_dev_plan(s->dev, &query, 1, &place));
    PGD_TRY(s->d->kv->plan(s->d, &desc, &plan));
    const uint64_t bytes = plan.fixed_bytes + (uint64_t)n * plan.block_bytes;
    PGD_TRY(buffer(s, bytes, &s->cache, &ptr));
    fill(ptr, bytes, b->o.dtype);
    const pgd_range mem = {s->cache, 0, bytes};
    PGD_TRY(s->d->kv->bind(s->d, &desc, &plan, &mem, (int32_t)n, &s->kv));
    const pgd_queue_desc queue = {.size = sizeof(queue)};
    PGD_TRY(s->d->queue->create(s->d, &queue, &s->queue));
    PGD_TRY(pgd_dev_exec_create(s->dev, s->queue, place.scratch, &s->exec));
    s->args.kv = s->kv;
    return PGD_OK;
}

static pgd_tensor rows_of(pgd_buffer *buffer, int64_t n, int64_t heads, int64_t dim) {
    return (pgd_tensor){.buffer = buffer,
                        .dtype = PGD_F32,
                        .rank = 3,
                        .shape = {n, heads, dim},
                        .stride = {heads * dim, dim, 1}};
}

static pgd_status make_shape(const bench *b, shape *s) {
    const pgd_dev_desc desc = {.uri = b->o.uri, .team = b->team};
    const int64_t n = s->seqs * s->rows;
    const int64_t heads = (int64_t)b->o.heads;
    const int64_t dim = (int64_t)b->o.dim;
    const uint64_t bytes = (uint64_t)(n * heads * dim) * 4;
    void *ptr = NULL;
    PGD_TRY(pgd_dev_open(b->registry, &desc, &s->dev));
    s->d = pgd_dev_device(s->dev);
    PGD_TRY(make_batch(s));
    PGD_TRY(buffer(s, bytes, &s->out, &ptr));
    PGD_TRY(buffer(s, bytes, &s->q, &ptr));
    fill(ptr, bytes, PGD_F32);
    s->args = (pgd_attn_args){.size = sizeof(s->args),
                              .rows = PGD_ROWS_TOKENS,
                              .batch = &s->batch,
                              .q = rows_of(s->q, n, heads, dim),
                              .out = rows_of(s->out, n, heads, dim),
                              .scale = (float)(1.0 / sqrt((double)dim)),
                              .window_left = (int32_t)b->o.window,
                              .causal = 1};
    return make_cache(b, s);
}

static void drop_shape(shape *s) {
    if (s->d != NULL) {
        pgd_dev_exec_destroy(s->dev, s->exec);
        s->d->kv->destroy(s->d, s->kv);
        s->d->queue->destroy(s->d, s->queue);
        s->d->memory->destroy(s->d, s->cache);
        s->d->memory->destroy(s->d, s->batch_mem);
        s->d->memory->destroy(s->d, s->q);
        s->d->memory->destroy(s->d, s->out);
    }
    pgd_dev_close(s->dev);
}

static double limit_of(const shape *s, int32_t what) {
    const pgd_limits *limits = pgd_dev_extension(s->dev, PGD_LIMITS_EXTENSION);
    pgd_limit out = {.size = sizeof(out)};
    if (limits == NULL || limits->measure(s->d, what, LIMIT_NS, &out) != PGD_OK) {
        return NAN;
    }
    return out.rate;
}

static pgd_status one_pass(const bench *b, shape *s) {
    uint64_t value = 0;
    for (s->args.layer = 0; s->args.layer < (int32_t)b->o.layers; s->args.layer++) {
        PGD_TRY(s->d->ops->attn(s->exec, &s->args));
    }
    PGD_TRY(s->d->queue->signal(s->d, s->queue, &value));
    return s->d->queue->host_wait(s->d, s->queue, value, PGD_WAIT_FOREVER);
}

// Bytes of K and V, and operations, of one layer.
static void work_of(const bench *b, const shape *s, double *bytes, double *operations) {
    const double window = b->o.window > 0 ? (double)b->o.window : INFINITY;
    const double element = (double)pgd_dtype_bytes(b->o.dtype);
    double seen = 0;
    for (int64_t i = 0; i < s->rows; i++) {
        seen += fmin((double)(s->context - s->rows + i + 1), window);
    }
    *operations = (double)s->seqs * seen * (double)(b->o.heads * b->o.dim) * 4;
    *bytes = (double)s->seqs * fmin((double)s->context, window + (double)s->rows) * 2 *
             (double)(b->o.kv_heads * b->o.dim) * element;
}

static pgd_status time_case(const bench *b, shape *s) {
    double bytes = 0;
    double operations = 0;
    double limit[3];
    uint64_t passes = 0;
    work_of(b, s, &bytes, &operations);
    PGD_TRY(one_pass(b, s));
    limit[0] = limit_of(s, PGD_LIMIT_READ) / 2;
    limit[1] = limit_of(s, PGD_LIMIT_DOT_F32) / 2;
    limit[2] = limit_of(s, PGD_LIMIT_DOT_BF16) / 2;
    const uint64_t begin = pgd_clock_ns();
    uint64_t best = UINT64_MAX;
    for (uint64_t now = begin; now - begin < b->o.ms * 1000000; passes++) {
        const uint64_t start = now;
        PGD_TRY(one_pass(b, s));
        now = pgd_clock_ns();
        best = now - start < best ? now - start : best;
    }
    const double ns = (double)(pgd_clock_ns() - begin) / (double)(passes * b->o.layers);
    limit[0] += limit_of(s, PGD_LIMIT_READ) / 2;
    limit[1] += limit_of(s, PGD_LIMIT_DOT_F32) / 2;
    limit[2] += limit_of(s, PGD_LIMIT_DOT_BF16) / 2;
    printf("%4lldx%-5lld@%-6lld %9.1f us/layer (best %9.1f)  %6.1f GB/s = %5.1f %% of %5.1f  "
           "%6.1f G/s = %5.1f %% of f32 %5.0f, %5.1f %% of bf16 %5.0f\n",
           (long long)s->seqs, (long long)s->rows, (long long)s->context, ns / 1e3,
           (double)best / (double)b->o.layers / 1e3, bytes / ns, 1e11 * bytes / ns / limit[0],
           limit[0] / 1e9, operations / ns, 1e11 * operations / ns / limit[1], limit[1] / 1e9,
           1e11 * operations / ns / limit[2], limit[2] / 1e9);
    return PGD_OK;
}

static pgd_status run_case(const bench *b, const char *text) {
    shape s = {0};
    long long n[3] = {0};
    if (sscanf(text, "%lldx%lld@%lld", &n[0], &n[1], &n[2]) != 3 || n[0] < 1 || n[1] < 1 ||
        n[2] < n[1]) {
        return pgd_fail(PGD_INVALID, "a case is SEQSxROWS@CONTEXT, not \"%s\"", text);
    }
    s.seqs = n[0];
    s.rows = n[1];
    s.context = n[2];
    pgd_status status = make_shape(b, &s);
    if (status == PGD_OK) {
        status = time_case(b, &s);
    }
    drop_shape(&s);
    return status;
}

static int32_t read_option(options *o, const char *key, const char *value) {
    const struct {
        const char *key;
        uint64_t *out;
    } numbers[] = {{"--threads", &o->threads},
                   {"--heads", &o->heads},
                   {"--kv-heads", &o->kv_heads},
                   {"--dim", &o->dim},
                   {"--layers", &o->layers},
                   {"--window", &o->window},
                   {"--ms", &o->ms}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(key, numbers[i].key) == 0) {
            return pgd_str_to_u64(pgd_str_of(value), numbers[i].out);
        }
    }
    if (strcmp(key, "--plugin-dir") == 0) {
        o->folder = value;
    } else if (strcmp(key, "--device") == 0) {
        o->uri = value;
    } else if (strcmp(key, "--dtype") == 0) {
        o->dtype = strcmp(value, "f32") == 0    ? PGD_F32
                   : strcmp(value, "f16") == 0  ? PGD_F16
                   : strcmp(value, "int8") == 0 ? PGD_I8
                                                : PGD_BF16;
    } else {
        return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    bench b = {.o = {.uri = "cpu",
                     .heads = 32,
                     .kv_heads = 8,
                     .dim = 64,
                     .layers = 16,
                     .ms = 400,
                     .dtype = PGD_BF16}};
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (!read_option(&b.o, argv[i], argv[i + 1])) {
            (void)fprintf(stderr, "attn_bench: wrong option %s %s\n", argv[i], argv[i + 1]);
            return 2;
        }
    }
    const pgd_dev_search search = {.folders = &b.o.folder, .n_folders = b.o.folder != NULL};
    pgd_status status = pgd_team_open((uint32_t)b.o.threads, &b.team);
    if (status == PGD_OK) {
        status = pgd_dev_registry_create(&search, &b.registry);
    }
    for (; status == PGD_OK && i < argc; i++) {
        status = run_case(&b, argv[i]);
    }
    if (status != PGD_OK) {
        (void)fprintf(stderr, "attn_bench: %s\n", pgd_fail_last());
    }
    pgd_dev_registry_destroy(b.registry);
    pgd_team_close(b.team);
    return status == PGD_OK ? 0 : 1;
}
