// Flags of the command line, each also an environment variable (PAGODA_MAX_MODEL_LEN for
// --max-model-len) and a key of --config FILE. Order: default < config < environment < flag.
#ifndef PGD_CLI_FLAGS_H
#define PGD_CLI_FLAGS_H

#include <pagoda/status.h>

// What a flag takes. Targets: TEXT const char *, INT int32_t, REAL double, U64 cli_u64,
// SWITCH int32_t (1 when given), LIST cli_list, BOOL int32_t (takes true, false, on, off).
enum {
    CLI_TEXT = 0,
    CLI_INT = 1,
    CLI_REAL = 2,
    CLI_U64 = 3,
    CLI_SWITCH = 4,
    CLI_LIST = 5,
    CLI_BOOL = 6,
};

typedef struct cli_u64 {
    uint64_t value;
    int32_t given;
    int32_t reserved0;
} cli_u64;

#define CLI_MAX_LIST 16

typedef struct cli_list {
    const char *items[CLI_MAX_LIST];
    uint32_t n;
    uint32_t reserved0;
} cli_list;

typedef struct cli_flag {
    const char *name;  // without dashes: "max-model-len"
    const char *value; // name of its value in --help; NULL for a switch
    const char *help;
    void *target;
    double low; // INT and REAL: least and most allowed
    double high;
    int32_t kind; // CLI_...
    char letter;  // 0 = none
    char reserved0[3];
} cli_flag;

// Rows of a table of flags; a table ends with {0}.
#define CLI_FLAG(kind, letter, name, value, target, low, high, help)          \
    {                                                                         \
        (name), (value), (help), (target), (low), (high), (kind), (letter), { \
            0                                                                 \
        }                                                                     \
    }
#define CLI_FLAG_TEXT(letter, name, value, target, help) \
    CLI_FLAG(CLI_TEXT, letter, name, value, target, 0, 0, help)
#define CLI_FLAG_LIST(letter, name, value, target, help) \
    CLI_FLAG(CLI_LIST, letter, name, value, target, 0, 0, help)
#define CLI_FLAG_U64(letter, name, value, target, help) \
    CLI_FLAG(CLI_U64, letter, name, value, target, 0, 0, help)
#define CLI_FLAG_SWITCH(letter, name, target, help) \
    CLI_FLAG(CLI_SWITCH, letter, name, NULL, target, 0, 0, help)
#define CLI_FLAG_INT(letter, name, value, target, low, high, help) \
    CLI_FLAG(CLI_INT, letter, name, value, target, low, high, help)
#define CLI_FLAG_BOOL(letter, name, target, help) \
    CLI_FLAG(CLI_BOOL, letter, name, "true|false", target, 0, 0, help)
#define CLI_FLAG_REAL(letter, name, value, target, low, high, help) \
    CLI_FLAG(CLI_REAL, letter, name, value, target, low, high, help)

typedef struct cli_command {
    const char *name;
    const char *usage;   // behind "pagoda "
    const char *summary; // one line
    const char *details; // more text for --help, or NULL
    int (*run)(int argc, char **argv);
} cli_command;

#define CLI_MAX_FLAGS 64

// The flags of one command and its positional arguments.
typedef struct cli_args {
    const cli_command *command;
    const cli_flag *flags[4]; // groups, each ended by a flag without a name
    const char *titles[4];
    int32_t n_groups;
    int32_t max_positional;
    const char *positional[2];
    int32_t n_positional;
    int32_t help; // set when --help was given: the help has been printed
    // Reads --config FILE; NULL = an object of flag names.
    pgd_status (*read_config)(const char *path);
} cli_args;

// Reads config, environment and argv[1..]. Targets hold their defaults before.
//   fails  INVALID: names the flag, the value and what is allowed
pgd_status cli_parse(cli_args *a, int argc, char **argv) PGD_MUST_USE;

// Prints this thread's failure to stderr and gives the exit status: 2 for wrong use or wrong
// input, 1 for the rest.
int cli_failed(pgd_status status);

// The nearest of n names to a misspelt word, NULL if none is near.
const char *cli_nearest(const char *word, const char *const *names, int32_t n);

extern const cli_command cli_commands[];
// The command of that name, NULL if there is none.
const cli_command *cli_find(const char *name);

int cli_run(int argc, char **argv);
int cli_chat(int argc, char **argv);
int cli_batch(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_simulate(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_devices(int argc, char **argv);
int cli_plugins(int argc, char **argv);
int cli_quantize(int argc, char **argv);
int cli_tokenize(int argc, char **argv);
int cli_detokenize(int argc, char **argv);

#endif
