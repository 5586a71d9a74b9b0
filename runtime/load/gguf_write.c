// The writer of GGUF files (see gguf_write.h).
//
//   list     every tensor of the model: where it is stored, its new name, type, bytes and offset
//   header   front, values, infos, padding      in memory
//   data     rows -> f32 -> type, a piece of rows a time over the team, straight into the file
#include "load/gguf_write.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "load/fields.h"
#include "load/plan.h"
#include "load/synthetic.h"
#include "load/vector.h"
#include "os/file.h"
#include "os/folder.h"
#include "ref/ref.h"

#define ALIGN       32u
#define PIECE_BYTES (8u << 20) // of f32, made and written at a time

typedef struct new_tensor {
    const pgd_load_tensor *from; // NULL: the divisors of rope
    const pgd_load_gguf_type *type;
    char name[PGD_LOAD_GGUF_NAME];
    int64_t n; // rows, 1 for a vector
    int64_t k;
    int64_t heads; // rows of each head go from halves to pairs; 0 = they stay
    uint64_t bytes;
    uint64_t offset;
} new_tensor;

typedef struct writer {
    const pgd_load_gguf_write_desc *desc;
    pgd_load_config *config;
    pgd_load_weights *weights;
    const pgd_load_gguf *gguf; // NULL: a folder
    int32_t scheme;
    int32_t dtype; // of a plain type
    new_tensor *tensors;
    uint32_t n;
    uint32_t cap;
    uint64_t data_bytes;
    uint64_t done;
    pgd_text header;
    pgd_os_file file;
} writer;

pgd_status pgd_load_gguf_put(pgd_text *t, uint64_t v, uint32_t n_bytes) {
    char bytes[8];
    for (uint32_t i = 0; i < n_bytes; i++) {
        bytes[i] = (char)(uint8_t)(v >> (8 * i));
    }
    return pgd_text_add(t, bytes, n_bytes);
}

pgd_status pgd_load_gguf_put_str(pgd_text *t, pgd_str s) {
    PGD_TRY(pgd_load_gguf_put(t, s.len, 8));
    return pgd_text_add_str(t, s);
}

// ---- the list ----------------------------------------------------------------------------------

static pgd_status room_for_one(writer *w) {
    if (w->n < w->cap) {
        return PGD_OK;
    }
    uint32_t cap = w->cap != 0 ? 2 * w->cap : 64;
    new_tensor *more = pgd_mem_realloc(w->tensors, cap, sizeof(*more));
    if (more == NULL) {
        return PGD_MEM_FAIL("the list of tensors", (size_t)cap * sizeof(*more));
    }
    w->tensors = more;
    w->cap = cap;
    return PGD_OK;
}

static pgd_status add_tensor(writer *w, const pgd_load_tensor *from, const char *name, int64_t n,
                             int64_t k, int32_t is_head) {
    int32_t scheme = PGD_SCHEME_PLAIN;
    int32_t dtype = PGD_F32;
    PGD_TRY(room_for_one(w));
    if (from != NULL &&
        (from->scheme != PGD_SCHEME_PLAIN ||
         (from->dtype != PGD_F32 && from->dtype != PGD_F16 && from->dtype != PGD_BF16))) {
        return pgd_fail(PGD_INVALID,
                        "%s: tensor \"%.*s\" is stored as %s; only F32, F16 and BF16 are quantized",
                        from->file, PGD_LOAD_SHOW(from->name), from->stored);
    }
    if (from != NULL && from->rank == 2) {
        scheme =
            w->scheme == PGD_SCHEME_PLAIN ? w->scheme : pgd_load_scheme_for(w->scheme, k, is_head);
        dtype = w->scheme == PGD_SCHEME_PLAIN ? w->dtype : PGD_F16;
    }
    new_tensor *t = &w->tensors[w->n++];
    *t = (new_tensor){.from = from, .n = n, .k = k};
    (void)snprintf(t->name, sizeof(t->name), "%s", name);
    t->type = pgd_load_gguf_type_for(scheme, dtype);
    t->bytes = (uint64_t)n * pgd_ref_row_bytes(scheme, dtype, k);
    t->offset = w->data_bytes;
    w->data_bytes += (t->bytes + ALIGN - 1) / ALIGN * ALIGN;
    return PGD_OK;
}

// A tensor that a model of a folder has.
static pgd_status visit(void *arg, const char *name, int64_t n, int64_t k) {
    writer *w = arg;
    const pgd_load_config *c = w->config;
    const pgd_load_tensor *from = pgd_load_weights_find(w->weights, name);
    char own[PGD_LOAD_GGUF_NAME];
    if (from == NULL) {
        return pgd_fail(PGD_NOT_FOUND, "%s: no tensor \"%s\"", w->desc->from, name);
    }
    const int32_t rank = k != 0 ? 2 : 1;
    if (from->rank != (uint32_t)rank || from->shape[0] != n || (k != 0 && from->shape[1] != k)) {
        return pgd_fail(PGD_INVALID,
                        "%s: tensor \"%s\" has another shape than config.json asks for", from->file,
                        name);
    }
    pgd_load_gguf_name(name, own);
    const int32_t is_head =
        strcmp(own, "output.weight") == 0 || (c->tied && strcmp(own, "token_embd.weight") == 0);
    PGD_TRY(k != 0 ? add_tensor(w, from, own, n, k, is_head) : add_tensor(w, from, own, 1, n, 0));
    if (c->family == PGD_LOAD_LLAMA || c->family == PGD_LOAD_MISTRAL) {
        new_tensor *t = &w->tensors[w->n - 1];
        t->heads = strstr(own, ".attn_q.") != NULL   ? c->n_heads
                   : strstr(own, ".attn_k.") != NULL ? c->n_kv_heads
                                                     : 0;
        if (t->heads != 0 && k == 0) { // a bias: its numbers are the rows
            t->n = n;
            t->k = 1;
        }
    }
    return PGD_OK;
}

static pgd_status list_tensors(writer *w) {
    if (w->gguf == NULL) {
        PGD_TRY(pgd_load_plan_walk(w->config, visit, w));
        return w->config->rope.kind == PGD_ROPE_LLAMA3
                   ? add_tensor(w, NULL, "rope_freqs.weight", 1, w->config->rope.rot_dim / 2, 0)
                   : PGD_OK;
    }
    const int32_t tied = pgd_load_weights_find(w->weights, "lm_head.weight") == NULL;
    for (uint32_t i = 0; i < pgd_load_weights_count(w->weights); i++) {
        const pgd_load_tensor *t = pgd_load_weights_get(w->weights, i);
        const int32_t is_head = pgd_str_is(t->name, "output.weight") ||
                                (tied && pgd_str_is(t->name, "token_embd.weight"));
        if (t->rank > 2 || t->name.len >= PGD_LOAD_GGUF_NAME) {
            return pgd_fail(PGD_UNSUPPORTED, "%s: tensor \"%.*s\" has more than two dimensions",
                            t->file, PGD_LOAD_SHOW(t->name));
        }
        const int32_t rank = (int32_t)t->rank;
        PGD_TRY(add_tensor(w, t, t->name.ptr, rank == 2 ? t->shape[0] : 1, t->shape[rank - 1],
                           is_head));
    }
    return PGD_OK;
}

// ---- the header --------------------------------------------------------------------------------

// Values that speak of the old file's form.
static int32_t is_kept(pgd_str key) {
    return !pgd_str_starts(key, PGD_STR("split.")) && !pgd_str_is(key, "general.alignment") &&
           !pgd_str_is(key, "general.file_type") &&
           !pgd_str_is(key, "general.quantization_version");
}

static pgd_status copy_values(const pgd_load_gguf *g, pgd_load_gguf_values *out) {
    for (uint32_t i = 0; i < g->n_values; i++) {
        const pgd_load_gguf_value *v = &g->values[i];
        if (!is_kept(v->key)) {
            continue;
        }
        PGD_TRY(pgd_load_gguf_put_str(&out->bytes, v->key));
        if (v->is_array) {
            PGD_TRY(pgd_load_gguf_put(&out->bytes, PGD_GGUF_ARRAY, 4));
        }
        PGD_TRY(pgd_load_gguf_put(&out->bytes, v->type, 4));
        if (v->is_array) {
            PGD_TRY(pgd_load_gguf_put(&out->bytes, v->n, 8));
        }
        PGD_TRY(pgd_text_add(&out->bytes, (const char *)v->ptr, (size_t)v->bytes));
        out->n++;
    }
    return PGD_OK;
}

static pgd_status add_info(const new_tensor *t, pgd_text *to) {
    const int32_t rank = t->from != NULL && t->from->rank == 2 ? 2 : 1;
    PGD_TRY(pgd_load_gguf_put_str(to, pgd_str_of(t->name)));
    PGD_TRY(pgd_load_gguf_put(to, (uint64_t)rank, 4));
    PGD_TRY(pgd_load_gguf_put(to, (uint64_t)(rank == 2 ? t->k : t->n * t->k), 8));
    if (rank == 2) {
        PGD_TRY(pgd_load_gguf_put(to, (uint64_t)t->n, 8));
    }
    PGD_TRY(pgd_load_gguf_put(to, t->type->number, 4));
    return pgd_load_gguf_put(to, t->offset, 8);
}

static pgd_status make_header(writer *w) {
    static const char zeros[ALIGN] = {0};
    pgd_load_gguf_values values = {0};
    pgd_text *t = &w->header;
    pgd_status status = w->gguf != NULL
                            ? copy_values(w->gguf, &values)
                            : pgd_load_gguf_folder_values(w->desc->from, w->config, &values);
    if (status == PGD_OK && w->scheme != PGD_SCHEME_PLAIN) {
        status = pgd_load_gguf_put_str(&values.bytes, PGD_STR("general.quantization_version"));
        status = status == PGD_OK ? pgd_load_gguf_put(&values.bytes, PGD_GGUF_U32, 4) : status;
        status = status == PGD_OK ? pgd_load_gguf_put(&values.bytes, 2, 4) : status;
        values.n++;
    }
    const uint64_t front[][2] = {{0x46554747u, 4}, {3, 4}, {w->n, 8}, {values.n, 8}};
    for (size_t i = 0; status == PGD_OK && i < 4; i++) {
        status = pgd_load_gguf_put(t, front[i][0], (uint32_t)front[i][1]);
    }
    if (status == PGD_OK) {
        status = pgd_text_add_str(t, pgd_text_view(&values.bytes));
    }
    pgd_text_free(&values.bytes);
    for (uint32_t i = 0; status == PGD_OK && i < w->n; i++) {
        status = add_info(&w->tensors[i], t);
    }
    return status == PGD_OK ? pgd_text_add(t, zeros, (ALIGN - t->len % ALIGN) % ALIGN) : status;
}

// ---- data --------------------------------------------------------------------------------------

typedef struct job {
    const new_tensor *t;
    int64_t first; // rows [first, last) of the new tensor
    int64_t last;
    float *x; // [last - first, k]
    unsigned char *out;
    _Atomic int64_t next;
} job;

// Where row r of the new tensor lies in the stored one (gguf_model.h).
static int64_t stored_row(const new_tensor *t, int64_t r) {
    if (t->heads == 0) {
        return r;
    }
    const int64_t dim = t->n / t->heads, i = r % dim;
    return r - i + i % 2 * (dim / 2) + i / 2;
}

static void make_row(const job *j, int64_t r) {
    const new_tensor *t = j->t;
    const uint64_t stored = (uint64_t)t->k * pgd_dtype_bytes(t->from->dtype);
    const pgd_load_tensor row = {.ptr = (const unsigned char *)t->from->ptr +
                                        (uint64_t)stored_row(t, r) * stored,
                                 .bytes = stored,
                                 .dtype = t->from->dtype};
    float *x = j->x + (size_t)(r - j->first) * (size_t)t->k;
    unsigned char *out = j->out + (uint64_t)(r - j->first) *
                                      pgd_ref_row_bytes(t->type->scheme, t->type->dtype, t->k);
    pgd_load_vector_to_f32(&row, x);
    if (t->type->scheme != PGD_SCHEME_PLAIN) {
        pgd_ref_quantize(t->type->scheme, x, t->k, out);
        return;
    }
    for (int64_t i = 0; i < t->k; i++) {
        pgd_ref_store(t->type->dtype, out, i, (double)x[i]);
    }
}

static void work(void *arg, uint32_t worker, uint32_t n_workers) {
    job *j = arg;
    (void)worker;
    (void)n_workers;
    for (int64_t r = atomic_fetch_add(&j->next, 1); r < j->last;
         r = atomic_fetch_add(&j->next, 1)) {
        make_row(j, r);
    }
}

static pgd_status write_bytes(writer *w, const void *bytes, size_t n) {
    pgd_status status = pgd_os_write(w->file, bytes, n);
    return status == PGD_OK ? PGD_OK : pgd_fail(status, "%s: cannot be written", w->desc->to);
}

static pgd_status write_divisors(writer *w, const new_tensor *t) {
    const pgd_load_config *c = w->config;
    double inverse[PGD_LOAD_MAX_HEAD_DIM / 2];
    float out[PGD_LOAD_MAX_HEAD_DIM / 2];
    double factor = 0;
    PGD_TRY(pgd_load_rope_frequencies(c, c->max_position, inverse, &factor));
    for (int64_t i = 0; i < t->k; i++) {
        out[i] = (float)(pow(c->rope.theta, -2.0 * (double)i / c->rope.rot_dim) / inverse[i]);
    }
    return write_bytes(w, out, (size_t)t->k * sizeof(float));
}

static pgd_status write_tensor(writer *w, const new_tensor *t) {
    const uint64_t row = pgd_ref_row_bytes(t->type->scheme, t->type->dtype, t->k);
    int64_t rows = (int64_t)(PIECE_BYTES / ((uint64_t)t->k * sizeof(float)));
    rows = rows < 1 ? 1 : rows > t->n ? t->n : rows;
    float *x = pgd_mem_alloc((size_t)rows, (size_t)t->k * sizeof(float));
    unsigned char *out = pgd_mem_alloc((size_t)rows, (size_t)row);
    pgd_status status = x == NULL || out == NULL
                            ? PGD_MEM_FAIL("rows to be quantized", (size_t)rows * (size_t)row)
                            : PGD_OK;
    pgd_load_weights_take(w->weights, t->from->ptr);
    for (int64_t r = 0; status == PGD_OK && r < t->n; r += rows) {
        job j = {.t = t, .first = r, .last = r + rows, .x = x, .out = out, .next = r};
        j.last = j.last > t->n ? t->n : j.last;
        if (w->desc->team != NULL) {
            pgd_team_run(w->desc->team, work, &j);
        } else {
            work(&j, 0, 1);
        }
        status = write_bytes(w, out, (size_t)((uint64_t)(j.last - r) * row));
    }
    pgd_load_weights_give(w->weights, t->from->ptr, t->from->bytes);
    pgd_mem_free(x);
    pgd_mem_free(out);
    return status;
}

static pgd_status write_all(writer *w) {
    static const char zeros[ALIGN] = {0};
    PGD_TRY(write_bytes(w, w->header.ptr, w->header.len));
    for (uint32_t i = 0; i < w->n; i++) {
        const new_tensor *t = &w->tensors[i];
        PGD_TRY(t->from != NULL ? write_tensor(w, t) : write_divisors(w, t));
        PGD_TRY(write_bytes(w, zeros, (ALIGN - t->bytes % ALIGN) % ALIGN));
        w->done += (t->bytes + ALIGN - 1) / ALIGN * ALIGN;
        if (w->desc->progress != NULL && w->desc->progress->fn != NULL) {
            w->desc->progress->fn(w->desc->progress->arg, "quantizing", w->done, w->data_bytes);
        }
    }
    if (pgd_os_sync(w->file) != PGD_OK) {
        return pgd_fail(PGD_UNAVAILABLE, "%s: cannot be written to the disk", w->desc->to);
    }
    return PGD_OK;
}

// Writes beside the place and moves the file there when it is whole.
static pgd_status write_file(writer *w) {
    char part[4096];
    const int n = snprintf(part, sizeof(part), "%s.part", w->desc->to);
    if ((size_t)n >= sizeof(part)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "a path of %d bytes; at most %zu are allowed", n,
                        sizeof(part) - 1);
    }
    pgd_status status = pgd_os_open_write(part, 0, &w->file);
    if (status != PGD_OK) {
        return pgd_fail(status, "%s: cannot be made", part);
    }
    status = write_all(w);
    pgd_os_close(&w->file);
    if (status == PGD_OK && pgd_os_folder_move(part, w->desc->to) != PGD_OK) {
        status = pgd_fail(PGD_UNAVAILABLE, "%s: cannot be moved to %s", part, w->desc->to);
    }
    if (status != PGD_OK) {
        (void)!pgd_os_folder_remove(part);
    }
    return status;
}

// ---- all ---------------------------------------------------------------------------------------

static pgd_status read_type(const char *text, writer *w) {
    static const int32_t known[] = {PGD_F32, PGD_F16, PGD_BF16};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(text, pgd_dtype_name(known[i])) == 0) {
            w->dtype = known[i];
            return PGD_OK;
        }
    }
    w->scheme = pgd_load_scheme_of(text);
    if (pgd_scheme_elements(w->scheme) == 0) {
        return pgd_fail(PGD_INVALID,
                        "type is \"%s\"; f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, "
                        "q4_k, q5_k, q6_k, iq4_nl and mxfp4 are allowed",
                        text);
    }
    return PGD_OK;
}

static pgd_status write_model(writer *w) {
    const char *from = w->desc->from;
    PGD_TRY(read_type(w->desc->type, w));
    if (!pgd_load_gguf_is(w->desc->to) || pgd_load_synthetic_is(from)) {
        return pgd_fail(PGD_INVALID,
                        "\"%s\" to \"%s\": a model in files is written to a path that ends in "
                        ".gguf",
                        from, w->desc->to);
    }
    PGD_TRY(pgd_load_config_read(from, &w->config));
    PGD_TRY(pgd_load_weights_open(from, &w->weights));
    w->gguf = pgd_load_weights_gguf(w->weights);
    PGD_TRY(list_tensors(w));
    PGD_TRY(make_header(w));
    return write_file(w);
}

pgd_status pgd_load_gguf_write(const pgd_load_gguf_write_desc *desc) {
    writer w = {.desc = desc};
    pgd_status status = write_model(&w);
    pgd_text_free(&w.header);
    pgd_mem_free(w.tensors);
    pgd_load_weights_close(w.weights);
    pgd_load_config_free(w.config);
    return status;
}
