#ifndef LLMC_CALIBRATE_ITEMS_H
#define LLMC_CALIBRATE_ITEMS_H

/* What `llmrun --calibrate` measures, on CPU ranks and on GPUs alike: products, attention and memory-bound instructions of
 * several sizes; the calls that each of them is, and the elements of a cluster file that come of their seconds.
 *
 * Products are the mean of the three forms that a layer has, the last of which adds to an fp32 gradient.  Memory-bound
 * instructions are points of bytes and seconds, bytes as llmc counts them: every operand once, updated ones twice. */

#include "runtime/device.h"

#include <stdio.h>

enum calibrate_kind { CALIBRATE_PRODUCT, CALIBRATE_ATTENTION, CALIBRATE_ATTENTION_BACK, CALIBRATE_STREAM };
struct calibrate_item {
    enum calibrate_kind kind;
    enum op op; /* of a stream */
    enum dtype dtype;
    bool eight;       /* a product rounds its operands to 8 bits */
    uint32_t m, n, k; /* of a product; rows of a stream; places and width of a head */
};

/* sizes to measure, each list ended by 0, and the shapes that streams and attention have */
struct calibrate_sizes {
    const uint32_t *m, *n, *k, *places, *heads, *rows;
    uint32_t nheads, nkey_heads, tokens; /* attention: at least so many rows, of one sequence or more */
    uint32_t width, vocab, head;         /* columns of streams; a head's of ROPE */
};

enum { CALIBRATE_MOST_ITEMS = 400, CALIBRATE_MOST_CALLS = 3 };
struct calibrate_list {
    struct calibrate_sizes sizes;
    uint32_t nitems;
    struct calibrate_item items[CALIBRATE_MOST_ITEMS];
};
/* all items of that dtype behind those that are there */
void calibrate_add(struct calibrate_list *l, enum dtype dtype, bool eight);

/* memory for an operand; written: it is written and never read */
typedef struct view calibrate_take(void *context, bool written, enum dtype dtype, uint32_t rows, uint32_t cols);
/* the calls that x is; returns how many */
unsigned calibrate_calls(const struct calibrate_list *l, const struct calibrate_item *x, calibrate_take *take, void *context,
                         enum op ops[CALIBRATE_MOST_CALLS], struct kernel_args k[CALIBRATE_MOST_CALLS]);

/* operations of all of its calls, 0 of a stream; bytes of a stream */
double calibrate_flop(const struct calibrate_list *l, const struct calibrate_item *x);
double calibrate_stream_bytes(const struct calibrate_list *l, const struct calibrate_item *x);

/* <gemm>, <attention> and <kernel> of one dtype; seconds: of each item's calls together, 0 = not measured; indent: columns */
void calibrate_print(const struct calibrate_list *l, enum dtype dtype, bool eight, const double *seconds, int indent, FILE *out);

#endif
