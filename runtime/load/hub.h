// Models by the name they have on a model hub: org/name[@revision].
//
// The cache is that of Python's huggingface_hub, so what one has downloaded the other finds:
//
//   <cache>/models--org--name/blobs/<etag>              bytes (<etag>.incomplete: in part)
//                             snapshots/<commit>/<file> -> ../../blobs/<etag>
//                             refs/<revision>           the commit a branch or tag stood for
//                             .no_exist/<commit>/<file> the repository is known not to have it
//           .locks/models--org--name/<etag>.lock        held (flock) by who downloads the blob
//
// <cache> is HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub.
// A snapshot with config.json, weights and tokenizer.json is used without asking anybody; else the
// hub (HF_ENDPOINT, https://huggingface.co) is asked, unless HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE
// is set. HF_TOKEN, or the file HF_TOKEN_PATH or HF_HOME/token, goes to that hub and to no other
// host. Only what the runtime reads is downloaded.
// Source: the cache guide and the client of huggingface_hub, of which no code is used.
#ifndef PGD_LOAD_HUB_H
#define PGD_LOAD_HUB_H

#include "base/str.h"
#include "load/name.h"

// 1 when text is org/name or org/name@revision, as hubs write it.
int32_t pgd_load_hub_is(pgd_str text);

// name      org/name[@revision], revision "main" when it is left out
// progress  may be NULL; what is "downloading org/name" or "waiting for ..."
// out       the snapshot's folder, NUL-terminated
//   fails  INVALID (the name), NOT_FOUND (repository, revision or a file is not there, or not in
//          the cache while offline), DENIED (gated, private, no right to write), UNAVAILABLE (no
//          connection, a torn one, a full disk; what came is kept and the next call goes on from
//          there), DATA_LOSS (a checksum), UNSUPPORTED (no libcurl, no safetensors)
//   cost   two requests, one for the headers and one for the bytes of each file that is missing
pgd_status pgd_load_hub_find(pgd_str name, const pgd_load_progress *progress, char *out,
                             size_t cap) PGD_MUST_USE;

#endif
