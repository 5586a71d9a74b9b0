// See socket.h.
#define _GNU_SOURCE

#include "os/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 1024

typedef union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} address;

static socklen_t parse(const char *host, int32_t port, address *out) {
    *out = (address){0};
    if (inet_pton(AF_INET, host, &out->four.sin_addr) == 1) {
        out->four.sin_family = AF_INET;
        out->four.sin_port = htons((uint16_t)port);
        return sizeof(out->four);
    }
    if (inet_pton(AF_INET6, host, &out->six.sin6_addr) == 1) {
        out->six.sin6_family = AF_INET6;
        out->six.sin6_port = htons((uint16_t)port);
        return sizeof(out->six);
    }
    return 0;
}

// SO_REUSEPORT would let a second process of this user take the same port unseen: the first socket
// of a port is bound without it, to learn whether the port is free.
static int is_taken(const address *at, socklen_t bytes) {
    const int on = 1;
    const int fd = socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return 1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const int taken = bind(fd, &at->any, bytes) != 0;
    const int error = errno;
    close(fd);
    errno = error;
    return taken;
}

pgd_status pgd_os_socket_listen(const char *host, int32_t port, int32_t shared, int32_t *out_fd) {
    const int on = 1;
    address at;
    const socklen_t bytes = parse(host, port, &at);
    *out_fd = -1;
    if (bytes == 0) {
        return PGD_INVALID;
    }
    if (!shared && port > 0 && is_taken(&at, bytes)) {
        return PGD_UNAVAILABLE;
    }
    const int fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return PGD_UNAVAILABLE;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0 ||
        bind(fd, &at.any, bytes) != 0 || listen(fd, BACKLOG) != 0) {
        const int error = errno;
        close(fd);
        errno = error;
        return PGD_UNAVAILABLE;
    }
    *out_fd = fd;
    return PGD_OK;
}

void pgd_os_socket_no_delay(int32_t fd) {
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int32_t pgd_os_socket_port(int32_t fd) {
    address at;
    socklen_t bytes = sizeof(at);
    if (getsockname(fd, &at.any, &bytes) != 0) {
        return -1;
    }
    return ntohs(at.any.sa_family == AF_INET6 ? at.six.sin6_port : at.four.sin_port);
}
