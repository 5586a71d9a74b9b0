// A fuzz target over the files of a corpus, where libFuzzer is missing and in every test run:
// each file as it is, then again with the n-th allocation failing, for every n.
//
//   replay_NAME FOLDER_OR_FILE...
#define _POSIX_C_SOURCE 200809L // opendir
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/mem.h"

#include "fuzz.h"

enum { MOST_FAILURES = 3000 };

static int replay(const char *path, const uint8_t *data, size_t size) {
    uint64_t before = pgd_mem_count();
    pgd_status status = fuzz_one(data, size);
    uint64_t n_allocations = pgd_mem_count() - before;
    int wrong = 0;
    if (pgd_mem_live() != 0 || (status != PGD_OK && pgd_fail_text(status)[0] == '\0')) {
        fprintf(stderr, "%s: leaks, or fails without a sentence\n", path);
        wrong++;
    }
    for (uint64_t n = 1; n <= n_allocations && n <= MOST_FAILURES && wrong == 0; n++) {
        pgd_mem_fail_nth(n);
        pgd_status failed = fuzz_one(data, size);
        pgd_mem_fail_nth(0);
        if (failed != PGD_OUT_OF_MEMORY && failed != status) {
            fprintf(stderr, "%s: allocation %llu fails: status %d, without %d: %s\n", path,
                    (unsigned long long)n, failed, status, pgd_fail_text(failed));
            wrong++;
        }
        if (pgd_mem_live() != 0) {
            fprintf(stderr, "%s: allocation %llu fails: leaks\n", path, (unsigned long long)n);
            wrong++;
        }
    }
    return wrong;
}

static int replay_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0) {
        fprintf(stderr, "%s cannot be read\n", path);
        return 1;
    }
    long size = ftell(f);
    // exactly as large as the file, so that a sanitizer sees the first byte behind it
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    rewind(f);
    FUZZ_CHECK(data != NULL && size >= 0 && fread(data, 1, (size_t)size, f) == (size_t)size);
    fclose(f);
    int wrong = replay(path, data, (size_t)size);
    free(data);
    return wrong;
}

static int replay_folder(const char *path, int *n_files) {
    DIR *dir = opendir(path);
    int wrong = 0;
    if (dir == NULL) {
        (*n_files)++;
        return replay_file(path);
    }
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char file[4096];
        if (e->d_name[0] != '.') {
            snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
            wrong += replay_file(file);
            (*n_files)++;
        }
    }
    closedir(dir);
    return wrong;
}

int main(int argc, char **argv) {
    int wrong = 0;
    int n_files = 0;
    for (int i = 1; i < argc; i++) {
        wrong += replay_folder(argv[i], &n_files);
    }
    printf("%d files, %d wrong\n", n_files, wrong);
    return wrong == 0 && n_files > 0 ? 0 : 1;
}
