// Log probabilities of a row: what kernels/ref/sample.c says, the sum in f32 by vectors and in
// double over them. A log probability is within 2^-20 + 2^-23 of its size of the reference's; ids
// and ranks are equal, because they depend on the logits alone.
#include <math.h>
#include <string.h>

#include "sample.h"

// Behind this distance a whole vocabulary weighs less than the rounding of 1.
#define FAR 32.0f

double cpu_log_sum(const cpu_row *row) {
    double sum = 0.0;
    if (row->best < 0 || !isfinite(row->max)) { // all that have a probability have the same
        return row->best < 0 ? 0.0 : cpu_log_of((double)cpu_row_count(row, row->max));
    }
    for (int64_t b = 0; b < row->blocks;) {
        const int64_t at = b * row->block;
        const int64_t start = b;
        while (b < row->blocks && row->top[b] >= row->max - FAR) {
            b++;
        }
        if (b > start) {
            const int64_t end = cpu_min(b * row->block, row->n);
            sum += row->k->f32_exp_sum(row->v + at, end - at, row->max, 1.0f, -INFINITY, INFINITY);
        }
        b += b < row->blocks;
    }
    return cpu_log_of(sum);
}

float cpu_logprob(const cpu_row *row, double log_sum, int64_t i) {
    if (i < 0 || isnan(row->v[i])) {
        return -INFINITY;
    }
    const double gap = row->v[i] == row->max ? 0.0 : (double)row->v[i] - (double)row->max;
    return (float)(gap - log_sum);
}

int32_t cpu_rank(const cpu_row *row, int64_t i) {
    if (i < 0) {
        return 0;
    }
    return (int32_t)(isnan(row->v[i]) ? row->n : cpu_row_count(row, row->v[i]));
}

// ---- the best ----------------------------------------------------------------------------------

static bool comes_first(const cpu_row *row, int32_t a, int32_t b) {
    return row->v[a] > row->v[b] || (row->v[a] == row->v[b] && a < b);
}

// Lets ids[at] sink to its place in a heap whose top comes last.
static void sink(const cpu_row *row, int32_t *ids, int64_t at, int64_t n) {
    for (int64_t child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
        if (child + 1 < n && comes_first(row, ids[child], ids[child + 1])) {
            child++;
        }
        if (!comes_first(row, ids[at], ids[child])) {
            return;
        }
        const int32_t keep = ids[at];
        ids[at] = ids[child];
        ids[child] = keep;
    }
}

// A heap sort: in place, and as fast for a whole vocabulary as for 20.
static void sort_ids(const cpu_row *row, int32_t *ids, int64_t n) {
    for (int64_t i = n / 2 - 1; i >= 0; i--) {
        sink(row, ids, i, n);
    }
    for (int64_t last = n - 1; last > 0; last--) {
        const int32_t keep = ids[0];
        ids[0] = ids[last];
        ids[last] = keep;
        sink(row, ids, 0, last);
    }
}

typedef struct id_list {
    int32_t *ids;
    int64_t n;
    int64_t most;
} id_list;

// The ids of logits in [low, high], rising, as many as there is room for.
static void list_ids(const cpu_row *row, float low, float high, id_list *out) {
    for (int64_t i = 0; i < row->n && out->n < out->most; i += CPU_SAMPLE_STEP) {
        const int64_t n = cpu_min(CPU_SAMPLE_STEP, row->n - i);
        uint64_t in = 0;
        if (!(row->top[i / row->block] >= low)) {
            continue;
        }
        if (n == CPU_SAMPLE_STEP) {
            in = row->k->f32_between_64(row->v + i, low, high);
        }
        for (int64_t j = 0; n < CPU_SAMPLE_STEP && j < n; j++) {
            in |= (uint64_t)(row->v[i + j] >= low && row->v[i + j] <= high) << j;
        }
        for (; in != 0 && out->n < out->most; in &= in - 1) {
            out->ids[out->n++] = (int32_t)(i + __builtin_ctzll(in));
        }
    }
}

void cpu_best(const cpu_row *row, double log_sum, int64_t n_best, float *logprobs, int32_t *ids) {
    id_list list = {.ids = ids, .most = cpu_min(n_best, row->n)};
    if (list.most == 0) {
        return;
    }
    if (row->best >= 0) {
        const float floor = cpu_row_kth(row, -INFINITY, list.most);
        if (floor < row->max) {
            list_ids(row, cpu_value_of(cpu_key_of(floor) + 1), row->max, &list);
            sort_ids(row, ids, list.n);
        }
        list_ids(row, floor, floor, &list);
    }
    for (int64_t i = 0; i < row->n && list.n < list.most; i++) {
        if (isnan(row->v[i])) {
            ids[list.n++] = (int32_t)i;
        }
    }
    for (int64_t i = 0; i < list.n; i++) {
        logprobs[i] = cpu_logprob(row, log_sum, ids[i]);
    }
}
