/* Property 7: experts.
 *
 * A dispatched matrix has experts for rows; of each expert it holds the rows that some tokens sent (value.h,
 * struct routed).  DISPATCH makes it from the own tokens, for all experts, a block per expert rank.  An
 * ALL_TO_ALL among the expert ranks leaves each its own experts, with what all members' tokens sent: the
 * union of their tokens, as a reduce-scatter of disjoint contributions.  Products need rows, counts and
 * weights of the same experts, sent by the same tokens; a weight's gradient has these tokens as
 * contributions.  The way back keeps the tokens; COMBINE shows that its own tokens, united over the digits
 * that the rows came home by, are all that had been sent.
 *
 * By the places of an ARRANGE_ONCE a token's row goes to every node that has an expert of its choice.  There its rows
 * are what the tokens' were, and ARRANGE, DISPATCH and COMBINE mean the same; but COMBINE sums over the node's experts
 * alone, and is whole when the one at home has added these sums of all nodes.
 *
 * A block that may lack room must say what it lacks, or be as long as what its tokens can send at most. */

#include "compiler/verify/conserve_experts.h"

const struct node *experts_node(const struct machine *m, uint32_t node)
{
    return &m->c->nodes->at[node];
}

/* the layer whose router a node of choices, or of what follows from them, belongs to */
const struct moe *experts_layer(const struct machine *m, uint32_t node)
{
    const struct recipe *r = &experts_node(m, node)->recipe;
    if (r->op == OP_ARRANGE || r->op == OP_ARRANGE_ONCE)
        r = &experts_node(m, r->input[r->op == OP_ARRANGE ? OPND(ARRANGE, index) : OPND(ARRANGE_ONCE, index)])->recipe;
    uint64_t layer = r->attr[ATTR(ROUTE, layer)];
    const struct model *model = &m->c->plan->job->model;
    bool known = r->op == OP_ROUTE && layer < (uint64_t)model->nlayers + model->predict;
    const struct layer *l = !known ? NULL : layer < model->nlayers ? model->layers[layer] : model->predict_layer;
    return l && l->is_moe ? &l->moe : NULL;
}

static bool same_rows(struct machine *m, uint32_t i, const struct value *x, const struct value *y)
{
    return (extent_same(&x->row, &y->row) && value_routed_same(x->routed, y->routed)) ||
           conserve_fail_inputs(m, i, "its operands hold rows of different tokens: %s and %s",
                                value_text(m->c->arena, m->c->nodes, x), value_text(m->c->arena, m->c->nodes, y));
}

/* an operand, if it is there, into the recipe; it must have the rows of `like`, where that has a node */
bool experts_input(struct machine *m, uint32_t i, struct recipe *r, size_t k, const struct value *like,
                   struct value *out)
{
    *out = (struct value){.kind = VALUE_ZERO};
    if (prove_operand(m->program, i, k)->buffer == NONE)
        return true;
    if (!conserve_read(m, i, k, out))
        return false;
    r->input[k] = out->node;
    return !like || same_rows(m, i, like, out);
}

bool experts_output(struct machine *m, uint32_t i, struct recipe *r, size_t k, const struct extent *over,
                    struct extent row, struct extent col, const struct routed *routed)
{
    r->output = (uint16_t)k;
    uint32_t node = conserve_find(m, i, r);
    if (node == NONE)
        return false;
    struct value v = conserve_value(m->c, node, over, row, col);
    v.routed = routed;
    return conserve_emit_one(m, i, k, &v);
}

bool experts_whole_columns(struct machine *m, uint32_t i, const struct value *v)
{
    return extent_whole(&v->col, experts_node(m, v->node)->cols) ||
           conserve_fail_inputs(m, i, "it needs all columns of %s, but has %s", nodes_name(m->c->nodes, v->node),
                                extent_text(m->c->arena, &v->col));
}

/* rows start, start + 1, ... of the microbatch's: a multiple of the sequence must lie `start` rows before
 * them */
bool experts_check_start(struct machine *m, uint32_t i, size_t sequence, size_t start, const struct extent *row)
{
    struct extent at;
    int64_t own = conserve_sequence(m);
    if (!conserve_bind(m, i, start, row->len, &at))
        return false;
    bool fine = prove_attr(m->program, i, sequence)->u.i == own && (row->lo - at.lo) % own == 0;
    for (int d = 0; d < NDIGITS; d++)
        fine = fine && (row->step[d] - at.step[d]) % own == 0;
    return fine || conserve_fail_inputs(m, i, "its rows %s do not start %s rows into a sequence of %lld",
                                        extent_text(m->c->arena, row), extent_text(m->c->arena, &at), (long long)own);
}

/* ---- router ---- */

/* a routing given to the run is found by sample and place: these must be the rows' own */
static bool check_sample(struct machine *m, uint32_t i, const struct extent *row)
{
    int64_t sequence = (int64_t)m->c->plan->job->train.sequence;
    struct extent sample, start;
    if (!conserve_bind(m, i, ATTR(ROUTE, sample), 1, &sample) ||
        !conserve_bind(m, i, ATTR(ROUTE, start), row->len, &start))
        return false;
    start.lo += sample.lo * sequence;
    for (int d = 0; d < NDIGITS; d++)
        start.step[d] += sample.step[d] * sequence;
    conserve_own_rows(m, &start);
    return extent_same(&start, row) ||
           conserve_fail_inputs(m, i, "it says that its rows are %s, but they are %s", extent_text(m->c->arena, &start),
                                extent_text(m->c->arena, row));
}

bool rule_ROUTE(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_ROUTE};
    struct value logits, bias, step;
    conserve_attrs(m, i, &r);
    r.attr[ATTR(ROUTE, sequence)] = 0;
    if (!experts_input(m, i, &r, OPND(ROUTE, logits), NULL, &logits) ||
        !experts_input(m, i, &r, OPND(ROUTE, bias), NULL, &bias) ||
        !experts_input(m, i, &r, OPND(ROUTE, step), NULL, &step) || !experts_whole_columns(m, i, &logits) ||
        (bias.kind == VALUE_NODES && !experts_whole_columns(m, i, &bias)) ||
        !experts_check_start(m, i, ATTR(ROUTE, sequence), ATTR(ROUTE, start), &logits.row) ||
        !check_sample(m, i, &logits.row) || !conserve_places(m, i, ATTR(ROUTE, first), ATTR(ROUTE, shift), &logits.row))
        return false;
    for (size_t k = OPND(ROUTE, index); k <= OPND(ROUTE, score); k++)
        if (!experts_output(m, i, &r, k, NULL, logits.row, extent_new(0, prove_operand(m->program, i, k)->cols), NULL))
            return false;
    return true;
}

/* Do rows lie `start` rows behind the first of so many sequences of their own rank?  Each counts in the
 * sequence that it is in, so a whole sequence more or less is another one here, unlike for places. */
static bool check_sequences(struct machine *m, uint32_t i, size_t sequence, size_t start, const struct extent *row,
                            int64_t n)
{
    struct extent at;
    int64_t own = conserve_sequence(m), all = own * n;
    if (!experts_check_start(m, i, sequence, start, row) || !conserve_bind(m, i, start, row->len, &at))
        return false;
    int64_t last = at.lo + at.len;
    bool fine = (row->lo - at.lo) % all == 0;
    for (int d = 0; d < NDIGITS; d++) {
        fine = fine && (row->step[d] - at.step[d]) % all == 0;
        last += at.step[d] > 0 ? at.step[d] * (m->c->plan->mesh.size[d] - 1) : 0;
    }
    return (fine && last <= all) ||
           conserve_fail_inputs(m, i, "its rows %s do not lie %s rows into %lld sequences of %lld",
                                extent_text(m->c->arena, row), extent_text(m->c->arena, &at), (long long)n,
                                (long long)own);
}

/* Is a load complete for the sequences that these rows, `start` rows into the first, lie in? */
static bool check_load(struct machine *m, uint32_t i, size_t k, size_t sequence, size_t start, const struct value *rows,
                       struct recipe *r)
{
    struct parts *p = &m->c->parts[0];
    const struct operand *o = prove_operand(m->program, i, k);
    if (o->buffer == NONE)
        return true;
    if (!conserve_read_parts(m, i, k, p) || !check_sequences(m, i, sequence, start, &rows->row, o->rows))
        return false;
    const struct value v = p->at[0].value;
    int64_t all = (int64_t)o->rows * (int64_t)m->c->plan->job->train.sequence;
    bool cut = m->c->plan->decision.cp > 1 || m->c->plan->decision.sp;
    struct blocks batch = {1, &(struct block){.extent = extent_new(0, m->c->reference->ntokens), .count = 1}};
    const struct blocks *have = v.nterms == 1 ? &v.terms[0].blocks : &batch;
    uint32_t node = v.nterms ? v.terms[0].node : v.node;
    bool one = p->n == 1 && v.kind == VALUE_NODES && v.nterms <= 1 && (!v.nterms || v.node == NODE_ZERO) &&
               have->n == 1;
    const struct block *b = &have->at[0];
    bool fine = one && experts_node(m, node)->recipe.op == OP_LOAD && b->count == 1 && !b->first &&
                b->extent.len == all;
    /* the rows must lie among them */
    for (int d = 0; fine && d < NDIGITS && !cut; d++)
        fine = rows->row.step[d] == b->extent.step[d];
    int64_t first = rows->row.lo - b->extent.lo;
    fine = fine && first >= 0 && first + rows->row.len <= all && b->extent.lo % all == 0;
    for (int d = 0; fine && cut && d < NDIGITS; d++) /* digits that cut sequences step within them */
        fine = rows->row.step[d] == b->extent.step[d] || (!b->extent.step[d] && rows->row.step[d] < all);
    if (!fine)
        return conserve_fail_inputs(m, i, "its load is %s, which is not that of all rows of the sequences of %s",
                                    value_text(m->c->arena, m->c->nodes, &v), extent_text(m->c->arena, &rows->row));
    r->input[k] = node;
    return true;
}

/* the loss scale's first word */
static bool check_factor(struct machine *m, uint32_t i, const struct value *by)
{
    struct extent first = extent_new(0, 1);
    return by->kind != VALUE_NODES || extent_same(&by->col, &first) ||
           conserve_fail(m, i, "it multiplies by %s", value_text(m->c->arena, m->c->nodes, by));
}

bool rule_ROUTE_I(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_ROUTE_I};
    struct value score, index, dweight, by;
    conserve_attrs(m, i, &r);
    r.attr[ATTR(ROUTE_I, sequence)] = 0;
    return experts_input(m, i, &r, OPND(ROUTE_I, score), NULL, &score) && experts_whole_columns(m, i, &score) &&
           experts_input(m, i, &r, OPND(ROUTE_I, by), NULL, &by) && check_factor(m, i, &by) &&
           experts_input(m, i, &r, OPND(ROUTE_I, index), &score, &index) &&
           experts_input(m, i, &r, OPND(ROUTE_I, dweight), &score, &dweight) &&
           check_load(m, i, OPND(ROUTE_I, load), ATTR(ROUTE_I, sequence), ATTR(ROUTE_I, start), &score, &r) &&
           experts_output(m, i, &r, OPND(ROUTE_I, dlogits), NULL, score.row, score.col, NULL);
}

/* Counts of one or several sequences; which ones is said by the rows that are counted.  One row may be the
 * load of anything; several are sequences. */
bool rule_LOAD(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_LOAD};
    struct value index;
    const struct operand *o = prove_operand(m->program, i, OPND(LOAD, load));
    struct extent start;
    if (!experts_input(m, i, &r, OPND(LOAD, index), NULL, &index) || !experts_whole_columns(m, i, &index) ||
        !conserve_bind(m, i, ATTR(LOAD, start), 0, &start))
        return false;
    int64_t sequence = prove_attr(m->program, i, ATTR(LOAD, sequence))->u.i, last = start.lo + index.row.len;
    for (int d = 0; d < NDIGITS; d++)
        last += start.step[d] > 0 ? start.step[d] * (m->c->plan->mesh.size[d] - 1) : 0;
    if (last > sequence * (int64_t)o->rows)
        return conserve_fail(m, i, "some of its rows belong to none of its %u sequences of %lld", o->rows,
                             (long long)sequence);
    if (o->rows > 1 && !check_sequences(m, i, ATTR(LOAD, sequence), ATTR(LOAD, start), &index.row, o->rows))
        return false;
    const struct moe *moe = experts_layer(m, index.node);
    if (!moe || o->cols != moe->experts)
        return conserve_fail(m, i, "it counts %u experts", o->cols);
    return experts_output(m, i, &r, OPND(LOAD, load), &index.row, extent_new(0, o->rows), extent_new(0, o->cols), NULL);
}

bool rule_BALANCE(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_BALANCE};
    struct value score;
    conserve_attrs(m, i, &r);
    r.attr[ATTR(BALANCE, sequence)] = 0;
    return experts_input(m, i, &r, OPND(BALANCE, score), NULL, &score) && experts_whole_columns(m, i, &score) &&
           check_load(m, i, OPND(BALANCE, load), ATTR(BALANCE, sequence), ATTR(BALANCE, start), &score, &r) &&
           experts_output(m, i, &r, OPND(BALANCE, loss), &score.row, extent_new(0, 1), extent_new(0, 1), NULL);
}

/* ---- rows to the experts and back ---- */

/* weights, where there are any, and places of the same choices */
static bool weights_of(struct machine *m, uint32_t i, const struct value *weight, const struct value *place)
{
    return weight->kind != VALUE_NODES ||
           (extent_same(&weight->row, &place->row) &&
            value_routed_same(weight->routed, place->routed ? place->routed->from : NULL)) ||
           conserve_fail_inputs(m, i, "its weights are of rows %s, its places of %s",
                                extent_text(m->c->arena, &weight->row), extent_text(m->c->arena, &place->row));
}

/* Are rows those whose choices `place` arranges: own tokens', or those that came to the node? */
static bool placed_rows(const struct value *x, const struct value *place)
{
    return extent_same(&x->row, &place->row) && value_routed_same(x->routed, place->routed->from);
}

bool rule_DISPATCH(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_DISPATCH};
    struct value x, place, weight;
    if (!experts_input(m, i, &r, OPND(DISPATCH, x), NULL, &x) ||
        !experts_input(m, i, &r, OPND(DISPATCH, place), NULL, &place) ||
        !experts_input(m, i, &r, OPND(DISPATCH, weight), NULL, &weight) || !experts_whole_columns(m, i, &place) ||
        !weights_of(m, i, &weight, &place))
        return false;
    const struct moe *moe = experts_layer(m, place.node);
    const struct operand *y = prove_operand(m->program, i, OPND(DISPATCH, y));
    if (prove_operand(m->program, i, OPND(DISPATCH, x))->buffer == NONE) { /* weights alone, in one column */
        x = place;
        x.col = extent_new(0, y->cols);
        x.routed = place.routed ? place.routed->from : NULL;
        if (y->cols != 1)
            return conserve_fail(m, i, "it writes weights in %u columns", y->cols);
    } else if (!experts_whole_columns(m, i, &x)) {
        return false;
    }
    if (!moe || !place.routed || !placed_rows(&x, &place) || experts_node(m, place.node)->recipe.output != 0)
        return conserve_fail_inputs(m, i, "its places %s are not those of its rows %s",
                                    value_text(m->c->arena, m->c->nodes, &place), extent_text(m->c->arena, &x.row));
    if (y->rows != (uint64_t)place.routed->blocks * place.routed->rows)
        return conserve_fail(m, i, "it writes %u rows, but the places are in %u blocks of %u", y->rows,
                             place.routed->blocks, place.routed->rows);
    if (r.input[OPND(DISPATCH, x)] != NODE_ZERO)
        r.input[OPND(DISPATCH, x)] = experts_sent(m, &x);
    if (r.input[OPND(DISPATCH, weight)] != NODE_ZERO)
        r.input[OPND(DISPATCH, weight)] = experts_sent(m, &weight);
    uint32_t node = conserve_find(m, i, &r);
    if (node == NONE)
        return false;
    struct value v = conserve_value(m->c, node, NULL, place.routed->from ? place.row : extent_new(0, moe->experts),
                                    x.col);
    v.routed = place.routed;
    v.eight = x.eight;
    return conserve_emit_one(m, i, OPND(DISPATCH, y), &v);
}

/* Have rows come back to the tokens of `place`, all of them? */
static bool check_home(struct machine *m, uint32_t i, const struct value *x, const struct value *place)
{
    const struct moe *moe = experts_layer(m, place->node);
    struct blocks own, *all = &own;
    struct extent experts = extent_new(0, moe ? moe->experts : 0);
    if (!moe || !place->routed || !x->routed || !extent_same(&x->row, place->routed->from ? &place->row : &experts) ||
        x->routed->blocks != place->routed->blocks || x->routed->rows != place->routed->rows ||
        x->routed->once != place->routed->once ||
        !(place->routed->once || value_routed_same(x->routed->from, place->routed->from)))
        return conserve_fail_inputs(m, i, "its rows %s are not in the places of %s",
                                    value_text(m->c->arena, m->c->nodes, x),
                                    value_text(m->c->arena, m->c->nodes, place));
    own = place->routed->tokens;
    for (uint32_t k = 0; k < m->c->plan->mesh.ndigits; k++) {
        uint32_t digit = m->c->plan->mesh.order[k];
        if (x->routed->home & AXIS_BIT(digit) &&
            !sets_reduce(m->c->nodes->sets, all, digit, m->c->plan->mesh.size[digit], all))
            return conserve_fail(m, i, "its tokens are not the members' own");
    }
    return blocks_equal(all, &x->routed->tokens) ||
           conserve_fail_inputs(m, i, "its rows were sent by tokens %s, its places are of %s",
                                blocks_text(m->c->arena, &x->routed->tokens), blocks_text(m->c->arena, all));
}

/* Sums over each node's experts, in the blocks of these nodes, to those over all: the members that they came from had,
 * at their number in the digits of `home`, the experts that the sums are over. */
static bool combine_nodes(struct machine *m, uint32_t i, const struct value *place)
{
    const struct mesh *mesh = &m->c->plan->mesh;
    struct parts *p = &m->c->parts[0];
    if (!conserve_read_parts(m, i, OPND(COMBINE, x), p))
        return false;
    struct value v = p->at[0].value;
    if (p->n != 1 || v.kind != VALUE_NODES || v.node != NODE_ZERO || v.nterms != 1 || !v.routed ||
        prove_operand(m->program, i, OPND(COMBINE, weight))->buffer != NONE)
        return conserve_fail_inputs(m, i, "it sums %s, which are no sums of nodes' experts",
                                    value_text(m->c->arena, m->c->nodes, &v));
    if (!check_home(m, i, &v, place))
        return false;
    uint32_t home = v.routed->home;
    v.routed = NULL;
    for (uint32_t k = 0; k < mesh->ndigits; k++) {
        const char *why = home & AXIS_BIT(mesh->order[k])
                              ? value_reduce(m->c->scratch, m->c->nodes, mesh, &v, mesh->order[k], false, &v)
                              : NULL;
        if (why)
            return conserve_fail_inputs(m, i, "%s", why);
    }
    if (v.nterms)
        return conserve_fail_inputs(m, i, "of all nodes it has %s", value_text(m->c->arena, m->c->nodes, &v));
    v.row = place->row;
    return conserve_emit_one(m, i, OPND(COMBINE, y), &v);
}

bool rule_COMBINE(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_COMBINE};
    struct value x, place, weight;
    if (!experts_input(m, i, &r, OPND(COMBINE, place), NULL, &place) || !experts_whole_columns(m, i, &place))
        return false;
    if (place.routed && place.routed->once && experts_node(m, place.node)->recipe.output == 0 && !place.routed->from)
        return combine_nodes(m, i, &place);
    if (!experts_input(m, i, &r, OPND(COMBINE, x), NULL, &x) ||
        !experts_input(m, i, &r, OPND(COMBINE, weight), NULL, &weight) || !check_home(m, i, &x, &place) ||
        !weights_of(m, i, &weight, &place))
        return false;
    if (r.input[OPND(COMBINE, weight)] != NODE_ZERO)
        r.input[OPND(COMBINE, weight)] = experts_sent(m, &weight);
    const struct routed *from = place.routed->from;
    return experts_output(m, i, &r, OPND(COMBINE, y), from ? &place.row : NULL, place.row, x.col, from);
}

bool rule_COMBINE_W(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_COMBINE_W};
    struct value x, place, dy;
    if (!experts_input(m, i, &r, OPND(COMBINE_W, x), NULL, &x) ||
        !experts_input(m, i, &r, OPND(COMBINE_W, place), NULL, &place) ||
        !experts_input(m, i, &r, OPND(COMBINE_W, dy), NULL, &dy) || !check_home(m, i, &x, &place) ||
        !experts_whole_columns(m, i, &x) || !experts_whole_columns(m, i, &place))
        return false;
    const struct routed *from = place.routed->from;
    const struct extent *over = from ? &place.row : NULL;
    if (prove_operand(m->program, i, OPND(COMBINE_W, dy))->buffer == NONE)
        return experts_output(m, i, &r, OPND(COMBINE_W, dweight), over, place.row, place.col, from);
    if (!experts_whole_columns(m, i, &dy))
        return false;
    if (dy.routed || from || !extent_same(&dy.row, &place.row))
        return conserve_fail_inputs(m, i, "its gradient is of rows %s, its places of %s",
                                    extent_text(m->c->arena, &dy.row), extent_text(m->c->arena, &place.row));
    return experts_output(m, i, &r, OPND(COMBINE_W, dweight), NULL, place.row, place.col, NULL);
}

/* ---- products ---- */

/* rows, counts (and weights) of the same experts, sent by the same tokens, in the blocks that the instruction
 * says */
static bool check_group(struct machine *m, uint32_t i, const struct value *a, const struct value *counts)
{
    int64_t experts = prove_attr(m->program, i, ATTR(GROUPED_NT, experts))->u.i,
            blocks = prove_attr(m->program, i, ATTR(GROUPED_NT, blocks))->u.i;
    if (!a->routed || !counts->routed)
        return conserve_fail_inputs(m, i, "it reads %s and %s as rows and counts of experts",
                                    value_text(m->c->arena, m->c->nodes, a),
                                    value_text(m->c->arena, m->c->nodes, counts));
    if (!same_rows(m, i, a, counts))
        return false;
    return (a->row.len == experts && a->routed->blocks == blocks && !a->routed->home) ||
           conserve_fail(m, i, "its rows are %s in %u blocks, not %lld experts in %lld",
                         value_text(m->c->arena, m->c->nodes, a), a->routed->blocks, (long long)experts,
                         (long long)blocks);
}

/* a row of bias for each of the experts whose rows x are, of these columns; sums must be whole where it is added */
static bool check_bias(struct machine *m, uint32_t i, const struct value *bias, const struct value *a,
                       const struct extent *col)
{
    return (extent_same(&bias->member, &a->row) && extent_same(&bias->col, col) &&
            extent_whole(&a->col, experts_node(m, a->node)->cols)) ||
           conserve_fail_inputs(m, i, "it adds %s to columns %s of products of %s",
                                value_text(m->c->arena, m->c->nodes, bias), extent_text(m->c->arena, col),
                                value_text(m->c->arena, m->c->nodes, a));
}

static bool grouped(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = m->program->insns[i].op};
    struct value a, b, counts, bias;
    r.attr[ATTR(GROUPED_NT, fp8)] = (uint64_t)prove_attr(m->program, i, ATTR(GROUPED_NT, fp8))->u.i;
    if (!experts_input(m, i, &r, OPND(GROUPED_NT, a), NULL, &a) ||
        !experts_input(m, i, &r, OPND(GROUPED_NT, b), NULL, &b) ||
        !experts_input(m, i, &r, OPND(GROUPED_NT, counts), NULL, &counts) || !check_group(m, i, &a, &counts))
        return false;
    const struct extent *inner = r.op == OP_GROUPED_NT ? &b.col : &b.row;
    if (!extent_same(&b.member, &a.row) || !extent_same(&a.col, inner))
        return conserve_fail_inputs(m, i, "it multiplies %s by %s", value_text(m->c->arena, m->c->nodes, &a),
                                    value_text(m->c->arena, m->c->nodes, &b));
    if (r.op == OP_GROUPED_NT && prove_operand(m->program, i, OPND(GROUPED_NT, bias))->buffer != NONE &&
        (!experts_input(m, i, &r, OPND(GROUPED_NT, bias), NULL, &bias) || !check_bias(m, i, &bias, &a, &b.row)))
        return false;
    return experts_output(m, i, &r, OPND(GROUPED_NT, c), &a.col, a.row, r.op == OP_GROUPED_NT ? b.row : b.col,
                          a.routed);
}

bool rule_GROUPED_NT(struct machine *m, uint32_t i)
{
    return grouped(m, i);
}

bool rule_GROUPED_NN(struct machine *m, uint32_t i)
{
    return grouped(m, i);
}

/* what is summed over the rows of each expert: of the tokens that sent them */
static bool of_experts(struct machine *m, uint32_t i, size_t k, const struct recipe *r, const struct value *rows,
                       struct extent row, struct extent col)
{
    uint32_t node = conserve_find(m, i, r);
    if (node == NONE)
        return false;
    struct value v = {.kind = VALUE_NODES, .node = node, .row = row, .col = col, .member = rows->row};
    if (!blocks_whole(&rows->routed->tokens, experts_node(m, node)->domain)) {
        struct term *term = ARENA_NEW(m->c->scratch, struct term);
        *term = (struct term){node, rows->routed->tokens};
        v.node = NODE_ZERO;
        v.nterms = 1;
        v.terms = term;
    }
    return conserve_emit_one(m, i, k, &v);
}

bool rule_GROUPED_TN(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_GROUPED_TN, .output = OPND(GROUPED_TN, c)};
    struct value a, b, counts;
    r.attr[ATTR(GROUPED_TN, fp8)] = (uint64_t)prove_attr(m->program, i, ATTR(GROUPED_TN, fp8))->u.i;
    if (!experts_input(m, i, &r, OPND(GROUPED_TN, a), NULL, &a) ||
        !experts_input(m, i, &r, OPND(GROUPED_TN, b), &a, &b) ||
        !experts_input(m, i, &r, OPND(GROUPED_TN, counts), NULL, &counts) || !check_group(m, i, &a, &counts))
        return false;
    return of_experts(m, i, OPND(GROUPED_TN, c), &r, &a, a.col, b.col);
}

bool rule_GROUPED_BIAS_W(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_GROUPED_BIAS_W, .output = OPND(GROUPED_BIAS_W, db)};
    struct value dy, weight, counts;
    if (!experts_input(m, i, &r, OPND(GROUPED_BIAS_W, dy), NULL, &dy) ||
        !experts_input(m, i, &r, OPND(GROUPED_BIAS_W, counts), NULL, &counts) || !check_group(m, i, &dy, &counts))
        return false;
    if (prove_operand(m->program, i, OPND(GROUPED_BIAS_W, weight))->buffer != NONE &&
        !experts_input(m, i, &r, OPND(GROUPED_BIAS_W, weight), &dy, &weight))
        return false;
    return of_experts(m, i, OPND(GROUPED_BIAS_W, db), &r, &dy, extent_new(0, 1), dy.col);
}

/* Rows, with the weights that the same tokens sent along; sums over columns of which only some are here are partial. */
bool rule_WEIGH_I(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_WEIGH_I};
    struct value dy, x, weight;
    if (!experts_input(m, i, &r, OPND(WEIGH_I, dy), NULL, &dy) || !experts_input(m, i, &r, OPND(WEIGH_I, x), &dy, &x) ||
        !experts_input(m, i, &r, OPND(WEIGH_I, weight), &dy, &weight) || !experts_whole_columns(m, i, &weight))
        return false;
    if (!dy.routed || dy.routed->home || !extent_same(&dy.col, &x.col))
        return conserve_fail_inputs(m, i, "it weighs %s with the gradient %s", value_text(m->c->arena, m->c->nodes, &x),
                                    value_text(m->c->arena, m->c->nodes, &dy));
    return experts_output(m, i, &r, OPND(WEIGH_I, dx), NULL, dy.row, dy.col, dy.routed) &&
           experts_output(m, i, &r, OPND(WEIGH_I, y), NULL, dy.row, dy.col, dy.routed) &&
           experts_output(m, i, &r, OPND(WEIGH_I, dweight), &dy.col, dy.row, extent_new(0, 1), dy.routed);
}

/* the clipping factor; where blocks are bounded it must see what they lack, of the whole world */
static bool clip(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = m->program->insns[i].op};
    struct value sum, need, state;
    bool scaled = r.op == OP_CLIP_SCALED;
    size_t k = scaled ? OPND(CLIP_SCALED, need) : OPND(CLIP, need);
    conserve_attrs(m, i, &r);
    if (!experts_input(m, i, &r, OPND(CLIP, sum), NULL, &sum) || !experts_input(m, i, &r, k, NULL, &need) ||
        (scaled &&
         (!experts_input(m, i, &r, OPND(CLIP_SCALED, state), NULL, &state) || !experts_whole_columns(m, i, &state))))
        return false;
    r.input[k] = NODE_ZERO;
    uint32_t seen = need.kind == VALUE_NODES ? need.node : NODE_ZERO;
    m->differ_need |= m->saw_need != NONE && m->saw_need != seen;
    m->saw_need = seen;
    if (seen != NODE_ZERO && seen != m->c->need)
        return conserve_fail_inputs(m, i, "it reads %s as what experts lack",
                                    value_text(m->c->arena, m->c->nodes, &need));
    for (size_t out = 0; scaled && out < 2; out++) {
        size_t words[] = {OPND(CLIP_SCALED, sum), OPND(CLIP_SCALED, state)};
        if (!experts_output(m, i, &r, words[out], NULL, extent_new(0, 1), extent_new(0, out ? SCALE_WORDS : 1), NULL))
            return false;
    }
    return experts_output(m, i, &r, OPND(CLIP, scale), NULL, extent_new(0, 1), extent_new(0, 1), NULL);
}

bool rule_CLIP(struct machine *m, uint32_t i)
{
    return clip(m, i);
}

bool rule_CLIP_SCALED(struct machine *m, uint32_t i)
{
    return clip(m, i);
}
