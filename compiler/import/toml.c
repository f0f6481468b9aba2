/* TOML (toml.io, version 1.0), as far as configurations of torchtitan go; see toml.h. */

#include "compiler/import/toml.h"

#include "compiler/support/strbuf.h"

#include <ctype.h>
#include <string.h>

enum { MOST_DEPTH = 8 };

struct toml {
    struct givens *g;
    const char *s;
    size_t at;
    const char *table; /* "" in front of the first */
    bool failed;
};

static void fail(struct toml *t, size_t at, const char *what)
{
    if (!t->failed)
        diag_error(t->g->diag, (struct span){t->g->source, (uint32_t)at, 1}, "toml", "%s", what);
    t->failed = true;
}

/* blanks; with lines, also ends of lines and comments */
static void skip(struct toml *t, bool lines)
{
    for (; !t->failed; t->at++) {
        char c = t->s[t->at];
        if (lines && c == '#')
            t->at += strcspn(t->s + t->at, "\n");
        c = t->s[t->at];
        if (c != ' ' && c != '\t' && c != '\r' && !(lines && c == '\n'))
            return;
    }
}

/* a key with dots: bare parts, or in quotes */
static const char *key(struct toml *t)
{
    struct strbuf b = {0};
    size_t from = t->at;
    for (bool more = true; more && !t->failed;) {
        skip(t, false);
        char quote = t->s[t->at] == '"' || t->s[t->at] == '\'' ? t->s[t->at++] : 0;
        size_t n = 0;
        for (char c; (c = t->s[t->at + n]) != 0 && c != '\n' &&
                     (quote ? c != quote : isalnum((unsigned char)c) || c == '_' || c == '-');
             n++)
            ;
        if (!n || b.length + n > 500 || (quote && t->s[t->at + n] != quote))
            fail(t, from, b.length + n > 500 ? "a name is too long" : "a name is missing");
        strbuf_bytes(&b, t->s + t->at, n);
        t->at += n + (quote && !t->failed);
        skip(t, false);
        more = t->s[t->at] == '.';
        t->at += more;
        strbuf_text(&b, more ? "." : "");
    }
    const char *name = arena_strndup(t->g->arena, b.text ? b.text : "", b.length);
    strbuf_free(&b);
    return name;
}

static void string(struct toml *t, struct strbuf *out)
{
    size_t from = t->at;
    char quote = t->s[t->at++];
    if (t->s[t->at] == quote && t->s[t->at + 1] == quote)
        fail(t, from, "strings over several lines are not read");
    for (char c; !t->failed && (c = t->s[t->at]) != quote; t->at++) {
        if (!c || c == '\n') {
            fail(t, from, "a string is not closed");
        } else if (c == '\\' && quote == '"') {
            const char *escapes = "\"\\ntr", *means = "\"\\\n\t\r", *which = strchr(escapes, t->s[++t->at]);
            if (!t->s[t->at] || !which)
                fail(t, t->at - 1, "this escape is not read");
            else
                strbuf_char(out, means[which - escapes]);
        } else if ((unsigned char)c < ' ' && c != '\t') {
            fail(t, t->at, "a byte that no string has");
        } else {
            strbuf_char(out, c);
        }
    }
    t->at += !t->failed;
}

/* a number, true or false; underscores between digits are left out */
static void bare(struct toml *t, struct strbuf *out)
{
    size_t n = strcspn(t->s + t->at, " \t\r\n,]#"), from = t->at;
    static const char digits[] = "0123456789+-.eE_xobabcdefABCDEF";
    bool word = (n == 4 && !strncmp(t->s + t->at, "true", 4)) || (n == 5 && !strncmp(t->s + t->at, "false", 5));
    if (!n || n > 64 || (!word && (strspn(t->s + t->at, digits) < n || isalpha((unsigned char)t->s[t->at]))))
        fail(t, from, "a value is missing, or is of a kind that is not read");
    for (size_t i = 0; i < n && !t->failed; i++)
        if (word || t->s[t->at + i] != '_')
            strbuf_char(out, t->s[t->at + i]);
    t->at += t->failed ? 0 : n;
}

static void value(struct toml *t, struct given *x, struct strbuf *joined, int depth);

static void array(struct toml *t, struct given *x, struct strbuf *joined, int depth)
{
    size_t from = t->at++;
    if (depth >= MOST_DEPTH)
        fail(t, from, "arrays are nested too deep");
    for (size_t n = 0; !t->failed; n++) {
        skip(t, true);
        if (t->s[t->at] == ']')
            break;
        if (!t->s[t->at])
            fail(t, from, "an array is not closed");
        if (joined && n)
            strbuf_char(joined, ',');
        value(t, x, joined, depth + 1);
        if (t->failed)
            break;
        skip(t, true);
        if (t->s[t->at] == ',')
            t->at++;
        else if (t->s[t->at] != ']')
            fail(t, t->at, "',' or ']' is missing");
    }
    t->at += !t->failed;
}

/* Outermost values are added to the setting, those of inner arrays to one text. */
static void value(struct toml *t, struct given *x, struct strbuf *joined, int depth)
{
    struct strbuf own = {0}, *out = joined ? joined : &own;
    char c = t->s[t->at];
    if (t->failed)
        return;
    strbuf_text(out, "");
    if (c == '[' && depth == 0) {
        array(t, x, NULL, depth);
    } else if (c == '[') {
        array(t, x, out, depth);
    } else if (c == '"' || c == '\'') {
        string(t, out);
    } else if (c == '{') {
        fail(t, t->at, "tables within a line are not read");
    } else {
        bare(t, out);
    }
    if (!joined && !(c == '[' && depth == 0) && !t->failed)
        given_value(t->g, x, arena_strndup(t->g->arena, own.text, own.length));
    strbuf_free(&own);
}

static void end_of_line(struct toml *t)
{
    skip(t, false);
    if (t->s[t->at] == '#')
        t->at += strcspn(t->s + t->at, "\n");
    if (t->s[t->at] && t->s[t->at] != '\n')
        fail(t, t->at, "something stands behind the value");
}

static void line(struct toml *t)
{
    size_t from = t->at;
    if (t->s[t->at] == '[') {
        t->at++;
        if (t->s[t->at] == '[')
            fail(t, from, "arrays of tables are not read");
        t->table = key(t);
        if (!t->failed && t->s[t->at] != ']')
            fail(t, from, "']' is missing");
        t->at += !t->failed;
    } else {
        const char *name = key(t);
        struct span span = {t->g->source, (uint32_t)from, (uint32_t)(t->at - from)};
        while (span.length > 1 && isspace((unsigned char)t->s[from + span.length - 1]))
            span.length--;
        if (!t->failed && t->s[t->at] != '=')
            fail(t, t->at, "'=' is missing");
        t->at += !t->failed;
        skip(t, false);
        name = *t->table ? arena_printf(t->g->arena, "%s.%s", t->table, name) : name;
        struct given x = {.name = name, .key = name, .span = span};
        value(t, &x, NULL, 0);
        x.null = !x.n;
        vec_push(t->g->arena, &t->g->all, x);
    }
    if (!t->failed)
        end_of_line(t);
}

bool toml_read(struct givens *g)
{
    struct toml t = {.g = g, .s = g->source->text, .table = ""};
    if (memchr(g->source->text, 0, g->source->size) || memchr(g->source->text, GIVEN_OPEN, g->source->size))
        fail(&t, 0, "the file holds a byte that no text has");
    for (skip(&t, true); !t.failed && t.s[t.at]; skip(&t, true))
        line(&t);
    return !t.failed;
}
