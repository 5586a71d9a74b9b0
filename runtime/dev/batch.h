// The batch block: its layout, the host's mirror of it, and its one upload a step.
//
//   | head | token_ids | positions | q_start | kv_len | out_rows | out_slot | seq_slot | slots |
//   | sampling | bias | mask || block tables | last | sampled |
//   0          ^ travels each step      ^ upload_bytes: behind it lives on the device
//
// Of bias what is used, of masks and block tables what changed travels. Single-threaded; create
// allocates, the rest does not.
#ifndef PGD_DEV_BATCH_H
#define PGD_DEV_BATCH_H

#include <pagoda/ops.h>

typedef struct pgd_dev_batch pgd_dev_batch;

typedef struct pgd_dev_batch_desc {
    int32_t cap_tokens; // rows of a step
    int32_t cap_seqs;   // sequences of a step, and slots
    int32_t cap_kv;     // longest sequence
    int32_t cap_blocks; // entries of a block table row, the same in every group
    int32_t n_groups;   // of the cache, 0 = 1
    int32_t cap_out;    // output rows of a step, 0 = cap_seqs
    int32_t cap_bias;   // bias entries of a step, 0 = none
    int32_t vocab;      // bits of a mask row, 0 = no masks; each slot has one row
    int32_t n_ahead;    // uploads that may be on their way while the next step is filled, 0 or 1
} pgd_dev_batch_desc;

// d and its memory table outlive the batch.
pgd_status pgd_dev_batch_create(const pgd_device *d, const pgd_dev_batch_desc *desc,
                                pgd_dev_batch **out) PGD_MUST_USE;
void pgd_dev_batch_destroy(pgd_dev_batch *b); // NULL is fine
uint64_t pgd_dev_batch_bytes(const pgd_dev_batch_desc *desc);

// What op arguments point to; fixed for life.
const pgd_batch *pgd_dev_batch_view(const pgd_dev_batch *b);

// Clears the mirror for the next step. The device has finished all uploads but n_ahead.
pgd_batch_head *pgd_dev_batch_begin(pgd_dev_batch *b);
// An array of the mirror by its byte offset in the view.
void *pgd_dev_batch_array(pgd_dev_batch *b, uint64_t offset);
// Entries [first, first + n) of a slot's row in a group's block table; at most one range per group,
// slot and step.
void pgd_dev_batch_blocks(pgd_dev_batch *b, int32_t group, int32_t slot, int32_t first,
                          const int32_t *ids, int32_t n);
// The first n entries of the bias array are set.
void pgd_dev_batch_bias(pgd_dev_batch *b, int32_t n);
// A slot's mask row; at most once per slot and step.
//   words  [ceil(vocab / 32)]
void pgd_dev_batch_mask(pgd_dev_batch *b, int32_t slot, const uint32_t *words);
// Enqueues the upload.
pgd_status pgd_dev_upload_batch(pgd_dev_batch *b, pgd_queue *q) PGD_MUST_USE;

#endif
