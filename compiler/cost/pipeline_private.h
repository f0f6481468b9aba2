#ifndef LLMC_PIPELINE_PRIVATE_H
#define LLMC_PIPELINE_PRIVATE_H

/* Between pipeline.c and pipeline_v.c: a decision's pipeline with what its transfers hold added to its
 * actions. */

#include "compiler/cost/pipeline.h"
#include "compiler/model/orders.h"

/* pipelines with more ranks than this get a simpler bound: arrays are on the stack */
#define MOST_RANKS 256

struct pipeline_view {
    const struct decision *d;
    const struct pipeline_stage *stage;
    uint32_t p, v, n, m, group, groups; /* whole ones */
    const double *longer_s;             /* NULL: no rank takes longer */
    double held, free;
    bool folds, splits, skews;
};

/* seconds of a stage's actions; backward: what the chain of backwards waits for, the input gradient where it
 * is split */
double pipeline_forward_s(const struct pipeline_view *x, uint32_t s);
double pipeline_backward_s(const struct pipeline_view *x, uint32_t s);
double pipeline_weight_s(const struct pipeline_view *x, uint32_t s);
double pipeline_fused_s(const struct pipeline_view *x, uint32_t s);
/* latency from stage s to the next, and to the one before, less what that does before it needs a gradient; 0 where both
 * are on one rank or there is none */
double pipeline_next_s(const struct pipeline_view *x, uint32_t s);
double pipeline_back_s(const struct pipeline_view *x, uint32_t s);

/* A place in a looped order of forwards: microbatches in groups, a group chunk by chunk.  Of `count` entries
 * chunk c has base and its part of `rest` entries of a group of `size`.  In the order of backwards c counts
 * from the last chunk. */
struct pipeline_place {
    uint64_t base, rest, size;
};
struct pipeline_place pipeline_place_of(const struct pipeline_view *x, uint64_t count);
double pipeline_chunk_count(const struct pipeline_place *at, uint32_t c);
/* actions of each kind on a rank of ZB-V, V-Half or V-Min before F or I (event) of microbatch i */
void pipeline_folded_count(const struct pipeline_view *x, uint32_t r, enum pipeline_slot event, uint32_t i,
                           uint32_t count[NSLOTS]);
/* t may be NULL: then only counts can be asked for */
struct pipeline_view pipeline_view_new(const struct decision *d, const struct pipeline_times *t);

/* pipeline_v.c: bounds of ZB-V, V-Half and V-Min, and of DualPipe and DualPipeV */
double pipeline_folded_s(const struct pipeline_view *x);
double pipeline_dual_s(const struct pipeline_view *x);

#endif
