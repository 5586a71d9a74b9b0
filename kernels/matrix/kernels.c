// The units as a table.
#include "matrix/kernels.h"

const pgd_matrix_unit pgd_matrix_units[PGD_UNIT_COUNT] = {
#define PGD_MATRIX_ROW(unit, n_lanes, n_panels, few, many) \
    {.name = #unit,                                        \
     .lanes = (n_lanes),                                   \
     .panels = (n_panels),                                 \
     .few_items = (few),                                   \
     .many_items = (many),                                 \
     .few_panels = (few) / (n_lanes) * (n_panels)},
    PGD_MATRIX_UNITS(PGD_MATRIX_ROW)
#undef PGD_MATRIX_ROW
};
