#ifndef LLMC_IMPORT_FIELDS_H
#define LLMC_IMPORT_FIELDS_H

/* The fields of a JSON object, each asked for by name once.  What nobody has asked for in the end is an error, so that
 * no field of a configuration is dropped without a word.
 *
 * A name may list others, "n_embd|hidden_size": the first that is there and not null counts.  A field of another type
 * than asked for is an error at its place in the file, and reads as the default. */

#include "compiler/support/diag.h"
#include "compiler/support/vec.h"

#include <jansson.h>

struct fields {
    struct arena *arena;
    struct diag *diag;
    const struct source *source;
    json_t *object;
    const char *left_out;    /* names, with commas, that the user wants left out; NULL */
    VEC(const char *) known; /* asked for */
    VEC(const char *) notes; /* what was left out by the user's wish */
};

/* NULL after an error.  The object belongs to the caller, who releases it with json_decref(). */
json_t *fields_parse(struct diag *d, const struct source *source);
/* Where a name first stands in the file: jansson keeps no places. */
struct span fields_place(const struct source *source, const char *name);
/* the fields of an object among them, or of an empty one where there is none */
struct fields fields_of(struct fields *f, const char *name);
/* is it there, and not null? */
bool fields_has(struct fields *f, const char *name);

#define FIELD_REQUIRED UINT32_MAX
/* whole numbers of 0 to 2^31; FIELD_REQUIRED as the default: an error without it, and 0 */
uint32_t fields_count(struct fields *f, const char *name, uint32_t otherwise);
double fields_real(struct fields *f, const char *name, double otherwise);
bool fields_flag(struct fields *f, const char *name, bool otherwise);
const char *fields_word(struct fields *f, const char *name, const char *otherwise);
/* a list of numbers, truth values or words; NULL where there is none */
json_t *fields_list(struct fields *f, const char *name);

/* an error at a field's place */
void fields_error(struct fields *f, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A field asks for what the language cannot say, a noun phrase: an error at its place, unless the user wants it left
 * out. */
void fields_refuse(struct fields *f, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* these names, separated by blanks, say nothing about a training step */
void fields_ignore(struct fields *f, const char *names);
/* errors for all that nobody has asked for; false, null and empty values say nothing */
void fields_rest(struct fields *f);

#endif
