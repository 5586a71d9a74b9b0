// pagoda tokenize and pagoda detokenize: stdin to stdout.
#include <stdio.h>

#include "base/fail.h"
#include "base/json.h"
#include "cli/common.h"
#include "load/name.h"
#include "text/tokenizer.h"

typedef struct tokenize_values {
    int32_t no_special;
    int32_t skip_special;
    int32_t json;
} tokenize_values;

static tokenize_values values;

static const cli_flag tokenize_flags[] = {
    CLI_FLAG_SWITCH(0, "no-special", &values.no_special,
                    "do not add the tokenizer's special tokens"),
    CLI_FLAG_SWITCH(0, "json", &values.json, "print a JSON array of ids"),
    {0},
};

static const cli_flag detokenize_flags[] = {
    CLI_FLAG_SWITCH(0, "skip-special", &values.skip_special, "leave special tokens out"),
    CLI_FLAG_SWITCH(0, "json", &values.json, "print a JSON string"),
    {0},
};

static pgd_status open_tokenizer(const char *model, pgd_text_tokenizer **out) {
    char folder[4096];
    PGD_TRY(pgd_load_fetch_model(model, &cli_load_progress, folder, sizeof(folder)));
    return pgd_text_tokenizer_open(folder, out);
}

static pgd_status print_ids(const pgd_text_tokenizer *t, pgd_str text) {
    pgd_text_ids ids = {0};
    pgd_status status =
        pgd_text_encode(t, text, values.no_special ? 0 : PGD_TEXT_ADD_SPECIAL, &ids);
    if (status == PGD_OK) {
        for (size_t i = 0; i < ids.n; i++) {
            printf("%s%d", i == 0 ? (values.json ? "[" : "") : (values.json ? "," : " "),
                   ids.ids[i]);
        }
        printf("%s\n", !values.json ? "" : (ids.n == 0 ? "[]" : "]"));
    }
    pgd_text_ids_free(&ids);
    return status;
}

// Ids separated by anything that is no digit: plain lists and JSON arrays both work.
static pgd_status read_ids(const pgd_text_tokenizer *t, pgd_str text, pgd_text_ids *out) {
    size_t i = 0;
    while (i < text.len) {
        size_t start = i;
        while (i < text.len && ((text.ptr[i] >= '0' && text.ptr[i] <= '9') || text.ptr[i] == '-')) {
            i++;
        }
        if (i == start) {
            char c = text.ptr[i++];
            if (c != ' ' && c != ',' && c != '[' && c != ']' && c != '\n' && c != '\t' &&
                c != '\r') {
                return pgd_fail(PGD_INVALID,
                                "byte %zu of the input: token ids separated by spaces or commas "
                                "are allowed",
                                start);
            }
            continue;
        }
        int64_t id = 0;
        pgd_str word = {text.ptr + start, i - start};
        if (!pgd_str_to_i64(word, &id) || id < 0 || id >= pgd_text_vocab_size(t)) {
            return pgd_fail(PGD_OUT_OF_RANGE, "token id %.*s; 0 to %d is allowed", (int)word.len,
                            word.ptr, pgd_text_vocab_size(t) - 1);
        }
        PGD_TRY(pgd_text_ids_add(out, (int32_t)id));
    }
    return PGD_OK;
}

static pgd_status print_text(const pgd_text_tokenizer *t, pgd_str input) {
    pgd_text_ids ids = {0};
    pgd_text text = {0};
    pgd_text json = {0};
    pgd_status status = read_ids(t, input, &ids);
    if (status == PGD_OK) {
        status = pgd_text_decode(t, ids.ids, ids.n, values.skip_special, &text);
    }
    if (status == PGD_OK && values.json) {
        status = pgd_json_add_str(&json, pgd_text_view(&text));
    }
    if (status == PGD_OK) {
        const pgd_text *from = values.json ? &json : &text;
        fwrite(from->ptr != NULL ? from->ptr : "", 1, from->len, stdout);
        printf("%s", values.json ? "\n" : "");
    }
    pgd_text_free(&json);
    pgd_text_free(&text);
    pgd_text_ids_free(&ids);
    return status;
}

static int convert(cli_args *args, int argc, char **argv,
                   pgd_status (*print)(const pgd_text_tokenizer *, pgd_str)) {
    pgd_text_tokenizer *tokenizer = NULL;
    pgd_text input = {0};
    pgd_status status = cli_parse(args, argc, argv);
    if (status == PGD_OK && args->help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = open_tokenizer(args->positional[0], &tokenizer);
    }
    if (status == PGD_OK) {
        status = cli_read_input("-", &input);
    }
    if (status == PGD_OK) {
        status = print(tokenizer, pgd_text_view(&input));
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    pgd_text_free(&input);
    pgd_text_tokenizer_close(tokenizer);
    return code;
}

int cli_tokenize(int argc, char **argv) {
    cli_args args = {.command = cli_find("tokenize"),
                     .flags = {tokenize_flags},
                     .titles = {"flags"},
                     .n_groups = 1,
                     .max_positional = 1};
    return convert(&args, argc, argv, print_ids);
}

int cli_detokenize(int argc, char **argv) {
    cli_args args = {.command = cli_find("detokenize"),
                     .flags = {detokenize_flags},
                     .titles = {"flags"},
                     .n_groups = 1,
                     .max_positional = 1};
    return convert(&args, argc, argv, print_text);
}
