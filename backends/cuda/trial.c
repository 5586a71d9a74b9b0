// The trial of wgmma: whether a device's products by it have the bits of those by mma.sync.
//
// Small steps of an op run mma.sync and large ones wgmma, and an element's bits must not depend on
// the size of its step. Both add the same chains of 16 products, but no document says what a tensor
// core does within such a step. So the device is asked: numbers of very different sizes, whose sums
// show each rounding, through both. Equal: wgmma is used. Not equal, or no answer: it is not, and a
// line of log says so. About 250 KiB up and 160 KiB back, six short
// kernels for each type.
#include <stdio.h>
#include <string.h>

#include "../gpu/tuned.h"
#include "choose.h"
#include "cuda.h"

// More than one tile along an axis, the last ones ragged; four slices, the last not whole; stages
// come round three times.
enum { N = 136, K = 600, SLICE = 192, ROWS = 75, SEED = 20, CAPABILITY = 90 };
enum { PANELS = N / 8, STEPS = (K + KC_STEP - 1) / KC_STEP, CORES_ROWS = 192 };
#define WAIT_NS UINT64_C(20000000000)

enum { N_RESULTS = 4 }; // by gemm_large_t128, gemm_wgmma_t64, _t128 and _t192

typedef struct layout { // offsets in the one memory of a trial
    uint64_t w, x, packed, cores, y[N_RESULTS], bytes;
} layout;

typedef struct trial {
    const pgd_host *host;
    const gpu_driver *driver;
    void *queue;
    void *memory;
    uint16_t *numbers; // [PANELS][K][8], then [ROWS][K]
    float *results;    // [N_RESULTS][ROWS][N]
    int32_t dtype;
} trial;

enum { N_NUMBERS = PANELS * 8 * K + ROWS * K, N_RESULT = ROWS * N };

static uint64_t part(layout *l, uint64_t bytes) {
    const uint64_t at = l->bytes;
    l->bytes = (at + bytes + 255) / 256 * 256;
    return at;
}

static layout layout_of(void) {
    layout l = {0};
    l.w = part(&l, (uint64_t)PANELS * K * 16);
    l.x = part(&l, (uint64_t)ROWS * K * 2);
    l.packed = part(&l, (uint64_t)ROWS * STEPS * KC_STEP * 2);
    l.cores = part(&l, (uint64_t)CORES_ROWS * STEPS * KC_STEP * 2);
    for (int i = 0; i < N_RESULTS; i++) {
        l.y[i] = part(&l, N_RESULT * sizeof(float));
    }
    return l;
}

// Any sign and fraction, exponents 2^-8 to 2^7, for bf16 and f16.
static void draw(const trial *t) {
    uint32_t state = SEED;
    for (int32_t i = 0; i < N_NUMBERS; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        const uint32_t exponent = state >> 12 & 15;
        t->numbers[i] =
            (uint16_t)(t->dtype == PGD_BF16
                           ? (state >> 16 & 0x8000u) | (119 + exponent) << 7 | (state & 0x7fu)
                           : (state >> 16 & 0x8000u) | (7 + exponent) << 10 | (state & 0x3ffu));
    }
}

static pgd_status launch(const trial *t, int32_t kernel, uint32_t x, uint32_t y, int to,
                         const void *params) {
    gpu_launch l = {.kernel = PGD_PORTABLE_COUNT + kernel, .groups = {x, y, 1}};
    for (int i = 0; i <= to; i++) {
        l.memories[i] = t->memory;
    }
    memcpy(l.params, params, pgd_cuda_kernels[kernel].params_bytes);
    return t->driver->launch(t->host, t->queue, &l);
}

static pgd_status pack(const trial *t, const layout *l) {
    const pgd_cuda_kernel *k = &pgd_cuda_kernels[PGD_CUDA_pack_x];
    kc_pack_x_params p = {.x = {.at = (int64_t)l->x, .s0 = K, .dtype = t->dtype},
                          .out_at = (int64_t)l->packed,
                          .out_s0 = STEPS * KC_STEP,
                          .rows = {.n = ROWS},
                          .n = K,
                          .dtype = t->dtype};
    PGD_TRY(launch(t, PGD_CUDA_pack_x, gpu_ceil(STEPS * KC_STEP, k->columns), ROWS, 2, &p));
    k = &pgd_cuda_kernels[PGD_CUDA_pack_x_cores];
    p.out_at = (int64_t)l->cores;
    p.out_s0 = CORES_ROWS * KC_STEP;
    return launch(t, PGD_CUDA_pack_x_cores, gpu_ceil(STEPS * KC_STEP, k->columns),
                  gpu_ceil(ROWS, k->rows), 2, &p);
}

static pgd_status multiply(const trial *t, const layout *l) {
    static const int32_t kernels[2][N_RESULTS] = {
        {PGD_CUDA_gemm_large_bf16_t128, PGD_CUDA_gemm_wgmma_bf16_t64, PGD_CUDA_gemm_wgmma_bf16_t128,
         PGD_CUDA_gemm_wgmma_bf16_t192},
        {PGD_CUDA_gemm_large_f16_t128, PGD_CUDA_gemm_wgmma_f16_t64, PGD_CUDA_gemm_wgmma_f16_t128,
         PGD_CUDA_gemm_wgmma_f16_t192},
    };
    for (int i = 0; i < N_RESULTS; i++) {
        const int32_t kernel = kernels[t->dtype != PGD_BF16][i];
        const uint32_t rows = gpu_ceil(ROWS, pgd_cuda_kernels[kernel].rows);
        const uint32_t columns = gpu_ceil(PANELS, 16);
        const kc_gemm_params p = {.g = {.w = {.at = (int64_t)l->w,
                                              .n = N,
                                              .k = K,
                                              .format = t->dtype,
                                              .layout = K_LAYOUT_PANELS},
                                        .x = {.at = (int64_t)(i == 0 ? l->packed : l->cores),
                                              .s0 = i == 0 ? STEPS * KC_STEP : CORES_ROWS * KC_STEP,
                                              .dtype = t->dtype},
                                        .y = {.at = (int64_t)l->y[i], .s0 = N, .dtype = PGD_F32},
                                        .rows = {.n = ROWS},
                                        .alpha = 1.0f},
                                  .slice = SLICE,
                                  .n_slices = (K + SLICE - 1) / SLICE,
                                  .panels = PANELS,
                                  .is_trial = 1};
        // What a kernel does not write differs from what the others leave.
        PGD_TRY(t->driver->fill(t->host, t->queue, t->memory, l->y[i], N_RESULT * sizeof(float),
                                0x7f800001u + (uint32_t)i));
        PGD_TRY(launch(t, kernel, i == 0 ? columns : rows, i == 0 ? rows : columns, 5, &p));
    }
    return PGD_OK;
}

// Sums of both kinds into t->results.
static pgd_status run(trial *t) {
    const layout l = layout_of();
    const gpu_copy up = {.dst = t->memory,
                         .dst_offset = l.w,
                         .src_offset = (uint64_t)(uintptr_t)t->numbers,
                         .bytes = (uint64_t)PANELS * K * 16,
                         .rows = 1};
    gpu_copy up_x = up;
    up_x.dst_offset = l.x;
    up_x.src_offset += up.bytes;
    up_x.bytes = (uint64_t)ROWS * K * 2;
    draw(t);
    PGD_TRY(t->driver->copy(t->host, t->queue, &up));
    PGD_TRY(t->driver->copy(t->host, t->queue, &up_x));
    PGD_TRY(pack(t, &l));
    PGD_TRY(multiply(t, &l));
    for (int i = 0; i < N_RESULTS; i++) {
        const gpu_copy down = {.dst_offset = (uint64_t)(uintptr_t)(t->results + i * N_RESULT),
                               .src = t->memory,
                               .src_offset = l.y[i],
                               .bytes = N_RESULT * sizeof(float),
                               .rows = 1};
        PGD_TRY(t->driver->copy(t->host, t->queue, &down));
    }
    PGD_TRY(t->driver->point(t->host, t->queue, 0));
    return t->driver->point_wait(t->host, t->queue, 0, WAIT_NS);
}

static bool are_equal(const float *results) {
    for (int i = 1; i < N_RESULTS; i++) {
        if (memcmp(results, results + i * N_RESULT, N_RESULT * sizeof(float)) != 0) {
            return false;
        }
    }
    return true;
}

static bool try_both(trial *t, void *device) {
    bool good = false;
    t->numbers = t->host->alloc(t->host, N_NUMBERS * sizeof(uint16_t), 0);
    t->results = t->host->alloc(t->host, N_RESULTS * N_RESULT * sizeof(float), 0);
    if (t->numbers == NULL || t->results == NULL ||
        t->driver->create(t->host, device, layout_of().bytes, PGD_PLACE_DEVICE, &t->memory) !=
            PGD_OK) {
        t->memory = NULL;
    } else if (t->driver->queue_create(t->host, device, PGD_QUEUE_COMPUTE, &t->queue) == PGD_OK) {
        good = true;
        for (int i = 0; i < 2 && good; i++) {
            t->dtype = i == 0 ? PGD_BF16 : PGD_F16;
            good = run(t) == PGD_OK && are_equal(t->results);
        }
        t->driver->queue_destroy(t->host, t->queue); // waits for what still runs
    }
    if (t->memory != NULL) {
        t->driver->destroy(t->host, device, t->memory);
    }
    t->host->free(t->host, t->results);
    t->host->free(t->host, t->numbers);
    return good;
}

const gpu_tuned *cuda_better(const pgd_host *host, const gpu_driver *driver, void *device,
                             const gpu_device_facts *facts) {
    const char *wanted = host->option == NULL ? NULL : host->option(host, "wgmma");
    trial t = {.host = host, .driver = driver};
    if (cuda_capability(facts->arch) != CAPABILITY ||
        (wanted != NULL && strcmp(wanted, "off") == 0)) {
        return NULL;
    }
    const uint64_t from = host->clock_ns == NULL ? 0 : host->clock_ns(host);
    const bool good = try_both(&t, device);
    const uint64_t took = host->clock_ns == NULL ? 0 : host->clock_ns(host) - from;
    char text[160];
    snprintf(text, sizeof(text),
             good ? "products by wgmma have the bits of those by mma.sync (tried in %u us)"
                  : "products by wgmma have other bits than those by mma.sync on this device, or "
                    "did not run (tried in %u us): mma.sync for all of them",
             (unsigned)(took / 1000));
    if (host->log != NULL) {
        host->log(host, good ? PGD_LOG_INFO : PGD_LOG_WARNING, text);
    }
    return good ? &cuda_hopper_tuned : NULL;
}
