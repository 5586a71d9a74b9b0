// Chips on the PCI bus from Linux's sysfs: /sys/bus/pci/devices/<address>/{vendor,device}.
#include "os/pci.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"

#define PATH_BYTES 600

typedef struct walk {
    const char *folder;
    int32_t (*fn)(void *arg, const pgd_os_pci_chip *chip);
    void *arg;
} walk;

// "0x10de\n" -> 0x10de
static int32_t read_number(const char *folder, const char *address, const char *name,
                           uint32_t *out) {
    char path[PATH_BYTES];
    char text[16] = "";
    uint64_t n = 0;
    int len = snprintf(path, sizeof(path), "%s/%s/%s", folder, address, name);
    if (len < 0 || (size_t)len >= sizeof(path) ||
        pgd_os_read_file(path, text, sizeof(text) - 1, &n) != PGD_OK) {
        return 0;
    }
    char *end = NULL;
    *out = (uint32_t)strtoul(text, &end, 16);
    return end != text;
}

static int32_t visit(void *arg, const char *name) {
    const walk *w = arg;
    pgd_os_pci_chip chip = {0};
    if (strlen(name) >= sizeof(chip.address)) {
        return 0;
    }
    memcpy(chip.address, name, strlen(name));
    if (!read_number(w->folder, name, "vendor", &chip.vendor) ||
        !read_number(w->folder, name, "device", &chip.device)) {
        return 0;
    }
    return w->fn(w->arg, &chip);
}

pgd_status pgd_os_pci_list(const char *root, int32_t (*fn)(void *arg, const pgd_os_pci_chip *chip),
                           void *arg) {
    char folder[PATH_BYTES];
    int n = snprintf(folder, sizeof(folder), "%s/sys/bus/pci/devices", root);
    if (n < 0 || (size_t)n >= sizeof(folder)) {
        return PGD_OUT_OF_RANGE;
    }
    walk w = {.folder = folder, .fn = fn, .arg = arg};
    return pgd_os_list(folder, visit, &w);
}
