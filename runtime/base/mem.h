// Memory: the only door to malloc. Counts what is allocated, can fail the n-th allocation for
// tests, and can watch that a stretch of code (the step loop) allocates nothing.
#ifndef PGD_BASE_MEM_H
#define PGD_BASE_MEM_H

#include <stddef.h>

#include <pagoda/status.h>

// [any] Zeroed memory for n items of item_bytes, 16-byte aligned; NULL when there is none, when the
// product overflows or when a test says so. 0 bytes give a valid pointer.
void *pgd_mem_alloc(size_t n, size_t item_bytes);
// [any] Same, align a power of two up to 4096.
void *pgd_mem_alloc_aligned(size_t bytes, size_t align);
// [any] Grows; the old block stays when NULL is returned. Growth is not zeroed. Only for blocks of
// pgd_mem_alloc and pgd_mem_realloc.
void *pgd_mem_realloc(void *ptr, size_t n, size_t item_bytes);
// [any] NULL is fine. Takes blocks of all three.
void pgd_mem_free(void *ptr);

// [any] out = a copy of a NUL-terminated string.
pgd_status pgd_mem_copy_text(const char *text, char **out) PGD_MUST_USE;

// The failure every caller of pgd_mem_alloc returns.
#define PGD_MEM_FAIL(what, bytes) \
    pgd_fail(PGD_OUT_OF_MEMORY, "no memory for %s (%zu bytes)", (what), (size_t)(bytes))

// Checked sizes. *out is set only when 1 is returned; 0 = overflow.
int32_t pgd_size_add(uint64_t a, uint64_t b, uint64_t *out);
int32_t pgd_size_mul(uint64_t a, uint64_t b, uint64_t *out);

// ---- for tests ---------------------------------------------------------------------------------

// The n-th allocation from here (1 = the next) fails, once; 0 = off. Process-wide.
void pgd_mem_fail_nth(uint64_t n);
// 1 while a failure is to come. What grows by leaps (pgd_text) then asks for memory each time, so
// that counting n up reaches every place that may grow, not only those where a leap happens to lie.
int32_t pgd_mem_is_armed(void);
// Live allocations and all allocations so far. Process-wide.
uint64_t pgd_mem_live(void);
uint64_t pgd_mem_count(void);
// Allocations on this thread since the process began: a step compares before and after.
uint64_t pgd_mem_thread_count(void);

#endif
