// Where operations run: native, composed or reference, families as a whole, refusals of support.
#include "dev/odd_test.h" // first, see there

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "dev/inner.h"

#include "base/fail.h"
#include "base/mem.h"
#include "base/test_ok.h"

// ---- a plugin whose ops only note that they were called ----------------------------------------

static int32_t called[64];
static uint32_t n_called;
static int32_t refused_op;        // -1: none
static int32_t refuse_big_weight; // more rows than this are refused by weight.plan; 0: none
static uint32_t planned_uses;
static int32_t graph_begun;
static uint32_t built_with; // minor of the plugin
static int32_t newer_seen;  // descriptions that the plugin saw and minor 1 does not have

#define NOTE(name, family)                                                         \
    static pgd_status note_##name(const pgd_exec *x, const pgd_##name##_args *a) { \
        (void)x;                                                                   \
        assert_int_equal(a->size, sizeof(*a));                                     \
        called[n_called++ % 64] = PGD_OP_##name;                                   \
        return PGD_OK;                                                             \
    }
PGD_OP_LIST(NOTE)
#undef NOTE

static pgd_ops note_ops;

static void fill_note_ops(const int32_t *without, uint32_t n) {
    note_ops = (pgd_ops){.size = sizeof(pgd_ops),
#define SLOT(name, family) .name = note_##name,
                         PGD_OP_LIST(SLOT)
#undef SLOT
    };
    for (uint32_t i = 0; i < n; i++) {
        switch (without[i]) {
#define CASE(name, family) \
    case PGD_OP_##name: note_ops.name = NULL; break;
            PGD_OP_LIST(CASE)
#undef CASE
        default: break;
        }
    }
}

static pgd_status note_weight_plan(const pgd_device *d, const pgd_weight_desc *desc,
                                   pgd_weight_plan *out) {
    planned_uses = desc->uses;
    newer_seen += desc->scheme != PGD_SCHEME_PLAIN;
    if (refuse_big_weight != 0 && desc->n > refuse_big_weight) {
        return (d->host->fail)(d->host, PGD_UNSUPPORTED, __FILE__, __LINE__,
                               "too many rows for this device");
    }
    return odd_weight_plan(d, desc, out);
}

static pgd_status note_kv_plan(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    newer_seen += desc->scale_mode != PGD_KV_SCALE_NONE;
    return odd_kv_plan(d, desc, out);
}

static pgd_status note_support(const pgd_device *d, const pgd_query *query, pgd_support *out) {
    pgd_support local = {.size = sizeof(local), .level = PGD_LEVEL_NATIVE};
    (void)d;
    assert_non_null(query->args);
    assert_true((pgd_dev_op_family(query->op) & PGD_FAMILY_WEIGHT) == 0 || query->weight != NULL);
    assert_true((pgd_dev_op_family(query->op) & PGD_FAMILY_KV) == 0 || query->kv != NULL);
    newer_seen += query->weight != NULL && query->weight->scheme != PGD_SCHEME_PLAIN;
    newer_seen += query->kv != NULL && query->kv->scale_mode != PGD_KV_SCALE_NONE;
    local.flags = PGD_SUPPORT_CAPTURABLE | PGD_SUPPORT_INVARIANT;
    local.scratch = 100 * (uint64_t)(query->op + 1);
    memcpy(local.kernel, "noted", 6);
    if (query->op == refused_op) {
        local.level = PGD_LEVEL_NONE;
        memcpy(local.reason, "head dim 4", 11);
    }
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status note_begin(const pgd_device *d, pgd_queue *q, const pgd_graph_desc *desc) {
    (void)d;
    (void)q;
    (void)desc;
    graph_begun = 1;
    return PGD_OK;
}

static pgd_status note_end(const pgd_device *d, pgd_queue *q, pgd_graph **out) {
    (void)d;
    (void)q;
    *out = NULL;
    return PGD_OK;
}

static pgd_status note_launch(const pgd_device *d, pgd_queue *q, pgd_graph *graph) {
    (void)d;
    (void)q;
    (void)graph;
    return PGD_OK;
}

static void note_graph_destroy(const pgd_device *d, pgd_graph *graph) {
    (void)d;
    (void)graph;
}

static pgd_status note_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static pgd_device_table device;
    static pgd_weight_table weight = {
        .size = sizeof(weight),
        .plan = note_weight_plan,
        .prepare = odd_weight_prepare,
        .adopt = odd_weight_adopt,
        .destroy = odd_weight_destroy,
    };
    static pgd_kv_table kv = {
        .size = sizeof(kv),
        .plan = note_kv_plan,
        .bind = odd_kv_bind,
        .destroy = odd_kv_destroy,
        .copy_blocks = odd_kv_copy,
    };
    static const pgd_graph_table graph = {
        .size = sizeof(graph),
        .begin = note_begin,
        .end = note_end,
        .launch = note_launch,
        .destroy = note_graph_destroy,
    };
    PGD_TRY(plugin_open(host, out_backend, out));
    device = *out->device;
    device.support = note_support;
    out->device = &device;
    out->weight = &weight;
    out->kv = &kv;
    out->ops = &note_ops;
    out->graph = &graph;
    return PGD_OK;
}

static pgd_dev *open_noting(const int32_t *without, uint32_t n, uint32_t allow_slow) {
    static pgd_plugin plugin;
    pgd_dev *dev = NULL;
    plugin = *pgd_plugin_v0_minimal(PGD_ABI_MINOR);
    plugin.open = note_open;
    plugin.abi_minor = built_with == 0 ? PGD_ABI_MINOR : built_with;
    fill_note_ops(without, n);
    n_called = 0;
    refused_op = -1;
    refuse_big_weight = 0;
    graph_begun = 0;
    newer_seen = 0;
    OK(pgd_dev_open_plugin(&plugin, (pgd_str){0}, 0, NULL, allow_slow, &dev));
    return dev;
}

// ---- the questions of a model ------------------------------------------------------------------

enum { Q_QKV = 0, Q_ATTN = 1, Q_UP = 2, Q_HEAD = 3, Q_ADD = 4, N_QUERIES = 5 };

static pgd_batch batch = {.size = sizeof(pgd_batch), .cap_tokens = 8, .cap_seqs = 2};
static pgd_weight_desc weight = {
    .size = sizeof(pgd_weight_desc), .uses = PGD_USE_GATE_UP, .dtype = PGD_F32, .n = 8, .k = 8};
static pgd_kv_desc kv_desc = {.size = sizeof(pgd_kv_desc),
                              .layers = 1,
                              .heads = 1,
                              .k_dim = 4,
                              .v_dim = 4,
                              .k_dtype = PGD_F32,
                              .v_dtype = PGD_F32,
                              .block_tokens = 4};

static pgd_tensor shape(int64_t rows, int64_t columns) {
    return (pgd_tensor){
        .dtype = PGD_F32, .rank = 2, .shape = {rows, columns}, .stride = {columns, 1}};
}

static pgd_qkv_rope_write_args qkv_args;
static pgd_attn_args attn_args;
static pgd_gate_up_args up_args;
static pgd_head_sample_args head_args;
static pgd_add_rmsnorm_args add_args;
static pgd_query queries[N_QUERIES];

static void fill_queries(void) {
    qkv_args = (pgd_qkv_rope_write_args){.size = sizeof(qkv_args), .batch = &batch};
    qkv_args.x = shape(8, 8);
    qkv_args.norm_w = shape(1, 8);
    qkv_args.table = shape(16, 4);
    attn_args = (pgd_attn_args){.size = sizeof(attn_args), .batch = &batch};
    up_args = (pgd_gate_up_args){.size = sizeof(up_args), .batch = &batch};
    head_args = (pgd_head_sample_args){.size = sizeof(head_args), .batch = &batch};
    add_args = (pgd_add_rmsnorm_args){.size = sizeof(add_args), .batch = &batch};
    add_args.w = shape(1, 8);
    const struct {
        int32_t op;
        const void *args;
    } list[N_QUERIES] = {
        {PGD_OP_qkv_rope_write, &qkv_args}, {PGD_OP_attn, &attn_args},
        {PGD_OP_gate_up, &up_args},         {PGD_OP_head_sample, &head_args},
        {PGD_OP_add_rmsnorm, &add_args},
    };
    for (uint32_t i = 0; i < N_QUERIES; i++) {
        queries[i] = (pgd_query){.size = sizeof(pgd_query), .batch = &batch};
        queries[i].op = list[i].op;
        queries[i].args = list[i].args;
        queries[i].weight = &weight;
        queries[i].kv = &kv_desc;
    }
}

static void check_places(const pgd_dev_place *places, const int32_t *want) {
    for (uint32_t i = 0; i < N_QUERIES; i++) {
        if (places[i].place != want[i]) {
            fail_msg("query %u: F%d, not F%d (%s)", i, places[i].place, want[i], places[i].reason);
        }
    }
}

static void test_all_native(void **state) {
    pgd_dev_place places[N_QUERIES];
    const int32_t want[N_QUERIES] = {PGD_DEV_F0};
    (void)state;
    pgd_dev *dev = open_noting(NULL, 0, 0);
    fill_queries();
    OK(pgd_dev_plan(dev, queries, N_QUERIES, places));
    check_places(places, want);
    assert_string_equal(places[Q_ATTN].kernel, "noted");
    assert_int_equal(places[Q_ATTN].scratch, 100 * (PGD_OP_attn + 1));
    pgd_graph_desc graph = {.size = sizeof(graph)};
    OK(pgd_dev_device(dev)->graph->begin(pgd_dev_device(dev), NULL, &graph));
    assert_int_equal(graph_begun, 1);
    pgd_weight_plan plan = {.size = sizeof(plan)};
    OK(pgd_dev_device(dev)->weight->plan(pgd_dev_device(dev), &weight, &plan));
    assert_int_equal(planned_uses, PGD_USE_GATE_UP);
    pgd_dev_close(dev);
}

static const int32_t fused[] = {PGD_OP_add_rmsnorm, PGD_OP_qkv_rope_write, PGD_OP_gate_up,
                                PGD_OP_gemm_add,    PGD_OP_head_sample,    PGD_OP_attn_plan};

static void test_composed(void **state) {
    pgd_dev_place places[N_QUERIES];
    const int32_t want[N_QUERIES] = {PGD_DEV_F1, PGD_DEV_F0, PGD_DEV_F1, PGD_DEV_F1, PGD_DEV_F1};
    (void)state;
    pgd_dev *dev = open_noting(fused, 6, 0);
    const pgd_device *d = pgd_dev_device(dev);
    pgd_exec *x = NULL;
    fill_queries();
    OK(pgd_dev_plan(dev, queries, N_QUERIES, places));
    check_places(places, want);
    assert_string_equal(places[Q_UP].kernel, "composed");
    assert_int_equal(places[Q_HEAD].scratch, 100 * (PGD_OP_sample + 1));
    OK(pgd_dev_exec_create(dev, NULL, 0, &x));
    OK(d->ops->qkv_rope_write(x, &qkv_args));
    const int32_t parts[] = {PGD_OP_rmsnorm, PGD_OP_gemm, PGD_OP_rope, PGD_OP_kv_write};
    assert_int_equal(n_called, 4);
    assert_memory_equal(called, parts, sizeof(parts));
    pgd_weight_plan plan = {.size = sizeof(plan)};
    OK(d->weight->plan(d, &weight, &plan));
    assert_int_equal(planned_uses, PGD_USE_GEMM); // nobody may interleave what gemm reads
    pgd_dev_exec_destroy(dev, x);
    pgd_dev_close(dev);
}

// One refused member takes its family with it, and the fused ops of the family too.
static void test_refused_attn(void **state) {
    pgd_dev_place places[N_QUERIES];
    const int32_t want[N_QUERIES] = {PGD_DEV_F3, PGD_DEV_F3, PGD_DEV_F0, PGD_DEV_F0, PGD_DEV_F0};
    (void)state;
    pgd_dev *dev = open_noting(NULL, 0, 0);
    fill_queries();
    refused_op = PGD_OP_attn;
    assert_int_equal(pgd_dev_plan(dev, queries, N_QUERIES, places), PGD_UNSUPPORTED);
    const char *text = pgd_fail_text(PGD_UNSUPPORTED);
    assert_non_null(strstr(text, "attn (head dim 4)"));
    assert_non_null(strstr(text, "kv_write"));
    assert_null(strstr(text, "gemm"));
    pgd_dev_close(dev);
    dev = open_noting(NULL, 0, 1);
    refused_op = PGD_OP_attn;
    OK(pgd_dev_plan(dev, queries, N_QUERIES, places));
    check_places(places, want);
    assert_int_equal(dev->how[PGD_OP_qkv_rope_write], PGD_DEV_COMPOSED);
    assert_int_equal(dev->how[PGD_OP_gemm], PGD_DEV_NATIVE);
    assert_false(dev->kv_native);
    pgd_graph_desc graph = {.size = sizeof(graph)};
    assert_int_equal(pgd_dev_device(dev)->graph->begin(pgd_dev_device(dev), NULL, &graph),
                     PGD_UNSUPPORTED); // a reference op cannot be recorded
    refused_op = -1;
    OK(pgd_dev_plan(dev, queries, N_QUERIES, places)); // another model on the same device
    assert_int_equal(places[Q_ATTN].place, PGD_DEV_F0);
    assert_int_equal(dev->how[PGD_OP_qkv_rope_write], PGD_DEV_NATIVE);
    pgd_dev_close(dev);
}

static void test_refused_fused(void **state) {
    pgd_dev_place places[N_QUERIES];
    const int32_t want[N_QUERIES] = {PGD_DEV_F0, PGD_DEV_F0, PGD_DEV_F1, PGD_DEV_F0, PGD_DEV_F0};
    (void)state;
    pgd_dev *dev = open_noting(NULL, 0, 0);
    fill_queries();
    refused_op = PGD_OP_gate_up;
    OK(pgd_dev_plan(dev, queries, N_QUERIES, places));
    check_places(places, want);
    assert_string_equal(places[Q_UP].reason, "head dim 4");
    pgd_dev_close(dev);
}

// A fused op of a broken family is not used, though the plugin has it.
static void test_hole_in_weights(void **state) {
    pgd_dev_place places[N_QUERIES];
    const int32_t hole[] = {PGD_OP_gemm};
    const int32_t want[N_QUERIES] = {PGD_DEV_F3, PGD_DEV_F0, PGD_DEV_F3, PGD_DEV_F3, PGD_DEV_F0};
    (void)state;
    pgd_dev *dev = open_noting(hole, 1, 1);
    fill_queries();
    OK(pgd_dev_plan(dev, queries, N_QUERIES, places));
    check_places(places, want);
    assert_int_equal(dev->how[PGD_OP_embed], PGD_DEV_REFERENCE);
    assert_int_equal(dev->how[PGD_OP_kv_write], PGD_DEV_NATIVE);
    assert_int_equal(dev->how[PGD_OP_act_mul], PGD_DEV_NATIVE);
    pgd_dev_close(dev);
}

static void test_refused_weight(void **state) {
    pgd_dev_place places[N_QUERIES];
    (void)state;
    pgd_dev *dev = open_noting(NULL, 0, 0);
    fill_queries();
    refuse_big_weight = 4;
    assert_int_equal(pgd_dev_plan(dev, queries, N_QUERIES, places), PGD_UNSUPPORTED);
    assert_non_null(strstr(pgd_fail_text(PGD_UNSUPPORTED), "too many rows for this device"));
    assert_false(dev->weight_native);
    pgd_dev_close(dev);
}

// A plugin of minor 1 is never shown what minor 2 brought; one of minor 2 is.
static void test_older_plugin(void **state) {
    pgd_dev_place places[N_QUERIES];
    (void)state;
    fill_queries();
    weight.scheme = PGD_SCHEME_Q8_0;
    kv_desc.scale_mode = PGD_KV_SCALE_TOKEN_HEAD;
    kv_desc.k_dtype = PGD_I8;
    kv_desc.v_dtype = PGD_I8;
    pgd_dev *dev = open_noting(NULL, 0, 0);
    OK(pgd_dev_plan(dev, queries, N_QUERIES, places));
    assert_int_not_equal(newer_seen, 0);
    pgd_dev_close(dev);

    built_with = 1;
    dev = open_noting(NULL, 0, 1);
    const pgd_device *d = pgd_dev_device(dev);
    pgd_weight_plan plan = {.size = sizeof(plan)};
    pgd_kv_plan kv_plan = {.size = sizeof(kv_plan)};
    const pgd_range none = {0};
    pgd_weight *w = NULL;
    pgd_kv *kv = NULL;
    assert_int_equal(d->weight->plan(d, &weight, &plan), PGD_UNSUPPORTED);
    assert_non_null(strstr(pgd_fail_text(PGD_UNSUPPORTED),
                           "scheme q8_0 is of interface 0.2, plugin 'minimal' was built for 0.1"));
    assert_int_equal(d->weight->prepare(d, NULL, &weight, &none, &none, &w), PGD_UNSUPPORTED);
    assert_int_equal(d->weight->adopt(d, &weight, &none, &w), PGD_UNSUPPORTED);
    assert_int_equal(d->kv->plan(d, &kv_desc, &kv_plan), PGD_UNSUPPORTED);
    assert_non_null(strstr(pgd_fail_text(PGD_UNSUPPORTED), "cache dtype int8"));
    assert_int_equal(d->kv->bind(d, &kv_desc, &kv_plan, &none, 1, &kv), PGD_UNSUPPORTED);
    OK(pgd_dev_plan(dev, queries, N_QUERIES, places)); // on the host instead
    assert_int_equal(newer_seen, 0);
    assert_int_equal(places[Q_ATTN].place, PGD_DEV_F3);
    assert_non_null(strstr(places[Q_UP].reason, "scheme q8_0"));
    assert_int_equal(places[Q_ADD].place, PGD_DEV_F0);

    weight.scheme = PGD_SCHEME_PLAIN;
    kv_desc.scale_mode = PGD_KV_SCALE_NONE;
    kv_desc.k_dtype = PGD_F32;
    kv_desc.v_dtype = PGD_F32;
    OK(pgd_dev_plan(dev, queries, N_QUERIES, places));
    assert_int_equal(places[Q_ATTN].place, PGD_DEV_F0);
    OK(d->weight->plan(d, &weight, &plan));
    pgd_dev_close(dev);
    built_with = 0;
}

static void test_bad_queries(void **state) {
    pgd_dev_place places[N_QUERIES];
    (void)state;
    pgd_dev *dev = open_noting(NULL, 0, 0);
    fill_queries();
    queries[1].kv = NULL;
    assert_int_equal(pgd_dev_plan(dev, queries, 2, places), PGD_INVALID);
    queries[1].op = PGD_OP_COUNT;
    assert_int_equal(pgd_dev_plan(dev, queries, 2, places), PGD_INVALID);
    pgd_dev_close(dev);
}

// Every allocation of opening and planning fails once; nothing is left over.
static void test_out_of_memory(void **state) {
    pgd_dev_place places[N_QUERIES];
    pgd_status code = PGD_OUT_OF_MEMORY;
    uint64_t live = pgd_mem_live();
    uint64_t n = 0;
    (void)state;
    fill_queries();
    while (code != PGD_OK) {
        pgd_dev *dev = NULL;
        pgd_exec *x = NULL;
        pgd_mem_fail_nth(++n);
        code = pgd_dev_open_plugin(odd_plugin(ODD_MINIMAL), PGD_STR(""), 0, NULL, 1, &dev);
        code = code != PGD_OK ? code : pgd_dev_plan(dev, queries, N_QUERIES, places);
        code = code != PGD_OK ? code : pgd_dev_exec_create(dev, NULL, 64, &x);
        pgd_mem_fail_nth(0);
        assert_true(code == PGD_OK || code == PGD_OUT_OF_MEMORY);
        if (dev != NULL) {
            pgd_dev_exec_destroy(dev, x);
        }
        pgd_dev_close(dev);
        assert_int_equal(pgd_mem_live(), live);
    }
    assert_true(n > 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_native),      cmocka_unit_test(test_composed),
        cmocka_unit_test(test_refused_attn),    cmocka_unit_test(test_refused_fused),
        cmocka_unit_test(test_hole_in_weights), cmocka_unit_test(test_refused_weight),
        cmocka_unit_test(test_bad_queries),     cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_older_plugin),
    };
    return cmocka_run_group_tests_name("dev.plan", tests, NULL, NULL);
}
