// A row of logits: the largest of its blocks, and searches that pass over blocks which hold nothing
// of interest.
//
//   tops     2048 blocks or fewer; one pass over the row
//   k-th     of k blocks whose tops reach a value, k tokens do: the k-th largest top is a floor
//            that leaves little to look at; then the same among what reaches it. Both by halving
//            the range of keys, which is 32 counts at most
#include <math.h>
#include <string.h>

#include "sample.h"

void cpu_row_look(cpu_row *row) {
    const int64_t most = (int64_t)CPU_SAMPLE_STEP * CPU_SAMPLE_BLOCKS;
    int64_t at = 0;
    row->block = CPU_SAMPLE_STEP * cpu_max(1, (row->n + most - 1) / most);
    row->blocks = (row->n + row->block - 1) / row->block;
    row->k->f32_tops(row->v, row->n, row->block, row->top);
    row->max = row->k->f32_max(row->top, row->blocks);
    if (row->max > -INFINITY) {
        at = row->k->f32_first_ge(row->top, row->blocks, row->max) * row->block;
    }
    row->best = row->k->f32_first_ge(row->v + at, row->n - at, row->max);
    row->best += row->best < 0 ? 0 : at;
}

int64_t cpu_row_count(const cpu_row *row, float floor) {
    int64_t count = 0;
    for (int64_t b = 0; b < row->blocks; b++) {
        if (row->top[b] >= floor) {
            const int64_t at = b * row->block;
            count += row->k->f32_count_ge(row->v + at, cpu_min(row->block, row->n - at), floor);
        }
    }
    return count;
}

// A list pays where fewer than half of the blocks are in it.
cpu_live cpu_row_live(const cpu_row *row, float floor) {
    cpu_live live = {.v = row->v, .n = row->n};
    if (row->k->f32_count_ge(row->top, row->blocks, floor) * 2 > row->blocks) {
        return live;
    }
    live = (cpu_live){.v = row->list};
    for (int64_t b = 0; b < row->blocks; b++) {
        if (row->top[b] >= floor) {
            const int64_t at = b * row->block;
            live.n += row->k->f32_keep(row->v + at, cpu_min(row->block, row->n - at), floor,
                                       INFINITY, row->list + live.n);
        }
    }
    return live;
}

static float kth_of(const cpu_row *row, cpu_live live, float floor, int64_t k) {
    uint32_t low = cpu_key_of(floor);
    uint32_t high = cpu_key_of(row->max);
    if (row->k->f32_count_ge(live.v, live.n, floor) <= k) {
        return floor;
    }
    while (low < high) {
        const uint32_t middle = high - (high - low) / 2;
        if (row->k->f32_count_ge(live.v, live.n, cpu_value_of(middle)) >= k) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return cpu_value_of(low);
}

float cpu_row_kth(const cpu_row *row, float floor, int64_t k) {
    floor = kth_of(row, (cpu_live){.v = row->top, .n = row->blocks}, floor, k);
    return kth_of(row, cpu_row_live(row, floor), floor, k);
}
