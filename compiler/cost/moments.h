#ifndef LLMC_COST_MOMENTS_H
#define LLMC_COST_MOMENTS_H

/* The fullest moment of a pipeline rank's order, of bytes that its stages hold and that its actions take. */

#include "compiler/cost/pipeline.h"
#include "compiler/model/decision.h"

#include <math.h>

/* Blocks of a stage that follow one another and are alike, where two actions run beside one another: how many; their
 * passes.  Of one: what it leaves from F to B, and what its F and its B find in places for copies; end: the most while
 * its gradients are converted, if they are; uses of gathered parameters in B; since, makes, converts: as in struct
 * moments_block. */
#define MOMENTS_RUNS 16
struct moments_run {
    const struct cost_lives *lives;
    double times, keep, places[2], end, made, scattered, part, part_behind, uses, since;
    uint32_t makes;
    bool converts;
};
/* Blocks of a stage that follow one another and are alike.  Of one: what it leaves of a microbatch from F to B (or I),
 * from I to W; gradients that stay, as B (or I and W) makes them, those of them that I does, and all once they are in
 * the format of sums between ranks; uses of gathered parameters in F and in B or I; copies back from host memory in B
 * or I and in W.  in_front: the same of the stage's blocks in front of the first of them. */
#define MOMENTS_BLOCKS 12
/* the most of a B: before it makes gradients of matrices; then; and behind the last use of its parameters as they were
 * gathered */
struct moments_backward {
    double begin, made, used;
};
struct moments_sums {
    double keep, left, made, early, after, uses[2], copies[2];
};
struct moments_block {
    double times;
    struct moments_sums each, in_front;
    double forward, input, weight; /* the most of its passes, with what it has kept and finds of its microbatch */
    struct moments_backward backward;
    struct moments_backward first_backward; /* while its own gradients are not there from the begin */
    double first_input;
    double scattered;         /* of made: sums of what is scattered, which come behind the block */
    double part, part_behind; /* this rank's of a microbatch's sums, until it is added up; that of the run behind */
    uint32_t makes;           /* B's gradients on their way to shards are of matrices (1), of experts (2) */
    double behind;            /* blocks behind all of them that send gradients to shards */
    double since;  /* uses in B behind the last one, since a block whose gradients go to shards of every microbatch */
    double end;    /* of its gradients while they are converted behind their last microbatch; 0: they aren't */
    bool converts; /* are every microbatch's, on their way to shards? */
    double leaving[2]; /* the most of B and of W behind the last product that makes some */
    double beside[2];  /* what else is there then, behind B and behind W */
    double others[2];  /* of places, in B or I and in W: what the stage's blocks in front leave free of them */
    double near[2];    /* what the block in front takes of them, in B or I and in W */
    uint32_t ahead;    /* the next action's copies back may have come by then: 0, none; 1, those to the place that
                        * the first layer leaves free; 2, all */
};
/* Of one stage of a rank: sums of all blocks, vectors' gradients among them */
struct moments_stage {
    double keep, left, gradients, early;
    double made, after; /* of gradients, without vectors': as they are made, in the format of sums */
    double sent,
        received;   /* what it sends lies there until it sends the next one, and so does a gradient that is to come */
    double arrives; /* what another rank sends for an F: it may wait for that */
    double receives_s[2], sends_s[2]; /* of F and of B: what comes from another rank, what goes to one */
    double waits; /* instead of these: each of what lies there for other actions, where that is followed */
    double uses[2], copies[2], scatters; /* scatters: blocks whose gradients go to shards of every microbatch; */
    double part;                         /* moments_block.part of the first such block */
    double since;                        /* uses in B in front of it; INFINITY: there is none */
    bool all_scatter;                    /* all blocks, with as large parts */
    /* the most of an action while it runs, with what it finds of its microbatch and what it leaves, when all its
     * gradients are there; end: while some are converted on their way to shards; leaving: as in struct moments_block */
    double forward, input, weight, backward_end, weight_end, leaving[2];
    struct moments_backward backward;
    double moved, ahead[3];       /* of F, from its last transfer on; what transfers bring in front of B, I and W */
    double fetches[2];            /* of its last layer, from host memory: in B or I, and in W; */
    uint32_t fetched_to, emptied; /* the place that they take; that of its first layer */
    double leaves[2];             /* what its last two layers take of places, the last one first */
    uint32_t in_front;            /* runs in front of the first layer that takes a place */
    uint32_t nruns, nblocks;
    uint64_t mark;                         /* of its runs and its transfers: those of other stages have another */
    struct moments_run runs[MOMENTS_RUNS]; /* front to back */
    struct moments_block blocks[MOMENTS_BLOCKS];
};
struct moments {
    double bytes; /* at the fullest moment, of all below */
    double kept;  /* what lies there for other actions; */
    double gradients;
};
/* Gradients on their way to the ranks that share them: `own` of a block as it makes them; `sent`, as they are
 * converted to; `before`, of the one before, as long as
 * nothing waits for their sums; `part`: this rank's of the largest block, until it is added up; no more than `most` of
 * them.  first: those that the first such action of a stage leaves, which stay through `uses` uses of parameters, asked
 * for before; first_b: that a B leaves of whose last two blocks one's sums have been waited for with the next
 * parameters.  unsure: sums that nothing is added to are waited for where their place is needed again.  converted:
 * between ranks they have another format. foretold: of all stages, which the first `early` forwards of a step find.
 * gathered: a place for a block's parameters; as many of `places` are taken as uses are left, or one while a block runs
 * (`blocks`); `beside` more are of actions that run beside another. */
struct moments_shards {
    double own, sent, before, part, most, first, first_b, uses;
    bool unsure, converted;
    double foretold;
    uint32_t early;
    double gathered, places, places_beside;
    bool blocks;
    bool apart; /* rows to experts have a queue of their own */
    double
        fetched; /* the optimizer's first state, from host memory: behind all copies back of what blocks keep there */
};
/* the most of a stage's action of a kind (F, B, I or W) at a moment of the step */
struct moments_at {
    bool had, early, last; /* B or W of the stage have been, or I; this is the last of them */
    double made,
        made_uses;       /* gradients on their way of the actions before; uses of parameters that they stay through; */
    double part;         /* then this rank's part of the last sums stays */
    double uses, copies; /* of gathered parameters, and from host memory, behind it; */
    bool unwaited;       /* of those of actions before, no sum adds the last ones */
    double ahead[2];     /* what the next action may have copied back by then, for its last layer and the one before; */
    bool apart;          /* to another place than that of the stage's first layer */
    bool stays;          /* the parameters that are used last are needed again next */
};
/* of a B that finds `before`, and `rest` once it makes gradients; place: of its own parameters, as they are gathered */
static inline double moments_backward(const struct moments_backward *b, double before, double rest, double place)
{
    double made = b->made > b->used - place ? b->made + rest : b->used - place + rest;
    return b->begin + before > made ? b->begin + before : made;
}
double moments_action(const struct moments_stage *s, const struct moments_shards *shards, char kind,
                      const struct moments_at *at);
/* the same of B or W where the parameters that are used last are needed again next: of B's frontmost block alone, of
 * all of W */
double moments_again(const struct moments_stage *s, const struct moments_shards *shards, char kind,
                     const struct moments_at *at);
/* Gradients on their way in a block, of those that the same B or W has made `since` so many uses ago, and `before` it;
 * part: of the block that has made them.  Those of before that nothing waits for stay beside them, until their place is
 * needed again. */
static inline double moments_on_way(const struct moments_shards *shards, const struct moments_at *at, double since,
                                    double before, double part, bool scatters)
{
    double own = since >= INFINITY      ? 0
                 : since < shards->uses ? shards->before + (at->had || shards->converted ? part : 0)
                 : at->had              ? part
                                        : 0;
    if (at->unwaited && !scatters)
        return own + before < shards->most ? own + before : shards->most;
    return own > before ? own : before;
}
/* the same with those of a block that makes some, on top of what there is before; part: as above */
static inline double moments_making(const struct moments_shards *shards, double before, double part, bool scatters)
{
    double all = scatters ? before + shards->own : before, most = shards->own + shards->before + part;
    most = before > most ? before : most;
    return all < most ? all : most;
}
/* arrivals.c: is what lies on a rank for other actions followed? */
bool waits_are_followed(const struct decision *d);
struct moments_pairs;
/* what places for copies hold besides, while two actions run beside one another, of a rank's n stages: their runs'
 * places */
void moments_share_copies(const struct decision *d, uint32_t n, struct moments_stage *stages);
/* The most of a forward beside a backward, of which each has places of its own for gathered parameters; uses: of each
 * behind the pair; others: at least what gradients add to what the two take by themselves.  What is no more than `less`
 * may be less still. known: what such pairs have come to, or NULL. */
double moments_beside(struct moments_pairs *known, const struct moments_stage *f, const struct moments_stage *b,
                      const struct moments_shards *shards, const struct moments_at *at, const double uses[2],
                      double others, double less);
/* uses of gathered parameters in an order with such a mark; 0: not known yet */
double *moments_known_uses(struct moments_pairs *known, uint64_t mark);
/* Stages: as a rank has them (cost_rank_stage()), in DualPipe the one nearer to the entry of its copy's pipeline first.
 * seconds: by stage of the decision, of a schedule that is a list; NULL: forwards take as long as each other, backwards
 * twice that.  What is no more than `least` bytes is as good as that; once a moment has more than `enough`, later ones
 * need not be looked at. */
struct moments pipeline_moments(const struct decision *d, uint32_t rank, const struct moments_stage *stages,
                                const struct moments_shards *shards, const struct pipeline_stage *seconds,
                                struct moments_pairs *pairs, double least, double enough);

#endif
