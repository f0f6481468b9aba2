#ifndef LLMC_TESTS_MANY_H
#define LLMC_TESTS_MANY_H

/* Hand-made programs run by real processes, for tests of the executor and the transport.
 *
 * Buffers are vectors of n * PART elements of fp32, one per index, the same on every rank; each instruction
 * waits for the last writer and all later readers of what it touches, so results do not depend on timing. */

#include "runtime/launch.h"
#include "runtime/player.h"

enum { PART = 40, MOST_BUFFERS = 8, MOST_MANY = 8 };

struct many {
    uint32_t nranks, nroles, nbuffers;
    struct program *program[MOST_MANY]; /* by role */
    struct ranks *ranks; /* one group of all; slot 0 the group, 1 the next rank, 2 the one before */
    struct channels channels;
    struct world world;
    uint64_t seed; /* of the shuffle; 0 = none */
    double watchdog_s;
    const int64_t *const *pace_ns; /* times of instructions by role, instead of doing them; NULL */
    void (*before)(struct many *m, uint32_t rank); /* in the rank's process, before it runs; NULL */
    uint32_t last_writer[MOST_MANY][MOST_BUFFERS]; /* instruction + 1 */
    uint64_t readers[MOST_MANY][MOST_BUFFERS];     /* bits of instructions since */
};

/* role = rank % nroles */
void many_open(struct many *m, uint32_t nranks, uint32_t nroles, uint32_t nbuffers);
void many_close(struct many *m);
/* buffer `part` of n + 1 parts: 0 = the whole, 1 + i = part i */
struct many_operand {
    uint32_t buffer;
    int part; /* -1 = the whole; else a part */
};
/* appends an instruction to a role; operands in the table's order.  At most 64 instructions. */
uint32_t many_insn(struct many *m, uint32_t role, enum op op, enum queue q, const struct many_operand *o,
                   uint32_t no);
float *many_vector(struct many *m, uint32_t rank, uint32_t buffer);
/* fork, run once each, wait; the failure, if any, is in world.control->message */
enum status many_run(struct many *m, uint32_t runs);

#endif
