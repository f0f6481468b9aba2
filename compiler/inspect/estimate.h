#ifndef LLMC_ESTIMATE_H
#define LLMC_ESTIMATE_H

/* `llmc estimate`: what the search predicts, as a table for people or as the documented JSON object. */

#include "compiler/emit/plan.h"
#include "compiler/search/search.h"
#include "runtime/status.h"

struct strbuf;

/* what an estimate says beside the search's figures */
struct estimate_more {
    const struct plan *plan; /* the best candidate's, as compiled, whose traffic is told; or NULL */
    bool formulas;           /* in JSON: what is behind the figures (lesson.h) */
    uint32_t ntargets;       /* the best of each, side by side */
    const struct target_best *targets;
};
/* prints the best candidate itemised, then the runners-up, in lines of `width` columns at most */
void estimate_print(const struct job *job, const struct topo *topo, const struct search_result *r,
                    const struct estimate_more *more, uint32_t width, FILE *out);
/* prints the documented JSON keys for the best candidate; "search" includes seconds; "candidates": the others in
 * short */
void estimate_json(const struct job *job, const struct topo *topo, const struct search_result *r,
                   const struct estimate_more *more, struct strbuf *out);

struct predicted estimate_predicted(const struct job *job, const struct topo *topo, const struct candidate *c);
/* the profile's name, such as "megatron-core", and a warning if the GPU's kernels are not calibrated by any measured
 * run */
const char *estimate_basis(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d);

#endif
