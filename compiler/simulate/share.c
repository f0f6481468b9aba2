/* Ranks that share the cores of their nodes: the engine's run where durations depend on which other ranks have work.
 *
 * A rank is one process: all of its queues that can proceed share one core.  The ranks of a node that have work
 * share its cores evenly, as the operating system's fair scheduler does over many time slices; a rank that waits for
 * a peer or for its own transfers uses none.  So a step of many ranks on few cores takes as long as their work
 * together, unless too few of them can proceed.  A transfer is work of all its ranks, an equal part each.  All ranks
 * of a role do the same at the same time.
 *
 * The simulation goes from event to event: what can start is started, then time advances to the first end.  Linear
 * in instructions times roles. */

#include "compiler/simulate/engine.h"

#include <math.h>
#include <string.h>

struct share {
    double cores;
    uint32_t nnodes, nroles;
    double *ranks;   /* [node * nroles + role] */
    double *rate;    /* by role: share of a core that each of its running instructions gets */
    uint32_t *heads; /* by role: number of running instructions */
    double *left;    /* by actor: remaining core nanoseconds of its head; of a meeting, kept by its first party */
    bool *runs;      /* by actor: is its head running? */
};

/* Nodes with equal numbers of ranks of each role are kept once. */
struct share *share_new(struct arena *a, const struct cost *c, uint32_t nroles)
{
    struct share *s = ARENA_NEW(a, struct share);
    uint32_t per_node = c->type->gpus, nranks = mesh_group_size(&c->mesh, AXES_WORLD), at[NDIGITS];
    uint32_t nodes = (nranks + per_node - 1) / per_node;
    *s = (struct share){.cores = c->type->cores, .nroles = nroles};
    s->ranks = ARENA_ARRAY(a, double, (size_t)nodes *nroles);
    for (uint32_t n = 0; n < nodes; n++) {
        double *here = &s->ranks[(size_t)s->nnodes * nroles];
        memset(here, 0, nroles * sizeof *here);
        for (uint32_t r = n * per_node; r < nranks && r < (n + 1) * per_node; r++) {
            mesh_coords(&c->mesh, r, at);
            here[at[AXIS_PP]]++;
        }
        bool known = false;
        for (uint32_t k = 0; k < s->nnodes && !known; k++)
            known = !memcmp(here, &s->ranks[(size_t)k * nroles], nroles * sizeof *here);
        s->nnodes += !known;
    }
    s->rate = ARENA_ARRAY(a, double, nroles);
    s->heads = ARENA_ARRAY(a, uint32_t, nroles);
    s->left = ARENA_ARRAY(a, double, (size_t)nroles *NQUEUES);
    s->runs = ARENA_ARRAY(a, bool, (size_t)nroles *NQUEUES);
    return s;
}

static bool waits_done(struct sim_engine *e, uint32_t actor)
{
    struct sim_actor *act = &e->actors[actor], *siblings = act - actor % NQUEUES;
    const struct sim_slot *slot = &e->slots[act->first + act->next];
    const struct wait *waits = e->programs[actor / NQUEUES]->waits;
    for (uint32_t k = 0; k < slot->nwaits; k++) {
        const struct wait *w = &waits[slot->wait + k];
        if (w->position < siblings[w->queue].next)
            continue;
        act->blocked_queue = w->queue;
        act->blocked_position = w->position;
        return false;
    }
    return true;
}

static void start(struct sim_engine *e, uint32_t actor, double now)
{
    struct sim_actor *act = &e->actors[actor];
    e->share->runs[actor] = true;
    e->share->heads[actor / NQUEUES]++;
    e->times[act->first + act->next].start_ns = llround(now);
}

/* Starts whatever can start at `now`; the work of a meeting is kept by its first party. */
static void start_all(struct sim_engine *e, double now)
{
    struct share *s = e->share;
    for (uint32_t actor = 0; actor < e->nroles * NQUEUES; actor++) {
        struct sim_actor *act = &e->actors[actor];
        if (s->runs[actor] || act->arrived || act->next >= act->stop || (double)e->end_ns[actor / NQUEUES] > now ||
            !waits_done(e, actor))
            continue;
        const struct sim_slot *slot = &e->slots[act->first + act->next];
        if (slot->meeting == NONE) {
            s->left[actor] = (double)slot->duration_ns;
            start(e, actor, now);
            continue;
        }
        struct sim_meeting *m = &e->meetings[slot->meeting];
        const struct sim_party *party = &e->parties[m->first];
        act->arrived = true;
        if (++m->narrived < m->nparties)
            continue;
        s->left[party[0].actor] = (double)m->duration_ns;
        for (uint32_t k = 0; k < m->nparties; k++)
            start(e, party[k].actor, now);
    }
}

/* Sets the share of a core that every running instruction gets. */
static void set_rates(struct sim_engine *e)
{
    struct share *s = e->share;
    for (uint32_t r = 0; r < s->nroles; r++)
        s->rate[r] = s->heads[r] ? 1 : 0;
    for (uint32_t n = 0; n < s->nnodes; n++) {
        const double *ranks = &s->ranks[(size_t)n * s->nroles];
        double busy = 0;
        for (uint32_t r = 0; r < s->nroles; r++)
            busy += s->heads[r] ? ranks[r] : 0;
        for (uint32_t r = 0; r < s->nroles && busy > s->cores; r++)
            if (ranks[r] > 0 && s->cores / busy < s->rate[r])
                s->rate[r] = s->cores / busy;
    }
    for (uint32_t r = 0; r < s->nroles; r++)
        s->rate[r] /= s->heads[r] ? s->heads[r] : 1;
}

/* The meeting of an actor's head, NULL if it has none; *keeps: does this actor keep the remaining work? */
static const struct sim_meeting *meeting_of(const struct sim_engine *e, uint32_t actor, bool *keeps)
{
    const struct sim_actor *act = &e->actors[actor];
    uint32_t meeting = e->slots[act->first + act->next].meeting;
    const struct sim_meeting *m = meeting == NONE ? NULL : &e->meetings[meeting];
    *keeps = !m || e->parties[m->first].actor == actor;
    return m;
}

/* Rate at which an instruction proceeds; the parties of a meeting work on it together, so theirs is averaged. */
static double rate_of(const struct sim_engine *e, uint32_t actor, const struct sim_meeting *m)
{
    double sum = 0;
    if (!m)
        return e->share->rate[actor / NQUEUES];
    for (uint32_t k = 0; k < m->nparties; k++)
        sum += e->share->rate[e->parties[m->first + k].actor / NQUEUES];
    return sum / m->nparties;
}

static void end(struct sim_engine *e, uint32_t actor, int64_t now_ns)
{
    struct sim_actor *act = &e->actors[actor];
    e->times[act->first + act->next].end_ns = act->free_ns = now_ns;
    act->next++;
    act->arrived = false;
    e->share->runs[actor] = false;
    e->share->heads[actor / NQUEUES]--;
}

/* nanoseconds until the first head ends or the next role begins; INFINITY: nothing runs any more */
static double next_event(const struct sim_engine *e, double now)
{
    double first = INFINITY;
    for (uint32_t r = 0; r < e->nroles; r++)
        if ((double)e->end_ns[r] > now)
            first = fmin(first, (double)e->end_ns[r] - now);
    for (uint32_t actor = 0; actor < e->nroles * NQUEUES; actor++) {
        bool keeps;
        const struct sim_meeting *m = e->share->runs[actor] ? meeting_of(e, actor, &keeps) : NULL;
        if (e->share->runs[actor] && keeps)
            first = fmin(first, e->share->left[actor] / rate_of(e, actor, m));
    }
    return first;
}

static void pass(struct sim_engine *e, double *now, double ns)
{
    struct share *s = e->share;
    *now += ns;
    for (uint32_t actor = 0; actor < e->nroles * NQUEUES; actor++) {
        bool keeps;
        const struct sim_meeting *m = s->runs[actor] ? meeting_of(e, actor, &keeps) : NULL;
        if (s->runs[actor] && keeps)
            s->left[actor] -= ns * rate_of(e, actor, m);
    }
    /* after all `left` are updated, since rates hold until the first end */
    for (uint32_t actor = 0; actor < e->nroles * NQUEUES; actor++) {
        bool keeps = false;
        const struct sim_meeting *m = s->runs[actor] ? meeting_of(e, actor, &keeps) : NULL;
        if (!keeps || s->left[actor] > 1e-3)
            continue;
        for (uint32_t k = 0; m && k < m->nparties; k++)
            end(e, e->parties[m->first + k].actor, llround(*now));
        if (!m)
            end(e, actor, llround(*now));
    }
}

void share_run(struct sim_engine *e)
{
    struct share *s = e->share;
    double now = INFINITY;
    memset(s->runs, 0, (size_t)e->nroles * NQUEUES * sizeof *s->runs);
    memset(s->heads, 0, e->nroles * sizeof *s->heads);
    for (uint32_t r = 0; r < e->nroles; r++)
        now = fmin(now, (double)e->end_ns[r]);
    for (;;) {
        start_all(e, now);
        set_rates(e);
        double ns = next_event(e, now);
        if (isinf(ns))
            return;
        pass(e, &now, ns);
    }
}
