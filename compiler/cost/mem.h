#ifndef LLMC_COST_MEM_H
#define LLMC_COST_MEM_H

/* Shared by mem.c, mem_own.c and mem_stage.c: what a pipeline rank holds. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/moments.h"

double cost_padded(const struct cost_rooms *x, double elements);
/* What a block with `matrices` elements of matrices holds; whole: its gradient has several contributors and is not
 * scattered. */
struct cost_held cost_held_block(const struct cost_rooms *x, const struct cost_block *b, double matrices, bool whole);
/* The number of stages of rank r, and the j-th of them; DualPipe's ranks hold two copies of the model, one from each
 * end of the pipeline. */
uint32_t cost_rank_stages(const struct decision *d);
uint32_t cost_held_stage(const struct decision *d, uint32_t r, uint32_t j);
/* sums over a stage or a rank */
struct own_sums {
    double dense, experts, vectors[2]; /* parameter elements, buckets padded; vectors split over tp, and whole */
    double dense_vectors;              /* vectors of both kinds, padded */
    double largest, made, part;        /* the most of any block */
    double late, converted; /* Gradients that are converted after all actions: bytes by which they grow in all, and
                             * at most while they are converted. */
    double workspace;
};

#define OWN_STAGES 6
struct own_stages {
    uint32_t n; /* stages added so far; the array holds the last of them */
    struct own_stage {
        uint32_t kind, count, spared; /* of its layers */
        struct moments_stage moments;
        struct own_sums sums;
    } at[OWN_STAGES];
};
/* iterates over a stage's blocks from front to back, in runs of equal blocks */
struct cost_runs {
    const struct cost_rooms *x;
    const struct stage *st;
    uint32_t at; /* position: embedding, layers, head, prediction modules */
};
struct cost_run {
    const struct cost_block *b;
    const struct cost_held *held;
    struct cost_held own; /* storage for a block that cost_rooms does not have */
    double times;
};
bool cost_next_run(struct cost_runs *r, struct cost_run *out);
/* Are gradients summed between ranks in another format than the one they are made in? */
bool cost_converts(const struct cost_rooms *x);
/* A stage's moments and sums.  places: bytes of the places that copies from host memory go to; npieces: blocks of
 * the rank's stages so far; known: as below, or NULL. */
void cost_own_stage(const struct cost_rooms *x, uint32_t stage, double places, uint32_t *npieces,
                    struct own_stages *known, struct moments_stage *out, struct own_sums *sums);
/* The number of places that a rank gathers blocks into under ZeRO 3 with `uses` uses of them in a step: one more
 * than it gathers ahead, or as many as there are uses. */
double cost_gathered_places(const struct cost_rooms *x, double uses);
/* llmrun's lines of the estimate of rank r.  known: the cache of one decision, initially n = 0, or NULL.  Where the
 * rank needs at most least_bytes, or more than most_bytes, the lines need only show that. */
void cost_own_rank(const struct cost_rooms *x, uint32_t r, struct own_stages *known, uint64_t least_bytes,
                   uint64_t most_bytes, struct estimate *e);

#endif
