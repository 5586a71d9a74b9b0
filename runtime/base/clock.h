// Clocks.
#ifndef PGD_BASE_CLOCK_H
#define PGD_BASE_CLOCK_H

#include <stdint.h>

uint64_t pgd_clock_ns(void);          // [any] monotonic
int64_t pgd_clock_unix_ms(void);      // [any] wall clock
void pgd_clock_sleep_ns(uint64_t ns); // [any]

#endif
