// See error.h.
#include "api/error.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"

int32_t pgd_api_refuse(pgd_api_error *e, int32_t status, const char *param, const char *code,
                       const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(e->message, sizeof(e->message), fmt, args);
    va_end(args);
    (void)snprintf(e->param, sizeof(e->param), "%s", param != NULL ? param : "");
    e->status = status;
    e->code = code;
    return -1;
}

int32_t pgd_api_refuse_status(pgd_api_error *e, pgd_status status, const char *param) {
    switch (status) {
    case PGD_INVALID:
    case PGD_OUT_OF_RANGE:
    case PGD_UNSUPPORTED:
    case PGD_NOT_FOUND: return pgd_api_refuse(e, 400, param, NULL, "%s", pgd_fail_text(status));
    case PGD_UNAVAILABLE:
    case PGD_DEVICE_LOST:
    case PGD_OUT_OF_MEMORY:
        e->retry_after_s = 1;
        return pgd_api_refuse(e, 503, NULL, NULL, "the server cannot take this request now");
    default: return pgd_api_refuse(e, 500, NULL, NULL, "the server failed on this request");
    }
}

const char *pgd_api_error_type(int32_t status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static pgd_status add_or_null(pgd_text *t, const char *text) {
    if (text == NULL || text[0] == '\0') {
        return pgd_text_add(t, "null", 4);
    }
    return pgd_json_add_str(t, pgd_str_of(text));
}

pgd_status pgd_api_error_add(pgd_text *t, const pgd_api_error *e) {
    PGD_TRY(pgd_text_format(t, "{\"error\":{\"message\":"));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(e->message)));
    PGD_TRY(pgd_text_format(t, ",\"type\":\"%s\",\"param\":", pgd_api_error_type(e->status)));
    PGD_TRY(add_or_null(t, e->param));
    PGD_TRY(pgd_text_format(t, ",\"code\":"));
    PGD_TRY(add_or_null(t, e->code));
    return pgd_text_add(t, "}}", 2);
}
