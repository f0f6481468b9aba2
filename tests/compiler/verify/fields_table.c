/* Every field of every table of a plan; see fields.h.  A member that is added to one of these structures belongs here:
 * sizes are compared below. */

#include "tests/compiler/verify/fields.h"

const char *const fields_table_names[NFIELDS_TABLES] = {"program", "slot",    "ring",  "buffer", "bucket",
                                                        "tensor",  "place",  "insn",    "operand", "attr", "wait",
                                                        "ranks",   "group",   "rank",  "value",  "decision"};

#define AT(s, member) offsetof(struct s, member), sizeof(((struct s *)0)->member)
#define NUMBER(t, s, m) {t, #m, FIELDS_NUMBER, AT(s, m), 0, t, false}
#define REAL(t, s, m) {t, #m, FIELDS_REAL, AT(s, m), 0, t, false}
#define NAME(t, s, m, people) {t, #m, FIELDS_NAME, AT(s, m), 0, t, people}
#define CHOICE(t, s, m, most) {t, #m, FIELDS_CHOICE, AT(s, m), most, t, false}
#define INDEX(t, s, m, of) {t, #m, FIELDS_INDEX, AT(s, m), 0, of, false}
#define TAG(t, s, m) {t, #m, FIELDS_NUMBER, AT(s, m), 0, t, true}
#define ROW(t, s) {t, "(row)", FIELDS_ROW, 0, sizeof(struct s), 0, t, false}
#define PROGRAM(m) NUMBER(FIELDS_PROGRAM, program, m)
#define JOB(m) NUMBER(FIELDS_PROGRAM, program, job.m)
#define JOB_REAL(m) REAL(FIELDS_PROGRAM, program, job.m)
#define BUFFER(m) NUMBER(FIELDS_BUFFER, buffer, m)
#define TENSOR(m) NUMBER(FIELDS_TENSOR, tensor, m)
#define TENSOR_SLOT(m) INDEX(FIELDS_TENSOR, tensor, m, FIELDS_SLOT)
#define INSN(m) NUMBER(FIELDS_INSN, insn, m)
#define OPERAND(m) NUMBER(FIELDS_OPERAND, operand, m)
#define DECISION(m) NUMBER(FIELDS_DECISION, decision, m)

const struct field fields_all[] = {
    PROGRAM(role), PROGRAM(nroles), CHOICE(FIELDS_PROGRAM, program, evaluation, 2), PROGRAM(arena_bytes),
    PROGRAM(nslots), PROGRAM(nrings), PROGRAM(nbuffers), PROGRAM(nbuckets), PROGRAM(ntensors), PROGRAM(nplaces),
    PROGRAM(ninsns), PROGRAM(noperands), PROGRAM(nattrs), PROGRAM(nwaits),
    JOB(sequence), JOB(batch), JOB(vocab), JOB(seed), JOB(steps_total),
    CHOICE(FIELDS_PROGRAM, program, job.optimizer, 3), CHOICE(FIELDS_PROGRAM, program, job.lr_kind, 5),
    JOB_REAL(lr), JOB_REAL(lr_min), JOB_REAL(beta1), JOB_REAL(beta2), JOB(lr_warmup), JOB(lr_decay),
    JOB(lr_stable),
    JOB_REAL(tokens_per_step),
    NAME(FIELDS_SLOT, slot, name, true), CHOICE(FIELDS_SLOT, slot, kind, 6), NUMBER(FIELDS_SLOT, slot, arg),
    NUMBER(FIELDS_SLOT, slot, most), ROW(FIELDS_SLOT, slot),
    {FIELDS_SLOT, "(redeclared)", FIELDS_REDECLARED, 0, sizeof(struct slot), 0, FIELDS_SLOT, false},
    NAME(FIELDS_RING, ring, name, true), NUMBER(FIELDS_RING, ring, depth),
    NAME(FIELDS_BUFFER, buffer, name, true), CHOICE(FIELDS_BUFFER, buffer, kind, NBUFFER_KINDS + 1),
    CHOICE(FIELDS_BUFFER, buffer, dtype, NDTYPES + 1), INDEX(FIELDS_BUFFER, buffer, ring, FIELDS_RING),
    BUFFER(bytes),
    BUFFER(stride), BUFFER(offset), CHOICE(FIELDS_BUFFER, buffer, scattered, 2),
    INDEX(FIELDS_BUFFER, buffer, place, FIELDS_PLACE), INDEX(FIELDS_BUFFER, buffer, bucket, FIELDS_BUCKET),
    CHOICE(FIELDS_BUFFER, buffer, host, 2), INDEX(FIELDS_BUFFER, buffer, shard_slot, FIELDS_SLOT),
    ROW(FIELDS_BUFFER, buffer),
    NAME(FIELDS_BUCKET, bucket, name, true), NUMBER(FIELDS_BUCKET, bucket, elements),
    NUMBER(FIELDS_BUCKET, bucket, tensor),
    NUMBER(FIELDS_BUCKET, bucket, ntensors), CHOICE(FIELDS_BUCKET, bucket, decay, 2),
    INDEX(FIELDS_BUCKET, bucket, count_slot, FIELDS_SLOT), ROW(FIELDS_BUCKET, bucket),
    NAME(FIELDS_TENSOR, tensor, name, false), TENSOR(ndim), TENSOR(shape[0]), TENSOR(shape[1]), TENSOR(row),
    TENSOR(col),
    TENSOR(rows), TENSOR(cols), TENSOR_SLOT(row_slot), TENSOR_SLOT(col_slot), TENSOR(row_stride),
    TENSOR(col_stride),
    CHOICE(FIELDS_TENSOR, tensor, transposed, 2), TENSOR(at), CHOICE(FIELDS_TENSOR, tensor, init, 4),
    REAL(FIELDS_TENSOR, tensor, std), TENSOR(family), TENSOR(member), TENSOR(boxes), TENSOR_SLOT(member_slot),
    TENSOR(member_stride), ROW(FIELDS_TENSOR, tensor),
    {FIELDS_PLACE, "place", FIELDS_NUMBER, 0, sizeof(uint64_t), 0, FIELDS_PLACE, false},
    {FIELDS_INSN, "op", FIELDS_CHOICE, 0, sizeof(uint16_t), NOPS + 1, FIELDS_INSN, false}, /* a bit-field: it comes first */
    CHOICE(FIELDS_INSN, insn, queue, NQUEUES + 1), INSN(nwaits),
    INDEX(FIELDS_INSN, insn, operand, FIELDS_OPERAND), INDEX(FIELDS_INSN, insn, attr, FIELDS_ATTR),
    INDEX(FIELDS_INSN, insn, wait, FIELDS_WAIT), INSN(seq), TAG(FIELDS_INSN, insn, action),
    TAG(FIELDS_INSN, insn, stage),
    TAG(FIELDS_INSN, insn, layer), TAG(FIELDS_INSN, insn, microbatch), TAG(FIELDS_INSN, insn, line),
    ROW(FIELDS_INSN, insn),
    INDEX(FIELDS_OPERAND, operand, buffer, FIELDS_BUFFER), CHOICE(FIELDS_OPERAND, operand, dtype, NDTYPES + 1),
    CHOICE(FIELDS_OPERAND, operand, mark, 6), INDEX(FIELDS_OPERAND, operand, slot, FIELDS_SLOT),
    OPERAND(offset),
    OPERAND(slot_stride), OPERAND(rows), OPERAND(cols), OPERAND(ld), ROW(FIELDS_OPERAND, operand),
    NUMBER(FIELDS_ATTR, attr, u.i), REAL(FIELDS_ATTR, attr, u.f), NUMBER(FIELDS_ATTR, attr, stride),
    INDEX(FIELDS_ATTR, attr, slot, FIELDS_SLOT), ROW(FIELDS_ATTR, attr),
    CHOICE(FIELDS_WAIT, wait, queue, NQUEUES + 1), NUMBER(FIELDS_WAIT, wait, position), ROW(FIELDS_WAIT, wait),
    NUMBER(FIELDS_RANKS, ranks, nranks), NUMBER(FIELDS_RANKS, ranks, nroles),
    NUMBER(FIELDS_RANKS, ranks, ngroups),
    NUMBER(FIELDS_RANKS, ranks, nvalues),
    NUMBER(FIELDS_GROUP, group, first), NUMBER(FIELDS_GROUP, group, n[0]), NUMBER(FIELDS_GROUP, group, n[1]),
    NUMBER(FIELDS_GROUP, group, n[2]), NUMBER(FIELDS_GROUP, group, n[3]),
    NUMBER(FIELDS_GROUP, group, stride[0]),
    NUMBER(FIELDS_GROUP, group, stride[1]), NUMBER(FIELDS_GROUP, group, stride[2]),
    NUMBER(FIELDS_GROUP, group, stride[3]),
    ROW(FIELDS_GROUP, group),
    NUMBER(FIELDS_RANK, rank_info, role), NUMBER(FIELDS_RANK, rank_info, node),
    NUMBER(FIELDS_RANK, rank_info, gpu),
    NUMBER(FIELDS_RANK, rank_info, slot), ROW(FIELDS_RANK, rank_info),
    {FIELDS_VALUE, "value", FIELDS_NUMBER, 0, sizeof(uint64_t), 0, FIELDS_VALUE, false},
    DECISION(tp), DECISION(cp), DECISION(vpp), DECISION(dp), DECISION(ep), DECISION(etp), DECISION(zero),
    DECISION(shard),
    DECISION(microbatch), DECISION(microbatches), DECISION(ep_nodes), REAL(FIELDS_DECISION, decision, room),
    DECISION(prefetch),
    CHOICE(FIELDS_DECISION, decision, sp, 2), CHOICE(FIELDS_DECISION, decision, recompute, 4), DECISION(parts),
    DECISION(recompute_layers), CHOICE(FIELDS_DECISION, decision, schedule, NSCHEDULES),
    DECISION(schedule_group),
    CHOICE(FIELDS_DECISION, decision, folds, 2), CHOICE(FIELDS_DECISION, decision, context, 4),
    CHOICE(FIELDS_DECISION, decision, order[0], NAXES), CHOICE(FIELDS_DECISION, decision, order[1], NAXES),
    DECISION(pp), DECISION(gpus_used)};
const uint32_t fields_n = sizeof fields_all / sizeof *fields_all;

/* whoever adds a member finds it here: sums of what is listed, and padding */
_Static_assert(sizeof(struct slot) == 40 && sizeof(struct ring) == 28 && sizeof(struct buffer) == 104 &&
                   sizeof(struct bucket) == 64 && sizeof(struct tensor) == 224 && sizeof(struct operand) == 40 &&
                   sizeof(struct attr) == 24 && sizeof(struct wait) == 8 && sizeof(struct insn) == 36 &&
                   sizeof(struct job_info) == 112 &&
                   sizeof(struct group) == 36 && sizeof(struct rank_info) == 16,
               "a member was added: list it in fields_all");

struct fields_rows fields_rows(struct plan *plan, struct program *p, enum fields_table t)
{
    struct ranks *r = plan->ranks;
    switch (t) {
    case FIELDS_PROGRAM:
        return (struct fields_rows){p, 1, sizeof *p};
    case FIELDS_SLOT:
        return (struct fields_rows){p->slots, p->nslots, sizeof *p->slots};
    case FIELDS_RING:
        return (struct fields_rows){p->rings, p->nrings, sizeof *p->rings};
    case FIELDS_BUFFER:
        return (struct fields_rows){p->buffers, p->nbuffers, sizeof *p->buffers};
    case FIELDS_BUCKET:
        return (struct fields_rows){p->buckets, p->nbuckets, sizeof *p->buckets};
    case FIELDS_TENSOR:
        return (struct fields_rows){p->tensors, p->ntensors, sizeof *p->tensors};
    case FIELDS_PLACE:
        return (struct fields_rows){p->places, p->nplaces, sizeof *p->places};
    case FIELDS_INSN:
        return (struct fields_rows){p->insns, p->ninsns, sizeof *p->insns};
    case FIELDS_OPERAND:
        return (struct fields_rows){p->operands, p->noperands, sizeof *p->operands};
    case FIELDS_ATTR:
        return (struct fields_rows){p->attrs, p->nattrs, sizeof *p->attrs};
    case FIELDS_WAIT:
        return (struct fields_rows){p->waits, p->nwaits, sizeof *p->waits};
    case FIELDS_RANKS:
        return (struct fields_rows){r, 1, sizeof *r};
    case FIELDS_GROUP:
        return (struct fields_rows){r->groups, r->ngroups, sizeof *r->groups};
    case FIELDS_RANK:
        return (struct fields_rows){r->ranks, r->nranks, sizeof *r->ranks};
    case FIELDS_VALUE:
        return (struct fields_rows){r->values, r->nvalues, sizeof *r->values};
    case FIELDS_DECISION:
        return (struct fields_rows){&plan->decision, 1, sizeof plan->decision};
    case NFIELDS_TABLES:
        break;
    }
    return (struct fields_rows){NULL, 0, 1};
}
