/* The rule of runtime/workspace.h, a case per instruction whose kernels need memory of their own.
 *
 * Products: cuBLASLt's algorithms split sums into what they are given.  Attention: to the byte
 * what plans of cuDNN 9.19 ask for, and what they refuse, by engine (the tests ask them again): the one of Hopper,
 * sm_90; that of Blackwell, sm_100 to sm_119, for more than WORKSPACE_TILE places a sequence or heads that only it
 * takes; and the first, of sm_80, for all the rest.  Backward has keys' and values' gradients per query head in bf16
 * where query heads share keys, before it adds them; the first engine also has a second fp32 copy of queries'
 * gradients, of a multiple of 8 places.  The rest is what the two launches of a sum hand each other. */

#include "runtime/workspace.h"

enum {
    HOPPER_BYTES = 256,
    OTHER_BYTES = 128 /* of an engine itself */,
    CHUNK_ROWS = 16 /* at least */,
    MOST_CHUNKS = 128,
    TILE_BYTES = 16,
    GROUP_BYTES = 8
};

static uint64_t padded(uint64_t bytes)
{
    return (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
}

static bool is_hopper(uint32_t sm)
{
    return sm / 10 == 9;
}
static bool is_blackwell(uint32_t sm)
{
    return sm >= 100 && sm < 120;
}
/* heads of latent attention, which Blackwell's engine takes besides those of up to 128 */
static bool is_latent(const struct workspace_heads *h)
{
    return h->head == 192 && h->value == 128;
}

const char *workspace_attention_refused(const struct workspace_heads *h, bool backward, uint32_t sm)
{
    if (sm < 80)
        return "the device is older than sm_80";
    if (!h->sequences || !h->sequence || h->head % 8 || h->value % 8 || !h->head || !h->value)
        return "dimensions of heads are no multiples of 8";
    if (h->biased)
        return "scores have linear biases";
    if (h->head > 256 || h->value > 256)
        return "heads have more than 256 dimensions";
    if (!backward || is_hopper(sm))
        return NULL;
    if ((h->head > 128 || h->value > 128) && !(is_blackwell(sm) && is_latent(h)))
        return "gradients of heads of more than 128 dimensions are not cuDNN's on this device";
    return h->capped && !is_blackwell(sm) ? "gradients of capped scores are not cuDNN's on this device" : NULL;
}

/* bytes that the plan itself asks for */
static uint64_t plan_bytes(const struct workspace_heads *h, bool backward, uint32_t sm)
{
    uint64_t each = h->sequences * h->heads, rows = each * h->sequence;
    bool shared = h->heads > h->kv;
    if (!backward)
        return is_hopper(sm) && h->sequence > 1 ? HOPPER_BYTES : 0;
    uint64_t apart = shared ? rows * ((uint64_t)h->head + h->value) * 2 : 0;
    if (is_hopper(sm))
        return apart + HOPPER_BYTES;
    if (is_blackwell(sm) && (h->sequence > WORKSPACE_TILE || h->capped || is_latent(h)))
        return shared ? apart + OTHER_BYTES : 0;
    return apart + OTHER_BYTES + each * ((h->sequence + 7) / 8 * 8) * h->head * sizeof(float);
}

struct workspace_attention workspace_attention(const struct workspace_heads *h, bool backward, uint32_t sm)
{
    uint64_t rows = h->sequences * h->heads * h->sequence;
    struct workspace_attention m = {.stats = padded(rows * sizeof(float)), .plan = plan_bytes(h, backward, sm)};
    if (backward) {
        m.sums = m.stats;
        m.dq_sum = padded(rows * h->head * sizeof(float));
    }
    m.total = m.stats + m.sums + m.dq_sum + m.plan;
    return m;
}

uint32_t workspace_chunks(uint64_t rows)
{
    uint64_t n = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    return (uint32_t)(n < MOST_CHUNKS ? n : MOST_CHUNKS);
}

uint64_t workspace_experts(uint64_t rows, uint64_t groups)
{
    return groups * GROUP_BYTES + (rows / WORKSPACE_TILE + groups) * TILE_BYTES + 16;
}

#define ROWS(op, name) ((uint64_t)w->operand[OPND(op, name)].rows)
#define COLS(op, name) ((uint64_t)w->operand[OPND(op, name)].cols)
#define GET(op, name) (w->attr[ATTR(op, name)])

/* partial sums of rows of dy, of `cols` columns each, so that several heads are several rows */
static uint64_t columns(uint64_t rows, uint64_t width, uint64_t cols)
{
    return cols ? workspace_chunks(rows * (width / cols)) * cols * sizeof(float) : 0;
}

/* What cuDNN needs, or else rows' sums of dout o for our own kernels.  ATTENTION's attributes are ATTENTION_I's. */
static uint64_t attention(const struct workspace_of *w, size_t q, size_t v, const int64_t *attr, bool backward,
                          uint32_t sm)
{
    int64_t heads = attr[ATTR(ATTENTION, heads)], kv = attr[ATTR(ATTENTION, kv)], head = attr[ATTR(ATTENTION, head)];
    int64_t sequence = attr[ATTR(ATTENTION, sequence)];
    uint64_t own = backward && heads > 0 ? w->operand[q].rows * (uint64_t)heads * sizeof(float) : 0;
    if (isa_dtype_bytes(w->operand[q].dtype) != 2 || heads < 1 || kv < 1 || head < 1 || head > UINT32_MAX ||
        sequence < 1)
        return own;
    const struct workspace_heads h = {w->operand[q].rows / (uint64_t)sequence,
                                      (uint64_t)sequence,
                                      (uint64_t)heads,
                                      (uint64_t)kv,
                                      (uint32_t)head,
                                      w->operand[v].cols / (uint32_t)kv,
                                      attr[ATTR(ATTENTION, softcap)] != 0,
                                      attr[ATTR(ATTENTION, alibi)] != 0};
    return workspace_attention_refused(&h, backward, sm) ? own : workspace_attention(&h, backward, sm).total;
}

static uint64_t stream(enum op op, const struct workspace_of *w)
{
    if (op == OP_BIAS_W)
        return columns(ROWS(BIAS_W, dy), COLS(BIAS_W, dy), COLS(BIAS_W, db));
    if (op == OP_RMSNORM_W)
        return columns(ROWS(RMSNORM_W, dy), COLS(RMSNORM_W, dy), COLS(RMSNORM_W, dg));
    if (op == OP_HEADNORM_W)
        return columns(ROWS(HEADNORM_W, dy), COLS(HEADNORM_W, dy), COLS(HEADNORM_W, dg));
    if (op == OP_SINK_W)
        return columns(ROWS(SINK_W, y), 1, 1) * COLS(SINK_W, dsink);
    if (op == OP_LAYERNORM_W)
        return 2 * columns(ROWS(LAYERNORM_W, dy), COLS(LAYERNORM_W, dy), COLS(LAYERNORM_W, dg));
    if (op == OP_EMBED_W)
        return (3 * ROWS(EMBED_W, dtable) + 3 * ROWS(EMBED_W, dy) + 2) * sizeof(uint32_t);
    if (op == OP_ARRANGE)
        return (uint64_t)GET(ARRANGE, experts) * sizeof(int32_t);
    if (op == OP_ARRANGE_ONCE)
        return (uint64_t)(GET(ARRANGE_ONCE, experts) + GET(ARRANGE_ONCE, blocks)) * sizeof(int32_t);
    return op == OP_SQNORM || op == OP_XENT_LOSS || op == OP_BALANCE ? WORKSPACE_PARTS * sizeof(double) : 0;
}

int64_t workspace_recipe(enum op op, const int64_t *attr)
{
    return isa_product(op) ? attr[ATTR(MATMUL_NT, fp8)] : isa_grouped(op) ? attr[ATTR(GROUPED_NT, fp8)] : 0;
}

/* an operand's copy: rows of ld bytes */
struct eight {
    uint64_t rows, ld, groups;
};

/* c, a and b of all six lie in the same places */
static void eight_shapes(enum op op, const struct workspace_of *w, struct eight *a, struct eight *b)
{
    uint64_t m = ROWS(MATMUL_NT, c), n = COLS(MATMUL_NT, c), ka = COLS(MATMUL_NT, a), groups = 1, experts = 1;
    if (op == OP_MATMUL_TN)
        ka = ROWS(MATMUL_TN, a);
    if (isa_grouped(op)) {
        experts = (uint64_t)GET(GROUPED_NT, experts);
        groups = ROWS(GROUPED_NT, counts);
    }
    *a = (struct eight){m, ka, groups};
    *b = (struct eight){experts * n, ka, experts};
    if (op == OP_GROUPED_TN) {
        uint64_t wide = (ROWS(GROUPED_TN, a) + 15) / 16 * 16 + 16 * groups;
        *a = (struct eight){COLS(GROUPED_TN, a), wide, groups};
        *b = (struct eight){COLS(GROUPED_TN, b), wide, groups};
    }
}

static uint64_t eight_place(uint64_t at, const struct eight *e, struct workspace_eight *out)
{
    out->parts = at;
    out->scales = at + padded(WORKSPACE_FP8_PARTS + e->groups * sizeof(float));
    out->numbers = out->scales + padded(e->groups * sizeof(float));
    return out->numbers + padded(e->rows * e->ld);
}

const char *workspace_fp8(enum op op, const struct workspace_of *w, uint32_t sm, struct workspace_fp8 *out)
{
    int64_t recipe = workspace_recipe(op, w->attr);
    struct eight a, b;
    if (recipe != 1)
        return recipe ? "its recipe is not there on GPUs" : "";
    if (sm < 89)
        return "the GPU is older than sm_89";
    bool grouped = isa_grouped(op);
    eight_shapes(op, w, &a, &b);
    if (COLS(MATMUL_NT, c) % 16 || COLS(MATMUL_NT, a) % 16 || COLS(MATMUL_NT, b) % 16 ||
        (!grouped && (a.rows % 16 || a.ld % 16)))
        return "its dimensions are no multiples of 16";
    out->before = padded(grouped ? workspace_experts(ROWS(GROUPED_NT, a), ROWS(GROUPED_NT, counts))
                                 : WORKSPACE_PRODUCT);
    out->total = eight_place(eight_place(out->before, &a, &out->a), &b, &out->b);
    return NULL;
}

uint64_t workspace_bytes(enum op op, const struct workspace_of *w, uint32_t sm)
{
    struct workspace_fp8 eight;
    if (!sm)
        return 0;
    if (!workspace_fp8(op, w, sm, &eight))
        return eight.total;
    if (isa_product(op))
        return WORKSPACE_PRODUCT;
    if (op == OP_GROUPED_NT)
        return workspace_experts(ROWS(GROUPED_NT, a), ROWS(GROUPED_NT, counts));
    if (op == OP_GROUPED_NN)
        return workspace_experts(ROWS(GROUPED_NN, a), ROWS(GROUPED_NN, counts));
    if (op == OP_GROUPED_TN)
        return workspace_experts(ROWS(GROUPED_TN, a), ROWS(GROUPED_TN, counts));
    if (op == OP_ATTENTION)
        return attention(w, OPND(ATTENTION, q), OPND(ATTENTION, v), w->attr, false, sm);
    if (op == OP_ATTENTION_I)
        return attention(w, OPND(ATTENTION_I, q), OPND(ATTENTION_I, v), w->attr, true, sm);
    if (op == OP_ATTENTION_PART_I)
        return ROWS(ATTENTION_PART_I, lse) * COLS(ATTENTION_PART_I, lse) * sizeof(float);
    return stream(op, w);
}
