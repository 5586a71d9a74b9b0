// A body that was read (body.h) as a description for the engine: sampling, stops, log
// probabilities. Prompts and max_tokens are the caller's.
#ifndef PGD_API_DESCRIBE_H
#define PGD_API_DESCRIBE_H

#include <pagoda/pagoda.h>

#include "api/body.h"

// Lists of a description: to be freed when the request is submitted, which copies them.
typedef struct pgd_api_lists {
    int32_t *stop_ids;
    int32_t *allowed;
    int32_t *bias_ids;
    float *bias_adds;
    const char **stop;
    const char **bad_words;
} pgd_api_lists;

// [any] What the body gives replaces what stands in d; texts are borrowed from the body. Sets
// b->wants_prompt and b->echoes_logprobs. 0, or -1 with e; l is to be freed in any case.
int32_t pgd_api_describe(pgd_api_body *b, pgd_api_lists *l, pgd_request_desc *d, pgd_api_error *e);
void pgd_api_lists_free(pgd_api_lists *l);

#endif
