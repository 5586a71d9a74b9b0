// The text parts of an engine, for those who prepare requests outside of its thread.
#ifndef PGD_ENGINE_TEXT_H
#define PGD_ENGINE_TEXT_H

#include <pagoda/pagoda.h>

#include "text/template.h"
#include "text/tokenizer.h"

// [any] Borrowed from the engine; NULL when the model has none.
const pgd_text_tokenizer *pgd_engine_tokenizer(const pgd_engine *e);
const pgd_text_template *pgd_engine_template(const pgd_engine *e);

#endif
