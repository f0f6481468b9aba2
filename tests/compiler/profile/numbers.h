#ifndef LLMC_TESTS_NUMBERS_H
#define LLMC_TESTS_NUMBERS_H

/* Cases of parameters of a profile: what is looked at, which parameter changes it, and by how much it must change
 * as computed from other prices. */

#include "compiler/llmc.h"

/* a job with a decision under a profile, and what it costs */
struct seen {
    struct arena *arena;
    struct job *job;
    struct topo *topo;
    struct decision *decision;
    struct profile profile;
    const struct cost *cost;
    struct estimate e;
};

/* prices and estimate under the profile as it is now */
void numbers_look(struct seen *s);
/* the same with another value of one parameter */
const struct seen *numbers_with(const struct seen *s, const char *name, double value);

#define NUMBERS_DENSE "ffn swiglu(8192)"
struct number {
    const char *param, *layer, *precision, *gpu, *decision, *plan, *set;
    double from, to;
    double (*item)(const struct seen *s);
    double (*change)(const struct seen *b, double from, double to, double item);
    double least, most;
    unsigned nics; /* of a node */
};
extern const struct number numbers_all[];
extern const size_t numbers_n;

/* the model of all cases with a feed-forward layer, a precision and a plan block */
struct job *numbers_job(struct arena *a, const char *layer, const char *precision, const char *plan);
/* what a case is about, before its first look */
struct seen numbers_situation(struct arena *a, const struct number *x);

#endif
