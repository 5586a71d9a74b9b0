// What the files of `pagoda chat` share: messages.c keeps the conversation, lines.c reads what is
// typed, chat.c does the talking.
#ifndef PGD_CLI_CHAT_H
#define PGD_CLI_CHAT_H

#include <pagoda/pagoda.h>

#include "base/str.h"

// ---- chat_messages.c ---------------------------------------------------------------------------

typedef struct cli_chat_message {
    const char *role; // "user", "assistant"; static
    pgd_text content;
} cli_chat_message;

// A conversation; zero-initialise it. Turns are pairs of a question and an answer.
typedef struct cli_chat_messages {
    pgd_text system; // empty = none
    cli_chat_message *items;
    size_t n;
    size_t cap;
    size_t first; // those before have been dropped from what the model sees
} cli_chat_messages;

pgd_status cli_chat_add(cli_chat_messages *m, const char *role, pgd_str content) PGD_MUST_USE;
// Takes the last one away again.
void cli_chat_take_back(cli_chat_messages *m);
pgd_status cli_chat_set_system(cli_chat_messages *m, pgd_str text) PGD_MUST_USE;
void cli_chat_reset(cli_chat_messages *m); // keeps the system message
void cli_chat_free(cli_chat_messages *m);
// A JSON array of the system message and those from `from` on.
pgd_status cli_chat_json(const cli_chat_messages *m, size_t from, pgd_text *out) PGD_MUST_USE;
// The whole conversation as {"model":..., "messages":[...]}.
pgd_status cli_chat_save(const cli_chat_messages *m, const char *model,
                         const char *path) PGD_MUST_USE;

// ---- chat_lines.c ------------------------------------------------------------------------------

enum { CLI_LINE = 0, CLI_LINE_END = 1, CLI_LINE_INTERRUPTED = 2 };

#define CLI_CHAT_HISTORY 200

// Lines of stdin; zero-initialise it.
typedef struct cli_chat_lines {
    pgd_text pending; // read, not yet given but for
    size_t taken;     // bytes at its beginning
    pgd_text history[CLI_CHAT_HISTORY];
    size_t n_history;
    int32_t ended;
    int32_t reserved0;
} cli_chat_lines;

// The next line without its newline, into a cleared text; CLI_LINE_... in out_kind. A line that an
// interrupt cut off is thrown away.
//   fails  DATA_LOSS (stdin cannot be read), INVALID (a line that is no UTF-8, or too long)
pgd_status cli_chat_line(cli_chat_lines *l, pgd_text *line, int32_t *out_kind) PGD_MUST_USE;
// Keeps a line for Up and Down; an empty one and one like the last are not kept.
pgd_status cli_chat_remember(cli_chat_lines *l, pgd_str line) PGD_MUST_USE;
void cli_chat_lines_free(cli_chat_lines *l);

// Writes model text to a stream; on a terminal control characters become '?', so that no text can
// move the cursor or rename the window.
void cli_chat_print(void *stream, const char *text, size_t len, int32_t is_terminal);

// ---- chat_edit.c -------------------------------------------------------------------------------

// The same as cli_chat_line on a terminal, with editing and history. prompt_width: its columns.
//   fails  INVALID (too long, or stdin is no terminal)
pgd_status cli_chat_edit(cli_chat_lines *l, const char *prompt, int32_t prompt_width,
                         pgd_text *line, int32_t *out_kind) PGD_MUST_USE;

#endif
