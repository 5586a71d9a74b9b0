// Sockets.
#ifndef PGD_OS_SOCKET_H
#define PGD_OS_SOCKET_H

#include <pagoda/status.h>

// A listening, non-blocking TCP socket. host: an IPv4 or IPv6 address; port 0 = any free one.
// shared 1: beside other sockets of this process on that port.
//   fails  INVALID (host), UNAVAILABLE (errno says why)
pgd_status pgd_os_socket_listen(const char *host, int32_t port, int32_t shared,
                                int32_t *out_fd) PGD_MUST_USE;
// Small writes leave at once (TCP_NODELAY).
void pgd_os_socket_no_delay(int32_t fd);
// The port that a socket is bound to; -1 = none.
int32_t pgd_os_socket_port(int32_t fd);

#endif
