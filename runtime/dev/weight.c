// Weights in host memory, for devices whose weight family has a hole.
//
// A weight is one row-major matrix [n, k] in the bytes of its file, as the reference kernels read
// it. Where the device's memory has host addresses it lies in the range the host planned for it;
// else the plan asks for no device memory and the matrix is the handle's own.
#include "dev/inner.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "os/file.h"

enum { CHUNK = 256 }; // columns unpacked at a time

typedef struct host_weight {
    pgd_ref_weight ref; // first: what the kernels read
    void *own;          // NULL when the rows lie in the caller's range
    pgd_ref_weight parts[];
} host_weight;

static pgd_status matrix_bytes(const pgd_weight_desc *desc, uint64_t *out) {
    pgd_status code = desc->n > 0 && desc->k > 0 ? pgd_ref_weight_bytes(desc, out) : PGD_INVALID;
    if (code == PGD_UNSUPPORTED) {
        return pgd_fail(code,
                        "weight %s: scheme %s of dtype %s cannot be computed on the host; plain "
                        "f32, bf16 and f16, blocks of GGUF and int8 can",
                        desc->name == NULL ? "?" : desc->name, pgd_scheme_name(desc->scheme),
                        pgd_dtype_name(desc->dtype));
    }
    if (code != PGD_OK || *out > SIZE_MAX / 2) {
        return pgd_fail(PGD_INVALID, "weight %s: %lld x %lld elements of scheme %s are no matrix",
                        desc->name == NULL ? "?" : desc->name, (long long)desc->n,
                        (long long)desc->k, pgd_scheme_name(desc->scheme));
    }
    return PGD_OK;
}

static int32_t lies_in_range(const pgd_device *d) {
    const pgd_dev *dev = (const pgd_dev *)d; // device is the first member
    return dev->maps && (dev->info.caps & PGD_CAP_HOST_VISIBLE) != 0;
}

static pgd_status host_plan(const pgd_device *d, const pgd_weight_desc *desc,
                            pgd_weight_plan *out) {
    uint64_t bytes = 0;
    PGD_TRY(matrix_bytes(desc, &bytes));
    pgd_weight_plan local = {
        .size = sizeof(local),
        .bytes = lies_in_range(d) ? bytes : 0,
        .align = 64,
        .fingerprint = UINT64_C(0x5047442d524f5753), // plain rows
    };
    PGD_OUT(out, local);
    return PGD_OK;
}

// ---- sources -----------------------------------------------------------------------------------

static pgd_status read_part(const pgd_device *d, pgd_queue *q, const pgd_source *from, void *to) {
    uint64_t n = 0;
    if (from->buffer != NULL) {
        pgd_copy copy = {
            .dst_offset = (uint64_t)(uintptr_t)to,
            .src = from->buffer,
            .src_offset = from->offset,
            .bytes = from->bytes,
        };
        PGD_TRY(d->queue->copy(d, q, &copy, 1));
        return pgd_dev_drain(d, q);
    }
    pgd_os_map map = {0};
    pgd_status code = pgd_os_map_file(from->file, &map);
    if (code != PGD_OK) {
        return pgd_fail(code, "weight file %s cannot be read", from->file);
    }
    if (!pgd_size_add(from->offset, from->bytes, &n) || n > map.bytes) {
        pgd_os_unmap(&map);
        return pgd_fail(PGD_DATA_LOSS, "weight file %s ends before its tensor", from->file);
    }
    memcpy(to, (const unsigned char *)map.ptr + from->offset, (size_t)from->bytes);
    pgd_os_unmap(&map);
    return PGD_OK;
}

// Makes a source a pointer; *out_read is what was allocated for that.
static pgd_status bring(const pgd_device *d, pgd_queue *q, pgd_source *s, void **out_read) {
    if (s->ptr != NULL || (s->buffer == NULL && s->file == NULL)) {
        return PGD_OK;
    }
    *out_read = pgd_mem_alloc(s->bytes, 1);
    if (*out_read == NULL) {
        return PGD_MEM_FAIL("a weight", s->bytes);
    }
    PGD_TRY(read_part(d, q, s, *out_read));
    *s = (pgd_source){.ptr = *out_read, .bytes = s->bytes};
    return PGD_OK;
}

// Joins the parts into dst; sources that are no pointers are read first.
static pgd_status join(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc, void *dst) {
    pgd_weight_desc local = *desc;
    pgd_status code = PGD_OK;
    pgd_weight_part *parts = pgd_mem_alloc(desc->n_parts, sizeof(*parts));
    void **read = pgd_mem_alloc(desc->n_parts, 2 * sizeof(*read)); // data and scales of each part
    if (parts == NULL || read == NULL) {
        code = PGD_MEM_FAIL("the parts of a weight", desc->n_parts * sizeof(*parts));
        goto done;
    }
    for (uint32_t i = 0; i < desc->n_parts && code == PGD_OK; i++) {
        const unsigned char *at = (const unsigned char *)desc->parts;
        memcpy(&parts[i], at + (size_t)i * desc->part_stride,
               desc->part_stride < sizeof(*parts) ? desc->part_stride : sizeof(*parts));
        code = bring(d, q, &parts[i].data, &read[2 * i]);
        if (code == PGD_OK) {
            code = bring(d, q, &parts[i].scales, &read[2 * i + 1]);
        }
    }
    local.parts = parts;
    local.part_stride = sizeof(*parts);
    if (code == PGD_OK) {
        code = pgd_ref_weight_join(&local, dst);
        code = pgd_fail_note(code, "while weight %s was joined on the host",
                             desc->name == NULL ? "?" : desc->name);
    }
done:
    for (uint32_t i = 0; read != NULL && i < 2 * desc->n_parts; i++) {
        pgd_mem_free(read[i]);
    }
    pgd_mem_free(read);
    pgd_mem_free(parts);
    return code;
}

// ---- the table ---------------------------------------------------------------------------------

// A handle whose rows are ready to be written; *rows is where.
static pgd_status make(const pgd_device *d, const pgd_weight_desc *desc, const pgd_range *dst,
                       host_weight **out, void **rows) {
    uint64_t bytes = 0;
    *out = NULL;
    PGD_TRY(matrix_bytes(desc, &bytes));
    host_weight *w = pgd_mem_alloc(1, sizeof(*w) + desc->n_parts * sizeof(w->parts[0]));
    if (w == NULL) {
        return PGD_MEM_FAIL("a weight", sizeof(*w));
    }
    *rows = lies_in_range(d) ? pgd_dev_address(d, dst->buffer, dst->offset) : NULL;
    if (*rows == NULL) {
        w->own = pgd_mem_alloc((size_t)bytes, 1);
        *rows = w->own;
    }
    if (*rows == NULL) {
        pgd_mem_free(w);
        return PGD_MEM_FAIL("a weight that stays on the host", bytes);
    }
    PGD_TRY(pgd_ref_weight_view(desc, *rows, w->parts, &w->ref)); // checked above
    *out = w;
    return PGD_OK;
}

static void host_destroy(const pgd_device *d, pgd_weight *w) {
    host_weight *own = (host_weight *)w;
    (void)d;
    if (own != NULL) {
        pgd_mem_free(own->own);
        pgd_mem_free(own);
    }
}

static pgd_status host_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                               const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    host_weight *w = NULL;
    void *rows = NULL;
    (void)scratch;
    *out = NULL;
    PGD_TRY(make(d, desc, dst, &w, &rows));
    pgd_status code = join(d, q, desc, rows);
    if (code != PGD_OK) {
        host_destroy(d, (pgd_weight *)w);
        return code;
    }
    *out = (pgd_weight *)w;
    return PGD_OK;
}

static pgd_status host_adopt(const pgd_device *d, const pgd_weight_desc *desc, const pgd_range *dst,
                             pgd_weight **out) {
    host_weight *w = NULL;
    void *rows = NULL;
    *out = NULL;
    if (!lies_in_range(d)) {
        return pgd_fail(PGD_UNSUPPORTED, "weight %s lies in host memory and cannot be adopted",
                        desc->name == NULL ? "?" : desc->name);
    }
    PGD_TRY(make(d, desc, dst, &w, &rows));
    if (w->own != NULL) {
        host_destroy(d, (pgd_weight *)w);
        return pgd_fail(PGD_UNSUPPORTED, "weight %s has no host address to be adopted from",
                        desc->name == NULL ? "?" : desc->name);
    }
    *out = (pgd_weight *)w;
    return PGD_OK;
}

static pgd_status host_unpack(const pgd_device *d, pgd_queue *q, pgd_weight *w, int64_t row,
                              const pgd_tensor *out) {
    const pgd_ref_weight *ref = &((const host_weight *)w)->ref;
    if (row < 0 || row >= ref->n) {
        return pgd_fail(PGD_OUT_OF_RANGE, "row %lld of a weight of %lld rows", (long long)row,
                        (long long)ref->n);
    }
    float *line = pgd_mem_alloc((size_t)ref->k, sizeof(*line));
    if (line == NULL) {
        return PGD_MEM_FAIL("a row of a weight", (size_t)ref->k * sizeof(*line));
    }
    for (int64_t k = 0; k < ref->k; k += CHUNK) {
        double values[CHUNK];
        const int64_t n = ref->k - k < CHUNK ? ref->k - k : CHUNK;
        pgd_ref_weight_read(ref, row, k, n, values);
        for (int64_t i = 0; i < n; i++) {
            line[k + i] = (float)values[i];
        }
    }
    pgd_status code = PGD_OK;
    if (out->buffer == NULL) {
        memcpy((void *)(uintptr_t)out->offset, line, (size_t)ref->k * sizeof(*line));
    } else {
        code = pgd_dev_copy_tensor(d, q, out, (unsigned char *)line, 1);
    }
    pgd_status waited = pgd_dev_drain(d, q); // the line must live until it is copied
    pgd_mem_free(line);
    return code != PGD_OK ? code : waited;
}

void pgd_dev_host_weight(pgd_weight_table *out) {
    *out = (pgd_weight_table){
        .size = sizeof(*out),
        .plan = host_plan,
        .prepare = host_prepare,
        .adopt = host_adopt,
        .unpack = host_unpack,
        .destroy = host_destroy,
    };
}
