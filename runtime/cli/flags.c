// Parsing of flags. See flags.h.
#include "cli/flags.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/config_file.h"
#include "os/env.h"

// Values of a config file live until the program ends.
static pgd_json_doc *config_doc;

static int32_t is_end(const cli_flag *f) {
    return f->name == NULL;
}

// ---- help ------------------------------------------------------------------------------------

static void print_flag(const cli_flag *f) {
    char left[80];
    char letter[8] = "    ";
    if (f->letter != 0) {
        snprintf(letter, sizeof(letter), "-%c, ", f->letter);
    }
    snprintf(left, sizeof(left), "  %s--%s%s%s", letter, f->name, f->value != NULL ? " " : "",
             f->value != NULL ? f->value : "");
    printf("%-38s %s\n", left, f->help);
}

static void print_help(const cli_args *a) {
    printf("usage: pagoda %s\n\n%s\n", a->command->usage, a->command->summary);
    if (a->command->details != NULL) {
        printf("\n%s\n", a->command->details);
    }
    for (int32_t g = 0; g < a->n_groups; g++) {
        printf("\n%s:\n", a->titles[g]);
        for (const cli_flag *f = a->flags[g]; !is_end(f); f++) {
            print_flag(f);
        }
    }
    printf("\nother:\n");
    printf("%-38s %s\n", "      --config FILE", "JSON or YAML file with the same names as keys");
    printf("%-38s %s\n", "  -h, --help", "this text");
    printf(
        "\nEach flag is also an environment variable: --max-model-len is PAGODA_MAX_MODEL_LEN.\n");
}

// ---- names -----------------------------------------------------------------------------------

static const cli_flag *find_name(const cli_args *a, pgd_str name) {
    for (int32_t g = 0; g < a->n_groups; g++) {
        for (const cli_flag *f = a->flags[g]; !is_end(f); f++) {
            if (pgd_str_is(name, f->name)) {
                return f;
            }
        }
    }
    return NULL;
}

static const cli_flag *find_letter(const cli_args *a, char letter) {
    for (int32_t g = 0; g < a->n_groups; g++) {
        for (const cli_flag *f = a->flags[g]; !is_end(f); f++) {
            if (f->letter != 0 && f->letter == letter) {
                return f;
            }
        }
    }
    return NULL;
}

#define WORD_MAX 40

// Edit distance of two words, cut at WORD_MAX letters.
static int32_t distance(const char *a, const char *b) {
    int32_t row[WORD_MAX + 1];
    int32_t n = (int32_t)strlen(b);
    if (n > WORD_MAX || strlen(a) > WORD_MAX) {
        return WORD_MAX;
    }
    for (int32_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (int32_t i = 0; a[i] != '\0'; i++) {
        int32_t diagonal = row[0];
        row[0] = i + 1;
        for (int32_t j = 0; j < n; j++) {
            int32_t change = diagonal + (a[i] != b[j]);
            int32_t insert = row[j] + 1;
            int32_t remove = row[j + 1] + 1;
            diagonal = row[j + 1];
            int32_t least = insert < remove ? insert : remove;
            row[j + 1] = change < least ? change : least;
        }
    }
    return row[n];
}

const char *cli_nearest(const char *word, const char *const *names, int32_t n) {
    const char *best = NULL;
    int32_t best_distance = 3;
    for (int32_t i = 0; i < n; i++) {
        int32_t d = distance(word, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

static pgd_status unknown_flag(const cli_args *a, pgd_str name) {
    const char *names[CLI_MAX_FLAGS];
    int32_t n = 0;
    for (int32_t g = 0; g < a->n_groups; g++) {
        for (const cli_flag *f = a->flags[g]; !is_end(f) && n < CLI_MAX_FLAGS; f++) {
            names[n++] = f->name;
        }
    }
    char word[WORD_MAX + 1];
    snprintf(word, sizeof(word), "%.*s", (int)name.len, name.ptr);
    const char *near = cli_nearest(word, names, n);
    if (near != NULL) {
        return pgd_fail(PGD_INVALID, "unknown flag --%s; did you mean --%s?", word, near);
    }
    return pgd_fail(PGD_INVALID, "unknown flag --%s; `pagoda %s --help` lists them", word,
                    a->command->name);
}

// ---- values ----------------------------------------------------------------------------------

static pgd_status wrong_value(const cli_flag *f, const char *value) {
    switch (f->kind) {
    case CLI_INT:
        return pgd_fail(PGD_INVALID, "--%s is \"%s\"; a whole number from %.0f to %.0f is allowed",
                        f->name, value, f->low, f->high);
    case CLI_REAL:
        return pgd_fail(PGD_INVALID, "--%s is \"%s\"; a number from %g to %g is allowed", f->name,
                        value, f->low, f->high);
    case CLI_U64:
        return pgd_fail(PGD_INVALID,
                        "--%s is \"%s\"; a whole number from 0 to 18446744073709551615 is allowed",
                        f->name, value);
    default:
        return pgd_fail(PGD_INVALID, "--%s is \"%s\"; 0, 1, true, false are allowed", f->name,
                        value);
    }
}

static int32_t set_number(const cli_flag *f, pgd_str s) {
    int64_t i = 0;
    double r = 0.0;
    if (f->kind == CLI_INT) {
        if (!pgd_str_to_i64(s, &i) || (double)i < f->low || (double)i > f->high) {
            return 0;
        }
        *(int32_t *)f->target = (int32_t)i;
        return 1;
    }
    if (f->kind == CLI_REAL) {
        if (!pgd_str_to_f64(s, &r) || !(r >= f->low && r <= f->high)) {
            return 0;
        }
        *(double *)f->target = r;
        return 1;
    }
    cli_u64 *u = f->target;
    u->given = pgd_str_to_u64(s, &u->value);
    return u->given;
}

static int32_t set_switch(const cli_flag *f, pgd_str s) {
    // on and off only where the flag says so: in YAML they are words.
    const int32_t words = f->value != NULL && strcmp(f->value, "on|off") == 0;
    int32_t on = pgd_str_is(s, "1") || pgd_str_is(s, "true") || (words && pgd_str_is(s, "on"));
    if (!on && !pgd_str_is(s, "0") && !pgd_str_is(s, "false") && !(words && pgd_str_is(s, "off"))) {
        return 0;
    }
    *(int32_t *)f->target = on;
    return 1;
}

// value lives until the program ends.
static pgd_status set_value(const cli_flag *f, const char *value) {
    pgd_str s = pgd_str_of(value);
    if (f->kind == CLI_TEXT) {
        *(const char **)f->target = value;
        return PGD_OK;
    }
    if (f->kind == CLI_LIST) {
        cli_list *list = f->target;
        if (list->n == CLI_MAX_LIST) {
            return pgd_fail(PGD_INVALID, "--%s is given more than %d times", f->name, CLI_MAX_LIST);
        }
        list->items[list->n++] = value;
        return PGD_OK;
    }
    int32_t done =
        f->kind == CLI_SWITCH || f->kind == CLI_BOOL ? set_switch(f, s) : set_number(f, s);
    return done ? PGD_OK : wrong_value(f, value);
}

// ---- sources ---------------------------------------------------------------------------------

static pgd_status read_environment(const cli_args *a) {
    for (int32_t g = 0; g < a->n_groups; g++) {
        for (const cli_flag *f = a->flags[g]; !is_end(f); f++) {
            char name[80];
            snprintf(name, sizeof(name), "PAGODA_%s", f->name);
            for (char *p = name; *p != '\0'; p++) {
                *p = *p == '-' ? '_' : (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
            }
            const char *value = pgd_os_env(name);
            if (value != NULL) {
                PGD_TRY(pgd_fail_note(set_value(f, value), "reading the environment variable %s",
                                      name));
            }
        }
    }
    return PGD_OK;
}

static pgd_status set_json(const cli_flag *f, const pgd_json *v) {
    static char numbers[CLI_MAX_FLAGS][40];
    static int32_t n_numbers;
    pgd_str s;
    int32_t on = 0;
    if (f->kind == CLI_LIST && pgd_json_is(v, PGD_JSON_ARRAY)) {
        for (uint32_t i = 0; i < v->n; i++) {
            if (!pgd_json_to_str(&v->items[i], &s)) {
                return pgd_fail(PGD_INVALID, "--%s: a list of strings is needed", f->name);
            }
            PGD_TRY(set_value(f, s.ptr));
        }
        return PGD_OK;
    }
    if (pgd_json_to_str(v, &s)) {
        return set_value(f, s.ptr);
    }
    if (pgd_json_to_bool(v, &on)) {
        return set_value(f, on ? "true" : "false");
    }
    double r = 0.0;
    if (pgd_json_to_f64(v, &r) && n_numbers < CLI_MAX_FLAGS) {
        char *text = numbers[n_numbers++];
        int64_t i = 0;
        if (pgd_json_to_i64(v, &i)) {
            snprintf(text, sizeof(numbers[0]), "%lld", (long long)i);
        } else if (pgd_json_is(v, PGD_JSON_UINT)) {
            snprintf(text, sizeof(numbers[0]), "%llu", (unsigned long long)v->u);
        } else {
            snprintf(text, sizeof(numbers[0]), "%.17g", r);
        }
        return set_value(f, text);
    }
    return pgd_fail(PGD_INVALID, "--%s: a string, number or boolean is needed, not %s", f->name,
                    v != NULL ? pgd_json_kind_name(v->kind) : "nothing");
}

static pgd_status read_config(const cli_args *a, const char *path) {
    pgd_json_free(config_doc);
    config_doc = NULL;
    PGD_TRY(cli_config_file_read(path, &config_doc));
    const pgd_json *root = pgd_json_root(config_doc);
    if (!pgd_json_is(root, PGD_JSON_OBJECT)) {
        return pgd_fail(PGD_INVALID, "%s: an object of flag names is needed", path);
    }
    for (uint32_t i = 0; i < root->n; i++) {
        const cli_flag *f = find_name(a, root->keys[i]);
        pgd_status status =
            f != NULL ? set_json(f, &root->items[i]) : unknown_flag(a, root->keys[i]);
        PGD_TRY(pgd_fail_note(status, "reading %s", path));
    }
    return PGD_OK;
}

// One long flag: argv[*i] without its dashes; may take the next argument.
static pgd_status take_long(const cli_args *a, int argc, char **argv, int *i) {
    pgd_str value = {0};
    const char *text = argv[*i] + 2;
    pgd_str name = pgd_str_cut(pgd_str_of(text), '=', &value);
    const cli_flag *f = find_name(a, name);
    if (f == NULL) {
        return unknown_flag(a, name);
    }
    if (text[name.len] == '=') {
        return set_value(f, text + name.len + 1);
    }
    if (f->kind == CLI_SWITCH) {
        return set_value(f, "1");
    }
    if (*i + 1 >= argc) {
        return pgd_fail(PGD_INVALID, "--%s needs a value (%s)", f->name, f->value);
    }
    return set_value(f, argv[++*i]);
}

static pgd_status take_short(const cli_args *a, int argc, char **argv, int *i) {
    const char *text = argv[*i] + 1;
    const cli_flag *f = find_letter(a, text[0]);
    if (f == NULL) {
        return pgd_fail(PGD_INVALID, "unknown flag -%c; `pagoda %s --help` lists them", text[0],
                        a->command->name);
    }
    if (f->kind == CLI_SWITCH) {
        return text[1] == '\0' ? set_value(f, "1")
                               : pgd_fail(PGD_INVALID, "-%c takes no value", text[0]);
    }
    if (text[1] != '\0') {
        return set_value(f, text + 1);
    }
    if (*i + 1 >= argc) {
        return pgd_fail(PGD_INVALID, "-%c needs a value (%s)", text[0], f->value);
    }
    return set_value(f, argv[++*i]);
}

static pgd_status take_positional(cli_args *a, const char *text) {
    if (a->n_positional >= a->max_positional) {
        return pgd_fail(PGD_INVALID, "unexpected argument \"%s\"; usage: pagoda %s", text,
                        a->command->usage);
    }
    a->positional[a->n_positional++] = text;
    return PGD_OK;
}

static const char *config_path(int argc, char **argv) {
    const char *path = pgd_os_env("PAGODA_CONFIG");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) {
            path = argv[i + 1];
        } else if (strncmp(argv[i], "--config=", 9) == 0) {
            path = argv[i] + 9;
        }
    }
    return path;
}

pgd_status cli_parse(cli_args *a, int argc, char **argv) {
    const char *path = config_path(argc, argv);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            break;
        }
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(a);
            a->help = 1;
            return PGD_OK;
        }
    }
    if (path != NULL) {
        PGD_TRY(a->read_config != NULL ? a->read_config(path) : read_config(a, path));
    }
    PGD_TRY(read_environment(a));
    int32_t only_positional = 0;
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        if (only_positional || text[0] != '-' || text[1] == '\0') {
            PGD_TRY(take_positional(a, text));
        } else if (strcmp(text, "--") == 0) {
            only_positional = 1;
        } else if (strcmp(text, "--config") == 0) {
            i++;
        } else if (strncmp(text, "--config=", 9) != 0) {
            PGD_TRY(text[1] == '-' ? take_long(a, argc, argv, &i) : take_short(a, argc, argv, &i));
        }
    }
    return PGD_OK;
}

int cli_failed(pgd_status status) {
    // Names from files may hold anything; control characters must not reach a terminal.
    fputs("pagoda: ", stderr);
    for (const char *p = pgd_fail_text(status); *p != '\0'; p++) {
        fputc((unsigned char)*p < 0x20 || *p == 0x7F ? '?' : *p, stderr);
    }
    fputc('\n', stderr);
    switch (status) {
    case PGD_INVALID:
    case PGD_NOT_FOUND:
    case PGD_EXISTS:
    case PGD_DENIED:
    case PGD_OUT_OF_MEMORY:
    case PGD_OUT_OF_RANGE:
    case PGD_UNSUPPORTED:
    case PGD_UNAVAILABLE:
    case PGD_DATA_LOSS:
    case PGD_INCOMPATIBLE: return 2;
    default: return 1;
    }
}
