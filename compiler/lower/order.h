#ifndef LLMC_LOWER_ORDER_H
#define LLMC_LOWER_ORDER_H

/* Private to order_programs(): what its steps know of one role's program.  A list of operands shared by instructions
 * (a body) is identified by its first operand. */

#include "compiler/lower/finish.h"
#include "compiler/support/vec.h"

#define NO_INSN UINT32_MAX

struct deps {
    uint32_t *first; /* [n + 1] */
    VEC(uint32_t) list;
};

/* An in-order queue of the keying simulation: one of the program's queues, or one role's sends or receives of a
 * channel. */
struct vqueue {
    uint32_t *insn, length, head;
    uint32_t channel;           /* NONE = one of the program's queues */
    uint32_t peer, peer_vqueue; /* role and virtual queue of a channel's other end */
    bool sends;
    uint32_t next_waiter;
    int64_t free_ns, ready_ns; /* ready: time from which a head waits for its partners */
    bool ready;
};

struct role {
    struct arena *arena; /* arena of the keying simulation */
    struct program *p;
    const uint32_t *channels;
    uint32_t microbatches, *depth; /* depth: slots, per ring */
    bool launched;                 /* collectives wait for the kernels before them, see launched_behind() */
    uint32_t cuts;                 /* every buffer is divided into so many equal parts that are waited for separately */
    uint32_t *slots;               /* slot of every microbatch, ring by ring */
    struct deps deps;
    uint32_t nvqueues;
    struct vqueue *vqueue;
    int64_t *start, *end;
    uint32_t *waiter;        /* per instruction: first virtual queue whose head waits for it, or NO_INSN */
    int64_t *takes_ns;       /* duration per instruction */
    uint32_t *order, norder; /* instructions in order of seq */
};

/* keying.c: sets seq, start and end of every instruction */
void lower_key(struct arena *a, const struct cost *c, struct role *roles, uint32_t nroles);
static inline uint32_t slot_of(const struct role *r, uint32_t ring, uint32_t microbatch)
{
    return r->slots[(size_t)ring * r->microbatches + microbatch];
}
/* The live range of a microbatch in a ring: its first start and last end in ns, first and last seq; the action that
 * writes it first, and when the uses by that action end (`grown`). */
struct ring_life {
    int64_t start, end, grown;
    uint32_t first, last;
    char action;
    bool used;
};
/* cells.c: extends a live range by another one of the same microbatch; sets depths, and every microbatch's slot in
 * every ring */
void ring_life_join(struct ring_life *l, const struct ring_life *x);
void lower_take_cells(struct arena *a, struct role *r, const struct ring_life *life);
/* rings.c: splits rings by how long their buffers are needed; then sets depths, and points every operand at its slot */
void lower_split_rings(struct arena *a, struct program *p);
void lower_fold_rings(struct arena *a, struct role *r);

#endif
