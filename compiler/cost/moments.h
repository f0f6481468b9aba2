#ifndef LLMC_COST_MOMENTS_H
#define LLMC_COST_MOMENTS_H

/* The peak memory of a pipeline rank over its order of actions, from the bytes that its stages hold and its actions
 * take. */

#include "compiler/cost/pipeline.h"
#include "compiler/model/decision.h"

#include <math.h>

/* A run of consecutive equal blocks of a stage, for two actions that run beside one another: the number of blocks
 * and their passes.  Of one block: keep: bytes from F to B; places: bytes that its F and its B find in the places
 * for copies; end: the most bytes while its gradients are converted, if they are; uses: of gathered parameters in B;
 * since, makes and converts as in struct moments_block. */
#define MOMENTS_RUNS 16
struct moments_run {
    const struct cost_lives *lives;
    double times, keep, places[2], end, made, scattered, part, part_behind, uses, since;
    uint32_t makes;
    bool converts;
};
/* A run of consecutive equal blocks of a stage.  Of one block (each): keep: bytes that a microbatch leaves from F to
 * B or I; left: from I to W; made: gradients that stay, as B (or I and W) makes them; early: those of them that I
 * makes; after: all of them in the format of sums between ranks; uses: of gathered parameters in F, and in B or I;
 * copies: from host memory in B or I, and in W.  in_front: the sums of these over the stage's blocks before the run. */
#define MOMENTS_BLOCKS 12
/* the most bytes of a B: before it makes gradients of matrices; from then on; after the last use of its gathered
 * parameters */
struct moments_backward {
    double begin, made, used;
};
struct moments_sums {
    double keep, left, made, early, after, uses[2], copies[2];
};
struct moments_block {
    double times;
    struct moments_sums each, in_front;
    double forward, input, weight; /* peak bytes of its passes, including what it keeps and finds of its microbatch */
    struct moments_backward backward;
    struct moments_backward first_backward; /* the same for the first B of a step, before which its own gradients do
                                             * not exist */
    double first_input;
    double scattered;         /* of made: bytes of the sums of what is scattered, which arrive after the block */
    double part, part_behind; /* bytes of this rank's part of a microbatch's sums, until it is added up; the same of
                               * the run after this one */
    uint32_t makes;           /* the gradients that B sends to shards are of matrices (1), of experts (2) */
    double behind;            /* number of blocks after this run that send gradients to shards */
    double since;      /* uses of gathered parameters in B between the last of the later blocks that scatters every
                        * microbatch's gradients and this run */
    double end;        /* bytes of its gradients while they are converted after their last microbatch; 0: they are not
                        * converted */
    bool converts;     /* are the gradients of every microbatch converted on their way to shards? */
    double leaving[2]; /* the most bytes in B and in W from the last product on that makes gradients */
    double beside[2];  /* bytes that live beside these at the end of B and of W */
    double others[2];  /* bytes of the places for copies that the stage's earlier blocks leave free, in B or I and in
                        * W */
    double near[2];    /* bytes that the block before takes of these places, in B or I and in W */
    uint32_t ahead;    /* which copies from host memory for the next action may have arrived by then: 0, none; 1,
                        * those to the place that the first layer leaves free; 2, all */
};
/* One stage of a rank: sums over all blocks, including the gradients of vectors. */
struct moments_stage {
    double keep, left, gradients, early;
    double made, after;    /* gradients without those of vectors: as they are made, and in the format of sums between
                            * ranks */
    double sent, received; /* what the stage sends stays until it sends the next one; what it receives as a gradient
                            * likewise has a place of its own */
    double arrives;        /* input of an F that another rank sends, and that may wait for this F */
    double receives_s[2], sends_s[2]; /* seconds of transfers from another rank and to one, of F and of B */
    double waits; /* replaces sent, received and arrives where waits are followed: bytes of each item that waits for
                   * another action */
    double uses[2], copies[2], scatters; /* scatters: number of blocks whose gradients go to shards with every
                                          * microbatch */
    double part;                         /* moments_block.part of the first such block */
    double since;                        /* uses in B of the blocks before that one; INFINITY: there is none */
    bool all_scatter;                    /* all blocks scatter, with equal parts */
    /* The most bytes of an action while it runs, including what it finds of its microbatch and what it leaves, when
     * all its gradients exist; _end: while some are converted on their way to shards; leaving: as in struct
     * moments_block. */
    double forward, input, weight, backward_end, weight_end, leaving[2];
    struct moments_backward backward;
    double moved, ahead[3];       /* of F, from its last transfer on; bytes that transfers bring before B, I and W
                                   * begin */
    double fetches[2];            /* bytes that its last layer copies from host memory: in B or I, and in W */
    uint32_t fetched_to, emptied; /* the place (0 or 1) that these go to; the place of its first layer */
    double leaves[2];             /* bytes that its last two layers take of the places, the last one first */
    uint32_t in_front;            /* runs before the first layer that takes a place */
    uint32_t nruns, nblocks;
    uint64_t mark;                         /* hash of its runs and its transfers, to tell them from those of other
                                            * stages */
    struct moments_run runs[MOMENTS_RUNS]; /* from front to back */
    struct moments_block blocks[MOMENTS_BLOCKS];
};
struct moments {
    double bytes; /* at the peak, of everything */
    double kept;  /* of these: what is kept for other actions */
    double gradients;
};
/* Gradients on their way to the ranks that they are sharded over.  In bytes: own: of a block as it makes them; sent:
 * as they are converted for sending; before: of the block before, as long as nothing waits for their sums; part:
 * this rank's part of the largest block's sums, until it is added up; most: an upper bound of all of these.  first:
 * what the first such action of a stage leaves, which stays through `uses` uses of parameters, as those were
 * requested before; first_b: what a B leaves where the sums of one of its last two blocks have been waited for with
 * the next parameters.  unsure: sums that nothing is added to are only waited for when their place is needed again.
 * converted: they have another format between ranks.
 *
 * foretold: gradients of all stages, which the first `early` forward passes of a step find.  gathered: bytes of a
 * place for a block's parameters.  There are `places` such places, of which as many are taken as uses are left, or
 * one while a block runs where `blocks` is set; places_beside more belong to actions that run beside another. */
struct moments_shards {
    double own, sent, before, part, most, first, first_b, uses;
    bool unsure, converted;
    double foretold;
    uint32_t early;
    double gathered, places, places_beside;
    bool blocks;
    bool apart;     /* rows to experts have a queue of their own */
    double fetched; /* bytes of the optimizer state that is fetched first from host memory, after all copies of what
                     * blocks keep there */
};
/* The moment of a step at which an action of a kind (F, B, I or W) runs. */
struct moments_at {
    bool had, early, last;  /* the stage has had a B or W; it has had an I; this is its last B or W */
    double made, made_uses; /* bytes of the previous actions' gradients that are on their way; uses of parameters
                             * through which they stay */
    double part;            /* of these, this rank's part of the last sums, which stays after that */
    double uses, copies;    /* uses of gathered parameters, and copies from host memory, that come after the action */
    bool unwaited;          /* no sum adds the last of the previous actions' gradients */
    double ahead[2];        /* bytes that the next action may have copied back by then, for its last layer and the one
                             * before */
    bool apart;             /* to another place than that of this stage's first layer */
    bool stays;             /* the parameters that are used last are also the next ones to be used */
};
/* The most bytes of a B that finds `before` bytes of gradients, and `rest` bytes once it makes some; place: bytes of
 * its own gathered parameters. */
static inline double moments_backward(const struct moments_backward *b, double before, double rest, double place)
{
    double made = b->made > b->used - place ? b->made + rest : b->used - place + rest;
    return b->begin + before > made ? b->begin + before : made;
}
double moments_action(const struct moments_stage *s, const struct moments_shards *shards, char kind,
                      const struct moments_at *at);
/* The same for a B or W after which the parameters that were used last are needed again: of the frontmost block of B
 * alone, of all of W. */
double moments_again(const struct moments_stage *s, const struct moments_shards *shards, char kind,
                     const struct moments_at *at);
/* Bytes of gradients that are on their way while a block runs: those that the same B or W made `since` uses ago, and
 * `before`, those of earlier actions; part: of the block that made the former.  Of earlier actions, those that
 * nothing waits for stay beside these until their place is needed again. */
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
/* The same including those that the block itself makes, on top of `before`; part: as above. */
static inline double moments_making(const struct moments_shards *shards, double before, double part, bool scatters)
{
    double all = scatters ? before + shards->own : before, most = shards->own + shards->before + part;
    most = before > most ? before : most;
    return all < most ? all : most;
}
/* arrivals.c: Is what waits on a rank for other actions followed? */
bool waits_are_followed(const struct decision *d);
struct moments_pairs;
/* Adds what the places for copies hold in addition while two actions run beside one another to the runs of a rank's
 * n stages. */
void moments_share_copies(const struct decision *d, uint32_t n, struct moments_stage *stages);
/* The most bytes of a forward beside a backward pass, each with places of its own for gathered parameters.  uses: of
 * each, after the pair; others: an upper bound of what gradients add to what the two take by themselves.  A result
 * of at most `less` is only an upper bound.  known: a cache of such pairs, or NULL. */
double moments_beside(struct moments_pairs *known, const struct moments_stage *f, const struct moments_stage *b,
                      const struct moments_shards *shards, const struct moments_at *at, const double uses[2],
                      double others, double less);
/* The cached number of uses of gathered parameters in an order with this hash; 0: not known yet. */
double *moments_known_uses(struct moments_pairs *known, uint64_t mark);
/* Peak memory of a rank.  stages: in the order of cost_rank_stage(); in DualPipe, first the stage that is nearer to
 * the entry of its copy's pipeline.  seconds: by stage of the decision, of a schedule that is a list; NULL: all
 * forward passes take equally long, and backward passes twice that.  Results of at most `least` bytes are not told
 * apart; once a moment has more than `enough`, later ones are skipped. */
struct moments pipeline_moments(const struct decision *d, uint32_t rank, const struct moments_stage *stages,
                                const struct moments_shards *shards, const struct pipeline_stage *seconds,
                                struct moments_pairs *pairs, double least, double enough);

#endif
