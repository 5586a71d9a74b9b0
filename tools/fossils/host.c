// host PLUGIN.so: the device room of one minor of the interface (runtime/dev and kernels/ref as
// they were) opens a plugin, runs a layer of a model in two steps through its merged tables, and
// compares with the reference. The model is that room's own test of fallbacks.
//
// The loader is left out: its rule for versions is that of the minor, and before 0.2 that rule was
// "the same headers". What is tested is the rest of the promise, the tables and structs.
#include "dev/odd_test.h" // first, see there

#include <dlfcn.h>

#include "dev/inner.h"

static const pgd_plugin *opened;
#define odd_plugin(variant) ((void)(variant), opened)
#define main                fallback_main
#include FALLBACK_TEST
#undef main

int main(int argc, char **argv) {
    pgd_plugin_entry entry = NULL;
    if (argc != 2) {
        fprintf(stderr, "host PLUGIN.so\n");
        return 2;
    }
    void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    void *symbol = lib == NULL ? NULL : dlsym(lib, PGD_PLUGIN_ENTRY);
    if (symbol == NULL) {
        fprintf(stderr, "%s: %s\n", argv[1], dlerror());
        return 1;
    }
    memcpy(&entry, &symbol, sizeof(entry));
    opened = entry(PGD_ABI_MINOR);
    assert_true(opened != NULL && opened->min_host_minor <= PGD_ABI_MINOR);
    check_variant(ODD_MINIMAL);
    printf("host of %d.%d: plugin '%s' of %d.%u runs\n", PGD_ABI_MAJOR, PGD_ABI_MINOR, opened->name,
           PGD_ABI_MAJOR, opened->abi_minor);
    return 0;
}
