/* Property 7: parameters and optimizer state, where the step begins and ends, and what the optimizer does to
 * them.
 *
 * A bucket is a flat list of elements; its tensors' boxes say which weight lies where.  At the start of a
 * step the working copy is up to date everywhere (ZeRO 0), or in the rank's own shard only (ZeRO 1): the rest
 * is stale until it is gathered.  The optimizer must find parameter, moments and the whole batch's gradient
 * of the same elements side by side.  At the end everything that a rank owns was updated once, and as much is
 * up to date as was at the start. */

#include "compiler/verify/conserve.h"

#include <stdlib.h>

enum state { STATE_PARAM, STATE_MOMENT1, STATE_MOMENT2, NSTATES };

static uint32_t state_node(const struct weight_unit *u, enum state s)
{
    return s == STATE_PARAM ? u->param : u->moment[s - STATE_MOMENT1];
}

static bool fail_start(struct machine *m, const char *name, const char *what)
{
    return conserve_fail(m, NONE, "tensor %s: %s", name, what);
}

/* The box of a tensor in the coordinates of its use ([out, in]), whatever way the file stores it. */
static bool tensor_box(struct machine *m, const struct tensor *t, struct extent *out, struct extent *in)
{
    struct extent row = extent_new((int64_t)t->row, t->transposed ? t->cols : t->rows);
    struct extent col = extent_new((int64_t)t->col, t->transposed ? t->rows : t->cols);
    const struct {
        struct extent *e;
        uint32_t slot;
        uint64_t stride;
    } ends[2] = {{&row, t->row_slot, t->row_stride}, {&col, t->col_slot, t->col_stride}};
    for (int i = 0; i < 2; i++) {
        if (ends[i].slot == NONE)
            continue;
        const struct slot *s = &m->program->slots[ends[i].slot];
        if (s->kind != SLOT_COORD)
            return fail_start(m, t->name, "its place depends on a slot that is no coordinate");
        extent_move(ends[i].e, &m->c->plan->mesh, s->arg, (int64_t)ends[i].stride);
    }
    bool swap = t->transposed || t->ndim == 1; /* outputs run along the tensor's columns */
    *out = swap ? col : row;
    *in = swap ? row : col;
    return true;
}

/* all ranks' boxes together: everything, nothing twice unless it is a full copy, and nothing beyond it but
 * padding */
static bool covers(struct machine *m, const struct extent *e, int64_t size, bool padded)
{
    struct block block = {.extent = *e, .count = 1};
    struct blocks all = {1, &block};
    for (uint32_t digit = 0; digit < NDIGITS; digit++)
        if (e->step[digit] && !blocks_reduce(m->c->scratch, &all, digit, m->c->plan->mesh.size[digit], &all))
            return false;
    return blocks_whole(&all, size) &&
           (padded || (all.at[0].count == 1 && all.at[0].extent.len == size)); /* then there is one block */
}

static bool check_tensor(struct machine *m, const struct tensor *t, const struct weight_unit *u)
{
    int64_t in = u->vector ? 1 : u->cols;
    int64_t rows = u->vector ? 1 : u->transposed ? in : u->outputs, cols = u->vector || u->transposed ? u->outputs : in;
    if (t->ndim != (u->vector ? 1 : 2) || (int64_t)t->shape[0] != rows || (int64_t)t->shape[1] != cols ||
        t->transposed != u->transposed)
        return fail_start(m, t->name,
                          arena_printf(m->c->arena, "its shape must be %lld x %lld", (long long)rows, (long long)cols));
    if (t->init != u->init || (t->init == INIT_NORMAL && t->std != u->std))
        return fail_start(m, t->name, "its initial values are not the model's");
    return true;
}

/* members of a family, their boxes one behind the other */
static bool add_members(struct machine *m, const struct tensor *t, const struct weight_unit *u, bool decay,
                        const struct extent *out, const struct extent *in, struct whole *w, enum state s)
{
    struct extent member = extent_new(t->member, t->boxes);
    if (t->member_slot != NONE && m->program->slots[t->member_slot].kind != SLOT_COORD)
        return fail_start(m, t->name, "its members depend on a slot that is no coordinate");
    if (t->member_slot != NONE)
        extent_move(&member, &m->c->plan->mesh, m->program->slots[t->member_slot].arg, (int64_t)t->member_stride);
    if (u->decay != decay)
        return fail_start(m, t->name, decay ? "weight decay must not apply to it" : "weight decay must apply to it");
    if (u->vector) { /* its outputs are columns */
        const struct extent *turned = out;
        out = in;
        in = turned;
    }
    if (t->family != u->family || !covers(m, &member, u->family, false) || !covers(m, out, u->rows, false) ||
        !covers(m, in, u->cols, false))
        return fail_start(m, t->name, "its boxes on all ranks are not the whole family");
    struct value v = {.kind = VALUE_NODES, .node = state_node(u, s), .row = *out, .col = *in, .member = member};
    w->at[w->n++] = (struct stretch){t->at, (uint64_t)(member.len * out->len * in->len), v};
    return true;
}

/* One box may hold several weights of a fused tensor: one stretch for each. */
static bool add_tensor(struct machine *m, const struct tensor *t, bool decay, struct whole *w, enum state s)
{
    const struct reference *ref = m->c->reference;
    uint32_t unit = reference_unit(ref, t->name);
    struct extent out, in;
    if (unit == NONE)
        return fail_start(m, t->name, "the model has no such weight");
    if (!check_tensor(m, t, &ref->units[unit]) || !tensor_box(m, t, &out, &in))
        return false;
    if (ref->units[unit].family) /* its name has a '%' */
        return add_members(m, t, &ref->units[unit], decay, &out, &in, w, s);
    uint64_t at = t->at;
    int64_t left = out.len;
    for (; left; unit++) { /* up to the tensor's last unit, which takes all that is left */
        const struct weight_unit *u = &ref->units[unit];
        int64_t size = u->vector ? u->cols : u->rows;
        bool last = unit + 1 == ref->nunits || strcmp(ref->units[unit + 1].name, u->name) != 0;
        if (out.lo >= u->at + size && !last)
            continue;
        bool split = memcmp(out.step, (int64_t[NDIGITS]){0}, sizeof out.step) != 0;
        int64_t n = split || last || out.lo + left <= u->at + size ? left : u->at + size - out.lo;
        struct extent mine = extent_part(&out, -u->at, n);
        if (u->decay != decay)
            return fail_start(m, t->name,
                              decay ? "weight decay must not apply to it" : "weight decay must apply to it");
        if (!covers(m, &mine, size, u->padded) || !covers(m, &in, u->vector ? 1 : u->cols, false))
            return fail_start(m, t->name, "its boxes on all ranks are not the whole tensor");
        struct value v = {.kind = VALUE_NODES, .node = state_node(u, s), .row = mine, .col = in};
        if (u->vector) {
            v.row = in;
            v.col = mine;
        }
        w->at[w->n++] = (struct stretch){at, (uint64_t)(n * in.len), v};
        at += (uint64_t)(n * in.len);
        out.lo += n;
        left -= n;
    }
    return true;
}

static int by_at(const void *x, const void *y)
{
    const struct stretch *a = x, *b = y;
    return (a->at > b->at) - (a->at < b->at);
}

/* the bucket's elements; what no tensor claims is padding, zero for ever */
static struct whole *new_whole(struct machine *m, const struct bucket *b, enum state s)
{
    struct whole *w = ARENA_NEW(m->c->scratch, struct whole);
    struct whole all = {.elements = b->elements,
                        .at = ARENA_ARRAY(m->c->scratch, struct stretch, 8 * (size_t)b->ntensors + 2)};
    for (uint32_t i = 0; i < b->ntensors; i++)
        if (!add_tensor(m, &m->program->tensors[b->tensor + i], b->decay, &all, s))
            return NULL;
    qsort(all.at, all.n, sizeof *all.at, by_at);
    *w = (struct whole){.elements = b->elements,
                        .at = ARENA_ARRAY(m->c->scratch, struct stretch, 2 * (size_t)all.n + 2)};
    uint64_t end = 0;
    for (uint32_t i = 0; i <= all.n; i++) {
        uint64_t next = i < all.n ? all.at[i].at : b->elements;
        if (next < end) {
            conserve_fail(m, NONE, "tensors of bucket %s overlap", b->name);
            return NULL;
        }
        if (next > end)
            w->at[w->n++] = (struct stretch){end, next - end, {.kind = VALUE_ZERO}};
        if (i < all.n)
            w->at[w->n++] = all.at[i];
        end = i < all.n ? next + all.at[i].n : next;
    }
    return w;
}

/* Digits by which the optimizer updates a bucket's working copy in parts, by the operand it writes that copy through;
 * only that part of it is then up to date at the step's end, and may be believed at its start.  0 = all of it. */
static uint32_t updated_part(const struct machine *m, uint32_t bucket)
{
    const struct program *p = prove_program(m->c->plan, m->role, PROGRAM_TRAIN);
    for (uint32_t i = p->ninsns; i-- > 0;) {
        enum op op = p->insns[i].op;
        if (op != OP_ADAMW && op != OP_SGD)
            continue;
        for (size_t k = 0; k < 2; k++) {
            const struct operand *o = prove_operand(
                p, i, k ? op == OP_ADAMW ? OPND(ADAMW, copy) : OPND(SGD, copy) : OPND(ADAMW, p));
            if (o->buffer != NONE && p->buffers[o->buffer].kind == BUFFER_PARAM &&
                p->buffers[o->buffer].bucket == bucket && o->slot != UINT16_MAX)
                return store_part(p, o);
        }
    }
    return 0;
}

static int state_of(enum buffer_kind kind)
{
    switch (kind) {
    case BUFFER_PARAM:
    case BUFFER_MASTER:
        return STATE_PARAM;
    case BUFFER_MOMENT1:
        return STATE_MOMENT1;
    case BUFFER_MOMENT2:
        return STATE_MOMENT2;
    case BUFFER_STEP:
    case BUFFER_BLOCK:
    case BUFFER_METRICS:
    case BUFFER_WORKSPACE:
    case BUFFER_SCALE:
    case NBUFFER_KINDS:
        break;
    }
    return NSTATES;
}

/* One operand over a whole buffer of a bucket, or over the own shard of one that holds everything. */
static bool whole_operand(const struct machine *m, uint32_t buffer, uint32_t own, struct operand *o)
{
    const struct buffer *b = &m->program->buffers[buffer];
    uint64_t size = isa_dtype_bytes(b->dtype), n = b->bytes / size, cols = n % 64 ? n : 64, parts = 1;
    *o = (struct operand){.buffer = buffer, .dtype = (uint8_t)b->dtype, .mark = MARK_WRITE, .slot = UINT16_MAX};
    if (own) {
        uint32_t s = 0;
        while (s < m->program->nslots && (m->program->slots[s].kind != SLOT_COORD || m->program->slots[s].arg != own))
            s++;
        if (s == m->program->nslots)
            return false;
        parts = (uint64_t)m->program->slots[s].most + 1;
        o->slot = (uint16_t)s;
        if (n % parts)
            return false;
        cols = n / parts % 64 ? n / parts : 64;
        o->slot_stride = n / parts * size;
    }
    if (cols > UINT32_MAX || n / parts / cols > UINT32_MAX)
        return false;
    o->cols = o->ld = (uint32_t)cols;
    o->rows = (uint32_t)(n / parts / cols);
    return true;
}

/* Digits that number the part of its bucket that a buffer holds; 0 = all of it. */
static uint32_t held_part(const struct machine *m, const struct buffer *b)
{
    const struct slot *shard = b->shard_slot == NONE ? NULL : &m->program->slots[b->shard_slot];
    if (shard && shard->most)
        return shard->arg;
    return b->kind == BUFFER_PARAM ? m->part[b->bucket] : 0;
}

/* a block of fp64 that no bucket has; NODE_ZERO: the reference knows none, and nothing is known of it */
static void start_words(struct machine *m, uint32_t i, uint32_t node, uint32_t words)
{
    struct operand o = {i, DTYPE_F64, MARK_WRITE, UINT16_MAX, 0, 0, 1, words, words};
    struct part p = {0, 1, 0, words, NONE, conserve_value(m->c, node, NULL, extent_new(0, 1), extent_new(0, words))};
    if (node != NODE_ZERO)
        store_write(m->store, &o, &p, NONE);
}

static bool start_buffer(struct machine *m, uint32_t i)
{
    const struct buffer *b = &m->program->buffers[i];
    int s = state_of(b->kind);
    if (b->kind == BUFFER_BLOCK)
        start_words(m, i, m->c->reference->block, STEP_WORDS);
    if (b->kind == BUFFER_SCALE)
        start_words(m, i, m->c->reference->scale, SCALE_WORDS);
    if (s == NSTATES)
        return true;
    const struct whole *w = m->initial[b->bucket * NSTATES + (uint32_t)s];
    uint32_t own = b->kind == BUFFER_PARAM ? m->part[b->bucket] : 0;
    const struct slot *shard = b->shard_slot == NONE ? NULL : &m->program->slots[b->shard_slot];
    if (shard && shard->kind != SLOT_COORD)
        return conserve_fail(m, NONE, "buffer %s: its shard depends on slot %s, which is no coordinate", b->name,
                             shard->name);
    struct operand o;
    if (!whole_operand(m, i, own, &o) || !store_write_flat(m->store, &o, w, held_part(m, b), NONE))
        return conserve_fail(m, NONE, "buffer %s can't hold its bucket", b->name);
    return true;
}

bool conserve_start(struct machine *m)
{
    const struct program *p = m->program;
    m->initial = ARENA_ARRAY(m->c->scratch, struct whole *, NSTATES * (size_t)p->nbuckets + 1);
    m->part = ARENA_ARRAY(m->c->scratch, uint32_t, p->nbuckets + 1u);
    for (uint32_t b = 0; b < p->nbuckets; b++)
        m->part[b] = updated_part(m, b);
    for (uint32_t b = 0; b < p->nbuckets; b++)
        for (int s = 0; s < NSTATES; s++)
            if (!(m->initial[b * NSTATES + (uint32_t)s] = new_whole(m, &p->buckets[b], (enum state)s)))
                return false;
    for (uint32_t i = 0; i < p->nbuffers; i++)
        if (!start_buffer(m, i))
            return false;
    return true;
}

/* ---- the end ---- */

/* Every piece of a bucket's buffer is there, and of no other part than what the step found there. */
static bool end_buffer(struct machine *m, uint32_t i)
{
    const struct buffer *b = &m->program->buffers[i];
    const struct cell *c = &m->store->cells[m->store->first[i]];
    uint64_t bytes = 0;
    if (state_of(b->kind) == NSTATES)
        return true;
    for (uint32_t k = 0; k < c->n; k++) {
        const struct piece *p = &c->pieces[k];
        if (p->own && p->mask != m->part[b->bucket])
            return conserve_fail(m, NONE, "at the end of the step buffer %s is up to date in the own shard only",
                                 b->name);
        if (p->value.kind == VALUE_PART && p->value.mask != held_part(m, b))
            return conserve_fail(m, NONE, "at the end of the step buffer %s holds another shard than it began with",
                                 b->name);
        bytes += p->rows * p->width;
    }
    return bytes == b->bytes ||
           conserve_fail(m, NONE, "at the end of the step part of buffer %s was overwritten", b->name);
}

static bool end_metric(struct machine *m, uint32_t buffer, uint32_t word, uint32_t node)
{
    struct parts *p = &m->c->parts[0];
    struct operand o = {buffer, DTYPE_F64, MARK_READ, UINT16_MAX, word * sizeof(double), 0, 1, 1, 1};
    bool known = store_read(m->store, &o, p);
    if (known && node == NODE_ZERO && p->at[0].value.kind == VALUE_ZERO)
        return true;
    if (known && p->at[0].value.kind == VALUE_NODES && p->at[0].value.node == node && !p->at[0].value.nterms)
        return true;
    uint32_t writer = store_writer(m->store, &o);
    return conserve_fail(m, writer, "at the end of the step metric %u is %s, expected %s", word,
                         p->n ? value_text(m->c->arena, m->c->nodes, &p->at[0].value) : "unknown",
                         nodes_name(m->c->nodes, node));
}

/* what experts lacked: nothing where no block tells it, else all that any rank lacked, which every clipping has seen */
static bool end_need(struct machine *m, uint32_t buffer)
{
    struct operand o = {buffer, DTYPE_F64, MARK_READ, UINT16_MAX, METRIC_NEED * sizeof(double), 0, 1, 2, 2};
    struct parts *p = &m->c->parts[0];
    bool known = store_read(m->store, &o, p);
    uint32_t k = 0;
    while (known && k + 1 < p->n && p->at[k].value.kind == VALUE_ZERO)
        k++; /* what is told of is not zero */
    bool seen = (m->saw_need == m->c->need && !m->differ_need) || m->c->kind == PROGRAM_EVAL;
    if (known && conserve_zeros(p) && m->c->need == NODE_ZERO)
        return true;
    if (known && p->n == 1 && p->at[0].value.kind == VALUE_NODES && p->at[0].value.node == m->c->need &&
        !p->at[0].value.nterms && seen)
        return true;
    return conserve_fail(m, store_writer(m->store, &o), "at the end of the step what experts lacked is %s%s",
                         known ? value_text(m->c->arena, m->c->nodes, &p->at[k].value) : "unknown",
                         seen ? "" : ", and the optimizer has not seen it");
}

/* Elements at .. of a bucket must hold what the step found there, updated: the next step believes it. */
static bool end_place(struct machine *m, const struct whole *initial, uint64_t at, uint64_t n, const struct value *v,
                      const char *buffer)
{
    uint32_t low = 0, high = initial->n; /* the stretch that `at` lies in */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        *(initial->at[middle].at <= at ? &low : &high) = middle;
    }
    const struct stretch *x = &initial->at[low];
    struct value want = x->value;
    if (want.kind == VALUE_ZERO && v->kind == VALUE_ZERO && at + n <= x->at + x->n)
        return true;
    if (want.kind == VALUE_NODES && m->c->kind == PROGRAM_TRAIN)
        want.node = conserve_updated(m, want.node);
    if (want.kind == VALUE_NODES && v->kind == VALUE_NODES && v->node == want.node && !v->nterms && x->at == at &&
        x->n == n && value_same_place(v, &want))
        return true;
    return conserve_fail(m, NONE, "at the end of the step buffer %s holds %s, expected %s", buffer,
                         value_text(m->c->arena, m->c->nodes, v), value_text(m->c->arena, m->c->nodes, &want));
}

static bool end_places(struct machine *m, uint32_t i)
{
    const struct buffer *b = &m->program->buffers[i];
    const struct cell *c = &m->store->cells[m->store->first[i]];
    uint64_t size = isa_dtype_bytes(b->dtype);
    if (state_of(b->kind) == NSTATES)
        return true;
    const struct whole *initial = m->initial[b->bucket * NSTATES + (uint32_t)state_of(b->kind)];
    for (uint32_t k = 0; k < c->n; k++) {
        const struct piece *p = &c->pieces[k];
        const struct whole *w = p->value.kind == VALUE_PART ? p->value.whole : NULL;
        for (uint32_t e = 0; w && e < w->n; e++)
            if (!end_place(m, initial, w->at[e].at, w->at[e].n, &w->at[e].value, b->name))
                return false;
        if (!w && !end_place(m, initial, p->at / size, p->rows * p->width / size, &p->value, b->name))
            return false;
    }
    return true;
}

/* the loss scale is what the step makes of it, in all its words */
static bool end_scale(struct machine *m, uint32_t i)
{
    struct parts *p = &m->c->parts[0];
    struct operand o = {i, DTYPE_F64, MARK_READ, UINT16_MAX, 0, 0, 1, SCALE_WORDS, SCALE_WORDS};
    uint32_t node = m->c->kind == PROGRAM_TRAIN ? m->c->reference->next_scale : m->c->reference->scale;
    if (m->program->buffers[i].kind != BUFFER_SCALE)
        return true;
    bool known = store_read(m->store, &o, p) && p->n == 1;
    struct extent all = extent_new(0, SCALE_WORDS);
    if (known && p->at[0].value.kind == VALUE_NODES && p->at[0].value.node == node && !p->at[0].value.nterms &&
        extent_same(&p->at[0].value.col, &all))
        return true;
    return conserve_fail(m, store_writer(m->store, &o), "at the end of the step the loss scale is %s, expected %s",
                         known ? value_text(m->c->arena, m->c->nodes, &p->at[0].value) : "unknown",
                         nodes_name(m->c->nodes, node));
}

bool conserve_end(struct machine *m)
{
    bool metrics = false;
    for (uint32_t i = 0; i < m->program->nbuffers; i++) {
        if (!end_buffer(m, i) || !end_places(m, i) || !end_scale(m, i))
            return false;
        if (m->program->buffers[i].kind != BUFFER_METRICS)
            continue;
        metrics = true;
        if (!end_metric(m, i, METRIC_LOSS, m->c->reference->loss) ||
            !end_metric(m, i, METRIC_BALANCE,
                        m->c->kind == PROGRAM_EVAL ? m->c->reference->next_balance : m->c->reference->balance) ||
            !end_need(m, i) || (m->c->kind == PROGRAM_TRAIN && !end_metric(m, i, METRIC_SQNORM, m->c->reference->norm)))
            return false;
    }
    return metrics || conserve_fail(m, NONE, "there is no metrics block");
}
