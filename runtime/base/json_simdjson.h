// The door to simdjson, the only C++ in the runtime. Nothing is thrown through it.
#ifndef PGD_BASE_JSON_SIMDJSON_H
#define PGD_BASE_JSON_SIMDJSON_H

#ifdef __cplusplus
extern "C" {
#endif

#include "base/json.h"

enum { PGD_JSON_PADDING = 64 }; // readable bytes that must follow the text

// Where the tree goes: zeroed memory for n items, and a copy that ends with NUL; NULL = none left.
typedef struct pgd_json_memory {
    void *arg;
    void *(*alloc)(void *arg, size_t n, size_t item_bytes);
    const char *(*copy)(void *arg, const char *bytes, size_t len);
} pgd_json_memory;

enum {
    PGD_JSON_PARSED = 0,
    PGD_JSON_BAD = 1, // *out_why is the reason, a literal
    PGD_JSON_BIG = 2, // likewise; a number does not fit its type
    PGD_JSON_NO_MEMORY = 3,
};

// Parses text[0, len) into *root. depth: levels of arrays and objects allowed.
int32_t pgd_json_simdjson(const char *text, size_t len, uint32_t depth,
                          const pgd_json_memory *memory, pgd_json *root, const char **out_why);

#ifdef __cplusplus
}
#endif
#endif
