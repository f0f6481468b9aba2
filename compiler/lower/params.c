/* Buckets: parameters of a chunk that are reduced, sharded and updated together.
 *
 * There is one bucket per piece for its matrices (weight decay applies), and a few per chunk for vectors (no decay):
 * those split over tp, those whole on every tp rank, experts' and others.  Position tables are whole matrices and
 * get a bucket of their own.  A bucket is padded so that its shards are equal multiples of 64 elements.  Within an
 * operator and bucket, weights are dense and stacked in order.
 *
 * Where tp has more ranks than there are key/value heads, the weights of keys and values are in buckets of their
 * own: neighbouring tp ranks have copies of them, each with a gradient from its own queries, and sum these as
 * replicas do.
 *
 * Rajbhandari et al. 2020 (ZeRO), stage 1: moments and master copy exist for this rank's shard only. */

#include "compiler/lower/build.h"
#include "compiler/lower/shard.h"
#include "compiler/lower/step.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#define PAD_ELEMENTS 64

struct weight_ref {
    uint32_t piece, weight;
    const struct opr *o;
};

/* outputs with the vocabulary's padding, for the embedding and the head */
static uint64_t padded(const struct lower *l, const struct opr *o, uint64_t outputs)
{
    bool vocab = o->kind == OPR_EMBED || (o->kind == OPR_LINEAR && !strcmp(o->name, "head"));
    return vocab ? expand_padded_vocab(outputs, l->d->tp) : outputs;
}

static enum init_kind init_of(const struct opr_weight *w)
{
    switch (w->init) {
    case WEIGHT_NORMAL:
    case WEIGHT_RESIDUAL:
        return INIT_NORMAL;
    case WEIGHT_ONES:
        return INIT_ONES;
    case WEIGHT_ZEROS:
        return INIT_ZEROS;
    }
    assert(false);
    return INIT_ZEROS;
}

/* The experts of one weight are stacked by rows: those that the rank's number in ep selects, of each its part in
 * etp. */
static void add_family(struct lower *l, const struct opr_weight *w, struct tensor *t)
{
    uint32_t ep = l->mesh.dim[MESH_EP], etp = l->mesh.dim[MESH_ETP];
    t->family = w->family;
    t->boxes = w->family / l->d->ep;
    t->rows /= t->boxes;
    t->member_slot = ep ? lower_slot(l, SLOT_COORD, ep) : NONE;
    t->member_stride = ep ? t->boxes : 0;
    if (etp && w->member_split == SPLIT_ROWS) {
        t->row_slot = lower_slot(l, SLOT_COORD, etp);
        t->row_stride = t->rows;
    } else if (etp) {
        t->col_slot = lower_slot(l, SLOT_COORD, etp);
        t->col_stride = t->cols;
    }
}

static void add_tensor(struct lower *l, const struct weight_ref *r, const struct weight_place *place)
{
    const struct piece *pc = &l->pieces[r->piece];
    const struct opr_weight *w = &pc->e->weights[r->weight];
    uint32_t tp = l->mesh.dim[MESH_TP] & ~(l->buckets[place->bucket].keys ? l->mesh.dim[MESH_KEYS] : 0);
    uint32_t slot = mesh_group_size(&l->mesh, tp) > 1 && w->split != SPLIT_NONE ? lower_slot(l, SLOT_COORD, tp) : NONE;
    struct tensor t = {.ndim = w->vector ? 1 : 2,
                       .rows = place->rows,
                       .cols = place->cols,
                       .row_slot = NONE,
                       .col_slot = NONE,
                       .transposed = w->transposed,
                       .at = place->at,
                       .init = init_of(w),
                       .std = l->job->train.init_std};
    snprintf(t.name, sizeof t.name, "%s", expand_weight_name(l->arena, w, pc->layer));
    if (w->init == WEIGHT_RESIDUAL && l->job->train.init_residual)
        t.std /= sqrt(2.0 * l->job->model.nlayers);
    uint64_t first_out = w->hf_row; /* first of this weight's outputs within the tensor's output dimension */
    bool out_is_col = w->vector || w->transposed;
    t.shape[0] = w->vector ? 1 : w->transposed ? w->cols : w->hf_rows;
    t.shape[1] = w->vector || w->transposed ? w->hf_rows : w->cols;
    *(out_is_col ? &t.col : &t.row) = first_out;
    if (slot != NONE) {
        bool along_out = w->split == SPLIT_ROWS;
        uint64_t stride = w->vector ? place->cols : along_out ? place->rows : place->cols;
        if (along_out == out_is_col) {
            t.col_slot = slot;
            t.col_stride = stride;
        } else {
            t.row_slot = slot;
            t.row_stride = stride;
        }
    }
    if (w->family)
        add_family(l, w, &t);
    program_tensor(l->p, &t);
    l->p->buckets[place->bucket].ntensors++;
}

static void place_weight(struct lower *l, const struct weight_ref *r, uint32_t bucket)
{
    struct piece *pc = &l->pieces[r->piece];
    const struct opr_weight *w = &pc->e->weights[r->weight];
    struct weight_place *place = &pc->weights[r->weight];
    struct bucket_info *b = &l->buckets[bucket];
    uint64_t rows = w->vector ? w->rows : padded(l, r->o, w->rows),
             cols = w->vector ? padded(l, r->o, w->cols) : w->cols;
    uint64_t parts = expand_parts(w, l->d->tp);
    if (w->family) {
        rows /= l->d->ep;
        *(w->member_split == SPLIT_ROWS ? &rows : &cols) /= l->d->etp;
    }
    if (w->split == SPLIT_COLS || (w->split == SPLIT_ROWS && w->vector))
        cols /= parts;
    else if (w->split == SPLIT_ROWS)
        rows /= parts;
    /* the queries' weights are in another bucket */
    uint32_t leads = (r->weight >= r->o->bias ? r->o->bias : r->o->weight) + b->keys;
    bool *written = pc->weights[leads].written;
    if (r->weight == leads || w->moved || !written)
        written = ARENA_NEW(l->arena, bool);
    *place = (struct weight_place){bucket, b->used, (uint32_t)rows, (uint32_t)cols, written};
    b->used += rows * cols;
    add_tensor(l, r, place);
}

static uint32_t add_buffer(struct lower *l, const char *kind_name, const char *bucket_name, enum buffer_kind kind,
                           enum dtype dtype, uint64_t elements, uint32_t bucket, uint32_t shard_slot)
{
    struct buffer b = {.kind = kind,
                       .dtype = dtype,
                       .ring = NONE,
                       .bytes = elements * isa_dtype_bytes(dtype),
                       .bucket = bucket,
                       .shard_slot = shard_slot};
    b.host = kind != BUFFER_PARAM && l->job->wishes.offload & OFFLOAD_OPTIMIZER;
    b.stride = b.bytes;
    snprintf(b.name, sizeof b.name, "%.8s.%.30s", kind_name, bucket_name);
    return program_buffer(l->p, &b);
}

static void add_buffers(struct lower *l, uint32_t bucket)
{
    struct bucket_info *b = &l->buckets[bucket];
    struct bucket *pb = &l->p->buckets[bucket];
    uint64_t shards = mesh_group_size(&l->mesh, b->shard), step = PAD_ELEMENTS * shards;
    uint64_t n = pb->elements = (b->used + step - 1) / step * step, own = b->own = n / shards;
    uint32_t slot = b->shard ? lower_slot(l, SLOT_COORD, b->shard) : NONE;
    const char *name = l->p->buckets[bucket].name;
    b->param = add_buffer(l, "param", name, BUFFER_PARAM, b->moved ? DTYPE_F32 : l->ctype, b->gathers ? own : n, bucket,
                          b->gathers ? slot : NONE);
    b->master = b->moment1 = b->moment2 = b->gradient = b->reduced = NONE;
    if (b->moved)
        return;
    if (l->mtype != l->ctype || decision_skews(l->job, l->d))
        b->master = add_buffer(l, "master", name, BUFFER_MASTER, l->mtype, own, bucket, slot);
    bool adam = l->job->train.optimizer == OPT_ADAMW;
    enum dtype moments = l->job->train.moments == DT_FP32 ? DTYPE_F32 : DTYPE_BF16;
    if (adam || l->job->train.momentum > 0)
        b->moment1 = add_buffer(l, adam ? "m" : "momentum", name, BUFFER_MOMENT1, moments, own, bucket, slot);
    if (adam)
        b->moment2 = add_buffer(l, "v", name, BUFFER_MOMENT2, moments, own, bucket, slot);
}

/* which weights share a bucket: matrices by piece, vectors by how tp splits them */
struct bucket_class {
    const char *name;
    const struct chunk *chunk;
    uint32_t piece;             /* NONE = vectors of the whole chunk */
    bool decay, split, partial; /* partial: whole, with gradients that cover the rank's own heads only */
    bool experts, moved;
    bool copy; /* the embedding's table for prediction modules on another rank than the embedding */
    bool keys; /* of key/value heads that several tp ranks hold */
};

static bool belongs(const struct lower *l, const struct bucket_class *c, const struct weight_ref *r,
                    const struct opr_weight *w)
{
    bool keys = w->split != SPLIT_NONE && expand_parts(w, l->d->tp) < l->d->tp;
    return w->decay == c->decay && (w->split != SPLIT_NONE) == c->split && w->shared == c->partial &&
           w->moved == c->moved && c->copy == (w->shared_with == WEIGHT_OF_EMBED) && (w->family > 0) == c->experts &&
           keys == c->keys && (c->piece == NONE || c->piece == r->piece);
}

static uint32_t find_piece(const struct lower *l, bool head)
{
    for (uint32_t i = 0; i < l->nchunks; i++) {
        const struct chunk *c = &l->chunks[i];
        if (head ? c->stage->head : c->stage->embed)
            return head ? c->first + c->npieces - 1 - l->job->model.predict : c->first; /* modules follow the head */
    }
    return NONE;
}

/* Does a piece use a weight of another piece on this rank?  The head of a tied model uses the embedding's table
 * where that is on the same rank; prediction modules use the head's weights and the embedding's table.  The first
 * module has a copy of the table where neither the embedding nor a tied head is on the rank. */
static bool shares_weight(const struct lower *l, const struct weight_ref *r)
{
    const struct piece *pc = &l->pieces[r->piece];
    bool tied = l->job->model.tied, here = find_piece(l, false) != NONE;
    switch (pc->e->weights[r->weight].shared_with) {
    case WEIGHT_OWN:
        return tied && !strcmp(r->o->name, "head") && r->weight == r->o->weight && here;
    case WEIGHT_OF_EMBED:
        return tied || here || pc->ahead > 1;
    case WEIGHT_OF_HEAD:
        return true;
    }
    return false;
}

/* Are some weight gradients of the piece's matrices already computed by I rather than W? */
static bool made_early(const struct lower *l, const struct bucket_info *b)
{
    const struct expansion *e = l->pieces[b->piece].e;
    bool early = false;
    for (uint32_t i = 0; l->splits && i < e->noprs; i++)
        early |= !expand_puts_off(e, &e->oprs[i]) && e->oprs[i].nweights && e->weights[e->oprs[i].weight].decay;
    return early;
}

/* Sets over which ranks it is sharded, and which of its contents: see shard.c. */
static void shard_bucket(const struct lower *l, struct bucket_info *b)
{
    b->shard = b->moved ? 0 : l->mesh.dim[b->experts ? MESH_EXPERT_SHARD : MESH_SHARD];
    b->replica = b->moved ? 0 : l->mesh.dim[b->experts ? MESH_EXPERT_REPLICA : MESH_REPLICA];
    b->replica |= b->keys ? l->mesh.dim[MESH_KEYS] : 0;
    b->split |= b->experts; /* their groups already include tp */
    bool alone = b->shard && b->piece != NONE;
    b->gathers = alone && l->d->zero >= 3;
    b->scatters = alone && l->d->zero >= 2 && b->shared == NONE && !b->several && !made_early(l, b);
}

/* Describes a bucket.  The gradient of the embedding's table, with a tied head or prediction modules, is completed
 * by the last piece on this rank that uses it; a copy on the last stage's rank is summed with it.  The head's matrix
 * may have prediction modules as further users. */
static struct bucket_info new_bucket(const struct lower *l, const struct bucket_class *c, const struct opr *o)
{
    const struct model *m = &l->job->model;
    bool copies = l->copies > 1, embed = o->kind == OPR_EMBED && !c->copy, head = !strcmp(o->name, "head") && c->decay;
    struct bucket_info b = {.chunk = c->chunk,
                            .piece = c->piece,
                            .shared = NONE,
                            .split = c->split,
                            .partial = c->partial,
                            .keys = c->keys,
                            .experts = c->experts,
                            .moved = c->moved,
                            .tie = copies};
    if (embed && (m->tied || m->predict))
        b.shared = find_piece(l, true);
    if (head && m->predict)
        b.shared = c->piece + 1;
    if (c->copy && m->predict > 1)
        b.shared = c->piece + 1;
    bool tied = c->copy || (embed && (m->tied || m->predict) && b.shared == NONE) || (head && m->tied);
    b.pending = b.shared == NONE ? 1 : 2;
    b.tie |= tied;
    b.counts = copies ? l->role < l->d->pp / 2 : !tied || embed;
    b.several = m->predict && (embed || head || c->copy);
    return b;
}

static void fill_class(struct lower *l, const struct bucket_class *c)
{
    uint32_t bucket = NONE;
    for (uint32_t p = c->chunk->first; p < c->chunk->first + c->chunk->npieces; p++)
        for (uint32_t i = 0; i < l->pieces[p].e->noprs; i++) {
            const struct opr *o = &l->pieces[p].e->oprs[i];
            for (uint32_t k = 0; k < o->nweights + o->nbiases; k++) {
                struct weight_ref r = {p, o->weight + k, o};
                const struct opr_weight *w = &l->pieces[p].e->weights[r.weight];
                if (!belongs(l, c, &r, w) || shares_weight(l, &r))
                    continue;
                if (bucket == NONE) {
                    struct bucket b = {.tensor = l->p->ntensors, .decay = c->decay, .count_slot = NONE};
                    snprintf(b.name, sizeof b.name, "%s", c->name);
                    bucket = program_bucket(l->p, &b);
                    l->buckets[bucket] = new_bucket(l, c, o);
                    l->nbuckets = bucket + 1;
                }
                place_weight(l, &r, bucket);
            }
        }
    if (bucket == NONE)
        return;
    shard_bucket(l, &l->buckets[bucket]);
    add_buffers(l, bucket);
}

/* Makes the buckets of matrices, piece by piece. */
static void fill_pieces(struct lower *l, const struct chunk *c)
{
    for (uint32_t p = c->first; p < c->first + c->npieces; p++) {
        const char *name = lower_piece_name(l, p, "layer");
        const struct bucket_class classes[LOWER_BUCKETS] = {
            {.name = name, .split = true},
            {.name = arena_printf(l->arena, "%s.embed", name), .split = true, .copy = true},
            {.name = arena_printf(l->arena, "%s.keys", name), .split = true, .keys = true},
            {.name = arena_printf(l->arena, "%s.whole", name)},
            {.name = arena_printf(l->arena, "%s.experts", name), .experts = true},
        };
        for (size_t k = 0; k < LOWER_BUCKETS; k++) {
            struct bucket_class one = classes[k];
            one.chunk = c;
            one.piece = p;
            one.decay = true;
            fill_class(l, &one);
        }
    }
}

static void fill_vectors(struct lower *l, const struct chunk *c)
{
    const char *tail = l->nchunks == 1 ? "" : arena_printf(l->arena, ".s%u", c->stage_index);
    const struct bucket_class classes[LOWER_VECTOR_BUCKETS] = {
        {.name = arena_printf(l->arena, "vectors.split%s", tail), .split = true},
        {.name = arena_printf(l->arena, "vectors.keys%s", tail), .split = true, .keys = true},
        {.name = arena_printf(l->arena, "vectors.whole%s", tail)},
        {.name = arena_printf(l->arena, "vectors.heads%s", tail), .partial = true},
        {.name = arena_printf(l->arena, "vectors.experts%s", tail), .experts = true},
        {.name = arena_printf(l->arena, "router.bias%s", tail), .moved = true},
    };
    for (size_t k = 0; k < LOWER_VECTOR_BUCKETS; k++) {
        struct bucket_class one = classes[k];
        one.chunk = c;
        one.piece = NONE;
        fill_class(l, &one);
    }
}

/* Points a piece to the weights that it shares with others. */
static void alias_weights(struct lower *l, struct piece *pc)
{
    uint32_t embed = find_piece(l, false), head = find_piece(l, true);
    for (uint32_t i = 0; i < pc->e->noprs; i++) {
        const struct opr *o = &pc->e->oprs[i];
        for (uint32_t k = 0; k < o->nweights + o->nbiases; k++) {
            struct weight_ref r = {(uint32_t)(pc - l->pieces), o->weight + k, o};
            if (!shares_weight(l, &r))
                continue;
            uint32_t from = pc->e->weights[r.weight].shared_with == WEIGHT_OF_EMBED || !pc->ahead ? embed : head;
            if (from == NONE) /* an embedding on another rank: the tied head's, or the first module's copy */
                from = l->job->model.tied ? head : head + 1;
            const struct expansion *e = l->pieces[from].e;
            for (uint32_t j = 0; j < e->noprs; j++) {
                bool table = o->kind == OPR_EMBED || !pc->ahead;
                if ((table && e->oprs[j].kind == OPR_EMBED) || !strcmp(e->oprs[j].name, "head")) {
                    pc->weights[r.weight] = l->pieces[from].weights[e->oprs[j].weight + k];
                    break;
                }
            }
        }
    }
}

void lower_params(struct lower *l)
{
    size_t most = LOWER_BUCKETS * (size_t)l->npieces + LOWER_VECTOR_BUCKETS * (size_t)l->nchunks + 2;
    l->buckets = ARENA_ARRAY(l->arena, struct bucket_info, most);
    for (uint32_t i = 0; i < l->nchunks; i++)
        fill_pieces(l, &l->chunks[i]);
    for (uint32_t i = 0; i < l->nchunks; i++)
        fill_vectors(l, &l->chunks[i]);
    for (uint32_t p = 0; p < l->npieces; p++) /* the head before the modules, which may get the embedding from it */
        if (find_piece(l, true) != NONE && p >= find_piece(l, true) && p <= find_piece(l, true) + l->job->model.predict)
            alias_weights(l, &l->pieces[p]);
}
