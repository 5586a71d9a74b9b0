// Checksums over libcrypto, as lower-case hex.
#ifndef PGD_BASE_DIGEST_H
#define PGD_BASE_DIGEST_H

#include "base/str.h"

#define PGD_SHA256_HEX 64
#define PGD_SHA1_HEX   40

// [any] The SHA-256 of head and then body; out[PGD_SHA256_HEX + 1].
//   fails  UNAVAILABLE when libcrypto has no such digest
pgd_status pgd_sha256_hex(pgd_str head, pgd_str body, char *out) PGD_MUST_USE;
// [any] The SHA-1 likewise; out[PGD_SHA1_HEX + 1]. For names that others gave, not for trust.
pgd_status pgd_sha1_hex(pgd_str head, pgd_str body, char *out) PGD_MUST_USE;

#endif
