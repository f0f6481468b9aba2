#ifndef LLMC_SEARCH_TRADE_H
#define LLMC_SEARCH_TRADE_H

/* Between room.c, squeeze.c, levels.c and family.c: what a layer may give for memory, and what ranks must. */

#include "compiler/search/search_private.h"

/* one kind of layer: how many, their residences, and by kind of recomputation time and bytes of one */
struct layer_trade {
    double n, least_s, most_s, sum_s; /* residence */
    double time_s[SPACE_RECOMPUTE + 1], keep[SPACE_RECOMPUTE + 1];
    double plain_s[SPACE_RECOMPUTE + 1]; /* time where no pair of actions hides transfers */
    double late[SPACE_RECOMPUTE + 1];    /* bytes beside `keep` between the halves of a backward */
    double temporary[SPACE_RECOMPUTE + 1]; /* what its kernels need beside */
    /* A host that launches kernels holds up longer passes by less.  Seconds that what follows a recomputation,
     * which may come before gradients do, and that weights' gradients take less than without, at most. */
    double early_s, weight_less_s;
    double longer_s[SPACE_RECOMPUTE + 1]; /* a backward pass, at least, whether it is split and in a pair or not */
    double forward_hides_s, backward_hides_s; /* pairs hide so much more of its passes than recomputation adds, at most */
};
struct search_trade {
    uint32_t nkinds, nknown; /* of recomputation; as far as not all are known, layers lack what is the most of all */
    const struct cost_block *blocks[SPACE_RECOMPUTE + 1];  /* by kind of recomputation, NULL: not known yet; the layers' */
    const struct cost_block *predict[SPACE_RECOMPUTE + 1]; /* a prediction module's, which none spares */
    double predict_time_s[SPACE_RECOMPUTE + 1], predict_plain_s[SPACE_RECOMPUTE + 1], predict_longer_s[SPACE_RECOMPUTE + 1];
    struct layer_trade layers[];
};

/* of the family of c's decision, with h its shape: all kinds of recomputation that a layer of it may have */
const struct search_trade *search_trade_of(struct searching *s, const struct cost *c, struct search_shape *h);

/* Ranks and stages of c's decision, which recompute nothing: then each pass, or pair of them if schedules have pairs, is no later
 * than under any kind of recomputation. */
void search_shorten_stages(struct searching *s, const struct cost *c, struct search_shape *h, bool pairs, struct cost_stage *ranks,
                           struct pipeline_stage *stages);

/* squeeze.c: what a schedule's ranks are asked for once, whatever their ZeRO level; zeroed before */
enum { SQUEEZED_RANKS = 4 };
struct squeeze {
    struct squeezed_rank {
        double kept;
        double live, head_live; /* most microbatches at a time: on one of its stages, on the head's */
        double longer_s[4];     /* by ZeRO level: of a microbatch in all its stages, at least */
    } rank[SQUEEZED_RANKS];
};
/* Seconds of c's decision, which has its schedule and stages, with what memory makes single ranks recompute, at
 * least; INFINITY: some rank does not fit however much that is.  h is its shape without recomputation where that may be had;
 * c's shard is the largest of its ZeRO level. */
double search_squeeze_s(struct searching *s, const struct cost *c, struct search_shape *h, enum placement placement,
                        struct squeeze *known);
/* The same of c's pipeline, whose stages are search_shorten_stages()': longer by ranks under a ZeRO level, as far as they were asked.
 * 0: no rank is. */
double search_squeezed_s(struct searching *s, const struct search_stages *x, const struct decision *d, const struct squeeze *known,
                         uint32_t zero);

/* levels.c: seconds of a schedule's pipeline under a ZeRO level, by its cut, with what memory makes its ranks recompute where that
 * may rule it out */
double search_level_s(struct searching *s, const struct family *f, uint32_t k, uint32_t zero);
/* d with the schedule and its stages; is another one of the same class?  Does such a step leave hope for a candidate? */
void search_set_schedule(struct searching *s, const struct family *f, struct decision *d, uint32_t k);
bool search_same_class(const struct space_schedule *x, const struct space_schedule *y);
bool search_hopes(const struct searching *s, const struct decision *d, double step_s);

#endif
