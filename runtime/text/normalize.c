// Normalizers: rewrite text before it is cut into words.
//
// A file's tree of normalizers becomes a flat list of steps; each maps one text to another.
// Unicode normal forms: characters are decomposed with utf8proc, marks are put in canonical order
// here (utf8proc's own ordering takes quadratic time on long runs of marks), and utf8proc composes.
// ASCII stays as it is, so only the stretches around other characters go that way. The library's
// tables are those of Unicode 9: what came later is passed through, one inert character at a time.
#include <string.h>
#include <utf8proc.h>

#include "text/parts.h"

enum { MAX_STEPS = 32, MAX_NESTING = 8, MAX_DECOMPOSED = 32, SHORT_RUN = 32 };

#define KNOWN                                                                               \
    "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend and " \
    "ByteLevel"

struct step;

// Appends the normalized text; *lead becomes 1 when characters were removed at its start.
typedef pgd_status (*step_run)(const struct step *s, pgd_text_finder *finder, pgd_str in,
                               pgd_text *out, int32_t *lead);

typedef struct step {
    step_run run;
    int32_t form; // utf8proc options of a normal form
    int32_t left, right;
    pgd_text_regex *regex;
    char *content; // Replace, Prepend
    size_t content_len;
} step;

struct pgd_text_normalizer {
    step steps[MAX_STEPS];
    size_t n;
};

// ---- normal forms ------------------------------------------------------------------------------

typedef struct {
    utf8proc_int32_t *items;
    size_t n;
    size_t cap;
} code_points;

static pgd_status room_for(code_points *c, size_t n) {
    void *items = c->items;
    PGD_TRY(pgd_text_grow(&items, &c->cap, n, sizeof(*c->items), "normalizing"));
    c->items = items;
    return PGD_OK;
}

// Scripts that are younger than the library's tables of normal forms and have letters made of two.
static int32_t is_young_script(utf8proc_int32_t cp) {
    return (cp >= 0x105C0 && cp <= 0x105FF) || (cp >= 0x11380 && cp <= 0x113FF) ||
           (cp >= 0x11900 && cp <= 0x1195F) || (cp >= 0x16100 && cp <= 0x1613F) ||
           (cp >= 0x16D40 && cp <= 0x16D7F);
}

static int32_t order_of(utf8proc_int32_t cp) {
    return cp >= 0x300 && (pgd_text_class((uint32_t)cp) & PGD_TEXT_ORDERED)
               ? utf8proc_get_property(cp)->combining_class
               : 0;
}

// What utf8proc would move, join or take apart and the library does not.
static int32_t is_inert(utf8proc_int32_t cp) {
    return cp >= 0x300 && (is_young_script(cp) ||
                           (order_of(cp) == 0 && utf8proc_get_property(cp)->combining_class));
}

static pgd_status decompose(pgd_str in, int32_t form, code_points *c) {
    size_t end = 0;
    for (size_t at = 0; at < in.len; at = end) {
        uint32_t cp = pgd_text_char(in, at, &end);
        PGD_TRY(room_for(c, c->n + MAX_DECOMPOSED));
        int bound = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char(
            (utf8proc_int32_t)cp, c->items + c->n, MAX_DECOMPOSED, (utf8proc_option_t)form, &bound);
        if (n < 0 || n > MAX_DECOMPOSED || is_young_script((utf8proc_int32_t)cp)) {
            c->items[c->n] = (utf8proc_int32_t)cp;
            n = 1;
        }
        c->n += (size_t)n;
    }
    return PGD_OK;
}

// Stable counting sort of one run of marks, by class.
static void sort_long(utf8proc_int32_t *run, size_t n, utf8proc_int32_t *tmp) {
    size_t first[257] = {0};
    for (size_t i = 0; i < n; i++) {
        first[order_of(run[i]) + 1]++;
    }
    for (size_t i = 1; i < 257; i++) {
        first[i] += first[i - 1];
    }
    for (size_t i = 0; i < n; i++) {
        tmp[first[order_of(run[i])]++] = run[i];
    }
    memcpy(run, tmp, n * sizeof(*run));
}

static void sort_short(utf8proc_int32_t *run, size_t n) {
    for (size_t i = 1; i < n; i++) {
        utf8proc_int32_t cp = run[i];
        size_t k = i;
        while (k > 0 && order_of(run[k - 1]) > order_of(cp)) {
            run[k] = run[k - 1];
            k--;
        }
        run[k] = cp;
    }
}

static pgd_status order_marks(code_points *c) {
    for (size_t i = 0; i < c->n;) {
        size_t end = i;
        while (end < c->n && order_of(c->items[end]) != 0) {
            end++;
        }
        if (end - i > SHORT_RUN) {
            size_t n = end - i;
            PGD_TRY(room_for(c, c->n + n));
            sort_long(c->items + i, n, c->items + c->n);
        } else {
            sort_short(c->items + i, end - i);
        }
        i = end > i ? end : i + 1;
    }
    return PGD_OK;
}

// One run without inert characters, or one of these.
static pgd_status compose(utf8proc_int32_t *run, size_t n, int32_t form, pgd_text *out) {
    utf8proc_ssize_t left =
        utf8proc_normalize_utf32(run, (utf8proc_ssize_t)n, (utf8proc_option_t)form);
    for (utf8proc_ssize_t i = 0; i < left; i++) {
        char bytes[4];
        PGD_TRY(pgd_text_add(out, bytes, pgd_utf8_encode((uint32_t)run[i], bytes)));
    }
    return PGD_OK;
}

static pgd_status add_form(pgd_str in, int32_t form, code_points *c, pgd_text *out) {
    c->n = 0;
    PGD_TRY(decompose(in, form, c));
    PGD_TRY(order_marks(c));
    for (size_t start = 0, end = 0; start < c->n; start = end) {
        end = start + 1;
        while (end < c->n && !is_inert(c->items[start]) && !is_inert(c->items[end])) {
            end++;
        }
        PGD_TRY(compose(c->items + start, end - start, form, out));
    }
    return PGD_OK;
}

static pgd_status run_form(const step *s, pgd_text_finder *finder, pgd_str in, pgd_text *out,
                           int32_t *lead) {
    (void)finder;
    (void)lead;
    code_points c = {0};
    pgd_status status = PGD_OK;
    size_t done = 0;
    for (size_t at = 0; at < in.len && status == PGD_OK;) {
        if ((uint8_t)in.ptr[at] < 0x80) {
            at++;
            continue;
        }
        size_t start = at > done ? at - 1 : at; // the ASCII character that a mark may join
        while (at < in.len && (uint8_t)in.ptr[at] >= 0x80) {
            at++;
        }
        status = pgd_text_add(out, in.ptr + done, start - done);
        if (status == PGD_OK) {
            status = add_form((pgd_str){in.ptr + start, at - start}, s->form, &c, out);
        }
        done = at;
    }
    pgd_mem_free(c.items);
    return status == PGD_OK ? pgd_text_add(out, in.ptr + done, in.len - done) : status;
}

// ---- the other steps ---------------------------------------------------------------------------

// Character by character, so a final sigma stays an ordinary one.
static pgd_status run_lowercase(const step *s, pgd_text_finder *finder, pgd_str in, pgd_text *out,
                                int32_t *lead) {
    (void)s;
    (void)finder;
    (void)lead;
    size_t end = 0;
    for (size_t at = 0; at < in.len; at = end) {
        uint32_t cp = pgd_text_char(in, at, &end);
        if (cp == 0x130) { // the one letter whose lower case is two characters
            PGD_TRY(pgd_text_add(out, "i\xCC\x87", 3));
            continue;
        }
        char bytes[4];
        size_t n = pgd_utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), bytes);
        PGD_TRY(pgd_text_add(out, bytes, n));
    }
    return PGD_OK;
}

static pgd_status run_strip(const step *s, pgd_text_finder *finder, pgd_str in, pgd_text *out,
                            int32_t *lead) {
    (void)finder;
    size_t start = 0;
    size_t next = 0;
    while (s->left && start < in.len &&
           (pgd_text_class(pgd_text_char(in, start, &next)) & PGD_TEXT_SPACE)) {
        start = next;
    }
    size_t end = in.len;
    while (s->right && end > start &&
           (pgd_text_class(pgd_text_char_before(in, end, &next)) & PGD_TEXT_SPACE)) {
        end = next;
    }
    *lead |= start > 0;
    return pgd_text_add(out, in.ptr + start, end - start);
}

static pgd_status run_accents(const step *s, pgd_text_finder *finder, pgd_str in, pgd_text *out,
                              int32_t *lead) {
    (void)s;
    (void)finder;
    size_t end = 0;
    for (size_t at = 0; at < in.len; at = end) {
        if (pgd_text_class(pgd_text_char(in, at, &end)) & PGD_TEXT_MARK) {
            *lead |= at == 0;
        } else {
            PGD_TRY(pgd_text_add(out, in.ptr + at, end - at));
        }
    }
    return PGD_OK;
}

static pgd_status run_replace(const step *s, pgd_text_finder *finder, pgd_str in, pgd_text *out,
                              int32_t *lead) {
    pgd_text_finder_start(finder, in);
    size_t done = 0;
    for (;;) {
        size_t start = 0;
        size_t end = 0;
        int32_t found = 0;
        PGD_TRY(pgd_text_finder_next(finder, &start, &end, &found));
        if (!found) {
            return pgd_text_add(out, in.ptr + done, in.len - done);
        }
        *lead |= start == 0 && s->content_len == 0;
        PGD_TRY(pgd_text_add(out, in.ptr + done, start - done));
        PGD_TRY(pgd_text_add(out, s->content, s->content_len));
        done = end;
    }
}

static pgd_status run_prepend(const step *s, pgd_text_finder *finder, pgd_str in, pgd_text *out,
                              int32_t *lead) {
    (void)finder;
    (void)lead;
    if (in.len > 0) {
        PGD_TRY(pgd_text_add(out, s->content, s->content_len));
    }
    return pgd_text_add_str(out, in);
}

static pgd_status run_bytes(const step *s, pgd_text_finder *finder, pgd_str in, pgd_text *out,
                            int32_t *lead) {
    (void)s;
    (void)finder;
    (void)lead;
    return pgd_text_add_bytes_as_chars(out, in);
}

// ---- from the file -----------------------------------------------------------------------------

static pgd_status copy_content(step *s, pgd_str content) {
    s->content = pgd_mem_alloc(1, content.len + 1);
    if (s->content == NULL) {
        return PGD_MEM_FAIL("a normalizer", content.len);
    }
    if (content.len > 0) {
        memcpy(s->content, content.ptr, content.len);
    }
    s->content_len = content.len;
    return PGD_OK;
}

static pgd_status read_replace(step *s, const pgd_json *json) {
    const pgd_json *pattern = pgd_json_get(json, "pattern");
    int32_t literal = pgd_json_get(pattern, "Regex") == NULL;
    s->run = run_replace;
    PGD_TRY(copy_content(s, pgd_text_member(json, "content")));
    return pgd_text_regex_create(pgd_text_member(pattern, literal ? "String" : "Regex"), literal,
                                 "tokenizer.json: normalizer Replace", &s->regex);
}

static pgd_status read_step(step *s, const pgd_json *json) {
    static const struct {
        const char *name;
        step_run run;
        int32_t form;
    } simple[] = {
        {"NFC", run_form, UTF8PROC_STABLE | UTF8PROC_COMPOSE},
        {"NFD", run_form, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
        {"NFKC", run_form, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
        {"NFKD", run_form, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
        {"Lowercase", run_lowercase, 0},
        {"Strip", run_strip, 0},
        {"StripAccents", run_accents, 0},
        {"ByteLevel", run_bytes, 0},
    };
    pgd_str type = pgd_text_type(json);
    for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++) {
        if (pgd_str_is(type, simple[i].name)) {
            s->run = simple[i].run;
            s->form = simple[i].form;
            s->left = pgd_text_flag(json, "strip_left", 1);
            s->right = pgd_text_flag(json, "strip_right", 1);
            return PGD_OK;
        }
    }
    if (pgd_str_is(type, "Prepend")) {
        s->run = run_prepend;
        return copy_content(s, pgd_text_member(json, "prepend"));
    }
    if (pgd_str_is(type, "Replace")) {
        return read_replace(s, json);
    }
    return pgd_text_refuse("normalizer", json, KNOWN);
}

static pgd_status read_one(pgd_text_normalizer *n, const pgd_json *json, int32_t level) {
    if (!pgd_str_is(pgd_text_type(json), "Sequence")) {
        if (n->n == MAX_STEPS) {
            return pgd_fail(PGD_UNSUPPORTED, "tokenizer.json: more than %d normalizer steps",
                            MAX_STEPS);
        }
        return read_step(&n->steps[n->n++], json);
    }
    const pgd_json *parts = pgd_json_get(json, "normalizers");
    if (!pgd_json_is(parts, PGD_JSON_ARRAY) || level >= MAX_NESTING) {
        return pgd_fail(PGD_INVALID,
                        "tokenizer.json: normalizer Sequence without a list of "
                        "normalizers, or nested more than %d deep",
                        MAX_NESTING);
    }
    for (uint32_t i = 0; i < parts->n; i++) {
        PGD_TRY(read_one(n, &parts->items[i], level + 1));
    }
    return PGD_OK;
}

pgd_status pgd_text_normalizer_create(const pgd_json *json, pgd_text_normalizer **out) {
    *out = NULL;
    if (json == NULL || pgd_json_is(json, PGD_JSON_NULL)) {
        return PGD_OK;
    }
    pgd_text_normalizer *n = pgd_mem_alloc(1, sizeof(*n));
    if (n == NULL) {
        return PGD_MEM_FAIL("the normalizer", sizeof(*n));
    }
    pgd_status status = read_one(n, json, 0);
    if (status != PGD_OK || n->n == 0) {
        pgd_text_normalizer_destroy(n);
        return status;
    }
    *out = n;
    return PGD_OK;
}

void pgd_text_normalizer_destroy(pgd_text_normalizer *n) {
    if (n == NULL) {
        return;
    }
    for (size_t i = 0; i < n->n; i++) {
        pgd_text_regex_destroy(n->steps[i].regex);
        pgd_mem_free(n->steps[i].content);
    }
    pgd_mem_free(n);
}

// ---- run ---------------------------------------------------------------------------------------

static pgd_status run_steps(const pgd_text_normalizer *n, pgd_text_finder *const *finders,
                            pgd_str in, pgd_text_work *w, int32_t *lead) {
    for (size_t i = 0; i < n->n; i++) {
        int32_t last = i + 1 == n->n;
        pgd_text *to = last ? &w->spare : &w->tmp[i & 1];
        if (!last) {
            pgd_text_clear(to);
        }
        PGD_TRY(n->steps[i].run(&n->steps[i], finders[i], in, to, lead));
        in = pgd_text_view(to);
    }
    return PGD_OK;
}

pgd_status pgd_text_normalizer_run(const pgd_text_normalizer *n, pgd_text_work *w) {
    pgd_text_finder *finders[MAX_STEPS] = {0};
    pgd_status status = pgd_text_reserve(&w->spare, w->text.len + 16);
    for (size_t i = 0; i < n->n && status == PGD_OK; i++) {
        if (n->steps[i].regex != NULL) {
            status = pgd_text_finder_create(n->steps[i].regex, w->text.len, &finders[i]);
        }
    }
    for (size_t i = 0; i < w->n_pieces && status == PGD_OK; i++) {
        const pgd_text_piece p = w->pieces[i];
        pgd_str text = {w->text.ptr + p.at, p.len};
        size_t at = w->spare.len;
        int32_t lead = 0;
        status =
            p.id >= 0 ? pgd_text_add_str(&w->spare, text) : run_steps(n, finders, text, w, &lead);
        if (status == PGD_OK) {
            status = pgd_text_work_put(w, at, w->spare.len - at, p.id, p.first && !lead);
        }
    }
    for (size_t i = 0; i < n->n; i++) {
        pgd_text_finder_destroy(finders[i]);
    }
    if (status == PGD_OK) {
        pgd_text_work_rewrite_done(w);
    }
    return status;
}
