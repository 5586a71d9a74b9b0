// The body of a request, checked against the table of fields. Nothing here knows the model.
#ifndef PGD_API_BODY_H
#define PGD_API_BODY_H

#include "api/error.h"
#include "base/json.h"

enum {
#define X(name, where, type, low, high, otherwise, note) PGD_API_##name,
#include "api/fields.inc"
#undef X
    PGD_API_FIELDS
};

typedef struct pgd_api_value {
    const pgd_json *json; // NULL = not given, or null
    int64_t i;            // INT, BOOL
    double f;             // NUM
} pgd_api_value;

typedef struct pgd_api_body {
    pgd_json_doc *doc;
    int32_t is_chat;
    int32_t include_usage;
    int32_t continuous_usage;
    int32_t n_unknown;       // fields that nobody knows
    int32_t wants_prompt;    // log probabilities of the prompt: for echo, or prompt_logprobs
    int32_t echoes_logprobs; // echo with logprobs
    pgd_api_value values[PGD_API_FIELDS];
} pgd_api_body;

enum {
    PGD_API_TYPE_INT = 0,
    PGD_API_TYPE_NUM = 1,
    PGD_API_TYPE_BOOL = 2,
    PGD_API_TYPE_STR = 3,
    PGD_API_TYPE_STRS = 4,
    PGD_API_TYPE_IDS = 5,
    PGD_API_TYPE_MAP = 6,
    PGD_API_TYPE_OBJ = 7,
    PGD_API_TYPE_LIST = 8,
    PGD_API_TYPE_ANY = 9,
};

enum { PGD_API_CHAT = 1, PGD_API_COMPLETION = 2 };

// [any] Parses and checks. strict 1: unknown fields are refused. 0, or -1 with e filled; to be
// freed in any case.
int32_t pgd_api_body_read(pgd_api_body *b, pgd_str text, int32_t where, int32_t strict,
                          pgd_api_error *e);
// The same for a body that is part of a larger document, which stays the caller's.
int32_t pgd_api_body_check(pgd_api_body *b, const pgd_json *root, int32_t where, int32_t strict,
                           pgd_api_error *e);
void pgd_api_body_free(pgd_api_body *b);

// The tools the model may call; NULL: none, or tool_choice is "none".
const pgd_json *pgd_api_tools_offered(const pgd_api_body *b);
// Given value, or `otherwise`.
int64_t pgd_api_int(const pgd_api_body *b, int32_t field, int64_t otherwise);
double pgd_api_number(const pgd_api_body *b, int32_t field, double otherwise);

// A row of the table, for those who describe it. 0 behind the last.
typedef struct pgd_api_field {
    const char *name;
    const char *otherwise;
    const char *note;
    double low;
    double high;
    int32_t where; // PGD_API_CHAT | PGD_API_COMPLETION
    int32_t type;  // PGD_SERVE_TYPE_...
} pgd_api_field;
const pgd_api_field *pgd_api_field_at(int32_t at);

#endif
