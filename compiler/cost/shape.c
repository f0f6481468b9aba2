/* The blocks of a model: which of its layers are equal, and each distinct one, the embedding, the head and a
 * prediction module for a decision (block.c). */

#include "compiler/cost/cost_private.h"

struct cost_kinds cost_kinds_new(struct arena *a, const struct model *m)
{
    uint32_t room = m->nlayers ? m->nlayers : 1;
    struct cost_kinds k = {.kind = ARENA_ARRAY(a, uint32_t, room), .run = ARENA_ARRAY(a, uint32_t, room)};
    const struct layer **seen = ARENA_ARRAY(a, const struct layer *, room);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        uint32_t at = i && m->layers[i] == m->layers[i - 1] ? k.kind[i - 1] : 0;
        while (at < k.n && seen[at] != m->layers[i])
            at++;
        if (at == k.n)
            seen[k.n++] = m->layers[i];
        k.kind[i] = at;
    }
    for (uint32_t i = m->nlayers; i-- > 0;)
        k.run[i] = i + 1 < m->nlayers && k.kind[i] == k.kind[i + 1] ? k.run[i + 1] + 1 : 1;
    k.layers = ARENA_ARRAY(a, const struct expansion *, k.n ? k.n : 1);
    for (uint32_t i = 0; i < k.n; i++)
        k.layers[i] = expand_layer(a, m, seen[i]);
    k.embed = expand_embed(a, m);
    k.head = expand_head(a, m);
    if (m->predict)
        k.predict = expand_predict(a, m, 1);
    return k;
}

/* The distinct layers without recomputation, for stages that spare some of their layers from it. */
static struct cost_block *spared_layers(struct arena *a, const struct cost *c, const struct cost_kinds *k)
{
    struct decision none = *c->decision;
    struct cost spared = *c;
    none.recompute = RECOMPUTE_NONE;
    none.parts = 0;
    spared.decision = &none;
    struct cost_block *layers = ARENA_ARRAY(a, struct cost_block, k->n ? k->n : 1);
    for (uint32_t i = 0; i < k->n; i++)
        layers[i] = cost_block_make(a, &spared, k->layers[i], true, NULL);
    return layers;
}

static bool has_experts(const struct expansion *e)
{
    for (uint32_t i = 0; i < e->noprs; i++)
        if (e->oprs[i].kind == OPR_EXPERTS || e->oprs[i].kind == OPR_ROUTER)
            return true;
    return false;
}

/* Makes a layer, or a prediction module with its layer, its projection and a second head, unless it has been made. */
static struct cost_block make_layer(struct arena *a, const struct cost *c, const struct expansion *e,
                                    const struct cost_block *here, const struct cost_block *none)
{
    return here && !has_experts(e) ? *here : cost_block_make(a, c, e, true, none);
}

/* plain: NULL, or a shape whose blocks without experts are reused; none: NULL, or the shape without recomputation. */
static void make_layers(struct arena *a, const struct cost *c, const struct cost_kinds *k,
                        const struct cost_shape *plain, const struct cost_shape *none, struct cost_shape *s)
{
    struct cost_block *layers = ARENA_ARRAY(a, struct cost_block, k->n ? k->n : 1);
    for (uint32_t i = 0; i < k->n; i++)
        layers[i] = make_layer(a, c, k->layers[i], plain ? &plain->layers[i] : NULL, none ? &none->layers[i] : NULL);
    s->layers = layers;
    if (c->job->model.predict)
        s->predict = make_layer(a, c, k->predict, plain ? &plain->predict : NULL, none ? &none->predict : NULL);
}

void cost_shape_plain(struct arena *a, const struct cost *c, const struct cost_kinds *k, struct cost_shape *s)
{
    *s = (struct cost_shape){.ndistinct = k->n, .kind = k->kind, .run = k->run};
    s->layers = ARENA_ARRAY(a, struct cost_block, k->n ? k->n : 1);
    for (uint32_t i = 0; i < k->n; i++)
        if (!has_experts(k->layers[i]))
            s->layers[i] = cost_block_make(a, c, k->layers[i], true, NULL);
    if (c->job->model.predict && !has_experts(k->predict))
        s->predict = cost_block_make(a, c, k->predict, true, NULL);
    if (c->decision->recompute != RECOMPUTE_NONE)
        return;
    s->embed = cost_block_make(a, c, k->embed, false, NULL);
    s->head = cost_block_make(a, c, k->head, false, NULL);
}

void cost_shape_fill(struct arena *a, const struct cost *c, const struct cost_kinds *k, const struct cost_shape *plain,
                     struct cost_shape *s)
{
    const struct model *m = &c->job->model;
    const struct decision *d = c->decision;
    bool none = d->recompute == RECOMPUTE_NONE, known = plain && none;
    *s = (struct cost_shape){.ndistinct = k->n, .kind = k->kind, .run = k->run};
    make_layers(a, c, k, plain, NULL, s);
    s->spared = none ? s->layers : spared_layers(a, c, k);
    s->embed = known ? plain->embed : cost_block_make(a, c, k->embed, false, NULL);
    s->head = known ? plain->head : cost_block_make(a, c, k->head, false, NULL);
    double element = c->job->train.precision == DT_FP32 ? 4 : 2;
    double rows = (double)c->job->train.sequence * d->microbatch / d->cp / (d->sp ? d->tp : 1);
    s->boundary_bytes = rows * (double)m->width * element;
}

void cost_shape_init(struct arena *a, const struct cost *c, const struct cost_kinds *k, struct cost_shape *s)
{
    cost_shape_fill(a, c, k, NULL, s);
}

void cost_shape_vary(struct arena *a, const struct cost *c, const struct cost_kinds *k, const struct cost_shape *none,
                     const struct cost_shape *plain, struct cost_shape *s)
{
    *s = *none;
    make_layers(a, c, k, plain, none, s);
}

void cost_shape_layers(const struct cost_shape *s, uint32_t nlayers, double *layer_s, double *embed_s, double *head_s)
{
    for (uint32_t i = 0; i < nlayers; i++) {
        const struct cost_block *b = &s->layers[s->kind[i]];
        layer_s[i] = b->forward_s + b->backward_s + b->forward_comm_s + b->backward_comm_s;
    }
    const struct cost_block *e = &s->embed, *h = &s->head, *p = &s->predict;
    *embed_s = e->forward_s + e->backward_s + e->forward_comm_s + e->backward_comm_s;
    *head_s = h->forward_s + h->backward_s + h->forward_comm_s + h->backward_comm_s;
    *head_s += p->forward_s + p->backward_s + p->forward_comm_s + p->backward_comm_s;
}

void cost_layers(struct arena *a, const struct cost *c, double *layer_s, double *embed_s, double *head_s)
{
    struct arena_mark mark = arena_mark(a);
    struct cost_kinds kinds = cost_kinds_new(a, &c->job->model);
    struct cost_shape s;
    cost_shape_init(a, c, &kinds, &s);
    cost_shape_layers(&s, c->job->model.nlayers, layer_s, embed_s, head_s);
    arena_reset(a, mark);
}
