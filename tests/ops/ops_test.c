// Every operation of a device against the reference.
//
//   ops_test --plugin-dir DIR --device URI [--op NAME] [--cases N] [--seed S] [--threads N]
//            [--small] [--verbose] [--need-native] [--skip-missing]
//
// Prints each failure with the case that makes it (same seed and number: same case), a table of
// where the ops ran, and "N passed, N failed". Exits 1 after a failure, 2 on a wrong command line,
// and with --skip-missing 77 when this machine has no such device.
#include "ops.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/str.h"

// 1 when an op that was planned did not run natively in at least one case.
static int32_t print_places(const ops_session *s) {
    int32_t op, holes = 0;
    printf("%-16s %8s %8s %8s %8s %8s\n", "op", "native", "composed", "ref", "ref+copy", "variant");
    for (op = 0; op < PGD_OP_COUNT; op++) {
        if (s->planned[op] > 0) {
            const int32_t *p = s->places[op];
            printf("%-16s %8d %8d %8d %8d %8d\n", ops_name(op), (int)p[0], (int)p[1], (int)p[2],
                   (int)p[3], (int)s->variant[op]);
            holes |= p[PGD_DEV_F0] + p[PGD_DEV_F1] == 0;
        }
    }
    return holes;
}

typedef struct options {
    const char *folder;
    uint64_t threads;
    int32_t need_native;
    int32_t skip_missing;
} options;

static int32_t read_number(const char *text, uint64_t *out) {
    return text != NULL && pgd_str_to_u64(pgd_str_of(text), out);
}

static int32_t read_options(int argc, char **argv, ops_session *s, options *o) {
    uint64_t cases = 0;
    int i;
    for (i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--verbose") == 0) {
            s->verbose = 1;
            continue;
        }
        if (strcmp(argv[i], "--small") == 0) {
            s->small = 1;
            continue;
        }
        if (strcmp(argv[i], "--need-native") == 0) {
            o->need_native = 1;
            continue;
        }
        if (strcmp(argv[i], "--skip-missing") == 0) {
            o->skip_missing = 1;
            continue;
        }
        if (strcmp(argv[i], "--plugin-dir") == 0 && value != NULL) {
            o->folder = value;
        } else if (strcmp(argv[i], "--device") == 0 && value != NULL) {
            s->uri = value;
        } else if (strcmp(argv[i], "--op") == 0 && value != NULL) {
            s->only = value;
        } else if (strcmp(argv[i], "--cases") == 0 && read_number(value, &cases) &&
                   cases <= 1000000) {
            s->cases = (int32_t)cases;
        } else if (strcmp(argv[i], "--seed") != 0 || !read_number(value, &s->seed)) {
            if (strcmp(argv[i], "--threads") != 0 || !read_number(value, &o->threads) ||
                o->threads > 4096) {
                return 0;
            }
        }
        i++;
    }
    return s->uri != NULL && o->folder != NULL;
}

// Opens the device once, so that a missing one is said once: 0 = there.
static int try_device(const ops_session *s, const options *o) {
    const pgd_dev_desc desc = {.uri = s->uri, .team = s->team, .allow_slow = 1};
    pgd_dev *dev = NULL;
    pgd_status code = pgd_dev_open(s->registry, &desc, &dev);
    pgd_dev_close(dev);
    if (code == PGD_OK) {
        return 0;
    }
    printf("%s cannot be opened: %s\n", s->uri, pgd_fail_text(code));
    return o->skip_missing && (code == PGD_NOT_FOUND || code == PGD_INVALID) ? 77 : 1;
}

static int run(ops_session *s, const options *o) {
    const pgd_dev_search search = {.no_env = 1, .folders = &o->folder, .n_folders = 1};
    int32_t holes;
    int code;
    if (pgd_dev_registry_create(&search, &s->registry) != PGD_OK ||
        pgd_team_create((uint32_t)o->threads, &s->team) != PGD_OK) {
        printf("FAIL %s\n", pgd_fail_last());
        return 1;
    }
    code = try_device(s, o);
    if (code != 0) {
        return code;
    }
    ops_suites(s);
    holes = print_places(s);
    printf("%d passed, %d failed\n", (int)s->passed, (int)s->failed);
    if (holes && o->need_native) {
        printf("an operation never ran natively\n");
    }
    return s->failed > 0 || s->passed == 0 || (holes && o->need_native) ? 1 : 0;
}

int main(int argc, char **argv) {
    ops_session s = {.seed = 1, .cases = 40};
    options o = {0};
    int code;
    if (!read_options(argc, argv, &s, &o)) {
        fprintf(stderr, "usage: ops_test --plugin-dir DIR --device URI [--op NAME] [--cases N] "
                        "[--seed S] [--threads N] [--small] [--verbose] [--need-native] "
                        "[--skip-missing]\n");
        return 2;
    }
    code = run(&s, &o);
    pgd_team_destroy(s.team);
    pgd_dev_registry_destroy(s.registry);
    return code;
}
