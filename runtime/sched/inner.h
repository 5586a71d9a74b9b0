// What the files of the sched room share.
#ifndef PGD_SCHED_INNER_H
#define PGD_SCHED_INNER_H

#include "sched/sched.h"

// A list of sequences through prev and next; head is served first.
typedef struct seq_list {
    pgd_seq *head;
    pgd_seq *tail;
    int32_t n;
} seq_list;

// Who moved since the last plan, handed out with the next one.
typedef struct seq_array {
    pgd_seq **items;
    int32_t n;
    int32_t reserved0;
} seq_array;

struct pgd_sched {
    pgd_sched_config config;
    pgd_kv_cache *cache;
    pgd_kv_pool *pool;
    int64_t headroom; // blocks of the watermark
    seq_list running;
    seq_list waiting;
    uint64_t n_added;
    int32_t n_cancelled; // sequences with the flag that were not taken out yet
    int32_t prefill_limit;
    int32_t closed;      // 1: the lists below are of a step that is over
    int32_t *free_slots; // stack, lowest on top of a fresh one
    int32_t n_free_slots;
    int32_t *turns;      // [2, max_num_seqs]
    pgd_seq **room;      // memory of the four lists
    seq_array finished;  // [2 * max_num_seqs]: cancelled ones, then preempted ones
    seq_array preempted; // [max_num_seqs], as the next two
    seq_array admitted;
    seq_array resumed;
    pgd_sched_stats stats;
};

// list.c
void pgd_sched_push_tail(seq_list *list, pgd_seq *seq);
void pgd_sched_push_head(seq_list *list, pgd_seq *seq);
void pgd_sched_push_sorted(seq_list *list, pgd_seq *seq);
void pgd_sched_remove(seq_list *list, pgd_seq *seq);
// 1 when a comes before b by (priority, arrival, order of adding).
int32_t pgd_sched_before(const pgd_seq *a, const pgd_seq *b);

// sched.c
// Empties the lists of who moved when they are of a step that is over.
void pgd_sched_open_step(pgd_sched *s);
// 1 when not even an empty pool could hold it; not before its tokens on the way have been seen.
int32_t pgd_sched_outgrown(const pgd_sched *s, const pgd_seq *seq);
// Back to the queue without blocks; ends it when it is outgrown.
void pgd_sched_preempt(pgd_sched *s, pgd_seq *seq);
void pgd_sched_end(pgd_sched *s, pgd_seq *seq, int32_t reason);

#endif
