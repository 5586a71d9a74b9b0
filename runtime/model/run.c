// A step: eager, or by one of two graphs recorded at the start (with and without the head), which
// hold for every row count because addresses are fixed and live counts lie in the batch.
#include "model/inner.h"

static pgd_status record(pgd_model *m, const pgd_exec *x, int32_t with_head) {
    const pgd_graph_desc desc = {.size = sizeof(desc), .key = (uint64_t)with_head};
    pgd_graph *graph = NULL;
    pgd_status status = m->d->graph->begin(m->d, x->queue, &desc);
    if (status == PGD_UNSUPPORTED) {
        return PGD_OK;
    }
    PGD_TRY(status);
    status = pgd_model_llama_run(m, x, with_head);
    pgd_status ended = m->d->graph->end(m->d, x->queue, &graph);
    if (status != PGD_OK || ended != PGD_OK) {
        m->d->graph->destroy(m->d, graph);
        return status != PGD_OK ? status : ended;
    }
    m->graphs[with_head] = graph;
    return PGD_OK;
}

pgd_status pgd_model_record(pgd_model *m, const pgd_exec *x) {
    PGD_TRY(record(m, x, 0));
    return record(m, x, 1);
}

pgd_status pgd_model_run(const pgd_model *m, const pgd_exec *x, int32_t n_out) {
    pgd_graph *graph = m->graphs[n_out > 0];
    if (graph == NULL) {
        return pgd_model_llama_run(m, x, n_out);
    }
    return m->d->graph->launch(m->d, x->queue, graph);
}
