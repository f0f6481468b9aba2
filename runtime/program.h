#ifndef LLMC_PROGRAM_H
#define LLMC_PROGRAM_H

/* One role's program in memory: what a rank of that role does in one step, fully unrolled, and the buffers that it
 * works in.
 *
 * Invariants after program_check(): every index is in range; every operand is within its buffer for every value that
 * its slot can take; shapes, dtypes and marks agree with isa.def; instructions are in `seq` order.  All arrays are
 * malloc'ed and owned by the program; program_free() frees everything. */

#include "runtime/isa.h"
#include "runtime/error.h"

#include <stdio.h>

#define NONE UINT32_MAX

enum axis { AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP, NAXES };
/* Ranks are mixed-radix numbers of up to so many digits.  The first four are the lowest digits of the axes; the
 * others are higher digits of axes that are cut where groups of experts or shards end.  Masks are sets of digits. */
#define NDIGITS 8

/* A slot is a 64-bit value per rank, determined by its kind and argument: the verifier recomputes every value from
 * the mesh. */
enum slot_kind {
    SLOT_COORD, /* arg = mask: the number formed by the rank's digits in the mask, innermost lowest */
    SLOT_FIRST, /* arg = mask: 1 if all those digits are 0, else 0 */
    SLOT_PEER,  /* arg = pp coordinate: the rank with that coordinate and the others equal; SLOT_PEER_GIVEN: any rank,
                   which only ranks.bin says (programs of transitions) */
    SLOT_GROUP, /* arg = mask of digits along which the members vary; GROUP_TIE: this rank and its mirror image, {r,
                   pp-1-r} */
    SLOT_BEHIND /* arg = SLOT_BEHIND_ARG: the COORD number of the rank that is `distance` places back, cyclically */
};
#define SLOT_BEHIND_ARG(mask, distance) ((uint32_t)(distance) << 8 | (uint32_t)(mask))
#define SLOT_BEHIND_MASK(arg) ((arg)&0xffu)
#define SLOT_BEHIND_DISTANCE(arg) ((arg) >> 8)
#define SLOT_PEER_GIVEN (UINT32_MAX - 1)
#define GROUP_TIE (1u << 30)
struct slot {
    char name[24];
    enum slot_kind kind;
    uint32_t arg;
    int64_t most; /* values are 0..most; for PEER ranks; for GROUP the group's size (its id is checked elsewhere) */
};

/* Buffers of asynchronous work are rings: `depth` slots of `stride` bytes, one slot per microbatch in flight.  As
 * lowered, all buffers of a ring class use the same slot in the same action.
 *
 * A slot is live at other times than its neighbours, so each may be anywhere in the arena; an operand's offset
 * counts slots as if they were consecutive.  Placement may give a buffer a ring of its own, with a slot for every
 * offset at which its contents are stored in turn: then an action may use several slots, and slots may share bytes,
 * with each other as with other buffers, as long as no two of them are live. */
struct ring {
    char name[24];
    uint32_t depth;
};
enum buffer_kind {
    BUFFER_STEP,  /* contents are not kept after the step */
    BUFFER_PARAM, /* persistent, below: of a bucket */
    BUFFER_MASTER,
    BUFFER_MOMENT1,
    BUFFER_MOMENT2,
    BUFFER_BLOCK,     /* the step block */
    BUFFER_METRICS,   /* the metrics block; read by the host after the step */
    BUFFER_WORKSPACE, /* scratch memory of kernels on the compute queue, on GPUs; no operand is in it */
    BUFFER_SCALE,     /* the loss scale; persistent, with its initial value given by the program's CLIP_SCALED */
    NBUFFER_KINDS
};
struct buffer {
    char name[40];
    enum buffer_kind kind;
    enum dtype dtype;    /* of persistent buffers; for others the most common dtype of their contents, for people */
    uint32_t ring;       /* class, or NONE */
    uint64_t bytes;      /* ring: depth * stride */
    uint64_t stride;     /* bytes of a slot; = bytes without a ring */
    uint64_t offset;     /* offset in the arena, after placement; a multiple of 256; of a ring that of its first slot */
    bool scattered;      /* a ring whose slots each have their own offset; else slot k is k strides after the first */
    uint32_t place;      /* scattered: index of the first of its `depth` entries in the program's places */
    uint32_t bucket;     /* persistent kinds of a bucket, else NONE */
    bool host;           /* in host memory, which is the arena's beginning; only COPY on the copy queue reaches it */
    uint32_t shard_slot; /* holds elements [slot * n, slot * n + n) of the bucket, n = its own elements; NONE = all */
};

/* A bucket: parameters that are reduced, sharded and updated together; element e of all its buffers belongs together.
 */
struct bucket { /* its tensors follow those of the bucket before it */
    char name[40];
    uint64_t elements; /* padded */
    uint32_t tensor, ntensors;
    bool decay;          /* weight decay applies */
    uint32_t count_slot; /* SLOT_FIRST whose value says whether this rank's copy counts in the norm; NONE = counts */
};
enum init_kind { INIT_NORMAL, INIT_ONES, INIT_ZEROS };
/* A box of a logical tensor in a bucket: rows x cols elements, row-major and dense, from element `at`. */
struct tensor {
    char name[96];               /* Hugging Face name */
    uint32_t ndim;               /* 1 or 2, of the logical tensor */
    uint64_t shape[2];           /* logical; ndim 1: {1, n} */
    uint64_t row, col;           /* the box's corner in the logical tensor for slot value 0 */
    uint32_t rows, cols;         /* the box as stored here */
    uint32_t row_slot, col_slot; /* corner += slot * stride; NONE */
    uint64_t row_stride, col_stride;
    bool transposed; /* stored element (i, j) is logical element (row + j, col + i) */
    uint64_t at;     /* element of the bucket */
    enum init_kind init;
    double std;
    /* A family: the name contains one '%', which stands for 0 .. family - 1; `boxes` boxes follow one another in the
     * bucket, of members member + slot * stride, and the next ones.  0: one tensor, one box. */
    uint32_t family, member, boxes, member_slot;
    uint64_t member_stride;
    /* rows of the logical tensor beyond shape (padded vocabulary) read as 0 and are never saved */
};

struct operand {
    uint32_t buffer; /* NONE = an absent optional operand */
    uint8_t dtype, mark;
    uint16_t slot;   /* offset += slot * slot_stride; UINT16_MAX = none */
    uint64_t offset; /* bytes from the buffer's start, ring slot included */
    uint64_t slot_stride;
    uint32_t rows, cols, ld; /* elements; ld >= cols */
};
struct attr {
    union {
        int64_t i; /* INT, BIND's base */
        double f;  /* REAL */
    } u;
    int64_t stride; /* BIND: value = i + slot * stride */
    uint32_t slot;  /* BIND, PEER, GROUP; NONE */
};
struct wait {
    uint8_t queue;
    uint32_t position; /* on that queue, from 0 */
};
struct insn {
    enum op op : 16;
    uint8_t queue, nwaits;
    /* indices of the first of each in the program's arrays; isa_info() gives the counts; equal lists may be shared
     * (program_share.h) */
    uint32_t operand, attr, wait;
    /* topological number, equal for all parties of a rendezvous, otherwise unique in a plan's step */
    uint32_t seq;
    /* for people only: */
    char action;                      /* F B I W O, or 0 */
    uint16_t stage;                   /* UINT16_MAX = none */
    uint32_t layer, microbatch, line; /* NONE = none; line 0 = none */
};

/* properties of the job that the host side of the runtime needs */
struct job_info {
    uint64_t sequence, batch, vocab, seed, steps_total;
    uint32_t optimizer,
        lr_kind; /* enum optimizer, enum lr_kind of the compiler: 0 adamw 1 sgd; 0 constant 1 linear 2 cosine 3 wsd */
    double lr, lr_min, beta1, beta2;
    uint64_t lr_warmup, lr_decay, lr_stable;
    double tokens_per_step;
};

struct program {
    uint32_t role, nroles;
    bool evaluation; /* forward only */
    struct job_info job;
    uint64_t arena_bytes;
    uint32_t nslots, nrings, nbuffers, nbuckets, ntensors, nplaces;
    struct slot *slots;
    struct ring *rings;
    struct buffer *buffers;
    struct bucket *buckets;
    struct tensor *tensors;
    uint64_t *places; /* offsets in the arena of the slots of scattered rings, ring by ring */
    uint32_t ninsns, noperands, nattrs, nwaits;
    struct insn *insns; /* in seq order */
    struct operand *operands;
    struct attr *attrs;
    struct wait *waits;
    uint32_t room[10]; /* capacities of the ten arrays above, in their order */
};

/* Building: each function returns the index of the new item; pointers into the arrays are invalid after the next
 * call. */
/* number of a tensor's boxes; the name of a member of its family, or its only name */
uint32_t tensor_boxes(const struct tensor *t);
void tensor_name(const struct tensor *t, uint64_t member, char *out, size_t size);
struct program *program_new(uint32_t role, uint32_t nroles);
void program_free(struct program *p);
uint32_t program_slot(struct program *p, const char *name, enum slot_kind kind, uint32_t arg, int64_t most);
uint32_t program_ring(struct program *p, const char *name, uint32_t depth);
uint32_t program_buffer(struct program *p, const struct buffer *b);
/* adds the offset of the next slot of a scattered ring */
uint32_t program_add_place(struct program *p, uint64_t offset);
/* bytes at the beginning of the arena that are host memory; the rest is device memory */
uint64_t program_host_bytes(const struct program *p);
/* largest workspace that its instructions need, by runtime/workspace.h */
uint64_t program_workspace_bytes(const struct program *p, uint32_t sm);
uint32_t program_bucket(struct program *p, const struct bucket *b);
uint32_t program_tensor(struct program *p, const struct tensor *t);
/* appends an instruction with all operands absent and all attributes 0, on the table's queue; on TP if that is ANY */
uint32_t program_insn(struct program *p, enum op op);
void program_wait(struct program *p, uint32_t insn, enum queue q,
                  uint32_t position); /* only for the newest instruction */
/* replaces all wait lists: the waits of instruction i are list[first[i] .. first[i + 1]) */
void program_set_waits(struct program *p, const struct wait *list, const uint32_t *first);
/* reorders instructions: the new i-th is the old order[i]; waits keep referring to the same instructions */
void program_permute(struct program *p, const uint32_t *order);

/* offsets in the arena: of a slot (0 without a ring); of an operand if its slot value is 0 */
static inline uint64_t program_slot_offset(const struct program *p, const struct buffer *b, uint64_t slot)
{
    return b->scattered ? p->places[b->place + slot] : b->offset + slot * b->stride;
}
static inline uint64_t program_operand_offset(const struct program *p, const struct operand *o)
{
    const struct buffer *b = &p->buffers[o->buffer];
    return b->scattered ? p->places[b->place + o->offset / b->stride] + o->offset % b->stride : b->offset + o->offset;
}

/* The phases of a step: phase i is instructions [at[i], at[i + 1]).  With seams they are: what the next step may
 * begin with before this one is checked, the rest, and the check.  false: there are no seams, and everything is the
 * body. */
enum phase { PHASE_EARLY, PHASE_BODY, PHASE_CHECK, NPHASES };
bool program_phases(const struct program *p, uint32_t at[NPHASES + 1]);
/* the same by queue: positions at which the phases begin; at[NPHASES] holds the queues' lengths */
bool program_phase_positions(const struct program *p, uint32_t at[NPHASES + 1][NQUEUES]);

/* position of every instruction on its queue; out has ninsns entries; count[NQUEUES] gets the lengths */
void program_positions(const struct program *p, uint32_t *out, uint32_t count[NQUEUES]);

/* Structure, property 1: STATUS_INPUT and one sentence in error that names instruction and fault.  arena_bytes 0
 * means that buffers have no place yet, and only then their offsets are not looked at; program_decode() refuses that.
 */
enum status program_check(const struct program *p, struct error *error);

/* files: versioned, checksummed, canonical (equal programs give equal bytes) */
enum status program_encode(const struct program *p, uint8_t **bytes, size_t *size);
enum status program_decode(const uint8_t *bytes, size_t size, struct program **p, struct error *error);
enum status program_read(const char *path, struct program **p, struct error *error);

/* text, for people; tests read it back (tests/runtime/program_parse.h), to the same bytes */
void program_print(const struct program *p, FILE *out);
void program_print_insn(const struct program *p, uint32_t i, FILE *out); /* one line, without newline */

/* ranks.bin: every rank's role, place and slot values, and all groups */
struct group {
    uint32_t first, n[NAXES], stride[NAXES]; /* members: first + sum i_a stride_a, axis 0 fastest; n = 1 where unused */
};
struct rank_info {
    uint32_t role, node, gpu; /* node: index among the cluster's nodes; gpu: index on it */
    uint32_t slot;            /* first of its values; they end where the next rank's start */
};
struct ranks {
    uint32_t nranks, nroles, ngroups, nvalues;
    struct group *groups;
    struct rank_info *ranks;
    uint64_t *values; /* PEER: rank; GROUP: group id; COORD, FIRST: the number */
};
struct ranks *ranks_new(uint32_t nranks, uint32_t nroles, uint32_t ngroups, uint32_t nvalues);
void ranks_free(struct ranks *r);
uint32_t group_size(const struct group *g);
uint32_t group_rank(const struct group *g, uint32_t i);
enum status ranks_encode(const struct ranks *r, uint8_t **bytes, size_t *size);
/* checks every index, and that every group lies within the ranks */
enum status ranks_decode(const uint8_t *bytes, size_t size, struct ranks **r, struct error *error);
enum status ranks_read(const char *path, struct ranks **r, struct error *error);
/* slot values against the declarations of the rank's program: count, range, kinds */
enum status ranks_check(const struct ranks *r, const struct program *const *programs, struct error *error);

#endif
