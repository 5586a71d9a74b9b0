// Compares a device's operations with the reference, case by case.
//
// A case is a fixture: the same tensors, batch, weight and cache twice, in host memory for
// kernels/ref and in buffers for the device. It goes through these steps:
//
//   ops_open -> ops_tensor..., ops_batch, ops_weight, ops_cache   describe and fill both sides
//   ops_ask...                                                     the ops that will run
//   ops_ready                                                      plan, prepare, bind, upload
//   ops_run                                                        on both sides
//   ops_fetch, ops_compare...                                      device against reference
//   ops_close                                                      counts the case
//
// After a failure every further step does nothing, so a case is written without checks between.
// Each case opens the device anew, because a plan settles where the ops of one model run.
#ifndef PGD_TESTS_OPS_H
#define PGD_TESTS_OPS_H

#include <pagoda/ops.h>

#include "base/team.h"
#include "dev/dev.h"
#include "ref/ref.h"

// ---- the run -----------------------------------------------------------------------------------

typedef struct ops_session {
    pgd_dev_registry *registry;
    pgd_team *team;
    const char *uri;
    const char *only; // name of an op or check, NULL = all
    uint64_t seed;
    int32_t cases; // of each op
    int32_t small; // 1: shapes of two or three groups and a ragged tail, for an interpreter
    int32_t verbose;
    int32_t passed;
    int32_t failed;
    int32_t planned[PGD_OP_COUNT]; // cases that asked for the op
    int32_t places[PGD_OP_COUNT][4];
    int32_t variant[PGD_OP_COUNT]; // cases whose place does not promise one order of summation
    // For another program than ops_test: failures line by line instead of on stdout, and the error
    // of each comparison by tolerance (of the row's largest number; NMSE). NULL: not called.
    void (*failed_line)(void *arg, const char *line);
    void (*measured)(void *arg, int32_t op, int32_t dtype, double worst, double nmse, int32_t bad);
    // Behind opening each case's device, and before closing it: handles and buffers are gone then.
    void (*opened)(void *arg, pgd_dev *dev);
    void (*closing)(void *arg, pgd_dev *dev);
    void *arg;
} ops_session;

// ---- shapes.c: the seeded table ----------------------------------------------------------------

typedef struct ops_rng {
    uint64_t state;
    int32_t small; // 1: the tables of small shapes
} ops_rng;

ops_rng ops_seed(uint64_t seed, const char *name, int32_t number);
uint64_t ops_next(ops_rng *r);
int64_t ops_between(ops_rng *r, int64_t low, int64_t high); // both ends included
double ops_normal(ops_rng *r);                              // mean 0, deviation 1
// Rows: 0, 1, primes, powers of two and their neighbours, at most `most`.
int64_t ops_rows(ops_rng *r, int64_t most);
// Widths: 1, primes, ragged and round ones.
int64_t ops_width(ops_rng *r);
int64_t ops_head_dim(ops_rng *r);
int64_t ops_vocab(const ops_rng *r); // of a table of embed: most ids of a batch lie in it
// 1 in one of n cases, never among small shapes: the case is a long one.
int32_t ops_is_long(ops_rng *r, int32_t n);
int32_t ops_float(ops_rng *r);  // F32, BF16 or F16
int32_t ops_scheme(ops_rng *r); // any but PARTS; seldom PLAIN

// ---- fixture.c: memory and tensors -------------------------------------------------------------

enum {
    OPS_MEMORIES = 40,
    OPS_ASKS = 12,
    OPS_SEQS = 24,
    OPS_BIASES = 6, // most of an output
    OPS_HOST = 0,
    OPS_DEV = 1,
};

// Bytes on both sides; `mask` marks those an op may write.
typedef struct ops_memory {
    unsigned char *host;
    unsigned char *before; // what both sides began with
    unsigned char *got;    // what the device has after ops_fetch
    unsigned char *mask;
    uint64_t bytes;
    pgd_buffer *buffer;
} ops_memory;

// A view of a memory on both sides.
typedef struct ops_tensor {
    const char *name;
    int32_t memory;
    pgd_tensor side[2];
} ops_tensor;

// How an op will be called; args of both sides are kept by the case.
typedef struct ops_ask_entry {
    int32_t op;
    union {
        pgd_qkv_rope_write_args largest;
        pgd_head_sample_args head;
        pgd_attn_args attn;
    } args;
} ops_ask_entry;

typedef struct ops_seq {
    int32_t rows;   // of this step
    int32_t kv_len; // after it
    int32_t slot;
    int32_t out;    // 1: its last row gives logits
    int32_t hidden; // 1: its token is not put into last (out_slot -1)
} ops_seq;

typedef struct ops_batch_spec {
    ops_seq seqs[OPS_SEQS];
    int32_t n_seqs;
    int32_t cap_tokens; // 0 = as many as rows
    int32_t n_axes;     // 0 = 1
    int32_t block_tokens;
    int32_t vocab;
    int32_t lists; // 1: with masks and biases, filled at random; output r has mask row r + 1 and
                   // biases from r * OPS_BIASES on
    pgd_sampling sampling[OPS_SEQS]; // of each output
} ops_batch_spec;

typedef struct ops_fixture {
    ops_session *session;
    int32_t number; // of the case
    ops_rng rng;
    char title[400];
    int32_t broken; // a step failed
    int32_t wrong;  // a comparison failed
    pgd_dev *dev;
    const pgd_device *d;
    pgd_queue *queue;
    pgd_exec *exec;
    ops_memory memories[OPS_MEMORIES];
    int32_t n_memories;
    ops_ask_entry asks[OPS_ASKS];
    pgd_dev_place places[OPS_ASKS];
    int32_t n_asks;
    // batch
    int32_t block;         // memory of the block
    unsigned char *mirror; // what the device's batch shows of it: the uploaded part only
    pgd_batch batch[2];
    int32_t n_rows;
    int32_t n_out;
    int32_t block_tokens;
    int32_t n_blocks; // block ids in use, the dump block included
    // weight
    pgd_weight_desc weight_desc;
    pgd_weight_part parts[3];
    pgd_ref_weight ref_weight;
    pgd_ref_weight ref_parts[3];
    void *part_rows[3];
    void *joined; // what ref_weight reads
    pgd_weight *weight[2];
    pgd_buffer *weight_buffer;
    // cache
    pgd_kv_desc kv_desc;
    pgd_ref_kv ref_kv;
    pgd_kv *kv[2];
    pgd_buffer *kv_buffer;
    int32_t kv_loaded; // 1: the device's cache begins as the reference's
} ops_fixture;

// Opens the device. title says what the case is, for messages.
void ops_open(ops_fixture *f, ops_session *s, const char *name, int32_t number);
// 0 .. n - 1 by turns from case to case: what no seed may leave out.
int32_t ops_turn(const ops_fixture *f, int32_t n);
// Counts the case and frees everything.
void ops_close(ops_fixture *f);
// Adds to the title.
void ops_say(ops_fixture *f, const char *fmt, ...) PGD_PRINTF(2, 3);
// Marks the case as failed.
void ops_fail(ops_fixture *f, const char *fmt, ...) PGD_PRINTF(2, 3);

enum {
    OPS_FILL_NORMAL = 0,
    OPS_FILL_NAN = 1,
    OPS_FILL_ZERO = 2,
    OPS_FILL_NEAR_ONE = 3,
    OPS_FILL_INT8 = 4,
};
// INT8: integers / 64, every other one of the largest size, so that rounding 32 of them to int8
// by the largest magnitude changes nothing.

// A tensor with memory of its own; pitch = elements from row to row (0 = dense). Rows from
// `live` on are NaN. dtype I32: filled with -77.
ops_tensor ops_make(ops_fixture *f, const char *name, int32_t dtype, uint32_t rank,
                    const int64_t *shape, int64_t pitch, int64_t live, int32_t fill);
ops_tensor ops_make2(ops_fixture *f, const char *name, int32_t dtype, int64_t rows, int64_t columns,
                     int64_t live, int32_t fill);
ops_tensor ops_make1(ops_fixture *f, const char *name, int32_t dtype, int64_t n, int32_t fill);
// Columns [from, from + heads * dim) of a matrix as [rows, heads, dim].
ops_tensor ops_heads(const ops_tensor *t, const char *name, int64_t from, int64_t heads,
                     int64_t dim);
// A dtype for activations: mostly one the device takes, seldom another (then the host helps out).
int32_t ops_act(ops_fixture *f);
// act_dtype of a weight for rows of x_dtype: none, its own, or bf16 under bf16 weights.
int32_t ops_rounding(ops_fixture *f, int32_t dtype, int32_t x_dtype);
// The memory of a batch block: bytes on both sides, zeroed, without a guard in front.
int32_t ops_make_block(ops_fixture *f, uint64_t bytes);
// An op may write this tensor.
void ops_may_write(ops_fixture *f, const ops_tensor *t);
// The device's memory as it was after ops_ready.
void ops_restart(ops_fixture *f);

// ---- batch.c -----------------------------------------------------------------------------------

// Draws a mixed batch: decodes, prefills and chunks over shuffled slots.
ops_batch_spec ops_draw_batch(ops_rng *r, int32_t most_rows, int32_t most_kv);
// One sequence without a cache: for ops that only need `rows` tokens, all of them outputs.
ops_batch_spec ops_plain_batch(int32_t rows);
// Makes the block. Every spec filled in later has at most this many rows, sequences and tokens.
void ops_batch(ops_fixture *f, const ops_batch_spec *spec);
// Writes a spec into the block on both sides.
void ops_batch_fill(ops_fixture *f, const ops_batch_spec *spec);
// Draws which rows an op takes (mode, live rows, cap) and makes the batch that says so.
typedef struct ops_rows_case {
    int32_t mode; // PGD_ROWS_...
    int64_t live;
    int64_t cap;
} ops_rows_case;

ops_rows_case ops_draw_rows(ops_fixture *f, int64_t most);
// Draws temperature, top_k, top_p, min_p, greedy for every output.
void ops_draw_sampling(ops_rng *r, ops_batch_spec *spec);
// Draws masks, biases, penalties, given tokens and log probabilities on top, for a spec with lists.
// Output r counts in its own row of a state of OPS_SEQS rows or in none.
void ops_draw_fields(ops_rng *r, ops_batch_spec *spec, int32_t most_best);
void *ops_array(const ops_fixture *f, uint64_t offset); // of the host's block
// The op writes last and sampled.
void ops_may_write_tokens(ops_fixture *f);
// last and sampled are equal on both sides.
void ops_compare_tokens(ops_fixture *f);

// ---- handles.c ---------------------------------------------------------------------------------

// W [n, k] out of n_parts matrices that are wider and taller than their slices.
void ops_weight(ops_fixture *f, uint32_t uses, int32_t dtype, int32_t act_dtype, int64_t n,
                int64_t k, int32_t n_parts, int64_t max_rows);
// The same for a scheme other than PLAIN; with PARTS each part draws its own.
void ops_quantized(ops_fixture *f, uint32_t uses, int32_t scheme, int64_t n, int64_t k,
                   int32_t n_parts, int64_t max_rows);
// A dtype for a cache: F32, BF16, F16, or I8 where the device takes that.
int32_t ops_cached(ops_fixture *f);
// A cache over the batch's blocks. loaded 1: holds every sequence up to kv_len; what no sequence
// has is NaN. loaded 0: zero.
void ops_cache(ops_fixture *f, int32_t dtype, int32_t layers, int32_t heads, int32_t dim,
               int32_t window, int32_t loaded);
void ops_handles_ready(ops_fixture *f);
void ops_handles_close(ops_fixture *f);
// The reference's cache into the device's.
void ops_cache_load(ops_fixture *f);
// The device's cache full of zeros.
void ops_cache_clear(ops_fixture *f);
// Takes what the device's cache has as the reference's.
void ops_cache_adopt(ops_fixture *f);
// Slot of token j of the sequence in `slot`.
int64_t ops_cache_slot(const ops_fixture *f, int32_t slot, int32_t j);
// Every token of every block: device against reference.
void ops_compare_cache(ops_fixture *f, int32_t tolerance, int32_t narrowest);

// ---- run.c -------------------------------------------------------------------------------------

// Says that op will run with such args (device side, handles still unknown). Returns its number.
int32_t ops_ask(ops_fixture *f, int32_t op, const void *args);
// Plans, prepares, binds, uploads.
void ops_ready(ops_fixture *f);
// 1 when number `ask` is native and promises one order of summation.
int32_t ops_is_invariant(const ops_fixture *f, int32_t ask);
// Runs op on the reference and on the device.
void ops_run(ops_fixture *f, int32_t op, const void *host_args, const void *dev_args);
void ops_run_dev(ops_fixture *f, int32_t op, const void *dev_args);
void ops_drain(ops_fixture *f);
const char *ops_name(int32_t op);
// Copies between host memory and the device.
void ops_upload(ops_fixture *f, pgd_buffer *to, uint64_t offset, const void *from, uint64_t bytes);
void ops_download(ops_fixture *f, void *to, pgd_buffer *from, uint64_t offset, uint64_t bytes);
// Brings every memory from the device; bytes that no op may write must be as before.
void ops_fetch(ops_fixture *f);
// Takes what the device has in t as the reference's too.
void ops_adopt(ops_fixture *f, const ops_tensor *t);

// ---- compare.c ---------------------------------------------------------------------------------

enum {
    OPS_EXACT = 0,      // bit for bit
    OPS_ONE = 1,        // one op: one rounding of a sum in f32 or better
    OPS_FUSED = 2,      // several ops, what lies between may be rounded or not
    OPS_INT8 = 3,       // x may be rounded to int8, with a scale a block of 32
    OPS_INT8_FUSED = 4, // a product of two of those
};

// The first `rows` rows of a fetched tensor. narrowest: of the dtypes on the way, 0 = its own.
void ops_compare(ops_fixture *f, const ops_tensor *t, int64_t rows, int32_t tolerance,
                 int32_t narrowest);
// n values in rows of `width`.
void ops_compare_values(ops_fixture *f, const char *name, int32_t dtype, const void *want,
                        const void *got, int64_t n, int64_t width, int32_t tolerance,
                        int32_t narrowest);

// ---- told.c: the tensors that sample may have ---------------------------------------------------

typedef struct ops_told {
    ops_tensor logprobs, top_ids, ranks, state;
    int32_t rows;
} ops_told;

// Room for `cap` rows with the n_best best of a vocabulary, and a state with counts in it.
ops_told ops_make_told(ops_fixture *f, int64_t cap, int64_t n_best, int64_t vocab);
// The reference's state as it was before the op.
void ops_told_restart(ops_fixture *f, const ops_told *t);
// State, ids and ranks bit for bit, log probabilities within their bound; what was not asked for is
// as it was.
void ops_compare_told(ops_fixture *f, const ops_told *t);

// ---- suites ------------------------------------------------------------------------------------

void ops_suite_rows(ops_session *s);      // rmsnorm, add, act_mul, add_rmsnorm, rope, gather_rows
void ops_suite_gemm(ops_session *s);      // embed, gemm, gemm_add, gate_up
void ops_suite_quant(ops_session *s);     // weights in blocks of integers
void ops_suite_attn(ops_session *s);      // kv_write, attn, qkv_rope_write
void ops_suite_sample(ops_session *s);    // argmax, sample, head_sample
void ops_suite_invariant(ops_session *s); // one order of summation whatever the batch
void ops_suite_graph(ops_session *s);     // recorded steps against eager ones

// All of them.
void ops_suites(ops_session *s);

// ---- cases.c -----------------------------------------------------------------------------------

// Runs one case of a suite `cases` times when it is asked for.
typedef void (*ops_case_fn)(ops_fixture *f);
void ops_cases(ops_session *s, const char *name, int32_t cases, ops_case_fn run);
// 1 when the suite's part `name` is asked for.
int32_t ops_wanted(const ops_session *s, const char *name);

#endif
