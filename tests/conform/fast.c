// Level 4: the limits of a device as its own functions reach them, overlap, quantized weights. The
// floors are in floors.c.
//
//   copy bandwidth  bytes read and written by queue.copy within the device
//   GEMM peak       the device's own gemm, bf16 weights, 512 x 4096 x 4096
#include "fast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dev/inner.h"

void conform_rate(conform *c, const char *name, const char *fmt, ...) {
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

double fast_seconds_since(uint64_t start) {
    return (double)(pgd_clock_ns() - start) * 1e-9;
}

#define COPY_BYTES (UINT64_C(1) << 28)

enum { ROWS = 512, WIDTH = 4096 };

static pgd_tensor matrix(int32_t dtype) {
    pgd_tensor t = {.dtype = dtype, .rank = 2};
    t.shape[0] = ROWS, t.shape[1] = t.stride[0] = WIDTH;
    t.stride[1] = 1;
    return t;
}

static void make_product(conform *c, fast_product *p) {
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

void fast_limits_make(conform *c, fast_limits *l) {
    make_product(c, &l->product);
    l->q = conform_queue(c, PGD_QUEUE_COMPUTE);
    l->from = conform_buffer(c, COPY_BYTES);
    l->to = conform_buffer(c, COPY_BYTES);
    const pgd_range all = {l->from, 0, COPY_BYTES};
    MUST_OK(c, c->d->queue->fill(c->d, l->q, &all, 1), "queue.fill");
}

// The best of some, the first of which only warms up.
fast_peak fast_limits_read(conform *c, fast_limits *l) {
    const pgd_copy copy = {.dst = l->to, .src = l->from, .bytes = COPY_BYTES};
    fast_peak best = {0};
    for (int32_t i = 0; i < 4; i++) {
        uint64_t start = pgd_clock_ns();
        MUST_OK(c, c->d->queue->copy(c->d, l->q, &copy, 1), "queue.copy");
        conform_drain(c, l->q);
        const double copied = 2 * (double)COPY_BYTES / fast_seconds_since(start);
        start = pgd_clock_ns();
        MUST_OK(c, c->d->ops->gemm(l->product.x, &l->product.args), "gemm");
        conform_drain(c, l->product.q);
        const double made = 2.0 * ROWS * WIDTH * WIDTH / fast_seconds_since(start);
        best.copy = i > 0 && copied > best.copy ? copied : best.copy;
        best.gemm = i > 0 && made > best.gemm ? made : best.gemm;
    }
    return best;
}

// A second queue copies while the first computes.
void conform_overlap(conform *c) {
    static fast_product p;
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
        alone[0] = fast_seconds_since(start);
        start = pgd_clock_ns();
        MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "queue.copy");
        conform_drain(c, q);
        alone[1] = fast_seconds_since(start);
    }
    const uint64_t start = pgd_clock_ns();
    MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "queue.copy");
    MUST_OK(c, c->d->ops->gemm(p.x, &p.args), "gemm");
    conform_drain(c, q);
    conform_drain(c, p.q);
    both = fast_seconds_since(start);
    conform_note(c, "product %.2f ms, copy %.2f ms, both %.2f ms", alone[0] * 1e3, alone[1] * 1e3,
                 both * 1e3);
    MUST(c, both < 0.95 * (alone[0] + alone[1]),
         "a copy queue and a compute queue take %.2f ms together, %.2f ms one by one", both * 1e3,
         (alone[0] + alone[1]) * 1e3);
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
    conform_rate(c, "quantized weights", "%s", taken);
}
