/* Settings of foreign files, and the table by which they are asked for; see given.h. */

#include "compiler/import/given.h"

#include "compiler/support/strbuf.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct given *given_add(struct givens *g, const char *name, const char *key, struct span span)
{
    struct given x = {.name = name, .key = key, .span = span};
    vec_push(g->arena, &g->all, x);
    return &g->all.at[g->all.n - 1];
}

void given_value(struct givens *g, struct given *x, const char *value)
{
    if ((x->n & (x->n - 1)) == 0) /* room doubles */
        x->values = arena_grow(g->arena, (void *)x->values, x->n, x->n ? 2 * (size_t)x->n : 1, sizeof *x->values);
    x->values[x->n++] = value;
}

void given_note(struct givens *g, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = arena_vprintf(g->arena, fmt, ap);
    va_end(ap);
    for (char *c = text; *c; c++) /* a comment ends with its line */
        if ((unsigned char)*c < ' ')
            *c = ' ';
    vec_push(g->arena, &g->notes, text);
}

char *arg_key(struct arena *a, const char *name, size_t length)
{
    size_t dashes = 0;
    while (dashes < length && dashes < 2 && name[dashes] == '-')
        dashes++;
    char *key = arena_strndup(a, name + dashes, length - dashes);
    for (char *c = key; *c; c++)
        if (*c == '-')
            *c = '_';
    return key;
}

static bool is_left_out(const struct givens *g, const char *name)
{
    struct arena_mark mark = arena_mark(g->arena);
    const char *wanted = arg_key(g->arena, name, strlen(name));
    bool found = false;
    for (const char *at = g->left_out; at && *at && !found; at += strcspn(at, ", "), at += strspn(at, ", "))
        found = !strcmp(arg_key(g->arena, at, strcspn(at, ", ")), wanted);
    arena_reset(g->arena, mark);
    return found;
}

void given_leave_out(struct givens *g)
{
    for (size_t i = 0; i < g->all.n; i++) {
        struct given *x = &g->all.at[i];
        x->left_out = is_left_out(g, x->name) || is_left_out(g, x->key);
        if (x->left_out)
            given_note(g, "left out: %.60s%s%.60s", x->name, x->n ? " " : "",
                       x->n && !strchr(x->values[0], GIVEN_OPEN) ? x->values[0] : "");
    }
}

/* is the word among others with blanks between them? */
static bool among(const char *names, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = names; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == n && !strncmp(at, word, n))
            return true;
    return false;
}

static bool says_elsewhere(const struct args *x, const char *key)
{
    for (size_t i = 0; i < x->nelsewhere; i++)
        if (among(x->elsewhere[i], key))
            return true;
    return false;
}

static bool is_of(const struct arg_row *row, const char *key)
{
    return !strcmp(row->key, key) || among(row->names, key);
}

bool arg_known(const struct args *x, const char *key)
{
    for (size_t i = 0; i < x->nrows; i++)
        if (is_of(&x->rows[i], key))
            return true;
    return says_elsewhere(x, key);
}

struct given *arg_find(const struct args *x, unsigned row)
{
    struct given *found = NULL;
    for (size_t i = 0; i < x->givens->all.n; i++) {
        struct given *at = &x->givens->all.at[i];
        if (!at->null && !at->left_out && is_of(&x->rows[row], at->key))
            found = at;
    }
    return found;
}

bool arg_said(const struct args *x, unsigned row)
{
    return arg_find(x, row) != NULL;
}

const char *arg_name(const struct args *x, unsigned row)
{
    struct given *at = arg_find(x, row);
    const struct arg_row *r = &x->rows[row];
    if (at || !x->givens->dashes)
        return at ? at->name : r->key;
    size_t n = strcspn(r->names, " ");
    char *name = n ? arena_printf(x->givens->arena, "--%.*s", (int)n, r->names)
                   : arena_printf(x->givens->arena, "--%s", r->key);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return name;
}

static struct span place(const struct args *x, const struct given *at)
{
    return at && at->span.source ? at->span : (struct span){x->givens->source, 0, 1};
}

void arg_error(const struct args *x, unsigned row, const char *fmt, ...)
{
    struct given *at = arg_find(x, row);
    va_list ap;
    va_start(ap, fmt);
    diag_error(x->givens->diag, place(x, at), at ? "unsupported" : "missing", "%s",
               arena_vprintf(x->givens->arena, fmt, ap));
    va_end(ap);
}

/* what is left out is named as the file has it */
static void refuse(const struct args *x, const struct given *at, const char *name, const char *sentence)
{
    struct givens *g = x->givens;
    size_t dashes = strspn(name, "-");
    if (is_left_out(g, name)) {
        given_note(g, "left out: %.60s", name);
        return;
    }
    diag_error(g->diag, place(x, at), "unsupported", "%s", sentence);
    diag_help(g->diag, "--leave-out %s writes the model without it", name + dashes);
}

void arg_refuse(const struct args *x, unsigned row, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *what = arena_vprintf(x->givens->arena, fmt, ap), *name = arg_name(x, row);
    va_end(ap);
    refuse(x, arg_find(x, row), name,
           arena_printf(x->givens->arena, "'%.60s' asks for %s, which a model file cannot say", name, what));
}

/* an error where the value depends on what the file leaves open */
static bool is_open(const struct args *x, struct given *at, const char *value)
{
    const char *open = strchr(value, GIVEN_OPEN);
    if (!open || at->wrong)
        return open;
    at->wrong = true;
    size_t n = strcspn(open + 1, "\1");
    const char *name = arena_strndup(x->givens->arena, open + 1, n < 60 ? n : 60);
    diag_error(x->givens->diag, place(x, at), "open", "'%.60s' depends on %s, which the file does not say", at->name,
               *name == '$' ? "what a command prints" : arena_printf(x->givens->arena, "$%s", name));
    if (*name != '$')
        diag_help(x->givens->diag, "--set %s=VALUE says it", name);
    else
        diag_help(x->givens->diag, "--set %.60s=VALUE says it", at->name + strspn(at->name, "-"));
    return true;
}

/* The one value of a setting; NULL: none, or after an error. */
static const char *value_of(const struct args *x, struct given *at)
{
    if (at && at->n == 1 && !is_open(x, at, at->values[0]))
        return at->values[0];
    if (at && at->n != 1 && !at->wrong) {
        at->wrong = true;
        diag_error(x->givens->diag, place(x, at), "type", "'%.60s' takes one value", at->name);
    }
    return NULL;
}

static void mistyped(const struct args *x, struct given *at, const char *what)
{
    if (!at->wrong)
        diag_error(x->givens->diag, place(x, at), "type", "'%.60s' should be %s", at->name, what);
    at->wrong = true;
}

double arg_real(const struct args *x, unsigned row)
{
    struct given *at = arg_find(x, row);
    double otherwise = strtod(x->rows[row].otherwise, NULL);
    const char *text = value_of(x, at);
    if (!text)
        return otherwise;
    char *end;
    double v = strtod(text, &end);
    bool plain = strspn(text, "0123456789+-.eE_") == strlen(text); /* no names of infinities, no hexadecimals */
    if (*text && plain && !*end && isfinite(v))
        return v;
    mistyped(x, at, "a number");
    return otherwise;
}

uint64_t arg_count(const struct args *x, unsigned row)
{
    struct given *at = arg_find(x, row);
    uint64_t otherwise = strtoull(x->rows[row].otherwise, NULL, 10);
    const char *text = value_of(x, at);
    if (!text)
        return otherwise;
    char *end;
    double v = strtod(text, &end);
    if (*text && strspn(text, "0123456789.eE+") == strlen(text) && !*end && v >= 0 && v <= 1e12 && v == floor(v))
        return (uint64_t)v;
    mistyped(x, at, "a whole number");
    return otherwise;
}

bool arg_yes(const struct args *x, unsigned row)
{
    static const char *const yes[] = {"true", "True", "yes", "1"}, *const no[] = {"false", "False", "no", "0"};
    const struct arg_row *r = &x->rows[row];
    struct given *at = arg_find(x, row);
    if (!at)
        return !strcmp(r->otherwise, "yes");
    if (at->bare)
        return r->kind != ARG_NO;
    if (x->givens->dashes && !at->set) {
        mistyped(x, at, "without a value");
        return !strcmp(r->otherwise, "yes");
    }
    const char *text = value_of(x, at);
    for (size_t i = 0; text && i < ARRAY_LEN(yes); i++)
        if (!strcmp(text, yes[i]) || !strcmp(text, no[i]))
            return !strcmp(text, yes[i]);
    if (text)
        mistyped(x, at, "true or false");
    return !strcmp(r->otherwise, "yes");
}

const char *arg_word(const struct args *x, unsigned row)
{
    const char *text = value_of(x, arg_find(x, row));
    return text ? text : x->rows[row].otherwise;
}

bool arg_is(const struct args *x, unsigned row, const char *word)
{
    return !strcmp(arg_word(x, row), word);
}

const char *const *arg_words(const struct args *x, unsigned row, uint32_t *n)
{
    struct given *at = arg_find(x, row);
    *n = 0;
    for (uint32_t i = 0; at && i < at->n; i++)
        if (is_open(x, at, at->values[i]))
            return NULL;
    *n = at ? at->n : 0;
    return at && at->n ? at->values : NULL;
}

/* does the setting say what the row's default says?  Of words that are read elsewhere: it does not matter */
static bool is_usual(const struct args *x, unsigned row)
{
    const struct arg_row *r = &x->rows[row];
    switch (r->kind) {
    case ARG_COUNT:
    case ARG_REAL:
        return arg_real(x, row) == strtod(r->otherwise, NULL);
    case ARG_WORD:
        return !*r->refused || arg_is(x, row, r->otherwise);
    case ARG_WORDS:
        return !*r->refused || arg_find(x, row)->n == 0;
    case ARG_YES:
    case ARG_NO:
        return arg_yes(x, row) == !strcmp(r->otherwise, "yes");
    }
    return true;
}

/* every name of the table, for did-you-mean */
static const char *nearest(const struct args *x, const char *key)
{
    VEC(const char *) names = {0};
    struct arena *a = x->givens->arena;
    for (size_t i = 0; i < x->nrows + x->nelsewhere; i++) {
        const char *at = i < x->nrows ? x->rows[i].names : x->elsewhere[i - x->nrows];
        if (i < x->nrows)
            vec_push(a, &names, x->rows[i].key);
        for (; *at; at += strcspn(at, " "), at += strspn(at, " "))
            vec_push(a, &names, arena_strndup(a, at, strcspn(at, " ")));
    }
    return diag_nearest(key, names.at, names.n);
}

static void unknown(const struct args *x, const struct given *at)
{
    struct givens *g = x->givens;
    refuse(x, at, at->name, arena_printf(g->arena, "'%.60s' is not known", at->name));
    const char *near = nearest(x, at->key);
    if (!near)
        return;
    char *shown = arena_printf(g->arena, "%s%s", g->dashes ? "--" : "", near);
    for (char *c = shown; g->dashes && *c; c++)
        *c = *c == '_' ? '-' : *c;
    diag_caret(g->diag, "did you mean '%s'?", shown);
}

/* Configurations say some things in several sections; they must not say two. */
static void check_agreement(const struct args *x, unsigned row)
{
    const struct given *first = NULL;
    for (size_t i = 0; i < x->givens->all.n; i++) {
        const struct given *at = &x->givens->all.at[i];
        if (at->null || at->left_out || at->set || at->n != 1 || !is_of(&x->rows[row], at->key))
            continue;
        if (first && strcmp(first->values[0], at->values[0]) != 0) {
            diag_error(x->givens->diag, at->span, "twice", "'%.60s' and '%.60s' say two things", first->name, at->name);
            diag_note(x->givens->diag, first->span, "the first of them");
            return;
        }
        first = at;
    }
}

void arg_rest(const struct args *x)
{
    for (unsigned row = 0; row < x->nrows && !x->givens->dashes; row++)
        check_agreement(x, row);
    for (unsigned row = 0; row < x->nrows; row++) /* every value has its type, whether it counts or not */
        if (arg_said(x, row) && !is_usual(x, row) && *x->rows[row].refused)
            arg_refuse(x, row, "%s", x->rows[row].refused);
    for (size_t i = 0; i < x->givens->all.n; i++) {
        const struct given *at = &x->givens->all.at[i];
        if (!at->left_out && !at->null && *at->key != '_' && !arg_known(x, at->key))
            unknown(x, at);
    }
}

/* ---- a list expression: terms with +, factors with *, [N, ...], numbers and parentheses ---- */

struct pattern {
    const char *at;
    uint32_t most;
    const char *wrong;
};
struct listed {
    uint8_t *at; /* NULL: a number */
    uint32_t n;
    uint64_t number;
};

static struct listed sum(struct arena *a, struct pattern *p, int depth);

static void skip(struct pattern *p)
{
    while (*p->at == ' ')
        p->at++;
}

static uint64_t number(struct pattern *p)
{
    uint64_t v = 0;
    skip(p);
    if (!isdigit((unsigned char)*p->at))
        p->wrong = "a number is missing";
    for (; isdigit((unsigned char)*p->at) && !p->wrong; p->at++) {
        v = v * 10 + (uint64_t)(*p->at - '0');
        if (v > p->most)
            p->wrong = "a number is too large";
    }
    skip(p);
    return v;
}

static struct listed factor(struct arena *a, struct pattern *p, int depth)
{
    struct listed out = {0};
    skip(p);
    if (depth > 32) {
        p->wrong = "parentheses are nested too deep";
    } else if (*p->at == '(') {
        p->at++;
        out = sum(a, p, depth + 1);
        if (!p->wrong && *p->at != ')')
            p->wrong = "a parenthesis is not closed";
        p->at += *p->at == ')';
        skip(p);
    } else if (*p->at == '[') {
        out.at = arena_alloc(a, (size_t)p->most + 1);
        do {
            p->at++;
            skip(p);
            if (*p->at == ']')
                break;
            uint64_t v = number(p);
            if (v > 1)
                p->wrong = "a layer's number is 0 or 1";
            else if (out.n >= p->most)
                p->wrong = "it is longer than the model";
            else
                out.at[out.n++] = (uint8_t)v;
        } while (*p->at == ',' && !p->wrong);
        if (!p->wrong && *p->at != ']')
            p->wrong = "a bracket is not closed";
        p->at += *p->at == ']';
        skip(p);
    } else {
        out.number = number(p);
    }
    return out;
}

static struct listed repeated(struct arena *a, struct pattern *p, struct listed x, uint64_t times)
{
    struct listed out = {.at = x.at ? arena_alloc(a, (size_t)p->most + 1) : NULL, .number = x.number * times};
    if (x.at && x.n * times > p->most)
        p->wrong = "it is longer than the model";
    if (!x.at && out.number > p->most)
        p->wrong = "a number is too large";
    for (uint64_t i = 0; x.at && i < times && !p->wrong && x.n; i++, out.n += x.n)
        memcpy(out.at + out.n, x.at, x.n);
    return out;
}

static struct listed term(struct arena *a, struct pattern *p, int depth)
{
    struct listed x = factor(a, p, depth);
    while (!p->wrong && *p->at == '*') {
        p->at++;
        struct listed y = factor(a, p, depth);
        if (!p->wrong && x.at && y.at)
            p->wrong = "a list times a list";
        if (!p->wrong)
            x = y.at ? repeated(a, p, y, x.number) : repeated(a, p, x, y.number);
    }
    return x;
}

static struct listed sum(struct arena *a, struct pattern *p, int depth)
{
    struct listed x = term(a, p, depth);
    while (!p->wrong && *p->at == '+') {
        p->at++;
        struct listed y = term(a, p, depth);
        if (p->wrong)
            break;
        if (!x.at != !y.at) {
            p->wrong = "a list and a number";
        } else if (!x.at) {
            x.number += y.number;
        } else if (x.n + y.n > p->most) {
            p->wrong = "it is longer than the model";
        } else {
            memcpy(x.at + x.n, y.at, y.n);
            x.n += y.n;
        }
    }
    return x;
}

bool arg_pattern(const struct args *x, unsigned row, uint32_t nlayers, uint8_t *out, uint64_t *every)
{
    uint32_t n;
    const char *const *words = arg_words(x, row, &n);
    struct arena *a = arena_new(); /* every list is as long as the model */
    struct strbuf text = {0};
    for (uint32_t i = 0; i < n && i <= nlayers; i++)
        strbuf_printf(&text, n == 1 ? "%.0s%s" : "%s%.4s", i ? "," : "[", words[i]);
    strbuf_text(&text, n > 1 ? "]" : "");
    struct pattern p = {.at = text.text, .most = nlayers};
    struct listed list = {0};
    if (words && text.length > 4096 + 2 * (size_t)nlayers)
        p.wrong = "it is too long";
    else if (words)
        list = sum(a, &p, 0);
    if (!p.wrong && words && *p.at)
        p.wrong = "something stands behind it";
    if (!p.wrong && list.at && list.n != nlayers)
        p.wrong = arena_printf(x->givens->arena, "it has %u layers, the model %u", list.n, nlayers);
    if (p.wrong)
        arg_error(x, row, "'%.60s' cannot be read as a list of layers: %s", arg_name(x, row), p.wrong);
    else if (list.at)
        memcpy(out, list.at, nlayers);
    *every = !words ? strtoull(x->rows[row].otherwise, NULL, 10) : list.number;
    strbuf_free(&text);
    arena_free(a);
    return !p.wrong && list.at;
}
