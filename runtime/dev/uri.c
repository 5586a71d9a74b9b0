// Device names: KIND[:N][{key=value;...}].
#include "dev/inner.h"

#include <string.h>

#include "base/fail.h"

static int32_t is_kind_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static pgd_status bad(const char *uri, const char *why) {
    return pgd_fail(PGD_INVALID,
                    "device '%s': %s; a device is written KIND[:N][{key=value;...}], for example "
                    "cpu, acme:0 or null{step_us=5000}",
                    uri, why);
}

static pgd_status parse_index(const char *uri, pgd_str *at, pgd_dev_uri_parts *out) {
    size_t n = 0;
    uint64_t value = 0;
    while (n < at->len && at->ptr[n] >= '0' && at->ptr[n] <= '9') {
        n++;
    }
    if (!pgd_str_to_u64((pgd_str){at->ptr, n}, &value) || value > 65535) {
        return bad(uri, "behind the colon stands no number from 0 to 65535");
    }
    out->index = (uint32_t)value;
    out->has_index = 1;
    at->ptr += n;
    at->len -= n;
    return PGD_OK;
}

pgd_status pgd_dev_uri_parse(const char *uri, pgd_dev_uri_parts *out) {
    *out = (pgd_dev_uri_parts){0};
    pgd_str at = pgd_str_trim(pgd_str_of(uri));
    size_t n = 0;
    while (n < at.len && is_kind_byte(at.ptr[n])) {
        n++;
    }
    if (n == 0 || n > 24) {
        return bad(uri, "the kind is missing, too long, or not in lower-case letters");
    }
    out->kind = (pgd_str){at.ptr, n};
    at.ptr += n;
    at.len -= n;
    if (at.len > 0 && at.ptr[0] == ':') {
        at.ptr++;
        at.len--;
        PGD_TRY(parse_index(uri, &at, out));
    }
    if (at.len > 0 && at.ptr[0] == '{') {
        const char *end = memchr(at.ptr, '}', at.len);
        if (end == NULL) {
            return bad(uri, "the brace is not closed");
        }
        out->options = (pgd_str){at.ptr + 1, (size_t)(end - at.ptr) - 1};
        at.len -= (size_t)(end + 1 - at.ptr);
        at.ptr = end + 1;
    }
    if (at.len > 0 && at.ptr[0] == '(') {
        return bad(uri, "layers are not supported");
    }
    if (at.len > 0) {
        return bad(uri, "there is text behind the name");
    }
    return PGD_OK;
}
