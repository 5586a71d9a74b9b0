// Weight plan: every golden model is planned and compared with what transformers saved; wrong
// models are refused by name.
#include "load/test_folder.h"

#include <math.h>

#include "base/mem.h"
#include "load/plan.h"
#include "os/file.h"

#define MODELS PGD_TEST_SOURCE_DIR "/tests/golden/models"

typedef struct opened {
    pgd_load_config *c;
    pgd_load_weights *w;
    pgd_load_plan *p;
} opened;

static pgd_status open_model(const char *folder, opened *out) {
    *out = (opened){0};
    PGD_TRY(pgd_load_config_read(folder, &out->c));
    PGD_TRY(pgd_load_weights_open(folder, &out->w));
    return pgd_load_plan_create(out->c, out->w, &out->p);
}

static void close_model(opened *m) {
    pgd_load_plan_destroy(m->p);
    pgd_load_weights_close(m->w);
    pgd_load_config_free(m->c);
}

// Numbers of the stored tensors, as transformers wrote them: nothing may be left over.
static uint64_t stored_params(const pgd_load_weights *w) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < pgd_load_weights_count(w); i++) {
        const pgd_load_tensor *t = pgd_load_weights_get(w, i);
        sum += t->bytes / pgd_dtype_bytes(t->dtype);
    }
    return sum;
}

static void check_matrices(const opened *m) {
    for (int32_t layer = 0; layer < m->c->n_layers; layer++) {
        for (int32_t role = PGD_LOAD_W_QKV; role <= PGD_LOAD_W_DOWN; role++) {
            const pgd_load_matrix *x = pgd_load_plan_matrix(m->p, role, layer);
            assert_non_null(x);
            assert_int_equal(x->role, role);
            assert_int_equal(x->layer, layer);
            int64_t rows = 0;
            for (uint32_t i = 0; i < x->n_parts; i++) {
                const pgd_weight_part *part = &x->parts[i];
                rows += part->row_count;
                assert_int_equal(part->rows, part->row_count);
                assert_int_equal(part->cols, x->k);
                assert_int_equal(part->col_count, x->k);
                assert_int_equal(part->data.bytes,
                                 (uint64_t)(part->rows * part->cols) * pgd_dtype_bytes(x->dtype));
                assert_int_equal((uintptr_t)part->data.ptr % pgd_dtype_bytes(x->dtype), 0);
            }
            assert_int_equal(rows, x->n);
        }
        assert_null(pgd_load_plan_matrix(m->p, PGD_LOAD_W_EMBED, layer));
        assert_null(pgd_load_plan_matrix(m->p, PGD_LOAD_W_HEAD, layer));
    }
    assert_null(pgd_load_plan_matrix(m->p, PGD_LOAD_W_QKV, m->c->n_layers));
    assert_null(pgd_load_plan_matrix(m->p, PGD_LOAD_W_QKV, -1));
    const pgd_load_matrix *embed = pgd_load_plan_matrix(m->p, PGD_LOAD_W_EMBED, -1);
    const pgd_load_matrix *head = pgd_load_plan_matrix(m->p, PGD_LOAD_W_HEAD, -1);
    assert_non_null(embed);
    assert_int_equal(embed->n, m->c->vocab);
    assert_int_equal(embed->k, m->c->hidden);
    assert_int_equal(embed->uses, m->c->tied ? PGD_USE_EMBED | PGD_USE_GEMM : PGD_USE_EMBED);
    assert_int_equal(head == NULL, m->c->tied);
}

static void check_vectors(const opened *m) {
    const pgd_load_config *c = m->c;
    int64_t qkv = ((int64_t)c->n_heads + 2 * c->n_kv_heads) * c->head_dim;
    const struct {
        int32_t kind;
        int32_t there;
        int64_t n;
    } rows[] = {
        {PGD_LOAD_V_INPUT_NORM, 1, c->hidden},
        {PGD_LOAD_V_POST_NORM, 1, c->hidden},
        {PGD_LOAD_V_QKV_BIAS, c->attention_bias, qkv},
        {PGD_LOAD_V_O_BIAS, c->o_bias, c->hidden},
        {PGD_LOAD_V_GATE_UP_BIAS, c->mlp_bias, 2 * (int64_t)c->intermediate},
        {PGD_LOAD_V_DOWN_BIAS, c->mlp_bias, c->hidden},
        {PGD_LOAD_V_Q_NORM, c->qk_norm, c->head_dim},
        {PGD_LOAD_V_K_NORM, c->qk_norm, c->head_dim},
    };
    for (int32_t layer = 0; layer < c->n_layers; layer++) {
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            const pgd_load_vector *v = pgd_load_plan_vector(m->p, rows[i].kind, layer);
            assert_int_equal(v != NULL, rows[i].there);
            if (v != NULL) {
                assert_int_equal(v->n, rows[i].n);
                assert_int_equal(v->layer, layer);
            }
        }
    }
    const pgd_load_vector *last = pgd_load_plan_vector(m->p, PGD_LOAD_V_FINAL_NORM, -1);
    assert_non_null(last);
    assert_int_equal(last->n, c->hidden);
    assert_null(pgd_load_plan_vector(m->p, PGD_LOAD_V_FINAL_NORM, 0));
    assert_null(pgd_load_plan_vector(m->p, PGD_LOAD_V_INPUT_NORM, c->n_layers));
}

static void plan_folder(const char *folder) {
    opened m;
    pgd_status status = open_model(folder, &m);
    if (status != PGD_OK) {
        fail_msg("%s", pgd_fail_text(status));
    }
    check_matrices(&m);
    check_vectors(&m);
    assert_int_equal(m.p->params, stored_params(m.w));
    close_model(&m);
}

static int32_t plan_one(void *arg, const char *name) {
    char folder[1024];
    uint32_t *count = arg;
    (void)snprintf(folder, sizeof(folder), MODELS "/%s", name);
    if (pgd_os_kind(folder, NULL) == PGD_OS_FOLDER) {
        plan_folder(folder);
        (*count)++;
    }
    return 0;
}

static void golden_models(void **state) {
    (void)state;
    uint32_t count = 0;
    uint64_t live = pgd_mem_live();
    assert_int_equal(pgd_os_list(MODELS, plan_one, &count), PGD_OK);
    assert_true(count >= 19);
    assert_int_equal(pgd_mem_live(), live);
    plan_folder(PGD_TEST_SOURCE_DIR "/models/nano");
    print_message("%u models planned\n", (unsigned)count + 1);
}

// ---- a small model made here -------------------------------------------------------------------

// hidden 4, 2 heads of 2, 1 kv head, MLP 6, vocabulary 5, one layer.
#define CONFIG                                                                             \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":4,\"num_hidden_layers\":1," \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"intermediate_size\":6,"         \
    "\"vocab_size\":5"
#define L "model.layers.0."

typedef struct stored {
    const char *name;
    const char *dtype;
    const char *shape;
    unsigned bytes;
} stored;

static const stored small_model[] = {
    {"lm_head.weight", "F32", "[5,4]", 80},
    {"model.embed_tokens.weight", "BF16", "[5,4]", 40},
    {L "input_layernorm.weight", "BF16", "[4]", 8},
    {L "mlp.down_proj.weight", "F16", "[4,6]", 48},
    {L "mlp.gate_proj.weight", "F16", "[6,4]", 48},
    {L "mlp.up_proj.weight", "F16", "[6,4]", 48},
    {L "post_attention_layernorm.weight", "F32", "[4]", 16},
    {L "self_attn.k_proj.weight", "F32", "[2,4]", 32},
    {L "self_attn.o_proj.weight", "F32", "[4,4]", 64},
    {L "self_attn.q_proj.weight", "F32", "[4,4]", 64},
    {L "self_attn.rotary_emb.inv_freq", "F64", "[1]", 8},
    {L "self_attn.v_proj.weight", "F32", "[2,4]", 32},
    {"model.norm.weight", "F16", "[4]", 8},
    {L "self_attn.q_proj.bias", "F32", "[4]", 16},
    {L "self_attn.k_proj.bias", "BF16", "[2]", 4},
    {L "self_attn.v_proj.bias", "F16", "[2]", 4},
    {L "self_attn.o_proj.bias", "F32", "[4]", 16},
};
#define N_STORED (sizeof(small_model) / sizeof(small_model[0]))

// Where the data of a tensor begins; `pad` unused bytes are put first as a tensor of their own.
static size_t offset_of(const char *name, unsigned pad) {
    size_t at = pad;
    for (size_t i = 0; i < N_STORED; i++) {
        if (strcmp(small_model[i].name, name) == 0) {
            return at;
        }
        at += small_model[i].bytes;
    }
    fail_msg("no %s", name);
    return 0;
}

// Writes the model with one tensor left out (changed.dtype NULL) or changed; data as given.
static void write_model(test_folder *f, const char *config, stored changed, unsigned pad,
                        const uint8_t *data) {
    char header[4096];
    size_t at = 0;
    size_t n_data = 0;
    size_t n = 0;
    at += (size_t)snprintf(header, sizeof(header),
                           "{\"pad\":{\"dtype\":\"U8\",\"shape\":[%u],\"data_offsets\":[0,%u]}",
                           pad, pad);
    n_data = pad;
    for (size_t i = 0; i < N_STORED; i++) {
        stored s = small_model[i];
        if (changed.name != NULL && strcmp(s.name, changed.name) == 0) {
            s = changed;
        }
        if (s.dtype == NULL) {
            continue;
        }
        at += (size_t)snprintf(header + at, sizeof(header) - at,
                               ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                               s.name, s.dtype, s.shape, n_data, n_data + s.bytes);
        n_data += s.bytes;
    }
    // Spaces so that the data begins at a multiple of 8.
    (void)snprintf(header + at, sizeof(header) - at, "}%.*s", (int)((8 - (at + 1) % 8) % 8),
                   "        ");
    uint8_t *bytes = test_safetensors(header, n_data, &n);
    if (data != NULL) {
        memcpy(bytes + n - n_data, data, n_data);
    }
    test_folder_write(f, "config.json", config, strlen(config));
    test_folder_write(f, "model.safetensors", bytes, n);
    free(bytes);
}

static void small_models_plan(void **state) {
    (void)state;
    static const stored none;
    test_folder f;
    opened m;
    uint64_t live = pgd_mem_live();
    test_folder_make(&f);
    write_model(&f, CONFIG "}", none, 0, NULL);
    assert_int_equal(open_model(f.path, &m), PGD_OK);
    check_matrices(&m);
    check_vectors(&m);
    const pgd_load_matrix *qkv = pgd_load_plan_matrix(m.p, PGD_LOAD_W_QKV, 0);
    const pgd_load_matrix *gate_up = pgd_load_plan_matrix(m.p, PGD_LOAD_W_GATE_UP, 0);
    const pgd_load_matrix *head = pgd_load_plan_matrix(m.p, PGD_LOAD_W_HEAD, -1);
    assert_int_equal(qkv->n_parts, 3);
    assert_int_equal(qkv->n, 8);
    assert_int_equal(qkv->k, 4);
    assert_int_equal(qkv->uses, PGD_USE_GEMM);
    assert_string_equal(qkv->name, L "self_attn.qkv_proj");
    assert_ptr_equal(qkv->parts[0].data.ptr,
                     pgd_load_weights_find(m.w, L "self_attn.q_proj.weight")->ptr);
    assert_ptr_equal(qkv->parts[2].data.ptr,
                     pgd_load_weights_find(m.w, L "self_attn.v_proj.weight")->ptr);
    assert_int_equal(gate_up->uses, PGD_USE_GATE_UP);
    assert_int_equal(gate_up->dtype, PGD_F16);
    assert_ptr_equal(gate_up->parts[1].data.ptr,
                     pgd_load_weights_find(m.w, L "mlp.up_proj.weight")->ptr);
    assert_int_equal(head->dtype, PGD_F32);
    assert_int_equal(head->uses, PGD_USE_GEMM);
    // 2 x [5,4], q and o [4,4], k and v [2,4], 3 x [6,4], 3 norms of 4
    assert_int_equal(m.p->params, 40 + 32 + 16 + 72 + 12);
    assert_int_equal(m.p->weight_bytes, 80 + 40 + 3 * 48 + 32 + 64 + 64 + 32 + 3 * 16);
    close_model(&m);
    write_model(&f, CONFIG ",\"tie_word_embeddings\":true}", none, 0, NULL);
    assert_int_equal(open_model(f.path, &m), PGD_OK);
    check_matrices(&m);
    assert_int_equal(m.p->params, 20 + 32 + 16 + 72 + 12); // the stored head is not used
    close_model(&m);
    test_folder_remove(&f);
    assert_int_equal(pgd_mem_live(), live);
}

// Values: f32, bf16 and f16 vectors, joined in the order q, k, v.
static void vectors_hold_values(void **state) {
    (void)state;
    static const stored none;
    static const float q[4] = {1.5f, -2, 0, 1e-30f};
    static const uint16_t k[2] = {0x3fc0, 0xff80}; // bf16: 1.5, -inf
    static const uint16_t v[2] = {0x0001, 0xc000}; // f16: 2^-24, -2
    static const uint16_t norm[4] = {0x7c00, 0x7bff, 0x8400, 0x8001};
    uint8_t data[1024] = {0};
    test_folder f;
    opened m;
    memcpy(data + offset_of(L "self_attn.q_proj.bias", 0), q, sizeof(q));
    memcpy(data + offset_of(L "self_attn.k_proj.bias", 0), k, sizeof(k));
    memcpy(data + offset_of(L "self_attn.v_proj.bias", 0), v, sizeof(v));
    memcpy(data + offset_of("model.norm.weight", 0), norm, sizeof(norm));
    test_folder_make(&f);
    write_model(&f, CONFIG ",\"attention_bias\":true}", none, 0, data);
    assert_int_equal(open_model(f.path, &m), PGD_OK);
    const pgd_load_vector *bias = pgd_load_plan_vector(m.p, PGD_LOAD_V_QKV_BIAS, 0);
    const pgd_load_vector *last = pgd_load_plan_vector(m.p, PGD_LOAD_V_FINAL_NORM, -1);
    assert_int_equal(bias->n, 8);
    assert_memory_equal(bias->data, q, sizeof(q));
    assert_true(bias->data[4] == 1.5f);
    assert_true(bias->data[5] == -INFINITY);
    assert_true(bias->data[6] == 0x1p-24f);
    assert_true(bias->data[7] == -2.0f);
    assert_true(last->data[0] == INFINITY);
    assert_true(last->data[1] == 65504.0f);
    assert_true(last->data[2] == -0x1p-14f);
    assert_true(last->data[3] == -0x1p-24f);
    close_model(&m);
    test_folder_remove(&f);
}

// A file that aligns nothing: matrices get aligned copies with the same bytes.
static void unaligned_files(void **state) {
    (void)state;
    static const stored none;
    test_folder f;
    opened m;
    uint64_t live = pgd_mem_live();
    test_folder_make(&f);
    write_model(&f, CONFIG ",\"attention_bias\":true}", none, 3, NULL);
    assert_int_equal(open_model(f.path, &m), PGD_OK);
    check_matrices(&m);
    check_vectors(&m);
    const pgd_load_matrix *o = pgd_load_plan_matrix(m.p, PGD_LOAD_W_O, 0);
    const pgd_load_tensor *t = pgd_load_weights_find(m.w, L "self_attn.o_proj.weight");
    assert_ptr_not_equal(o->parts[0].data.ptr, t->ptr);
    assert_memory_equal(o->parts[0].data.ptr, t->ptr, t->bytes);
    close_model(&m);
    test_folder_remove(&f);
    assert_int_equal(pgd_mem_live(), live);
}

static void wrong_models(void **state) {
    (void)state;
    static const struct {
        const char *config;
        stored changed;
        pgd_status status;
        const char *says;
        const char *too;
    } rows[] = {
        {CONFIG "}",
         {"lm_head.weight", NULL, NULL, 0},
         PGD_NOT_FOUND,
         "\"lm_head.weight\"",
         "tie_word_embeddings"},
        {CONFIG "}",
         {"model.embed_tokens.weight", NULL, NULL, 0},
         PGD_NOT_FOUND,
         "\"model.embed_tokens.weight\"",
         "LlamaForCausalLM"},
        {CONFIG "}",
         {L "self_attn.v_proj.weight", NULL, NULL, 0},
         PGD_NOT_FOUND,
         "\"model.layers.0.self_attn.v_proj.weight\"",
         ""},
        {CONFIG ",\"mlp_bias\":true}",
         {NULL, NULL, NULL, 0},
         PGD_NOT_FOUND,
         "\"model.layers.0.mlp.gate_proj.bias\"",
         ""},
        {CONFIG ",\"num_hidden_layers\":2}",
         {NULL, NULL, NULL, 0},
         PGD_NOT_FOUND,
         "\"model.layers.1.self_attn.q_proj.weight\"",
         ""},
        {CONFIG "}",
         {"lm_head.weight", "F32", "[4,5]", 80},
         PGD_INVALID,
         "has shape [4, 5]",
         "asks for [5, 4]"},
        {CONFIG "}",
         {"lm_head.weight", "F32", "[20]", 80},
         PGD_INVALID,
         "has shape [20]",
         "asks for [5, 4]"},
        {CONFIG "}",
         {"lm_head.weight", "F32", "[5,4,1]", 80},
         PGD_INVALID,
         "has shape [5, 4, 1]",
         ""},
        {CONFIG "}",
         {"lm_head.weight", "F32", "[5,4,1,1,1]", 80},
         PGD_INVALID,
         "has shape [5, 4, 1, 1, ...]",
         ""},
        {CONFIG "}",
         {"model.norm.weight", "F16", "[2]", 4},
         PGD_INVALID,
         "has shape [2]",
         "asks for [4]"},
        {CONFIG "}", {"model.norm.weight", "F16", "[]", 2}, PGD_INVALID, "has shape []", ""},
        {CONFIG ",\"vocab_size\":6}",
         {NULL, NULL, NULL, 0},
         PGD_INVALID,
         "embed_tokens.weight",
         "[6, 4]"},
        {CONFIG "}",
         {"lm_head.weight", "I8", "[5,4]", 20},
         PGD_UNSUPPORTED,
         "has the type I8",
         "BF16"},
        {CONFIG "}", {"lm_head.weight", "I32", "[5,4]", 80}, PGD_UNSUPPORTED, "the type I32", ""},
        {CONFIG "}", {"model.norm.weight", "F64", "[4]", 32}, PGD_UNSUPPORTED, "the type F64", ""},
        {CONFIG "}",
         {L "self_attn.k_proj.weight", "BF16", "[2,4]", 16},
         PGD_INVALID,
         "k_proj.weight\" is BF16",
         "are f32"},
        {CONFIG "}",
         {L "mlp.up_proj.weight", "BF16", "[6,4]", 48},
         PGD_INVALID,
         "up_proj.weight\" is BF16",
         "gate_up_proj are f16"},
    };
    test_folder f;
    uint64_t live = pgd_mem_live();
    test_folder_make(&f);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        opened m;
        write_model(&f, rows[i].config, rows[i].changed, 0, NULL);
        pgd_status status = open_model(f.path, &m);
        if (status != rows[i].status) {
            fail_msg("row %zu: status %d: %s", i, (int)status, pgd_fail_text(status));
        }
        assert_null(m.p);
        test_says(status, rows[i].says);
        test_says(status, rows[i].too);
        close_model(&m);
        assert_int_equal(pgd_mem_live(), live);
    }
    test_folder_remove(&f);
}

static void each_allocation_fails(void **state) {
    (void)state;
    static const stored none;
    test_folder f;
    opened m = {0};
    uint64_t live = pgd_mem_live();
    test_folder_make(&f);
    write_model(&f, CONFIG ",\"attention_bias\":true}", none, 1, NULL);
    for (uint64_t nth = 1;; nth++) {
        pgd_mem_fail_nth(nth);
        pgd_status status = open_model(f.path, &m);
        pgd_mem_fail_nth(0);
        if (status == PGD_OK) {
            assert_true(nth > 20);
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
        close_model(&m);
        assert_int_equal(pgd_mem_live(), live);
    }
    close_model(&m);
    assert_int_equal(pgd_mem_live(), live);
    test_folder_remove(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_models),       cmocka_unit_test(small_models_plan),
        cmocka_unit_test(vectors_hold_values), cmocka_unit_test(unaligned_files),
        cmocka_unit_test(wrong_models),        cmocka_unit_test(each_allocation_fails),
    };
    return cmocka_run_group_tests_name("load.plan", tests, NULL, NULL);
}
