// Chat templates: the subset of Jinja2 that models use, in a sandbox of our own.
//
// A template is parsed once and rendered many times. It sees only its variables; nothing of the
// machine but the date (strftime_now). Steps, output bytes and recursion have fixed budgets.
// A construct outside the subset (README.md lists it) is refused at parse time by name and line.
#ifndef PGD_TEXT_TEMPLATE_H
#define PGD_TEXT_TEMPLATE_H

#include "base/json.h"
#include "base/str.h"

typedef struct pgd_text_template pgd_text_template;

// The template of a model folder: chat_template.jinja, else chat_template of tokenizer_config.json
// (a string, or the entry named "default" of a list); of a GGUF file (FILE.gguf) its own.
//   fails  NOT_FOUND when the model has none, UNSUPPORTED, INVALID
pgd_status pgd_text_template_open(const char *folder, pgd_text_template **out) PGD_MUST_USE;
pgd_status pgd_text_template_parse(pgd_str source, pgd_text_template **out) PGD_MUST_USE;
void pgd_text_template_close(pgd_text_template *t); // NULL is fine

// [any] vars: a JSON object (messages, tools, add_generation_prompt, bos_token ...). Appends the
// text; on failure `out` is as it was before.
//   fails  INVALID: raise_exception of the template, a wrong type, an undefined attribute, a budget
pgd_status pgd_text_template_render(const pgd_text_template *t, const pgd_json *vars,
                                    pgd_text *out) PGD_MUST_USE;

#endif
