// See head.h.
#include "serve/head.h"

#include <string.h>

enum {
    HEAD_METHOD = 0,
    HEAD_TARGET,
    HEAD_VERSION,
    HEAD_NAME,
    HEAD_VALUE,
    HEAD_LF,       // behind a CR
    HEAD_LAST_LF,  // behind the CR of the empty line
    HEAD_BODY,     // h->length bytes
    HEAD_SIZE,     // of a chunk
    HEAD_SIZE_LF,  //
    HEAD_CHUNK,    // h->length bytes
    HEAD_CHUNK_CR, // and their line end
    HEAD_CHUNK_LF,
};

enum { HEADER_OTHER = 0, HEADER_LENGTH, HEADER_ENCODING };

static int32_t refuse(pgd_serve_head *h, int32_t status, const char *problem) {
    h->status = status;
    h->problem = problem;
    return status;
}

static void begin(pgd_serve_head *h, int32_t state) {
    h->state = state;
    h->n_word = 0;
    h->line_bytes = state == HEAD_NAME ? 0 : h->line_bytes;
}

static void begin_request(pgd_serve_head *h) {
    const pgd_serve_head_limits limits = h->limits;
    *h = (pgd_serve_head){.limits = limits};
}

void pgd_serve_head_init(pgd_serve_head *h, const pgd_serve_head_limits *limits) {
    h->limits = *limits;
    begin_request(h);
}

int32_t pgd_serve_head_pending(const pgd_serve_head *h) {
    return h->state != HEAD_METHOD || h->n_word > 0;
}

int32_t pgd_serve_head_in_body(const pgd_serve_head *h) {
    return h->state >= HEAD_BODY || h->in_trailer;
}

// One byte more of `word`; 0 when it is full.
static int32_t add(pgd_serve_head *h, char c) {
    if (h->n_word == (int32_t)sizeof(h->word) - 1) {
        return 0;
    }
    h->word[h->n_word++] = c;
    h->word[h->n_word] = '\0';
    return 1;
}

static char lower(char c) {
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

// ---- request line ------------------------------------------------------------------------------

static int32_t read_method(pgd_serve_head *h, char c) {
    static const char *const without[] = {"GET", "HEAD", "DELETE", "OPTIONS"};
    static const char *const with[] = {"POST", "PUT", "PATCH"};
    if (c != ' ') {
        return c >= 'A' && c <= 'Z' && add(h, c)
                   ? 0
                   : refuse(h, 400, "the request line does not begin with a method");
    }
    int32_t known = 0;
    for (size_t i = 0; h->n_word > 0 && i < sizeof(without) / sizeof(without[0]); i++) {
        known |= strcmp(h->word, without[i]) == 0;
    }
    for (size_t i = 0; h->n_word > 0 && i < sizeof(with) / sizeof(with[0]); i++) {
        h->takes_body |= strcmp(h->word, with[i]) == 0;
    }
    if (!known && !h->takes_body) {
        return refuse(h, 405, "this method is not known; GET, HEAD, POST and OPTIONS are");
    }
    begin(h, HEAD_TARGET);
    return 0;
}

static int32_t read_target(pgd_serve_head *h, char c) {
    if (c == ' ' && h->n_word > 0) {
        begin(h, HEAD_VERSION);
        return 0;
    }
    // "//" would be read as the name of a host.
    if ((unsigned char)c <= ' ' || (unsigned char)c >= 0x7F || (h->n_word == 0 && c != '/') ||
        (h->n_word == 1 && c == '/')) {
        return refuse(h, 400, "the target of the request is no path of printable ASCII");
    }
    h->n_word += h->n_word < 2;
    return 0;
}

static int32_t read_version(pgd_serve_head *h, char c) {
    if (c != '\r' && c != '\n') {
        return add(h, c) ? 0 : refuse(h, 400, "the request line does not end with a version");
    }
    if (h->n_word == 0 || (strcmp(h->word, "HTTP/1.1") != 0 && strcmp(h->word, "HTTP/1.0") != 0)) {
        const int32_t other = h->n_word == 8 && memcmp(h->word, "HTTP/", 5) == 0;
        return refuse(h, other ? 505 : 400, "the version of HTTP is another than 1.1 and 1.0");
    }
    begin(h, c == '\r' ? HEAD_LF : HEAD_NAME);
    return 0;
}

// ---- headers -----------------------------------------------------------------------------------

static int32_t is_token(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static int32_t end_head(pgd_serve_head *h) {
    if (h->in_trailer || (!h->chunked && h->length == 0)) {
        if (h->takes_body && !h->chunked && !h->has_length) {
            return refuse(h, 411, "the length of the body is missing; Content-Length is needed");
        }
        begin_request(h);
        return 0;
    }
    if (!h->takes_body) {
        return refuse(h, 400, "a body is not taken with this method");
    }
    begin(h, h->chunked ? HEAD_SIZE : HEAD_BODY);
    return 0;
}

static int32_t read_name(pgd_serve_head *h, char c) {
    if (h->n_word == 0 && (c == '\r' || c == '\n')) {
        if (c == '\n') {
            return end_head(h);
        }
        begin(h, HEAD_LAST_LF);
        return 0;
    }
    if (c != ':') {
        // Names that are longer than `word` are none of those that are watched.
        if (!is_token(c)) {
            return refuse(h, 400, "a header has no name, or a space in it");
        }
        (void)add(h, lower(c));
        return 0;
    }
    if (h->n_word == 0) {
        return refuse(h, 400, "a header has no name, or a space in it");
    }
    if (++h->n_headers > h->limits.headers) {
        return refuse(h, 431, "the request has too many headers");
    }
    h->header = strcmp(h->word, "content-length") == 0      ? HEADER_LENGTH
                : strcmp(h->word, "transfer-encoding") == 0 ? HEADER_ENCODING
                                                            : HEADER_OTHER;
    begin(h, HEAD_VALUE);
    return 0;
}

static int32_t read_length(pgd_serve_head *h) {
    uint64_t n = 0;
    for (int32_t i = 0; i < h->n_word; i++) {
        if (h->word[i] < '0' || h->word[i] > '9' || n > UINT64_MAX / 20) {
            return refuse(h, 400, "Content-Length is no number of bytes");
        }
        n = n * 10 + (uint64_t)(h->word[i] - '0');
    }
    if (h->n_word == 0 || h->has_length) {
        return refuse(h, 400, "Content-Length is no number of bytes, or given twice");
    }
    if (n > h->limits.body_bytes) {
        return refuse(h, 413, "the body is longer than this server allows");
    }
    h->has_length = 1;
    h->length = n;
    return 0;
}

static int32_t read_encoding(pgd_serve_head *h) {
    if (h->chunked || h->n_word != 7 || memcmp(h->word, "chunked", 7) != 0) {
        return refuse(h, 501, "Transfer-Encoding: only \"chunked\" is known");
    }
    h->chunked = 1;
    return 0;
}

static int32_t end_value(pgd_serve_head *h) {
    while (h->n_word > 0 && (h->word[h->n_word - 1] == ' ' || h->word[h->n_word - 1] == '\t')) {
        h->n_word--;
    }
    int32_t status = 0;
    if (h->header != HEADER_OTHER && h->in_trailer) {
        return refuse(h, 400, "the length of a body cannot stand behind it");
    }
    if (h->header == HEADER_LENGTH) {
        status = read_length(h);
    } else if (h->header == HEADER_ENCODING) {
        status = read_encoding(h);
    }
    // Two lengths are how one request is made into two (request smuggling).
    if (status == 0 && h->chunked && h->has_length) {
        return refuse(h, 400, "Content-Length and Transfer-Encoding exclude each other");
    }
    return status;
}

static int32_t read_value(pgd_serve_head *h, char c) {
    if (c == '\r' || c == '\n') {
        const int32_t status = end_value(h);
        begin(h, c == '\r' ? HEAD_LF : HEAD_NAME);
        return status;
    }
    if (((unsigned char)c < ' ' && c != '\t') || c == 0x7F) {
        return refuse(h, 400, "a header has a control character");
    }
    const int32_t leading = h->n_word == 0 && (c == ' ' || c == '\t');
    if (h->header != HEADER_OTHER && !leading && !add(h, lower(c))) {
        return refuse(h, 400, "Content-Length or Transfer-Encoding is too long");
    }
    return 0;
}

static int32_t read_head(pgd_serve_head *h, char c) {
    if (++h->line_bytes > h->limits.line_bytes) {
        return h->state == HEAD_TARGET ? refuse(h, 414, "the target of the request is too long")
                                       : refuse(h, 431, "a header is too long");
    }
    if (++h->head_bytes > h->limits.header_bytes) {
        return refuse(h, 431, "the headers are too long");
    }
    switch (h->state) {
    case HEAD_METHOD: return read_method(h, c);
    case HEAD_TARGET: return read_target(h, c);
    case HEAD_VERSION: return read_version(h, c);
    case HEAD_NAME: return read_name(h, c);
    case HEAD_VALUE: return read_value(h, c);
    default: break;
    }
    if (c != '\n') {
        return refuse(h, 400, "a carriage return without a line feed");
    }
    if (h->state == HEAD_LAST_LF) {
        return end_head(h);
    }
    begin(h, HEAD_NAME);
    return 0;
}

// ---- chunks ------------------------------------------------------------------------------------

static int32_t end_size(pgd_serve_head *h) {
    h->n_body += h->length;
    if (h->n_body > h->limits.body_bytes) {
        return refuse(h, 413, "the body is longer than this server allows");
    }
    if (h->length == 0) {
        h->in_trailer = 1;
        begin(h, HEAD_NAME);
    } else {
        begin(h, HEAD_CHUNK);
    }
    return 0;
}

static int32_t read_size(pgd_serve_head *h, char c) {
    const char digit = lower(c);
    const int32_t value = digit >= '0' && digit <= '9'   ? digit - '0'
                          : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                                                         : -1;
    if (value < 0 && h->n_word > 0 && (c == '\r' || c == '\n')) {
        if (c == '\n') {
            return end_size(h);
        }
        begin(h, HEAD_SIZE_LF);
        return 0;
    }
    if (value < 0 || h->n_word == 15) {
        return refuse(h, 400, "the size of a chunk is no hexadecimal number");
    }
    h->length = h->n_word == 0 ? (uint64_t)value : h->length * 16 + (uint64_t)value;
    (void)add(h, digit);
    return h->length > h->limits.body_bytes
               ? refuse(h, 413, "the body is longer than this server allows")
               : 0;
}

static int32_t read_line_end(pgd_serve_head *h, char c) {
    if (h->state == HEAD_CHUNK_CR && c == '\r') {
        begin(h, HEAD_CHUNK_LF);
        return 0;
    }
    if (c != '\n') {
        return refuse(h, 400, "a chunk is longer than its size says");
    }
    if (h->state == HEAD_SIZE_LF) {
        return end_size(h);
    }
    begin(h, HEAD_SIZE);
    return 0;
}

// As many bytes of a body as there are.
static size_t skip(pgd_serve_head *h, size_t n) {
    const size_t taken = h->length < n ? (size_t)h->length : n;
    h->length -= taken;
    if (h->length == 0 && h->state == HEAD_BODY) {
        begin_request(h);
    } else if (h->length == 0) {
        begin(h, HEAD_CHUNK_CR);
    }
    return taken;
}

int32_t pgd_serve_head_read(pgd_serve_head *h, const char *bytes, size_t n) {
    for (size_t at = 0; at < n && h->status == 0;) {
        if (h->state == HEAD_BODY || h->state == HEAD_CHUNK) {
            at += skip(h, n - at);
        } else if (h->state == HEAD_SIZE) {
            (void)read_size(h, bytes[at++]);
        } else if (h->state == HEAD_SIZE_LF || h->state == HEAD_CHUNK_CR ||
                   h->state == HEAD_CHUNK_LF) {
            (void)read_line_end(h, bytes[at++]);
        } else {
            (void)read_head(h, bytes[at++]);
        }
    }
    return h->status;
}
