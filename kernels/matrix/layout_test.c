// The emulator lays fragments out as AMD's own calculator says its units do (layouts.txt); of every
// unit each number of a lane has a place, and each place a number.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "matrix/emulated_kernels.h"

static const struct {
    const char *name;
    const pgd_emulated_unit *unit;
    int rows_a;
} units[] = {{"mfma", &pgd_emulated_mfma, 16},
             {"wmma", &pgd_emulated_wmma, 16},
             {"wmma12", &pgd_emulated_wmma12, 16},
             {"dpas16", &pgd_emulated_dpas16, 8},
             {"dpas8", &pgd_emulated_dpas8, 8}};

enum { N_UNITS = sizeof(units) / sizeof(units[0]) };

// The places of a line; returns how many.
static int check_line(const pgd_emulated_unit *u, int matrix, int row, char *places) {
    int n = 0;
    int column = 0;
    for (char *at = places; *at != '\0'; n++) {
        const int lane = (int)strtol(at, &at, 10);
        assert_int_equal(*at++, ':');
        const int element = (int)strtol(at, &at, 10);
        int got_row = -1;
        int got_column = -1;
        u->place(matrix, lane, element, &got_row, &got_column);
        assert_int_equal(got_row, row);
        assert_int_equal(got_column, column);
        column += *at == ' ';
        at += *at == ' ' || *at == '+' || *at == '\n';
    }
    assert_int_equal(column, 15);
    return n;
}

static void as_the_calculator_says(void **state) {
    FILE *f = fopen(PGD_SOURCE_DIR "/kernels/matrix/layouts.txt", "re");
    int seen[N_UNITS][3] = {{0}};
    char line[400];
    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        char name[16] = "";
        char matrix = '\0';
        int row = -1;
        int at = 0;
        if (sscanf(line, "%15s %c %d %n", name, &matrix, &row, &at) != 3) {
            continue;
        }
        const int m = matrix == 'a' ? 0 : matrix == 'b' ? 1 : 2;
        for (int i = 0; i < N_UNITS; i++) {
            if (strcmp(units[i].name, name) == 0) {
                seen[i][m] += check_line(units[i].unit, m, row, line + at);
            }
        }
    }
    fclose(f);
    for (int i = 0; i < 3; i++) {
        for (int m = 0; m < 3; m++) {
            assert_int_equal(seen[i][m], units[i].unit->lanes * units[i].unit->elements[m]);
        }
    }
}

// a [rows][16 k], b [16 k][columns], d [rows][columns], where a unit has as many columns as rows of
// x in a fragment.
static void every_place_has_a_number(void **state) {
    (void)state;
    for (int i = 0; i < N_UNITS; i++) {
        const pgd_emulated_unit *u = units[i].unit;
        const int columns = u->lanes < 16 ? u->lanes : 16;
        for (int m = 0; m < 3; m++) {
            const int n_rows = m == 1 ? 16 : units[i].rows_a;
            const int n_columns = m == 0 ? 16 : columns;
            unsigned char has[16][16] = {{0}};
            int n = 0;
            for (int e = 0; e < u->lanes * u->elements[m]; e++) {
                int row = -1;
                int column = -1;
                u->place(m, e / u->elements[m], e % u->elements[m], &row, &column);
                assert_in_range(row, 0, n_rows - 1);
                assert_in_range(column, 0, n_columns - 1);
                n += has[row][column]++ == 0;
            }
            assert_int_equal(n, n_rows * n_columns);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_calculator_says),
        cmocka_unit_test(every_place_has_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
