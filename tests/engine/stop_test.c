// Stop strings in the engine against a search of the whole text: what is kept, what ended it, how
// many tokens were made, and what streaming had given out after each of them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pagoda/pagoda.h>

#include "base/rng.h"
#include "engine/inner.h"

#define NANO     PGD_TEST_SOURCE_DIR "/models/nano"
#define N_NEW    60
#define MOST     4096
#define N_ROUNDS 1500

static pgd_engine *open_engine(const char *device) {
    const pgd_engine_options o = {
        .size = sizeof(o),
        .model = NANO,
        .device = device,
        .memory = "256MiB",
        .max_num_seqs = 4,
        .max_model_len = 96,
        .threads = 1,
    };
    pgd_engine *engine = NULL;
    assert_int_equal(pgd_engine_create(&o, &engine), PGD_OK);
    return engine;
}

static void run(pgd_engine *engine) {
    while (pgd_engine_busy(engine) > 0) {
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
    }
}

// ---- the whole text ----------------------------------------------------------------------------

// A request without stop strings; seen[k] bytes of its text are complete behind token k.
typedef struct whole {
    char text[MOST];
    size_t len; // with what comes at the end
    size_t seen[N_NEW + 1];
    int32_t ids[N_NEW];
    int32_t first; // the prompt's only token
} whole;

static pgd_request_desc desc_of(const whole *w) {
    return (pgd_request_desc){
        .size = sizeof(pgd_request_desc),
        .ids = &w->first,
        .n_ids = 1,
        .max_tokens = N_NEW,
        .ignore_eos = 1,
        .keep_special = 1,
    };
}

static void make_whole(pgd_engine *engine, whole *w) {
    const pgd_request_desc d = desc_of(w);
    pgd_request *r = NULL;
    pgd_output o = {.size = sizeof(o)};
    assert_int_equal(pgd_engine_submit(engine, &d, &r), PGD_OK);
    run(engine);
    pgd_request_output(r, &o);
    assert_int_equal(o.n_ids, N_NEW);
    assert_true(o.text_len < MOST);
    memcpy(w->text, o.text, o.text_len + 1);
    memcpy(w->ids, o.ids, sizeof(w->ids));
    w->len = o.text_len;
    pgd_request_release(r);
    pgd_text_stream *stream = NULL;
    pgd_text text = {0};
    assert_int_equal(pgd_text_stream_create(engine->tokenizer, &w->first, 1, 0, &stream), PGD_OK);
    w->seen[0] = 0;
    for (int32_t k = 0; k < N_NEW; k++) {
        assert_int_equal(pgd_text_stream_push(stream, w->ids[k], &text), PGD_OK);
        w->seen[k + 1] = text.len;
        assert_memory_equal(text.ptr, w->text, text.len);
    }
    pgd_text_free(&text);
    pgd_text_stream_destroy(stream);
}

// ---- the oracle --------------------------------------------------------------------------------

typedef struct stops {
    char room[3][64];
    const char *strings[3];
    uint32_t n;
    uint32_t include;
    int32_t min_tokens;
} stops;

typedef struct ending {
    int32_t which; // -1 = none
    size_t end;    // of the string
    size_t len;    // of the text that is kept
    int32_t n_ids;
} ending;

static int32_t ends_at(const stops *s, const char *text, size_t end) {
    for (uint32_t i = 0; i < s->n; i++) {
        size_t m = strlen(s->strings[i]);
        if (m <= end && memcmp(text + end - m, s->strings[i], m) == 0) {
            return (int32_t)i;
        }
    }
    return -1;
}

static ending search(const whole *w, const stops *s) {
    size_t before = s->min_tokens > 0 ? w->seen[s->min_tokens - 1] : 0;
    for (size_t end = before + 1; end <= w->len; end++) {
        int32_t which = ends_at(s, w->text, end);
        if (which >= 0) {
            int32_t n = 0;
            while (n < N_NEW && w->seen[n] < end) {
                n++;
            }
            size_t cut = s->include ? 0 : strlen(s->strings[which]);
            return (ending){.which = which, .end = end, .len = end - cut, .n_ids = n};
        }
    }
    return (ending){.which = -1, .end = w->len, .len = w->len, .n_ids = N_NEW};
}

// Bytes of the first len that may be shown while nothing has ended.
static size_t shown(const whole *w, const stops *s, size_t len) {
    for (size_t k = s->include ? 0 : len; k > 0; k--) {
        for (uint32_t i = 0; i < s->n; i++) {
            if (k < strlen(s->strings[i]) && memcmp(w->text + len - k, s->strings[i], k) == 0) {
                return len - k;
            }
        }
    }
    return len;
}

// ---- the engine --------------------------------------------------------------------------------

typedef struct listener {
    const whole *whole;
    const stops *stops;
    char text[MOST];
    size_t len;
    int32_t n_ids;
    int32_t n_done;
} listener;

static void on_delta(void *arg, pgd_request *request, const pgd_delta *d) {
    listener *l = arg;
    (void)request;
    assert_true(pgd_utf8_valid((pgd_str){d->text, d->text_len}));
    memcpy(l->text + l->len, d->text, d->text_len);
    l->len += d->text_len;
    assert_memory_equal(d->ids, l->whole->ids + l->n_ids, (size_t)d->n_ids * sizeof(int32_t));
    l->n_ids += d->n_ids;
    l->n_done += d->done;
    if (!d->done) {
        assert_int_equal(l->len, shown(l->whole, l->stops, l->whole->seen[l->n_ids]));
    }
}

static void check(pgd_engine *engine, const whole *w, const stops *s) {
    static listener l;
    l = (listener){.whole = w, .stops = s};
    pgd_request_desc d = desc_of(w);
    d.stop = s->strings;
    d.n_stop = s->n;
    d.include_stop = s->include;
    d.min_tokens = s->min_tokens;
    d.on_delta = on_delta;
    d.arg = &l;
    pgd_request *r = NULL;
    assert_int_equal(pgd_engine_submit(engine, &d, &r), PGD_OK);
    run(engine);
    const ending e = search(w, s);
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(r, &o);
    assert_int_equal(o.n_ids, e.n_ids);
    assert_int_equal(o.text_len, e.len);
    assert_memory_equal(o.text, w->text, e.len);
    assert_int_equal(o.text[e.len], '\0');
    assert_int_equal(o.stop_id, -1);
    assert_string_equal(o.finish_reason, e.which >= 0 ? "stop" : "length");
    if (e.which >= 0) {
        assert_string_equal(o.stop_text, s->strings[e.which]);
    } else {
        assert_null(o.stop_text);
    }
    assert_int_equal(l.n_done, 1);
    assert_int_equal(l.len, e.len);
    assert_memory_equal(l.text, w->text, e.len);
    pgd_request_release(r);
}

// ---- random ------------------------------------------------------------------------------------

static size_t boundary(const whole *w, size_t at) {
    while (at < w->len && ((unsigned char)w->text[at] & 0xC0) == 0x80) {
        at++;
    }
    return at;
}

// A piece of the text; now and then with another end, so that it is nearly found.
static void random_stop(uint64_t *rng, const whole *w, char *out) {
    size_t from = boundary(w, pgd_rng_next(rng) % w->len);
    size_t to = boundary(w, from + 1 + pgd_rng_next(rng) % 10);
    to = to < w->len ? to : w->len;
    size_t n = to > from ? to - from : 0;
    memcpy(out, w->text + from, n);
    if (n == 0 || pgd_rng_next(rng) % 4 == 0) {
        out[n++] = '~';
    }
    out[n] = '\0';
}

static void random_rounds(const char *device, uint64_t seed) {
    static whole w;
    pgd_engine *engine = open_engine(device);
    uint64_t rng = seed;
    int32_t n_found = 0;
    for (int32_t i = 0; i < N_ROUNDS; i++) {
        if (i % 10 == 0) {
            w.first = (int32_t)(pgd_rng_next(&rng) % (uint64_t)engine->config->vocab);
            make_whole(engine, &w);
        }
        stops s = {.n = 1 + (uint32_t)(pgd_rng_next(&rng) % 3),
                   .include = pgd_rng_next(&rng) % 3 == 0,
                   .min_tokens =
                       pgd_rng_next(&rng) % 3 == 0 ? 1 + (int32_t)(pgd_rng_next(&rng) % N_NEW) : 0};
        for (uint32_t k = 0; k < s.n; k++) {
            random_stop(&rng, &w, s.room[k]);
            s.strings[k] = s.room[k];
        }
        check(engine, &w, &s);
        n_found += search(&w, &s).which >= 0;
    }
    assert_true(n_found > N_ROUNDS / 3 && n_found < N_ROUNDS);
    pgd_engine_destroy(engine);
}

static void test_words(void **state) {
    (void)state;
    random_rounds("null{tokens=words}", 1);
}

// Any token: bytes of characters that never become complete, special tokens.
static void test_any_tokens(void **state) {
    (void)state;
    random_rounds("null{tokens=hash}", 2);
}

// ---- stop tokens -------------------------------------------------------------------------------

static void test_a_stop_token_shows_only_when_asked_for(void **state) {
    (void)state;
    static whole w;
    pgd_engine *engine = open_engine("null{tokens=words}");
    w.first = 300;
    make_whole(engine, &w);
    for (uint32_t include = 0; include < 2; include++) {
        pgd_request_desc d = desc_of(&w);
        d.stop_ids = &w.ids[7];
        d.n_stop_ids = 1;
        d.include_stop = include;
        pgd_request *r = NULL;
        assert_int_equal(pgd_engine_submit(engine, &d, &r), PGD_OK);
        run(engine);
        pgd_output o = {.size = sizeof(o)};
        pgd_request_output(r, &o);
        assert_string_equal(o.finish_reason, "stop");
        assert_int_equal(o.stop_id, w.ids[7]);
        assert_null(o.stop_text);
        assert_int_equal(o.n_ids, 8);
        assert_int_equal(o.text_len, w.seen[include ? 8 : 7]);
        pgd_request_release(r);
    }
    pgd_engine_destroy(engine);
}

static void test_special_tokens_show_only_when_asked_for(void **state) {
    (void)state;
    pgd_engine *engine = open_engine("cpu");
    const int32_t eos = engine->config->eos[0];
    const float add = 100.0f;
    const pgd_str name = pgd_text_token_content(engine->tokenizer, eos);
    assert_true(name.len > 0 && pgd_text_token_is_special(engine->tokenizer, eos));
    for (uint32_t keep = 0; keep < 2; keep++) {
        const pgd_request_desc d = {
            .size = sizeof(d),
            .prompt = "Hello",
            .max_tokens = 3,
            .ignore_eos = 1,
            .bias_ids = &eos,
            .bias_adds = &add,
            .n_bias = 1,
            .keep_special = keep,
        };
        pgd_request *r = NULL;
        assert_int_equal(pgd_engine_submit(engine, &d, &r), PGD_OK);
        run(engine);
        pgd_output o = {.size = sizeof(o)};
        pgd_request_output(r, &o);
        assert_int_equal(o.ids[0], eos);
        assert_int_equal(o.text_len, keep ? 3 * name.len : 0);
        pgd_request_release(r);
    }
    pgd_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_any_tokens),
        cmocka_unit_test(test_a_stop_token_shows_only_when_asked_for),
        cmocka_unit_test(test_special_tokens_show_only_when_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
