/* Values: expressions evaluated, names resolved, and a value held against a row of the vocabulary.
 *
 * `let` binds evaluated values, so nested lets cost nothing extra; a call keeps its arguments unevaluated
 * with the names that are visible where it is written.  Whole numbers stay exact; units only add to their
 * like. */

#include "compiler/model/check.h"

#include "compiler/support/strbuf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define LETS_MAX 1000 /* look-up is linear */

static const struct value bad_value;

static struct value number(struct span at, enum units_kind kind, bool whole, uint64_t integer, double real)
{
    return (struct value){
        .kind = VALUE_NUMBER,
        .span = at,
        .number = {.kind = kind, .whole = whole, .integer = integer, .real = whole ? (double)integer : real}};
}

static struct value refuse(struct check *c, struct span at, const char *what)
{
    diag_error(c->diag, at, "arithmetic", "%s", what);
    return bad_value;
}

static struct value add(struct check *c, const struct expr *e, const struct units_value *a, const struct units_value *b)
{
    uint64_t sum = 0;
    if (a->kind != b->kind)
        return refuse(c, e->span,
                      e->op == '+' ? "values of different units can't be added"
                                   : "values of different units can't be subtracted");
    if (e->op == '-') {
        if (b->real > a->real || (a->whole && b->whole && b->integer > a->integer))
            return refuse(c, e->span, "the difference is negative");
        return number(e->span, a->kind, a->whole && b->whole, a->integer - b->integer, a->real - b->real);
    }
    bool whole = a->whole && b->whole && !__builtin_add_overflow(a->integer, b->integer, &sum);
    return number(e->span, a->kind, whole, sum, a->real + b->real);
}

static struct value multiply(struct check *c, const struct expr *e, const struct units_value *a,
                             const struct units_value *b)
{
    uint64_t product = 0;
    if (a->kind != UNITS_COUNT && b->kind != UNITS_COUNT)
        return refuse(c, e->span, "two values with units can't be multiplied");
    bool whole = a->whole && b->whole && !__builtin_mul_overflow(a->integer, b->integer, &product);
    enum units_kind kind = a->kind == UNITS_COUNT ? b->kind : a->kind;
    return number(e->span, kind, whole, product, a->real * b->real);
}

static struct value divide(struct check *c, const struct expr *e, const struct units_value *a,
                           const struct units_value *b)
{
    if (b->real == 0)
        return refuse(c, e->span, "division by zero");
    if (b->kind != UNITS_COUNT && a->kind != b->kind)
        return refuse(c, e->span, "values of different units can't be divided");
    bool whole = a->whole && b->whole && a->integer % b->integer == 0;
    return number(e->span, a->kind == b->kind ? UNITS_COUNT : a->kind, whole, whole ? a->integer / b->integer : 0,
                  a->real / b->real);
}

static struct value eval_binary(struct check *c, const struct env *env, const struct expr *e)
{
    struct value a = check_eval(c, env, e->left), b = check_eval(c, env, e->right);
    if (a.kind == VALUE_BAD || b.kind == VALUE_BAD)
        return bad_value;
    if (a.kind != VALUE_NUMBER || b.kind != VALUE_NUMBER) {
        const struct value *odd = a.kind != VALUE_NUMBER ? &a : &b;
        const struct span *s = &e->span;
        if (odd->kind == VALUE_NAME) {
            diag_error(c->diag, odd->span, "unknown-name", "'%s' is not a number; no 'let' above gives it a value",
                       odd->text);
            /* dgx-h100 is a difference: names of nodes and profiles often are */
            if (e->op == '-' && a.kind == VALUE_NAME && s->length < 64 &&
                !memchr(s->source->text + s->start, ' ', s->length))
                diag_help(c->diag, "a name with '-' in it stands in quotes: \"%.*s\"", (int)s->length,
                          s->source->text + s->start);
        } else
            diag_error(c->diag, odd->span, "arithmetic", "a number must stand here");
        return bad_value;
    }
    struct value v = e->op == '*'   ? multiply(c, e, &a.number, &b.number)
                     : e->op == '/' ? divide(c, e, &a.number, &b.number)
                                    : add(c, e, &a.number, &b.number);
    if (v.kind == VALUE_NUMBER && !isfinite(v.number.real))
        return refuse(c, e->span, "number out of range");
    return v;
}

static struct value eval_number(struct check *c, const struct expr *e)
{
    struct value v = {.kind = VALUE_NUMBER, .span = e->span, .text = e->text};
    struct units_error why;
    if (units_any(e->text, strlen(e->text), &v.number, &why))
        return v;
    diag_error(c->diag, e->span, "number", "%s", why.message);
    if (*why.hint)
        diag_caret(c->diag, "help: %s", why.hint);
    return bad_value;
}

static struct value eval_list(struct check *c, const struct env *env, const struct expr *e)
{
    struct value *elements = ARENA_ARRAY(c->arena, struct value, e->nargs ? e->nargs : 1);
    uint32_t n = 0;
    for (const struct arg *a = e->args; a; a = a->next) {
        elements[n] = check_eval(c, env, a->value);
        if (elements[n].kind == VALUE_BAD)
            return bad_value;
        n++;
    }
    return (struct value){.kind = VALUE_LIST, .span = e->span, .elements = elements, .n = n};
}

struct value check_eval(struct check *c, const struct env *env, const struct expr *e)
{
    switch (e->kind) {
    case EXPR_NUMBER:
        return eval_number(c, e);
    case EXPR_STRING:
        return (struct value){.kind = VALUE_STRING, .span = e->span, .text = e->text};
    case EXPR_NAME:
        for (const struct env *at = env; at; at = at->outer)
            if (!strcmp(at->name, e->text))
                return at->value;
        return (struct value){.kind = VALUE_NAME, .span = e->span, .text = e->text};
    case EXPR_CALL:
        return (struct value){.kind = VALUE_CALL,
                              .span = {e->span.source, e->span.start, (uint32_t)strlen(e->text)},
                              .text = e->text,
                              .call = e,
                              .env = env};
    case EXPR_LIST:
        return eval_list(c, env, e);
    case EXPR_GROUP:
        return check_eval(c, env, e->left);
    case EXPR_BINARY:
        return eval_binary(c, env, e);
    }
    return bad_value;
}

const struct env *check_let(struct check *c, const struct env *env, const struct stmt *s)
{
    if (++c->nlets > LETS_MAX) {
        if (c->nlets == LETS_MAX + 1)
            diag_error(c->diag, s->word_span, "limit", "more than %d lets", LETS_MAX);
        return env;
    }
    for (const struct env *at = env; at; at = at->outer)
        if (!strcmp(at->name, s->word)) {
            diag_error(c->diag, s->word_span, "shadow", "'%s' has a value already", s->word);
            diag_note(c->diag, at->span, "the first 'let %s'", s->word);
            return env;
        }
    if (vocab_is_value(s->word)) {
        diag_error(c->diag, s->word_span, "reserved", "'%s' is a word of the language and can't be bound", s->word);
        return env;
    }
    struct env *inner = ARENA_NEW(c->arena, struct env);
    *inner = (struct env){
        .name = s->word, .value = check_eval(c, env, s->items->expr), .span = s->word_span, .outer = env};
    if (inner->value.kind == VALUE_NAME && !vocab_is_value(inner->value.text)) {
        diag_error(c->diag, inner->value.span, "unknown-name",
                   "'%s' has no value; a let is visible below its definition", inner->value.text);
        inner->value = bad_value;
    }
    return inner;
}

const char *check_unknown(struct check *c, struct span at, const char *what, const char *name,
                          const char *const *candidates, size_t n)
{
    const char *hint = vocab_refused(name);
    if (hint) {
        diag_error(c->diag, at, "not-supported", "'%s' is not supported", name);
        diag_help(c->diag, "%s", hint);
        return NULL;
    }
    diag_error(c->diag, at, "unknown-word", "unknown %s '%s'", what, name);
    const char *near = diag_nearest(name, candidates, n);
    if (near) {
        diag_caret(c->diag, "did you mean '%s'?", near);
        return near;
    }
    struct strbuf list = {0};
    for (size_t i = 0; i < n; i++)
        strbuf_printf(&list, "%s%s", !i ? "" : i + 1 < n ? ", " : " or ", candidates[i]);
    if (n)
        diag_caret(c->diag, "one of %s", list.text);
    strbuf_free(&list);
    return NULL;
}

void check_plan_only(struct check *c, struct span at, const char *what)
{
    vec_push(c->arena, &c->plan_only, (struct plan_only){arena_strdup(c->arena, what), at});
}

static bool is_default(const struct word *row, const struct value *v)
{
    if (v->kind == VALUE_NAME)
        return row->standard && !strcmp(v->text, row->standard);
    double d;
    struct units_error why;
    return v->kind == VALUE_NUMBER && row->standard && units_real(row->standard, strlen(row->standard), &d, &why) &&
           d == v->number.real;
}

/* what a row takes, for "must be ..." */
static const char *wanted(struct check *c, const struct word *row)
{
    struct strbuf text = {0};
    const char *join = "";
    if (row->takes & TAKES_COUNT)
        strbuf_text(&text, "a whole number");
    else if (row->takes & TAKES_REAL)
        strbuf_text(&text, "a number");
    else if (row->takes & TAKES_STRING)
        strbuf_text(&text, "a name or a string");
    join = text.length ? " or " : "";
    if (row->takes & TAKES_YES)
        strbuf_printf(&text, "%syes or no", join);
    else if (row->takes & TAKES_NAMES) {
        struct choice choice;
        for (const char *at = row->words; vocab_choice(&at, &choice); join = " or ")
            strbuf_printf(&text, "%s%s", join, choice.name);
    }
    char *s = arena_strdup(c->arena, text.text ? text.text : "a value");
    strbuf_free(&text);
    return s;
}

static bool takes_range(struct check *c, const struct word *row, const struct value *v)
{
    double x = v->number.real;
    if (x >= row->lo && x <= row->hi)
        return true;
    bool whole = row->takes & TAKES_COUNT;
    const char *name = vocab_noun(row);
    if (whole)
        diag_error(c->diag, v->span, "range", "'%s' must be from %s to %s", name,
                   units_show_commas((uint64_t)row->lo).s, units_show_commas((uint64_t)row->hi).s);
    else
        diag_error(c->diag, v->span, "range", "'%s' must be from %s to %s", name, units_show_real(row->lo).s,
                   units_show_real(row->hi).s);
    if (v->number.whole)
        diag_caret(c->diag, "is %s", units_show_commas(v->number.integer).s);
    else
        diag_caret(c->diag, "is %s", units_show_real(x).s);
    return false;
}

bool check_number(struct check *c, const struct word *row, const struct value *v)
{
    const char *name = vocab_noun(row);
    if (v->number.kind != UNITS_COUNT) {
        struct units_error why;
        struct units_value x;
        diag_error(c->diag, v->span, "unit", "'%s' must be %s, not %s", name, wanted(c, row),
                   units_kind_name(v->number.kind));
        if (v->text && !units_value(v->text, strlen(v->text), UNITS_COUNT, &x, &why))
            diag_caret(c->diag, "%s", why.hint);
        return false;
    }
    if ((row->takes & TAKES_COUNT) && !v->number.whole) {
        diag_error(c->diag, v->span, "range", "'%s' must be a whole number", name);
        diag_caret(c->diag, "is %s", units_show_real(v->number.real).s);
        return false;
    }
    return takes_range(c, row, v);
}

static bool takes_name(struct check *c, const struct word *row, const struct value *v)
{
    struct choice choice;
    bool call = v->kind == VALUE_CALL;
    if (!call && (row->takes & TAKES_YES) && (!strcmp(v->text, "yes") || !strcmp(v->text, "no")))
        return true;
    if (!call && (row->takes & TAKES_STRING))
        return true;
    if (!vocab_choose(row, v->text, &choice)) {
        const char *candidates[32];
        struct choice names[32];
        size_t n = 0;
        if (row->takes & TAKES_NAMES)
            for (const char *at = row->words; n < 30 && vocab_choice(&at, &names[n]); n++)
                candidates[n] = names[n].name;
        if (row->takes & TAKES_YES) {
            candidates[n++] = "yes";
            candidates[n++] = "no";
        }
        if (!n || ((row->takes & (TAKES_COUNT | TAKES_REAL)) && !vocab_refused(v->text) &&
                   !diag_nearest(v->text, candidates, n))) {
            diag_error(c->diag, v->span, "type", "'%s' must be %s, not '%s'", vocab_noun(row), wanted(c, row), v->text);
            return false;
        }
        check_unknown(c, v->span, vocab_noun(row), v->text, candidates, n);
        return false;
    }
    if (call && choice.scope < 0) {
        diag_error(c->diag, v->span, "no-arguments", "'%s' takes no arguments", v->text);
        return false;
    }
    if (choice.plan_only)
        check_plan_only(c, v->span, arena_printf(c->arena, "%s '%s'", vocab_noun(row), v->text));
    return true;
}

bool check_takes(struct check *c, const struct word *row, const struct value *v, struct span name_span)
{
    bool fine = false;
    switch (v->kind) {
    case VALUE_BAD:
        return false;
    case VALUE_NUMBER:
        fine = row->takes & (TAKES_COUNT | TAKES_REAL);
        if (fine && !check_number(c, row, v))
            return false;
        break;
    case VALUE_NAME:
    case VALUE_CALL:
        if (!takes_name(c, row, v))
            return false;
        fine = true;
        break;
    case VALUE_STRING:
        fine = row->takes & TAKES_STRING;
        break;
    case VALUE_LIST:
        break;
    }
    if (!fine) {
        diag_error(c->diag, v->span, "type", "'%s' must be %s", vocab_noun(row), wanted(c, row));
        return false;
    }
    if (*row->plan == '*' && !is_default(row, v))
        check_plan_only(c, name_span.source ? name_span : v->span, arena_printf(c->arena, "'%s'", row->name));
    return true;
}

bool check_count(struct check *c, const struct value *v, const char *what, uint64_t lo, uint64_t hi, uint64_t *out)
{
    if (v->kind == VALUE_BAD)
        return false;
    struct word row = {.name = what, .takes = TAKES_COUNT, .words = "", .lo = (double)lo, .hi = (double)hi, .plan = ""};
    if (!check_takes(c, &row, v, v->span))
        return false;
    *out = v->number.integer;
    return true;
}
