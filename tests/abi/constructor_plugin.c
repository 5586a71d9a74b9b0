// A library with a static constructor: symbols.sh must find it.
#include <pagoda/plugin.h>

int pgd_constructed;

__attribute__((constructor)) static void construct(void) {
    pgd_constructed++;
}

PGD_PLUGIN_DEFINE(constructor) {
    (void)host_minor;
    return NULL;
}
