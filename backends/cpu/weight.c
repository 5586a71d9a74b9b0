// Weights: packed into panels of 32 rows, so that a kernel reads one stream from front to back.
//
//   rows    [n][k] as stored; for weights that only embed reads
//   panels  panel p holds rows 32 p .. 32 p + 31, zero rows behind the last:
//             f32, f16  [k][32]          bf16  [ceil(k / 2)][32][2], k odd: a zero
//   gated   weights that only gate_up reads: panel 2 j holds rows 32 j .. of the first half of the
//           rows, panel 2 j + 1 the same rows of the second half
//
// The layout depends on the desc alone, not on the instruction set.
#include <string.h>

#include "cpu.h"

#define LAYOUT_VERSION UINT64_C(0x7067642d63707531) // raised with each change of the layout

static pgd_status check_desc(const pgd_device *d, const pgd_weight_desc *a) {
    cpu_check c = {.code = PGD_OK};
    if (!cpu_check_weight(&c, a)) {
        return CPU_FAIL(d, c.code, "weight '%s': %s", a->name == NULL ? "" : a->name, c.reason);
    }
    return PGD_OK;
}

// Fills the handle but for its data; bytes of the resident form in *out.
static pgd_status layout(const pgd_device *d, const pgd_weight_desc *a, pgd_weight *w,
                         uint64_t *out_bytes) {
    const uint64_t element = pgd_dtype_bytes(a->dtype);
    const uint64_t units = a->dtype == PGD_BF16 ? ((uint64_t)a->k + 1) / 2 : (uint64_t)a->k;
    const uint64_t unit_bytes = PGD_CPU_PANEL * (a->dtype == PGD_BF16 ? 2 * element : element);
    int64_t half = (a->n / 2 + PGD_CPU_PANEL - 1) / PGD_CPU_PANEL;
    w->desc = *a;
    w->desc.size = sizeof(w->desc);
    w->desc.parts = NULL;
    w->desc.n_parts = 0;
    w->desc.name = NULL;
    w->layout = CPU_LAYOUT_PANELS;
    w->n_panels = (a->n + PGD_CPU_PANEL - 1) / PGD_CPU_PANEL;
    if (a->uses == PGD_USE_EMBED) {
        w->layout = CPU_LAYOUT_ROWS;
        w->n_panels = a->n;
        w->panel_bytes = (uint64_t)a->k * element;
    } else if (a->uses == PGD_USE_GATE_UP && a->n % 2 == 0) {
        w->layout = CPU_LAYOUT_GATED;
        w->n_panels = 2 * half;
    }
    if (w->layout != CPU_LAYOUT_ROWS &&
        __builtin_mul_overflow(units, unit_bytes, &w->panel_bytes)) {
        w->panel_bytes = UINT64_MAX;
    }
    if (__builtin_mul_overflow(w->panel_bytes, (uint64_t)w->n_panels, out_bytes)) {
        return CPU_FAIL(d, PGD_INVALID, "a weight of %lld rows of %lld", (long long)a->n,
                        (long long)a->k);
    }
    return PGD_OK;
}

static pgd_status plan(const pgd_device *d, const pgd_weight_desc *desc, pgd_weight_plan *out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    pgd_weight_plan result = {
        .size = sizeof(result), .align = CPU_ALIGN, .fingerprint = LAYOUT_VERSION};
    pgd_weight w;
    CPU_TAIL(d, pgd_weight_desc, desc);
    PGD_TRY(check_desc(d, a));
    PGD_TRY(layout(d, a, &w, &result.bytes));
    PGD_OUT(out, result);
    return PGD_OK;
}

// ---- packing -----------------------------------------------------------------------------------

int64_t cpu_panel_columns(const pgd_weight *w, int64_t p, int64_t *first) {
    int64_t n = w->desc.n;
    int64_t start = p * PGD_CPU_PANEL;
    int64_t base = 0;
    if (w->layout == CPU_LAYOUT_GATED) {
        n /= 2;
        start = (p / 2) * PGD_CPU_PANEL;
        base = p % 2 == 0 ? 0 : n;
    }
    *first = base + start;
    return cpu_min(PGD_CPU_PANEL, n - start);
}

// Panel and lane of a row.
static void row_place(const pgd_weight *w, int64_t row, int64_t *panel, int64_t *lane) {
    int64_t half = w->desc.n / 2;
    if (w->layout == CPU_LAYOUT_GATED) {
        int64_t side = row >= half;
        row -= side * half;
        *panel = 2 * (row / PGD_CPU_PANEL) + side;
    } else {
        *panel = row / PGD_CPU_PANEL;
    }
    *lane = row % PGD_CPU_PANEL;
}

typedef struct pack {
    const pgd_weight *w;
    const unsigned char **rows; // [n] first element of each row in its source
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
static void pack_lane(const pgd_weight *w, const unsigned char *from, int64_t k0, int64_t n,
                      int64_t lane, unsigned char *panel) {
    static const unsigned char zeros[4 * 256] = {0};
    const int64_t element = pgd_dtype_bytes(w->desc.dtype);
    from = from == NULL ? zeros : from + k0 * element;
    if (w->desc.dtype == PGD_F32) {
        pack_lane_32(from, n, lane, (uint32_t *)(void *)panel + k0 * PGD_CPU_PANEL);
    } else if (w->desc.dtype == PGD_F16) {
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

static void pack_panels(void *ctx, int64_t p0, int64_t p1, uint32_t worker) {
    const pack *job = ctx;
    const pgd_weight *w = job->w;
    (void)worker;
    for (int64_t p = p0; p < p1; p++) {
        unsigned char *panel = w->data + (uint64_t)p * w->panel_bytes;
        int64_t first = p;
        int64_t count = 0;
        if (w->layout == CPU_LAYOUT_ROWS) {
            memcpy(panel, job->rows[p], w->panel_bytes);
            continue;
        }
        count = cpu_panel_columns(w, p, &first);
        for (int64_t k0 = 0; k0 < w->desc.k; k0 += 256) {
            int64_t n = cpu_min(256, w->desc.k - k0);
            for (int64_t lane = 0; lane < PGD_CPU_PANEL; lane++) {
                pack_lane(w, lane < count ? job->rows[first + lane] : NULL, k0, n, lane, panel);
            }
        }
    }
}

static pgd_status part_rows(const pgd_device *d, const pgd_weight_desc *a, const pgd_weight_part *p,
                            const unsigned char **rows) {
    const uint64_t element = pgd_dtype_bytes(a->dtype);
    uint64_t bytes = 0;
    void *base = NULL;
    if (p->data.file != NULL) {
        return CPU_FAIL(d, PGD_UNSUPPORTED,
                        "weight '%s': sources are pointers and buffers, not "
                        "files",
                        a->name == NULL ? "" : a->name);
    }
    if (__builtin_mul_overflow((uint64_t)(p->row_start + p->row_count), (uint64_t)p->cols,
                               &bytes) ||
        __builtin_mul_overflow(bytes, element, &bytes) || bytes > p->data.bytes) {
        return CPU_FAIL(d, PGD_INVALID,
                        "weight '%s': rows %lld to %lld of %lld columns are not in "
                        "a source of %llu bytes",
                        a->name == NULL ? "" : a->name, (long long)p->row_start,
                        (long long)(p->row_start + p->row_count), (long long)p->cols,
                        (unsigned long long)p->data.bytes);
    }
    if (p->data.ptr != NULL) {
        base = (void *)(uintptr_t)p->data.ptr;
    } else {
        PGD_TRY(cpu_range(d, "a weight's source", p->data.buffer,
                          p->data.buffer == NULL ? 0 : p->data.offset, bytes, false, &base));
    }
    for (int64_t r = 0; r < p->row_count; r++) {
        rows[r] = (const unsigned char *)base +
                  (uint64_t)((p->row_start + r) * p->cols + p->col_start) * element;
    }
    return PGD_OK;
}

static pgd_status gather_rows(const pgd_device *d, const pgd_weight_desc *a,
                              const unsigned char **rows) {
    pgd_weight_part local;
    int64_t n = 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const pgd_weight_part *p = cpu_weight_part(a, i, &local);
        PGD_TRY(part_rows(d, a, p, rows + n));
        n += p->row_count;
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
    uint64_t bytes = 0;
    void *data = NULL;
    PGD_TRY(check_desc(d, a));
    w = d->host->alloc(d->host, sizeof(*w), 0);
    if (w == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a weight");
    }
    pgd_status code = layout(d, a, w, &bytes);
    if (code == PGD_OK && dst->bytes < bytes) {
        code = CPU_FAIL(d, PGD_INVALID, "a weight of %llu bytes into a range of %llu",
                        (unsigned long long)bytes, (unsigned long long)dst->bytes);
    }
    if (code == PGD_OK) {
        code = cpu_range(d, "a weight", dst->buffer, dst->offset, bytes, false, &data);
    }
    if (code == PGD_OK && (uintptr_t)data % CPU_ALIGN != 0) {
        code =
            CPU_FAIL(d, PGD_INVALID, "a weight at an address that is no multiple of %d", CPU_ALIGN);
    }
    if (code != PGD_OK) {
        d->host->free(d->host, w);
        return code;
    }
    w->data = data;
    *out = w;
    return PGD_OK;
}

static pgd_status prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                          const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    pgd_weight_desc local;
    const pgd_weight_desc *a = PGD_ARGS(pgd_weight_desc, local, desc);
    pgd_weight *w = NULL;
    const unsigned char **rows = NULL;
    pgd_status code = PGD_OK;
    cpu_phase work = {.fn = pack_panels};
    cpu_phase *const phases[1] = {&work};
    (void)scratch;
    *out = NULL;
    CPU_TAIL(d, pgd_weight_desc, desc);
    PGD_TRY(cpu_not_recording(d, q, "weight prepare"));
    PGD_TRY(make(d, a, dst, &w));
    rows = d->host->alloc(d->host, ((uint64_t)a->n + 1) * sizeof(*rows), 0);
    if (rows == NULL) {
        code = CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for the rows of a weight");
        goto done;
    }
    code = gather_rows(d, a, rows);
    if (code == PGD_OK && dst->buffer != NULL && dst->buffer->imported) {
        code = CPU_FAIL(d, PGD_INVALID, "a weight into an imported buffer");
    }
    if (code == PGD_OK) {
        pack job = {.w = w, .rows = rows};
        work.ctx = &job;
        work.nodes = &cpu_self(d)->nodes;
        cpu_phase_set(&work, w->n_panels, (int64_t)(w->panel_bytes / 4), 0);
        if (work.n > 0) {
            cpu_phases_run(d->host, phases, 1);
        }
        *out = w;
        w = NULL;
    }
done:
    d->host->free(d->host, (void *)rows);
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
static void lane_part(const pgd_cpu_kernels *k, const pgd_weight *w, const unsigned char *panel,
                      int64_t lane, int64_t k0, int64_t n, float *out) {
    const float *singles = (const float *)(const void *)panel;
    const uint16_t *halves = (const uint16_t *)(const void *)panel;
    uint16_t half[LANE_CHUNK];
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (k0 + i) * PGD_CPU_PANEL + lane;
        if (w->desc.dtype == PGD_F32) {
            out[i] = singles[at];
        } else if (w->desc.dtype == PGD_F16) {
            half[i] = halves[at];
        } else {
            half[i] = halves[((k0 + i) / 2 * PGD_CPU_PANEL + lane) * 2 + (k0 + i) % 2];
        }
    }
    if (w->desc.dtype != PGD_F32) {
        widen(k, w->desc.dtype, half, n, out);
    }
}

void cpu_weight_row(const pgd_cpu_kernels *k, const pgd_weight *w, int64_t row, int64_t k0,
                    int64_t n, float *out) {
    int64_t panel = row;
    int64_t lane = 0;
    if (w->layout == CPU_LAYOUT_ROWS) {
        const unsigned char *from = w->data + (uint64_t)row * w->panel_bytes;
        widen(k, w->desc.dtype, from + k0 * pgd_dtype_bytes(w->desc.dtype), n, out);
        return;
    }
    row_place(w, row, &panel, &lane);
    for (int64_t i = 0; i < n; i += LANE_CHUNK) {
        lane_part(k, w, w->data + (uint64_t)panel * w->panel_bytes, lane, k0 + i,
                  cpu_min(LANE_CHUNK, n - i), out + i);
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
