// How ops run: the queue, the scratch of native ops and the host room of reference ops; with layers
// one exec for each level, linked like the devices.
#include "dev/inner.h"

#include "base/fail.h"
#include "base/mem.h"

// Execs of all levels, the one of the filler between them.
static pgd_status link_levels(pgd_dev_exec *x) {
    const pgd_dev *dev = x->dev;
    if (dev->n_levels == 1) {
        return PGD_OK;
    }
    x->levels = pgd_mem_alloc(dev->n_levels, sizeof(*x->levels));
    if (x->levels == NULL) {
        return PGD_MEM_FAIL("the execs of layers", dev->n_levels * sizeof(*x->levels));
    }
    for (uint32_t i = 0; i < dev->n_levels; i++) {
        x->levels[i] = x->exec;
        x->levels[i].dev = &dev->levels[i].device;
        x->levels[i].next = i == 0 ? NULL : i == dev->n_below ? &x->exec : &x->levels[i - 1];
    }
    x->exec.next = dev->n_below > 1 ? &x->levels[dev->n_below - 2] : NULL;
    return PGD_OK;
}

static pgd_status make_scratch(pgd_dev_exec *x, uint64_t bytes) {
    const pgd_device *d = x->dev->top;
    const pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = bytes};
    pgd_dev_listen();
    pgd_status code = d->memory->create(d, &desc, &x->exec.scratch.buffer);
    x->exec.scratch.bytes = code == PGD_OK ? bytes : 0;
    return pgd_fail_note(code, "while device %s was to give %llu bytes of scratch", x->dev->uri,
                         (unsigned long long)bytes);
}

pgd_status pgd_dev_exec_create(pgd_dev *dev, pgd_queue *queue, uint64_t scratch_bytes,
                               pgd_exec **out) {
    *out = NULL;
    pgd_dev_exec *x = pgd_mem_alloc(1, sizeof(*x));
    if (x == NULL) {
        return PGD_MEM_FAIL("an exec", sizeof(*x));
    }
    x->dev = dev;
    x->exec = (pgd_exec){.size = sizeof(pgd_exec), .dev = &dev->device, .queue = queue};
    pgd_status status = scratch_bytes > 0 ? make_scratch(x, scratch_bytes) : PGD_OK;
    if (status == PGD_OK) {
        status = link_levels(x);
    }
    if (status != PGD_OK) {
        pgd_dev_exec_destroy(dev, &x->exec);
        return status;
    }
    *out = dev->n_levels > dev->n_below ? &x->levels[dev->n_levels - 1] : &x->exec;
    return PGD_OK;
}

void pgd_dev_exec_destroy(pgd_dev *dev, pgd_exec *exec) {
    if (exec == NULL) {
        return;
    }
    const pgd_exec *own = exec;
    while (own->dev != &dev->device) { // down from a TOP layer
        own = own->next;
    }
    pgd_dev_exec *x = (pgd_dev_exec *)(uintptr_t)own;
    dev->top->memory->destroy(dev->top, x->exec.scratch.buffer);
    pgd_mem_free(x->levels);
    pgd_mem_free(x->stage);
    pgd_mem_free(x);
}
