// What the files of pagoda-conform share: checks, their results, and the device under test.
//
// Each check runs in a child process of its own, which loads the plugin through runtime/dev as the
// engine does. So a plugin that crashes, hangs or spoils its process fails one check by name and
// the next one starts afresh. Results lie in memory that both processes see.
//
//   parent: list of checks -> fork -> child: load, run, write result -> parent: tables and files
//
// In a child nothing is cleaned up after a failure: conform_end leaves the process.
#ifndef PGD_TESTS_CONFORM_H
#define PGD_TESTS_CONFORM_H

#include <pagoda/ops.h>
#include <pagoda/plugin.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/str.h"
#include "base/team.h"
#include "dev/dev.h"

enum { CONFORM_LEVELS = 5, CONFORM_TEXT = 3000, CONFORM_NOTE = 200, CONFORM_CHECKS = 120 };

enum {
    CONFORM_NOT_RUN = 0, // an earlier check that it rests on failed
    CONFORM_PASSED = 1,
    CONFORM_FAILED = 2,
    CONFORM_SKIPPED = 3, // the plugin does not offer what is checked
};

typedef struct conform conform;
typedef void (*conform_fn)(conform *c);

typedef struct conform_check {
    const char *name;
    int32_t level;
    int32_t gate;     // 1: nothing after it makes sense when it fails
    const char *what; // one line for --list
    conform_fn run;
    const char *part; // of the checks that share a function: the operation or the model
} conform_check;

typedef struct conform_result {
    int32_t state;
    int32_t reserved0;
    uint64_t ns;
    char note[CONFORM_NOTE]; // a fact for the table: counts, figures, why it was skipped
    char text[CONFORM_TEXT]; // failures, one sentence a line
} conform_result;

// What was measured of one operation in one dtype, for the data sheet.
typedef struct conform_cell {
    int32_t cases;
    int32_t wrong;
    double ulp;  // largest error in units of the last place of the row's largest number
    double nmse; // largest sum of squared errors over the sum of squares of one case
} conform_cell;

enum { CONFORM_DTYPES = 8 };

typedef struct conform_sheet {
    conform_cell cells[PGD_OP_COUNT][CONFORM_DTYPES];
    int32_t places[PGD_OP_COUNT][4]; // cases by PGD_DEV_F0..F3
    int32_t variant[PGD_OP_COUNT];   // native cases without a promise of one order of summation
    int32_t seen;                    // 1: `info` is set
    int32_t n_rates;
    pgd_device_info info;
    struct {
        char name[64];
        char text[136];
    } rates[24]; // level 4: what was measured against the device's limits
} conform_sheet;

typedef struct conform_shared {
    conform_result results[CONFORM_CHECKS];
    conform_sheet sheet;
} conform_shared;

typedef struct conform_options {
    const char *plugin; // absolute path of the library
    char folder[1024];  // of the models that come with the tool; "" = not found
    const char *device; // NULL: the manifest's kind, device 0
    const char *json, *junit, *sheet;
    const char *matrix, *against;
    const char *only[32];
    int32_t n_only;
    int32_t level;
    int32_t cases; // of each operation
    int32_t loops; // of open and close; 0 = by the kind of device
    int32_t list;
    int32_t stop; // 1: ends at the first failure
    int32_t skip_missing;
    int32_t floors[3]; // of level 4, in percent: decode of 1 and of 64, prefill; 0 = not judged
    const char *model; // that its speed is measured with
    uint32_t threads;
    uint64_t seed;
    uint64_t soak_ns;
    uint64_t limit_ns; // of one check
} conform_options;

// One check in its child.
struct conform {
    const conform_options *options;
    const conform_check *check;
    conform_result *result;
    conform_sheet *sheet;
    pgd_dev_registry *registry;
    const pgd_dev_manifest *manifest;
    pgd_team *team;
    char uri[200];
    int32_t driver; // 1: the device stands behind a vendor's driver
    pgd_dev *dev;   // of conform_open
    const pgd_device *d;
};

// ---- main.c, list.c ----------------------------------------------------------------------------

extern const conform_check conform_checks[];
extern const int32_t conform_n_checks;
extern const char *const conform_level_names[CONFORM_LEVELS];
int conform_help(void);
// 1: --only names none, or this one (NAME, or NAME* for all that begin so).
int32_t conform_wanted(const conform_options *o, const conform_check *check);

// ---- child.c -----------------------------------------------------------------------------------

// Runs a check in a child and fills its result.
void conform_run(const conform_options *o, const conform_check *check, conform_shared *shared,
                 conform_result *result);

// 1: the plugin loads and finds no device here.
int32_t conform_is_missing(const conform_options *o);

// In the child: adds a sentence and goes on; the check has failed.
void conform_fail(conform *c, const char *fmt, ...) PGD_PRINTF(2, 3);
// A fact for the table.
void conform_note(conform *c, const char *fmt, ...) PGD_PRINTF(2, 3);
// The plugin does not offer it: the check ends.
_Noreturn void conform_skip(conform *c, const char *fmt, ...) PGD_PRINTF(2, 3);
_Noreturn void conform_end(conform *c);

#define MUST(c, condition, ...)             \
    do {                                    \
        if (!(condition)) {                 \
            conform_fail((c), __VA_ARGS__); \
            conform_end(c);                 \
        }                                   \
    } while (0)

// The call must give OK; `what` says it in words.
#define MUST_OK(c, call, what)                                                        \
    do {                                                                              \
        pgd_status must_ = (call);                                                    \
        MUST((c), must_ == PGD_OK, "%s gives %s: %s", (what), pgd_status_name(must_), \
             pgd_fail_text(must_));                                                   \
    } while (0)

// Loads the plugin and gives its description, through every check of the loader.
const pgd_plugin *conform_load(conform *c);
// Opens the device under test into c->dev and c->d.
void conform_open(conform *c);
void conform_close(conform *c);
// The same, with a status instead of an end.
pgd_status conform_try_open(conform *c, pgd_dev **out);
pgd_queue *conform_queue(conform *c, int32_t role);
// A buffer of general use on the device.
pgd_buffer *conform_buffer(conform *c, uint64_t bytes);
void conform_put(conform *c, pgd_queue *q, pgd_buffer *to, uint64_t offset, const void *from,
                 uint64_t bytes);
void conform_get(conform *c, pgd_queue *q, void *to, pgd_buffer *from, uint64_t offset,
                 uint64_t bytes);
void conform_drain(conform *c, pgd_queue *q);
// malloc that ends the check when there is none.
void *conform_room(conform *c, uint64_t bytes);

// ---- process.c: what a plugin may leave behind ------------------------------------------------

typedef struct conform_traces {
    int64_t threads;
    int64_t files; // descriptors
    int64_t heap;  // bytes of the C library's heap, -1 = not counted
    int64_t pages; // bytes resident
    int64_t lent;  // live allocations of the host table
} conform_traces;

void conform_traces_read(conform_traces *out);
// Slope of y over 0, 1 ... n - 1 by least squares.
double conform_slope(const double *y, int32_t n);

// Locale, signal handlers, rounding, denormals, environment, current folder.
typedef struct conform_settings conform_settings;
conform_settings *conform_settings_read(conform *c);
// Says what is otherwise than it was.
void conform_settings_compare(conform *c, const conform_settings *before, const char *when);

// ---- elf.c -------------------------------------------------------------------------------------

enum { CONFORM_NAMES = 24 };

typedef struct conform_elf {
    char exported[CONFORM_NAMES][80];
    char host_symbols[CONFORM_NAMES][80]; // undefined pgd_...
    char needed[CONFORM_NAMES][80];
    char search[256]; // RPATH or RUNPATH
    int32_t n_exported, n_host_symbols, n_needed;
    int32_t sanitized;     // 1: built with a sanitizer
    uint64_t constructors; // beyond the compiler's own
    void *map;             // the file
    uint64_t map_bytes;
} conform_elf;

// NULL, or what is wrong with the file as such.
const char *conform_elf_read(const char *path, conform_elf *out);

// ---- report.c, report_file.c, sheet.c ----------------------------------------------------------

void conform_print_head(const conform_options *o);
void conform_print(const conform_check *check, const conform_result *r);
void conform_print_summary(const conform_options *o, const conform_shared *shared);
// The highest level of which every check passed or was skipped, -1 = not even the first.
int32_t conform_reached(const conform_options *o, const conform_shared *shared);
pgd_status conform_write_files(const conform_options *o, const conform_shared *shared);
const char *conform_state_name(int32_t state);
// PASSED, FAILED ... of a level.
int32_t conform_count(const conform_options *o, const conform_shared *shared, int32_t level,
                      int32_t state);
pgd_status conform_write_sheet(const conform_options *o, const conform_shared *shared);

// ---- the checks --------------------------------------------------------------------------------

#define CONFORM_DECLARE(name) void conform_##name(conform *c)
CONFORM_DECLARE(manifest);
CONFORM_DECLARE(symbols);
CONFORM_DECLARE(constructors);
CONFORM_DECLARE(dependencies);
CONFORM_DECLARE(truth);
CONFORM_DECLARE(probe);
CONFORM_DECLARE(silent);
CONFORM_DECLARE(no_device);
CONFORM_DECLARE(sizes);
CONFORM_DECLARE(info);
CONFORM_DECLARE(families);
CONFORM_DECLARE(manners);
CONFORM_DECLARE(open_close);
CONFORM_DECLARE(buffers);
CONFORM_DECLARE(import);
CONFORM_DECLARE(map);
CONFORM_DECLARE(too_much);
CONFORM_DECLARE(no_memory);
CONFORM_DECLARE(copy);
CONFORM_DECLARE(pitch);
CONFORM_DECLARE(lists);
CONFORM_DECLARE(fill);
CONFORM_DECLARE(numbers);
CONFORM_DECLARE(timeouts);
CONFORM_DECLARE(across);
CONFORM_DECLARE(destroy);
CONFORM_DECLARE(notify);
CONFORM_DECLARE(handles_leak);
CONFORM_DECLARE(ops);
CONFORM_DECLARE(plans);
CONFORM_DECLARE(refusals);
CONFORM_DECLARE(golden);
CONFORM_DECLARE(native);
CONFORM_DECLARE(queued);
CONFORM_DECLARE(shared_blocks);
CONFORM_DECLARE(copied_blocks);
CONFORM_DECLARE(images);
CONFORM_DECLARE(allocations);
CONFORM_DECLARE(batches);
CONFORM_DECLARE(faults);
CONFORM_DECLARE(soak);
CONFORM_DECLARE(graph);
CONFORM_DECLARE(adopt);
CONFORM_DECLARE(offsets);
CONFORM_DECLARE(quantized);
CONFORM_DECLARE(overlap);
CONFORM_DECLARE(decode);
CONFORM_DECLARE(prefill);

#endif
