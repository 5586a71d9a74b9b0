// The conversation: messages, and their JSON. See chat.h.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/chat.h"
#include "cli/common.h"

pgd_status cli_chat_add(cli_chat_messages *m, const char *role, pgd_str content) {
    if (m->n == m->cap) {
        size_t cap = m->cap == 0 ? 16 : 2 * m->cap;
        cli_chat_message *grown = pgd_mem_realloc(m->items, cap, sizeof(*grown));
        if (grown == NULL) {
            return PGD_MEM_FAIL("the conversation", cap * sizeof(*grown));
        }
        m->items = grown;
        m->cap = cap;
    }
    cli_chat_message *item = &m->items[m->n];
    *item = (cli_chat_message){.role = role};
    PGD_TRY(pgd_text_add_str(&item->content, content));
    m->n++;
    return PGD_OK;
}

void cli_chat_take_back(cli_chat_messages *m) {
    if (m->n > 0) {
        m->n--;
        pgd_text_free(&m->items[m->n].content);
        m->first = m->first < m->n ? m->first : m->n;
    }
}

pgd_status cli_chat_set_system(cli_chat_messages *m, pgd_str text) {
    pgd_text_clear(&m->system);
    return pgd_text_add_str(&m->system, text);
}

void cli_chat_reset(cli_chat_messages *m) {
    while (m->n > 0) {
        cli_chat_take_back(m);
    }
    m->first = 0;
}

void cli_chat_free(cli_chat_messages *m) {
    cli_chat_reset(m);
    pgd_text_free(&m->system);
    pgd_mem_free(m->items);
    *m = (cli_chat_messages){0};
}

pgd_status cli_chat_json(const cli_chat_messages *m, size_t from, pgd_text *out) {
    PGD_TRY(pgd_text_format(out, "["));
    if (m->system.len > 0) {
        PGD_TRY(cli_add_message(out, "system", pgd_text_view(&m->system)));
    }
    for (size_t i = from; i < m->n; i++) {
        PGD_TRY(cli_add_message(out, m->items[i].role, pgd_text_view(&m->items[i].content)));
    }
    return pgd_text_format(out, "]");
}

static pgd_status write_file(const char *path, const pgd_text *text) {
    FILE *file = fopen(path, "wb");
    size_t n = file != NULL ? fwrite(text->ptr, 1, text->len, file) : 0;
    if (file == NULL || fclose(file) != 0 || n != text->len) {
        return pgd_fail(PGD_UNAVAILABLE, "%s cannot be written", path);
    }
    return PGD_OK;
}

pgd_status cli_chat_save(const cli_chat_messages *m, const char *model, const char *path) {
    pgd_text t = {0};
    pgd_status status = pgd_text_format(&t, "{\"model\":");
    if (status == PGD_OK) {
        status = pgd_json_add_str(&t, pgd_str_of(model));
    }
    if (status == PGD_OK) {
        status = pgd_text_format(&t, ",\"messages\":");
    }
    if (status == PGD_OK) {
        status = cli_chat_json(m, 0, &t);
    }
    if (status == PGD_OK) {
        status = pgd_text_format(&t, "}\n");
    }
    if (status == PGD_OK) {
        status = write_file(path, &t);
    }
    pgd_text_free(&t);
    return status;
}
