// Devices: finds plugins, opens them, merges their tables, fills the holes, and says where each
// operation of a model runs.
//
//   manifest (JSON beside the library) -> dlopen -> entry -> probe -> open -> merge -> fill -> plan
//
// Only the plugins asked for are opened; opened ones stay mapped for the life of the process.
// Places of an operation:
//   F0 native, F1 composed of native ops on the same queue, F2 reference kernel on memory the CPU
//   sees, F3 reference kernel with copies to and from the device (a slow place).
// A family (weight, kv) is filled as a whole: with a hole in it its handles live in host memory.
// Thread rule: [setup] unless said otherwise.
#ifndef PGD_DEV_DEV_H
#define PGD_DEV_DEV_H

#include <pagoda/ops.h>
#include <pagoda/plugin.h>

#include "base/str.h"
#include "base/team.h"

// ---- plugins found ----------------------------------------------------------------------------

typedef struct pgd_dev_registry pgd_dev_registry;

typedef struct pgd_dev_search {
    const char *const *files; // --plugin PATH: libraries by file (.so; manifest beside it)
    uint32_t n_files;
    uint32_t no_env;            // 1: PAGODA_PLUGIN_PATH is not read (it is never when privileged)
    const char *const *folders; // further folders, searched after `files`; NULL ends nothing
    uint32_t n_folders;
    uint32_t no_installed; // 1: the two folders beside this library or executable are not searched
    const char *root;      // put before /sys, /etc, /lib when chips and drivers are looked for:
                           // NULL for the machine itself, a folder for tests
    pgd_team *team; // lent to plugins while candidates are looked at, so that a device that is
                    // measured is measured as it will be used; outlives the registry; NULL
                    // = the caller alone
} pgd_dev_search;

// One plugin as its manifest describes it. Strings live as long as the registry.
typedef struct pgd_dev_manifest {
    const char *path; // of the library
    const char *kind; // "" if the manifest is unusable
    const char *name;
    const char *vendor;
    const char *version;
    const char *license;
    int32_t role; // PGD_ROLE_...
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t min_host_minor;
    const char *const *aliases;
    uint32_t n_aliases;
    uint32_t n_options;
    const pgd_option *options;  // declared in the manifest
    const char *const *matches; // chips it drives: "pci:10de:*", vendor and device in hex or *
    const char *const *needs;   // libraries of the driver: sonames or paths
    const char *sha256;         // of the library, lower-case hex; NULL = not said
    uint32_t n_matches;
    uint32_t n_needs;
    int32_t drives_no_pci; // 1: "matches" is there and empty
    int32_t reserved0;
    const char *unusable; // why, as a sentence; NULL = usable
} pgd_dev_manifest;

// Reads the manifests in: search->files, search->folders, PAGODA_PLUGIN_PATH (colon-separated,
// absolute), <folder of this library or executable>/../lib/pagoda and <same folder>/pagoda. Never
// the current folder. Opens no library.
pgd_status pgd_dev_registry_create(const pgd_dev_search *search,
                                   pgd_dev_registry **out) PGD_MUST_USE;
void pgd_dev_registry_destroy(pgd_dev_registry *r);
uint32_t pgd_dev_registry_count(const pgd_dev_registry *r);
const pgd_dev_manifest *pgd_dev_registry_get(const pgd_dev_registry *r, uint32_t i);

// ---- devices ----------------------------------------------------------------------------------

// A candidate of `pagoda devices`: taken or refused, and why.
typedef struct pgd_dev_candidate {
    const pgd_dev_manifest *manifest;
    pgd_device_info info; // info.uri "KIND:N"; all zero when refused before a device was seen
    int32_t usable;
    int32_t score;    // of the plugin's probe, among plugins that see the same chip
    char reason[600]; // a path of a usual length fits
} pgd_dev_candidate;

// Why this plugin has nothing to drive here: no chip is one that its manifest's "matches" names,
// or a library of "needs" is not installed. 1 and a sentence in reason[cap], or 0. Opens nothing.
int32_t pgd_dev_is_absent(const pgd_dev_registry *r, const pgd_dev_manifest *m, char *reason,
                          size_t cap);

// Probes every usable backend plugin that is not absent. A chip that several plugins see (the same
// PCI address or uuid) is usable once: by the plugin with the highest score, of equals the first.
// *out is one array, freed by pgd_dev_candidates_free.
pgd_status pgd_dev_candidates(pgd_dev_registry *r, pgd_dev_candidate **out,
                              uint32_t *out_n) PGD_MUST_USE;
void pgd_dev_candidates_free(pgd_dev_candidate *list);
// The same in the order of "auto": usable devices by memory bandwidth, the most first, n_usable of
// them; behind them those that are refused. The null device is among these.
pgd_status pgd_dev_auto_order(pgd_dev_registry *r, pgd_dev_candidate **out, uint32_t *out_n,
                              uint32_t *out_usable) PGD_MUST_USE;
// 1 for "auto" and "auto{...}", with layers around it or not.
int32_t pgd_dev_is_auto(const char *uri);
// Such a name with another device's ("cpu:0") in the place of "auto"; options and layers stay.
pgd_status pgd_dev_replace_auto(const char *uri, const char *name, pgd_text *out) PGD_MUST_USE;

typedef struct pgd_dev pgd_dev;

typedef struct pgd_dev_desc {
    const char *uri; // KIND[:N], an alias for KIND, "auto", pci:0000:65:00.0 or uuid:GPU-...; each
                     // with {key=value;...} behind it; LAYER[{key=value;...}](...) around it
    pgd_team *team;  // lent to the plugin; outlives the device
    uint32_t allow_slow; // 1: F3 places are allowed
    // 1: a plugin that has the option `deterministic` gets it as off, unless the URI sets it
    uint32_t no_deterministic;
} pgd_dev_desc;

//   fails  INVALID (the name or an option; says what there is), NOT_FOUND (no such device; the
//          plugin's own reason), UNAVAILABLE (manifest or library), INCOMPATIBLE (ABI), and
//          whatever the plugin answers
pgd_status pgd_dev_open(pgd_dev_registry *r, const pgd_dev_desc *desc, pgd_dev **out) PGD_MUST_USE;
void pgd_dev_close(pgd_dev *dev); // NULL is fine
// Whether there are plugins for the name and the options are theirs; no device is opened but for pci
// and uuid names.
//   fails  INVALID, NOT_FOUND, UNAVAILABLE, INCOMPATIBLE as pgd_dev_open
pgd_status pgd_dev_check(pgd_dev_registry *r, const char *uri) PGD_MUST_USE;

const pgd_device *pgd_dev_device(const pgd_dev *dev);    // borrow; tables are complete
const pgd_device_info *pgd_dev_info(const pgd_dev *dev); // borrow
const char *pgd_dev_uri(const pgd_dev *dev);             // borrow, "KIND:N", "trace(KIND:N)"

// A named table beside the standard ones ("x.limits.1"), NULL when the plugin has none; static.
// None with layers: they would not see the calls.
const void *pgd_dev_extension(const pgd_dev *dev, const char *name);

// ---- where operations run ---------------------------------------------------------------------

enum { PGD_DEV_F0 = 0, PGD_DEV_F1 = 1, PGD_DEV_F2 = 2, PGD_DEV_F3 = 3 };

typedef struct pgd_dev_place {
    int32_t op;     // PGD_OP_...
    int32_t place;  // PGD_DEV_F0..F3
    uint32_t flags; // PGD_SUPPORT_...
    uint32_t reserved0;
    uint64_t scratch; // bytes
    char kernel[32];
    char reason[96];
} pgd_dev_place;

// Asks support for each query and settles the tables: an op whose slot is native but refused for
// one of the queries gets its composed or reference version, families as a whole. Before the first
// weight is prepared or kv bound. out: one place per query.
//   fails  UNSUPPORTED if a place is F3 and allow_slow is 0; the sentence names the operations
pgd_status pgd_dev_plan(pgd_dev *dev, const pgd_query *queries, uint32_t n,
                        pgd_dev_place *out) PGD_MUST_USE;
// 1 when the plugin itself says that it runs this; the tables stay as they are. 0 for a plugin that
// does not tell.
int32_t pgd_dev_takes(const pgd_dev *dev, const pgd_query *query);

// The exec to run ops on a queue with; scratch_bytes = the largest of the plan.
pgd_status pgd_dev_exec_create(pgd_dev *dev, pgd_queue *queue, uint64_t scratch_bytes,
                               pgd_exec **out) PGD_MUST_USE;
void pgd_dev_exec_destroy(pgd_dev *dev, pgd_exec *exec); // NULL is fine

#endif
