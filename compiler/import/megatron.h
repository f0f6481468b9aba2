#ifndef LLMC_IMPORT_MEGATRON_H
#define LLMC_IMPORT_MEGATRON_H

/* Private to megatron*.c: what settings of Megatron-LM and Megatron-Bridge say, by the table of megatron.def. */

#include "compiler/import/describe.h"
#include "compiler/import/given.h"
#include "compiler/support/strbuf.h"

enum megatron_arg {
#define ARG(key, kind, names, otherwise, refused) A_##key,
#define ELSEWHERE(names)
#include "compiler/import/megatron.def"
#undef ARG
#undef ELSEWHERE
    NMEGATRON_ARGS
};

struct args megatron_args(struct givens *g);
/* ranks that the settings ask for, or 0 where they don't say; data parallel ranks likewise */
uint64_t megatron_world(const struct args *x);
uint64_t megatron_dp(const struct args *x);
/* whole steps of so many samples, by the global batch */
uint64_t megatron_steps(const struct args *x, unsigned samples);

/* megatron_model.c, megatron_train.c, megatron_plan.c: the blocks; text in lines without their indent */
void megatron_model(const struct args *x, struct described *m);
void megatron_train(const struct args *x, struct strbuf *b);
void megatron_plan(const struct args *x, const struct described *m, struct strbuf *b);

#endif
