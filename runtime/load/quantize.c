// Matrices quantized while they are loaded (see plan.h).
//
//   plan      each matrix's scheme and bytes are changed; its parts point into a reservation
//   take      rows of the stored part -> f32 -> blocks, a row a time over the team; then the stored
//             pages are given back
//   give      the blocks' pages are given back
//
// So what is in memory at once is what the device has and one matrix.
#include <stdatomic.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "load/plan_inner.h"
#include "load/vector.h"
#include "os/memory.h"
#include "ref/ref.h"

#define ROWS 16 // a worker takes at a time

// A part as it is stored.
typedef struct stored_part {
    const unsigned char *ptr;
    uint64_t bytes;
    int32_t dtype;
    int32_t reserved0;
} stored_part;

typedef struct made_matrix {
    int32_t is_made;
    uint32_t n_parts;
    stored_part parts[3];
} made_matrix;

struct pgd_load_quantized {
    pgd_team *team; // NULL: the caller alone
    unsigned char *room;
    uint64_t room_bytes;
    made_matrix *matrices; // [n_matrices]
};

// ---- planning ----------------------------------------------------------------------------------

int32_t pgd_load_scheme_of(const char *name) {
#define SCHEME_ROW(label, number, elements, bytes, text) {text, number},
    static const struct {
        const char *name;
        int32_t scheme;
    } rows[] = {PGD_SCHEME_LIST(SCHEME_ROW)};
#undef SCHEME_ROW
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(name, rows[i].name) == 0) {
            return rows[i].scheme;
        }
    }
    return strcmp(name, "int8") == 0 ? PGD_SCHEME_INT8 : PGD_SCHEME_PLAIN;
}

// The head chooses among all tokens: with less than 6 bits it gets 6. Rows that hold no whole
// blocks get blocks of 32, or stay as they are.
int32_t pgd_load_scheme_for(int32_t scheme, int64_t k, int32_t is_head) {
    const uint32_t elements = pgd_scheme_elements(scheme);
    if (scheme == PGD_SCHEME_INT8) {
        return scheme;
    }
    if (is_head && pgd_scheme_bytes(scheme) * 8 < 6 * elements) {
        return pgd_load_scheme_for(PGD_SCHEME_Q6_K, k, 0);
    }
    if (elements != 0 && k % elements == 0) {
        return scheme;
    }
    return k % 32 == 0 ? PGD_SCHEME_Q8_0 : PGD_SCHEME_PLAIN;
}

static uint64_t align_up(uint64_t n, uint64_t align) {
    return (n + align - 1) / align * align;
}

// Changes one matrix; *io_at: bytes of the reservation so far.
static void change(pgd_load_plan *plan, uint32_t i, int32_t scheme, uint64_t *io_at) {
    pgd_load_matrix *m = &plan->matrices[i];
    made_matrix *made = &plan->inner->quantized->matrices[i];
    made->is_made = 1;
    made->n_parts = m->n_parts;
    m->bytes = 0;
    for (uint32_t k = 0; k < m->n_parts; k++) {
        pgd_weight_part *p = &m->parts[k];
        made->parts[k] = (stored_part){p->data.ptr, p->data.bytes, m->dtype, 0};
        const uint64_t bytes = (uint64_t)p->rows * pgd_ref_row_bytes(scheme, 0, p->cols);
        const uint64_t scales = scheme == PGD_SCHEME_INT8 ? (uint64_t)p->rows * sizeof(float) : 0;
        p->data = (pgd_source){.offset = *io_at, .bytes = bytes};
        p->scales = (pgd_source){.offset = *io_at + align_up(bytes, 64), .bytes = scales};
        *io_at = align_up(p->scales.offset + scales, pgd_os_memory_page());
        m->bytes += bytes + scales;
    }
    m->scheme = scheme;
    m->dtype = PGD_DTYPE_NONE;
}

// Offsets of the reservation become addresses.
static void place(pgd_load_plan *plan) {
    struct pgd_load_quantized *q = plan->inner->quantized;
    for (uint32_t i = 0; i < plan->n_matrices; i++) {
        for (uint32_t k = 0; k < plan->matrices[i].n_parts && q->matrices[i].is_made; k++) {
            pgd_weight_part *p = &plan->matrices[i].parts[k];
            p->data = (pgd_source){.ptr = q->room + p->data.offset, .bytes = p->data.bytes};
            p->scales = p->scales.bytes == 0 ? (pgd_source){0}
                                             : (pgd_source){.ptr = q->room + p->scales.offset,
                                                            .bytes = p->scales.bytes};
        }
    }
}

pgd_status pgd_load_plan_quantize(pgd_load_plan *plan, int32_t scheme, pgd_team *team) {
    struct pgd_load_quantized *q = pgd_mem_alloc(1, sizeof(*q));
    void *room = NULL;
    if (q == NULL) {
        return PGD_MEM_FAIL("the quantized weights", sizeof(*q));
    }
    plan->inner->quantized = q;
    q->team = team;
    q->matrices = pgd_mem_alloc(plan->n_matrices, sizeof(*q->matrices));
    if (q->matrices == NULL) {
        return PGD_MEM_FAIL("the quantized weights", plan->n_matrices * sizeof(*q->matrices));
    }
    for (uint32_t i = 0; i < plan->n_matrices; i++) {
        const pgd_load_matrix *m = &plan->matrices[i];
        const int32_t is_head = m->layer < 0 && (m->uses & PGD_USE_GEMM) != 0;
        if (m->scheme != PGD_SCHEME_PLAIN) {
            return pgd_fail(PGD_INVALID,
                            "%s is stored as %s; only weights of f32, bf16 and f16 are quantized",
                            m->name, pgd_load_matrix_stored(m));
        }
        const int32_t own = pgd_load_scheme_for(scheme, m->k, is_head);
        if (own != PGD_SCHEME_PLAIN) {
            plan->weight_bytes -= m->bytes;
            change(plan, i, own, &q->room_bytes);
            plan->weight_bytes += m->bytes;
        }
    }
    if (pgd_os_memory_reserve(q->room_bytes, &room) != PGD_OK) {
        return PGD_MEM_FAIL("the address room of quantized weights", q->room_bytes);
    }
    q->room = room;
    place(plan);
    return PGD_OK;
}

void pgd_load_quantized_free(struct pgd_load_quantized *q) {
    if (q != NULL) {
        pgd_os_memory_release(q->room, q->room_bytes);
        pgd_mem_free(q->matrices);
        pgd_mem_free(q);
    }
}

// ---- making ------------------------------------------------------------------------------------

typedef struct job {
    const stored_part *from;
    const pgd_weight_part *to;
    int32_t scheme;
    int32_t reserved0;
    float *rows; // [workers, cols]
    _Atomic int64_t next;
} job;

static void make_row(const job *j, int64_t r, float *x) {
    const pgd_weight_part *p = j->to;
    const uint64_t stored = (uint64_t)p->cols * pgd_dtype_bytes(j->from->dtype);
    const pgd_load_tensor row = {
        .ptr = j->from->ptr + (uint64_t)r * stored, .bytes = stored, .dtype = j->from->dtype};
    unsigned char *out = (unsigned char *)(uintptr_t)p->data.ptr +
                         (uint64_t)r * pgd_ref_row_bytes(j->scheme, 0, p->cols);
    pgd_load_vector_to_f32(&row, x);
    if (j->scheme == PGD_SCHEME_INT8) {
        ((float *)(uintptr_t)p->scales.ptr)[r] = pgd_ref_quantize_int8(x, p->cols, (int8_t *)out);
    } else {
        pgd_ref_quantize(j->scheme, x, p->cols, out);
    }
}

static void work(void *arg, uint32_t worker, uint32_t n_workers) {
    job *j = arg;
    float *x = j->rows + (size_t)worker * (size_t)j->to->cols;
    (void)n_workers;
    for (;;) {
        const int64_t from = atomic_fetch_add(&j->next, ROWS);
        for (int64_t r = from; r < from + ROWS && r < j->to->rows; r++) {
            make_row(j, r, x);
        }
        if (from + ROWS >= j->to->rows) {
            return;
        }
    }
}

pgd_status pgd_load_quantized_take(const pgd_load_plan *plan, const pgd_load_matrix *matrix,
                                   int32_t *out_made) {
    const struct pgd_load_quantized *q = plan->inner->quantized;
    const made_matrix *made = q != NULL ? &q->matrices[matrix - plan->matrices] : NULL;
    *out_made = made != NULL && made->is_made;
    if (!*out_made) {
        return PGD_OK;
    }
    const uint32_t n_workers = q->team != NULL ? pgd_team_size(q->team) : 1;
    float *rows = pgd_mem_alloc(n_workers, (size_t)matrix->k * sizeof(float));
    if (rows == NULL) {
        return PGD_MEM_FAIL("rows to be quantized", (size_t)matrix->k * sizeof(float));
    }
    for (uint32_t i = 0; i < made->n_parts; i++) {
        job j = {.from = &made->parts[i],
                 .to = &matrix->parts[i],
                 .scheme = matrix->scheme,
                 .rows = rows};
        pgd_load_weights_take(plan->inner->weights, j.from->ptr);
        if (q->team != NULL) {
            pgd_team_run(q->team, work, &j);
        } else {
            work(&j, 0, 1);
        }
        pgd_load_weights_give(plan->inner->weights, j.from->ptr, j.from->bytes);
    }
    pgd_mem_free(rows);
    return PGD_OK;
}

int32_t pgd_load_quantized_give(const pgd_load_plan *plan, const pgd_load_matrix *matrix) {
    const struct pgd_load_quantized *q = plan->inner->quantized;
    if (q == NULL || !q->matrices[matrix - plan->matrices].is_made) {
        return 0;
    }
    for (uint32_t i = 0; i < matrix->n_parts; i++) {
        const pgd_weight_part *p = &matrix->parts[i];
        const unsigned char *from = p->data.ptr;
        const unsigned char *end = p->scales.ptr != NULL
                                       ? (const unsigned char *)p->scales.ptr + p->scales.bytes
                                       : from + p->data.bytes;
        pgd_os_memory_drop(from, align_up((uint64_t)(end - from), pgd_os_memory_page()));
    }
    return 1;
}
