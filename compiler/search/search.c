/* Branch and bound over decisions.
 *
 * Meshes come most GPUs first.  Meshes of one GPU count are expanded together into families: a mesh with a microbatch,
 * recomputation, sequence parallelism, context kind and expert degrees.  A family's cost shape gives a bound on its step
 * time, m * (all blocks) / p, from below; families are evaluated in the order of that bound, with every schedule, ZeRO
 * level and number of chunks, until the bound passes the worst candidate kept.  A GPU count whose dense products alone,
 * at full efficiency, take longer than that is not expanded at all.  So without a budget the result is the best of the
 * whole space under the closed form, and with one the gap says how far it may be from it.
 *
 * Order of candidates: step time (or GPU-seconds), raised by up to 0.5 % with the share of memory used, so that of
 * equally fast plans the leaner wins; then degrees, so that no tie is left to chance. */

#include "compiler/search/search_private.h"

#include "compiler/support/vec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUDGET_DEFAULT 400000

static double objective(const struct searching *s, const struct candidate *c)
{
    double used = (double)c->estimate.peak_bytes / (double)(s->memory_limit ? s->memory_limit : 1);
    double t = c->estimate.step_time_s * (1 + 0.005 * fmin(1, used));
    return s->job->wishes.objective == MINIMIZE_GPU_TIME ? t * c->decision.gpus_used : t;
}

static int compare_candidates(const struct searching *s, const struct candidate *x, const struct candidate *y)
{
    double a = objective(s, x), b = objective(s, y);
    if (a != b)
        return a < b ? -1 : 1;
    const struct decision *p = &x->decision, *q = &y->decision;
    const uint32_t u[] = {p->gpus_used, p->tp, p->cp, p->pp, p->ep, p->etp, p->zero, p->vpp, p->recompute, p->microbatch,
                          p->schedule == SCHED_GPIPE ? NSCHEDULES : p->schedule, p->sp, p->context, p->order[2]};
    const uint32_t v[] = {q->gpus_used, q->tp, q->cp, q->pp, q->ep, q->etp, q->zero, q->vpp, q->recompute, q->microbatch,
                          q->schedule == SCHED_GPIPE ? NSCHEDULES : q->schedule, q->sp, q->context, q->order[2]};
    for (size_t i = 0; i < ARRAY_LEN(u); i++)
        if (u[i] != v[i])
            return u[i] < v[i] ? -1 : 1;
    return 0;
}

static double worst_kept(const struct searching *s)
{
    return s->result->ncandidates < s->top ? INFINITY : objective(s, &s->result->candidates[s->top - 1]);
}

static void keep_candidate(struct searching *s, const struct candidate *c)
{
    struct search_result *r = s->result;
    uint32_t at = r->ncandidates;
    while (at > 0 && compare_candidates(s, c, &r->candidates[at - 1]) < 0)
        at--;
    if (at >= s->top)
        return;
    uint32_t moved = (r->ncandidates < s->top ? r->ncandidates : s->top - 1) - at;
    memmove(&r->candidates[at + 1], &r->candidates[at], moved * sizeof *c);
    r->candidates[at] = *c;
    if (r->ncandidates < s->top)
        r->ncandidates++;
}

static bool same_group(const struct cost_group *a, const struct cost_group *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* the cached shape of a family */
static struct search_shape *find_shape(struct searching *s, const struct cost *c)
{
    const struct decision *d = c->decision;
    const struct shape_key key = {d->tp, d->cp, d->ep, d->etp, d->microbatch, d->recompute, d->sp, d->context};
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < sizeof key; i++)
        hash = (hash ^ ((const uint8_t *)&key)[i]) * 1099511628211u;
    struct search_shape **slot = &s->shapes[hash % ARRAY_LEN(s->shapes)];
    uint32_t tp = AXIS_BIT(AXIS_TP), cp = AXIS_BIT(AXIS_CP);
    for (struct search_shape *h = *slot; h; h = h->next)
        if (memcmp(&h->key, &key, sizeof key) == 0 && same_group(&h->tp, &c->group[tp]) &&
            same_group(&h->cp, &c->group[cp]) && same_group(&h->ep, &c->ep))
            return h;
    struct search_shape *h = ARENA_NEW(s->arena, struct search_shape);
    *h = (struct search_shape){.key = key, .tp = c->group[tp], .cp = c->group[cp], .ep = c->ep, .next = *slot};
    cost_shape_init(s->arena, c, &s->kinds, &h->shape);
    uint32_t n = s->job->model.nlayers;
    h->layer_s = ARENA_ARRAY(s->arena, double, n ? n : 1);
    cost_shape_layers(&h->shape, n, h->layer_s, &h->embed_s, &h->head_s);
    h->total_s = h->embed_s + h->head_s;
    for (uint32_t i = 0; i < n; i++)
        h->total_s += h->layer_s[i];
    *slot = h;
    return h;
}

/* stages of a shape, cut once per number of stages (or the layout that the file gives) */
static const struct search_cut *find_cut(struct searching *s, struct search_shape *h, struct decision *d)
{
    uint32_t nstages = d->pp * d->vpp;
    for (struct search_cut *cut = h->cuts; cut; cut = cut->next)
        if (cut->nstages == nstages)
            return cut;
    struct search_cut *cut = ARENA_NEW(s->arena, struct search_cut);
    if (s->layout_stages) {
        cut->stages = s->layout_stages;
    } else {
        decision_cut(s->arena, d, s->job->model.nlayers, h->layer_s, h->embed_s, h->head_s);
        cut->stages = d->stages;
    }
    struct decision spared = {.nstages = nstages, .stages = cut->stages, .recompute_layers = d->recompute_layers};
    decision_spare(&spared);
    cut->nstages = nstages;
    cut->next = h->cuts;
    h->cuts = cut;
    return cut;
}

static bool within_limits(const struct searching *s, const struct estimate *e)
{
    const struct wishes *w = &s->job->wishes;
    const struct train *t = &s->job->train;
    if (w->step_time_s > 0 && e->step_time_s > w->step_time_s)
        return false;
    if (w->finish_s > 0 && t->total > 0 &&
        t->total / ((double)t->batch * (double)t->sequence) * e->step_time_s > w->finish_s)
        return false;
    return true;
}

/* one decision, complete and legal */
static void evaluate(struct searching *s, struct cost *c, struct search_shape *h, const struct decision *d)
{
    struct search_result *r = s->result;
    struct candidate x = {.decision = *d};
    const char *why;
    c->decision = &x.decision;
    r->evaluated++;
    cost_memory(c, &h->shape, &x.estimate);
    if (x.estimate.peak_bytes > s->memory_limit) {
        r->infeasible_memory++;
        if (!r->has_closest || x.estimate.peak_bytes < r->closest.estimate.peak_bytes)
            r->closest = x;
        r->has_closest = true;
        return;
    }
    cost_time(c, &h->shape, s->ranks, s->stages, &x.estimate);
    if (!within_limits(s, &x.estimate)) {
        s->too_slow++;
        if (s->fastest_s <= 0 || x.estimate.step_time_s < s->fastest_s)
            s->fastest_s = x.estimate.step_time_s;
        return;
    }
    if (objective(s, &x) >= worst_kept(s))
        return;
    x.emittable = decision_emittable(s->arena, s->job, d, &why);
    x.cannot = x.emittable ? NULL : why;
    s->cannot = x.cannot ? x.cannot : s->cannot;
    if (x.emittable || !s->space.emit_only)
        keep_candidate(s, &x);
}

static bool schedule_takes(const struct searching *s, const struct decision *d)
{
    bool v_shape = cost_v_placement(d->schedule);
    bool looped = d->schedule == SCHED_INTERLEAVED || d->schedule == SCHED_COMBINED_1F1B;
    if (v_shape || looped ? d->vpp < 2 || d->pp < 2 || (v_shape && d->vpp != 2) : d->vpp != 1)
        return false;
    if (d->pp == 1) /* 1f1b alternates F and B; without a pipeline the others are no different or keep more */
        return d->schedule == s->space.schedules[0];
    if (d->schedule == SCHED_DUALPIPE)
        return d->pp % 2 == 0 && d->microbatches >= 2 * d->pp;
    if (looped && d->schedule_group && (d->schedule_group < d->pp || d->schedule_group > d->microbatches))
        return false;
    uint32_t group = d->schedule_group ? d->schedule_group : d->pp, rest = d->microbatches % group;
    return !looped || d->microbatches <= group || rest == 0 || rest >= d->pp;
}

static void evaluate_family(struct searching *s, const struct family *f)
{
    struct decision d = f->decision;
    struct cost c = *f->cost;
    for (uint32_t z = 0; z < s->space.zero.n; z++) {
        d.zero = s->space.zero.at[z];
        uint32_t all = d.dp * d.cp, n = 0, shards[2];
        const struct wish *w = &s->job->wishes.degree[DEG_SHARD];
        if (w->relation == REL_ANY || space_wants(w, d.zero ? all : 1))
            shards[n++] = d.zero ? all : 1;
        else
            for (uint32_t v = d.zero ? all : 0; v >= 1 && n < 1; v--)
                if (all % v == 0 && space_wants(w, v))
                    shards[n++] = v;
        for (uint32_t i = 0; i < n; i++) {
            d.shard = shards[i];
            c.decision = &d;
            cost_set_shard(&c);
            for (uint32_t v = 0; v < s->space.vpp.n; v++) {
                d.vpp = s->space.vpp.at[v];
                if ((uint64_t)d.pp * d.vpp > s->job->model.nlayers && d.vpp > 1 && !s->layout_stages)
                    continue;
                if (s->layout_stages && d.pp * d.vpp != s->layout_nstages)
                    continue;
                const struct search_cut *cut = find_cut(s, f->shape, &d);
                d.nstages = cut->nstages;
                d.stages = cut->stages;
                for (uint32_t k = 0; k < s->space.nschedules; k++) {
                    d.schedule = s->space.schedules[k];
                    d.schedule_group = d.vpp > 1 ? s->space.groups[k] : 0;
                    if (!schedule_takes(s, &d))
                        continue;
                    s->result->space++;
                    evaluate(s, &c, f->shape, &d);
                }
            }
        }
    }
}

static void add_family(struct searching *s, struct cost *c, struct decision *d)
{
    c->decision = d;
    struct search_shape *h = find_shape(s, c);
    double bound = h->total_s * d->microbatches / d->pp;
    if (s->job->wishes.objective == MINIMIZE_GPU_TIME)
        bound *= d->gpus_used;
    if (bound > worst_kept(s)) {
        s->result->pruned++;
        return;
    }
    vec_push(s->arena, &s->families, (struct family){*d, c, h, bound, (uint32_t)s->families.n});
}

/* recomputation, sequence parallelism and context kind of a mesh with a microbatch and expert degrees */
static void add_kinds(struct searching *s, struct cost *c, struct decision *d)
{
    const struct wishes *w = &s->job->wishes;
    for (int sp = 0; sp < 2; sp++) {
        d->sp = sp;
        if (sp && (d->tp == 1 || s->job->train.sequence / d->cp * d->microbatch % d->tp))
            continue;
        /* with tp = 1 there is nothing to split, whatever is asked for */
        if (d->tp > 1 && ((sp && w->sequence_parallel == TRI_NO) || (!sp && w->sequence_parallel == TRI_YES)))
            continue;
        for (uint32_t i = 0; i < s->space.nrecompute; i++) {
            d->recompute = s->space.recompute[i];
            d->parts = d->recompute == RECOMPUTE_SELECTIVE ? (w->parts ? w->parts : PART_CORE_ATTN) : 0;
            d->recompute_layers = d->recompute == RECOMPUTE_FULL ? w->recompute_layers : 0;
            for (int k = CONTEXT_RING; k <= CONTEXT_ALL_TO_ALL; k++) {
                d->context = d->cp > 1 ? (enum context_kind)k : CONTEXT_AUTO;
                if (d->cp > 1 && w->context != CONTEXT_AUTO && (int)w->context != k)
                    continue;
                if (d->cp == 1 && k != CONTEXT_RING)
                    continue;
                const struct attn *t = &s->job->model.layers[0]->attn;
                if (d->context == CONTEXT_ALL_TO_ALL && (t->heads / d->tp % d->cp || t->kv / d->tp % d->cp))
                    continue;
                add_family(s, c, d);
            }
        }
    }
}

/* the same degrees in another order of axes cost the same */
static bool same_transfers(const struct cost *a, const struct cost *b)
{
    const uint32_t masks[] = {AXIS_BIT(AXIS_TP), AXIS_BIT(AXIS_CP), AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)};
    if (!a || a->mesh.size[AXIS_TP] != b->mesh.size[AXIS_TP] || a->mesh.size[AXIS_CP] != b->mesh.size[AXIS_CP] ||
        a->mesh.size[AXIS_DP] != b->mesh.size[AXIS_DP] || a->mesh.size[AXIS_PP] != b->mesh.size[AXIS_PP])
        return false;
    for (size_t i = 0; i < ARRAY_LEN(masks); i++)
        if (!same_group(&a->group[masks[i]], &b->group[masks[i]]))
            return false;
    return a->next_level == b->next_level && same_group(&a->tie, &b->tie) && same_group(&a->ep, &b->ep);
}

static void add_mesh(struct searching *s, const struct space_mesh *m)
{
    const struct wish *w = &s->job->wishes.degree[DEG_MICROBATCH];
    uint64_t per_replica = s->job->train.batch / m->dp;
    struct decision d = {.tp = m->tp, .cp = m->cp, .dp = m->dp, .pp = m->pp, .vpp = 1, .ep = 1, .etp = 1, .shard = 1};
    if (s->layout_stages && s->layout_nstages % m->pp)
        return;
    for (uint32_t e = 0; e < s->space.ep.n; e++)
        for (uint32_t t = 0; t < s->space.etp.n; t++) {
            d.ep = s->space.ep.at[e];
            d.etp = s->space.etp.at[t];
            if ((uint64_t)d.tp * d.cp * d.dp % ((uint64_t)d.ep * d.etp) || !space_place(&s->space, m->order, &d))
                continue;
            struct cost *c = ARENA_NEW(s->arena, struct cost);
            cost_init(c, s->job, s->topo, &d, false);
            if (m->order == 0)
                s->first_order = c;
            else if (same_transfers(s->first_order, c))
                continue; /* the axes' order makes no difference here */
            bool given = w->relation == REL_EQ;
            for (uint64_t b = given ? w->value : 1; b <= per_replica && b <= (given ? w->value : 4096); b++) {
                if (per_replica % b || per_replica / b > INT32_MAX || !space_wants(w, b))
                    continue;
                if (w->relation == REL_ANY && b > 1 && b * s->job->train.sequence / m->cp > 256 * 1024)
                    break; /* products are long since large enough */
                d.microbatch = (uint32_t)b;
                d.microbatches = (uint32_t)(per_replica / b);
                add_kinds(s, c, &d);
            }
        }
}

static int compare_families(const void *x, const void *y)
{
    const struct family *a = x, *b = y;
    if (a->bound != b->bound)
        return a->bound < b->bound ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static uint64_t mesh_gpus(const struct space_mesh *m)
{
    return (uint64_t)m->tp * m->cp * m->dp * m->pp;
}

static int compare_meshes(const void *x, const void *y)
{
    const struct space_mesh *a = x, *b = y;
    uint64_t n = mesh_gpus(a), m = mesh_gpus(b);
    if (n != m)
        return n > m ? -1 : 1;
    const uint32_t u[] = {a->tp, a->cp, a->pp, a->order}, v[] = {b->tp, b->cp, b->pp, b->order};
    for (size_t i = 0; i < ARRAY_LEN(u); i++)
        if (u[i] != v[i])
            return u[i] < v[i] ? -1 : 1;
    return 0;
}

/* no plan on n GPUs is faster than its dense products at full efficiency */
static double ideal_s(const struct searching *s, uint64_t n)
{
    double t = s->dense_flops / ((double)n * s->flop_s);
    return s->job->wishes.objective == MINIMIZE_GPU_TIME ? t * (double)n : t;
}

static void run_families(struct searching *s)
{
    struct search_result *r = s->result;
    if (s->families.n == 0)
        return;
    qsort(s->families.at, s->families.n, sizeof *s->families.at, compare_families);
    for (size_t i = 0; i < s->families.n; i++) {
        const struct family *f = &s->families.at[i];
        if (f->bound > worst_kept(s)) {
            r->pruned += s->families.n - i;
            break;
        }
        if (r->evaluated >= s->budget) {
            s->cut_short = true;
            s->rest_bound = fmin(s->rest_bound, f->bound);
            break;
        }
        evaluate_family(s, f);
    }
    s->families.n = 0;
}

static void run_meshes(struct searching *s)
{
    struct space_mesh *meshes;
    uint32_t n = space_meshes(s->arena, &s->space, &meshes);
    if (n)
        qsort(meshes, n, sizeof *meshes, compare_meshes);
    s->nmeshes = n;
    for (uint32_t i = 0; i < n;) {
        uint64_t gpus = mesh_gpus(&meshes[i]);
        uint32_t end = i;
        while (end < n && mesh_gpus(&meshes[end]) == gpus)
            end++;
        if (ideal_s(s, gpus) > worst_kept(s)) {
            s->result->pruned += end - i;
        } else if (s->result->evaluated >= s->budget) {
            s->cut_short = true;
            s->rest_bound = fmin(s->rest_bound, ideal_s(s, gpus));
        } else {
            for (; i < end; i++)
                add_mesh(s, &meshes[i]);
            run_families(s);
        }
        i = end;
    }
}

static uint64_t memory_limit(const struct searching *s)
{
    const struct topo_gpu *gpu = &s->topo->types[s->space.type].gpu;
    uint64_t limit = gpu->memory_bytes > gpu->reserve_bytes ? gpu->memory_bytes - gpu->reserve_bytes : 0;
    uint64_t wish = s->job->wishes.memory;
    return wish && wish < limit ? wish : limit;
}

/* wishes that a search takes as given: the layout; false after an error */
static bool read_layout(struct searching *s, struct diag *d)
{
    const struct wishes *w = &s->job->wishes;
    if (!w->layout)
        return true;
    struct decision x = {0};
    const char *why;
    if (!decision_parse_layout(s->arena, &x, s->job->model.nlayers, w->layout, &why)) {
        diag_error(d, w->layout_span, "no-plan", "no plan: %s", why);
        return false;
    }
    s->layout_stages = x.stages;
    s->layout_nstages = x.nstages;
    return true;
}

static double dense_flop_s(const struct searching *s)
{
    const struct topo_gpu *gpu = &s->topo->types[s->space.type].gpu;
    double most = 0;
    for (int i = 0; i < NTOPO_DTYPES; i++)
        most = fmax(most, s->job->train.precision == DT_FP32 && i != TOPO_FP32 ? 0 : gpu->peak_flop_s[i]);
    return most > 0 ? most : 1e30;
}

bool search_run(struct searching *s, struct diag *d)
{
    struct search_result *r = s->result;
    if (!space_new(s->arena, d, s->job, s->topo, s->emit_only, &s->space) || !read_layout(s, d))
        return false;
    s->memory_limit = r->memory_limit_bytes = memory_limit(s);
    r->candidates = ARENA_ARRAY(s->arena, struct candidate, s->top + 1);
    s->kinds = cost_kinds_new(s->arena, &s->job->model);
    s->ranks = ARENA_ARRAY(s->arena, struct cost_stage, s->job->model.nlayers + 3);
    s->stages = ARENA_ARRAY(s->arena, struct pipeline_stage, s->job->model.nlayers + 3);
    s->flop_s = dense_flop_s(s);
    const struct train *t = &s->job->train;
    for (uint32_t i = 0; i < s->job->model.nlayers; i++)
        s->dense_flops += expand_matmul_flops(s->kinds.layers[s->kinds.kind[i]]);
    s->dense_flops = 3 * (s->dense_flops + expand_matmul_flops(s->kinds.head)) * (double)t->sequence * (double)t->batch;
    s->rest_bound = INFINITY;
    run_meshes(s);
    if (s->cut_short && r->ncandidates) {
        double best = objective(s, &r->candidates[0]);
        r->gap = s->rest_bound < best ? (best - s->rest_bound) / best : 0;
    }
    return true;
}

struct search_result *search(struct arena *a, struct diag *d, const struct job *job, const struct topo *topo, uint32_t top,
                             uint64_t budget, bool emit_only)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    struct searching s = {.arena = a, .job = job, .topo = topo, .emit_only = emit_only, .top = top ? top : 1,
                          .budget = budget ? budget : BUDGET_DEFAULT, .result = ARENA_NEW(a, struct search_result)};
    if (search_emit_ready(&s, d) && search_run(&s, d) && s.result->ncandidates == 0)
        search_blame(&s, d);
    clock_gettime(CLOCK_MONOTONIC, &end);
    s.result->seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    return s.result;
}
