// A device that says of itself what CHIP_... tell: kind, addresses, uuids, speed, memory. All else
// is the minimal plugin of tests/abi. Each time it is opened it writes its kind as a line into the
// file that the environment variable CHIP_OPENED names.
#define PGD_STATIC_PLUGIN
#define MINIMAL_KIND  CHIP_KIND
#define MINIMAL_BYTES CHIP_BYTES
#include "../abi/minimal_plugin.c"

#include <stdio.h>

typedef struct chip {
    const char *pci;
    uint8_t uuid; // every byte of it, 0 = none
} chip;

static const chip chips[] = {CHIP_LIST};

#define N_CHIPS ((uint32_t)(sizeof(chips) / sizeof(chips[0])))

static pgd_status chip_count(void *backend, uint32_t *out_n) {
    (void)backend;
    *out_n = N_CHIPS;
    return PGD_OK;
}

static pgd_status chip_info(void *backend, uint32_t i, pgd_device_info *out) {
    PGD_TRY(device_info(backend, i, out));
    (void)snprintf(out->name, sizeof(out->name), "Chip %u of %s", i, CHIP_KIND);
    (void)snprintf(out->pci, sizeof(out->pci), "%s", chips[i].pci);
    memset(out->uuid, chips[i].uuid, sizeof(out->uuid));
    out->bytes_per_s = CHIP_SPEED;
    return PGD_OK;
}

static pgd_status chip_probe(const pgd_host *host, pgd_probe *out) {
    pgd_probe local = {.size = sizeof(local), .n_devices = N_CHIPS, .score = CHIP_SCORE};
    (void)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status chip_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static pgd_device_table device;
    PGD_TRY(plugin_open(host, out_backend, out));
    device = *out->device;
    device.count = chip_count;
    device.info = chip_info;
    out->device = &device;
    return PGD_OK;
}

PGD_EXPORT const pgd_plugin *pgd_plugin_v0(uint32_t host_minor);
const pgd_plugin *pgd_plugin_v0(uint32_t host_minor) {
    static pgd_plugin plugin;
    const char *path = getenv("CHIP_OPENED");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file != NULL) {
        (void)fprintf(file, "%s\n", CHIP_KIND);
        (void)fclose(file);
    }
    plugin = *pgd_plugin_v0_minimal(host_minor);
    plugin.probe = chip_probe;
    plugin.open = chip_open;
    return &plugin;
}
