// pagoda inspect: what a model is made of, and what of it is not supported and why.
//
// Parts are opened one by one; one that is refused is listed with its sentence and the others are
// still shown.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/common.h"
#include "load/config.h"
#include "load/name.h"
#include "load/plan.h"
#include "load/synthetic.h"
#include "load/weights.h"
#include "text/template.h"
#include "text/tokenizer.h"

#define MAX_STORED  16 // dtypes as files name them
#define MAX_REFUSED 8

typedef struct stored_row {
    const char *name;
    uint64_t n_tensors;
    uint64_t bytes;
} stored_row;

typedef struct refused_row {
    const char *part; // "config", "weights", "tokenizer", "template"
    char *why;
} refused_row;

typedef struct inspection {
    char folder[4096];
    pgd_load_config *config;
    pgd_load_weights *weights;
    uint64_t parameters;
    int32_t has_plan;
    int32_t vocab_tokens; // of the tokenizer, -1 = none
    int32_t has_template;
    uint32_t n_stored;
    stored_row stored[MAX_STORED];
    refused_row refused[MAX_REFUSED];
    uint32_t n_refused;
    uint32_t reserved0;
} inspection;

static int32_t as_json;

static const cli_flag inspect_flags[] = {
    CLI_FLAG_SWITCH(0, "json", &as_json, "print one JSON document"),
    {0},
};

// ---- looking -----------------------------------------------------------------------------------

// Keeps a refusal; only a lack of memory ends the inspection.
static pgd_status note_refusal(inspection *m, const char *part, pgd_status status) {
    if (status == PGD_OK || m->n_refused == MAX_REFUSED) {
        return PGD_OK;
    }
    if (status == PGD_OUT_OF_MEMORY) {
        return status;
    }
    refused_row *row = &m->refused[m->n_refused++];
    row->part = part;
    return pgd_mem_copy_text(pgd_fail_text(status), &row->why);
}

static void count_stored(inspection *m, const pgd_load_tensor *t) {
    uint32_t i = 0;
    while (i < m->n_stored && strcmp(m->stored[i].name, t->stored) != 0) {
        i++;
    }
    if (i == MAX_STORED) {
        return;
    }
    m->n_stored += i == m->n_stored;
    m->stored[i].name = t->stored;
    m->stored[i].n_tensors++;
    m->stored[i].bytes += t->bytes;
}

static pgd_status look_at_weights(inspection *m) {
    pgd_load_plan *plan = NULL;
    pgd_status status = pgd_load_weights_open(m->folder, &m->weights);
    for (uint32_t i = 0; status == PGD_OK && i < pgd_load_weights_count(m->weights); i++) {
        count_stored(m, pgd_load_weights_get(m->weights, i));
    }
    if (status == PGD_OK && m->config != NULL) {
        status = pgd_load_plan_create(m->config, m->weights, &plan);
    }
    if (plan != NULL) {
        m->parameters = plan->params;
        m->has_plan = 1;
    }
    pgd_load_plan_destroy(plan);
    return note_refusal(m, "weights", status);
}

static pgd_status look_at_text(inspection *m) {
    pgd_text_tokenizer *tokenizer = NULL;
    pgd_text_template *template = NULL;
    m->vocab_tokens = -1;
    if (pgd_load_synthetic_is(m->folder)) {
        return PGD_OK;
    }
    pgd_status status = pgd_text_tokenizer_open(m->folder, &tokenizer);
    if (status == PGD_OK) {
        m->vocab_tokens = pgd_text_vocab_size(tokenizer);
    } else if (status != PGD_NOT_FOUND) {
        PGD_TRY(note_refusal(m, "tokenizer", status));
    }
    pgd_text_tokenizer_close(tokenizer);
    status = pgd_text_template_open(m->folder, &template);
    m->has_template = status == PGD_OK;
    pgd_text_template_close(template);
    return status == PGD_NOT_FOUND ? PGD_OK : note_refusal(m, "template", status);
}

static pgd_status look(inspection *m, const char *model) {
    PGD_TRY(pgd_load_fetch_model(model, &cli_load_progress, m->folder, sizeof(m->folder)));
    pgd_status status = pgd_load_config_read(m->folder, &m->config);
    if (status != PGD_OK && pgd_load_synthetic_is(m->folder)) {
        return status;
    }
    PGD_TRY(note_refusal(m, "config", status));
    PGD_TRY(look_at_weights(m));
    return look_at_text(m);
}

// Layers with a window, and its length.
static int32_t count_windows(const pgd_load_config *c, int32_t *out_window) {
    int32_t n = 0;
    *out_window = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        if (c->window[i] != 0) {
            *out_window = c->window[i];
            n++;
        }
    }
    return n;
}

// ---- for people --------------------------------------------------------------------------------

static void print_config(const pgd_load_config *c) {
    int32_t window = 0;
    int32_t n_windows = count_windows(c, &window);
    printf("architecture  %s\n", c->architecture);
    printf("shape         %d layers, hidden %d, %d heads of %d, %d kv heads, intermediate %d, "
           "vocabulary %d\n",
           c->n_layers, c->hidden, c->n_heads, c->head_dim, c->n_kv_heads, c->intermediate,
           c->vocab);
    printf("parts         %s head%s%s%s%s\n", c->tied ? "tied" : "own",
           c->attention_bias ? ", qkv bias" : "", c->o_bias ? ", o bias" : "",
           c->mlp_bias ? ", MLP bias" : "", c->qk_norm ? ", q and k norms" : "");
    printf("rope          %s, theta %g, %d of %d dims, factor %g, %d positions\n",
           pgd_load_rope_name(c->rope.kind), c->rope.theta, c->rope.rot_dim, c->head_dim,
           c->rope.factor, c->max_position);
    if (n_windows > 0) {
        printf("windows       %d of %d layers see %d tokens\n", n_windows, c->n_layers, window);
    } else {
        printf("windows       none\n");
    }
}

static void print_inspection(const inspection *m) {
    printf("model         %s\n", m->folder);
    if (m->config != NULL) {
        print_config(m->config);
    }
    if (m->has_plan) {
        printf("parameters    %llu\n", (unsigned long long)m->parameters);
    }
    for (uint32_t i = 0; i < m->n_stored; i++) {
        const stored_row *s = &m->stored[i];
        printf("tensors       %llu of %s, %.1f MB\n", (unsigned long long)s->n_tensors, s->name,
               (double)s->bytes / 1e6);
    }
    if (m->vocab_tokens >= 0) {
        printf("tokenizer     BPE, %d tokens\n", m->vocab_tokens);
    } else {
        printf("tokenizer     none\n");
    }
    printf("template      %s\n", m->has_template ? "yes" : "no");
    for (uint32_t i = 0; i < m->n_refused; i++) {
        printf("unsupported   %s: %s\n", m->refused[i].part, m->refused[i].why);
    }
    if (m->n_refused == 0) {
        printf("unsupported   nothing\n");
    }
}

// ---- for programs ------------------------------------------------------------------------------

static pgd_status add_config(pgd_text *t, const pgd_load_config *c) {
    int32_t window = 0;
    int32_t n_windows = count_windows(c, &window);
    PGD_TRY(pgd_text_format(t, ",\"architecture\":"));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(c->architecture)));
    PGD_TRY(pgd_text_format(t,
                            ",\"shape\":{\"layers\":%d,\"hidden\":%d,\"heads\":%d,\"kv_heads\":%d,"
                            "\"head_dim\":%d,\"intermediate\":%d,\"vocab\":%d,\"max_position\":%d,"
                            "\"tied\":%s,\"attention_bias\":%s,\"o_bias\":%s,\"mlp_bias\":%s,"
                            "\"qk_norm\":%s}",
                            c->n_layers, c->hidden, c->n_heads, c->n_kv_heads, c->head_dim,
                            c->intermediate, c->vocab, c->max_position, c->tied ? "true" : "false",
                            c->attention_bias ? "true" : "false", c->o_bias ? "true" : "false",
                            c->mlp_bias ? "true" : "false", c->qk_norm ? "true" : "false"));
    PGD_TRY(pgd_text_format(t, ",\"rope\":{\"kind\":\"%s\",\"rot_dim\":%d,\"theta\":",
                            pgd_load_rope_name(c->rope.kind), c->rope.rot_dim));
    PGD_TRY(pgd_json_add_f64(t, c->rope.theta));
    PGD_TRY(pgd_text_format(t, ",\"factor\":"));
    PGD_TRY(pgd_json_add_f64(t, c->rope.factor));
    return pgd_text_format(t, "},\"windows\":{\"layers\":%d,\"tokens\":%d}", n_windows, window);
}

static pgd_status add_lists(pgd_text *t, const inspection *m) {
    PGD_TRY(pgd_text_format(t, ",\"tensors\":["));
    for (uint32_t i = 0; i < m->n_stored; i++) {
        PGD_TRY(pgd_text_format(t, "%s{\"dtype\":", i > 0 ? "," : ""));
        PGD_TRY(pgd_json_add_str(t, pgd_str_of(m->stored[i].name)));
        PGD_TRY(pgd_text_format(t, ",\"count\":%llu,\"bytes\":%llu}",
                                (unsigned long long)m->stored[i].n_tensors,
                                (unsigned long long)m->stored[i].bytes));
    }
    PGD_TRY(pgd_text_format(t, "],\"unsupported\":["));
    for (uint32_t i = 0; i < m->n_refused; i++) {
        PGD_TRY(pgd_text_format(t, "%s{\"part\":\"%s\",\"reason\":", i > 0 ? "," : "",
                                m->refused[i].part));
        PGD_TRY(pgd_json_add_str(t, pgd_str_of(m->refused[i].why)));
        PGD_TRY(pgd_text_format(t, "}"));
    }
    return pgd_text_format(t, "]");
}

static pgd_status write_json(pgd_text *t, const inspection *m) {
    PGD_TRY(pgd_text_format(t, "{\"model\":"));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(m->folder)));
    if (m->config != NULL) {
        PGD_TRY(add_config(t, m->config));
    }
    if (m->has_plan) {
        PGD_TRY(pgd_text_format(t, ",\"parameters\":%llu", (unsigned long long)m->parameters));
    }
    PGD_TRY(add_lists(t, m));
    if (m->vocab_tokens >= 0) {
        PGD_TRY(
            pgd_text_format(t, ",\"tokenizer\":{\"kind\":\"BPE\",\"tokens\":%d}", m->vocab_tokens));
    } else {
        PGD_TRY(pgd_text_format(t, ",\"tokenizer\":null"));
    }
    return pgd_text_format(t, ",\"template\":%s}", m->has_template ? "true" : "false");
}

static pgd_status print_json(const inspection *m) {
    pgd_text t = {0};
    pgd_status status = write_json(&t, m);
    if (status == PGD_OK) {
        printf("%s\n", t.ptr);
    }
    pgd_text_free(&t);
    return status;
}

int cli_inspect(int argc, char **argv) {
    static inspection m;
    cli_args args = {.command = cli_find("inspect"),
                     .flags = {inspect_flags},
                     .titles = {"output"},
                     .n_groups = 1,
                     .max_positional = 1};
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = look(&m, args.positional[0]);
    }
    if (status == PGD_OK && as_json) {
        status = print_json(&m);
    } else if (status == PGD_OK) {
        print_inspection(&m);
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    for (uint32_t i = 0; i < m.n_refused; i++) {
        pgd_mem_free(m.refused[i].why);
    }
    pgd_load_weights_close(m.weights);
    pgd_load_config_free(m.config);
    return code;
}
