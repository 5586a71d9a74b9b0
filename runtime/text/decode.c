// Decoders: token contents in, text out, as a chain of steps that works on a stream.
//
//   "▁Hi" "<0xF0>" "<0x9F>" ...  ->  Replace  ->  ByteFallback  ->  Fuse  ->  Strip  ->  text
//
// Every step takes one token and hands on zero or more. Behind a step that joins everything to one
// string (Fuse, ByteLevel) the tokens are chunks of that string; a step that must see such a string
// whole (a Replace there) collects it until the end. So a whole decode is a stream that is finished
// at once, and streaming cannot differ from it.
#include <string.h>

#include "text/parts.h"

enum { MAX_STEPS = 32, MAX_NESTING = 8 };

#define KNOWN "Sequence, ByteLevel, ByteFallback, Fuse, Strip, Replace and Metaspace"

struct step;

typedef pgd_status (*step_push)(pgd_text_decoding *d, size_t i, pgd_str token, pgd_text *out);
typedef pgd_status (*step_flush)(pgd_text_decoding *d, size_t i, pgd_text *out);

typedef struct step {
    step_push push;
    step_flush flush;   // NULL = nothing is held back
    int32_t hold;       // takes chunks of one string but must see it whole
    int32_t keep_first; // Metaspace: prepend_scheme never
    char mark[4];       // Strip, Metaspace: one character
    size_t mark_len;
    int64_t start, stop; // Strip
    pgd_text_regex *regex;
    char *content;
    size_t content_len;
} step;

struct pgd_text_decoder {
    step steps[MAX_STEPS];
    size_t n;
};

typedef struct {
    pgd_text pending; // bytes held back
    pgd_text held;    // the string of a step with hold
    pgd_text tmp;
    uint64_t count; // tokens seen, or characters stripped
    int32_t done;   // Strip on a fused string: the start is over
    pgd_text_finder *finder;
} step_state;

struct pgd_text_decoding {
    const pgd_text_decoder *decoder;
    step_state states[MAX_STEPS];
};

static pgd_status emit(pgd_text_decoding *d, size_t i, pgd_str token, pgd_text *out) {
    if (i == d->decoder->n) {
        return pgd_text_add_str(out, token);
    }
    if (d->decoder->steps[i].hold) {
        return pgd_text_add_str(&d->states[i].held, token);
    }
    return d->decoder->steps[i].push(d, i, token, out);
}

// ---- ByteLevel ---------------------------------------------------------------------------------

// All of the token's characters stand for bytes, or none is taken so.
static pgd_status add_token_bytes(pgd_text *bytes, pgd_str token) {
    size_t old = bytes->len;
    size_t end = 0;
    for (size_t at = 0; at < token.len; at = end) {
        int32_t byte = pgd_text_char_byte(pgd_text_char(token, at, &end));
        if (byte < 0) {
            bytes->len = old;
            return pgd_text_add_str(bytes, token);
        }
        char c = (char)byte;
        PGD_TRY(pgd_text_add(bytes, &c, 1));
    }
    return PGD_OK;
}

static pgd_status emit_lossy(pgd_text_decoding *d, size_t i, size_t n, pgd_text *out) {
    step_state *s = &d->states[i];
    pgd_text_clear(&s->tmp);
    PGD_TRY(pgd_utf8_add_lossy(&s->tmp, (pgd_str){s->pending.ptr, n}));
    PGD_TRY(emit(d, i + 1, pgd_text_view(&s->tmp), out));
    size_t rest = s->pending.len - n;
    char tail[4] = {0};
    memcpy(tail, s->pending.ptr + n, rest < sizeof(tail) ? rest : sizeof(tail));
    pgd_text_clear(&s->pending);
    return rest > 0 ? pgd_text_add(&s->pending, tail, rest) : PGD_OK;
}

static pgd_status push_bytes(pgd_text_decoding *d, size_t i, pgd_str token, pgd_text *out) {
    step_state *s = &d->states[i];
    PGD_TRY(add_token_bytes(&s->pending, token));
    size_t ready = s->pending.len - pgd_text_open_tail(pgd_text_view(&s->pending));
    return ready > 0 ? emit_lossy(d, i, ready, out) : PGD_OK;
}

static pgd_status flush_bytes(pgd_text_decoding *d, size_t i, pgd_text *out) {
    size_t n = d->states[i].pending.len;
    return n > 0 ? emit_lossy(d, i, n, out) : PGD_OK;
}

// ---- ByteFallback ------------------------------------------------------------------------------

static int32_t hex_of(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The byte of "<0xHH>", -1 = another token. "<0x+H>" is a byte to the library too.
static int32_t fallback_byte(pgd_str t) {
    if (t.len != 6 || memcmp(t.ptr, "<0x", 3) != 0 || t.ptr[5] != '>') {
        return -1;
    }
    int32_t high = t.ptr[3] == '+' ? 0 : hex_of(t.ptr[3]);
    int32_t low = hex_of(t.ptr[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static pgd_status flush_fallback(pgd_text_decoding *d, size_t i, pgd_text *out) {
    step_state *s = &d->states[i];
    pgd_str run = pgd_text_view(&s->pending);
    if (run.len == 0) {
        return PGD_OK;
    }
    if (pgd_utf8_valid(run)) {
        PGD_TRY(emit(d, i + 1, run, out));
    } else {
        for (size_t k = 0; k < run.len; k++) {
            PGD_TRY(emit(d, i + 1, PGD_STR("\xEF\xBF\xBD"), out));
        }
    }
    pgd_text_clear(&s->pending);
    return PGD_OK;
}

static pgd_status push_fallback(pgd_text_decoding *d, size_t i, pgd_str token, pgd_text *out) {
    int32_t byte = fallback_byte(token);
    if (byte >= 0) {
        char c = (char)byte;
        return pgd_text_add(&d->states[i].pending, &c, 1);
    }
    PGD_TRY(flush_fallback(d, i, out));
    return emit(d, i + 1, token, out);
}

// ---- the other steps ---------------------------------------------------------------------------

static pgd_status push_fuse(pgd_text_decoding *d, size_t i, pgd_str token, pgd_text *out) {
    return emit(d, i + 1, token, out);
}

static pgd_status push_strip(pgd_text_decoding *d, size_t i, pgd_str token, pgd_text *out) {
    const step *s = &d->decoder->steps[i];
    pgd_str mark = {s->mark, s->mark_len};
    for (int64_t k = 0; k < s->start && pgd_str_starts(token, mark); k++) {
        token.ptr += mark.len;
        token.len -= mark.len;
    }
    for (int64_t k = 0; k < s->stop && pgd_str_ends(token, mark); k++) {
        token.len -= mark.len;
    }
    return emit(d, i + 1, token, out);
}

// Strip of a fused string's start, chunk by chunk.
static pgd_status push_strip_start(pgd_text_decoding *d, size_t i, pgd_str token, pgd_text *out) {
    const step *s = &d->decoder->steps[i];
    step_state *state = &d->states[i];
    pgd_str mark = {s->mark, s->mark_len};
    while (!state->done && token.len > 0) {
        if ((int64_t)state->count >= s->start || !pgd_str_starts(token, mark)) {
            state->done = 1;
            break;
        }
        token.ptr += mark.len;
        token.len -= mark.len;
        state->count++;
    }
    return emit(d, i + 1, token, out);
}

static pgd_status push_replace(pgd_text_decoding *d, size_t i, pgd_str token, pgd_text *out) {
    const step *s = &d->decoder->steps[i];
    step_state *state = &d->states[i];
    pgd_text_clear(&state->tmp);
    pgd_text_finder_start(state->finder, token);
    size_t done = 0;
    for (;;) {
        size_t start = 0;
        size_t end = 0;
        int32_t found = 0;
        PGD_TRY(pgd_text_finder_next(state->finder, &start, &end, &found));
        if (!found) {
            break;
        }
        PGD_TRY(pgd_text_add(&state->tmp, token.ptr + done, start - done));
        PGD_TRY(pgd_text_add(&state->tmp, s->content, s->content_len));
        done = end;
    }
    PGD_TRY(pgd_text_add(&state->tmp, token.ptr + done, token.len - done));
    return emit(d, i + 1, pgd_text_view(&state->tmp), out);
}

// The mark becomes a space; in the first token it goes.
static pgd_status push_metaspace(pgd_text_decoding *d, size_t i, pgd_str token, pgd_text *out) {
    const step *s = &d->decoder->steps[i];
    step_state *state = &d->states[i];
    int32_t drop = state->count++ == 0 && !s->keep_first;
    pgd_text_clear(&state->tmp);
    size_t end = 0;
    for (size_t at = 0; at < token.len; at = end) {
        pgd_text_char(token, at, &end);
        if (end - at != s->mark_len || memcmp(token.ptr + at, s->mark, s->mark_len) != 0) {
            PGD_TRY(pgd_text_add(&state->tmp, token.ptr + at, end - at));
        } else if (!drop) {
            PGD_TRY(pgd_text_add(&state->tmp, " ", 1));
        }
    }
    return emit(d, i + 1, pgd_text_view(&state->tmp), out);
}

// No decoder: tokens with spaces between them.
static pgd_status push_spaced(pgd_text_decoding *d, size_t i, pgd_str token, pgd_text *out) {
    if (d->states[i].count++ > 0) {
        PGD_TRY(emit(d, i + 1, PGD_STR(" "), out));
    }
    return emit(d, i + 1, token, out);
}

// ---- from the file -----------------------------------------------------------------------------

static pgd_status read_mark(step *s, pgd_str mark, const char *what) {
    uint32_t cp = 0;
    if (mark.len == 0 || pgd_utf8_decode(mark.ptr, mark.len, &cp) != mark.len) {
        return pgd_fail(PGD_INVALID, "tokenizer.json: decoder %s needs one character", what);
    }
    memcpy(s->mark, mark.ptr, mark.len);
    s->mark_len = mark.len;
    return PGD_OK;
}

static pgd_status read_strip(step *s, const pgd_json *json, int32_t fused) {
    s->push = push_strip;
    if (!pgd_json_to_i64(pgd_json_get(json, "start"), &s->start) || s->start < 0 ||
        !pgd_json_to_i64(pgd_json_get(json, "stop"), &s->stop) || s->stop < 0) {
        return pgd_fail(PGD_INVALID, "tokenizer.json: decoder Strip needs start and stop, from 0");
    }
    if (fused && s->stop == 0) {
        s->push = push_strip_start;
        s->hold = 0;
    }
    return read_mark(s, pgd_text_member(json, "content"), "Strip");
}

static pgd_status read_replace(step *s, const pgd_json *json) {
    s->push = push_replace;
    pgd_str content = pgd_text_member(json, "content");
    s->content = pgd_mem_alloc(1, content.len + 1);
    if (s->content == NULL) {
        return PGD_MEM_FAIL("a decoder", content.len);
    }
    if (content.len > 0) {
        memcpy(s->content, content.ptr, content.len);
    }
    s->content_len = content.len;
    const pgd_json *pattern = pgd_json_get(json, "pattern");
    int32_t literal = pgd_json_get(pattern, "Regex") == NULL;
    return pgd_text_regex_create(pgd_text_member(pattern, literal ? "String" : "Regex"), literal,
                                 "tokenizer.json: decoder Replace", &s->regex);
}

static pgd_status read_step(step *s, const pgd_json *json, int32_t *fused) {
    pgd_str type = pgd_text_type(json);
    s->hold = *fused;
    if (pgd_str_is(type, "ByteLevel")) {
        s->push = push_bytes;
        s->flush = flush_bytes;
        *fused = 1;
    } else if (pgd_str_is(type, "ByteFallback")) {
        s->push = push_fallback;
        s->flush = flush_fallback;
    } else if (pgd_str_is(type, "Fuse")) {
        s->push = push_fuse;
        s->hold = 0;
        *fused = 1;
    } else if (pgd_str_is(type, "Strip")) {
        return read_strip(s, json, *fused);
    } else if (pgd_str_is(type, "Replace")) {
        return read_replace(s, json);
    } else if (pgd_str_is(type, "Metaspace")) {
        s->push = push_metaspace;
        s->keep_first = pgd_str_is(pgd_text_member(json, "prepend_scheme"), "never") ||
                        (pgd_json_get(json, "prepend_scheme") == NULL &&
                         !pgd_text_flag(json, "add_prefix_space", 1));
        return read_mark(s, pgd_text_member(json, "replacement"), "Metaspace");
    } else {
        return pgd_text_refuse("decoder", json, KNOWN);
    }
    return PGD_OK;
}

static pgd_status read_one(pgd_text_decoder *d, const pgd_json *json, int32_t level,
                           int32_t *fused) {
    if (!pgd_str_is(pgd_text_type(json), "Sequence")) {
        if (d->n == MAX_STEPS) {
            return pgd_fail(PGD_UNSUPPORTED, "tokenizer.json: more than %d decoder steps",
                            MAX_STEPS);
        }
        return read_step(&d->steps[d->n++], json, fused);
    }
    const pgd_json *parts = pgd_json_get(json, "decoders");
    if (!pgd_json_is(parts, PGD_JSON_ARRAY) || level >= MAX_NESTING) {
        return pgd_fail(PGD_INVALID,
                        "tokenizer.json: decoder Sequence without a list of decoders, "
                        "or nested more than %d deep",
                        MAX_NESTING);
    }
    for (uint32_t i = 0; i < parts->n; i++) {
        PGD_TRY(read_one(d, &parts->items[i], level + 1, fused));
    }
    return PGD_OK;
}

pgd_status pgd_text_decoder_create(const pgd_json *json, pgd_text_decoder **out) {
    *out = NULL;
    pgd_text_decoder *d = pgd_mem_alloc(1, sizeof(*d));
    if (d == NULL) {
        return PGD_MEM_FAIL("the decoder", sizeof(*d));
    }
    pgd_status status = PGD_OK;
    if (json == NULL || pgd_json_is(json, PGD_JSON_NULL)) {
        d->steps[d->n++].push = push_spaced;
    } else {
        int32_t fused = 0;
        status = read_one(d, json, 0, &fused);
    }
    if (status != PGD_OK) {
        pgd_text_decoder_destroy(d);
        return status;
    }
    *out = d;
    return PGD_OK;
}

void pgd_text_decoder_destroy(pgd_text_decoder *d) {
    if (d == NULL) {
        return;
    }
    for (size_t i = 0; i < d->n; i++) {
        pgd_text_regex_destroy(d->steps[i].regex);
        pgd_mem_free(d->steps[i].content);
    }
    pgd_mem_free(d);
}

// ---- a text on its way -------------------------------------------------------------------------

pgd_status pgd_text_decoding_create(const pgd_text_decoder *d, pgd_text_decoding **out) {
    *out = NULL;
    pgd_text_decoding *s = pgd_mem_alloc(1, sizeof(*s));
    if (s == NULL) {
        return PGD_MEM_FAIL("decoding", sizeof(*s));
    }
    s->decoder = d;
    for (size_t i = 0; i < d->n; i++) {
        if (d->steps[i].regex == NULL) {
            continue;
        }
        pgd_status status = pgd_text_finder_create(d->steps[i].regex, 0, &s->states[i].finder);
        if (status != PGD_OK) {
            pgd_text_decoding_destroy(s);
            return status;
        }
    }
    *out = s;
    return PGD_OK;
}

void pgd_text_decoding_destroy(pgd_text_decoding *s) {
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->decoder->n; i++) {
        pgd_text_free(&s->states[i].pending);
        pgd_text_free(&s->states[i].held);
        pgd_text_free(&s->states[i].tmp);
        pgd_text_finder_destroy(s->states[i].finder);
    }
    pgd_mem_free(s);
}

pgd_status pgd_text_decoding_push(pgd_text_decoding *s, pgd_str token, pgd_text *out) {
    return emit(s, 0, token, out);
}

pgd_status pgd_text_decoding_finish(pgd_text_decoding *s, pgd_text *out) {
    for (size_t i = 0; i < s->decoder->n; i++) {
        const step *st = &s->decoder->steps[i];
        if (st->hold) {
            PGD_TRY(st->push(s, i, pgd_text_view(&s->states[i].held), out));
            pgd_text_clear(&s->states[i].held);
        }
        if (st->flush != NULL) {
            PGD_TRY(st->flush(s, i, out));
        }
    }
    return PGD_OK;
}
