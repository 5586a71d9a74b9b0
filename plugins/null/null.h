// What the files of the null device share.
//
// The device computes nothing: memory, queue and copies are real, every op is native and writes
// nothing but the ids of sampled tokens. With step_us and token_us a step takes its time, so the
// host's own work can be measured and the scheduler can be run against a clock.
#ifndef NULL_H
#define NULL_H

#include <pagoda/ops.h>
#include <pagoda/plugin.h>

enum { TOKENS_WORDS = 0, TOKENS_HASH = 1, TOKENS_ZERO = 2, TOKENS_SCRIPT = 3 };

#define NULL_SCRIPT_MAX 2048 // ids of a script
#define NULL_SLOTS      4096 // sequences that can follow one

typedef struct null_backend {
    const pgd_host *host;
    uint64_t bytes; // of memory
    uint64_t used;
    uint64_t step_ns;
    uint64_t token_ns;
    int32_t tokens;    // TOKENS_...
    int32_t nan_after; // behind this id logits are not numbers, -1 = behind none
    int32_t *script;   // [n_script], with the next: [NULL_SLOTS] what each sequence gets next
    int32_t *script_at;
    int32_t n_script;
    int32_t reserved0;
} null_backend;

struct pgd_buffer {
    unsigned char *mem;
    uint64_t bytes;
    uint64_t mapped; // rounded up to pages
};

struct pgd_queue {
    uint64_t given;     // last number given
    uint64_t ready_ns;  // when the last number is reached
    uint64_t launches;  // ops since the last signal
    uint64_t tokens;    // rows of these
    uint64_t times[64]; // ring: when number v is reached, at v % 64
};

struct pgd_weight {
    int64_t n;
    int64_t k;
};

struct pgd_kv {
    int32_t n_blocks;
    int32_t reserved0;
};

#define NULL_FAIL(d, code, ...) PGD_HOST_FAIL((d)->host, (code), __VA_ARGS__)

static inline null_backend *null_of(const pgd_device *d) {
    return (null_backend *)d->self;
}

// Address of a place in a buffer or in host memory.
static inline unsigned char *null_at(pgd_buffer *b, uint64_t offset) {
    return b == NULL ? (unsigned char *)(uintptr_t)offset : b->mem + offset;
}

const pgd_memory_table *null_memory(void);
const pgd_queue_table *null_queue(void);
const pgd_weight_table *null_weight(void);
const pgd_kv_table *null_kv(void);
const pgd_ops *null_ops(void);

#endif
