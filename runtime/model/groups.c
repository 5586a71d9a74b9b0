// Layers into groups of the cache. See model.h.
//
// A block of the pool holds the layers of one group, so groups should be of equal size, or blocks
// of the smaller ones are partly unused. The size is that of the smaller kind, so that the larger
// is cut into several groups; if the kinds are nearly equal, each is one group.
#include "model/inner.h"

// Kinds: layers with the same window.
typedef struct kind {
    int32_t window;
    int32_t n_layers;
    int32_t n_groups;
} kind;

static int32_t window_of(const pgd_load_config *c, int32_t max_model_len, int32_t layer) {
    return c->window[layer] < max_model_len ? c->window[layer] : 0;
}

// Returns how many kinds there are; PGD_MAX_GROUPS + 1 if more than groups are allowed.
static int32_t find_kinds(const pgd_load_config *c, int32_t max_model_len, kind *kinds) {
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        int32_t window = window_of(c, max_model_len, i);
        int32_t k = 0;
        while (k < n && kinds[k].window != window) {
            k++;
        }
        if (k == n && n == PGD_MAX_GROUPS) {
            return n + 1;
        }
        if (k == n) {
            kinds[n++] = (kind){.window = window};
        }
        kinds[k].n_layers++;
    }
    return n;
}

static int32_t count_groups(kind *kinds, int32_t n, int32_t size) {
    int32_t total = 0;
    for (int32_t k = 0; k < n; k++) {
        kinds[k].n_groups = (kinds[k].n_layers + size - 1) / size;
        total += kinds[k].n_groups;
    }
    return total;
}

static int32_t choose_size(kind *kinds, int32_t n) {
    int32_t least = kinds[0].n_layers;
    int32_t most = kinds[0].n_layers;
    for (int32_t k = 1; k < n; k++) {
        least = kinds[k].n_layers < least ? kinds[k].n_layers : least;
        most = kinds[k].n_layers > most ? kinds[k].n_layers : most;
    }
    int32_t size = 4 * most < 5 * least ? most : least;
    while (count_groups(kinds, n, size) > PGD_MAX_GROUPS) {
        size++;
    }
    return size;
}

void pgd_model_group_layers(const pgd_load_config *c, int32_t max_model_len,
                            pgd_model_groups *out) {
    kind kinds[PGD_MAX_GROUPS] = {{0}};
    int32_t n = find_kinds(c, max_model_len, kinds);
    *out = (pgd_model_groups){.longest = max_model_len};
    if (n > PGD_MAX_GROUPS) { // one full group: windows are a mask in attn all the same
        kinds[0] = (kind){.n_layers = c->n_layers};
        n = 1;
    }
    (void)choose_size(kinds, n);
    for (int32_t k = 0; k < n; k++) {
        int32_t left = kinds[k].n_layers;
        for (int32_t g = kinds[k].n_groups; g > 0; g--) {
            int32_t size = (left + g - 1) / g;
            out->windows[out->n] = kinds[k].window;
            out->n_layers[out->n++] = size;
            out->layers = size > out->layers ? size : out->layers;
            left -= size;
        }
    }
}

int32_t pgd_model_group_of(const pgd_model *m, int32_t layer, int32_t *out_index) {
    const pgd_model_groups *groups = &m->desc.groups;
    const pgd_load_config *c = m->desc.config;
    const int32_t window = window_of(c, groups->longest, layer);
    int32_t index = 0; // among the layers of this kind, or among all when kinds are not told apart
    int32_t first = 0;
    while (first < groups->n - 1 && groups->windows[first] != window) {
        first++;
    }
    for (int32_t i = 0; i < layer; i++) {
        index += groups->n == 1 || window_of(c, groups->longest, i) == window;
    }
    while (index >= groups->n_layers[first]) {
        index -= groups->n_layers[first++];
    }
    *out_index = index;
    return first;
}
