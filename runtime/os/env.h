// Environment, terminal, time, randomness.
#ifndef PGD_OS_ENV_H
#define PGD_OS_ENV_H

#include <stddef.h>
#include <stdint.h>

const char *pgd_os_env(const char *name);        // NULL = not set
const char *pgd_os_env_secure(const char *name); // NULL also under raised privileges
int32_t pgd_os_is_terminal(int32_t fd);          // 1 or 0
uint64_t pgd_os_monotonic_ns(void);
int64_t pgd_os_unix_ms(void);
void pgd_os_sleep_ns(uint64_t ns);
int32_t pgd_os_random(void *out, size_t bytes); // 1 = filled
int32_t pgd_os_last_error(void);                // errno of the last failed call of this thread
const char *pgd_os_error_text(int32_t error, char *buffer, size_t cap);

#endif
