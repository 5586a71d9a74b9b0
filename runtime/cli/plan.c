// pagoda plan: the memory a model takes on a device, and where each of its operations runs.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "cli/common.h"
#include "engine/report.h"

static int32_t as_json;

static const cli_flag plan_flags[] = {
    CLI_FLAG_SWITCH(0, "json", &as_json, "print one JSON document"),
    {0},
};

#define PLAN_DEFAULT_SEQS 0 // the engine's own

static const char *const place_names[] = {"F0", "F1", "F2", "F3"};
static const char *const place_words[] = {"native", "composed", "reference", "reference, copied"};

static uint64_t kv_bytes(const pgd_engine_report *r) {
    return r->kv_fixed_bytes + r->kv_block_bytes * (uint64_t)r->num_blocks;
}

static uint64_t sum_bytes(const pgd_engine_report *r) {
    return r->weight_bytes + r->activation_bytes + r->scratch_bytes + r->batch_bytes + kv_bytes(r);
}

// ---- for people --------------------------------------------------------------------------------

static void print_bytes(const char *what, uint64_t bytes, const char *more) {
    printf("  %-14s %16llu %10.1f MiB  %s\n", what, (unsigned long long)bytes,
           (double)bytes / (1 << 20), more);
}

static void print_memory(const pgd_engine_report *r) {
    char more[160];
    printf("memory in bytes\n");
    print_bytes("weights", r->weight_bytes, r->work.stored);
    snprintf(more, sizeof(more), "%d rows a step, tables for %d positions",
             r->max_num_batched_tokens, r->max_model_len);
    print_bytes("activations", r->activation_bytes, more);
    print_bytes("scratch", r->scratch_bytes, "");
    snprintf(more, sizeof(more), "%d sequences", r->max_num_seqs);
    print_bytes("batch", r->batch_bytes, more);
    snprintf(more, sizeof(more), "%d blocks of %d tokens, %llu bytes each, %s", r->num_blocks,
             r->block_size, (unsigned long long)r->kv_block_bytes,
             pgd_dtype_name(r->work.kv_dtype));
    print_bytes("KV cache", kv_bytes(r), more);
    print_bytes("together", sum_bytes(r), "");
    print_bytes("allowed", r->budget_bytes, "--memory");
    print_bytes("free", r->free_bytes, "");
}

static void print_places(const pgd_engine_report *r) {
    printf("operations of a step\n  %-16s %5s  %-22s %-32s %s\n", "operation", "count", "place",
           "kernel", "reason");
    for (uint32_t i = 0; i < r->n_places; i++) {
        const pgd_engine_place *p = &r->places[i];
        char place[32];
        snprintf(place, sizeof(place), "%s %s", place_names[p->place], place_words[p->place]);
        printf("  %-16s %5d  %-22s %-32s %s\n", p->op, p->count, place, p->kernel, p->reason);
    }
}

static void print_report(const pgd_engine_report *r) {
    printf("model   %s: %s, %.1f M parameters, %d layers\n", r->model, r->architecture,
           (double)r->parameters / 1e6, r->n_layers);
    printf("device  %s: %s, %s\n", r->device, r->device_name, r->arch);
    if (r->choice[0] != '\0') {
        printf("        %s\n", r->choice);
    }
    print_memory(r);
    print_places(r);
}

// ---- for programs ------------------------------------------------------------------------------

static pgd_status text_field(pgd_text *t, const char *key, const char *value) {
    PGD_TRY(pgd_text_format(t, "%s\"%s\":", t->ptr[t->len - 1] == '{' ? "" : ",", key));
    return pgd_json_add_str(t, pgd_str_of(value));
}

static pgd_status count_field(pgd_text *t, const char *key, uint64_t value) {
    return pgd_text_format(t, "%s\"%s\":%llu", t->ptr[t->len - 1] == '{' ? "" : ",", key,
                           (unsigned long long)value);
}

static pgd_status add_memory(pgd_text *t, const pgd_engine_report *r) {
    PGD_TRY(pgd_text_format(t, ",\"memory\":{"));
    PGD_TRY(count_field(t, "weights", r->weight_bytes));
    PGD_TRY(count_field(t, "activations", r->activation_bytes));
    PGD_TRY(count_field(t, "scratch", r->scratch_bytes));
    PGD_TRY(count_field(t, "batch", r->batch_bytes));
    PGD_TRY(count_field(t, "kv", kv_bytes(r)));
    PGD_TRY(count_field(t, "kv_block", r->kv_block_bytes));
    PGD_TRY(count_field(t, "kv_fixed", r->kv_fixed_bytes));
    PGD_TRY(count_field(t, "total", sum_bytes(r)));
    PGD_TRY(count_field(t, "allowed", r->budget_bytes));
    PGD_TRY(count_field(t, "free", r->free_bytes));
    PGD_TRY(count_field(t, "device", r->total_bytes));
    return pgd_text_format(t, "}");
}

static pgd_status add_places(pgd_text *t, const pgd_engine_report *r) {
    PGD_TRY(pgd_text_format(t, ",\"operations\":["));
    for (uint32_t i = 0; i < r->n_places; i++) {
        const pgd_engine_place *p = &r->places[i];
        PGD_TRY(pgd_text_format(t, "%s{", i > 0 ? "," : ""));
        PGD_TRY(text_field(t, "op", p->op));
        PGD_TRY(count_field(t, "count", (uint64_t)p->count));
        PGD_TRY(text_field(t, "place", place_names[p->place]));
        PGD_TRY(text_field(t, "kernel", p->kernel));
        PGD_TRY(count_field(t, "scratch", p->scratch));
        PGD_TRY(text_field(t, "reason", p->reason));
        PGD_TRY(pgd_text_format(t, "}"));
    }
    return pgd_text_format(t, "]");
}

static pgd_status write_json(pgd_text *t, const pgd_engine_report *r) {
    PGD_TRY(pgd_text_format(t, "{"));
    PGD_TRY(text_field(t, "model", r->model));
    PGD_TRY(text_field(t, "architecture", r->architecture));
    PGD_TRY(text_field(t, "device", r->device));
    PGD_TRY(text_field(t, "device_name", r->device_name));
    PGD_TRY(text_field(t, "arch", r->arch));
    PGD_TRY(text_field(t, "device_reason", r->choice));
    PGD_TRY(count_field(t, "parameters", r->parameters));
    PGD_TRY(text_field(t, "dtype", r->work.stored));
    PGD_TRY(text_field(t, "kv_dtype", pgd_dtype_name(r->work.kv_dtype)));
    PGD_TRY(count_field(t, "layers", (uint64_t)r->n_layers));
    PGD_TRY(count_field(t, "max_model_len", (uint64_t)r->max_model_len));
    PGD_TRY(count_field(t, "max_num_seqs", (uint64_t)r->max_num_seqs));
    PGD_TRY(count_field(t, "max_num_batched_tokens", (uint64_t)r->max_num_batched_tokens));
    PGD_TRY(count_field(t, "num_blocks", (uint64_t)r->num_blocks));
    PGD_TRY(count_field(t, "block_size", (uint64_t)r->block_size));
    PGD_TRY(count_field(t, "slow_operations", r->n_slow));
    PGD_TRY(add_memory(t, r));
    PGD_TRY(add_places(t, r));
    return pgd_text_format(t, "}");
}

static pgd_status print_json(const pgd_engine_report *r) {
    pgd_text t = {0};
    pgd_status status = write_json(&t, r);
    if (status == PGD_OK) {
        printf("%s\n", t.ptr);
    }
    pgd_text_free(&t);
    return status;
}

static pgd_status make_plan(const char *model) {
    pgd_engine_report *r = NULL;
    pgd_engine_options options = cli_engine_options(model, PLAN_DEFAULT_SEQS);
    PGD_TRY(pgd_engine_report_create(&options, &r));
    pgd_status status = PGD_OK;
    if (as_json) {
        status = print_json(r);
    } else {
        print_report(r);
    }
    if (status == PGD_OK && r->n_slow > 0 && !cli_engine.allow_slow) {
        status = pgd_fail(PGD_UNSUPPORTED,
                          "%u calls a step would run on the host with copies to and from %s (F3 "
                          "above); --allow-slow permits it",
                          r->n_slow, r->device);
    }
    pgd_engine_report_destroy(r);
    return status;
}

int cli_plan(int argc, char **argv) {
    cli_args args = {.command = cli_find("plan"),
                     .flags = {plan_flags, cli_engine_flags},
                     .titles = {"output", "engine"},
                     .n_groups = 2,
                     .max_positional = 1};
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = make_plan(args.positional[0]);
    }
    return status == PGD_OK ? 0 : cli_failed(status);
}
