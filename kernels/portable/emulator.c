// The emulator's fibers: one a work item, switched at K_SYNC and at the end, in item order.
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

enum { STACK_BYTES = 128 * 1024, MOST_ITEMS = 256 };

typedef void *jump[5]; // of __builtin_setjmp

typedef struct fiber {
    jump at;
    ucontext_t context; // of its start
    unsigned char *stack;
    void *fake; // of the address sanitizer
    int started;
    int done;
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
} e;

pgd_emulator_place pgd_emulator_at;

#define NOT_INLINED __attribute__((noinline))

static NOT_INLINED void jump_to(jump to) {
    __builtin_longjmp(to, 1);
}

// Back to the loop in run_group; returns when the item is entered again.
static NOT_INLINED void leave(fiber *self) {
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
    leave(&e.fibers[pgd_emulator_at.item]);
}

// An item of one group after the other.
static void start(void) {
    fiber *self = &e.fibers[pgd_emulator_at.item];
#ifdef EMULATOR_ASAN
    __sanitizer_finish_switch_fiber(NULL, &e.caller_stack, &e.caller_bytes);
#endif
    for (;;) {
        e.kernel(e.m, e.params);
        self->done = 1;
        leave(self);
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

// One round lets each item run to its next K_SYNC. 0, or -2 when some ended and some did not.
static int run_group(void) {
    k_u32 n_done;
    do {
        n_done = 0;
        for (k_u32 i = 0; i < e.n_items; i++) {
            pgd_emulator_at.item = (k_i32)i;
            e.fibers[i].done = 0;
            enter(&e.fibers[i]);
            n_done += (k_u32)e.fibers[i].done;
        }
    } while (n_done == 0);
    return n_done == e.n_items ? 0 : -2;
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
