// See blaslt.h.
#include "blaslt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { SHAPES = 32 }; // that a queue keeps, the oldest goes

enum { LAYOUT_W, LAYOUT_X, LAYOUT_ADD, LAYOUT_Y, LAYOUTS };

// What a product has to have in common with another for the same answer.
typedef struct shape {
    int64_t m;
    int64_t n;
    int64_t k;
    int64_t strides[LAYOUTS];
    int32_t in;
    int32_t out;
    uint64_t scratch_bytes;
} shape;

typedef struct plan {
    shape what; // m 0: not in use
    void *desc;
    void *layouts[LAYOUTS];
    bool is_taken;
    _Alignas(16) unsigned char result[GPU_BLASLT_RESULT_BYTES];
} plan;

struct gpu_blaslt {
    const gpu_blaslt_library *library;
    void *handle;
    uint32_t next;
    plan plans[SHAPES];
};

static bool is_wanted(const pgd_host *host) {
    const char *text = host->option == NULL ? NULL : host->option(host, "deterministic");
    return text != NULL &&
           (strcmp(text, "off") == 0 || strcmp(text, "false") == 0 || strcmp(text, "0") == 0);
}

void gpu_blaslt_load(const pgd_host *host, const gpu_blaslt_vendor *v, gpu_blaslt_library *out) {
    static const char *const names[] = {
#define NAME(slot, name, params) name,
        GPU_BLASLT_CALLS(NAME)
#undef NAME
    };
    void (*calls[sizeof(names) / sizeof(names[0])])(void);
    void *handle = NULL;
    *out = (gpu_blaslt_library){0};
    if (v == NULL || !is_wanted(host)) {
        return;
    }
    for (int i = 0; handle == NULL && v->libraries[i] != NULL; i++) {
        handle = dlopen(v->libraries[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == NULL) {
        snprintf(out->reason, sizeof(out->reason), "there is no %s", v->libraries[0]);
        return;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s%s", v->prefix, names[i]);
        *(void **)&calls[i] = dlsym(handle, name);
        if (calls[i] == NULL) {
            snprintf(out->reason, sizeof(out->reason), "%s has no %s", v->name, name);
            return;
        }
    }
    _Static_assert(sizeof(calls) == sizeof(out->api), "a table of function pointers");
    memcpy(&out->api, calls, sizeof(calls));
    out->vendor = v;
}

gpu_blaslt *gpu_blaslt_create(const pgd_host *host, const gpu_blaslt_library *l) {
    gpu_blaslt *lt = l->vendor == NULL ? NULL : host->alloc(host, sizeof(*lt), 0);
    if (lt == NULL) {
        return NULL;
    }
    lt->library = l;
    if (l->api.create(&lt->handle) != 0) {
        host->free(host, lt);
        return NULL;
    }
    return lt;
}

static void forget(const gpu_blaslt *lt, plan *p) {
    const gpu_blaslt_api *api = &lt->library->api;
    for (int i = 0; i < LAYOUTS; i++) {
        if (p->layouts[i] != NULL) {
            (void)api->layout_destroy(p->layouts[i]);
        }
    }
    if (p->desc != NULL) {
        (void)api->desc_destroy(p->desc);
    }
    *p = (plan){0};
}

void gpu_blaslt_destroy(const pgd_host *host, gpu_blaslt *lt) {
    if (lt != NULL) {
        for (int i = 0; i < SHAPES; i++) {
            forget(lt, &lt->plans[i]);
        }
        (void)lt->library->api.destroy(lt->handle);
        host->free(host, lt);
    }
}

static int type_of(int32_t dtype) {
    return dtype == PGD_F32 ? GPU_BLASLT_F32 : dtype == PGD_F16 ? GPU_BLASLT_F16 : GPU_BLASLT_BF16;
}

// The matrices of a product as the library sees them. False: it does not like one.
static bool describe(const gpu_blaslt *lt, plan *p) {
    const gpu_blaslt_api *api = &lt->library->api;
    const gpu_blaslt_vendor *v = lt->library->vendor;
    const shape *s = &p->what;
    const int32_t transposed = v->transposed;
    const uint64_t rows[LAYOUTS] = {(uint64_t)s->k, (uint64_t)s->k, (uint64_t)s->n, (uint64_t)s->n};
    const uint64_t columns[LAYOUTS] = {(uint64_t)s->n, (uint64_t)s->m, (uint64_t)s->m,
                                       (uint64_t)s->m};
    if (api->desc_create(&p->desc, v->compute_f32, GPU_BLASLT_F32) != 0 ||
        api->desc_set(p->desc, v->trans_a, &transposed, sizeof(transposed)) != 0) {
        return false;
    }
    for (int i = 0; i < LAYOUTS; i++) {
        const int type = type_of(i <= LAYOUT_X ? s->in : s->out);
        if (api->layout_create(&p->layouts[i], type, rows[i], columns[i], s->strides[i]) != 0) {
            return false;
        }
    }
    return true;
}

// What the library would do, within the scratch and for addresses that are multiples of 16.
static bool ask(const gpu_blaslt *lt, plan *p) {
    enum { ALIGN = 16, MATRICES = 4 };
    const gpu_blaslt_api *api = &lt->library->api;
    const gpu_blaslt_vendor *v = lt->library->vendor;
    const uint32_t align = ALIGN;
    void *wish = NULL;
    int n = 0;
    if (api->wish_create(&wish) != 0) {
        return false;
    }
    bool is_good =
        api->wish_set(wish, v->scratch, &p->what.scratch_bytes, sizeof(p->what.scratch_bytes)) == 0;
    for (int i = 0; is_good && v->align_a >= 0 && i < MATRICES; i++) {
        is_good = api->wish_set(wish, v->align_a + i, &align, sizeof(align)) == 0;
    }
    is_good = is_good && api->heuristic(lt->handle, p->desc, p->layouts[LAYOUT_W],
                                        p->layouts[LAYOUT_X], p->layouts[LAYOUT_ADD],
                                        p->layouts[LAYOUT_Y], wish, 1, p->result, &n) == 0;
    (void)api->wish_destroy(wish);
    if (!is_good || n < 1) {
        return false;
    }
    uint64_t scratch = 0;
    int state = 0;
    memcpy(&scratch, p->result + v->algorithm_bytes, sizeof(scratch));
    memcpy(&state, p->result + v->algorithm_bytes + sizeof(scratch), sizeof(state));
    return state == 0 && scratch <= p->what.scratch_bytes;
}

// The plan of a shape, from the last ones or from the library.
static plan *plan_of(gpu_blaslt *lt, const gpu_product_call *c) {
    shape s;
    memset(&s, 0, sizeof(s)); // compared as bytes
    s.m = c->m;
    s.n = c->n;
    s.k = c->k;
    s.strides[LAYOUT_W] = c->w.stride;
    s.strides[LAYOUT_X] = c->x.stride;
    s.strides[LAYOUT_Y] = c->y.stride;
    s.strides[LAYOUT_ADD] = c->add.memory != NULL ? c->add.stride : c->y.stride;
    s.in = c->in;
    s.out = c->out;
    s.scratch_bytes = c->scratch_bytes;
    for (int i = 0; i < SHAPES; i++) {
        if (memcmp(&lt->plans[i].what, &s, sizeof(s)) == 0) {
            return &lt->plans[i];
        }
    }
    plan *p = &lt->plans[lt->next++ % SHAPES];
    forget(lt, p);
    memcpy(&p->what, &s, sizeof(s));
    p->is_taken = describe(lt, p) && ask(lt, p);
    return p;
}

pgd_status gpu_blaslt_product(gpu_blaslt *lt, const gpu_blaslt_call *c, void *stream,
                              bool only_asks) {
    const gpu_blaslt_api *api = &lt->library->api;
    const float one = 1.0f;
    const float beta = c->add != 0 ? 1.0f : 0.0f;
    plan *p = plan_of(lt, c->what);
    if (!p->is_taken || only_asks) {
        return p->is_taken ? PGD_OK : PGD_UNSUPPORTED;
    }
    const uint64_t add = c->add != 0 ? c->add : c->y;
    const int error = api->matmul(
        lt->handle, p->desc, &one, (const void *)(uintptr_t)c->w, p->layouts[LAYOUT_W],
        (const void *)(uintptr_t)c->x, p->layouts[LAYOUT_X], &beta, (const void *)(uintptr_t)add,
        p->layouts[LAYOUT_ADD], (void *)(uintptr_t)c->y, p->layouts[LAYOUT_Y], p->result,
        (void *)(uintptr_t)c->scratch, c->what->scratch_bytes, stream);
    p->is_taken = error == 0; // what failed once is not asked again
    return error == 0 ? PGD_OK : PGD_UNSUPPORTED;
}
