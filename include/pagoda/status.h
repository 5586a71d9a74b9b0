// Status codes: what every function of pagoda and of its plugins returns.
//
// A status is one 32-bit code. Its sentence is put once, where the fact is known, into a slot of
// the calling thread (the host's pgd_fail, a plugin's host->fail) and is read from there.
// Numbers are frozen: they cross the plugin boundary.
#ifndef PAGODA_STATUS_H
#define PAGODA_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t pgd_status;

// X(NAME, number, what it means)
#define PGD_STATUS_LIST(X)                                                       \
    X(OK, 0, "done")                                                             \
    X(CANCELLED, 1, "cancelled by the caller")                                   \
    X(INVALID, 2, "wrong argument or wrong input")                               \
    X(TIMEOUT, 3, "not done within the given time")                              \
    X(NOT_FOUND, 4, "no such thing")                                             \
    X(EXISTS, 5, "already there")                                                \
    X(DENIED, 6, "not allowed")                                                  \
    X(OUT_OF_MEMORY, 7, "not enough memory; nothing was changed")                \
    X(PRECONDITION, 8, "not possible in this state")                             \
    X(OUT_OF_RANGE, 9, "outside the allowed range")                              \
    X(UNSUPPORTED, 10, "not supported; nothing was changed")                     \
    X(INTERNAL, 11, "a fault of the program")                                    \
    X(UNAVAILABLE, 12, "not available at the moment")                            \
    X(DATA_LOSS, 13, "damaged or incomplete data")                               \
    X(DEVICE_LOST, 14, "the device is gone; every later call on it says so too") \
    X(INCOMPATIBLE, 15, "built for another version")

enum {
#define PGD_STATUS_ENUM(name, number, text) PGD_##name = number,
    PGD_STATUS_LIST(PGD_STATUS_ENUM)
#undef PGD_STATUS_ENUM
};

#if defined(__GNUC__) || defined(__clang__)
#define PGD_MUST_USE     __attribute__((warn_unused_result))
#define PGD_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define PGD_MUST_USE
#define PGD_PRINTF(f, a)
#endif

// Returns from the calling function when call does not give PGD_OK.
#define PGD_TRY(call)                        \
    do {                                     \
        pgd_status pgd_try_status_ = (call); \
        if (pgd_try_status_ != PGD_OK) {     \
            return pgd_try_status_;          \
        }                                    \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
