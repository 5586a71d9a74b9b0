// A fuzz target under libFuzzer.
#include "base/fail.h"
#include "base/mem.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pgd_status status = fuzz_one(data, size);
    FUZZ_CHECK(status == PGD_OK || pgd_fail_text(status)[0] != '\0');
    FUZZ_CHECK(pgd_mem_live() == 0);
    return 0;
}
