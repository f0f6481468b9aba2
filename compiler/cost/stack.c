/* What a profile's stack adds to instructions, so that a step of the emitted programs is simulated as it is
 * estimated.
 *
 * Kernels of a stage wait for the slowest node, and with other stacks than llmrun the kernels of each action take
 * what block.c says: the program's kernels are scaled to that, stage by stage, and so are copies to host memory.  A
 * share of the transfers is exposed; the rest hides behind work that the program does not contain.  Rows to experts
 * and weights travel the way the stack sends them.  What belongs to the whole step, and what hidden transfers take
 * from kernels, is added where all ranks meet, at the gradient norm. */

#include "compiler/cost/cost_private.h"

#include "compiler/support/parallel.h"

#include <math.h>
#include <string.h>

/* Kinds of instructions that a stack stretches: kernels of F, B, I and W, those of F and B that run together with
 * another action, copies to host memory and back. */
static const char kinds[] = "FBIW";
enum { PAIRED = 4, COPIES = 6, NKINDS = 10, OTHER = NKINDS };

/* How a profile's software stack runs instructions: work of the host, and the shares of transfers that it hides. */
struct stack {
    const struct cost *c;
    struct mesh mesh;
    double (*stage_s)[NKINDS]; /* by stage: seconds of its instructions of each kind */
    double slow;               /* the factor for the slowest node alone */
    double held;               /* the share of a transfer between stages during which the sender computes nothing */
    double tp, cp, ep, shards; /* factors on the time of transfers among the ranks of one stage */
    double step_s;             /* seconds per step of host work and of data-parallel transfers that are not hidden */
    /* of one program, whose stack is a copy of the others': by stage, the factor by which its instructions are
     * stretched; the factor of transfers of rows to experts */
    double (*factor)[NKINDS], experts;
    const bool *paired; /* by paired_at(): does the action run together with another one?  NULL: none does */
};

/* Seconds of the kernels of the stage's actions of each kind, for one microbatch, followed by those of copies to
 * host memory and back. Transfers that other stacks repeat in recomputation and the program does not count as
 * kernels: the reduction of a layer's last product over tp, and the way of experts' rows back. */
static void stage_seconds(const struct cost *c, const struct cost_shape *s, uint32_t stage, double seconds[NKINDS])
{
    const struct stage *st = &c->decision->stages[stage];
    const struct cost_stage sum = cost_sum_stage(c, s, stage);
    double input_comm = 0, weight_comm = 0, unread = 0;
    for (uint32_t i = 0, run; i < st->count; i += run) {
        const struct cost_block *b = cost_layer(s, st, i);
        run = cost_run(s, st, i);
        input_comm += run * b->input_comm_s;
        weight_comm += run * b->weight_comm_s;
        unread += run * b->unread_s;
    }
    const struct cost_block *ends[] = {st->embed ? &s->embed : NULL, st->head ? &s->head : NULL,
                                       st->head ? &s->predict : NULL};
    for (int k = 0; k < 3; k++) {
        double times = !ends[k] ? 0 : k < 2 ? 1 : c->job->model.predict;
        input_comm += times > 0 ? times * ends[k]->input_comm_s : 0;
        weight_comm += times > 0 ? times * ends[k]->weight_comm_s : 0;
    }
    seconds[0] = sum.forward_s;
    seconds[1] = sum.backward_s + unread;
    seconds[PAIRED] = cost_paired_s(&sum, false);
    seconds[PAIRED + 1] = cost_paired_s(&sum, true) + unread;
    seconds[2] = sum.input_s - input_comm + unread;
    seconds[3] = sum.weight_s - weight_comm;
    for (uint32_t i = 0; c->job->wishes.offload & OFFLOAD_ACTIVATIONS && i < st->count; i++) {
        double fetch_s, park_s = cost_park_s(c, s, cost_layer(s, st, i), i == 0 && !st->embed, &fetch_s);
        for (int k = 0; k < 4; k++)
            seconds[COPIES + k] += k == 3 ? fetch_s : park_s;
    }
}

static struct stack *new_stack(struct arena *a, const struct cost *c)
{
    const struct decision *d = c->decision;
    const struct profile *p = c->profile;
    struct stack *x = ARENA_NEW(a, struct stack);
    struct pipeline_times times;
    *x = (struct stack){.c = c, .mesh = decision_mesh(c->job, d)};
    x->stage_s = arena_array(a, d->nstages, sizeof *x->stage_s);
    struct arena_mark mark = arena_mark(a);
    struct cost_kinds layers = cost_kinds_new(a, &c->job->model);
    struct cost_shape s;
    struct cost_stage *ranks = ARENA_ARRAY(a, struct cost_stage, d->pp);
    cost_shape_init(a, c, &layers, &s);
    cost_pipeline(c, &s, ranks, ARENA_ARRAY(a, struct pipeline_stage, d->nstages), &times);
    struct cost_seen seen = cost_seen(c, ranks);
    x->slow = 1 + cost_body(c, ranks).slow;
    for (uint32_t i = 0; i < d->nstages; i++)
        stage_seconds(c, &s, i, x->stage_s[i]);
    x->held = times.held;
    x->tp = cost_tp_shown(c);
    x->cp = cost_shown(c, OVERLAP_CP, p->cp_shown, p->cp_shown);
    x->ep = cost_ep_shown(c);
    x->shards = d->zero == 3 ? 1 / p->zero3_speed : 1;
    x->step_s = seen.shown_s + seen.stolen_s + 1e-3 * p->step_overhead_ms;
    arena_reset(a, mark);
    return x;
}

/* Is it a conversion of gradients to the format of a reduction, or back? */
static bool converts(const struct program *p, const struct insn *n)
{
    return n->op == OP_COPY &&
           p->operands[n->operand + OPND(COPY, y)].dtype != p->operands[n->operand + OPND(COPY, x)].dtype;
}

/* Place of the F or the B that an instruction belongs to. */
static size_t paired_at(const struct stack *s, const struct insn *n)
{
    return 2 * ((size_t)n->stage * s->c->decision->microbatches + n->microbatch) + (n->action == 'B');
}

static bool may_pair(const struct stack *s, const struct insn *n)
{
    return (n->action == 'F' || n->action == 'B') && n->queue == QUEUE_COMPUTE && n->stage < s->c->decision->nstages &&
           n->microbatch < s->c->decision->microbatches;
}

/* Finds the actions that run together: an action that goes on after kernels of another one does so with that one. */
static void find_pairs(struct arena *a, struct stack *s, const struct program *p)
{
    const struct decision *d = s->c->decision;
    if (!decision_pairs(d->schedule))
        return;
    size_t n = 2 * (size_t)d->nstages * d->microbatches, before = n;
    bool *begun = ARENA_ARRAY(a, bool, n), *paired = ARENA_ARRAY(a, bool, n);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        if (!may_pair(s, &p->insns[i]))
            continue;
        size_t at = paired_at(s, &p->insns[i]);
        if (begun[at] && before != at && before < n)
            paired[at] = paired[before] = true;
        begun[at] = true;
        before = at;
    }
    s->paired = paired;
}

/* Additions to gradient sums, and conversions for reductions, count as transfers: they are of no kind (OTHER). */
static uint32_t kind_of(const struct stack *s, const struct program *p, const struct insn *n)
{
    enum unit unit = isa_info(n->op)->unit;
    bool kernel = unit == UNIT_MATMUL || unit == UNIT_ATTENTION || unit == UNIT_STREAM;
    if (!kernel || !n->action || (n->queue != QUEUE_COMPUTE && n->queue != QUEUE_COPY))
        return OTHER;
    const char *kind = strchr(kinds, n->action);
    if (!kind)
        return OTHER;
    const struct operand *y = &p->operands[n->operand];
    bool sum = n->op == OP_ADD && y->mark == MARK_ADD && y->buffer != NONE && n->action != 'F' &&
               !strncmp(p->buffers[y->buffer].name, "grad.", 5);
    if (sum || converts(p, n))
        return OTHER;
    bool paired = s->paired && may_pair(s, n) && s->paired[paired_at(s, n)];
    return (uint32_t)(kind - kinds) + (n->queue == QUEUE_COPY ? COPIES : paired ? PAIRED : 0);
}

static uint32_t group_mask(const struct program *p, const struct insn *n)
{
    const struct isa_info *info = isa_info(n->op);
    if (info->unit != UNIT_COLLECTIVE)
        return 0;
    for (size_t k = 0; k < info->nattrs; k++)
        if (info->attr[k].kind == ATTR_GROUP)
            return p->slots[p->attrs[n->attr + k].slot].arg;
    return 0;
}

/* Does it transfer parameters or their gradients? */
static bool moves_weights(const struct program *p, const struct insn *n)
{
    static const char *const names[] = {"grad.", "made.", "sent.", "reduced."};
    for (size_t i = 0; i < isa_info(n->op)->noperands; i++) {
        const struct operand *o = &p->operands[n->operand + i];
        const struct buffer *b = o->buffer == NONE ? NULL : &p->buffers[o->buffer];
        bool moves = b && b->kind == BUFFER_PARAM;
        for (size_t k = 0; b && k < sizeof names / sizeof *names; k++)
            moves |= !strncmp(b->name, names[k], strlen(names[k]));
        if (moves)
            return true;
    }
    return false;
}

/* Does it transfer something else among ranks that may also share experts: keys, values and heads of a sequence's
 * parts (compiler/lower/context.c), inputs and outputs of products (collect.c), or gradients? */
static bool of_others(const struct program *p, const struct insn *n)
{
    static const char *const names[] = {"kv.all", "heads", ".full.", ".dfull.", ".part."};
    for (size_t i = 0; i < isa_info(n->op)->noperands; i++) {
        const struct operand *o = &p->operands[n->operand + i];
        for (size_t k = 0; o->buffer != NONE && k < sizeof names / sizeof *names; k++)
            if (strstr(p->buffers[o->buffer].name, names[k]))
                return true;
    }
    return moves_weights(p, n);
}

/* Does it transfer rows to or from experts, or their counts and weights? */
static bool among_experts(const struct stack *s, const struct program *p, const struct insn *n)
{
    const uint32_t *dim = s->mesh.dim;
    uint32_t mask = group_mask(p, n);
    if (!mask || n->microbatch == NONE || n->layer == NONE)
        return false;
    bool whole = n->op == OP_ALL_TO_ALL &&
                 (mask == dim[MESH_EP] || mask == dim[MESH_EP_NEAR] || mask == dim[MESH_EP_FAR]);
    bool split = mask == dim[MESH_ETP] && (n->op == OP_ALL_GATHER || n->op == OP_REDUCE_SCATTER);
    return (whole || split) && !of_others(p, n);
}

/* Other stacks than llmrun send rows to experts in other ways than the program: the time that they would take for
 * all forward passes, as a multiple of the program's. */
static double experts_factor(const struct stack *s, const struct program *p, const int64_t *alone_ns)
{
    const struct job *job = s->c->job;
    struct cost_exchange to, from;
    double ns = 0, seconds = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        if (n->action != 'F' || n->layer >= job->model.nlayers)
            continue;
        ns += among_experts(s, p, n) ? (double)alone_ns[i] : 0;
        if (n->op == OP_ROUTE)
            seconds += cost_travel_s(s->c, &job->model.layers[n->layer]->moe, &to, &from);
    }
    return ns > 0 ? 1e9 * seconds / ns : 1;
}

/* Sets the factors between the program's own seconds and those of the stack, by stage and kind. */
static void fit(struct arena *a, struct stack *s, const struct program *p, const int64_t *alone_ns)
{
    uint32_t nstages = s->c->decision->nstages;
    double(*own_s)[NKINDS] = arena_array(a, nstages, sizeof *own_s); /* seconds of the program's own instructions */
    uint32_t(*nactions)[NKINDS] = arena_array(a, nstages, sizeof *nactions);
    bool own = s->c->profile->allocator < 0.5 && s->c->profile->host_op_us <= 0;
    struct cost_actions actions = {0};
    s->factor = arena_array(a, nstages, sizeof *s->factor);
    if (!own)
        find_pairs(a, s, p);
    for (uint32_t i = 0; i < p->ninsns && !own; i++) {
        const struct insn *n = &p->insns[i];
        uint32_t kind = kind_of(s, p, n);
        if (kind == OTHER || n->stage >= nstages)
            continue;
        own_s[n->stage][kind] += 1e-9 * (double)alone_ns[i];
        if (kind < COPIES && cost_starts_action(&actions, n)) {
            nactions[n->stage][kind]++;
            nactions[n->stage][COPIES + kind % PAIRED]++;
        }
    }
    for (uint32_t i = 0; i < nstages; i++)
        for (int k = 0; k < NKINDS; k++) {
            double slow = k < COPIES ? s->slow : 1, seconds = own_s[i][k];
            s->factor[i][k] = seconds > 0 ? slow * nactions[i][k] * s->stage_s[i][k] / seconds : slow;
        }
    s->experts = own ? 1 : experts_factor(s, p, alone_ns);
}

/* Factor of an all-gather of what has been converted to 8 bits, if it has, before it travels; llmrun converts
 * afterwards. */
static double halved(const struct stack *s, const struct program *p, const struct insn *n, uint32_t mask,
                     bool converted)
{
    const struct operand *y = &p->operands[n->operand + OPND(ALL_GATHER, y)];
    double bytes = (double)y->rows * y->cols * isa_dtype_bytes((enum dtype)y->dtype);
    if (!converted)
        return 1;
    return cost_digits_s(s->c, OP_ALL_GATHER, bytes / 2, mask) / cost_digits_s(s->c, OP_ALL_GATHER, bytes, mask);
}

/* Factor of transfers of weights among the ranks that share them; other stacks than llmrun use buckets of one size
 * (moves.c). */
static double weights_seen(const struct stack *s, const struct program *p, const struct insn *n, uint32_t mask)
{
    const uint32_t *dim = s->mesh.dim;
    bool shard = mask == dim[MESH_SHARD] || mask == dim[MESH_EXPERT_SHARD];
    bool replica = !shard && (mask == dim[MESH_REPLICA] || mask == dim[MESH_EXPERT_REPLICA]);
    double elements = cost_bucket(s->c), bytes = 0, element = 1;
    if (elements > 0 && (shard || replica)) {
        for (size_t i = 0; i < isa_info(n->op)->noperands; i++) {
            const struct operand *o = &p->operands[n->operand + i];
            double own = (double)o->rows * o->cols * isa_dtype_bytes((enum dtype)o->dtype);
            element = own > bytes ? (double)isa_dtype_bytes((enum dtype)o->dtype) : element;
            bytes = own > bytes ? own : bytes;
        }
        uint32_t over = !replica ? 0 : dim[mask == dim[MESH_REPLICA] ? MESH_SHARD : MESH_EXPERT_SHARD];
        double bucket = elements * element / mesh_group_size(&s->mesh, over);
        double alone_s = cost_digits_s(s->c, n->op, bytes, mask);
        return alone_s > 0 ? bytes / bucket * cost_digits_s(s->c, n->op, bucket, mask) / alone_s : 1;
    }
    bool eight = shard && n->op == OP_ALL_GATHER && cost_parameter_bytes(s->c) < 2;
    return shard ? s->shards * (eight ? halved(s, p, n, mask, true) : 1) : 1;
}

/* Factor of a ring's step.  With other stacks than llmrun a ring moves what an all-gather moves, in the forward pass
 * in one step less than there are ranks; in the backward pass it moves as much again for the sums of gradients,
 * which llmrun keeps in fp32 (block_context.c). */
static double ring_seen(const struct stack *s, const struct program *p, const struct insn *n, uint32_t mask)
{
    const struct operand *y = &p->operands[n->operand + OPND(SHIFT, y)];
    double bytes = (double)y->rows * y->cols * isa_dtype_bytes((enum dtype)y->dtype),
           cp = mesh_group_size(&s->mesh, mask);
    bool sums = strstr(p->buffers[y->buffer].name, "dkv");
    double keys = sums && s->c->job->train.precision != DT_FP32 ? bytes / 2 : bytes,
           alone_s = cost_shift_s(s->c, bytes, mask);
    if (s->c->profile->allocator < 0.5 || alone_s <= 0)
        return 1;
    return cost_digits_s(s->c, OP_ALL_GATHER, keys * cp, mask) / (sums ? cp : cp - 1) / alone_s;
}

/* Factor of a collective among ranks of one stage: its exposed share. */
static double seen(const struct stack *s, const struct program *p, const struct insn *n)
{
    uint32_t mask = group_mask(p, n);
    const uint32_t *dim = s->mesh.dim;
    if (!mask || mask == dim[MESH_WORLD] || mask & GROUP_TIE)
        return 1;
    if (among_experts(s, p, n))
        return s->ep * s->experts;
    if (moves_weights(p, n))
        return weights_seen(s, p, n, mask);
    if (n->action == 'H' || n->layer == NONE || n->microbatch == NONE || n->queue == QUEUE_DP)
        return 1;
    if (mask == dim[MESH_TP])
        return s->tp * (n->op == OP_ALL_GATHER ? halved(s, p, n, mask, cost_gathers_eight(s->c)) : 1);
    if (mask == dim[MESH_CP] && n->op == OP_SHIFT)
        return ring_seen(s, p, n, mask);
    return mask == dim[MESH_CP] ? s->cp : 1;
}

static int64_t stack_ns(const struct stack *s, const struct program *p, uint32_t i, int64_t ns)
{
    const struct insn *n = &p->insns[i];
    double factor = 1;
    if (n->op == OP_CLIP || n->op == OP_CLIP_SCALED)
        return ns + (int64_t)llround(1e9 * s->step_s);
    uint32_t kind = kind_of(s, p, n);
    if (kind != OTHER && n->stage < s->c->decision->nstages)
        factor = s->factor[n->stage][kind];
    else if (n->action == 'O' && n->queue == QUEUE_COMPUTE && isa_info(n->op)->unit == UNIT_STREAM)
        factor = s->slow;
    else if (n->op == OP_SEND || n->op == OP_RECV)
        factor = 1 - s->held;
    else if (isa_info(n->op)->unit == UNIT_COLLECTIVE)
        factor = seen(s, p, n);
    return factor == 1 ? ns : (int64_t)((double)ns * factor);
}

/* The last kernel so far, in order, that an instruction waits for; where it waits for a transfer, the last kernel of
 * its action. */
static uint32_t kernel_before(const struct program *p, uint32_t i, const uint32_t *kernels, uint32_t nkernels)
{
    const struct insn *n = &p->insns[i];
    for (uint32_t k = 0; k < n->nwaits; k++)
        if (p->waits[n->wait + k].queue == QUEUE_COMPUTE && p->waits[n->wait + k].position < nkernels)
            return kernels[p->waits[n->wait + k].position];
    for (uint32_t k = nkernels; k-- > 0;) {
        const struct insn *x = &p->insns[kernels[k]];
        if (x->action == n->action && x->stage == n->stage && x->microbatch == n->microbatch)
            return kernels[k];
    }
    return NONE;
}

/* around: the stack of all programs; NULL: each instruction by itself */
static void program_ns(struct arena *a, const struct cost *c, const struct stack *around, const struct program *p,
                       int64_t *ns)
{
    struct cost_actions actions = {0};
    int64_t *known = ARENA_ARRAY(a, int64_t, p->noperands + 1u);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        bool first = p->insns[i].queue == QUEUE_COMPUTE && cost_starts_action(&actions, &p->insns[i]);
        ns[i] = cost_insn_once(c, p, i, first, known);
    }
    if (!around)
        return;
    struct stack s = *around;
    uint32_t *kernels = ARENA_ARRAY(a, uint32_t, p->ninsns + 1u), nkernels = 0;
    fit(a, &s, p, ns);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        int64_t alone_ns = ns[i];
        ns[i] = stack_ns(&s, p, i, alone_ns);
        uint32_t kernel = n->op == OP_SEND ? kernel_before(p, i, kernels, nkernels) : NONE;
        if (kernel != NONE)
            ns[kernel] += alone_ns - ns[i];
        if (n->queue == QUEUE_COMPUTE)
            kernels[nkernels++] = i;
    }
}

struct timing {
    const struct cost *c;
    const struct stack *around;
    const struct program *const *programs;
    int64_t *const *ns;
};

static void time_one(void *context, uint32_t i)
{
    const struct timing *t = context;
    struct arena *scratch = arena_new();
    program_ns(scratch, t->c, t->around, t->programs[i], t->ns[i]);
    arena_free(scratch);
}

void cost_programs_ns(struct arena *a, const struct cost *c, const struct program *const *programs, uint32_t n,
                      int64_t *const *ns)
{
    struct arena_mark mark = arena_mark(a);
    struct timing t = {c, c->unit.on ? NULL : new_stack(a, c), programs, ns};
    parallel_each(n, time_one, &t);
    arena_reset(a, mark);
}
