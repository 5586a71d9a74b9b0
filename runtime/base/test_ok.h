// For tests: a call that must succeed, else its text is the failure.
#ifndef PGD_BASE_TEST_OK_H
#define PGD_BASE_TEST_OK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fail.h"

#define OK(call)                                           \
    do {                                                   \
        pgd_status ok_ = (call);                           \
        if (ok_ != PGD_OK) {                               \
            fail_msg("%s: %s", #call, pgd_fail_text(ok_)); \
        }                                                  \
    } while (0)

#endif
