/* Changed requests: some nodes more or fewer for a plan that exists; for a request that nothing satisfies,
 * every single change that something would, with its price.
 *
 * A change drops one wish of the plan block, keeps the optimizer's state on the host, names a node type, or
 * adds nodes (by doubling, then bisection to an eighth).  Each is a search of its own on a small budget, so a
 * price is an upper bound. */

#include "compiler/inspect/explain_private.h"
#include "compiler/support/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRIAL_BUDGET 100000
#define NODES_BUDGET 20000 /* is there any plan at all? */
#define MOST_NODES (1u << 17)

/* n items, with room for `more` behind them */
static void *own_list(struct arena *a, const void *list, size_t n, size_t more, size_t size)
{
    void *copy = arena_array(a, n + more ? n + more : 1, size);
    if (n)
        memcpy(copy, list, n * size);
    return copy;
}

struct topo *explain_topo(struct arena *a, const struct topo *t, uint32_t more)
{
    struct topo *copy = ARENA_NEW(a, struct topo);
    *copy = *t;
    copy->types = own_list(a, t->types, t->ntypes, 0, sizeof *t->types);
    copy->nodes = own_list(a, t->nodes, t->nnodes, more, sizeof *t->nodes);
    copy->tiers = own_list(a, t->tiers, t->ntiers, 0, sizeof *t->tiers);
    copy->measured = own_list(a, t->measured, t->nmeasured, 0, sizeof *t->measured);
    return copy;
}

/* the cluster with n more nodes of a type behind its last one; NULL where that has no meaning */
static struct topo *with_nodes(struct arena *a, const struct topo *t, uint32_t type, uint32_t n)
{
    const struct topo_node_type *y = &t->types[type];
    if (t->torus_dims || y->nic_bytes_s_per_gpu <= 0 || t->nnodes + (uint64_t)n > MOST_NODES)
        return NULL;
    struct topo *copy = explain_topo(a, t, n);
    copy->types[type].nnodes += n;
    for (uint32_t i = type + 1; i < t->ntypes; i++)
        copy->types[i].first_domain += (n + y->scale_up.span - 1) / y->scale_up.span;
    copy->nnodes += n;
    for (uint32_t i = 0; i < n; i++)
        copy->nodes[t->nnodes + i] = (struct topo_node){
            .name = "one more", .type = type, .ordinal = y->nnodes + i, .nic_factor = 1, .compute_factor = 1};
    for (uint32_t i = 0; i < t->ntiers; i++) {
        struct topo_tier *tier = &copy->tiers[i];
        if (i + 1 == t->ntiers && tier->span < copy->nnodes)
            tier->span = copy->nnodes;
        if (!tier->group_of)
            continue;
        uint32_t *groups = ARENA_ARRAY(a, uint32_t, copy->nnodes);
        for (uint32_t k = 0; k < copy->nnodes; k++)
            groups[k] = tier->group_of[k < t->nnodes ? k : t->nnodes - 1];
        tier->group_of = groups;
    }
    copy->gpus += (uint64_t)n * y->gpus;
    copy->usable_gpus += (uint64_t)n * y->gpus;
    return copy;
}

static struct topo *without_node(struct arena *a, const struct topo *t, uint32_t node)
{
    struct topo *copy = explain_topo(a, t, 0);
    copy->nodes[node].state = NODE_EXCLUDED;
    copy->usable_gpus -= t->types[t->nodes[node].type].gpus;
    return copy;
}

/* the cluster with a node of the type back that is excluded, spare or short of a GPU; NULL if there is none
 */
static struct topo *with_node_back(struct arena *a, const struct topo *t, uint32_t type, const char **name)
{
    for (uint32_t i = 0; i < t->nnodes; i++) {
        const struct topo_node *node = &t->nodes[i];
        if (node->type != type || (node->state == NODE_USABLE && !node->excluded_gpus))
            continue;
        struct topo *copy = explain_topo(a, t, 0);
        copy->nodes[i].state = NODE_USABLE;
        copy->nodes[i].excluded_gpus = 0;
        copy->usable_gpus += t->types[type].gpus;
        *name = node->reason ? arena_printf(a, "%s back (%s)", node->name, node->reason)
                             : arena_printf(a, "%s back", node->name);
        return copy;
    }
    return NULL;
}

/* the best plan of a changed request; false if there is none */
static bool try_change(struct explanation *x, const struct job *job, const struct topo *topo, struct explain_change *c)
{
    const struct search_result *r = search(x->arena, diag_new(x->arena), job, topo, 1, TRIAL_BUDGET, x->emit_only);
    if (!r->ncandidates)
        return false;
    c->candidate = r->candidates[0];
    c->how = decision_text(x->arena, x->job, &c->candidate.decision);
    vec_push(x->arena, &x->changes, *c);
    return true;
}

static struct job with_gpus(const struct explanation *x, enum relation relation, uint64_t gpus)
{
    struct job job = *x->job;
    job.wishes.degree[DEG_GPUS].relation = relation;
    job.wishes.degree[DEG_GPUS].value = gpus;
    return job;
}

/* exactly so many: of 'gpus = N' some may be left over */
static struct job with_exactly(const struct explanation *x, uint64_t gpus)
{
    struct job job = with_gpus(x, REL_IN, gpus);
    uint64_t *list = ARENA_NEW(x->arena, uint64_t);
    *list = gpus;
    job.wishes.degree[DEG_GPUS].list = list;
    job.wishes.degree[DEG_GPUS].nlist = 1;
    return job;
}

static double gpu_seconds(const struct candidate *c)
{
    return c->estimate.step_time_s * c->decision.gpus_used;
}

/* is it worth telling: more nodes that pay for themselves, fewer that lose nothing or are cheaper */
static bool worthwhile(const struct explanation *x, const struct candidate *c)
{
    if (c->decision.gpus_used > x->chosen.decision.gpus_used)
        return gpu_seconds(c) < 0.995 * gpu_seconds(&x->chosen);
    return c->estimate.step_time_s < 1.005 * x->chosen.estimate.step_time_s ||
           gpu_seconds(c) < 0.98 * gpu_seconds(&x->chosen);
}

/* back: the node that is back, as its name says, or NULL */
static bool try_nodes(struct explanation *x, const struct job *job, const struct topo *t, const char *back)
{
    struct explain_change c = {0};
    if (!t || !try_change(x, job, t, &c))
        return false;
    struct explain_change *last = &x->changes.at[x->changes.n - 1];
    if (!worthwhile(x, &last->candidate)) {
        x->changes.n--;
        return false;
    }
    int64_t more = (int64_t)last->candidate.decision.nnodes - (int64_t)x->chosen.decision.nnodes;
    struct units_text gpus = units_show_count(last->candidate.decision.gpus_used, "GPU");
    last->bigger = more > 0;
    if (back)
        last->what = arena_printf(x->arena, "with %s, %s", back, gpus.s);
    else
        last->what = arena_printf(x->arena, "%s %s, %s", units_show_count((uint64_t)llabs(more), "node").s,
                                  more > 0 ? "more" : "fewer", gpus.s);
    return true;
}

void explain_nodes(struct explanation *x)
{
    const struct decision *d = &x->chosen.decision;
    const struct topo_node_type *y = &x->topo->types[d->type];
    uint32_t *nodes, usable = topo_usable(x->arena, x->topo, d->type, &nodes), more = d->nnodes / 8 ? d->nnodes / 8 : 1;
    if (d->gpus_used % y->gpus)
        return;
    struct job one = with_exactly(x, (uint64_t)(d->nnodes + 1) * y->gpus);
    const char *back = NULL;
    const struct topo *grown = usable > d->nnodes ? x->topo : with_node_back(x->arena, x->topo, d->type, &back);
    grown = grown ? grown : with_nodes(x->arena, x->topo, d->type, 1);
    if (!try_nodes(x, &one, grown, back) && more > 1) { /* an eighth more at most, whatever number is cheapest */
        struct job any = with_gpus(x, REL_GE, (uint64_t)(d->nnodes + 1) * y->gpus);
        any.wishes.objective = MINIMIZE_GPU_TIME;
        uint32_t missing = d->nnodes + more > usable ? d->nnodes + more - usable : 0;
        if (usable <= d->nnodes + more)
            try_nodes(x, &any, missing ? with_nodes(x->arena, x->topo, d->type, missing) : x->topo, NULL);
    }
    if (d->nnodes < 2)
        return;
    struct job fewer = with_gpus(x, REL_GE, (uint64_t)(d->nnodes - more) * y->gpus);
    fewer.wishes.objective = MINIMIZE_GPU_TIME;
    if (usable == d->nnodes)
        try_nodes(x, &fewer, without_node(x->arena, x->topo, d->nodes[d->nnodes - 1]), NULL);
}

/* ---- what would make an impossible request possible ---- */

static void rescue_by_wishes(struct explanation *x)
{
    struct relaxation *list;
    uint32_t n = search_relaxations(x->arena, x->job, x->topo, x->emit_only, TRIAL_BUDGET, &list);
    for (uint32_t i = 0; i < n; i++) {
        if (!list[i].found || !strcmp(list[i].wish, degree_names[DEG_GPUS])) /* rescue_by_nodes() says how many */
            continue;
        struct explain_change c = {.what = arena_printf(x->arena, "without '%s'", list[i].wish),
                                   .candidate = list[i].candidate};
        c.how = decision_text(x->arena, x->job, &c.candidate.decision);
        vec_push(x->arena, &x->changes, c);
    }
}

/* where no single wish is to blame */
static void rescue_by_all(struct explanation *x)
{
    struct job job = *x->job;
    struct wishes *w = &job.wishes;
    if (x->changes.n)
        return;
    memset(w->degree, 0, sizeof w->degree);
    w->nkeeps = w->norder = w->nschedules = 0;
    w->layout = NULL;
    w->sequence_parallel = TRI_AUTO;
    w->context = CONTEXT_AUTO;
    w->recompute = RECOMPUTE_AUTO;
    w->memory = 0;
    w->frees = false;
    w->step_time_s = w->finish_s = 0;
    struct explain_change c = {.what = "without any of the plan block's wishes"};
    try_change(x, &job, x->topo, &c);
}

/* the request on n nodes of a type, the cluster's own ones first; NULL where it can't have so many */
static const struct topo *nodes_for(struct explanation *x, uint32_t type, uint32_t usable, uint32_t n, struct job *job)
{
    *job = with_gpus(x, REL_LE, (uint64_t)n * x->topo->types[type].gpus);
    return n <= usable ? x->topo : with_nodes(x->arena, x->topo, type, n - usable);
}

static bool enough_nodes(struct explanation *x, uint32_t type, uint32_t usable, uint32_t n, bool *possible)
{
    struct arena_mark mark = arena_mark(x->arena);
    struct job job;
    const struct topo *t = nodes_for(x, type, usable, n, &job);
    *possible = t != NULL;
    bool found = t && search(x->arena, diag_new(x->arena), &job, t, 1, NODES_BUDGET, x->emit_only)->ncandidates;
    arena_reset(x->arena, mark);
    return found;
}

/* how much faster a step must be than the fastest plan's, if a limit on time is what nothing meets; else 1 */
static double times_faster(const struct explanation *x)
{
    const struct wishes *w = &x->job->wishes;
    const struct train *t = &x->job->train;
    double limit = w->step_time_s;
    if (w->finish_s > 0 && t->total > 0) {
        double own = w->finish_s * (double)t->batch * (double)t->sequence / t->total;
        limit = limit > 0 ? fmin(limit, own) : own;
    }
    double most = 1;
    for (size_t i = 0; i < x->changes.n && limit > 0; i++)
        most = fmax(most, x->changes.at[i].candidate.estimate.step_time_s / limit);
    return most;
}

/* The least number of nodes with a plan, above `from`, to an eighth; 0 = none found.  Under a limit on time
 * nothing scales better than evenly, so that is where to begin, in steps of a quarter; else by doubling, then
 * bisection. */
static uint32_t least_nodes(struct explanation *x, uint32_t type, uint32_t usable, uint32_t from)
{
    bool possible = true;
    uint32_t low = from, high = 0;
    double evenly = ceil(from * times_faster(x));
    if (evenly > from) {
        for (double n = evenly; possible && n <= 2 * evenly && n <= MOST_NODES; n = ceil(1.25 * n))
            if (enough_nodes(x, type, usable, (uint32_t)n, &possible))
                return (uint32_t)n;
        return 0;
    }
    for (uint64_t n = 2 * (uint64_t)from; !high && possible && n <= 4096 * (uint64_t)from && n <= MOST_NODES; n *= 2)
        *(enough_nodes(x, type, usable, (uint32_t)n, &possible) ? &high : &low) = (uint32_t)n;
    for (uint32_t finest = high / 16; high && high - low > 1 && high - low > finest;) {
        uint32_t n = low + (high - low) / 2;
        *(enough_nodes(x, type, usable, n, &possible) ? &high : &low) = n;
    }
    return high;
}

static void rescue_by_nodes(struct explanation *x, uint32_t type)
{
    const struct wish *wish = &x->job->wishes.degree[DEG_GPUS];
    uint32_t *list, usable = topo_usable(x->arena, x->topo, type, &list), from = usable;
    uint32_t per_node = x->topo->types[type].gpus;
    if (!usable)
        return;
    if ((wish->relation == REL_EQ || wish->relation == REL_LE) && wish->value / per_node < usable)
        from = wish->value < per_node ? 1 : (uint32_t)(wish->value / per_node);
    bool possible, fewer = wish->relation != REL_ANY && enough_nodes(x, type, usable, from, &possible);
    uint32_t nodes = fewer ? from : least_nodes(x, type, usable, from);
    struct job job;
    const struct topo *t = nodes ? nodes_for(x, type, usable, nodes, &job) : NULL;
    struct explain_change c = {
        .bigger = !fewer, .what = arena_printf(x->arena, "%s instead of %u", units_show_count(nodes, "node").s, from)};
    if (!t || !try_change(x, &job, t, &c) || !fewer)
        return;
    struct explain_change *last = &x->changes.at[x->changes.n - 1];
    last->what = arena_printf(x->arena, "with %s", units_show_count(last->candidate.decision.gpus_used, "GPU").s);
}

static void rescue_by_memory(struct explanation *x)
{
    const struct search_result *r = x->found;
    if (!r || !r->has_closest || x->job->wishes.memory)
        return;
    struct topo *t = explain_topo(x->arena, x->topo, 0);
    struct topo_gpu *gpu = &t->types[r->closest.decision.type].gpu;
    double gib = 1024.0 * 1024 * 1024;
    uint64_t has = gpu->memory_bytes;
    gpu->memory_bytes = (uint64_t)(ceil((double)has / gib) * gib);
    while (cost_memory_limit(x->job, gpu) < r->closest.estimate.peak_bytes && gpu->memory_bytes <= 2 * has)
        gpu->memory_bytes += (uint64_t)gib;
    if (gpu->memory_bytes > 2 * has) /* there is no such accelerator to be had */
        return;
    struct explain_change c = {
        .bigger = true,
        .what = arena_printf(x->arena, "%s on each GPU instead of %s", units_show_bytes(gpu->memory_bytes).s,
                             units_show_bytes(x->topo->types[r->closest.decision.type].gpu.memory_bytes).s)};
    try_change(x, x->job, t, &c);
}

static int by_price(const void *left, const void *right)
{
    const struct explain_change *a = left, *b = right;
    if (a->bigger != b->bigger)
        return a->bigger ? 1 : -1;
    double s = a->candidate.estimate.step_time_s, t = b->candidate.estimate.step_time_s;
    return s != t ? s < t ? -1 : 1 : strcmp(a->what, b->what);
}

static void rescue_by_offload(struct explanation *x, enum offload_part part, const char *what)
{
    struct job job = *x->job;
    job.wishes.offload |= (uint32_t)part;
    struct explain_change c = {.what = what};
    if (!(x->job->wishes.offload & (uint32_t)part) && x->found && x->found->has_closest)
        try_change(x, &job, x->topo, &c);
}

void explain_rescue(struct explanation *x)
{
    bool mixed = false;
    for (uint32_t i = 0; i < x->topo->ntypes && x->topo->ntypes > 1; i++) {
        struct job job = *x->job;
        job.wishes.use = x->topo->types[i].id;
        struct explain_change c = {.what = arena_printf(x->arena, "with use \"%s\"", x->topo->types[i].id)};
        mixed |= !x->job->wishes.use && try_change(x, &job, x->topo, &c);
    }
    if (!mixed) {
        rescue_by_wishes(x);
        rescue_by_offload(x, OFFLOAD_OPTIMIZER, "with offload [optimizer]");
        rescue_by_offload(x, OFFLOAD_ACTIVATIONS, "with offload [activations]");
        for (uint32_t i = 0; i < x->topo->ntypes; i++)
            if (!x->job->wishes.use || !strcmp(x->job->wishes.use, x->topo->types[i].id))
                rescue_by_nodes(x, i);
        rescue_by_memory(x);
        rescue_by_all(x);
    }
    if (x->changes.n)
        qsort(x->changes.at, x->changes.n, sizeof *x->changes.at, by_price);
}
