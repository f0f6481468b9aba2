#ifndef LLMC_PROGRAM_SHARE_H
#define LLMC_PROGRAM_SHARE_H

/* Instructions with equal operands and attributes share their lists.  Invariant behind program_share(): the same first
 * operand means the same body.  An instruction's lists may be written only where nothing is shared. */

#include "runtime/program.h"

#include <stddef.h>

struct program_bodies; /* of the instructions that share already */
struct program_bodies *program_bodies_new(void);
void program_bodies_free(struct program_bodies *b);
/* Instructions from `first` on, the newest, whose lists are the last of the arrays and in their order, share with equal ones
 * among all that have been given to this. */
void program_share(struct program *p, struct program_bodies *b, uint32_t first);
/* Has an instruction of this opcode with these lists been asked for before?  seen: one per operand of the program, zeros to
 * begin with. */
static inline bool program_seen(uint64_t *seen, const struct insn *in)
{
    uint64_t body = ((uint64_t)in->attr + 1) << 16 | in->op;
    bool before = seen[in->operand] == body;
    seen[in->operand] = body;
    return before;
}
/* the newest instruction: another one's copy, which shares its lists */
uint32_t program_repeat(struct program *p, uint32_t insn);
/* a list of its own for every instruction again */
void program_unshare(struct program *p);
/* realloc() of n items; ends the process with one line when memory runs out */
void *program_alloc(void *old, size_t n, size_t item);
/* operands and attributes have no room but for what there is */
void program_trim(struct program *p);

#endif
