// The web page's files, put into the program by the build (page_files.inc).
#include <string.h>

#include "serve/inner.h"

const char *pgd_serve_page(const char *path, const char **out_type, size_t *out_len) {
    (void)path;
    *out_type = NULL;
    *out_len = 0;
    return NULL;
}
