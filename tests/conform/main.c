// pagoda-conform: does this plugin keep the contract? (README.md, --help)
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "matrix.h"
#include "os/file.h"

static const char help_text[] =
    "pagoda-conform - checks a device plugin of pagoda against the plugin interface\n"
    "\n"
    "  pagoda-conform PLUGIN.so [--level N] [options]\n"
    "  pagoda-conform --matrix FILE [--against SAVED] [--json FILE] [options]\n"
    "\n"
    "Each check runs in a process of its own and names what is wrong. Levels: 0 loads, 1 memory,\n"
    "2 correct, 3 serves, 4 fast; a level is reached when every check up to it has passed.\n"
    "\n"
    "  --level N        highest level, 0 to 4 (default 3)\n"
    "  --device NAME    which device, with options in braces (default KIND:0 of the manifest)\n"
    "  --only CHECK     this check alone; NAME* for all that begin so; may be given again\n"
    "  --list           prints the checks of the level and ends\n"
    "  --soak TIME      length of the soak of level 3, for example 5s or 10m (default 60s)\n"
    "  --cases N        random cases of each operation (default 12)\n"
    "  --loops N        openings of loads.open_close (default 1000; 50 behind a driver)\n"
    "  --seed N         of the random cases (default 1)\n"
    "  --threads N      workers of the compute team (default: one per core)\n"
    "  --limit TIME     of one check, after which it counts as hanging (default 600s)\n"
    "  --floors A,B,C   of level 4, percent: decode of 1, of 64, prefill (default 60,50,40); 0 "
    "only\n"
    "                   measures\n"
    "  --model NAME     that level 4 measures with (default synthetic:qwen2.5-0.5b)\n"
    "  --stop           ends at the first failure\n"
    "  --skip-missing   exit status 77 when the plugin finds no device on this machine\n"
    "  --matrix FILE    devices x models x checks (YAML or JSON): runs what this machine has, "
    "skips\n"
    "                   the rest by name, writes one report with --json (see docs/ci.md)\n"
    "  --against FILE   an earlier report of the matrix: what changed, and a verdict\n"
    "  --json FILE      the whole result as JSON\n"
    "  --junit FILE     the result as JUnit XML, for pipelines\n"
    "  --sheet FILE     a data sheet in Markdown: operations, dtypes, errors, places\n"
    "\n"
    "Exit status: 0 every check passed or was skipped, 1 a check failed, 2 wrong use.\n";

int conform_help(void) {
    fputs(help_text, stdout);
    return 0;
}

static int wrong(const char *flag, const char *value, const char *allowed) {
    fprintf(stderr, "pagoda-conform: %s '%s': %s\n", flag, value != NULL ? value : "", allowed);
    return 2;
}

// "90", "90s", "500ms", "10m", "2h" in nanoseconds.
static int32_t read_time(pgd_str text, uint64_t *out) {
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"", 1e9}};
    double value;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        const pgd_str unit = pgd_str_of(units[i].unit);
        if (pgd_str_ends(text, unit) &&
            pgd_str_to_f64((pgd_str){text.ptr, text.len - unit.len}, &value) && value >= 0 &&
            value * units[i].ns < 1e18) {
            *out = (uint64_t)(value * units[i].ns);
            return 1;
        }
    }
    return 0;
}

static int32_t read_number(const char *value, uint64_t most, uint64_t *out) {
    return pgd_str_to_u64(pgd_str_of(value), out) && *out <= most;
}

// Flags with a number: 1 read, 0 not one of them, -1 a wrong value.
static int32_t read_count(conform_options *o, const char *flag, const char *value) {
    uint64_t n = 0;
    if (strcmp(flag, "--level") == 0) {
        if (!read_number(value, CONFORM_LEVELS - 1, &n)) {
            return -1;
        }
        o->level = (int32_t)n;
    } else if (strcmp(flag, "--cases") == 0) {
        if (!read_number(value, 100000, &n) || n == 0) {
            return -1;
        }
        o->cases = (int32_t)n;
    } else if (strcmp(flag, "--loops") == 0) {
        if (!read_number(value, 1000000, &n) || n == 0) {
            return -1;
        }
        o->loops = (int32_t)n;
    } else if (strcmp(flag, "--threads") == 0) {
        if (!read_number(value, 4096, &n)) {
            return -1;
        }
        o->threads = (uint32_t)n;
    } else if (strcmp(flag, "--seed") == 0) {
        return read_number(value, UINT64_MAX, &o->seed) ? 1 : -1;
    } else if (strcmp(flag, "--soak") == 0) {
        return read_time(pgd_str_of(value), &o->soak_ns) ? 1 : -1;
    } else if (strcmp(flag, "--limit") == 0) {
        return read_time(pgd_str_of(value), &o->limit_ns) && o->limit_ns > 0 ? 1 : -1;
    } else {
        return 0;
    }
    return 1;
}

// "60,50,40"
static int32_t read_floors(const char *value, int32_t *floors) {
    pgd_str rest = pgd_str_of(value);
    for (int32_t i = 0; i < 3; i++) {
        const char *comma = rest.len > 0 ? memchr(rest.ptr, ',', rest.len) : NULL;
        const size_t n = comma != NULL ? (size_t)(comma - rest.ptr) : rest.len;
        uint64_t floor = 0;
        if ((comma == NULL) != (i == 2) || !pgd_str_to_u64((pgd_str){rest.ptr, n}, &floor) ||
            floor > 1000000) {
            return -1;
        }
        floors[i] = (int32_t)floor;
        rest = i < 2 ? (pgd_str){comma + 1, rest.len - n - 1} : rest;
    }
    return 1;
}

static int32_t read_text(conform_options *o, const char *flag, const char *value) {
    if (strcmp(flag, "--device") == 0) {
        o->device = value;
    } else if (strcmp(flag, "--json") == 0) {
        o->json = value;
    } else if (strcmp(flag, "--junit") == 0) {
        o->junit = value;
    } else if (strcmp(flag, "--matrix") == 0) {
        o->matrix = value;
    } else if (strcmp(flag, "--against") == 0) {
        o->against = value;
    } else if (strcmp(flag, "--sheet") == 0) {
        o->sheet = value;
    } else if (strcmp(flag, "--model") == 0) {
        o->model = value;
    } else if (strcmp(flag, "--floors") == 0) {
        return read_floors(value, o->floors);
    } else if (strcmp(flag, "--only") == 0) {
        if (o->n_only == (int32_t)(sizeof(o->only) / sizeof(o->only[0]))) {
            return -1;
        }
        o->only[o->n_only++] = value;
    } else {
        return 0;
    }
    return 1;
}

static int read_options(int argc, char **argv, conform_options *o) {
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        int32_t code;
        if (strcmp(flag, "--list") == 0) {
            o->list = 1;
            continue;
        }
        if (strcmp(flag, "--stop") == 0) {
            o->stop = 1;
            continue;
        }
        if (strcmp(flag, "--skip-missing") == 0) {
            o->skip_missing = 1;
            continue;
        }
        if (flag[0] != '-') {
            if (o->plugin != NULL) {
                return wrong("argument", flag, "one plugin is checked at a time");
            }
            o->plugin = flag;
            continue;
        }
        code = value == NULL ? 0 : read_count(o, flag, value);
        code = value == NULL || code != 0 ? code : read_text(o, flag, value);
        if (code < 0) {
            return wrong(flag, value, "not an allowed value; see --help");
        }
        if (code == 0) {
            return wrong("option", flag, "unknown, or without its value; see --help");
        }
        i++;
    }
    return 0;
}

// Every --only names a check of the level.
static int check_only(const conform_options *o) {
    for (int32_t k = 0; k < o->n_only; k++) {
        conform_options one = {.n_only = 1, .only = {o->only[k]}};
        int32_t found = 0;
        for (int32_t i = 0; i < conform_n_checks; i++) {
            found |=
                conform_checks[i].level <= o->level && conform_wanted(&one, &conform_checks[i]);
        }
        if (!found) {
            return wrong("--only", o->only[k], "no check of this level is called so; see --list");
        }
    }
    return 0;
}

static void print_list(const conform_options *o) {
    for (int32_t i = 0; i < conform_n_checks; i++) {
        const conform_check *check = &conform_checks[i];
        if (check->level <= o->level && conform_wanted(o, check)) {
            printf("%d  %-24s %s\n", check->level, check->name, check->what);
        }
    }
}

// <folder of the program>/../share/pagoda/conform
static void find_models(conform_options *o) {
    char path[900], folder[1000];
    char *slash;
    if (pgd_os_program_path(path, sizeof(path)) != PGD_OK || (slash = strrchr(path, '/')) == NULL) {
        return;
    }
    *slash = '\0';
    snprintf(folder, sizeof(folder), "%s/../share/pagoda/conform", path);
    if (pgd_os_real_path(folder, o->folder, sizeof(o->folder)) != PGD_OK) {
        o->folder[0] = '\0';
    }
}

static int run_all(const conform_options *o) {
    conform_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int32_t stopped = 0, failed = 0;
    if (shared == MAP_FAILED) {
        fprintf(stderr, "pagoda-conform: no memory\n");
        return 1;
    }
    conform_print_head(o);
    for (int32_t i = 0; i < conform_n_checks; i++) {
        const conform_check *check = &conform_checks[i];
        conform_result *r = &shared->results[i];
        if (check->level > o->level || !conform_wanted(o, check)) {
            continue;
        }
        if (!stopped) {
            conform_run(o, check, shared, r);
            stopped = r->state == CONFORM_FAILED && (check->gate || o->stop);
        }
        failed |= r->state != CONFORM_PASSED && r->state != CONFORM_SKIPPED;
        if (r->state != CONFORM_NOT_RUN || !o->stop) {
            conform_print(check, r);
        }
    }
    conform_print_summary(o, shared);
    if (conform_write_files(o, shared) != PGD_OK) {
        fprintf(stderr, "pagoda-conform: %s\n", pgd_fail_last());
        return 1;
    }
    return failed;
}

int main(int argc, char **argv) {
    static conform_options o = {
        .level = 3,
        .cases = 12,
        .seed = 1,
        .soak_ns = 60000000000u,
        .limit_ns = 600000000000u,
        .floors = {60, 50, 40},
        .model = "synthetic:qwen2.5-0.5b",
    };
    static char plugin[4096];
    int code;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        return conform_help();
    }
    code = read_options(argc, argv, &o);
    code = code == 0 ? check_only(&o) : code;
    if (code != 0) {
        return code;
    }
    if (o.list) {
        print_list(&o);
        return 0;
    }
    find_models(&o);
    if (o.matrix != NULL) {
        return o.plugin == NULL ? matrix_run(&o, o.matrix, o.against)
                                : wrong("argument", o.plugin, "a matrix names its plugins itself");
    }
    if (o.against != NULL) {
        return wrong("--against", o.against, "compares reports of a matrix; name it with --matrix");
    }
    if (o.plugin == NULL) {
        return wrong("argument", NULL, "the plugin's library is missing; see --help");
    }
    if (pgd_os_real_path(o.plugin, plugin, sizeof(plugin)) != PGD_OK) {
        return wrong("plugin", o.plugin, "there is no such file");
    }
    o.plugin = plugin;
    if (o.skip_missing && conform_is_missing(&o)) {
        printf("skipped: %s finds no device on this machine\n", o.plugin);
        return 77;
    }
    return run_all(&o);
}
