// One GGUF file in memory -> its values and its tensors. Pure: reads only the given bytes.
//
//   | "GGUF" version n_tensors n_values | values | tensor infos | padding | data .......... |
//   0    4       8         16         24                                  header_bytes      end
//     value   key, u32 type, value              (a string: u64 length and bytes)
//     tensor  name, u32 rank, u64 shape[rank] innermost first, u32 type, u64 offset in the data
//
// Accepted only if every count, length and range lies inside the file, no key or name appears
// twice, each tensor's bytes are those its type and shape need, and no two tensors overlap. Source:
// the GGUF description of ggml, version 3 (2 has the same layout).
#ifndef PGD_LOAD_GGUF_H
#define PGD_LOAD_GGUF_H

#include "load/weights.h"

#define PGD_LOAD_GGUF_MAX_VALUES  65536u
#define PGD_LOAD_GGUF_MAX_TENSORS 200000u
#define PGD_LOAD_GGUF_MAX_NAME    1024u // bytes of a key or a tensor's name
#define PGD_LOAD_GGUF_MAX_ALIGN   (1u << 20)

// Types of values.
enum {
    PGD_GGUF_U8 = 0,
    PGD_GGUF_I8 = 1,
    PGD_GGUF_U16 = 2,
    PGD_GGUF_I16 = 3,
    PGD_GGUF_U32 = 4,
    PGD_GGUF_I32 = 5,
    PGD_GGUF_F32 = 6,
    PGD_GGUF_BOOL = 7,
    PGD_GGUF_STRING = 8,
    PGD_GGUF_ARRAY = 9,
    PGD_GGUF_U64 = 10,
    PGD_GGUF_I64 = 11,
    PGD_GGUF_F64 = 12,
};

// A value as it lies in the file, borrowed from its bytes.
typedef struct pgd_load_gguf_value {
    pgd_str key;
    uint32_t type;      // PGD_GGUF_... of the value, or of an array's elements
    int32_t is_array;   // 1: n elements
    uint64_t n;         // 1, or the elements of an array
    const uint8_t *ptr; // first byte behind types and counts
    uint64_t bytes;
} pgd_load_gguf_value;

typedef struct pgd_load_gguf {
    pgd_load_gguf_value *values;     // [n_values] sorted by key
    pgd_load_tensor *tensors;        // [n] in the order of the file
    const pgd_load_tensor **by_name; // [n] sorted by name
    uint32_t n_values;
    uint32_t n;
    uint64_t header_bytes; // where the data begins
    const char *file;
    struct pgd_arena *names;
} pgd_load_gguf;

// 1 when a path ends in .gguf.
int32_t pgd_load_gguf_is(const char *path);

// file  names the file in sentences and in tensors[].file: borrowed, must outlive *out
//   fails  DATA_LOSS with what is wrong and where, UNSUPPORTED (version, byte order); *out is all
//          zero then
pgd_status pgd_load_gguf_parse(const void *bytes, uint64_t n_bytes, const char *file,
                               pgd_load_gguf *out) PGD_MUST_USE;
void pgd_load_gguf_free(pgd_load_gguf *g);

const pgd_load_tensor *pgd_load_gguf_find(const pgd_load_gguf *g, pgd_str name); // NULL = none

// The value of a key, NULL = none.
const pgd_load_gguf_value *pgd_load_gguf_get(const pgd_load_gguf *g, const char *key);

// Typed reads: a missing value leaves *io as it is; one of another kind, or outside [min, max], is
// INVALID by file, key and value. Integers of every width count as integers, and as floats.
pgd_status pgd_load_gguf_int(const pgd_load_gguf *g, const char *key, int64_t min, int64_t max,
                             int64_t *io) PGD_MUST_USE;
pgd_status pgd_load_gguf_float(const pgd_load_gguf *g, const char *key, double *io) PGD_MUST_USE;
pgd_status pgd_load_gguf_bool(const pgd_load_gguf *g, const char *key, int32_t *io) PGD_MUST_USE;
pgd_status pgd_load_gguf_str(const pgd_load_gguf *g, const char *key, pgd_str *io) PGD_MUST_USE;

// Walks over the elements of a value; zero-initialise but for value. Each call gives one element of
// the kind it names and goes on; 0 at the end or when the elements are of another kind.
typedef struct pgd_load_gguf_walk {
    const pgd_load_gguf_value *value;
    uint64_t i;
    uint64_t at; // byte of the next element
} pgd_load_gguf_walk;

int32_t pgd_load_gguf_next_int(pgd_load_gguf_walk *w, int64_t *out);
int32_t pgd_load_gguf_next_float(pgd_load_gguf_walk *w, double *out);
int32_t pgd_load_gguf_next_str(pgd_load_gguf_walk *w, pgd_str *out);

// What a tensor type of ggml is here.
typedef struct pgd_load_gguf_type {
    const char *name;  // as ggml writes it
    uint32_t number;   // in files
    uint32_t elements; // of a block
    uint32_t bytes;    // of a block
    int32_t scheme;    // PGD_SCHEME_..., -1 = not computed with
    int32_t dtype;     // of a plain one, else PGD_DTYPE_NONE
} pgd_load_gguf_type;

const pgd_load_gguf_type *pgd_load_gguf_type_of(uint32_t number);                // NULL = unknown
const pgd_load_gguf_type *pgd_load_gguf_type_for(int32_t scheme, int32_t dtype); // NULL = none

#endif
