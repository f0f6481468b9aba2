#ifndef LLMC_SEARCH_TRADE_H
#define LLMC_SEARCH_TRADE_H

/* Shared by room.c, squeeze.c, levels.c and family.c: how much time recomputation in layers costs for the memory
 * that it frees, and how much ranks must free. */

#include "compiler/search/bounds.h"
#include "compiler/search/leaves.h"

/* One kind of layer: how many there are, how long a microbatch's activations stay in them at least, from forward to
 * backward (residence), and per kind of recomputation the time and bytes of one layer. */
struct layer_trade {
    double n, least_s, most_s, sum_s; /* residence of a layer, seconds: least, most, sum over layers */
    double time_s[SPACE_RECOMPUTE + 1], keep[SPACE_RECOMPUTE + 1];
    double plain_s[SPACE_RECOMPUTE + 1];   /* seconds of a microbatch where no overlapped pair hides transfers */
    double late[SPACE_RECOMPUTE + 1];      /* bytes in addition to `keep` between I and W */
    double temporary[SPACE_RECOMPUTE + 1]; /* bytes of temporaries of its kernels */
    /* Upper bounds on how much recomputation shortens other work, since the host's launch overhead delays long
     * passes less: seconds by which the backward after the recomputed part, which may run before gradients arrive,
     * and the weight gradients are shorter than without recomputation. */
    double early_s, weight_less_s;
    /* least seconds by which a backward pass is longer, whether it is split or in a pair or not */
    double longer_s[SPACE_RECOMPUTE + 1];
    /* most seconds that pairs hide of its passes beyond what recomputation adds */
    double forward_hides_s, backward_hides_s;
};
struct search_trade {
    /* kinds of recomputation: all, and those evaluated so far; while some are missing, the maxima of layers are
     * incomplete */
    uint32_t nkinds, nknown;
    /* layers' blocks by kind of recomputation; NULL: not evaluated yet */
    const struct cost_block *blocks[SPACE_RECOMPUTE + 1];
    const struct cost_block *predict[SPACE_RECOMPUTE + 1]; /* a prediction module's, which is never spared */
    double predict_time_s[SPACE_RECOMPUTE + 1], predict_plain_s[SPACE_RECOMPUTE + 1],
        predict_longer_s[SPACE_RECOMPUTE + 1];
    struct layer_trade layers[];
};

/* All kinds of recomputation that a layer may have in the family of c's decision, whose shape is h. */
const struct search_trade *search_trade_of(struct searching *s, const struct cost *c, struct search_shape *h);

/* Shortens the times of ranks and stages of c's decision, which recompute nothing, so that each pass, or each pair
 * of passes if `pairs`, is a lower bound under any kind of recomputation. */
void search_shorten_stages(struct searching *s, const struct cost *c, struct search_shape *h, bool pairs,
                           struct cost_stage *ranks, struct pipeline_stage *stages);

/* squeeze.c: what is computed of a schedule's ranks once for all ZeRO levels; zeroed before */
enum { SQUEEZED_RANKS = 3 };
struct squeeze {
    struct squeezed_rank {
        double kept;
        double live, head_live; /* most microbatches in flight: on one of its stages, on the stage with the head */
        double longer_s[4];     /* by ZeRO level: least extra seconds of a microbatch on all its stages */
    } rank[SQUEEZED_RANKS];
};
/* Returns a lower bound in seconds on c's decision, which has its schedule and stages, given what memory forces
 * single ranks to recompute; INFINITY: some rank does not fit however much it recomputes.  h: its shape without
 * recomputation where that is possible; c's shard is the largest of its ZeRO level. */
double search_squeeze_s(struct searching *s, const struct cost *c, struct search_shape *h, enum placement placement,
                        struct squeeze *known);
/* The same for a pipeline whose stages search_shorten_stages() made, with the extra seconds of ranks under a ZeRO
 * level as far as they were computed.  0: no rank has any. */
double search_squeezed_s(struct searching *s, const struct search_stages *x, const struct decision *d,
                         const struct squeeze *known, uint32_t zero);

/* Lower bound in seconds on d, which spares as many layers of rank r as its stages say; 0: none is known. */
double search_spared_s(struct searching *s, const struct search_sparing *by, const struct decision *d, uint32_t r);

/* levels.c: lower bound in seconds on a schedule's pipeline under a ZeRO level: by its cut and, where that may rule
 * it out, with what memory forces its ranks to recompute */
double search_level_s(struct searching *s, const struct family *f, uint32_t k, uint32_t zero);
/* Sets d's schedule and stages; are two schedules of one class (equal stages on equal ranks)?  could a decision with
 * such a step become a candidate? */
void search_set_schedule(struct searching *s, const struct family *f, struct decision *d, uint32_t k);
bool search_same_class(const struct space_schedule *x, const struct space_schedule *y);
bool search_hopes(const struct searching *s, const struct decision *d, double step_s);

#endif
