// The trial of wgmma on a device that is the emulator: taken where the bits are equal, left where
// one of them is not, where a kernel writes nothing and where any call fails.
#define _POSIX_C_SOURCE 200809L
#include "cuda/test_cuda.h"

#include "../gpu/test_host.h"
#include "cuda.h"

const gpu_stream_image cuda_tuned_images[] = {{"", "an image"}, {"", NULL}};

static struct {
    const char *option;
    int32_t n_logged; // warnings
    int32_t n_told;
    int32_t n_launched;
    int32_t n_memories;
    int32_t n_queues;
    int32_t calls_left; // before one fails, -1: none does
    int32_t wrong;      // kernel whose result has one bit off, -1: none
    int32_t idle;       // kernel that does nothing, -1: none
    bool runs;          // kernels at all
} at;

static bool fails(void) {
    return at.calls_left >= 0 && at.calls_left-- == 0;
}

static const char *option(const pgd_host *h, const char *key) {
    (void)h;
    return strcmp(key, "wgmma") == 0 ? at.option : NULL;
}

static void log_line(const pgd_host *h, int32_t level, const char *text) {
    (void)h;
    assert_non_null(strstr(text, "wgmma"));
    at.n_logged += level == PGD_LOG_WARNING;
    at.n_told += level == PGD_LOG_INFO;
}

static void *alloc(const pgd_host *h, uint64_t bytes, uint64_t align) {
    return fails() ? NULL : host_alloc(h, bytes, align);
}

static const pgd_host host = {.size = sizeof(host),
                              .fail = host_fail,
                              .alloc = alloc,
                              .free = host_free,
                              .log = log_line,
                              .option = option};

static pgd_status create(const pgd_host *h, void *device, uint64_t bytes, int32_t place,
                         void **out) {
    (void)h;
    (void)device;
    (void)place;
    *out = NULL;
    if (fails()) {
        return PGD_OUT_OF_MEMORY;
    }
    at.n_memories++;
    return posix_memalign(out, 256, (size_t)bytes) == 0 ? PGD_OK : PGD_OUT_OF_MEMORY;
}

static void destroy(const pgd_host *h, void *device, void *memory) {
    (void)h;
    (void)device;
    at.n_memories--;
    free(memory);
}

static pgd_status queue_create(const pgd_host *h, void *device, int32_t role, void **out) {
    at.n_queues += 1;
    if (fails()) {
        at.n_queues -= 1;
        return PGD_OUT_OF_MEMORY;
    }
    return host_queue_create(h, device, role, out);
}

static void queue_destroy(const pgd_host *h, void *queue) {
    at.n_queues--;
    host_queue_destroy(h, queue);
}

static pgd_status copy(const pgd_host *h, void *queue, const gpu_copy *c) {
    (void)h;
    (void)queue;
    assert_int_equal(c->rows, 1);
    memcpy((char *)c->dst + c->dst_offset, (const char *)c->src + c->src_offset, c->bytes);
    return fails() ? PGD_DEVICE_LOST : PGD_OK;
}

static pgd_status fill(const pgd_host *h, void *queue, void *memory, uint64_t offset,
                       uint64_t bytes, uint32_t pattern) {
    (void)h;
    (void)queue;
    for (uint64_t i = 0; i < bytes; i += 4) {
        memcpy((char *)memory + offset + i, &pattern, 4);
    }
    return fails() ? PGD_DEVICE_LOST : PGD_OK;
}

static pgd_status launch(const pgd_host *h, void *queue, const gpu_launch *l) {
    const int32_t kernel = l->kernel - PGD_PORTABLE_COUNT;
    (void)h;
    (void)queue;
    at.n_launched++;
    if (at.runs && kernel != at.idle) {
        test_launch(kernel, l->groups[0], l->groups[1], l->groups[2], l->memories, l->params);
    }
    if (kernel == at.wrong) {
        const kc_gemm_params *p = (const kc_gemm_params *)(const void *)l->params;
        ((unsigned char *)l->memories[3])[p->g.y.at + 4 * 1003] ^= 1;
    }
    return fails() ? PGD_DEVICE_LOST : PGD_OK;
}

static pgd_status point(const pgd_host *h, void *queue, uint32_t slot) {
    (void)h;
    (void)queue;
    (void)slot;
    return fails() ? PGD_DEVICE_LOST : PGD_OK;
}

static pgd_status point_wait(const pgd_host *h, void *queue, uint32_t slot, uint64_t timeout_ns) {
    (void)h;
    (void)queue;
    (void)slot;
    (void)timeout_ns;
    return fails() ? PGD_TIMEOUT : PGD_OK;
}

static const gpu_driver driver = {.kind = "cuda",
                                  .tuned = &cuda_tuned,
                                  .create = create,
                                  .destroy = destroy,
                                  .queue_create = queue_create,
                                  .queue_destroy = queue_destroy,
                                  .launch = launch,
                                  .copy = copy,
                                  .fill = fill,
                                  .point = point,
                                  .point_wait = point_wait};

static const gpu_tuned *better(const char *arch) {
    gpu_device_facts facts = {0};
    int device = 0;
    memcpy(facts.arch, arch, strlen(arch) + 1); // names of this file, all short
    at.n_logged = at.n_told = at.n_launched = 0;
    const gpu_tuned *t = cuda_better(&host, &driver, &device, &facts);
    assert_int_equal(at.n_memories, 0);
    assert_int_equal(at.n_queues, 0);
    return t;
}

static int reset(void **state) {
    (void)state;
    memset(&at, 0, sizeof(at));
    at.calls_left = at.wrong = at.idle = -1;
    at.runs = true;
    return 0;
}

static void equal_bits_are_taken(void **state) {
    (void)state;
    assert_ptr_equal(better("sm_90"), &cuda_hopper_tuned);
    assert_int_equal(at.n_launched, 12);
    assert_int_equal(at.n_logged, 0);
    assert_int_equal(at.n_told, 1);
}

static void one_bit_off_is_left(void **state) {
    static const int32_t kernels[] = {PGD_CUDA_gemm_wgmma_bf16_t64, PGD_CUDA_gemm_wgmma_bf16_t192,
                                      PGD_CUDA_gemm_wgmma_f16_t128};
    (void)state;
    for (int i = 0; i < 3; i++) {
        at.wrong = kernels[i];
        assert_null(better("sm_90"));
        assert_int_equal(at.n_logged, 1);
    }
}

static void a_kernel_without_code_is_left(void **state) {
    (void)state;
    at.idle = PGD_CUDA_gemm_wgmma_bf16_t128;
    assert_null(better("sm_90"));
    assert_int_equal(at.n_logged, 1);
    at.runs = false; // nothing runs: results that nobody wrote are not equal
    assert_null(better("sm_90"));
    assert_int_equal(at.n_logged, 1);
}

static void other_chips_are_not_tried(void **state) {
    static const char *const chips[] = {"sm_80", "sm_89", "sm_100", "sm_120", ""};
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_null(better(chips[i]));
        assert_int_equal(at.n_launched + at.n_logged + at.n_told, 0);
    }
    at.option = "off";
    assert_null(better("sm_90"));
    assert_int_equal(at.n_launched + at.n_logged + at.n_told, 0);
}

static void any_call_may_fail(void **state) {
    (void)state;
    at.runs = false;
    for (int32_t n = 0; n < 40; n++) {
        at.calls_left = n;
        assert_null(better("sm_90"));
        assert_int_equal(at.n_logged, 1);
        if (at.calls_left > 0) {
            assert_true(n > 10);
            return;
        }
    }
    fail_msg("more than 40 calls");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(equal_bits_are_taken, reset),
        cmocka_unit_test_setup(one_bit_off_is_left, reset),
        cmocka_unit_test_setup(a_kernel_without_code_is_left, reset),
        cmocka_unit_test_setup(other_chips_are_not_tried, reset),
        cmocka_unit_test_setup(any_call_may_fail, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
