// One safetensors file in memory -> the list of its tensors. Pure: reads only the given bytes.
//
//   | u64 n | n bytes of JSON | data ................................ |
//   0       8                 8+n                                     end
//             {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
//
// Accepted only if the tensors' ranges, sorted, cover the data from its first to its last byte
// without hole or overlap, and each range has exactly the bytes that dtype and shape need.
// Source: the safetensors format description and its reference reader.
#ifndef PGD_LOAD_SAFETENSORS_H
#define PGD_LOAD_SAFETENSORS_H

#include "load/weights.h"

#define PGD_LOAD_SAFETENSORS_MAX_HEADER  (32u << 20) // bytes; the format allows 100,000,000
#define PGD_LOAD_SAFETENSORS_MAX_TENSORS 200000u
#define PGD_LOAD_SAFETENSORS_MAX_RANK    16u

// Bits per element and pagoda's dtype of a safetensors dtype. 1 = known, 0 = not.
int32_t pgd_load_safetensors_dtype(pgd_str stored, const char **out_name, uint32_t *out_bits,
                                   int32_t *out_dtype);

typedef struct pgd_load_safetensors {
    pgd_load_tensor *tensors;        // [n] in the order of the header
    const pgd_load_tensor **by_name; // [n] sorted by name
    uint32_t n;
    uint32_t reserved0;
    uint64_t data_bytes;
    struct pgd_json_doc *header; // holds the names
} pgd_load_safetensors;

// file  names the file in sentences and in tensors[].file: borrowed, must outlive *out
//   fails  DATA_LOSS with what is wrong and where; *out is all zero then
pgd_status pgd_load_safetensors_parse(const void *bytes, uint64_t n_bytes, const char *file,
                                      pgd_load_safetensors *out) PGD_MUST_USE;
void pgd_load_safetensors_free(pgd_load_safetensors *s);

const pgd_load_tensor *pgd_load_safetensors_find(const pgd_load_safetensors *s, pgd_str name);
// Order of names: bytes, then length. -1, 0 or 1.
int32_t pgd_load_safetensors_compare(pgd_str a, pgd_str b);

#endif
