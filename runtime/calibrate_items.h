#ifndef LLMC_CALIBRATE_ITEMS_H
#define LLMC_CALIBRATE_ITEMS_H

/* What `llmrun --calibrate` measures, on CPU ranks and on GPUs alike: matrix products, attention and memory-bound
 * instructions of several sizes; the kernel calls for each of them, and the elements of a cluster file that are made
 * from their seconds.
 *
 * The time of a product is the mean of the three forms that a layer uses, the last of which adds to an fp32
 * gradient.  Memory-bound instructions are points of bytes and seconds, with bytes as llmc counts them: every
 * operand once, updated ones twice. */

#include "runtime/device.h"

#include <stdio.h>

enum calibrate_kind { CALIBRATE_PRODUCT, CALIBRATE_ATTENTION, CALIBRATE_ATTENTION_BACK, CALIBRATE_STREAM };
struct calibrate_item {
    enum calibrate_kind kind;
    enum op op; /* of a memory-bound instruction */
    enum dtype dtype;
    bool eight; /* the product rounds its operands to 8 bits */
    /* m, n, k of a product; rows of a memory-bound instruction; sequence length and head size of attention */
    uint32_t m, n, k;
};

/* sizes to measure, each list terminated by 0, and the shapes of memory-bound instructions and attention */
struct calibrate_sizes {
    const uint32_t *m, *n, *k, *places, *heads, *rows;
    uint32_t nheads, nkey_heads, tokens; /* of attention; tokens: at least so many rows, in one sequence or more */
    uint32_t width, vocab, head;         /* columns of memory-bound instructions; head size of ROPE */
};

enum { CALIBRATE_MOST_ITEMS = 400, CALIBRATE_MOST_CALLS = 3 };
struct calibrate_list {
    struct calibrate_sizes sizes;
    uint32_t nitems;
    struct calibrate_item items[CALIBRATE_MOST_ITEMS];
};
/* appends all items of that dtype */
void calibrate_add(struct calibrate_list *l, enum dtype dtype, bool eight);

/* provides memory for an operand; written: it is only written, never read */
typedef struct view calibrate_take(void *context, bool written, enum dtype dtype, uint32_t rows, uint32_t cols);
/* fills in the kernel calls of item x; returns how many */
unsigned calibrate_calls(const struct calibrate_list *l, const struct calibrate_item *x, calibrate_take *take,
                         void *context, enum op ops[CALIBRATE_MOST_CALLS], struct kernel_args k[CALIBRATE_MOST_CALLS]);

/* floating-point operations of all its calls, 0 for a memory-bound instruction; bytes of a memory-bound instruction */
double calibrate_flop(const struct calibrate_list *l, const struct calibrate_item *x);
double calibrate_stream_bytes(const struct calibrate_list *l, const struct calibrate_item *x);

/* Prints <gemm>, <attention> and <kernel> elements of one dtype; seconds: of each item's calls together, 0 = not
 * measured; indent: in columns. */
void calibrate_print(const struct calibrate_list *l, enum dtype dtype, bool eight, const double *seconds, int indent,
                     FILE *out);

#endif
