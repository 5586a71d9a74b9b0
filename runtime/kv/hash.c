// The chain over libcrypto. The digest is fetched once and the context reused: one-shot calls cost
// three times as much. See hash.h.
#include "kv/hash.h"

#include <openssl/evp.h>

#include "base/fail.h"
#include "base/mem.h"

struct pgd_kv_hasher {
    EVP_MD *md;
    EVP_MD_CTX *ctx;
    size_t block_bytes; // of the tokens
};

// Parent of first blocks: the first 32 digits of pi's fraction.
static const pgd_kv_hash root = {
    {0x3134313539323635, 0x3335383937393332, 0x3338343632363433, 0x3338333237393530}};

pgd_status pgd_kv_hasher_create(int32_t block_tokens, pgd_kv_hasher **out) {
    *out = NULL;
    pgd_kv_hasher *h = pgd_mem_alloc(1, sizeof(*h));
    if (h == NULL) {
        return PGD_MEM_FAIL("the prefix cache's hasher", sizeof(*h));
    }
    h->block_bytes = (size_t)block_tokens * sizeof(int32_t);
    h->md = EVP_MD_fetch(NULL, "SHA256", NULL);
    h->ctx = EVP_MD_CTX_new();
    if (h->md == NULL || h->ctx == NULL || EVP_DigestInit_ex2(h->ctx, h->md, NULL) != 1) {
        pgd_kv_hasher_destroy(h);
        return pgd_fail(PGD_UNAVAILABLE, "libcrypto gives no SHA-256; the prefix cache needs it");
    }
    *out = h;
    return PGD_OK;
}

void pgd_kv_hasher_destroy(pgd_kv_hasher *h) {
    if (h == NULL) {
        return;
    }
    EVP_MD_CTX_free(h->ctx);
    EVP_MD_free(h->md);
    pgd_mem_free(h);
}

static int32_t add_key(pgd_kv_hasher *h, char tag, const char *bytes, int32_t len) {
    if (len == 0) {
        return 1;
    }
    unsigned char head[5] = {(unsigned char)tag, (unsigned char)len, (unsigned char)(len >> 8),
                             (unsigned char)(len >> 16), (unsigned char)(len >> 24)};
    return EVP_DigestUpdate(h->ctx, head, sizeof(head)) == 1 &&
           EVP_DigestUpdate(h->ctx, bytes, (size_t)len) == 1;
}

static int32_t hash_block(pgd_kv_hasher *h, const pgd_seq *seq, int32_t block) {
    const pgd_kv_hash *parent = block == 0 ? &root : &seq->hashes[block - 1];
    const char *tokens = (const char *)seq->tokens + (size_t)block * h->block_bytes;
    int32_t salt_len = block == 0 ? seq->cache_salt_len : 0;
    return EVP_DigestInit_ex2(h->ctx, NULL, NULL) == 1 &&
           EVP_DigestUpdate(h->ctx, parent, sizeof(*parent)) == 1 &&
           EVP_DigestUpdate(h->ctx, tokens, h->block_bytes) == 1 &&
           add_key(h, 'a', seq->adapter, seq->adapter_len) &&
           add_key(h, 's', seq->cache_salt, salt_len) &&
           EVP_DigestFinal_ex(h->ctx, (unsigned char *)&seq->hashes[block], NULL) == 1;
}

int32_t pgd_kv_hasher_extend(pgd_kv_hasher *h, pgd_seq *seq, int32_t n_blocks) {
    if (seq->hashes == NULL) {
        return 0;
    }
    while (seq->n_hashes < n_blocks) {
        if (!hash_block(h, seq, seq->n_hashes)) {
            return 0;
        }
        seq->n_hashes++;
    }
    return 1;
}
