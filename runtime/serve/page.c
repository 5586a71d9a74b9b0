// The web page's files, put into the program by the build (cmake/embed.cmake).
#include <string.h>

#include "serve/inner.h"

typedef struct page_file {
    const char *path;
    const unsigned char *bytes;
    size_t len;
} page_file;

#include "serve_page.inc"

static const char *type_of(const char *path) {
    const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".svg", "image/svg+xml"},
    };
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (ending != NULL && strcmp(ending, types[i][0]) == 0) {
            return types[i][1];
        }
    }
    return "application/octet-stream";
}

const char *pgd_serve_page(const char *path, const char **out_type, size_t *out_len) {
    path = strcmp(path, "/") == 0 ? "/index.html" : path;
    for (size_t i = 0; i < sizeof(page_files) / sizeof(page_files[0]); i++) {
        if (strcmp(path, page_files[i].path) == 0) {
            *out_type = type_of(path);
            *out_len = page_files[i].len;
            return (const char *)page_files[i].bytes;
        }
    }
    *out_type = NULL;
    *out_len = 0;
    return NULL;
}
