/* Property 7: what the optimizer does to parameters and moments.
 *
 * It must find parameter, moments and the whole batch's gradient of the same elements side by side, with the model's
 * numbers, and the factor by which the whole gradient is clipped. */

#include "compiler/verify/conserve.h"

#include <assert.h>

uint32_t conserve_updated(struct machine *m, uint32_t node)
{
    struct recipe r = {.op = RECIPE_UPDATED, .input = {node}};
    uint32_t have = nodes_find(m->c->nodes, &r);
    if (have != NONE)
        return have;
    const struct node *n = &m->c->nodes->at[node];
    return nodes_add(m->c->nodes, &r, arena_printf(m->c->scratch, "updated %s", n->name), n->cols, 0);
}

/* the unit that a value is the parameter of, or of some of it; NULL if it is no parameter */
static const struct weight_unit *unit_of(const struct machine *m, const struct value *v)
{
    const struct recipe *r = &m->c->nodes->at[v->node].recipe;
    if (v->nterms || r->op != RECIPE_SOURCE || r->attr[0] != SOURCE_PARAM)
        return NULL;
    assert(r->attr[1] < m->c->reference->nunits);
    return &m->c->reference->units[r->attr[1]];
}

/* One operand of the update: zeros where the parameters are padded, of which nobody looks at what comes of them; for
 * the rest see check_value(). */
static bool beside(struct machine *m, uint32_t i, size_t k, const struct whole *p, uint32_t mask, struct whole *out)
{
    const char *name = isa_info(m->program->insns[i].op)->operand[k].name;
    uint32_t mine;
    if (!conserve_read_flat(m, i, k, out, &mine))
        return false;
    if (mine != mask)
        return conserve_fail(m, i, "its operand %s is not the same shard as the parameters", name);
    for (uint32_t e = 0, j = 0; e < p->n; e++) {
        const struct stretch *x = &p->at[e];
        while (j < out->n && out->at[j].at + out->at[j].n <= x->at)
            j++;
        for (uint32_t y = j; x->value.kind == VALUE_ZERO && y < out->n && out->at[y].at < x->at + x->n; y++)
            if (out->at[y].value.kind != VALUE_ZERO)
                return conserve_fail(m, i, "its operand %s holds %s at element %llu, where the parameters are padded",
                                     name, value_text(m->c->arena, m->c->nodes, &out->at[y].value),
                                     (unsigned long long)out->at[y].at);
    }
    return true;
}

static const struct value *value_at(const struct whole *w, uint64_t at)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->at[i].at == at)
            return &w->at[i].value;
    return NULL;
}

static bool check_value(struct machine *m, uint32_t i, const struct whole *w, uint64_t at, uint32_t node,
                        const struct value *p, const char *what)
{
    const struct value *v = value_at(w, at);
    if (v && v->kind == VALUE_NODES && v->node == node && !v->nterms && value_same_place(v, p))
        return true;
    return conserve_fail_inputs(m, i, "to update %s it reads as %s %s, expected %s", nodes_name(m->c->nodes, p->node),
                                what, v ? value_text(m->c->arena, m->c->nodes, v) : "nothing",
                                nodes_name(m->c->nodes, node));
}

static bool check_number(struct machine *m, uint32_t i, size_t attr, double want)
{
    double have = prove_attr(m->program, i, attr)->u.f;
    if (have == want)
        return true;
    return conserve_fail(m, i, "attribute %s is %.17g, in the model %.17g",
                         isa_info(m->program->insns[i].op)->attr[attr].name, have, want);
}

static bool check_hyper(struct machine *m, uint32_t i, bool adam, bool decay)
{
    const struct train *t = &m->c->plan->job->train;
    double wanted = decay ? t->weight_decay : 0;
    if (adam != (t->optimizer == OPT_ADAMW))
        return conserve_fail(m, i, "the model asks for another optimizer");
    if (!adam)
        return check_number(m, i, ATTR(SGD, momentum), t->momentum) && check_number(m, i, ATTR(SGD, decay), wanted);
    return check_number(m, i, ATTR(ADAMW, beta1), t->beta1) && check_number(m, i, ATTR(ADAMW, beta2), t->beta2) &&
           check_number(m, i, ATTR(ADAMW, eps), t->eps) && check_number(m, i, ATTR(ADAMW, decay), wanted);
}

static bool check_scalars(struct machine *m, uint32_t i, size_t scale, size_t step)
{
    struct value v;
    if (scale != NONE && !conserve_read(m, i, scale, &v))
        return false;
    if (scale != NONE && v.node != m->c->reference->clip)
        return conserve_fail(m, i, "its scale is %s, expected the clipping factor", nodes_name(m->c->nodes, v.node));
    if (!conserve_read(m, i, step, &v))
        return false;
    return v.node == m->c->reference->block ||
           conserve_fail(m, i, "its step block is %s", nodes_name(m->c->nodes, v.node));
}

static bool write_updated(struct machine *m, uint32_t i, size_t k, const struct whole *old, uint32_t mask)
{
    const struct operand *o = prove_operand(m->program, i, k);
    if (o->buffer == NONE)
        return true;
    struct whole w = {old->elements, old->n, ARENA_ARRAY(m->c->scratch, struct stretch, old->n + 1u)};
    for (uint32_t e = 0; e < old->n; e++) {
        w.at[e] = old->at[e];
        if (w.at[e].value.kind == VALUE_NODES)
            w.at[e].value.node = conserve_updated(m, w.at[e].value.node);
    }
    return store_write_flat(m->store, o, &w, mask, i) || conserve_fail(m, i, "its output can't hold these elements");
}

/* operands of an update by what they are; NONE: it has none */
struct form {
    bool adam, ahead;
    size_t p, copy, m, v, g, scale, step;
};

static bool write_all(struct machine *m, uint32_t i, const struct form *f, const struct whole *p,
                      const struct whole *first, const struct whole *second, uint32_t mask)
{
    if (!write_updated(m, i, f->copy, p, mask) || f->ahead)
        return !m->c->failed;
    return write_updated(m, i, f->p, p, mask) && (!first->n || write_updated(m, i, f->m, first, mask)) &&
           (!f->adam || write_updated(m, i, f->v, second, mask));
}

/* ADAMW_AHEAD is what ADAMW will be, without a scale, and leaves only the copy (skew.c says why that is right) */
static bool update(struct machine *m, uint32_t i, const struct form *f)
{
    bool moment = prove_operand(m->program, i, f->m)->buffer != NONE;
    struct whole p, first = {0}, second = {0}, g;
    uint32_t mask;
    if (!check_scalars(m, i, f->scale, f->step) || !conserve_read_flat(m, i, f->p, &p, &mask) ||
        (moment && !beside(m, i, f->m, &p, mask, &first)) || (f->adam && !beside(m, i, f->v, &p, mask, &second)) ||
        !beside(m, i, f->g, &p, mask, &g))
        return false;
    if (!f->adam && moment != (m->c->plan->job->train.momentum > 0))
        return conserve_fail(m, i, "momentum %s", moment ? "is kept, but the model has none" : "is missing");
    for (uint32_t e = 0; e < p.n; e++) {
        const struct value *v = &p.at[e].value;
        if (v->kind == VALUE_ZERO)
            continue;
        const struct weight_unit *u = v->kind == VALUE_NODES ? unit_of(m, v) : NULL;
        if (!u)
            return conserve_fail(m, i, "it updates %s, expected a parameter", value_text(m->c->arena, m->c->nodes, v));
        if (!check_hyper(m, i, f->adam, u->decay) ||
            (moment && !check_value(m, i, &first, p.at[e].at, u->moment[0], v, "first moment")) ||
            (f->adam && !check_value(m, i, &second, p.at[e].at, u->moment[1], v, "second moment")) ||
            !check_value(m, i, &g, p.at[e].at, u->gradient, v, "gradient"))
            return false;
    }
    return write_all(m, i, f, &p, &first, &second, mask);
}

bool rule_ADAMW(struct machine *m, uint32_t i)
{
    struct form f = {true,           false,          OPND(ADAMW, p),     OPND(ADAMW, copy), OPND(ADAMW, m),
                     OPND(ADAMW, v), OPND(ADAMW, g), OPND(ADAMW, scale), OPND(ADAMW, step)};
    return update(m, i, &f);
}

bool rule_ADAMW_AHEAD(struct machine *m, uint32_t i)
{
    struct form f = {true,
                     true,
                     OPND(ADAMW_AHEAD, p),
                     OPND(ADAMW_AHEAD, copy),
                     OPND(ADAMW_AHEAD, m),
                     OPND(ADAMW_AHEAD, v),
                     OPND(ADAMW_AHEAD, g),
                     NONE,
                     OPND(ADAMW_AHEAD, step)};
    return update(m, i, &f);
}

bool rule_SGD(struct machine *m, uint32_t i)
{
    struct form f = {false, false,        OPND(SGD, p),     OPND(SGD, copy), OPND(SGD, m),
                     NONE,  OPND(SGD, g), OPND(SGD, scale), OPND(SGD, step)};
    return update(m, i, &f);
}

/* the seam itself does nothing; skew.c says where it may stand */
bool rule_SEAM(struct machine *m, uint32_t i)
{
    (void)m;
    (void)i;
    return true;
}

/* A correction bias, moved by the whole step's load.  Both are whole: they have as many columns as ROUTE needs of the
 * bias. */
bool rule_BIAS_MOVE(struct machine *m, uint32_t i)
{
    struct whole w;
    struct value load, scale;
    uint32_t mask;
    if (!conserve_read(m, i, OPND(BIAS_MOVE, load), &load) || !conserve_read(m, i, OPND(BIAS_MOVE, scale), &scale) ||
        !conserve_read_flat(m, i, OPND(BIAS_MOVE, bias), &w, &mask))
        return false;
    const struct weight_unit *u = w.n == 1 && w.at[0].value.kind == VALUE_NODES ? unit_of(m, &w.at[0].value) : NULL;
    if (!u || !u->moved)
        return conserve_fail(m, i, "it moves %s, expected a whole correction bias",
                             w.n ? value_text(m->c->arena, m->c->nodes, &w.at[0].value) : "nothing");
    if (load.node != u->gradient)
        return conserve_fail_inputs(m, i, "to move %s it reads %s", u->name,
                                    value_text(m->c->arena, m->c->nodes, &load));
    if (scale.node != m->c->reference->clip)
        return conserve_fail(m, i, "its scale is %s, expected the clipping factor",
                             nodes_name(m->c->nodes, scale.node));
    return check_number(m, i, ATTR(BIAS_MOVE, rate), u->rate) && write_updated(m, i, OPND(BIAS_MOVE, bias), &w, 0);
}
