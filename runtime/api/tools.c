// See tools.h.
#include "api/tools.h"

#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"

enum {
    TOOLS_TEXT = 0,
    TOOLS_OBJECT,      // before {
    TOOLS_KEY,         // before a key or }
    TOOLS_KEY_STRING,  // in it
    TOOLS_COLON,       //
    TOOLS_VALUE,       // before a value
    TOOLS_VALUE_WORD,  // in a string
    TOOLS_VALUE_TREE,  // in an array or object
    TOOLS_VALUE_PLAIN, // in a number, true, false or null
    TOOLS_NEXT,        // before , or }
    TOOLS_END,         // behind the object: before the closing tag
};

enum { KEY_OTHER = 0, KEY_NAME, KEY_ARGUMENTS };

static const char opening[] = "<tool_call>";
static const char closing[] = "</tool_call>";

static int32_t is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static pgd_api_tool_call *last_call(pgd_api_tools *t) {
    return &t->calls[t->n_calls - 1];
}

static void free_call(pgd_api_tool_call *call) {
    pgd_text_free(&call->name);
    pgd_text_free(&call->arguments);
}

static pgd_status begin_call(pgd_api_tools *t) {
    const int32_t most = t->most > 0 && t->most < PGD_API_MAX_CALLS ? t->most : PGD_API_MAX_CALLS;
    pgd_api_tool_call *grown = pgd_mem_realloc(t->calls, (size_t)t->n_calls + 1, sizeof(*t->calls));
    if (grown == NULL) {
        return PGD_MEM_FAIL("a tool call", ((size_t)t->n_calls + 1) * sizeof(*t->calls));
    }
    t->calls = grown;
    t->dropped = t->n_calls >= most;
    t->calls[t->n_calls++] = (pgd_api_tool_call){0};
    t->state = TOOLS_OBJECT;
    const pgd_text emptied = t->block;
    t->block = t->held; // all of it is content if the call is none
    t->held = emptied;
    pgd_text_clear(&t->held);
    return PGD_OK;
}

static void drop_call(pgd_api_tools *t) {
    free_call(last_call(t));
    t->n_calls--;
    t->dropped = 0;
}

// The call at hand is none: its text is content, unless it has been shown as a call already.
static pgd_status give_up(pgd_api_tools *t, pgd_text *content) {
    pgd_api_tool_call *call = last_call(t);
    const int32_t shown = call->name.len > 0;
    t->state = shown ? TOOLS_END : TOOLS_TEXT;
    t->matched = 0;
    if (!shown || t->dropped) {
        drop_call(t);
    }
    return shown ? PGD_OK : pgd_text_add_str(content, pgd_text_view(&t->block));
}

static pgd_status end_call(pgd_api_tools *t, pgd_text *content) {
    pgd_api_tool_call *call = last_call(t);
    if (call->name.len == 0) {
        return give_up(t, content);
    }
    t->state = TOOLS_END;
    t->matched = 0;
    if (t->dropped) {
        drop_call(t);
        return PGD_OK;
    }
    return call->arguments.len > 0 ? PGD_OK : pgd_text_add(&call->arguments, "{}", 2);
}

// ---- text --------------------------------------------------------------------------------------

// White space before a tag is no content, so it waits for what follows. Behind a call the closing
// tag is read over.
static pgd_status read_text(pgd_api_tools *t, char c, pgd_text *content) {
    if (t->matched == 1) {
        t->closes = c == '/' && t->state == TOOLS_END;
    }
    const char *tag = t->matched > 0 && t->closes ? closing : opening;
    if (c == tag[t->matched]) {
        t->matched++;
        PGD_TRY(pgd_text_add(&t->held, &c, 1));
        if (tag[t->matched] != '\0') {
            return PGD_OK;
        }
        t->matched = 0;
        if (tag == opening) {
            return begin_call(t);
        }
        pgd_text_clear(&t->held);
        return PGD_OK;
    }
    if (t->matched > 0 || !is_space(c)) {
        PGD_TRY(pgd_text_add_str(content, pgd_text_view(&t->held)));
        pgd_text_clear(&t->held);
    }
    if (t->matched > 0) {
        t->matched = 0; // a tag has no second <: nothing of this one begins another
        t->state = TOOLS_TEXT;
        return read_text(t, c, content);
    }
    t->state = is_space(c) ? t->state : TOOLS_TEXT;
    return pgd_text_add(is_space(c) ? &t->held : content, &c, 1);
}

// ---- a call ------------------------------------------------------------------------------------

// `word` is a JSON string; appends what it means. 0 when it is none.
static pgd_status decode(const pgd_text *word, pgd_text *out, int32_t *ok) {
    pgd_json_doc *doc = NULL;
    pgd_str text;
    pgd_status status = pgd_json_parse(pgd_text_view(word), "a name", 0, &doc);
    *ok = status == PGD_OK;
    if (*ok && pgd_json_to_str(pgd_json_root(doc), &text)) {
        status = pgd_text_add_str(out, text);
    }
    pgd_json_free(doc);
    return status == PGD_INVALID ? PGD_OK : status;
}

static pgd_status begin_word(pgd_api_tools *t, int32_t state) {
    t->state = state;
    t->escaped = 0;
    pgd_text_clear(&t->word);
    return pgd_text_add(&t->word, "\"", 1);
}

static pgd_status end_key(pgd_api_tools *t, pgd_text *content) {
    pgd_text key = {0};
    int32_t ok = 0;
    pgd_status status = decode(&t->word, &key, &ok);
    const pgd_str name = pgd_text_view(&key);
    t->key = !ok || name.len == 0                                              ? KEY_OTHER
             : pgd_str_is(name, "name")                                        ? KEY_NAME
             : pgd_str_is(name, "arguments") || pgd_str_is(name, "parameters") ? KEY_ARGUMENTS
                                                                               : KEY_OTHER;
    pgd_text_free(&key);
    t->state = TOOLS_COLON;
    return status == PGD_OK && !ok ? give_up(t, content) : status;
}

static pgd_status end_word(pgd_api_tools *t, pgd_text *content) {
    pgd_api_tool_call *call = last_call(t);
    int32_t ok = 1;
    t->state = TOOLS_NEXT;
    if (t->key == KEY_NAME && call->name.len == 0) {
        PGD_TRY(decode(&t->word, &call->name, &ok));
    } else if (t->key == KEY_ARGUMENTS && call->arguments.len == 0) {
        PGD_TRY(decode(&t->word, &call->arguments, &ok)); // JSON in a string
    }
    return ok ? PGD_OK : give_up(t, content);
}

static pgd_status read_string(pgd_api_tools *t, char c, pgd_text *content) {
    PGD_TRY(pgd_text_add(&t->word, &c, 1));
    const int32_t ends = c == '"' && !t->escaped;
    t->escaped = c == '\\' && !t->escaped;
    if (!ends) {
        return PGD_OK;
    }
    return t->state == TOOLS_KEY_STRING ? end_key(t, content) : end_word(t, content);
}

// A byte of the arguments, which go on as they are.
static pgd_status keep(pgd_api_tools *t, char c) {
    return t->key == KEY_ARGUMENTS ? pgd_text_add(&last_call(t)->arguments, &c, 1) : PGD_OK;
}

static pgd_status begin_value(pgd_api_tools *t, char c, pgd_text *content) {
    if (is_space(c)) {
        return PGD_OK;
    }
    if (t->key == KEY_ARGUMENTS && last_call(t)->arguments.len > 0) {
        t->key = KEY_OTHER; // the second of that name
    }
    if (c == '"') {
        return begin_word(t, TOOLS_VALUE_WORD);
    }
    const int32_t tree = c == '{' || c == '[';
    if (!tree && (c == ',' || c == '}' || c == ']' || c == ':')) {
        return give_up(t, content);
    }
    t->state = tree ? TOOLS_VALUE_TREE : TOOLS_VALUE_PLAIN;
    t->depth = tree;
    t->quoted = 0;
    t->escaped = 0;
    return keep(t, c);
}

static pgd_status read_tree(pgd_api_tools *t, char c) {
    if (t->quoted) {
        t->quoted = c != '"' || t->escaped;
        t->escaped = c == '\\' && !t->escaped;
    } else {
        t->quoted = c == '"';
        t->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    }
    t->state = t->depth == 0 ? TOOLS_NEXT : TOOLS_VALUE_TREE;
    return keep(t, c);
}

static pgd_status read_call(pgd_api_tools *t, char c, pgd_text *content) {
    PGD_TRY(pgd_text_add(&t->block, &c, 1));
    switch (t->state) {
    case TOOLS_KEY_STRING:
    case TOOLS_VALUE_WORD: return read_string(t, c, content);
    case TOOLS_VALUE: return begin_value(t, c, content);
    case TOOLS_VALUE_TREE: return read_tree(t, c);
    case TOOLS_VALUE_PLAIN:
        if (c != ',' && c != '}' && !is_space(c)) {
            return keep(t, c);
        }
        t->state = TOOLS_NEXT;
        break;
    default: break;
    }
    if (is_space(c)) {
        return PGD_OK;
    }
    const int32_t state = t->state;
    if (state == TOOLS_OBJECT && c == '{') {
        t->state = TOOLS_KEY;
    } else if (state == TOOLS_KEY && c == '"') {
        return begin_word(t, TOOLS_KEY_STRING);
    } else if (state == TOOLS_COLON && c == ':') {
        t->state = TOOLS_VALUE;
    } else if (state == TOOLS_NEXT && c == ',') {
        t->state = TOOLS_KEY;
    } else if ((state == TOOLS_NEXT || state == TOOLS_KEY) && c == '}') {
        return end_call(t, content);
    } else {
        return give_up(t, content);
    }
    return PGD_OK;
}

pgd_status pgd_api_tools_read(pgd_api_tools *t, pgd_str text, pgd_text *content) {
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.ptr[i];
        PGD_TRY(t->state == TOOLS_TEXT || t->state == TOOLS_END ? read_text(t, c, content)
                                                                : read_call(t, c, content));
    }
    return PGD_OK;
}

int32_t pgd_api_tools_shown(const pgd_api_tools *t) {
    const int32_t n = t->n_calls - t->dropped;
    return n > 0 && t->calls[n - 1].name.len == 0 ? n - 1 : n;
}

pgd_status pgd_api_tools_end(pgd_api_tools *t, pgd_text *content) {
    const int32_t in_call = t->state != TOOLS_TEXT && t->state != TOOLS_END;
    if (in_call) {
        PGD_TRY(give_up(t, content));
    }
    // Behind a call, white space and half a closing tag are nothing.
    pgd_status status =
        t->n_calls == 0 ? pgd_text_add_str(content, pgd_text_view(&t->held)) : PGD_OK;
    pgd_text_clear(&t->held);
    t->matched = 0;
    return status;
}

void pgd_api_tools_free(pgd_api_tools *t) {
    for (int32_t i = 0; i < t->n_calls; i++) {
        free_call(&t->calls[i]);
    }
    pgd_mem_free(t->calls);
    pgd_text_free(&t->held);
    pgd_text_free(&t->block);
    pgd_text_free(&t->word);
    *t = (pgd_api_tools){0};
}
