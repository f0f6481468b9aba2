/* What if one thing were different: neighbours, plans without a wish, remedies, GPUs for a deadline; and that
 * the list of candidates names no layout twice. */

#include "compiler/model/sema.h"
#include "compiler/search/search.h"

#include <CUnit/Basic.h>
#include <string.h>

struct asked {
    struct arena *a;
    struct job *job;
    struct topo *topo;
    struct search_result *r;
};

static struct asked ask(const char *model, const char *cluster, const char *const *sets, uint32_t nsets,
                        uint32_t top)
{
    struct asked x = {.a = arena_new()};
    struct diag *d = diag_new(x.a);
    x.job = job_read(x.a, d, arena_printf(x.a, "plans/%s/model.llm", model), sets, nsets);
    x.topo = topo_read(x.a, d, arena_printf(x.a, "topologies/%s.xml", cluster));
    CU_ASSERT_PTR_NOT_NULL_FATAL(x.job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(x.topo);
    x.r = search(x.a, diag_new(x.a), x.job, x.topo, top, 0, false);
    return x;
}

static void test_neighbours(void)
{
    const char *const sets[] = {"gpus=64", "batch=256 sequences", "zero=1"};
    struct asked x = ask("llama3-70b", "dgx-h100-superpod", sets, 3, 1);
    CU_ASSERT_EQUAL_FATAL(x.r->ncandidates, 1);
    const struct candidate *winner = &x.r->candidates[0];
    const struct decision *w = &winner->decision;
    struct neighbour n[NDIMENSIONS];
    search_neighbours(x.a, x.job, x.topo, winner, false, n);
    uint32_t found = 0;
    for (uint32_t k = 0; k < NDIMENSIONS; k++) {
        const struct decision *d = &n[k].candidate.decision;
        const char *why;
        CU_ASSERT_EQUAL(n[k].dimension, k);
        found += n[k].found;
        if (!n[k].found)
            continue;
        CU_ASSERT(decision_legal(x.a, x.job, x.topo, d, &why));
        CU_ASSERT(n[k].wished ||
                  n[k].slower >= -x.r->gap - 0.02); /* what is plainer may win, though it is slower */
        CU_ASSERT(n[k].candidate.estimate.peak_bytes <= x.r->memory_limit_bytes);
        CU_ASSERT(k == DIM_TP ? d->tp != w->tp : d->tp == w->tp);
        CU_ASSERT(k == DIM_CP ? d->cp != w->cp : d->cp == w->cp);
        CU_ASSERT(k == DIM_PP ? d->pp != w->pp : d->pp == w->pp);
        CU_ASSERT(k == DIM_ZERO ? d->zero != w->zero : d->zero == w->zero);
        CU_ASSERT(k == DIM_MICROBATCH ? d->microbatch != w->microbatch : d->microbatch == w->microbatch);
        CU_ASSERT(k == DIM_GPUS ? d->gpus_used != w->gpus_used : d->gpus_used == w->gpus_used);
    }
    CU_ASSERT(found >= 5);
    CU_ASSERT(n[DIM_ZERO].wished); /* the wish leaves no other level */
    CU_ASSERT(n[DIM_GPUS].wished);
    arena_free(x.a);
}

/* a shard that is asked for stays, whatever else is different */
static void test_shard(void)
{
    const char *const sets[] = {"gpus=64", "batch=256 sequences", "zero=1", "shard=4"};
    struct asked x = ask("llama3-70b", "dgx-h100-superpod", sets, 4, 1);
    CU_ASSERT_EQUAL_FATAL(x.r->ncandidates, 1);
    struct neighbour n[NDIMENSIONS];
    search_neighbours(x.a, x.job, x.topo, &x.r->candidates[0], false, n);
    uint32_t found = 0;
    for (uint32_t k = 0; k < NDIMENSIONS; k++) {
        if (!n[k].found || k == DIM_SHARD || k == DIM_ZERO)
            continue;
        CU_ASSERT_EQUAL(n[k].candidate.decision.shard, 4);
        found++;
    }
    CU_ASSERT(found >= 4);
    arena_free(x.a);
}

static void test_relaxations(void)
{
    const char *const sets[] = {"gpus=64", "batch=256 sequences", "tp=1", "pp=8"};
    struct asked x = ask("llama3-70b", "dgx-h100-superpod", sets, 4, 1);
    struct relaxation *list;
    uint32_t n = search_relaxations(x.a, x.job, x.topo, false, 0, &list), seen = 0;
    for (uint32_t i = 0; i < n; i++) {
        seen |= !strcmp(list[i].wish, "tp")     ? 1
                : !strcmp(list[i].wish, "pp")   ? 2
                : !strcmp(list[i].wish, "gpus") ? 4
                                                : 0;
        if (!strcmp(list[i].wish, "gpus") && list[i].found)
            CU_ASSERT(list[i].candidate.decision.gpus_used != 64);
        CU_ASSERT(i == 0 || list[i].span.start >= list[i - 1].span.start);
    }
    CU_ASSERT_EQUAL(seen, 7);
    arena_free(x.a);
}

/* the second has experts that twice as many ranks would not divide, the third heads */
static const struct {
    const char *model, *sets[5];
    uint32_t nsets, least; /* remedies */
    double least_slower, most_slower;
    const char *stages; /* the remedy of twice as many */
} tight[] = {
    {"llama3-70b", {"gpus=8", "tp=8", "recompute=none", "batch=16 sequences"}, 4, 3, 0.1, 0.5, "pp 2"},
    {"mixtral-8x7b", {"gpus=16", "ep=8", "zero=0", "recompute=none", "memory=40GiB"}, 5, 3, 0.1, 0.5, "pp 4"},
    {"gpt2-124m",
     {"gpus=4", "tp=4", "microbatch=64", "memory=2GiB", "recompute=none"},
     5, 3, 0.1, 0.5, "pp 2"},
};

static bool has_remedy(const struct remedy *list, uint32_t n, const char *name)
{
    while (n && strcmp(list[n - 1].name, name))
        n--;
    return n;
}

static void test_remedies(void)
{
    for (size_t t = 0; t < sizeof tight / sizeof *tight; t++) {
        struct asked x = ask(tight[t].model, "dgx-h100-superpod", tight[t].sets, tight[t].nsets, 1);
        CU_ASSERT_EQUAL(x.r->ncandidates, 0);
        CU_ASSERT_FATAL(x.r->has_closest);
        CU_ASSERT(x.r->removed[REMOVED_MEMORY] > 0);
        struct remedy *list;
        uint32_t n = search_remedies(x.a, x.job, x.topo, &x.r->closest, x.r->memory_limit_bytes, false, &list);
        bool full = false, fits = true;
        CU_ASSERT(n >= tight[t].least);
        for (uint32_t i = 0; i < n; i++) {
            const char *why;
            CU_ASSERT(decision_legal(x.a, x.job, x.topo, &list[i].candidate.decision, &why));
            CU_ASSERT(list[i].saves_bytes > 0);
            CU_ASSERT_EQUAL(list[i].saves_bytes,
                            x.r->closest.estimate.peak_bytes - list[i].candidate.estimate.peak_bytes);
            CU_ASSERT(fits || !list[i].fits); /* those that fit come first */
            fits = list[i].fits;
            if (strcmp(list[i].name, "recompute full"))
                continue;
            full = true;
            CU_ASSERT(list[i].slower > tight[t].least_slower && list[i].slower < tight[t].most_slower);
        }
        CU_ASSERT(full);
        CU_ASSERT(has_remedy(list, n, tight[t].stages));
        x.job->wishes.layout = ""; /* stages that are given stay as many */
        n = search_remedies(x.a, x.job, x.topo, &x.r->closest, x.r->memory_limit_bytes, false, &list);
        CU_ASSERT(!has_remedy(list, n, tight[t].stages));
        CU_ASSERT(has_remedy(list, n, "recompute full"));
        arena_free(x.a);
    }
}

static void test_deadline(void)
{
    const char *const sets[] = {"batch=256 sequences", "step_time=10s"};
    struct asked x = ask("llama3-70b", "dgx-h100-superpod", sets, 2, 1);
    struct candidate c;
    CU_ASSERT_FATAL(search_gpus_needed(x.a, x.job, x.topo, false, &c));
    CU_ASSERT(c.estimate.step_time_s <= 10);
    CU_ASSERT_FATAL(x.r->ncandidates == 1);
    CU_ASSERT(c.decision.gpus_used < x.r->candidates[0].decision.gpus_used);
    x.job->wishes.step_time_s = 2 * 10; /* twice the time takes fewer, down to what fits */
    struct candidate slower;
    CU_ASSERT_FATAL(search_gpus_needed(x.a, x.job, x.topo, false, &slower));
    CU_ASSERT(slower.decision.gpus_used < c.decision.gpus_used);
    x.job->wishes.step_time_s = 0;
    CU_ASSERT(!search_gpus_needed(x.a, x.job, x.topo, false, &c)); /* no limit, no answer */
    x.job->wishes.step_time_s = 1e-3;
    CU_ASSERT(!search_gpus_needed(x.a, x.job, x.topo, false, &c));
    arena_free(x.a);
}

static void test_no_twins(void)
{
    const char *const sets[] = {"gpus=64", "batch=256 sequences"};
    struct asked x = ask("llama3-8b", "dgx-h100-superpod", sets, 2, 24);
    CU_ASSERT(x.r->ncandidates > 10);
    for (uint32_t i = 0; i < x.r->ncandidates; i++)
        for (uint32_t k = 0; k < i; k++)
            CU_ASSERT_STRING_NOT_EQUAL(decision_text(x.a, x.job, &x.r->candidates[i].decision),
                                       decision_text(x.a, x.job, &x.r->candidates[k].decision));
    arena_free(x.a);
}

/* a budget ends a search early, says so in the gap, and says the same again */
static void test_budget(void)
{
    const char *const sets[] = {"gpus=1024", "batch=1024 sequences"};
    struct asked x = ask("llama3-405b", "meta-24k-roce", sets, 2, 1);
    double gap = 0, best_s = 0;
    for (uint64_t budget = 500; budget <= 32000; budget *= 8) {
        struct search_result *r = search(x.a, diag_new(x.a), x.job, x.topo, 1, budget, false);
        struct search_result *again = search(x.a, diag_new(x.a), x.job, x.topo, 1, budget, false);
        CU_ASSERT_EQUAL_FATAL(r->ncandidates, 1);
        double t = r->candidates[0].estimate.step_time_s;
        CU_ASSERT_EQUAL(r->gap, again->gap);
        CU_ASSERT_EQUAL(t, again->candidates[0].estimate.step_time_s);
        CU_ASSERT(t * (1 - r->gap) <= x.r->candidates[0].estimate.step_time_s * (1 + 1e-9));
        CU_ASSERT(best_s <= 0 || t <= best_s * 1.02); /* what a plainer plan may cost */
        best_s = t;
        gap = r->gap > gap ? r->gap : gap;
    }
    CU_ASSERT(gap > 0);
    arena_free(x.a);
}

void suite_neighbours(void);
void suite_neighbours(void)
{
    CU_pSuite s = CU_add_suite("neighbours", NULL, NULL);
    CU_add_test(s, "one dimension different", test_neighbours);
    CU_add_test(s, "a shard that is asked for", test_shard);
    CU_add_test(s, "one wish dropped", test_relaxations);
    CU_add_test(s, "changes that make it fit", test_remedies);
    CU_add_test(s, "GPUs for a deadline", test_deadline);
    CU_add_test(s, "no layout twice", test_no_twins);
    CU_add_test(s, "what a budget leaves open", test_budget);
}
