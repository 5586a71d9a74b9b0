// The terminal: keys one by one, and its width.
#ifndef PGD_OS_TERMINAL_H
#define PGD_OS_TERMINAL_H

#include <pagoda/status.h>

// on 1: bytes come as they are typed, without echo and without the system's line editing; Ctrl-C
// stays an interrupt. on 0: back to what it was at first. One terminal per process.
//   fails  INVALID when fd is no terminal
pgd_status pgd_os_terminal_keys(int32_t fd, int32_t on) PGD_MUST_USE;
// Columns; 80 when they are not known.
int32_t pgd_os_terminal_width(int32_t fd);

#endif
