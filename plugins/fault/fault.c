// The fault layer: a device that fails when it is told to. Options, counting, entry.
//
//   call -> lost? -> does it count? -> slow -> lose | hang | fail -> level below -> spoil outputs
#include "fault.h"

#include <time.h>

#define MAX_ID 63

// Devices of this process that cannot be opened again (reopen=fail), a bit for each id.
static _Atomic uint64_t gone;

static const char *call_name(int32_t call) {
    static const char *const functions[] = {
#define NAME(name) #name,
        FAULT_FUNCTION_LIST(NAME)
#undef NAME
    };
    return call < PGD_OP_COUNT ? layer_op_name(call) : functions[call - PGD_OP_COUNT];
}

void fault_nap(uint64_t ns) {
    const struct timespec left = {
        .tv_sec = (time_t)(ns / 1000000000u),
        .tv_nsec = (long)(ns % 1000000000u),
    };
    nanosleep(&left, NULL);
}

static int32_t is_due(const fault_self *f, int64_t n, int64_t nth) {
    return nth > 0 && (f->repeat ? n % nth == 0 : n == nth);
}

static void lose(fault_self *f) {
    atomic_store(&f->lost, 1);
    if (f->stays_lost) {
        atomic_fetch_or(&gone, UINT64_C(1) << f->id);
    }
}

pgd_status fault_enter(fault_self *f, int32_t call, int32_t *out_spoil) {
    *out_spoil = 0;
    if (!atomic_load(&f->lost) && f->counts[call]) {
        const int64_t n = atomic_fetch_add(&f->n, 1) + 1;
        if (f->slow_us > 0) {
            fault_nap((uint64_t)f->slow_us * 1000);
        }
        if (is_due(f, n, f->lose_nth)) {
            lose(f);
        }
        if (is_due(f, n, f->hang_nth)) {
            atomic_store(&f->hung, 1);
        }
        if (is_due(f, n, f->fail_nth)) {
            return PGD_HOST_FAIL(f->host, f->code, "call %lld (%s) fails (fault layer)",
                                 (long long)n, call_name(call));
        }
        *out_spoil |= is_due(f, n, f->nan_nth) ? FAULT_SPOIL_NAN : 0;
        *out_spoil |= is_due(f, n, f->wrong_nth) ? FAULT_SPOIL_WRONG : 0;
    }
    return atomic_load(&f->lost)
               ? PGD_HOST_FAIL(f->host, PGD_DEVICE_LOST, "the device is lost at %s (fault layer)",
                               call_name(call))
               : PGD_OK;
}

// ---- options -----------------------------------------------------------------------------------

static const pgd_option options[] = {
    {"op", "str", "ops",
     "calls that count: an operation, a function (copy, host_wait ...), ops or all"},
    {"fail_nth", "int", "0", "the n-th of them fails with `code`"},
    {"code", "str", "INTERNAL", "a status, for example OUT_OF_MEMORY"},
    {"lose_nth", "int", "0", "at the n-th the device is lost for good"},
    {"hang_nth", "int", "0", "from the n-th on no point in time is reached"},
    {"nan_nth", "int", "0", "the n-th writes NaN (token ids: -1)"},
    {"wrong_nth", "int", "0", "the n-th writes ones (token ids: 0)"},
    {"oom_nth", "int", "0", "the n-th buffer is OUT_OF_MEMORY, whatever op says"},
    {"slow_us", "us", "0", "each of them takes so much longer"},
    {"repeat", "bool", "off", "every n-th instead of the n-th"},
    {"row", "int", "-1", "the row that NaN or ones are written to, -1 = all"},
    {"reopen", "str", "ok", "fail: a lost device cannot be opened again in this process"},
    {"id", "int", "0", "which device of this process reopen=fail means, 0 to 63"},
};

static pgd_status read_calls(fault_self *f) {
    const char *op = f->host->option(f->host, "op");
    int32_t n = 0;
    op = op != NULL ? op : "ops";
    for (int32_t call = 0; call < FAULT_COUNT; call++) {
        f->counts[call] = strcmp(op, "all") == 0 || strcmp(op, call_name(call)) == 0 ||
                          (call < PGD_OP_COUNT && strcmp(op, "ops") == 0);
        f->sees_ops |= f->counts[call] && call < PGD_OP_COUNT;
        n += f->counts[call];
    }
    if (n > 0) {
        return PGD_OK;
    }
    char allowed[600] = "ops, all";
    for (int32_t call = 0; call < FAULT_COUNT; call++) {
        const size_t used = strlen(allowed);
        const char *name = call_name(call);
        if (used + strlen(name) + 3 < sizeof(allowed)) {
            memcpy(allowed + used, ", ", 2);
            memcpy(allowed + used + 2, name, strlen(name) + 1);
        }
    }
    return PGD_HOST_FAIL(f->host, PGD_INVALID, "option op of layer fault is '%s'; allowed: %s", op,
                         allowed);
}

static pgd_status read_code(fault_self *f) {
    const char *text = f->host->option(f->host, "code");
    f->code = PGD_INTERNAL;
    if (text == NULL) {
        return PGD_OK;
    }
#define MATCH(name, number, sentence)                     \
    if ((number) != PGD_OK && strcmp(text, #name) == 0) { \
        f->code = (number);                               \
        return PGD_OK;                                    \
    }
    PGD_STATUS_LIST(MATCH)
#undef MATCH
    return PGD_HOST_FAIL(f->host, PGD_INVALID,
                         "option code of layer fault is '%s'; the name of a status is allowed, for "
                         "example OUT_OF_MEMORY",
                         text);
}

static pgd_status read_numbers(fault_self *f) {
    const struct {
        const char *key;
        int64_t *to;
        int64_t least;
        int64_t standard;
    } numbers[] = {
        {"fail_nth", &f->fail_nth, 0, 0},   {"lose_nth", &f->lose_nth, 0, 0},
        {"hang_nth", &f->hang_nth, 0, 0},   {"nan_nth", &f->nan_nth, 0, 0},
        {"wrong_nth", &f->wrong_nth, 0, 0}, {"oom_nth", &f->oom_nth, 0, 0},
        {"slow_us", &f->slow_us, 0, 0},     {"row", &f->row, -1, -1},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        *numbers[i].to = layer_number(f->host, numbers[i].key, numbers[i].standard);
        if (*numbers[i].to < numbers[i].least) {
            return PGD_HOST_FAIL(
                f->host, PGD_INVALID, "option %s of layer fault is %lld; %lld or more is allowed",
                numbers[i].key, (long long)*numbers[i].to, (long long)numbers[i].least);
        }
    }
    return PGD_OK;
}

static pgd_status read_reopen(fault_self *f) {
    const char *reopen = f->host->option(f->host, "reopen");
    const int64_t id = layer_number(f->host, "id", 0);
    f->stays_lost = reopen != NULL && strcmp(reopen, "fail") == 0;
    if (reopen != NULL && !f->stays_lost && strcmp(reopen, "ok") != 0) {
        return PGD_HOST_FAIL(f->host, PGD_INVALID,
                             "option reopen of layer fault is '%s'; ok and fail are allowed",
                             reopen);
    }
    if (id < 0 || id > MAX_ID) {
        return PGD_HOST_FAIL(f->host, PGD_INVALID,
                             "option id of layer fault is %lld; 0 to 63 is allowed", (long long)id);
    }
    f->id = (int32_t)id;
    if (f->stays_lost && (atomic_load(&gone) >> f->id & 1) != 0) {
        return PGD_HOST_FAIL(f->host, PGD_DEVICE_LOST, "the device is gone (fault layer)");
    }
    return PGD_OK;
}

static pgd_status read_options(fault_self *f) {
    PGD_TRY(read_calls(f));
    PGD_TRY(read_code(f));
    PGD_TRY(read_numbers(f));
    f->repeat = layer_is_on(f->host, "repeat", 0);
    return read_reopen(f);
}

// ---- entry -------------------------------------------------------------------------------------

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    pgd_tables local = {.size = sizeof(local)};
    *out_backend = NULL;
    fault_self *f = host->alloc(host, sizeof(*f), 0);
    if (f == NULL) {
        return PGD_HOST_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for the fault layer");
    }
    f->host = host;
    fault_make_patterns(f);
    pgd_status code = read_options(f);
    if (code != PGD_OK) {
        host->free(host, f);
        return code;
    }
    *out_backend = f;
    fault_fill_tables(&local);
    PGD_OUT(out, local);
    return PGD_OK;
}

static void plugin_close(void *backend) {
    fault_self *f = backend;
    f->host->free(f->host, f);
}

PGD_PLUGIN_DEFINE(fault) {
    static const pgd_plugin plugin = LAYER_PLUGIN("fault", plugin_open, plugin_close);
    (void)host_minor;
    return &plugin;
}
