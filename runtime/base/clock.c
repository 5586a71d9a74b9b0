// Clocks, from the operating system.
#include "base/clock.h"

#include "os/env.h"

uint64_t pgd_clock_ns(void) {
    return pgd_os_monotonic_ns();
}

int64_t pgd_clock_unix_ms(void) {
    return pgd_os_unix_ms();
}

void pgd_clock_sleep_ns(uint64_t ns) {
    pgd_os_sleep_ns(ns);
}
