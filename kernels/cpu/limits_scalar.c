// Limits of the base processor: four-wide vectors of the compiler's own, product and sum apart.
#include "limits.h"

typedef float four __attribute__((vector_size(16)));

void f32_dot_peak__scalar(int64_t n) {
    four acc[8] = {{0}};
    four x = {0, 0, 0, 0};
    four y = {0, 0, 0, 0};
    for (int64_t i = 0; i < n; i++) {
        for (int j = 0; j < 8; j++) {
            __asm__ volatile("" : "+m"(x));
            acc[j] += x * y;
        }
    }
    __asm__ volatile("" : : "m"(acc));
}

uint64_t read_peak__scalar(const void *ptr, int64_t bytes) {
    typedef uint64_t two __attribute__((vector_size(16)));
    const two *p = ptr;
    two a = {0, 0};
    two b = a;
    two c = a;
    two d = a;
    for (int64_t i = 0; i < bytes / 16; i += 4) {
        a += p[i];
        b += p[i + 1];
        c += p[i + 2];
        d += p[i + 3];
    }
    a = (a + b) + (c + d);
    return a[0] + a[1];
}
