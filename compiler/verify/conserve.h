#ifndef LLMC_CONSERVE_H
#define LLMC_CONSERVE_H

/* Private to property 7: the state while the programs of all roles are interpreted. */

#include "compiler/support/vec.h"
#include "compiler/verify/reference.h"
#include "compiler/verify/store.h"

/* what a SEND has put on its channel, or what a member contributes to a collective across roles */
struct message {
    uint32_t insn, rows, cols;
    uint32_t nparts;
    struct part *parts;
};
struct channel {
    VEC(struct message) messages;
    size_t taken;
};
/* An instruction that reports how many rows blocks of `rows` rows lack: for the experts of `row`, given the choices
 * of the rank's own tokens (own) and of those that arrived (came). */
struct told {
    uint32_t node, role, insn, blocks;
    int64_t rows;
    struct extent row;
    struct blocks own, came;
    uint32_t next; /* next one in its chain of the hash table, counted from 1 */
};
enum { TOLD_ROOM = 1 << 14 };
struct machine {
    struct conserve *c;
    const struct program *program;
    uint32_t role, next; /* instruction to interpret next */
    bool waits;          /* the instruction is waiting for another role */
    struct site site;
    struct store *store;
    bool deposited; /* its contribution to a collective is in `deposit`, and it is waiting for the other members */
    struct whole deposit;
    uint32_t deposit_mask, deposit_part;
    uint32_t writer[ISA_MAX_OPERANDS]; /* per operand: the instruction that wrote what the current one has read; NONE */
    uint32_t *guess;                   /* per operand: the node that it was when last written, which is tried first */
    /* the node that CLIP instructions read as the experts' lack of rows; NONE before the first */
    uint32_t saw_need;
    bool differ_need; /* they have read different nodes */
    /* per bucket: digits over which the update of its working copy is split; 0: updated whole */
    uint32_t *part;
    struct whole **initial; /* per bucket: parameter and two moments as the step finds them */
    char apart[64];         /* machines that run side by side share no line of the cache */
};
/* The names that isa.def gives to an opcode's numbers of rows and columns; 0: the number 1 or 2. */
struct shape {
    uint8_t row[ISA_MAX_OPERANDS], col[ISA_MAX_OPERANDS];
    char name[16][16];
    uint8_t n;
};
struct conserve {
    struct arena *arena, *scratch; /* arena: messages; scratch: everything else */
    const struct plan *plan;
    struct verdict *verdict;
    int kind;
    struct team *team; /* of which this is a worker; NULL: it runs alone */
    struct reference *reference;
    struct nodes *nodes;
    uint32_t common; /* the first nodes, which are the reference's, and the same for all workers */
    uint32_t nroles;
    struct machine *machines;
    struct channel *channels; /* [from * nroles + to] */
    struct shape *shapes;     /* by opcode */
    VEC(const struct whole *) slices;
    struct parts *parts; /* five buffers for operands that are read */
    bool failed;
    VEC(uint32_t) lacks;   /* nodes of the lacks that blocks of expert rows have reported */
    uint32_t need;         /* their sum, NODE_ZERO without any */
    VEC(struct told) told; /* reports of all roles */
    uint32_t *told_at;     /* TOLD_ROOM chains, counted from 1 */
    /* Only for messages: the first instruction that read what, by the tags, another microbatch had left. */
    const struct machine *suspect;
    uint32_t suspect_insn;
};

/* rule_NAME for every row of isa.def: what the instruction does to abstract values.  In conserve_ops.c where most
 * follows from the table, otherwise in the file of its kind.  Returns false after a report; sets m->waits where it
 * has to wait for another role. */
#define INSN(name, queue, unit, operands, attributes, meaning) bool rule_##name(struct machine *m, uint32_t i);
#include "runtime/isa.def"

/* Reports a violation at instruction i; always returns false. */
bool conserve_fail(struct machine *m, uint32_t i, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The same, also naming the instructions that wrote the operands it has read. */
bool conserve_fail_inputs(struct machine *m, uint32_t i, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* "; rows by role 0's instruction 3 (...)", "" if unknown */
const char *conserve_origin(struct machine *m, const struct value *v);

/* Reads an operand's value, which must be in one piece and complete. */
bool conserve_read(struct machine *m, uint32_t i, size_t k, struct value *out);
/* Reads it as pieces, in rows and columns of the operand. */
bool conserve_read_parts(struct machine *m, uint32_t i, size_t k, struct parts *out);
/* Reads it as a flat list of elements; *mask: 0, or the digits whose number says which part of the list the operand
 * is. */
bool conserve_read_flat(struct machine *m, uint32_t i, size_t k, struct whole *out, uint32_t *mask);
/* Writes pieces that together make up the operand, or adds them to what is there. */
bool conserve_emit(struct machine *m, uint32_t i, size_t k, const struct parts *out);
bool conserve_complete(const struct value *v); /* is it a node with all contributions? */
bool conserve_zeros(const struct parts *p);    /* are all parts zeros? */
/* Is it a value of the reference step, or a partial sum of one?  false after a report. */
bool conserve_known(struct machine *m, uint32_t i, const struct value *v);
bool conserve_emit_one(struct machine *m, uint32_t i, size_t k, const struct value *v);
/* Returns the reference's node with that recipe; NONE after a report. */
uint32_t conserve_find(struct machine *m, uint32_t i, const struct recipe *r);
/* A value of the node with the contributions `over`. */
struct value conserve_value(struct conserve *c, uint32_t node, const struct extent *over, struct extent row,
                            struct extent col);
/* The interval that starts at an attribute's base + slot * stride, of length `len`; false: the slot is no
 * coordinate. */
bool conserve_bind(struct machine *m, uint32_t i, size_t attr, int64_t len, struct extent *out);
/* Digits on whose first ranks an attribute is 1 (0 elsewhere); *never: it is 0 on all ranks of this role. */
bool conserve_count(struct machine *m, uint32_t i, size_t attr, uint32_t *first, bool *never);
/* Copies integer and real attributes into a recipe; a rule whose attributes depend on how a matrix is split adjusts
 * these afterwards. */
void conserve_attrs(const struct machine *m, uint32_t i, struct recipe *r);

/* conserve_shards.c: a copy of a list that may be modified; a stretch added to a list in place, where the list may
 * hold zeros (NULL, or what is wrong); ADD of shards */
struct whole conserve_copy(struct conserve *c, const struct whole *w);
const char *conserve_overlay(struct conserve *c, struct whole *acc, const struct stretch *s);
bool conserve_add_shards(struct machine *m, uint32_t i, bool *shards);
bool conserve_copy_flat(struct machine *m, uint32_t i); /* COPY of a flat list */
/* conserve_formats.c: may the list be reduced between ranks, and may shards be added up, in this operand's format?
 * COPY between two formats */
bool conserve_reduce_format(struct machine *m, uint32_t i, const struct operand *o, const struct whole *w);
bool conserve_add_format(struct machine *m, uint32_t i, const struct operand *o);
bool conserve_convert(struct machine *m, uint32_t i, bool *done);
/* conserve_keys.c: key/value heads that several tensor-parallel ranks hold, which the reference repeats.
 * conserve_spread(): turns a weight into the repeated weight that products read.  conserve_fold(): turns the
 * gradient of that into the weight's own, summed over ranks that hold the same head, if all of these are in the
 * mask; returns what is left of the mask. */
void conserve_spread(struct conserve *c, struct value *v);
uint32_t conserve_fold(struct conserve *c, struct value *v, uint32_t mask);
/* conserve_context.c: sequences that are split over ranks.  conserve_exchange(): an all-to-all of heads for rows;
 * conserve_sequence(): tokens of a sequence per rank; conserve_own_rows(): adds the offset of this rank's rows in
 * their microbatch; conserve_places(): do an instruction's attributes `first` and `shift` describe the positions of
 * these rows? */
bool conserve_exchange(struct machine *m, uint32_t i);
int64_t conserve_sequence(const struct machine *m);
void conserve_own_rows(const struct machine *m, struct extent *row);
bool conserve_places(struct machine *m, uint32_t i, size_t first, size_t shift, const struct extent *row);
/* do these attributes give attention the linear biases of its heads? */
bool conserve_biases(struct machine *m, uint32_t i, size_t alibi, size_t first_head, const struct extent *heads);
/* the node of a parameter or moment after the optimizer's step */
uint32_t conserve_updated(struct machine *m, uint32_t node);
/* ALL_TO_ALL, ALL_GATHER, REDUCE_SCATTER of expert rows or counts; *mine: it is one of these */
bool conserve_routed(struct machine *m, uint32_t i, uint32_t mask, bool *mine);
/* Squared norm of gradients of the whole batch, counted on the first ranks of these digits; NULL, or what is wrong. */
const char *conserve_norm_of(struct conserve *c, const struct whole *w, uint32_t first, struct value *sum);
/* conserve_run.c: a role's message to another, and the oldest that has not been taken; false: there is none yet */
void conserve_put(struct conserve *c, uint32_t from, uint32_t to, const struct message *msg);
bool conserve_take(struct conserve *c, uint32_t from, uint32_t to, struct message *msg);
/* Proves the programs of one kind, by at most so many workers side by side.  Returns how many did; 0: the plan has no
 * such programs. */
uint32_t conserve_prove(struct arena *a, const struct plan *p, int kind, uint32_t workers, struct verdict *v);
bool conserve_crosses(const struct machine *m, uint32_t i); /* conserve_comm.c: a collective over several roles? */
bool conserve_start(struct machine *m);                     /* sets parameters and state as the step finds them */
bool conserve_end(struct machine *m);                       /* checks them as the step leaves them */
/* conserve_arrange.c: was no lack of rows reported twice?  and takes over what another worker was told */
bool conserve_told(struct conserve *c);
void conserve_adopt_told(struct conserve *to, const struct conserve *from);

#endif
