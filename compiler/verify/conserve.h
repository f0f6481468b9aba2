#ifndef LLMC_CONSERVE_H
#define LLMC_CONSERVE_H

/* Inside of property 7: the state while the programs of all roles are interpreted. */

#include "compiler/support/vec.h"
#include "compiler/verify/reference.h"
#include "compiler/verify/store.h"

/* what a SEND has put on its channel, or a member into a collective across roles */
struct message {
    uint32_t insn, rows, cols;
    uint32_t nparts;
    struct part *parts;
};
struct channel {
    VEC(struct message) messages;
    size_t taken;
};
/* An instruction that tells what blocks of `rows` rows lack: for the experts of `row`, of what own tokens and
 * those that came have chosen. */
struct told {
    uint32_t node, role, insn, blocks;
    int64_t rows;
    struct extent row;
    struct blocks own, came;
    uint32_t next; /* of a chain of the table; counted from 1 */
};
enum { TOLD_ROOM = 1 << 14 };
struct machine {
    struct conserve *c;
    const struct program *program;
    uint32_t role, next; /* instruction to interpret next */
    bool waits; /* the instruction waits for another role */
    struct site site;
    struct store *store;
    bool deposited; /* its value lies in `meeting`, it waits for the other members */
    struct whole deposit;
    uint32_t deposit_mask, deposit_part;
    uint32_t writer[ISA_MAX_OPERANDS]; /* who wrote what the current instruction has read; NONE */
    uint32_t *guess;                   /* per operand: the node that it has last been as an output; only tried first */
    uint32_t saw_need;                 /* the node that clippings read as what experts lacked; NONE before the first */
    bool differ_need;                  /* they read different ones */
    uint32_t *part;                    /* per bucket: digits by which its working copy is updated; 0 = whole */
    struct whole **initial;            /* per bucket: parameters, moments (3 each) as the step finds them */
};
/* the names that an opcode's table gives to rows and columns; 0 = the number 1 or 2 */
struct shape {
    uint8_t row[ISA_MAX_OPERANDS], col[ISA_MAX_OPERANDS];
    char name[16][16];
    uint8_t n;
};
struct conserve {
    struct arena *arena, *scratch; /* messages; everything else */
    const struct plan *plan;
    struct verdict *verdict;
    int kind;
    struct reference *reference;
    struct nodes *nodes;
    uint32_t nroles;
    struct machine *machines;
    struct channel *channels; /* [from * nroles + to] */
    struct shape *shapes;     /* by opcode */
    VEC(const struct whole *) slices;
    struct parts *parts; /* buffers for reading: 5 */
    bool failed;
    VEC(uint32_t) lacks; /* nodes of what blocks say that they lack */
    uint32_t need;       /* their sum, NODE_ZERO without any */
    VEC(struct told) told; /* of all roles */
    uint32_t *told_at;     /* TOLD_ROOM chains, counted from 1 */
    /* For messages only: the first instruction that read what another microbatch, by the tags, had left. */
    const struct machine *suspect;
    uint32_t suspect_insn;
};

/* rule_NAME for every row of isa.def: what the instruction does to values.  In conserve_ops.c where most follows from the table,
 * else in the file of its kind.  False after a report; m->waits: it could not do it yet. */
#define INSN(name, queue, unit, operands, attributes, meaning) bool rule_##name(struct machine *m, uint32_t i);
#include "runtime/isa.def"

/* Report at instruction i; always false. */
bool conserve_fail(struct machine *m, uint32_t i, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* the same, and who wrote the operands that it has read */
bool conserve_fail_inputs(struct machine *m, uint32_t i, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* "; rows by role 0's instruction 3 (...)", "" if unknown */
const char *conserve_origin(struct machine *m, const struct value *v);

/* An operand's value as one piece and complete. */
bool conserve_read(struct machine *m, uint32_t i, size_t k, struct value *out);
/* as pieces, in rows and columns of the operand */
bool conserve_read_parts(struct machine *m, uint32_t i, size_t k, struct parts *out);
/* as a flat list of elements; *mask: 0, or the operand is the part numbered by the digits of *mask */
bool conserve_read_flat(struct machine *m, uint32_t i, size_t k, struct whole *out, uint32_t *mask);
/* write pieces that together are the operand, or add them to what is there */
bool conserve_emit(struct machine *m, uint32_t i, size_t k, const struct parts *out);
bool conserve_complete(const struct value *v); /* a node, and all of it */
bool conserve_zeros(const struct parts *p); /* nothing but zeros */
/* a value that the model's step has, or that is on the way to one; false after a report */
bool conserve_known(struct machine *m, uint32_t i, const struct value *v);
bool conserve_emit_one(struct machine *m, uint32_t i, size_t k, const struct value *v);
/* the reference's node of a recipe; NONE after a report */
uint32_t conserve_find(struct machine *m, uint32_t i, const struct recipe *r);
/* a value all of whose contributions lie in `over` */
struct value conserve_value(struct conserve *c, uint32_t node, const struct extent *over, struct extent row,
                            struct extent col);
/* base + slot * stride of an attribute, `len` long; false: it depends on no coordinate */
bool conserve_bind(struct machine *m, uint32_t i, size_t attr, int64_t len, struct extent *out);
/* digits on whose first ranks an attribute is 1 (0 elsewhere); *never: it is 0 on this role */
bool conserve_count(struct machine *m, uint32_t i, size_t attr, uint32_t *first, bool *never);
/* integers and reals among the attributes into a recipe; a rule whose attributes depend on how a matrix is split changes these */
void conserve_attrs(const struct machine *m, uint32_t i, struct recipe *r);

/* conserve_shards.c: a list that may be changed; one stretch added to a list that may hold zeros in its place (NULL, or
 * what is wrong); ADD of shards */
struct whole conserve_copy(struct conserve *c, const struct whole *w);
const char *conserve_overlay(struct conserve *c, struct whole *acc, const struct stretch *s);
bool conserve_add_shards(struct machine *m, uint32_t i, bool *shards);
bool conserve_copy_flat(struct machine *m, uint32_t i); /* COPY of a list */
/* conserve_formats.c: may the list be summed between ranks, may shards be added up in this operand's format; COPY between two */
bool conserve_reduce_format(struct machine *m, uint32_t i, const struct operand *o, const struct whole *w);
bool conserve_add_format(struct machine *m, uint32_t i, const struct operand *o);
bool conserve_convert(struct machine *m, uint32_t i, bool *done);
/* conserve_keys.c: key heads that several tensor-parallel ranks hold, which the reference repeats.  A weight as products
 * have it; a gradient by that, summed over the ranks that hold the same head where all of these are in the mask: what is left
 * of that */
void conserve_spread(struct conserve *c, struct value *v);
uint32_t conserve_fold(struct conserve *c, struct value *v, uint32_t mask);
/* conserve_context.c: sequences that are split over ranks.  Heads for rows; tokens of a sequence per rank; rows + the own place
 * in their microbatch; are an instruction's `first` and `shift` the places of these rows? */
bool conserve_exchange(struct machine *m, uint32_t i);
int64_t conserve_sequence(const struct machine *m);
void conserve_own_rows(const struct machine *m, struct extent *row);
bool conserve_places(struct machine *m, uint32_t i, size_t first, size_t shift, const struct extent *row);
/* are attention's linear biases, by these attributes, those of its heads? */
bool conserve_biases(struct machine *m, uint32_t i, size_t alibi, size_t first_head, const struct extent *heads);
/* the node of a parameter or moment behind the optimizer */
uint32_t conserve_updated(struct machine *m, uint32_t node);
/* rows or counts of experts on their way: ALL_TO_ALL, ALL_GATHER, REDUCE_SCATTER; *mine: it is of that kind */
bool conserve_routed(struct machine *m, uint32_t i, uint32_t mask, bool *mine);
/* squared norm of gradients of the whole batch, counted on the first ranks of these digits; NULL, or what is
 * wrong */
const char *conserve_norm_of(struct conserve *c, const struct whole *w, uint32_t first, struct value *sum);
bool conserve_start(struct machine *m); /* parameters and state as the step finds them */
bool conserve_end(struct machine *m);   /* and as it leaves them */
bool conserve_told(struct conserve *c); /* conserve_arrange.c: was nothing told twice? */

#endif
