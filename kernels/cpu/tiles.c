// Asks Linux to let this process use the tile registers of AMX: their state is large, so that no
// thread has it unasked (Linux, Documentation/arch/x86/xstate.rst).
#include "kernels.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA

int pgd_cpu_ask_for_tiles(void) {
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#else
int pgd_cpu_ask_for_tiles(void) {
    return 0;
}
#endif
