#ifndef LLMC_PROGRAM_FORM_H
#define LLMC_PROGRAM_FORM_H

/* The binary form of a program; private to program_encode.c and program_decode.c.
 *
 * Every queue is cut into runs: consecutive instructions of equal action, stage, microbatch and layer that use one
 * slot per ring class.  A run is stored as a call of three things that runs share:
 *
 *   segment  what is done: opcodes, shapes, attributes, source lines; buffers are given by symbol numbers
 *   frame    where: a segment and, per symbol, a buffer and an offset; in a ring, the offset within its slot
 *   waits    for what: distances from the position that this queue last waited for on the same other queue
 *   call     frame, waits, microbatch, layer, and the slot of every ring class in the frame
 *
 * Equal layers share segments; equal microbatches share frames, and mostly waits.  A symbol is absolute, with the
 * ring slot included in its offset, if one instruction uses two slots of a class.  `seq` is a stream of differences
 * per queue; the order of the file's instructions is the merge of the queues by seq.
 *
 * A file is accepted only if encoding its contents gives the same bytes: every program has exactly one form. */

#include "runtime/program_bytes.h"
#include "runtime/program_words.h"

enum section {
    SECTION_HEAD,
    SECTION_TABLES,
    SECTION_SEGMENTS,
    SECTION_FRAMES,
    SECTION_WAITS,
    SECTION_CALLS,
    SECTION_SEQ,
    NSECTIONS
};

#define PROGRAM_FILE_MAGIC "LLMCPRG"
#define PROGRAM_FILE_VERSION 3
#define PROGRAM_HOST_BIT 16u /* of a buffer's kind */

/* flags of an operand, after its dtype in the lowest three bits */
#define FORM_ADD 8u   /* accumulates */
#define FORM_SLOT 16u /* has a slot */
#define FORM_LD 32u   /* ld differs from cols */
_Static_assert(NDTYPES <= 8, "dtypes have three bits");

/* microbatches and layers with NONE as -1, so that a difference of 1 is cheap everywhere */
static inline int64_t form_index(uint32_t i)
{
    return i == NONE ? -1 : (int64_t)i;
}

struct container program_container(void);

#endif
