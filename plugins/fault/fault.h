// What the files of the fault layer share.
#ifndef PGD_PLUGINS_FAULT_H
#define PGD_PLUGINS_FAULT_H

#include "../layer/layer.h"

// Functions that can be counted beside the operations.
#define FAULT_FUNCTION_LIST(X) \
    X(create)                  \
    X(import)                  \
    X(copy)                    \
    X(fill)                    \
    X(signal)                  \
    X(host_wait)               \
    X(launch)                  \
    X(prepare)                 \
    X(adopt)                   \
    X(bind)                    \
    X(blocks)

enum {
    FAULT_first_ = PGD_OP_COUNT - 1,
#define NUMBER(name) FAULT_##name,
    FAULT_FUNCTION_LIST(NUMBER)
#undef NUMBER
        FAULT_COUNT
};

enum { FAULT_SPOIL_NAN = 1, FAULT_SPOIL_WRONG = 2 };

// What is written over outputs: words of 4 bytes.
enum {
    FAULT_NAN32,
    FAULT_NAN16,
    FAULT_MINUS,
    FAULT_ONE_F32,
    FAULT_ONE_BF16,
    FAULT_ONE_F16,
    FAULT_ZERO,
    FAULT_PATTERNS
};
#define FAULT_PATTERN_BYTES 16384

typedef struct fault_self {
    const pgd_host *host;
    uint8_t counts[FAULT_COUNT]; // 1: the call counts
    uint8_t reserved0[4];
    int32_t sees_ops; // 1: operations count, so there are no graphs
    int64_t fail_nth;
    int64_t lose_nth;
    int64_t hang_nth;
    int64_t nan_nth;
    int64_t wrong_nth;
    int64_t oom_nth;
    int64_t slow_us;
    int64_t row;
    int32_t repeat;
    int32_t stays_lost; // reopen=fail
    int32_t id;
    pgd_status code;
    _Atomic int64_t n;         // calls counted so far
    _Atomic int64_t n_buffers; // buffers asked for so far
    _Atomic int32_t lost;
    _Atomic int32_t hung;
    uint32_t patterns[FAULT_PATTERNS][FAULT_PATTERN_BYTES / 4];
} fault_self;

static inline fault_self *fault_of(const pgd_device *d) {
    return d->self;
}

// fault.c: counts a call and does what is due: PGD_OK, or what the call fails with. *out_spoil gets
// FAULT_SPOIL_... bits.
pgd_status fault_enter(fault_self *f, int32_t call, int32_t *out_spoil);
// fault.c: naps for so many nanoseconds.
void fault_nap(uint64_t ns);
// spoil.c
void fault_make_patterns(fault_self *f);
pgd_status fault_spoil(const pgd_exec *x, int32_t op, const void *args, int32_t spoil);
// calls.c
void fault_fill_tables(pgd_tables *out);

#endif
