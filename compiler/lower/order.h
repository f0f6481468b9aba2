#ifndef LLMC_LOWER_ORDER_H
#define LLMC_LOWER_ORDER_H

/* Inside of order_programs(): what its steps know of one role's program.  Bodies are numbered by their first operand. */

#include "compiler/lower/build.h"

#define NO_INSN UINT32_MAX

struct deps {
    uint32_t *first; /* [n + 1] */
    VEC(uint32_t) list;
};

/* an in-order queue of the keying run: one of the program's, or a channel's sends or receives of one role */
struct vqueue {
    uint32_t *insn, length, head;
    uint32_t channel;           /* NONE = one of the program's queues */
    uint32_t peer, peer_vqueue; /* of a channel: its other end */
    bool sends;
    uint32_t next_waiter;
    int64_t free_ns, ready_ns; /* ready: of a head that waits for its partners */
    bool ready;
};

struct role {
    struct arena *arena; /* of the keying run */
    struct program *p;
    const uint32_t *channels;
    uint32_t microbatches, *depth; /* depth: per ring */
    uint32_t cuts;                 /* parts of a buffer, of equally many bytes, that are waited for one by one */
    uint32_t *slots;               /* of a ring's microbatches, ring by ring */
    struct deps deps;
    uint32_t nvqueues;
    struct vqueue *vqueue;
    int64_t *start, *end;
    uint32_t *waiter; /* per instruction: first virtual queue whose head waits for it, or NO_INSN */
    int64_t *takes_ns;         /* per instruction */
    uint32_t *order, norder;   /* instructions by seq */
};

/* keying.c: seq, start and end of every instruction */
void lower_key(struct arena *a, const struct cost *c, struct role *roles, uint32_t nroles);
static inline uint32_t slot_of(const struct role *r, uint32_t ring, uint32_t microbatch)
{
    return r->slots[(size_t)ring * r->microbatches + microbatch];
}
/* of a microbatch in a ring: its uses, in time and seq; the action that makes it, and the end of its uses there */
struct ring_life {
    int64_t start, end, grown;
    uint32_t first, last;
    char action;
    bool used;
};
/* cells.c: a life and another use or life of the same microbatch; depths, and every microbatch's slot of every ring */
void ring_life_join(struct ring_life *l, const struct ring_life *x);
void lower_take_cells(struct arena *a, struct role *r, const struct ring_life *life);
/* rings.c: rings by how long they are needed; then depths, and every operand in its slot */
void lower_split_rings(struct arena *a, struct program *p);
void lower_fold_rings(struct arena *a, struct role *r);

#endif
