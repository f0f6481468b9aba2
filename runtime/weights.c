/* Walking buckets, filling buffers, and writing what a rank answers for.
 *
 * Everything goes through one walk: the elements [from, to) of a bucket as runs, each a stretch of one row
 * (or, for boxes stored transposed, one column) of one logical tensor, clipped to its logical shape. */

#include "runtime/weights.h"
#include "kernels/cpu/rows.h"
#include "runtime/channels.h"
#include "runtime/random.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

struct run {
    const struct tensor *tensor;
    uint64_t member;      /* of the tensor's family */
    uint64_t element;     /* in the bucket */
    uint64_t first, step; /* logical element of the first one, distance to the next */
    uint32_t n;
};
typedef enum status visit_run(void *context, const struct run *run);

static uint64_t slot_value(const struct weights_place *w, uint32_t slot)
{
    return slot == NONE ? 0 : rank_value(w->ranks, w->rank, slot);
}

/* stored row i of all boxes of a tensor, its columns [from, to) */
static enum status walk_row(const struct weights_place *w, const struct tensor *t, uint64_t i, uint64_t from,
                            uint64_t to, visit_run *visit, void *context)
{
    uint64_t element = t->at + i * t->cols + from, box = i / t->rows;
    uint64_t member = t->family ? t->member + slot_value(w, t->member_slot) * t->member_stride + box : 0;
    i %= t->rows;
    uint64_t row = t->row + slot_value(w, t->row_slot) * t->row_stride;
    uint64_t col = t->col + slot_value(w, t->col_slot) * t->col_stride;
    uint64_t across = t->transposed ? col + i : row + i, along = (t->transposed ? row : col) + from;
    uint64_t across_end = t->shape[t->transposed ? 1 : 0], along_end = t->shape[t->transposed ? 0 : 1];
    if (across >= across_end || along >= along_end)
        return STATUS_OK;
    uint64_t n = to - from < along_end - along ? to - from : along_end - along;
    struct run run = {t, member, element, 0, t->transposed ? t->shape[1] : 1, (uint32_t)n};
    run.first = t->transposed ? along * t->shape[1] + across : across * t->shape[1] + along;
    return visit(context, &run);
}

static enum status walk(const struct weights_place *w, const struct bucket *b, uint64_t from, uint64_t to,
                        visit_run *visit, void *context)
{
    for (uint32_t k = 0; k < b->ntensors; k++) {
        const struct tensor *t = &w->p->tensors[b->tensor + k];
        uint64_t end = t->at + (uint64_t)t->rows * t->cols * tensor_boxes(t), lo = from > t->at ? from : t->at,
                 hi = to < end ? to : end;
        for (uint64_t e = lo; e < hi;) {
            uint64_t i = (e - t->at) / t->cols, c = (e - t->at) % t->cols;
            uint64_t n = t->cols - c < hi - e ? t->cols - c : hi - e;
            TRY(walk_row(w, t, i, c, c + n, visit, context));
            e += n;
        }
    }
    return STATUS_OK;
}

struct fill {
    const struct buffer *buffer;
    uint8_t *data;
    uint64_t base; /* bucket element of the buffer's first */
    const struct safetensors *from;
    uint64_t seed;
    struct error *error;
};
enum { CHUNK = 512, NAME_ROOM = 112 };

/* Mixtral's checkpoints have names of their own for what others call mlp.gate and mlp.experts.N.gate_proj,
 * up_proj, down_proj; false: not such a name */
static bool mixtral_name(const char *name, char *out, size_t size)
{
    static const char *const kinds[][2] = {{".gate_proj.", ".w1."}, {".up_proj.", ".w3."}, {".down_proj.", ".w2."}};
    const char *mlp = strstr(name, ".mlp.");
    if (!mlp)
        return false;
    const char *rest = mlp + strlen(".mlp."), *tail = "";
    const char *end = rest + strlen(rest), *with = "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !strncmp(rest, "experts.", 8); i++) {
        const char *at = strstr(rest, kinds[i][0]);
        if (!at)
            continue;
        end = at;
        with = kinds[i][1];
        tail = at + strlen(kinds[i][0]);
    }
    if (!*with && strncmp(rest, "gate.", 5) != 0)
        return false;
    int n = snprintf(out, size, "%.*s.block_sparse_moe.%.*s%s%s", (int)(mlp - name), name, (int)(end - rest), rest,
                     with, tail);
    return n > 0 && (size_t)n < size;
}

/* a tensor in files that may prefix all names, or lack the prefix */
static const struct weight *find_tensor(const struct safetensors *from, const char *name)
{
    static const char *const prefixes[] = {"model.", "transformer."};
    const struct weight *w = safetensors_find(from, name);
    for (size_t i = 0; !w && i < sizeof prefixes / sizeof *prefixes; i++) {
        char longer[128];
        size_t n = strlen(prefixes[i]);
        snprintf(longer, sizeof longer, "%s%s", prefixes[i], name);
        w = safetensors_find(from, strncmp(name, prefixes[i], n) == 0 ? name + n : longer);
    }
    char other[160];
    return !w && mixtral_name(name, other, sizeof other) ? safetensors_find(from, other) : w;
}

static enum status check_weight(const struct tensor *t, const char *name, const struct weight *found,
                                struct error *error)
{
    if (!found)
        return error_set(error, STATUS_INPUT, "the weights lack tensor '%s'", name);
    if (found->dtype == WEIGHT_OTHER)
        return error_set(error, STATUS_INPUT, "tensor '%s' of the weights is neither F32, BF16 nor F16", name);
    bool same = found->ndim == t->ndim && found->shape[t->ndim - 1] == t->shape[1] &&
                (t->ndim == 1 || found->shape[0] == t->shape[0]);
    if (same)
        return STATUS_OK;
    char shape[200] = "";
    for (uint32_t d = 0; d < found->ndim; d++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%llu", d ? " x " : "",
                 (unsigned long long)found->shape[d]);
    if (t->ndim == 1)
        return error_set(error, STATUS_INPUT, "tensor '%s' is %s in the weights, %llu in the plan", name, shape,
                         (unsigned long long)t->shape[1]);
    return error_set(error, STATUS_INPUT, "tensor '%s' is %s in the weights, %llu x %llu in the plan", name, shape,
                     (unsigned long long)t->shape[0], (unsigned long long)t->shape[1]);
}

static void initial_values(const struct tensor *t, const char *name, uint64_t seed, uint64_t first, uint64_t step,
                           uint32_t n, float *out)
{
    switch (t->init) {
    case INIT_NORMAL:
        random_normals(seed, name, first, step, n, t->std, out);
        return;
    case INIT_ONES:
        for (uint32_t i = 0; i < n; i++)
            out[i] = 1;
        return;
    case INIT_ZEROS:
        memset(out, 0, n * sizeof *out);
        return;
    }
}

static enum status fill_run(void *context, const struct run *run)
{
    struct fill *f = context;
    float values[CHUNK];
    char name[NAME_ROOM];
    tensor_name(run->tensor, run->member, name, sizeof name);
    const struct weight *found = f->from ? find_tensor(f->from, name) : NULL;
    if (f->from)
        TRY(check_weight(run->tensor, name, found, f->error));
    for (uint32_t i = 0; i < run->n; i += CHUNK) {
        uint32_t n = run->n - i < CHUNK ? run->n - i : CHUNK;
        uint64_t first = run->first + i * run->step, at = run->element - f->base + i;
        if (found)
            safetensors_load(found, first, run->step, n, values);
        else
            initial_values(run->tensor, name, f->seed, first, run->step, n, values);
        for (uint32_t j = 0; j < n; j++)
            if (f->buffer->dtype == DTYPE_F32)
                ((float *)(void *)f->data)[at + j] = values[j];
            else
                ((uint16_t *)(void *)f->data)[at + j] = f->buffer->dtype == DTYPE_F16 ? f16_round(values[j])
                                                                                      : bf16_round(values[j]);
    }
    return STATUS_OK;
}

/* elements [begin, end) of a buffer's bucket */
struct share {
    const struct weights_place *w;
    struct fill fill;
    uint64_t begin, end;
    enum status status;
    pthread_t thread;
};

static void *fill_share(void *context)
{
    struct share *s = context;
    const struct buffer *b = s->fill.buffer;
    uint64_t size = isa_dtype_bytes(b->dtype);
    memset(s->fill.data + (s->begin - s->fill.base) * size, 0, (s->end - s->begin) * size);
    if (b->kind == BUFFER_PARAM || b->kind == BUFFER_MASTER)
        s->status = walk(s->w, &s->w->p->buckets[b->bucket], s->begin, s->end, fill_run, &s->fill);
    return NULL;
}

/* A normal takes some 20 ns, so large buffers are shared by the cores that ranks leave; values depend on places alone.
 */
static enum status fill_buffer(const struct weights_place *w, const struct fill *fill, uint64_t n)
{
    enum { SHARES = 64, LEAST = 1 << 20 };
    struct share share[SHARES];
    long cores = sysconf(_SC_NPROCESSORS_ONLN) / (long)w->ranks->nranks;
    uint64_t most = cores < 1 || fill->from ? 1
                    : cores > SHARES        ? SHARES
                                            : (uint64_t)cores,
             shares = n / LEAST < most ? n / LEAST : most;
    shares = shares ? shares : 1;
    for (uint64_t i = 0; i < shares; i++) {
        share[i] = (struct share){
            .w = w, .fill = *fill, .begin = fill->base + n / shares * i, .end = fill->base + n / shares * (i + 1)};
        if (i + 1 == shares || pthread_create(&share[i].thread, NULL, fill_share, &share[i])) {
            share[i].end = fill->base + n; /* no more threads than there are: the rest is this one's */
            fill_share(&share[i]);
            shares = i + 1;
        }
    }
    enum status st = share[shares - 1].status;
    for (uint64_t i = 0; i + 1 < shares; i++) {
        pthread_join(share[i].thread, NULL);
        st = st == STATUS_OK ? share[i].status : st;
    }
    return st;
}

/* as the CLIP_SCALED that moves it wants it */
static void begin_scale(const struct weights_place *w, const struct buffer *b)
{
    double *state = (double *)(void *)(w->arena + b->offset);
    memset(state, 0, SCALE_WORDS * sizeof *state);
    for (uint32_t i = 0; i < w->p->ninsns; i++)
        if (w->p->insns[i].op == OP_CLIP_SCALED) {
            const struct attr *attr = &w->p->attrs[w->p->insns[i].attr];
            state[SCALE_FACTOR] = attr[ATTR(CLIP_SCALED, initial)].u.f;
            state[SCALE_PATIENCE] = (double)attr[ATTR(CLIP_SCALED, hysteresis)].u.i;
        }
}

enum status weights_init(const struct weights_place *w, const struct safetensors *from, uint64_t seed,
                         struct error *error)
{
    for (uint32_t i = 0; i < w->p->nbuffers; i++) {
        const struct buffer *b = &w->p->buffers[i];
        if (b->kind == BUFFER_SCALE)
            begin_scale(w, b);
        if (b->bucket == NONE || b->kind == BUFFER_STEP)
            continue;
        uint64_t n = b->bytes / isa_dtype_bytes(b->dtype);
        struct fill fill = {b, w->arena + b->offset, slot_value(w, b->shard_slot) * n, from, seed, error};
        TRY(fill_buffer(w, &fill, n));
    }
    return STATUS_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct weight_plan *)a)->name, ((const struct weight_plan *)b)->name);
}

enum status weights_catalog(const struct program *const *programs, uint32_t nroles, struct weight_plan **out,
                            uint32_t *n, struct error *error)
{
    size_t room = 1, kept = 0;
    for (uint32_t r = 0; r < nroles; r++)
        for (uint32_t i = 0; i < programs[r]->ntensors; i++)
            room += programs[r]->tensors[i].family ? programs[r]->tensors[i].family : 1;
    struct weight_plan *list = calloc(room, sizeof *list + NAME_ROOM); /* names behind the list */
    if (!list)
        return STATUS_WORLD;
    char(*names)[NAME_ROOM] = (void *)(list + room);
    for (uint32_t r = 0; r < nroles; r++)
        for (uint32_t i = 0; i < programs[r]->ntensors; i++) {
            const struct tensor *t = &programs[r]->tensors[i];
            for (uint32_t k = 0; k < (t->family ? t->family : 1); k++, kept++) {
                tensor_name(t, k, names[kept], sizeof *names);
                list[kept] = (struct weight_plan){
                    .name = names[kept], .ndim = t->ndim, .shape = {t->shape[0], t->shape[1]}};
            }
        }
    qsort(list, kept, sizeof *list, by_name);
    uint32_t unique = 0;
    for (size_t i = 0; i < kept; i++) {
        struct weight_plan *last = unique ? &list[unique - 1] : NULL;
        if (!last || strcmp(last->name, list[i].name) != 0) {
            list[unique++] = list[i];
        } else if (last->ndim != list[i].ndim || last->shape[0] != list[i].shape[0] ||
                   last->shape[1] != list[i].shape[1]) {
            enum status st = error_set(error, STATUS_INPUT, "tensor '%s' has different shapes in two programs",
                                       list[i].name);
            free(list);
            return st;
        }
    }
    *out = list;
    *n = unique;
    return STATUS_OK;
}

struct store {
    const struct weights_sink *sink;
    uint64_t base; /* bucket element of values[0] */
    const struct view *values;
    uint32_t row;
};

static enum status store_run(void *context, const struct run *run)
{
    const struct store *s = context;
    char name[NAME_ROOM];
    tensor_name(run->tensor, run->member, name, sizeof name);
    struct weight_plan key = {.name = name};
    const struct weight_plan *t = bsearch(&key, s->sink->catalog, s->sink->ncatalog, sizeof key, by_name);
    uint32_t index = (uint32_t)(t - s->sink->catalog);
    uint8_t *out = safetensors_target(s->sink->files, index);
    const struct view *v = s->values;
    size_t at = (size_t)s->row * v->ld + (size_t)(run->element - s->base);
    for (uint32_t i = 0; i < run->n; i++) {
        float x = !v->data                ? 0
                  : v->dtype == DTYPE_F32 ? ((const float *)v->data)[at + i]
                  : v->dtype == DTYPE_F16 ? f16_load(((const uint16_t *)v->data)[at + i])
                                          : bf16_load(((const uint16_t *)v->data)[at + i]);
        memcpy(out + (run->first + i * run->step) * sizeof x, &x, sizeof x);
    }
    atomic_fetch_add(&s->sink->covered[index], run->n);
    return STATUS_OK;
}

static struct view place_view(const struct weights_place *w, const struct operand *o)
{
    uint64_t at = program_operand_offset(w->p, o);
    if (o->slot != UINT16_MAX)
        at += slot_value(w, o->slot) * o->slot_stride;
    return (struct view){w->arena + at, (enum dtype)o->dtype, false, o->rows, o->cols, o->ld};
}

/* a bucket's master copy in the shape of the part of the working copy that belongs to it */
static struct view master_view(const struct weights_place *w, uint32_t bucket, const struct view *part)
{
    struct view v = *part;
    for (uint32_t i = 0; i < w->p->nbuffers; i++) {
        const struct buffer *b = &w->p->buffers[i];
        if (b->kind != BUFFER_MASTER || b->bucket != bucket ||
            b->bytes != (uint64_t)part->rows * part->ld * isa_dtype_bytes(b->dtype))
            continue;
        v.data = w->arena + b->offset;
        v.dtype = b->dtype;
    }
    return v;
}

/* the elements of a bucket that an optimizer instruction updates, with values from its operand `which`; NONE:
 * zeros */
static void store_updated(const struct weights_place *w, uint32_t insn, uint32_t which, const struct weights_sink *sink)
{
    const struct insn *in = &w->p->insns[insn];
    const struct operand
        *param = &w->p->operands[in->operand + OPND(ADAMW, p)],
        *copy = &w->p->operands[in->operand + (in->op == OP_ADAMW ? OPND(ADAMW, copy) : OPND(SGD, copy))];
    bool fetched = w->p->buffers[param->buffer].bucket == NONE; /* the master copy is kept in host memory */
    if (fetched && (in->op == OP_BIAS_MOVE || copy->buffer == NONE || w->p->buffers[copy->buffer].bucket == NONE))
        return;
    param = fetched ? copy : param;
    const struct buffer *b = &w->p->buffers[param->buffer];
    const struct bucket *bucket = &w->p->buckets[b->bucket];
    if (bucket->count_slot != NONE && !slot_value(w, bucket->count_slot))
        return;
    struct view p = place_view(w, param), values = {.data = NULL};
    if (which != NONE)
        values = place_view(w, &w->p->operands[in->operand + which]);
    if (fetched && which == OPND(ADAMW, p))
        values = master_view(w, b->bucket, &p);
    uint64_t size = isa_dtype_bytes(b->dtype);
    uint64_t first = slot_value(w, b->shard_slot) * (b->bytes / size) +
                     (uint64_t)((uint8_t *)p.data - (w->arena + b->offset)) / size;
    for (uint32_t row = 0; row < p.rows; row++) {
        struct store store = {sink, first + (uint64_t)row * p.ld, &values, row};
        walk(w, bucket, store.base, store.base + p.cols, store_run, &store);
    }
}

static bool is_optimizer(const struct insn *in)
{
    return in->op == OP_ADAMW || in->op == OP_SGD || in->op == OP_BIAS_MOVE; /* what it updates is its first operand */
}

void weights_save(const struct weights_place *w, const struct weights_sink *sink)
{
    for (uint32_t i = 0; i < w->p->ninsns; i++)
        if (is_optimizer(&w->p->insns[i]))
            store_updated(w, i, OPND(ADAMW, p), sink);
}

void weights_save_gradient(const struct weights_place *w, uint32_t insn, const struct weights_sink *sink)
{
    const struct insn *in = &w->p->insns[insn];
    if (is_optimizer(in))
        store_updated(w, insn,
                      in->op == OP_ADAMW ? (uint32_t)OPND(ADAMW, g)
                      : in->op == OP_SGD ? (uint32_t)OPND(SGD, g)
                                         : NONE, /* a bias that is not trained */
                      sink);
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
