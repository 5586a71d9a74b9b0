// The data sheet: what the device does, in Markdown.
#include "conform.h"

#include "os/file.h"

static const char *const op_names[PGD_OP_COUNT] = {
#define NAME(name, family) #name,
    PGD_OP_LIST(NAME)
#undef NAME
};

static pgd_status add_head(pgd_text *t, const conform_options *o, const conform_shared *shared) {
    const pgd_device_info *info = &shared->sheet.info;
    const int32_t reached = o->n_only > 0 ? -1 : conform_reached(o, shared);
    PGD_TRY(pgd_text_format(t, "# %s\n\n| | |\n|---|---|\n| plugin | %s |\n",
                            shared->sheet.seen ? info->name : "A device that does not open",
                            o->plugin));
    PGD_TRY(pgd_text_format(t, "| interface | %d.%d |\n", PGD_ABI_MAJOR, PGD_ABI_MINOR));
    if (reached >= 0) {
        PGD_TRY(pgd_text_format(t, "| level reached | %d, %s (asked for: %d) |\n", (int)reached,
                                conform_level_names[reached], (int)o->level));
    } else {
        PGD_TRY(pgd_text_format(t, "| level reached | none |\n"));
    }
    if (shared->sheet.seen) {
        PGD_TRY(pgd_text_format(
            t, "| memory | %llu MiB |\n| bandwidth, as it says | %.1f GB/s |\n| units | %u |\n",
            (unsigned long long)(info->bytes >> 20), (double)info->bytes_per_s * 1e-9,
            (unsigned)info->units));
        PGD_TRY(pgd_text_format(t, "| activations, cache | %s, %s |\n",
                                pgd_dtype_name(info->act_dtype), pgd_dtype_name(info->kv_dtype)));
    }
    return PGD_OK;
}

static pgd_status add_ops(pgd_text *t, const conform_sheet *s) {
    PGD_TRY(pgd_text_format(
        t, "\n## Operations\n\nCases by place, and by dtype the largest error against the "
           "reference: in units of the last place of\nthe row's largest number (ULP), and as sum "
           "of squares over sum of squares (NMSE).\n\n"
           "| operation | native | composed | reference | with copies | batch-invariant | f32 | "
           "bf16 | f16 |\n|---|---|---|---|---|---|---|---|---|\n"));
    for (int32_t op = 0; op < PGD_OP_COUNT; op++) {
        const int32_t *p = s->places[op];
        const int32_t cases = p[0] + p[1] + p[2] + p[3];
        if (cases == 0) {
            continue;
        }
        PGD_TRY(pgd_text_format(t, "| %s | %d | %d | %d | %d | %s |", op_names[op], (int)p[0],
                                (int)p[1], (int)p[2], (int)p[3],
                                s->variant[op] == 0       ? "declared"
                                : s->variant[op] == cases ? "no"
                                                          : "in part"));
        for (int32_t dtype = PGD_F32; dtype <= PGD_F16; dtype++) {
            const conform_cell *cell = &s->cells[op][dtype];
            if (cell->cases == 0) {
                PGD_TRY(pgd_text_format(t, " - |"));
            } else if (cell->ulp == 0 && cell->wrong == 0) {
                PGD_TRY(pgd_text_format(t, " exact |"));
            } else {
                PGD_TRY(pgd_text_format(t, " %.2f ULP, %.1e%s |", cell->ulp, cell->nmse,
                                        cell->wrong > 0 ? " **wrong**" : ""));
            }
        }
        PGD_TRY(pgd_text_format(t, "\n"));
    }
    return PGD_OK;
}

static pgd_status add_rest(pgd_text *t, const conform_options *o, const conform_shared *shared) {
    const conform_sheet *s = &shared->sheet;
    if (s->n_rates > 0) {
        PGD_TRY(pgd_text_format(t, "\n## Speed\n\n| what | measured |\n|---|---|\n"));
    }
    for (int32_t i = 0; i < s->n_rates; i++) {
        PGD_TRY(pgd_text_format(t, "| %s | %s |\n", s->rates[i].name, s->rates[i].text));
    }
    PGD_TRY(pgd_text_format(t, "\n## Checks\n\n| level | check | result | |\n|---|---|---|---|\n"));
    for (int32_t i = 0; i < conform_n_checks; i++) {
        const conform_check *check = &conform_checks[i];
        if (check->level <= o->level && conform_wanted(o, check)) {
            PGD_TRY(pgd_text_format(t, "| %d | %s | %s | %s |\n", (int)check->level, check->name,
                                    conform_state_name(shared->results[i].state),
                                    shared->results[i].note));
        }
    }
    return PGD_OK;
}

pgd_status conform_write_sheet(const conform_options *o, const conform_shared *shared) {
    pgd_text t = {0};
    pgd_os_file f = {-1};
    pgd_status code;
    PGD_TRY(add_head(&t, o, shared));
    PGD_TRY(add_ops(&t, &shared->sheet));
    PGD_TRY(add_rest(&t, o, shared));
    code = pgd_os_open_write(o->sheet, 0, &f);
    if (code == PGD_OK) {
        code = pgd_os_write(f, t.ptr, t.len);
        pgd_os_close(&f);
    }
    pgd_text_free(&t);
    return code == PGD_OK ? code : pgd_fail(code, "%s cannot be written", o->sheet);
}
