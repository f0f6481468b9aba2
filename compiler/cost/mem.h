#ifndef LLMC_COST_MEM_H
#define LLMC_COST_MEM_H

/* Between mem.c, mem_own.c and mem_stage.c: what a pipeline rank holds. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/moments.h"

double cost_padded(const struct cost_rooms *x, double elements);
/* of a block with so many elements of matrices; whole: its gradient has several contributors and is not scattered */
struct cost_held cost_held_block(const struct cost_rooms *x, const struct cost_block *b, double matrices, bool whole);
/* stages of a rank, and which; DualPipe's ranks have two copies of the model, one from each end */
uint32_t cost_rank_stages(const struct decision *d);
uint32_t cost_held_stage(const struct decision *d, uint32_t r, uint32_t j);
/* sums of a stage or a rank */
struct own_sums {
    double dense, experts, vectors[2]; /* parameter elements, buckets padded; vectors split over tp, whole */
    double dense_vectors;              /* of both kinds, padded */
    double largest, made, part;        /* of a block */
    double late, converted; /* bytes of gradients that are converted after all actions: by how much they grow; by how
                             * much at most while they do */
    double workspace;
};

#define OWN_STAGES 6
struct own_stages {
    uint32_t n; /* that have been added; the last ones are here */
    struct own_stage {
        uint32_t kind, count, spared; /* of its layers */
        struct moments_stage moments;
        struct own_sums sums;
    } at[OWN_STAGES];
};
/* a stage's blocks from front to back, in runs of equal ones */
struct cost_runs {
    const struct cost_rooms *x;
    const struct stage *st;
    uint32_t at; /* embedding, layers, head, modules */
};
struct cost_run {
    const struct cost_block *b;
    const struct cost_held *held;
    struct cost_held own; /* room for one that is not known */
    double times;
};
bool cost_next_run(struct cost_runs *r, struct cost_run *out);
/* are gradients summed between ranks in another format than they are made in? */
bool cost_converts(const struct cost_rooms *x);
/* A stage and its sums.  places: bytes of places for copies back; npieces: blocks of the rank's stages so far; known:
 * as below, or NULL. */
void cost_own_stage(const struct cost_rooms *x, uint32_t stage, double places, uint32_t *npieces,
                    struct own_stages *known, struct moments_stage *out, struct own_sums *sums);
/* Places that a rank gathers blocks into under ZeRO 3, with so many uses of them in a step: one more than it is ahead,
 * or as many as there are uses. */
double cost_gathered_places(const struct cost_rooms *x, double uses);
/* llmrun's lines of the estimate of rank r; known: of one decision, n = 0 to begin with, or NULL.  Of one that needs
 * more than most_bytes they may be too low, as long as they still tell that. */
void cost_own_rank(const struct cost_rooms *x, uint32_t r, struct own_stages *known, uint64_t least_bytes,
                   uint64_t most_bytes, struct estimate *e);

#endif
