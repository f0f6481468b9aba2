/* The canonical text of a tree, with or without its comments.
 *
 * Comments belong to no node: they are merged in by position.  One that stands on its own line is printed
 * above the next statement (or at the end of its block); any other follows the statement or brace of its
 * line.  Comments inside a statement that spans lines move above it, since the statement is printed as one.
 * Alignment: in a run of neighbouring lines without block, words are padded to the longest, so that values
 * stand in one column.  Statements that read as sentences and statements with a block end a run, `moe` apart.
 */

#include "compiler/model/fmt.h"

#include "compiler/model/ast.h"
#include "compiler/model/parse.h"

#include <string.h>

#define COLUMNS 110

struct printer {
    struct strbuf *out;
    const struct source *source;
    const struct comment *comments; /* not yet printed; NULL when they are dropped */
    size_t printed;                 /* end of the last thing printed, in the source */
    bool keep;
};

/* ---- expressions ---- */

static void print_string(struct strbuf *out, const char *s)
{
    strbuf_char(out, '"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            strbuf_char(out, '\\');
        strbuf_char(out, *s);
    }
    strbuf_char(out, '"');
}

static void print_expr(struct strbuf *out, const struct expr *e);

static void print_args(struct strbuf *out, const struct expr *e)
{
    for (const struct arg *a = e->args; a; a = a->next) {
        if (a->name)
            strbuf_printf(out, "%s=", a->name);
        print_expr(out, a->value);
        if (a->next)
            strbuf_text(out, ", ");
    }
}

static void print_expr(struct strbuf *out, const struct expr *e)
{
    switch (e->kind) {
    case EXPR_NUMBER:
    case EXPR_NAME:
        strbuf_text(out, e->text);
        break;
    case EXPR_STRING:
        print_string(out, e->text);
        break;
    case EXPR_CALL:
        strbuf_printf(out, "%s(", e->text);
        print_args(out, e);
        strbuf_char(out, ')');
        break;
    case EXPR_LIST:
        strbuf_char(out, '[');
        print_args(out, e);
        strbuf_char(out, ']');
        break;
    case EXPR_GROUP:
        strbuf_char(out, '(');
        print_expr(out, e->left);
        strbuf_char(out, ')');
        break;
    case EXPR_BINARY:
        print_expr(out, e->left);
        strbuf_printf(out, " %c ", e->op);
        print_expr(out, e->right);
        break;
    }
}

/* A call or list that would pass the last column: its arguments filled into lines under the first one. */
static void print_wrapped(struct strbuf *out, const struct expr *e, size_t column)
{
    struct strbuf one = {0};
    print_expr(&one, e);
    bool list = e->kind == EXPR_CALL || e->kind == EXPR_LIST;
    size_t indent = column + (e->kind == EXPR_CALL ? strlen(e->text) : 0) + 1;
    if (column + one.length <= COLUMNS || !list || e->nargs < 2 || indent > COLUMNS / 2) {
        strbuf_text(out, one.text);
        strbuf_free(&one);
        return;
    }
    strbuf_printf(out, "%s%c", e->kind == EXPR_CALL ? e->text : "", e->kind == EXPR_CALL ? '(' : '[');
    size_t at = indent;
    for (const struct arg *a = e->args; a; a = a->next) {
        strbuf_clear(&one);
        if (a->name)
            strbuf_printf(&one, "%s=", a->name);
        print_expr(&one, a->value);
        strbuf_text(&one, a->next ? "," : e->kind == EXPR_CALL ? ")" : "]");
        if (a != e->args && at + 1 + one.length > COLUMNS) {
            strbuf_char(out, '\n');
            strbuf_repeat(out, ' ', indent);
            at = indent;
        } else if (a != e->args) {
            strbuf_char(out, ' ');
            at++;
        }
        strbuf_text(out, one.text);
        at += one.length;
    }
    strbuf_free(&one);
}

/* ---- comments ---- */

/* is there an empty line between two places of the source? */
static bool blank_line(const struct printer *p, size_t from, size_t to)
{
    int newlines = 0;
    for (size_t i = from; i < to && i < p->source->size; i++)
        newlines += p->source->text[i] == '\n';
    return newlines > 1;
}

static void separate(struct printer *p, size_t at, bool first)
{
    if (!first && (p->keep ? blank_line(p, p->printed, at) : at == SIZE_MAX))
        strbuf_char(p->out, '\n');
}

static void indent(struct printer *p, int level)
{
    strbuf_repeat(p->out, ' ', (size_t)level * 4);
}

/* Comments that start before `end`, each on a line of its own.  Returns whether the next line is the first
 * still. */
static bool print_comments(struct printer *p, size_t end, int level, bool first)
{
    for (; p->comments && p->comments->span.start < end; p->comments = p->comments->next) {
        const struct span *s = &p->comments->span;
        separate(p, s->start, first);
        indent(p, level);
        strbuf_bytes(p->out, p->source->text + s->start, s->length);
        strbuf_char(p->out, '\n');
        p->printed = s->start + s->length;
        first = false;
    }
    return first;
}

/* column of a comment in the source, if it is worth keeping */
static size_t comment_column(const struct printer *p, const struct comment *c)
{
    size_t column = 0;
    while (column < c->span.start && p->source->text[c->span.start - column - 1] != '\n' && column <= COLUMNS)
        column++;
    return column <= COLUMNS ? column : 0;
}

/* The comment that follows on the line of `end`, if there is one, then the end of the line.  It keeps its
 * column where two blanks still fit before it. */
static void end_line(struct printer *p, size_t end)
{
    const struct comment *c = p->comments;
    p->printed = end;
    if (c && c->span.start >= end && strspn(p->source->text + end, " \t\r;") == c->span.start - end) {
        const char *line = p->out->text + p->out->length;
        while (line > p->out->text && line[-1] != '\n')
            line--;
        size_t used = (size_t)(p->out->text + p->out->length - line), want = comment_column(p, c);
        strbuf_repeat(p->out, ' ', want > used + 2 ? want - used : 2);
        strbuf_bytes(p->out, p->source->text + c->span.start, c->span.length);
        p->printed = c->span.start + c->span.length;
        p->comments = c->next;
    }
    strbuf_char(p->out, '\n');
}

/* ---- statements ---- */

static bool aligned(const struct stmt *s)
{
    static const char *const sentences[] = {"predict", "keep", "overlap", "never", "leave"};
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++)
        if (!strcmp(s->word, sentences[i]))
            return false;
    return !s->let && s->items && (!s->has_block || !strcmp(s->word, "moe"));
}

/* no empty line and no comment line between two statements: either would make two line breaks */
static bool neighbours(const struct printer *p, const struct stmt *a, const struct stmt *b)
{
    return !a->has_block && !(p->keep && blank_line(p, a->span.start + a->span.length, b->span.start));
}

/* where a statement ends, or its block begins */
static size_t head_end(const struct stmt *s)
{
    return s->has_block ? s->open.start : s->span.start + s->span.length;
}

/* Is there a comment inside of s, which will be printed on a line above it?  *c: one at or before the first such. */
static bool has_comment(const struct comment **c, const struct stmt *s)
{
    while (*c && (*c)->span.start < s->word_span.start)
        *c = (*c)->next;
    return *c && (*c)->span.start < head_end(s);
}

/* the longest word of the run that starts with s */
static size_t run_width(const struct printer *p, const struct stmt *s, const struct stmt **end)
{
    size_t width = strlen(s->word);
    const struct stmt *at = s;
    const struct comment *c = p->comments;
    for (; at->next && aligned(at->next) && neighbours(p, at, at->next) && !has_comment(&c, at->next); at = at->next) {
        size_t n = strlen(at->next->word);
        width = n > width ? n : width;
    }
    *end = at;
    return width;
}

static void print_items(struct printer *p, const struct stmt *s, size_t column)
{
    size_t start = p->out->length;
    for (const struct item *i = s->items; i; i = i->next) {
        if (i != s->items)
            strbuf_char(p->out, ' ');
        if (i->relop != RELOP_NONE)
            strbuf_printf(p->out, "%s ", relop_text(i->relop));
        print_wrapped(p->out, i->expr, column + (p->out->length - start));
    }
}

static void print_block(struct printer *p, const struct stmt *stmts, int level, bool first);

static void print_stmt(struct printer *p, const struct stmt *s, int level, size_t width)
{
    size_t column = (size_t)level * 4, n = strlen(s->word);
    indent(p, level);
    if (s->let) {
        strbuf_printf(p->out, "let %s ", s->word);
        print_items(p, s, column + n + 5);
    } else {
        strbuf_text(p->out, s->word);
        if (s->items)
            strbuf_repeat(p->out, ' ', (width > n ? width - n : 0) + 1);
        print_items(p, s, column + (width > n ? width : n) + 1);
    }
    if (!s->has_block) {
        end_line(p, s->span.start + s->span.length);
        return;
    }
    strbuf_text(p->out, " {");
    end_line(p, s->open.start + 1);
    print_block(p, s->block, level + 1, true);
    print_comments(p, s->close.start, level + 1, !s->block);
    indent(p, level);
    strbuf_char(p->out, '}');
    end_line(p, s->close.start + 1);
}

static void print_block(struct printer *p, const struct stmt *stmts, int level, bool first)
{
    const struct stmt *run_end = NULL;
    size_t width = 0;
    for (const struct stmt *s = stmts; s; s = s->next) {
        first = print_comments(p, head_end(s), level, first);
        if (!run_end) {
            width = 0;
            if (aligned(s))
                width = run_width(p, s, &run_end);
        }
        separate(p, !p->keep && level == 0 ? SIZE_MAX : s->word_span.start,
                 first); /* without comments: only blocks of the file */
        print_stmt(p, s, level, width);
        first = false;
        if (s == run_end || !aligned(s))
            run_end = NULL;
    }
}

void ast_print(struct strbuf *out, const struct ast *tree, bool comments)
{
    struct printer p = {
        .out = out, .source = tree->source, .comments = comments ? tree->comments : NULL, .keep = comments};
    print_comments(&p, tree->version_span.start, 0, true);
    strbuf_text(out, "llmc 1");
    end_line(&p, tree->version_span.start + tree->version_span.length);
    size_t next = p.comments ? p.comments->span.start : SIZE_MAX;
    if (tree->stmts && tree->stmts->word_span.start < next)
        next = tree->stmts->word_span.start;
    if (comments && next != SIZE_MAX && !blank_line(&p, p.printed, next))
        strbuf_char(out, '\n');
    print_block(&p, tree->stmts, 0, false);
    print_comments(&p, SIZE_MAX, 0, false);
}

char *fmt_text(struct arena *a, struct diag *d, const struct source *source)
{
    const struct ast *tree = parse_source(a, d, source);
    if (!tree)
        return NULL;
    struct strbuf out = {0};
    ast_print(&out, tree, true);
    char *text = arena_strndup(a, out.text, out.length);
    strbuf_free(&out);
    return text;
}
