/* Cases of parameters of a profile; see numbers.h, and numbers.def for the cases themselves. */

#include "tests/compiler/profile/numbers.h"

#include "compiler/support/vec.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

void numbers_look(struct seen *s)
{
    s->job->wishes.profile = &s->profile;
    s->cost = cost_new(s->arena, s->job, s->topo, s->decision);
    cost_estimate(s->arena, s->cost, &s->e);
}

const struct seen *numbers_with(const struct seen *s, const char *name, double value)
{
    struct seen *t = ARENA_NEW(s->arena, struct seen);
    *t = *s;
    t->job = ARENA_NEW(s->arena, struct job);
    *t->job = *s->job;
    *PROFILE_PARAM(&t->profile, profile_param(name)) = value;
    numbers_look(t);
    return t;
}

#define LAYERS 8
#define WIDTH 2048.0
#define FFN 8192.0
#define SEQUENCE 2048.0
#define VOCAB 32000.0
#define HEADS 16.0
#define KV 8.0
#define HEAD 128.0
#define EXPERTS 16
#define EXPERT_FFN 1024

static const char job_text[] =
    "llmc 1\nmodel m {\n vocab 32000\n width 2048\n norm rmsnorm\n embed tokens\n"
    " repeat 8 { layer { attn gqa(heads=16, kv=8, rope=10_000)\n %s } }\n head untied\n}\n"
    "train {\n sequence 2048\n batch 64 sequences\n precision %s\n}\nplan {\n %s\n}\n";
static const char nodes_of_8[] =
    "<cluster version=\"1\"><node-type id=\"n\" gpus=\"8\"><gpu model=\"%s\"/><scale-up kind=\"nvswitch\" "
    "bandwidth=\"450GB/s\"/><nic count=\"%u\" bandwidth=\"400Gb/s\"/></node-type><nodes type=\"n\" count=\"4\"/>"
    "<fabric medium=\"infiniband\"><tier name=\"core\" span=\"all\"/></fabric></cluster>";

/* elements of a layer's matrices, and of all parameters */
static double layer_elements(void)
{
    return WIDTH * HEAD * (2 * HEADS + 2 * KV) + 3 * WIDTH * FFN;
}
static double elements(void)
{
    return 2 * VOCAB * WIDTH + LAYERS * (layer_elements() + 2 * WIDTH) + WIDTH;
}
static double microbatches(const struct seen *s)
{
    return s->decision->microbatches;
}
static double tokens(const struct seen *s)
{
    return SEQUENCE * s->decision->microbatch;
}
static double matmul(const struct seen *s, enum product p, double m, double n, double k)
{
    return cost_matmul_s(s->cost, p, (uint64_t)m, (uint64_t)n, (uint64_t)k, DTYPE_BF16);
}
static double attention(const struct seen *s, bool backward)
{
    struct cost_attention t = {.tokens = tokens(s) / s->decision->cp,
                               .context = SEQUENCE,
                               .heads = HEADS,
                               .kv = KV,
                               .qk = HEAD,
                               .v = HEAD};
    return cost_attention_s(s->cost, &t, DTYPE_BF16, backward);
}
static double over_tp(const struct seen *s, enum op op, double bytes)
{
    return cost_collective_s(s->cost, op, bytes, AXIS_BIT(AXIS_TP));
}

/* ---- items ---- */

static double item_product(const struct seen *s)
{
    return matmul(s, PRODUCT_FORWARD, 8192, 8192, 8192);
}
static double item_attention(const struct seen *s)
{
    return attention(s, false) + attention(s, true);
}
static double item_stream(const struct seen *s)
{
    return cost_stream_s(s->cost, 1e9);
}
static double item_quantize(const struct seen *s)
{
    return cost_quantize_s(s->cost, 1e9);
}
static double item_compute(const struct seen *s)
{
    return s->e.compute_s;
}
static double item_tp(const struct seen *s)
{
    return s->e.tp_comm_s;
}
static double item_pp(const struct seen *s)
{
    return s->e.pp_comm_s;
}
static double item_dp(const struct seen *s)
{
    return s->e.dp_comm_s;
}
static double item_bubble(const struct seen *s)
{
    return s->e.bubble_s;
}
static double item_optimizer(const struct seen *s)
{
    return s->e.optimizer_s;
}
static double item_ring(const struct seen *s)
{
    return cost_collective_s(s->cost, OP_ALL_REDUCE, 1e9, AXIS_BIT(AXIS_DP));
}
static double item_activations(const struct seen *s)
{
    return (double)s->e.activation_bytes;
}
static double item_buffers(const struct seen *s)
{
    return (double)s->e.buffer_bytes;
}
static double item_allocator(const struct seen *s)
{
    return (double)s->e.allocator_bytes;
}
static double item_context(const struct seen *s)
{
    return (double)s->e.context_bytes;
}
static double item_communicators(const struct seen *s)
{
    return (double)s->e.communicator_bytes;
}
static double item_parameters(const struct seen *s)
{
    return (double)s->e.parameter_bytes;
}

/* ---- by how much an item must change; b: as the case has it, from its first value of the parameter ---- */

static double by_itself(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)to;
    return item; /* speed halved, share doubled */
}
static double minus_half(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)to;
    return -item / 2;
}
static double by_bytes(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return (to - from) * 1e9 / b->cost->device.bytes_s;
}
static double by_four_bytes(const struct seen *b, double from, double to, double item)
{
    return 4 * by_bytes(b, from, to, item);
}

/* scores of 16 bits, written once and read once in each direction */
static double by_scores(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return 2 * 2 * 2 * HEADS * tokens(b) * SEQUENCE / b->cost->device.bytes_s;
}
static double by_loss(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return microbatches(b) * (to - from) * 2 * tokens(b) * VOCAB / b->cost->device.bytes_s;
}
/* every norm's input forward, and both of its gradients' operands where they are read again; logits, of 16 bits like all of these,
 * for the sum and for the gradient */
static double by_joined(const struct seen *b, double from, double to, double item)
{
    (void)item;
    double bytes = (2 * LAYERS + 1) * 3 * 2 * tokens(b) * WIDTH + 2 * 2 * tokens(b) * VOCAB;
    return microbatches(b) * (from - to) * bytes / b->cost->device.bytes_s;
}
static double by_added_gradients(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return microbatches(b) * (2 + 2 * 4) * elements() / b->cost->device.bytes_s;
}
static double by_last_product(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return microbatches(b) * LAYERS * matmul(b, PRODUCT_FORWARD, tokens(b), WIDTH, FFN);
}

/* kernels of a layer: forward 2 norms, 4 products, rope, attention, activation, 2 sums; backward twice for
 * norms and products, 3 of attention, one of rope and activation; of embedding and head 1 + 2, and 2
 * products, a norm and 6 of the loss */
#define LAYER_KERNELS (2 + 4 + 1 + 1 + 1 + 2 + 4 + 8 + 3 + 1 + 1)
#define OTHER_KERNELS (1 + 2 + 1 + 2 + 1 + 2 + 6 + 2)
static double by_host(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return microbatches(b) * (to - from) * 1e-6 * (LAYERS * LAYER_KERNELS + OTHER_KERNELS);
}
/* kernels and host add instead of the root of the sum of their squares */
static double by_blocking(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to;
    double kernels = numbers_with(b, "host_op_us", 0)->e.compute_s, host = by_host(b, 0, b->profile.host_op_us, 0);
    return kernels + host - item;
}
static double by_layer_us(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return microbatches(b) * LAYERS * 2 * 1e-6 * (to - from);
}
static double by_layer_wait(const struct seen *b, double from, double to, double item)
{
    return by_layer_us(b, from * b->profile.moe_wait_us, to * b->profile.moe_wait_us, item);
}
static double by_ms(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)item;
    return 1e-3 * (to - from);
}
static double by_four_nodes(const struct seen *b, double from, double to, double item)
{
    (void)b;
    return (to - from) * log2(4) * item;
}

/* beside a column-parallel product's weight gradient goes the reduction of its input's gradient, beside its
 * input gradient the gather of its input where activations are split */
static double hidden_beside(const struct seen *b, double n)
{
    double bytes = 2 * tokens(b) * WIDTH, tp = b->decision->tp, hidden = 0;
    if (b->decision->sp)
        hidden += fmin(over_tp(b, OP_ALL_GATHER, bytes), matmul(b, PRODUCT_INPUT, tokens(b), WIDTH, n / tp));
    return hidden + fmin(over_tp(b, b->decision->sp ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, bytes),
                         matmul(b, PRODUCT_WEIGHT, n / tp, WIDTH, tokens(b)));
}
static double by_hidden(const struct seen *b, double from, double to, double item)
{
    (void)item;
    double layer = hidden_beside(b, HEAD * (HEADS + 2 * KV)) + hidden_beside(b, 2 * FFN);
    return (from - to) * microbatches(b) * (LAYERS * layer + hidden_beside(b, VOCAB));
}
static double by_ring_attention(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return microbatches(b) * LAYERS * (1 / to - 1 / from) * (attention(b, false) + attention(b, true));
}
static double by_dispatch(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    double bytes = 2 * tokens(b) * b->cost->job->train.imbalance * WIDTH;
    double once = cost_dispatch_s(b->cost, bytes, 2, 1, 1, &b->cost->ep, true),
           each = cost_dispatch_s(b->cost, bytes, 2, 1, 1, &b->cost->ep, false);
    return microbatches(b) * LAYERS * 2 * 2 * (once - each);
}
/* a sender computes nothing while it sends: the last stage, which has the head and is the slowest, sends a
 * gradient back for each microbatch, and nothing follows the last one */
static double by_sends(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return (to - from) * (microbatches(b) - 1) * cost_transfer_s(b->cost, 2 * tokens(b) * WIDTH);
}
/* a rank no longer waits for the others' last actions: at most a forward and a backward of every other one */
static double by_own_end(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return -((double)b->decision->pp - 1) * (b->e.stage_forward_s + b->e.stage_backward_s);
}
static double by_shares(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to;
    double bytes = 2 * tokens(b) * WIDTH, whole = cost_transfer_s(b->cost, bytes);
    return item * ((cost_transfer_s(b->cost, bytes / 2) + over_tp(b, OP_ALL_GATHER, bytes)) / whole - 1);
}
/* all of it shown: one reduction and one gather in buckets of 40 million elements */
static double by_dp(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to;
    double pieces = ceil(elements() / 40e6), each = elements() / pieces;
    return pieces * (cost_group_s(b->cost, OP_REDUCE_SCATTER, 4 * each, &b->cost->shard) +
                     cost_group_s(b->cost, OP_ALL_GATHER, 2 * each, &b->cost->shard)) - item;
}
static double by_chunks(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)to;
    return -item;
}
/* two GPUs of a node share its ring: 1 GB over 8 members on 4 nodes by 2 x 2 GB/s */
static double by_far_nics(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from;
    return 2 * 7.0 / 8 / (2 * to) - item;
}
static double by_zero3_overlap(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to;
    return numbers_with(b, "dp_shown", b->profile.dp_overlap_shown)->e.dp_comm_s - item;
}
static double by_stolen(const struct seen *b, double from, double to, double item)
{
    (void)from;
    return to * (numbers_with(b, "dp_shown", 1)->e.dp_comm_s - item);
}

/* ---- bytes ---- */

static double by_share(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return (to - from) * (double)(b->e.activation_bytes + b->e.buffer_bytes);
}
static double by_gib(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)item;
    return (to - from) * (1 << 30);
}
/* all ranks, tp, dp, two neighbours, the ranks of a copy of the model */
static double by_six_mib(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)item;
    return (to - from) * 6 * (1 << 20);
}
static double by_kept_scores(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return LAYERS * HEADS * tokens(b) * (2 * SEQUENCE - 4); /* instead of a statistic in fp32 */
}
/* masks of scores and scaled scores; masks behind the embedding and both sublayers */
static double by_masks(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return LAYERS * HEADS * tokens(b) * 3 * SEQUENCE + (2 * LAYERS + 1) * tokens(b) * WIDTH;
}
static double by_logits(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return (to - from) * tokens(b) * VOCAB / b->decision->tp;
}
static double by_parallel_logits(const struct seen *b, double from, double to, double item)
{
    (void)from;
    return by_logits(b, b->profile.loss_bytes, to, item);
}
static double by_whole_logits(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return b->profile.loss_bytes * tokens(b) * VOCAB * (1 - 1.0 / b->decision->tp);
}
static double by_copies(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return (to - from) * LAYERS * 2 * tokens(b) * (FFN + HEAD * (HEADS + KV));
}
static double by_vocabulary_gradient(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item; /* beside the logits' gradient, that of the stream; without it copies of
                                         logits are fuller */
    return 2 * VOCAB * WIDTH + 2 * tokens(b) * VOCAB - b->profile.loss_bytes * tokens(b) * VOCAB;
}
static double by_shapes(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)to, (void)item;
    return 2 * fmax(layer_elements(), VOCAB * WIDTH); /* of the block that has most */
}
static double by_gradient_copies(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)item;
    return (to - from) * elements();
}
static double by_masters(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)to;
    return item; /* fp32 instead of half precision */
}
static double by_gathered(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)item; /* weights in half precision, gradients to be reduced in fp32 */
    return (2 + 4) * (1e9 * to - 2 * VOCAB * WIDTH);
}
/* of a layer stay its input, attention's output and, of q, k, v, output, gate, up and down, every second
 * product backwards from the last; beside layers stays what full recomputation leaves there too */
static double by_second_products(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to;
    struct seen *full = ARENA_NEW(b->arena, struct seen);
    *full = *b;
    full->decision = ARENA_NEW(b->arena, struct decision);
    *full->decision = *b->decision;
    full->decision->recompute = RECOMPUTE_FULL;
    numbers_look(full);
    double beside = (double)full->e.activation_bytes - LAYERS * 2 * tokens(b) * WIDTH;
    double products = HEADS * HEAD /* q */ + KV * HEAD /* v */ + FFN /* gate */ + WIDTH /* down */;
    return beside + LAYERS * 2 * tokens(b) * (WIDTH + HEADS * HEAD + products) - item;
}

/* ---- cases ---- */

#define DENSE NUMBERS_DENSE
#define MOE "moe swiglu(1024) {\n experts 16\n active 2\n }"
const struct number numbers_all[] = {
#define NUMBER(param, from, to, item, change, least, most, layer, precision, gpu, nics, decision, plan, set) \
    {#param, layer, precision, gpu, decision, plan, set, from, to, item_##item, change, least, most, nics},
#include "tests/compiler/profile/numbers.def"
#undef NUMBER
};
const size_t numbers_n = ARRAY_LEN(numbers_all);

struct job *numbers_job(struct arena *a, const char *layer, const char *precision, const char *plan)
{
    return text_job(a, arena_printf(a, job_text, layer, precision, plan));
}

struct seen numbers_situation(struct arena *a, const struct number *x)
{
    struct seen s = {.arena = a};
    struct source *cluster = ARENA_NEW(a, struct source);
    const char *text = arena_printf(a, nodes_of_8, x->gpu, x->nics), *why = "";
    unsigned line;
    *cluster = (struct source){"c.xml", text, strlen(text), false};
    s.topo = topo_parse(a, diag_new(a), cluster, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s.topo);
    s.job = numbers_job(a, x->layer, x->precision, x->plan);
    s.decision = ARENA_NEW(a, struct decision);
    *s.decision = text_decision(a, s.job, s.topo, x->decision);
    if (s.job->wishes.recompute == RECOMPUTE_SELECTIVE) {
        s.decision->recompute = RECOMPUTE_SELECTIVE;
        s.decision->parts = PART_CORE_ATTN;
    }
    bool placed = decision_place(a, s.topo, s.decision, &why);
    CU_ASSERT_FATAL(placed);
    CU_ASSERT_FATAL(profile_parse(&s.profile, x->set, strlen(x->set), &line, &why));
    return s;
}
