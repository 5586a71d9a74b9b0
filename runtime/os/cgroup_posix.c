// Control groups: /proc/self/cgroup names the group, /proc/self/mountinfo the place where its
// files lie.
//
//   /proc/self/cgroup     hierarchy:controllers:path             "0::/a/b", "4:cpu,cpuacct:/a"
//   /proc/self/mountinfo  id parent dev root mount opts... - type source superopts
//
// A group's files lie at mount + (path without root). In a container without its own cgroup
// namespace the path may lie outside of root: then only the mount point itself is read.
// Source: cgroups(7), proc(5), Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst.
#define _GNU_SOURCE

#include "os/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 4096 };

typedef struct group {
    int32_t version;           // 0 = not found, 1, 2
    size_t mount_bytes;        // length of the mount point (with the test's root) in path
    char path[LINE_MAX_BYTES]; // folder of the group
} group;

// Whether the comma-separated list holds word.
static int has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = strstr(list, word); at != NULL; at = strstr(at + 1, word)) {
        int begins = at == list || at[-1] == ',';
        int ends = at[n] == '\0' || at[n] == ',' || at[n] == '\n';
        if (begins && ends) {
            return 1;
        }
    }
    return 0;
}

// The process's path in the hierarchy of controller (version 1) or in the one of version 2.
static int find_path(const char *root, int32_t version, const char *controller, char *out) {
    char name[LINE_MAX_BYTES];
    char line[LINE_MAX_BYTES];
    int found = 0;
    if (snprintf(name, sizeof(name), "%s/proc/self/cgroup", root) >= (int)sizeof(name)) {
        return 0;
    }
    FILE *f = fopen(name, "re");
    if (f == NULL) {
        return 0;
    }
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL) {
            continue;
        }
        *controllers++ = '\0';
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = version == 2 ? controllers[0] == '\0' : has_word(controllers, controller);
        if (found) {
            memcpy(out, path, strlen(path) + 1);
        }
    }
    (void)fclose(f);
    return found;
}

// Splits a line of mountinfo; 1 when it is a cgroup mount of that version and controller.
static int read_mount(char *line, int32_t version, const char *controller, char **root,
                      char **mount) {
    char *fields[5] = {0};
    char *behind = strstr(line, " - ");
    if (behind == NULL) {
        return 0;
    }
    *behind = '\0';
    behind += 3;
    for (int i = 0; i < 5; i++) {
        fields[i] = strsep(&line, " ");
        if (fields[i] == NULL) {
            return 0;
        }
    }
    const char *type = strsep(&behind, " \n");
    const char *source = strsep(&behind, " \n");
    const char *options = strsep(&behind, " \n");
    if (source == NULL || options == NULL) {
        return 0;
    }
    *root = fields[3];
    *mount = fields[4];
    if (version == 2) {
        return strcmp(type, "cgroup2") == 0;
    }
    return strcmp(type, "cgroup") == 0 && has_word(options, controller);
}

// Part of path below root, "" if it does not lie there.
static const char *below(const char *path, const char *root) {
    size_t n = strlen(root);
    if (strcmp(root, "/") == 0) {
        return strcmp(path, "/") == 0 ? "" : path;
    }
    if (strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0')) {
        return path + n;
    }
    return "";
}

static int find_version(const char *root, int32_t version, const char *controller, group *out) {
    char path[LINE_MAX_BYTES];
    char line[LINE_MAX_BYTES];
    if (!find_path(root, version, controller, path) ||
        snprintf(line, sizeof(line), "%s/proc/self/mountinfo", root) >= (int)sizeof(line)) {
        return 0;
    }
    FILE *f = fopen(line, "re");
    if (f == NULL) {
        return 0;
    }
    out->version = 0;
    while (out->version == 0 && fgets(line, sizeof(line), f) != NULL) {
        char *mount_root = NULL;
        char *mount = NULL;
        if (!read_mount(line, version, controller, &mount_root, &mount)) {
            continue;
        }
        int n = snprintf(out->path, sizeof(out->path), "%s%s%s", root, mount,
                         strstr(path, "/..") != NULL ? "" : below(path, mount_root));
        if (n > 0 && (size_t)n < sizeof(out->path)) {
            out->version = version;
            out->mount_bytes = strlen(root) + strlen(mount);
        }
    }
    (void)fclose(f);
    return out->version != 0;
}

// A controller lives in one hierarchy only; version 1 wins where both are mounted.
static int find_group(const char *root, const char *controller, group *out) {
    return find_version(root, 1, controller, out) || find_version(root, 2, controller, out);
}

// To the parent group; 0 at the mount point.
static int go_up(group *g) {
    char *slash = strlen(g->path) > g->mount_bytes ? strrchr(g->path, '/') : NULL;
    if (slash == NULL || (size_t)(slash - g->path) < g->mount_bytes) {
        return 0;
    }
    *slash = '\0';
    return 1;
}

// First line of a file of the group; 0 if there is none.
static int read_line(const group *g, const char *file, char *out, int cap) {
    char name[LINE_MAX_BYTES + 64];
    if (snprintf(name, sizeof(name), "%s/%s", g->path, file) >= (int)sizeof(name)) {
        return 0;
    }
    FILE *f = fopen(name, "re");
    if (f == NULL) {
        return 0;
    }
    int ok = fgets(out, cap, f) != NULL;
    (void)fclose(f);
    return ok;
}

static uint64_t read_number(const group *g, const char *file, uint64_t otherwise) {
    char line[64];
    if (!read_line(g, file, line, sizeof(line)) || line[0] < '0' || line[0] > '9') {
        return otherwise; // "max", "-1", no such file
    }
    return strtoull(line, NULL, 10);
}

// Value of a key in memory.stat ("key number" lines); 0 if there is none.
static uint64_t read_stat(const group *g, const char *key) {
    char name[LINE_MAX_BYTES + 64];
    char line[256];
    uint64_t value = 0;
    size_t n = strlen(key);
    if (snprintf(name, sizeof(name), "%s/memory.stat", g->path) >= (int)sizeof(name)) {
        return 0;
    }
    FILE *f = fopen(name, "re");
    if (f == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, key, n) == 0 && line[n] == ' ') {
            value = strtoull(line + n + 1, NULL, 10);
            break;
        }
    }
    (void)fclose(f);
    return value;
}

uint32_t pgd_os_cgroup_cpus(const char *root) {
    uint32_t least = UINT32_MAX;
    group g = {0};
    if (!find_group(root, "cpu", &g)) {
        return least;
    }
    do {
        uint64_t quota = UINT64_MAX;
        uint64_t period = 0;
        char line[64];
        if (g.version == 1) {
            quota = read_number(&g, "cpu.cfs_quota_us", UINT64_MAX);
            period = read_number(&g, "cpu.cfs_period_us", 0);
        } else if (read_line(&g, "cpu.max", line, sizeof(line)) && line[0] != 'm') {
            char *end = NULL;
            quota = strtoull(line, &end, 10);
            period = strtoull(end, NULL, 10);
        }
        if (quota != UINT64_MAX && quota > 0 && period > 0) {
            uint64_t cores = quota / period + (quota % period != 0);
            least = cores < least ? (uint32_t)cores : least;
        }
    } while (go_up(&g));
    return least;
}

uint64_t pgd_os_cgroup_memory(const char *root, uint64_t *out_left) {
    uint64_t least = UINT64_MAX;
    group g = {0};
    *out_left = UINT64_MAX;
    if (!find_group(root, "memory", &g)) {
        return least;
    }
    const int v1 = g.version == 1;
    do {
        uint64_t limit = read_number(&g, v1 ? "memory.limit_in_bytes" : "memory.max", UINT64_MAX);
        // Version 1 writes "no limit" as LLONG_MAX rounded down to a page.
        if (limit >= (uint64_t)LLONG_MAX - (1u << 20)) {
            continue;
        }
        uint64_t used = read_number(&g, v1 ? "memory.usage_in_bytes" : "memory.current", 0);
        uint64_t droppable = read_stat(&g, v1 ? "total_inactive_file" : "inactive_file");
        used -= droppable < used ? droppable : used;
        uint64_t left = used < limit ? limit - used : 0;
        least = limit < least ? limit : least;
        *out_left = left < *out_left ? left : *out_left;
    } while (go_up(&g));
    return least;
}
