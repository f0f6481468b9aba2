/* Property 7: sequences that are split over ranks (context parallelism).
 *
 * The rows of a node are numbered so that a rank's are an interval: microbatch by microbatch; within one,
 * rank by rank of cp; within a rank, its two runs of every sequence.  With cp = 1 that is the natural order.
 * Which token a row is follows from this numbering alone, so TOKENS, ROPE, POSITION and attention must say
 * the places that belong to their rows: `first` and `shift` as isa.def has them, bound to the number of the
 * rank that owns the rows.
 *
 * Rows that have gone round a ring belong to the rank `turn` places before (extent.h).  Attention to some
 * keys is a part of its node, with these keys' rows as contributions; parts merge, they do not add, and their
 * outputs only together with their log-sum-exps.  It is complete with all rows of its microbatch.  Gradients
 * of queries are sums over keys' rows, those of keys and values sums over queries' rows. */

#include "compiler/verify/conserve.h"

#include <assert.h>
#include <stdlib.h>

struct frame {
    const struct mesh *mesh;
    uint32_t mask, cp;
    int64_t run, own, group; /* tokens of a run; rows of a rank; rows of a microbatch on all ranks of cp */
};

static struct frame frame_of(const struct machine *m)
{
    const struct plan *p = m->c->plan;
    struct frame f = {.mesh = &p->mesh, .mask = prove_mask(&p->mesh, p->mesh.dim[MESH_CP]), .cp = p->decision.cp};
    int64_t sequence = (int64_t)p->job->train.sequence;
    f.run = sequence / (2 * (int64_t)f.cp);
    f.group = sequence * p->decision.microbatch;
    f.own = f.group / f.cp;
    return f;
}

int64_t conserve_sequence(const struct machine *m)
{
    return (int64_t)m->c->plan->job->train.sequence / m->c->plan->decision.cp;
}

void conserve_own_rows(const struct machine *m, struct extent *row)
{
    struct frame f = frame_of(m);
    if (f.cp > 1)
        extent_move(row, f.mesh, f.mask, f.own);
}

/* do rows lie, on every rank, among those of one member of cp? */
static bool among_own(const struct frame *f, const struct extent *e)
{
    int64_t high = e->lo % f->group + e->len;
    for (uint32_t d = 0; d < NDIGITS; d++) {
        if (f->mask & AXIS_BIT(d)) {
            if (e->step[d] != f->own * mesh_weight(f->mesh, f->mask, d))
                return false;
        } else if (e->step[d] % f->group) {
            if (e->step[d] < 0)
                return false;
            high += e->step[d] * (f->mesh->size[d] - 1);
        }
    }
    return high <= f->own;
}

/* exactly the rows of one member, of a whole microbatch */
static bool all_own(const struct frame *f, const struct extent *e)
{
    return among_own(f, e) && e->len == f->own;
}

/* all rows of a microbatch */
static bool all_rows(const struct frame *f, const struct extent *e)
{
    bool fine = e->lo % f->group == 0 && e->len == f->group && !e->turn;
    for (uint32_t d = 0; d < NDIGITS; d++)
        fine = fine && e->step[d] % f->group == 0 && !(f->mask & AXIS_BIT(d) && e->step[d]);
    return fine;
}

/* all rows of the microbatch that these rows, of one rank or of all, belong to */
static struct extent microbatch_of(const struct frame *f, const struct extent *e)
{
    struct extent all = extent_new(e->lo / f->group * f->group, f->group);
    for (uint32_t d = 0; d < NDIGITS; d++)
        all.step[d] = e->step[d] % f->group ? 0 : e->step[d];
    return all;
}

/* first and shift must be bound to the number of the rows' owner */
static bool check_bound(struct machine *m, uint32_t i, size_t first, size_t shift, const struct extent *e, bool all)
{
    struct frame f = frame_of(m);
    const struct attr *a = prove_attr(m->program, i, first), *b = prove_attr(m->program, i, shift);
    int64_t most = (2 * (int64_t)f.cp - 2) * f.run;
    bool slots = a->slot == b->slot, fine = a->u.i == 0 && b->u.i == most;
    if (all) {
        slots = !a->stride && !b->stride;
    } else {
        const struct slot *s = a->slot == NONE ? NULL : &m->program->slots[a->slot];
        fine = fine && a->stride == f.run && b->stride == -2 * f.run;
        slots = slots && s &&
                (s->kind == SLOT_COORD ? !e->turn && prove_mask(f.mesh, s->arg) == f.mask
                 : s->kind == SLOT_BEHIND
                     ? prove_mask(f.mesh, SLOT_BEHIND_MASK(s->arg)) == f.mask && SLOT_BEHIND_DISTANCE(s->arg) == e->turn
                     : false);
    }
    return (slots && fine) ||
           conserve_fail_inputs(m, i, "its %s and %s are not the places of rows %s",
                                isa_info(m->program->insns[i].op)->attr[first].name,
                                isa_info(m->program->insns[i].op)->attr[shift].name, extent_text(m->c->arena, e));
}

bool conserve_places(struct machine *m, uint32_t i, size_t first, size_t shift, const struct extent *row)
{
    struct frame f = frame_of(m);
    const struct attr *a = prove_attr(m->program, i, first), *b = prove_attr(m->program, i, shift);
    if (f.cp == 1)
        return (!a->u.i && !a->stride && !b->u.i && !b->stride) ||
               conserve_fail(m, i, "its sequences are not split, but it says places of a part");
    if (row->turn || !among_own(&f, row))
        return conserve_fail_inputs(m, i, "its rows %s are not those of one rank of cp", extent_text(m->c->arena, row));
    return check_bound(m, i, first, shift, row, false);
}

/* ---- attention ---- */

static bool whole_heads(const struct extent *e, int64_t head)
{
    bool fine = e->lo % head == 0 && e->len % head == 0;
    for (uint32_t d = 0; d < NDIGITS; d++)
        fine = fine && e->step[d] % head == 0;
    return fine;
}

bool conserve_biases(struct machine *m, uint32_t i, size_t alibi, size_t first_head, const struct extent *heads)
{
    struct extent at;
    if (!conserve_bind(m, i, first_head, heads->len, &at))
        return false;
    if (!prove_attr(m->program, i, alibi)->u.i) {
        const struct attr *a = prove_attr(m->program, i, first_head);
        return (!a->u.i && a->slot == NONE) || conserve_fail(m, i, "it has no biases, but says whose they are");
    }
    return extent_same(&at, heads) ||
           conserve_fail_inputs(m, i, "its biases are those of heads %s, its queries are heads %s",
                                extent_text(m->c->arena, &at), extent_text(m->c->arena, heads));
}

/* attributes and operands by name of either instruction */
struct attention {
    size_t q, k, v, head, sequence, parts, first, shift, kparts, kfirst, kshift, alibi, first_head;
    struct value qv, kv, vv;
    struct extent heads, out; /* columns of log-sum-exps, of the output */
    struct recipe r;
};
#define ATTENTION_NAMES(op)                                                                                            \
    {                                                                                                                  \
        .q = OPND(op, q), .k = OPND(op, k), .v = OPND(op, v), .head = ATTR(op, head), .sequence = ATTR(op, sequence),  \
        .parts = ATTR(op, parts), .first = ATTR(op, first), .shift = ATTR(op, shift), .kparts = ATTR(op, kparts),      \
        .kfirst = ATTR(op, kfirst), .kshift = ATTR(op, kshift), .alibi = ATTR(op, alibi),                              \
        .first_head = ATTR(op, first_head)                                                                             \
    }

static bool check_side(struct machine *m, uint32_t i, const char *name, const struct value *v, size_t parts,
                       size_t first, size_t shift)
{
    struct frame f = frame_of(m);
    bool all = prove_attr(m->program, i, parts)->u.i == f.cp;
    if (f.cp == 1 || (!all && prove_attr(m->program, i, parts)->u.i != 1))
        return conserve_fail(m, i, "its %s are of neither one nor all ranks of cp", name);
    if (all ? !all_rows(&f, &v->row) : !all_own(&f, &v->row))
        return conserve_fail_inputs(m, i, "the rows %s of its %s are not those of %s%s",
                                    extent_text(m->c->arena, &v->row), name, all ? "all ranks of cp" : "one rank of cp",
                                    conserve_origin(m, v));
    return check_bound(m, i, first, shift, &v->row, all);
}

static bool read_attention(struct machine *m, uint32_t i, struct attention *a)
{
    struct frame f = frame_of(m);
    int64_t head = prove_attr(m->program, i, a->head)->u.i;
    if (!conserve_read(m, i, a->q, &a->qv) || !conserve_read(m, i, a->k, &a->kv) || !conserve_read(m, i, a->v, &a->vv))
        return false;
    if (prove_attr(m->program, i, a->sequence)->u.i != 2 * f.run)
        return conserve_fail(m, i, "a rank of cp has %lld tokens of a sequence", (long long)(2 * f.run));
    const struct nodes *g = m->c->nodes;
    int64_t shared = g->at[a->kv.node].cols ? g->at[a->qv.node].cols / g->at[a->kv.node].cols : 1;
    struct extent grouped = extent_scaled(&a->kv.col, shared, 1);
    assert(head > 0);                                                        /* structure */
    int64_t dims = a->kv.col.len ? a->vv.col.len * head / a->kv.col.len : 0; /* of a value */
    struct extent values = extent_scaled(&a->kv.col, dims, head);
    if (!extent_same(&a->kv.row, &a->vv.row) || !extent_same(&values, &a->vv.col))
        return conserve_fail_inputs(m, i, "its keys are rows %s, columns %s, its values rows %s, columns %s",
                                    extent_text(m->c->arena, &a->kv.row), extent_text(m->c->arena, &a->kv.col),
                                    extent_text(m->c->arena, &a->vv.row), extent_text(m->c->arena, &a->vv.col));
    if (!whole_heads(&a->kv.col, head) || !extent_same(&grouped, &a->qv.col))
        return conserve_fail_inputs(m, i, "its query columns %s do not belong to its key columns %s",
                                    extent_text(m->c->arena, &a->qv.col), extent_text(m->c->arena, &a->kv.col));
    a->heads = extent_scaled(&a->qv.col, 1, head);
    a->out = extent_scaled(&a->heads, dims, 1);
    if (!conserve_biases(m, i, a->alibi, a->first_head, &a->heads))
        return false;
    if (!check_side(m, i, "rows", &a->qv, a->parts, a->first, a->shift) ||
        !check_side(m, i, "keys", &a->kv, a->kparts, a->kfirst, a->kshift))
        return false;
    struct extent queries = microbatch_of(&f, &a->qv.row), keys = microbatch_of(&f, &a->kv.row);
    return extent_same(&queries, &keys) ||
           conserve_fail_inputs(m, i, "its queries are rows %s, its keys rows %s: of another microbatch",
                                extent_text(m->c->arena, &a->qv.row), extent_text(m->c->arena, &a->kv.row));
}

/* the model's recipe: parts have the attributes of the whole, less how it is split */
static void model_attrs(const struct machine *m, uint32_t i, const struct attention *a, size_t scale, size_t window,
                        size_t softcap, struct recipe *r)
{
    r->attr[ATTR(ATTENTION, head)] = (uint64_t)prove_attr(m->program, i, a->head)->u.i;
    r->attr[ATTR(ATTENTION, sequence)] = (uint64_t)m->c->plan->job->train.sequence;
    r->attr[ATTR(ATTENTION, scale)] = reference_real(prove_attr(m->program, i, scale)->u.f);
    r->attr[ATTR(ATTENTION, window)] = (uint64_t)prove_attr(m->program, i, window)->u.i;
    r->attr[ATTR(ATTENTION, softcap)] = reference_real(prove_attr(m->program, i, softcap)->u.f);
    r->attr[ATTR(ATTENTION, alibi)] = (uint64_t)prove_attr(m->program, i, a->alibi)->u.i;
}

/* node over the contributions `over` of the rows' microbatch */
static struct value share(struct machine *m, uint32_t node, const struct extent *over, struct extent row,
                          struct extent col)
{
    struct frame f = frame_of(m);
    struct value v = {.kind = VALUE_NODES, .node = node, .row = row, .col = col};
    m->c->nodes->group = f.group;
    m->c->nodes->at[node].domain = DOMAIN_MICROBATCH;
    if (all_rows(&f, over))
        return v;
    struct term *term = ARENA_NEW(m->c->scratch, struct term);
    *term = (struct term){node, sets_one(m->c->nodes->sets, &(struct block){.extent = *over, .count = 1})};
    v.node = NODE_ZERO;
    v.nterms = 1;
    v.terms = term;
    return v;
}

bool rule_ATTENTION_PART(struct machine *m, uint32_t i)
{
    struct attention a = ATTENTION_NAMES(ATTENTION_PART);
    struct recipe r = {.op = OP_ATTENTION};
    if (!read_attention(m, i, &a))
        return false;
    r.input[OPND(ATTENTION, q)] = a.qv.node;
    r.input[OPND(ATTENTION, k)] = a.kv.node;
    r.input[OPND(ATTENTION, v)] = a.vv.node;
    model_attrs(m, i, &a, ATTR(ATTENTION_PART, scale), ATTR(ATTENTION_PART, window), ATTR(ATTENTION_PART, softcap), &r);
    const size_t out[2] = {OPND(ATTENTION_PART, o), OPND(ATTENTION_PART, lse)};
    for (int k = 0; k < 2; k++) {
        r.output = k ? OPND(ATTENTION, lse) : OPND(ATTENTION, o);
        uint32_t node = conserve_find(m, i, &r);
        if (node == NONE)
            return false;
        struct value v = share(m, node, &a.kv.row, a.qv.row, k ? a.heads : a.out);
        if (!conserve_emit_one(m, i, out[k], &v))
            return false;
    }
    return true;
}

/* output, its gradient and log-sum-exps: of the same rows and heads as the queries */
static bool read_beside(struct machine *m, uint32_t i, size_t k, const struct attention *a, const struct extent *col,
                        uint32_t *node)
{
    struct value v;
    if (!conserve_read(m, i, k, &v))
        return false;
    *node = v.node;
    return (extent_same(&v.row, &a->qv.row) && extent_same(&v.col, col)) ||
           conserve_fail_inputs(m, i, "its operand %s is rows %s, columns %s; its queries are rows %s, columns %s",
                                isa_info(m->program->insns[i].op)->operand[k].name, extent_text(m->c->arena, &v.row),
                                extent_text(m->c->arena, &v.col), extent_text(m->c->arena, &a->qv.row),
                                extent_text(m->c->arena, &a->qv.col));
}

bool rule_ATTENTION_PART_I(struct machine *m, uint32_t i)
{
    struct attention a = ATTENTION_NAMES(ATTENTION_PART_I);
    struct recipe r = {.op = OP_ATTENTION_I};
    if (!read_attention(m, i, &a) ||
        !read_beside(m, i, OPND(ATTENTION_PART_I, o), &a, &a.out, &r.input[OPND(ATTENTION_I, o)]) ||
        !read_beside(m, i, OPND(ATTENTION_PART_I, dout), &a, &a.out, &r.input[OPND(ATTENTION_I, dout)]) ||
        !read_beside(m, i, OPND(ATTENTION_PART_I, lse), &a, &a.heads, &r.input[OPND(ATTENTION_I, lse)]))
        return false;
    r.input[OPND(ATTENTION_I, q)] = a.qv.node;
    r.input[OPND(ATTENTION_I, k)] = a.kv.node;
    r.input[OPND(ATTENTION_I, v)] = a.vv.node;
    model_attrs(m, i, &a, ATTR(ATTENTION_PART_I, scale), ATTR(ATTENTION_PART_I, window),
                ATTR(ATTENTION_PART_I, softcap), &r);
    const size_t out[3] = {OPND(ATTENTION_PART_I, dq), OPND(ATTENTION_PART_I, dk), OPND(ATTENTION_PART_I, dv)};
    const size_t model[3] = {OPND(ATTENTION_I, dq), OPND(ATTENTION_I, dk), OPND(ATTENTION_I, dv)};
    for (int k = 0; k < 3; k++) {
        r.output = (uint16_t)model[k];
        uint32_t node = conserve_find(m, i, &r);
        if (node == NONE)
            return false;
        const struct value *mine = k == 2 ? &a.vv : k ? &a.kv : &a.qv, *other = k ? &a.qv : &a.kv;
        struct value v = share(m, node, &other->row, mine->row, mine->col);
        if (!conserve_emit_one(m, i, out[k], &v))
            return false;
    }
    return true;
}

/* ---- merge ---- */

/* an operand that holds one part of one node of attention: the node, its contributions */
static bool read_share(struct machine *m, uint32_t i, size_t k, struct value *v, uint32_t *node, struct blocks *over)
{
    struct parts *p = &m->c->parts[0];
    const char *name = isa_info(m->program->insns[i].op)->operand[k].name;
    if (!conserve_read_parts(m, i, k, p))
        return false;
    *v = p->at[0].value;
    if (p->n != 1 || v->node != NODE_ZERO || v->nterms != 1 ||
        m->c->nodes->at[v->terms[0].node].recipe.op != OP_ATTENTION)
        return conserve_fail_inputs(m, i, "its operand %s holds %s, no part of attention", name,
                                    value_text(m->c->arena, m->c->nodes, v));
    *node = v->terms[0].node;
    *over = v->terms[0].blocks;
    return true;
}

static bool same_blocks(const struct blocks *x, const struct blocks *y)
{
    bool same = x->n == y->n;
    for (uint32_t k = 0; k < x->n && same; k++)
        same = blocks_same(&x->at[k], &y->at[k]);
    return same;
}

/* output and log-sum-exps of one and the same part; false after a report */
static bool read_pair(struct machine *m, uint32_t i, size_t o, size_t lse, struct value v[2], uint32_t node[2],
                      struct blocks *over)
{
    struct blocks other = {0};
    if (!read_share(m, i, o, &v[0], &node[0], over) || !read_share(m, i, lse, &v[1], &node[1], &other))
        return false;
    const struct recipe *r = &m->c->nodes->at[node[0]].recipe;
    struct recipe beside = *r;
    const struct node *out = &m->c->nodes->at[node[0]], *sums = &m->c->nodes->at[node[1]];
    int64_t head = sums->cols ? out->cols / sums->cols : 0; /* dimensions of a value */
    struct extent cols = extent_scaled(&v[1].col, head, 1);
    beside.output = OPND(ATTENTION, lse);
    bool fits = r->output == OPND(ATTENTION, o) && nodes_find(m->c->nodes, &beside) == node[1] &&
                same_blocks(over, &other) && extent_same(&v[0].row, &v[1].row) &&
                extent_same(&cols, &v[0].col); /* so the instruction's head is this one */
    return fits || conserve_fail_inputs(m, i, "%s and %s are not output and log-sum-exps of the same keys",
                                        value_text(m->c->arena, m->c->nodes, &v[0]),
                                        value_text(m->c->arena, m->c->nodes, &v[1]));
}

bool rule_ATTENTION_MERGE(struct machine *m, uint32_t i)
{
    struct value mine[2], other[2];
    uint32_t node[2], part[2];
    struct blocks over, more, both;
    if (!read_pair(m, i, OPND(ATTENTION_MERGE, o), OPND(ATTENTION_MERGE, lse), mine, node, &over) ||
        !read_pair(m, i, OPND(ATTENTION_MERGE, part), OPND(ATTENTION_MERGE, part_lse), other, part, &more))
        return false;
    if (node[0] != part[0] || !extent_same(&mine[0].row, &other[0].row) || !extent_same(&mine[0].col, &other[0].col))
        return conserve_fail_inputs(m, i, "it merges %s with %s", value_text(m->c->arena, m->c->nodes, &mine[0]),
                                    value_text(m->c->arena, m->c->nodes, &other[0]));
    if (!blocks_union(m->c->scratch, &over, &more, &both))
        return conserve_fail_inputs(m, i, "keys would count twice in %s: %s are there, %s are merged",
                                    nodes_name(m->c->nodes, node[0]), blocks_text(m->c->arena, &over),
                                    blocks_text(m->c->arena, &more));
    for (int k = 0; k < 2; k++) {
        struct value v = mine[k];
        struct term *term = ARENA_NEW(m->c->scratch, struct term);
        *term = (struct term){node[k], both};
        v.terms = term;
        if (value_complete(m->c->nodes, &v, term)) {
            v.node = node[k];
            v.nterms = 0;
        }
        if (!conserve_emit_one(m, i, k ? OPND(ATTENTION_MERGE, lse) : OPND(ATTENTION_MERGE, o), &v))
            return false;
    }
    return true;
}

/* ---- columns and rows ---- */

bool rule_COLUMNS_SPLIT(struct machine *m, uint32_t i)
{
    struct parts *out = &m->c->parts[3];
    int64_t n = prove_attr(m->program, i, ATTR(COLUMNS_SPLIT, parts))->u.i;
    const struct operand *x = prove_operand(m->program, i, OPND(COLUMNS_SPLIT, x)),
                         *y = prove_operand(m->program, i, OPND(COLUMNS_SPLIT, y));
    struct value v;
    if (!conserve_read(m, i, OPND(COLUMNS_SPLIT, x), &v))
        return false;
    if (n > MOST_PARTS)
        return conserve_fail(m, i, "more than %d parts", MOST_PARTS);
    out->n = (uint32_t)n;
    for (uint32_t k = 0; k < out->n; k++) {
        out->at[k] = (struct part){k * x->rows, x->rows, 0, y->cols, i, v};
        out->at[k].value.col = extent_part(&v.col, (int64_t)k * y->cols, y->cols);
    }
    return conserve_emit(m, i, OPND(COLUMNS_SPLIT, y), out);
}

/* parts one below the other (from part `from` on, n of them, `rows` rows each) hold columns side by side */
static bool side_by_side(const struct parts *p, uint32_t from, uint32_t n, uint32_t rows)
{
    const struct value *v = &p->at[from].value;
    for (uint32_t k = 0; k < n; k++) {
        const struct part *x = &p->at[from + k];
        struct extent col = extent_part(&v->col, k * v->col.len, v->col.len);
        if (x->row != k * rows || x->rows != rows || x->value.kind != VALUE_NODES || x->value.nterms ||
            x->value.node != v->node || !extent_same(&x->value.row, &v->row) || !extent_same(&x->value.col, &col))
            return false;
    }
    return true;
}

bool rule_COLUMNS_JOIN(struct machine *m, uint32_t i)
{
    struct parts *p = &m->c->parts[1];
    const struct operand *y = prove_operand(m->program, i, OPND(COLUMNS_JOIN, y));
    uint32_t n = (uint32_t)prove_attr(m->program, i, ATTR(COLUMNS_JOIN, parts))->u.i;
    if (!conserve_read_parts(m, i, OPND(COLUMNS_JOIN, x), p))
        return false;
    if (p->n != n || !side_by_side(p, 0, n, y->rows))
        return conserve_fail_inputs(m, i, "its row blocks are not the column blocks of one matrix: %s",
                                    value_text(m->c->arena, m->c->nodes, &p->at[0].value));
    struct value v = p->at[0].value;
    v.col.len *= n;
    return conserve_emit_one(m, i, OPND(COLUMNS_JOIN, y), &v);
}

static int by_column(const void *x, const void *y)
{
    const struct part *a = x, *b = y;
    if (a->col != b->col)
        return a->col < b->col ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

/* members' rows of the own columns: part j of each has columns j */
static bool rows_come(const struct frame *f, const struct parts *p, uint32_t at, uint32_t rows, struct part *out)
{
    if (at + f->cp > p->n || !side_by_side(p, at, f->cp, rows))
        return false;
    *out = p->at[at];
    if (out->value.row.turn || !all_own(f, &out->value.row))
        return false;
    out->rows *= f->cp;
    out->value.row.len = f->group;
    for (uint32_t d = 0; d < NDIGITS; d++)
        out->value.row.step[d] *= !(f->mask & AXIS_BIT(d));
    extent_move(&out->value.col, f->mesh, f->mask, out->value.col.len);
    return true;
}

/* own rows of members' columns; the inverse */
static bool columns_come(const struct frame *f, const struct part *x, uint32_t rows, struct parts *out)
{
    if (x->rows != rows * f->cp || x->value.nterms || !all_rows(f, &x->value.row))
        return false;
    for (uint32_t d = 0; d < NDIGITS; d++)
        if (f->mask & AXIS_BIT(d) && x->value.col.step[d] != x->value.col.len * mesh_weight(f->mesh, f->mask, d))
            return false;
    for (uint32_t k = 0; k < f->cp; k++) {
        struct part *y = &out->at[out->n++];
        *y = *x;
        y->row = k * rows;
        y->rows = rows;
        y->value.row.len = f->own;
        extent_move(&y->value.row, f->mesh, f->mask, f->own);
        for (uint32_t d = 0; d < NDIGITS; d++)
            y->value.col.step[d] *= !(f->mask & AXIS_BIT(d));
        y->value.col.lo += k * y->value.col.len;
    }
    return true;
}

bool conserve_exchange(struct machine *m, uint32_t i)
{
    struct frame f = frame_of(m);
    struct parts *p = &m->c->parts[1], *out = &m->c->parts[3];
    const struct operand *x = prove_operand(m->program, i, OPND(ALL_TO_ALL, x));
    uint32_t rows = x->rows / f.cp;
    if (!conserve_read_parts(m, i, OPND(ALL_TO_ALL, x), p))
        return false;
    qsort(p->at, p->n, sizeof *p->at, by_column);
    out->n = 0;
    for (uint32_t k = 0; k < p->n;) {
        bool fits = out->n + f.cp <= MOST_PARTS;
        if (fits && p->at[k].rows == x->rows && columns_come(&f, &p->at[k], rows, out)) {
            k++;
        } else if (fits && rows_come(&f, p, k, rows, &out->at[out->n])) {
            out->n++;
            k += f.cp;
        } else {
            return conserve_fail_inputs(m, i, "it exchanges %s, neither rows for columns nor columns for rows",
                                        value_text(m->c->arena, m->c->nodes, &p->at[k].value));
        }
    }
    return conserve_emit(m, i, OPND(ALL_TO_ALL, y), out);
}

/* ---- the ring ---- */

static bool turn(const struct frame *f, struct extent *e, uint32_t by)
{
    if (!all_own(f, e))
        return false;
    e->turn = (uint16_t)((e->turn + by) % f->cp);
    e->ring = e->turn ? f->mask : 0;
    e->members = (uint16_t)f->cp;
    return true;
}

static bool depends(const struct frame *f, const struct extent *e)
{
    for (uint32_t d = 0; d < NDIGITS; d++)
        if (f->mask & AXIS_BIT(d) && e->step[d])
            return true;
    return false;
}

/* the value of the rank `by` places before, in terms of the own number */
static bool turn_value(struct machine *m, const struct frame *f, struct value *v, uint32_t by)
{
    if (depends(f, &v->col) || !turn(f, &v->row, by)) /* what is no matrix has no rows */
        return false;
    struct term *terms = ARENA_ARRAY(m->c->scratch, struct term, v->nterms + 1u);
    for (uint32_t k = 0; k < v->nterms; k++) {
        const struct blocks *old = &v->terms[k].blocks;
        struct block *list = ARENA_ARRAY(m->c->scratch, struct block, old->n + 1u);
        for (uint32_t b = 0; b < old->n; b++) {
            list[b] = old->at[b];
            if (list[b].first & f->mask ||
                (depends(f, &list[b].extent) && (list[b].count != 1 || !turn(f, &list[b].extent, by))))
                return false;
        }
        terms[k] = (struct term){v->terms[k].node, {old->n, list}};
    }
    v->terms = terms;
    return true;
}

bool rule_SHIFT(struct machine *m, uint32_t i)
{
    struct frame f = frame_of(m);
    struct parts *p = &m->c->parts[1];
    uint32_t by = (uint32_t)prove_attr(m->program, i, ATTR(SHIFT, by))->u.i;
    uint32_t mask = prove_mask(f.mesh, prove_comm_slot(m->program, i)->arg);
    if (f.cp == 1 || mask != f.mask)
        return conserve_fail(m, i, "it shifts along another group than that of the ranks of a sequence");
    if (!conserve_read_parts(m, i, OPND(SHIFT, x), p))
        return false;
    for (uint32_t k = 0; k < p->n; k++)
        if (!turn_value(m, &f, &p->at[k].value, by))
            return conserve_fail_inputs(m, i, "it shifts %s, which is not one rank's rows of a sequence",
                                        value_text(m->c->arena, m->c->nodes, &p->at[k].value));
    return conserve_emit(m, i, OPND(SHIFT, y), p);
}
