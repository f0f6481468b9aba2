#ifndef LLMC_PROFILE_H
#define LLMC_PROFILE_H

/* A software stack as numbers: profile.def declares them, *.profile beside it are the stacks that come with the
 * compiler. */

#include <stdbool.h>
#include <stddef.h>

struct profile {
#define PARAM(name, value, low, high, meaning) double name;
#include "compiler/profile/profile.def"
#undef PARAM
};
enum {
#define PARAM(name, value, low, high, meaning) PROFILE_##name,
#include "compiler/profile/profile.def"
#undef PARAM
    PROFILE_PARAMS
};
struct profile_param {
    const char *name, *meaning;
    size_t offset;
    double value, low, high;
};
/* a parameter that has another value than its profile says, within its bounds */
struct profile_adjust {
    const struct profile_param *param;
    double value;
};
#define PROFILE_PARAM(p, at) ((double *)((char *)(p) + (at)->offset))

/* declared parameters, in order */
const struct profile_param *profile_params(size_t *n);
const struct profile_param *profile_param(const char *name);

/* Reads "name value" lines, # comments; false and one sentence in why (static storage) with the line in *line. */
bool profile_parse(struct profile *p, const char *text, size_t size, unsigned *line, const char **why);
/* the stack of that name; false if there is none */
bool profile_find(struct profile *p, const char *name);
void profile_adjust(struct profile *p, const struct profile_adjust *adjusts, size_t n);
/* the i-th of those that come with the compiler, NULL after the last */
const char *profile_name(size_t i);

#endif
