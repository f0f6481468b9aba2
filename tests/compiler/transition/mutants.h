#ifndef LLMC_TESTS_TRANSITION_MUTANTS_H
#define LLMC_TESTS_TRANSITION_MUTANTS_H

/* Faults put into transitions, one at a time. */

#include "compiler/transition/transition.h"

enum fault {
    FAULT_OFFSET, /* of an operand: one element, one row, any number of bytes */
    FAULT_ROWS,
    FAULT_COLS,
    FAULT_LD,
    FAULT_SHAPE,    /* as many elements in other rows */
    FAULT_SMALLER,  /* a row or column less on both sides of a message */
    FAULT_BUFFER,   /* another one of the program */
    FAULT_STEAL,    /* an operand of another instruction of the same shape */
    FAULT_EXCHANGE, /* operands of two instructions */
    FAULT_DTYPE,
    FAULT_SLOT,   /* the operand follows a slot */
    FAULT_PLACE,  /* where a buffer of the program lies */
    FAULT_PEER,   /* another slot */
    FAULT_VALUES, /* two slots of a rank exchange their values, or one has another */
    FAULT_DROP,
    FAULT_DROP_BOTH, /* a message, on both sides */
    FAULT_DOUBLE,
    FAULT_DOUBLE_BOTH,
    FAULT_SWAP, /* two neighbours */
    FAULT_SEQ,
    FAULT_WAIT,
    FAULT_FILL,  /* with another value */
    FAULT_OP,    /* another instruction of the same operands */
    FAULT_SEATS, /* two ranks exchange what they are in one of the plans; or one is nothing */
    FAULT_BASE,
    FAULT_ROLE, /* a rank runs another's programs */
    FAULT_GPU,  /* a rank is elsewhere */
    FAULT_LOST, /* another node is */
    NFAULTS
};
const char *fault_name(enum fault f);

/* A copy with one fault; false: this draw found nothing to change.  fault_free() releases it in both cases. */
bool fault_make(struct arena *a, const struct transition *t, enum fault kind, uint64_t *random, struct transition *out);
void fault_free(const struct transition *t, struct transition *mutant);

#endif
