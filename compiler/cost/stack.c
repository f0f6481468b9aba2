/* What a profile's stack adds to instructions, so that a step of the emitted programs is simulated as it is estimated.
 *
 * Kernels of a stage wait for a host that launches them, for the slowest node, and for data-parallel transfers that take a
 * share of the device (block.c, estimate.c).  Of transfers a share is seen, the rest hides behind what no program says.  What
 * belongs to the whole step is put where all ranks meet, at the gradients' norm.  llmrun's own profile adds next to nothing. */

#include "compiler/cost/cost_private.h"

#include <math.h>

/* kernels on the pipeline ranks together: the estimate's, and what stretches them there */
static double drag(const struct cost *c, const struct cost_stage *ranks)
{
    struct cost_body body = cost_body(c, ranks);
    return 1 + body.slow + (body.compute_s > 0 ? cost_seen(c, ranks).stolen_s / body.compute_s : 0);
}

struct cost_stack *cost_stack_new(struct arena *a, const struct cost *c)
{
    const struct decision *d = c->decision;
    const struct profile *p = c->profile;
    struct cost_stack *x = ARENA_NEW(a, struct cost_stack);
    struct pipeline_times times;
    *x = (struct cost_stack){.c = c, .mesh = decision_mesh(c->job, d)};
    x->forward = ARENA_ARRAY(a, double, d->nstages);
    x->backward = ARENA_ARRAY(a, double, d->nstages);
    struct arena_mark mark = arena_mark(a);
    struct cost_kinds kinds = cost_kinds_new(a, &c->job->model);
    struct cost_shape s;
    struct cost_stage *ranks = ARENA_ARRAY(a, struct cost_stage, d->pp);
    cost_shape_init(a, c, &kinds, &s);
    cost_pipeline(c, &s, ranks, ARENA_ARRAY(a, struct pipeline_stage, d->nstages), &times);
    double stretch = drag(c, ranks);
    for (uint32_t i = 0; i < d->nstages; i++) {
        struct cost_stage st = cost_sum_stage(c, &s, i);
        x->forward[i] = stretch * (st.own_forward_s > 0 ? st.forward_s / st.own_forward_s : 1);
        x->backward[i] = stretch * (st.own_backward_s > 0 ? st.backward_s / st.own_backward_s : 1);
    }
    x->held = times.held;
    x->tp = cost_shown(c, OVERLAP_TP, p->tp_shown, p->tp_overlap_shown);
    x->cp = cost_shown(c, OVERLAP_CP, p->cp_shown, p->cp_shown);
    x->ep = cost_shown(c, OVERLAP_ALL_TO_ALL, p->ep_shown, decision_pairs(d->schedule) ? p->ep_shown : p->ep_overlap_shown);
    x->shards = d->zero == 3 ? 1 / p->zero3_speed : 1;
    x->step_s = cost_seen(c, ranks).shown_s + 1e-3 * p->step_overhead_ms;
    arena_reset(a, mark);
    return x;
}

static bool is_kernel(const struct insn *n)
{
    enum unit unit = isa_info((enum op)n->op)->unit;
    return unit == UNIT_MATMUL || unit == UNIT_ATTENTION || unit == UNIT_STREAM;
}

/* of a collective among ranks of one stage */
static double seen(const struct cost_stack *s, const struct program *p, const struct insn *n)
{
    const struct isa_info *info = isa_info((enum op)n->op);
    uint32_t mask = 0;
    for (size_t k = 0; k < info->nattrs; k++)
        if (info->attr[k].kind == ATTR_GROUP)
            mask = p->slots[p->attrs[n->attr + k].slot].arg;
    const uint32_t *dim = s->mesh.dim;
    if (!mask || mask == dim[MESH_WORLD] || mask & GROUP_TIE)
        return 1;
    if (n->action == 'H' || n->layer == NONE || n->microbatch == NONE || n->queue == QUEUE_DP)
        return mask == dim[MESH_SHARD] || mask == dim[MESH_EXPERT_SHARD] ? s->shards : 1;
    if (mask == dim[MESH_TP])
        return s->tp;
    if (mask == dim[MESH_CP])
        return n->op == OP_SHIFT ? 1 : s->cp;
    return mask == dim[MESH_EP] || mask == dim[MESH_EP_NEAR] || mask == dim[MESH_EP_FAR] || mask == dim[MESH_ETP] ? s->ep : 1;
}

int64_t cost_stack_ns(const struct cost_stack *s, const struct program *p, uint32_t i, int64_t ns)
{
    const struct insn *n = &p->insns[i];
    double factor = 1;
    if (n->op == OP_CLIP)
        return ns + (int64_t)llround(1e9 * s->step_s);
    if (is_kernel(n) && n->stage < s->c->decision->nstages)
        factor = n->action == 'F' ? s->forward[n->stage] : s->backward[n->stage];
    else if (n->op == OP_SEND || n->op == OP_RECV)
        factor = 1 - s->held;
    else if (isa_info((enum op)n->op)->unit == UNIT_COLLECTIVE)
        factor = seen(s, p, n);
    return factor == 1 ? ns : (int64_t)((double)ns * factor);
}
