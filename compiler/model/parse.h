#ifndef LLMC_PARSE_H
#define LLMC_PARSE_H

/* From text to tree.  The generated scanner and parser (grammar/) see the state below and call the functions
 * of this header; everybody else calls parse_source(). */

#include "compiler/model/ast.h"

#define PARSE_SIZE_MAX ((size_t)1 << 20)

/* byte range of a token; the location type of the grammar */
struct place {
    uint32_t start, end;
};

struct parse {
    struct arena *arena;
    struct diag *diag;
    const struct source *source;
    uint32_t offset; /* of the next byte to scan */
    uint32_t parens; /* open ( and [; newlines are blanks inside */
    bool recovering; /* from an error, to the end of the line */
    bool at_newline; /* the last token was a newline, real or inserted */
    int start;       /* the token that is returned first, 0 when it has been: what to parse */
    bool header;     /* "llmc 1" has been read */
    struct ast *tree;
    struct comment *last_comment;
};

/* The tree; NULL when the diagnostics got an error. */
struct ast *parse_source(struct arena *a, struct diag *d, const struct source *source);
/* the same for statements without the first line, such as an override */
struct ast *parse_statements(struct arena *a, struct diag *d, const struct source *source);

/* for grammar/ */
struct span parse_span(const struct parse *p, struct place at);
void parse_comment(struct parse *p, struct place at);
void parse_header(struct parse *p, const char *word, struct place word_at, const char *version,
                  struct place version_at);
void parse_error_character(struct parse *p, struct place at, const char *text);
void parse_error_string(struct parse *p, struct place at);
void parse_error_token(struct parse *p, struct place at, const char *found, const char *const *expected,
                       int n);
void parse_error_memory(struct parse *p, struct place at);
/* refuse what is nested too deeply; returns false then */
bool parse_depth(struct parse *p, struct span at, uint32_t depth);
/* contents of a string token, quotes and escapes removed */
const char *parse_string(struct parse *p, const char *text, size_t length);

#endif
