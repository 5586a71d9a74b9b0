// The one shape of every error: {"error":{"message","type","param","code"}}, all four keys always.
// Source: OpenAI's API reference.
#ifndef PGD_API_ERROR_H
#define PGD_API_ERROR_H

#include "base/str.h"

typedef struct pgd_api_error {
    int32_t status; // of HTTP; 0 = no error
    int32_t retry_after_s;
    const char *code; // "context_length_exceeded" ...; NULL = null
    char param[64];   // the field; "" = null
    char message[600];
} pgd_api_error;

// Fills e and returns -1: `return pgd_api_refuse(e, 400, "n", NULL, "n is %d; ...", n);`
int32_t pgd_api_refuse(pgd_api_error *e, int32_t status, const char *param, const char *code,
                       const char *fmt, ...) PGD_PRINTF(5, 6);
// This thread's failure as an error: 400 for what the caller can mend, 503 and 500 with a fixed
// sentence for the rest.
int32_t pgd_api_refuse_status(pgd_api_error *e, pgd_status status, const char *param);

// "invalid_request_error" ... of a status.
const char *pgd_api_error_type(int32_t status);
pgd_status pgd_api_error_add(pgd_text *t, const pgd_api_error *e) PGD_MUST_USE;

#endif
