/* Rows in 8 bits: as they travel to experts, and as the backward pass reads them (`activations=fp8`).
 *
 * A value that only products and gated activations read in the backward pass (backward_eight()) is quantised after
 * the operator that makes it, in the forward pass or when it is recomputed.  What is kept are 32-bit words, and
 * whoever reads them in the backward pass expands them.  The forward pass reads the unrounded values.  Gate and up,
 * side by side in one value, are quantised separately. */

#include "compiler/lower/build.h"
#include "compiler/lower/operators.h"
#include "compiler/lower/step.h"

struct mat lower_words(struct mat numbers, uint32_t parts)
{
    numbers.dtype = DTYPE_I32;
    numbers.cols = numbers.ld = parts * (uint32_t)isa_eight_words(numbers.cols / parts);
    return numbers;
}

static struct mat part_of(struct mat m, uint32_t k, uint32_t parts)
{
    return mat_columns(m, k * (m.cols / parts), m.cols / parts);
}

void lower_quantize(struct lower *l, struct mat x, struct mat words, uint32_t parts)
{
    for (uint32_t k = 0; k < parts; k++) {
        EMIT(l, QUANTIZE, .y = part_of(words, k, parts), .x = part_of(x, k, parts));
    }
}

void lower_dequantize(struct lower *l, struct mat words, struct mat y, uint32_t parts)
{
    for (uint32_t k = 0; k < parts; k++) {
        EMIT(l, DEQUANTIZE, .y = part_of(y, k, parts), .x = part_of(words, k, parts));
    }
}

bool lower_keeps_eight(const struct lower *l, const struct piece *pc)
{
    return l->job->train.fp8_kept && !l->evaluation && pc->layer != NONE;
}

/* The words of a value: kept from the forward pass, from I to W, or of this pass only. */
static struct mat words_of(struct lower *l, uint32_t piece, uint32_t value)
{
    struct piece *pc = &l->pieces[piece];
    uint32_t *buffer = pc->saved[value] ? &pc->eight_buffer[value] : &pc->late_value[value];
    struct aux_shape s = lower_value_shape(l, &pc->e->values[value]);
    struct mat m = lower_words((struct mat){.rows = s.rows, .cols = s.cols}, pc->eight[value]);
    bool halves = l->halves == HALF_INPUT || l->halves == HALF_WEIGHT;
    if (!pc->saved[value] && !(pc->weighs[value] && halves))
        return lower_temp(l, arena_printf(l->arena, "%s.words", pc->e->values[value].name), DTYPE_I32, m.rows, m.cols);
    if (*buffer == NONE) {
        const char *name = arena_printf(l->arena, "%s.%s.late", lower_piece_name(l, piece, "L"),
                                        pc->e->values[value].name);
        *buffer = lower_step_buffer(l, name, DTYPE_I32, 4ull * m.rows * m.cols, l->chunks[pc->chunk].ring_late);
    }
    return lower_ring_mat(l, *buffer, DTYPE_I32, m.rows, m.cols);
}

void lower_keep(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct piece *pc = &l->pieces[piece];
    uint32_t value = pc->e->oprs[opr].out;
    if (value == NONE || !pc->eight[value] || !(l->recomputing || pc->saved[value]))
        return;
    struct mat words = words_of(l, piece, value);
    lower_quantize(l, lower_value(l, piece, value), words, pc->eight[value]);
}

struct mat lower_kept(struct lower *l, uint32_t piece, uint32_t value)
{
    struct mat x = lower_value(l, piece, value);
    uint32_t parts = l->pieces[piece].eight[value];
    if (parts)
        lower_dequantize(l, words_of(l, piece, value), x, parts);
    return x;
}
