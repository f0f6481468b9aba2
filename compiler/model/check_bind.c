/* Arguments of calls and statements of blocks, bound to the rows of the vocabulary.
 *
 * A call's arguments are matched by position in the order of the rows, or by name.  What is not said has the
 * row's default, which is read from its text: the table is the only place where a default stands. */

#include "compiler/model/check.h"

#include <assert.h>
#include <string.h>

#define ROWS_MAX 32

static struct binding binding_new(struct check *c, enum scope scope)
{
    struct binding b = {0};
    b.n = vocab_rows(scope, &b.rows);
    b.at = ARENA_ARRAY(c->arena, struct bound, b.n ? b.n : 1);
    for (size_t i = 0; i < b.n; i++)
        b.at[i].row = &b.rows[i];
    return b;
}

static struct bound *bound_row(const struct binding *b, const char *name)
{
    for (size_t i = 0; i < b->n; i++)
        if (!strcmp(b->rows[i].name, name))
            return &b->at[i];
    return NULL;
}

/* A misspelt word counts as said, so that it is not also reported as missing. */
static void mark_meant(struct binding *b, const char *name, struct span at)
{
    struct bound *meant = name ? bound_row(b, name) : NULL;
    if (meant && !meant->set) {
        meant->set = true;
        meant->name_span = at;
    }
    b->bad = true;
}

static void bind_one(struct check *c, struct binding *b, struct bound *to, const struct env *env, const struct arg *a)
{
    if (to->set) {
        diag_error(c->diag, a->name_span, "twice", "'%s' is given twice", to->row->name);
        b->bad = true;
        return;
    }
    to->set = true;
    to->name_span = a->name ? span_join(a->name_span, a->value->span) : a->value->span;
    to->value = check_eval(c, env, a->value);
    if (!check_takes(c, to->row, &to->value, to->name_span)) {
        to->value.kind = VALUE_BAD;
        b->bad = true;
    }
}

struct binding check_bind(struct check *c, enum scope scope, const struct value *call)
{
    struct binding b = binding_new(c, scope);
    const char *callee = call->text ? call->text : vocab_scope_name(scope);
    size_t position = 0;
    bool named = false;
    for (const struct arg *a = call->kind == VALUE_CALL ? call->call->args : NULL; a; a = a->next) {
        struct bound *to = NULL;
        if (a->name) {
            const char *names[ROWS_MAX];
            named = true;
            to = bound_row(&b, a->name);
            if (!to)
                mark_meant(&b,
                           check_unknown(c, a->name_span, arena_printf(c->arena, "argument of %s", callee), a->name,
                                         names, vocab_names(scope, names, ROWS_MAX)),
                           a->name_span);
        } else if (named) {
            diag_error(c->diag, a->name_span, "position", "an argument by position can't follow one by name");
        } else if (position >= b.n) {
            diag_error(c->diag, a->name_span, "too-many", "%s takes at most %zu argument%s", callee, b.n,
                       b.n == 1 ? "" : "s");
        } else {
            to = &b.at[position++];
        }
        if (to)
            bind_one(c, &b, to, call->env, a);
        else
            b.bad = true;
        if (!to && !a->name)
            break;
    }
    for (size_t i = 0; i < b.n; i++)
        if (!b.rows[i].standard && !b.at[i].set) {
            diag_error(c->diag, call->span, "missing", "%s needs '%s'", callee, b.rows[i].name);
            diag_caret(c->diag, "%s", b.rows[i].meaning);
            b.bad = true;
        }
    return b;
}

const struct bound *bound_find(const struct binding *b, const char *name)
{
    const struct bound *at = bound_row(b, name);
    if (!at)
        fprintf(stderr, "llmc: vocab.def lacks the word '%s'\n", name);
    assert(at);
    return at;
}

bool bound_set(const struct binding *b, const char *name)
{
    const struct bound *at = bound_find(b, name);
    return at->set && at->value.kind != VALUE_BAD;
}

const char *bound_name(const struct binding *b, const char *name)
{
    const struct bound *at = bound_find(b, name);
    if (bound_set(b, name))
        return at->value.text ? at->value.text : "";
    return at->row->standard ? at->row->standard : "";
}

bool bound_is(const struct binding *b, const char *name, const char *word)
{
    const struct bound *at = bound_find(b, name);
    bool named = !bound_set(b, name) || at->value.kind == VALUE_NAME || at->value.kind == VALUE_CALL;
    return named && !strcmp(bound_name(b, name), word);
}

double bound_real(const struct binding *b, const char *name)
{
    const struct bound *at = bound_find(b, name);
    double v;
    struct units_error why;
    if (bound_set(b, name))
        return at->value.kind == VALUE_NUMBER ? at->value.number.real : 0;
    if (!at->row->standard)
        return at->row->lo; /* required and missing: reported; any legal value keeps the rest going */
    return units_real(at->row->standard, strlen(at->row->standard), &v, &why) ? v : 0;
}

uint64_t bound_count(const struct binding *b, const char *name)
{
    const struct bound *at = bound_find(b, name);
    if (bound_set(b, name))
        return at->value.kind == VALUE_NUMBER ? at->value.number.integer : 0;
    return (uint64_t)bound_real(b, name);
}

bool bound_yes(const struct binding *b, const char *name)
{
    return bound_is(b, name, "yes");
}

struct span bound_span(const struct binding *b, const char *name, struct span otherwise)
{
    const struct bound *at = bound_find(b, name);
    return bound_set(b, name) ? at->value.span : otherwise;
}

/* ---- statements ---- */

static void unknown_statement(struct check *c, enum scope scope, struct binding *b, const struct stmt *s)
{
    static const enum scope blocks[] = {SCOPE_file, SCOPE_model, SCOPE_layer, SCOPE_moe, SCOPE_train, SCOPE_plan};
    const char *names[ROWS_MAX];
    size_t n = vocab_names(scope, names, ROWS_MAX);
    if (!vocab_refused(s->word) && !diag_nearest(s->word, names, n))
        for (size_t i = 0; i < ARRAY_LEN(blocks); i++)
            if (vocab_find(blocks[i], s->word)) {
                diag_error(c->diag, s->word_span, "wrong-block", "'%s' does not stand in %s", s->word,
                           vocab_title(scope));
                diag_caret(c->diag, "it belongs in %s", vocab_title(blocks[i]));
                return;
            }
    mark_meant(b, check_unknown(c, s->word_span, "word", s->word, names, n), s->word_span);
}

bool check_one_item(struct check *c, const struct entry *e, struct value *v)
{
    const struct item *item = e->stmt->items;
    *v = (struct value){0};
    if (!item) {
        diag_error(c->diag, e->stmt->word_span, "missing", "'%s' needs a value", e->row->name);
        diag_caret(c->diag, "%s", e->row->meaning);
    } else if (item->relop != RELOP_NONE) {
        diag_error(c->diag, item->span, "relation", "'%s' takes no '%s'", e->row->name, relop_text(item->relop));
        diag_caret(c->diag, "help: write the value alone");
    } else if (item->next) {
        diag_error(c->diag, item->next->span, "too-many", "'%s' takes one value", e->row->name);
    } else {
        *v = check_eval(c, e->env, item->expr);
    }
    return v->kind != VALUE_BAD;
}

bool check_is_free(const struct stmt *s)
{
    const struct item *last = s->items;
    while (last && last->next)
        last = last->next;
    return last && last != s->items && !strcmp(s->word, "keep") && last->relop == RELOP_NONE &&
           last->expr->kind == EXPR_NAME && !strcmp(last->expr->text, "free");
}

/* what one of several statements of a word is about: the axis that is kept or overlapped, the parameter that is
 * adjusted */
static const char *subject(const struct stmt *s)
{
    const struct word *row = vocab_find(SCOPE_plan, s->word);
    bool named = row && (row->takes & TAKES_MANY) && s->items && s->items->expr->kind == EXPR_NAME;
    return named ? s->items->expr->text : "";
}

bool check_same_wish(const struct stmt *a, const struct stmt *b)
{
    return !strcmp(a->word, b->word) && !strcmp(subject(a), subject(b));
}

/* An override of `overlap` replaces all overlaps of the file, since there is no other way to be rid of one. */
static bool overridden(const struct check *c, enum scope scope, const struct stmt *file)
{
    if (scope != SCOPE_train && scope != SCOPE_plan)
        return false;
    for (const struct stmt *s = c->sets; s; s = s->next)
        if (check_same_wish(s, file) || (!strcmp(s->word, "overlap") && !strcmp(file->word, "overlap")))
            return true;
    return false;
}

static void add_entry(struct check *c, enum scope scope, struct block *block, const struct stmt *s)
{
    const struct word *row = vocab_find(scope, s->word);
    if (!row || (row->takes & TAKES_ARG)) {
        unknown_statement(c, scope, &block->words, s);
        block->words.bad = true;
        return;
    }
    struct bound *bound = bound_row(&block->words, s->word);
    struct entry *e = &block->entries[block->n];
    *e = (struct entry){row, s, block->env};
    if (bound->set && !(row->takes & TAKES_MANY)) {
        diag_error(c->diag, s->word_span, "twice", "'%s' is said twice", s->word);
        diag_note(c->diag, bound->name_span, "the first '%s'", s->word);
        return;
    }
    bound->set = true;
    bound->name_span = s->word_span;
    block->n++;
    if (s->has_block && !(row->takes & TAKES_BLOCK))
        diag_error(c->diag, s->open, "no-block", "'%s' has no block", s->word);
    if (row->takes & (TAKES_FORM | TAKES_WISH))
        return;
    if (!check_one_item(c, e, &bound->value) || !check_takes(c, row, &bound->value, s->span)) {
        bound->value.kind = VALUE_BAD;
        block->words.bad = true;
    }
}

struct block check_block(struct check *c, enum scope scope, const struct stmt *stmts, const struct env *env,
                         struct span owner)
{
    struct block block = {.words = binding_new(c, scope), .env = env};
    size_t room = 1;
    for (const struct stmt *s = stmts; s; s = s->next)
        room++;
    for (const struct stmt *s = c->sets; s; s = s->next)
        room++;
    block.entries = ARENA_ARRAY(c->arena, struct entry, room);
    for (const struct stmt *s = stmts; s; s = s->next) {
        if (s->let)
            block.env = check_let(c, block.env, s);
        else if (!overridden(c, scope, s))
            add_entry(c, scope, &block, s);
    }
    for (const struct stmt *s = c->sets; s; s = s->next)
        if ((scope == SCOPE_train || scope == SCOPE_plan) && vocab_find(scope, s->word))
            add_entry(c, scope, &block, s);
    for (size_t i = 0; i < block.words.n; i++) {
        const struct word *row = &block.words.rows[i];
        if (!row->standard && !block.words.at[i].set && !(row->takes & TAKES_ARG)) {
            diag_error(c->diag, owner, "missing", "%s needs '%s'", vocab_scope_name(scope), row->name);
            diag_caret(c->diag, "%s", row->meaning);
            block.words.bad = true;
        }
    }
    return block;
}
