// What a kernel for sm_90a may say beside dialect.h, in the same two languages: products of a
// warpgroup (wgmma), barriers in shared memory (mbarrier) and copies that end at them (bulk
// cp.async). The file is empty for other chips.
//
// **A matrix in shared memory** is told by a descriptor: its address and two strides, no swizzle.
// It is made of cores of 8 x 16 bytes that are 128 bytes in a row:
//
//   A, M-major (transposed)   a core is 8 k, each of them 8 neighbours of M: 128 bytes of a panel
//   B, K-major                a core is 8 rows, each of them 8 neighbours of k
//
//   lead    bytes from a core to the next along k, stride along M or N; the same for both
//   source  PTX ISA 9.7.15.5.1.2, canonical layouts without swizzling:
//           MN-major ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO)), K-major ((8,m),(T,2)):((1T,SBO),(1,LBO))
//
// **An accumulator** of m64nN: lane (g, t) of warp w holds row 16 w + g + 8 h, column 8 j + 2 t + e
// in register 4 j + 2 h + e.
//
// **A gate** is an mbarrier: `count` arrivals and all bytes that were announced end a phase; phases
// have parity 0, 1, 0 ... Whoever waits for parity 1 at first goes on at once.
#ifndef PGD_KERNELS_CUDA_HOPPER_H
#define PGD_KERNELS_CUDA_HOPPER_H

#include "cuda/dialect.h"

#if defined(KC_HAS_HOPPER)

// Attempts of all waits of an item that fail before it gives up: seconds, so that what would never
// end is wrong instead.
#define KC_PATIENCE (1 << 22)

#if defined(K_CUDA)

K_FN void kc_gate_init(k_u64 *gate, k_i32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(kc_shared_address(gate)),
                 "r"(count)
                 : "memory");
}
// What this item wrote to shared memory is seen by copies and products, after the next barrier.
K_FN void kc_hand_over(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
K_FN void kc_gate_arrive(k_u64 *gate) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(kc_shared_address(gate))
                 : "memory");
}
// Arrives and announces bytes of kc_bulk.
K_FN void kc_gate_expect(k_u64 *gate, k_i32 bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(kc_shared_address(gate)),
        "r"(bytes)
        : "memory");
}
// Returns when the phase of that parity has ended, with what is left of the patience: attempts, 0
// when it was given up.
K_FN k_i32 kc_gate_wait(k_u64 *gate, k_i32 parity, k_i32 patience) {
    asm volatile("{\n.reg .pred p;\n"
                 "again:\n"
                 "setp.le.s32 p, %0, 0;\n"
                 "@p bra over;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "@p bra over;\n"
                 "sub.s32 %0, %0, 1;\n"
                 "bra again;\n"
                 "over:\n}"
                 : "+r"(patience)
                 : "r"(kc_shared_address(gate)), "r"(parity)
                 : "memory");
    return patience;
}
// bytes, both addresses: multiples of 16.
K_FN void kc_bulk(k_u8 *to, const k_u8 *from, k_i32 bytes, k_u64 *gate) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(kc_shared_address(to)),
                 "l"(from), "r"(bytes), "r"(kc_shared_address(gate))
                 : "memory");
}
// [warp] All lanes are here, and see what the others wrote.
K_FN void kc_warp(void) {
    __syncwarp();
}
// [items 0 to 255] All of them are here.
K_FN void kc_pair_sync(void) {
    asm volatile("bar.sync 1, 256;" ::: "memory");
}
// [warpgroup] Registers of its items, n a multiple of 8: fewer, or more once others gave them away.
#define kc_fewer_registers(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#define kc_more_registers(n)  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
K_FN void kc_give_up(void) {
    __trap();
}
// KC_WARP, and the compiler knows that a warp has one.
K_FN k_i32 kc_warp_number(void) {
    return __shfl_sync(0xffffffffu, KC_WARP, 0);
}
// [warpgroup] Before the first product, and after registers of an accumulator were written.
K_FN void kc_group_fence(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
K_FN void kc_group_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// [warpgroup] All but the n groups committed last have ended.
#define kc_group_wait(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
// After kc_group_wait(0): registers may be read from here on, not before.
#define KC_ARRIVED(d, n)                                 \
    KC_UNROLL                                            \
    for (k_i32 arrived = 0; arrived < (n); arrived++) {  \
        asm volatile("" : "+f"((d)[arrived])::"memory"); \
    }

#define KC_4(d, i)  "+f"((d)[i]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3])
#define KC_16(d, i) KC_4(d, i), KC_4(d, (i) + 4), KC_4(d, (i) + 8), KC_4(d, (i) + 12)
#define KC_GROUP_32                                                                               \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
    "%25,%26,%27,%28,%29,%30,%31"
#define KC_GROUP_64                                                                             \
    KC_GROUP_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50," \
                "%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define KC_GROUP_96                                                                             \
    KC_GROUP_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82," \
                "%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
// [warpgroup] d = A B, + d if keep. A: 64 x 16, transposed; B: 16 x N.
#define KC_GROUP_PRODUCT(N, T, list, a_at, b_at, keep_at, ...)                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " keep_at ", 0;\n"                         \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." T "." T " " list "}, " a_at \
                 ", " b_at ", p, 1, 1, 1, 0;\n}"                                              \
                 : __VA_ARGS__                                                                \
                 : "l"(a), "l"(b), "r"(keep))
#define KC_GROUP_FNS(T)                                                                          \
    K_FN void kc_group_##T##_64(float *d, k_u64 a, k_u64 b, k_i32 keep) {                        \
        KC_GROUP_PRODUCT("64", #T, KC_GROUP_32, "%32", "%33", "%34", KC_16(d, 0), KC_16(d, 16)); \
    }                                                                                            \
    K_FN void kc_group_##T##_128(float *d, k_u64 a, k_u64 b, k_i32 keep) {                       \
        KC_GROUP_PRODUCT("128", #T, KC_GROUP_64, "%64", "%65", "%66", KC_16(d, 0), KC_16(d, 16), \
                         KC_16(d, 32), KC_16(d, 48));                                            \
    }                                                                                            \
    K_FN void kc_group_##T##_192(float *d, k_u64 a, k_u64 b, k_i32 keep) {                       \
        KC_GROUP_PRODUCT("192", #T, KC_GROUP_96, "%96", "%97", "%98", KC_16(d, 0), KC_16(d, 16), \
                         KC_16(d, 32), KC_16(d, 48), KC_16(d, 64), KC_16(d, 80));                \
    }
KC_GROUP_FNS(bf16)
KC_GROUP_FNS(f16)

#else
#include "cuda/emulated_hopper.h"
#endif

// The descriptor of a matrix; strides in bytes, multiples of 16 below 2^18. Another address behind
// it by n bytes: + n / 16.
K_FN k_u64 kc_matrix(const k_u8 *at, k_i32 lead, k_i32 stride) {
    return (k_u64)((kc_shared_address(at) & 0x3ffffu) >> 4) | (k_u64)(lead >> 4) << 16 |
           (k_u64)(stride >> 4) << 32;
}

#endif
#endif
