/* Fill, copy and add; how much scratch each kernel needs; which attributes the kernels can take. */

#include "kernels/cpu/rows.h"

#include <stdio.h>

VARIANTS void cpu_FILL(struct kernel_args *k)
{
    const struct view *y = V(FILL, y);
    double value = NUMBER(FILL, value);
    for (uint32_t i = 0; i < y->rows; i++) {
        size_t at = (size_t)i * y->ld;
        switch (y->dtype) {
        case DTYPE_F32:
            for (uint32_t j = 0; j < y->cols; j++)
                ((float *)y->data)[at + j] = (float)value;
            break;
        case DTYPE_BF16:
            for (uint32_t j = 0; j < y->cols; j++)
                ((uint16_t *)y->data)[at + j] = bf16_round((float)value);
            break;
        case DTYPE_F16:
            for (uint32_t j = 0; j < y->cols; j++)
                ((uint16_t *)y->data)[at + j] = f16_round((float)value);
            break;
        case DTYPE_F64:
            for (uint32_t j = 0; j < y->cols; j++)
                ((double *)y->data)[at + j] = value;
            break;
        case DTYPE_I32:
            for (uint32_t j = 0; j < y->cols; j++)
                ((int32_t *)y->data)[at + j] = (int32_t)value;
            break;
        case NDTYPES:
            break;
        }
    }
}

void cpu_COPY(struct kernel_args *k)
{
    const struct view *y = V(COPY, y), *x = V(COPY, x);
    for (uint32_t i = 0; i < y->rows; i++)
        row_store(y, i, row_load(x, i, k->scratch));
}

VARIANTS void cpu_ADD(struct kernel_args *k)
{
    const struct view *y = V(ADD, y), *a = V(ADD, a), *b = V(ADD, b), *bias = V(ADD, bias);
    float *tmp_a = k->scratch, *tmp_b = tmp_a + y->cols, *out = tmp_b + y->cols, *zero = out + y->cols;
    memset(zero, 0, y->cols * sizeof *zero);
    const float *shared = bias->data ? row_load(bias, 0, zero + y->cols) : zero;
    for (uint32_t i = 0; i < y->rows; i++) {
        const float *in = row_load(a, i, tmp_a), *second = b->data ? row_load(b, i, tmp_b) : zero;
        for (uint32_t j = 0; j < y->cols; j++)
            out[j] = in[j] + second[j] + shared[j];
        row_store(y, i, out);
    }
}

static size_t larger(size_t x, size_t y)
{
    return x > y ? x : y;
}

/* Upper bounds rather than exact figures: rows in flight, whole converted matrices where the kernel needs
 * them. The attention figure mirrors the layout at the top of attention.c. */
size_t kernel_scratch_floats(enum op op, const struct kernel_args *k)
{
    const struct isa_info *info = isa_info(op);
    size_t widest = 1, all = 0;
    for (uint32_t i = 0; i < info->noperands; i++) {
        const struct view *v = &k->operand[i];
        if (!v->data)
            continue;
        widest = v->cols > widest ? v->cols : widest;
        all += (size_t)v->rows * v->cols;
    }
    size_t rows = 16 * widest;
    switch (info->unit) {
    case UNIT_MATMUL:
        return all + rows;
    case UNIT_ATTENTION: {
        const struct view *v = op == OP_ATTENTION        ? V(ATTENTION, v)
                               : op == OP_ATTENTION_I    ? V(ATTENTION_I, v)
                               : op == OP_ATTENTION_PART ? V(ATTENTION_PART, v)
                                                         : V(ATTENTION_PART_I, v);
        if (op == OP_ATTENTION || op == OP_ATTENTION_I) {
            size_t d = larger((size_t)INTEGER(ATTENTION, head), v->cols / (size_t)INTEGER(ATTENTION, kv));
            size_t sequence = (size_t)INTEGER(ATTENTION, sequence);
            return 2 * ATTENTION_BLOCK * sequence + 4 * sequence * d + 5 * ATTENTION_BLOCK * d;
        }
        size_t d = larger((size_t)INTEGER(ATTENTION_PART, head), v->cols / (size_t)INTEGER(ATTENTION_PART, kv));
        size_t parts = (size_t)INTEGER(ATTENTION_PART, kparts), part = (size_t)INTEGER(ATTENTION_PART, sequence);
        return 32 * parts + parts * part * (2 * ATTENTION_BLOCK + 4 * d) + 5 * ATTENTION_BLOCK * d;
    }
    case UNIT_STREAM:
        if (op == OP_ROPE)
            return rows + (size_t)V(ROPE, x)->rows * (size_t)INTEGER(ROPE, dims);
        if (op == OP_HEADNORM_W)
            return rows + 2 * (size_t)INTEGER(HEADNORM_W, head);
        if (op == OP_SINK_W)
            return rows + 2 * (size_t)INTEGER(SINK_W, heads);
        if (op == OP_EMBED_W || op == OP_POSITION_W)
            return rows + (size_t)k->operand[0].rows * k->operand[0].cols;
        if (op == OP_ARRANGE)
            return rows + 2 * (size_t)INTEGER(ARRANGE, experts);
        if (op == OP_ARRANGE_ONCE)
            return rows + 3 * (size_t)INTEGER(ARRANGE_ONCE, experts);
        return rows;
    case UNIT_P2P:
    case UNIT_COLLECTIVE:
    case UNIT_HOST:
        break;
    }
    return 0;
}
