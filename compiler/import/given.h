#ifndef LLMC_IMPORT_GIVEN_H
#define LLMC_IMPORT_GIVEN_H

/* What a file of another training stack says: settings, each a name with values and a place, whatever the form of the
 * file is; and the table of the names that are known, by which they are asked for.
 *
 * A value may depend on what the file leaves open, such as a shell's argument: the name of that stands in it between
 * two bytes GIVEN_OPEN.  It is an error only where the value is asked for. */

#include "compiler/support/diag.h"
#include "compiler/support/vec.h"

#define GIVEN_OPEN '\1'
enum { GIVEN_MOST_BYTES = 4 << 20, GIVEN_MOST_LAYERS = 10000 };

struct given {
    const char *name; /* as the file has it: "--num-layers", "model.num_layers" */
    const char *key;  /* what the table calls it: num_layers */
    struct span span;
    const char **values;
    uint32_t n;
    bool null, bare, set; /* null: said to be nothing; bare: a flag, without values; set: by --set, not by the file */
    bool left_out, wrong; /* wrong: an error tells so already */
};

struct givens {
    struct arena *arena;
    struct diag *diag;
    const struct source *source;
    const char *left_out; /* names, with commas, that the user wants left out; NULL */
    bool dashes;          /* names are arguments: --with-dashes */
    VEC(struct given) all;
    VEC(const char *) notes; /* lines for the model's first comment */
};

enum arg_kind { ARG_COUNT, ARG_REAL, ARG_WORD, ARG_WORDS, ARG_YES, ARG_NO };

/* A row: its key, other names with blanks between them (of ARG_NO: of a flag that says no), the stack's default, and
 * what it asks for that a model file cannot say where it is not the default ("": it can). */
struct arg_row {
    const char *key, *names, *otherwise, *refused;
    enum arg_kind kind;
};
struct args {
    struct givens *givens;
    const struct arg_row *rows;
    size_t nrows;
    const char *const *elsewhere; /* names that say nothing about a step, in lines, with blanks between them */
    size_t nelsewhere;
};

/* adds a setting, and returns it for its values */
struct given *given_add(struct givens *g, const char *name, const char *key, struct span span);
void given_value(struct givens *g, struct given *x, const char *value);
/* a line for the model's first comment */
void given_note(struct givens *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Marks what the user leaves out; done once, before anything is asked for. */
void given_leave_out(struct givens *g);

/* the name with _ for -, without "--" */
char *arg_key(struct arena *a, const char *name, size_t length);
/* is there a row, or a name that says nothing, of this key? */
bool arg_known(const struct args *x, const char *key);
/* the setting that counts, or NULL: the last, of those that do not say null */
struct given *arg_find(const struct args *x, unsigned row);
bool arg_said(const struct args *x, unsigned row);
uint64_t arg_count(const struct args *x, unsigned row); /* 0 where nothing is said and there is no default */
double arg_real(const struct args *x, unsigned row);
bool arg_yes(const struct args *x, unsigned row);
const char *arg_word(const struct args *x, unsigned row); /* "" where nothing is said and there is no default */
bool arg_is(const struct args *x, unsigned row, const char *word);
/* several words as they are; NULL where nothing is said */
const char *const *arg_words(const struct args *x, unsigned row, uint32_t *n);
/* as a file of this form has the name: "--num-layers", or "num_layers" */
const char *arg_name(const struct args *x, unsigned row);

/* an error at the setting, or at the file where it is not said */
void arg_error(const struct args *x, unsigned row, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* the same of what a model file cannot say, unless the user leaves it out */
void arg_refuse(const struct args *x, unsigned row, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* refuses what the table refuses, and what it does not know */
void arg_rest(const struct args *x);

/* A list of 0 and 1 for each layer as Megatron-LM writes it: "([0]*3+[1]*58)", or the words of a list.  A number N
 * alone is left to the caller, in *every.  false after an error. */
bool arg_pattern(const struct args *x, unsigned row, uint32_t nlayers, uint8_t *out, uint64_t *every);

#endif
