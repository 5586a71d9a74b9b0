// Extension "x.yardsticks.1": products by OpenBLAS and oneDNN, a slice of columns a worker.
#include <stdio.h>
#include <string.h>

#include "library.h"

enum { BLAS = 0, DNN = 1, N_LIBRARIES = 2, SLICE = 64, MOST_WEIGHTS = 4096 };

// Columns [first, first + n) of y.
typedef struct slice {
    int64_t first;
    int64_t n;
    void *y;           // of the slice alone, for oneDNN
    cpu_dnn_part *dnn; // NULL: OpenBLAS
} slice;

struct pgd_yardstick {
    pgd_yardstick_desc desc;
    uint32_t library;
    uint32_t n_slices; // workers
    slice *slices;
    void *x;
    float *y;        // [m, n], for OpenBLAS
    float **weights; // [n_weights] of [n, k], for OpenBLAS
    uint32_t which;
    _Atomic int code; // of a run, 0 = done
};

static pgd_status info(const pgd_device *d, uint32_t i, pgd_yardstick_info *out) {
    pgd_yardstick_info local = {.limits = 1u << PGD_LIMIT_DOT_F32};
    if (i >= N_LIBRARIES) {
        return CPU_FAIL(d, PGD_NOT_FOUND, "there is no yardstick %u", (unsigned)i);
    }
    if (i == DNN) {
        cpu_dnn_info(&local);
    } else {
        const cpu_blas *blas = cpu_blas_get();
        snprintf(local.name, sizeof(local.name), "OpenBLAS");
        memcpy(local.version, blas->version, sizeof(local.version));
        memcpy(local.reason, blas->reason, sizeof(local.reason));
    }
    local.size = sizeof(local);
    PGD_OUT(out, local);
    return PGD_OK;
}

// ---- making ------------------------------------------------------------------------------------

static void destroy(const pgd_device *d, pgd_yardstick *y) {
    const pgd_host *h = d->host;
    if (y == NULL) {
        return;
    }
    for (uint32_t i = 0; y->slices != NULL && i < y->n_slices; i++) {
        cpu_dnn_destroy(d, y->slices[i].dnn);
        h->free(h, y->slices[i].y);
    }
    for (uint32_t i = 0; y->weights != NULL && i < y->desc.n_weights; i++) {
        h->free(h, y->weights[i]);
    }
    h->free(h, y->weights);
    h->free(h, y->slices);
    h->free(h, y->x);
    h->free(h, y->y);
    h->free(h, y);
}

static void *filled(const pgd_host *h, uint64_t bytes) {
    void *ptr = h->alloc(h, bytes, CPU_ALIGN);
    if (ptr != NULL) {
        memset(ptr, 0x3C, bytes); // 0.0115 as f32 and bf16, 60 as a byte
    }
    return ptr;
}

static pgd_status make_blas(const pgd_device *d, pgd_yardstick *y) {
    const pgd_host *h = d->host;
    const uint64_t bytes = (uint64_t)y->desc.n * (uint64_t)y->desc.k * sizeof(float);
    y->y = h->alloc(h, (uint64_t)y->desc.m * (uint64_t)y->desc.n * sizeof(float), CPU_ALIGN);
    y->weights = h->alloc(h, y->desc.n_weights * sizeof(*y->weights), 0);
    bool done = y->y != NULL && y->weights != NULL;
    for (uint32_t i = 0; done && i < y->desc.n_weights; i++) {
        y->weights[i] = filled(h, bytes);
        done = y->weights[i] != NULL;
    }
    return done ? PGD_OK : CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a yardstick");
}

static pgd_status make_dnn(const pgd_device *d, pgd_yardstick *y) {
    const pgd_host *h = d->host;
    for (uint32_t i = 0; i < y->n_slices; i++) {
        slice *s = &y->slices[i];
        if (s->n == 0) {
            continue;
        }
        s->y = h->alloc(h, (uint64_t)y->desc.m * (uint64_t)s->n * sizeof(float), CPU_ALIGN);
        if (s->y == NULL) {
            return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a yardstick");
        }
        PGD_TRY(cpu_dnn_create(d, &y->desc, s->n, y->x, s->y, &s->dnn));
    }
    return PGD_OK;
}

static pgd_status make(const pgd_device *d, pgd_yardstick *y) {
    const pgd_host *h = d->host;
    const int64_t blocks = (y->desc.n + SLICE - 1) / SLICE;
    y->n_slices = h->team_size(h);
    y->slices = h->alloc(h, y->n_slices * sizeof(*y->slices), 0);
    y->x = filled(h, (uint64_t)y->desc.m * (uint64_t)y->desc.k * sizeof(float));
    if (y->slices == NULL || y->x == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a yardstick");
    }
    for (uint32_t i = 0; i < y->n_slices; i++) {
        const int64_t first = cpu_min(blocks * i / y->n_slices * SLICE, y->desc.n);
        const int64_t end = cpu_min(blocks * (i + 1) / y->n_slices * SLICE, y->desc.n);
        y->slices[i] = (slice){.first = first, .n = end - first};
    }
    return y->library == BLAS ? make_blas(d, y) : make_dnn(d, y);
}

static bool fits(const pgd_yardstick_desc *a) {
    const int64_t most = 1 << 24;
    return a->m > 0 && a->n > 0 && a->k > 0 && a->m < most && a->n < most && a->k < most &&
           a->n_weights > 0 && a->n_weights <= MOST_WEIGHTS;
}

static pgd_status create(const pgd_device *d, uint32_t i, const pgd_yardstick_desc *desc,
                         pgd_yardstick **out) {
    pgd_yardstick_desc local;
    const pgd_yardstick_desc *a = PGD_ARGS(pgd_yardstick_desc, local, desc);
    pgd_yardstick_info about = {.size = sizeof(about)};
    *out = NULL;
    CPU_TAIL(d, pgd_yardstick_desc, desc);
    PGD_TRY(info(d, i, &about));
    if (!fits(a)) {
        return CPU_FAIL(d, PGD_INVALID, "a yardstick of %lld x %lld x %lld and %u weights",
                        (long long)a->m, (long long)a->n, (long long)a->k, (unsigned)a->n_weights);
    }
    if (about.reason[0] != '\0' || a->limit < 0 || a->limit >= PGD_LIMIT_COUNT ||
        (about.limits >> a->limit & 1u) == 0) {
        return CPU_FAIL(d, PGD_UNAVAILABLE, "%s: %s", about.name,
                        about.reason[0] != '\0' ? about.reason : "it has no such product");
    }
    pgd_yardstick *y = d->host->alloc(d->host, sizeof(*y), CPU_ALIGN);
    if (y == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a yardstick");
    }
    y->desc = *a;
    y->library = i;
    pgd_status code = make(d, y);
    if (code != PGD_OK) {
        destroy(d, y);
        return code;
    }
    *out = y;
    return PGD_OK;
}

// ---- running -----------------------------------------------------------------------------------

static void run_slice(void *arg, uint32_t worker, uint32_t n_workers) {
    pgd_yardstick *y = arg;
    const pgd_yardstick_desc *a = &y->desc;
    (void)n_workers;
    if (worker >= y->n_slices || y->slices[worker].n == 0) {
        return;
    }
    const slice *s = &y->slices[worker];
    if (y->library == DNN) {
        const int code = cpu_dnn_run(s->dnn, y->which);
        if (code != 0) {
            atomic_store(&y->code, code);
        }
        return;
    }
    cpu_blas_get()->sgemm(CPU_BLAS_ROW_MAJOR, CPU_BLAS_PLAIN, CPU_BLAS_TRANSPOSED, (int)a->m,
                          (int)s->n, (int)a->k, 1.0f, y->x, (int)a->k,
                          y->weights[y->which] + s->first * a->k, (int)a->k, 0.0f, y->y + s->first,
                          (int)a->n);
}

static pgd_status run(const pgd_device *d, pgd_yardstick *y, uint32_t which) {
    if (which >= y->desc.n_weights) {
        return CPU_FAIL(d, PGD_OUT_OF_RANGE, "weight %u of %u", (unsigned)which,
                        (unsigned)y->desc.n_weights);
    }
    y->which = which;
    atomic_store(&y->code, 0);
    d->host->team_run(d->host, run_slice, y);
    const int code = atomic_load(&y->code);
    return code == 0 ? PGD_OK : CPU_FAIL(d, PGD_INTERNAL, "oneDNN answered %d", code);
}

const pgd_yardsticks cpu_yardsticks_table = {
    .size = sizeof(pgd_yardsticks),
    .n = N_LIBRARIES,
    .info = info,
    .create = create,
    .run = run,
    .destroy = destroy,
};
