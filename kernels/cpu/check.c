/* What isa.def's shapes cannot say: the limits of attributes.  A kernel that is given arguments this file
 * accepts stays within its operands and never divides by zero. */

#include "kernels/cpu/rows.h"

static bool whole(uint32_t n, int64_t part)
{
    return part > 0 && n % part == 0;
}

static const char *check_heads(const struct view *q, const struct view *kv_view, int64_t heads, int64_t kv,
                               int64_t head, int64_t sequence, int64_t window, double softcap)
{
    if (heads < 1 || kv < 1 || head < 1 || heads % kv || heads > q->cols || head > q->cols ||
        heads * head != q->cols || kv * head != kv_view->cols)
        return "heads, kv and head do not fit the operands";
    if (!whole(q->rows, sequence))
        return "rows are not whole sequences";
    if (window < 0 || window > UINT32_MAX)
        return "window is out of range";
    return softcap >= 0 ? NULL : "softcap is negative";
}

static const char *check_rope(const struct kernel_args *k)
{
    int64_t head = INTEGER(ROPE, head), dims = INTEGER(ROPE, dims), scaling = INTEGER(ROPE, scaling);
    if (!whole(V(ROPE, x)->cols, head) || dims < 2 || dims % 2 || dims > head)
        return "head and dims do not fit the operand";
    if (INTEGER(ROPE, sequence) < 1 || INTEGER(ROPE, start) < 0)
        return "positions are out of range";
    if (!(NUMBER(ROPE, theta) > 0) || scaling < 0 || scaling > 2)
        return "theta or scaling is out of range";
    return NULL;
}

static const char *check_positions(const struct view *table, int64_t start, int64_t sequence)
{
    return start < 0 || sequence < 1 || sequence > table->rows ? "positions are out of the table's range"
                                                               : NULL;
}

const char *kernel_check(enum op op, const struct kernel_args *k)
{
    if (op == OP_TOKENS)
        return INTEGER(TOKENS, sequence) < 1 || INTEGER(TOKENS, sequence) > UINT32_MAX ||
                       INTEGER(TOKENS, sample) < 0
                   ? "sequence or sample is out of range"
                   : NULL;
    if (op == OP_POSITION)
        return check_positions(V(POSITION, table), INTEGER(POSITION, start), INTEGER(POSITION, sequence));
    if (op == OP_POSITION_W)
        return check_positions(V(POSITION_W, dtable), INTEGER(POSITION_W, start),
                               INTEGER(POSITION_W, sequence));
    if (op == OP_ROPE)
        return check_rope(k);
    if (op == OP_ATTENTION)
        return check_heads(V(ATTENTION, q), V(ATTENTION, k), INTEGER(ATTENTION, heads),
                           INTEGER(ATTENTION, kv), INTEGER(ATTENTION, head), INTEGER(ATTENTION, sequence),
                           INTEGER(ATTENTION, window), NUMBER(ATTENTION, softcap));
    if (op == OP_ATTENTION_I)
        return check_heads(V(ATTENTION_I, q), V(ATTENTION_I, k), INTEGER(ATTENTION_I, heads),
                           INTEGER(ATTENTION_I, kv), INTEGER(ATTENTION_I, head),
                           INTEGER(ATTENTION_I, sequence), INTEGER(ATTENTION_I, window),
                           NUMBER(ATTENTION_I, softcap));
    if (op == OP_RELU || op == OP_RELU_I) {
        int64_t power = op == OP_RELU ? INTEGER(RELU, power) : INTEGER(RELU_I, power);
        return power == 1 || power == 2 ? NULL : "power is neither 1 nor 2";
    }
    return NULL;
}
