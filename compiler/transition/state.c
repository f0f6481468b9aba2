/* What the ranks of two plans keep between steps, from their optimizer instructions and tables of tensors. */

#include "compiler/transition/moves.h"

#include <stdlib.h>
#include <string.h>

uint64_t state_slot(const struct plan *p, uint32_t rank, uint32_t slot)
{
    return slot == NONE ? 0 : p->ranks->values[p->ranks->ranks[rank].slot + slot];
}

int kept_as(const struct kept *k, int kind)
{
    const int param = 0, master = BUFFER_MASTER - BUFFER_PARAM;
    return kind == master && k->buffer[master] == NONE ? param : kind;
}

uint64_t kept_first(const struct plan_state *s, uint32_t rank, const struct kept *k)
{
    const struct program *p = s->role[s->plan->ranks->ranks[rank].role].p;
    const struct buffer *b = &p->buffers[k->buffer[0]];
    uint64_t whole = b->bytes / isa_dtype_bytes(b->dtype);
    return state_slot(s->plan, rank, b->shard_slot) * whole + k->first + state_slot(s->plan, rank, k->slot) * k->stride;
}

struct box state_box(const struct plan_state *s, uint32_t rank, uint32_t tensor, uint32_t i)
{
    const struct role_state *r = &s->role[s->plan->ranks->ranks[rank].role];
    const struct tensor *t = &r->p->tensors[tensor];
    uint64_t row = t->row + state_slot(s->plan, rank, t->row_slot) * t->row_stride,
             col = t->col + state_slot(s->plan, rank, t->col_slot) * t->col_stride,
             member = t->family ? t->member + state_slot(s->plan, rank, t->member_slot) * t->member_stride + i : 0;
    return (struct box){.id = r->id[tensor] + (uint32_t)member,
                        .row = t->transposed ? col : row,
                        .col = t->transposed ? row : col,
                        .rows = t->rows,
                        .cols = t->cols,
                        .rows_end = t->shape[t->transposed],
                        .cols_end = t->shape[!t->transposed],
                        .at = t->at + (uint64_t)t->rows * t->cols * i};
}

/* The working copy that an optimizer instruction brings up to date; NULL: it is none. */
static const struct operand *updated(const struct program *p, const struct insn *in)
{
    if (in->op != OP_ADAMW && in->op != OP_SGD && in->op != OP_BIAS_MOVE)
        return NULL;
    const struct operand *o = &p->operands[in->operand];
    const struct operand *copy = in->op == OP_BIAS_MOVE ? NULL
                                 : in->op == OP_ADAMW   ? &o[OPND(ADAMW, copy)]
                                                        : &o[OPND(SGD, copy)];
    return copy && copy->buffer != NONE ? copy : &o[0];
}

/* the bucket's tensors by growing `at`, which most of them are already */
static void list_tensors(struct arena *a, const struct program *p, struct kept *k)
{
    const struct bucket *b = &p->buckets[k->bucket];
    k->tensor = ARENA_ARRAY(a, uint32_t, b->ntensors + 1);
    for (uint32_t i = 0; i < b->ntensors; i++) {
        uint32_t at = i;
        for (; at && p->tensors[k->tensor[at - 1]].at > p->tensors[b->tensor + i].at; at--)
            k->tensor[at] = k->tensor[at - 1];
        k->tensor[at] = b->tensor + i;
    }
}

/* moved: a bucket of biases that are moved one by one, and is whole on every rank */
static enum status keep(struct arena *a, struct role_state *r, const struct operand *o, bool moved, struct error *error)
{
    const struct program *p = r->p;
    const struct buffer *b = &p->buffers[o->buffer];
    uint64_t size = isa_dtype_bytes(b->dtype);
    struct kept *k = &r->kept[r->nkept++];
    if (b->kind != BUFFER_PARAM || (o->rows > 1 && o->ld != o->cols))
        return error_set(error, STATUS_BUG, "role %u keeps %s in a way that has no transition", p->role, b->name);
    *k = (struct kept){.bucket = b->bucket, .n = b->bytes / size, .slot = NONE};
    if (!moved) {
        k->first = o->offset / size;
        k->stride = o->slot == UINT16_MAX ? 0 : o->slot_stride / size;
        k->n = (uint64_t)o->rows * o->cols;
        k->slot = o->slot == UINT16_MAX ? NONE : o->slot;
    }
    for (int kind = 0; kind < STATE_KINDS; kind++)
        k->buffer[kind] = NONE;
    for (uint32_t i = 0; i < p->nbuffers; i++)
        if (p->buffers[i].bucket == k->bucket)
            k->buffer[p->buffers[i].kind - BUFFER_PARAM] = i;
    list_tensors(a, p, k);
    return STATUS_OK;
}

static enum status read_role(struct arena *a, const struct program *p, struct role_state *r, struct error *error)
{
    *r = (struct role_state){.p = p, .kept = ARENA_ARRAY(a, struct kept, p->nbuckets + 1)};
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct operand *o = updated(p, &p->insns[i]);
        bool moved = p->insns[i].op == OP_BIAS_MOVE, again = false;
        for (uint32_t k = 0; o && k < r->nkept; k++)
            again |= r->kept[k].bucket == p->buffers[o->buffer].bucket;
        if (again && !moved)
            return error_set(error, STATUS_BUG, "role %u updates a bucket twice", p->role);
        if (o && !again)
            TRY(keep(a, r, o, moved, error));
    }
    if (r->nkept != p->nbuckets)
        return error_set(error, STATUS_BUG, "role %u updates %u of %u buckets", p->role, r->nkept, p->nbuckets);
    r->id = ARENA_ARRAY(a, uint32_t, p->ntensors + 1);
    return STATUS_OK;
}

/* a tensor of one of the two plans, to be numbered; and the formats of what is kept of it, NDTYPES where nothing is:
 * the working copy, the weight as the optimizer has it, the moments */
struct named {
    const struct tensor *t;
    uint32_t *id;
    int plan;
    enum dtype format[STATE_KINDS];
};
static int by_name(const void *x, const void *y)
{
    return strcmp(((const struct named *)x)->t->name, ((const struct named *)y)->t->name);
}

struct named_list {
    VEC(struct named) v;
};

static void list_names(struct arena *a, const struct role_state *r, int plan, struct named_list *all)
{
    for (uint32_t k = 0; k < r->nkept; k++) {
        struct named x = {.plan = plan};
        for (int kind = 0; kind < STATE_KINDS; kind++) {
            uint32_t buffer = r->kept[k].buffer[kept_as(&r->kept[k], kind)];
            x.format[kind] = buffer == NONE ? NDTYPES : r->p->buffers[buffer].dtype;
        }
        const struct bucket *b = &r->p->buckets[r->kept[k].bucket];
        for (uint32_t i = b->tensor; i < b->tensor + b->ntensors; i++) {
            x.t = &r->p->tensors[i];
            x.id = &r->id[i];
            vec_push(a, &all->v, x);
        }
    }
}

/* Equal names get equal numbers, and must be of equal tensors. */
static enum status number_tensors(struct arena *a, const struct plan_state s[2], uint32_t *n, struct error *error)
{
    struct named_list list = {0};
    for (int k = 0; k < 2; k++)
        for (uint32_t role = 0; role < s[k].plan->nroles; role++)
            list_names(a, &s[k].role[role], k, &list);
    struct named *at = list.v.at;
    qsort(at, list.v.n, sizeof *at, by_name);
    *n = 0;
    for (size_t i = 0, end; i < list.v.n; i = end) {
        const struct tensor *t = at[i].t;
        bool in[2] = {false, false};
        for (end = i; end < list.v.n && !strcmp(at[end].t->name, t->name); end++) {
            const struct tensor *u = at[end].t;
            in[at[end].plan] = true;
            if (u->shape[0] != t->shape[0] || u->shape[1] != t->shape[1] || u->family != t->family ||
                u->transposed != t->transposed)
                return error_set(error, STATUS_NO_PLAN, "the plans are of different jobs: their tensors %s differ",
                                 t->name);
            if (memcmp(at[end].format, at[i].format, sizeof at[i].format) != 0)
                return error_set(error, STATUS_NO_PLAN,
                                 "the plans are of different jobs: they keep %s in different formats", t->name);
            *at[end].id = *n;
        }
        if (!in[0] || !in[1])
            return error_set(error, STATUS_NO_PLAN, "the plans are of different jobs: the %s one has no tensor %s",
                             in[0] ? "second" : "first", t->name);
        *n += t->family ? t->family : 1;
    }
    return STATUS_OK;
}

static enum status same_job(const struct job_info *x, const struct job_info *y, struct error *error)
{
    if (x->batch != y->batch || x->sequence != y->sequence)
        return error_set(error, STATUS_NO_PLAN,
                         "the plans are of different jobs: batches of %llu x %llu and %llu x %llu tokens",
                         (unsigned long long)x->batch, (unsigned long long)x->sequence, (unsigned long long)y->batch,
                         (unsigned long long)y->sequence);
    if (x->optimizer != y->optimizer)
        return error_set(error, STATUS_NO_PLAN, "the plans are of different jobs: their optimizers differ");
    return STATUS_OK;
}

enum status state_read(struct arena *a, const struct plan *from, const struct plan *to, struct plan_state out[2],
                       uint32_t *ntensors, struct error *error)
{
    TRY(same_job(&from->train[0]->job, &to->train[0]->job, error));
    for (int k = 0; k < 2; k++) {
        const struct plan *p = k ? to : from;
        out[k] = (struct plan_state){p, ARENA_ARRAY(a, struct role_state, p->nroles)};
        for (uint32_t role = 0; role < p->nroles; role++)
            TRY(read_role(a, p->train[role], &out[k].role[role], error));
    }
    return number_tensors(a, out, ntensors, error);
}
