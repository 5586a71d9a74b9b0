// Programmatic dependent launch: a kernel of kernels/cuda may be brought to the processors while
// the one before it still runs; it waits for that by itself (kc_after). Only code for sm_90 and up
// does so: where the driver would compile the PTX of compute_80, or has code of an older chip, such
// a launch would read what is not written yet.
#include <stdlib.h>
#include <string.h>

#include "choose.h"
#include "cuda.h"

enum {
    LEAST_CAPABILITY = 90,
    LEAST_VERSION = 12030, // captures such launches
};

// "80 89 90a": the chips that there is code for.
static bool has_code(const char *chips, int32_t capability) {
    for (const char *at = chips; *at != '\0';) {
        char *end = NULL;
        if (strtol(at, &end, 10) == capability) {
            return true;
        }
        at = end + strcspn(end, " ");
        at += strspn(at, " ");
    }
    return false;
}

bool cuda_overlaps(const pgd_host *host, const char *chips, int version, const char *arch) {
    const char *text = host->option == NULL ? NULL : host->option(host, "overlap");
    const int32_t capability = cuda_capability(arch);
    return text != NULL &&
           (strcmp(text, "on") == 0 || strcmp(text, "true") == 0 || strcmp(text, "1") == 0) &&
           version >= LEAST_VERSION && capability >= LEAST_CAPABILITY &&
           has_code(chips, capability);
}

int cuda_launch_overlapping(cuda_launch_ex_fn call, void *function, const gpu_stream_grid *g,
                            void *stream, void **params) {
    cuda_attribute serialization = {.id = CUDA_PROGRAMMATIC_SERIALIZATION};
    const int32_t is_allowed = 1;
    memcpy(serialization.value, &is_allowed, sizeof(is_allowed));
    const cuda_launch_config config = {.groups = {g->groups[0], g->groups[1], g->groups[2]},
                                       .items = {g->items, 1, 1},
                                       .shared = g->shared,
                                       .stream = stream,
                                       .attributes = &serialization,
                                       .n_attributes = 1};
    return call(&config, function, params, NULL);
}
