// Load on an OpenAI server, and what its answers took: the measuring half of `pagoda bench serve`.
#ifndef PGD_SERVE_LOAD_H
#define PGD_SERVE_LOAD_H

#include <stdint.h>

#include "base/str.h"

typedef struct pgd_serve_load_options {
    const char *host;
    const char *path;    // "/v1/completions"
    const char *api_key; // NULL = none
    int32_t port;
    int32_t n;           // requests
    int32_t concurrency; // most at once, 0 = no limit
    int32_t timeout_s;   // of a silent connection
    double rate;         // arrivals a second (Poisson), 0 = all at once
    uint64_t seed;
    // Appends the body of request i; streaming with usage is up to it.
    pgd_status (*body)(void *arg, int32_t i, pgd_text *out);
    void (*progress)(void *arg, int32_t done, int32_t n); // may be NULL
    void *arg;
} pgd_serve_load_options;

// One request. Times from its start.
typedef struct pgd_serve_load_one {
    uint64_t first_ns; // to the first token; 0 = none came
    uint64_t last_ns;  // to the latest token
    uint64_t total_ns; // to the end of the answer
    int32_t n_prompt;  // of the usage chunk
    int32_t n_output;
    int32_t n_events; // events with text
    int32_t ok;
} pgd_serve_load_one;

typedef struct pgd_serve_load_result {
    pgd_serve_load_one *ones; // [n]
    uint64_t *gaps_ns;        // between events of a stream, all streams
    size_t n_gaps;
    size_t cap_gaps;
    uint64_t duration_ns;
    int32_t most_open;
    char problem[200]; // of the first request that failed
} pgd_serve_load_result;

// Runs the load on the calling thread.
//   fails  OUT_OF_MEMORY, and what body() answers; requests that fail are counted, not an error
pgd_status pgd_serve_load_run(const pgd_serve_load_options *o,
                              pgd_serve_load_result *out) PGD_MUST_USE;
void pgd_serve_load_free(pgd_serve_load_result *r);

#endif
