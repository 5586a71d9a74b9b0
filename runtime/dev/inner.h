// What the files of this room share: the device with its tables as the plugin filled them and as
// everybody else sees them.
//
//   native: the plugin's slots, NULL where there is a hole
//   device: full tables; each slot is native, a simple filler, composed, or the reference
//
// `device` is the first member, so a filled slot finds its pgd_dev from the pgd_device it is given;
// likewise `exec` in pgd_dev_exec.
//
// The plugins of a device stand on each other, the backend at the bottom, each at its own level:
//
//   trace(check(cpu))   levels[2] trace -> levels[1] check -> levels[0] cpu
//   pgd_dev.device      the level the filler works at: self and next of the highest level below
//                       it, and full tables; without layers nothing lies between it and the plugin
//   record(cpu), TOP    levels[1] record -> pgd_dev.device
#ifndef PGD_DEV_INNER_H
#define PGD_DEV_INNER_H

#include "base/arena.h"
#include "dev/dev.h"

#include "ref/ref.h"

// Full-size tables of one level.
typedef struct pgd_dev_tables {
    pgd_device_table device;
    pgd_memory_table memory;
    pgd_queue_table queue;
    pgd_weight_table weight;
    pgd_kv_table kv;
    pgd_ops ops;
    pgd_graph_table graph;
} pgd_dev_tables;

// The host table of one open of a plugin, with its options.
typedef struct pgd_dev_host {
    pgd_host host; // first: ctx points back here
    pgd_team *team;
    char *text; // owned: "key\0value\0key\0value\0"
    uint32_t n_options;
    uint32_t reserved0;
    char kind[32];
} pgd_dev_host;

// How an op of the merged table runs.
enum { PGD_DEV_NATIVE = 0, PGD_DEV_COMPOSED = 1, PGD_DEV_REFERENCE = 2 };

// A weight whose handle is native but that the reference reads too (see mirror.c).
typedef struct pgd_dev_mirror pgd_dev_mirror;

// A plugin of the device: the backend, or a layer.
typedef struct pgd_dev_level {
    pgd_device device;        // as the plugin itself and the layer above see it
    pgd_dev_tables tables;    // the plugin's slots; of a layer full of passes (pass.c)
    const pgd_plugin *plugin; // static data of a library that stays mapped
    void *backend;
    const void *(*extension)(void *backend, const char *name); // NULL: a hole
    pgd_dev_host *host;
    uint32_t has_backend; // plugin->open has succeeded
    uint32_t is_open;     // device.open has succeeded
} pgd_dev_level;

struct pgd_dev {
    pgd_device device; // first
    pgd_dev_tables merged;
    pgd_dev_tables native;    // of the highest level below the filler
    const pgd_plugin *plugin; // of the backend
    pgd_dev_level *levels;    // [n_levels]
    const pgd_device *top;    // what everybody else sees: `device`, or that of a TOP layer
    pgd_dev_mirror *mirrors;
    pgd_weight_table settled_weight; // of a plugin of an earlier minor, behind since.c
    pgd_kv_table settled_kv;
    uint32_t n_levels; // opened, or about to be
    uint32_t n_below;  // of these, below the filler
    uint32_t reserved0;
    uint32_t allow_slow;
    int32_t weight_native; // 1: handles of the family are the plugin's
    int32_t kv_native;
    int32_t maps; // 1: memory.map is native
    int32_t how[PGD_OP_COUNT];
    int32_t refused[PGD_OP_COUNT]; // by support, for one of the planned queries
    int32_t weight_refused;        // by the plan of one of the planned weights
    int32_t kv_refused;            // by the plan of one of the planned caches
    pgd_device_info info;
    char uri[160]; // "trace(cpu:0)"
    int32_t score; // of the probe
    int32_t reserved1;
};

typedef struct pgd_dev_exec {
    pgd_exec exec; // first
    pgd_dev *dev;
    pgd_exec *levels;     // [n_levels] of the layers and the backend; NULL without layers
    unsigned char *stage; // host room of reference ops
    uint64_t stage_bytes;
} pgd_dev_exec;

// ---- host.c ------------------------------------------------------------------------------------

// Makes the host table of one open. options is what stood between the braces, {NULL, 0} = none.
//   fails  INVALID for text that is not "key=value" joined by semicolons
pgd_status pgd_dev_host_create(pgd_str kind, pgd_str options, pgd_team *team,
                               pgd_dev_host **out) PGD_MUST_USE;
void pgd_dev_host_destroy(pgd_dev_host *h); // NULL is fine
// Checks every given option against those the plugin declares, its type included.
pgd_status pgd_dev_host_check(const pgd_dev_host *h, const pgd_plugin *plugin) PGD_MUST_USE;

// ---- manifest.c --------------------------------------------------------------------------------

// Reads a manifest; a missing or wrong one is PGD_OK with out->unusable set. Strings in the arena.
//   fails  OUT_OF_MEMORY
pgd_status pgd_dev_manifest_read(const char *path, pgd_arena *arena,
                                 pgd_dev_manifest *out) PGD_MUST_USE;

// ---- uri.c, load.c, open.c ---------------------------------------------------------------------

// Place of a chip on the PCI bus.
typedef struct pgd_dev_pci {
    uint32_t domain;
    uint32_t bus;
    uint32_t slot;
    uint32_t function;
} pgd_dev_pci;

enum { PGD_DEV_BY_KIND = 0, PGD_DEV_BY_PCI = 1, PGD_DEV_BY_UUID = 2 };

// A device name, cut: views into the text it came from.
typedef struct pgd_dev_uri_parts {
    int32_t by; // PGD_DEV_BY_...
    uint32_t index;
    uint32_t has_index;
    uint32_t reserved0;
    pgd_str kind;    // "pci" and "uuid" too
    pgd_str options; // between the braces
    pgd_dev_pci pci;
    uint8_t uuid[16];
} pgd_dev_uri_parts;

#define PGD_DEV_MAX_LAYERS 8

// A layer around a device: views into the text it came from.
typedef struct pgd_dev_uri_layer {
    pgd_str kind;
    pgd_str options; // between the braces
} pgd_dev_uri_layer;

// Peels LAYER[{key=value;...}](...) off: the layers, outermost first, and the device's own name.
//   fails  INVALID
pgd_status pgd_dev_uri_layers(const char *uri, pgd_dev_uri_layer *layers, uint32_t *out_n,
                              pgd_str *out_device) PGD_MUST_USE;
// KIND[:N][{key=value;...}], pci:0000:65:00.0[{...}], uuid:GPU-...[{...}]
//   fails  INVALID
pgd_status pgd_dev_uri_parse(const char *uri, pgd_dev_uri_parts *out) PGD_MUST_USE;
// "0000:65:00.0", "65:00.0" (domain 0) or with a domain of eight digits: 1 and *out.
int32_t pgd_dev_uri_pci(pgd_str text, pgd_dev_pci *out);
int32_t pgd_dev_uri_same_pci(const pgd_dev_pci *a, const pgd_dev_pci *b);

// Opens the library of a usable manifest and gives its description after every check of versions
// and of the manifest's truth. The library stays mapped; opening it again gives the same one.
//   fails  UNAVAILABLE (the loader's reason), INCOMPATIBLE, INVALID (manifest and library differ)
pgd_status pgd_dev_load(const pgd_dev_manifest *m, const pgd_plugin **out) PGD_MUST_USE;

// Checks a description that an entry function gave; where names the library in sentences.
pgd_status pgd_dev_load_check(const pgd_plugin *plugin, const char *where) PGD_MUST_USE;

// What to open: the backend, or a layer on it.
typedef struct pgd_dev_part {
    const pgd_plugin *plugin; // checked
    pgd_str options;          // between the braces
} pgd_dev_part;

// Opens device `index` of parts[0] and the layers on it, parts[1] next to it. team may be NULL.
//   fails  INVALID too when a layer that sits above the filler stands inside one that does not
pgd_status pgd_dev_open_parts(const pgd_dev_part *parts, uint32_t n, uint32_t index, pgd_team *team,
                              uint32_t allow_slow, pgd_dev **out) PGD_MUST_USE;
// The same without layers.
pgd_status pgd_dev_open_plugin(const pgd_plugin *plugin, pgd_str options, uint32_t index,
                               pgd_team *team, uint32_t allow_slow, pgd_dev **out) PGD_MUST_USE;

// The best candidate of "auto" or of a pci or uuid name: the uri in text[cap].
//   fails  NOT_FOUND with every candidate's reason
pgd_status pgd_dev_auto(pgd_dev_registry *r, char *text, size_t cap) PGD_MUST_USE;
pgd_status pgd_dev_find_chip(pgd_dev_registry *r, const char *uri, const pgd_dev_uri_parts *parts,
                             char *text, size_t cap) PGD_MUST_USE;

// ---- present.c ---------------------------------------------------------------------------------

// 0 when the manifest's "matches" rules out that it drives the chip at this address.
int32_t pgd_dev_may_drive(const pgd_dev_registry *r, const pgd_dev_manifest *m,
                          const pgd_dev_pci *pci);
// Compares the library with the manifest's sha256.
//   fails  DATA_LOSS (another library), NOT_FOUND, DENIED
pgd_status pgd_dev_check_sha256(const pgd_dev_manifest *m) PGD_MUST_USE;
// What pgd_dev_search.root said, "" = the machine itself.
const char *pgd_dev_registry_root(const pgd_dev_registry *r);
pgd_team *pgd_dev_registry_team(const pgd_dev_registry *r); // of its search

// Clears the slot, so that a plugin which returns a bare code is not given an older sentence.
void pgd_dev_listen(void);
// Adds to the plugin's sentence what it was asked to do; returns code.
pgd_status pgd_dev_note(pgd_status code, const char *kind, const char *doing);

// ---- merge.c -----------------------------------------------------------------------------------

// Copies min(size) bytes of each table the plugin gave into the zeroed full-size ones.
void pgd_dev_merge(const pgd_tables *from, pgd_dev_tables *to);
// INVALID naming the first mandatory slot that is a hole.
pgd_status pgd_dev_merge_check(const char *kind, const pgd_dev_tables *tables) PGD_MUST_USE;
// 1 when slot `op` of a table is filled.
int32_t pgd_dev_has_op(const pgd_ops *ops, int32_t op);
// "rmsnorm" ...; "?" for a number that is no op.
const char *pgd_dev_op_name(int32_t op);
// Bytes of the args struct of an op, 0 for a number that is no op.
uint32_t pgd_dev_op_args_bytes(int32_t op);
// PGD_FAMILY_... of an op.
int32_t pgd_dev_op_family(int32_t op);
// Calls the slot of an op in a table.
pgd_status pgd_dev_call(const pgd_ops *ops, int32_t op, const pgd_exec *x,
                        const void *args) PGD_MUST_USE;
// 1 when dev has the whole of the native weight (kv) family, with regard to dev->refused.
int32_t pgd_dev_weight_is_whole(const pgd_dev *dev);
int32_t pgd_dev_kv_is_whole(const pgd_dev *dev);

// ---- pass.c ------------------------------------------------------------------------------------

// Completes the tables of a layer with passes to the level under it; holes stay holes.
void pgd_dev_pass(const pgd_dev_tables *under, pgd_dev_tables *tables);

// ---- fill.c, settle.c --------------------------------------------------------------------------

// Sets the merged tables to the native ones with the holes of all but ops, weight and kv filled.
void pgd_dev_fill(pgd_dev *dev);
// Puts the graph table that answers UNSUPPORTED: everything runs eagerly.
void pgd_dev_fill_graph(pgd_dev *dev);
// Chooses for each op and family, from native and refused, and completes all merged tables.
void pgd_dev_settle(pgd_dev *dev);

// ---- since.c -----------------------------------------------------------------------------------

// UNSUPPORTED when the description holds what the plugin's minor did not have; NULL is fine.
pgd_status pgd_dev_since_weight(const pgd_dev *dev, const pgd_weight_desc *desc) PGD_MUST_USE;
pgd_status pgd_dev_since_kv(const pgd_dev *dev, const pgd_kv_desc *desc) PGD_MUST_USE;
// Puts these checks before the native functions of the merged tables that are given one.
void pgd_dev_since_tables(pgd_dev *dev);

// ---- compose.c ---------------------------------------------------------------------------------

// Composed ops; NULL where an op has no composition.
const pgd_ops *pgd_dev_composed(void);

// ---- fallback.c --------------------------------------------------------------------------------

// Every op by the reference kernels.
const pgd_ops *pgd_dev_reference(void);
// Copies the op's tensor between the device and dense host memory, row by row where it is strided.
// out 0: device to host.
pgd_status pgd_dev_copy_tensor(const pgd_device *d, pgd_queue *q, const pgd_tensor *t,
                               unsigned char *host, int32_t out) PGD_MUST_USE;
// Bytes of a tensor without gaps.
uint64_t pgd_dev_tensor_bytes(const pgd_tensor *t);

// Waits until everything enqueued has run.
pgd_status pgd_dev_drain(const pgd_device *d, pgd_queue *q) PGD_MUST_USE;
// Host address of a place in memory that the CPU sees, else NULL.
void *pgd_dev_address(const pgd_device *d, pgd_buffer *buffer, uint64_t offset);

// ---- weight.c, kv.c: families in host memory ---------------------------------------------------

void pgd_dev_host_weight(pgd_weight_table *out);
void pgd_dev_host_kv(pgd_kv_table *out);
// Between the canonical image ([layer][k, v][token][head][dim], dtype) and blocks of a host cache.
// out 1: blocks to image.
pgd_status pgd_dev_kv_convert(const pgd_ref_kv *kv, const pgd_kv_image *image, unsigned char *bytes,
                              int32_t out) PGD_MUST_USE;
// Bytes of an image.
uint64_t pgd_dev_kv_image_bytes(const pgd_ref_kv *kv, const pgd_kv_image *image);

// ---- mirror.c: native handles that the reference reads too -------------------------------------

void pgd_dev_mirror_weight_table(pgd_dev *dev);
void pgd_dev_mirror_kv_table(pgd_dev *dev);
// The reference's view of a native handle, brought up to date.
pgd_status pgd_dev_mirror_weight(pgd_dev *dev, pgd_queue *q, pgd_weight *w,
                                 const pgd_ref_weight **out) PGD_MUST_USE;
pgd_status pgd_dev_mirror_kv(pgd_dev *dev, pgd_queue *q, pgd_kv *kv,
                             const pgd_ref_kv **out) PGD_MUST_USE;
// Brings what the reference wrote back into the native cache.
pgd_status pgd_dev_mirror_kv_store(pgd_dev *dev, pgd_queue *q, pgd_kv *kv) PGD_MUST_USE;
void pgd_dev_mirrors_destroy(pgd_dev *dev);

#endif
