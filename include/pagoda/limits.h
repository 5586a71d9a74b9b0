// Extension "x.limits.1": what a device can do at most, measured at this moment.
//
// A plugin that has it answers pgd_tables.extension(backend, PGD_LIMITS_EXTENSION) with a
// pgd_limits. Programs that judge speed ask before and after a sample, in the same process, since
// clocks and neighbours change the limits of a machine from second to second.
#ifndef PAGODA_LIMITS_H
#define PAGODA_LIMITS_H

#include <pagoda/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PGD_LIMITS_EXTENSION "x.limits.1"

// X(NAME, number, name in reports)
#define PGD_LIMIT_LIST(X)                                                                       \
    X(READ, 0, "read")         /* bytes: memory larger than the caches, read once, all units */ \
    X(DOT_F32, 1, "dot_f32")   /* operations: f32 multiply-add, register operands */            \
    X(DOT_BF16, 2, "dot_bf16") /* bf16 products summed in f32 */                                \
    X(DOT_I8, 3, "dot_i8")     /* 8-bit products summed in 32 bits */

enum {
#define PGD_LIMIT_ENUM(name, number, text) PGD_LIMIT_##name = number,
    PGD_LIMIT_LIST(PGD_LIMIT_ENUM)
#undef PGD_LIMIT_ENUM
        PGD_LIMIT_COUNT = 4
};

typedef struct pgd_limit {
    uint32_t size;
    uint32_t rounds; // measurements the rates below come from
    double rate;     // a second, the median: bytes, or operations (a product and a sum are two)
    double best;     // the highest
    uint64_t spent_ns;
    uint64_t bytes; // READ: size of the memory
    char how[32];   // instruction
} pgd_limit;

typedef struct pgd_limits {
    uint32_t size;
    uint32_t reserved0;
    // [queue] measures one limit for about budget_ns with all units of the device, nothing else
    // running on it. The first READ also takes and fills its memory, which is kept until close.
    //   fails  UNSUPPORTED when the device has no such instruction; OUT_OF_MEMORY
    pgd_status (*measure)(const pgd_device *d, int32_t what, uint64_t budget_ns, pgd_limit *out);
} pgd_limits;

#ifdef __cplusplus
}
#endif
#endif
