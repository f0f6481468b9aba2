#ifndef LLMC_TESTS_PUBLISHED_H
#define LLMC_TESTS_PUBLISHED_H

/* Configurations of papers as jobs and clusters in memory, for the tests that compare with what the papers
 * print. */

#include "compiler/llmc.h"

struct published_run {
    const char *name;
    uint32_t layers, width, heads;
    uint32_t kv, ffn;  /* Llama's layer; kv 0 = GPT's, with as many kv heads and ffn = 4 width */
    uint32_t vocab;    /* 0: 51,200, as Megatron-LM's papers; Llama 3: 128,256 */
    uint32_t sequence; /* 0: 2048 */
    uint32_t batch;    /* sequences */
    const char *train; /* lines of `train`; NULL: mixed precision with bf16 */
    const char *plan;  /* lines of `plan` */
    bool hopper;       /* H100 nodes with 400 Gb/s per GPU; else A100 with 200 */
    uint32_t gpus;     /* 8 per node */
    const char *tiers; /* of the fabric; NULL: one, at full bandwidth */
    bool roomy;        /* devices of 100 TiB, where memory is not the question */
};

/* asserts that there are no errors */
struct job *published_job(struct arena *a, const struct published_run *r);
struct topo *published_topo(struct arena *a, const struct published_run *r);
/* what the search takes with the run's pins; asserts that something fits */
const struct candidate *published_best(struct arena *a, const struct published_run *r, struct job *job,
                                       struct topo *topo);
/* the run lowered; release with plan_close() */
struct plan *published_plan(struct arena *a, const struct published_run *r);

#endif
