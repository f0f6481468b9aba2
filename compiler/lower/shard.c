/* ZeRO stages 2 and 3: parameters are gathered where they are used, gradients reduce-scattered as soon as they are
 * computed.
 *
 * A piece of the model (a layer, the embedding, the head) is the unit.  Stage 3: the working copy exists as shards;
 * each use of a piece, in F or in a backward pass, gathers it into the next of depth = prefetch + 1 buffers,
 * `prefetch` uses ahead, on the dp queue.  What F gathered is dropped when the ring of buffers comes round (FSDP's
 * reshard after forward); consecutive uses of one piece share a gather.  Stages 2 and 3: each microbatch's gradients
 * of a piece are computed in one of two buffers, reduce-scattered under the next piece's backward pass, and added to
 * this rank's shard of the sum one piece later.  Where the job says `never overlap dp`, all of this is on the
 * compute queue: nothing is gathered ahead, and nothing overlaps with it.  Sums over replicas, tp and tied tables
 * are taken of the shards after the last microbatch.
 *
 * Vectors, and tables that two pieces use, are kept whole and reduce-scattered once, as in stage 1: the vectors are
 * small, and the tables' gradients are complete only at the end.
 *
 * Where gradients are reduced between ranks in another format than they are accumulated in, they are converted
 * before the reduction, and used as it leaves them.  A microbatch's shards are converted back to the accumulation's
 * format to be added up. Rajbhandari et al. 2020 (ZeRO); Zhao et al. 2023 (FSDP; its hybrid sharding is a shard
 * group smaller than dp). */

#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"
#include "compiler/lower/shard.h"

#include <stdio.h>

#define FLAT_COLS 64u

struct mat lower_flat(uint32_t buffer, enum dtype dtype, uint64_t elements)
{
    return (struct mat){buffer, NONE, 0, (uint32_t)(elements / FLAT_COLS), FLAT_COLS, FLAT_COLS, dtype, NONE, 0};
}

static struct mat own_shard(struct lower *l, uint32_t bucket, struct mat m)
{
    const struct bucket_info *b = &l->buckets[bucket];
    if (!b->shard)
        return m;
    m.rows /= mesh_group_size(&l->mesh, b->shard);
    m.slot = lower_slot(l, SLOT_COORD, b->shard);
    m.slot_stride = (uint64_t)m.rows * m.cols * isa_dtype_bytes(m.dtype);
    return m;
}

/* this rank's shard of the working copy; of the complete gradient */
struct mat lower_own_param(struct lower *l, uint32_t bucket)
{
    const struct bucket_info *b = &l->buckets[bucket];
    if (b->gathers)
        return lower_flat(b->param, l->ctype, b->own);
    return own_shard(l, bucket, lower_flat(b->param, l->ctype, l->p->buckets[bucket].elements));
}

struct mat lower_own_gradient(struct lower *l, uint32_t bucket)
{
    const struct bucket_info *b = &l->buckets[bucket];
    uint32_t buffer = b->reduced == NONE ? b->gradient : b->reduced;
    enum dtype dtype = b->reduced == NONE ? l->gtype : l->rtype;
    if (b->scatters)
        return lower_flat(buffer, dtype, b->own);
    return own_shard(l, bucket, lower_flat(buffer, dtype, l->p->buckets[bucket].elements));
}

/* Is it whole on every rank of tp, with a gradient from the rank's own tokens or heads that must be summed over tp? */
static bool sums_over_tp(const struct lower *l, const struct bucket_info *b)
{
    return (l->sp && !b->split) || (l->d->tp > 1 && b->partial);
}

/* Is its gradient reduced between ranks, other than by the reduce-scatter of every microbatch? */
bool lower_reduces(const struct lower *l, uint32_t bucket)
{
    const struct bucket_info *b = &l->buckets[bucket];
    return !b->moved && (b->tie || b->replica || sums_over_tp(l, b) || (b->shard && !b->scatters));
}

/* ---- what is where ---- */

/* Does a piece's backward pass read its matrices?  Tables are only looked up. */
static bool backward_reads(const struct piece *pc, uint32_t bucket)
{
    for (uint32_t i = 0; i < pc->e->noprs; i++) {
        const struct opr *o = &pc->e->oprs[i];
        for (uint32_t k = 0; k < o->nweights; k++)
            if (o->kind != OPR_EMBED && o->kind != OPR_POSITION && pc->weights[o->weight + k].bucket == bucket)
                return true;
    }
    return false;
}

/* Finds the buckets of a piece that are gathered or scattered, and their places in the common buffers. */
static void collect_parts(struct lower *l, struct piece *pc)
{
    const struct expansion *e = pc->e;
    pc->parts = ARENA_ARRAY(l->arena, struct shard_part, e->nweights + 1u);
    for (uint32_t w = 0; w < e->nweights; w++) {
        const struct bucket_info *b = &l->buckets[pc->weights[w].bucket];
        uint32_t known = 0;
        while (known < pc->nparts && pc->parts[known].bucket != pc->weights[w].bucket)
            known++;
        if (known < pc->nparts || (!b->gathers && !b->scatters))
            continue;
        pc->parts[pc->nparts++] = (struct shard_part){pc->weights[w].bucket, pc->gathered, pc->made,
                                                      backward_reads(pc, pc->weights[w].bucket)};
        pc->gathered += b->gathers ? l->p->buckets[pc->weights[w].bucket].elements : 0;
        pc->made += b->scatters ? l->p->buckets[pc->weights[w].bucket].elements : 0;
        pc->gathers |= b->gathers;
        pc->scatters |= b->scatters;
    }
}

const struct shard_part *lower_shard_part(const struct piece *pc, uint32_t bucket)
{
    for (uint32_t i = 0; i < pc->nparts; i++)
        if (pc->parts[i].bucket == bucket)
            return &pc->parts[i];
    return NULL;
}

static bool reads_backward(const struct piece *pc)
{
    bool reads = pc->recompute;
    for (uint32_t i = 0; i < pc->nparts; i++)
        reads |= pc->parts[i].backward;
    return reads;
}

static void add_use(struct lower *l, struct gather_ring *r, uint32_t piece)
{
    if (l->pieces[piece].gathers && (!r->uses.n || r->uses.at[r->uses.n - 1] != piece))
        vec_push(l->arena, &r->uses, piece);
}

static void add_uses(struct lower *l, struct gather_ring *r, const struct action *a)
{
    const struct chunk *c = NULL;
    for (uint32_t k = 0; k < l->nchunks; k++)
        if (l->chunks[k].index == a->stage)
            c = &l->chunks[k];
    if (!c || a->kind == 'O' || a->kind == 'W')
        return;
    for (uint32_t p = 0; p < c->npieces; p++)
        if (l->evaluation && l->pieces[c->first + p].ahead)
            continue;
        else if (a->kind == 'F')
            add_use(l, r, c->first + p);
        else if (reads_backward(&l->pieces[c->first + c->npieces - 1 - p]))
            add_use(l, r, c->first + c->npieces - 1 - p);
}

/* Makes the buffers for gathered pieces, which are used in the order in which the role's actions need them. */
static void place_ring(struct lower *l, struct gather_ring *r, const char *prefix, uint64_t elements)
{
    char name[40];
    r->at = NONE;
    r->depth = l->d->prefetch + 1 < r->uses.n ? l->d->prefetch + 1 : (uint32_t)r->uses.n;
    r->gathered = ARENA_ARRAY(l->arena, uint32_t, r->depth + 1u);
    for (uint32_t i = 0; i < r->depth; i++) {
        snprintf(name, sizeof name, "%sgathered.%u", prefix, i);
        r->gathered[i] = lower_step_buffer(l, name, l->ctype, elements * isa_dtype_bytes(l->ctype), NONE);
    }
}

void lower_shards(struct lower *l, const struct schedule *schedule)
{
    struct shards *s = &l->shards;
    uint64_t gathered = 0, made = 0;
    char name[40];
    *s = (struct shards){.ring = s->rings};
    for (uint32_t p = 0; p < l->npieces; p++) {
        struct piece *pc = &l->pieces[p];
        collect_parts(l, pc);
        gathered = pc->gathered > gathered ? pc->gathered : gathered;
        made = pc->made > made ? pc->made : made;
    }
    const struct action *a = schedule->actions[l->role];
    for (uint32_t i = 0; i < schedule->nactions[l->role]; i++)
        add_uses(l, &s->rings[i && a[i - 1].pair], &a[i]);
    place_ring(l, &s->rings[0], "", gathered);
    place_ring(l, &s->rings[1], "b.", gathered);
    for (uint32_t i = 0; i < 2 && made && !l->evaluation; i++) {
        snprintf(name, sizeof name, "made.%u", i);
        /* once is enough: the buffer is free as soon as its contents are converted */
        bool once = i && l->rtype != l->gtype;
        s->made[i] = once ? s->made[0] : lower_step_buffer(l, name, l->gtype, made * isa_dtype_bytes(l->gtype), NONE);
        snprintf(name, sizeof name, "sent.%u", i);
        s->sent[i] = l->rtype == l->gtype
                         ? NONE
                         : lower_step_buffer(l, name, l->rtype, made * isa_dtype_bytes(l->rtype), NONE);
    }
}

/* ---- parameters ---- */

static void gather(struct lower *l, uint32_t use)
{
    const struct gather_ring *r = l->shards.ring;
    const struct piece *pc = &l->pieces[r->uses.at[use]];
    uint32_t layer = l->layer, microbatch = l->microbatch;
    l->layer = pc->layer;
    l->microbatch = NONE; /* a gather belongs to no microbatch */
    for (uint32_t i = 0; i < pc->nparts; i++) {
        const struct bucket_info *b = &l->buckets[pc->parts[i].bucket];
        if (!b->gathers)
            continue;
        struct mat y = lower_flat(r->gathered[use % r->depth], l->ctype, l->p->buckets[pc->parts[i].bucket].elements);
        y.at = pc->parts[i].at * isa_dtype_bytes(l->ctype);
        lower_collective(l, OP_ALL_GATHER, lower_dp_queue(l), b->shard, lower_own_param(l, pc->parts[i].bucket), y);
    }
    l->layer = layer;
    l->microbatch = microbatch;
}

static void gather_up_to(struct lower *l, uint32_t use)
{
    struct gather_ring *r = l->shards.ring;
    for (; r->issued <= use && r->issued < r->uses.n; r->issued++)
        gather(l, r->issued);
}

void lower_gather_first(struct lower *l)
{
    if (l->d->prefetch)
        gather_up_to(l, l->d->prefetch - 1);
}

void lower_open_params(struct lower *l, uint32_t piece)
{
    struct gather_ring *r = l->shards.ring;
    const struct piece *pc = &l->pieces[piece];
    if (!pc->gathers || (l->halves && !reads_backward(pc)) || (r->at != NONE && r->uses.at[r->at] == piece))
        return;
    r->at = r->at == NONE ? 0 : r->at + 1;
    gather_up_to(l, r->at + l->d->prefetch);
}

/* ---- gradients ---- */

static void finish_bucket(struct lower *l, uint32_t bucket);

void lower_open_gradients(struct lower *l, uint32_t piece)
{
    struct piece *pc = &l->pieces[piece];
    if (!pc->scatters || !(l->halves & HALF_WEIGHT))
        return;
    l->shards.making = l->shards.made[l->shards.nmade++ % 2];
    for (uint32_t w = 0; w < pc->e->nweights; w++)
        if (l->buckets[pc->weights[w].bucket].scatters)
            *pc->weights[w].written = false;
}

static void convert(struct lower *l, struct mat from, struct mat to)
{
    EMIT(l, COPY, .y = to, .x = from);
}

static struct mat own_sum(const struct lower *l, uint32_t bucket)
{
    return lower_flat(l->buckets[bucket].gradient, l->gtype, l->buckets[bucket].own);
}

/* Adds pending shards of a microbatch to their sums. */
void lower_close_gradients(struct lower *l)
{
    struct shards *s = &l->shards;
    for (uint32_t k = 0; k < s->npending; k++) {
        struct mat sum = own_sum(l, s->pending[k].bucket), part = s->pending[k].part, wide = sum;
        if (part.dtype != sum.dtype) {
            wide = s->pending[k].first ? sum : lower_temp(l, "added", sum.dtype, sum.rows, sum.cols);
            convert(l, part, wide);
            part = wide;
        }
        if (s->pending[k].first)
            continue;
        EMIT(l, ADD, .y = mat_add(sum), .a = part);
    }
    for (uint32_t k = 0; k < s->npending; k++)
        if (s->pending[k].last && !l->buckets[s->pending[k].bucket].tie)
            finish_bucket(l, s->pending[k].bucket);
    s->npending = 0;
}

static void fill_padding(struct lower *l, struct mat m, uint64_t used)
{
    uint64_t elements = (uint64_t)m.rows * m.cols;
    if (elements == used)
        return;
    uint32_t pad = (uint32_t)(elements - used);
    struct mat tail = {m.buffer, NONE, m.at + used * isa_dtype_bytes(m.dtype), 1, pad, pad, m.dtype, NONE, 0};
    EMIT(l, FILL, .y = tail, .value = 0);
}

/* where a piece's gradients of a bucket are computed, and where they are in the format of reductions between ranks */
static struct mat made_mat(const struct lower *l, const struct shard_part *part)
{
    struct mat m = lower_flat(l->shards.making, l->gtype, l->p->buckets[part->bucket].elements);
    m.at = part->made_at * isa_dtype_bytes(l->gtype);
    return m;
}

static struct mat sent_mat(const struct lower *l, const struct shard_part *part)
{
    if (l->rtype == l->gtype)
        return made_mat(l, part);
    struct mat m = lower_flat(l->shards.sent[l->shards.nmade % 2], l->rtype, l->p->buckets[part->bucket].elements);
    m.at = part->made_at * isa_dtype_bytes(l->rtype);
    return m;
}

/* All gradients of a piece are converted before its first reduction, so that no conversion waits until another
 * bucket has been sent. */
static void send_piece(struct lower *l, const struct piece *pc)
{
    for (uint32_t i = 0; i < pc->nparts; i++) {
        const struct shard_part *part = &pc->parts[i];
        if (!l->buckets[part->bucket].scatters)
            continue;
        fill_padding(l, made_mat(l, part), l->buckets[part->bucket].used);
        convert(l, made_mat(l, part), sent_mat(l, part));
    }
}

void lower_bucket_scatter(struct lower *l, uint32_t piece, uint32_t bucket, bool last)
{
    struct shards *s = &l->shards;
    struct bucket_info *b = &l->buckets[bucket];
    const struct shard_part *part = lower_shard_part(&l->pieces[piece], bucket);
    bool apart = b->begun || l->rtype != l->gtype;
    struct mat own;
    if (l->rtype == l->gtype)
        fill_padding(l, made_mat(l, part), b->used);
    else if (s->sent_of != s->nmade)
        send_piece(l, &l->pieces[piece]);
    s->sent_of = s->nmade;
    if (apart) { /* since those of the previous piece are still being added */
        uint32_t nth = s->pending_of == s->nmade ? s->npending : 0;
        const char *name = arena_printf(l->arena, "part%u", s->nmade % 2);
        name = nth ? arena_printf(l->arena, "%s.%u", name, nth) : name;
        own = lower_temp(l, name, l->rtype, (uint32_t)(b->own / FLAT_COLS), FLAT_COLS);
    } else {
        own = own_sum(l, bucket);
    }
    lower_collective(l, OP_REDUCE_SCATTER, lower_dp_queue(l), b->shard, sent_mat(l, part), own);
    if (s->pending_of != s->nmade)
        lower_close_gradients(l);
    if (apart) {
        s->pending_of = s->nmade;
        s->pending[s->npending].bucket = bucket;
        s->pending[s->npending].first = !b->begun;
        s->pending[s->npending].part = own;
        s->pending[s->npending++].last = last;
    } else if (last && !b->tie) {
        finish_bucket(l, bucket);
    }
    b->begun = true;
}

/* ---- sums ---- */

/* The reductions that a shard, or a whole bucket, still needs. */
static void finish_bucket(struct lower *l, uint32_t bucket)
{
    const struct bucket_info *b = &l->buckets[bucket];
    struct mat m = lower_own_gradient(l, bucket);
    if (b->scatters && b->reduced != NONE)
        convert(l, own_sum(l, bucket), m);
    if (b->scatters && b->tie)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_DP, GROUP_TIE, m, m);
    if (b->scatters && sums_over_tp(l, b))
        lower_collective(l, OP_ALL_REDUCE, lower_dp_queue(l), l->mesh.dim[MESH_TP], m, m);
    if (b->replica)
        lower_collective(l, OP_ALL_REDUCE, lower_dp_queue(l), b->replica, m, m);
}

void lower_bucket_reduce(struct lower *l, uint32_t bucket)
{
    struct bucket_info *b = &l->buckets[bucket];
    if (b->moved) /* its load is reduced in the optimizer */
        return;
    if (b->scatters) {
        finish_bucket(l, bucket);
        return;
    }
    struct mat m = lower_flat(b->gradient, l->gtype, l->p->buckets[bucket].elements);
    fill_padding(l, m, b->used);
    if (b->reduced != NONE) {
        struct mat reduced = lower_flat(b->reduced, l->rtype, l->p->buckets[bucket].elements);
        convert(l, m, reduced);
        m = reduced;
    }
    if (b->tie)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_DP, GROUP_TIE, m, m);
    if (sums_over_tp(l, b))
        lower_collective(l, OP_ALL_REDUCE, lower_dp_queue(l), l->mesh.dim[MESH_TP], m, m);
    if (b->shard)
        lower_collective(l, OP_REDUCE_SCATTER, lower_dp_queue(l), b->shard, m, own_shard(l, bucket, m));
    finish_bucket(l, bucket);
}
