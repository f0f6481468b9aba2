/* What isa.def's shapes cannot say: the limits of attributes.  A kernel that is given arguments this file
 * accepts stays within its operands and never divides by zero. */

#include "kernels/cpu/rows.h"

static bool whole(uint32_t n, int64_t part)
{
    return part > 0 && n % part == 0;
}

static const char *check_heads(const struct view *q, const struct view *kv_view, const struct view *v,
                               int64_t heads, int64_t kv, int64_t head, int64_t sequence, int64_t window,
                               double softcap)
{
    if (kv > 0 && (v->cols % kv || v->cols < kv))
        return "kv does not fit the values";
    if (heads < 1 || kv < 1 || head < 1 || heads % kv || heads > q->cols || head > q->cols ||
        heads * head != q->cols || kv * head != kv_view->cols)
        return "heads, kv and head do not fit the operands";
    if (!whole(q->rows, sequence))
        return "rows are not whole sequences";
    if (window < 0 || window > UINT32_MAX)
        return "window is out of range";
    return softcap >= 0 ? NULL : "softcap is negative";
}

static const char *check_biases(int64_t alibi, int64_t first_head, int64_t heads)
{
    bool none = alibi == 0 && first_head == 0;
    return none || (first_head >= 0 && alibi >= heads && first_head <= alibi - heads) ? NULL : "heads are not among those of the biases";
}

static const char *check_rope(const struct kernel_args *k)
{
    int64_t head = INTEGER(ROPE, head), dims = INTEGER(ROPE, dims), scaling = INTEGER(ROPE, scaling);
    if (!whole(V(ROPE, x)->cols, head) || dims < 2 || dims % 2 || dims > head || INTEGER(ROPE, from) < 0 ||
        INTEGER(ROPE, from) > head - dims)
        return "head and dims do not fit the operand";
    if (INTEGER(ROPE, sequence) < 1 || INTEGER(ROPE, sequence) > UINT32_MAX || INTEGER(ROPE, start) < 0 ||
        INTEGER(ROPE, first) < 0 || INTEGER(ROPE, shift) < 0)
        return "positions are out of range";
    if (!(NUMBER(ROPE, theta) > 0) || scaling < 0 || scaling > 3)
        return "theta or scaling is out of range";
    return NULL;
}

static const char *check_positions(const struct view *table, int64_t start, int64_t sequence, int64_t first,
                                   int64_t shift)
{
    int64_t rows = table->rows;
    bool fine = start >= 0 && sequence >= 1 && first >= 0 && shift >= 0 && sequence <= rows &&
                first <= rows && shift <= rows && sequence + first + shift <= rows;
    return fine ? NULL : "positions are out of the table's range";
}

/* rows and keys are the same sequences, in whole parts of two equal runs; places fit in 62 bits */
static const char *check_parts(const struct view *q, const struct view *keys, int64_t sequence, int64_t parts,
                               int64_t kparts, const union value *places, const union value *kplaces)
{
    const int64_t most = (int64_t)1 << 60;
    if (sequence % 2 || !whole(q->rows, parts) || !whole(keys->rows, kparts) ||
        !whole(q->rows, parts * sequence) || q->rows / parts != keys->rows / kparts)
        return "rows and keys are not the same sequences in halves";
    for (int i = 0; i < 2; i++)
        if (places[i].i < 0 || places[i].i > most || kplaces[i].i < 0 || kplaces[i].i > most)
            return "places are out of range";
    return NULL;
}

#define HEAD_CHECKS(op)                                                                                      \
    const char *why =                                                                                        \
        check_heads(V(op, q), V(op, k), V(op, v), INTEGER(op, heads), INTEGER(op, kv), INTEGER(op, head),    \
                    INTEGER(op, sequence), INTEGER(op, window), NUMBER(op, softcap));                        \
    why = why ? why : check_biases(INTEGER(op, alibi), INTEGER(op, first_head), INTEGER(op, heads))
#define PART_CHECKS(op)                                                                                      \
    HEAD_CHECKS(op);                                                                                         \
    return why ? why                                                                                         \
               : check_parts(V(op, q), V(op, k), INTEGER(op, sequence), INTEGER(op, parts),                  \
                             INTEGER(op, kparts), &k->attr[ATTR(op, first)], &k->attr[ATTR(op, kfirst)])
static const char *check_attention(const struct kernel_args *k)
{
    HEAD_CHECKS(ATTENTION);
    return why;
}

static const char *check_attention_i(const struct kernel_args *k)
{
    HEAD_CHECKS(ATTENTION_I);
    return why;
}

static const char *check_attention_part(const struct kernel_args *k)
{
    PART_CHECKS(ATTENTION_PART);
}

static const char *check_attention_part_i(const struct kernel_args *k)
{
    PART_CHECKS(ATTENTION_PART_I);
#undef PART_CHECKS
#undef HEAD_CHECKS
}

/* places of a sample's tokens: it has `sequence` of them or more, which the loader compares with the data's
 */
static const char *check_tokens(const struct kernel_args *k)
{
    int64_t sequence = INTEGER(TOKENS, sequence), first = INTEGER(TOKENS, first),
            shift = INTEGER(TOKENS, shift);
    bool fine = sequence >= 1 && sequence <= UINT32_MAX && INTEGER(TOKENS, sample) >= 0 && first >= 0 &&
                first <= UINT32_MAX && shift >= 0 && shift <= UINT32_MAX;
    return fine ? NULL : "sequence, sample or places are out of range";
}

static const char *check_tokens_ahead(const struct kernel_args *k)
{
    int64_t ahead = INTEGER(TOKENS_AHEAD, ahead), whole = INTEGER(TOKENS_AHEAD, whole);
    if (ahead < 0 || ahead > UINT32_MAX || whole < 1 || whole > UINT32_MAX)
        return "ahead or whole is out of range";
    return check_tokens(k); /* its attributes come first */
}

static const char *check_route(const struct kernel_args *k)
{
    int64_t e = V(ROUTE, logits)->cols, n = V(ROUTE, index)->cols, groups = INTEGER(ROUTE, groups),
            pick = INTEGER(ROUTE, pick);
    if (groups < 1 || pick < 1 || pick > groups || e % groups || n > pick * (e / groups))
        return "groups, pick and choices do not fit the experts";
    return INTEGER(ROUTE, sequence) < 1 || INTEGER(ROUTE, start) < 0 || INTEGER(ROUTE, sample) < 0
               ? "sequence, start or sample is out of range"
               : NULL;
}

static const char *check_arrange(const struct kernel_args *k)
{
    int64_t experts = INTEGER(ARRANGE, experts), blocks = INTEGER(ARRANGE, blocks),
            rows = INTEGER(ARRANGE, rows);
    if (experts < 1 || blocks < 1 || experts % blocks || rows < 1 || rows > INT32_MAX / blocks)
        return "experts, blocks and rows do not fit";
    return INTEGER(ARRANGE, sequence) < 1 || INTEGER(ARRANGE, start) < 0 || INTEGER(ARRANGE, capacity) < 0 ||
                   INTEGER(ARRANGE, tokens) < 0
               ? "sequence, start, capacity or tokens is out of range"
               : NULL;
}

static const char *check_arrange_once(const struct kernel_args *k)
{
    int64_t experts = INTEGER(ARRANGE_ONCE, experts), blocks = INTEGER(ARRANGE_ONCE, blocks),
            rows = INTEGER(ARRANGE_ONCE, rows);
    if (experts < 1 || blocks < 1 || experts % blocks || rows < 1 || rows > INT32_MAX / blocks ||
        V(ARRANGE_ONCE, chosen)->rows != rows * blocks)
        return "experts, blocks and rows do not fit";
    return INTEGER(ARRANGE_ONCE, sequence) < 1 || INTEGER(ARRANGE_ONCE, start) < 0 ||
                   INTEGER(ARRANGE_ONCE, capacity) < 0 || !(NUMBER(ARRANGE_ONCE, mean) > 0)
               ? "sequence, start, capacity or mean is out of range"
               : NULL;
}

static const char *check_grouped(const struct view *rows, const struct view *counts, int64_t experts,
                                 int64_t blocks)
{
    return experts < 1 || blocks < 1 || rows->rows % blocks || counts->rows != experts * blocks
               ? "experts and blocks do not fit the operands"
               : NULL;
}

static const char *check_experts(enum op op, const struct kernel_args *k)
{
    if (op == OP_ROUTE)
        return check_route(k);
    if (op == OP_ARRANGE)
        return check_arrange(k);
    if (op == OP_ARRANGE_ONCE)
        return check_arrange_once(k);
    if (op == OP_GROUPED_NT)
        return check_grouped(V(GROUPED_NT, a), V(GROUPED_NT, counts), INTEGER(GROUPED_NT, experts),
                             INTEGER(GROUPED_NT, blocks));
    if (op == OP_GROUPED_NN)
        return check_grouped(V(GROUPED_NN, a), V(GROUPED_NN, counts), INTEGER(GROUPED_NN, experts),
                             INTEGER(GROUPED_NN, blocks));
    if (op == OP_GROUPED_TN)
        return check_grouped(V(GROUPED_TN, a), V(GROUPED_TN, counts), INTEGER(GROUPED_TN, experts),
                             INTEGER(GROUPED_TN, blocks));
    if (op == OP_GROUPED_BIAS_W)
        return check_grouped(V(GROUPED_BIAS_W, dy), V(GROUPED_BIAS_W, counts), INTEGER(GROUPED_BIAS_W, experts),
                             INTEGER(GROUPED_BIAS_W, blocks));
    int64_t sequence = op == OP_LOAD      ? INTEGER(LOAD, sequence)
                       : op == OP_BALANCE ? INTEGER(BALANCE, sequence)
                       : op == OP_ROUTE_I ? INTEGER(ROUTE_I, sequence)
                                          : 1;
    int64_t start = op == OP_LOAD      ? INTEGER(LOAD, start)
                    : op == OP_BALANCE ? INTEGER(BALANCE, start)
                    : op == OP_ROUTE_I ? INTEGER(ROUTE_I, start)
                                       : 0;
    return sequence < 1 || start < 0 ? "sequence or start is out of range" : NULL;
}

static const char *check_latent(const struct view *k, const struct view *v, const struct view *kv,
                                const struct view *rope, int64_t heads, int64_t head)
{
    if (heads < 1 || head < 1 || heads > k->cols || heads * head != k->cols || v->cols % heads ||
        rope->cols > head)
        return "heads and head do not fit the operands";
    uint64_t one = (uint64_t)head - rope->cols + v->cols / (uint64_t)heads;
    return one * (uint64_t)heads == kv->cols ? NULL : "the latent's columns are not those of keys and values";
}

static const char *check_headnorm(const struct view *x, int64_t heads, int64_t head)
{
    return heads < 1 || head < 1 || heads > x->cols || heads * head != x->cols
               ? "heads and head do not fit the operand"
               : NULL;
}

static const char *check_eight(const struct view *words, const struct view *numbers)
{
    return words->cols == isa_eight_words(numbers->cols) ? NULL : "the words are not those of the numbers in 8 bits";
}

static const char *check_dispatch(const struct view *y, const struct view *x, const struct view *weight)
{
    return isa_dtype_real(y->dtype) || (y->dtype == DTYPE_I32 && x->data && !weight->data) ? NULL : "rows of this dtype have no weights";
}

const char *kernel_check(enum op op, const struct kernel_args *k)
{
    if (op == OP_TOKENS)
        return check_tokens(k);
    if (op == OP_TOKENS_AHEAD)
        return check_tokens_ahead(k);
    if (op == OP_CONCAT || op == OP_CONCAT_I) {
        const struct view *half = op == OP_CONCAT ? V(CONCAT, a) : V(CONCAT_I, da);
        const struct view *both = op == OP_CONCAT ? V(CONCAT, y) : V(CONCAT_I, dy);
        return both->cols == 2 * (uint64_t)half->cols ? NULL : "the columns are not twice those of a half";
    }
    if (op == OP_QUANTIZE)
        return check_eight(V(QUANTIZE, y), V(QUANTIZE, x));
    if (op == OP_DEQUANTIZE)
        return check_eight(V(DEQUANTIZE, x), V(DEQUANTIZE, y));
    if (op == OP_DISPATCH)
        return check_dispatch(V(DISPATCH, y), V(DISPATCH, x), V(DISPATCH, weight));
    if (op == OP_POSITION)
        return check_positions(V(POSITION, table), INTEGER(POSITION, start), INTEGER(POSITION, sequence),
                               INTEGER(POSITION, first), INTEGER(POSITION, shift));
    if (op == OP_POSITION_W)
        return check_positions(V(POSITION_W, dtable), INTEGER(POSITION_W, start),
                               INTEGER(POSITION_W, sequence), INTEGER(POSITION_W, first),
                               INTEGER(POSITION_W, shift));
    if (op == OP_ROPE)
        return check_rope(k);
    if (op == OP_ATTENTION)
        return check_attention(k);
    if (op == OP_ATTENTION_I)
        return check_attention_i(k);
    if (op == OP_ATTENTION_PART)
        return check_attention_part(k);
    if (op == OP_ATTENTION_PART_I)
        return check_attention_part_i(k);
    if (op == OP_ATTENTION_MERGE)
        return INTEGER(ATTENTION_MERGE, head) * V(ATTENTION_MERGE, lse)->cols == V(ATTENTION_MERGE, o)->cols
                   ? NULL
                   : "heads and head do not fit the operands";
    if (op == OP_MLA_KEYS)
        return check_latent(V(MLA_KEYS, k), V(MLA_KEYS, v), V(MLA_KEYS, kv), V(MLA_KEYS, rope),
                            INTEGER(MLA_KEYS, heads), INTEGER(MLA_KEYS, head));
    if (op == OP_MLA_KEYS_I)
        return check_latent(V(MLA_KEYS_I, dk), V(MLA_KEYS_I, dv), V(MLA_KEYS_I, dkv), V(MLA_KEYS_I, drope),
                            INTEGER(MLA_KEYS_I, heads), INTEGER(MLA_KEYS_I, head));
    if (op == OP_HEADNORM)
        return check_headnorm(V(HEADNORM, x), INTEGER(HEADNORM, heads), INTEGER(HEADNORM, head));
    if (op == OP_HEADNORM_I)
        return check_headnorm(V(HEADNORM_I, x), INTEGER(HEADNORM_I, heads), INTEGER(HEADNORM_I, head));
    if (op == OP_HEADNORM_W)
        return check_headnorm(V(HEADNORM_W, x), INTEGER(HEADNORM_W, heads), INTEGER(HEADNORM_W, head));
    if (op == OP_SINK)
        return check_headnorm(V(SINK, x), INTEGER(SINK, heads), INTEGER(SINK, head));
    if (op == OP_SINK_W)
        return check_headnorm(V(SINK_W, y), INTEGER(SINK_W, heads), INTEGER(SINK_W, head));
    if (op == OP_SOFTCAP || op == OP_SOFTCAP_I)
        return (op == OP_SOFTCAP ? NUMBER(SOFTCAP, cap) : NUMBER(SOFTCAP_I, cap)) > 0 ? NULL
                                                                                      : "cap is not positive";
    if (op == OP_RELU || op == OP_RELU_I) {
        int64_t power = op == OP_RELU ? INTEGER(RELU, power) : INTEGER(RELU_I, power);
        return power == 1 || power == 2 ? NULL : "power is neither 1 nor 2";
    }
    return check_experts(op, k);
}
