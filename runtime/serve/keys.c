// See keys.h. Comparing hashes, all of them each time, tells nothing by its duration
// (CVE-2025-59425).
#include "serve/keys.h"

#include <string.h>

#include <event2/util.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/fail.h"
#include "base/mem.h"
#include "os/file.h"

typedef struct key_hash {
    unsigned char bytes[SHA256_DIGEST_LENGTH];
} key_hash;

struct pgd_serve_keys {
    key_hash *hashes;
    int32_t n;
};

static pgd_status add_key(pgd_serve_keys *k, pgd_str key) {
    if (key.len == 0) {
        return pgd_fail(PGD_INVALID, "an API key is empty; at least one character is needed");
    }
    key_hash *hashes = pgd_mem_realloc(k->hashes, (size_t)k->n + 1, sizeof(*hashes));
    if (hashes == NULL) {
        return PGD_MEM_FAIL("API keys", sizeof(*hashes));
    }
    k->hashes = hashes;
    SHA256((const unsigned char *)key.ptr, key.len, k->hashes[k->n].bytes);
    k->n++;
    return PGD_OK;
}

static pgd_status add_file(pgd_serve_keys *k, const char *path) {
    pgd_os_map map = {0};
    pgd_status status = pgd_os_map_file(path, &map);
    if (status != PGD_OK) {
        return pgd_fail(status, "%s: the file of API keys cannot be read", path);
    }
    pgd_str rest = {map.ptr, map.bytes};
    while (rest.len > 0 && status == PGD_OK) {
        pgd_str line = pgd_str_trim(pgd_str_cut(rest, '\n', &rest));
        if (line.len > 0 && line.ptr[0] != '#') {
            status = add_key(k, line);
        }
    }
    pgd_os_unmap(&map);
    return status;
}

pgd_status pgd_serve_keys_open(const char *const *keys, uint32_t n, const char *file,
                               pgd_serve_keys **out) {
    *out = NULL;
    if (n == 0 && file == NULL) {
        return PGD_OK;
    }
    pgd_serve_keys *k = pgd_mem_alloc(1, sizeof(*k));
    if (k == NULL) {
        return PGD_MEM_FAIL("API keys", sizeof(*k));
    }
    pgd_status status = file != NULL ? add_file(k, file) : PGD_OK;
    for (uint32_t i = 0; i < n && status == PGD_OK; i++) {
        status = add_key(k, pgd_str_of(keys[i]));
    }
    if (status == PGD_OK && k->n == 0) {
        status = pgd_fail(PGD_INVALID, "%s: no key in this file", file);
    }
    if (status != PGD_OK) {
        pgd_serve_keys_close(k);
        return status;
    }
    *out = k;
    return PGD_OK;
}

void pgd_serve_keys_close(pgd_serve_keys *k) {
    if (k != NULL) {
        pgd_mem_free(k->hashes);
        pgd_mem_free(k);
    }
}

int32_t pgd_serve_keys_count(const pgd_serve_keys *k) {
    return k != NULL ? k->n : 0;
}

int32_t pgd_serve_keys_find(const pgd_serve_keys *k, const char *authorization) {
    key_hash given;
    int32_t found = 0;
    if (authorization == NULL || evutil_ascii_strncasecmp(authorization, "Bearer ", 7) != 0) {
        return 0;
    }
    pgd_str key = pgd_str_trim(pgd_str_of(authorization + 7));
    SHA256((const unsigned char *)key.ptr, key.len, given.bytes);
    for (int32_t i = 0; i < k->n; i++) {
        if (CRYPTO_memcmp(given.bytes, k->hashes[i].bytes, sizeof(given.bytes)) == 0) {
            found = i + 1;
        }
    }
    return found;
}
