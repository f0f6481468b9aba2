#ifndef LLMC_VALUE_H
#define LLMC_VALUE_H

/* The abstract values of property 7: what a region of memory holds, as a part of a logical matrix of the
 * single-device step, on every rank of a role at once.
 *
 * A node is a logical matrix over all tokens of the batch (or a whole weight).  Rows, columns and contributions are
 * intervals whose start is affine in the rank's coordinates, so one interpretation covers all ranks of a role.
 *
 *   value = full node + sum of terms;   term = a node of which only some contributions have been added up,
 *
 * for example a row-parallel product over this rank's feature columns, or a weight gradient over its tokens. */

#include "compiler/verify/sets.h"

/* The meaning of an instruction's output: opcode, index of the output, attributes and input nodes.  Equal recipes
 * are the same node. */
#define RECIPE_INPUTS ISA_MAX_OPERANDS
#define RECIPE_ATTRS ISA_MAX_ATTRS
enum {
    RECIPE_SUM = NOPS,
    RECIPE_SOURCE,  /* attr 0: enum source; attr 1: unit */
    RECIPE_UPDATED, /* input 0 after the optimizer's step */
    RECIPE_SQUARES, /* sum of squares of input 0; attr 0: number of earlier weights that have the same gradient node */
    RECIPE_SPREAD,  /* weights of key/value heads, each repeated attr 0 times, side by side */
    RECIPE_FOLD,    /* input 0, a gradient with respect to those, summed over equal heads */
    RECIPE_SLICE    /* part of a flat list that is split over ranks; attr 0 numbers the list */
};
struct recipe {
    uint16_t op; /* enum op, or one of the above */
    uint16_t output;
    uint32_t input[RECIPE_INPUTS]; /* by operand; NODE_ZERO where there is none */
    uint64_t attr[RECIPE_ATTRS];   /* bits of int64_t or double; 0 where it depends on the rank */
};
/* NULL: the recipe is not that of an instruction */
static inline const struct isa_info *recipe_info(const struct recipe *r)
{
    return isa_info((enum op)r->op);
}
#define NODE_ZERO 0u /* the empty sum */
struct node {
    struct recipe recipe;
    uint64_t sum[2];  /* fingerprint; that of a sum is the sum of its nodes' fingerprints, mod 2^128 */
    const char *name; /* name in the reference; NULL for sums that only the program makes */
    int64_t cols;     /* columns of the logical matrix; its rows are tokens or the weight's rows */
    int64_t domain;   /* size of the contraction index, 0 if it has none, or DOMAIN_MICROBATCH */
    bool max;         /* contributions are combined by maximum, not sum */
    bool weight;      /* a weight's gradient, or part of its sum */
};
#define DOMAIN_MICROBATCH (-1) /* contributions are rows of the value's own microbatch */
struct nodes {
    struct arena *arena;
    int64_t group; /* rows of a microbatch on all ranks that share a sequence */
    uint32_t n, room, *table, table_room;
    struct node *at;
    struct sets *sets; /* sets of contributions */
};
struct nodes *nodes_new(struct arena *a);
uint32_t nodes_find(const struct nodes *g, const struct recipe *r);           /* NONE = unknown */
bool nodes_are(const struct nodes *g, uint32_t node, const struct recipe *r); /* does the node have that recipe? */
uint32_t nodes_add(struct nodes *g, const struct recipe *r, const char *name, int64_t cols, int64_t domain);
uint32_t nodes_sum(struct nodes *g, uint32_t x, uint32_t y); /* finds or makes the node of a sum */
/* Adds a node of another table whose first `common` nodes are the same; a sum keeps no inputs.  NONE: its meaning is
 * more than its recipe. */
uint32_t nodes_adopt(struct nodes *g, const struct node *n, uint32_t common);
void nodes_label(struct nodes *g, uint32_t node, const char *name); /* gives a sum its name in the reference */
const char *nodes_name(const struct nodes *g, uint32_t node);

struct term {
    uint32_t node;
    struct blocks blocks;
};
enum value_kind {
    VALUE_NODES, /* as above */
    VALUE_ZERO,  /* zeros: any shape */
    VALUE_PART,  /* this rank's part of a flat list; its index is the number formed by the digits of `mask` */
    VALUE_BYTES  /* defined, but nothing else is known (property 5) */
};
/* Rows that have been dispatched to experts.  The value's rows are experts; for each it holds the rows that `tokens`
 * sent, in blocks of `rows` rows.  home: digits over which rows have returned, so that of `tokens` only this rank's
 * own remain. */
struct routed {
    struct blocks tokens;
    uint32_t blocks, rows, home;
    /* not 0: one row per token and block in which the token has a choice, not one per choice, at the places that
     * this node gives */
    uint32_t once;
    const struct routed *from; /* layout of the rows before they were dispatched; NULL: they were this rank's tokens */
};
struct value {
    enum value_kind kind;
    uint32_t node;
    uint32_t nterms, mask;
    const struct term *terms; /* sorted by node */
    struct extent row, col;
    /* which experts of a stacked weight, each with these rows and columns; len 0: no such weight */
    struct extent member;
    const struct routed *routed;  /* NULL: rows are tokens, or a weight's rows */
    bool eight;                   /* rows quantised to 8 bits in words; part of such a row has no meaning */
    const struct whole *whole;    /* VALUE_PART */
    uint32_t origin, origin_role; /* for messages: number + 1 of the instruction that chose its rows; 0: unknown */
};
/* a stretch of a flat list of elements, as buckets' buffers hold them */
struct stretch {
    uint64_t at, n; /* elements */
    struct value value;
};
struct whole {
    uint64_t elements;
    uint32_t n;
    struct stretch *at;
};
/* x + y on the same rows and columns; returns NULL, or what is wrong */
const char *value_add(struct arena *a, struct nodes *g, const struct value *x, const struct value *y,
                      struct value *out);
/* sum (or maximum) over all values of a digit; returns NULL, or what is wrong */
const char *value_reduce(struct arena *a, struct nodes *g, const struct mesh *mesh, const struct value *x,
                         uint32_t digit, bool max, struct value *out);
/* do they have the same rows, columns and members? */
bool value_same_place(const struct value *x, const struct value *y);
/* does the term have all contributions to its node that this value needs? */
bool value_complete(const struct nodes *g, const struct value *v, const struct term *t);
bool value_routed_same(const struct routed *x, const struct routed *y);
/* "layers.3.q, columns [0, 64)", and what is missing of it */
char *value_text(struct arena *a, const struct nodes *g, const struct value *v);

#endif
