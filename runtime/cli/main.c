// The program: one file per command, this one chooses.
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <pagoda/pagoda.h>

#include "base/fail.h"
#include "base/log.h"
#include "cli/flags.h"

const cli_command cli_commands[] = {
    {"run", "run [MODEL] -p TEXT [flags]", "Generates one completion and streams it to stdout.",
     "MODEL is nothing or nano (the default model), a folder in Hugging Face layout, FILE.gguf, "
     "or\n"
     "org/name[@revision] on a model hub, which is downloaded once.\n"
     "With --chat the text is a user's message and the model's chat template is applied.",
     cli_run},
#ifdef PGD_HAS_SERVE
    {"serve", "serve [MODEL] [flags]", "Serves a model by the OpenAI API, on 127.0.0.1:8000.",
     "Ends with SIGTERM or Ctrl-C: running requests get --shutdown-timeout seconds.", cli_serve},
#endif
    {"chat", "chat [MODEL] [flags]", "A conversation in the terminal.",
     "MODEL as in run. Without a terminal each line of stdin is a message. /help, typed in the\n"
     "conversation, lists what else can be typed.",
     cli_chat},
    {"batch", "batch -i IN.jsonl -o OUT.jsonl [MODEL] [flags]",
     "Runs offline OpenAI batch lines: {\"custom_id\", \"method\", \"url\", \"body\"}.",
     "Lines whose custom_id already stands in OUT are skipped, so a torn run goes on where it was.",
     cli_batch},
    {"devices", "devices [--explain] [flags]",
     "Lists every device with its URI, memory and plugin.",
     "With --explain every candidate and the reason it was taken or refused.", cli_devices},
    {"plugins", "plugins [NAME] [flags]", "Lists the plugins found, or one with all it says.", NULL,
     cli_plugins},
    {"tokenize", "tokenize [MODEL] [flags] < TEXT", "Text on stdin to token ids on stdout.", NULL,
     cli_tokenize},
    {"detokenize", "detokenize [MODEL] [flags] < IDS", "Token ids on stdin to text on stdout.",
     NULL, cli_detokenize},
    {"quantize", "quantize IN OUT.gguf --type TYPE",
     "Writes a model as a GGUF file, its matrices in another type.",
     "IN is a model as in run, of f32, f16 or bf16 weights. The head has at least 6 bits; norms "
     "and\n"
     "biases are f32.",
     cli_quantize},
    {"inspect", "inspect [MODEL] [flags]",
     "Shows what a model is made of and what of it is not supported.", NULL, cli_inspect},
    {"plan", "plan [MODEL] [flags]",
     "Shows the memory a model takes on a device and where each operation runs.",
     "Nothing is loaded. MODEL as in run, or synthetic:SHAPE[,DTYPE][,seed=N].", cli_plan},
    {"bench", "bench NAME [MODEL] [flags]",
     "Measures latency, with shares of the device's own limits.", NULL, cli_bench},
    {"simulate", "simulate --trace T.jsonl [--config C.json] [flags]",
     "Runs the scheduler and the KV cache over a trace, without a model or a device.",
     "Prints a JSON line for each step in which something happened, then a summary. The keys of\n"
     "--config are the flags below with underscores. With --tables changed, block_tables lists\n"
     "the tables that differ from the line before, and ref_counts the counts that do.",
     cli_simulate},
};

#define N_COMMANDS ((int32_t)(sizeof(cli_commands) / sizeof(cli_commands[0])))

const cli_command *cli_find(const char *name) {
    for (int32_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, cli_commands[i].name) == 0) {
            return &cli_commands[i];
        }
    }
    return NULL;
}

static void print_usage(FILE *to) {
    fprintf(to, "usage: pagoda COMMAND [flags]\n\ncommands:\n");
    for (int32_t i = 0; i < N_COMMANDS; i++) {
        fprintf(to, "  %-12s %s\n", cli_commands[i].name, cli_commands[i].summary);
    }
    fprintf(to, "\n`pagoda COMMAND --help` lists the flags of a command.\n");
}

static void log_to_stderr(void *arg, int32_t level, const char *text) {
    (void)arg;
    static const char *const names[] = {"error", "warning", "info", "debug"};
    fprintf(stderr, "pagoda: %s: %s\n", names[level & 3], text);
}

static int unknown_command(const char *word) {
    const char *names[sizeof(cli_commands) / sizeof(cli_commands[0])];
    for (int32_t i = 0; i < N_COMMANDS; i++) {
        names[i] = cli_commands[i].name;
    }
    const char *near = cli_nearest(word, names, N_COMMANDS);
    if (near != NULL) {
        fprintf(stderr, "pagoda: unknown command \"%s\"; did you mean %s?\n", word, near);
    } else {
        fprintf(stderr, "pagoda: unknown command \"%s\"; `pagoda --help` lists them\n", word);
    }
    return 2;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    pgd_log_set(log_to_stderr, NULL, PGD_LEVEL_WARNING);
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("pagoda %s\n", pgd_version());
        return 0;
    }
    const cli_command *command = cli_find(argv[1]);
    return command != NULL ? command->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}
