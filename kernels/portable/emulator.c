// The emulator's fibers: one a work item, switched at K_SYNC and at the end, in item order; warp by
// warp where the items of a warp meet, in rounds where warps wait for each other.
//
// A fiber is started once by makecontext and then lives as long as the process; every later switch
// is a jump, which asks nothing of the system. An item that ends while another waits at K_SYNC
// would hang a GPU; here pgd_emulator_run gives -2.
#include "portable/emulator.h"

#include <stdlib.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATOR_ASAN 1
#endif
#endif

#ifdef EMULATOR_ASAN
void __sanitizer_start_switch_fiber(void **fake_stack_save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake_stack_save, const void **bottom_old,
                                     size_t *size_old);
#endif

enum { STACK_BYTES = 128 * 1024, MOST_ITEMS = 512 };

typedef void *jump[5]; // of __builtin_setjmp

// Where a fiber stands that does not run.
enum { AT_SYNC, AT_WARP, AT_WAIT, AT_END };

typedef struct fiber {
    jump at;
    ucontext_t context; // of its start
    unsigned char *stack;
    void *fake; // of the address sanitizer
    int started;
    int at_what;
} fiber;

static struct {
    fiber fibers[MOST_ITEMS];
    jump caller;
    ucontext_t caller_context;
    void *caller_fake;
    const void *caller_stack;
    size_t caller_bytes;
    k_u32 n_items;
    pgd_emulator_kernel kernel;
    k_u8 *const *m;
    const void *params;
    pgd_emulator_lane lanes[MOST_ITEMS];
    k_u32 waits_over; // how often an item has left pgd_emulator_wait
} e;

pgd_emulator_place pgd_emulator_at;
k_u8 *pgd_emulator_shared;
int pgd_emulator_backwards;
k_i32 pgd_emulator_warp = PGD_EMULATOR_WARP;

#define NOT_INLINED __attribute__((noinline))

static NOT_INLINED void jump_to(jump to) {
    __builtin_longjmp(to, 1);
}

// Back to the loop in run_group; returns when the item is entered again.
static NOT_INLINED void leave(fiber *self, int at_what) {
    self->at_what = at_what;
#ifdef EMULATOR_ASAN
    __sanitizer_start_switch_fiber(&self->fake, e.caller_stack, e.caller_bytes);
#endif
    if (__builtin_setjmp(self->at) == 0) {
        jump_to(e.caller);
    }
#ifdef EMULATOR_ASAN
    __sanitizer_finish_switch_fiber(e.fibers[pgd_emulator_at.item].fake, &e.caller_stack,
                                    &e.caller_bytes);
#endif
}

void pgd_emulator_sync(void) {
    leave(&e.fibers[pgd_emulator_at.item], AT_SYNC);
}

pgd_emulator_lane *pgd_emulator_own(void) {
    return &e.lanes[pgd_emulator_at.item];
}

// The lanes of a warp run in order, so the last one to come is its last lane.
void pgd_emulator_together(void (*f)(pgd_emulator_lane *lanes)) {
    const k_i32 item = pgd_emulator_at.item;
    if (item % pgd_emulator_warp == pgd_emulator_warp - 1) {
        f(&e.lanes[item / pgd_emulator_warp * pgd_emulator_warp]);
    }
    leave(&e.fibers[item], AT_WARP);
}

void pgd_emulator_wait(int (*ready)(void *what), void *what) {
    const k_i32 item = pgd_emulator_at.item;
    while (!ready(what)) {
        leave(&e.fibers[item], AT_WAIT);
    }
    e.waits_over++;
}

// An item of one group after the other.
static void start(void) {
    fiber *self = &e.fibers[pgd_emulator_at.item];
#ifdef EMULATOR_ASAN
    __sanitizer_finish_switch_fiber(NULL, &e.caller_stack, &e.caller_bytes);
#endif
    for (;;) {
        e.kernel(e.m, e.params);
        leave(self, AT_END);
    }
}

static NOT_INLINED void enter(fiber *f) {
#ifdef EMULATOR_ASAN
    __sanitizer_start_switch_fiber(&e.caller_fake, f->stack, STACK_BYTES);
#endif
    if (__builtin_setjmp(e.caller) == 0) {
        if (f->started) {
            jump_to(f->at);
        }
        f->started = 1;
        swapcontext(&e.caller_context, &f->context);
    }
#ifdef EMULATOR_ASAN
    __sanitizer_finish_switch_fiber(e.caller_fake, NULL, NULL);
#endif
}

// Lets the items [first, behind) run until all are AT_SYNC, all AT_WAIT or all AT_END. -2: neither.
static int run_warp(k_u32 first, k_u32 behind) {
    int at_what;
    do {
        for (k_u32 i = first; i < behind; i++) {
            pgd_emulator_at.item = (k_i32)i;
            enter(&e.fibers[i]);
            if (e.fibers[i].at_what != e.fibers[first].at_what) {
                return -2;
            }
        }
        at_what = e.fibers[first].at_what;
    } while (at_what == AT_WARP);
    return at_what;
}

// Each warp that does not stand at `at_what` already, once or, as long as any waits and something
// moves, more often. AT_SYNC or AT_END: all are there.
static int run_warps(k_u32 warp, k_u32 n_warps) {
    int at_what[MOST_ITEMS]; // a warp has one item at least
    k_u32 n_waiting, moves, n_there = 0, round = 0;
    memset(at_what, 0xff, sizeof(at_what));
    do {
        moves = e.waits_over + n_there;
        n_waiting = n_there = 0;
        for (k_u32 i = 0; i < n_warps; i++) {
            const k_u32 w = pgd_emulator_backwards ? n_warps - 1 - i : i;
            const k_u32 first = w * warp;
            const k_u32 behind = first + warp;
            if (at_what[w] < 0 || at_what[w] == AT_WAIT) {
                at_what[w] = run_warp(first, behind < e.n_items ? behind : e.n_items);
            }
            if (at_what[w] < 0) {
                return -2;
            }
            n_waiting += at_what[w] == AT_WAIT;
            n_there += at_what[w] != AT_WAIT;
        }
    } while (n_waiting > 0 && (round++ == 0 || e.waits_over + n_there != moves));
    for (k_u32 w = 1; w < n_warps; w++) {
        if (at_what[w] != at_what[0]) {
            return -2;
        }
    }
    return at_what[0];
}

// 0, or -2 when some items ended and some did not.
static int run_group(void) {
    const k_u32 warp = (k_u32)pgd_emulator_warp;
    const k_u32 n_warps = (e.n_items + warp - 1) / warp;
    int at_what;
    do {
        at_what = run_warps(warp, n_warps);
    } while (at_what == AT_SYNC);
    return at_what == AT_END ? 0 : -2;
}

static int make_fibers(k_u32 n_items) {
    for (k_u32 i = 0; i < n_items; i++) {
        fiber *f = &e.fibers[i];
        if (f->stack != NULL) {
            continue;
        }
        f->stack = malloc(STACK_BYTES);
        if (f->stack == NULL || getcontext(&f->context) != 0) {
            return -1;
        }
        f->context.uc_stack.ss_sp = f->stack;
        f->context.uc_stack.ss_size = STACK_BYTES;
        f->context.uc_link = NULL;
        makecontext(&f->context, start, 0);
    }
    return 0;
}

int pgd_emulator_run(pgd_emulator_kernel kernel, const k_u32 groups[3], k_u32 n_items,
                     k_u8 *const *m, const void *params) {
    int code = n_items > MOST_ITEMS ? -1 : make_fibers(n_items);
    e.kernel = kernel;
    e.n_items = n_items;
    e.m = m;
    e.params = params;
    for (k_u32 z = 0; z < groups[2]; z++) {
        for (k_u32 y = 0; y < groups[1]; y++) {
            for (k_u32 x = 0; x < groups[0] && code == 0; x++) {
                pgd_emulator_at.group[0] = (k_i32)x;
                pgd_emulator_at.group[1] = (k_i32)y;
                pgd_emulator_at.group[2] = (k_i32)z;
                code = run_group();
            }
        }
    }
    return code;
}
