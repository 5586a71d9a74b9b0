// Added tokens: cut out of the text before it is normalized (or after, for those marked
// `normalized`), leftmost first, the longest at each place.
//
// A byte trie: the first byte indexes a table, further nodes are child/sibling lists.
//
//   root['<'] -> 't' -> 'o' -> 'o' -> 'l'* -> '>'*          * = a token ends here
//
// A match that single_word or no_special turns down still uses up its text, as in the
// `tokenizers` library.
#include "text/parts.h"

enum { NO_NODE = 0, MAX_CONTENT_BYTES = 1024 };

typedef struct {
    uint32_t child;
    uint32_t sibling;
    int32_t token; // index into tokens, -1 = none ends here
    uint8_t byte;
} trie_node;

struct pgd_text_trie {
    const pgd_text_added_token *tokens;
    trie_node *nodes; // nodes[0] is unused
    size_t n;
    size_t cap;
    uint32_t root[256];
};

static pgd_status new_node(pgd_text_trie *t, uint8_t byte, uint32_t *out) {
    if (t->n == t->cap) {
        void *items = t->nodes;
        PGD_TRY(pgd_text_grow(&items, &t->cap, t->n + 1, sizeof(*t->nodes), "added tokens"));
        t->nodes = items;
    }
    t->nodes[t->n] = (trie_node){.token = -1, .byte = byte};
    *out = (uint32_t)t->n++;
    return PGD_OK;
}

static uint32_t child_of(const pgd_text_trie *t, uint32_t node, uint8_t byte) {
    uint32_t at = t->nodes[node].child;
    while (at != NO_NODE && t->nodes[at].byte != byte) {
        at = t->nodes[at].sibling;
    }
    return at;
}

static pgd_status insert(pgd_text_trie *t, size_t index) {
    pgd_str s = t->tokens[index].match;
    if (s.len == 0) {
        return PGD_OK;
    }
    if (s.len > MAX_CONTENT_BYTES) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "tokenizer.json: added token %d is %zu bytes long; at most %d are allowed",
                        t->tokens[index].id, s.len, MAX_CONTENT_BYTES);
    }
    uint32_t at = t->root[(uint8_t)s.ptr[0]];
    if (at == NO_NODE) {
        PGD_TRY(new_node(t, (uint8_t)s.ptr[0], &at));
        t->root[(uint8_t)s.ptr[0]] = at;
    }
    for (size_t i = 1; i < s.len; i++) {
        uint32_t next = child_of(t, at, (uint8_t)s.ptr[i]);
        if (next == NO_NODE) {
            PGD_TRY(new_node(t, (uint8_t)s.ptr[i], &next));
            t->nodes[next].sibling = t->nodes[at].child;
            t->nodes[at].child = next;
        }
        at = next;
    }
    if (t->nodes[at].token < 0) {
        t->nodes[at].token = (int32_t)index;
    }
    return PGD_OK;
}

pgd_status pgd_text_trie_create(const pgd_text_added_token *tokens, size_t n, int32_t normalized,
                                pgd_text_trie **out) {
    *out = NULL;
    pgd_text_trie *t = pgd_mem_alloc(1, sizeof(*t));
    if (t == NULL) {
        return PGD_MEM_FAIL("added tokens", sizeof(*t));
    }
    t->tokens = tokens;
    uint32_t unused = 0;
    pgd_status status = new_node(t, 0, &unused);
    for (size_t i = 0; i < n && status == PGD_OK; i++) {
        if (tokens[i].normalized == normalized) {
            status = insert(t, i);
        }
    }
    if (status != PGD_OK) {
        pgd_text_trie_destroy(t);
        return status;
    }
    *out = t;
    return PGD_OK;
}

void pgd_text_trie_destroy(pgd_text_trie *trie) {
    if (trie == NULL) {
        return;
    }
    pgd_mem_free(trie->nodes);
    pgd_mem_free(trie);
}

// The first byte from s[at] on with which a token begins.
static size_t next_start(const pgd_text_trie *t, pgd_str s, size_t at) {
    while (at < s.len && t->root[(uint8_t)s.ptr[at]] == NO_NODE) {
        at++;
    }
    return at;
}

// The longest token at s[at]: its index and end; -1 = none.
static int32_t longest(const pgd_text_trie *t, pgd_str s, size_t at, size_t *end) {
    int32_t best = -1;
    uint32_t node = t->root[(uint8_t)s.ptr[at]];
    for (size_t i = at + 1; node != NO_NODE; i++) {
        if (t->nodes[node].token >= 0) {
            best = t->nodes[node].token;
            *end = i;
        }
        if (i >= s.len) {
            break;
        }
        node = child_of(t, node, (uint8_t)s.ptr[i]);
    }
    return best;
}

static int32_t stands_alone(pgd_str s, size_t start, size_t end) {
    size_t unused = 0;
    if (start > 0 && (pgd_text_class(pgd_text_char_before(s, start, &unused)) & PGD_TEXT_WORD)) {
        return 0;
    }
    return end >= s.len || !(pgd_text_class(pgd_text_char(s, end, &unused)) & PGD_TEXT_WORD);
}

static size_t spaces_before(pgd_str s, size_t start, size_t least) {
    while (start > least) {
        size_t before = 0;
        if (!(pgd_text_class(pgd_text_char_before(s, start, &before)) & PGD_TEXT_SPACE)) {
            break;
        }
        start = before;
    }
    return start;
}

static size_t spaces_behind(pgd_str s, size_t end) {
    while (end < s.len) {
        size_t behind = 0;
        if (!(pgd_text_class(pgd_text_char(s, end, &behind)) & PGD_TEXT_SPACE)) {
            break;
        }
        end = behind;
    }
    return end;
}

static pgd_status split_piece(const pgd_text_trie *t, int32_t no_special, const pgd_text_piece *p,
                              pgd_text_work *w) {
    pgd_str s = {w->text.ptr + p->at, p->len};
    size_t done = 0; // all before is in pieces
    for (size_t at = next_start(t, s, 0); at < s.len; at = next_start(t, s, at)) {
        size_t end = 0;
        int32_t index = longest(t, s, at, &end);
        if (index < 0) {
            at++;
            continue;
        }
        const pgd_text_added_token *token = &t->tokens[index];
        size_t start = at;
        at = end;
        if ((no_special && token->special) ||
            (token->single_word && !stands_alone(s, start, end))) {
            continue;
        }
        if (token->lstrip) {
            start = spaces_before(s, start, done < start ? done : start);
        }
        if (token->rstrip) {
            end = spaces_behind(s, end);
        }
        if (start > done) {
            PGD_TRY(pgd_text_work_put(w, p->at + done, start - done, -1, p->first && done == 0));
        }
        PGD_TRY(pgd_text_work_put(w, p->at + start, end - start, token->id, 0));
        done = end;
    }
    return pgd_text_work_put(w, p->at + done, s.len > done ? s.len - done : 0, -1,
                             p->first && done == 0);
}

pgd_status pgd_text_trie_split(const pgd_text_trie *trie, int32_t no_special, pgd_text_work *w) {
    if (trie->n <= 1) {
        return PGD_OK;
    }
    for (size_t i = 0; i < w->n_pieces; i++) {
        const pgd_text_piece p = w->pieces[i];
        if (p.id >= 0) {
            PGD_TRY(pgd_text_work_put(w, p.at, p.len, p.id, 0));
        } else {
            PGD_TRY(split_piece(trie, no_special, &p, w));
        }
    }
    pgd_text_work_split_done(w);
    return PGD_OK;
}
