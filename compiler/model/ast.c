/* Tree constructors and comparison.  They only link nodes and keep spans and depths; meaning is sema's. */

#include "compiler/model/ast.h"

#include <string.h>

const char *relop_text(enum relop r)
{
    switch (r) {
    case RELOP_NONE:
        return "";
    case RELOP_EQ:
        return "=";
    case RELOP_LE:
        return "<=";
    case RELOP_GE:
        return ">=";
    case RELOP_LT:
        return "<";
    case RELOP_GT:
        return ">";
    }
    return "";
}

struct span span_join(struct span from, struct span to)
{
    return (struct span){from.source, from.start, to.start + to.length - from.start};
}

static uint32_t deeper(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

struct expr *ast_leaf(struct arena *a, enum expr_kind kind, const char *text, struct span at)
{
    struct expr *e = ARENA_NEW(a, struct expr);
    *e = (struct expr){.kind = kind, .span = at, .text = text, .depth = 1};
    return e;
}

struct expr *ast_binary(struct arena *a, char op, const struct expr *left, const struct expr *right)
{
    struct expr *e = ARENA_NEW(a, struct expr);
    *e = (struct expr){.kind = EXPR_BINARY,
                       .span = span_join(left->span, right->span),
                       .op = op,
                       .left = left,
                       .right = right,
                       .depth = 1 + deeper(left->depth, right->depth)};
    return e;
}

struct expr *ast_group(struct arena *a, const struct expr *inner, struct span at)
{
    struct expr *e = ARENA_NEW(a, struct expr);
    *e = (struct expr){.kind = EXPR_GROUP, .span = at, .left = inner, .depth = 1 + inner->depth};
    return e;
}

struct expr *ast_call(struct arena *a, const char *name, struct ast_arg_list args, struct span at)
{
    struct expr *e = ast_list(a, args, at);
    e->kind = EXPR_CALL;
    e->text = name;
    return e;
}

struct expr *ast_list(struct arena *a, struct ast_arg_list elements, struct span at)
{
    struct expr *e = ARENA_NEW(a, struct expr);
    *e = (struct expr){
        .kind = EXPR_LIST, .span = at, .args = elements.head, .nargs = elements.n, .depth = 1 + elements.depth};
    return e;
}

struct ast_arg_list ast_arg_add(struct arena *a, struct ast_arg_list l, const char *name, struct span name_span,
                                const struct expr *value)
{
    struct arg *arg = ARENA_NEW(a, struct arg);
    *arg = (struct arg){.name = name, .name_span = name_span, .value = value};
    if (l.tail)
        l.tail->next = arg;
    else
        l.head = arg;
    l.tail = arg;
    l.n++;
    l.depth = deeper(l.depth, value->depth);
    return l;
}

struct ast_item_list ast_item_add(struct arena *a, struct ast_item_list l, enum relop relop, struct span at,
                                  const struct expr *value)
{
    struct item *item = ARENA_NEW(a, struct item);
    *item = (struct item){.relop = relop, .expr = value, .span = span_join(at, value->span)};
    if (l.tail)
        l.tail->next = item;
    else
        l.head = item;
    l.tail = item;
    l.n++;
    l.depth = deeper(l.depth, value->depth);
    return l;
}

struct stmt *ast_stmt(struct arena *a, bool let, const char *word, struct span word_span, struct ast_item_list items)
{
    struct stmt *s = ARENA_NEW(a, struct stmt);
    *s = (struct stmt){.let = let,
                       .word = word,
                       .word_span = word_span,
                       .span = items.tail ? span_join(word_span, items.tail->span) : word_span,
                       .items = items.head,
                       .nitems = items.n,
                       .depth = 1 + items.depth};
    return s;
}

void ast_stmt_block(struct stmt *s, struct ast_stmt_list block, struct span open, struct span close)
{
    s->has_block = true;
    s->block = block.head;
    s->open = open;
    s->close = close;
    s->depth = 1 + deeper(s->depth, block.depth);
}

struct stmt *ast_stmt_copy(struct arena *a, const struct stmt *s)
{
    struct stmt *copy = ARENA_NEW(a, struct stmt);
    *copy = *s;
    copy->next = NULL;
    return copy;
}

struct ast_stmt_list ast_stmt_add(struct ast_stmt_list l, struct stmt *s)
{
    if (!s)
        return l;
    if (l.tail)
        l.tail->next = s;
    else
        l.head = s;
    l.tail = s;
    l.depth = deeper(l.depth, s->depth);
    return l;
}
