#ifndef LLMC_PROVE_H
#define LLMC_PROVE_H

/* Shared by the properties: reporting, happens-before on one rank, and the bytes that an operand accesses.
 *
 * Each property has a scratch arena of its own; only messages are allocated in the caller's. */

#include "compiler/verify/verify.h"

#include <stdarg.h>

/* Every rank of a role runs the training and the evaluation program. */
enum { PROGRAM_TRAIN, PROGRAM_EVAL, NPROGRAM_KINDS };
const struct program *prove_program(const struct plan *p, uint32_t role, int kind); /* NULL: there is no such program */

struct site {
    uint32_t property, role, rank; /* NONE = any */
    bool evaluation;
    uint32_t insn;
};
/* Reports a violation in one sentence, which is prefixed by its place and the instruction's text. */
void prove_report(struct arena *a, const struct plan *p, struct verdict *v, struct site at, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Copies a violation of another verdict to this one. */
void prove_keep(struct arena *a, struct verdict *v, const struct violation *x);
/* "instruction 12 (its text)" in the arena */
char *prove_insn_text(struct arena *a, const struct program *p, uint32_t insn);
uint32_t prove_count(const struct verdict *v, uint32_t property);

/* Vector clocks: before[i][q] = number of instructions of queue q that are done when instruction i starts.  Waits
 * for an instruction that comes later in the program are ignored here: property 3 reports them. */
struct clocks {
    uint32_t count[NQUEUES];
    uint32_t *position;      /* by instruction: its position on its queue */
    uint32_t *insn[NQUEUES]; /* by queue and position: the instruction */
    uint32_t (*before)[NQUEUES];
};
struct clocks *prove_clocks(struct arena *a, const struct program *p);
struct clocks *prove_positions(struct arena *a, const struct program *p); /* without `before` */

/* Bytes of the arena: `rows` runs of `width` bytes, `pitch` bytes apart; a single run if they are contiguous.  The
 * region of an operand whose offset depends on a slot is one run that covers the operand for all values of the slot. */
struct region {
    uint64_t at, rows, width, pitch;
};
struct region prove_region(const struct program *p, const struct operand *o);
static inline uint64_t region_end(const struct region *r)
{
    return r->at + (r->rows - 1) * r->pitch + r->width;
}
/* Do two regions overlap?  Exact for regions of equal pitch and if one is contiguous; otherwise by their outer
 * bounds. */
bool prove_overlap(const struct region *x, const struct region *y);

/* a group's mask without the digits of size 1; GROUP_TIE stays */
uint32_t prove_mask(const struct mesh *m, uint32_t mask);
/* are the members of such a group on several roles? */
static inline bool prove_crosses(uint32_t mask)
{
    return (mask & (AXIS_BIT(AXIS_PP) | GROUP_TIE)) != 0;
}
/* is a role in such a group?  (in a tie group unless it is its own mirror image) */
static inline bool prove_member(const struct plan *p, uint32_t mask, uint32_t role)
{
    return !(mask & GROUP_TIE) || role != p->nroles - 1 - role;
}
/* are two roles in the same group? */
static inline bool prove_together(const struct plan *p, uint32_t mask, uint32_t role, uint32_t other)
{
    return !(mask & GROUP_TIE) || other == role || other == p->nroles - 1 - role;
}

static inline const struct attr *prove_attr(const struct program *p, uint32_t insn, size_t index)
{
    return &p->attrs[p->insns[insn].attr + index];
}
enum dtype prove_format(enum dtype_name d); /* precision.c */
static inline const struct operand *prove_operand(const struct program *p, uint32_t insn, size_t index)
{
    return &p->operands[p->insns[insn].operand + index];
}
/* is it a SEND or RECV; a collective? */
static inline bool prove_is_p2p(enum op op)
{
    return isa_info(op)->unit == UNIT_P2P;
}
static inline bool prove_is_collective(enum op op)
{
    return isa_info(op)->unit == UNIT_COLLECTIVE;
}
/* the slot that holds an instruction's peer or group */
const struct slot *prove_comm_slot(const struct program *p, uint32_t insn);

/* Instructions that meet across roles, in program order: the SENDs of one role to another and the RECVs there, or
 * the collectives of one kind of group on one queue (a communicator) of all roles that have members in it. */
struct stream {
    uint32_t role, n;
    uint32_t *insn;
};
struct meeting {
    bool p2p; /* member 0 sends, member 1 receives */
    uint32_t mask, queue, nmembers;
    struct stream *member;
};
/* all meetings; peers that do not exist are left out */
struct meeting *prove_meetings(struct arena *a, const struct plan *p, int kind, uint32_t *n);

/* property 2, second part: every slot value of ranks.bin against the mesh */
void prove_slots(struct arena *a, const struct plan *p, struct verdict *v);
/* properties 2 and 3 for every rank by itself, from ranks.bin's peers and groups alone */
void prove_full(struct arena *a, const struct plan *p, bool order, struct verdict *v);

#endif
