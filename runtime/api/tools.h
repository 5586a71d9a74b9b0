// Calls of tools in what a model says, as it says it.
//
//   text ... <tool_call>{"name": "f", "arguments": {...}}</tool_call> ...
//   ^ content            ^ name        ^ arguments, passed on as they come
//
// The form of the Hermes models, which Qwen and others share. Every byte is looked at once
// (CVE-2025-48944: patterns that backtrack). What is no call after all becomes content. Source: the
// function-calling format of NousResearch's Hermes 2 Pro.
#ifndef PGD_API_TOOLS_H
#define PGD_API_TOOLS_H

#include "base/str.h"

#define PGD_API_MAX_CALLS 128

typedef struct pgd_api_tool_call {
    pgd_text name;      // complete, or empty
    pgd_text arguments; // JSON as far as it has come
} pgd_api_tool_call;

typedef struct pgd_api_tools {
    pgd_api_tool_call *calls; // [n_calls]; the last one may lack its name
    int32_t n_calls;
    int32_t most; // calls that are kept, 0 = PGD_API_MAX_CALLS; further ones are dropped
    // its own
    int32_t state;
    int32_t key;     // which value is being read
    int32_t escaped; // the byte behind a backslash
    int32_t depth;   // of a value of arrays and objects
    int32_t quoted;  // within a string of it
    int32_t dropped; // the call at hand is one too many
    int32_t closes;  // the tag that has begun is the closing one
    size_t matched;  // bytes of the tag that have come
    pgd_text held;   // white space and the beginning of a tag: content, if nothing else
    pgd_text block;  // of the call at hand, from its tag on
    pgd_text word;   // key or string at hand, as JSON
} pgd_api_tools;

// Further text: what is content is appended to `content`.
pgd_status pgd_api_tools_read(pgd_api_tools *t, pgd_str text, pgd_text *content) PGD_MUST_USE;
// The text is over: what was held back is content after all.
pgd_status pgd_api_tools_end(pgd_api_tools *t, pgd_text *content) PGD_MUST_USE;
// Calls to be told of: those with a name.
int32_t pgd_api_tools_shown(const pgd_api_tools *t);
void pgd_api_tools_free(pgd_api_tools *t);

#endif
