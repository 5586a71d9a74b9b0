// Names of full blocks: hash of block i = SHA-256(hash of block i - 1, its tokens, further keys).
//
//   | parent 32 B | tokens block_tokens x i32 | [ 'a' length adapter ] | [ 's' length salt ] |
//
// The first block's parent is a fixed constant. The salt stands in the first block only: the chain
// hands it on. Two blocks with the same hash hold the same keys and values. Single-threaded;
// allocates in create only.
#ifndef PGD_KV_HASH_H
#define PGD_KV_HASH_H

#include "kv/step.h"

typedef struct pgd_kv_hasher pgd_kv_hasher;

//   fails  OUT_OF_MEMORY, UNAVAILABLE if libcrypto has no SHA-256
pgd_status pgd_kv_hasher_create(int32_t block_tokens, pgd_kv_hasher **out) PGD_MUST_USE;
void pgd_kv_hasher_destroy(pgd_kv_hasher *h); // NULL is fine

// Makes the hashes of seq's first n_blocks full blocks, those that are missing. 1 = all are there;
// 0 = libcrypto failed or seq has no room for hashes.
int32_t pgd_kv_hasher_extend(pgd_kv_hasher *h, pgd_seq *seq, int32_t n_blocks);

#endif
