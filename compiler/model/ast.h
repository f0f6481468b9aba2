#ifndef LLMC_AST_H
#define LLMC_AST_H

/* The syntax tree of a model file: words, items, blocks and expressions with their source spans.
 *
 * It knows the grammar and no vocabulary.  Nodes live in the arena; lists are linked in source order.  Depth is
 * bounded by AST_DEPTH_MAX everywhere, so recursive walks are safe on any input.  ast_print() is canonical: parsing
 * its output gives an equal tree, and printing that tree gives the same text. */

#include "compiler/support/diag.h"
#include "compiler/support/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

#define AST_DEPTH_MAX 100

enum expr_kind { EXPR_NUMBER, EXPR_STRING, EXPR_NAME, EXPR_CALL, EXPR_LIST, EXPR_GROUP, EXPR_BINARY };

struct arg {
    const char *name; /* NULL for a positional argument and for a list element */
    struct span name_span;
    const struct expr *value;
    struct arg *next;
};

struct expr {
    enum expr_kind kind;
    struct span span;
    /* the number as written, the string's contents, the name, or the name of the function called */
    const char *text;
    char op;                         /* EXPR_BINARY: + - * / */
    const struct expr *left, *right; /* EXPR_BINARY; EXPR_GROUP uses left */
    const struct arg *args;          /* EXPR_CALL, EXPR_LIST */
    uint32_t nargs, depth;
};

enum relop { RELOP_NONE, RELOP_EQ, RELOP_LE, RELOP_GE, RELOP_LT, RELOP_GT };

struct item {
    enum relop relop;
    const struct expr *expr;
    struct span span; /* includes the relational operator */
    struct item *next;
};

struct stmt {
    bool let;
    const char *word; /* the first word, or the name that `let` binds */
    struct span word_span;
    struct span span;         /* word and items, without the block */
    struct span open, close;  /* of the braces, if has_block */
    const struct item *items; /* of a `let`: its single value */
    uint32_t nitems, depth;
    bool has_block;
    const struct stmt *block;
    struct stmt *next;
};

struct comment {
    struct span span;
    bool own_line; /* nothing but blanks before it */
    struct comment *next;
};

struct ast {
    const struct source *source;
    struct span version_span;
    const struct stmt *stmts;
    const struct comment *comments; /* in source order */
};

const char *relop_text(enum relop r); /* "" "=" "<=" ">=" "<" ">" */
/* comments: also print comments, and single blank lines between statements */
void ast_print(struct strbuf *out, const struct ast *tree, bool comments);

/* Constructors, for the grammar's actions. */
struct ast_arg_list {
    struct arg *head, *tail;
    uint32_t n, depth;
};
struct ast_item_list {
    struct item *head, *tail;
    uint32_t n, depth;
};
struct ast_stmt_list {
    struct stmt *head, *tail;
    uint32_t depth;
};

struct expr *ast_leaf(struct arena *a, enum expr_kind kind, const char *text, struct span at);
struct expr *ast_binary(struct arena *a, char op, const struct expr *left, const struct expr *right);
struct expr *ast_group(struct arena *a, const struct expr *inner, struct span at);
struct expr *ast_call(struct arena *a, const char *name, struct ast_arg_list args, struct span at);
struct expr *ast_list(struct arena *a, struct ast_arg_list elements, struct span at);
struct ast_arg_list ast_arg_add(struct arena *a, struct ast_arg_list l, const char *name, struct span name_span,
                                const struct expr *value);
struct ast_item_list ast_item_add(struct arena *a, struct ast_item_list l, enum relop relop, struct span at,
                                  const struct expr *value);
struct stmt *ast_stmt(struct arena *a, bool let, const char *word, struct span word_span, struct ast_item_list items);
void ast_stmt_block(struct stmt *s, struct ast_stmt_list block, struct span open, struct span close);
struct stmt *ast_stmt_copy(struct arena *a, const struct stmt *s);         /* the copy's `next` is NULL */
struct ast_stmt_list ast_stmt_add(struct ast_stmt_list l, struct stmt *s); /* s may be NULL */

struct span span_join(struct span from, struct span to);

#endif
