// The door of a plugin: its entry symbol, what the host lends it, and the version rule.
//
// A plugin is a shared library that exports exactly one symbol, pgd_plugin_v0. It links libc and
// its own kernels; a vendor's driver is opened by the plugin with dlopen. It has no static
// constructors, starts no compute threads, never prints, never exits, and leaves locale, signal
// handlers, floating-point mode and environment as they are. It stays mapped for the life of the
// process. A plugin with operations includes <pagoda/ops.h> too.
//
// Version rule: the major version is in the symbol's name. Within a major version tables and
// structs only grow at their end; each carries its size; the consumer accepts smaller (the rest is
// zero) and larger (a non-zero unknown tail of an argument is UNSUPPORTED). So a plugin runs on
// every host of min_host_minor or later, older or newer than its own headers:
//
//   abi_minor <= the host's   abi_hash must be the layout that minor was kept with; a field that is
//                             newer than abi_minor and would change a result is never sent to it
//   abi_minor >  the host's   min_host_minor is its word that it does without what the host lacks
#ifndef PAGODA_PLUGIN_H
#define PAGODA_PLUGIN_H

#include <pagoda/backend.h>
#include <pagoda/status.h>
#include <pagoda/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PGD_ABI_MAJOR 0
#define PGD_ABI_MINOR 2
// First 64 bits of the SHA-256 of this minor's layout snapshot (tests/abi/layout.txt).
#define PGD_ABI_HASH UINT64_C(0xf8446a9031db6535)

#define PGD_PLUGIN_ENTRY "pgd_plugin_v0"

enum { PGD_LOG_ERROR = 0, PGD_LOG_WARNING = 1, PGD_LOG_INFO = 2, PGD_LOG_DEBUG = 3 };

// What a team runs: `worker` of `n_workers`, the caller is worker 0.
typedef void (*pgd_team_fn)(void *arg, uint32_t worker, uint32_t n_workers);

// What the host lends a plugin. Made once per open; lives until close has returned.
// Every function takes the table itself first. Thread tags: [any] any thread.
typedef struct pgd_host {
    uint32_t size;
    uint32_t minor; // ABI minor of this host
    void *ctx;      // the host's own
    // [any] one line of text, level PGD_LOG_...; never called in a step.
    void (*log)(const struct pgd_host *h, int32_t level, const char *text);
    // [any] puts a sentence into the calling thread's slot and returns code.
    pgd_status (*fail)(const struct pgd_host *h, pgd_status code, const char *file, int32_t line,
                       const char *fmt, ...) PGD_PRINTF(5, 6);
    // [any] monotonic nanoseconds.
    uint64_t (*clock_ns)(const struct pgd_host *h);
    // [any] zeroed memory, align a power of two (0 = 16); NULL when there is none.
    void *(*alloc)(const struct pgd_host *h, uint64_t bytes, uint64_t align);
    // [any] NULL is fine.
    void (*free)(const struct pgd_host *h, void *ptr);
    // [any] workers of the process's one compute team, at least 1.
    uint32_t (*team_size)(const struct pgd_host *h);
    // [queue] runs fn on every worker and returns when all are done. The caller is worker 0.
    void (*team_run)(const struct pgd_host *h, pgd_team_fn fn, void *arg);
    // [inside fn] waits until every worker of this run has come here.
    void (*team_barrier)(const struct pgd_host *h);
    // [any] the value of a device option, or NULL when it was not given. Lives as long as the host.
    const char *(*option)(const struct pgd_host *h, const char *key);
} pgd_host;

#define PGD_HOST_FAIL(host, code, ...) \
    ((host)->fail)((host), (code), __FILE__, __LINE__, __VA_ARGS__)

// One option a plugin understands; rows lie `option_stride` bytes apart.
typedef struct pgd_option {
    const char *key;
    const char *type;  // "int", "str", "bool", "bytes", "us"
    const char *value; // default
    const char *help;
} pgd_option;

typedef struct pgd_probe {
    uint32_t size;
    uint32_t n_devices;
    int32_t score; // higher is better among plugins that see the same chip
    uint32_t reserved0;
    char reason[240]; // why there is no device, as one sentence
} pgd_probe;

enum { PGD_ROLE_BACKEND = 0, PGD_ROLE_LAYER = 1 };
enum {
    PGD_PLUGIN_TOP = 1u << 0, // layer: sits above the hole filler, sees what the model asked
};

// A plugin, as its entry symbol returns it: static data.
typedef struct pgd_plugin {
    uint32_t size;
    uint32_t abi_minor;      // minor of the headers it was built with
    uint32_t min_host_minor; // lowest minor of a host it runs on
    uint32_t role;           // PGD_ROLE_...
    uint32_t flags;          // PGD_PLUGIN_...
    uint32_t n_options;
    uint32_t option_stride;
    uint32_t reserved0;
    uint64_t abi_hash; // PGD_ABI_HASH of the headers it was built with
    const char *name;  // the KIND of device names, as in the manifest
    const char *vendor;
    const char *version;
    const char *build; // free text: compiler, driver API
    const pgd_option *options;
    // [setup] looks for devices without opening any; no device is PGD_OK with n_devices 0.
    pgd_status (*probe)(const pgd_host *host, pgd_probe *out);
    // [setup] makes the backend and fills the tables (pointers to static tables).
    pgd_status (*open)(const pgd_host *host, void **out_backend, pgd_tables *out);
    // [setup] every device is closed by then.
    void (*close)(void *backend);
} pgd_plugin;

typedef const pgd_plugin *(*pgd_plugin_entry)(uint32_t host_minor);

#if defined(_WIN32)
#define PGD_EXPORT __declspec(dllexport)
#else
#define PGD_EXPORT __attribute__((visibility("default")))
#endif

// Defines the entry symbol. With PGD_STATIC_PLUGIN the name gets the plugin's own suffix, so that
// several plugins can be linked into one program.
#ifdef PGD_STATIC_PLUGIN
#define PGD_PLUGIN_DEFINE(suffix)                                  \
    const pgd_plugin *pgd_plugin_v0_##suffix(uint32_t host_minor); \
    const pgd_plugin *pgd_plugin_v0_##suffix(uint32_t host_minor)
#else
#define PGD_PLUGIN_DEFINE(suffix)                                    \
    PGD_EXPORT const pgd_plugin *pgd_plugin_v0(uint32_t host_minor); \
    PGD_EXPORT const pgd_plugin *pgd_plugin_v0(uint32_t host_minor)
#endif

#ifdef __cplusplus
}
#endif
#endif
