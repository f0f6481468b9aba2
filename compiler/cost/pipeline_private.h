#ifndef LLMC_PIPELINE_PRIVATE_H
#define LLMC_PIPELINE_PRIVATE_H

/* Shared by pipeline.c and pipeline_v.c: a decision's pipeline, with the blocking share of its transfers added to
 * its actions. */

#include "compiler/cost/pipeline.h"
#include "compiler/model/orders.h"

/* Pipelines with more ranks than this get a simpler bound, because the arrays are on the stack. */
#define MOST_RANKS 256

struct pipeline_view {
    const struct decision *d;
    const struct pipeline_stage *stage;
    uint32_t p, v, n, m, group, groups; /* number of complete groups */
    const double *longer_s;             /* NULL: no rank takes longer */
    double held, free;
    bool folds, splits, skews;
};

/* Seconds of a stage's actions.  backward: what the chain of backward passes waits for, which is the input gradient
 * where the backward pass is split. */
double pipeline_forward_s(const struct pipeline_view *x, uint32_t s);
double pipeline_backward_s(const struct pipeline_view *x, uint32_t s);
double pipeline_weight_s(const struct pipeline_view *x, uint32_t s);
double pipeline_fused_s(const struct pipeline_view *x, uint32_t s);
/* Latency in seconds from stage s to the next, and to the previous one less what that does before it needs a
 * gradient; 0 where both are on one rank or there is none. */
double pipeline_next_s(const struct pipeline_view *x, uint32_t s);
double pipeline_back_s(const struct pipeline_view *x, uint32_t s);

/* A position in a looped order of forward passes: microbatches are in groups, and a group goes chunk by chunk.  Of
 * `count` entries, chunk c has `base` and its part of the `rest` entries in a group of `size`.  In the order of
 * backward passes c counts from the last chunk. */
struct pipeline_place {
    uint64_t base, rest, size;
};
struct pipeline_place pipeline_place_of(const struct pipeline_view *x, uint64_t count);
double pipeline_chunk_count(const struct pipeline_place *at, uint32_t c);
/* The number of actions of each kind on a rank of ZB-V, V-Half or V-Min before the F or I (event) of microbatch i. */
void pipeline_folded_count(const struct pipeline_view *x, uint32_t r, enum pipeline_slot event, uint32_t i,
                           uint32_t count[NSLOTS]);
/* t may be NULL; then only the counts are available. */
struct pipeline_view pipeline_view_new(const struct decision *d, const struct pipeline_times *t);

/* pipeline_v.c: Lower bounds, in seconds, for ZB-V, V-Half and V-Min, and for DualPipe and DualPipeV. */
double pipeline_folded_s(const struct pipeline_view *x);
double pipeline_dual_s(const struct pipeline_view *x);

#endif
