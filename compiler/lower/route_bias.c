/* A router's correction bias (DeepSeek-AI, arXiv 2408.15664): it is not trained by gradients, but moved once per
 * step against the load of each expert.  Its bucket is fp32 and whole on every rank; in place of a gradient it has
 * the number of times that each expert was chosen in the step, counted over its microbatches and summed over all
 * ranks that route tokens. */

#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"
#include "compiler/lower/operators.h"

bool lower_bounds_experts(const struct lower *l)
{
    const struct model *m = &l->job->model;
    for (uint32_t i = 0; i < model_all_layers(m); i++)
        if (model_layer(m, i)->is_moe) {
            struct expert_rows r = lower_expert_rows(l, &model_layer(m, i)->moe);
            if (r.bounded || r.node_bounded)
                return true;
        }
    return false;
}

static bool moves(const struct moe *m)
{
    return m->bias;
}

static struct mat load_mat(const struct lower *l, const struct weight_place *w)
{
    return (struct mat){
        l->buckets[w->bucket].gradient, NONE, w->at * sizeof(double), 1, w->cols, w->cols, DTYPE_F64, NONE, 0};
}

struct mat lower_load(struct lower *l, uint32_t piece, const struct opr *router, enum mark *mark)
{
    uint32_t bias = router->bias + router->nbiases - 1;
    *mark = lower_contribution(l, piece, bias);
    return load_mat(l, &l->pieces[piece].weights[bias]);
}

static uint32_t next_layer(const struct lower *l, uint32_t after)
{
    uint32_t next = NONE;
    for (uint32_t p = 0; p < l->npieces; p++)
        if (l->pieces[p].layer != NONE && (after == NONE || l->pieces[p].layer > after) && l->pieces[p].layer < next)
            next = l->pieces[p].layer;
    return next;
}

typedef void write_router(struct lower *l, uint32_t piece, const struct opr *router);

static void each_of_piece(struct lower *l, uint32_t piece, write_router *write)
{
    const struct piece *pc = &l->pieces[piece];
    l->layer = pc->layer;
    for (uint32_t i = 0; i < pc->e->noprs; i++) {
        l->line = pc->line[i];
        if (pc->e->oprs[i].kind == OPR_ROUTER && moves(pc->e->oprs[i].moe))
            write(l, piece, &pc->e->oprs[i]);
    }
}

/* Every router of the role that moves its bias, in order of layers, so that both ranks of a mirror pair have the
 * same order. */
static void each_router(struct lower *l, write_router *write)
{
    for (uint32_t layer = next_layer(l, NONE); layer != NONE; layer = next_layer(l, layer))
        for (uint32_t p = 0; p < l->npieces; p++)
            if (l->pieces[p].layer == layer)
                each_of_piece(l, p, write);
    l->layer = NONE;
    l->line = 0;
}

static void reduce(struct lower *l, uint32_t piece, const struct opr *router)
{
    struct mat load = load_mat(l, &l->pieces[piece].weights[router->bias + router->nbiases - 1]);
    uint32_t mask = l->sp ? l->mesh.dim[MESH_TP] : 0;
    mask |= l->d->dp > 1 ? l->mesh.dim[MESH_DP] : 0;
    mask |= l->d->cp > 1 ? l->mesh.dim[MESH_CP] : 0;
    if (l->copies > 1)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_DP, GROUP_TIE, load, load);
    if (mask)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_DP, mask, load, load);
}

static void move(struct lower *l, uint32_t piece, const struct opr *router)
{
    struct mat load = load_mat(l, &l->pieces[piece].weights[router->bias + router->nbiases - 1]);
    uint32_t mask = l->mesh.dim[MESH_TP] | l->mesh.dim[MESH_CP] | l->mesh.dim[MESH_DP];
    struct bucket *b = &l->p->buckets[l->pieces[piece].weights[router->bias + router->nbiases - 1].bucket];
    if (!l->buckets[l->pieces[piece].weights[router->bias + router->nbiases - 1].bucket].counts)
        mask = l->mesh.dim[MESH_PP]; /* the mirror rank saves the bias */
    b->count_slot = mesh_group_size(&l->mesh, mask) > 1 ? lower_slot(l, SLOT_FIRST, mask) : NONE;
    struct mat scale = {l->scale, NONE, 0, 1, 1, 1, DTYPE_F64, NONE, 0};
    EMIT(l, BIAS_MOVE, .bias = lower_vector(l, piece, router, router->nbiases - 1, false), .load = load, .scale = scale,
         .rate = router->moe->rate);
}

void lower_load_reduce(struct lower *l)
{
    each_router(l, reduce);
}

void lower_bias_move(struct lower *l)
{
    each_router(l, move);
}
