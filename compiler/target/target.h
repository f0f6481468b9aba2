#ifndef LLMC_TARGET_H
#define LLMC_TARGET_H

/* The software stacks that plans are made for: what each has, by the rows of target.def, where that is written down,
 * and which profile its figures come from.  *.target beside this file are those that come with the compiler. */

#include "compiler/profile/profile.h"
#include "compiler/support/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum target_row {
#define ROW(name, words, phrase, meaning) TARGET_##name,
#define SETTING(name, of, words, phrase, meaning) TARGET_##name,
#include "compiler/target/target.def"
    TARGET_ROWS,
    TARGET_SETTINGS = TARGET_dispatcher /* the first of them */
};

/* two words that the stack has, but not together */
struct target_clash {
    enum target_row row[2];
    uint32_t bit[2];
    const char *source;
};
/* A number of the profile that a setting changes; with_bits: where the job has one of these words of row `with`, 0: in
 * any job. */
struct target_number {
    enum target_row row, with;
    uint32_t bit, with_bits;
    struct profile_adjust adjust;
    const char *source;
};
/* what a launch file says for a setting's word */
struct target_argument {
    enum target_row row;
    uint32_t bit;
    const char *text;
};
enum { TARGET_CLASHES = 96, TARGET_NUMBERS = 32, TARGET_ARGUMENTS = 32 };

/* what a plan must have for a setting to matter */
enum target_of { TARGET_OF_ANY, TARGET_OF_TP, TARGET_OF_EXPERTS };

struct target {
    const char *name, *title;
    const char *profile;             /* whose numbers its figures come from */
    const char *launch;              /* the form of `llmc export` of its launch files; NULL: it has none */
    bool everything;                 /* has every word of every row but settings, together with any other */
    uint32_t has[TARGET_ROWS];       /* bits by word, in the row's order */
    const char *source[TARGET_ROWS]; /* "" where the file names none */
    uint32_t usual[TARGET_ROWS];     /* of settings: the word that is in force where none is chosen, 0: none is named */
    uint32_t nclashes;
    struct target_clash clashes[TARGET_CLASHES];
    uint32_t nnumbers;
    struct target_number numbers[TARGET_NUMBERS];
    uint32_t narguments;
    struct target_argument arguments[TARGET_ARGUMENTS];
};

#define TARGET_DEFAULT "llmrun"

/* Reads a target's text; NULL, with one sentence in *why (static storage) and the line in *line. */
struct target *target_parse(struct arena *a, const char *name, const char *text, unsigned *line, const char **why);
/* the target of that name; NULL if there is none */
const struct target *target_find(struct arena *a, const char *name);
/* the i-th of those that come with the compiler, NULL after the last */
const char *target_name(size_t i);

/* for people: all of them side by side; one with its sources, false if there is none */
void target_help(FILE *out);
bool target_help_of(FILE *out, const char *name);

/* Changes the profile's numbers as the settings do, by their order in the file.  has: words of the job, as bits by row;
 * of rows that tell of decisions 0. */
void target_set(const struct target *t, const uint32_t has[TARGET_ROWS], struct profile *p);

/* what launch files say for the word of that setting; NULL: nothing, since it is the stack's default */
const char *target_argument(const struct target *t, enum target_row row, uint32_t bit);
enum target_of target_setting_of(enum target_row row);

const char *target_row_name(enum target_row row);
const char *target_row_meaning(enum target_row row);
/* the words of the row that the bits stand for, with ", " between them */
const char *target_words(struct arena *a, enum target_row row, uint32_t bits);
/* "schedule zb_v", of the lowest bit: what stands behind "has no" */
const char *target_phrase(struct arena *a, enum target_row row, uint32_t bits);
/* the bit of a word in a row, 0 if it has no such word */
uint32_t target_bit(enum target_row row, const char *word);

#endif
