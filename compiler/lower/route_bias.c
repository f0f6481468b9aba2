/* A router's correction bias (DeepSeek-AI, arXiv 2408.15664): not trained by gradients, but moved once per step against
 * the load of each expert.  Its bucket is fp32 and whole on every rank; in place of a gradient it has the choices of the
 * step, counted over its microbatches and summed over all ranks that route tokens. */

#include "compiler/lower/build.h"

bool lower_bounds_experts(const struct lower *l)
{
    const struct model *m = &l->job->model;
    for (uint32_t i = 0; i < m->nlayers; i++)
        if (m->layers[i]->is_moe && lower_expert_rows(l, &m->layers[i]->moe).bounded)
            return true;
    return false;
}

static bool moves(const struct moe *m)
{
    return m->bias;
}

static struct mat load_mat(const struct lower *l, const struct weight_place *w)
{
    return (struct mat){l->buckets[w->bucket].gradient, NONE, w->at * sizeof(double), 1, w->cols, w->cols, DTYPE_F64, NONE, 0};
}

struct mat lower_load(struct lower *l, uint32_t piece, const struct opr *router, enum mark *mark)
{
    uint32_t bias = router->bias + router->nbiases - 1;
    *mark = lower_contribution(l, piece, bias);
    return load_mat(l, &l->pieces[piece].weights[bias]);
}

/* calls write() for every router of the role that moves its bias */
static void each_router(struct lower *l, void (*write)(struct lower *l, uint32_t piece, const struct opr *router))
{
    for (uint32_t p = 0; p < l->npieces; p++)
        for (uint32_t i = 0; i < l->pieces[p].e->noprs; i++) {
            const struct opr *o = &l->pieces[p].e->oprs[i];
            if (o->kind != OPR_ROUTER || !moves(o->moe))
                continue;
            l->layer = l->pieces[p].layer;
            l->line = l->pieces[p].line[i];
            write(l, p, o);
        }
    l->layer = NONE;
    l->line = 0;
}

static void reduce(struct lower *l, uint32_t piece, const struct opr *router)
{
    struct mat load = load_mat(l, &l->pieces[piece].weights[router->bias + router->nbiases - 1]);
    uint32_t mask = l->sp ? l->mesh.dim[MESH_TP] : 0;
    mask |= l->d->dp > 1 ? l->mesh.dim[MESH_DP] : 0;
    mask |= l->d->cp > 1 ? l->mesh.dim[MESH_CP] : 0;
    if (mask)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_DP, mask, load, load);
}

static void move(struct lower *l, uint32_t piece, const struct opr *router)
{
    struct mat load = load_mat(l, &l->pieces[piece].weights[router->bias + router->nbiases - 1]);
    uint32_t mask = l->mesh.dim[MESH_TP] | l->mesh.dim[MESH_CP] | l->mesh.dim[MESH_DP];
    struct bucket *b = &l->p->buckets[l->pieces[piece].weights[router->bias + router->nbiases - 1].bucket];
    b->count_slot = mesh_group_size(&l->mesh, mask) > 1 ? lower_slot(l, SLOT_FIRST, mask) : NONE;
    struct mat scale = {l->scale, NONE, 0, 1, 1, 1, DTYPE_F64, NONE, 0};
    uint32_t i = lower_insn(l, OP_BIAS_MOVE);
    ARG(l, i, BIAS_MOVE, bias, lower_vector(l, piece, router, router->nbiases - 1, false), MARK_UPDATE);
    ARG(l, i, BIAS_MOVE, load, load, MARK_READ);
    ARG(l, i, BIAS_MOVE, scale, scale, MARK_READ);
    ATTR_REAL_SET(l, i, BIAS_MOVE, rate, router->moe->rate);
}

void lower_load_reduce(struct lower *l)
{
    each_router(l, reduce);
}

void lower_bias_move(struct lower *l)
{
    each_router(l, move);
}
