// config.json and generation_config.json: each family with the values that transformers' config
// classes give to the same text, and every wrong value refused by name.
#include "load/test_folder.h"

#include "base/mem.h"
#include "load/config.h"

#define SHAPES                                                              \
    "\"hidden_size\":64,\"num_hidden_layers\":3,\"num_attention_heads\":4," \
    "\"intermediate_size\":96,\"vocab_size\":1000"
#define LLAMA   "{\"architectures\":[\"LlamaForCausalLM\"]," SHAPES
#define MISTRAL "{\"architectures\":[\"MistralForCausalLM\"]," SHAPES ",\"num_key_value_heads\":2"
#define QWEN2   "{\"architectures\":[\"Qwen2ForCausalLM\"]," SHAPES ",\"num_key_value_heads\":4"
#define QWEN3   "{\"architectures\":[\"Qwen3ForCausalLM\"]," SHAPES ",\"num_key_value_heads\":2"

static pgd_load_config *read_both(const char *config, const char *generation) {
    pgd_load_config *c = NULL;
    pgd_status status = pgd_load_config_parse(config, strlen(config), generation,
                                              generation != NULL ? strlen(generation) : 0, "m", &c);
    if (status != PGD_OK) {
        fail_msg("%s: %s", config, pgd_fail_text(status));
    }
    return c;
}

static pgd_load_config *read_one(const char *config) {
    return read_both(config, NULL);
}

static void llama_defaults(void **state) {
    (void)state;
    pgd_load_config *c = read_one(LLAMA "}");
    assert_int_equal(c->family, PGD_LOAD_LLAMA);
    assert_string_equal(c->architecture, "LlamaForCausalLM");
    assert_int_equal(c->n_layers, 3);
    assert_int_equal(c->hidden, 64);
    assert_int_equal(c->n_heads, 4);
    assert_int_equal(c->n_kv_heads, 4);
    assert_int_equal(c->head_dim, 16);
    assert_int_equal(c->intermediate, 96);
    assert_int_equal(c->vocab, 1000);
    assert_int_equal(c->max_position, 2048);
    assert_true(c->norm_eps == 1e-6);
    assert_int_equal(c->act, PGD_ACT_SILU);
    assert_int_equal(c->tied, 0);
    assert_int_equal(c->attention_bias, 0);
    assert_int_equal(c->o_bias, 0);
    assert_int_equal(c->mlp_bias, 0);
    assert_int_equal(c->qk_norm, 0);
    assert_int_equal(c->dtype, PGD_DTYPE_NONE);
    assert_int_equal(c->rope.kind, PGD_ROPE_DEFAULT);
    assert_int_equal(c->rope.rot_dim, 16);
    assert_true(c->rope.theta == 10000.0);
    assert_true(c->rope.factor == 1.0);
    assert_int_equal(c->n_eos, 1);
    assert_int_equal(c->eos[0], 2);
    assert_int_equal(c->bos, 1);
    assert_int_equal(c->pad, -1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c->window[i], 0);
    }
    static const pgd_load_generation none;
    assert_memory_equal(&c->generation, &none, sizeof(none));
    pgd_load_config_free(c);
    pgd_load_config_free(NULL);
}

// The published file of Llama 3.2 1B Instruct, keys that do not matter left out.
static void llama_3_2(void **state) {
    (void)state;
    pgd_load_config *c = read_one(
        "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,"
        "\"bos_token_id\":128000,\"eos_token_id\":[128001,128008,128009],\"head_dim\":64,"
        "\"hidden_act\":\"silu\",\"hidden_size\":2048,\"intermediate_size\":8192,"
        "\"max_position_embeddings\":131072,\"mlp_bias\":false,\"model_type\":\"llama\","
        "\"num_attention_heads\":32,\"num_hidden_layers\":16,\"num_key_value_heads\":8,"
        "\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"factor\":32.0,\"high_freq_factor\":4.0,"
        "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,"
        "\"rope_type\":\"llama3\"},\"rope_theta\":500000.0,\"tie_word_embeddings\":true,"
        "\"torch_dtype\":\"bfloat16\",\"vocab_size\":128256}");
    assert_int_equal(c->n_kv_heads, 8);
    assert_int_equal(c->tied, 1);
    assert_int_equal(c->dtype, PGD_BF16);
    assert_int_equal(c->n_eos, 3);
    assert_int_equal(c->eos[2], 128009);
    assert_int_equal(c->bos, 128000);
    assert_true(c->norm_eps == 1e-5);
    assert_int_equal(c->rope.kind, PGD_ROPE_LLAMA3);
    assert_true(c->rope.factor == 32.0);
    assert_true(c->rope.low_freq_factor == 1.0);
    assert_true(c->rope.high_freq_factor == 4.0);
    assert_true(c->rope.original_max == 8192);
    assert_true(c->rope.theta == 500000.0);
    pgd_load_config_free(c);
}

static void llama_switches(void **state) {
    (void)state;
    pgd_load_config *c = read_one(LLAMA ",\"attention_bias\":true,\"mlp_bias\":true,"
                                        "\"head_dim\":32,\"dtype\":\"float16\","
                                        "\"hidden_act\":\"gelu_pytorch_tanh\","
                                        "\"eos_token_id\":null,\"bos_token_id\":null,"
                                        "\"pad_token_id\":-1,\"quantization_config\":null}");
    assert_int_equal(c->attention_bias, 1);
    assert_int_equal(c->o_bias, 1);
    assert_int_equal(c->mlp_bias, 1);
    assert_int_equal(c->head_dim, 32);
    assert_int_equal(c->dtype, PGD_F16);
    assert_int_equal(c->act, PGD_ACT_GELU_TANH);
    assert_int_equal(c->n_eos, 0);
    assert_int_equal(c->bos, -1);
    assert_int_equal(c->pad, -1);
    pgd_load_config_free(c);
    c = read_one("{\"model_type\":\"llama\"," SHAPES ",\"num_key_value_heads\":null}");
    assert_int_equal(c->family, PGD_LOAD_LLAMA);
    assert_int_equal(c->n_kv_heads, 4);
    pgd_load_config_free(c);
}

static void mistral(void **state) {
    (void)state;
    pgd_load_config *c = read_one(MISTRAL ",\"attention_bias\":true}");
    assert_int_equal(c->family, PGD_LOAD_MISTRAL);
    assert_int_equal(c->n_kv_heads, 2);
    assert_int_equal(c->max_position, 131072);
    assert_int_equal(c->attention_bias, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c->window[i], 4096);
    }
    pgd_load_config_free(c);
    c = read_one(MISTRAL ",\"sliding_window\":null,\"head_dim\":128}");
    assert_int_equal(c->window[0], 0);
    assert_int_equal(c->head_dim, 128);
    pgd_load_config_free(c);
    c = read_one(MISTRAL ",\"sliding_window\":7}");
    assert_int_equal(c->window[2], 7);
    pgd_load_config_free(c);
}

static void qwen2(void **state) {
    (void)state;
    pgd_load_config *c = read_one(QWEN2 ",\"sliding_window\":16,\"max_window_layers\":1}");
    assert_int_equal(c->family, PGD_LOAD_QWEN2);
    assert_int_equal(c->attention_bias, 1);
    assert_int_equal(c->o_bias, 0);
    assert_int_equal(c->max_position, 32768);
    assert_int_equal(c->n_eos, 0);
    assert_int_equal(c->bos, -1);
    assert_int_equal(c->window[2], 0); // use_sliding_window is off by default
    pgd_load_config_free(c);
    c = read_one(QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":16,"
                       "\"max_window_layers\":1}");
    assert_int_equal(c->window[0], 0);
    assert_int_equal(c->window[1], 16);
    assert_int_equal(c->window[2], 16);
    pgd_load_config_free(c);
    c = read_one(QWEN2 ",\"use_sliding_window\":true}");
    assert_int_equal(c->window[2], 0); // layers 28 and on
    pgd_load_config_free(c);
    c = read_one(QWEN2 ",\"use_sliding_window\":true,\"max_window_layers\":0,\"layer_types\":["
                       "\"sliding_attention\",\"full_attention\",\"sliding_attention\"]}");
    assert_int_equal(c->window[0], 4096);
    assert_int_equal(c->window[1], 0);
    assert_int_equal(c->window[2], 4096);
    pgd_load_config_free(c);
}

static void qwen3(void **state) {
    (void)state;
    pgd_load_config *c = read_one(QWEN3 ",\"rope_parameters\":{\"rope_type\":\"default\","
                                        "\"rope_theta\":1000000},\"torch_dtype\":\"float32\"}");
    assert_int_equal(c->family, PGD_LOAD_QWEN3);
    assert_int_equal(c->head_dim, 128);
    assert_int_equal(c->qk_norm, 1);
    assert_int_equal(c->attention_bias, 0);
    assert_int_equal(c->dtype, PGD_F32);
    assert_true(c->rope.theta == 1e6);
    assert_int_equal(c->rope.rot_dim, 128);
    pgd_load_config_free(c);
    c = read_one(QWEN3 ",\"attention_bias\":true,\"head_dim\":null}");
    assert_int_equal(c->attention_bias, 1);
    assert_int_equal(c->o_bias, 1);
    assert_int_equal(c->head_dim, 16);
    pgd_load_config_free(c);
}

// Which of two places of a rope value wins.
static void rope_places(void **state) {
    (void)state;
    pgd_load_config *c = read_one(
        LLAMA ",\"rope_theta\":5,\"partial_rotary_factor\":1.0,"
              "\"original_max_position_embeddings\":32,\"rope_scaling\":{\"type\":\"yarn\","
              "\"rope_theta\":7,\"partial_rotary_factor\":0.5,\"factor\":3,\"beta_fast\":0,"
              "\"original_max_position_embeddings\":64},"
              "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":9}}");
    assert_int_equal(c->rope.kind, PGD_ROPE_YARN);
    assert_true(c->rope.theta == 7);
    assert_int_equal(c->rope.rot_dim, 8);
    assert_true(c->rope.original_max == 32);
    assert_true(c->rope.factor == 3);
    assert_true(c->rope.beta_fast == 32);
    assert_true(c->rope.beta_slow == 1);
    assert_int_equal(c->rope.truncate, 1);
    assert_true(c->rope.attention_factor == 0);
    pgd_load_config_free(c);
    c = read_one(LLAMA ",\"rope_scaling\":{},\"rope_parameters\":{\"rope_type\":\"linear\","
                       "\"factor\":9}}");
    assert_int_equal(c->rope.kind, PGD_ROPE_LINEAR);
    assert_true(c->rope.factor == 9);
    pgd_load_config_free(c);
    c = read_one(LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":null,"
                       "\"original_max_position_embeddings\":512}}");
    assert_true(c->rope.factor == 4);
    pgd_load_config_free(c);
}

static void generation(void **state) {
    (void)state;
    pgd_load_config *c =
        read_both(LLAMA ",\"pad_token_id\":3}",
                  "{\"eos_token_id\":[7,8],\"bos_token_id\":5,\"do_sample\":true,"
                  "\"temperature\":0.6,\"top_p\":0.9,\"top_k\":20,\"min_p\":0.05,"
                  "\"repetition_penalty\":1.1,\"max_new_tokens\":99,\"unknown\":{}}");
    const pgd_load_generation *g = &c->generation;
    assert_int_equal(c->n_eos, 2);
    assert_int_equal(c->eos[0], 7);
    assert_int_equal(c->eos[1], 8);
    assert_int_equal(c->bos, 5);
    assert_int_equal(c->pad, 3);
    assert_true(g->has_do_sample && g->do_sample);
    assert_true(g->has_temperature && g->temperature == 0.6);
    assert_true(g->has_top_p && g->top_p == 0.9);
    assert_true(g->has_top_k && g->top_k == 20);
    assert_true(g->has_min_p && g->min_p == 0.05);
    assert_true(g->has_repetition_penalty && g->repetition_penalty == 1.1);
    assert_true(g->has_max_new_tokens && g->max_new_tokens == 99);
    pgd_load_config_free(c);
    c = read_both(LLAMA "}", "{\"eos_token_id\":null,\"temperature\":null,\"top_k\":-1}");
    assert_int_equal(c->n_eos, 1);
    assert_int_equal(c->eos[0], 2);
    assert_false(c->generation.has_temperature);
    assert_true(c->generation.has_top_k && c->generation.top_k == 0);
    pgd_load_config_free(c);
}

// What is wrong, what it gives, and pieces of the sentence: the key and the value or the allowed.
static const struct {
    const char *config;
    const char *generation;
    pgd_status status;
    const char *says;
    const char *too;
} wrong[] = {
    {"", NULL, PGD_INVALID, "m/config.json", ""},
    {"{", NULL, PGD_INVALID, "m/config.json", ""},
    {"[]", NULL, PGD_INVALID, "m/config.json", "object"},
    {"{}", NULL, PGD_INVALID, "\"model_type\" is missing", ""},
    {"{\"architectures\":3}", NULL, PGD_INVALID, "\"architectures\" is 3", ""},
    {"{\"architectures\":[]}", NULL, PGD_INVALID, "\"architectures\"", ""},
    {"{\"architectures\":[\"GPT2LMHeadModel\"]}", NULL, PGD_UNSUPPORTED, "GPT2LMHeadModel",
     "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"},
    {"{\"model_type\":\"bert\"}", NULL, PGD_UNSUPPORTED, "\"bert\"", "Qwen3ForCausalLM"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\"}}", NULL, PGD_UNSUPPORTED,
     "\"gptq\"", "bf16"},
    {LLAMA ",\"quantization_config\":{}}", NULL, PGD_UNSUPPORTED, "quantized", ""},
    {LLAMA ",\"hidden_size\":-1}", NULL, PGD_INVALID, "\"hidden_size\" is -1", "from 1 to 1048576"},
    {LLAMA ",\"hidden_size\":1048577}", NULL, PGD_INVALID, "\"hidden_size\" is 1048577", ""},
    {LLAMA ",\"hidden_size\":1e300}", NULL, PGD_INVALID, "\"hidden_size\" is", ""},
    {LLAMA ",\"hidden_size\":\"64\"}", NULL, PGD_INVALID, "\"hidden_size\" is \"64\"", ""},
    {LLAMA ",\"hidden_size\":null}", NULL, PGD_INVALID, "\"hidden_size\" is null", "needed"},
    {LLAMA ",\"hidden_size\":62}", NULL, PGD_INVALID, "\"hidden_size\" is 62", "multiple"},
    {LLAMA ",\"num_hidden_layers\":0}", NULL, PGD_INVALID, "\"num_hidden_layers\" is 0",
     "1 to 4096"},
    {LLAMA ",\"num_hidden_layers\":4097}", NULL, PGD_INVALID, "\"num_hidden_layers\" is 4097", ""},
    {LLAMA ",\"num_attention_heads\":0}", NULL, PGD_INVALID, "\"num_attention_heads\" is 0", ""},
    {LLAMA ",\"num_key_value_heads\":3}", NULL, PGD_INVALID, "\"num_key_value_heads\" is 3", "(4)"},
    {LLAMA ",\"num_key_value_heads\":0}", NULL, PGD_INVALID, "\"num_key_value_heads\" is 0", ""},
    {"{\"architectures\":[\"MistralForCausalLM\"]," SHAPES "}", NULL, PGD_INVALID,
     "\"num_key_value_heads\" is 8 (by default)", ""},
    {LLAMA ",\"head_dim\":15}", NULL, PGD_INVALID, "\"head_dim\" is 15", "even"},
    {LLAMA ",\"head_dim\":8194}", NULL, PGD_INVALID, "\"head_dim\" is 8194", "8192"},
    {LLAMA ",\"intermediate_size\":0}", NULL, PGD_INVALID, "\"intermediate_size\" is 0", ""},
    {LLAMA ",\"vocab_size\":16777217}", NULL, PGD_INVALID, "\"vocab_size\" is 16777217", ""},
    {LLAMA ",\"max_position_embeddings\":0}", NULL, PGD_INVALID, "max_position_embeddings", ""},
    {LLAMA ",\"rms_norm_eps\":-1e-5}", NULL, PGD_INVALID, "\"rms_norm_eps\" is -1e-05", ""},
    {LLAMA ",\"rms_norm_eps\":true}", NULL, PGD_INVALID, "\"rms_norm_eps\" is true", ""},
    {LLAMA ",\"tie_word_embeddings\":1}", NULL, PGD_INVALID, "\"tie_word_embeddings\" is 1",
     "true or false"},
    {LLAMA ",\"attention_bias\":\"no\"}", NULL, PGD_INVALID, "\"attention_bias\"", ""},
    {LLAMA ",\"hidden_act\":\"quick_gelu\"}", NULL, PGD_UNSUPPORTED, "\"quick_gelu\"", "silu"},
    {LLAMA ",\"hidden_act\":5}", NULL, PGD_INVALID, "\"hidden_act\" is 5", "a string"},
    {LLAMA ",\"torch_dtype\":\"float64\"}", NULL, PGD_UNSUPPORTED, "\"float64\"", "bfloat16"},
    {MISTRAL ",\"sliding_window\":0}", NULL, PGD_INVALID, "\"sliding_window\" is 0", ""},
    {QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\"]}", NULL, PGD_INVALID,
     "\"layer_types\"", "one entry per layer"},
    {QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\",3,\"x\"]}", NULL,
     PGD_INVALID, "\"layer_types\" is 3", ""},
    {QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\",\"x\",\"x\"]}", NULL,
     PGD_INVALID, "\"layer_types\" is \"x\"", "sliding_attention"},
    {LLAMA ",\"eos_token_id\":\"</s>\"}", NULL, PGD_INVALID, "\"eos_token_id\"", ""},
    {LLAMA ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", NULL, PGD_INVALID,
     "\"eos_token_id\"", "16"},
    {LLAMA ",\"eos_token_id\":[1,-2]}", NULL, PGD_INVALID, "\"eos_token_id\"", ""},
    {LLAMA ",\"bos_token_id\":1e10}", NULL, PGD_INVALID, "\"bos_token_id\"", ""},
    {LLAMA ",\"rope_theta\":0}", NULL, PGD_INVALID, "\"rope_theta\" is 0", ""},
    {LLAMA ",\"rope_scaling\":7}", NULL, PGD_INVALID, "\"rope_scaling\" is 7", ""},
    {LLAMA ",\"rope_scaling\":{\"type\":\"mrope\"}}", NULL, PGD_UNSUPPORTED,
     "\"rope_scaling.type\" is \"mrope\"", "default, linear, dynamic, llama3, yarn, longrope"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", NULL, PGD_INVALID,
     "\"rope_scaling.factor\" is missing", ""},
    {LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":0}}", NULL, PGD_INVALID,
     "\"rope_parameters.factor\" is 0", ""},
    {LLAMA ",\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{}}}", NULL,
     PGD_UNSUPPORTED, "rope_parameters", "layer type"},
    {LLAMA ",\"partial_rotary_factor\":0.01}", NULL, PGD_INVALID, "partial_rotary_factor", ""},
    {LLAMA ",\"partial_rotary_factor\":0.2}", NULL, PGD_INVALID, "turns 3 of 16", ""},
    {LLAMA ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8}}", NULL, PGD_INVALID,
     "low_freq_factor\" is missing", ""},
    {LLAMA ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
           "\"high_freq_factor\":4}}",
     NULL, PGD_INVALID, "high_freq_factor\" is 4", "above low_freq_factor (4)"},
    {LLAMA ",\"max_position_embeddings\":1,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":8}}",
     NULL, PGD_INVALID, "max_position_embeddings", "at least 2"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"attention_factor\":0}}", NULL, PGD_INVALID,
     "attention_factor\" is 0", ""},
    {LLAMA ",\"head_dim\":2,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", NULL,
     PGD_INVALID, "dynamic with 2", "at least 4"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1]}}", NULL, PGD_INVALID,
     "short_factor\" is missing", ""},
    {LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1]}}", NULL, PGD_INVALID,
     "short_factor", "one for each pair"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,0]}}", NULL,
     PGD_INVALID, "short_factor\" is 0", "above 0"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],"
           "\"long_factor\":[1,1,1,1,1,1,1,\"x\"]}}",
     NULL, PGD_INVALID, "long_factor\" is \"x\"", ""},
    {LLAMA "}", "{", PGD_INVALID, "m/generation_config.json", ""},
    {LLAMA "}", "3", PGD_INVALID, "m/generation_config.json", "object"},
    {LLAMA "}", "{\"temperature\":-0.5}", PGD_INVALID, "generation_config.json: \"temperature\"",
     "from 0 to 100"},
    {LLAMA "}", "{\"top_p\":1.5}", PGD_INVALID, "\"top_p\" is 1.5", ""},
    {LLAMA "}", "{\"min_p\":\"x\"}", PGD_INVALID, "\"min_p\" is \"x\"", ""},
    {LLAMA "}", "{\"top_k\":2.5}", PGD_INVALID, "\"top_k\" is 2.5", ""},
    {LLAMA "}", "{\"repetition_penalty\":0}", PGD_INVALID, "\"repetition_penalty\" is 0", ""},
    {LLAMA "}", "{\"max_new_tokens\":0}", PGD_INVALID, "\"max_new_tokens\" is 0", ""},
    {LLAMA "}", "{\"do_sample\":0}", PGD_INVALID, "\"do_sample\" is 0", ""},
    {LLAMA "}", "{\"eos_token_id\":{}}", PGD_INVALID, "\"eos_token_id\"", ""},
};

static void wrong_values(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        pgd_load_config *c = NULL;
        const char *more = wrong[i].generation;
        pgd_status status = pgd_load_config_parse(wrong[i].config, strlen(wrong[i].config), more,
                                                  more != NULL ? strlen(more) : 0, "m", &c);
        if (status != wrong[i].status) {
            fail_msg("%s: status %d, %s", wrong[i].config, (int)status, pgd_fail_text(status));
        }
        assert_null(c);
        test_says(status, wrong[i].says);
        test_says(status, wrong[i].too);
        assert_int_equal(pgd_mem_live(), live);
    }
}

static void from_a_folder(void **state) {
    (void)state;
    static const char config[] = LLAMA "}";
    static const char more[] = "{\"eos_token_id\":9}";
    test_folder f;
    pgd_load_config *c = NULL;
    uint64_t live = pgd_mem_live();
    test_folder_make(&f);
    assert_int_equal(pgd_load_config_read(f.path, &c), PGD_NOT_FOUND);
    test_says(PGD_NOT_FOUND, "/config.json");
    test_folder_write(&f, "config.json", config, sizeof(config) - 1);
    assert_int_equal(pgd_load_config_read(f.path, &c), PGD_OK);
    assert_int_equal(c->eos[0], 2);
    pgd_load_config_free(c);
    test_folder_write(&f, "generation_config.json", more, sizeof(more) - 1);
    assert_int_equal(pgd_load_config_read(f.path, &c), PGD_OK);
    assert_int_equal(c->eos[0], 9);
    pgd_load_config_free(c);
    test_folder_write(&f, "config.json", "", 0);
    assert_int_equal(pgd_load_config_read(f.path, &c), PGD_INVALID);
    assert_int_equal(pgd_mem_live(), live);
    test_folder_remove(&f);
}

static void each_allocation_fails(void **state) {
    (void)state;
    static const char config[] =
        LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],"
              "\"long_factor\":[1,1,1,1,1,1,1,1]}}";
    static const char more[] = "{\"eos_token_id\":9}";
    test_folder f;
    pgd_load_config *c = NULL;
    uint64_t live = pgd_mem_live();
    test_folder_make(&f);
    test_folder_write(&f, "config.json", config, sizeof(config) - 1);
    test_folder_write(&f, "generation_config.json", more, sizeof(more) - 1);
    for (uint64_t nth = 1;; nth++) {
        pgd_mem_fail_nth(nth);
        pgd_status status = pgd_load_config_read(f.path, &c);
        pgd_mem_fail_nth(0);
        if (status == PGD_OK) {
            assert_true(nth > 8);
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
        assert_null(c);
        assert_int_equal(pgd_mem_live(), live);
    }
    pgd_load_config_free(c);
    assert_int_equal(pgd_mem_live(), live);
    test_folder_remove(&f);
}

static void too_large(void **state) {
    (void)state;
    test_folder f;
    char path[160];
    pgd_load_config *c = NULL;
    test_folder_make(&f);
    test_folder_write(&f, "config.json", "{}", 2);
    (void)snprintf(path, sizeof(path), "%s/config.json", f.path);
    assert_int_equal(truncate(path, (16 << 20) + 1), 0);
    assert_int_equal(pgd_load_config_read(f.path, &c), PGD_INVALID);
    test_says(PGD_INVALID, "config.json: 16777217 bytes; at most 16777216");
    test_folder_remove(&f);
}

// A wrong value is still named when there is no memory to show it.
static void sentences_need_no_memory(void **state) {
    (void)state;
    static const char config[] = LLAMA ",\"hidden_size\":-1}";
    pgd_load_config *c = NULL;
    uint64_t live = pgd_mem_live();
    uint64_t before = pgd_mem_count();
    uint32_t n_named = 0;
    assert_int_equal(pgd_load_config_parse(config, sizeof(config) - 1, NULL, 0, "m", &c),
                     PGD_INVALID);
    uint64_t total = pgd_mem_count() - before;
    for (uint64_t nth = 1; nth <= total; nth++) {
        pgd_mem_fail_nth(nth);
        pgd_status status = pgd_load_config_parse(config, sizeof(config) - 1, NULL, 0, "m", &c);
        pgd_mem_fail_nth(0);
        assert_true(status == PGD_INVALID || status == PGD_OUT_OF_MEMORY);
        if (status == PGD_INVALID) {
            test_says(status, "\"hidden_size\" is a wrong integer; an integer from 1");
            n_named++;
        }
        assert_int_equal(pgd_mem_live(), live);
    }
    assert_true(n_named > 0);
}

static void names(void **state) {
    (void)state;
    assert_string_equal(pgd_load_family_name(PGD_LOAD_QWEN3), "Qwen3ForCausalLM");
    assert_string_equal(pgd_load_family_name(-1), "?");
    assert_string_equal(pgd_load_rope_name(PGD_ROPE_YARN), "yarn");
    assert_string_equal(pgd_load_rope_name(99), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_defaults),
        cmocka_unit_test(llama_3_2),
        cmocka_unit_test(llama_switches),
        cmocka_unit_test(mistral),
        cmocka_unit_test(qwen2),
        cmocka_unit_test(qwen3),
        cmocka_unit_test(rope_places),
        cmocka_unit_test(generation),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(from_a_folder),
        cmocka_unit_test(each_allocation_fails),
        cmocka_unit_test(too_large),
        cmocka_unit_test(sentences_need_no_memory),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests_name("load.config", tests, NULL, NULL);
}
