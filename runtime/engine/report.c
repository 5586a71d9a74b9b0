// Planning without loading, and what a step costs at least. See report.h.
#include "engine/report.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/inner.h"

static const char *op_name(int32_t op) {
    switch (op) {
#define OP_NAME(name, family) \
    case PGD_OP_##name: return #name;
        PGD_OP_LIST(OP_NAME)
#undef OP_NAME
    default: return "?";
    }
}

void pgd_engine_work_of(pgd_engine *e, const pgd_load_plan *plan) {
    const pgd_load_config *c = e->config;
    pgd_engine_work *w = &e->work;
    const pgd_load_matrix *told = &plan->matrices[plan->n_matrices > 2 ? 2 : 0]; // one part
    *w = (pgd_engine_work){.stored = pgd_load_matrix_stored(told),
                           .dtype = told->dtype,
                           .kv_dtype = e->limits.kv_dtype};
    for (uint32_t i = 0; i < plan->n_matrices; i++) {
        const pgd_load_matrix *x = &plan->matrices[i];
        uint64_t n = (uint64_t)x->n * (uint64_t)x->k;
        int32_t is_head = x->layer < 0 && (x->uses & PGD_USE_GEMM) != 0;
        if ((x->uses & (PGD_USE_GEMM | PGD_USE_GATE_UP)) == 0) {
            continue;
        }
        w->weight_bytes += x->bytes;
        w->out_ops += is_head ? 2 * n : 0;
        w->row_ops += is_head ? 0 : 2 * n;
    }
    w->pair_ops = 4 * (uint64_t)c->n_layers * (uint64_t)c->n_heads * (uint64_t)c->head_dim;
    if (w->kv_dtype == PGD_DTYPE_NONE) {
        w->kv_dtype = pgd_dev_info(e->dev)->kv_dtype;
    }
    w->kv_token_bytes = 2 * (uint64_t)c->n_layers * (uint64_t)c->n_kv_heads *
                        ((uint64_t)c->head_dim * pgd_dtype_bytes(w->kv_dtype) +
                         (w->kv_dtype == PGD_I8 ? sizeof(float) : 0));
}

// Adds a place to the list, or to the count of one like it.
static void add_place(pgd_engine_report *r, const pgd_dev_place *p) {
    const char *op = op_name(p->op);
    r->n_slow += p->place == PGD_DEV_F3;
    for (uint32_t i = 0; i < r->n_places; i++) {
        pgd_engine_place *have = &r->places[i];
        if (strcmp(have->op, op) == 0 && have->place == p->place &&
            strcmp(have->kernel, p->kernel) == 0 && strcmp(have->reason, p->reason) == 0) {
            have->count++;
            have->scratch = p->scratch > have->scratch ? p->scratch : have->scratch;
            return;
        }
    }
    pgd_engine_place *have = &r->places[r->n_places++];
    have->op = op;
    have->count = 1;
    have->place = p->place;
    have->scratch = p->scratch;
    memcpy(have->kernel, p->kernel, sizeof(have->kernel));
    memcpy(have->reason, p->reason, sizeof(have->reason));
}

static pgd_status add_places(const pgd_engine *e, const pgd_load_plan *plan, pgd_engine_report *r) {
    const pgd_model_desc desc = pgd_engine_model_desc(e, plan);
    pgd_dev_place *places = NULL;
    uint32_t n = 0;
    PGD_TRY(pgd_model_places(&desc, &places, &n));
    r->places = pgd_mem_alloc(n, sizeof(*r->places));
    pgd_status status =
        r->places != NULL ? PGD_OK : PGD_MEM_FAIL("the places", n * sizeof(*r->places));
    for (uint32_t i = 0; status == PGD_OK && i < n; i++) {
        add_place(r, &places[i]);
    }
    pgd_mem_free(places);
    return status;
}

static void copy_numbers(const pgd_engine *e, pgd_engine_report *r) {
    const pgd_device_info *info = pgd_dev_info(e->dev);
    snprintf(r->model, sizeof(r->model), "%s", e->folder);
    snprintf(r->architecture, sizeof(r->architecture), "%s", e->config->architecture);
    snprintf(r->device, sizeof(r->device), "%s", pgd_dev_uri(e->dev));
    snprintf(r->device_name, sizeof(r->device_name), "%s", info->name);
    snprintf(r->arch, sizeof(r->arch), "%s", info->arch);
    snprintf(r->choice, sizeof(r->choice), "%s", e->choice);
    r->parameters = e->parameters;
    r->total_bytes = e->total_bytes;
    r->free_bytes = e->free_bytes;
    r->budget_bytes = e->budget_bytes;
    r->weight_bytes = e->needs.weight_bytes;
    r->activation_bytes = e->needs.activation_bytes;
    r->scratch_bytes = e->needs.scratch_bytes;
    r->batch_bytes = e->batch_bytes;
    r->kv_fixed_bytes = e->needs.kv_fixed_bytes;
    r->kv_block_bytes = e->needs.kv_block_bytes;
    r->num_blocks = e->limits.num_blocks;
    r->block_size = e->limits.block_size;
    r->max_model_len = e->limits.max_model_len;
    r->max_num_seqs = e->limits.max_num_seqs;
    r->max_num_batched_tokens = e->limits.max_num_batched_tokens;
    r->n_layers = e->config->n_layers;
    r->work = e->work;
}

static pgd_status fill_report(pgd_engine *e, const pgd_engine_options *o, pgd_engine_report *r) {
    pgd_load_weights *weights = NULL;
    pgd_load_plan *plan = NULL;
    PGD_TRY(pgd_engine_open_device(e, o));
    pgd_status status = pgd_engine_open_plan(e, o, &weights, &plan);
    if (status == PGD_OK) {
        copy_numbers(e, r);
        status = add_places(e, plan, r);
    }
    pgd_load_plan_destroy(plan);
    pgd_load_weights_close(weights);
    return status;
}

pgd_status pgd_engine_report_create(const pgd_engine_options *options, pgd_engine_report **out) {
    pgd_engine_options o = {0};
    *out = NULL;
    PGD_TRY(pgd_engine_copy_options(options, &o));
    // "auto" must not take a device for which create would have to be asked twice.
    o.allow_slow |= !pgd_dev_is_auto(o.device);
    pgd_engine *e = pgd_mem_alloc(1, sizeof(*e));
    pgd_engine_report *r = pgd_mem_alloc(1, sizeof(*r));
    pgd_status status = PGD_OK;
    if (e == NULL || r == NULL) {
        status = PGD_MEM_FAIL("a report", sizeof(*r));
    }
    if (status == PGD_OK) {
        status = fill_report(e, &o, r);
    }
    if (e != NULL) {
        pgd_engine_destroy(e);
    }
    if (status != PGD_OK) {
        pgd_engine_report_destroy(r);
        return status;
    }
    *out = r;
    return PGD_OK;
}

void pgd_engine_report_destroy(pgd_engine_report *r) {
    if (r != NULL) {
        pgd_mem_free(r->places);
        pgd_mem_free(r);
    }
}

const char *pgd_engine_report_choice(const pgd_engine *e) {
    return e->choice;
}

pgd_dev *pgd_engine_report_device(const pgd_engine *e) {
    return e->dev;
}

void pgd_engine_report_work(const pgd_engine *e, pgd_engine_work *out) {
    *out = e->work;
}
