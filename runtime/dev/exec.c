// How ops run: the queue, the scratch of native ops and the host room of reference ops.
#include "dev/inner.h"

#include "base/fail.h"
#include "base/mem.h"

pgd_status pgd_dev_exec_create(pgd_dev *dev, pgd_queue *queue, uint64_t scratch_bytes,
                               pgd_exec **out) {
    *out = NULL;
    pgd_dev_exec *x = pgd_mem_alloc(1, sizeof(*x));
    if (x == NULL) {
        return PGD_MEM_FAIL("an exec", sizeof(*x));
    }
    x->dev = dev;
    x->exec = (pgd_exec){.size = sizeof(pgd_exec), .dev = &dev->device, .queue = queue};
    if (scratch_bytes > 0) {
        pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = scratch_bytes};
        pgd_dev_listen();
        pgd_status code = dev->merged.memory.create(&dev->device, &desc, &x->exec.scratch.buffer);
        if (code != PGD_OK) {
            pgd_mem_free(x);
            return pgd_fail_note(code, "while device %s was to give %llu bytes of scratch",
                                 dev->uri, (unsigned long long)scratch_bytes);
        }
        x->exec.scratch.bytes = scratch_bytes;
    }
    *out = &x->exec;
    return PGD_OK;
}

void pgd_dev_exec_destroy(pgd_dev *dev, pgd_exec *exec) {
    if (exec == NULL) {
        return;
    }
    pgd_dev_exec *x = (pgd_dev_exec *)exec;
    dev->merged.memory.destroy(&dev->device, x->exec.scratch.buffer);
    pgd_mem_free(x->stage);
    pgd_mem_free(x);
}
