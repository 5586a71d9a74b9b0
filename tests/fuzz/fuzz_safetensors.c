// A safetensors file: every tensor that comes out lies inside the bytes and is found by its name.
#include "load/safetensors.h"

#include "fuzz.h"

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    pgd_load_safetensors s = {0};
    pgd_status status = pgd_load_safetensors_parse(data, size, "x.safetensors", &s);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        const pgd_load_tensor *t = &s.tensors[i];
        const uint8_t *at = t->ptr;
        FUZZ_CHECK(t->bytes == 0 || (at >= data && at <= data + size));
        FUZZ_CHECK(t->bytes == 0 || t->bytes <= (uint64_t)(data + size - at));
        for (uint64_t k = 0; k < t->bytes; k += 64) {
            sum += at[k];
        }
        FUZZ_CHECK(pgd_load_safetensors_find(&s, t->name) != NULL);
    }
    FUZZ_CHECK(sum <= (uint64_t)size * 255);
    pgd_load_safetensors_free(&s);
    return status;
}
