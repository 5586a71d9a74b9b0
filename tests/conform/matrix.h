// A matrix: devices x models x checks of one file, run as far as this machine has them.
#ifndef PGD_TESTS_CONFORM_MATRIX_H
#define PGD_TESTS_CONFORM_MATRIX_H

#include "conform.h"

enum { MATRIX_LEVEL = 0, MATRIX_TOKENS = 1, MATRIX_NMSE = 2, MATRIX_SPEED = 3, MATRIX_CHECKS = 4 };
enum { MATRIX_CELLS = 512, MATRIX_LIST = 32 };

typedef struct matrix_device {
    char uri[160];
    char plugin[1024]; // absolute; "" = there is none here
    char searched[1800];
    char kind[16];     // real, double, null
    int32_t level;     // that it must reach
} matrix_device;

typedef struct matrix {
    matrix_device devices[MATRIX_LIST];
    char models[MATRIX_LIST][1024]; // folders
    char model_names[MATRIX_LIST][64];
    int32_t checks[MATRIX_CHECKS];
    int32_t n_devices, n_models, n_checks;
    int32_t tokens;  // of each prompt
    int32_t repeats; // of the speed
    int32_t reserved0;
} matrix;

typedef struct matrix_cell {
    char device[160], kind[16], model[64], note[CONFORM_NOTE];
    int32_t check;
    int32_t state; // CONFORM_...
    uint64_t tokens;
    double nmse;
    double low, median, high; // tokens a second
} matrix_cell;

typedef struct matrix_report {
    matrix_cell cells[MATRIX_CELLS];
    int32_t n;
    int32_t reserved0;
} matrix_report;

extern const char *const matrix_check_names[MATRIX_CHECKS];

// Wrong files are sentences on stderr; 0 or the exit status 2.
int matrix_read(const conform_options *o, const char *path, matrix *out);
int matrix_run(const conform_options *o, const char *path, const char *against);
pgd_status matrix_write(const char *path, const matrix_report *r);
void matrix_print(const matrix_report *r);
// An earlier report; 0 or the exit status 2.
int matrix_read_saved(const char *path, pgd_json_doc **out);
// Prints what changed since a saved report. Number of regressions.
int32_t matrix_compare(const char *path, const pgd_json_doc *saved, const matrix_report *now);
void conform_matrix_cell(conform *c);

#endif
