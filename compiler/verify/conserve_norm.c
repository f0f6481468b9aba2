/* Property 7: the squared norm of the gradient.
 *
 * It is the sum of one node per weight, whose contributions are elements of that weight, so that it can be shown to
 * count each element once over the whole world: weights split over tp add up over tp, copies count on the first rank
 * alone, and shards of a bucket add up over dp. */

#include "compiler/verify/conserve.h"

#include <assert.h>

static int64_t unit_elements(const struct weight_unit *u)
{
    return u->rows * u->cols * (u->family ? u->family : 1);
}

/* elements of a family's members, one behind the other: all of each; some rows of each; some columns of every row */
static struct block member_elements(const struct value *v, const struct weight_unit *u)
{
    int64_t size = u->rows * u->cols;
    bool columns = v->col.len < u->cols, rows = v->row.len < u->rows;
    struct block b = {.extent = extent_new(v->member.lo * size + v->row.lo * u->cols + v->col.lo, v->member.len * size),
                      .count = 1};
    for (int a = 0; a < NDIGITS; a++)
        b.extent.step[a] = v->member.step[a] * size + v->row.step[a] * u->cols + v->col.step[a];
    if (columns || rows) {
        b.extent.len = columns ? v->col.len : v->row.len * u->cols;
        b.count = columns ? v->member.len * u->rows : v->member.len;
        b.stride = columns ? u->cols : size;
    }
    return b;
}

/* elements of a weight's own matrix that a box holds: runs of its columns, one per row */
static struct block box_elements(const struct value *v, const struct weight_unit *u)
{
    int64_t width = u->cols;
    if (v->member.len)
        return member_elements(v, u);
    struct block b = {
        .extent = extent_new(v->row.lo * width + v->col.lo, v->col.len), .count = v->row.len, .stride = width};
    for (int a = 0; a < NDIGITS; a++)
        b.extent.step[a] = v->row.step[a] * width + v->col.step[a];
    if (b.extent.len >= width || b.count == 1) {
        b.extent.len = v->row.len * v->col.len;
        b.count = 1;
    }
    return b;
}

/* squared norm of one stretch of a gradient, counted on the ranks of `first` */
static const char *stretch_norm(struct conserve *c, const struct stretch *s, uint32_t nth, uint32_t first,
                                struct value *sum)
{
    struct recipe r = {.op = RECIPE_SQUARES, .input = {s->value.node}, .attr = {nth}};
    uint32_t node = s->value.kind == VALUE_NODES && !s->value.nterms ? nodes_find(c->nodes, &r) : NONE;
    if (node == NONE)
        return arena_printf(c->arena, "it takes the norm of %s, which is no gradient of the whole batch",
                            value_text(c->arena, c->nodes, &s->value));
    const struct weight_unit *u = NULL;
    for (uint32_t i = 0; i < c->reference->nunits && !u; i++)
        if (c->reference->units[i].squares == node)
            u = &c->reference->units[i];
    assert(u); /* only reference.c makes such nodes, one for each weight */
    struct block *block = ARENA_NEW(c->scratch, struct block);
    struct term *term = ARENA_NEW(c->scratch, struct term);
    struct value v = {
        .kind = VALUE_NODES, .row = extent_new(0, 1), .col = extent_new(0, 1), .nterms = 1, .terms = term};
    *block = box_elements(&s->value, u);
    block->first = first;
    *term = (struct term){node, {1, block}};
    if (blocks_whole(&term->blocks, unit_elements(u))) {
        v.node = node;
        v.nterms = 0;
    }
    return value_add(c->scratch, c->nodes, sum, &v, sum);
}

/* how many stretches before it hold the same elements of the same gradient: it is then that of several weights */
static uint32_t nth_of(const struct whole *w, uint32_t e)
{
    const struct value *v = &w->at[e].value;
    uint32_t n = 0;
    for (uint32_t i = e; i-- > 0 && i + 64 > e;) {
        const struct value *x = &w->at[i].value;
        n += x->kind == VALUE_NODES && x->node == v->node && !x->nterms && extent_same(&x->row, &v->row) &&
             extent_same(&x->col, &v->col);
    }
    return n;
}

const char *conserve_norm_of(struct conserve *c, const struct whole *w, uint32_t first, struct value *sum)
{
    *sum = (struct value){.kind = VALUE_ZERO};
    for (uint32_t e = 0; e < w->n; e++) {
        const char *why = w->at[e].value.kind == VALUE_ZERO ? NULL
                                                            : stretch_norm(c, &w->at[e], nth_of(w, e), first, sum);
        if (why)
            return why;
    }
    return NULL;
}

/* A shard of a bucket can't be said in elements of its weights: the sum stays "the part of that list that my
 * number among its group" until the reduction over the group makes it whole (conserve_comm.c). */
static struct value slice_norm(struct conserve *c, const struct whole *w, uint32_t mask, uint32_t first)
{
    struct whole *copy = ARENA_NEW(c->scratch, struct whole);
    struct block *block = ARENA_NEW(c->scratch, struct block);
    struct term *term = ARENA_NEW(c->scratch, struct term);
    struct recipe r = {.op = RECIPE_SLICE, .attr = {c->slices.n}};
    int64_t n = (int64_t)w->elements / mesh_group_size(&c->plan->mesh, mask);
    *copy = *w;
    vec_push(c->scratch, &c->slices, copy);
    *block = (struct block){.extent = extent_new(0, n), .count = 1, .first = first};
    extent_move(&block->extent, &c->plan->mesh, mask, n);
    *term = (struct term){nodes_add(c->nodes, &r, "a shard's squared norm", 1, (int64_t)w->elements), {1, block}};
    return (struct value){
        .kind = VALUE_NODES, .row = extent_new(0, 1), .col = extent_new(0, 1), .nterms = 1, .terms = term};
}

bool rule_SQNORM(struct machine *m, uint32_t i)
{
    struct whole w;
    uint32_t mask, first;
    bool never;
    struct value sum;
    if (!conserve_read_flat(m, i, OPND(SQNORM, g), &w, &mask) ||
        !conserve_count(m, i, ATTR(SQNORM, count), &first, &never))
        return false;
    const char *why = conserve_norm_of(m->c, &w, first, &sum);
    if (why)
        return conserve_fail_inputs(m, i, "%s", why);
    if (sum.kind != VALUE_ZERO && prove_mask(&m->c->plan->mesh, mask))
        sum = slice_norm(m->c, &w, mask, first);
    if (never)
        sum = (struct value){.kind = VALUE_ZERO};
    return conserve_emit_one(m, i, OPND(SQNORM, sum), &sum);
}
