#ifndef LLMC_CHECK_H
#define LLMC_CHECK_H

/* Shared by the parts of sema: values and names, arguments bound against the vocabulary, blocks as entries.
 *
 * Every function here reports what it refuses and goes on with a usable value, so that one run finds many mistakes. */

#include "compiler/model/ast.h"
#include "compiler/model/model.h"
#include "compiler/model/vocab.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"

enum value_kind { VALUE_BAD, VALUE_NUMBER, VALUE_STRING, VALUE_NAME, VALUE_CALL, VALUE_LIST };

struct value {
    enum value_kind kind;
    struct span span;
    /* text of a name, string or call; of a number literal its text as written, NULL for a computed number */
    const char *text;
    struct units_value number;
    /* call and env: arguments are evaluated in the environment in which the call was written */
    const struct expr *call;
    const struct env *env;
    const struct value *elements;
    uint32_t n;
};

/* names bound by `let`, the innermost first */
struct env {
    const char *name;
    struct value value;
    struct span span;
    const struct env *outer;
};

struct check {
    struct arena *arena;
    struct diag *diag;
    struct job *job;
    const struct stmt *sets; /* --set overrides, as statements of the train and plan blocks */
    uint32_t nlets;
    uint64_t layers_listed; /* layers listed so far, over all nested repeats: bounds the work */
    VEC(struct plan_only) plan_only;
};

/* a row of the vocabulary and the value that the file gives it */
struct bound {
    const struct word *row;
    bool set;
    struct value value;
    struct span name_span;
};
struct binding {
    const struct word *rows;
    size_t n;
    struct bound *at; /* one per row of the scope */
    bool bad;         /* something was refused, so relations between the values need not be checked */
};

struct entry {
    const struct word *row;
    const struct stmt *stmt;
    const struct env *env; /* names visible at the statement */
};
struct block {
    struct binding words;  /* statements with one plain value, bound to their rows */
    struct entry *entries; /* all statements in source order, those of `words` included */
    size_t n;
    const struct env *env; /* names visible at the end of the block */
};

/* values (check_value.c) */
struct value check_eval(struct check *c, const struct env *env, const struct expr *e);
const struct env *check_let(struct check *c, const struct env *env, const struct stmt *s);
/* Is v a value that `row` takes?  Reports an error otherwise. */
bool check_takes(struct check *c, const struct word *row, const struct value *v, struct span name_span);
/* Is v a whole number within the row's lo..hi?  Reports an error otherwise. */
bool check_number(struct check *c, const struct word *row, const struct value *v);
/* Reports an unknown name; returns the candidate that was probably meant, or NULL. */
const char *check_unknown(struct check *c, struct span at, const char *what, const char *name,
                          const char *const *candidates, size_t n);
void check_plan_only(struct check *c, struct span at, const char *what);
/* Stores a value that must be a whole number in lo..hi; false after an error. */
bool check_count(struct check *c, const struct value *v, const char *what, uint64_t lo, uint64_t hi, uint64_t *out);

/* arguments (check_bind.c) */
struct binding check_bind(struct check *c, enum scope scope, const struct value *call);
const struct bound *bound_find(const struct binding *b, const char *name);
bool bound_set(const struct binding *b, const char *name);
bool bound_is(const struct binding *b, const char *name, const char *word);
uint64_t bound_count(const struct binding *b, const char *name); /* 0 for a name such as none */
double bound_real(const struct binding *b, const char *name);    /* 0 for a name such as none */
bool bound_yes(const struct binding *b, const char *name);
const char *bound_name(const struct binding *b, const char *name); /* name or called name */
struct span bound_span(const struct binding *b, const char *name, struct span otherwise);

/* statements (check_bind.c): `owner` is where a missing word is reported; NULL block = an empty one */
struct block check_block(struct check *c, enum scope scope, const struct stmt *stmts, const struct env *env,
                         struct span owner);
/* Evaluates the only item of a statement, which takes no relational operator; false after an error. */
bool check_one_item(struct check *c, const struct entry *e, struct value *v);

/* parts (sema_*.c) */
void sema_model(struct check *c, const struct stmt *s, const struct env *env);
struct layer *sema_layer(struct check *c, const struct stmt *s, const struct env *env);
void sema_train(struct check *c, const struct stmt *s, const struct env *env);
void sema_plan(struct check *c, const struct stmt *s, const struct env *env);
void sema_layout(struct check *c, const struct binding *b, struct wishes *w);
bool sema_adjust(struct check *c, const struct entry *e, const struct wishes *w, struct profile_adjust *out);
void sema_profile(struct check *c, const struct binding *words, struct wishes *w); /* after sequence_parallel */

/* is it `keep N free`? */
bool check_is_free(const struct stmt *s);
/* Would one of the statements replace the other, as a later override does?  Words that may be said several times are
 * independent where they are about different things: axes, parameters, memory left free. */
bool check_same_wish(const struct stmt *a, const struct stmt *b);

#endif
