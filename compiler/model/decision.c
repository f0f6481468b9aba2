/* The decision record: legality, what can be emitted, and its one-line text.
 *
 * Legality is arithmetic on degrees and shapes, one sentence per broken rule, in the order in which a person
 * would fix them; memory and time are not asked here. */

#include "compiler/model/orders.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <math.h>
#include <string.h>

const char *const recompute_names[] = {"none", "selective", "full", "auto"};
const char *const recompute_part_names[8] = {"norm",    "core_attn", "mla_up",  "ffn",
                                             "ffn_act", "moe",       "moe_act", "shared"};
const char *const context_names[] = {"auto", "ring", "all_gather", "all_to_all"};
const char *const axis_names[NAXES] = {"tp", "cp", "dp", "pp"};

struct decision decision_single(void)
{
    return (struct decision){.tp = 1,
                             .cp = 1,
                             .pp = 1,
                             .vpp = 1,
                             .dp = 1,
                             .ep = 1,
                             .etp = 1,
                             .shard = 1,
                             .microbatch = 1,
                             .microbatches = 1,
                             .recompute = RECOMPUTE_NONE,
                             .schedule = SCHED_1F1B,
                             .nstages = 1,
                             .order = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP}};
}

bool decision_place(struct arena *a, const struct topo *topo, struct decision *d, const char **why)
{
    const struct topo_node_type *type = &topo->types[d->type];
    uint32_t *nodes, n = topo_usable(a, topo, d->type, &nodes);
    uint64_t gpus = (uint64_t)d->tp * d->cp * d->pp * d->dp;
    uint64_t want = (gpus + type->gpus - 1) / type->gpus;
    if (want > n) {
        *why = arena_printf(a, "%llu GPUs are needed but '%s' has %llu usable", (unsigned long long)gpus, type->id,
                            (unsigned long long)n * type->gpus);
        return false;
    }
    d->gpus_used = (uint32_t)gpus;
    d->nnodes = (uint32_t)want;
    d->nodes = nodes;
    uint32_t *healthy, nhealthy = decision_healthy(a, topo, nodes, n, &healthy);
    if (nhealthy >= want)
        d->nodes = healthy;
    return true;
}

uint32_t decision_healthy(struct arena *a, const struct topo *topo, const uint32_t *nodes, uint32_t n,
                          uint32_t **healthy)
{
    uint32_t *out = ARENA_ARRAY(a, uint32_t, n ? n : 1), have = 0;
    for (uint32_t i = 0; i < n; i++)
        if (topo->nodes[nodes[i]].nic_factor >= 1 && topo->nodes[nodes[i]].compute_factor >= 1)
            out[have++] = nodes[i];
    *healthy = out;
    return have;
}

uint32_t decision_expert_dp(const struct decision *d)
{
    return d->tp * d->cp * d->dp / (d->ep * d->etp);
}

uint32_t decision_expert_shard(const struct decision *d)
{
    uint32_t edp = decision_expert_dp(d);
    return d->shard < edp ? d->shard : edp;
}

#define REFUSE(...)                                                                                                    \
    do {                                                                                                               \
        *why = arena_printf(a, __VA_ARGS__);                                                                           \
        return false;                                                                                                  \
    } while (0)

static bool legal_degrees(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d,
                          const char **why)
{
    const uint32_t degrees[] = {d->tp, d->cp,  d->pp,    d->vpp,        d->dp,
                                d->ep, d->etp, d->shard, d->microbatch, d->microbatches};
    const char *const names[] = {"tp", "cp", "pp", "vpp", "dp", "ep", "etp", "shard", "microbatch", "microbatches"};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        if (degrees[i] == 0)
            REFUSE("%s must be at least 1", names[i]);
    uint64_t gpus = (uint64_t)d->tp * d->cp, most = UINT32_MAX;
    if (gpus > most || (gpus *= d->pp) > most || (gpus *= d->dp) > most || gpus != d->gpus_used)
        REFUSE("tp * cp * pp * dp = %llu is not the number of GPUs used, %u", (unsigned long long)gpus, d->gpus_used);
    if (d->type >= topo->ntypes)
        REFUSE("node type %u does not exist", d->type);
    uint32_t per_node = topo->types[d->type].gpus;
    if ((uint64_t)d->nnodes * per_node < gpus)
        REFUSE("%u nodes of %u GPUs cannot hold %llu ranks", d->nnodes, per_node, (unsigned long long)gpus);
    for (uint32_t i = 0; i < d->nnodes; i++)
        if (d->nodes[i] >= topo->nnodes || topo->nodes[d->nodes[i]].type != d->type ||
            topo->nodes[d->nodes[i]].state != NODE_USABLE || topo->nodes[d->nodes[i]].excluded_gpus ||
            (i && d->nodes[i] <= d->nodes[i - 1]))
            REFUSE("node %u of the plan is not a usable node of its type, in order", i);
    uint32_t seen = 0;
    for (int i = 0; i < NAXES; i++)
        seen |= (uint32_t)d->order[i] < NAXES ? 1u << d->order[i] : 0;
    if (seen != (1u << NAXES) - 1)
        REFUSE("the order must name tp, cp, dp and pp once each");
    uint64_t batch = (uint64_t)d->microbatch * d->microbatches;
    if (batch > job->train.batch || batch * d->dp != job->train.batch)
        REFUSE("the batch of %llu sequences is not microbatch %u * microbatches %u * dp %u",
               (unsigned long long)job->train.batch, d->microbatch, d->microbatches, d->dp);
    if (d->zero > 3)
        REFUSE("zero must be 0 to 3");
    if ((uint64_t)d->dp * d->cp % d->shard)
        REFUSE("shard = %u does not divide dp * cp = %u", d->shard, d->dp * d->cp);
    if (!(d->room >= 0 && d->room <= 65536))
        REFUSE("expert_room = %g is out of range", d->room);
    if (d->prefetch > DECISION_MOST_PREFETCH || (d->prefetch && d->zero < 3))
        REFUSE("prefetch = %u: parameters are gathered at most %u uses ahead, under zero 3", d->prefetch,
               DECISION_MOST_PREFETCH);
    if (d->zero == 0 && d->shard != 1)
        REFUSE("shard = %u needs zero >= 1", d->shard);
    return true;
}

static bool legal_attention(struct arena *a, const struct attn *at, const struct decision *d, const char **why)
{
    if (at->heads % d->tp)
        REFUSE("tp = %u does not divide heads = %u", d->tp, at->heads);
    if (at->kind == ATTN_GQA && at->kv % d->tp && d->tp % at->kv)
        REFUSE("tp = %u does not divide kv = %u, nor kv tp", d->tp, at->kv);
    uint32_t kv = at->kv / model_key_parts(at->kv, d->tp);
    if (decision_exchanges_heads(d) && (at->heads / d->tp % d->cp || (at->kind == ATTN_GQA && kv % d->cp)))
        REFUSE("cp = %u by all_to_all does not divide the %u heads (kv %u) of a tp rank", d->cp, at->heads / d->tp, kv);
    return true;
}

static uint32_t key_ranks(const struct layer *l, uint32_t tp)
{
    return l->attn.kind == ATTN_GQA ? tp / model_key_parts(l->attn.kv, tp) : 1;
}

uint32_t decision_key_ranks(const struct job *job, const struct decision *d)
{
    uint32_t n = 1;
    const struct model *m = &job->model;
    for (uint32_t i = 0; i < model_all_layers(m) && n == 1; i++)
        n = key_ranks(model_layer(m, i), d->tp);
    return n;
}

/* One digit of tp tells the ranks apart that hold the same key head: in all layers where there are such. */
static bool legal_key_ranks(struct arena *a, const struct job *job, const struct decision *d, const char **why)
{
    const struct model *m = &job->model;
    uint32_t all = decision_key_ranks(job, d);
    for (uint32_t i = 0; i < model_all_layers(m); i++) {
        uint32_t n = key_ranks(model_layer(m, i), d->tp);
        if (n > 1 && n != all)
            REFUSE("tp = %u: key heads lie on %u ranks each in some layers, on %u in others", d->tp, all, n);
    }
    return true;
}

static bool legal_shapes(struct arena *a, const struct job *job, const struct decision *d, const char **why)
{
    const struct model *m = &job->model;
    const struct layer *last = NULL;
    bool experts = false;
    for (uint32_t i = 0; i < model_all_layers(m); i++) {
        const struct layer *l = model_layer(m, i);
        if (l == last)
            continue;
        last = l;
        if (!legal_attention(a, &l->attn, d, why))
            return false;
        if (!l->is_moe && l->ffn.width % d->tp)
            REFUSE("tp = %u does not divide the FFN's width = %llu", d->tp, (unsigned long long)l->ffn.width);
        if (!l->is_moe)
            continue;
        experts = true;
        if (l->moe.experts % d->ep)
            REFUSE("ep = %u does not divide experts = %u", d->ep, l->moe.experts);
        if (l->moe.expert.width % d->etp)
            REFUSE("etp = %u does not divide the experts' width = %llu", d->etp,
                   (unsigned long long)l->moe.expert.width);
        if (l->moe.shared && l->moe.expert.width * l->moe.shared % d->tp)
            REFUSE("tp = %u does not divide the shared experts' width", d->tp);
    }
    if (!legal_key_ranks(a, job, d, why))
        return false;
    if (d->ep_nodes > 1 && (d->ep_nodes >= d->ep || d->ep % d->ep_nodes))
        REFUSE("%u nodes do not divide ep = %u", d->ep_nodes, d->ep);
    if (!experts && (d->ep > 1 || d->etp > 1))
        REFUSE("ep and etp need a model with experts");
    if ((uint64_t)d->tp * d->cp * d->dp % ((uint64_t)d->ep * d->etp))
        REFUSE("ep * etp = %llu does not divide tp * cp * dp = %u", (unsigned long long)d->ep * d->etp,
               d->tp * d->cp * d->dp);
    uint64_t s = job->train.sequence;
    if (d->cp > 1 && s % (2 * (uint64_t)d->cp))
        REFUSE("cp = %u: the sequence of %llu tokens is not a multiple of 2 * cp", d->cp, (unsigned long long)s);
    if (d->sp && d->tp == 1)
        REFUSE("sequence parallelism needs tp > 1");
    if (d->sp && s / d->cp * d->microbatch % d->tp)
        REFUSE("sequence parallelism: tp = %u does not divide the %llu tokens of a microbatch", d->tp,
               (unsigned long long)(s / d->cp * d->microbatch));
    return true;
}

bool decision_folds(const struct decision *d)
{
    return d->schedule == SCHED_AUTO || d->schedule == SCHED_FILE ? d->folds : schedule_chunks(d->schedule) == 2;
}

static bool legal_stages(struct arena *a, const struct job *job, const struct decision *d, const char **why)
{
    bool listed = d->schedule == SCHED_AUTO || d->schedule == SCHED_FILE;
    if (d->recompute == RECOMPUTE_AUTO)
        REFUSE("a decision names one kind of recomputation");
    if ((uint64_t)d->pp * d->vpp != d->nstages)
        REFUSE("%u stages are not pp * vpp = %llu", d->nstages, (unsigned long long)d->pp * d->vpp);
    uint32_t chunks = schedule_chunks(d->schedule);
    if (d->folds && (!listed || d->vpp != 2))
        REFUSE("folded placement has two stages per rank and comes with its schedule");
    if (!listed && (chunks ? d->vpp != chunks : d->vpp < 2))
        REFUSE("schedule %s takes vpp %s, not %u", schedule_name(d->schedule),
               chunks == 1   ? "= 1"
               : chunks == 2 ? "= 2"
                             : ">= 2",
               d->vpp);
    if (d->vpp > DECISION_MOST_VPP)
        REFUSE("vpp = %u: at most %u chunks per rank", d->vpp, DECISION_MOST_VPP);
    if (d->vpp > 1 && d->pp == 1)
        REFUSE("vpp = %u needs pp > 1", d->vpp);
    if (d->schedule == SCHED_DUALPIPE && (d->pp % 2 || d->microbatches % 2 || d->microbatches < 2 * d->pp))
        REFUSE("dualpipe needs an even pp and an even number of at least 2 * pp microbatches");
    if (d->schedule == SCHED_DUALPIPE_V && d->microbatches < 2 * d->pp - 1)
        REFUSE("dualpipe_v needs at least 2 * pp - 1 microbatches");
    uint32_t group = d->schedule_group ? d->schedule_group : d->pp, rest = d->microbatches % group;
    if (!listed && !chunks && group < d->pp)
        REFUSE("%s: groups of %u microbatches are smaller than pp = %u", schedule_name(d->schedule), group, d->pp);
    if (!listed && !chunks && d->microbatches > group && rest && rest < d->pp)
        REFUSE("%s: a last group of %u microbatches is smaller than pp = %u", schedule_name(d->schedule), rest, d->pp);
    uint32_t next = 0;
    for (uint32_t s = 0; s < d->nstages; s++) {
        const struct stage *st = &d->stages[s];
        if (st->first != next || st->count > job->model.nlayers - next)
            REFUSE("stage %u starts at layer %u, expected %u", s, st->first, next);
        if (st->spared > st->count || (st->spared && d->recompute == RECOMPUTE_NONE))
            REFUSE("stage %u spares %u of %u layers from recomputation", s, st->spared, st->count);
        uint32_t again = d->recompute_layers < st->count ? d->recompute_layers : st->count;
        if (d->recompute_layers && st->spared != st->count - again)
            REFUSE("stage %u recomputes %u layers, not the %u asked for", s, st->count - st->spared, again);
        if (st->embed != (s == 0) || st->head != (s + 1 == d->nstages))
            REFUSE("the embedding belongs to the first stage and the head to the last");
        next += st->count;
    }
    if (next != job->model.nlayers)
        REFUSE("the stages hold %u of %u layers", next, job->model.nlayers);
    return true;
}

bool decision_legal(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d,
                    const char **why)
{
    return legal_degrees(a, job, topo, d, why) && legal_shapes(a, job, d, why) && legal_stages(a, job, d, why);
}

/* What the program form can say: operands have fewer than 2^31 rows, a bucket is one operand of 64 columns;
 * and how long programs may become, at 400 bytes an instruction in all passes together.  The count is
 * generous: 60 instructions of a layer and 40 of the rest, per microbatch, with forward, backward and
 * recomputation. */
#define MOST_ROWS INT32_MAX
#define MOST_INSTRUCTIONS ((uint64_t)4 << 20)

static bool emittable_size(struct arena *a, const struct job *job, const struct decision *d, const char **why)
{
    uint64_t tokens = (uint64_t)d->microbatch * job->train.sequence;
    uint64_t layer = 30 * (1 + decision_cuts(job, d));
    uint64_t insns = (((uint64_t)job->model.nlayers + job->model.predict) * layer + (uint64_t)d->nstages * 40) *
                     d->microbatches;
    double bucket = (double)job->model.vocab * (double)job->model.width;
    for (uint32_t i = 0; i < model_all_layers(&job->model); i++)
        bucket = fmax(bucket, (double)model_layer_parameters(&job->model, model_layer(&job->model, i), false));
    if (tokens > MOST_ROWS)
        REFUSE("a microbatch of %llu tokens", (unsigned long long)tokens);
    if (bucket / d->tp > 64.0 * MOST_ROWS)
        REFUSE("weights of %.3g elements on one rank", bucket / d->tp);
    if (insns > MOST_INSTRUCTIONS)
        REFUSE("a program of about %.1f million instructions (%u microbatches)", (double)insns * 1e-6, d->microbatches);
    return true;
}

/* ranks over which experts' state is split: the same number as for dense weights, where there are as many */
static struct mesh_degrees mesh_degrees(const struct job *job, const struct decision *d, bool experts, uint32_t nodes)
{
    struct mesh_degrees g = {.size = {[AXIS_TP] = d->tp, [AXIS_CP] = d->cp, [AXIS_DP] = d->dp, [AXIS_PP] = d->pp},
                             .experts = experts,
                             .etp = d->etp,
                             .ep = d->ep,
                             .nodes = nodes,
                             .keys = decision_key_ranks(job, d),
                             .shard = d->zero ? d->shard : 1};
    memcpy(g.order, d->order, sizeof g.order);
    uint32_t edp = decision_expert_dp(d);
    g.expert_shard = g.shard < edp ? g.shard : edp;
    return g;
}

struct mesh decision_mesh(const struct job *job, const struct decision *d)
{
    struct mesh_degrees g = mesh_degrees(job, d, model_has_experts(&job->model), d->ep_nodes);
    struct mesh m;
    enum mesh_dim what[2];
    return mesh_fold(&g, &m, what) ? m : mesh_new(g.size, g.order);
}

bool decision_experts_nest(const struct job *job, const struct decision *d, uint32_t nodes)
{
    struct mesh_degrees g = mesh_degrees(job, d, true, nodes);
    struct mesh m;
    enum mesh_dim what[2];
    return mesh_fold(&g, &m, what);
}

static bool emittable_mesh(struct arena *a, const struct job *job, const struct decision *d, const char **why)
{
    struct mesh_degrees g = mesh_degrees(job, d, model_has_experts(&job->model), d->ep_nodes);
    struct mesh m;
    enum mesh_dim what[2];
    bool folds = mesh_fold(&g, &m, what);
    if (!folds && what[0] == MESH_WORLD)
        REFUSE(
            "groups of experts, of their nodes, of key heads and of shards that end inside those of tp, cp and dp in "
            "more than %d places",
            NDIGITS - NAXES);
    if (!folds)
        REFUSE("%s = %u across %s: their groups do not nest", mesh_dim_names[what[0]],
               what[0] == MESH_SHARD || what[0] == MESH_EXPERT_SHARD ? d->shard
               : what[0] == MESH_EP                                  ? d->ep
               : what[0] == MESH_EP_NEAR                             ? d->ep / d->ep_nodes
               : what[0] == MESH_ETP                                 ? d->etp
               : what[0] == MESH_KEYS                                ? g.keys
                                                                     : g.size[what[0]],
               mesh_dim_names[what[1]]);
    return true;
}

/* An expert's room is counted per sequence, by the rank that routes it: a rank that has a part of a sequence
 * would drop other tokens than one rank alone. */
static bool emittable_capacity(struct arena *a, const struct decision *d, const char **why)
{
    if (d->cp > 1)
        REFUSE("experts with a capacity and sequences split over cp = %u", d->cp);
    if (d->sp && d->microbatch % d->tp)
        REFUSE("experts with a capacity and the sequences of a microbatch of %u split over tp = %u", d->microbatch,
               d->tp);
    return true;
}

uint64_t decision_free_bytes(const struct job *job, const struct topo_gpu *g)
{
    if (job->wishes.frees)
        return job->wishes.free_bytes;
    return topo_is_cpu(g) ? 0 : g->memory_bytes / 50 >> 20 << 20;
}

uint64_t decision_gpu_bytes(const struct job *job, const struct topo_gpu *g)
{
    uint64_t most = g->memory_bytes > g->reserve_bytes ? g->memory_bytes - g->reserve_bytes : 0;
    uint64_t free_bytes = decision_free_bytes(job, g);
    most = most > free_bytes ? most - free_bytes : 0;
    return job->wishes.memory && job->wishes.memory < most ? job->wishes.memory : most;
}

const char *decision_free_text(struct arena *a, const struct job *job, const struct topo_gpu *g)
{
    struct job unbounded = *job;
    uint64_t free_bytes = decision_free_bytes(job, g);
    unbounded.wishes.memory = 0;
    bool bounds = free_bytes && decision_gpu_bytes(job, g) == decision_gpu_bytes(&unbounded, g);
    return bounds ? arena_printf(a, " (%s are kept free)", units_show_bytes(free_bytes).s) : "";
}

uint64_t decision_memory_bytes(const struct job *job, const struct topo *topo, const struct decision *d)
{
    return decision_gpu_bytes(job, &topo->types[d->type].gpu);
}

bool decision_pairs(enum schedule_kind k)
{
    return schedule_has(k, SCHEDULE_PAIRS);
}

bool decision_tp_turns(const struct job *job, const struct decision *d)
{
    const struct profile *p = job->wishes.profile;
    bool stack = job_is_modelled(job) && (d->sp ? p->sp_backward_hidden : p->tp_backward_hidden) <= 0;
    return stack || job->wishes.never_overlap & OVERLAP_TP;
}

bool decision_rows_turn(const struct job *job, const struct decision *d)
{
    bool pairs = decision_pairs(d->schedule) || d->schedule == SCHED_AUTO || d->listed;
    return (job_is_modelled(job) && !pairs) || job->wishes.never_overlap & OVERLAP_ALL_TO_ALL;
}

bool decision_exchanges_apart(const struct job *job, const struct decision *d)
{
    return decision_pairs(d->schedule) && d->zero < 2 && !(job->wishes.never_overlap & OVERLAP_DP);
}

uint32_t decision_cuts(const struct job *job, const struct decision *d)
{
    uint64_t rows = d->microbatch * job->train.sequence / d->cp / (d->sp ? d->tp : 1);
    if (!(job->wishes.overlap & OVERLAP_TP) || d->tp == 1 || job->train.fp8_kept)
        return 1;
    for (uint32_t i = 0; i < model_all_layers(&job->model); i++)
        if (model_layer(&job->model, i)->is_moe)
            return 1;
    return rows % 4 == 0 ? 4 : rows % 2 == 0 ? 2 : 1;
}

bool decision_skews(const struct job *job, const struct decision *d)
{
    return schedule_has(d->schedule, SCHEDULE_SKEWS) && job->wishes.post_validation && d->pp > 1;
}

/* What a step foretells must follow from its own gradients, and what runs before the seam must not add to what is
 * checked. */
static bool emittable_skewed(struct arena *a, const struct job *job, const char **why)
{
    if (job->train.optimizer != OPT_ADAMW)
        REFUSE("post_validation with another optimizer than adamw");
    if (job->train.precision == DT_FP16)
        REFUSE("post_validation with fp16"); /* a step would begin before its loss scale is known */
    if (job->wishes.offload & OFFLOAD_OPTIMIZER)
        REFUSE("post_validation with the optimizer's state in host memory");
    if (model_has_experts(&job->model))
        REFUSE("post_validation with experts");
    return true;
}

/* attention within chunks of the sequence */
static bool emittable_chunk(struct arena *a, const struct job *job, const struct attn *t, const struct decision *d,
                            const char **why)
{
    if (job->train.sequence % t->chunk)
        REFUSE("chunks of %u tokens in sequences of %llu", t->chunk, (unsigned long long)job->train.sequence);
    if (d->cp > 1 && !attn_local(t, job->train.sequence, d->cp))
        REFUSE("chunks of %u tokens across the %u runs that cp = %u cuts a sequence into", t->chunk, 2 * d->cp, d->cp);
    if (decision_exchanges_heads(d))
        REFUSE("attention in chunks with heads exchanged over cp = %u", d->cp);
    return true;
}

bool decision_emittable(struct arena *a, const struct job *job, const struct decision *d, const char **why)
{
    const char *what;
    struct span where;
    if (model_unsupported(job, &what, &where))
        REFUSE("%s", what);
    for (uint32_t i = 0; i < model_all_layers(&job->model); i++) {
        const struct layer *l = model_layer(&job->model, i);
        if (l->attn.qk_norm == QK_NORM_FULL && d->tp > 1)
            REFUSE("tp = %u with queries normalised over all heads", d->tp);
        if (l->attn.sinks && decision_exchanges_heads(d))
            REFUSE("sinks with heads exchanged over cp = %u", d->cp);
        if (l->attn.alibi && decision_exchanges_heads(d))
            REFUSE("alibi with heads exchanged over cp = %u", d->cp);
        if (attn_reach(&l->attn, job->train.sequence) < job->train.sequence &&
            !emittable_chunk(a, job, &l->attn, d, why))
            return false;
        if (l->is_moe && l->moe.expert.bias && d->etp > 1)
            REFUSE("experts with biases and etp = %u", d->etp);
        if (l->is_moe && l->moe.expert.bias && l->moe.shared)
            REFUSE("shared experts with biases");
        if (l->is_moe && d->tp > 1 && !d->sp)
            REFUSE("experts with tp = %u and no sequence parallelism", d->tp);
        if (l->is_moe && l->moe.capacity > 0 && !emittable_capacity(a, d, why))
            return false;
    }
    if (job->wishes.overlap & OVERLAP_ALL_TO_ALL && !decision_pairs(d->schedule))
        REFUSE("overlap of all_to_all without combined_1f1b, dualpipe or dualpipe_v");
    if (job->wishes.overlap & OVERLAP_TP && job->wishes.profile->allocator > 0.5)
        REFUSE("overlap of tp with profile \"%s\"", job->wishes.profile_name);
    if (job->wishes.overlap & OVERLAP_CP && d->cp > 1 && d->context != CONTEXT_RING)
        REFUSE("overlap of cp by %s", context_names[d->context]);
    if (job->wishes.never_overlap & OVERLAP_PP)
        REFUSE("never overlap of pp");
    if (job->wishes.never_overlap & OVERLAP_DP && d->prefetch)
        REFUSE("prefetch = %u with 'never overlap dp'", d->prefetch);
    if (decision_skews(job, d) && !emittable_skewed(a, job, why))
        return false;
    if (job->train.fp8_kept && !decision_keeps_eight(a, job, d, why))
        return false;
    return emittable_mesh(a, job, d, why) && emittable_size(a, job, d, why);
}

uint32_t decision_degree(const struct decision *d, enum degree which)
{
    const uint32_t value[NDEGREES] = {[DEG_TP] = d->tp,         [DEG_CP] = d->cp,
                                      [DEG_PP] = d->pp,         [DEG_VPP] = d->vpp,
                                      [DEG_DP] = d->dp,         [DEG_EP] = d->ep,
                                      [DEG_ETP] = d->etp,       [DEG_ZERO] = d->zero,
                                      [DEG_SHARD] = d->shard,   [DEG_MICROBATCH] = d->microbatch,
                                      [DEG_GPUS] = d->gpus_used};
    return value[which];
}

void decision_spare(struct decision *d)
{
    for (uint32_t s = 0; s < d->nstages; s++) {
        struct stage *st = &d->stages[s];
        st->spared = d->recompute_layers && d->recompute_layers < st->count ? st->count - d->recompute_layers : 0;
    }
}

/* are the axes that have more than one rank in the order tp, cp, dp, pp? */
static bool usual_order(const struct decision *d)
{
    static const enum axis usual[NAXES] = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP};
    const uint32_t degree[NAXES] = {[AXIS_TP] = d->tp, [AXIS_CP] = d->cp, [AXIS_DP] = d->dp, [AXIS_PP] = d->pp};
    int at = 0;
    for (int i = 0; i < NAXES; i++) {
        if (degree[d->order[i]] == 1)
            continue;
        while (at < NAXES && usual[at] != d->order[i])
            at++;
    }
    return at < NAXES;
}

char *decision_recompute_text(struct arena *a, const struct decision *d, bool layers)
{
    struct strbuf b = {0};
    strbuf_printf(&b, "recompute %s", recompute_names[d->recompute]);
    if (d->recompute == RECOMPUTE_FULL && d->recompute_layers)
        strbuf_printf(&b, "(layers=%u)", d->recompute_layers);
    if (d->recompute == RECOMPUTE_SELECTIVE) {
        const char *separator = " [";
        for (int i = 0; i < 8; i++)
            if (d->parts & 1u << i) {
                strbuf_printf(&b, "%s%s", separator, recompute_part_names[i]);
                separator = " ";
            }
        strbuf_text(&b, "]");
    }
    uint32_t spared = 0, all = 0;
    for (uint32_t s = 0; s < d->nstages && !d->recompute_layers; s++) {
        spared += d->stages[s].spared;
        all += d->stages[s].count;
    }
    if (spared && layers)
        strbuf_printf(&b, " in %u of %u layers", all - spared, all);
    char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}

char *decision_text(struct arena *a, const struct job *job, const struct decision *d)
{
    struct strbuf b = {0};
    strbuf_printf(&b, "tp %u%s, pp %u", d->tp, d->sp ? " sp" : "", d->pp);
    if (d->vpp > 1)
        strbuf_printf(&b, ", vpp %u", d->vpp);
    if (d->cp > 1)
        strbuf_printf(&b, ", cp %u %s", d->cp, context_names[d->context]);
    strbuf_printf(&b, ", dp %u", d->dp);
    if (d->ep > 1 || d->etp > 1)
        strbuf_printf(&b, ", ep %u", d->ep);
    if (d->ep_nodes > 1)
        strbuf_printf(&b, " over %u nodes", d->ep_nodes);
    if (d->etp > 1)
        strbuf_printf(&b, ", etp %u", d->etp);
    strbuf_printf(&b, ", zero %u", d->zero);
    if (d->zero && d->shard != d->dp * d->cp)
        strbuf_printf(&b, " over %u", d->shard);
    strbuf_printf(&b, ", microbatch %u x %u, %s", d->microbatch, d->microbatches, schedule_name(d->schedule));
    if (d->schedule_group)
        strbuf_printf(&b, "(group=%u)", d->schedule_group);
    if (decision_skews(job, d))
        strbuf_text(&b, " post-validated");
    if (!usual_order(d)) {
        strbuf_text(&b, ", order");
        for (int i = 0; i < NAXES; i++)
            strbuf_printf(&b, " %s", axis_names[d->order[i]]);
    }
    if (d->room > 0)
        strbuf_printf(&b, ", expert room %.4g", d->room);
    strbuf_printf(&b, ", %s", decision_recompute_text(a, d, true));
    if (job->wishes.offload)
        strbuf_printf(&b, ", offload%s%s", job->wishes.offload & OFFLOAD_OPTIMIZER ? " optimizer" : "",
                      job->wishes.offload & OFFLOAD_ACTIVATIONS ? " activations" : "");
    char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}
