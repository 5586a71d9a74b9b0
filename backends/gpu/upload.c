// A ring of pinned memory between a weight's pages on the host and the device.
//
//   pages --- the team copies its parts ---> slot --- the device copies ---> scratch, packed there
//
// Pages that are not in memory yet are read by as many threads as the team has, while the device
// takes the slots before. From pageable memory a driver copies by itself, on one thread, and the
// caller waits. A slot is filled again when the device has passed the number behind its copy.
#include <string.h>

#include "gpu.h"

enum { SLOTS = 4, SLOT_BYTES = 4 << 20 };

struct gpu_ring {
    pgd_buffer *buffer;
    unsigned char *host;
    uint32_t next;
    uint64_t passed[SLOTS]; // number of the queue behind the last copy from a slot
};

// Without memory that the host sees too there is no ring, and that is no failure.
static pgd_status ring_of(const pgd_device *d, pgd_queue *q, gpu_ring **out) {
    const pgd_buffer_desc desc = {
        .size = sizeof(desc), .place = PGD_PLACE_STAGING, .bytes = (uint64_t)SLOTS * SLOT_BYTES};
    void *host = NULL;
    *out = q->ring;
    if (q->ring != NULL || q->has_no_ring || gpu_of(d)->driver->map == NULL) {
        return PGD_OK;
    }
    gpu_ring *r = d->host->alloc(d->host, sizeof(*r), 0);
    if (r == NULL) {
        return GPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a ring");
    }
    pgd_status code = gpu_memory_table.create(d, &desc, &r->buffer);
    if (code == PGD_OK) {
        code = gpu_of(d)->driver->map(d->host, gpu_of(d)->device, r->buffer->memory, &host);
        if (code != PGD_OK) {
            gpu_memory_table.destroy(d, r->buffer);
        }
    }
    if (code != PGD_OK) {
        d->host->free(d->host, r);
        q->has_no_ring = code == PGD_UNSUPPORTED;
        return q->has_no_ring ? PGD_OK : code;
    }
    r->host = host;
    *out = q->ring = r;
    return PGD_OK;
}

void gpu_ring_destroy(const pgd_device *d, gpu_ring *r) {
    if (r != NULL) {
        gpu_memory_table.destroy(d, r->buffer);
        d->host->free(d->host, r);
    }
}

// Rows from memory of the host, one behind the other.
typedef struct gathering {
    unsigned char *to;
    const unsigned char *from;
    uint64_t bytes; // of a row
    uint64_t pitch;
    uint64_t rows;
} gathering;

static void gather(void *arg, uint32_t worker, uint32_t n_workers) {
    const gathering *g = arg;
    const uint64_t first = g->rows * worker / n_workers;
    const uint64_t end = g->rows * (worker + 1) / n_workers;
    if (g->pitch == g->bytes) {
        memcpy(g->to + first * g->bytes, g->from + first * g->bytes, (end - first) * g->bytes);
        return;
    }
    for (uint64_t r = first; r < end; r++) {
        memcpy(g->to + r * g->bytes, g->from + r * g->pitch, g->bytes);
    }
}

pgd_status gpu_upload_most(const pgd_device *d, pgd_queue *q, uint64_t bytes, int64_t *out_rows) {
    gpu_ring *r = NULL;
    PGD_TRY(ring_of(d, q, &r));
    *out_rows = r == NULL ? 0 : (int64_t)(SLOT_BYTES / bytes);
    return PGD_OK;
}

pgd_status gpu_upload(const pgd_device *d, pgd_queue *q, const gpu_upload_rows *u) {
    gpu_ring *r = q->ring;
    const uint32_t slot = r->next++ % SLOTS;
    const uint64_t at = (uint64_t)slot * SLOT_BYTES;
    gathering g = {
        .to = r->host + at, .from = u->from, .bytes = u->bytes, .pitch = u->pitch, .rows = u->rows};
    const pgd_copy copy = {.dst = u->to,
                           .dst_offset = u->to_offset,
                           .src_offset = (uint64_t)(uintptr_t)g.to,
                           .bytes = u->bytes * u->rows,
                           .rows = 1};
    PGD_TRY(gpu_queue_table.host_wait(d, q, r->passed[slot], PGD_WAIT_FOREVER));
    if (d->host->team_run != NULL) {
        d->host->team_run(d->host, gather, &g);
    } else {
        gather(&g, 0, 1);
    }
    PGD_TRY(gpu_copy_now(d, q, &copy, 1));
    return gpu_queue_table.signal(d, q, &r->passed[slot]);
}
