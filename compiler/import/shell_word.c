/* One word of a shell script and its expansions; see shell.h.
 *
 * A word is built byte by byte.  An unquoted expansion is split at blanks, "${NAME[@]}" gives a word for each element.
 * Everything that is expanded counts against one bound, so that no script can double itself without end. */

#include "compiler/import/shell.h"

#include "compiler/support/strbuf.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 16 };

struct build {
    struct shell *sh;
    struct words *out;
    struct strbuf text;
    struct span span;
    bool any, whole; /* any: there is a word, if an empty one */
    int depth;
};

void shell_error(struct shell *sh, size_t at, size_t length, const char *fmt, ...)
{
    if (sh->failed)
        return;
    sh->failed = true;
    va_list ap;
    va_start(ap, fmt);
    diag_error(sh->g->diag, (struct span){sh->g->source, (uint32_t)at, (uint32_t)length}, "shell", "%s",
               arena_vprintf(sh->g->arena, fmt, ap));
    va_end(ap);
}

bool shell_ends_word(char c)
{
    return !c || strchr(" \t\r\n;|&()<>", c);
}

size_t shell_name(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return isdigit((unsigned char)*s) ? 0 : n;
}

struct variable *shell_variable(struct shell *sh, const char *name, size_t length)
{
    for (size_t i = 0; i < sh->variables.n; i++)
        if (strlen(sh->variables.at[i].name) == length && !strncmp(sh->variables.at[i].name, name, length))
            return &sh->variables.at[i];
    return NULL;
}

static void put(struct build *b, char c)
{
    if (++b->sh->expanded > GIVEN_MOST_BYTES)
        shell_error(b->sh, b->span.start, 1, "the script expands to more than %d MiB", GIVEN_MOST_BYTES >> 20);
    if (b->sh->failed)
        return;
    b->any = true;
    strbuf_char(&b->text, c);
}

static void end_word(struct build *b)
{
    struct word w = {arena_strndup(b->sh->g->arena, b->text.text ? b->text.text : "", b->text.length), b->span};
    if (b->any)
        vec_push(b->sh->g->arena, b->out, w);
    b->sh->expanded += sizeof w;
    strbuf_clear(&b->text);
    b->any = false;
}

/* an expansion's text, split at blanks unless it is quoted */
static void put_value(struct build *b, const char *text, bool quoted)
{
    for (b->any |= quoted; *text && !b->sh->failed; text++)
        if (!quoted && !b->whole && strchr(" \t\n", *text))
            end_word(b);
        else
            put(b, *text);
}

static void put_words(struct build *b, const struct words *w, bool quoted, bool each)
{
    for (size_t i = 0; i < w->n && !b->sh->failed; i++) {
        if (i && (each || !quoted) && !b->whole)
            end_word(b);
        else if (i)
            put(b, ' ');
        if (w->at[i].span.source)
            b->span = w->at[i].span; /* an element says where it stands itself */
        put_value(b, w->at[i].text, quoted);
    }
}

/* what the file does not say, by a name for messages */
static void put_open(struct build *b, const char *name, size_t length)
{
    put(b, GIVEN_OPEN);
    for (size_t i = 0; i < length && i < 60; i++)
        put(b, name[i]);
    put(b, GIVEN_OPEN);
}

/* ---- arithmetic ---- */

struct sums {
    const struct shell *sh;
    const char *at;
    bool bad;
    int depth;
};

static double product(struct sums *s);

static double sum(struct sums *s)
{
    double v = product(s);
    while (!s->bad && (*s->at == '+' || *s->at == '-')) {
        bool minus = *s->at++ == '-';
        double w = product(s);
        v = minus ? v - w : v + w;
    }
    return v;
}

static double operand(struct sums *s)
{
    double v = 0;
    s->at += strspn(s->at, " \t\n");
    size_t n = shell_name(s->at);
    if (*s->at == '(' && ++s->depth < MOST_DEPTH) {
        s->at++;
        v = sum(s);
        s->bad |= *s->at != ')';
        s->at += *s->at == ')';
        s->depth--;
    } else if (isdigit((unsigned char)*s->at)) {
        char *end;
        v = (double)strtoull(s->at, &end, 10);
        s->at = end;
    } else {
        const struct variable *x = n ? shell_variable((struct shell *)(uintptr_t)s->sh, s->at, n) : NULL;
        char *end = NULL;
        v = x && x->words.n == 1 ? (double)strtoull(x->words.at[0].text, &end, 10) : 0;
        s->bad |= !end || *end || end == x->words.at[0].text;
        s->at += n;
    }
    s->at += strspn(s->at, " \t\n");
    s->bad |= v > 1e15;
    return v;
}

static double product(struct sums *s)
{
    double v = operand(s);
    while (!s->bad && (*s->at == '*' || *s->at == '/')) {
        bool over = *s->at++ == '/';
        double w = operand(s);
        s->bad |= over && w == 0;
        v = !over ? v * w : w != 0 ? (double)(int64_t)(v / w) : 0;
        s->bad |= v > 1e15 || v < -1e15;
    }
    return v;
}

static void dollar(struct build *b, bool quoted);

/* the bytes up to two closing parentheses, with what they expand to; the place is behind those then */
static char *inside(struct build *b)
{
    const char *s = b->sh->g->source->text;
    struct words words = {0};
    struct build in = {.sh = b->sh, .out = &words, .span = b->span, .whole = true, .depth = b->depth + 1};
    for (int open = 0; !b->sh->failed;) {
        char c = s[b->sh->at];
        bool end = c == ')' && open == 0;
        if (!c || (end && s[b->sh->at + 1] != ')'))
            shell_error(b->sh, b->span.start, 2, "a parenthesis is not closed");
        if (!c || end)
            break;
        open += c == '(' ? 1 : c == ')' ? -1 : 0;
        if (c == '$') {
            dollar(&in, true);
        } else {
            put(&in, c);
            b->sh->at++;
        }
    }
    b->sh->at += b->sh->failed ? 0 : 2;
    char *text = arena_strndup(b->sh->g->arena, in.text.text ? in.text.text : "", in.text.length);
    strbuf_free(&in.text);
    return text;
}

static void arithmetic(struct build *b, size_t from)
{
    char *text = inside(b);
    char *open = strchr(text, GIVEN_OPEN);
    struct sums s = {.sh = b->sh, .at = text};
    double v = open ? 0 : sum(&s);
    char digits[32];
    if (open) {
        put_open(b, open + 1, strcspn(open + 1, "\1"));
        return;
    }
    if (!b->sh->failed && (s.bad || *s.at))
        shell_error(b->sh, from, b->sh->at - from, "of $((...)) only + - * / of whole numbers and variables are read");
    snprintf(digits, sizeof digits, "%.0f", v);
    put_value(b, digits, true);
}

/* ---- expansions ---- */

/* $( ... ): what a command prints; read over, with its quotes */
static void command_output(struct build *b, size_t from)
{
    const char *s = b->sh->g->source->text;
    int open = 1;
    for (char quote = 0; open; b->sh->at++) {
        char c = s[b->sh->at];
        if (!c) {
            shell_error(b->sh, from, 2, "a parenthesis is not closed");
            return;
        }
        if (c == '\\' && quote != '\'' && s[b->sh->at + 1])
            b->sh->at++;
        else if (quote)
            quote = c == quote ? 0 : quote;
        else if (c == '\'' || c == '"')
            quote = c;
        else
            open += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    put_open(b, "$", 1);
}

static void in_quotes(struct build *b, char end);

/* ${NAME}, ${NAME[@]}, ${NAME:-default}, ${NAME:?message} */
static void braces(struct build *b, bool quoted, size_t from)
{
    struct shell *sh = b->sh;
    const char *s = sh->g->source->text;
    size_t n = shell_name(s + sh->at), digits = strspn(s + sh->at, "0123456789");
    const char *name = s + sh->at;
    n = n ? n : digits;
    sh->at += n;
    bool each = !strncmp(s + sh->at, "[@]", 3), all = each || !strncmp(s + sh->at, "[*]", 3);
    sh->at += all ? 3 : 0;
    bool colon = s[sh->at] == ':';
    char kind = s[sh->at + colon];
    const struct variable *v = shell_variable(sh, name, n);
    bool said = v && v->words.n && (!colon || *v->words.at[0].text);
    if (!n || (kind != '}' && kind != '-' && kind != '?' && kind != '=') || (colon && kind == '}')) {
        shell_error(sh, from, sh->at - from + 1,
                    "of ${...} only ${NAME}, ${NAME[@]}, ${NAME:-default} and ${NAME:?message} are read");
        return;
    }
    sh->at += colon;
    if (said)
        put_words(b, &v->words, quoted, each);
    else if (kind == '}' || kind == '?') {
        if (!v)
            put_open(b, name, n);
    }
    if (kind != '}') { /* the rest counts where the name says nothing */
        struct words unused = {0};
        struct build aside = {.sh = sh, .out = &unused, .span = b->span, .whole = true, .depth = b->depth};
        sh->at++;
        in_quotes(said || kind == '?' ? &aside : b, '}');
        strbuf_free(&aside.text);
    } else {
        sh->at++;
    }
}

static void dollar(struct build *b, bool quoted)
{
    struct shell *sh = b->sh;
    const char *s = sh->g->source->text;
    size_t from = sh->at++, n = shell_name(s + sh->at);
    char c = s[sh->at];
    if (b->depth >= MOST_DEPTH) {
        shell_error(sh, from, 1, "expansions are nested too deep");
    } else if (c == '(' && s[sh->at + 1] == '(') {
        sh->at += 2;
        arithmetic(b, from);
    } else if (c == '(') {
        sh->at++;
        command_output(b, from);
    } else if (c == '{') {
        sh->at++;
        b->depth++;
        braces(b, quoted, from);
        b->depth--;
    } else if (n) {
        const struct variable *v = shell_variable(sh, s + sh->at, n);
        if (v && v->array && v->words.n) /* $ARRAY is its first element */
            put_value(b, v->words.at[0].text, quoted);
        else if (v)
            put_words(b, &v->words, quoted, false);
        else
            put_open(b, s + sh->at, n);
        sh->at += n;
    } else if (c == '@' || c == '*') {
        sh->at++; /* the script's own arguments come behind these */
    } else if (isdigit((unsigned char)c) || c == '#' || c == '?' || c == '$' || c == '!') {
        const struct variable *v = shell_variable(sh, &c, 1);
        if (v)
            put_words(b, &v->words, quoted, false);
        else
            put_open(b, &c, 1);
        sh->at++;
    } else {
        put(b, '$');
    }
}

/* between double quotes, or up to the } of ${NAME:-default} */
static void in_quotes(struct build *b, char end)
{
    struct shell *sh = b->sh;
    const char *s = sh->g->source->text;
    size_t from = sh->at;
    while (!sh->failed && s[sh->at] != end) {
        char c = s[sh->at];
        if (!c) {
            shell_error(sh, from - 1, 1, "'%c' is not closed", end == '}' ? '{' : end);
        } else if (c == '$') {
            dollar(b, true);
        } else if (c == '"' && end == '}') { /* ${NAME:-"default"} */
            sh->at++;
            in_quotes(b, '"');
        } else if (c == '`') {
            shell_error(sh, sh->at, 1, "what `...` prints is not known here");
        } else if (c == '\\' && s[sh->at + 1] && strchr("\\\"$`\n}", s[sh->at + 1])) {
            if (s[sh->at + 1] != '\n')
                put(b, s[sh->at + 1]);
            sh->at += 2;
        } else {
            put(b, c);
            sh->at++;
        }
    }
    sh->at += !sh->failed;
}

static void single_quotes(struct build *b)
{
    struct shell *sh = b->sh;
    const char *s = sh->g->source->text;
    size_t from = sh->at++;
    b->any = true;
    while (!sh->failed && s[sh->at] != '\'')
        if (!s[sh->at])
            shell_error(sh, from, 1, "a quote is not closed");
        else
            put(b, s[sh->at++]);
    sh->at += !sh->failed;
}

void shell_word(struct shell *sh, bool whole, struct words *out)
{
    const char *s = sh->g->source->text;
    struct build b = {.sh = sh, .out = out, .whole = whole, .span = {sh->g->source, (uint32_t)sh->at, 1}};
    size_t from = sh->at, first = out->n;
    while (!sh->failed && !shell_ends_word(s[sh->at])) {
        char c = s[sh->at];
        if (c == '$') {
            dollar(&b, false);
        } else if (c == '\'') {
            single_quotes(&b);
        } else if (c == '"') {
            b.any |= strncmp(s + sh->at, "\"$@\"", 4) != 0 && strncmp(s + sh->at, "\"${", 3) != 0;
            sh->at++;
            in_quotes(&b, '"');
        } else if (c == '`') {
            shell_error(sh, sh->at, 1, "what `...` prints is not known here");
        } else if (c == '\\' && s[sh->at + 1]) {
            if (s[sh->at + 1] != '\n')
                put(&b, s[sh->at + 1]);
            sh->at += 2;
        } else {
            put(&b, c);
            sh->at++;
        }
    }
    end_word(&b);
    strbuf_free(&b.text);
    for (size_t i = first; i < out->n; i++) /* what stands here itself, in full */
        if (out->at[i].span.start == from)
            out->at[i].span.length = (uint32_t)(sh->at - from);
}
