#ifndef LLMC_SPIKES_H
#define LLMC_SPIKES_H

/* Notices steps whose loss or gradient norm is far above that of the steps before.  A spike is said at its first step;
 * what it means is for people to judge. */

#include <stdint.h>

enum { SPIKES_STEPS = 64 };

struct spikes_series {
    double value[SPIKES_STEPS];
    uint64_t n; /* values so far; the last SPIKES_STEPS are kept */
    int above;  /* the last one was a spike */
};
struct spikes {
    struct spikes_series loss, norm;
    char words[256];
};

/* A step's loss and gradient norm.  A sentence, valid until the next call, if a spike begins with it; else NULL. */
const char *spikes_add(struct spikes *s, uint64_t step, double loss, double norm);

#endif
