// The body of a request, checked against the table of fields. Nothing here knows the model.
#ifndef PGD_SERVE_BODY_H
#define PGD_SERVE_BODY_H

#include "base/json.h"
#include "serve/error.h"

enum {
#define X(name, where, type, low, high, otherwise, note) PGD_SERVE_##name,
#include "serve/fields.inc"
#undef X
    PGD_SERVE_FIELDS
};

typedef struct pgd_serve_value {
    const pgd_json *json; // NULL = not given, or null
    int64_t i;            // INT, BOOL
    double f;             // NUM
} pgd_serve_value;

typedef struct pgd_serve_body {
    pgd_json_doc *doc;
    int32_t is_chat;
    int32_t include_usage;
    int32_t continuous_usage;
    int32_t n_unknown; // fields that nobody knows
    pgd_serve_value values[PGD_SERVE_FIELDS];
} pgd_serve_body;

enum {
    PGD_SERVE_TYPE_INT = 0,
    PGD_SERVE_TYPE_NUM = 1,
    PGD_SERVE_TYPE_BOOL = 2,
    PGD_SERVE_TYPE_STR = 3,
    PGD_SERVE_TYPE_STRS = 4,
    PGD_SERVE_TYPE_IDS = 5,
    PGD_SERVE_TYPE_MAP = 6,
    PGD_SERVE_TYPE_OBJ = 7,
    PGD_SERVE_TYPE_LIST = 8,
    PGD_SERVE_TYPE_ANY = 9,
};

enum { PGD_SERVE_CHAT = 1, PGD_SERVE_COMPLETION = 2 };

// [any] Parses and checks. strict 1: unknown fields are refused. 0, or -1 with e filled; to be
// freed in any case.
int32_t pgd_serve_body_read(pgd_serve_body *b, pgd_str text, int32_t where, int32_t strict,
                            pgd_serve_error *e);
void pgd_serve_body_free(pgd_serve_body *b);

// Given value, or `otherwise`.
int64_t pgd_serve_int(const pgd_serve_body *b, int32_t field, int64_t otherwise);
double pgd_serve_number(const pgd_serve_body *b, int32_t field, double otherwise);

// A row of the table, for those who describe it. 0 behind the last.
typedef struct pgd_serve_field {
    const char *name;
    const char *otherwise;
    const char *note;
    double low;
    double high;
    int32_t where; // PGD_SERVE_CHAT | PGD_SERVE_COMPLETION
    int32_t type;  // PGD_SERVE_TYPE_...
} pgd_serve_field;
const pgd_serve_field *pgd_serve_field_at(int32_t at);

#endif
