// What the files of the GGUF reader share.
#ifndef PGD_LOAD_GGUF_INNER_H
#define PGD_LOAD_GGUF_INNER_H

#include "base/json.h"
#include "load/gguf.h"

// Kinds of tokens (tokenizer.ggml.token_type).
enum {
    PGD_LOAD_GGUF_NORMAL = 1,
    PGD_LOAD_GGUF_UNKNOWN = 2,
    PGD_LOAD_GGUF_CONTROL = 3,
    PGD_LOAD_GGUF_USER = 4,
    PGD_LOAD_GGUF_UNUSED = 5,
    PGD_LOAD_GGUF_BYTE = 6,
};

// For sentences: the tensor types that can be computed with.
#define PGD_LOAD_GGUF_TYPES                                                                   \
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL and " \
    "MXFP4"

// Little-endian number of n bytes.
uint64_t pgd_load_gguf_little(const uint8_t *p, uint32_t n);
// Bytes of an element of a value; 0 for strings, arrays and unknown types.
uint32_t pgd_load_gguf_item(uint32_t type);

// Scores of SentencePiece pieces by which the merges of a tokenizer.json can be made again: minus
// the rank of a piece's first merge; lower ones for what no merge makes.
//   texts, kinds, scores  [n]
//   fails  UNSUPPORTED when the merges are not all ways to cut a piece into two, piece by piece
pgd_status pgd_load_gguf_scores(const pgd_json *merges, const pgd_str *texts, const int32_t *kinds,
                                int64_t n, float *scores);

#endif
