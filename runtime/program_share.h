#ifndef LLMC_PROGRAM_SHARE_H
#define LLMC_PROGRAM_SHARE_H

/* Instructions with equal operands and attributes share their lists (a body).  Invariant after program_share(): the
 * same first operand means the same body.  An instruction's lists may be modified only while nothing is shared. */

#include "runtime/program.h"

#include <stddef.h>

struct program_bodies; /* bodies of the instructions that share already */
struct program_bodies *program_bodies_new(void);
void program_bodies_free(struct program_bodies *b);
/* Lets instructions from `first` on share lists with equal ones among all that were passed to this function before.
 * They must be the newest instructions, with their lists at the end of the arrays, in their order. */
void program_share(struct program *p, struct program_bodies *b, uint32_t first);
/* Was this function called before for an instruction of this opcode with these lists?  seen: one entry per operand
 * of the program, initially zero. */
static inline bool program_seen(uint64_t *seen, const struct insn *in)
{
    uint64_t body = ((uint64_t)in->attr + 1) << 16 | in->op;
    bool before = seen[in->operand] == body;
    seen[in->operand] = body;
    return before;
}
/* appends a copy of an instruction, which shares its lists */
uint32_t program_repeat(struct program *p, uint32_t insn);
/* gives every instruction lists of its own again */
void program_unshare(struct program *p);
/* realloc() of n items; ends the process with one line when memory runs out */
void *program_alloc(void *old, size_t n, size_t item);
/* releases unused capacity of operands and attributes */
void program_trim(struct program *p);

#endif
