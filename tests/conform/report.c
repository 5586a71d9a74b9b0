// What people read: one line for each check, and what came out.
#include "conform.h"

#include <stdio.h>
#include <string.h>

#include "os/env.h"
#include "os/terminal.h"

static int32_t colours(void) {
    static int32_t known = -1;
    if (known < 0) {
        known = pgd_os_is_terminal(1) && pgd_os_env("NO_COLOR") == NULL;
    }
    return known;
}

static const struct {
    const char *word, *name, *colour;
} states[] = {{"not run", "not_run", "\033[33m"},
              {"ok", "passed", "\033[32m"},
              {"FAILED", "failed", "\033[31m"},
              {"skipped", "skipped", "\033[33m"}};

const char *conform_state_name(int32_t state) {
    return states[state & 3].name;
}

void conform_print_head(const conform_options *o) {
    printf("pagoda-conform: %s\n\n", o->plugin);
    printf("%-5s %-24s %-8s %8s  %s\n", "level", "check", "", "ms", "");
}

void conform_print(const conform_check *check, const conform_result *r) {
    const int32_t s = r->state & 3;
    const char *line = r->text;
    printf("%-5d %-24s %s%-8s%s %8.0f  %s\n", check->level, check->name,
           colours() ? states[s].colour : "", states[s].word, colours() ? "\033[0m" : "",
           (double)r->ns * 1e-6, r->note);
    while (*line != '\0') {
        const char *end = strchr(line, '\n');
        const int n = end != NULL ? (int)(end - line) : (int)strlen(line);
        printf("      %.*s\n", n, line);
        line += n + (end != NULL);
    }
    fflush(stdout);
}

int32_t conform_count(const conform_options *o, const conform_shared *shared, int32_t level,
                      int32_t state) {
    int32_t n = 0;
    for (int32_t i = 0; i < conform_n_checks; i++) {
        const conform_check *check = &conform_checks[i];
        n += check->level == level && check->level <= o->level && conform_wanted(o, check) &&
             shared->results[i].state == state;
    }
    return n;
}

int32_t conform_reached(const conform_options *o, const conform_shared *shared) {
    int32_t level;
    for (level = 0; level <= o->level; level++) {
        if (conform_count(o, shared, level, CONFORM_PASSED) == 0 ||
            conform_count(o, shared, level, CONFORM_FAILED) > 0 ||
            conform_count(o, shared, level, CONFORM_NOT_RUN) > 0) {
            break;
        }
    }
    return level - 1;
}

void conform_print_summary(const conform_options *o, const conform_shared *shared) {
    int32_t sum[4] = {0};
    printf("\n%-16s %7s %7s %8s %8s\n", "level", "passed", "failed", "skipped", "not run");
    for (int32_t level = 0; level <= o->level; level++) {
        int32_t n[4];
        char name[40];
        for (int32_t state = 0; state < 4; state++) {
            n[state] = conform_count(o, shared, level, state);
            sum[state] += n[state];
        }
        snprintf(name, sizeof(name), "%d %s", (int)level, conform_level_names[level]);
        printf("%-16s %7d %7d %8d %8d\n", name, (int)n[CONFORM_PASSED], (int)n[CONFORM_FAILED],
               (int)n[CONFORM_SKIPPED], (int)n[CONFORM_NOT_RUN]);
    }
    if (o->n_only > 0) {
        printf("\n%d of the chosen checks failed; a level is given by all its checks\n",
               (int)(sum[CONFORM_FAILED] + sum[CONFORM_NOT_RUN]));
        return;
    }
    const int32_t reached = conform_reached(o, shared);
    if (reached < 0) {
        printf("\nno level reached\n");
    } else {
        printf("\nlevel %d reached: %s%s\n", (int)reached, conform_level_names[reached],
               reached == o->level ? "" : " (asked for more)");
    }
}
