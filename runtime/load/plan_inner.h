// What the files of the plan share.
#ifndef PGD_LOAD_PLAN_INNER_H
#define PGD_LOAD_PLAN_INNER_H

#include "load/plan.h"

struct pgd_load_plan_inner {
    int32_t n_layers;
    uint32_t vectors_per_layer;
    uint32_t n_copies;
    uint32_t reserved0;
    const pgd_load_weights *weights;
    void **copies; // data of tensors that the file does not align to their element
    struct pgd_load_quantized *quantized; // NULL: matrices as they are stored
};

// quantize.c: the numbers of a matrix that is made from stored ones; 0 in *out_made when it is not.
pgd_status pgd_load_quantized_take(const pgd_load_plan *plan, const pgd_load_matrix *matrix,
                                   int32_t *out_made) PGD_MUST_USE;
int32_t pgd_load_quantized_give(const pgd_load_plan *plan, const pgd_load_matrix *matrix);
void pgd_load_quantized_free(struct pgd_load_quantized *q); // NULL is fine

#endif
