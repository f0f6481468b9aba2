#ifndef LLMC_TESTS_PAIRS_H
#define LLMC_TESTS_PAIRS_H

/* Random pairs of plans of one job, over everything that a layout has and a job's wishes say, on clusters of one to four nodes.
 * Equal seeds give equal pairs as long as the rules of legality stay. */

#include "compiler/llmc.h"

struct pair {
    struct plan *from, *to;
    uint32_t lost;    /* a node that `to` does without, or NONE */
    const char *what; /* both decisions, for people */
};
enum { PAIR_RANKS = 8 };
/* false: the draw found no two plans */
bool pair_draw(struct arena *a, uint64_t seed, struct pair *out);
void pair_close(struct pair *p);
/* `nodes` nodes of `gpus` CPU ranks each */
struct topo *pair_hosts(struct arena *a, uint32_t nodes, uint32_t gpus);

#endif
