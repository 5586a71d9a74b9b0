// Plugins with one thing wrong or unusual each; ODD_CASE says which. All else is minimal_plugin.c.
#define PGD_STATIC_PLUGIN
#include "minimal_plugin.c"

#define ODD_HASH       1  // built with headers of another layout
#define ODD_NEWER_HOST 2  // needs a host of a later minor
#define ODD_REFUSES    3  // its entry function returns NULL
#define ODD_OTHER_NAME 4  // calls itself otherwise than its manifest says
#define ODD_NO_COPY    5  // leaves a mandatory function empty
#define ODD_OLD        6  // tables of an earlier, smaller interface
#define ODD_NEW        7  // tables of a later, larger interface
#define ODD_NO_DEVICE  8  // probes no device
#define ODD_NO_ENTRY   9  // exports the entry of another major version
#define ODD_SMALL      10 // a description too small to hold its functions
#define ODD_CODE_ONLY  11 // fails to open without a sentence
#define ODD_VERSION    12 // is of another version than its manifest says
#define ODD_ROLE       13 // is a layer, its manifest says backend
#define ODD_MINOR      14 // is of an earlier minor than its manifest says
#define ODD_LATER      15 // of a later minor that runs here, with longer tables and description
#define ODD_NO_MINOR   16 // of a minor that never was

static pgd_status odd_probe(const pgd_host *host, pgd_probe *out) {
    pgd_probe local = {.size = sizeof(local), .reason = "no driver was found"};
    (void)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

#if ODD_CASE == ODD_NEW || ODD_CASE == ODD_LATER
// What a later interface might append: the host knows nothing of it.
typedef struct long_queue {
    pgd_queue_table known;
    pgd_status (*appended)(const pgd_device *d);
} long_queue;

static pgd_status appended(const pgd_device *d) {
    (void)d;
    return PGD_INTERNAL;
}
#endif

static pgd_status odd_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static pgd_queue_table queue;
#if ODD_CASE == ODD_CODE_ONLY
    (void)host;
    (void)out_backend;
    (void)out;
    (void)queue;
    return PGD_UNAVAILABLE;
#else
    PGD_TRY(plugin_open(host, out_backend, out));
    queue = *out->queue;
    out->queue = &queue;
#endif
#if ODD_CASE == ODD_NO_COPY
    queue.copy = NULL;
#elif ODD_CASE == ODD_OLD
    queue.size = offsetof(pgd_queue_table, fill); // everything from fill on did not exist
    queue.fill = (pgd_status(*)(const pgd_device *, pgd_queue *, const pgd_range *, uint32_t))1;
#elif ODD_CASE == ODD_NEW || ODD_CASE == ODD_LATER
    static long_queue larger;
    larger.known = queue;
    larger.known.size = sizeof(larger);
    larger.appended = appended;
    out->queue = &larger.known;
#endif
    return PGD_OK;
}

static const pgd_plugin *odd(void) {
    static pgd_plugin plugin;
    plugin = *pgd_plugin_v0_minimal(PGD_ABI_MINOR);
    plugin.name = "odd";
    plugin.open = odd_open;
#if ODD_CASE == ODD_HASH
    plugin.abi_hash ^= 1;
#elif ODD_CASE == ODD_NEWER_HOST
    plugin.min_host_minor = PGD_ABI_MINOR + 7;
#elif ODD_CASE == ODD_OTHER_NAME
    plugin.name = "honest";
#elif ODD_CASE == ODD_SMALL
    plugin.size = offsetof(pgd_plugin, open);
#elif ODD_CASE == ODD_VERSION
    plugin.version = "9.9.9";
#elif ODD_CASE == ODD_ROLE
    plugin.role = PGD_ROLE_LAYER;
#elif ODD_CASE == ODD_MINOR
    plugin.abi_minor = 1;
    plugin.abi_hash = UINT64_C(0x75301da86f53fe5f);
#elif ODD_CASE == ODD_LATER
    plugin.abi_minor = PGD_ABI_MINOR + 1;
    plugin.abi_hash ^= 1;
    plugin.size += 8;
#elif ODD_CASE == ODD_NO_MINOR
    plugin.abi_minor = 0;
#endif
    if (ODD_CASE == ODD_NO_DEVICE) {
        plugin.probe = odd_probe;
    }
    return ODD_CASE == ODD_REFUSES ? NULL : &plugin;
}

#if ODD_CASE == ODD_NO_ENTRY
PGD_EXPORT const pgd_plugin *pgd_plugin_v9(uint32_t host_minor);
const pgd_plugin *pgd_plugin_v9(uint32_t host_minor) {
#else
PGD_EXPORT const pgd_plugin *pgd_plugin_v0(uint32_t host_minor);
const pgd_plugin *pgd_plugin_v0(uint32_t host_minor) {
#endif
    (void)host_minor;
    return odd();
}
