/* What a rank answers for, and where it goes: the list of all tensors of a plan, the pieces of them that optimizer
 * instructions update, and files. */

#include "runtime/weights_private.h"

#include <stdatomic.h>
#include <stdlib.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct weight_plan *)a)->name, ((const struct weight_plan *)b)->name);
}

static const enum buffer_kind kinds[NSTATES] = {BUFFER_MASTER, BUFFER_MOMENT1, BUFFER_MOMENT2};

/* The buffer that holds the bucket's state; for weights without a master copy, the working copy.  NULL: it has none. */
static const struct buffer *keeper(const struct program *p, uint32_t bucket, enum state state)
{
    const struct buffer *working = NULL;
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const struct buffer *b = &p->buffers[i];
        if (b->bucket == bucket && b->kind == kinds[state])
            return b;
        if (b->bucket == bucket && b->kind == BUFFER_PARAM)
            working = b;
    }
    return state == STATE_WEIGHT ? working : NULL;
}

static enum weight_dtype format_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? WEIGHT_F32 : dtype == DTYPE_F16 ? WEIGHT_F16 : WEIGHT_BF16;
}

/* Adds a program's tensors to the list; names: room behind the list, one per entry.  list NULL: only counts. */
static size_t add_tensors(const struct program *p, enum state state, bool exact, struct weight_plan *list,
                          char (*names)[WEIGHTS_NAME], size_t n)
{
    for (uint32_t k = 0; k < p->nbuckets; k++) {
        const struct bucket *bucket = &p->buckets[k];
        const struct buffer *b = keeper(p, k, state);
        for (uint32_t i = bucket->tensor; b && i < bucket->tensor + bucket->ntensors; i++) {
            const struct tensor *t = &p->tensors[i];
            for (uint32_t member = 0; member < (t->family ? t->family : 1); member++, n++) {
                if (!list)
                    continue;
                tensor_name(t, member, names[n], sizeof *names);
                list[n] = (struct weight_plan){.name = names[n],
                                               .dtype = exact ? format_of(b->dtype) : WEIGHT_F32,
                                               .ndim = t->ndim,
                                               .shape = {t->shape[0], t->shape[1]}};
            }
        }
    }
    return n;
}

static bool is_same(const struct weight_plan *a, const struct weight_plan *b)
{
    return a->ndim == b->ndim && a->shape[0] == b->shape[0] && a->shape[1] == b->shape[1] && a->dtype == b->dtype;
}

enum status weights_catalog(const struct program *const *programs, uint32_t nroles, enum state state, bool exact,
                            struct weight_plan **out, uint32_t *n, struct error *error)
{
    size_t room = 1, kept = 0;
    for (uint32_t r = 0; r < nroles; r++)
        room = add_tensors(programs[r], state, exact, NULL, NULL, room);
    struct weight_plan *list = calloc(room, sizeof *list + WEIGHTS_NAME); /* names behind the list */
    if (!list)
        return STATUS_WORLD;
    for (uint32_t r = 0; r < nroles; r++)
        kept = add_tensors(programs[r], state, exact, list, (void *)(list + room), kept);
    qsort(list, kept, sizeof *list, by_name);
    uint32_t unique = 0;
    for (size_t i = 0; i < kept; i++) {
        const struct weight_plan *last = unique ? &list[unique - 1] : NULL;
        if (!last || strcmp(last->name, list[i].name) != 0) {
            list[unique++] = list[i];
        } else if (!is_same(last, &list[i])) {
            enum status st = error_set(error, STATUS_INPUT,
                                       "tensor '%s' has different shapes or formats in two programs", list[i].name);
            free(list);
            return st;
        }
    }
    *out = list;
    *n = unique;
    return STATUS_OK;
}

/* ---- pieces ---- */

static struct view place_view(const struct weights_place *w, const struct operand *o)
{
    uint64_t at = program_operand_offset(w->p, o);
    if (o->slot != UINT16_MAX)
        at += weights_slot(w, o->slot) * o->slot_stride;
    return (struct view){w->arena + at, (enum dtype)o->dtype, false, o->rows, o->cols, o->ld};
}

/* A piece's values in the buffer that keeps its state in host memory; for weights without a master copy, in the working
 * copy. */
static struct view kept_view(const struct weights_place *w, const struct weights_piece *piece, enum state state)
{
    struct view v = piece->values;
    uint64_t span = (uint64_t)(v.rows - 1) * piece->ld + v.cols;
    if (state != STATE_WEIGHT)
        v.data = NULL;
    for (uint32_t i = 0; i < w->p->nbuffers; i++) {
        const struct buffer *b = &w->p->buffers[i];
        uint64_t size = isa_dtype_bytes(b->dtype), n = b->bytes / size, base = weights_slot(w, b->shard_slot) * n;
        if (b->kind != kinds[state] || b->bucket != piece->bucket || piece->first < base ||
            piece->first + span > base + n)
            continue;
        v.data = w->arena + b->offset + (piece->first - base) * size;
        v.dtype = b->dtype;
    }
    return v;
}

bool weights_is_optimizer(const struct insn *in)
{
    return in->op == OP_ADAMW || in->op == OP_SGD || in->op == OP_BIAS_MOVE;
}

/* The operand of an optimizer instruction that is the state; NONE: it has none. */
static uint32_t operand_of(const struct insn *in, enum state state)
{
    if (state == STATE_WEIGHT)
        return OPND(ADAMW, p);
    if (state == STATE_MOMENT1)
        return in->op == OP_ADAMW ? (uint32_t)OPND(ADAMW, m) : in->op == OP_SGD ? (uint32_t)OPND(SGD, m) : NONE;
    return in->op == OP_ADAMW ? (uint32_t)OPND(ADAMW, v) : NONE;
}

/* The elements that instruction `insn` updates, in *piece, with the working or master copy's values; false: none that
 * this rank answers for. */
static bool find_piece(const struct weights_place *w, uint32_t insn, bool copies, struct weights_piece *piece)
{
    const struct insn *in = &w->p->insns[insn];
    const struct operand
        *param = &w->p->operands[in->operand + OPND(ADAMW, p)],
        *copy = &w->p->operands[in->operand + (in->op == OP_ADAMW ? OPND(ADAMW, copy) : OPND(SGD, copy))];
    bool fetched = w->p->buffers[param->buffer].bucket == NONE; /* the master copy is kept in host memory */
    if (fetched && (in->op == OP_BIAS_MOVE || copy->buffer == NONE || w->p->buffers[copy->buffer].bucket == NONE))
        return false;
    param = fetched ? copy : param;
    const struct buffer *b = &w->p->buffers[param->buffer];
    const struct bucket *bucket = &w->p->buckets[b->bucket];
    if (!copies && bucket->count_slot != NONE && !weights_slot(w, bucket->count_slot))
        return false;
    uint64_t size = isa_dtype_bytes(b->dtype);
    piece->bucket = b->bucket;
    piece->values = place_view(w, param);
    piece->ld = piece->values.ld;
    piece->first = weights_slot(w, b->shard_slot) * (b->bytes / size) +
                   (uint64_t)((uint8_t *)piece->values.data - (w->arena + b->offset)) / size;
    return true;
}

enum status weights_pieces(const struct weights_place *w, enum state state, bool copies, struct weights_piece **out,
                           uint32_t *n)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < w->p->ninsns; i++)
        all += weights_is_optimizer(&w->p->insns[i]);
    struct weights_piece *list = calloc(all + (size_t)1, sizeof *list);
    bool lost = false;
    *n = 0;
    for (uint32_t i = 0; list && i < w->p->ninsns; i++) {
        const struct insn *in = &w->p->insns[i];
        struct weights_piece *piece = &list[*n];
        uint32_t which = weights_is_optimizer(in) ? operand_of(in, state) : NONE;
        const struct operand *o = which == NONE ? NULL : &w->p->operands[in->operand + which];
        if (!o || o->buffer == NONE || !find_piece(w, i, copies, piece))
            continue;
        bool fetched = w->p->buffers[o->buffer].bucket == NONE; /* the operand is a copy of what is in host memory */
        piece->values = fetched ? kept_view(w, piece, state) : place_view(w, o);
        lost |= !piece->values.data;
        ++*n;
    }
    *out = list;
    return lost ? STATUS_BUG : list ? STATUS_OK : STATUS_WORLD;
}

/* ---- files ---- */

struct store {
    const struct weights_sink *sink;
    uint64_t base; /* bucket element of the row's first value */
    const struct view *values;
    uint32_t row;
};

static enum status store_run(void *context, const struct weights_run *run)
{
    const struct store *s = context;
    char name[WEIGHTS_NAME];
    tensor_name(run->tensor, run->member, name, sizeof name);
    struct weight_plan key = {.name = name};
    const struct weight_plan *t = bsearch(&key, s->sink->catalog, s->sink->ncatalog, sizeof key, by_name);
    uint32_t index = (uint32_t)(t - s->sink->catalog);
    uint8_t *out = safetensors_target(s->sink->files, index);
    const struct view *v = s->values;
    size_t at = (size_t)s->row * v->ld + (size_t)(run->element - s->base);
    for (uint32_t i = 0; i < run->n; i++) {
        float x = v->data ? weights_value(v->dtype, v->data, at + i) : 0;
        uint16_t half = t->dtype == WEIGHT_F16 ? f16_round(x) : bf16_round(x);
        size_t size = t->dtype == WEIGHT_F32 ? sizeof x : sizeof half;
        memcpy(out + (run->first + i * run->step) * size, size == sizeof x ? (void *)&x : (void *)&half, size);
    }
    atomic_fetch_add(&s->sink->covered[index], run->n);
    return STATUS_OK;
}

void weights_store(const struct weights_place *w, const struct weights_piece *piece, const struct view *values,
                   const struct weights_sink *sink)
{
    const struct view *v = values ? values : &piece->values;
    for (uint32_t row = 0; row < v->rows; row++) {
        struct store store = {sink, piece->first + (uint64_t)row * piece->ld, v, row};
        weights_walk(w, &w->p->buckets[piece->bucket], store.base, store.base + v->cols, store_run, &store);
    }
}

enum status weights_save(const struct weights_place *w, const struct weights_sink *sink)
{
    struct weights_piece *pieces;
    uint32_t n;
    TRY(weights_pieces(w, STATE_WEIGHT, false, &pieces, &n));
    for (uint32_t i = 0; i < n; i++)
        weights_store(w, &pieces[i], NULL, sink);
    free(pieces);
    return STATUS_OK;
}

void weights_save_gradient(const struct weights_place *w, uint32_t insn, const struct weights_sink *sink)
{
    const struct insn *in = &w->p->insns[insn];
    struct weights_piece piece;
    if (!weights_is_optimizer(in) || !find_piece(w, insn, false, &piece))
        return;
    uint32_t g = in->op == OP_ADAMW ? (uint32_t)OPND(ADAMW, g)
                 : in->op == OP_SGD ? (uint32_t)OPND(SGD, g)
                                    : NONE; /* a bias that is not trained */
    struct view zeros = {.data = NULL, .rows = piece.values.rows, .cols = piece.values.cols, .ld = piece.values.ld};
    struct view values = g == NONE ? zeros : place_view(w, &w->p->operands[in->operand + g]);
    weights_store(w, &piece, &values, sink);
}

enum status weights_complete(const struct weights_sink *sink, struct error *error)
{
    for (uint32_t i = 0; i < sink->ncatalog; i++) {
        const struct weight_plan *t = &sink->catalog[i];
        uint64_t want = (t->ndim == 2 ? t->shape[0] : 1) * t->shape[1], have = atomic_load(&sink->covered[i]);
        if (have != want)
            return error_set(error, STATUS_BUG, "the ranks answer for %llu of the %llu elements of tensor '%s'",
                             (unsigned long long)have, (unsigned long long)want, t->name);
    }
    return STATUS_OK;
}
