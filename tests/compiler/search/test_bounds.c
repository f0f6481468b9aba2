/* No bound of the search is above what it bounds.
 *
 * Leaves: over drawn decisions of realistic size the bound of the decision itself against the run of its
 * schedule with all that travels beside it.  The tree: over drawn problems, from meshes down to leaves along
 * drawn branches, every bound against the leaf's run, and the leaf's own by what each rank recomputes.  Both print
 * how far apart they are where that is most, by schedule and by ZeRO level.  And blocks that shapes share are what
 * they would be by themselves.
 *
 * BOUNDS=N draws of both, the first of them LLMC_SEED.  Of trees some more, which bounds were once wrong in. */

#include "compiler/schedule/schedule.h"
#include "compiler/search/branch.h"
#include "compiler/search/bounds.h"
#include "compiler/search/candidates.h"
#include "compiler/search/leaves.h"
#include "compiler/search/passes.h"
#include "compiler/search/trade.h"
#include "compiler/simulate/predict.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/random_sizes.h"
#include "tests/draws.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* of one kind of decision: bound / actual */
struct spread {
    uint32_t n;
    double least, most, sum;
};
struct spreads {
    struct spread by[NSCHEDULES][4];
};

static void note(struct spreads *x, const struct decision *d, double ratio)
{
    struct spread *at = &x->by[d->pp > 1 ? d->schedule : SCHED_AUTO][d->zero];
    at->least = at->n && at->least < ratio ? at->least : ratio;
    at->most = at->n && at->most > ratio ? at->most : ratio;
    at->sum += ratio;
    at->n++;
}

static void show(const char *what, const struct spreads *x)
{
    printf("\n%s, bound / run:  least, mean and most by ZeRO level\n", what);
    for (uint32_t k = 0; k < NSCHEDULES; k++) {
        uint32_t n = 0;
        for (uint32_t z = 0; z < 4; z++)
            n += x->by[k][z].n;
        if (!n)
            continue;
        printf("%-14s", k == SCHED_AUTO ? "no pipeline" : schedule_name((enum schedule_kind)k));
        for (uint32_t z = 0; z < 4; z++) {
            const struct spread *at = &x->by[k][z];
            if (at->n)
                printf("  %4u: %.3f %.3f %.6f", at->n, at->least, at->sum / at->n, at->most);
            else
                printf("  %31s", "");
        }
        printf("\n");
    }
}

static uint32_t draws(uint32_t quick, uint32_t whole)
{
    if (getenv("BOUNDS"))
        return (uint32_t)strtoul(getenv("BOUNDS"), NULL, 10);
    return test_draws(whole, quick);
}

static uint64_t first_seed(void)
{
    const char *seed = getenv("LLMC_SEED");
    return seed ? strtoull(seed, NULL, 10) : 1;
}

static struct searching *searching_new(struct arena *a, const struct job *job, const struct topo *topo)
{
    struct searching *s = ARENA_NEW(a, struct searching);
    uint32_t most = job->model.nlayers + 3;
    *s = (struct searching){
        .arena = a, .job = job, .topo = topo, .top = 1, .budget = UINT64_MAX, .rest_bound = INFINITY};
    s->result = ARENA_NEW(a, struct search_result);
    *s->result = (struct search_result){.candidates = ARENA_ARRAY(a, struct candidate, 2)};
    s->products = cost_products_new(a);
    s->kinds = cost_kinds_new(a, &job->model);
    s->ranks = ARENA_ARRAY(a, struct cost_stage, most);
    s->stages = ARENA_ARRAY(a, struct pipeline_stage, most);
    s->scratch = ARENA_ARRAY(a, struct stage, most);
    s->layer_s = ARENA_ARRAY(a, double, most);
    return s;
}

/* Is a step finished where that many seconds are allowed, with the same figures, and given up at half of them? */
static bool gives_up_rightly(struct arena *a, const struct cost *c, const struct cost_shape *shape,
                             const struct estimate *whole)
{
    struct estimate e = {0}, before = {0};
    return predict_step(a, c, shape, whole->step_time_s, &e) && memcmp(&e, whole, sizeof e) == 0 &&
           !predict_step(a, c, shape, 0.5 * whole->step_time_s, &before) && before.step_time_s <= 0;
}

static bool check_leaf(uint64_t seed, struct spreads *all)
{
    struct arena *a = arena_new();
    struct sized_draw x;
    bool good = true;
    if (sized_draw(a, seed, &x)) {
        struct decision *d = &x.decision;
        struct schedule listed = d->listed ? *d->listed : (struct schedule){0};
        listed.skews = false; /* as one that is read from a file */
        d->listed = d->listed ? &listed : NULL;
        struct cost *c = cost_new(a, x.job, x.topo, d);
        struct searching *s = searching_new(a, x.job, x.topo);
        struct search_shape h = {0};
        struct estimate e = {0};
        cost_shape_init(a, c, &s->kinds, &h.shape);
        double bound_s = search_leaf_bound_s(s, c, &h);
        predict_step(a, c, &h.shape, INFINITY, &e);
        note(all, d, bound_s / e.step_time_s);
        good = bound_s <= e.step_time_s * (1 + 1e-9) && bound_s > 0 && gives_up_rightly(a, c, &h.shape, &e);
        if (!good)
            printf("\nseed %llu: a bound of %.9g s, a run of %.9g s (%s; offload %u, never overlap %u, "
                   "post-validation %d, profile %s)\n",
                   (unsigned long long)seed, bound_s, e.step_time_s, decision_text(a, x.job, d),
                   x.job->wishes.offload, x.job->wishes.never_overlap, x.job->wishes.post_validation,
                   x.job->wishes.profile_name ? x.job->wishes.profile_name : "llmrun");
    }
    arena_free(a);
    return good;
}

static void test_leaves(void)
{
    struct spreads all = {0};
    uint32_t n = draws(300, 2000), bad = 0;
    for (uint32_t i = 0; i < n; i++)
        bad += !check_leaf(first_seed() + i, &all);
    show("leaves", &all);
    CU_ASSERT_EQUAL(bad, 0);
}

/* ---- blocks ---- */

static bool same_block(const struct cost *c, const struct cost_block *x, const struct cost_block *y)
{
    bool same = x->e == y->e && x->forward_s == y->forward_s && x->backward_s == y->backward_s &&
                x->forward_comm_s == y->forward_comm_s && x->backward_comm_s == y->backward_comm_s &&
                x->forward_hidden_s == y->forward_hidden_s && x->input_s == y->input_s && x->weight_s == y->weight_s &&
                x->keep_bytes == y->keep_bytes && x->matrices == y->matrices && x->experts == y->experts &&
                !x->lives == !y->lives;
    if (!same || !x->lives || !x->e)
        return same;
    const struct cost_lives *v = cost_lives(c, x), *w = cost_lives(c, y);
    return v->keep == w->keep && v->forward == w->forward && v->backward == w->backward && v->mark == w->mark;
}

/* Blocks that a search has made for one ep and takes for another are what they would be if they were made for that. */
static void test_blocks(void)
{
    uint32_t n = draws(300, 2000), shared = 0, bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct arena *a = arena_new();
        struct sized_draw x;
        if (sized_draw(a, first_seed() + i, &x) && x.decision.ep * x.decision.etp > 1) {
            struct decision without = x.decision;
            struct searching *s = searching_new(a, x.job, x.topo);
            without.ep = without.etp = 1;
            without.ep_nodes = 0;
            search_shape(s, cost_new(a, x.job, x.topo, &without));
            struct cost *c = cost_new(a, x.job, x.topo, &x.decision);
            struct cost_shape own;
            cost_shape_init(a, c, &s->kinds, &own);
            const struct cost_shape *h = &search_shape(s, c)->shape;
            bool same = same_block(c, &h->embed, &own.embed) && same_block(c, &h->head, &own.head) &&
                        same_block(c, &h->predict, &own.predict);
            for (uint32_t k = 0; k < s->kinds.n; k++)
                same = same && same_block(c, &h->layers[k], &own.layers[k]);
            shared += s->nshapes > 2;
            bad += !same;
        }
        arena_free(a);
    }
    CU_ASSERT(shared > 0);
    CU_ASSERT_EQUAL(bad, 0);
}

/* ---- the tree ---- */

/* Is the run of a leaf that recomputes no shorter than any rank's bound by the layers that it does not spare? */
static bool check_spared(struct searching *s, const struct leaf *x, double run, struct spreads *all)
{
    const struct decision *d = &x->candidate.decision;
    double most = 0;
    for (uint32_t k = 0; k < s->space.nrecompute; k++) {
        const struct search_sparing by = {s->families.at[x->family].shape, k};
        if (d->recompute == RECOMPUTE_NONE || s->space.recompute[k].kind != d->recompute ||
            s->space.recompute[k].parts != d->parts)
            continue;
        for (uint32_t r = 0; r < d->pp; r++)
            most = fmax(most, search_objective(s, search_spared_s(s, &by, d, r), d->gpus_used));
    }
    if (most > 0)
        note(all, d, most / run);
    if (most > run * (1 + 1e-9))
        printf("\na rank's bound of %.9g, a leaf's run of %.9g (%s)\n", most, run, decision_text(s->arena, s->job, d));
    return most <= run * (1 + 1e-9);
}

/* A walk from a drawn mesh to a leaf, whose run no bound on the way is above; false: some is.  Where
 * something has been found already, which is a long way off, nothing is left out. */
static bool walk(struct searching *s, uint64_t *state, struct spreads *all, struct spreads *spared)
{
    static const char *const kinds[] = {"leaf", "cell", "family", "lot", "mesh"};
    struct node way[64];
    uint32_t n = 0;
    bool good = true;
    s->result->ncandidates = 1;
    s->result->candidates[0] =
        (struct candidate){.estimate = {.step_time_s = 1e9}, .decision = {.gpus_used = 1}};
    search_push_meshes(s);
    while (s->heap.n && n < ARRAY_LEN(way)) {
        struct node x = way[n++] = s->heap.at[random_below(state, (uint32_t)s->heap.n)];
        s->heap.n = 0;
        search_open_node(s, &x);
        if (x.kind != NODE_LEAF || s->result->ncandidates < 2)
            continue;
        const struct candidate *c = &s->result->candidates[0];
        double run = search_objective(s, c->estimate.step_time_s, c->decision.gpus_used);
        good &= check_spared(s, &s->leaves.at[x.index], run, spared);
        for (uint32_t i = 0; i < n; i++) {
            if (way[i].bound <= run * (1 + 1e-9))
                continue;
            good = false;
            printf("\na %s's bound of %.9g, a leaf's run of %.9g (%s)\n", kinds[way[i].kind], way[i].bound,
                   run, decision_text(s->arena, s->job, &c->decision));
        }
        for (uint32_t i = 0; i < n; i++)
            if (way[i].kind == NODE_CELL)
                note(all, &c->decision, way[i].bound / run);
    }
    return good;
}

static bool check_tree(uint64_t seed, struct spreads *all, struct spreads *spared)
{
    enum { WALKS = 40 };
    struct arena *a = arena_new();
    struct sized_draw x;
    uint64_t state = seed;
    bool good = true;
    if (sized_draw(a, seed, &x)) {
        struct searching *s = searching_new(a, x.job, x.topo);
        x.job->wishes.degree[DEG_GPUS] = (struct wish){.relation = REL_EQ, .value = x.decision.gpus_used};
        if (random_below(&state, 3) == 0)
            x.job->wishes.memory = (uint64_t)(8 + random_below(&state, 40)) << 30;
        s->top = 2;
        if (search_prepare(s, diag_new(a))) {
            search_plant(s);
            for (uint32_t i = 0; i < WALKS && s->meshes.n; i++)
                good &= walk(s, &state, all, spared);
        }
        if (!good)
            printf("seed %llu; offload %u, never overlap %u, post-validation %d, profile %s\n",
                   (unsigned long long)seed, x.job->wishes.offload, x.job->wishes.never_overlap,
                   x.job->wishes.post_validation,
                   x.job->wishes.profile_name ? x.job->wishes.profile_name : "llmrun");
    }
    arena_free(a);
    return good;
}

/* Recomputation that leaves out what is made for what is kept (5083, 50466) or shortens a stage's last backward pass (9424), that
 * gives pairs more to hide (20399), and rows to experts on a queue of their own beside pairs (9008, 30098). */
static const uint64_t wrong_once[] = {5083, 9008, 9424, 20399, 30098, 50466};

static void test_tree(void)
{
    struct spreads all = {0}, spared = {0};
    uint32_t n = draws(20, 200), bad = 0, counted = 0;
    for (uint32_t i = 0; i < ARRAY_LEN(wrong_once); i++)
        bad += !check_tree(wrong_once[i], &all, &spared);
    for (uint32_t i = 0; i < n; i++)
        bad += !check_tree(first_seed() + i, &all, &spared);
    show("cells", &all);
    show("ranks by what they recompute", &spared);
    for (uint32_t k = 0; k < NSCHEDULES; k++)
        counted += spared.by[k][0].n;
    CU_ASSERT(counted > 0);
    CU_ASSERT_EQUAL(bad, 0);
}

void suite_bounds(void);
void suite_bounds(void)
{
    CU_pSuite s = CU_add_suite("bounds", NULL, NULL);
    CU_add_test(s, "no leaf's bound is above its run", test_leaves);
    CU_add_test(s, "nor any on the way to it", test_tree);
    CU_add_test(s, "blocks without experts are those of any ep", test_blocks);
}
