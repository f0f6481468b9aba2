#ifndef LLMC_VOCAB_H
#define LLMC_VOCAB_H

/* The vocabulary of the model language, as the table in vocab.def, where its columns are explained. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum scope {
#define SCOPE(scope, title) SCOPE_##scope,
#define WORD(scope, name, takes, words, lo, hi, standard, plan, meaning)
#define REFUSED(word, hint)
#include "compiler/model/vocab.def"
    NSCOPES
};

enum takes {
    TAKES_COUNT = 1,
    TAKES_REAL = 2,
    TAKES_YES = 4,
    TAKES_NAMES = 8,
    TAKES_STRING = 16,
    TAKES_MANY = 128,
    TAKES_BLOCK = 256,
    TAKES_WISH = 512,
    TAKES_FORM = 1024,
    TAKES_ARG = 2048
};

struct word {
    enum scope scope;
    const char *name;
    uint32_t takes; /* bits of enum takes */
    const char *words;
    double lo, hi;
    const char *standard; /* default value as text of the language; NULL: the word is required */
    const char *plan, *meaning;
};

/* one of a row's names */
struct choice {
    char name[24];
    bool plan_only;
    int scope; /* scope of its arguments; -1: it takes none */
};

size_t vocab_rows(enum scope scope, const struct word **rows);
const struct word *vocab_find(enum scope scope, const char *name);
const char *vocab_title(enum scope scope);
const char *vocab_scope_name(enum scope scope);
int vocab_scope(const char *name); /* -1: no scope of that name */
/* why the language refuses a word; NULL if it does not know the word */
const char *vocab_refused(const char *name);
size_t vocab_nrefused(void);
const char *vocab_refused_word(size_t i);

/* iterates over the choices of a row; start with *at = row->words */
bool vocab_choice(const char **at, struct choice *c);
bool vocab_choose(const struct word *row, const char *name, struct choice *c);
/* is it a name that can be a value somewhere, so that `let` must not bind it? */
bool vocab_is_value(const char *name);
/* the noun that sentences use for a word: "attention" for attn, and so on */
const char *vocab_noun(const struct word *row);

/* Stores at most `room` candidates for "did you mean"; returns how many. */
size_t vocab_names(enum scope scope, const char **names, size_t room);

/* `llmc help language` */
void help_language(FILE *out);
/* what it says of one word, or of what a word opens; false, and nothing, where the language does not have it */
bool help_word(FILE *out, const char *word);

#endif
