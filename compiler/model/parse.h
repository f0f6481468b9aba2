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
    uint32_t parens; /* number of open ( and [; newlines inside them are blanks */
    bool recovering; /* skipping to the end of the line after an error */
    bool at_newline; /* the last token was a newline, real or inserted */
    bool hyphens;    /* the last token was the word before a target's name, which may have hyphens */
    int start;       /* pseudo-token that selects what to parse and is returned first; 0 afterwards */
    bool header;     /* the version line "llmc 1" has been read */
    struct ast *tree;
    struct comment *last_comment;
};

/* Returns the tree; NULL where diagnostics with an error were added. */
struct ast *parse_source(struct arena *a, struct diag *d, const struct source *source);
/* the same for statements without the version line, such as overrides */
struct ast *parse_statements(struct arena *a, struct diag *d, const struct source *source);

/* for grammar/ */
struct span parse_span(const struct parse *p, struct place at);
void parse_comment(struct parse *p, struct place at);
void parse_header(struct parse *p, const char *word, struct place word_at, const char *version,
                  struct place version_at);
void parse_error_character(struct parse *p, struct place at, const char *text);
void parse_error_string(struct parse *p, struct place at);
void parse_error_token(struct parse *p, struct place at, const char *found, const char *const *expected, int n);
void parse_error_memory(struct parse *p, struct place at);
/* Reports an error and returns false where nesting exceeds AST_DEPTH_MAX. */
bool parse_depth(struct parse *p, struct span at, uint32_t depth);
/* contents of a string token, quotes and escapes removed */
const char *parse_string(struct parse *p, const char *text, size_t length);

#endif
