/* What the target of a job rules out, and what other targets would do with the same job. */

#include "compiler/model/means.h"
#include "compiler/model/sema.h"
#include "compiler/search/search.h"

bool search_beyond(struct arena *a, const struct job *job, const struct topo *topo, uint64_t budget,
                   struct candidate *x, const char **lacks)
{
    struct job any = *job;
    if (!job->wishes.target || job->wishes.target->everything)
        return false;
    any.wishes.target = NULL;
    const struct search_result *r = search(a, diag_new(a), &any, topo, 1, budget, false);
    if (!r->ncandidates)
        return false;
    enum { MOST = 8 };
    const char *all[MOST];
    *x = r->candidates[0];
    uint32_t n = means_lacking(a, job->wishes.target, job, &x->decision, all, MOST);
    *lacks = "";
    for (uint32_t i = 0; i < n; i++)
        *lacks = arena_printf(a, "%s%s%s", *lacks, i ? ", no " : "", all[i]);
    return n;
}

uint32_t search_targets(struct arena *a, const struct job *job, const struct topo *topo, uint64_t budget,
                        struct target_best **out)
{
    uint32_t n = 0;
    while (target_name(n))
        n++;
    *out = ARENA_ARRAY(a, struct target_best, n);
    for (uint32_t i = 0; i < n; i++) {
        struct target_best *x = &(*out)[i];
        struct diag *d = diag_new(a);
        x->job = job_for_target(a, job, target_name(i));
        const struct search_result *r = search(a, d, x->job, topo, 1, budget, false);
        x->found = r->ncandidates > 0;
        if (x->found)
            x->candidate = r->candidates[0];
        else
            x->why = diag_first(d);
    }
    return n;
}
