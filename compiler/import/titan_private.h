#ifndef LLMC_IMPORT_TITAN_PRIVATE_H
#define LLMC_IMPORT_TITAN_PRIVATE_H

/* Private to titan*.c: the table of titan.def, and what several settings say together. */

#include "compiler/import/describe.h"
#include "compiler/import/given.h"
#include "compiler/support/strbuf.h"

#include <jansson.h>

enum titan_arg {
#define ARG(section, name, kind, names, otherwise, refused) T_##section##_##name,
#define ELSEWHERE(names)
#include "compiler/import/titan.def"
#undef ARG
#undef ELSEWHERE
    NTITAN_ARGS
};

/* degrees, of which dp and shard are 0 where the number of ranks is not said */
struct titan_degrees {
    uint64_t tp, pp, cp, ep, replicate, shard, dp, world;
};
struct titan_degrees titan_degrees(const struct args *x);
/* batch and microbatch in sequences; 0 after an error */
struct titan_batch {
    uint64_t sequence, batch, microbatch;
};
struct titan_batch titan_batch(const struct args *x, const struct titan_degrees *d);

/* titan_flavors.c: the model of that name and flavour.  spec: what the file itself says of it, or NULL. */
void titan_flavor(const struct args *x, const json_t *spec, struct described *m);
/* titan_train.c, titan_plan.c: the blocks */
void titan_train(const struct args *x, const struct titan_batch *n, struct strbuf *b);
void titan_plan(const struct args *x, const struct described *m, const struct titan_degrees *d,
                const struct titan_batch *n, struct strbuf *b);

#endif
