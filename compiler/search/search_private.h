#ifndef LLMC_SEARCH_PRIVATE_H
#define LLMC_SEARCH_PRIVATE_H

/* Between search.c and blame.c: the state of one search. */

#include "compiler/cost/cost_private.h"
#include "compiler/search/search.h"
#include "compiler/search/space.h"
#include "compiler/support/vec.h"

struct shape_key {
    uint32_t tp, cp, ep, etp, microbatch, recompute, sp, context;
};
struct search_cut {
    uint32_t nstages;
    struct stage *stages;
    struct search_cut *next;
};
struct search_shape {
    struct shape_key key;
    struct cost_group tp, cp, ep;
    struct cost_shape shape;
    double *layer_s, embed_s, head_s, total_s;
    struct search_cut *cuts;
    struct search_shape *next;
};
struct family {
    struct decision decision; /* without zero, shard, vpp, schedule and stages */
    const struct cost *cost;  /* of its mesh and expert degrees */
    struct search_shape *shape;
    double bound;
    uint32_t index;
};
struct searching {
    struct arena *arena;
    const struct job *job;
    const struct topo *topo;
    bool emit_only;
    uint32_t top;
    uint64_t budget, memory_limit;
    struct space space;
    struct search_result *result;
    struct cost_kinds kinds;
    struct cost_stage *ranks;
    struct pipeline_stage *stages;
    struct stage *layout_stages;
    uint32_t layout_nstages, nmeshes;
    double flop_s, dense_flops, rest_bound, fastest_s;
    uint64_t too_slow;
    const char *cannot; /* why something that fits can't be emitted */
    const struct cost *first_order; /* of the last mesh in the first order of axes */
    bool cut_short;
    VEC(struct family) families;
    struct search_shape *shapes[4096];
};

/* fills s->result from arena, job, topo, emit_only, top and budget; false after an error about the wishes alone */
bool search_run(struct searching *s, struct diag *d);
/* can the job be emitted at all? false after an error that names what cannot */
bool search_emit_ready(const struct searching *s, struct diag *d);
/* one error that says why nothing was found and what would help */
void search_blame(struct searching *s, struct diag *d);

#endif
