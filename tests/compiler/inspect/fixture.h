#ifndef TESTS_INSPECT_FIXTURE_H
#define TESTS_INSPECT_FIXTURE_H

/* A real plan in memory, from a tiny model and a small cluster through lowering, placement and simulation. */

#include "compiler/emit/plan.h"

struct fixture {
    uint32_t tp, pp, dp, zero, microbatches; /* one sequence per microbatch */
    uint32_t vpp, group;                     /* 0: one stage per rank; groups of pp */
    bool sp;
    enum schedule_kind schedule;
    bool unit; /* unit costs f, b, c instead of predicted ones */
    bool timed; /* transfers are in order by those costs, too */
    int64_t f_ns, b_ns, c_ns;
};
/* release with plan_close() before the arena; NULL after printing what is wrong */
struct plan *fixture_plan(struct arena *a, const struct fixture *f);
/* Llama 3 70B at tp 8, pp 4, five stages a rank and 64 microbatches, a sixth of whose step is exposed; never NULL */
struct plan *fixture_large(struct arena *a);

#endif
