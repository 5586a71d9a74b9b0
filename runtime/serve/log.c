// A line for each answer, as text or JSON. Never what was asked or answered.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "serve/inner.h"

#define DAY_MS INT64_C(86400000)

// "2026-11-21T18:00:00.123Z". Days to a date: H. Hinnant, "chrono-compatible low-level date
// algorithms", 2013.
static void format_time(int64_t unix_ms, char out[96]) {
    const int64_t days = unix_ms / DAY_MS + 719468;
    const int64_t ms = unix_ms % DAY_MS;
    const int64_t era = days / 146097;
    const int64_t day_of_era = days - era * 146097;
    const int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const int64_t day_of_year =
        day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const int64_t shifted = (5 * day_of_year + 2) / 153;
    const int64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
    (void)snprintf(out, 96, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
                   (int)(year_of_era + era * 400 + (month <= 2)), (int)month,
                   (int)(day_of_year - (153 * shifted + 2) / 5 + 1), (int)(ms / 3600000),
                   (int)(ms / 60000 % 60), (int)(ms / 1000 % 60), (int)(ms % 1000));
}

// The trace id of a W3C traceparent header: 00-<32 hex>-<16 hex>-<2 hex>; empty if it is none.
static pgd_str trace_of(const pgd_serve_exchange *x) {
    const char *given = pgd_serve_exchange_header(x, "traceparent");
    if (given == NULL || strlen(given) < 55 || given[2] != '-' || given[35] != '-' ||
        strspn(given + 3, "0123456789abcdef") != 32) {
        return (pgd_str){"", 0};
    }
    return (pgd_str){given + 3, 32};
}

static const char *method_name(const pgd_serve_exchange *x) {
    static const char *const names[] = {"GET", "POST", "OPTIONS", "OTHER"};
    return names[pgd_serve_exchange_method(x) & 3];
}

// What is known of an error without a word of the caller's: names of ours.
static const char *field_of(const pgd_api_error *e) {
    return e != NULL ? e->param : "";
}

static const char *code_of(const pgd_api_error *e) {
    return e != NULL && e->code != NULL ? e->code : "";
}

static pgd_status add_text(pgd_text *t, const pgd_serve_exchange *x, int32_t status, double ms,
                           const pgd_serve_call *call, const pgd_api_error *e, int32_t made) {
    char time[96];
    format_time(pgd_clock_unix_ms(), time);
    PGD_TRY(pgd_text_format(t, "%s %d %s %s %.1f ms", time, status, method_name(x),
                            pgd_serve_exchange_path(x), ms));
    if (call != NULL) {
        PGD_TRY(pgd_text_format(t, ", %d prompt tokens (%d cached), %d made", call->n_prompt_tokens,
                                call->n_cached, made));
    }
    if (field_of(e)[0] != '\0' || code_of(e)[0] != '\0') {
        PGD_TRY(pgd_text_format(t, ", %s%s%s", field_of(e),
                                field_of(e)[0] != '\0' && code_of(e)[0] != '\0' ? ": " : "",
                                code_of(e)));
    }
    return pgd_text_format(t, ", %s %s\n", pgd_serve_exchange_peer(x), pgd_serve_exchange_id(x));
}

static pgd_status add_json(pgd_text *t, const pgd_serve_exchange *x, int32_t status, double ms,
                           const pgd_serve_call *call, const pgd_api_error *e, int32_t made) {
    char time[96];
    const pgd_str trace = trace_of(x);
    format_time(pgd_clock_unix_ms(), time);
    PGD_TRY(pgd_text_format(t,
                            "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"request\","
                            "\"status\":%d,\"method\":\"%s\",\"path\":",
                            time, status >= 500 ? "error" : "info", status, method_name(x)));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(pgd_serve_exchange_path(x))));
    PGD_TRY(pgd_text_format(t, ",\"ms\":%.3f,\"client\":\"%s\",\"request_id\":", ms,
                            pgd_serve_exchange_peer(x)));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(pgd_serve_exchange_id(x))));
    if (e != NULL) {
        PGD_TRY(pgd_text_format(t, ",\"param\":"));
        PGD_TRY(pgd_json_add_str(t, pgd_str_of(field_of(e))));
        PGD_TRY(pgd_text_format(t, ",\"code\":\"%s\"", code_of(e)));
    }
    if (trace.len > 0) {
        PGD_TRY(pgd_text_format(t, ",\"trace_id\":\"%.32s\"", trace.ptr));
    }
    if (call != NULL) {
        PGD_TRY(pgd_text_format(t,
                                ",\"id\":\"%s\",\"prompt_tokens\":%d,\"cached_tokens\":%d,"
                                "\"completion_tokens\":%d,\"first_token_ms\":%.3f",
                                call->id, call->n_prompt_tokens, call->n_cached, made,
                                call->first_ns > 0 ? (double)(call->first_ns - call->start_ns) / 1e6
                                                   : 0.0));
    }
    return pgd_text_add(t, "}\n", 2);
}

static void answered(pgd_server *s, const pgd_serve_exchange *x, int32_t status,
                     const pgd_serve_call *call, const pgd_api_error *e) {
    const int32_t handler = pgd_serve_handler_of(pgd_serve_exchange_path(x));
    const int32_t method = pgd_serve_exchange_method(x);
    const uint64_t ns = pgd_clock_ns() - pgd_serve_exchange_start_ns(x);
    pgd_serve_count(&s->metrics, handler, method, status);
    pgd_serve_took(&s->metrics, handler, method, ns);
    if (s->o.log == NULL || s->o.no_access_log) {
        return;
    }
    const double ms = (double)ns / 1e6;
    int32_t made = 0;
    for (int32_t i = 0; call != NULL && call->choices != NULL && i < call->n_prompts * call->n;
         i++) {
        made += call->choices[i].n_output;
    }
    pgd_text line = {0};
    const pgd_status added = s->o.log_json ? add_json(&line, x, status, ms, call, e, made)
                                           : add_text(&line, x, status, ms, call, e, made);
    if (added == PGD_OK) {
        s->o.log(s->o.log_arg, status, pgd_text_view(&line));
    }
    pgd_text_free(&line);
}

void pgd_serve_answered(pgd_server *s, const pgd_serve_exchange *x, int32_t status,
                        const pgd_serve_call *call) {
    answered(s, x, status, call, NULL);
}

void pgd_serve_answered_error(pgd_server *s, const pgd_serve_exchange *x, const pgd_api_error *e,
                              const pgd_serve_call *call) {
    answered(s, x, e->status, call, e);
}

// A line that is about no exchange.
static void write_event(pgd_server *s, int32_t status, const char *event, const char *sentence,
                        const char *peer) {
    pgd_text line = {0};
    char time[96];
    format_time(pgd_clock_unix_ms(), time);
    pgd_status added = PGD_OK;
    if (s->o.log_json) {
        added = pgd_text_format(&line,
                                "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\",\"status\":"
                                "%d,\"client\":\"%s\",\"message\":",
                                time, status >= 500 ? "error" : "info", event, status, peer);
        added = added == PGD_OK ? pgd_json_add_str(&line, pgd_str_of(sentence)) : added;
        added = added == PGD_OK ? pgd_text_add(&line, "}\n", 2) : added;
    } else {
        added = pgd_text_format(&line, "%s %d %s: %s%s%s\n", time, status, event, sentence,
                                peer[0] != '\0' ? ", " : "", peer);
    }
    if (added == PGD_OK) {
        s->o.log(s->o.log_arg, status, pgd_text_view(&line));
    }
    pgd_text_free(&line);
}

void pgd_serve_refused(void *server, const pgd_api_error *e, const char *peer) {
    pgd_server *s = server;
    pgd_serve_count(&s->metrics, pgd_serve_handler_of(""), PGD_SERVE_OTHER, e->status);
    if (s->o.log != NULL && !s->o.no_access_log) {
        write_event(s, e->status, "refused", e->message, peer);
    }
}

void pgd_serve_say(pgd_server *s, const char *event, const char *sentence) {
    if (s->o.log != NULL) {
        write_event(s, 500, event, sentence, "");
    }
}
