// Checksums. See digest.h.
#include "base/digest.h"

#include <openssl/evp.h>

#include "base/fail.h"

static pgd_status digest_hex(const char *name, pgd_str head, pgd_str body, char *out) {
    static const char hex[] = "0123456789abcdef";
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    EVP_MD *md = EVP_MD_fetch(NULL, name, NULL);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int32_t ok = md != NULL && ctx != NULL && EVP_DigestInit_ex2(ctx, md, NULL) == 1 &&
                 EVP_DigestUpdate(ctx, head.ptr, head.len) == 1 &&
                 EVP_DigestUpdate(ctx, body.ptr, body.len) == 1 &&
                 EVP_DigestFinal_ex(ctx, sum, &n) == 1;
    EVP_MD_CTX_free(ctx);
    EVP_MD_free(md);
    for (unsigned int i = 0; i < n; i++) {
        out[2 * (size_t)i] = hex[sum[i] >> 4];
        out[2 * (size_t)i + 1] = hex[sum[i] & 15];
    }
    out[2 * (size_t)n] = '\0';
    return ok ? PGD_OK : pgd_fail(PGD_UNAVAILABLE, "libcrypto gives no %s", name);
}

pgd_status pgd_sha256_hex(pgd_str head, pgd_str body, char *out) {
    return digest_hex("SHA256", head, body, out);
}

pgd_status pgd_sha1_hex(pgd_str head, pgd_str body, char *out) {
    return digest_hex("SHA1", head, body, out);
}
