// Ctrl-C (SIGINT): caught and counted instead of ending the program, and a read that it ends.
#ifndef PGD_OS_INTERRUPT_H
#define PGD_OS_INTERRUPT_H

#include <stddef.h>

#include <pagoda/status.h>

enum { PGD_OS_READ_FAILED = -1, PGD_OS_READ_INTERRUPTED = -2 };

// From now on for the whole process. Calls of the system that wait go on after it.
pgd_status pgd_os_interrupt_catch(void) PGD_MUST_USE;
// 1 if there was an interrupt since the last call (or since catch), which is forgotten by this.
int32_t pgd_os_interrupt_taken(void);
// Waits for bytes of a descriptor: how many came, 0 at its end, or one of the above. An interrupt
// ends the wait whenever it comes, also just before, and is forgotten by this.
int64_t pgd_os_interrupt_read(int32_t fd, void *to, size_t cap);

#endif
