/* The rule of runtime/workspace.h, a case per instruction whose kernels need memory of their own.
 *
 * Products: cuBLASLt's algorithms split sums into what they are given.  Attention: 256 bytes for cuDNN itself; backward sums
 * queries' gradients in fp32 and, where query heads share keys, has keys' and values' gradients per query head in bf16
 * before it adds them; engines but sm_90's also have a copy of queries' gradients, of a multiple of 8 places, sm_100's only
 * where there is not such a multiple anyway.  (What plans of cuDNN 9.19 asked for; the tests ask them again.)  The rest is what the two launches of a sum hand each other. */

#include "runtime/workspace.h"

enum { PLAN_BYTES = 256, CHUNK_ROWS = 16 /* at least */, MOST_CHUNKS = 128, TILE_BYTES = 16, GROUP_BYTES = 8 };

static uint64_t padded(uint64_t bytes)
{
    return (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
}

struct workspace_attention workspace_attention(const struct workspace_heads *h, bool backward, uint32_t sm)
{
    uint64_t each = h->sequences * h->heads, rows = each * h->sequence;
    struct workspace_attention m = {.stats = padded(rows * sizeof(float)), .plan = PLAN_BYTES};
    if (backward) {
        m.sums = m.stats;
        m.dq_sum = padded(rows * h->head * sizeof(float));
        m.plan += h->heads > h->kv ? rows * ((uint64_t)h->head + h->value) * 2 : 0;
        if (sm < 90 || (sm > 90 && h->sequence % 8))
            m.plan += each * ((h->sequence + 7) / 8 * 8) * h->head * sizeof(float);
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

/* what cuDNN needs, if it may be asked, and rows' sums of dout o for our own kernels */
static uint64_t attention(const struct workspace_of *w, size_t q, size_t v, int64_t heads, int64_t kv, int64_t head, int64_t sequence,
                          bool backward, uint32_t sm)
{
    uint64_t value = kv > 0 ? w->operand[v].cols / (uint64_t)kv : 0;
    if (sm < 80 || w->operand[q].dtype != DTYPE_BF16 || head % 8 || head > 256 || value % 8 || value > 256 || sequence < 1)
        return backward ? w->operand[q].rows * (uint64_t)heads * sizeof(float) : 0;
    const struct workspace_heads h = {w->operand[q].rows / (uint64_t)sequence, (uint64_t)sequence, (uint64_t)heads, (uint64_t)kv,
                                      (uint32_t)head, (uint32_t)value};
    return workspace_attention(&h, backward, sm).total;
}

static uint64_t stream(enum op op, const struct workspace_of *w)
{
    if (op == OP_BIAS_W)
        return columns(ROWS(BIAS_W, dy), COLS(BIAS_W, dy), COLS(BIAS_W, db));
    if (op == OP_RMSNORM_W)
        return columns(ROWS(RMSNORM_W, dy), COLS(RMSNORM_W, dy), COLS(RMSNORM_W, dg));
    if (op == OP_HEADNORM_W)
        return columns(ROWS(HEADNORM_W, dy), COLS(HEADNORM_W, dy), COLS(HEADNORM_W, dg));
    if (op == OP_LAYERNORM_W)
        return 2 * columns(ROWS(LAYERNORM_W, dy), COLS(LAYERNORM_W, dy), COLS(LAYERNORM_W, dg));
    if (op == OP_EMBED_W)
        return (3 * ROWS(EMBED_W, dtable) + 3 * ROWS(EMBED_W, dy) + 2) * sizeof(uint32_t);
    if (op == OP_ARRANGE)
        return (uint64_t)GET(ARRANGE, experts) * sizeof(int32_t);
    return op == OP_SQNORM || op == OP_XENT_LOSS || op == OP_BALANCE ? WORKSPACE_PARTS * sizeof(double) : 0;
}

uint64_t workspace_bytes(enum op op, const struct workspace_of *w, uint32_t sm)
{
    if (!sm)
        return 0;
    if (op == OP_MATMUL_NT || op == OP_MATMUL_NN || op == OP_MATMUL_TN)
        return WORKSPACE_PRODUCT;
    if (op == OP_GROUPED_NT)
        return workspace_experts(ROWS(GROUPED_NT, a), ROWS(GROUPED_NT, counts));
    if (op == OP_GROUPED_NN)
        return workspace_experts(ROWS(GROUPED_NN, a), ROWS(GROUPED_NN, counts));
    if (op == OP_GROUPED_TN)
        return workspace_experts(ROWS(GROUPED_TN, a), ROWS(GROUPED_TN, counts));
    if (op == OP_ATTENTION)
        return attention(w, OPND(ATTENTION, q), OPND(ATTENTION, v), GET(ATTENTION, heads), GET(ATTENTION, kv), GET(ATTENTION, head),
                         GET(ATTENTION, sequence), false, sm);
    if (op == OP_ATTENTION_I)
        return attention(w, OPND(ATTENTION_I, q), OPND(ATTENTION_I, v), GET(ATTENTION_I, heads), GET(ATTENTION_I, kv),
                         GET(ATTENTION_I, head), GET(ATTENTION_I, sequence), true, sm);
    if (op == OP_ATTENTION_PART_I)
        return ROWS(ATTENTION_PART_I, lse) * COLS(ATTENTION_PART_I, lse) * sizeof(float);
    return stream(op, w);
}
