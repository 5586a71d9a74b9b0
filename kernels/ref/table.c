// The reference ops as one table.
#include "ref/ref.h"

const pgd_ops *pgd_ref_ops(void) {
    static const pgd_ops ops = {.size = sizeof(pgd_ops),
#define PGD_REF_SLOT(name, family) .name = pgd_ref_##name,
                                PGD_OP_LIST(PGD_REF_SLOT)
#undef PGD_REF_SLOT
    };
    return &ops;
}
