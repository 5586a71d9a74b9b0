// The outside of a plugin's library, read from the file: what it exports, needs and runs when it is
// opened. ELF, 64-bit, little-endian; every offset is checked against the file's size.
#include "conform.h"

#include <elf.h>
#include <string.h>

#include "os/file.h"

typedef struct view {
    const unsigned char *bytes;
    uint64_t n;
    const Elf64_Shdr *sections;
    uint32_t n_sections;
} view;

static const void *at(const view *v, uint64_t offset, uint64_t bytes) {
    return offset <= v->n && bytes <= v->n - offset ? v->bytes + offset : NULL;
}

// Text at `offset` of a string section, "" when it is not there.
static const char *text_at(const view *v, uint32_t section, uint64_t offset) {
    const Elf64_Shdr *s = section < v->n_sections ? &v->sections[section] : NULL;
    const char *base = s != NULL ? at(v, s->sh_offset, s->sh_size) : NULL;
    if (base == NULL || offset >= s->sh_size ||
        memchr(base + offset, '\0', s->sh_size - offset) == NULL) {
        return "";
    }
    return base + offset;
}

static void keep(char list[CONFORM_NAMES][80], int32_t *n, const char *name) {
    if (*n < CONFORM_NAMES) {
        size_t len = strlen(name);
        len = len < 79 ? len : 79;
        memcpy(list[*n], name, len);
        list[*n][len] = '\0';
        (*n)++;
    }
}

static int32_t begins(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static int32_t is_linkers(const char *name) {
    static const char *const names[] = {"_init", "_fini", "_edata", "_end", "__bss_start"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static void read_symbols(const view *v, const Elf64_Shdr *s, conform_elf *out) {
    const Elf64_Sym *symbols = s->sh_offset % 8 == 0 ? at(v, s->sh_offset, s->sh_size) : NULL;
    for (uint64_t i = 0; symbols != NULL && i < s->sh_size / sizeof(*symbols); i++) {
        const char *name = text_at(v, s->sh_link, symbols[i].st_name);
        if (name[0] == '\0' || ELF64_ST_BIND(symbols[i].st_info) == STB_LOCAL) {
            continue;
        }
        if (symbols[i].st_shndx != SHN_UNDEF) {
            if (!is_linkers(name)) {
                keep(out->exported, &out->n_exported, name);
            }
            continue;
        }
        if (begins(name, "__asan_") || begins(name, "__tsan_") || begins(name, "__ubsan_") ||
            begins(name, "__msan_") || begins(name, "__gcov_")) {
            out->sanitized = 1;
        }
        if (begins(name, "pgd_")) {
            keep(out->host_symbols, &out->n_host_symbols, name);
        }
    }
}

static void read_dynamic(const view *v, const Elf64_Shdr *s, conform_elf *out) {
    const Elf64_Dyn *list = s->sh_offset % 8 == 0 ? at(v, s->sh_offset, s->sh_size) : NULL;
    for (uint64_t i = 0; list != NULL && i < s->sh_size / sizeof(*list); i++) {
        const char *text = text_at(v, s->sh_link, list[i].d_un.d_val);
        if (list[i].d_tag == DT_NEEDED) {
            keep(out->needed, &out->n_needed, text);
        } else if (list[i].d_tag == DT_RUNPATH || list[i].d_tag == DT_RPATH) {
            size_t len = strlen(text);
            len = len < sizeof(out->search) - 1 ? len : sizeof(out->search) - 1;
            memcpy(out->search, text, len);
            out->search[len] = '\0';
        }
    }
}

const char *conform_elf_read(const char *path, conform_elf *out) {
    pgd_os_map map = {0};
    const Elf64_Ehdr *head;
    view v;
    memset(out, 0, sizeof(*out));
    if (pgd_os_map_file(path, &map) != PGD_OK) {
        return "the file cannot be read";
    }
    out->map = map.ptr;
    out->map_bytes = map.bytes;
    v = (view){.bytes = map.ptr, .n = map.bytes};
    head = at(&v, 0, sizeof(*head));
    if (head == NULL || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_ident[EI_DATA] != ELFDATA2LSB ||
        head->e_type != ET_DYN) {
        return "the file is no shared library of 64-bit little-endian ELF";
    }
    v.n_sections = head->e_shnum;
    v.sections = at(&v, head->e_shoff, (uint64_t)head->e_shnum * sizeof(*v.sections));
    if (v.sections == NULL || v.n_sections == 0 || head->e_shoff % 8 != 0) {
        return "the library has no section headers";
    }
    for (uint32_t i = 0; i < v.n_sections; i++) {
        const Elf64_Shdr *s = &v.sections[i];
        const char *name = text_at(&v, head->e_shstrndx, s->sh_name);
        if (s->sh_type == SHT_DYNSYM) {
            read_symbols(&v, s, out);
        } else if (s->sh_type == SHT_DYNAMIC) {
            read_dynamic(&v, s, out);
        } else if (s->sh_type == SHT_INIT_ARRAY || s->sh_type == SHT_PREINIT_ARRAY) {
            out->constructors += s->sh_size / 8; // crtbegin's frame_dummy is one of them
        } else if (strcmp(name, ".ctors") == 0 && s->sh_size > 16) {
            out->constructors += s->sh_size / 8;
        }
    }
    out->constructors -= out->constructors > 0;
    return NULL;
}
