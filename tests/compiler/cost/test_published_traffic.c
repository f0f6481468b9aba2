/* Communication as papers count it, against instructions of lowered programs and transfers of the estimate.
 *
 * Volumes are bytes that one rank sends: 2(n-1)/n of the vector for a ring all-reduce of n members, (n-1)/n
 * for a gather or a scatter of the whole vector, the message for a send.  Sources:
 *
 * - SC'21: Narayanan et al., arXiv:2104.04473.  Section 3.2, per microbatch: bsh between pipeline
 * neighbours, 8bsh (t-1)/t per layer and rank of tensor parallelism; 2.2.2: interleaving sends v times as
 * much; 4.1: scatter/gather.
 *
 * - Korthikanti et al., arXiv:2205.05198, section 4.2: an all-reduce becomes a reduce-scatter and an
 * all-gather; inputs are gathered once more for the weight gradient.
 *
 * - ZeRO: Rajbhandari et al., arXiv:1910.02054, section 7: data parallelism and stages 1 and 2 move twice the
 * parameters, stage 3 three times.
 *
 * - Llama 3: Grattafiori et al., arXiv:2407.21783, section 3.3.2: 126 layers, tp 8, pp 16. */

#include "tests/compiler/cost/published.h"

#include "compiler/schedule/schedule.h"
#include "compiler/support/vec.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#define NMB 4
#define PIPE_16                                                                                              \
    " pp = 16\n dp = 1\n tp = 8\n microbatch = 1\n schedule 1f1b\n zero = 0\n layout "                       \
    "\"Et*7|(t*8|)*14t*7L\"\n"

/* one tp collective per kind, layers or not, and microbatch, summed over the pipeline's ranks */
struct counts {
    uint32_t all_reduce, reduce_scatter, gather_forward, gather_gradient, gather_again;
};

static const struct operand *operand_of(const struct program *p, uint32_t i, uint32_t k)
{
    return &p->operands[p->insns[i].operand + k];
}

static uint32_t group_of(const struct program *p, uint32_t i)
{
    const struct insn *n = &p->insns[i];
    const struct isa_info *info = isa_info(n->op);
    for (uint32_t k = 0; k < info->nattrs; k++)
        if (info->attr[k].kind == ATTR_GROUP)
            return p->slots[p->attrs[n->attr + k].slot].arg;
    return 0;
}

/* is the gathered matrix the input of the next weight gradient that reads it (and not its output's gradient)?
 */
static bool gathers_input(const struct program *p, uint32_t i)
{
    uint32_t buffer = operand_of(p, i, OPND(ALL_GATHER, y))->buffer;
    for (uint32_t k = i + 1; k < p->ninsns; k++) {
        if (p->insns[k].op == OP_EMBED_W)
            return false;
        if (p->insns[k].op != OP_MATMUL_TN)
            continue;
        if (operand_of(p, k, OPND(MATMUL_TN, a))->buffer == buffer)
            return false;
        if (operand_of(p, k, OPND(MATMUL_TN, b))->buffer == buffer)
            return true;
    }
    CU_FAIL("gathered for nothing");
    return false;
}

static struct counts count_tp(const struct plan *plan, uint32_t microbatch, bool layers)
{
    struct counts c = {0};
    for (uint32_t r = 0; r < plan->nroles; r++) {
        const struct program *p = plan->train[r];
        for (uint32_t i = 0; i < p->ninsns; i++) {
            const struct insn *n = &p->insns[i];
            if (n->microbatch != microbatch || (n->layer != NONE) != layers || n->queue != QUEUE_TP)
                continue;
            c.all_reduce += n->op == OP_ALL_REDUCE;
            c.reduce_scatter += n->op == OP_REDUCE_SCATTER;
            if (n->op != OP_ALL_GATHER)
                continue;
            uint32_t *kind = n->action == 'F'      ? &c.gather_forward
                             : gathers_input(p, i) ? &c.gather_again
                                                   : &c.gather_gradient;
            ++*kind;
        }
    }
    return c;
}

/* Llama 3 405B, per microbatch over 126 layers and 16 stages.  Forward: one collective behind attention and
 * one behind the feed-forward network (and one in front of each with sequence parallelism); backward mirrors
 * it.  Outside the layers: the embedding's sum, the gathered or summed input of the head, two reductions of
 * the loss.  Sums of the norms' gradients, once per step, are not on the tp queue. Full recomputation runs a
 * layer's forward again except for its last product, whose output nothing reads: 5 all-reduces per layer and
 * not the 6 of a Megatron-LM that calls the layer once more. */
static const struct {
    const char *name, *plan;
    struct counts layers, rest;
} counted[] = {
    {"405B without sp",
     PIPE_16 " sequence_parallel no\n recompute none\n",
     {.all_reduce = 504},
     {.all_reduce = 4}},
    {"405B with sp",
     PIPE_16 " sequence_parallel yes\n recompute none\n",
     {.reduce_scatter = 504, .gather_forward = 252, .gather_gradient = 252, .gather_again = 252},
     {.all_reduce = 2, .reduce_scatter = 2, .gather_forward = 1, .gather_gradient = 1, .gather_again = 1}},
    {"405B recomputed",
     PIPE_16 " sequence_parallel no\n recompute full\n",
     {.all_reduce = 630},
     {.all_reduce = 4}},
};

static struct published_run llama_405b(const char *name, const char *plan)
{
    return (struct published_run){.name = name,
                                  .layers = 126,
                                  .width = 16384,
                                  .heads = 128,
                                  .kv = 8,
                                  .ffn = 53248,
                                  .sequence = 8192,
                                  .batch = NMB,
                                  .plan = plan,
                                  .hopper = true,
                                  .gpus = 128,
                                  .roomy = true};
}

static void test_counts(void)
{
    for (size_t i = 0; i < ARRAY_LEN(counted); i++) {
        struct arena *a = arena_new();
        struct published_run run = llama_405b(counted[i].name, counted[i].plan);
        struct plan *p = published_plan(a, &run);
        for (uint32_t mb = 0; mb < NMB; mb++) {
            struct counts layers = count_tp(p, mb, true), rest = count_tp(p, mb, false);
            CU_ASSERT(memcmp(&layers, &counted[i].layers, sizeof layers) == 0);
            CU_ASSERT(memcmp(&rest, &counted[i].rest, sizeof rest) == 0);
        }
        plan_close(p);
        arena_free(a);
    }
}

/* bytes that an instruction makes its rank send */
static double sent_bytes(const struct plan *plan, const struct program *p, uint32_t i)
{
    const struct insn *n = &p->insns[i];
    const struct isa_info *info = isa_info(n->op);
    double whole = 0;
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = operand_of(p, i, k);
        if (o->buffer != NONE)
            whole = fmax(whole, (double)o->rows * o->cols * isa_dtype_bytes((enum dtype)o->dtype));
    }
    if (n->op == OP_SEND)
        return whole;
    double members = mesh_group_size(&plan->mesh, group_of(p, i)), share = (members - 1) / members;
    return (n->op == OP_ALL_REDUCE ? 2 : 1) * share * whole;
}

static double sum_sent(const struct plan *plan, uint32_t role, uint32_t mask, bool layers)
{
    const struct program *p = plan->train[role];
    double sum = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        bool mine = mask ? group_of(p, i) == mask : n->op == OP_SEND;
        if (mine && (!layers || n->layer != NONE))
            sum += sent_bytes(plan, p, i);
    }
    return sum;
}

/* SC'21 3.2 with 16-bit elements, for a middle rank.  A tensor-parallel byte is sent once whether summed or
 * scattered and gathered; gathering inputs again adds 2 bsh (t-1)/t per layer to the published 8.  The
 * published bsh per boundary and direction is every tensor rank's message without sequence parallelism; with
 * it the message is 1/t, which is what the scatter/gather optimisation of section 4.1 sends between nodes. */
static const struct {
    const char *name;
    uint32_t layers, width, heads, tp, pp, microbatch;
    bool sp;
    double tp_bsh, pp_bsh; /* in units of bsh: per layer and (t-1)/t; per boundary and direction */
} volumes[] = {
    {"GPT-3 175B", 96, 12288, 96, 8, 16, 1, false, 8, 1},
    {"GPT-3 175B sp", 96, 12288, 96, 8, 16, 1, true, 10, 1.0 / 8},
    {"GPT 39B", 48, 8192, 64, 8, 4, 4, false, 8, 1},
    {"GPT 7.5B", 36, 4096, 32, 4, 4, 2, false, 8, 1},
    {"GPT 7.5B sp", 36, 4096, 32, 4, 4, 2, true, 10, 1.0 / 4},
};

static void test_volumes(void)
{
    for (size_t i = 0; i < ARRAY_LEN(volumes); i++) {
        struct arena *a = arena_new();
        uint32_t t = volumes[i].tp, pp = volumes[i].pp, layers = volumes[i].layers;
        char *plan =
            arena_printf(a,
                         " tp = %u\n pp = %u\n dp = 1\n zero = 0\n microbatch = %u\n recompute none\n"
                         " schedule 1f1b\n sequence_parallel %s\n layout \"Et*%u|(t*%u|)*%ut*%uL\"\n",
                         t, pp, volumes[i].microbatch, volumes[i].sp ? "yes" : "no", layers / pp, layers / pp,
                         pp - 2, layers / pp);
        struct published_run run = {.name = volumes[i].name,
                                    .layers = layers,
                                    .width = volumes[i].width,
                                    .heads = volumes[i].heads,
                                    .batch = NMB * volumes[i].microbatch,
                                    .plan = plan,
                                    .gpus = t * pp < 8 ? 8 : t * pp,
                                    .roomy = true};
        struct plan *p = published_plan(a, &run);
        double bsh = 2.0 * volumes[i].microbatch * 2048 * volumes[i].width;
        double tp_wanted = volumes[i].tp_bsh * bsh * (t - 1) / t * (layers / pp) * NMB;
        CU_ASSERT_DOUBLE_EQUAL(sum_sent(p, 1, AXIS_BIT(AXIS_TP), true) / tp_wanted, 1, 1e-12);
        /* a middle rank sends activations on and gradients back */
        CU_ASSERT_DOUBLE_EQUAL(sum_sent(p, 1, 0, false) / (2 * NMB * volumes[i].pp_bsh * bsh), 1, 1e-12);
        CU_ASSERT_DOUBLE_EQUAL(sum_sent(p, 0, 0, false) / (NMB * volumes[i].pp_bsh * bsh), 1, 1e-12);
        CU_ASSERT_DOUBLE_EQUAL(sum_sent(p, pp - 1, 0, false) / (NMB * volumes[i].pp_bsh * bsh), 1, 1e-12);
        plan_close(p);
        arena_free(a);
    }
}

/* stage boundaries that a microbatch crosses between ranks, forward and backward, per step: SC'21 2.2.2 */
static uint32_t crossings(const struct schedule *s)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < s->nranks; r++)
        for (uint32_t i = 0; i < s->nactions[r]; i++) {
            const struct action *x = &s->actions[r][i];
            bool on = x->kind == 'F' && x->stage + 1 < s->nstages, back = x->kind == 'B' && x->stage;
            n += (on && s->stage_rank[x->stage + 1] != r) || (back && s->stage_rank[x->stage - 1] != r);
        }
    return n;
}

static void test_interleaved(void)
{
    struct arena *a = arena_new();
    for (uint32_t p = 2; p <= 8; p *= 2)
        for (uint32_t v = 1; v <= 4; v++) {
            struct decision d = decision_single();
            d.pp = d.gpus_used = p;
            d.vpp = v;
            d.microbatches = 2 * p;
            d.schedule = v > 1 ? SCHED_INTERLEAVED : SCHED_1F1B;
            decision_cut(a, &d, p * v, NULL, 0, 0);
            const struct schedule *s = schedule_new(a, &d);
            CU_ASSERT_PTR_NOT_NULL_FATAL(s);
            CU_ASSERT_EQUAL(crossings(s), 2 * 2 * p * (p * v - 1));
        }
    arena_free(a);
}

/* ZeRO, section 7, in elements that a rank sends per step and parameter it holds, times d/(d-1).  Lowered
 * programs keep gradients in fp32 and parameters in bf16; the paper counts elements. */
static void test_zero_lowered(void)
{
    for (uint32_t zero = 0; zero < 2; zero++) {
        struct arena *a = arena_new();
        char *plan = arena_printf(
            a, " tp = 1\n pp = 1\n dp = 8\n zero = %u\n microbatch = 1\n recompute none\n", zero);
        struct published_run run = {.name = "7.5B",
                                    .layers = 36,
                                    .width = 4096,
                                    .heads = 32,
                                    .batch = 16,
                                    .plan = plan,
                                    .gpus = 8,
                                    .roomy = true};
        struct plan *p = published_plan(a, &run);
        const struct program *x = p->train[0];
        double psi = (double)model_parameters(&p->job->model), moved = 0;
        for (uint32_t i = 0; i < x->ninsns; i++)
            if (x->insns[i].queue == QUEUE_DP && (group_of(x, i) & AXIS_BIT(AXIS_DP)) &&
                x->insns[i].op != OP_SEND)
                moved += sent_bytes(p, x, i) / isa_dtype_bytes((enum dtype)operand_of(x, i, 0)->dtype);
        CU_ASSERT_DOUBLE_EQUAL(moved * 8 / 7 / psi, 2, 2e-3); /* buckets are padded */
        plan_close(p);
        arena_free(a);
    }
}

/* The estimate's seconds, where nothing hides and bandwidth is all that counts: stage 3 takes 1.5 times as
 * long as stage 2.  One microbatch, as the paper has it; all transfers of 16-bit elements. */
static void test_zero_estimated(void)
{
    double seconds[4];
    for (uint32_t zero = 0; zero < 4; zero++) {
        struct arena *a = arena_new();
        char *plan = arena_printf(a,
                                  " tp = 1\n pp = 1\n dp = 64\n zero = %u\n microbatch = 1\n recompute full\n"
                                  " never overlap dp\n",
                                  zero);
        struct published_run run = {.name = "GPT-3 175B",
                                    .layers = 96,
                                    .width = 12288,
                                    .heads = 96,
                                    .batch = 64,
                                    .train = "precision bf16(grads=bf16)",
                                    .plan = plan,
                                    .gpus = 64,
                                    .roomy = true};
        seconds[zero] =
            published_best(a, &run, published_job(a, &run), published_topo(a, &run))->estimate.dp_comm_s;
        arena_free(a);
    }
    CU_ASSERT_DOUBLE_EQUAL(seconds[3] / seconds[2], 1.5, 0.02);
    CU_ASSERT_DOUBLE_EQUAL(seconds[0] / seconds[2], 1, 0.05);
    CU_ASSERT_DOUBLE_EQUAL(seconds[1] / seconds[0], 1, 0.05);
    if (fabs(seconds[0] / seconds[2] - 1) > 0.05 || fabs(seconds[1] / seconds[0] - 1) > 0.05)
        printf("[%g %g %g %g] ", seconds[0], seconds[1], seconds[2], seconds[3]);
}

void suite_published_traffic(void);
void suite_published_traffic(void)
{
    CU_pSuite s = CU_add_suite("published_traffic", NULL, NULL);
    CU_add_test(s, "collectives of Llama 3 405B", test_counts);
    CU_add_test(s, "volumes of tensor and pipeline parallelism", test_volumes);
    CU_add_test(s, "interleaving sends v times as often", test_interleaved);
    CU_add_test(s, "ZeRO: volumes of lowered plans", test_zero_lowered);
    CU_add_test(s, "ZeRO: seconds of the estimate", test_zero_estimated);
}
