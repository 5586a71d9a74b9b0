"""What is spoilt in each mutant of the good plugin, and the check that must say so first.

Those with late=True were written when the tool was finished; README.md says what they found.
"""
from collections import namedtuple

Mutant = namedtuple("Mutant", "name check file old new link late", defaults=((), False))
MUTANTS = []


def add(name, check, file, old, new, **more):
    MUTANTS.append(Mutant(name, check, file, old, new, **more))


OPEN = "    self->state = 12345;\n"  # in plugin_open
END = "    (void)host_minor;\n    return &plugin;\n}\n"  # of good.c
TOP = "#include <pagoda/plugin.h>\n"
PLACED = "    place_all(e);\n"  # in good_run_op: args are the op's own copy, in host memory


def opens(name, check, code, head=""):
    """Code that runs when the plugin is opened."""
    add(name, check, "good.c", OPEN, OPEN + head + "    " + code + "\n")


def runs(name, check, op, code):
    """Code that changes the args or the batch of one operation before it runs."""
    add(name, check, "ops.c", PLACED,
        PLACED + f"    if (e->op == PGD_OP_{op}) {{ pgd_{op}_args *a = &e->args.{op}; (void)a; "
        f"{code} }}\n")


# ---- level 0 ------------------------------------------------------------------------------------
add("second_symbol", "loads.symbols", "good.c", END,
    END + "PGD_EXPORT int good_extra(void) { return 1; }\n")
add("constructor", "loads.constructors", "good.c", END,
    END + "static volatile int x;\n"
    "__attribute__((constructor)) static void early(void) { x = 1; }\n")
add("linked_library", "loads.dependencies", "good.c", END, END,
    link=("-Wl,--no-as-needed", "-lcrypto"))
add("manifest_version", "loads.truth", "libpgd-good.json", '"version": "0.1.0"',
    '"version": "0.2.0"')
add("manifest_minor", "loads.truth", "libpgd-good.json", '"minor": 2', '"minor": 1')
add("manifest_option", "loads.truth", "libpgd-good.json", '"options": []',
    '"options": [{"key": "x", "type": "int", "default": "1", "help": "h"}]')
add("manifest_torn", "loads.manifest", "libpgd-good.json", '"kind": "good",', "")
add("probe_without_reason", "loads.probe", "good.c", ".n_devices = 1};\n    (void)host;",
    ".n_devices = 0};\n    (void)host;")
add("overruns_old_host", "loads.sizes", "good.c",
    "    (void)backend;\n    (void)i;\n    PGD_OUT(out, local);",
    "    (void)backend;\n    (void)i;\n    *out = local;")
add("dtype_not_listed", "loads.info", "good.c", ".act_dtype = PGD_F32", ".act_dtype = PGD_I32")
add("family_hole", "loads.families", "good.c",
    ".destroy = weight_destroy};", ".destroy = weight_destroy ? NULL : NULL};")
opens("prints", "loads.silent", 'extern int puts(const char *); puts("good: hello");')
opens("exits", "loads.silent", "exit(0);")
opens("sets_locale", "loads.manners",
      'extern char *setlocale(int, const char *); setlocale(6, "C.UTF-8");')
opens("sets_signal", "loads.manners",
      "extern void (*signal(int, void (*)(int)))(int); signal(15, (void (*)(int))1);")
opens("sets_rounding", "loads.manners", "extern int fesetround(int); fesetround(0xc00);")
opens("sets_environment", "loads.manners", 'setenv("GOOD", "1", 1);')
add("thread_left", "loads.manners", "good.c", OPEN, OPEN +
    "    static pthread_t t; pthread_create(&t, NULL, idle, NULL);\n")
MUTANTS[-1] = MUTANTS[-1]._replace(
    old="static void plugin_close(void *backend) {\n    good_backend *self = backend;\n",
    new="#include <pthread.h>\n#include <unistd.h>\n"
        "static void *idle(void *p) { for (;;) { pause(); } return p; }\n"
        "static void plugin_close(void *backend) {\n    good_backend *self = backend;\n"
        "    pthread_t t; pthread_create(&t, NULL, idle, NULL);\n")
opens("descriptor_left", "loads.manners",
      'extern int open(const char *, int, ...); open("/dev/null", 0);')
opens("backend_leaks", "loads.open_close", "host->alloc(host, 64, 0);")
opens("heap_leaks", "loads.open_close", "*(volatile char *)malloc(64) = 1;")

# ---- level 1 ------------------------------------------------------------------------------------
add("not_zeroed", "memory.buffers", "good.c", "    *out = b;\n    return PGD_OK;\n}\n\n"
    "static void memory_destroy", "    b->mem[desc->bytes / 2] = 1;\n    *out = b;\n"
    "    return PGD_OK;\n}\n\nstatic void memory_destroy")
add("import_shifted", "memory.import", "good.c", "b->mem = (unsigned char *)(uintptr_t)ptr;",
    "b->mem = (unsigned char *)(uintptr_t)ptr + 1;")
add("partial_effect", "memory.no_memory", "good.c",
    "        d->host->free(d->host, b);\n        return FAIL(d, PGD_OUT_OF_MEMORY",
    "        return FAIL(d, PGD_OUT_OF_MEMORY")
add("handle_of_failure", "memory.no_memory", "good.c",
    "        d->host->free(d->host, b);\n        return FAIL(d, PGD_OUT_OF_MEMORY",
    "        *out = b; d->host->free(d->host, b);\n        return FAIL(d, PGD_OUT_OF_MEMORY")
add("cache_handle_leaks", "memory.no_memory", "good.c", "static void kv_destroy(const pgd_device "
    "*d, pgd_kv *kv) {\n    d->host->free(d->host, kv);",
    "static void kv_destroy(const pgd_device *d, pgd_kv *kv) {\n    (void)d, (void)kv;")
add("too_much", "memory.too_much", "good.c", "if (desc->bytes > BYTES) {", "if (0) {")
add("wrong_stride", "queue.pitch", "queue.c", "+ i * c->src_pitch,", "+ i * c->dst_pitch,")
add("rows_of_zero", "memory.buffers", "queue.c",
    "    const uint64_t rows = c->rows > 1 ? c->rows : 1;\n    for",
    "    const uint64_t rows = c->rows;\n    for")
add("list_backwards", "queue.copy", "queue.c", "good_push(q, GOOD_COPY)->copy = list[i];",
    "good_push(q, GOOD_COPY)->copy = list[n - 1 - i];")
add("fill_at_zero", "queue.fill", "queue.c",
    "good_at(e->range.buffer, e->range.offset) + i, &e->pattern",
    "good_at(e->range.buffer, 0) + i, &e->pattern")
add("done_too_early", "queue.numbers", "queue.c", "*out_value = q->reached;",
    "*out_value = q->given;")
add("missing_host_wait", "memory.buffers", "queue.c",
    "    if (q->reached < value) {\n        return FAIL(d, PGD_TIMEOUT",
    "    if (value > q->given) {\n        return FAIL(d, PGD_TIMEOUT")
MUTANTS[-1] = MUTANTS[-1]._replace(
    old="    if (value <= q->given && timeout_ns > 0) {\n        run_until(q, value);\n    }\n"
        "    if (q->reached < value) {",
    new="    if (value > q->given) {")
add("waits_for_nothing", "queue.timeouts", "queue.c", "    if (q->reached < value) {\n        "
    "return FAIL(d, PGD_TIMEOUT", "    if (value <= q->given && q->reached < value) {\n        "
    "return FAIL(d, PGD_TIMEOUT")
add("missing_wait", "queue.across", "queue.c", "run_until(e->other, e->value);", ";")
add("destroy_drops", "queue.destroy", "queue.c", "    good_drain(q);\n    for (int32_t i = 0;",
    "    for (int32_t i = 0;")

# ---- level 2 ------------------------------------------------------------------------------------
runs("ignored_scale", "ops.embed", "embed", "a->scale = 0;")
runs("ignored_row_start", "ops.embed", "embed", "a->row_start = 0;")
runs("next_output_row", "ops.gather_rows", "gather_rows", "e->batch.out_rows += 4;")
runs("head_norm_weight", "ops.rmsnorm", "rmsnorm",
     "if (a->x.rank == 2 && a->x.shape[1] > 1) { a->w.offset += 4; a->w.shape[0]--; "
     "a->x.shape[1]--; a->out.shape[1]--; }")
runs("wrong_rope_style", "ops.rope", "rope", "a->style = 1 - a->style;")
runs("next_position", "ops.rope", "rope", "e->batch.positions += 4;")
runs("ignored_sections", "ops.rope", "rope",
     "a->sections[0] = a->sections[1] = a->sections[2] = a->sections[3] = 0;")
runs("ignored_bias", "ops.gemm", "gemm", "a->bias.rank = 0;")
runs("other_gelu", "ops.gemm", "gemm",
     "if (a->act == PGD_ACT_GELU_TANH) { a->act = PGD_ACT_NONE; }")
runs("adds_for_mul", "ops.gemm", "gemm", "if (a->aux_kind != 0) { a->aux_kind = PGD_AUX_ADD; }")
runs("ignored_alpha", "ops.gemm", "gemm", "a->alpha = 0;")
add("rounds_input", "ops.gemm", "good.c", ".act_dtype = desc->act_dtype,",
    ".act_dtype = PGD_BF16,")
runs("layer_zero", "ops.kv_write", "kv_write", "a->layer = 0;")
runs("next_slot", "ops.kv_write", "kv_write", "e->batch.slots[0] += 4;")
runs("ignored_window", "ops.attn", "attn", "a->window_left = 0;")
runs("window_one_more", "ops.attn", "attn", "a->window_left += a->window_left > 0;")
runs("ignored_softcap", "ops.attn", "attn", "a->softcap = 0;")
runs("ignored_sinks", "ops.attn", "attn", "a->sinks.rank = 0;")
runs("ignored_slopes", "ops.attn", "attn", "a->slopes.rank = 0;")
runs("not_causal", "ops.attn", "attn", "a->causal = 1;")
runs("next_page", "ops.attn", "attn", "e->batch.block_table[0] += 4;")
runs("ignored_limit", "ops.act_mul", "act_mul", "a->act_limit = 0;")
runs("wrong_addend", "ops.add", "add", "if (a->b.dtype == a->a.dtype) { a->b = a->a; }")
AFTER_ARGMAX = "    case PGD_OP_##name: return ref->name(NULL, &e->args.name);\n"
add("wrong_tie_break", "ops.argmax", "ops.c", "    e->args.head.batch = &e->batch;\n",
    """    e->args.head.batch = &e->batch;
    if (e->op == PGD_OP_argmax) { /* the last of equal ones */
        pgd_tensor *x = &e->args.argmax.x, *o = &e->args.argmax.out;
        pgd_status code = ref->argmax(NULL, &e->args.argmax);
        const pgd_batch_head *head = e->batch.mirror;
        for (int r = 0; code == PGD_OK && r < head->n_out; r++) {
            const float *row = (const float *)(uintptr_t)x->offset + r * x->stride[0];
            int32_t *id = (int32_t *)(uintptr_t)o->offset + r;
            for (int i = 0; *id >= 0 && i < x->shape[1]; i++) {
                if (row[i] == row[*id]) { *id = i; }
            }
        }
        return code;
    }
""")
add("slot_zero_for_none", "ops.argmax", "ops.c", "    e->args.head.batch = &e->batch;\n",
    """    e->args.head.batch = &e->batch;
    if (e->op == PGD_OP_argmax) { /* a row without a slot writes slot 0 */
        pgd_status code = ref->argmax(NULL, &e->args.argmax);
        char *block = (char *)(uintptr_t)e->batch.mirror;
        const pgd_batch_head *head = e->batch.mirror;
        for (int r = 0; code == PGD_OK && r < head->n_out; r++) {
            if (((int32_t *)(block + e->batch.out_slot))[r] < 0) {
                ((int32_t *)(block + e->batch.last))[0] =
                    ((int32_t *)(block + e->batch.sampled))[r];
            }
        }
        return code;
    }
""")
add("truncates_bf16", "ops.gemm", "ops.c", "    e->args.head.batch = &e->batch;\n",
    """    e->args.head.batch = &e->batch;
    if (e->op == PGD_OP_gemm && e->args.gemm.y.dtype == PGD_BF16) {
        pgd_gemm_args *a = &e->args.gemm;
        pgd_status code = ref->gemm(NULL, a);
        int64_t rows = pgd_ref_rows(&e->batch, a->rows, a->y.shape[0]);
        for (int64_t r = 0; code == PGD_OK && r < rows; r++) {
            uint16_t *y = (uint16_t *)(uintptr_t)a->y.offset + r * a->y.stride[0];
            for (int64_t i = 0; i < a->y.shape[1]; i += 2) { y[i] -= (y[i] & 0x7fff) > 0x100; }
        }
        return code;
    }
""")
add("writes_behind_plan", "correct.plans", "good.c",
    "    return weight_adopt(d, desc, dst, out);\n",
    "    to[(desc->n * desc->k * pgd_dtype_bytes(desc->dtype) + 3) / 4 * 4] = 1;\n"
    "    return weight_adopt(d, desc, dst, out);\n")
add("ignores_newer_fields", "correct.refusals", "ops.c",
    "pgd_args_tail_is_zero(args, size, args_bytes[op]);", "size > 0;")
add("refuses_what_it_supports", "ops.rmsnorm", "ops.c", "    if (!good_takes(op, args)) {",
    "    if (!good_takes(op, args) || (op == PGD_OP_rmsnorm && "
    "((const pgd_rmsnorm_args *)args)->rows == PGD_ROWS_OUTPUTS)) {")

# ---- level 3 ------------------------------------------------------------------------------------
runs("ignored_min_p", "ops.sample", "sample",
     "pgd_sampling *s = (pgd_sampling *)((char *)(uintptr_t)e->batch.mem->mem + "
     "e->batch.sampling); for (int i = 0; i < 24; i++) { s[i].min_p = 0; }")
runs("ignored_mask", "ops.sample_fields", "sample",
     "pgd_sampling *s = (pgd_sampling *)((char *)(uintptr_t)e->batch.mem->mem + "
     "e->batch.sampling); for (int i = 0; i < 24; i++) { s[i].mask_row = 0; }")
runs("ignored_residual", "ops.gemm_add", "gemm_add", "a->aux_kind = 0;")
runs("ignored_gate_bias", "ops.gate_up", "gate_up", "a->bias.rank = 0;")
runs("ignored_head_norms", "ops.qkv_rope_write", "qkv_rope_write",
     "a->q_norm.rank = a->k_norm.rank = 0;")
runs("ignored_final_norm", "ops.head_sample", "head_sample", "a->norm_w.rank = 0;")


def bumps(name, check, op, out, condition):
    """The last bit of f32 results changes with the size of the batch."""
    add(name, check, "ops.c", "    e->args.head.batch = &e->batch;\n", f"""
    e->args.head.batch = &e->batch;
    if (e->op == PGD_OP_{op} && e->args.{op}.{out}.dtype == PGD_F32) {{
        pgd_{op}_args *a = &e->args.{op};
        pgd_status code = ref->{op}(NULL, a);
        const int64_t rows = pgd_ref_rows(&e->batch, a->rows, a->{out}.shape[0]);
        for (int64_t r = 0; code == PGD_OK && {condition} && r < rows; r++) {{
            float *y = (float *)(uintptr_t)a->{out}.offset + r * a->{out}.stride[0];
            y[0] *= 1 + 0x1p-22f;
        }}
        return code;
    }}
""")


bumps("gemm_order_by_batch", "invariant.gemm", "gemm", "y", "rows > 8")
bumps("attn_order_by_batch", "invariant.attn", "attn", "out", "rows > 40")
bumps("norm_order_by_batch", "invariant.rmsnorm", "rmsnorm", "out", "rows > 30")
add("stale_batch", "serves.queued", "ops.c",
    "        e->batch.mirror = e->batch.mem->mem;\n",
    "        memcpy(e->batch.mem->mem, e->batch.mirror, e->batch.upload_bytes);\n"
    "        e->batch.mirror = e->batch.mem->mem;\n")
add("runs_too_early", "serves.queued", "ops.c",
    "    return PGD_OK;\n}\n\n#define OP(name, family)",
    "    good_entry now = *e;\n    e->what = GOOD_SIGNAL, e->value = 0;\n"
    "    return good_run_op(&now);\n}\n\n#define OP(name, family)")
add("takes_memory_in_a_step", "serves.allocations", "ops.c",
    "    good_entry *e = good_push(x->queue, GOOD_OP);\n",
    "    good_entry *e = good_push(x->queue, GOOD_OP);\n"
    "    x->dev->host->free(x->dev->host, x->dev->host->alloc(x->dev->host, 64, 0));\n")
add("leaks_in_a_step", "serves.soak", "ops.c",
    "    good_entry *e = good_push(x->queue, GOOD_OP);\n",
    "    good_entry *e = good_push(x->queue, GOOD_OP);\n"
    "    extern void *malloc(size_t); *(volatile char *)malloc(100) = 1;\n")
add("pairs_backwards", "serves.copied_blocks", "good.c", "(uint64_t)pairs[i].to * bytes",
    "(uint64_t)pairs[n - 1 - i].to * bytes")
MUTANTS[-1] = MUTANTS[-1]._replace(
    old="    for (uint32_t i = 0; i < n; i++) {\n        const pgd_copy c = {",
    new="    for (uint32_t i = n; i-- > 0;) {\n        const pgd_copy c = {")
add("copies_one_layer", "serves.copied_blocks", "good.c",
    "            .bytes = bytes,\n        };", "            .bytes = bytes / 2,\n        };")
add("image_ignores_ids", "serves.images", "image.c", "(uint64_t)w->image->ids[i] * bytes",
    "(uint64_t)(w->image->ids[0] + (w->write ? i * (w->image->ids[1] - w->image->ids[0]) : 0)) "
    "* bytes")
add("copies_anything", "serves.faults", "queue.c", "    if (b != NULL && (offset > b->bytes ||",
    "    if (0 && (offset > b->bytes ||")

# ---- written when the tool was finished ----------------------------------------------------------
FINISHED = len(MUTANTS)
runs("ignored_eps", "ops.rmsnorm", "rmsnorm", "a->eps = 0;")
add("weight_ignores_offset", "correct.offsets", "good.c",
    ".rows = good_at(dst->buffer, dst->offset)};", ".rows = good_at(dst->buffer, 0)};")
MUTANTS[-1] = MUTANTS[-1]._replace(
    old="    unsigned char *to = good_at(dst->buffer, dst->offset);",
    new="    pgd_range whole = {dst->buffer, 0, dst->bytes};\n    dst = &whole;\n"
        "    unsigned char *to = good_at(dst->buffer, dst->offset);")
add("cache_ignores_offset", "correct.offsets", "good.c",
    ".mem = good_at(mem->buffer, mem->offset)};", ".mem = good_at(mem->buffer, 0)};")
add("checks_first_of_list", "serves.faults", "queue.c",
    "    for (uint32_t i = 0; i < n; i++) {\n        PGD_TRY(check_side(d, list[i].dst,",
    "    for (uint32_t i = 0; i < n && i < 1; i++) {\n        PGD_TRY(check_side(d, list[i].dst,")
runs("dense_rows", "ops.gemm", "gemm", "a->x.stride[0] = a->x.shape[1];")
add("ignored_col_start", "ops.gemm", "good.c",
    "    if (pgd_ref_weight_join(desc, to) != PGD_OK) {",
    "    pgd_weight_desc first = *desc;\n    if (desc->n_parts == 1) {\n"
    "        part.col_start = 0;\n"
    "        first.parts = &part;\n        desc = &first;\n    }\n"
    "    if (pgd_ref_weight_join(desc, to) != PGD_OK) {")
add("nan_wins", "ops.argmax", "ops.c", "    e->args.head.batch = &e->batch;\n",
    """    e->args.head.batch = &e->batch;
    if (e->op == PGD_OP_argmax) {
        pgd_tensor *x = &e->args.argmax.x, *o = &e->args.argmax.out;
        pgd_status code = ref->argmax(NULL, &e->args.argmax);
        const pgd_batch_head *head = e->batch.mirror;
        for (int r = 0; code == PGD_OK && r < head->n_out; r++) {
            const float *row = (const float *)(uintptr_t)x->offset + r * x->stride[0];
            int32_t *id = (int32_t *)(uintptr_t)o->offset + r;
            for (int i = 0; *id >= 0 && i < x->shape[1]; i++) {
                if (row[i] != row[i]) { *id = i; }
            }
        }
        return code;
    }
""")
runs("last_of_next_slot", "ops.embed", "embed", "e->batch.last -= 4;")
runs("lse_not_written", "ops.attn", "attn", "a->lse.rank = 0;")
runs("ignored_counter", "ops.sample", "sample",
     "pgd_sampling *s = (pgd_sampling *)((char *)(uintptr_t)e->batch.mem->mem + "
     "e->batch.sampling); for (int i = 0; i < 24; i++) { s[i].counter = 0; }")
runs("ignored_window_right", "ops.attn", "attn", "a->window_right = 0;")
runs("prompt_not_penalized", "ops.sample_fields", "sample",
     "if (a->state.rank == 2) { int32_t *t = (int32_t *)(uintptr_t)a->state.offset; "
     "for (int64_t i = 0; i < a->state.shape[0]; i++) { for (int64_t k = 0; k < "
     "a->state.shape[1]; k++) { t[i * a->state.stride[0] + k] &= (1 << 30) - 1; } } }")
for number in range(FINISHED, len(MUTANTS)):
    MUTANTS[number] = MUTANTS[number]._replace(late=True)
