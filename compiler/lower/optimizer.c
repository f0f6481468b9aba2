/* The beginning of a step, and the optimizer.
 *
 * Every rank adds its share of the squared norm and of the loss to the metrics block, which is summed over all
 * ranks. */

#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"
#include "compiler/lower/operators.h"
#include "compiler/lower/shard.h"
#include "compiler/lower/step.h"

struct mat lower_metric(const struct lower *l, uint32_t first, uint32_t n)
{
    return (struct mat){l->metrics, NONE, first * sizeof(double), 1, n, n, DTYPE_F64, NONE, 0};
}

struct mat lower_loss_factor(const struct lower *l)
{
    return (struct mat){l->loss_scale, NONE, SCALE_FACTOR * sizeof(double), 1, 1, 1, DTYPE_F64, NONE, 0};
}

static void seam(struct lower *l)
{
    EMIT(l, SEAM, .step = lower_step_block(l));
}

static void clear_metrics(struct lower *l)
{
    EMIT(l, FILL, .y = lower_metric(l, 0, METRIC_WORDS), .value = 0);
}

/* the previous step's metrics are needed until this seam */
void lower_first_seam(struct lower *l)
{
    l->seam_next = false;
    seam(l);
    clear_metrics(l);
}

void lower_head_of_step(struct lower *l)
{
    l->action = 'H';
    l->microbatch = l->layer = NONE;
    l->line = 0;
    if (!l->skews)
        clear_metrics(l);
    /* in the order of first use: the vectors' buckets come last in the list, but the first norm needs them */
    for (int pieces = 0; pieces < 2; pieces++)
        for (uint32_t b = 0; b < l->nbuckets; b++) {
            const struct bucket_info *info = &l->buckets[b];
            if (info->moved || (info->piece != NONE) != pieces || !info->shard || info->gathers)
                continue;
            struct mat m = lower_flat(info->param, l->ctype, l->p->buckets[b].elements);
            lower_collective(l, OP_ALL_GATHER, lower_dp_queue(l), info->shard, lower_own_param(l, b), m);
        }
    lower_gather_first(l);
}

void lower_metrics_reduce(struct lower *l)
{
    if (l->d->gpus_used > 1)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_DP, l->mesh.dim[MESH_WORLD], lower_metric(l, 0, METRIC_SUMS),
                         lower_metric(l, 0, METRIC_SUMS));
    if (l->d->gpus_used > 1 && lower_bounds_experts(l))
        lower_maximum(l, QUEUE_DP, l->mesh.dim[MESH_WORLD], lower_metric(l, METRIC_NEED, 2));
}

static void square_norm(struct lower *l, uint32_t bucket)
{
    const struct bucket_info *b = &l->buckets[bucket];
    struct mat g = lower_own_gradient(l, bucket);
    uint32_t mask = 0;
    if (!b->split && l->d->tp > 1)
        mask |= l->mesh.dim[MESH_TP];
    mask |= b->replica;
    uint32_t slot = mask && b->counts ? lower_slot(l, SLOT_FIRST, mask) : NONE;
    /* the copy of a tied embedding is on a later stage than the first, where first(pp) is never 1: it is neither
     * counted nor saved */
    l->p->buckets[bucket].count_slot = b->counts ? slot : lower_slot(l, SLOT_FIRST, l->mesh.dim[MESH_PP]);
    EMIT(l, SQNORM, .sum = mat_add(lower_metric(l, METRIC_SQNORM, 1)), .g = g,
         .count = bind_to(b->counts && !mask, slot, 1));
}

/* A bucket's optimizer state.  Offloaded state is fetched from host memory to one of two buffers on the device and
 * put back, on the copy queue. */
struct state {
    struct mat master, m, v;
};

static struct mat state_mat(const struct lower *l, uint32_t buffer, uint64_t elements)
{
    return buffer == NONE ? (struct mat){.buffer = NONE}
                          : lower_flat(buffer, (enum dtype)l->p->buffers[buffer].dtype, elements);
}

static struct state state_at(const struct lower *l, uint32_t bucket)
{
    const struct bucket_info *b = &l->buckets[bucket];
    return (struct state){state_mat(l, b->master, b->own), state_mat(l, b->moment1, b->own),
                          state_mat(l, b->moment2, b->own)};
}

static struct mat place_of(struct lower *l, const char *name, uint32_t place, struct mat m)
{
    if (m.buffer == NONE)
        return m;
    return lower_temp(l, arena_printf(l->arena, "%s%u", name, place), m.dtype, m.rows, m.cols);
}

static struct state places_of(struct lower *l, uint32_t bucket, uint32_t place)
{
    struct state s = state_at(l, bucket);
    s.master = place_of(l, "master", place, s.master);
    s.m = place_of(l, "m", place, s.m);
    s.v = place_of(l, "v", place, s.v);
    return s;
}

void lower_copy(struct lower *l, struct mat to, struct mat from)
{
    if (from.buffer == NONE)
        return;
    EMIT(l, COPY, .y = to, .x = from);
    lower_last(l)->queue = QUEUE_COPY;
}

static void copy_state(struct lower *l, struct state to, struct state from)
{
    lower_copy(l, to.master, from.master);
    lower_copy(l, to.m, from.m);
    lower_copy(l, to.v, from.v);
}

static void update(struct lower *l, uint32_t bucket, struct state s)
{
    const struct train *t = &l->job->train;
    struct mat g = lower_own_gradient(l, bucket), param = lower_own_param(l, bucket);
    struct mat step = lower_step_block(l);
    struct mat p = s.master.buffer == NONE ? param : s.master;
    struct mat copy = s.master.buffer == NONE ? mat_none() : param;
    struct mat scale = {l->scale, NONE, 0, 1, 1, 1, DTYPE_F64, NONE, 0};
    double decay = l->p->buckets[bucket].decay ? t->weight_decay : 0;
    if (t->optimizer == OPT_SGD) {
        EMIT(l, SGD, .p = p, .copy = copy, .m = s.m, .g = g, .scale = scale, .step = step, .momentum = t->momentum,
             .decay = decay);
        return;
    }
    EMIT(l, ADAMW, .p = p, .copy = copy, .m = s.m, .v = s.v, .g = g, .scale = scale, .step = step, .beta1 = t->beta1,
         .beta2 = t->beta2, .eps = t->eps, .decay = decay);
}

/* Predicts the parameters that the next step starts with if this step's gradients are not clipped (post-validation). */
static void foretell(struct lower *l, uint32_t bucket)
{
    const struct train *t = &l->job->train;
    struct state s = state_at(l, bucket);
    EMIT(l, ADAMW_AHEAD, .copy = lower_own_param(l, bucket), .p = s.master, .m = s.m, .v = s.v,
         .g = lower_own_gradient(l, bucket), .step = lower_step_block(l), .beta1 = t->beta1, .beta2 = t->beta2,
         .eps = t->eps, .decay = l->p->buckets[bucket].decay ? t->weight_decay : 0);
}

/* The next bucket's state is fetched before this one's is put back, so that the fetch overlaps with the update. */
static void update_all(struct lower *l)
{
    bool parked = l->job->wishes.offload & OFFLOAD_OPTIMIZER;
    uint32_t last = NONE, place = 0;
    struct state fetched = {{.buffer = NONE}, {.buffer = NONE}, {.buffer = NONE}};
    for (uint32_t b = 0; b < l->nbuckets; b++) {
        if (l->buckets[b].moved)
            continue;
        if (!parked) {
            update(l, b, state_at(l, b));
            continue;
        }
        struct state next = places_of(l, b, place++ % 2);
        copy_state(l, next, state_at(l, b));
        if (last != NONE) {
            update(l, last, fetched);
            copy_state(l, state_at(l, last), fetched);
        }
        fetched = next;
        last = b;
    }
    if (last != NONE) {
        update(l, last, fetched);
        copy_state(l, state_at(l, last), fetched);
    }
}

static void clip(struct lower *l)
{
    const struct train *t = &l->job->train;
    struct mat scale = {l->scale, NONE, 0, 1, 1, 1, DTYPE_F64, NONE, 0};
    struct mat need = lower_bounds_experts(l) ? lower_metric(l, METRIC_NEED, 2) : mat_none(),
               sum = lower_metric(l, METRIC_SQNORM, 1);
    if (l->loss_scale == NONE) {
        EMIT(l, CLIP, .scale = scale, .sum = sum, .need = need, .limit = t->clip);
        return;
    }
    struct mat state = {l->loss_scale, NONE, 0, 1, SCALE_WORDS, SCALE_WORDS, DTYPE_F64, NONE, 0};
    EMIT(l, CLIP_SCALED, .scale = scale, .sum = sum, .state = state, .need = need, .limit = t->clip,
         .initial = t->loss_scale, .window = (int64_t)t->scale_window, .hysteresis = (int64_t)t->scale_hysteresis);
}

void lower_optimizer(struct lower *l)
{
    lower_close_gradients(l);
    l->action = 'O';
    l->microbatch = l->layer = NONE;
    l->line = 0;
    lower_load_reduce(l);
    for (uint32_t b = 0; b < l->nbuckets; b++)
        if (!l->buckets[b].moved)
            square_norm(l, b);
    for (uint32_t b = 0; l->skews && b < l->nbuckets; b++)
        foretell(l, b);
    if (l->skews)
        seam(l);
    lower_metrics_reduce(l);
    clip(l);
    update_all(l);
    lower_bias_move(l);
}
