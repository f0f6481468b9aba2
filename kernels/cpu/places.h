#ifndef LLMC_KERNELS_CPU_PLACES_H
#define LLMC_KERNELS_CPU_PLACES_H

/* Places of rows in sequences that are split over ranks, as isa.def says: runs of half a part's tokens whose
 * places are consecutive. */

#include <stdbool.h>
#include <stdint.h>

struct places {
    uint32_t rows, parts, sequence; /* rows of the operand; parts one below the other; tokens per part */
    int64_t first, shift;
};

/* place of token w of a part's sequence, 0 <= w < sequence */
static inline int64_t place_of(const struct places *p, uint32_t part, uint32_t w)
{
    int64_t half = p->sequence / 2, j = part;
    return p->first + j * half + w + (w >= (uint32_t)half ? p->shift - 2 * j * half : 0);
}

/* run r of `2 parts` runs of a sequence: its first row, and that row's place; it is sequence / 2 long */
static inline uint32_t run_row(const struct places *p, uint32_t sequence, uint32_t r)
{
    return r / 2 * (p->rows / p->parts) + sequence * p->sequence + r % 2 * (p->sequence / 2);
}
static inline int64_t run_place(const struct places *p, uint32_t r)
{
    return place_of(p, r / 2, r % 2 * (p->sequence / 2));
}

#endif
