#ifndef LLMC_VALUE_H
#define LLMC_VALUE_H

/* The abstract values of property 7: what a region of memory holds, as a part of a logical matrix of the
 * single-device step, on every rank of a role at once.
 *
 * A node is a logical matrix over all tokens of the batch (or a whole weight).  Rows, columns and
 * contributions are intervals whose start is affine in the rank's coordinates, so one interpretation covers
 * all ranks of a role.
 *
 *   value = full node + sum of terms;   term = a node of which only some contributions have been added up,
 *
 * for example a row-parallel product over its own feature columns, or a weight gradient over its own tokens.
 */

#include "compiler/verify/sets.h"

/* An instruction's meaning: opcode, which of its outputs, attributes and input nodes.  Equal recipes are one
 * node. */
#define RECIPE_INPUTS ISA_MAX_OPERANDS
#define RECIPE_ATTRS ISA_MAX_ATTRS
enum {
    RECIPE_SUM = NOPS,
    RECIPE_SOURCE,  /* attr 0: enum source; attr 1: unit */
    RECIPE_UPDATED, /* input 0 after the optimizer's step */
    RECIPE_SQUARES, /* sum of squares of input 0; attr 0: of how many weights before it is the gradient too */
    RECIPE_SPREAD,  /* weights of key heads, each so often as attr 0 says, side by side */
    RECIPE_FOLD,    /* input 0, a gradient by these, as sums over equal heads */
    RECIPE_SLICE    /* of a flat list that is split over ranks; attr 0 numbers the list */
};
struct recipe {
    uint16_t op; /* enum op, or one of the above */
    uint16_t output;
    uint32_t input[RECIPE_INPUTS]; /* by operand; NODE_ZERO where there is none */
    uint64_t attr[RECIPE_ATTRS];   /* bits of int64_t or double; 0 where it depends on the rank */
};
/* NULL: it is of no instruction */
static inline const struct isa_info *recipe_info(const struct recipe *r)
{
    return isa_info((enum op)r->op);
}
#define NODE_ZERO 0u /* the empty sum */
struct node {
    struct recipe recipe;
    uint64_t sum[2];  /* sums of nodes are told apart by the sum of their fingerprints, mod 2^128 */
    const char *name; /* of the reference's; NULL for sums that only the program makes */
    int64_t cols;     /* of the logical matrix; rows are tokens or the weight's */
    int64_t domain;   /* elements of the contraction index, 0 if it has none, or DOMAIN_MICROBATCH */
    bool max;         /* contributions are maximised, not added */
    bool weight;      /* of a weight's gradient, or part of that sum */
};
#define DOMAIN_MICROBATCH (-1) /* contributions are rows of the value's own microbatch */
struct nodes {
    struct arena *arena;
    int64_t group; /* rows of a microbatch on all ranks of a sequence */
    uint32_t n, room, *table, table_room;
    struct node *at;
    struct sets *sets; /* of contributions to them */
};
struct nodes *nodes_new(struct arena *a);
uint32_t nodes_find(const struct nodes *g, const struct recipe *r); /* NONE = unknown */
bool nodes_are(const struct nodes *g, uint32_t node, const struct recipe *r); /* is that its recipe? */
uint32_t nodes_add(struct nodes *g, const struct recipe *r, const char *name, int64_t cols, int64_t domain);
uint32_t nodes_sum(struct nodes *g, uint32_t x, uint32_t y); /* made where unknown */
void nodes_label(struct nodes *g, uint32_t node, const char *name); /* make a sum the reference's */
const char *nodes_name(const struct nodes *g, uint32_t node);

struct term {
    uint32_t node;
    struct blocks blocks;
};
enum value_kind {
    VALUE_NODES, /* as above */
    VALUE_ZERO,  /* zeros: any shape */
    VALUE_PART,  /* the rank's own part, by its number in the digits of `mask`, of a flat list of pieces */
    VALUE_BYTES  /* defined, and nothing more is known (property 5) */
};
/* Rows that have been dispatched to experts.  The value's rows are experts; of each it has what `tokens` sent, in blocks
 * of `rows` rows; home: digits over which they have come back, so that of the tokens only the own ones' rows are there. */
struct routed {
    struct blocks tokens;
    uint32_t blocks, rows, home;
    /* not 0: rows of tokens, not of choices: one for each block that the token has a choice in, at these places (a node) */
    uint32_t once;
    const struct routed *from; /* how the rows lay that were dispatched; NULL: they were the own tokens' */
};
struct value {
    enum value_kind kind;
    uint32_t node;
    uint32_t nterms, mask;
    const struct term *terms; /* sorted by node */
    struct extent row, col;
    struct extent member;         /* of a family of weights, each with these rows and columns; len 0 = none */
    const struct routed *routed;  /* NULL = rows are tokens, or a weight's */
    bool eight;                   /* rows in 8 bits: words hold them, of which a part of a row is nothing */
    const struct whole *whole;    /* VALUE_PART */
    uint32_t origin, origin_role; /* for messages: the instruction + 1 that chose its rows; 0 = unknown */
};
/* a flat list of elements, as the buffers of a bucket hold them */
struct stretch {
    uint64_t at, n; /* elements */
    struct value value;
};
struct whole {
    uint64_t elements;
    uint32_t n;
    struct stretch *at;
};
/* x + y on the same rows and columns; NULL, or what is wrong */
const char *value_add(struct arena *a, struct nodes *g, const struct value *x, const struct value *y,
                      struct value *out);
/* sum (or maximum) over all values of a digit; NULL, or what is wrong */
const char *value_reduce(struct arena *a, struct nodes *g, const struct mesh *mesh, const struct value *x,
                         uint32_t digit, bool max, struct value *out);
/* rows, columns and members */
bool value_same_place(const struct value *x, const struct value *y);
/* are these all contributions to the term's node that this value needs? */
bool value_complete(const struct nodes *g, const struct value *v, const struct term *t);
bool value_routed_same(const struct routed *x, const struct routed *y);
/* "layers.3.q, columns [0, 64)", and what is missing of it */
char *value_text(struct arena *a, const struct nodes *g, const struct value *v);

#endif
