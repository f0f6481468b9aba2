#ifndef LLMC_TESTS_RANDOM_PLAN_H
#define LLMC_TESTS_RANDOM_PLAN_H

/* Random small jobs and legal, emittable decisions for property tests.  Equal seeds give equal plans. */

#include "compiler/llmc.h"

/* 64-bit generator (splitmix64, Steele et al. 2014): a number below n */
uint32_t random_below(uint64_t *state, uint32_t n);

/* a model and job: GPT-2-like or Llama-like, tied or not, fp32, bf16 or fp16, adamw or sgd; dimensions small */
struct job *random_job(struct arena *a, uint64_t *state);
/* one host of `gpus` CPU ranks */
struct topo *random_host(struct arena *a, uint32_t gpus);
/* a decision for at most max_ranks ranks over tp, sp, pp (uneven cuts too), vpp, dp, microbatch, schedule, zero, recompute */
struct decision random_decision(struct arena *a, uint64_t *state, const struct job *job, const struct topo *topo,
                                uint32_t max_ranks);
/* all of it, compiled; never NULL */
struct plan *random_plan(struct arena *a, uint64_t seed, uint32_t max_ranks);

/* compile_decision(), with operands and attributes of its own for every instruction: for tests that change one */
struct plan *compile_apart(struct arena *a, struct job *job, struct topo *topo, const struct decision *d,
                           const struct compile_options *o, const char **why);

/* text of a model -> job, asserting that it has no errors; the tests' own fixed models */
struct job *text_job(struct arena *a, const char *text);
extern const char tiny_llama[], tiny_gpt2[];
/* a decision by hand: "tp=2 sp=1 pp=2 vpp=2 dp=2 zero=1 microbatch=1 full=1 schedule=zb_v"; cp by kind: "ring=2",
 * "all_gather=2", "all_to_all=2" */
struct decision text_decision(struct arena *a, const struct job *job, const struct topo *topo, const char *text);
/* both on a host of eight, by compile_apart(); never NULL */
struct plan *text_plan(struct arena *a, const char *model, const char *decision);
/* in a plan's folder: hashes anew the files that its MANIFEST lists */
#define PLAN_HASH_ANEW "sha256sum $(awk '{print $2}' MANIFEST) >new && mv new MANIFEST"

#endif
