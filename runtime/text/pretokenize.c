// Pre-tokenizers: cut the normalized text into words.
//
// A file's tree of pre-tokenizers becomes one flat list of steps. A step either finds spans (the
// matches and the text between them) and its behavior says what becomes of them, or it rewrites
// pieces (ByteLevel: bytes to characters; Metaspace: spaces to a visible mark).
//
//   text  a b-c   delimiter "-"     Removed [a b][c]   Isolated [a b][-][c]
//                                   MergedWithPrevious [a b-][c]   MergedWithNext [a b][-c]
//                                   Contiguous: like Isolated, neighbours of one kind joined
#include <string.h>

#include "text/parts.h"

enum { MAX_STEPS = 64, MAX_NESTING = 8 };

#define KNOWN \
    "Sequence, Split, ByteLevel, Metaspace, Whitespace, WhitespaceSplit, Punctuation and Digits"

typedef enum { REMOVED, ISOLATED, MERGED_PREVIOUS, MERGED_NEXT, CONTIGUOUS } behavior_kind;
typedef enum { ALWAYS, FIRST, NEVER } prepend_kind;

struct step;
typedef pgd_status (*step_run)(const struct step *s, pgd_text_work *w);

// Finds the spans of one text.
typedef pgd_status (*span_find)(const struct step *s, pgd_text_finder *finder, pgd_str text,
                                pgd_text_work *w);

typedef struct step {
    step_run run;
    span_find find; // for run = split
    pgd_text_regex *regex;
    pgd_text_fast fast;
    behavior_kind behavior;
    int32_t invert;
    prepend_kind prepend;
    uint32_t class_bits; // for find = chars
    int32_t each;        // every character is its own match
    char mark[4];        // Metaspace
    size_t mark_len;
} step;

struct pgd_text_pretokenizer {
    step steps[MAX_STEPS];
    size_t n;
};

// ---- finding spans -----------------------------------------------------------------------------

static pgd_status find_regex(const step *s, pgd_text_finder *finder, pgd_str text,
                             pgd_text_work *w) {
    (void)s;
    pgd_text_finder_start(finder, text);
    size_t done = 0;
    for (;;) {
        size_t start = 0;
        size_t end = 0;
        int32_t found = 0;
        PGD_TRY(pgd_text_finder_next(finder, &start, &end, &found));
        if (!found) {
            break;
        }
        if (start > done) {
            PGD_TRY(pgd_text_work_span(w, done, start, 0));
        }
        PGD_TRY(pgd_text_work_span(w, start, end, 1));
        done = end;
    }
    return done < text.len ? pgd_text_work_span(w, done, text.len, 0) : PGD_OK;
}

static pgd_status find_fast(const step *s, pgd_text_finder *finder, pgd_str text,
                            pgd_text_work *w) {
    (void)finder;
    for (size_t at = 0; at < text.len;) {
        size_t end = s->fast(text, at);
        PGD_TRY(pgd_text_work_span(w, at, end, 1));
        at = end;
    }
    return PGD_OK;
}

// Characters of a class; each alone.
static pgd_status find_chars(const step *s, pgd_text_finder *finder, pgd_str text,
                             pgd_text_work *w) {
    (void)finder;
    size_t done = 0;
    size_t end = 0;
    for (size_t at = 0; at < text.len; at = end) {
        if (!(pgd_text_class(pgd_text_char(text, at, &end)) & s->class_bits)) {
            continue;
        }
        if (at > done) {
            PGD_TRY(pgd_text_work_span(w, done, at, 0));
        }
        PGD_TRY(pgd_text_work_span(w, at, end, 1));
        done = end;
    }
    return done < text.len ? pgd_text_work_span(w, done, text.len, 0) : PGD_OK;
}

static int32_t word_kind(uint32_t class_bits) {
    return class_bits & PGD_TEXT_WORD ? 1 : class_bits & PGD_TEXT_SPACE ? 2 : 0;
}

// Whitespace: \w+|[^\w\s]+ are kept, so runs of white space are the matches to remove.
static pgd_status find_words(const step *s, pgd_text_finder *finder, pgd_str text,
                             pgd_text_work *w) {
    (void)s;
    (void)finder;
    for (size_t at = 0; at < text.len;) {
        size_t end = 0;
        int32_t kind = word_kind(pgd_text_class(pgd_text_char(text, at, &end)));
        size_t next = end;
        while (end < text.len &&
               word_kind(pgd_text_class(pgd_text_char(text, end, &next))) == kind) {
            end = next;
        }
        PGD_TRY(pgd_text_work_span(w, at, end, kind == 2));
        at = end;
    }
    return PGD_OK;
}

// ---- behaviors ---------------------------------------------------------------------------------

static pgd_status put(pgd_text_work *w, const pgd_text_piece *p, size_t start, size_t end) {
    return pgd_text_work_put(w, p->at + start, end - start, -1, p->first && start == 0);
}

static pgd_status put_merged(const step *s, const pgd_text_piece *p, pgd_text_work *w) {
    const pgd_text_span *spans = w->spans;
    size_t n = w->n_spans;
    for (size_t i = 0; i < n;) {
        size_t last = i;
        if (s->behavior == CONTIGUOUS) {
            while (last + 1 < n && spans[last + 1].match == spans[i].match) {
                last++;
            }
        } else if (s->behavior == MERGED_PREVIOUS) {
            // of neighbouring matches only the first goes with the text before it
            if (!spans[i].match && i + 1 < n && spans[i + 1].match) {
                last++;
            }
        } else if (spans[i].match && i + 1 < n && !spans[i + 1].match) {
            last++;
        }
        PGD_TRY(put(w, p, spans[i].start, spans[last].end));
        i = last + 1;
    }
    return PGD_OK;
}

static pgd_status put_spans(const step *s, const pgd_text_piece *p, pgd_text_work *w) {
    if (s->invert) {
        for (size_t i = 0; i < w->n_spans; i++) {
            w->spans[i].match = !w->spans[i].match;
        }
    }
    if (s->behavior != REMOVED && s->behavior != ISOLATED) {
        return put_merged(s, p, w);
    }
    for (size_t i = 0; i < w->n_spans; i++) {
        if (s->behavior == ISOLATED || !w->spans[i].match) {
            PGD_TRY(put(w, p, w->spans[i].start, w->spans[i].end));
        }
    }
    return PGD_OK;
}

static pgd_status split(const step *s, pgd_text_work *w) {
    pgd_text_finder *finder = NULL;
    if (s->regex != NULL) {
        PGD_TRY(pgd_text_finder_create(s->regex, w->text.len, &finder));
    }
    pgd_status status = PGD_OK;
    for (size_t i = 0; i < w->n_pieces && status == PGD_OK; i++) {
        const pgd_text_piece p = w->pieces[i];
        if (p.id >= 0) {
            status = pgd_text_work_put(w, p.at, p.len, p.id, 0);
            continue;
        }
        w->n_spans = 0;
        status = s->find(s, finder, (pgd_str){w->text.ptr + p.at, p.len}, w);
        if (status == PGD_OK) {
            status = put_spans(s, &p, w);
        }
    }
    pgd_text_finder_destroy(finder);
    if (status == PGD_OK) {
        pgd_text_work_split_done(w);
    }
    return status;
}

// ---- rewriting steps ---------------------------------------------------------------------------

typedef pgd_status (*piece_rewrite)(const step *s, const pgd_text_piece *p, pgd_str text,
                                    pgd_text *out);

static pgd_status rewrite(const step *s, piece_rewrite fn, pgd_text_work *w) {
    PGD_TRY(pgd_text_reserve(&w->spare, w->text.len + w->text.len / 4 + 16));
    for (size_t i = 0; i < w->n_pieces; i++) {
        const pgd_text_piece p = w->pieces[i];
        pgd_str text = {w->text.ptr + p.at, p.len};
        size_t at = w->spare.len;
        if (p.id >= 0) {
            PGD_TRY(pgd_text_add_str(&w->spare, text));
        } else {
            PGD_TRY(fn(s, &p, text, &w->spare));
        }
        PGD_TRY(pgd_text_work_put(w, at, w->spare.len - at, p.id, p.first));
    }
    pgd_text_work_rewrite_done(w);
    return PGD_OK;
}

static pgd_status add_space(const step *s, const pgd_text_piece *p, pgd_str text, pgd_text *out) {
    (void)s;
    (void)p;
    if (text.ptr[0] != ' ') {
        PGD_TRY(pgd_text_add(out, " ", 1));
    }
    return pgd_text_add_str(out, text);
}

static pgd_status add_chars(const step *s, const pgd_text_piece *p, pgd_str text, pgd_text *out) {
    (void)s;
    (void)p;
    return pgd_text_add_bytes_as_chars(out, text);
}

static pgd_status add_marks(const step *s, const pgd_text_piece *p, pgd_str text, pgd_text *out) {
    pgd_str mark = {s->mark, s->mark_len};
    int32_t wanted = s->prepend == ALWAYS || (s->prepend == FIRST && p->first);
    if (wanted && text.ptr[0] != ' ' && !pgd_str_starts(text, mark)) {
        PGD_TRY(pgd_text_add_str(out, mark));
    }
    size_t done = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == ' ') {
            PGD_TRY(pgd_text_add(out, text.ptr + done, i - done));
            PGD_TRY(pgd_text_add_str(out, mark));
            done = i + 1;
        }
    }
    return pgd_text_add(out, text.ptr + done, text.len - done);
}

static pgd_status run_add_space(const step *s, pgd_text_work *w) {
    return rewrite(s, add_space, w);
}

static pgd_status run_add_chars(const step *s, pgd_text_work *w) {
    return rewrite(s, add_chars, w);
}

static pgd_status run_add_marks(const step *s, pgd_text_work *w) {
    return rewrite(s, add_marks, w);
}

// ---- from the file -----------------------------------------------------------------------------

static pgd_status add_step(pgd_text_pretokenizer *p, step_run run, span_find find, step **out) {
    if (p->n == MAX_STEPS) {
        return pgd_fail(PGD_UNSUPPORTED, "tokenizer.json: more than %d pre-tokenizer steps",
                        MAX_STEPS);
    }
    *out = &p->steps[p->n++];
    (*out)->run = run;
    (*out)->find = find;
    return PGD_OK;
}

static pgd_status read_behavior(const pgd_json *json, behavior_kind *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    pgd_str name = pgd_text_member(json, "behavior");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (pgd_str_is(name, names[i])) {
            *out = (behavior_kind)i;
            return PGD_OK;
        }
    }
    return pgd_fail(PGD_INVALID,
                    "tokenizer.json: pre-tokenizer behavior '%.*s'; allowed are Removed, Isolated, "
                    "MergedWithPrevious, MergedWithNext and Contiguous",
                    PGD_STR_SHOW(name));
}

static pgd_status read_split(pgd_text_pretokenizer *p, const pgd_json *json) {
    step *s = NULL;
    PGD_TRY(add_step(p, split, find_regex, &s));
    PGD_TRY(read_behavior(json, &s->behavior));
    s->invert = pgd_text_flag(json, "invert", 0);
    const pgd_json *pattern = pgd_json_get(json, "pattern");
    pgd_str text = pgd_text_member(pattern, "Regex");
    int32_t literal = pgd_json_get(pattern, "Regex") == NULL;
    if (literal) {
        text = pgd_text_member(pattern, "String");
    } else {
        s->fast = pgd_text_fast_find(text);
        if (s->fast != NULL) {
            s->find = find_fast;
            return PGD_OK;
        }
    }
    return pgd_text_regex_create(text, literal, "tokenizer.json: pre-tokenizer Split", &s->regex);
}

static pgd_status read_byte_level(pgd_text_pretokenizer *p, const pgd_json *json) {
    step *s = NULL;
    if (pgd_text_flag(json, "add_prefix_space", 1)) {
        PGD_TRY(add_step(p, run_add_space, NULL, &s));
    }
    if (pgd_text_flag(json, "use_regex", 1)) {
        PGD_TRY(add_step(p, split, find_fast, &s));
        s->behavior = ISOLATED;
        s->fast = pgd_text_fast_find(pgd_str_of(pgd_text_pattern_gpt2));
    }
    return add_step(p, run_add_chars, NULL, &s);
}

static pgd_status read_metaspace(pgd_text_pretokenizer *p, const pgd_json *json) {
    step *s = NULL;
    PGD_TRY(add_step(p, run_add_marks, NULL, &s));
    pgd_str mark = pgd_text_member(json, "replacement");
    uint32_t cp = 0;
    if (mark.len == 0 || pgd_utf8_decode(mark.ptr, mark.len, &cp) != mark.len) {
        return pgd_fail(PGD_INVALID,
                        "tokenizer.json: Metaspace needs a replacement of one character");
    }
    memcpy(s->mark, mark.ptr, mark.len);
    s->mark_len = mark.len;
    pgd_str scheme = pgd_text_member(json, "prepend_scheme");
    if (pgd_str_is(scheme, "first")) {
        s->prepend = FIRST;
    } else if (pgd_str_is(scheme, "never") ||
               (scheme.len == 0 && !pgd_text_flag(json, "add_prefix_space", 1))) {
        s->prepend = NEVER;
    } else if (scheme.len != 0 && !pgd_str_is(scheme, "always")) {
        return pgd_fail(PGD_INVALID,
                        "tokenizer.json: Metaspace prepend_scheme '%.*s'; allowed are "
                        "always, first and never",
                        PGD_STR_SHOW(scheme));
    }
    if (pgd_text_flag(json, "split", 1)) {
        PGD_TRY(add_step(p, split, find_regex, &s));
        s->behavior = MERGED_NEXT;
        return pgd_text_regex_create(mark, 1, "tokenizer.json: Metaspace", &s->regex);
    }
    return PGD_OK;
}

static pgd_status read_chars(pgd_text_pretokenizer *p, uint32_t class_bits,
                             behavior_kind behavior) {
    step *s = NULL;
    PGD_TRY(add_step(p, split, find_chars, &s));
    s->class_bits = class_bits;
    s->behavior = behavior;
    return PGD_OK;
}

static pgd_status read_one(pgd_text_pretokenizer *p, const pgd_json *json, int32_t level);

static pgd_status read_sequence(pgd_text_pretokenizer *p, const pgd_json *json, int32_t level) {
    const pgd_json *parts = pgd_json_get(json, "pretokenizers");
    if (!pgd_json_is(parts, PGD_JSON_ARRAY) || level >= MAX_NESTING) {
        return pgd_fail(PGD_INVALID,
                        "tokenizer.json: pre-tokenizer Sequence without a list of "
                        "pretokenizers, or nested more than %d deep",
                        MAX_NESTING);
    }
    for (uint32_t i = 0; i < parts->n; i++) {
        PGD_TRY(read_one(p, &parts->items[i], level + 1));
    }
    return PGD_OK;
}

static pgd_status read_one(pgd_text_pretokenizer *p, const pgd_json *json, int32_t level) {
    pgd_str type = pgd_text_type(json);
    if (pgd_str_is(type, "Sequence")) {
        return read_sequence(p, json, level);
    }
    if (pgd_str_is(type, "Split")) {
        return read_split(p, json);
    }
    if (pgd_str_is(type, "ByteLevel")) {
        return read_byte_level(p, json);
    }
    if (pgd_str_is(type, "Metaspace")) {
        return read_metaspace(p, json);
    }
    if (pgd_str_is(type, "Whitespace")) {
        step *s = NULL;
        return add_step(p, split, find_words, &s);
    }
    if (pgd_str_is(type, "WhitespaceSplit")) {
        return read_chars(p, PGD_TEXT_SPACE, REMOVED);
    }
    if (pgd_str_is(type, "Punctuation")) {
        behavior_kind behavior = ISOLATED;
        if (pgd_json_get(json, "behavior") != NULL) {
            PGD_TRY(read_behavior(json, &behavior));
        }
        return read_chars(p, PGD_TEXT_PUNCT, behavior);
    }
    if (pgd_str_is(type, "Digits")) {
        return read_chars(p, PGD_TEXT_DIGIT,
                          pgd_text_flag(json, "individual_digits", 0) ? ISOLATED : CONTIGUOUS);
    }
    return pgd_text_refuse("pre-tokenizer", json, KNOWN);
}

pgd_status pgd_text_pretokenizer_create(const pgd_json *json, pgd_text_pretokenizer **out) {
    *out = NULL;
    pgd_text_pretokenizer *p = pgd_mem_alloc(1, sizeof(*p));
    if (p == NULL) {
        return PGD_MEM_FAIL("the pre-tokenizer", sizeof(*p));
    }
    if (json != NULL && !pgd_json_is(json, PGD_JSON_NULL)) {
        pgd_status status = read_one(p, json, 0);
        if (status != PGD_OK) {
            pgd_text_pretokenizer_destroy(p);
            return status;
        }
    }
    *out = p;
    return PGD_OK;
}

void pgd_text_pretokenizer_destroy(pgd_text_pretokenizer *p) {
    if (p == NULL) {
        return;
    }
    for (size_t i = 0; i < p->n; i++) {
        pgd_text_regex_destroy(p->steps[i].regex);
    }
    pgd_mem_free(p);
}

pgd_status pgd_text_pretokenizer_run(const pgd_text_pretokenizer *p, pgd_text_work *w) {
    for (size_t i = 0; i < p->n; i++) {
        PGD_TRY(p->steps[i].run(&p->steps[i], w));
    }
    return PGD_OK;
}
