/* Property 7: key heads that several tensor-parallel ranks hold.
 *
 * Where there are fewer key heads than ranks, the reference repeats each, once for every rank that attends to it
 * (reference.h): repetition j of the row is rank j's.  The weight itself has no repetitions: the rows of one head lie
 * on all ranks of the digits below `repeats`, and a product reads them as the rank's own repetition.  Gradients of
 * repetitions are rows of another matrix than the weight's gradient; summed over all ranks that hold the head, and only
 * so, they become rows of that. */

#include "compiler/verify/conserve.h"

/* digits of tp that number the ranks with one key head, 0 where no digits are exactly these */
static uint32_t key_digits(const struct conserve *c, int64_t repeats)
{
    const struct mesh *mesh = &c->plan->mesh;
    uint32_t tp = prove_mask(mesh, mesh->dim[MESH_TP]), mask = 0;
    int64_t ranks = 1;
    for (uint32_t d = 0; d < NDIGITS; d++)
        if (tp & AXIS_BIT(d) && mesh_weight(mesh, tp, d) < repeats) {
            mask |= AXIS_BIT(d);
            ranks *= mesh->size[d];
        }
    return ranks == repeats ? mask : 0;
}

/* Do outputs on every rank lie within its key head, the heads by number?  own: within its own repetition of it. */
static bool key_place(const struct conserve *c, const struct weight_unit *u, bool own, const struct extent *e)
{
    const struct mesh *mesh = &c->plan->mesh;
    uint32_t tp = prove_mask(mesh, mesh->dim[MESH_TP]), keys = key_digits(c, u->repeats);
    bool fine = keys && !e->turn && e->lo >= 0 && e->lo + e->len <= u->head;
    for (uint32_t d = 0; fine && d < NDIGITS; d++) {
        int64_t number = tp & AXIS_BIT(d) ? mesh_weight(mesh, tp, d) : 0;
        if (!own)
            number = keys & AXIS_BIT(d) ? 0 : number / u->repeats;
        fine = e->step[d] == number * u->head;
    }
    return fine;
}

/* from a rank's head to its repetition, or back */
static void key_move(const struct conserve *c, const struct weight_unit *u, bool own, struct extent *e)
{
    const struct mesh *mesh = &c->plan->mesh;
    uint32_t tp = prove_mask(mesh, mesh->dim[MESH_TP]), keys = key_digits(c, u->repeats);
    for (uint32_t d = 0; d < NDIGITS; d++)
        if (tp & AXIS_BIT(d)) {
            int64_t weight = mesh_weight(mesh, tp, d);
            e->step[d] = u->head * (own ? weight : keys & AXIS_BIT(d) ? 0 : weight / u->repeats);
        }
}

void conserve_spread(struct conserve *c, struct value *v)
{
    const struct recipe *r = &c->nodes->at[v->node].recipe;
    if (c->reference->repeats < 2 || !conserve_complete(v) || r->op != RECIPE_SOURCE || r->attr[0] != SOURCE_PARAM)
        return;
    const struct weight_unit *u = &c->reference->units[r->attr[1]];
    struct extent *e = u->vector ? &v->col : &v->row;
    if (u->repeats < 2 || !key_place(c, u, false, e))
        return;
    v->node = u->used;
    key_move(c, u, true, e);
}

static const struct weight_unit *made_unit(const struct conserve *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->reference->nunits; i++)
        if (c->reference->units[i].repeats > 1 && c->reference->units[i].made == node)
            return &c->reference->units[i];
    return NULL;
}

/* have all ranks of these digits the same contributions? */
static bool same_contributions(const struct blocks *x, uint32_t mask)
{
    for (uint32_t i = 0; i < x->n; i++)
        for (uint32_t d = 0; d < NDIGITS; d++)
            if (mask & AXIS_BIT(d) &&
                (x->at[i].extent.step[d] || (x->at[i].first | x->at[i].extent.ring) & AXIS_BIT(d)))
                return false;
    return true;
}

uint32_t conserve_fold(struct conserve *c, struct value *v, uint32_t mask)
{
    bool partial = v->node == NODE_ZERO && v->nterms == 1;
    if (c->reference->repeats < 2 || v->kind != VALUE_NODES || (!partial && v->nterms))
        return mask;
    uint32_t node = partial ? v->terms[0].node : v->node;
    const struct weight_unit *u = c->nodes->at[node].weight ? made_unit(c, node) : NULL;
    uint32_t keys = u ? key_digits(c, u->repeats) : 0;
    if (!u || (mask & keys) != keys)
        return mask;
    struct extent *e = u->vector ? &v->col : &v->row;
    if (!key_place(c, u, true, e) || (partial && !same_contributions(&v->terms[0].blocks, keys)))
        return mask;
    key_move(c, u, false, e);
    if (partial) {
        struct term *term = ARENA_NEW(c->scratch, struct term);
        *term = (struct term){u->gradient, v->terms[0].blocks};
        v->terms = term;
    } else {
        v->node = u->gradient;
    }
    return mask & ~keys;
}
