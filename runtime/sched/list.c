// Lists of sequences through their prev and next. See inner.h.
#include "sched/inner.h"

// Links seq behind `prev`, NULL = in front.
static void insert(seq_list *list, pgd_seq *prev, pgd_seq *seq) {
    pgd_seq *next = prev != NULL ? prev->next : list->head;
    seq->prev = prev;
    seq->next = next;
    if (prev != NULL) {
        prev->next = seq;
    } else {
        list->head = seq;
    }
    if (next != NULL) {
        next->prev = seq;
    } else {
        list->tail = seq;
    }
    list->n++;
}

void pgd_sched_push_tail(seq_list *list, pgd_seq *seq) {
    insert(list, list->tail, seq);
}

void pgd_sched_push_head(seq_list *list, pgd_seq *seq) {
    insert(list, NULL, seq);
}

int32_t pgd_sched_before(const pgd_seq *a, const pgd_seq *b) {
    if (a->priority != b->priority) {
        return a->priority < b->priority;
    }
    if (a->arrival != b->arrival) {
        return a->arrival < b->arrival;
    }
    return a->order < b->order;
}

void pgd_sched_push_sorted(seq_list *list, pgd_seq *seq) {
    pgd_seq *prev = list->tail;
    while (prev != NULL && pgd_sched_before(seq, prev)) {
        prev = prev->prev;
    }
    insert(list, prev, seq);
}

void pgd_sched_remove(seq_list *list, pgd_seq *seq) {
    if (seq->prev != NULL) {
        seq->prev->next = seq->next;
    } else {
        list->head = seq->next;
    }
    if (seq->next != NULL) {
        seq->next->prev = seq->prev;
    } else {
        list->tail = seq->prev;
    }
    seq->prev = NULL;
    seq->next = NULL;
    list->n--;
}
