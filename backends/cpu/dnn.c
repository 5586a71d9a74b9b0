// oneDNN, by the C interface of its second major version, opened when first asked for.
//
// Its descriptors are structs of the caller's; only their sizes matter here, as its own functions
// fill them. Source: the reference of oneDNN 2.6 (memory descriptors, matmul, reorder).
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "library.h"

// Larger than dnnl_memory_desc_t (696 bytes) and dnnl_matmul_desc_t (2,800) of versions 2.0 to 2.7.
typedef struct dnn_memory_desc {
    uint64_t room[128];
} dnn_memory_desc;
typedef struct dnn_matmul_desc {
    uint64_t room[512];
} dnn_matmul_desc;

typedef struct dnn_version {
    int major;
    int minor;
    int patch;
    const char *hash;
    unsigned cpu_runtime;
    unsigned gpu_runtime;
} dnn_version;

typedef struct dnn_arg {
    int number;
    void *memory;
} dnn_arg;

enum { DNN_BF16 = 2, DNN_F32 = 3, DNN_S32 = 4, DNN_S8 = 5 };
enum { DNN_TAG_ANY = 1, DNN_TAG_AB = 3, DNN_TAG_BA = 22 };
enum { DNN_SRC = 1, DNN_DST = 17, DNN_WEIGHTS = 33 };
enum { DNN_CPU = 1, DNN_IN_ORDER = 1, DNN_QUERY_WEIGHTS = 131 };

// X(type of the result, name behind dnnl_, arguments)
#define DNN_LIST(X)                                                                            \
    X(const dnn_version *, version, (void))                                                    \
    X(int, engine_create, (void **out, int kind, size_t index))                                \
    X(int, engine_destroy, (void *engine))                                                     \
    X(int, stream_create, (void **out, void *engine, unsigned flags))                          \
    X(int, stream_destroy, (void *stream))                                                     \
    X(int, stream_wait, (void *stream))                                                        \
    X(int, memory_desc_init_by_tag,                                                            \
      (dnn_memory_desc * out, int n_dims, const int64_t *dims, int type, int tag))             \
    X(size_t, memory_desc_get_size, (const dnn_memory_desc *md))                               \
    X(int, memory_create, (void **out, const dnn_memory_desc *md, void *engine, void *ptr))    \
    X(int, memory_destroy, (void *memory))                                                     \
    X(int, matmul_desc_init,                                                                   \
      (dnn_matmul_desc * out, const dnn_memory_desc *src, const dnn_memory_desc *weights,      \
       const dnn_memory_desc *bias, const dnn_memory_desc *dst))                               \
    X(int, primitive_desc_create,                                                              \
      (void **out, const void *op, const void *attr, void *engine, const void *hint))          \
    X(int, primitive_desc_destroy, (void *pd))                                                 \
    X(const dnn_memory_desc *, primitive_desc_query_md, (const void *pd, int what, int index)) \
    X(int, reorder_primitive_desc_create,                                                      \
      (void **out, const dnn_memory_desc *src, void *src_engine, const dnn_memory_desc *dst,   \
       void *dst_engine, const void *attr))                                                    \
    X(int, primitive_create, (void **out, const void *pd))                                     \
    X(int, primitive_destroy, (void *primitive))                                               \
    X(int, primitive_execute,                                                                  \
      (const void *primitive, void *stream, int n_args, const dnn_arg *args))

typedef struct dnn_library {
#define DNN_SLOT(result, name, args) result(*name) args;
    DNN_LIST(DNN_SLOT)
#undef DNN_SLOT
    void (*set_threads)(int);
    int (*max_threads)(void);
} dnn_library;

enum {
#define DNN_NUMBER(result, name, args) DNN_##name,
    DNN_LIST(DNN_NUMBER)
#undef DNN_NUMBER
        DNN_OWN,
    DNN_ALL = DNN_OWN + 2
};

_Static_assert(sizeof(dnn_library) == DNN_ALL * sizeof(void *), "one pointer a function");

struct cpu_dnn_part {
    void *engine;
    void *stream;
    void *primitive;
    void *src;
    void *dst;
    void **weights; // [n_weights]
    void **rooms;   // [n_weights]
    uint32_t n_weights;
};

static dnn_library dnn;
static pgd_yardstick_info dnn_info;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int type_of(int32_t limit) {
    return limit == PGD_LIMIT_DOT_F32 ? DNN_F32 : (limit == PGD_LIMIT_DOT_BF16 ? DNN_BF16 : DNN_S8);
}

// The descriptor of a product whose weights may lie as the library likes; NULL if it has none.
static void *describe(void *engine, int32_t limit, int64_t m, int64_t n, int64_t k) {
    const int type = type_of(limit);
    const int64_t src_dims[2] = {m, k};
    const int64_t weight_dims[2] = {k, n};
    const int64_t dst_dims[2] = {m, n};
    const int result = type == DNN_S8 ? DNN_S32 : DNN_F32;
    dnn_memory_desc src;
    dnn_memory_desc weights;
    dnn_memory_desc dst;
    dnn_matmul_desc op;
    void *pd = NULL;
    if (dnn.memory_desc_init_by_tag(&src, 2, src_dims, type, DNN_TAG_AB) != 0 ||
        dnn.memory_desc_init_by_tag(&weights, 2, weight_dims, type, DNN_TAG_ANY) != 0 ||
        dnn.memory_desc_init_by_tag(&dst, 2, dst_dims, result, DNN_TAG_AB) != 0 ||
        dnn.matmul_desc_init(&op, &src, &weights, NULL, &dst) != 0 ||
        dnn.primitive_desc_create(&pd, &op, NULL, engine, NULL) != 0) {
        return NULL;
    }
    return pd;
}

static void find_types(void) {
    void *engine = NULL;
    if (dnn.engine_create(&engine, DNN_CPU, 0) != 0) {
        snprintf(dnn_info.reason, sizeof(dnn_info.reason), "oneDNN has no engine for processors");
        return;
    }
    for (int32_t limit = PGD_LIMIT_DOT_F32; limit < PGD_LIMIT_COUNT; limit++) {
        void *pd = describe(engine, limit, 16, 64, 64);
        if (pd != NULL) {
            dnn_info.limits |= 1u << limit;
            (void)dnn.primitive_desc_destroy(pd);
        }
    }
    (void)dnn.engine_destroy(engine);
}

static void open_dnn(void) {
    static const char *const names[] = {"libdnnl.so.2"};
    static const char *const symbols[DNN_ALL] = {
#define DNN_NAME(result, name, args) "dnnl_" #name,
        DNN_LIST(DNN_NAME)
#undef DNN_NAME
            "omp_set_num_threads",
        "omp_get_max_threads"};
    void *found[DNN_ALL] = {NULL};
    snprintf(dnn_info.name, sizeof(dnn_info.name), "oneDNN");
    if (!cpu_library_open(names, 1, symbols, found, DNN_ALL, dnn_info.reason,
                          sizeof(dnn_info.reason))) {
        return;
    }
    memcpy(&dnn, found, sizeof(dnn));
    const dnn_version *v = dnn.version();
    snprintf(dnn_info.version, sizeof(dnn_info.version), "%d.%d.%d", v->major, v->minor, v->patch);
    if (v->major != 2) {
        snprintf(dnn_info.reason, sizeof(dnn_info.reason), "version 2 is needed, this is %.20s",
                 dnn_info.version);
        return;
    }
    find_types();
}

void cpu_dnn_info(pgd_yardstick_info *out) {
    (void)pthread_once(&once, open_dnn);
    *out = dnn_info;
}

// ---- a product ---------------------------------------------------------------------------------

// Brings a plain weight into the layout the product wants.
static bool pack(const pgd_device *d, cpu_dnn_part *p, const dnn_memory_desc *plain_md, void *plain,
                 const dnn_memory_desc *md, void *reorder, uint32_t which) {
    void *from = NULL;
    p->rooms[which] = d->host->alloc(d->host, dnn.memory_desc_get_size(md), CPU_ALIGN);
    if (p->rooms[which] == NULL ||
        dnn.memory_create(&p->weights[which], md, p->engine, p->rooms[which]) != 0 ||
        dnn.memory_create(&from, plain_md, p->engine, plain) != 0) {
        return false;
    }
    const dnn_arg args[2] = {{DNN_SRC, from}, {DNN_DST, p->weights[which]}};
    const bool done =
        dnn.primitive_execute(reorder, p->stream, 2, args) == 0 && dnn.stream_wait(p->stream) == 0;
    (void)dnn.memory_destroy(from);
    return done;
}

static bool pack_all(const pgd_device *d, cpu_dnn_part *p, int type, const dnn_memory_desc *md,
                     int64_t n, int64_t k) {
    const int64_t dims[2] = {k, n};
    const uint64_t bytes = (uint64_t)n * (uint64_t)k * 4;
    dnn_memory_desc plain_md;
    void *pd = NULL;
    void *reorder = NULL;
    void *plain = d->host->alloc(d->host, bytes, CPU_ALIGN);
    bool done =
        plain != NULL && dnn.memory_desc_init_by_tag(&plain_md, 2, dims, type, DNN_TAG_BA) == 0 &&
        dnn.reorder_primitive_desc_create(&pd, &plain_md, p->engine, md, p->engine, NULL) == 0 &&
        dnn.primitive_create(&reorder, pd) == 0;
    if (done) {
        memset(plain, 0x3C, bytes); // 0.0115 as f32 and bf16, 60 as a byte
    }
    for (uint32_t i = 0; done && i < p->n_weights; i++) {
        done = pack(d, p, &plain_md, plain, md, reorder, i);
    }
    if (reorder != NULL) {
        (void)dnn.primitive_destroy(reorder);
    }
    if (pd != NULL) {
        (void)dnn.primitive_desc_destroy(pd);
    }
    d->host->free(d->host, plain);
    return done;
}

static bool make(const pgd_device *d, cpu_dnn_part *p, const pgd_yardstick_desc *desc, int64_t n,
                 void *x, void *y) {
    const int type = type_of(desc->limit);
    const int64_t src_dims[2] = {desc->m, desc->k};
    const int64_t dst_dims[2] = {desc->m, n};
    dnn_memory_desc src;
    dnn_memory_desc dst;
    if (dnn.engine_create(&p->engine, DNN_CPU, 0) != 0 ||
        dnn.stream_create(&p->stream, p->engine, DNN_IN_ORDER) != 0) {
        return false;
    }
    void *pd = describe(p->engine, desc->limit, desc->m, n, desc->k);
    if (pd == NULL) {
        return false;
    }
    const dnn_memory_desc *md = dnn.primitive_desc_query_md(pd, DNN_QUERY_WEIGHTS, 0);
    const bool done = md != NULL && pack_all(d, p, type, md, n, desc->k) &&
                      dnn.memory_desc_init_by_tag(&src, 2, src_dims, type, DNN_TAG_AB) == 0 &&
                      dnn.memory_desc_init_by_tag(
                          &dst, 2, dst_dims, type == DNN_S8 ? DNN_S32 : DNN_F32, DNN_TAG_AB) == 0 &&
                      dnn.memory_create(&p->src, &src, p->engine, x) == 0 &&
                      dnn.memory_create(&p->dst, &dst, p->engine, y) == 0 &&
                      dnn.primitive_create(&p->primitive, pd) == 0;
    (void)dnn.primitive_desc_destroy(pd);
    return done;
}

pgd_status cpu_dnn_create(const pgd_device *d, const pgd_yardstick_desc *desc, int64_t n, void *x,
                          void *y, cpu_dnn_part **out) {
    cpu_dnn_part *p = d->host->alloc(d->host, sizeof(*p), 0);
    *out = p;
    if (p == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a yardstick");
    }
    p->n_weights = desc->n_weights;
    p->weights = d->host->alloc(d->host, p->n_weights * sizeof(*p->weights), 0);
    p->rooms = d->host->alloc(d->host, p->n_weights * sizeof(*p->rooms), 0);
    if (p->weights == NULL || p->rooms == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a yardstick");
    }
    if (!make(d, p, desc, n, x, y)) {
        return CPU_FAIL(d, PGD_UNAVAILABLE, "oneDNN refuses a product of %lld x %lld x %lld",
                        (long long)desc->m, (long long)n, (long long)desc->k);
    }
    return PGD_OK;
}

int cpu_dnn_run(const cpu_dnn_part *p, uint32_t which) {
    const dnn_arg args[3] = {
        {DNN_SRC, p->src}, {DNN_WEIGHTS, p->weights[which]}, {DNN_DST, p->dst}};
    const int threads = dnn.max_threads();
    dnn.set_threads(1);
    int code = dnn.primitive_execute(p->primitive, p->stream, 3, args);
    code = code == 0 ? dnn.stream_wait(p->stream) : code;
    dnn.set_threads(threads);
    return code;
}

void cpu_dnn_destroy(const pgd_device *d, cpu_dnn_part *p) {
    if (p == NULL) {
        return;
    }
    void *const memories[2] = {p->src, p->dst};
    for (uint32_t i = 0; i < 2; i++) {
        if (memories[i] != NULL) {
            (void)dnn.memory_destroy(memories[i]);
        }
    }
    for (uint32_t i = 0; i < p->n_weights; i++) {
        if (p->weights != NULL && p->weights[i] != NULL) {
            (void)dnn.memory_destroy(p->weights[i]);
        }
        if (p->rooms != NULL) {
            d->host->free(d->host, p->rooms[i]);
        }
    }
    if (p->primitive != NULL) {
        (void)dnn.primitive_destroy(p->primitive);
    }
    if (p->stream != NULL) {
        (void)dnn.stream_destroy(p->stream);
    }
    if (p->engine != NULL) {
        (void)dnn.engine_destroy(p->engine);
    }
    d->host->free(d->host, p->weights);
    d->host->free(d->host, p->rooms);
    d->host->free(d->host, p);
}
