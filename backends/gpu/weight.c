// Weights, packed by a kernel on the device:
//
//   rows    [n][k] as stored, for weights that only embed reads
//   panels  [ceil(n / 8)][k][8], zero rows behind the last
//   gated   the same, a panel holding 4 rows of the first half and the same 4 of the second; for
//           weights that only gate_up reads
//
// Sources in host memory come over in pieces through the scratch of prepare.
#include <string.h>

#include "gpu.h"

#define LAYOUT_VERSION UINT64_C(0x7067642d67707531) // raised with each change of the layout
#define PIECE_BYTES    (UINT64_C(32) << 20)
#define MOST_GROUPS    65535 // along y and z: CUDA's limit

static pgd_status check_desc(const pgd_device *d, const pgd_weight_desc *a) {
    gpu_check c = {.code = PGD_OK};
    if (!gpu_check_weight(&c, a)) {
        return GPU_FAIL(d, c.code, "weight '%s': %s", a->name == NULL ? "" : a->name, c.reason);
    }
    return PGD_OK;
}

static int64_t panels_of(const pgd_weight_desc *a) {
    if (gpu_weight_layout(a) == K_LAYOUT_GATED) {
        return (a->n / 2 + 3) / 4;
    }
    return (a->n + K_COLUMNS - 1) / K_COLUMNS;
}

static pgd_status bytes_of(const pgd_device *d, const pgd_weight_desc *a, uint64_t *out) {
    const uint64_t rows =
        gpu_weight_layout(a) == K_LAYOUT_ROWS ? (uint64_t)a->n : (uint64_t)panels_of(a) * K_COLUMNS;
    uint64_t row = (uint64_t)a->k * pgd_dtype_bytes(a->dtype);
    if (__builtin_mul_overflow(rows, row, out) || *out > INT64_MAX / 2) {
        return GPU_FAIL(d, PGD_INVALID, "a weight of %lld rows of %lld", (long long)a->n,
                        (long long)a->k);
    }
    *out = (*out + 3) / 4 * 4;
    return PGD_OK;
}

// Bytes of one stored row of a part.
static uint64_t pitch_of(const pgd_weight_desc *a, const pgd_weight_part *p) {
    return (uint64_t)p->cols * pgd_dtype_bytes(a->dtype);
}

static uint64_t scratch_of(const pgd_weight_desc *a) {
    const uint64_t row = (uint64_t)a->k * pgd_dtype_bytes(a->dtype);
    const uint64_t rows = row == 0 ? 0 : PIECE_BYTES / row + 1;
    return row * (rows < (uint64_t)a->n ? rows : (uint64_t)a->n);
}

static pgd_status plan(const pgd_device *d, const pgd_weight_desc *desc, pgd_weight_plan *out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    pgd_weight_plan result = {
        .size = sizeof(result), .align = GPU_ALIGN, .fingerprint = LAYOUT_VERSION};
    GPU_TAIL(d, pgd_weight_desc, desc);
    PGD_TRY(check_desc(d, a));
    PGD_TRY(bytes_of(d, a, &result.bytes));
    result.scratch = scratch_of(a);
    PGD_OUT(out, result);
    return PGD_OK;
}

static pgd_status adopt(const pgd_device *d, const pgd_weight_desc *desc, const pgd_range *dst,
                        pgd_weight **out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    pgd_weight *w = NULL;
    uint64_t bytes = 0;
    *out = NULL;
    GPU_TAIL(d, pgd_weight_desc, desc);
    PGD_TRY(check_desc(d, a));
    PGD_TRY(bytes_of(d, a, &bytes));
    if (dst->bytes < bytes || dst->offset % GPU_ALIGN != 0) {
        return GPU_FAIL(d, PGD_INVALID, "a weight of %llu bytes in %llu at %llu",
                        (unsigned long long)bytes, (unsigned long long)dst->bytes,
                        (unsigned long long)dst->offset);
    }
    PGD_TRY(gpu_range(d, "a weight", dst->buffer, dst->offset, bytes));
    w = d->host->alloc(d->host, sizeof(*w), 0);
    if (w == NULL) {
        return GPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a weight");
    }
    w->desc = *a;
    w->desc.size = sizeof(w->desc);
    w->desc.parts = NULL;
    w->desc.n_parts = 0;
    w->desc.name = NULL;
    w->buffer = dst->buffer;
    w->w = (k_weight){.at = (int64_t)dst->offset,
                      .n = (int32_t)a->n,
                      .k = (int32_t)a->k,
                      .dtype = a->dtype,
                      .layout = gpu_weight_layout(a)};
    *out = w;
    return PGD_OK;
}

static void destroy(const pgd_device *d, pgd_weight *w) {
    d->host->free(d->host, w);
}

// ---- packing -----------------------------------------------------------------------------------

static pgd_status launch(const pgd_device *d, pgd_queue *q, gpu_launch *l, const void *params,
                         size_t bytes) {
    memcpy(l->params, params, bytes);
    return l->groups[0] == 0 || l->groups[1] == 0 ? PGD_OK
                                                  : gpu_of(d)->driver->launch(d->host, q->queue, l);
}

// Rows from `view` on in `memory` to rows `first` on of the weight.
static pgd_status pack_rows(const pgd_device *d, pgd_queue *q, const pgd_weight *w, void *memory,
                            k_view view, int64_t first, int64_t n) {
    const int64_t step = view.s0 * (int64_t)pgd_dtype_bytes(view.dtype) * MOST_GROUPS;
    for (int64_t r = 0; r < n; r += MOST_GROUPS, view.at += step) {
        const int64_t rows = n - r < MOST_GROUPS ? n - r : MOST_GROUPS;
        const k_pack_params p = {
            .w = w->w, .rows = view, .first = (int32_t)(first + r), .n = (int32_t)rows};
        gpu_launch l = {.kernel = PGD_PORTABLE_pack,
                        .groups = {gpu_ceil(w->w.k, K_SPAN), (uint32_t)rows, 1}};
        l.memories[1] = memory;
        l.memories[2] = w->buffer->memory;
        PGD_TRY(launch(d, q, &l, &p, sizeof(p)));
    }
    return PGD_OK;
}

static pgd_status pack_host(const pgd_device *d, pgd_queue *q, const pgd_weight *w,
                            const pgd_weight_part *p, const pgd_range *scratch, int64_t first) {
    const uint64_t item = pgd_dtype_bytes(w->desc.dtype);
    const uint64_t row = (uint64_t)w->desc.k * item;
    const int64_t most = row == 0 ? 0 : (int64_t)(scratch->bytes / row);
    const k_view view = {.at = (int64_t)scratch->offset, .s0 = w->desc.k, .dtype = w->desc.dtype};
    for (int64_t r = 0; r < p->row_count && row > 0; r += most) {
        const int64_t n = p->row_count - r < most ? p->row_count - r : most;
        const uint64_t at =
            (uint64_t)(p->row_start + r) * pitch_of(&w->desc, p) + (uint64_t)p->col_start * item;
        const pgd_copy c = {.dst = scratch->buffer,
                            .dst_offset = scratch->offset,
                            .src_offset = (uint64_t)(uintptr_t)p->data.ptr + at,
                            .bytes = row,
                            .rows = (uint64_t)n,
                            .dst_pitch = row,
                            .src_pitch = pitch_of(&w->desc, p)};
        PGD_TRY(gpu_copy_now(d, q, &c, 1));
        PGD_TRY(pack_rows(d, q, w, scratch->buffer->memory, view, first + r, n));
    }
    return PGD_OK;
}

static pgd_status pack_buffer(const pgd_device *d, pgd_queue *q, const pgd_weight *w,
                              const pgd_weight_part *p, int64_t first) {
    const k_view view = {
        .at = (int64_t)(p->data.offset +
                        ((uint64_t)p->row_start * (uint64_t)p->cols + (uint64_t)p->col_start) *
                            pgd_dtype_bytes(w->desc.dtype)),
        .s0 = p->cols,
        .dtype = w->desc.dtype};
    return pack_rows(d, q, w, p->data.buffer->memory, view, first, p->row_count);
}

static pgd_status check_source(const pgd_device *d, const pgd_weight_desc *a,
                               const pgd_weight_part *p) {
    uint64_t bytes = 0;
    if (p->data.file != NULL || (p->data.ptr == NULL) == (p->data.buffer == NULL)) {
        return GPU_FAIL(d, PGD_UNSUPPORTED, "a weight whose source is no memory");
    }
    if (__builtin_mul_overflow((uint64_t)(p->row_start + p->row_count), pitch_of(a, p), &bytes) ||
        bytes > p->data.bytes) {
        return GPU_FAIL(d, PGD_INVALID, "a weight's source has %llu bytes, %llu are needed",
                        (unsigned long long)p->data.bytes, (unsigned long long)bytes);
    }
    return p->data.buffer == NULL
               ? PGD_OK
               : gpu_range(d, "a weight's source", p->data.buffer, p->data.offset, bytes);
}

static pgd_status check_prepare(const pgd_device *d, const pgd_weight_desc *a,
                                const pgd_range *scratch) {
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const pgd_weight_part p = gpu_weight_part(a, i);
        PGD_TRY(check_source(d, a, &p));
    }
    const uint64_t need = scratch_of(a);
    if (need == 0) {
        return PGD_OK;
    }
    if (scratch == NULL || scratch->bytes < need) {
        return GPU_FAIL(d, PGD_INVALID, "a weight needs %llu bytes of scratch",
                        (unsigned long long)need);
    }
    return gpu_range(d, "scratch", scratch->buffer, scratch->offset, need);
}

static pgd_status pack_parts(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *a,
                             const pgd_weight *w, const pgd_range *scratch, uint64_t bytes) {
    const pgd_range all = {w->buffer, (uint64_t)w->w.at, bytes};
    int64_t first = 0;
    PGD_TRY(gpu_fill_now(d, q, &all, 0)); // rows behind the last
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const pgd_weight_part p = gpu_weight_part(a, i);
        PGD_TRY(p.data.buffer != NULL ? pack_buffer(d, q, w, &p, first)
                                      : pack_host(d, q, w, &p, scratch, first));
        first += p.row_count;
    }
    return gpu_drain(d, q); // the sources may go when this call returns
}

static pgd_status prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                          const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    uint64_t bytes = 0;
    *out = NULL;
    PGD_TRY(gpu_not_recording(d, q, "prepare"));
    PGD_TRY(adopt(d, desc, dst, out));
    pgd_status code = bytes_of(d, a, &bytes);
    code = code == PGD_OK ? check_prepare(d, a, scratch) : code;
    code = code == PGD_OK ? pack_parts(d, q, a, *out, scratch, bytes) : code;
    if (code != PGD_OK) {
        // what was enqueued still reads the sources
        const pgd_status drained = gpu_drain(d, q);
        destroy(d, *out);
        *out = NULL;
        code = drained == PGD_DEVICE_LOST ? drained : code;
    }
    return code;
}

static pgd_status unpack(const pgd_device *d, pgd_queue *q, pgd_weight *w, int64_t row,
                         const pgd_tensor *out) {
    const uint64_t bytes = (uint64_t)w->desc.k * sizeof(float);
    PGD_TRY(gpu_not_recording(d, q, "unpack"));
    if (row < 0 || row >= w->desc.n || out->rank != 1 || out->shape[0] != w->desc.k ||
        out->dtype != PGD_F32 || out->offset % sizeof(float) != 0) {
        return GPU_FAIL(d, PGD_INVALID, "row %lld of %lld into a tensor of rank %u", (long long)row,
                        (long long)w->desc.n, (unsigned)out->rank);
    }
    PGD_TRY(gpu_range(d, "an unpacked row", out->buffer, out->offset, bytes));
    const k_pack_params p = {.w = w->w,
                             .rows = {.at = (int64_t)out->offset, .dtype = K_F32},
                             .first = (int32_t)row,
                             .n = 1};
    gpu_launch l = {.kernel = PGD_PORTABLE_unpack, .groups = {gpu_ceil(w->desc.k, K_SPAN), 1, 1}};
    l.memories[1] = w->buffer->memory;
    l.memories[2] = out->buffer->memory;
    return launch(d, q, &l, &p, sizeof(p));
}

const pgd_weight_table gpu_weight_table = {
    .size = sizeof(pgd_weight_table),
    .plan = plan,
    .prepare = prepare,
    .adopt = adopt,
    .unpack = unpack,
    .destroy = destroy,
};
