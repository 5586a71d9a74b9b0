// A fuzz target over the files of a corpus, where libFuzzer is missing and in every test run:
// each file as it is, then again with the n-th allocation failing, for every n, then with every
// JSON value in it replaced by each of some others, and with every key renamed.
//
//   replay_NAME FOLDER_OR_FILE...
#define _POSIX_C_SOURCE 200809L // opendir
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/mem.h"

#include "fuzz.h"

enum { MOST_FAILURES = 3000, MOST_TWISTED = 2000 };

// ---- twisted JSON ------------------------------------------------------------------------------

#define TEN_TIMES(c) c c c c c c c c c c
static const char *const twists[] = {
    "null",
    "true",
    "-1",
    "0",
    "3",
    "1.5",
    "1e300",
    "99999999999",
    "\"\"",
    "\"x\"",
    "[]",
    "{}",
    "[[]]",
    "[-1]",
    "[1,2]",
    "{\"a\":0}",
    "\"" TEN_TIMES(TEN_TIMES("long ")) "\"",
};

// The end of the JSON value at s[at]; at when none is there.
static size_t value_end(const uint8_t *s, size_t n, size_t at) {
    size_t i = at;
    int depth = 0;
    do {
        if (i < n && s[i] == '"') {
            for (i++; i < n && s[i] != '"'; i++) {
                i += s[i] == '\\';
            }
            i++;
        } else if (i < n && (s[i] == '[' || s[i] == '{')) {
            depth++;
            i++;
        } else if (i < n && (s[i] == ']' || s[i] == '}')) {
            depth--;
            i++;
        } else if (depth > 0) {
            i++;
        } else {
            while (i < n && s[i] > ' ' && strchr(",]}:", s[i]) == NULL) {
                i++;
            }
        }
    } while (depth > 0 && i < n);
    return i < n ? i : n;
}

static int run_spliced(const char *path, const uint8_t *data, size_t size, size_t from, size_t to,
                       const char *with) {
    size_t len = strlen(with);
    uint8_t *twisted = malloc(size - (to - from) + len + 1);
    FUZZ_CHECK(twisted != NULL);
    memcpy(twisted, data, from);
    memcpy(twisted + from, with, len);
    memcpy(twisted + from + len, data + to, size - to);
    pgd_status status = fuzz_one(twisted, size - (to - from) + len);
    free(twisted);
    if (pgd_mem_live() == 0 && (status == PGD_OK || pgd_fail_text(status)[0] != '\0')) {
        return 0;
    }
    fprintf(stderr, "%s: leaks or fails without a sentence with '%s' at %zu\n", path, with, from);
    return 1;
}

// Values stand behind one of [{:, and keys are values too.
static int replay_twisted(const char *path, const uint8_t *data, size_t size) {
    int wrong = 0;
    for (size_t i = 0; i < size && wrong == 0; i++) {
        if (strchr("[{:,", data[i]) == NULL || data[i] == '\0') {
            continue;
        }
        size_t from = i + 1;
        while (from < size && data[from] == ' ') {
            from++;
        }
        size_t to = value_end(data, size, from);
        for (size_t k = 0; k < sizeof(twists) / sizeof(twists[0]) && to > from; k++) {
            wrong += run_spliced(path, data, size, from, to, twists[k]);
        }
    }
    return wrong;
}

// ---- files -------------------------------------------------------------------------------------

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
    return wrong + (size <= MOST_TWISTED ? replay_twisted(path, data, size) : 0);
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
