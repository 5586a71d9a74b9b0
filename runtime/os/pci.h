// Chips on the PCI bus, as the system lists them.
#ifndef PGD_OS_PCI_H
#define PGD_OS_PCI_H

#include <pagoda/status.h>

typedef struct pgd_os_pci_chip {
    char address[16]; // "0000:65:00.0"
    uint32_t vendor;
    uint32_t device;
} pgd_os_pci_chip;

// Calls fn for each chip, in order of addresses; a non-zero return ends the walk. root is put
// before /sys: "" for the machine itself, a folder for tests.
//   fails  NOT_FOUND when the system does not tell
pgd_status pgd_os_pci_list(const char *root, int32_t (*fn)(void *arg, const pgd_os_pci_chip *chip),
                           void *arg) PGD_MUST_USE;

#endif
