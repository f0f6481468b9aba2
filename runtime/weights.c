/* Walking buckets, and filling buffers with initial or given values. */

#include "runtime/weights_private.h"
#include "runtime/channels.h"
#include "runtime/random.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

uint64_t weights_slot(const struct weights_place *w, uint32_t slot)
{
    return slot == NONE ? 0 : rank_value(w->ranks, w->rank, slot);
}

/* stored row i of all boxes of a tensor, its columns [from, to) */
static enum status walk_row(const struct weights_place *w, const struct tensor *t, uint64_t i, uint64_t from,
                            uint64_t to, weights_visit *visit, void *context)
{
    uint64_t element = t->at + i * t->cols + from, box = i / t->rows;
    uint64_t member = t->family ? t->member + weights_slot(w, t->member_slot) * t->member_stride + box : 0;
    i %= t->rows;
    uint64_t row = t->row + weights_slot(w, t->row_slot) * t->row_stride;
    uint64_t col = t->col + weights_slot(w, t->col_slot) * t->col_stride;
    uint64_t across = t->transposed ? col + i : row + i, along = (t->transposed ? row : col) + from;
    uint64_t across_end = t->shape[t->transposed ? 1 : 0], along_end = t->shape[t->transposed ? 0 : 1];
    if (across >= across_end || along >= along_end)
        return STATUS_OK;
    uint64_t n = to - from < along_end - along ? to - from : along_end - along;
    struct weights_run run = {t, member, element, 0, t->transposed ? t->shape[1] : 1, (uint32_t)n};
    run.first = t->transposed ? along * t->shape[1] + across : across * t->shape[1] + along;
    return visit(context, &run);
}

enum status weights_walk(const struct weights_place *w, const struct bucket *b, uint64_t from, uint64_t to,
                         weights_visit *visit, void *context)
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
enum { CHUNK = 512 };

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

static enum status fill_run(void *context, const struct weights_run *run)
{
    struct fill *f = context;
    float values[CHUNK];
    char name[WEIGHTS_NAME];
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
    if (b->kind == BUFFER_PARAM || b->kind == BUFFER_MASTER || s->fill.from)
        s->status = weights_walk(s->w, &s->w->p->buckets[b->bucket], s->begin, s->end, fill_run, &s->fill);
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

enum status weights_init(const struct weights_place *w, const struct safetensors *const from[NSTATES], uint64_t seed,
                         struct error *error)
{
    for (uint32_t i = 0; i < w->p->nbuffers; i++) {
        const struct buffer *b = &w->p->buffers[i];
        if (b->kind == BUFFER_SCALE)
            begin_scale(w, b);
        if (b->bucket == NONE || b->kind == BUFFER_STEP)
            continue;
        uint64_t n = b->bytes / isa_dtype_bytes(b->dtype);
        enum state state = b->kind == BUFFER_MOMENT1   ? STATE_MOMENT1
                           : b->kind == BUFFER_MOMENT2 ? STATE_MOMENT2
                                                       : STATE_WEIGHT;
        struct fill fill = {
            b, w->arena + b->offset, weights_slot(w, b->shard_slot) * n, from ? from[state] : NULL, seed, error};
        TRY(fill_buffer(w, &fill, n));
    }
    return STATUS_OK;
}

/* what is said of an element: which tensor it is of, in which buffer */
struct told {
    const char *kind;
    char *what;
    size_t size;
};
static enum status tell(void *context, const struct weights_run *run)
{
    const struct told *t = context;
    char name[WEIGHTS_NAME];
    tensor_name(run->tensor, run->member, name, sizeof name);
    snprintf(t->what, t->size, "the %s of %s", t->kind, name);
    return STATUS_OK;
}

bool weights_finite(const struct weights_place *w, char *what, size_t size)
{
    static const char *const kinds[NBUFFER_KINDS] = {[BUFFER_PARAM] = "values",
                                                     [BUFFER_MASTER] = "master copy",
                                                     [BUFFER_MOMENT1] = "first moments",
                                                     [BUFFER_MOMENT2] = "second moments"};
    for (uint32_t k = 0; k < w->p->nbuffers; k++) {
        const struct buffer *b = &w->p->buffers[k];
        uint64_t n = b->bytes / isa_dtype_bytes(b->dtype);
        for (uint64_t i = 0; b->bucket != NONE && kinds[b->kind] && i < n; i++) {
            if (isfinite(weights_value(b->dtype, w->arena + b->offset, i)))
                continue;
            uint64_t at = weights_slot(w, b->shard_slot) * n + i;
            struct told t = {kinds[b->kind], what, size};
            snprintf(what, size, "the %s between tensors", t.kind);
            weights_walk(w, &w->p->buckets[b->bucket], at, at + 1, tell, &t);
            return false;
        }
    }
    return true;
}
