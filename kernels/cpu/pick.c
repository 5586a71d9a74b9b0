// Chooses a table of kernels by what the processor and the system can run.
#include "kernels.h"

#include <string.h>

#include <pagoda/types.h>

#if defined(__x86_64__)
#include <cpuid.h>
#define PGD_CPU_X86 1
#else
#define PGD_CPU_X86 0
#endif

#define PGD_CPU_KERNEL(name, result, params) .name = name##__scalar,
static const pgd_cpu_kernels scalar_table = {
    .isa = "scalar",
    .dot_bytes = 4,
#include "list.inc"
};

#if PGD_CPU_X86
#define PGD_CPU_KERNEL(name, result, params) .name = name##__avx2,
static const pgd_cpu_kernels avx2_table = {
    .isa = "avx2",
    .dot_bytes = 4,
#include "list.inc"
};

#define PGD_CPU_KERNEL(name, result, params)      .name = name##__avx2,
#define PGD_CPU_KERNEL_INT8(name, result, params) .name = name##__avx2_vnni,
static const pgd_cpu_kernels avx2_vnni_table = {
    .isa = "avx2_vnni",
    .dot_bytes = 4,
#include "list.inc"
};

#define PGD_CPU_KERNEL(name, result, params) .name = name##__avx512,
static const pgd_cpu_kernels avx512_table = {
    .isa = "avx512",
    .dot_bytes = 4,
#include "list.inc"
};

#define PGD_CPU_KERNEL(name, result, params)      .name = name##__avx512,
#define PGD_CPU_KERNEL_INT8(name, result, params) .name = name##__avx512_vnni,
static const pgd_cpu_kernels avx512_vnni_table = {
    .isa = "avx512_vnni",
    .dot_bytes = 4,
#include "list.inc"
};

#define PGD_CPU_KERNEL(name, result, params)      .name = name##__avx512,
#define PGD_CPU_KERNEL_INT8(name, result, params) .name = name##__avx512_vnni,
#define PGD_CPU_KERNEL_DOT(name, result, params)  .name = name##__avx512_bf16,
static const pgd_cpu_kernels avx512_bf16_table = {
    .isa = "avx512_bf16",
    .dot_bytes = 2,
#include "list.inc"
};

#define PGD_CPU_KERNEL(name, result, params)      .name = name##__avx512,
#define PGD_CPU_KERNEL_INT8(name, result, params) .name = name##__amx,
#define PGD_CPU_KERNEL_DOT(name, result, params)  .name = name##__avx512_bf16,
#define PGD_CPU_PRODUCT(name, w, x)               .name = name##__avx512,
#define PGD_CPU_PRODUCT_DOT(name, w, x)           .name = name##__amx,
static const pgd_cpu_kernels amx_table = {
    .isa = "amx",
    .dot_bytes = 2,
#include "list.inc"
};
#endif

#if PGD_CPU_X86
// What CPUID says (Intel SDM volume 2, CPUID), cut by the registers that the system saves (XGETBV).
// Asked directly: the compiler's own builtin brings a static constructor.
typedef struct features {
    int avx2;      // AVX2, FMA, F16C
    int avx2_vnni; // AVX_VNNI
    int avx512;    // F, BW, VL, DQ
    int vnni;      // AVX512_VNNI
    int bf16;      // AVX512_BF16, vnni
    int fast;      // bf16, and vdpbf16ps does more than two multiply-adds of f32
    int amx;       // bf16, AMX_TILE, AMX_BF16, AMX_INT8, and this process may use them
} features;

static unsigned saved_registers(void) {
    unsigned low = 0;
    unsigned high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static features look(void) {
    const unsigned leaf1 = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29; // FMA, OSXSAVE, AVX, F16C
    const unsigned leaf7 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; // F, DQ, BW, VL
    const unsigned amx = 1u << 22 | 1u << 24 | 1u << 25;              // AMX_BF16, TILE, INT8
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    features f = {0};
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1) != leaf1) {
        return f;
    }
    const unsigned saved = saved_registers();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (saved & 0x6) != 0x6) { // xmm, ymm
        return f;
    }
    f.avx2 = (b & 1u << 5) != 0;
    f.avx512 = f.avx2 && (b & leaf7) == leaf7 && (saved & 0xe0) == 0xe0; // masks, zmm
    f.vnni = f.avx512 && (c & 1u << 11) != 0;
    f.avx2_vnni = f.avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4) != 0;
    f.bf16 = f.vnni && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5) != 0;
    // On Zen 4 and 5 it is twice as fast as f32; on Sapphire and Emerald Rapids, where AMX is meant
    // for bf16, two cycles an instruction make it half as fast: f32 gives the same bits sooner.
    f.fast = f.bf16 && __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx;
    f.amx = f.bf16 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & amx) == amx &&
            (saved & 0x60000) == 0x60000 && pgd_cpu_ask_for_tiles(); // tile config, tile data
    return f;
}
#endif

const char *const pgd_cpu_isas[] = {"scalar",      "avx2",        "avx2_vnni", "avx512",
                                    "avx512_vnni", "avx512_bf16", "amx",       NULL};

#define PGD_CPU_KERNEL(name, result, params)
#define PGD_CPU_PRODUCT(name, w, x)     {#name, w, x, offsetof(pgd_cpu_kernels, name)},
#define PGD_CPU_PRODUCT_DOT(name, w, x) {#name, w, x, offsetof(pgd_cpu_kernels, name)},
const pgd_cpu_product pgd_cpu_products[] = {
#include "list.inc"
    {NULL, 0, 0, 0},
};

#define PGD_CPU_KERNEL(name, result, params)
#define PGD_CPU_QUANT_PRODUCT(name, scheme) {#name, scheme, 0, offsetof(pgd_cpu_kernels, name)},
const pgd_cpu_quant_product pgd_cpu_quant_products[] = {
#include "list.inc"
    {NULL, 0, 0, 0},
};

pgd_cpu_product_fn pgd_cpu_quant_product_of(const pgd_cpu_kernels *k, int32_t scheme) {
    pgd_cpu_product_fn fn = NULL;
    for (const pgd_cpu_quant_product *p = pgd_cpu_quant_products; p->name != NULL; p++) {
        if (p->scheme == scheme) {
            memcpy((void *)&fn, (const char *)k + p->slot, sizeof(fn));
        }
    }
    return fn;
}

pgd_cpu_product_fn pgd_cpu_product_at(const pgd_cpu_kernels *k, const pgd_cpu_product *product) {
    pgd_cpu_product_fn fn = NULL;
    memcpy((void *)&fn, (const char *)k + product->slot, sizeof(fn));
    return fn;
}

const pgd_cpu_kernels *pgd_cpu_pick(const char *isa) {
    int any = isa == NULL || strcmp(isa, "auto") == 0;
#if PGD_CPU_X86
    if ((any || strcmp(isa, "amx") == 0) && look().amx) {
        return &amx_table;
    }
    if (any ? look().fast : strcmp(isa, "avx512_bf16") == 0 && look().bf16) {
        return &avx512_bf16_table;
    }
    if ((any || strcmp(isa, "avx512_vnni") == 0) && look().vnni) {
        return &avx512_vnni_table;
    }
    if ((any || strcmp(isa, "avx512") == 0) && look().avx512) {
        return &avx512_table;
    }
    if ((any || strcmp(isa, "avx2_vnni") == 0) && look().avx2_vnni) {
        return &avx2_vnni_table;
    }
    if ((any || strcmp(isa, "avx2") == 0) && look().avx2) {
        return &avx2_table;
    }
#endif
    if (any || strcmp(isa, "scalar") == 0) {
        return &scalar_table;
    }
    return NULL;
}

int pgd_cpu_dot_pays(const pgd_cpu_kernels *k) {
#if PGD_CPU_X86
    return k == &amx_table || (k == &avx512_bf16_table && look().fast);
#else
    (void)k;
    return 0;
#endif
}
