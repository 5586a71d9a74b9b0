// Launches that may overlap with the kernel before: who gets them, and what the driver is told.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../gpu/test_host.h"
#include "cuda.h"
#include "cuda/kernels.h"

// The plugin's own list holds images only where there is nvcc.
const gpu_stream_image cuda_tuned_images[] = {{"", "an image"}, {"", NULL}};

static const char *option_overlap;

static const char *option(const pgd_host *h, const char *key) {
    (void)h;
    return strcmp(key, "overlap") == 0 ? option_overlap : NULL;
}

static const pgd_host host = {.size = sizeof(host),
                              .fail = host_fail,
                              .alloc = host_alloc,
                              .free = host_free,
                              .option = option};

static void test_only_code_that_waits_overlaps(void **state) {
    static const char chips[] = "80 89 90a 100 120 ";
    (void)state;
    option_overlap = "on";
    assert_true(cuda_overlaps(&host, chips, 13000, "sm_90"));
    assert_true(cuda_overlaps(&host, chips, 12030, "sm_120"));
    assert_true(cuda_overlaps(&host, "90a", 13000, "sm_90"));
    assert_false(cuda_overlaps(&host, chips, 12020, "sm_90"));     // does not capture it
    assert_false(cuda_overlaps(&host, chips, 13000, "sm_89"));     // does not wait
    assert_false(cuda_overlaps(&host, chips, 13000, "sm_110"));    // the PTX of compute_80
    assert_false(cuda_overlaps(&host, "80 89 ", 13000, "sm_90"));  // the same
    assert_false(cuda_overlaps(&host, "900 190", 13000, "sm_90")); // other numbers
    assert_false(cuda_overlaps(&host, "", 13000, "sm_90"));
    assert_false(cuda_overlaps(&host, chips, 13000, ""));
    option_overlap = "off";
    assert_false(cuda_overlaps(&host, chips, 13000, "sm_90"));
    option_overlap = NULL;
    assert_false(cuda_overlaps(&host, chips, 13000, "sm_90"));
}

// ---- what is launched, through a queue of backends/gpu/stream.c --------------------------------

static int n_plain;
static cuda_launch_config config;
static cuda_attribute attribute;
static int n_overlapping;
static int answer;

static int launch_ex(const cuda_launch_config *c, void *function, void **params, void **extra) {
    config = *c;
    assert_int_equal(c->n_attributes, 1);
    attribute = c->attributes[0];
    assert_ptr_equal(function, &config);
    assert_non_null(params[GPU_MEMORIES]);
    assert_null(extra);
    n_overlapping++;
    return answer;
}

static int launch(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
    (void)params;
    (void)extra;
    assert_non_null(function);
    assert_int_equal(gx + gy + gz, 9);
    assert_true(bx > 1 && by == 1 && bz == 1);
    assert_ptr_equal(stream, &n_plain);
    (void)shared;
    n_plain++;
    return 0;
}

static int make(void **out, unsigned flags) {
    (void)flags;
    *out = &n_plain;
    return 0;
}

static int end(void *what) {
    (void)what;
    return 0;
}

static int enter(const gpu_stream_device *d) {
    (void)d;
    return 0;
}

static int overlapping(const gpu_stream_device *d, void *function, const gpu_stream_grid *g,
                       void *stream, void **params) {
    (void)d;
    return cuda_launch_overlapping(launch_ex, function, g, stream, params);
}

static const char *no_text(const gpu_stream_library *l, int error) {
    (void)l;
    (void)error;
    return NULL;
}

static const char *const names[GPU_STREAM_COUNT] = {"a call"};
static const gpu_stream_vendor vendor = {.kind = "cuda",
                                         .names = names,
                                         .tuned = &cuda_tuned,
                                         .enter = enter,
                                         .error_text = no_text,
                                         .launch_overlapping = overlapping};

static void test_tuned_kernels_overlap_others_do_not(void **state) {
    (void)state;
    const gpu_stream_library library = {.vendor = &vendor,
                                        .api = {.stream_create = make,
                                                .stream_destroy = end,
                                                .stream_synchronize = end,
                                                .event_create = make,
                                                .event_destroy = end,
                                                .launch = launch}};
    gpu_stream_device d = {.library = &library, .api = &library.api};
    const int32_t tuned = PGD_PORTABLE_COUNT + PGD_CUDA_gemm_large_bf16_t64;
    gpu_launch l = {.kernel = 0, .groups = {2, 3, 4}};
    void *q = NULL;
    d.functions[0] = d.functions[tuned] = &config;
    assert_int_equal(gpu_stream_queue_create(&host, &d, 0, &q), PGD_OK);
    assert_int_equal(gpu_stream_launch(&host, q, &l), PGD_OK);
    l.kernel = tuned;
    assert_int_equal(gpu_stream_launch(&host, q, &l), PGD_OK);
    assert_int_equal(n_plain, 2);
    d.overlaps = true;
    assert_int_equal(gpu_stream_launch(&host, q, &l), PGD_OK);
    assert_int_equal(n_plain, 2);
    assert_int_equal(n_overlapping, 1);
    assert_int_equal(config.groups[0], 2);
    assert_int_equal(config.groups[1], 3);
    assert_int_equal(config.groups[2], 4);
    assert_int_equal(config.items[0], cuda_tuned.kernels[PGD_CUDA_gemm_large_bf16_t64].n_items);
    assert_int_equal(config.items[1] * config.items[2], 1);
    assert_true(config.shared > 0 &&
                config.shared == cuda_tuned.kernels[PGD_CUDA_gemm_large_bf16_t64].shared);
    assert_ptr_equal(config.stream, &n_plain);
    assert_int_equal(attribute.id, CUDA_PROGRAMMATIC_SERIALIZATION);
    assert_int_equal(attribute.value[0], 1);
    l.kernel = 0; // it does not wait by itself
    assert_int_equal(gpu_stream_launch(&host, q, &l), PGD_OK);
    assert_int_equal(n_plain, 3);
    l.kernel = tuned;
    answer = 719;
    assert_int_equal(gpu_stream_launch(&host, q, &l), PGD_DEVICE_LOST);
    assert_int_equal(n_overlapping, 2);
    gpu_stream_queue_destroy(&host, q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_code_that_waits_overlaps),
        cmocka_unit_test(test_tuned_kernels_overlap_others_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
