// Level 0: the plugin's file, its manifest, its entry and what opening it does to a process.
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dev/inner.h"

// ---- the file ----------------------------------------------------------------------------------

void conform_manifest(conform *c) {
    const pgd_dev_manifest *m = c->manifest;
    MUST(c, m != NULL, "no manifest is found for %s", c->options->plugin);
    MUST(c, m->unusable == NULL, "%s", m->unusable);
    MUST(c, m->role == PGD_ROLE_BACKEND, "the manifest says that this is a layer, not a backend");
    conform_note(c, "%s %s, kind %s", m->name, m->version, m->kind);
}

static void read_elf(conform *c, conform_elf *elf) {
    const char *wrong = conform_elf_read(c->options->plugin, elf);
    MUST(c, wrong == NULL, "%s", wrong);
    if (elf->sanitized) {
        conform_skip(c, "built with a sanitizer, which adds its own");
    }
}

void conform_symbols(conform *c) {
    static conform_elf elf;
    int32_t found = 0;
    read_elf(c, &elf);
    for (int32_t i = 0; i < elf.n_exported; i++) {
        if (strcmp(elf.exported[i], PGD_PLUGIN_ENTRY) == 0) {
            found = 1;
        } else {
            conform_fail(c, "the library exports %s beside " PGD_PLUGIN_ENTRY, elf.exported[i]);
        }
    }
    for (int32_t i = 0; i < elf.n_host_symbols; i++) {
        conform_fail(c,
                     "the library needs the symbol %s of the host; everything comes through "
                     "tables",
                     elf.host_symbols[i]);
    }
    MUST(c, found, "the library does not export " PGD_PLUGIN_ENTRY);
}

void conform_constructors(conform *c) {
    static conform_elf elf;
    read_elf(c, &elf);
    MUST(c, elf.constructors == 0,
         "%llu static constructor(s) run when the library is opened, before probe",
         (unsigned long long)elf.constructors);
}

void conform_dependencies(conform *c) {
    static const char *const allowed[] = {
        "libc.so",      "libm.so",   "libdl.so",     "libpthread.so", "librt.so", "libgcc_s.so",
        "libstdc++.so", "libc++.so", "libc++abi.so", "libatomic.so",  "ld-linux"};
    static conform_elf elf;
    read_elf(c, &elf);
    for (int32_t i = 0; i < elf.n_needed; i++) {
        int32_t fine = 0;
        for (size_t k = 0; k < sizeof(allowed) / sizeof(allowed[0]); k++) {
            fine |= strncmp(elf.needed[i], allowed[k], strlen(allowed[k])) == 0;
        }
        if (!fine) {
            conform_fail(c,
                         "the library is linked with %s; open it with dlopen, so that a machine "
                         "without it gets a sentence",
                         elf.needed[i]);
        }
    }
    // Colons alone are the room that CMake keeps in a build tree for the path of an installation.
    if (elf.search[strspn(elf.search, ":")] != '\0' && elf.search[0] != '/' &&
        elf.search[0] != '$') {
        conform_fail(c, "the library's search path is relative: %s", elf.search);
    }
}

// ---- the entry ---------------------------------------------------------------------------------

static const pgd_option *option_at(const pgd_plugin *p, uint32_t i) {
    return (const pgd_option *)(const void *)((const char *)p->options +
                                              (size_t)i * p->option_stride);
}

void conform_truth(conform *c) {
    const pgd_plugin *p = conform_load(c);
    const pgd_dev_manifest *m = c->manifest;
    uint32_t i, k;
    if (p->version == NULL || strcmp(p->version, m->version) != 0) {
        conform_fail(c, "the library says version '%s', the manifest '%s'",
                     p->version != NULL ? p->version : "", m->version);
    }
    if (p->vendor == NULL || strcmp(p->vendor, m->vendor) != 0) {
        conform_fail(c, "the library says vendor '%s', the manifest '%s'",
                     p->vendor != NULL ? p->vendor : "", m->vendor);
    }
    if (p->n_options != m->n_options) {
        conform_fail(c, "the library has %u options, the manifest %u", (unsigned)p->n_options,
                     (unsigned)m->n_options);
    }
    for (i = 0; i < p->n_options; i++) {
        const pgd_option *o = option_at(p, i);
        for (k = 0; k < m->n_options && strcmp(m->options[k].key, o->key) != 0; k++) {
        }
        if (k == m->n_options) {
            conform_fail(c, "the manifest does not name the option '%s' of the library", o->key);
        } else if (strcmp(m->options[k].type, o->type) != 0) {
            conform_fail(c, "option '%s' is of type %s in the library, %s in the manifest", o->key,
                         o->type, m->options[k].type);
        }
    }
    conform_note(c, "interface %d.%u, host from %d.%u", PGD_ABI_MAJOR, (unsigned)p->abi_minor,
                 PGD_ABI_MAJOR, (unsigned)p->min_host_minor);
}

static const pgd_host *lend_host(conform *c, const pgd_plugin *p) {
    pgd_dev_host *host = NULL;
    MUST_OK(c, pgd_dev_host_create(pgd_str_of(p->name), (pgd_str){0}, c->team, &host),
            "making a host table");
    return &host->host;
}

static void judge_probe(conform *c, pgd_status code, const pgd_probe *p) {
    if (code != PGD_OK) {
        MUST(c, strcmp(pgd_status_name(code), "UNKNOWN") != 0, "probe gives %d, which is no status",
             (int)code);
        MUST(c, pgd_fail_last()[0] != '\0', "probe gives %s and no sentence",
             pgd_status_name(code));
        conform_note(c, "%s: %.150s", pgd_status_name(code), pgd_fail_last());
        return;
    }
    MUST(c, memchr(p->reason, '\0', sizeof(p->reason)) != NULL, "probe's reason has no end");
    MUST(c, p->n_devices > 0 || p->reason[0] != '\0', "probe finds no device and gives no reason");
    conform_note(c, "%u devices%s%.120s", (unsigned)p->n_devices, p->n_devices > 0 ? "" : ": ",
                 p->n_devices > 0 ? "" : p->reason);
}

void conform_probe(conform *c) {
    const pgd_plugin *p = conform_load(c);
    const pgd_host *host = lend_host(c, p);
    pgd_probe first = {.size = sizeof(first)}, again = {.size = sizeof(again)};
    const uint64_t start = pgd_clock_ns();
    pgd_status code = p->probe(host, &first);
    judge_probe(c, code, &first);
    MUST(c, p->probe(host, &again) == code && again.n_devices == first.n_devices,
         "a second probe answers otherwise than the first");
    MUST(c, pgd_clock_ns() - start < UINT64_C(20000000000), "probe takes longer than 20 s");
}

// The variables by which the usual drivers are told to show no device.
void conform_no_device(conform *c) {
    static const char *const hidden[][2] = {
        {"OCL_ICD_VENDORS", "/nonexistent"},
        {"OCL_ICD_FILENAMES", ""},
        {"CUDA_VISIBLE_DEVICES", "-1"},
        {"HIP_VISIBLE_DEVICES", "-1"},
        {"ROCR_VISIBLE_DEVICES", "-1"},
        {"ZE_AFFINITY_MASK", "255"},
        {"ZE_ENABLE_ALT_DRIVERS", "/nonexistent"},
    };
    const pgd_plugin *p;
    pgd_probe probe = {.size = sizeof(probe)};
    pgd_dev *dev = NULL;
    pgd_status code;
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        setenv(hidden[i][0], hidden[i][1], 1);
    }
    p = conform_load(c);
    judge_probe(c, p->probe(lend_host(c, p), &probe), &probe);
    code = conform_try_open(c, &dev);
    MUST(c, code == PGD_OK || pgd_fail_text(code)[0] != '\0', "opening gives %s and no sentence",
         pgd_status_name(code));
    MUST(c, code != PGD_OK || probe.n_devices > 0, "probe finds no device, but one can be opened");
}

// ---- out-structs of other sizes ----------------------------------------------------------------

enum { CANARY = 0xa5, LONGEST = 1024 };

// Room for an out-struct of `size` bytes as an older or newer host has it.
static void *out_room(unsigned char *room, uint32_t size) {
    memset(room, CANARY, LONGEST);
    memset(room, 0, size);
    memcpy(room, &size, sizeof(size));
    return room;
}

static void judge_out(conform *c, const unsigned char *room, uint32_t size, uint32_t known,
                      const char *what) {
    uint32_t now = 0, i;
    memcpy(&now, room, sizeof(now));
    MUST(c, now == size, "%s changes `size` of the caller's struct from %u to %u", what,
         (unsigned)size, (unsigned)now);
    for (i = size; i < LONGEST; i++) {
        MUST(c, room[i] == CANARY,
             "%s writes byte %u of a struct of an older host, which has %u (see PGD_OUT)", what,
             (unsigned)i, (unsigned)size);
    }
    for (i = known; i < size; i++) {
        MUST(c, room[i] == 0, "%s writes byte %u of a newer host's struct; it knows %u bytes", what,
             (unsigned)i, (unsigned)known);
    }
}

static void sizes_of(conform *c, const pgd_plugin *p, const pgd_host *host, void *backend,
                     const pgd_tables *tables, int32_t delta) {
    _Alignas(16) unsigned char room[LONGEST];
    uint32_t size = (uint32_t)((int32_t)sizeof(pgd_probe) + delta);
    pgd_status code = p->probe(host, out_room(room, size));
    MUST(c, code == PGD_OK, "probe refuses a struct of %u bytes: %s", (unsigned)size,
         pgd_fail_text(code));
    judge_out(c, room, size, sizeof(pgd_probe), "probe");
    size = (uint32_t)((int32_t)sizeof(pgd_device_info) + delta);
    code = tables->device->info(backend, 0, out_room(room, size));
    MUST(c, code == PGD_OK, "device.info refuses a struct of %u bytes: %s", (unsigned)size,
         pgd_fail_text(code));
    judge_out(c, room, size, sizeof(pgd_device_info), "device.info");
}

void conform_sizes(conform *c) {
    const pgd_plugin *p = conform_load(c);
    const pgd_host *host = lend_host(c, p);
    _Alignas(16) unsigned char room[LONGEST];
    const uint32_t small = offsetof(pgd_tables, weight), large = sizeof(pgd_tables) + 64;
    pgd_tables tables = {.size = sizeof(tables)};
    void *backend = NULL;
    MUST_OK(c, p->open(host, &backend, out_room(room, small)), "open by an older host");
    judge_out(c, room, small, sizeof(pgd_tables), "open");
    p->close(backend);
    MUST_OK(c, p->open(host, &backend, out_room(room, large)), "open by a newer host");
    judge_out(c, room, large, sizeof(pgd_tables), "open");
    p->close(backend);
    MUST_OK(c, p->open(host, &backend, &tables), "open");
    MUST(c, tables.device != NULL && tables.device->info != NULL, "open gives no device.info");
    sizes_of(c, p, host, backend, &tables, 0);
    sizes_of(c, p, host, backend, &tables, -24);
    sizes_of(c, p, host, backend, &tables, 40);
    p->close(backend);
}

// ---- the device --------------------------------------------------------------------------------

static void check_dtypes(conform *c, const char *what, int32_t dtype, uint32_t mask) {
    MUST(c, dtype >= 0 && dtype < 32 && pgd_dtype_bytes(dtype) > 0, "%s is %d, which is no dtype",
         what, (int)dtype);
    MUST(c, (mask >> dtype & 1u) != 0, "%s is %s, which its own list of dtypes lacks", what,
         pgd_dtype_name(dtype));
}

void conform_info(conform *c) {
    pgd_dev *dev = NULL;
    const pgd_device_info *info;
    uint64_t room = 0, total = 0;
    uint32_t n = 0;
    conform_open(c);
    info = pgd_dev_info(c->dev);
    MUST(c, info->name[0] != '\0' && memchr(info->name, '\0', sizeof(info->name)) != NULL,
         "the device has no name");
    MUST(c, info->kind >= PGD_DEVICE_CPU && info->kind <= PGD_DEVICE_OTHER,
         "the device's kind is %u", (unsigned)info->kind);
    MUST(c, info->bytes > 0, "the device has no memory");
    MUST(c, info->align == 0 || (info->align & (info->align - 1)) == 0,
         "buffers are aligned to %llu, which is no power of two", (unsigned long long)info->align);
    check_dtypes(c, "act_dtype", info->act_dtype, info->act_dtypes);
    check_dtypes(c, "residual_dtype", info->residual_dtype, info->act_dtypes | 1u << PGD_F32);
    check_dtypes(c, "kv_dtype", info->kv_dtype, info->kv_dtypes);
    MUST(c, info->weight_dtypes != 0, "the device takes no dtype of weights");
    MUST_OK(c, c->d->device->memory(c->d, &room, &total), "device.memory");
    MUST(c, room <= total && total > 0, "device.memory says %llu bytes free of %llu",
         (unsigned long long)room, (unsigned long long)total);
    MUST_OK(c, c->d->device->status(c->d), "device.status of a fresh device");
    MUST_OK(c, c->dev->native.device.count(c->dev->levels[0].backend, &n), "device.count");
    snprintf(c->uri, sizeof(c->uri), "%s:%u", c->manifest->kind, (unsigned)n);
    MUST(c, conform_try_open(c, &dev) != PGD_OK, "device %u of %u can be opened", (unsigned)n,
         (unsigned)n);
    conform_note(c, "%s, %llu MiB, activations %s, cache %s", info->name,
                 (unsigned long long)(info->bytes >> 20), pgd_dtype_name(info->act_dtype),
                 pgd_dtype_name(info->kv_dtype));
    conform_close(c);
}

// Functions bound by a layout are the plugin's as a whole or the host's as a whole.
static void check_family(conform *c, const char *family, const char *const *names,
                         const int32_t *filled, int32_t n, int32_t saved) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        count += filled[i];
    }
    for (int32_t i = 0; i < n && count > 0 && !saved; i++) {
        if (!filled[i]) {
            conform_fail(c, "the %s family has a hole: %s; the host takes the whole family over",
                         family, names[i]);
        }
    }
}

void conform_families(conform *c) {
    static const char *const weight[] = {"weight.plan",    "weight.prepare", "weight.adopt",
                                         "weight.destroy", "embed",          "gemm"};
    static const char *const kv[] = {"kv.plan",        "kv.bind",  "kv.destroy",
                                     "kv.copy_blocks", "kv_write", "attn"};
    int32_t n = 0, op;
    conform_open(c);
    const pgd_dev_tables *t = &c->dev->native;
    const int32_t has_weight[] = {t->weight.plan != NULL,  t->weight.prepare != NULL,
                                  t->weight.adopt != NULL, t->weight.destroy != NULL,
                                  t->ops.embed != NULL,    t->ops.gemm != NULL};
    const int32_t has_kv[] = {t->kv.plan != NULL,      t->kv.bind != NULL,
                              t->kv.destroy != NULL,   t->kv.copy_blocks != NULL,
                              t->ops.kv_write != NULL, t->ops.attn != NULL};
    check_family(c, "weight", weight, has_weight, 6, t->weight.unpack != NULL);
    check_family(c, "kv", kv, has_kv, 6, t->kv.read_blocks != NULL && t->kv.write_blocks != NULL);
    if ((t->graph.begin != NULL) + (t->graph.end != NULL) + (t->graph.launch != NULL) +
            (t->graph.destroy != NULL) ==
        1) {
        conform_fail(c, "one function of the graph table alone is filled");
    }
    for (op = 0; op < PGD_OP_COUNT; op++) {
        n += pgd_dev_has_op(&t->ops, op);
    }
    conform_note(c, "%d of %d operations in the table", (int)n, (int)PGD_OP_COUNT);
    conform_close(c);
}

// ---- the process -------------------------------------------------------------------------------

static void work(conform *c) {
    static unsigned char bytes[4096];
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    pgd_buffer *b = conform_buffer(c, sizeof(bytes));
    conform_put(c, q, b, 0, bytes, sizeof(bytes));
    conform_get(c, q, bytes, b, 0, sizeof(bytes));
    c->d->queue->destroy(c->d, q);
    c->d->memory->destroy(c->d, b);
    conform_close(c);
}

// The parent sees what is printed, and a process that ends early.
void conform_silent(conform *c) {
    work(c);
    work(c);
}

void conform_manners(conform *c) {
    const conform_settings *before = conform_settings_read(c);
    conform_traces start, first, last;
    conform_traces_read(&start);
    conform_load(c);
    conform_settings_compare(c, before, "after loading");
    work(c);
    conform_settings_compare(c, before, "after opening, copies and closing");
    conform_traces_read(&first);
    for (int i = 0; i < 3; i++) {
        work(c);
    }
    conform_traces_read(&last);
    // A vendor's driver keeps threads and files of its own; a plugin alone keeps none.
    if (!c->driver && first.threads > start.threads) {
        conform_fail(c, "%lld thread(s) go on after close",
                     (long long)(first.threads - start.threads));
    }
    if (!c->driver && first.files > start.files + 1) { // the mapped library may stay open
        conform_fail(c, "%lld descriptor(s) stay open after close",
                     (long long)(first.files - start.files));
    }
    if (last.threads > first.threads) {
        conform_fail(c, "every opening leaves threads behind: %lld, then %lld",
                     (long long)first.threads, (long long)last.threads);
    }
    if (last.files > first.files) {
        conform_fail(c, "every opening leaves descriptors behind: %lld, then %lld",
                     (long long)first.files, (long long)last.files);
    }
    conform_note(c, "%lld threads and %lld descriptors before, %lld and %lld after",
                 (long long)start.threads, (long long)start.files, (long long)last.threads,
                 (long long)last.files);
}

enum { SAMPLES = 20, WARM = 10 };

// Opens and closes over and over. The first openings may fill caches that stay; what counts is the
// slope over the later ones.
static void judge_slopes(conform *c, const conform_traces *s, int32_t each) {
    double heap[SAMPLES], pages[SAMPLES], files[SAMPLES], threads[SAMPLES], lent[SAMPLES];
    const int32_t n = SAMPLES - WARM;
    for (int32_t i = 0; i < n; i++) {
        heap[i] = (double)s[WARM + i].heap / each;
        pages[i] = (double)s[WARM + i].pages / each;
        files[i] = (double)s[WARM + i].files / each;
        threads[i] = (double)s[WARM + i].threads / each;
        lent[i] = (double)s[WARM + i].lent / each;
    }
    const double h = conform_slope(heap, n), p = conform_slope(pages, n);
    // A driver's own bookkeeping is no business of the plugin; a lost handle is far larger.
    const double most = c->driver ? 4096 : 8;
    if (conform_slope(lent, n) > 0.01) {
        conform_fail(c, "%.2f allocations of the host table stay at each opening",
                     conform_slope(lent, n));
    }
    if (h > most) {
        conform_fail(c, "%.0f bytes of the heap stay at each opening", h);
    }
    if (p > (c->driver ? 262144 : 4096)) {
        conform_fail(c, "%.0f bytes of resident memory stay at each opening", p);
    }
    if (conform_slope(files, n) > 0.01) {
        conform_fail(c, "%.2f descriptors stay at each opening", conform_slope(files, n));
    }
    if (conform_slope(threads, n) > 0.01) {
        conform_fail(c, "%.2f threads stay at each opening", conform_slope(threads, n));
    }
    conform_note(c, "%d times, %.1f bytes of heap an opening", (int)(each * SAMPLES), h);
}

void conform_open_close(conform *c) {
    static conform_traces samples[SAMPLES];
    const int32_t times = c->options->loops > 0 ? c->options->loops : c->driver ? 50 : 1000;
    const int32_t each = times / SAMPLES > 0 ? times / SAMPLES : 1;
    for (int32_t i = 0; i < SAMPLES; i++) {
        for (int32_t k = 0; k < each; k++) {
            conform_open(c);
            conform_close(c);
        }
        conform_traces_read(&samples[i]);
    }
    judge_slopes(c, samples, each);
}
