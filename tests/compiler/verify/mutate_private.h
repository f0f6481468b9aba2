#ifndef LLMC_TESTS_MUTATE_PRIVATE_H
#define LLMC_TESTS_MUTATE_PRIVATE_H

/* Shared by the files of mutate.h: one draw, and what all kinds of faults need. */

#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/mutate.h"

struct mutate_draw {
    struct mutant *m;
    uint64_t *random;
    uint32_t role;
    bool evaluation;
    const struct program *p; /* the original */
};

/* the mutant's own copy of one program; or another one in its place */
struct program *mutate_own(struct mutant *m, uint32_t role, bool evaluation);
void mutate_replace(struct mutant *m, uint32_t role, bool evaluation, struct program *p);

void mutate_add_site(struct mutant *m, uint32_t role, bool evaluation, uint32_t insn, uint64_t start, uint64_t end);
void mutate_add_operands(struct mutant *m, const struct program *p, uint32_t insn); /* all bytes it touches */
void mutate_add_insn(struct mutant *m, const struct program *p, uint32_t insn);

bool mutate_is_p2p(const struct program *p, uint32_t i);
bool mutate_is_collective(const struct program *p, uint32_t i);
bool mutate_is_comm(const struct program *p, uint32_t i);
bool mutate_is_reduction(const struct program *p, uint32_t i);
bool mutate_is_gather_of_parameters(const struct program *p, uint32_t i);
bool mutate_accumulates(const struct program *p, uint32_t i);
bool mutate_has_waits(const struct program *p, uint32_t i);
bool mutate_any(const struct program *p, uint32_t i);
/* a random instruction for which `fits` holds; a random present operand; NONE after many tries */
uint32_t mutate_pick(const struct mutate_draw *d, bool (*fits)(const struct program *, uint32_t));
uint32_t mutate_pick_operand(const struct mutate_draw *d, uint32_t insn);
uint32_t mutate_find_seq(const struct program *p, uint32_t seq);
/* on every role that takes part in instruction `insn` of the drawn one */
bool mutate_on_all_members(const struct mutate_draw *d, uint32_t insn,
                           bool (*change)(struct mutant *, const struct program *, uint32_t));
bool mutate_drop_from(struct mutant *m, const struct program *p, uint32_t insn);

/* the kinds; false: nothing was changed */
bool mutate_list(const struct mutate_draw *d);
bool mutate_swap(const struct mutate_draw *d);
bool mutate_swap_matched(const struct mutate_draw *d);
bool mutate_layer(const struct mutate_draw *d);
bool mutate_layer_swapped(const struct mutate_draw *d);
bool mutate_slot_of_comm(const struct mutate_draw *d, bool peer);
bool mutate_operand(const struct mutate_draw *d);
bool mutate_attribute(const struct mutate_draw *d);
bool mutate_bind_slot(const struct mutate_draw *d);
bool mutate_exchanged(const struct mutate_draw *d);
bool mutate_wait(const struct mutate_draw *d);
bool mutate_queue(const struct mutate_draw *d);
bool mutate_seq(const struct mutate_draw *d);
bool mutate_stale(const struct mutate_draw *d);
bool mutate_buffers(const struct mutate_draw *d);
bool mutate_slot_value(const struct mutate_draw *d);
bool mutate_gpu(const struct mutate_draw *d);
bool mutate_tensor(const struct mutate_draw *d);

#endif
