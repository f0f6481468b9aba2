/* Plans on fewer GPUs than were asked for.
 *
 * 'gpus = N' means exactly N where degrees can make N.  Degrees divide the model and dp divides the batch, so most
 * numbers of GPUs that people have (1000, 100,000) are no product of them.  If none makes N and dp is open, the plan
 * is the best one on at most N, and a warning says how many GPUs are left over and which batch would use more of
 * them. */

#include "compiler/search/passes.h"

#include "compiler/support/units.h"

/* Does no combination of degrees in the space make exactly as many GPUs as asked for, while dp is open? */
static bool gives_way(const struct searching *s)
{
    const struct wish *w = s->job->wishes.degree;
    return s->nmeshes == 0 && w[DEG_GPUS].relation == REL_EQ && w[DEG_DP].relation != REL_EQ;
}

struct searching *search_leftover(struct searching *s)
{
    struct job *job = ARENA_NEW(s->arena, struct job);
    struct searching *x = ARENA_NEW(s->arena, struct searching);
    if (!gives_way(s))
        return s;
    *job = *s->job;
    job->wishes.degree[DEG_GPUS].relation = REL_LE;
    *x = (struct searching){.arena = s->arena,
                            .job = job,
                            .topo = s->topo,
                            .emit_only = s->emit_only,
                            .keeps_refused = s->keeps_refused,
                            .top = s->top,
                            .budget = s->budget,
                            .most = s->most,
                            .result = ARENA_NEW(s->arena, struct search_result)};
    return search_run(x, diag_new(s->arena)) && x->result->ncandidates ? x : s;
}

/* A number of sequences near the batch that the same degrees can share, with dp as large as the GPUs allow; 0 if
 * that gives no plan. */
static uint64_t batch_for(const struct searching *s, const struct decision *d, uint64_t dp)
{
    struct job job = *s->job;
    const struct wish *microbatch = &job.wishes.degree[DEG_MICROBATCH];
    uint64_t unit = dp * (microbatch->relation == REL_EQ ? microbatch->value : 1),
             times = (job.train.batch + unit / 2) / unit;
    job.train.batch = unit * (times ? times : 1);
    job.wishes.degree[DEG_GPUS].relation = REL_EQ;
    job.wishes.degree[DEG_GPUS].value = d->gpus_used / d->dp * dp;
    struct searching x = {.arena = s->arena,
                          .job = &job,
                          .topo = s->topo,
                          .emit_only = s->emit_only,
                          .top = 1,
                          .budget = SEARCH_FIRST,
                          .result = ARENA_NEW(s->arena, struct search_result)};
    return search_run(&x, diag_new(s->arena)) && x.result->ncandidates ? job.train.batch : 0;
}

void search_warn_leftover(const struct searching *s, const struct job *job, struct diag *d)
{
    const struct wish *gpus = &job->wishes.degree[DEG_GPUS];
    const struct decision *best = &s->result->candidates[0].decision;
    uint64_t others = best->gpus_used / best->dp, dp = gpus->value / others;
    diag_warning(d, gpus->span, "leftover",
                 "%llu of %llu GPUs are left over: no degrees that the plan block allows make %llu, with dp "
                 "dividing the batch of %llu sequences",
                 (unsigned long long)(gpus->value - best->gpus_used), (unsigned long long)gpus->value,
                 (unsigned long long)gpus->value, (unsigned long long)job->train.batch);
    uint64_t batch = dp > best->dp ? batch_for(s, best, dp) : 0;
    if (batch)
        diag_help(d, "a batch of %llu sequences would use %llu (dp %llu); 'gpus = %u' says that these are enough",
                  (unsigned long long)batch, (unsigned long long)(others * dp), (unsigned long long)dp,
                  best->gpus_used);
    else
        diag_help(d, "'gpus = %u' says that these are enough", best->gpus_used);
}
