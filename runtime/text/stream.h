// The streaming detokenizer: ids in one by one, complete characters out.
//
// All pushes and finish together give exactly the text that decode() of prompt and generated ids
// has behind the text of the prompt. A character whose bytes are spread over several tokens comes
// out when its last byte is there; a run of byte-fallback tokens (<0xE2>...) when the run ends,
// because one wrong byte changes how the whole run reads.
#ifndef PGD_TEXT_STREAM_H
#define PGD_TEXT_STREAM_H

#include "text/tokenizer.h"

typedef struct pgd_text_stream pgd_text_stream;

// prompt_tail [n]: the last ids of the prompt (all of it is fine too); they decide whether the
// first generated token stands at the start of the text, and a character begun in them is
// completed. The tokenizer must outlive the stream.
pgd_status pgd_text_stream_create(const pgd_text_tokenizer *t, const int32_t *prompt_tail, size_t n,
                                  int32_t skip_special, pgd_text_stream **out) PGD_MUST_USE;
// Appends what became complete, perhaps nothing.
pgd_status pgd_text_stream_push(pgd_text_stream *s, int32_t id, pgd_text *out) PGD_MUST_USE;
// Appends what was held back; an incomplete character becomes U+FFFD.
pgd_status pgd_text_stream_finish(pgd_text_stream *s, pgd_text *out) PGD_MUST_USE;
void pgd_text_stream_destroy(pgd_text_stream *s); // NULL is fine

#endif
