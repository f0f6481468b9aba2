/* The limits of attributes: the ranges and relations of isa.def, and what these cannot say.  A kernel that is given
 * arguments this file accepts stays within its operands and never divides by zero. */

#include "kernels/cpu/rows.h"

#include <stdlib.h>
#include <string.h>

/* what a name of the row stands for: an attribute, rows or columns of an operand, or itself; 0: it is nowhere */
static uint64_t named(const struct isa_info *info, const struct kernel_args *k, const char *name)
{
    for (size_t i = 0; i < info->nattrs; i++)
        if (!strcmp(info->attr[i].name, name))
            return (uint64_t)k->attr[i].i;
    for (size_t i = 0; i < info->noperands; i++)
        if (!strcmp(info->operand[i].rows, name) && k->operand[i].rows)
            return k->operand[i].rows;
        else if (!strcmp(info->operand[i].cols, name) && k->operand[i].cols)
            return k->operand[i].cols;
    return strtoull(name, NULL, 10);
}

static const char *check_table(const struct isa_info *info, const struct kernel_args *k)
{
    for (size_t i = 0; i < info->nattrs; i++) {
        const struct isa_range *r = info->attr[i].kind == ATTR_INT ? isa_range(info->attr[i].name) : NULL;
        if (r && (k->attr[i].i < r->least || k->attr[i].i > r->most))
            return "an attribute is out of its range";
    }
    for (const struct isa_relation *r = info->relation; r->x; r++)
        if (!isa_holds(r, named(info, k, r->x), named(info, k, r->y)))
            return "operands and attributes do not fit each other";
    return NULL;
}

static bool whole(uint32_t n, int64_t part)
{
    return part > 0 && n % part == 0;
}

static const char *check_heads(const struct view *q, const struct view *kv_view, const struct view *v, int64_t heads,
                               int64_t kv, int64_t head, double softcap)
{
    if (v->cols % kv)
        return "kv does not fit the values";
    if (heads > q->cols || head > q->cols || heads * head != q->cols || kv * head != kv_view->cols)
        return "heads, kv and head do not fit the operands";
    return softcap >= 0 ? NULL : "softcap is negative";
}

static const char *check_biases(int64_t alibi, int64_t first_head, int64_t heads)
{
    bool none = alibi == 0 && first_head == 0;
    return none || (first_head >= 0 && alibi >= heads && first_head <= alibi - heads)
               ? NULL
               : "heads are not among those of the biases";
}

static const char *check_rope(const struct kernel_args *k)
{
    if (INTEGER(ROPE, from) > INTEGER(ROPE, head) - INTEGER(ROPE, dims))
        return "from and dims do not fit the head";
    if (INTEGER(ROPE, start) < 0 || INTEGER(ROPE, first) < 0 || INTEGER(ROPE, shift) < 0)
        return "positions are out of range";
    if (!(NUMBER(ROPE, theta) > 0) || INTEGER(ROPE, scaling) > 3)
        return "theta or scaling is out of range";
    return NULL;
}

static const char *check_positions(const struct view *table, int64_t start, int64_t sequence, int64_t first,
                                   int64_t shift)
{
    int64_t rows = table->rows;
    bool fine = start >= 0 && first >= 0 && shift >= 0 && first <= rows && shift <= rows &&
                sequence + first + shift <= rows;
    return fine ? NULL : "positions are out of the table's range";
}

/* rows and keys are the same sequences, in whole parts of two equal runs; places fit in 62 bits */
static const char *check_parts(const struct view *q, const struct view *keys, int64_t sequence, int64_t parts,
                               int64_t kparts, const union value *places, const union value *kplaces)
{
    const int64_t most = (int64_t)1 << 60;
    if (!whole(q->rows, parts) || !whole(keys->rows, kparts) || q->rows / parts % sequence ||
        q->rows / parts != keys->rows / kparts)
        return "rows and keys are not the same sequences";
    for (int i = 0; i < 2; i++)
        if (places[i].i < 0 || places[i].i > most || kplaces[i].i < 0 || kplaces[i].i > most)
            return "places are out of range";
    return NULL;
}

#define HEAD_CHECKS(op)                                                                                                \
    const char *why = check_heads(V(op, q), V(op, k), V(op, v), INTEGER(op, heads), INTEGER(op, kv),                   \
                                  INTEGER(op, head), NUMBER(op, softcap));                                             \
    why = why ? why : check_biases(INTEGER(op, alibi), INTEGER(op, first_head), INTEGER(op, heads))
#define PART_CHECKS(op)                                                                                                \
    HEAD_CHECKS(op);                                                                                                   \
    return why ? why                                                                                                   \
               : check_parts(V(op, q), V(op, k), INTEGER(op, sequence), INTEGER(op, parts), INTEGER(op, kparts),       \
                             &k->attr[ATTR(op, first)], &k->attr[ATTR(op, kfirst)])
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
    int64_t first = INTEGER(TOKENS, first), shift = INTEGER(TOKENS, shift);
    bool fine = INTEGER(TOKENS, sample) >= 0 && first >= 0 && first <= UINT32_MAX && shift >= 0 && shift <= UINT32_MAX;
    return fine ? NULL : "sample or places are out of range";
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
    int64_t e = V(ROUTE, logits)->cols, n = V(ROUTE, index)->cols;
    if (n > INTEGER(ROUTE, pick) * (e / INTEGER(ROUTE, groups)))
        return "groups, pick and choices do not fit the experts";
    return INTEGER(ROUTE, start) < 0 || INTEGER(ROUTE, sample) < 0 ? "start or sample is out of range" : NULL;
}

static const char *check_arrange(const struct kernel_args *k)
{
    if (INTEGER(ARRANGE, rows) > INT32_MAX / INTEGER(ARRANGE, blocks))
        return "blocks and rows do not fit";
    return INTEGER(ARRANGE, start) < 0 || INTEGER(ARRANGE, tokens) < 0 ? "start or tokens is out of range" : NULL;
}

static const char *check_arrange_once(const struct kernel_args *k)
{
    int64_t blocks = INTEGER(ARRANGE_ONCE, blocks), rows = INTEGER(ARRANGE_ONCE, rows);
    if (rows > INT32_MAX / blocks || V(ARRANGE_ONCE, chosen)->rows != rows * blocks)
        return "blocks and rows do not fit";
    return INTEGER(ARRANGE_ONCE, start) < 0 || !(NUMBER(ARRANGE_ONCE, mean) > 0) ? "start or mean is out of range"
                                                                                 : NULL;
}

static const char *check_grouped(const struct view *counts, int64_t experts, int64_t blocks)
{
    return counts->rows == experts * blocks ? NULL : "experts and blocks do not fit the counts";
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
        return check_grouped(V(GROUPED_NT, counts), INTEGER(GROUPED_NT, experts), INTEGER(GROUPED_NT, blocks));
    if (op == OP_GROUPED_NN)
        return check_grouped(V(GROUPED_NN, counts), INTEGER(GROUPED_NN, experts), INTEGER(GROUPED_NN, blocks));
    if (op == OP_GROUPED_TN)
        return check_grouped(V(GROUPED_TN, counts), INTEGER(GROUPED_TN, experts), INTEGER(GROUPED_TN, blocks));
    if (op == OP_GROUPED_BIAS_W)
        return check_grouped(V(GROUPED_BIAS_W, counts), INTEGER(GROUPED_BIAS_W, experts),
                             INTEGER(GROUPED_BIAS_W, blocks));
    int64_t start = op == OP_LOAD      ? INTEGER(LOAD, start)
                    : op == OP_BALANCE ? INTEGER(BALANCE, start)
                    : op == OP_ROUTE_I ? INTEGER(ROUTE_I, start)
                                       : 0;
    return start < 0 ? "start is out of range" : NULL;
}

static const char *check_latent(const struct view *k, const struct view *v, const struct view *kv,
                                const struct view *rope, int64_t heads, int64_t head)
{
    if (heads > k->cols || heads * head != k->cols || v->cols % heads || rope->cols > head)
        return "heads and head do not fit the operands";
    uint64_t one = (uint64_t)head - rope->cols + v->cols / (uint64_t)heads;
    return one * (uint64_t)heads == kv->cols ? NULL : "the latent's columns are not those of keys and values";
}

static const char *check_headnorm(const struct view *x, int64_t heads, int64_t head)
{
    return heads > x->cols || heads * head != x->cols ? "heads and head do not fit the operand" : NULL;
}

static const char *check_eight(const struct view *words, const struct view *numbers)
{
    return words->cols == isa_eight_words(numbers->cols) ? NULL : "the words are not those of the numbers in 8 bits";
}

static const char *check_dispatch(const struct view *y, const struct view *x, const struct view *weight)
{
    return isa_dtype_real(y->dtype) || (y->dtype == DTYPE_I32 && x->data && !weight->data)
               ? NULL
               : "rows of this dtype have no weights";
}

/* beyond what the table says */
static const char *check_row(enum op op, const struct kernel_args *k)
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
        return check_positions(V(POSITION_W, dtable), INTEGER(POSITION_W, start), INTEGER(POSITION_W, sequence),
                               INTEGER(POSITION_W, first), INTEGER(POSITION_W, shift));
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
        return (op == OP_SOFTCAP ? NUMBER(SOFTCAP, cap) : NUMBER(SOFTCAP_I, cap)) > 0 ? NULL : "cap is not positive";
    return check_experts(op, k);
}

const char *kernel_check(enum op op, const struct kernel_args *k)
{
    const char *why = check_table(isa_info(op), k);
    return why ? why : check_row(op, k);
}
