// What an engine is or would be: memory in bytes, the place of every operation, the work of a step.
// For the commands plan and bench; programs use <pagoda/pagoda.h>.
#ifndef PGD_ENGINE_REPORT_H
#define PGD_ENGINE_REPORT_H

#include <pagoda/pagoda.h>

#include "dev/dev.h"

// Bytes and operations (a product and a sum are two) that a step cannot do without.
typedef struct pgd_engine_work {
    uint64_t weight_bytes;   // matrices every step reads, as stored: all but an embedding's rows
    uint64_t kv_token_bytes; // keys and values of one position, all layers
    uint64_t row_ops;        // matrix products of one row, the head left out
    uint64_t out_ops;        // the head, for one output row
    uint64_t pair_ops;       // attention of one row over one position, all layers
    const char *stored;      // type of the matrices: "bf16", "q4_k"
    int32_t dtype;           // the same, PGD_DTYPE_NONE when they are quantized
    int32_t kv_dtype;
} pgd_engine_work;

// Operations of the same kind, place, kernel and reason.
typedef struct pgd_engine_place {
    const char *op; // static
    int32_t count;
    int32_t place; // PGD_DEV_F0 .. F3
    uint64_t scratch;
    char kernel[32];
    char reason[96];
} pgd_engine_place;

typedef struct pgd_engine_report {
    char model[4096];
    char architecture[64];
    char device[48];
    char device_name[64];
    char arch[32];
    char choice[800]; // why "auto" took it; "" when there was nothing to choose
    uint64_t parameters;
    uint64_t total_bytes;  // memory of the device
    uint64_t free_bytes;   // at this moment
    uint64_t budget_bytes; // that may be used
    uint64_t weight_bytes;
    uint64_t activation_bytes;
    uint64_t scratch_bytes;
    uint64_t batch_bytes;
    uint64_t kv_fixed_bytes;
    uint64_t kv_block_bytes;
    int32_t num_blocks;
    int32_t block_size;
    int32_t max_model_len;
    int32_t max_num_seqs;
    int32_t max_num_batched_tokens;
    int32_t n_layers;
    pgd_engine_work work;
    uint32_t n_places;
    uint32_t n_slow;          // operations at F3; create without allow_slow would refuse them
    pgd_engine_place *places; // in the order of a step
} pgd_engine_report;

// Plans what pgd_engine_create would make of the options; nothing is loaded. Operations at F3 do
// not fail it on a device that was named (n_slow counts them).
//   fails  as pgd_engine_create
pgd_status pgd_engine_report_create(const pgd_engine_options *options,
                                    pgd_engine_report **out) PGD_MUST_USE;
void pgd_engine_report_destroy(pgd_engine_report *r); // NULL is fine

// Of an engine that runs. Borrowed until it is destroyed.
const char *pgd_engine_report_choice(const pgd_engine *e);
pgd_dev *pgd_engine_report_device(const pgd_engine *e);
void pgd_engine_report_work(const pgd_engine *e, pgd_engine_work *out);

#endif
