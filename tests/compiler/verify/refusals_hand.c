/* Wrong plans that no text of programs says; see refusals.h. */

#include "compiler/support/vec.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/refusals.h"

#include <CUnit/CUnit.h>
#include <string.h>

/* ---- headers and tables ---- */

static void no_sequence(struct arena *a, struct plan *p)
{
    (void)a;
    p->train[0]->job.sequence = 0;
}
static void another_role(struct arena *a, struct plan *p)
{
    (void)a;
    p->train[1]->role = 0;
}
static void more_roles(struct arena *a, struct plan *p)
{
    (void)a;
    p->train[0]->nroles = p->eval[0]->nroles = 2;
}
static void not_evaluation(struct arena *a, struct plan *p)
{
    (void)a;
    p->eval[0]->evaluation = false;
}
static void smaller_mesh(struct arena *a, struct plan *p)
{
    (void)a;
    p->mesh.nranks /= 2;
}

/* ---- ranks.bin ---- */

static uint64_t *value(struct plan *p, uint32_t rank, enum slot_kind kind, uint32_t arg)
{
    const struct rank_info *r = &p->ranks->ranks[rank];
    const struct program *q = p->train[r->role];
    for (uint32_t i = 0; i < q->nslots; i++)
        if (q->slots[i].kind == kind && q->slots[i].arg == arg)
            return &p->ranks->values[r->slot + i];
    CU_FAIL_FATAL("no such slot");
    return NULL;
}

static void number_too_large(struct arena *a, struct plan *p)
{
    (void)a;
    *value(p, 0, SLOT_COORD, AXIS_BIT(AXIS_TP)) = 9;
}
static void another_number(struct arena *a, struct plan *p)
{
    (void)a;
    *value(p, 0, SLOT_COORD, AXIS_BIT(AXIS_TP)) = 1;
}
static void no_such_group(struct arena *a, struct plan *p)
{
    (void)a;
    *value(p, 0, SLOT_GROUP, AXIS_BIT(AXIS_TP)) = 1000;
}
static void another_group(struct arena *a, struct plan *p)
{
    (void)a;
    *value(p, 0, SLOT_GROUP, AXIS_BIT(AXIS_TP)) = *value(p, 0, SLOT_GROUP, AXIS_BIT(AXIS_DP));
}
/* a rank's group becomes another one */
static void own_group(struct plan *p, uint32_t rank, uint32_t mask, struct group g)
{
    const struct ranks *r = p->ranks;
    struct ranks *s = ranks_new(r->nranks, r->nroles, r->ngroups + 1, r->nvalues);
    memcpy(s->ranks, r->ranks, r->nranks * sizeof *r->ranks);
    memcpy(s->groups, r->groups, r->ngroups * sizeof *r->groups);
    memcpy(s->values, r->values, r->nvalues * sizeof *r->values);
    ranks_free(p->ranks);
    p->ranks = s;
    s->groups[s->ngroups - 1] = g;
    *value(p, rank, SLOT_GROUP, mask) = s->ngroups - 1;
}
static void twin_group(struct arena *a, struct plan *p)
{
    (void)a;
    own_group(p, 1, AXIS_BIT(AXIS_TP), p->ranks->groups[*value(p, 1, SLOT_GROUP, AXIS_BIT(AXIS_TP))]);
}
static void later_group(struct arena *a, struct plan *p)
{
    (void)a;
    own_group(p, 1, AXIS_BIT(AXIS_TP), (struct group){1, {2, 1, 1, 1}, {1, 0, 0, 0}});
}
/* the same members, along another axis: all members' numbers in it would be others */
static void group_along_dp(struct arena *a, struct plan *p)
{
    (void)a;
    own_group(p, 0, AXIS_BIT(AXIS_TP), (struct group){0, {1, 1, 2, 1}, {1, 0, 1, 0}});
}
/* as many members, but others */
static void group_of_stages(struct arena *a, struct plan *p)
{
    (void)a;
    own_group(p, 0, AXIS_BIT(AXIS_DP), (struct group){0, {1, 1, 1, 2}, {0, 0, 0, 4}});
}
/* the same members, as other runs of ranks than the mesh has */
static void world_of_other_runs(struct arena *a, struct plan *p)
{
    (void)a;
    own_group(p, 0, AXES_WORLD, (struct group){0, {2, 2, 1, 2}, {1, 2, 0, 4}});
}
static void group_at_another_stride(struct arena *a, struct plan *p)
{
    (void)a;
    own_group(p, 0, AXIS_BIT(AXIS_DP), (struct group){0, {1, 1, 2, 1}, {0, 0, 4, 0}});
}
static void roles_exchanged(struct arena *a, struct plan *p)
{
    (void)a;
    uint32_t last = p->ranks->nranks - 1;
    struct rank_info first = p->ranks->ranks[0];
    p->ranks->ranks[0].role = p->ranks->ranks[last].role;
    p->ranks->ranks[last].role = first.role;
}

static void peer_itself(struct arena *a, struct plan *p)
{
    (void)a;
    for (uint32_t r = 0; r < p->ranks->nranks; r++)
        if (p->ranks->ranks[r].role == 0)
            *value(p, r, SLOT_PEER, 1) = r;
    for (uint32_t i = 0; i < p->train[0]->nslots; i++)
        if (p->train[0]->slots[i].kind == SLOT_PEER)
            p->train[0]->slots[i].arg = p->eval[0]->slots[i].arg = 0;
}
static void no_such_peer(struct arena *a, struct plan *p)
{
    (void)a;
    *value(p, 0, SLOT_PEER, 1) = p->ranks->nranks;
}
static void peer_is_own_rank(struct arena *a, struct plan *p)
{
    (void)a;
    *value(p, 0, SLOT_PEER, 1) = 0;
}

/* the last rank's group of dp is another one, of which it is no member; none of its communication goes there */
static void no_members(struct arena *a, struct plan *p)
{
    (void)a;
    for (uint32_t r = 0; r < p->ranks->nranks; r++)
        *value(p, r, SLOT_GROUP, AXIS_BIT(AXIS_TP)) = *value(p, 0, SLOT_GROUP, AXIS_BIT(AXIS_TP));
}

/* ---- placement ---- */

/* four nodes of two GPUs below a switch */
static void four_nodes(struct arena *a, struct plan *p)
{
    static const char text[] =
        "<?xml version=\"1.0\"?>\n<cluster version=\"1\" name=\"hosts\">\n"
        "  <node-type id=\"host\" gpus=\"2\" host-bandwidth=\"2GB/s\">\n"
        "    <gpu model=\"cpu\" memory=\"2GiB\" memory-bandwidth=\"5GB/s\"><peak dtype=\"fp32\" "
        "rate=\"20GFLOP/s\"/></gpu>\n"
        "    <scale-up kind=\"none\"/><nic count=\"1\" bandwidth=\"10Gb/s\"/>\n  </node-type>\n"
        "  <nodes type=\"host\" count=\"4\"/>\n"
        "  <fabric medium=\"ethernet\"><tier name=\"rack\" span=\"2\"/><tier name=\"core\" "
        "span=\"all\"/></fabric>\n</cluster>\n";
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){"hosts.xml", text, strlen(text), false};
    p->topo = topo_parse(a, diag_new(a), s, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p->topo);
    uint32_t *nodes = ARENA_ARRAY(a, uint32_t, 4);
    for (uint32_t i = 0; i < 4; i++)
        nodes[i] = i;
    p->decision.nodes = nodes;
    p->decision.nnodes = (p->ranks->nranks + 1) / 2;
    for (uint32_t r = 0; r < p->ranks->nranks; r++) {
        p->ranks->ranks[r].node = r / 2;
        p->ranks->ranks[r].gpu = r % 2;
    }
}
/* one that is heard, and the one that a test asks for */
static void keep(struct arena *a, struct plan *p, const char *axis, const char *within, uint64_t nodes)
{
    struct keep_wish *w = ARENA_ARRAY(a, struct keep_wish, 2);
    w[0] = (struct keep_wish){.axis = "dp", .within = "rack"};
    w[1] = (struct keep_wish){.axis = axis, .within = within, .nodes = nodes};
    four_nodes(a, p);
    p->job->wishes.keeps = w;
    p->job->wishes.nkeeps = 2;
}
static void keeps_node(struct arena *a, struct plan *p)
{
    keep(a, p, "dp", "node", 0);
}
static void keeps_world(struct arena *a, struct plan *p)
{
    keep(a, p, "world", "node", 0);
}
static void keeps_tier(struct arena *a, struct plan *p)
{
    keep(a, p, "pp", "rack", 0);
}
static void keeps_nodes(struct arena *a, struct plan *p)
{
    keep(a, p, "dp", NULL, 1);
}
static void no_network(struct arena *a, struct plan *p)
{
    four_nodes(a, p);
    p->topo->types[0].nic_bytes_s_per_gpu = 0;
}
static void more_degrees(struct arena *a, struct plan *p)
{
    (void)a;
    p->decision.dp *= 2;
}
static void no_such_node(struct arena *a, struct plan *p)
{
    (void)a;
    p->ranks->ranks[0].node = 7;
}
static void another_type(struct arena *a, struct plan *p)
{
    struct topo_node_type *types = ARENA_ARRAY(a, struct topo_node_type, 2);
    types[0] = types[1] = p->topo->types[0];
    types[1].id = "other";
    p->topo->types = types;
    p->decision.type = 1;
}
static void no_such_gpu(struct arena *a, struct plan *p)
{
    (void)a;
    p->ranks->ranks[0].gpu = 8;
}
static void spare_node(struct arena *a, struct plan *p)
{
    (void)a;
    p->topo->nodes[0].state = NODE_SPARE;
}
static void excluded_gpu(struct arena *a, struct plan *p)
{
    (void)a;
    p->topo->nodes[0].excluded_gpus = 1;
}
static void two_on_a_gpu(struct arena *a, struct plan *p)
{
    (void)a;
    p->ranks->ranks[1].gpu = 0;
}
static void gpus_exchanged(struct arena *a, struct plan *p)
{
    (void)a;
    p->ranks->ranks[0].gpu = 1;
    p->ranks->ranks[1].gpu = 0;
}

static void nodes_exchanged(struct arena *a, struct plan *p)
{
    four_nodes(a, p);
    p->ranks->ranks[0].node = 1;
    p->ranks->ranks[2].node = 0;
}
static void fewer_nodes(struct arena *a, struct plan *p)
{
    four_nodes(a, p);
    p->decision.nnodes = 3;
}
static void fewer_stages(struct arena *a, struct plan *p)
{
    (void)a;
    p->decision.pp = 1;
    p->decision.dp *= 2;
}

/* ---- memory ---- */

static void small_gpu(struct arena *a, struct plan *p)
{
    (void)a;
    p->topo->types[0].gpu.memory_bytes = 4096;
    p->topo->types[0].gpu.reserve_bytes = 0;
}
static void large_evaluation(struct arena *a, struct plan *p)
{
    (void)a;
    p->eval[0]->arena_bytes = (uint64_t)1 << 50;
}
static void little_memory(struct arena *a, struct plan *p)
{
    (void)a;
    p->job->wishes.memory = 4096;
}
static void much_free(struct arena *a, struct plan *p)
{
    const struct topo_gpu *gpu = &p->topo->types[0].gpu;
    (void)a;
    p->job->wishes.frees = true;
    p->job->wishes.free_bytes = gpu->memory_bytes - gpu->reserve_bytes - 8192;
}
static void among_host(struct arena *a, struct plan *p)
{
    (void)a;
    for (uint32_t i = 0; i < p->train[0]->nbuffers; i++)
        if (!strcmp(p->train[0]->buffers[i].name, "param.embed"))
            p->train[0]->buffers[i].offset = 0;
}
static void gpu_kernels(struct arena *a, struct plan *p)
{
    (void)a;
    p->topo->types[0].gpu.sm = 90;
}

/* ---- batch ---- */

/* one sample less: the last microbatch reaches into the next step's batch */
static void odd_batch(struct arena *a, struct plan *p)
{
    (void)a;
    p->job->train.batch--;
    double tokens = (double)(p->job->train.batch * p->job->train.sequence);
    for (int k = 0; k < 2; k++) {
        struct program *q = k ? p->eval[0] : p->train[0];
        q->job.batch--;
        q->job.tokens_per_step = tokens;
        for (uint32_t i = 0; i < q->ninsns; i++)
            if (q->insns[i].op == OP_XENT_LOSS || q->insns[i].op == OP_XENT_I)
                q->attrs[q->insns[i].attr + (q->insns[i].op == OP_XENT_LOSS ? ATTR(XENT_LOSS, scale) : ATTR(XENT_I, scale))].u.f =
                    1 / tokens;
    }
}

/* ---- buckets ---- */

static void tensors_overlap(struct arena *a, struct plan *p)
{
    (void)a;
    for (uint32_t i = 0; i < p->train[0]->nbuckets; i++) {
        const struct bucket *b = &p->train[0]->buckets[i];
        for (uint32_t k = b->tensor + 1; k < b->tensor + b->ntensors; k++)
            p->train[0]->tensors[k].at--;
    }
}
static void larger_bucket(struct arena *a, struct plan *p)
{
    (void)a;
    p->train[0]->buckets[0].elements += 64;
}

/* ---- optimizer ---- */

static void no_momentum(struct arena *a, struct plan *p)
{
    (void)a;
    p->job->train.momentum = 0;
}

/* ---- what the reference step has no words for ---- */

static void biases(struct arena *a, struct plan *p)
{
    (void)a;
    ((struct layer *)(uintptr_t)p->job->model.layers[0])->attn.alibi = true;
}
static void chunks(struct arena *a, struct plan *p)
{
    (void)a;
    ((struct layer *)(uintptr_t)p->job->model.layers[0])->attn.chunk = 4;
}
static void only_planned(struct arena *a, struct plan *p)
{
    struct plan_only *o = ARENA_NEW(a, struct plan_only);
    o->what = "a word that is only planned";
    p->job->plan_only = o;
    p->job->nplan_only = 1;
}

static void expert_biases(struct arena *a, struct plan *p)
{
    (void)a;
    ((struct layer *)(uintptr_t)p->job->model.layers[0])->moe.expert.bias = true;
}
static void positions_ahead(struct arena *a, struct plan *p)
{
    (void)a;
    p->job->model.positions = 8;
}

static void sums_in_half(struct arena *a, struct plan *p)
{
    (void)a;
    p->job->train.reduce = DT_BF16;
}
static void accumulates_in_half(struct arena *a, struct plan *p)
{
    (void)a;
    p->job->train.grads = DT_BF16;
}

static void another_schedule(struct arena *a, struct plan *p)
{
    (void)a;
    p->decision.schedule = SCHED_1F1B;
}

const struct by_hand refusals_by_hand[] = {
    {"single", no_sequence, BY_VERIFY, "job: sequence is 0, must be 1 to"},
    {"whole", another_role, BY_VERIFY, "its header says role 0 of 2"},
    {"single", more_roles, BY_VERIFY, "its header says role 0 of 2"},
    {"single", not_evaluation, BY_VERIFY, "its header says role 0 of 1"},
    {"whole", smaller_mesh, BY_VERIFY, "8 ranks, the mesh has 4"},
    {"whole", number_too_large, BY_VERIFY, "slot tp is 9, at most 1 is declared"},
    {"whole", another_number, BY_VERIFY, "slot tp is 1, the mesh says 0"},
    {"whole", no_such_group, BY_VERIFY, "group group_tp is 1000 of"},
    {"whole", another_group, BY_VERIFY, "members from rank 0, the mesh says 2 from rank 0"},
    {"whole", later_group, BY_VERIFY, "members from rank 1, the mesh says 2 from rank 0"},
    {"whole", group_along_dp, BY_VERIFY, "members from rank 0, the mesh says 2 from rank 0"},
    {"whole", group_of_stages, BY_VERIFY, "2 members from rank 0, the mesh says 2 from rank 0"},
    {"whole", world_of_other_runs, BY_VERIFY, "8 members from rank 0, the mesh says 8 from rank 0"},
    {"whole", group_at_another_stride, BY_VERIFY, "2 members from rank 0, the mesh says 2 from rank 0"},
    {"whole", twin_group, BY_VERIFY, "but rank 0 of the same group says"},
    {"piped", roles_exchanged, BY_VERIFY, "its pipeline coordinate is 0, so that is its role"},
    {"piped", peer_itself, BY_VERIFY, "its peer is the rank itself"},
    {"piped", peer_is_own_rank, BY_UNFOLDING, "slot stage_1 names rank 0"},
    {"piped", no_such_peer, BY_UNFOLDING, "slot stage_1 names rank 4"},
    {"whole", no_members, BY_UNFOLDING, "uses of groups are by ranks that are no members"},
    {"whole", keeps_node, BY_VERIFY,
     "its dp group reaches from node host-0001 to node host-0002, beyond the wish to keep it within node"},
    {"whole", keeps_world, BY_VERIFY,
     "its world group reaches from node host-0001 to node host-0002, beyond the wish to keep it within node"},
    {"whole", keeps_tier, BY_VERIFY,
     "its pp group reaches from node host-0001 to node host-0003, beyond the wish to keep it within rack"},
    {"whole", keeps_nodes, BY_VERIFY,
     "its dp group reaches from node host-0001 to node host-0002, beyond the wish to keep it within 1 nodes"},
    {"whole", no_network, BY_VERIFY, "no link joins nodes host-0001 and host-0002"},
    {"whole", more_degrees, BY_VERIFY, "8 ranks of 2 roles, the decision's degrees ask for 16 of 2"},
    {"whole", no_such_node, BY_VERIFY, "rank 0, node 7 of 1"},
    {"whole", another_type, BY_VERIFY, "is of type host, not other"},
    {"whole", no_such_gpu, BY_VERIFY, "rank 0, GPU 8 of 8 on node"},
    {"whole", spare_node, BY_VERIFY, "is a spare"},
    {"whole", excluded_gpu, BY_VERIFY, "rank 0, GPU 0 of node"},
    {"whole", two_on_a_gpu, BY_VERIFY, "already holds another rank"},
    {"whole", nodes_exchanged, BY_VERIFY,
     "it sits on GPU 0 of node host-0002, the decision puts it on GPU 0 of node host-0001"},
    {"whole", fewer_nodes, BY_VERIFY,
     "it sits on GPU 0 of node host-0004, the decision puts it on GPU 0 of node none"},
    {"whole", fewer_stages, BY_VERIFY, "8 ranks of 2 roles, the decision's degrees ask for 8 of 1"},
    {"whole", gpus_exchanged, BY_VERIFY,
     "it sits on GPU 1 of node"},
    {"single", small_gpu, BY_VERIFY, "does not fit the 4096 bytes that a cpu leaves"},
    {"single", much_free, BY_VERIFY, "does not fit the 8192 bytes that a cpu leaves"},
    {"single", small_gpu, BY_MEMORY, "role 0, its arena of "},
    {"single", large_evaluation, BY_MEMORY, "role 0 (evaluation), its arena of 1125899906842624 bytes does not fit"},
    {"single", little_memory, BY_VERIFY, "is larger than the 4096 bytes asked for"},
    {"parked", among_host, BY_MEMORY, "buffer param.embed lies in host memory"},
    {"single", gpu_kernels, BY_VERIFY, "its kernels use a workspace of"},
    {"single", odd_batch, BY_VERIFY, "it reads samples [2, 4) of a batch of 3"},
    {"mirrored", another_schedule, BY_CARRIED, "the bias that it moves is not saved by the first rank of its stage alone"},
    {"single", tensors_overlap, BY_VALUES, "tensors of bucket "},
    {"single", larger_bucket, BY_VALUES, " can't hold its bucket"},
    {"whole", sums_in_half, BY_VALUES, "it sums gradients in f32, the job asks for bf16"},
    {"scattered", accumulates_in_half, BY_VALUES, "it accumulates gradients in f32, the job asks for bf16"},
    {"tied", no_momentum, BY_VERIFY, "momentum is kept, but the model has none"},
    {"experts", expert_biases, BY_VALUES, "the model's step has no GROUPED_NT of "},
    {"latent", positions_ahead, BY_REFERENCE, "prediction modules with more than tokens in the embedding"},
    {"latent", positions_ahead, BY_VERIFY, "the reference step can't express"},
    {"single", only_planned, BY_VERIFY, "the reference step can't express a word that is only planned"},
    {"single", biases, BY_VALUES, "attribute alibi is 4 in the model, here 0"},
    {"single", chunks, BY_VALUES, "attribute sequence is 4 in the model, here 8"},
    {NULL, NULL, BY_VERIFY, NULL},
};

#define NAMES "words for a value in a message, no rule of its own"
#define SAME "what was read as a list goes back to where it was read"
const struct unreached refusals_unreached[] = {
    {"a sum that the model's step does not have", NAMES},
    {"%s + ...", NAMES},
    {"its operand can't hold the result", SAME},
    {"more than %d parts", "matrices of 512 parts: beyond a test's size"},
    {"more than %u pairs of overlapping operands", "of one program: beyond a test's size"},
    {"what these choices lack is told twice", "test_fields.c has the plan: it takes a second block of metrics"},
    {"role %u is its own mirror image", "slots.c refuses its group before"},
    {"of all nodes it has %s", "an exchange back asks for the rows of all nodes, check_home() for their tokens"},
    {NULL, NULL},
};
