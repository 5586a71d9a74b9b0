// Writes a model as one GGUF file of version 3.
#ifndef PGD_LOAD_GGUF_WRITE_H
#define PGD_LOAD_GGUF_WRITE_H

#include "base/team.h"
#include "load/gguf_model.h"
#include "load/name.h"

typedef struct pgd_load_gguf_write_desc {
    const char *from; // a folder in Hugging Face layout, or FILE.gguf of plain numbers
    const char *to;   // path of the new file; appears whole or not at all
    const char *type; // f32, f16, bf16, or a scheme of blocks (q8_0, q4_k ...)
    pgd_team *team;   // workers, borrowed; NULL = the caller alone
    const pgd_load_progress *progress; // may be NULL
} pgd_load_gguf_write_desc;

// Matrices in the type (the head, and rows of no whole blocks, as pgd_load_scheme_for says; rows
// that stay plain in f16), all else in F32. Values, tokenizer and template of a GGUF file are kept;
// those of a folder are written as the converters of ggml do.
//   fails  INVALID (type, or a tensor that is quantized already), UNSUPPORTED (rope or tokenizer
//          that has no form in the file), and what reading the model and writing a file answer
pgd_status pgd_load_gguf_write(const pgd_load_gguf_write_desc *desc) PGD_MUST_USE;

// ---- for the files of the writer ---------------------------------------------------------------

// Values in the making: their bytes and how many they are.
typedef struct pgd_load_gguf_values {
    pgd_text bytes;
    uint64_t n;
} pgd_load_gguf_values;

pgd_status pgd_load_gguf_put(pgd_text *t, uint64_t v, uint32_t n_bytes) PGD_MUST_USE;
pgd_status pgd_load_gguf_put_str(pgd_text *t, pgd_str s) PGD_MUST_USE;

// gguf_folder.c: the values of a folder's model.
pgd_status pgd_load_gguf_folder_values(const char *folder, const pgd_load_config *c,
                                       pgd_load_gguf_values *out) PGD_MUST_USE;
// The name in tokenizer.ggml.pre whose splits are these patterns, one after the other; NULL = none.
const char *pgd_load_gguf_pre_of(const pgd_str *patterns, size_t n);

#endif
