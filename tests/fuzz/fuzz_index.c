// model.safetensors.index.json: every file name stays in the folder, the order is as promised.
#include <string.h>

#include "load/shards.h"

#include "fuzz.h"

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    pgd_load_shards s = {0};
    pgd_status status = pgd_load_shards_parse((pgd_str){(const char *)data, size}, "x.json", &s);
    FUZZ_CHECK(status == PGD_OK || s.n == 0);
    FUZZ_CHECK(s.n_files <= s.n && s.n_files <= PGD_LOAD_MAX_SHARDS);
    for (uint32_t i = 0; i < s.n; i++) {
        pgd_str file = s.entries[i].file;
        FUZZ_CHECK(file.len > 0 && strlen(file.ptr) == file.len);
        FUZZ_CHECK(strchr(file.ptr, '/') == NULL && strcmp(file.ptr, "..") != 0);
        FUZZ_CHECK(i == 0 || !pgd_str_equal(s.entries[i - 1].tensor, s.entries[i].tensor));
    }
    pgd_load_shards_free(&s);
    return status;
}
