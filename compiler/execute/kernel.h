#ifndef LLMC_EXECUTE_KERNEL_H
#define LLMC_EXECUTE_KERNEL_H

/* The compute instructions of runtime/isa.def over the field.
 *
 * Sums of products are exact.  Everything else is a fixed random function, chosen so that exactly those identities
 * hold that a layout may rely on: norms, activations and updates act on a row or an element; attention's numerator
 * and denominator are sums over keys, so blocks of keys merge exactly ("lse" holds the denominator); cross-entropy
 * is a sum over columns shifted by one common number; gradients are the formal derivatives with the same functions,
 * where a function's derivative is another fixed random function.
 *
 * Operands arrive as dense arrays, and those that are only written arrive as zeros.  The caller accumulates. */

#include "compiler/execute/field.h"
#include "compiler/support/vec.h"
#include "runtime/isa.h"

struct exact_view {
    uint64_t *at; /* NULL: an optional operand that is absent; integers as int64_t */
    uint32_t rows, cols;
};
/* Rows in 8 bits: a word stands for four numbers and holds their index in this list; a scale holds the index of the
 * first of its numbers. */
struct exact_four {
    uint64_t number[4];
};
struct exact_fours {
    struct arena *arena;
    VEC(struct exact_four) list;
};
struct exact_args {
    struct exact_view v[ISA_MAX_OPERANDS];
    union {
        int64_t i;
        double f;
    } attr[ISA_MAX_ATTRS];
    uint64_t vocab;   /* of the job: token ids are below it */
    uint64_t garbage; /* state of the generator for unspecified rows */
    struct arena *scratch;
    struct exact_fours *fours;
};
typedef void exact_kernel(struct exact_args *k);
/* Returns NULL for an instruction that transfers what others have computed (meet.c). */
exact_kernel *exact_kernel_of(enum op op);

#define V(op, name) (&k->v[OPND(op, name)])
#define INTEGER(op, name) (k->attr[ATTR(op, name)].i)
#define NUMBER(op, name) (k->attr[ATTR(op, name)].f)

/* selects the random function */
enum exact_salt {
    SALT_TOKEN = 1,
    SALT_RSTD,
    SALT_ROPE_COS,
    SALT_ROPE_SIN,
    SALT_EXP,
    SALT_CAP,
    SALT_CAP_SLOPE,
    SALT_ACT,
    SALT_ACT_SLOPE,
    SALT_LOG,
    SALT_CLIP,
    SALT_ADAM,
    SALT_STEP,
    SALT_WEIGHT,
    SALT_ROUTER,
    SALT_CLAMP,
    SALT_CLAMP_SLOPE
};
/* exp of a score minus its shift */
static inline uint64_t exact_exp(uint64_t score)
{
    return field_hash(SALT_EXP, score, 0);
}

static inline uint32_t exact_share(uint32_t n, int64_t parts)
{
    return parts > 0 ? (uint32_t)(n / parts) : 0;
}
/* The next value of an unspecified element. */
static inline uint64_t exact_garbage(struct exact_args *k)
{
    k->garbage = field_bits(k->garbage, 0, 0);
    return field_reduce(k->garbage);
}
/* The place of token w of a split sequence, as isa.def defines it. */
static inline int64_t exact_place_of(uint64_t part, uint64_t w, uint64_t sequence, int64_t first, int64_t shift)
{
    int64_t half = (int64_t)(sequence / 2), grown = (int64_t)part * half;
    return first + grown + (int64_t)w + ((int64_t)w >= half ? shift - 2 * grown : 0);
}

/* Linear biases of attention: what a score of this head, out of `heads`, gets per place of distance; 0 where there
 * are none. */
uint64_t exact_slope(int64_t heads, int64_t head);

/* Declares exact_NAME for every row that computes; a row without an implementation does not link. */
#define EXACT_MATMUL(name) exact_kernel exact_##name;
#define EXACT_ATTENTION(name) exact_kernel exact_##name;
#define EXACT_STREAM(name) exact_kernel exact_##name;
#define EXACT_HOST(name) exact_kernel exact_##name;
#define EXACT_P2P(name)
#define EXACT_COLLECTIVE(name)
#define INSN(name, queue, unit, operands, attributes, meaning) EXACT_##unit(name)
#include "runtime/isa.def"
#undef EXACT_MATMUL
#undef EXACT_ATTENTION
#undef EXACT_STREAM
#undef EXACT_HOST
#undef EXACT_P2P
#undef EXACT_COLLECTIVE

#endif
