// A plugin's manifest, through a file as the host reads it.
#define _POSIX_C_SOURCE 200809L // mkdtemp
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "dev/inner.h"

#include "fuzz.h"

static char folder[] = "/tmp/pgd-manifest-XXXXXX";
static char path[sizeof(folder) + 16];

static void clean_up(void) {
    unlink(path);
    rmdir(folder);
}

static void write_file(const uint8_t *data, size_t size) {
    if (path[0] == '\0') {
        FUZZ_CHECK(mkdtemp(folder) != NULL);
        snprintf(path, sizeof(path), "%s/x.json", folder);
        atexit(clean_up);
    }
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(f != NULL && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    pgd_arena *arena = NULL;
    pgd_dev_manifest m = {0};
    write_file(data, size);
    pgd_status status = pgd_arena_create(0, &arena);
    if (status == PGD_OK) {
        status = pgd_dev_manifest_read(path, arena, &m);
    }
    if (status == PGD_OK) {
        FUZZ_CHECK(m.kind != NULL && m.name != NULL && m.path != NULL && m.license != NULL);
        FUZZ_CHECK(m.unusable == NULL || m.unusable[0] != '\0');
        FUZZ_CHECK(m.unusable != NULL || (m.kind[0] != '\0' && strlen(m.kind) <= 24));
        FUZZ_CHECK(m.role == PGD_ROLE_BACKEND || m.role == PGD_ROLE_LAYER || m.unusable != NULL);
        for (uint32_t i = 0; i < m.n_aliases; i++) {
            FUZZ_CHECK(m.aliases[i][0] != '\0');
        }
    }
    pgd_arena_destroy(arena);
    return status;
}
