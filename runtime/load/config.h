// A model folder's config.json and generation_config.json -> one struct of plain facts about a
// decoder-only transformer. Every number in it has been checked: whoever reads it multiplies
// without fear of overflow in 64 bits.
//
// Rope angles: position p, pair i of rot_dim / 2: p * f_i; the kinds differ in f_i and in one
// attention factor that multiplies cos and sin (see rope.c for the formulas).
// Policy for the kinds whose frequencies depend on the length of a sequence: the table is made
// once, for max_pos positions (the engine's max_model_len), and holds for every sequence.
//   longrope  long factors if max_pos > original_max, else short factors
//   dynamic   NTK base of a sequence of n = max(max_pos, max_position) tokens
#ifndef PGD_LOAD_CONFIG_H
#define PGD_LOAD_CONFIG_H

#include <pagoda/ops.h>

// X(NAME, number, architecture in config.json, model_type in config.json)
#define PGD_LOAD_FAMILY_LIST(X)                    \
    X(LLAMA, 0, "LlamaForCausalLM", "llama")       \
    X(MISTRAL, 1, "MistralForCausalLM", "mistral") \
    X(QWEN2, 2, "Qwen2ForCausalLM", "qwen2")       \
    X(QWEN3, 3, "Qwen3ForCausalLM", "qwen3")

enum {
#define PGD_LOAD_FAMILY_ENUM(name, number, architecture, type) PGD_LOAD_##name = number,
    PGD_LOAD_FAMILY_LIST(PGD_LOAD_FAMILY_ENUM)
#undef PGD_LOAD_FAMILY_ENUM
};

// X(NAME, number, rope_type in config.json)
#define PGD_ROPE_LIST(X)     \
    X(DEFAULT, 0, "default") \
    X(LINEAR, 1, "linear")   \
    X(DYNAMIC, 2, "dynamic") \
    X(LLAMA3, 3, "llama3")   \
    X(YARN, 4, "yarn")       \
    X(LONGROPE, 5, "longrope")

enum {
#define PGD_ROPE_ENUM(name, number, text) PGD_ROPE_##name = number,
    PGD_ROPE_LIST(PGD_ROPE_ENUM)
#undef PGD_ROPE_ENUM
};

// Limits of what is read; a value outside is refused by name.
#define PGD_LOAD_MAX_LAYERS   4096
#define PGD_LOAD_MAX_HIDDEN   (1 << 20)
#define PGD_LOAD_MAX_WIDTH    (1 << 24) // intermediate_size
#define PGD_LOAD_MAX_HEADS    (1 << 16)
#define PGD_LOAD_MAX_HEAD_DIM (1 << 13)
#define PGD_LOAD_MAX_VOCAB    (1 << 24)
#define PGD_LOAD_MAX_POSITION (1 << 28)
#define PGD_LOAD_MAX_EOS      16

typedef struct pgd_load_rope {
    int32_t kind;    // PGD_ROPE_...
    int32_t rot_dim; // rotated dims of a head, even, 2 .. head_dim
    int32_t style;   // PGD_ROPE_HALF, or PGD_ROPE_INTERLEAVED (GGUF files of arch llama)
    int32_t reserved0;
    double theta;
    double factor;           // s; 1 where the kind has none, derived where the file leaves it out
    double low_freq_factor;  // llama3
    double high_freq_factor; // llama3
    double original_max;     // positions the model was first trained for; max_position if not given
    double beta_fast;        // yarn
    double beta_slow;        // yarn
    double attention_factor; // as given, 0 = not given
    double mscale;           // yarn, 0 = not given
    double mscale_all_dim;   // yarn, 0 = not given
    int32_t truncate;        // yarn: bounds are rounded outwards
    int32_t n_factors;       // rot_dim / 2 for longrope, else 0
    double *short_factor;    // [n_factors] longrope, else NULL
    double *long_factor;     // [n_factors] longrope, else NULL
} pgd_load_rope;

// Defaults of a request, from generation_config.json; a has_ of 0: not given, the value is 0.
typedef struct pgd_load_generation {
    int32_t has_do_sample;
    int32_t do_sample;
    int32_t has_temperature;
    int32_t has_top_p;
    int32_t has_top_k;
    int32_t has_min_p;
    int32_t has_repetition_penalty;
    int32_t has_max_new_tokens;
    double temperature;        // 0 .. 100
    double top_p;              // 0 .. 1
    double min_p;              // 0 .. 1
    double repetition_penalty; // above 0, at most 100
    int32_t top_k;             // 0 = off
    int32_t max_new_tokens;    // at least 1
} pgd_load_generation;

typedef struct pgd_load_config {
    int32_t family;        // PGD_LOAD_...
    char architecture[64]; // as the file names it
    int32_t n_layers;
    int32_t hidden;
    int32_t n_heads;
    int32_t n_kv_heads; // divides n_heads
    int32_t head_dim;   // even; n_heads * head_dim need not be hidden
    int32_t intermediate;
    int32_t vocab;
    int32_t max_position;
    double norm_eps;
    int32_t act;            // PGD_ACT_... of the gated MLP
    int32_t tied;           // 1: the head is the embedding
    int32_t attention_bias; // of q, k and v
    int32_t o_bias;
    int32_t mlp_bias; // of gate, up and down
    int32_t qk_norm;  // 1: RMS norm of each q and k head before rope
    int32_t dtype;    // PGD_F32, PGD_BF16, PGD_F16; PGD_DTYPE_NONE = the file does not say
    int32_t *window;  // [n_layers] tokens a row sees, itself included; 0 = all
    pgd_load_rope rope;
    int32_t n_eos;
    int32_t eos[PGD_LOAD_MAX_EOS]; // generation_config.json's if it has them, else config.json's
    int32_t bos;                   // -1 = none
    int32_t pad;                   // -1 = none
    pgd_load_generation generation;
} pgd_load_config;

// Reads <folder>/config.json, and <folder>/generation_config.json when it is there.
// FILE.gguf has its configuration in it (gguf_model.h).
// A folder called synthetic:... has the configuration of that model (see synthetic.h).
//   ownership  the caller's: pgd_load_config_free
//   fails      NOT_FOUND (no config.json), INVALID (file, key, value and what is allowed),
//              UNSUPPORTED (architecture, rope type, activation, quantization: by name)
//   source     the config classes of transformers 5 and the defaults they give to missing keys
pgd_status pgd_load_config_read(const char *folder, pgd_load_config **out) PGD_MUST_USE;
void pgd_load_config_free(pgd_load_config *c); // NULL is fine

// The same from memory: config and generation are JSON texts (generation_len 0 = none); what names
// the folder in sentences.
pgd_status pgd_load_config_parse(const char *config, size_t config_len, const char *generation,
                                 size_t generation_len, const char *what,
                                 pgd_load_config **out) PGD_MUST_USE;

// Name of a family as config.json writes it; "?" for a number that is none.
const char *pgd_load_family_name(int32_t family);
// Name of a rope kind as config.json writes it; "?" for a number that is none.
const char *pgd_load_rope_name(int32_t kind);

// The frequencies of the table below, and the factor of cos and sin.
//   inv_freq  [rot_dim / 2]
pgd_status pgd_load_rope_frequencies(const pgd_load_config *c, int32_t max_pos, double *inv_freq,
                                     double *out_attention_factor) PGD_MUST_USE;
// The rope table the device gets: cos and sin of every position, times the attention factor,
// computed in double and rounded once.
//   out    [max_pos, rot_dim / 2, 2] f32: cos, sin
//   fails  INVALID (max_pos outside 1 .. PGD_LOAD_MAX_POSITION), OUT_OF_MEMORY
pgd_status pgd_load_rope_table(const pgd_load_config *c, int32_t max_pos, float *out) PGD_MUST_USE;

#endif
