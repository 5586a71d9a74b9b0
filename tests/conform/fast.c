// Level 4: overlap, and floors as shares of the device's own limits, measured just before.
//
//   copy bandwidth  bytes read and written by queue.copy within the device
//   GEMM peak       the device's own gemm, bf16 weights, 512 x 4096 x 4096
//   model           synthetic qwen2.5-0.5b in bf16; decode at a context of 128 tokens, prefill of
//                   512 tokens
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dev/inner.h"

#define MODEL "synthetic:qwen2.5-0.5b"

enum { CONTEXT = 128, PREFILL = 512, NEW = 12, MOST = 64 };

static void rate(conform *c, const char *name, const char *fmt, ...) PGD_PRINTF(3, 4);

static void rate(conform *c, const char *name, const char *fmt, ...) {
    conform_sheet *s = c->sheet;
    va_list args;
    if (s->n_rates == (int32_t)(sizeof(s->rates) / sizeof(s->rates[0]))) {
        return;
    }
    snprintf(s->rates[s->n_rates].name, sizeof(s->rates[0].name), "%s", name);
    va_start(args, fmt);
    vsnprintf(s->rates[s->n_rates].text, sizeof(s->rates[0].text), fmt, args);
    va_end(args);
    s->n_rates++;
}

static double seconds_since(uint64_t start) {
    return (double)(pgd_clock_ns() - start) * 1e-9;
}

// Bytes read and written a second, the best of some copies.
static double copy_rate(conform *c) {
    const uint64_t bytes = UINT64_C(1) << 28;
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    pgd_buffer *a = conform_buffer(c, bytes), *b = conform_buffer(c, bytes);
    const pgd_copy copy = {.dst = b, .src = a, .bytes = bytes};
    const pgd_range all = {a, 0, bytes};
    double best = 0;
    MUST_OK(c, c->d->queue->fill(c->d, q, &all, 1), "queue.fill");
    for (int32_t i = 0; i < 6; i++) {
        const uint64_t start = pgd_clock_ns();
        MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "queue.copy");
        conform_drain(c, q);
        const double now = 2 * (double)bytes / seconds_since(start);
        best = i > 0 && now > best ? now : best;
    }
    c->d->memory->destroy(c->d, a);
    c->d->memory->destroy(c->d, b);
    c->d->queue->destroy(c->d, q);
    return best;
}

typedef struct product {
    pgd_weight_desc desc;
    pgd_weight_part part;
    pgd_weight *w;
    pgd_gemm_args args;
    pgd_batch batch;
    pgd_exec *x;
    pgd_queue *q;
} product;

enum { ROWS = 512, WIDTH = 4096 };

static pgd_tensor matrix(int32_t dtype) {
    pgd_tensor t = {.dtype = dtype, .rank = 2};
    t.shape[0] = ROWS, t.shape[1] = t.stride[0] = WIDTH;
    t.stride[1] = 1;
    return t;
}

static void make_product(conform *c, product *p) {
    const uint64_t bytes = (uint64_t)WIDTH * WIDTH * 2, room = (uint64_t)ROWS * WIDTH * 4;
    pgd_weight_plan plan = {.size = sizeof(plan)};
    pgd_range dst = {0}, scratch = {0};
    pgd_dev_place place;
    memset(p, 0, sizeof(*p));
    p->part =
        (pgd_weight_part){.rows = WIDTH, .cols = WIDTH, .row_count = WIDTH, .col_count = WIDTH};
    p->part.data = (pgd_source){.ptr = conform_room(c, bytes), .bytes = bytes};
    p->desc = (pgd_weight_desc){.size = sizeof(p->desc),
                                .uses = PGD_USE_GEMM,
                                .dtype = PGD_BF16,
                                .act_dtype = pgd_dev_info(c->dev)->dot_dtype,
                                .n_parts = 1,
                                .part_stride = sizeof(p->part),
                                .n = WIDTH,
                                .k = WIDTH,
                                .max_rows = ROWS,
                                .parts = &p->part,
                                .name = "conform.peak"};
    p->batch = (pgd_batch){.size = sizeof(p->batch),
                           .cap_tokens = ROWS,
                           .cap_seqs = 1,
                           .cap_out = 1,
                           .cap_slots = 1,
                           .mem = conform_buffer(c, 4096),
                           .mirror = conform_room(c, 4096),
                           .upload_bytes = 64};
    const int32_t dtype = pgd_dev_info(c->dev)->act_dtype;
    p->args = (pgd_gemm_args){
        .size = sizeof(p->args), .batch = &p->batch, .x = matrix(dtype), .y = matrix(dtype)};
    const pgd_query query = {.size = sizeof(query),
                             .op = PGD_OP_gemm,
                             .args = &p->args,
                             .weight = &p->desc,
                             .batch = &p->batch};
    MUST_OK(c, pgd_dev_plan(c->dev, &query, 1, &place), "planning a product");
    p->q = conform_queue(c, PGD_QUEUE_COMPUTE);
    MUST_OK(c, pgd_dev_exec_create(c->dev, p->q, place.scratch, &p->x), "making an exec");
    MUST_OK(c, c->d->weight->plan(c->d, &p->desc, &plan), "weight.plan");
    dst = (pgd_range){conform_buffer(c, plan.bytes), 0, plan.bytes};
    if (plan.scratch > 0) {
        scratch = (pgd_range){conform_buffer(c, plan.scratch), 0, plan.scratch};
    }
    MUST_OK(c, c->d->weight->prepare(c->d, p->q, &p->desc, &dst, &scratch, &p->w),
            "weight.prepare");
    conform_drain(c, p->q);
    p->args.w = p->w;
    p->args.x.buffer = conform_buffer(c, room);
    p->args.y.buffer = conform_buffer(c, room);
}

// Operations a second of the device's own gemm, the best of some.
static double gemm_rate(conform *c) {
    static product p;
    double best = 0;
    make_product(c, &p);
    for (int32_t i = 0; i < 5; i++) {
        const uint64_t start = pgd_clock_ns();
        MUST_OK(c, c->d->ops->gemm(p.x, &p.args), "gemm");
        conform_drain(c, p.q);
        const double now = 2.0 * ROWS * WIDTH * WIDTH / seconds_since(start);
        best = i > 0 && now > best ? now : best;
    }
    return best;
}

// A second queue copies while the first computes.
void conform_overlap(conform *c) {
    static product p;
    const uint64_t bytes = UINT64_C(1) << 27;
    double alone[2], both;
    conform_open(c);
    if (pgd_dev_info(c->dev)->kind != PGD_DEVICE_GPU &&
        pgd_dev_info(c->dev)->kind != PGD_DEVICE_NPU) {
        conform_skip(c, "the device computes and copies on the same units");
    }
    make_product(c, &p);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COPY);
    const pgd_copy copy = {.dst = conform_buffer(c, bytes),
                           .src_offset = (uint64_t)(uintptr_t)conform_room(c, bytes),
                           .bytes = bytes};
    for (int32_t round = 0; round < 2; round++) { // the first one warms up
        uint64_t start = pgd_clock_ns();
        MUST_OK(c, c->d->ops->gemm(p.x, &p.args), "gemm");
        conform_drain(c, p.q);
        alone[0] = seconds_since(start);
        start = pgd_clock_ns();
        MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "queue.copy");
        conform_drain(c, q);
        alone[1] = seconds_since(start);
    }
    const uint64_t start = pgd_clock_ns();
    MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "queue.copy");
    MUST_OK(c, c->d->ops->gemm(p.x, &p.args), "gemm");
    conform_drain(c, q);
    conform_drain(c, p.q);
    both = seconds_since(start);
    conform_note(c, "product %.2f ms, copy %.2f ms, both %.2f ms", alone[0] * 1e3, alone[1] * 1e3,
                 both * 1e3);
    MUST(c, both < 0.95 * (alone[0] + alone[1]),
         "a copy queue and a compute queue take %.2f ms together, %.2f ms one by one", both * 1e3,
         (alone[0] + alone[1]) * 1e3);
}

// ---- floors ------------------------------------------------------------------------------------

typedef struct speed {
    double copy, gemm;      // limits
    double bytes, flops;    // of the weights, of a row through them
    double decode, prefill; // seconds of a step
} speed;

// Seconds of a decode step of n sequences, the median of the steps behind their prefill.
static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_engine(conform *c, int32_t n, int32_t prompt, speed *s) {
    double times[256];
    int32_t count = 0;
    pgd_engine_info info = {.size = sizeof(info)};
    const pgd_engine_options options = {.max_model_len = PREFILL + 2 * NEW,
                                        .max_num_seqs = n,
                                        .max_num_batched_tokens =
                                            n * prompt > PREFILL ? n * prompt : PREFILL};
    pgd_engine_options larger = options;
    larger.memory = "4GiB";
    pgd_engine *e = engine_open(c, MODEL, larger);
    pgd_engine_get_info(e, &info);
    s->bytes = (double)info.weight_bytes;
    s->flops = 2 * (double)info.parameters;
    for (int32_t i = 0; i < n; i++) {
        int32_t ids[PREFILL];
        for (int32_t k = 0; k < prompt; k++) {
            ids[k] = (i * 7919 + k * 31) % 1000 + 10;
        }
        const pgd_request_desc desc = {
            .size = sizeof(desc), .ids = ids, .n_ids = prompt, .max_tokens = NEW, .ignore_eos = 1};
        pgd_request *r = NULL;
        MUST_OK(c, pgd_engine_submit(e, &desc, &r), "submitting");
    }
    uint64_t start = pgd_clock_ns();
    MUST_OK(c, pgd_engine_step(e), "a step");
    s->prefill = seconds_since(start);
    while (pgd_engine_busy(e) > 0 && count < 256) {
        start = pgd_clock_ns();
        MUST_OK(c, pgd_engine_step(e), "a step");
        times[count++] = seconds_since(start);
    }
    qsort(times, (size_t)count, sizeof(times[0]), compare);
    s->decode = times[count / 2];
    pgd_engine_destroy(e);
}

static void read_limits(conform *c, speed *s) {
    conform_open(c);
    s->copy = copy_rate(c);
    s->gemm = gemm_rate(c);
    conform_close(c);
}

static void judge(conform *c, const char *what, double share, double floor, const char *of) {
    conform_note(c, "%.0f %% of %s", share * 100, of);
    rate(c, what, "%.0f %% of %s, floor %.0f %%", share * 100, of, floor * 100);
    MUST(c, share >= floor, "%s reaches %.0f %% of %s; the floor is %.0f %%", what, share * 100, of,
         floor * 100);
}

void conform_decode(conform *c) {
    const int32_t n = strcmp(c->check->part, "64") == 0 ? 64 : 1;
    speed s = {0};
    char what[64], of[80];
    read_limits(c, &s);
    time_engine(c, n, CONTEXT, &s);
    const double by_bytes = s.bytes / s.copy, by_flops = n * s.flops / s.gemm;
    snprintf(what, sizeof(what), "decode of %d, context %d, qwen2.5-0.5b bf16", (int)n, CONTEXT);
    snprintf(of, sizeof(of), "%s (%.1f GB/s copied, %.0f GFLOP/s gemm)",
             n == 1                ? "copy bandwidth"
             : by_bytes > by_flops ? "the roofline, copy side"
                                   : "the roofline, gemm side",
             s.copy * 1e-9, s.gemm * 1e-9);
    judge(c, what, (n == 1 || by_bytes > by_flops ? by_bytes : by_flops) / s.decode,
          n == 1 ? 0.6 : 0.5, of);
}

void conform_prefill(conform *c) {
    speed s = {0};
    char of[80];
    read_limits(c, &s);
    time_engine(c, 1, PREFILL, &s);
    snprintf(of, sizeof(of), "GEMM peak (%.0f GFLOP/s)", s.gemm * 1e-9);
    judge(c, "prefill of 512 tokens, qwen2.5-0.5b bf16", PREFILL * s.flops / s.gemm / s.prefill,
          0.4, of);
}

// ---- quantized weights -------------------------------------------------------------------------

void conform_quantized(conform *c) {
    static const int32_t schemes[] = {
#define NUMBER(name, number, elements, bytes, text) number,
        PGD_SCHEME_LIST(NUMBER)
#undef NUMBER
            PGD_SCHEME_INT8};
    char taken[CONFORM_NOTE] = "";
    conform_open(c);
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        static unsigned char rows[256 * 512];
        const uint32_t e = pgd_scheme_elements(schemes[i]);
        pgd_weight_part part = {.rows = 16, .cols = 512, .row_count = 16, .col_count = 512};
        part.data = (pgd_source){
            .ptr = rows, .bytes = e > 0 ? 16 * (512 / e) * pgd_scheme_bytes(schemes[i]) : 16 * 512};
        part.scales = (pgd_source){.ptr = rows, .bytes = e > 0 ? 0 : 16 * sizeof(float)};
        const pgd_weight_desc desc = {.size = sizeof(desc),
                                      .uses = PGD_USE_GEMM,
                                      .scheme = schemes[i],
                                      .dtype = e > 0 ? 0 : PGD_I8,
                                      .scale_dtype = e > 0 ? 0 : PGD_F32,
                                      .n_parts = 1,
                                      .part_stride = sizeof(part),
                                      .n = 16,
                                      .k = 512,
                                      .max_rows = 4,
                                      .parts = &part,
                                      .name = "conform.scheme"};
        pgd_weight_plan plan = {.size = sizeof(plan)};
        pgd_status code = c->d->weight->plan(c->d, &desc, &plan);
        MUST(c, code == PGD_OK || code == PGD_UNSUPPORTED, "weight.plan of %s gives %s",
             pgd_scheme_name(schemes[i]), pgd_status_name(code));
        if (code == PGD_OK) {
            const size_t used = strlen(taken);
            MUST(c, plan.bytes > 0 && plan.bytes <= 4 * part.data.bytes + 65536,
                 "%s: %llu bytes resident of %llu stored", pgd_scheme_name(schemes[i]),
                 (unsigned long long)plan.bytes, (unsigned long long)part.data.bytes);
            snprintf(taken + used, sizeof(taken) - used, "%s%s", used > 0 ? ", " : "",
                     pgd_scheme_name(schemes[i]));
        }
    }
    if (taken[0] == '\0') {
        conform_skip(c, "none is taken");
    }
    conform_note(c, "%s", taken);
    rate(c, "quantized weights", "%s", taken);
}
