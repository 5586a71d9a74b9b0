// Weights, packed by a kernel on the device:
//
//   rows    [n][k] as stored, for weights that only embed reads
//   panels  [ceil(n / 8)][k][8], zero rows behind the last
//   gated   the same, a panel holding 4 rows of the first half and the same 4 of the second; for
//           weights that only gate_up reads
//
// A weight of blocks is laid out byte by byte: k is then the bytes of a row, and no bit changes.
// The scales of int8 lie behind its rows, in the order of the layout. Parts of other schemes are
// matrices of their own, one behind the other.
//
// Sources in host memory come over in pieces through the scratch of prepare.
#include <string.h>

#include "gpu.h"

#define LAYOUT_VERSION UINT64_C(0x7067642d67707531) // raised with each change of the layout
#define PIECE_BYTES    (UINT64_C(32) << 20)
#define MOST_GROUPS    65535 // along y and z: CUDA's limit

// The kernels' list of blocks is that of the ABI.
enum {
#define BLOCK_SIZES(name, number, elements, bytes, text) \
    ELEMENTS_##name = (elements), BYTES_##name = (bytes),
    PGD_SCHEME_LIST(BLOCK_SIZES)
#undef BLOCK_SIZES
};
#define BLOCK_EQUAL(name, number, elements, bytes)                                     \
    _Static_assert((number) == PGD_SCHEME_##name + K_BLOCKS && (number) == K_##name && \
                       (elements) == ELEMENTS_##name && (bytes) == BYTES_##name,       \
                   "blocks of " #name);
K_BLOCK_LIST(BLOCK_EQUAL)
#undef BLOCK_EQUAL

int32_t gpu_weight_layout(const pgd_weight_desc *w) {
    if (w->uses == PGD_USE_EMBED) {
        return K_LAYOUT_ROWS;
    }
    return w->uses == PGD_USE_GATE_UP && w->n % 2 == 0 && w->scheme != PGD_SCHEME_PARTS
               ? K_LAYOUT_GATED
               : K_LAYOUT_PANELS;
}

static pgd_status check_desc(const pgd_device *d, const pgd_weight_desc *a) {
    common_check c = {.rules = &gpu_rules};
    if (!common_check_weight(&c, a)) {
        return GPU_FAIL(d, c.code, "weight '%s': %s", a->name == NULL ? "" : a->name, c.reason);
    }
    return PGD_OK;
}

// Bytes of `cols` columns, a whole number of blocks.
static uint64_t columns_bytes(int32_t format, int64_t cols) {
    const uint64_t elements = pgd_scheme_elements(format - K_BLOCKS);
    return elements > 0 ? (uint64_t)cols / elements * pgd_scheme_bytes(format - K_BLOCKS)
                        : (uint64_t)cols * pgd_dtype_bytes(format);
}

// ---- layout ------------------------------------------------------------------------------------

static int32_t format_of(int32_t scheme, int32_t dtype) {
    return scheme == PGD_SCHEME_PLAIN  ? dtype
           : scheme == PGD_SCHEME_INT8 ? K_I8
                                       : scheme + K_BLOCKS;
}

// Rows behind those that are there; the last matrix grows where it can.
static pgd_status add_rows(const pgd_device *d, pgd_weight *w, int32_t format, int64_t n) {
    gpu_matrix *last = w->n_matrices > 0 ? &w->matrices[w->n_matrices - 1] : NULL;
    if (last != NULL && last->w.format == format) {
        last->w.n += (int32_t)n;
        return PGD_OK;
    }
    if (w->n_matrices == GPU_MATRICES) {
        return GPU_FAIL(d, PGD_UNSUPPORTED, "a weight joined of more than %d schemes",
                        (int)GPU_MATRICES);
    }
    w->matrices[w->n_matrices++] = (gpu_matrix){.first = last == NULL ? 0 : last->first + last->w.n,
                                                .w = {.n = (int32_t)n,
                                                      .k = (int32_t)w->desc.k,
                                                      .format = format,
                                                      .layout = gpu_weight_layout(&w->desc)}};
    return PGD_OK;
}

// Rows of the layout, those of zeros included.
static uint64_t slots_of(const k_weight *w) {
    const uint64_t n = (uint64_t)w->n;
    return w->layout == K_LAYOUT_ROWS    ? n
           : w->layout == K_LAYOUT_GATED ? (n / 2 + 3) / 4 * K_COLUMNS
                                         : (n + K_COLUMNS - 1) / K_COLUMNS * K_COLUMNS;
}

// Gives the matrices their places, from `from` on, and the bytes of all.
static pgd_status place(const pgd_device *d, pgd_weight *w, uint64_t from, uint64_t *out_bytes) {
    uint64_t end = from;
    for (uint32_t i = 0; i < w->n_matrices; i++) {
        k_weight *m = &w->matrices[i].w;
        const uint64_t slots = slots_of(m);
        uint64_t bytes = 0;
        if (__builtin_mul_overflow(slots, columns_bytes(m->format, m->k), &bytes) ||
            bytes > INT64_MAX / 8 || end > INT64_MAX / 2) {
            return GPU_FAIL(d, PGD_INVALID, "a weight of %lld rows of %lld", (long long)w->desc.n,
                            (long long)w->desc.k);
        }
        end = (end + GPU_ALIGN - 1) / GPU_ALIGN * GPU_ALIGN;
        m->at = (int64_t)end;
        end = (end + bytes + 3) / 4 * 4;
        m->scales_at = (int64_t)end;
        end += m->format == K_I8 ? slots * sizeof(float) : 0;
    }
    *out_bytes = end - from;
    return PGD_OK;
}

// Fills the handle but for its memory.
static pgd_status layout(const pgd_device *d, const pgd_weight_desc *a, uint64_t from,
                         pgd_weight *w, uint64_t *out_bytes) {
    PGD_TRY(check_desc(d, a));
    w->desc = *a;
    w->desc.size = sizeof(w->desc);
    w->desc.parts = NULL;
    w->desc.n_parts = 0;
    w->desc.name = NULL;
    w->n_matrices = 0;
    if (a->scheme != PGD_SCHEME_PARTS) {
        PGD_TRY(add_rows(d, w, format_of(a->scheme, a->dtype), a->n));
    }
    for (uint32_t i = 0; a->scheme == PGD_SCHEME_PARTS && i < a->n_parts; i++) {
        const pgd_weight_part p = common_weight_part(a, i);
        PGD_TRY(add_rows(d, w, format_of(p.scheme, p.dtype), p.row_count));
    }
    return w->n_matrices > 0 ? place(d, w, from, out_bytes)
                             : GPU_FAIL(d, PGD_INVALID, "a weight joined of no parts");
}

static uint64_t scratch_of(const pgd_weight *w) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < w->n_matrices; i++) {
        const k_weight *m = &w->matrices[i].w;
        uint64_t row = columns_bytes(m->format, m->k);
        row = m->format == K_I8 && row < sizeof(float) ? sizeof(float) : row; // the scales
        const uint64_t rows = row == 0 ? 0 : PIECE_BYTES / row + 1;
        const uint64_t bytes = row * (rows < (uint64_t)m->n ? rows : (uint64_t)m->n);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static pgd_status plan(const pgd_device *d, const pgd_weight_desc *desc, pgd_weight_plan *out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    pgd_weight_plan result = {
        .size = sizeof(result), .align = GPU_ALIGN, .fingerprint = LAYOUT_VERSION};
    pgd_weight w;
    GPU_TAIL(d, pgd_weight_desc, desc);
    PGD_TRY(layout(d, a, 0, &w, &result.bytes));
    result.scratch = scratch_of(&w);
    PGD_OUT(out, result);
    return PGD_OK;
}

static pgd_status adopt(const pgd_device *d, const pgd_weight_desc *desc, const pgd_range *dst,
                        pgd_weight **out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    pgd_weight made;
    pgd_weight *w = NULL;
    uint64_t bytes = 0;
    *out = NULL;
    GPU_TAIL(d, pgd_weight_desc, desc);
    PGD_TRY(layout(d, a, 0, &made, &bytes));
    if (dst->bytes < bytes || dst->offset % GPU_ALIGN != 0) {
        return GPU_FAIL(d, PGD_INVALID, "a weight of %llu bytes in %llu at %llu",
                        (unsigned long long)bytes, (unsigned long long)dst->bytes,
                        (unsigned long long)dst->offset);
    }
    PGD_TRY(gpu_range(d, "a weight", dst->buffer, dst->offset, bytes));
    PGD_TRY(place(d, &made, dst->offset, &bytes));
    w = d->host->alloc(d->host, sizeof(*w), 0);
    if (w == NULL) {
        return GPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a weight");
    }
    *w = made;
    w->bytes = bytes;
    w->buffer = dst->buffer;
    *out = w;
    return PGD_OK;
}

static void destroy(const pgd_device *d, pgd_weight *w) {
    d->host->free(d->host, w);
}

// ---- packing -----------------------------------------------------------------------------------

// A stored matrix on its way: rows of to.k elements (bytes of blocks, one scale) of to.format.
typedef struct stored {
    k_weight to;
    const pgd_source *source;
    uint64_t pitch;  // bytes from row to row
    uint64_t offset; // of the first
    int64_t first;   // its row in `to`
    int64_t n;
} stored;

static pgd_status launch(const pgd_device *d, pgd_queue *q, gpu_launch *l, const void *params,
                         size_t bytes) {
    memcpy(l->params, params, bytes);
    return l->groups[0] == 0 || l->groups[1] == 0 ? PGD_OK
                                                  : gpu_of(d)->driver->launch(d->host, q->queue, l);
}

// Rows from `view` on in `memory` to rows `first` on of the weight.
static pgd_status pack_rows(const pgd_device *d, pgd_queue *q, const pgd_weight *w,
                            const k_weight *to, void *memory, k_view view, int64_t first,
                            int64_t n) {
    const int64_t step = view.s0 * (int64_t)pgd_dtype_bytes(view.dtype) * MOST_GROUPS;
    for (int64_t r = 0; r < n; r += MOST_GROUPS, view.at += step) {
        const int64_t rows = n - r < MOST_GROUPS ? n - r : MOST_GROUPS;
        const k_pack_params p = {
            .w = *to, .rows = view, .first = (int32_t)(first + r), .n = (int32_t)rows};
        gpu_launch l = {.kernel = PGD_PORTABLE_pack,
                        .groups = {gpu_ceil(to->k, K_SPAN), (uint32_t)rows, 1}};
        l.memories[1] = memory;
        l.memories[2] = w->buffer->memory;
        PGD_TRY(launch(d, q, &l, &p, sizeof(p)));
    }
    return PGD_OK;
}

static pgd_status pack_host(const pgd_device *d, pgd_queue *q, const pgd_weight *w, const stored *s,
                            const pgd_range *scratch) {
    const uint64_t row = (uint64_t)s->to.k * pgd_dtype_bytes(s->to.format);
    if (row == 0) {
        return PGD_OK;
    }
    const int64_t room = (int64_t)(scratch->bytes / row);
    int64_t ring = 0;
    PGD_TRY(gpu_upload_most(d, q, row, &ring));
    const int64_t most = ring > 0 && ring < room ? ring : room;
    const k_view view = {.at = (int64_t)scratch->offset, .s0 = s->to.k, .dtype = s->to.format};
    for (int64_t r = 0; r < s->n; r += most) {
        const int64_t n = s->n - r < most ? s->n - r : most;
        const uint64_t at = s->offset + (uint64_t)r * s->pitch;
        const pgd_copy c = {.dst = scratch->buffer,
                            .dst_offset = scratch->offset,
                            .src_offset = (uint64_t)(uintptr_t)s->source->ptr + at,
                            .bytes = row,
                            .rows = (uint64_t)n,
                            .dst_pitch = row,
                            .src_pitch = s->pitch};
        const gpu_upload_rows u = {.from = (const char *)s->source->ptr + at,
                                   .bytes = row,
                                   .pitch = s->pitch,
                                   .rows = (uint64_t)n,
                                   .to = scratch->buffer,
                                   .to_offset = scratch->offset};
        PGD_TRY(ring > 0 ? gpu_upload(d, q, &u) : gpu_copy_now(d, q, &c, 1));
        PGD_TRY(pack_rows(d, q, w, &s->to, scratch->buffer->memory, view, s->first + r, n));
    }
    return PGD_OK;
}

static pgd_status pack_stored(const pgd_device *d, pgd_queue *q, const pgd_weight *w,
                              const stored *s, const pgd_range *scratch) {
    const k_view view = {.at = (int64_t)(s->source->offset + s->offset),
                         .s0 = (int64_t)(s->pitch / pgd_dtype_bytes(s->to.format)),
                         .dtype = s->to.format};
    return s->source->buffer == NULL
               ? pack_host(d, q, w, s, scratch)
               : pack_rows(d, q, w, &s->to, s->source->buffer->memory, view, s->first, s->n);
}

// Rows `first` on of the weight from a part.
static pgd_status pack_part(const pgd_device *d, pgd_queue *q, const pgd_weight *w,
                            const pgd_weight_part *p, const pgd_range *scratch, int64_t first) {
    const gpu_matrix *m = gpu_weight_matrix(w, first);
    const int32_t format = m->w.format;
    stored rows = {.to = m->w,
                   .source = &p->data,
                   .pitch = columns_bytes(format, p->cols),
                   .offset = columns_bytes(format, p->col_start),
                   .first = first - m->first,
                   .n = p->row_count};
    rows.offset += (uint64_t)p->row_start * rows.pitch;
    if (format > K_BLOCKS) {
        rows.to.k = (int32_t)columns_bytes(format, m->w.k);
        rows.to.format = K_I8;
    }
    PGD_TRY(pack_stored(d, q, w, &rows, scratch));
    if (format != K_I8) {
        return PGD_OK;
    }
    stored scales = {.to = m->w,
                     .source = &p->scales,
                     .pitch = sizeof(float),
                     .offset = (uint64_t)p->row_start * sizeof(float),
                     .first = rows.first,
                     .n = rows.n};
    scales.to.at = m->w.scales_at;
    scales.to.k = 1;
    scales.to.format = K_F32;
    return pack_stored(d, q, w, &scales, scratch);
}

static pgd_status check_source(const pgd_device *d, const pgd_source *s, const pgd_weight_part *p,
                               uint64_t pitch) {
    uint64_t bytes = 0;
    if (s->file != NULL || (s->ptr == NULL) == (s->buffer == NULL)) {
        return GPU_FAIL(d, PGD_UNSUPPORTED, "a weight whose source is no memory");
    }
    if (__builtin_mul_overflow((uint64_t)(p->row_start + p->row_count), pitch, &bytes) ||
        bytes > s->bytes) {
        return GPU_FAIL(d, PGD_INVALID, "a weight's source has %llu bytes, %llu are needed",
                        (unsigned long long)s->bytes, (unsigned long long)bytes);
    }
    return s->buffer == NULL ? PGD_OK
                             : gpu_range(d, "a weight's source", s->buffer, s->offset, bytes);
}

static pgd_status check_prepare(const pgd_device *d, const pgd_weight_desc *a, const pgd_weight *w,
                                const pgd_range *scratch) {
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const pgd_weight_part p = common_weight_part(a, i);
        PGD_TRY(check_source(d, &p.data, &p, columns_bytes(format_of(p.scheme, p.dtype), p.cols)));
        if (p.scheme == PGD_SCHEME_INT8) {
            PGD_TRY(check_source(d, &p.scales, &p, sizeof(float)));
        }
    }
    const uint64_t need = scratch_of(w);
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
                             const pgd_weight *w, const pgd_range *scratch, uint64_t at) {
    const pgd_range all = {w->buffer, at, w->bytes};
    int64_t first = 0;
    PGD_TRY(gpu_fill_now(d, q, &all, 0)); // rows behind the last
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const pgd_weight_part p = common_weight_part(a, i);
        PGD_TRY(p.row_count == 0 ? PGD_OK : pack_part(d, q, w, &p, scratch, first));
        first += p.row_count;
    }
    return gpu_drain(d, q); // the sources may go when this call returns
}

static pgd_status prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                          const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    *out = NULL;
    PGD_TRY(gpu_not_recording(d, q, "prepare"));
    PGD_TRY(adopt(d, desc, dst, out));
    pgd_status code = check_prepare(d, a, *out, scratch);
    code = code == PGD_OK ? pack_parts(d, q, a, *out, scratch, dst->offset) : code;
    if (code != PGD_OK) {
        // what was enqueued still reads the sources
        const pgd_status drained = gpu_drain(d, q);
        destroy(d, *out);
        *out = NULL;
        code = drained == PGD_DEVICE_LOST ? drained : code;
    }
    return code;
}

static pgd_status unpack_into(const pgd_device *d, pgd_queue *q, const pgd_weight *w, int64_t row,
                              const pgd_range *out) {
    const gpu_matrix *m = gpu_weight_matrix(w, row);
    const k_pack_params p = {.w = m->w,
                             .rows = {.at = (int64_t)out->offset, .dtype = K_F32},
                             .first = (int32_t)(row - m->first),
                             .n = 1};
    gpu_launch l = {.kernel = PGD_PORTABLE_unpack, .groups = {gpu_ceil(m->w.k, K_SPAN), 1, 1}};
    PGD_TRY(gpu_range(d, "an unpacked row", out->buffer, out->offset, out->bytes));
    l.memories[1] = w->buffer->memory;
    l.memories[2] = out->buffer->memory;
    return launch(d, q, &l, &p, sizeof(p));
}

// A row for host memory goes through a buffer that lives for this call.
static pgd_status unpack_staged(const pgd_device *d, pgd_queue *q, const pgd_weight *w, int64_t row,
                                uint64_t to, uint64_t bytes) {
    const pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = bytes};
    pgd_range line = {.bytes = bytes};
    PGD_TRY(gpu_memory_table.create(d, &desc, &line.buffer));
    const pgd_copy c = {.dst_offset = to, .src = line.buffer, .bytes = bytes};
    pgd_status code = unpack_into(d, q, w, row, &line);
    code = code == PGD_OK ? gpu_copy_now(d, q, &c, 1) : code;
    const pgd_status drained = gpu_drain(d, q);
    gpu_memory_table.destroy(d, line.buffer);
    return code == PGD_OK ? drained : code;
}

static pgd_status unpack(const pgd_device *d, pgd_queue *q, pgd_weight *w, int64_t row,
                         const pgd_tensor *out) {
    const uint64_t bytes = (uint64_t)w->desc.k * sizeof(float);
    const pgd_range range = {out->buffer, out->offset, bytes};
    PGD_TRY(gpu_not_recording(d, q, "unpack"));
    if (row < 0 || row >= w->desc.n || out->rank != 1 || out->shape[0] != w->desc.k ||
        out->dtype != PGD_F32 || out->offset % sizeof(float) != 0) {
        return GPU_FAIL(d, PGD_INVALID, "row %lld of %lld into a tensor of rank %u", (long long)row,
                        (long long)w->desc.n, (unsigned)out->rank);
    }
    if (out->buffer != NULL || bytes == 0) {
        return bytes == 0 ? PGD_OK : unpack_into(d, q, w, row, &range);
    }
    return unpack_staged(d, q, w, row, out->offset, bytes);
}

const pgd_weight_table gpu_weight_table = {
    .size = sizeof(pgd_weight_table),
    .plan = plan,
    .prepare = prepare,
    .adopt = adopt,
    .unpack = unpack,
    .destroy = destroy,
};
