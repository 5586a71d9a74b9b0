// The checks, in the order in which they run. A gate that fails ends the run: what follows rests on
// it.
#include "conform.h"

#include <string.h>

const char *const conform_level_names[CONFORM_LEVELS] = {"loads", "memory", "correct", "serves",
                                                         "fast"};

#define CHECK(name, level, gate, fn, what) \
    { name, level, gate, what, conform_##fn, NULL }
#define PART(name, level, fn, part, what) \
    { name, level, 0, what, conform_##fn, part }

const conform_check conform_checks[] = {
    CHECK("loads.manifest", 0, 1, manifest, "the JSON file beside the library is there and valid"),
    CHECK("loads.symbols", 0, 0, symbols, "one exported symbol, none needed of the host"),
    CHECK("loads.constructors", 0, 0, constructors, "no code runs when the library is opened"),
    CHECK("loads.dependencies", 0, 0, dependencies, "linked with the C library and little else"),
    CHECK("loads.truth", 0, 1, truth, "library and manifest say the same"),
    CHECK("loads.probe", 0, 0, probe, "probe answers, with a reason when it finds nothing"),
    CHECK("loads.no_device", 0, 0, no_device, "drivers told to hide: a sentence, no crash"),
    CHECK("loads.info", 0, 1, info, "the device opens and describes itself"),
    CHECK("loads.sizes", 0, 0, sizes, "out-structs of older and newer hosts"),
    CHECK("loads.families", 0, 0, families, "weight and kv functions are filled as a whole"),
    CHECK("loads.manners", 0, 0, manners, "locale, signals, rounding, threads, files untouched"),
    CHECK("loads.open_close", 0, 0, open_close, "opening in a loop leaves nothing behind"),

    CHECK("memory.buffers", 1, 1, buffers, "zeroed, aligned, keep what is copied in"),
    CHECK("memory.import", 1, 0, import, "host memory as a buffer"),
    CHECK("memory.map", 1, 0, map, "the host address of a buffer"),
    CHECK("memory.too_much", 1, 0, too_much, "more than there is: OUT_OF_MEMORY, nothing changed"),
    CHECK("memory.no_memory", 1, 0, no_memory, "each allocation fails once, without a trace"),
    CHECK("memory.handles", 1, 0, handles_leak, "handles made and destroyed leave nothing behind"),
    CHECK("queue.copy", 1, 1, copy, "to the device, on it and back, at odd offsets"),
    CHECK("queue.pitch", 1, 0, pitch, "copies of rows with pitches"),
    CHECK("queue.lists", 1, 0, lists, "dependent copies in lists, in order"),
    CHECK("queue.fill", 1, 0, fill, "fills in order"),
    CHECK("queue.numbers", 1, 0, numbers, "signal, done, host_wait count up together"),
    CHECK("queue.timeouts", 1, 0, timeouts, "TIMEOUT when it is not reached, in time"),
    CHECK("queue.across", 1, 0, across, "order across queues by wait"),
    CHECK("queue.destroy", 1, 0, destroy, "destroy waits for what is enqueued"),
    CHECK("queue.notify", 1, 0, notify, "called once, when the number is reached"),
};

const int32_t conform_n_checks = (int32_t)(sizeof(conform_checks) / sizeof(conform_checks[0]));

int32_t conform_wanted(const conform_options *o, const conform_check *check) {
    for (int32_t i = 0; i < o->n_only; i++) {
        const size_t n = strlen(o->only[i]);
        if (strcmp(o->only[i], check->name) == 0 ||
            (n > 0 && o->only[i][n - 1] == '*' && strncmp(o->only[i], check->name, n - 1) == 0)) {
            return 1;
        }
    }
    return o->n_only == 0;
}
