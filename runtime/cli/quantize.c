// pagoda quantize: a model into a GGUF file.
#include <stdio.h>

#include "base/fail.h"
#include "base/team.h"
#include "cli/common.h"
#include "load/gguf_write.h"
#include "load/name.h"

typedef struct quantize_values {
    const char *type;
    int32_t threads;
} quantize_values;

static quantize_values values = {.type = "q8_0"};

static const cli_flag quantize_flags[] = {
    CLI_FLAG_TEXT(0, "type", "TYPE", &values.type,
                  "f32, f16, bf16, q8_0 (default), q4_0, q4_k, q6_k ..."),
    CLI_FLAG_INT(0, "threads", "N", &values.threads, 1, 1024,
                 "threads of the CPU (default: one per core)"),
    {0},
};

static pgd_status quantize(const char *from, const char *to) {
    char folder[4096];
    pgd_team *team = NULL;
    if (from == NULL || to == NULL) {
        return pgd_fail(PGD_INVALID, "quantize needs a model and the path of a GGUF file to write");
    }
    PGD_TRY(pgd_load_fetch_model(from, &cli_load_progress, folder, sizeof(folder)));
    PGD_TRY(pgd_team_open((uint32_t)values.threads, &team));
    const pgd_load_gguf_write_desc desc = {.from = folder,
                                           .to = to,
                                           .type = values.type,
                                           .team = team,
                                           .progress = &cli_load_progress};
    pgd_status status = pgd_load_gguf_write(&desc);
    cli_progress_end();
    pgd_team_close(team);
    return status;
}

int cli_quantize(int argc, char **argv) {
    cli_args args = {.command = cli_find("quantize"),
                     .flags = {quantize_flags},
                     .titles = {"flags"},
                     .n_groups = 1,
                     .max_positional = 2};
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = quantize(args.positional[0], args.positional[1]);
    }
    return status == PGD_OK ? 0 : cli_failed(status);
}
