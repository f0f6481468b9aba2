/* The certificate: on small random problems, plain loops over every decision of the stated space, each with
 * its schedule run, find nothing faster than the printed gap allows, and find something exactly where the
 * search does.
 *
 * The loops know the space's words (space.h) and nothing of bounds, probes, caches or the order in which the
 * search goes: what is possible is asked of decision_legal(), time and memory of the cost model.  Two parts
 * are the search's own by definition of the space and taken from it: the chain of recomputation lists, and
 * that stages are cut for even time of layers without recomputation where it is chosen freely. */

#include "compiler/cost/cost_private.h"
#include "compiler/model/sema.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/search.h"
#include "compiler/search/space.h"
#include "compiler/simulate/predict.h"
#include "compiler/simulate/simulate.h"
#include "compiler/support/vec.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct problem {
    struct arena *a;
    struct job *job;
    struct topo *topo;
    struct space space; /* lists of recomputation and the node type are used */
    struct cost_kinds kinds;
    uint64_t limit;
    double best_s; /* of the loops */
    struct decision best;
    struct stage stages[128]; /* best's */
    uint64_t legal, apart, fitting; /* apart: legal and not just another order of axes of size 1 */
};

static const char *one_of(uint64_t *state, const char *const *list, uint32_t n)
{
    return list[random_below(state, n)];
}

static const char *random_profile(uint64_t *state)
{
    static const char *const profiles[] = {"", "", "profile \"megatron-core\"", "profile \"torch-fsdp\"",
                                           "profile \"megatron-2022\""};
    return one_of(state, profiles, ARRAY_LEN(profiles));
}

static const char *random_model(struct arena *a, uint64_t *state)
{
    static const uint32_t width_of[] = {1024, 2048, 4096};
    uint32_t heads = 4u << random_below(state, 2), width = width_of[random_below(state, 3)];
    uint32_t layers = 2 + random_below(state, 4), batch = 4u << random_below(state, 3);
    bool moe = random_below(state, 4) == 0;
    const char *ffn = moe ? arena_printf(a, "moe  swiglu(%u) {\n experts 4\n active 2\n }", width)
                          : arena_printf(a, "ffn  swiglu(%u)", 4 * width);
    static const char *const recompute[] = {"",
                                            "",
                                            "",
                                            "recompute none",
                                            "recompute full",
                                            "recompute [norm, ffn_act]",
                                            "recompute full(layers=1)"};
    static const char *const schedule[] = {"schedule in [1f1b, gpipe, zb_h1]",
                                           "schedule in [1f1b, interleaved, zb_v]",
                                           "schedule in [eager_1f1b, v_half, v_min, zb_h2]",
                                           "schedule in [1f1b, combined_1f1b, dualpipe, dualpipe_v]",
                                           "schedule 1f1b",
                                           "schedule interleaved(group=4)"};
    static const char *const more[] = {"",
                                       "tp <= 2",
                                       "pp >= 2",
                                       "microbatch in [1, 2]",
                                       "sequence_parallel yes",
                                       "cp = 2",
                                       "order [tp, cp, pp, dp]",
                                       "minimize gpu_time",
                                       "zero in [1, 3]",
                                       "keep tp within node"};
    static const char *const order[] = {"order [tp, cp, dp, pp]", "order [tp, cp, dp, pp]",
                                        "order [pp, tp, dp, cp]", ""};
    const char *extra = one_of(state, more, ARRAY_LEN(more));
    return arena_printf(
        a,
        "llmc 1\nmodel random {\n vocab %u\n width %u\n norm rmsnorm\n embed tokens\n repeat %u {\n layer {\n"
        " attn gqa(heads=%u, kv=%u, rope=10_000)\n %s\n }\n }\n head %s\n}\n"
        "train {\n sequence 4096\n batch %u sequences\n precision bf16\n}\n"
        "plan {\n memory <= %uMiB\n gpus in [%u, %u]\n %s\n %s\n %s\n %s\n %s\n}\n",
        8000 + 1000 * random_below(state, 50), width, layers, heads, heads >> random_below(state, 2), ffn,
        random_below(state, 2) ? "tied" : "untied", batch, 600u << random_below(state, 6),
        4u << random_below(state, 2), 4 + 2 * random_below(state, 3),
        one_of(state, recompute, ARRAY_LEN(recompute)), one_of(state, schedule, ARRAY_LEN(schedule)),
        strstr(extra, "order") ? "" : one_of(state, order, ARRAY_LEN(order)), extra, random_profile(state));
}

static const char *random_cluster(struct arena *a, uint64_t *state)
{
    uint32_t gpus = 2u << random_below(state, 3), nodes = 1 + random_below(state, 4);
    if (gpus * nodes < 4)
        nodes = 2;
    const char *fabric = nodes == 1
                             ? ""
                             : arena_printf(a,
                                            "<fabric medium=\"infiniband\">%s<tier name=\"all\" span=\"all\" "
                                            "oversubscription=\"%u\"/></fabric>",
                                            random_below(state, 2) ? "<tier name=\"rack\" span=\"2\"/>" : "",
                                            1 + random_below(state, 4));
    const char *degraded =
        nodes > 1 && random_below(state, 3) == 0 ? "<degraded nodes=\"h-0002\" compute=\"0.8\"/>" : "";
    return arena_printf(
        a,
        "<?xml version=\"1.0\"?><cluster version=\"1\" name=\"random\"><node-type id=\"h\" gpus=\"%u\">"
        "<gpu model=\"%s\"/><scale-up kind=\"nvswitch\" bandwidth=\"%uGB/s\"/><nic count=\"%u\" "
        "bandwidth=\"%uGb/s\"/>"
        "</node-type><nodes type=\"h\" count=\"%u\"/>%s%s</cluster>",
        gpus, random_below(state, 2) ? "H100-SXM" : "A100-SXM-80GB", 100 + 50 * random_below(state, 5), gpus,
        100u << random_below(state, 3), nodes, fabric, degraded);
}

static struct topo *read_cluster(struct arena *a, const char *text)
{
    struct diag *d = diag_new(a);
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){"random.xml", text, strlen(text), false};
    struct topo *t = topo_parse(a, d, s, NULL);
    if (!t)
        diag_print(d, stderr, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* ---- one decision ---- */

/* the best of a decision whose stages stand: memory, then the run of its schedule */
static void judge(struct problem *x, const struct cost *c, const struct cost_shape *shape,
                  const struct decision *d)
{
    struct arena_mark mark = arena_mark(x->a);
    struct estimate e = {0};
    cost_memory(c, shape, &e);
    x->fitting += e.peak_bytes <= x->limit;
    if (e.peak_bytes <= x->limit) {
        predict_step(x->a, c, shape, INFINITY, &e);
        double t = e.step_time_s * (x->job->wishes.objective == MINIMIZE_GPU_TIME ? d->gpus_used : 1);
        if (t < x->best_s) {
            x->best_s = t;
            x->best = *d;
            memcpy(x->stages, d->stages, d->nstages * sizeof *d->stages);
            x->best.stages = x->stages;
        }
    }
    arena_reset(x->a, mark);
}

/* of every rank as many layers spared as fit, the later chunks' first */
static void spare_most(struct problem *x, const struct cost *c, const struct cost_shape *shape,
                       struct decision *d)
{
    bool folded = d->schedule == SCHED_ZB_V || d->schedule == SCHED_V_HALF || d->schedule == SCHED_V_MIN ||
                  d->schedule == SCHED_DUALPIPE_V;
    for (uint32_t rank = 0; rank < d->pp; rank++) {
        struct stage *chunk[64];
        uint32_t layers = 0;
        for (uint32_t j = 0; j < d->vpp; j++) {
            chunk[j] = &d->stages[folded && j ? 2 * d->pp - 1 - rank : rank + j * d->pp];
            layers += chunk[j]->count;
        }
        for (uint32_t k = layers + 1; k-- > 0;) {
            struct estimate e = {0};
            for (uint32_t j = 0; j < d->vpp; j++)
                chunk[j]->spared = 0;
            for (uint32_t left = k; left;)
                for (uint32_t j = d->vpp; j-- > 0 && left;)
                    if (chunk[j]->spared < chunk[j]->count) {
                        chunk[j]->spared++;
                        left--;
                    }
            cost_rank_memory(c, shape, rank, &e);
            if (e.peak_bytes <= x->limit)
                break;
        }
    }
    judge(x, c, shape, d);
}

/* of the usual two orders of axes, the first where both are the same */
static bool is_apart(const struct problem *x, const struct decision *d)
{
    return x->job->wishes.norder || d->order[2] == AXIS_DP || (d->dp > 1 && d->pp > 1);
}

static void try_recompute(struct problem *x, struct cost *c, struct decision d)
{
    const struct model *m = &x->job->model;
    const char *why;
    bool free_choice = x->job->wishes.recompute == RECOMPUTE_AUTO;
    struct arena_mark mark = arena_mark(x->a);
    struct cost_shape plain;
    double *layer_s = ARENA_ARRAY(x->a, double, m->nlayers), embed_s, head_s;
    const struct space_recompute *first = &x->space.recompute[0];
    d.recompute = free_choice ? RECOMPUTE_NONE : first->kind;
    d.parts = free_choice ? 0 : first->parts;
    d.recompute_layers = 0;
    c->decision = &d;
    cost_shape_init(x->a, c, &x->kinds, &plain);
    cost_shape_layers(&plain, m->nlayers, layer_s, &embed_s, &head_s);
    decision_cut(x->a, &d, m->nlayers, layer_s, embed_s, head_s);
    for (uint32_t k = 0; k < x->space.nrecompute; k++) {
        const struct space_recompute *r = &x->space.recompute[k];
        struct cost_shape shape;
        d.recompute = r->kind;
        d.parts = r->parts;
        d.recompute_layers = r->layers;
        decision_spare(&d);
        if (!decision_legal(x->a, x->job, x->topo, &d, &why))
            continue;
        x->legal++;
        x->apart += is_apart(x, &d);
        cost_shape_init(x->a, c, &x->kinds, &shape);
        if (r->kind == RECOMPUTE_NONE || !free_choice)
            judge(x, c, &shape, &d);
        else
            spare_most(x, c, &shape, &d);
    }
    arena_reset(x->a, mark);
}

/* ---- the loops ---- */

static bool wants(const struct problem *x, enum degree k, uint64_t v)
{
    const struct wish *w = &x->job->wishes.degree[k];
    bool listed = false;
    for (uint32_t i = 0; i < w->nlist; i++)
        listed |= w->list[i] == v;
    return w->relation == REL_ANY || (w->relation == REL_EQ && v == w->value) ||
           (w->relation == REL_LE && v <= w->value) || (w->relation == REL_GE && v >= w->value) ||
           (w->relation == REL_IN && listed);
}

static void loop_schedules(struct problem *x, struct cost *c, struct decision d)
{
    const struct wishes *w = &x->job->wishes;
    for (uint32_t i = 0; i < w->nschedules; i++)
        for (uint32_t vpp = 1; vpp <= 8; vpp++) {
            d.schedule = w->schedules[i].kind;
            d.vpp = vpp;
            d.schedule_group = w->schedules[i].group; /* named without one: of pp */
            if (!wants(x, DEG_VPP, vpp))
                continue;
            if (vpp > 4 && vpp != 8)
                continue;
            if (vpp > 1 && d.pp * vpp > x->job->model.nlayers)
                continue;
            if (d.schedule_group > d.microbatches)
                continue;
            if (d.pp == 1 && (i || vpp > 1))
                continue; /* no pipeline: one schedule stands for all */
            try_recompute(x, c, d);
        }
}

static void loop_states(struct problem *x, struct cost *c, struct decision d)
{
    uint32_t all = d.dp * d.cp, per_node = x->topo->types[0].gpus;
    struct group ranks = mesh_group(&c->mesh, 0, AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP));
    const struct wishes *w = &x->job->wishes;
    double most = w->degree[DEG_ZERO].relation == REL_ANY ? w->profile->zero_most : 3;
    for (d.zero = 0; d.zero <= most; d.zero++) {
        if (!wants(x, DEG_ZERO, d.zero))
            continue;
        for (d.shard = 1; d.shard <= all; d.shard++) {
            if (all % d.shard || (d.zero ? d.shard == 1 && all > 1 : d.shard > 1))
                continue;
            /* of the shards that stay within one level of the network only the largest */
            bool largest = true;
            uint32_t level = mesh_level(x->topo, d.nodes, per_node, 0, group_rank(&ranks, d.shard - 1));
            for (uint32_t v = d.shard + 1; v <= all && d.zero; v++)
                largest &= all % v != 0 || mesh_level(x->topo, d.nodes, per_node, 0, group_rank(&ranks, v - 1)) > level;
            if (!largest)
                continue;
            c->decision = &d;
            cost_set_shard(c);
            loop_schedules(x, c, d);
        }
        if (all == 1)
            return; /* nothing to split: all levels are one */
    }
}

/* the order that the plan block states, or one of the usual two */
static bool order_wanted(const struct problem *x, const enum axis order[NAXES])
{
    const struct wishes *w = &x->job->wishes;
    for (uint32_t i = 0; i < w->norder; i++)
        if (strcmp(w->order[i], axis_names[order[i]]))
            return false;
    return w->norder || (order[0] == AXIS_TP && order[1] == AXIS_CP);
}

static bool kept_in_node(const struct problem *x, const struct decision *d)
{
    uint32_t stride = 1;
    for (uint32_t i = 0; d->order[i] != AXIS_TP; i++)
        stride *= d->order[i] == AXIS_CP ? d->cp : d->order[i] == AXIS_DP ? d->dp : d->pp;
    uint32_t run = stride * d->tp, per_node = x->topo->types[0].gpus;
    for (uint32_t first = 0; first < d->gpus_used && d->tp > 1; first += run)
        if (first / per_node != (first + run - 1) / per_node)
            return false;
    return true;
}

static void loop_mesh(struct problem *x, struct decision d)
{
    const struct wishes *w = &x->job->wishes;
    uint32_t per_replica = (uint32_t)x->job->train.batch / d.dp;
    const char *why;
    if (!decision_place(x->a, x->topo, &d, &why))
        return;
    for (uint32_t code = 0; code < 256; code++) {
        for (uint32_t i = 0; i < NAXES; i++)
            d.order[i] = (enum axis)(code >> (6 - 2 * i) & 3);
        uint32_t seen = 0;
        for (uint32_t i = 0; i < NAXES; i++)
            seen |= 1u << d.order[i];
        if (seen != 15 || !order_wanted(x, d.order) || (w->nkeeps && !kept_in_node(x, &d)))
            continue;
        struct cost *c = ARENA_NEW(x->a, struct cost);
        cost_init(x->a, c, x->job, x->topo, &d, mesh_runs_new(x->a, x->topo, d.nodes, d.nnodes, x->topo->types[d.type].gpus), NULL, NULL);
        for (d.microbatch = 1; d.microbatch <= per_replica; d.microbatch++)
            for (int sp = 0; sp < 2; sp++)
                for (int context = CONTEXT_RING; context <= CONTEXT_ALL_TO_ALL; context++) {
                    d.sp = sp;
                    d.context = d.cp > 1 ? (enum context_kind)context : CONTEXT_AUTO;
                    d.microbatches = per_replica / d.microbatch;
                    if (per_replica % d.microbatch || !wants(x, DEG_MICROBATCH, d.microbatch) ||
                        (d.cp == 1 && context > CONTEXT_RING) ||
                        (d.cp > 1 && w->context != CONTEXT_AUTO && w->context != d.context))
                        continue;
                    if (d.tp > 1 && w->sequence_parallel == (sp ? TRI_NO : TRI_YES))
                        continue;
                    loop_states(x, c, d);
                }
    }
}

static void enumerate(struct problem *x)
{
    const struct attn *at = &x->job->model.layers[0]->attn;
    uint32_t gpus = (uint32_t)x->topo->usable_gpus, experts = x->job->model.layers[0]->is_moe ? 4 : 1;
    for (uint32_t tp = 1; tp <= gpus; tp++)
        for (uint32_t cp = 1; cp * 2048 <= x->job->train.sequence; cp *= 2)
            for (uint32_t pp = 1; pp <= x->job->model.nlayers; pp++)
                for (uint32_t dp = 1; dp <= x->job->train.batch; dp++)
                    for (uint32_t ep = 1; ep <= experts; ep++) {
                        uint64_t n = (uint64_t)tp * cp * pp * dp;
                        if (n > gpus || !wants(x, DEG_GPUS, n) || !wants(x, DEG_TP, tp) ||
                            !wants(x, DEG_CP, cp) || !wants(x, DEG_PP, pp) || x->job->train.batch % dp ||
                            at->heads % tp || (at->kv % tp && tp % at->kv) || tp * cp * dp % ep)
                            continue;
                        loop_mesh(x, (struct decision){.tp = tp,
                                                       .cp = cp,
                                                       .pp = pp,
                                                       .dp = dp,
                                                       .ep = ep,
                                                       .etp = 1,
                                                       .vpp = 1,
                                                       .gpus_used = (uint32_t)n,
                                                       .shard = 1});
                    }
}

/* Has the decision the loops' cut?  The search looks at its best candidates once more with virtual stages cut
 * as if each had a rank of its own. */
static bool cut_as_looped(struct problem *x, const struct decision *found)
{
    const struct model *m = &x->job->model;
    bool free_choice = x->job->wishes.recompute == RECOMPUTE_AUTO, same = true;
    struct decision d = *found;
    struct cost_shape plain;
    double *layer_s = ARENA_ARRAY(x->a, double, m->nlayers), embed_s, head_s;
    d.recompute = free_choice ? RECOMPUTE_NONE : d.recompute;
    d.parts = free_choice ? 0 : d.parts;
    cost_shape_init(x->a, cost_new(x->a, x->job, x->topo, &d), &x->kinds, &plain);
    cost_shape_layers(&plain, m->nlayers, layer_s, &embed_s, &head_s);
    decision_cut(x->a, &d, m->nlayers, layer_s, embed_s, head_s);
    for (uint32_t i = 0; i < d.nstages; i++)
        same &= d.stages[i].count == found->stages[i].count;
    return same;
}

static bool check(uint64_t seed, uint64_t budget, uint64_t *legal, double *widest)
{
    struct problem x = {.a = arena_new(), .best_s = INFINITY};
    uint64_t state = seed;
    x.job = text_job(x.a, random_model(x.a, &state));
    x.topo = read_cluster(x.a, random_cluster(x.a, &state));
    struct search_result *r = search(x.a, diag_new(x.a), x.job, x.topo, 1, budget, false);
    bool posed = space_new(x.a, diag_new(x.a), x.job, x.topo, false, &x.space);
    bool good = true;
    if (posed) {
        x.kinds = cost_kinds_new(x.a, &x.job->model);
        x.limit = r->memory_limit_bytes;
        enumerate(&x);
    }
    *legal += x.legal;
    good &= x.apart <= r->space && r->evaluated <= r->space && r->pruned <= r->space - r->evaluated;
    if (!good)
        printf("\nseed %llu: a space of %llu, %llu of it looked at, %llu ruled out; the loops have %llu\n",
               (unsigned long long)seed, (unsigned long long)r->space, (unsigned long long)r->evaluated,
               (unsigned long long)r->pruned, (unsigned long long)x.apart);
    if (r->ncandidates) {
        const struct candidate *c = &r->candidates[0];
        const char *why = "";
        double found_s = c->estimate.step_time_s *
                         (x.job->wishes.objective == MINIMIZE_GPU_TIME ? c->decision.gpus_used : 1);
        struct estimate e;
        predict(x.a, cost_new(x.a, x.job, x.topo, &c->decision), &e);
        *widest = fmax(*widest, r->gap);
        good &= decision_legal(x.a, x.job, x.topo, &c->decision, &why);
        good &= fabs(e.step_time_s - c->estimate.step_time_s) <= 1e-9 * e.step_time_s &&
                e.peak_bytes == c->estimate.peak_bytes;
        good &= e.peak_bytes <= x.limit && r->gap >= 0 && r->gap < 1;
        good &= found_s * (1 - r->gap) <= x.best_s * (1 + 1e-9); /* the certificate */
        good &=
            x.best_s <= found_s * (1 + 1e-9) || !cut_as_looped(&x, &c->decision); /* the loops have it, too */
        if (!good)
            printf("\nseed %llu: found %.9g s (%s), predicted %.9g, gap %.4f; the loops %.9g s (%s) %s\n",
                   (unsigned long long)seed, found_s, decision_text(x.a, x.job, &c->decision), e.step_time_s, r->gap,
                   x.best_s, isfinite(x.best_s) ? decision_text(x.a, x.job, &x.best) : "", why);
    } else if (budget == 0 && isfinite(x.best_s)) {
        printf("\nseed %llu: nothing found; the loops %.9g s (%s)\n", (unsigned long long)seed, x.best_s,
               decision_text(x.a, x.job, &x.best));
        good = false;
    }
    arena_free(x.a);
    return good;
}

static void test_certificate(void)
{
    uint32_t problems = test_draws(200, 40), bad = 0;
    uint64_t legal = 0, first = getenv("LLMC_SEED") ? strtoull(getenv("LLMC_SEED"), NULL, 10) : 1000; /* other problems */
    double widest = 0;
    for (uint32_t i = 0; i < problems; i++)
        bad += !check(first + i, i % 4 == 3 ? 100 : 0, &legal, &widest); /* every fourth is cut short */
    CU_ASSERT_EQUAL(bad, 0);
    CU_ASSERT(legal > 100 * problems); /* the loops do run */
    CU_ASSERT(widest > 0);             /* and some searches end early */
}

/* ---- large models: no bound rules out a decision that fits and is faster ---- */

static const struct {
    const char *model, *cluster;
    uint32_t gpus;
} large[] = {{"tests/cases/oracles/kimi-k2.llm", "topologies/h100-1024.xml", 512},
             {"tests/cases/oracles/glm-4.5.llm", "topologies/h100-1024.xml", 256},
             {"tests/cases/oracles/qwen3-235b-a22b.llm", "topologies/h100-1024.xml", 128},
             {"tests/cases/oracles/gpt-oss-120b.llm", "topologies/h100-1024.xml", 64},
             {"plans/deepseek-v3/model.llm", "topologies/h800-2048.xml", 512},
             {"plans/llama3-70b/model.llm", "topologies/a100-1024.xml", 64}};

static void pin(struct wishes *w, enum degree k, enum relation relation, uint64_t value)
{
    w->degree[k] = (struct wish){.relation = relation, .value = value};
}

/* A mesh, an order of axes, a microbatch and a schedule, drawn, as wishes, without ZeRO 2 and 3; false: there is no such mesh. */
static bool draw(struct problem *x, uint64_t *state, uint32_t gpus, struct decision *d)
{
    static const struct schedule_wish schedules[] = {{.kind = SCHED_1F1B}, {.kind = SCHED_INTERLEAVED}, {.kind = SCHED_ZB_H1},
                                                     {.kind = SCHED_COMBINED_1F1B}, {.kind = SCHED_DUALPIPE_V},
                                                     {.kind = SCHED_V_HALF}, {.kind = SCHED_ZB_V}, {.kind = SCHED_DUALPIPE}};
    static const uint32_t chunks[] = {1, 2, 1, 2, 2, 2, 2, 1};
    static const char *const orders[][NAXES] = {{"tp", "cp", "dp", "pp"}, {"tp", "cp", "pp", "dp"}, {"tp", "dp", "cp", "pp"}};
    struct wishes *w = &x->job->wishes;
    uint32_t k = random_below(state, ARRAY_LEN(schedules)), order = random_below(state, ARRAY_LEN(orders));
    *d = decision_single();
    d->tp = 1u << random_below(state, 4);
    d->cp = 1u << random_below(state, 2);
    d->pp = 2u << random_below(state, 4);
    d->ep = x->job->model.layers[x->job->model.nlayers - 1]->is_moe ? 4u << random_below(state, 4) : 1;
    d->dp = gpus / (d->tp * d->cp * d->pp);
    if (!d->dp || d->tp * d->cp * d->dp % d->ep || d->pp * chunks[k] > x->job->model.nlayers)
        return false;
    d->gpus_used = gpus;
    *w = (struct wishes){.recompute = RECOMPUTE_AUTO, .overlap = w->overlap, .profile_name = w->profile_name, .profile = w->profile};
    d->microbatch = 1u << random_below(state, 3);
    x->job->train.batch = (uint64_t)d->dp * d->microbatch * 2 * d->pp * (1 + random_below(state, 2));
    pin(w, DEG_TP, REL_EQ, d->tp);
    pin(w, DEG_CP, REL_EQ, d->cp);
    pin(w, DEG_PP, REL_EQ, d->pp);
    pin(w, DEG_EP, REL_EQ, d->ep);
    pin(w, DEG_ETP, REL_EQ, 1);
    pin(w, DEG_GPUS, REL_EQ, gpus);
    pin(w, DEG_VPP, REL_EQ, chunks[k]);
    pin(w, DEG_MICROBATCH, REL_EQ, d->microbatch);
    pin(w, DEG_ZERO, REL_LE, 1);
    w->sequence_parallel = d->tp > 1 ? TRI_YES : TRI_AUTO;
    w->context = d->cp > 1 ? CONTEXT_ALL_GATHER : CONTEXT_AUTO;
    w->schedules = memcpy(ARENA_NEW(x->a, struct schedule_wish), &schedules[k], sizeof schedules[k]);
    w->nschedules = 1;
    for (uint32_t i = 0; i < NAXES; i++)
        w->order[i] = orders[order][i];
    w->norder = NAXES;
    return true;
}

/* the search and the loops step to the most spared layers that fit in ways of their own */
#define SPARED 0.015

/* the drawn decision's kinds of recomputation and states, each with its schedule run, against the search of the same */
static bool check_large(uint32_t i, uint64_t *state, uint32_t *found)
{
    struct problem x = {.a = arena_new(), .best_s = INFINITY};
    struct diag *diag = diag_new(x.a);
    struct decision d;
    bool good = true;
    x.job = job_read(x.a, diag, large[i].model, NULL, 0);
    x.topo = topo_read(x.a, diag, large[i].cluster);
    CU_ASSERT_FATAL(x.job && x.topo);
    if (draw(&x, state, large[i].gpus, &d) && space_new(x.a, diag, x.job, x.topo, false, &x.space)) {
        struct search_result *r = search(x.a, diag, x.job, x.topo, 1, 0, false);
        x.kinds = cost_kinds_new(x.a, &x.job->model);
        x.limit = cost_memory_limit(x.job, &x.topo->types[0].gpu);
        loop_mesh(&x, d);
        double found_s = r->ncandidates ? r->candidates[0].estimate.step_time_s : INFINITY;
        good = !(found_s * (1 - r->gap) > x.best_s * (1 + SPARED));
        *found += isfinite(x.best_s) ? 1 : 0;
        if (!good)
            printf("\n%s: found %.9g s (%s), gap %.4f; the loops %.9g s (%s)\n", large[i].model, found_s,
                   decision_text(x.a, x.job, &r->candidates[0].decision), r->gap, x.best_s,
                   decision_text(x.a, x.job, &x.best));
    }
    arena_free(x.a);
    return good;
}

static void test_large(void)
{
    uint32_t draws = test_draws(40, 8), bad = 0, found = 0;
    uint64_t state = getenv("LLMC_SEED") ? strtoull(getenv("LLMC_SEED"), NULL, 10) : 7;
    for (uint32_t k = 0; k < draws; k++)
        for (uint32_t i = 0; i < ARRAY_LEN(large); i++)
            bad += !check_large(i, &state, &found);
    CU_ASSERT_EQUAL(bad, 0);
    CU_ASSERT(found > draws / 2);
}

void suite_certificate(void);
void suite_certificate(void)
{
    CU_pSuite s = CU_add_suite("certificate", NULL, NULL);
    CU_add_test(s, "no bound rules out what fits", test_large);
    CU_add_test(s, "nothing is better than the gap allows", test_certificate);
}
