// Files of a model folder (see folder.h).
#include "load/folder.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "os/env.h"

pgd_status pgd_load_folder_join(const char *folder, pgd_str name, char **out) {
    pgd_str head = pgd_str_of(folder);
    uint64_t bytes = 0;
    *out = NULL;
    if (!pgd_size_add(head.len, name.len, &bytes) || !pgd_size_add(bytes, 2, &bytes)) {
        return PGD_MEM_FAIL("a path", SIZE_MAX);
    }
    char *path = pgd_mem_alloc(1, (size_t)bytes);
    if (path == NULL) {
        return PGD_MEM_FAIL("a path", bytes);
    }
    size_t at = head.len;
    memcpy(path, head.ptr, head.len);
    if (at == 0 || path[at - 1] != '/') {
        path[at++] = '/';
    }
    memcpy(path + at, name.ptr, name.len);
    *out = path;
    return PGD_OK;
}

pgd_status pgd_load_folder_map(const char *path, uint64_t max_bytes, pgd_os_map *out) {
    pgd_status status = pgd_os_map_file(path, out);
    if (status != PGD_OK) {
        char text[128];
        const char *why = pgd_os_error_text(pgd_os_last_error(), text, sizeof(text));
        return pgd_fail(status, "%s: cannot be read: %s", path, why);
    }
    if (max_bytes != 0 && out->bytes > max_bytes) {
        uint64_t bytes = out->bytes;
        pgd_os_unmap(out);
        return pgd_fail(PGD_INVALID, "%s: %llu bytes; at most %llu are allowed", path,
                        (unsigned long long)bytes, (unsigned long long)max_bytes);
    }
    return PGD_OK;
}

pgd_str pgd_load_folder_text(const pgd_os_map *map) {
    return (pgd_str){map->ptr != NULL ? map->ptr : "", (size_t)map->bytes};
}
