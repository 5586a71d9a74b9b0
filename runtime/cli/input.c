// Reading a whole file or standard input.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "cli/common.h"

pgd_status cli_read_input(const char *path, pgd_text *out) {
    int32_t is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    if (file == NULL) {
        return pgd_fail(PGD_NOT_FOUND, "%s cannot be read", path);
    }
    char buffer[65536];
    pgd_status status = PGD_OK;
    size_t n = 0;
    while (status == PGD_OK && (n = fread(buffer, 1, sizeof(buffer), file)) > 0) {
        status = pgd_text_add(out, buffer, n);
    }
    if (status == PGD_OK && ferror(file)) {
        status = pgd_fail(PGD_DATA_LOSS, "reading %s failed", path);
    }
    if (!is_stdin) {
        fclose(file);
    }
    return status;
}
