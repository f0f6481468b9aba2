#ifndef LLMC_PROFILE_H
#define LLMC_PROFILE_H

/* A software stack as numbers: profile.def declares them, *.profile beside it are the stacks that come with the compiler. */

#include <stdbool.h>
#include <stddef.h>

struct profile {
#define PARAM(name, value, low, high, meaning) double name;
#include "compiler/profile/profile.def"
#undef PARAM
};
struct profile_param {
    const char *name, *meaning;
    size_t offset;
    double value, low, high;
};
#define PROFILE_PARAM(p, at) ((double *)((char *)(p) + (at)->offset))

/* declared parameters, in order */
const struct profile_param *profile_params(size_t *n);
const struct profile_param *profile_param(const char *name);

/* Reads "name value" lines, # comments; false and one sentence in why (static storage) with the line in *line. */
bool profile_parse(struct profile *p, const char *text, size_t size, unsigned *line, const char **why);
/* the stack of that name; false if there is none */
bool profile_find(struct profile *p, const char *name);
/* the i-th of those that come with the compiler, NULL after the last */
const char *profile_name(size_t i);

#endif
