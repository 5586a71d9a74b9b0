// The terminal over termios.
#define _GNU_SOURCE

#include "os/terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define DEFAULT_WIDTH 80

static struct termios before;
static int has_before;

pgd_status pgd_os_terminal_keys(int32_t fd, int32_t on) {
    if (!has_before) {
        if (tcgetattr(fd, &before) != 0) {
            return PGD_INVALID;
        }
        has_before = 1;
    }
    struct termios wanted = before;
    if (on) {
        wanted.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
        wanted.c_iflag &= ~(tcflag_t)(IXON);
        wanted.c_cc[VMIN] = 1;
        wanted.c_cc[VTIME] = 0;
    }
    return tcsetattr(fd, TCSADRAIN, &wanted) == 0 ? PGD_OK : PGD_INVALID;
}

int32_t pgd_os_terminal_width(int32_t fd) {
    struct winsize size = {0};
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : DEFAULT_WIDTH;
}
