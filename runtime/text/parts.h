// What the files of this room share: the parts of a tokenizer.
//
// Encoding works on pieces, ranges of one text buffer:
//
//   text  | S | a y   h i | <eos> |      each piece: [at, at + len), and id >= 0 once it is an
//   piece   0      1         2           added token; later parts only touch pieces with id < 0
//
// A part either splits pieces (ranges change, text stays) or rewrites them into the spare buffer.
#ifndef PGD_TEXT_PARTS_H
#define PGD_TEXT_PARTS_H

#include "base/arena.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "text/tokenizer.h"

// ---- memory ------------------------------------------------------------------------------------

// Makes room for need items in all; doubles.
pgd_status pgd_text_grow(void **items, size_t *cap, size_t need, size_t item_bytes,
                         const char *what) PGD_MUST_USE;

// ---- unicode.c: classes of code points ---------------------------------------------------------

// Bits of pgd_text_class. Each is what one part of the library goes by, so two that sound alike
// differ in some characters.
enum {
    PGD_TEXT_LETTER = 1,   // \p{L} in patterns
    PGD_TEXT_NUMBER = 2,   // \p{N} in patterns
    PGD_TEXT_SPACE = 4,    // \s everywhere
    PGD_TEXT_WORD = 8,     // Whitespace, single_word
    PGD_TEXT_PUNCT = 16,   // Punctuation
    PGD_TEXT_MARK = 32,    // StripAccents
    PGD_TEXT_ORDERED = 64, // normal forms: a combining class that is not 0
    PGD_TEXT_DIGIT = 128,  // Digits
};

// unicode_table.c: (first code point << 8) | bits, in order, the first entry 0.
extern const uint32_t pgd_text_class_table[];
extern const size_t pgd_text_class_table_n;
// cp may be PGD_UTF8_BAD: no class.
uint32_t pgd_text_class(uint32_t cp);
// Decodes the character at s[at] of well-formed text; *end is behind it.
uint32_t pgd_text_char(pgd_str s, size_t at, size_t *end);
// The character that ends at s[at], at > 0; *start is where it begins.
uint32_t pgd_text_char_before(pgd_str s, size_t at, size_t *start);
// How many bytes at the end of s are the beginning of a character that may still be completed.
size_t pgd_text_open_tail(pgd_str s);

// ---- bytes.c: the byte-to-character table of byte-level tokenizers -----------------------------

// Code point that stands for a byte.
uint32_t pgd_text_byte_char(uint8_t byte);
// The byte of a code point, -1 = none.
int32_t pgd_text_char_byte(uint32_t cp);
// Appends s, every byte as its character.
pgd_status pgd_text_add_bytes_as_chars(pgd_text *t, pgd_str s) PGD_MUST_USE;

// ---- regex.c -----------------------------------------------------------------------------------

typedef struct pgd_text_regex pgd_text_regex;
typedef struct pgd_text_finder pgd_text_finder;

// pattern in the syntax of Oniguruma as far as tokenizers use it; literal 1: a plain string.
// what names the part in sentences.
pgd_status pgd_text_regex_create(pgd_str pattern, int32_t literal, const char *what,
                                 pgd_text_regex **out) PGD_MUST_USE;
void pgd_text_regex_destroy(pgd_text_regex *regex); // NULL is fine
// A finder walks the matches of one subject after another; one budget of steps for all of them.
// n_bytes: all bytes that will be searched.
pgd_status pgd_text_finder_create(const pgd_text_regex *regex, size_t n_bytes,
                                  pgd_text_finder **out) PGD_MUST_USE;
void pgd_text_finder_destroy(pgd_text_finder *finder); // NULL is fine
void pgd_text_finder_start(pgd_text_finder *finder, pgd_str subject);
// The next match [*start, *end); *found 0 at the end.
pgd_status pgd_text_finder_next(pgd_text_finder *finder, size_t *start, size_t *end,
                                int32_t *found) PGD_MUST_USE;

// ---- pieces ------------------------------------------------------------------------------------

typedef struct pgd_text_piece {
    size_t at;
    size_t len;
    int32_t id;    // >= 0: an added token
    int32_t first; // 1: starts where the input starts
} pgd_text_piece;

typedef struct pgd_text_span {
    size_t start;
    size_t end;
    int32_t match;
} pgd_text_span;

typedef struct pgd_text_work {
    pgd_str text; // what the pieces point into: the caller's text or buf
    pgd_text buf;
    pgd_text spare;
    pgd_text tmp[2];
    pgd_text_piece *pieces;
    size_t n_pieces;
    size_t cap_pieces;
    pgd_text_piece *next;
    size_t n_next;
    size_t cap_next;
    pgd_text_span *spans;
    size_t n_spans;
    size_t cap_spans;
} pgd_text_work;

void pgd_text_work_free(pgd_text_work *w);
// Adds a piece to next; empty ones are dropped.
pgd_status pgd_text_work_put(pgd_text_work *w, size_t at, size_t len, int32_t id,
                             int32_t first) PGD_MUST_USE;
pgd_status pgd_text_work_span(pgd_text_work *w, size_t start, size_t end,
                              int32_t match) PGD_MUST_USE;
void pgd_text_work_split_done(pgd_text_work *w);   // next becomes pieces
void pgd_text_work_rewrite_done(pgd_text_work *w); // and spare becomes the text

// ---- added.c -----------------------------------------------------------------------------------

typedef struct pgd_text_added_token {
    pgd_str content;
    pgd_str match; // content, normalized when the token says so
    int32_t id;
    int32_t single_word, lstrip, rstrip, normalized, special;
} pgd_text_added_token;

typedef struct pgd_text_trie pgd_text_trie;

// tokens [n] with `normalized` equal to the argument; views must outlive the trie.
pgd_status pgd_text_trie_create(const pgd_text_added_token *tokens, size_t n, int32_t normalized,
                                pgd_text_trie **out) PGD_MUST_USE;
void pgd_text_trie_destroy(pgd_text_trie *trie); // NULL is fine
// Cuts the added tokens out of all open pieces.
pgd_status pgd_text_trie_split(const pgd_text_trie *trie, int32_t no_special,
                               pgd_text_work *w) PGD_MUST_USE;

// ---- normalize.c -------------------------------------------------------------------------------

typedef struct pgd_text_normalizer pgd_text_normalizer;

// json NULL or null: no normalizer (*out NULL).
pgd_status pgd_text_normalizer_create(const pgd_json *json, pgd_text_normalizer **out) PGD_MUST_USE;
void pgd_text_normalizer_destroy(pgd_text_normalizer *n); // NULL is fine
// Rewrites all open pieces.
pgd_status pgd_text_normalizer_run(const pgd_text_normalizer *n, pgd_text_work *w) PGD_MUST_USE;

// ---- pretokenize.c, pretokenize_fast.c ---------------------------------------------------------

typedef struct pgd_text_pretokenizer pgd_text_pretokenizer;

pgd_status pgd_text_pretokenizer_create(const pgd_json *json,
                                        pgd_text_pretokenizer **out) PGD_MUST_USE;
void pgd_text_pretokenizer_destroy(pgd_text_pretokenizer *p); // NULL is fine
pgd_status pgd_text_pretokenizer_run(const pgd_text_pretokenizer *p, pgd_text_work *w) PGD_MUST_USE;

// End of the match at s[at], at < s.len; every byte of the text belongs to one match.
typedef size_t (*pgd_text_fast)(pgd_str s, size_t at);
// The hand-written matcher of a pattern, NULL = none.
pgd_text_fast pgd_text_fast_find(pgd_str pattern);
extern const char *const pgd_text_pattern_gpt2;

// ---- bpe.c -------------------------------------------------------------------------------------

typedef struct pgd_text_bpe pgd_text_bpe;
typedef struct pgd_text_bpe_work pgd_text_bpe_work;

// vocab: content to id, must outlive the model; n_ids: highest id + 1.
pgd_status pgd_text_bpe_create(const pgd_json *json, const pgd_map *vocab, int32_t n_ids,
                               pgd_text_bpe **out) PGD_MUST_USE;
void pgd_text_bpe_destroy(pgd_text_bpe *bpe); // NULL is fine
// For the words of one text of about n_bytes, which must stay where they are, and one output.
pgd_status pgd_text_bpe_work_create(size_t n_bytes, pgd_text_bpe_work **out) PGD_MUST_USE;
void pgd_text_bpe_work_destroy(pgd_text_bpe_work *work); // NULL is fine
// Appends the ids of one word.
pgd_status pgd_text_bpe_encode(const pgd_text_bpe *bpe, pgd_str word, pgd_text_bpe_work *work,
                               pgd_text_ids *out) PGD_MUST_USE;

// ---- post.c ------------------------------------------------------------------------------------

typedef struct pgd_text_post {
    int32_t *items; // ids; PGD_TEXT_POST_TEXT = the text
    size_t n;
    size_t cap;
} pgd_text_post;

enum { PGD_TEXT_POST_TEXT = -1 };

// json NULL or null gives the text alone. n_ids bounds the ids.
pgd_status pgd_text_post_create(const pgd_json *json, int32_t n_ids,
                                pgd_text_post *out) PGD_MUST_USE;
pgd_status pgd_text_post_wrap(pgd_text_post *p, int32_t before, int32_t after) PGD_MUST_USE;
void pgd_text_post_free(pgd_text_post *p);

// ---- decode.c ----------------------------------------------------------------------------------

typedef struct pgd_text_decoder pgd_text_decoder;   // the steps, immutable
typedef struct pgd_text_decoding pgd_text_decoding; // one text on its way through them

pgd_status pgd_text_decoder_create(const pgd_json *json, pgd_text_decoder **out) PGD_MUST_USE;
void pgd_text_decoder_destroy(pgd_text_decoder *d); // NULL is fine
pgd_status pgd_text_decoding_create(const pgd_text_decoder *d,
                                    pgd_text_decoding **out) PGD_MUST_USE;
void pgd_text_decoding_destroy(pgd_text_decoding *s); // NULL is fine
// Takes one token; appends what is certain.
pgd_status pgd_text_decoding_push(pgd_text_decoding *s, pgd_str token, pgd_text *out) PGD_MUST_USE;
pgd_status pgd_text_decoding_finish(pgd_text_decoding *s, pgd_text *out) PGD_MUST_USE;

// ---- tokenizer.c -------------------------------------------------------------------------------

struct pgd_text_tokenizer {
    pgd_arena *arena;    // all contents
    pgd_map *vocab;      // the model's: content -> id
    pgd_map *names;      // the model's and the added tokens
    pgd_str *contents;   // [n_ids]
    uint8_t *is_special; // [n_ids]
    int32_t n_ids;
    pgd_text_added_token *added; // [n_added], special ones first
    size_t n_added;
    pgd_text_trie *trie_raw;
    pgd_text_trie *trie_normalized;
    pgd_text_normalizer *normalizer;
    pgd_text_pretokenizer *pretokenizer;
    pgd_text_bpe *bpe;
    pgd_text_post post;
    pgd_text_decoder *decoder;
    int32_t bos, eos;
};

// Refuses a part by its name: "tokenizer.json: normalizer X is not supported; known are ...".
pgd_status pgd_text_refuse(const char *kind, const pgd_json *json, const char *known);
// The "type" of a part, empty when there is none.
pgd_str pgd_text_type(const pgd_json *json);
// A boolean member, `otherwise` when it is missing.
int32_t pgd_text_flag(const pgd_json *json, const char *key, int32_t otherwise);
// A string member, empty when it is missing.
pgd_str pgd_text_member(const pgd_json *json, const char *key);

#endif
