// A GGUF file: every tensor that comes out lies inside the bytes and is found by its name, and
// every value is walked over to its end.
#include "load/gguf.h"

#include "fuzz.h"

static uint64_t walk(const pgd_load_gguf_value *v, const uint8_t *data, size_t size) {
    pgd_load_gguf_walk ints = {.value = v}, floats = {.value = v}, texts = {.value = v};
    int64_t i = 0;
    double f = 0;
    pgd_str s = {0};
    uint64_t sum = 0;
    FUZZ_CHECK(v->ptr >= data && v->ptr <= data + size);
    FUZZ_CHECK(v->bytes <= (uint64_t)(data + size - v->ptr));
    while (pgd_load_gguf_next_int(&ints, &i)) {
        sum += (uint64_t)i & 1;
    }
    while (pgd_load_gguf_next_float(&floats, &f)) {
        sum += f > 0;
    }
    while (pgd_load_gguf_next_str(&texts, &s)) {
        sum += s.len != 0 ? (uint64_t)(unsigned char)s.ptr[s.len - 1] : 0;
    }
    return sum;
}

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    pgd_load_gguf g = {0};
    pgd_status status = pgd_load_gguf_parse(data, size, "x.gguf", &g);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < g.n; i++) {
        const pgd_load_tensor *t = &g.tensors[i];
        const uint8_t *at = t->ptr;
        FUZZ_CHECK(at >= data && at <= data + size);
        FUZZ_CHECK(t->bytes <= (uint64_t)(data + size - at));
        for (uint64_t k = 0; k < t->bytes; k += 64) {
            sum += at[k];
        }
        FUZZ_CHECK(pgd_load_gguf_find(&g, t->name) == t);
    }
    for (uint32_t i = 0; i < g.n_values; i++) {
        sum += walk(&g.values[i], data, size);
    }
    FUZZ_CHECK(sum <= (uint64_t)size * 255 * 2);
    pgd_load_gguf_free(&g);
    return status;
}
