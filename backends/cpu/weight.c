// Weights: packed into panels of 32 rows, so that a kernel reads one stream from front to back.
//
//   rows    [n][k] as stored; for weights that only embed reads
//   panels  panel p holds rows 32 p .. 32 p + 31, zero rows behind the last:
//             f32, f16  [k][32]          bf16  [ceil(k / 2)][32][2], k odd: a zero
//             quantized weights: cells, kernels/cpu/quant.h
//   gated   weights that only gate_up reads: panel 2 j holds rows 32 j .. of the first half of the
//           rows, panel 2 j + 1 the same rows of the second half
//
// The layout depends on the desc alone, not on the instruction set. Parts of different schemes have
// panels of their own, one segment behind the other.
#include <string.h>

#include "cpu.h"

#define LAYOUT_VERSION UINT64_C(0x7067642d63707531) // raised with each change of the layout

static pgd_status check_desc(const pgd_device *d, const pgd_weight_desc *a) {
    common_check c = {.rules = &cpu_rules};
    if (!common_check_weight(&c, a)) {
        return CPU_FAIL(d, c.code, "weight '%s': %s", a->name == NULL ? "" : a->name, c.reason);
    }
    return PGD_OK;
}

uint64_t cpu_panel_bytes(const cpu_segment *s, int64_t k) {
    const uint64_t element = pgd_dtype_bytes(s->dtype);
    uint64_t bytes = 0;
    if (s->scheme != PGD_SCHEME_PLAIN) {
        return (uint64_t)pgd_cpu_quant_bytes(s->scheme, k);
    }
    const uint64_t units = s->dtype == PGD_BF16 ? ((uint64_t)k + 1) / 2 : (uint64_t)k;
    const uint64_t unit_bytes = PGD_CPU_PANEL * (s->dtype == PGD_BF16 ? 2 * element : element);
    return __builtin_mul_overflow(units, unit_bytes, &bytes) ? UINT64_MAX : bytes;
}

// Rows behind those that are there, of a part; the last segment grows where it can.
static pgd_status add_rows(const pgd_device *d, pgd_weight *w, int32_t scheme, int32_t dtype,
                           int64_t n) {
    cpu_segment *last = w->n_segments > 0 ? &w->segments[w->n_segments - 1] : NULL;
    if (last != NULL && last->scheme == scheme && last->dtype == dtype) {
        last->n_rows += n;
        return PGD_OK;
    }
    if (w->n_segments == CPU_SEGMENTS) {
        return CPU_FAIL(d, PGD_UNSUPPORTED, "a weight joined of more than %d schemes",
                        (int)CPU_SEGMENTS);
    }
    w->segments[w->n_segments++] = (cpu_segment){.scheme = scheme,
                                                 .dtype = dtype,
                                                 .row = last == NULL ? 0 : last->row + last->n_rows,
                                                 .n_rows = n};
    return PGD_OK;
}

static pgd_status find_segments(const pgd_device *d, const pgd_weight_desc *a, pgd_weight *w) {
    w->n_segments = 0;
    if (a->scheme != PGD_SCHEME_PARTS) {
        return add_rows(d, w, a->scheme, a->scheme == PGD_SCHEME_PLAIN ? a->dtype : 0, a->n);
    }
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const pgd_weight_part p = common_weight_part(a, i);
        const int32_t dtype = p.scheme == PGD_SCHEME_PLAIN ? p.dtype : 0;
        if (p.row_count > 0) {
            PGD_TRY(add_rows(d, w, p.scheme, dtype, p.row_count));
        }
    }
    return w->n_segments > 0 ? PGD_OK : CPU_FAIL(d, PGD_INVALID, "a weight joined of no rows");
}

// Fills the handle but for its data; bytes of the resident form in w->bytes.
static pgd_status layout(const pgd_device *d, const pgd_weight_desc *a, pgd_weight *w) {
    bool fits = true;
    w->desc = *a;
    w->desc.size = sizeof(w->desc);
    w->desc.parts = NULL;
    w->desc.n_parts = 0;
    w->desc.name = NULL;
    w->layout = CPU_LAYOUT_PANELS;
    w->n_panels = 0;
    w->bytes = 0;
    if (a->uses == PGD_USE_EMBED && a->scheme == PGD_SCHEME_PLAIN) {
        w->layout = CPU_LAYOUT_ROWS;
    } else if (a->uses == PGD_USE_GATE_UP && a->n % 2 == 0 && a->scheme != PGD_SCHEME_PARTS) {
        w->layout = CPU_LAYOUT_GATED;
    }
    PGD_TRY(find_segments(d, a, w));
    for (uint32_t i = 0; i < w->n_segments; i++) {
        cpu_segment *s = &w->segments[i];
        uint64_t bytes = 0;
        s->panel = w->n_panels;
        s->n_panels = (s->n_rows + PGD_CPU_PANEL - 1) / PGD_CPU_PANEL;
        s->panel_bytes = cpu_panel_bytes(s, a->k);
        if (w->layout == CPU_LAYOUT_ROWS) {
            s->n_panels = s->n_rows;
            s->panel_bytes = (uint64_t)a->k * pgd_dtype_bytes(s->dtype);
        } else if (w->layout == CPU_LAYOUT_GATED) {
            s->n_panels = 2 * ((a->n / 2 + PGD_CPU_PANEL - 1) / PGD_CPU_PANEL);
        }
        fits = fits && !__builtin_mul_overflow(s->panel_bytes, (uint64_t)s->n_panels, &bytes) &&
               !__builtin_add_overflow(w->bytes, bytes, &w->bytes) && w->bytes < UINT64_MAX - 64;
        w->n_panels += s->n_panels;
        w->bytes = (w->bytes + 63) / 64 * 64;
    }
    return fits ? PGD_OK
                : CPU_FAIL(d, PGD_INVALID, "a weight of %lld rows of %lld", (long long)a->n,
                           (long long)a->k);
}

static pgd_status plan(const pgd_device *d, const pgd_weight_desc *desc, pgd_weight_plan *out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    pgd_weight_plan result = {
        .size = sizeof(result), .align = CPU_ALIGN, .fingerprint = LAYOUT_VERSION};
    pgd_weight w;
    CPU_TAIL(d, pgd_weight_desc, desc);
    PGD_TRY(check_desc(d, a));
    PGD_TRY(layout(d, a, &w));
    result.bytes = w.bytes;
    PGD_OUT(out, result);
    return PGD_OK;
}

// ---- packing -----------------------------------------------------------------------------------

const cpu_segment *cpu_segment_of(const pgd_weight *w, int64_t p) {
    const cpu_segment *s = w->segments;
    while (p >= s->panel + s->n_panels) {
        s++;
    }
    return s;
}

static unsigned char *panel_at(const cpu_segment *s, int64_t p) {
    return s->data + (uint64_t)(p - s->panel) * s->panel_bytes;
}

int64_t cpu_panel_columns(const pgd_weight *w, int64_t p, int64_t *first) {
    const cpu_segment *s = cpu_segment_of(w, p);
    int64_t n = s->n_rows;
    int64_t start = (p - s->panel) * PGD_CPU_PANEL;
    int64_t base = s->row;
    if (w->layout == CPU_LAYOUT_GATED) {
        n /= 2;
        start = (p / 2) * PGD_CPU_PANEL;
        base = p % 2 == 0 ? 0 : n;
    }
    *first = base + start;
    return cpu_min(PGD_CPU_PANEL, n - start);
}

// Segment, panel (of those of the weight) and lane of a row.
static const cpu_segment *row_place(const pgd_weight *w, int64_t row, int64_t *panel,
                                    int64_t *lane) {
    const cpu_segment *s = w->segments;
    int64_t half = w->desc.n / 2;
    while (row >= s->row + s->n_rows) {
        s++;
    }
    row -= s->row;
    if (w->layout == CPU_LAYOUT_GATED) {
        int64_t side = row >= half;
        row -= side * half;
        *panel = 2 * (row / PGD_CPU_PANEL) + side;
    } else {
        *panel = s->panel + row / PGD_CPU_PANEL;
    }
    *lane = row % PGD_CPU_PANEL;
    return s;
}

typedef struct pack {
    const pgd_weight *w;
    const unsigned char **rows; // [n] first element or block of each row in its source
    const float **scales;       // [n] of INT8, NULL = one
} pack;

// Elements go through memcpy: a source may lie at any address.
#define PACK_BLOCK 16

static void pack_lane_32(const unsigned char *from, int64_t k, int64_t lane, uint32_t *to) {
    uint32_t block[PACK_BLOCK];
    int64_t i = 0;
    to += lane;
    for (; i + PACK_BLOCK <= k; i += PACK_BLOCK) {
        memcpy(block, from + i * (int64_t)sizeof(*to), sizeof(block));
        for (int64_t j = 0; j < PACK_BLOCK; j++) {
            to[(i + j) * PGD_CPU_PANEL] = block[j];
        }
    }
    for (; i < k; i++) {
        memcpy(&to[i * PGD_CPU_PANEL], from + i * (int64_t)sizeof(*to), sizeof(*to));
    }
}

static void pack_lane_16(const unsigned char *from, int64_t k, int64_t lane, uint16_t *to) {
    uint16_t block[PACK_BLOCK];
    int64_t i = 0;
    to += lane;
    for (; i + PACK_BLOCK <= k; i += PACK_BLOCK) {
        memcpy(block, from + i * (int64_t)sizeof(*to), sizeof(block));
        for (int64_t j = 0; j < PACK_BLOCK; j++) {
            to[(i + j) * PGD_CPU_PANEL] = block[j];
        }
    }
    for (; i < k; i++) {
        memcpy(&to[i * PGD_CPU_PANEL], from + i * (int64_t)sizeof(*to), sizeof(*to));
    }
}

// Part [k0, k0 + n) of a lane; from NULL: zeros.
static void pack_lane(int32_t dtype, const unsigned char *from, int64_t k0, int64_t n, int64_t lane,
                      unsigned char *panel) {
    static const unsigned char zeros[4 * 256] = {0};
    const int64_t element = pgd_dtype_bytes(dtype);
    from = from == NULL ? zeros : from + k0 * element;
    if (dtype == PGD_F32) {
        pack_lane_32(from, n, lane, (uint32_t *)(void *)panel + k0 * PGD_CPU_PANEL);
    } else if (dtype == PGD_F16) {
        pack_lane_16(from, n, lane, (uint16_t *)(void *)panel + k0 * PGD_CPU_PANEL);
    } else {
        uint32_t *to = (uint32_t *)(void *)panel + k0 / 2 * PGD_CPU_PANEL;
        pack_lane_32(from, n / 2, lane, to);
        if (n % 2 != 0) {
            uint16_t pair[2] = {0};
            memcpy(pair, from + (n - 1) * 2, 2);
            memcpy(&to[n / 2 * PGD_CPU_PANEL + lane], pair, sizeof(pair));
        }
    }
}

static void pack_quantized(const pack *job, const cpu_segment *s, int64_t first, int64_t count,
                           unsigned char *panel) {
    const unsigned char *rows[PGD_CPU_PANEL] = {NULL};
    float scales[PGD_CPU_PANEL] = {0};
    for (int64_t lane = 0; lane < count; lane++) {
        rows[lane] = job->rows[first + lane];
        if (s->scheme == PGD_SCHEME_INT8) { // it may lie at any address
            memcpy(&scales[lane], job->scales[first + lane], sizeof(float));
        }
    }
    pgd_cpu_quant_pack(s->scheme, rows, scales, job->w->desc.k, panel);
}

static void pack_panels(void *ctx, int64_t p0, int64_t p1, uint32_t worker) {
    const pack *job = ctx;
    const pgd_weight *w = job->w;
    (void)worker;
    for (int64_t p = p0; p < p1; p++) {
        const cpu_segment *s = cpu_segment_of(w, p);
        unsigned char *panel = panel_at(s, p);
        int64_t first = p;
        int64_t count = 0;
        if (w->layout == CPU_LAYOUT_ROWS) {
            memcpy(panel, job->rows[p], s->panel_bytes);
            continue;
        }
        count = cpu_panel_columns(w, p, &first);
        if (s->scheme != PGD_SCHEME_PLAIN) {
            pack_quantized(job, s, first, count, panel);
            continue;
        }
        for (int64_t k0 = 0; k0 < w->desc.k; k0 += 256) {
            int64_t n = cpu_min(256, w->desc.k - k0);
            for (int64_t lane = 0; lane < PGD_CPU_PANEL; lane++) {
                pack_lane(s->dtype, lane < count ? job->rows[first + lane] : NULL, k0, n, lane,
                          panel);
            }
        }
    }
}

// Address of a source's first n * item bytes.
static pgd_status open_source(const pgd_device *d, const pgd_weight_desc *a, const pgd_source *from,
                              uint64_t n, uint64_t item, void **out) {
    const char *name = a->name == NULL ? "" : a->name;
    uint64_t bytes = 0;
    if (from->file != NULL) {
        return CPU_FAIL(d, PGD_UNSUPPORTED,
                        "weight '%s': sources are pointers and buffers, not files", name);
    }
    if (__builtin_mul_overflow(n, item, &bytes) || bytes > from->bytes) {
        return CPU_FAIL(d, PGD_INVALID,
                        "weight '%s': %llu rows of %llu bytes are not in a source of %llu bytes",
                        name, (unsigned long long)n, (unsigned long long)item,
                        (unsigned long long)from->bytes);
    }
    if (from->ptr != NULL) {
        *out = (void *)(uintptr_t)from->ptr;
        return PGD_OK;
    }
    return cpu_range(d, "a weight's source", from->buffer, from->buffer == NULL ? 0 : from->offset,
                     bytes, false, out);
}

// Bytes of `cols` columns of a part, a whole number of blocks.
static uint64_t columns_bytes(const pgd_weight_part *p, int64_t cols) {
    const uint64_t elements = pgd_scheme_elements(p->scheme);
    if (elements > 0) {
        return (uint64_t)cols / elements * pgd_scheme_bytes(p->scheme);
    }
    return (uint64_t)cols * (p->scheme == PGD_SCHEME_INT8 ? 1u : pgd_dtype_bytes(p->dtype));
}

static pgd_status part_rows(const pgd_device *d, const pgd_weight_desc *a, const pgd_weight_part *p,
                            const unsigned char **rows, const float **scales) {
    const uint64_t n = (uint64_t)(p->row_start + p->row_count);
    const uint64_t row_bytes = columns_bytes(p, p->cols);
    void *base = NULL;
    void *scale = NULL;
    PGD_TRY(open_source(d, a, &p->data, n, row_bytes, &base));
    if (p->scheme == PGD_SCHEME_INT8) {
        PGD_TRY(open_source(d, a, &p->scales, n, sizeof(float), &scale));
    }
    for (int64_t r = 0; r < p->row_count; r++) {
        rows[r] = (const unsigned char *)base + (uint64_t)(p->row_start + r) * row_bytes +
                  columns_bytes(p, p->col_start);
        scales[r] = scale == NULL ? NULL : (const float *)scale + p->row_start + r;
    }
    return PGD_OK;
}

static pgd_status gather_rows(const pgd_device *d, const pgd_weight_desc *a, const pack *job) {
    int64_t n = 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const pgd_weight_part p = common_weight_part(a, i);
        PGD_TRY(part_rows(d, a, &p, job->rows + n, job->scales + n));
        n += p.row_count;
    }
    if (n != a->n) { // a desc without parts is fine for plan only
        return CPU_FAIL(d, PGD_INVALID, "weight '%s' of %lld rows has no parts",
                        a->name == NULL ? "" : a->name, (long long)a->n);
    }
    return PGD_OK;
}

// The handle of `desc` whose resident bytes lie in dst.
static pgd_status make(const pgd_device *d, const pgd_weight_desc *a, const pgd_range *dst,
                       pgd_weight **out) {
    pgd_weight *w = NULL;
    void *data = NULL;
    PGD_TRY(check_desc(d, a));
    w = d->host->alloc(d->host, sizeof(*w), 0);
    if (w == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a weight");
    }
    pgd_status code = layout(d, a, w);
    if (code == PGD_OK && dst->bytes < w->bytes) {
        code = CPU_FAIL(d, PGD_INVALID, "a weight of %llu bytes into a range of %llu",
                        (unsigned long long)w->bytes, (unsigned long long)dst->bytes);
    }
    if (code == PGD_OK) {
        code = cpu_range(d, "a weight", dst->buffer, dst->offset, w->bytes, false, &data);
    }
    if (code == PGD_OK && (uintptr_t)data % CPU_ALIGN != 0) {
        code =
            CPU_FAIL(d, PGD_INVALID, "a weight at an address that is no multiple of %d", CPU_ALIGN);
    }
    if (code != PGD_OK) {
        d->host->free(d->host, w);
        return code;
    }
    for (uint32_t i = 0; i < w->n_segments; i++) {
        cpu_segment *s = &w->segments[i];
        s->data = data;
        data = s->data + (s->panel_bytes * (uint64_t)s->n_panels + 63) / 64 * 64;
    }
    *out = w;
    return PGD_OK;
}

static pgd_status prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                          const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    pgd_weight *w = NULL;
    pack job = {0};
    pgd_status code = PGD_OK;
    cpu_phase work = {.fn = pack_panels};
    cpu_phase *const phases[1] = {&work};
    (void)scratch;
    *out = NULL;
    CPU_TAIL(d, pgd_weight_desc, desc);
    PGD_TRY(cpu_not_recording(d, q, "weight prepare"));
    PGD_TRY(make(d, a, dst, &w));
    job.w = w;
    job.rows = d->host->alloc(d->host, ((uint64_t)a->n + 1) * sizeof(*job.rows), 0);
    job.scales = d->host->alloc(d->host, ((uint64_t)a->n + 1) * sizeof(*job.scales), 0);
    if (job.rows == NULL || job.scales == NULL) {
        code = CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for the rows of a weight");
        goto done;
    }
    code = gather_rows(d, a, &job);
    if (code == PGD_OK && dst->buffer != NULL && dst->buffer->imported) {
        code = CPU_FAIL(d, PGD_INVALID, "a weight into an imported buffer");
    }
    if (code == PGD_OK) {
        work.ctx = &job;
        work.nodes = &cpu_self(d)->nodes;
        cpu_phase_set(&work, w->n_panels,
                      w->n_panels > 0 ? (int64_t)(w->bytes / 4) / w->n_panels : 0, 0);
        if (work.n > 0) {
            cpu_phases_run(d->host, phases, 1);
        }
        *out = w;
        w = NULL;
    }
done:
    d->host->free(d->host, (void *)job.rows);
    d->host->free(d->host, (void *)job.scales);
    d->host->free(d->host, w);
    return code;
}

static pgd_status adopt(const pgd_device *d, const pgd_weight_desc *desc, const pgd_range *dst,
                        pgd_weight **out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    *out = NULL;
    CPU_TAIL(d, pgd_weight_desc, desc);
    return make(d, a, dst, out);
}

// ---- reading rows ------------------------------------------------------------------------------

static void widen(const pgd_cpu_kernels *k, int32_t dtype, const void *from, int64_t n,
                  float *out) {
    if (dtype == PGD_F32) {
        memcpy(out, from, (size_t)n * sizeof(float));
    } else if (dtype == PGD_BF16) {
        k->bf16_widen(from, out, n);
    } else {
        k->f16_widen(from, out, n);
    }
}

// n is at most LANE_CHUNK.
#define LANE_CHUNK 256
static void lane_part(const pgd_cpu_kernels *k, int32_t dtype, const unsigned char *panel,
                      int64_t lane, int64_t k0, int64_t n, float *out) {
    const float *singles = (const float *)(const void *)panel;
    const uint16_t *halves = (const uint16_t *)(const void *)panel;
    uint16_t half[LANE_CHUNK];
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (k0 + i) * PGD_CPU_PANEL + lane;
        if (dtype == PGD_F32) {
            out[i] = singles[at];
        } else if (dtype == PGD_F16) {
            half[i] = halves[at];
        } else {
            half[i] = halves[((k0 + i) / 2 * PGD_CPU_PANEL + lane) * 2 + (k0 + i) % 2];
        }
    }
    if (dtype != PGD_F32) {
        widen(k, dtype, half, n, out);
    }
}

void cpu_weight_row(const pgd_cpu_kernels *k, const pgd_weight *w, int64_t row, int64_t k0,
                    int64_t n, float *out) {
    int64_t panel = row;
    int64_t lane = 0;
    if (w->layout == CPU_LAYOUT_ROWS) {
        const cpu_segment *s = w->segments;
        const unsigned char *from = panel_at(s, row);
        widen(k, s->dtype, from + k0 * pgd_dtype_bytes(s->dtype), n, out);
        return;
    }
    const cpu_segment *s = row_place(w, row, &panel, &lane);
    const unsigned char *at = panel_at(s, panel);
    if (s->scheme != PGD_SCHEME_PLAIN) {
        pgd_cpu_quant_row(s->scheme, at, lane, k0, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i += LANE_CHUNK) {
        lane_part(k, s->dtype, at, lane, k0 + i, cpu_min(LANE_CHUNK, n - i), out + i);
    }
}

static pgd_status unpack(const pgd_device *d, pgd_queue *q, pgd_weight *w, int64_t row,
                         const pgd_tensor *out) {
    const pgd_exec x = {.size = sizeof(x), .dev = d, .queue = q};
    cpu_view v;
    PGD_TRY(cpu_not_recording(d, q, "weight unpack"));
    if (row < 0 || row >= w->desc.n || out->rank != 1 || out->dtype != PGD_F32 ||
        out->shape[0] != w->desc.k) {
        return CPU_FAIL(d, PGD_INVALID,
                        "unpack of row %lld of a weight [%lld, %lld] into rank %u, "
                        "%s, %lld elements",
                        (long long)row, (long long)w->desc.n, (long long)w->desc.k,
                        (unsigned)out->rank, pgd_dtype_name(out->dtype), (long long)out->shape[0]);
    }
    PGD_TRY(cpu_view_of(&x, "unpack out", out, true, &v));
    cpu_weight_row(cpu_self(d)->kernels, w, row, 0, w->desc.k, v.p);
    return PGD_OK;
}

static void destroy(const pgd_device *d, pgd_weight *w) {
    d->host->free(d->host, w);
}

const pgd_weight_table cpu_weight_table = {
    .size = sizeof(pgd_weight_table),
    .plan = plan,
    .prepare = prepare,
    .adopt = adopt,
    .unpack = unpack,
    .destroy = destroy,
};
