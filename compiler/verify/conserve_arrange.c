/* Property 7: which row each choice gets.
 *
 * ARRANGE gives one to every choice, ARRANGE_ONCE one to all choices of a token on a node, and what it says of them is what
 * ARRANGE reads where the rows arrive.  A block that may lack room must say what it lacks, or be as long as what its tokens can
 * send at most. */

#include "compiler/verify/conserve_experts.h"

#include <math.h>

static struct routed *new_routed(struct machine *m, const struct extent *row, uint32_t blocks,
                                       uint32_t rows)
{
    struct routed *t = ARENA_NEW(m->c->scratch, struct routed);
    struct block *b = ARENA_NEW(m->c->scratch, struct block);
    *b = (struct block){.extent = *row, .count = 1};
    *t = (struct routed){.tokens = {1, b}, .blocks = blocks, .rows = rows};
    return t;
}

/* Rows of one block that these tokens can need at most; `each` for one token. */
static int64_t most_rows(const struct machine *m, int64_t tokens, int64_t each, int64_t experts, int64_t capacity)
{
    int64_t own = conserve_sequence(m), part = own < tokens ? own : tokens, most = tokens * each;
    int64_t sequences = tokens % part ? tokens / part + 2 : tokens / part;
    return capacity && sequences * capacity * experts < most ? sequences * capacity * experts : most;
}

/* the model's: rows per sequence and expert that `tokens` tokens may have; 0 = no limit */
static int64_t capacity_of(const struct machine *m, const struct moe *moe, int64_t tokens)
{
    int64_t own = conserve_sequence(m), part = own < tokens ? own : tokens;
    return moe->capacity > 0 ? (int64_t)ceil(moe->capacity * (double)part * moe->active / moe->experts) : 0;
}

/* The value that rows were sent to nodes of; the node itself where they were not. */
uint32_t experts_sent(const struct machine *m, const struct value *v)
{
    const struct recipe *r = &experts_node(m, v->node)->recipe;
    if (v->kind != VALUE_NODES || !v->routed || !v->routed->once)
        return v->node;
    return r->op == OP_ARRANGE_ONCE ? r->input[OPND(ARRANGE_ONCE, index)] : r->input[OPND(DISPATCH, x)];
}

/* Which layers' blocks may lack room follows from the rows that they have (check_room()): what these say is what the step
 * needs to know. */
static void all_needs(struct conserve *c, uint32_t node)
{
    for (size_t k = 0; k < c->lacks.n; k++)
        if (c->lacks.at[k] == node)
            return;
    vec_push(c->scratch, &c->lacks, node);
    c->need = nodes_sum(c->nodes, c->need, node);
    nodes_label(c->nodes, c->need, "rows that experts lack", 2);
}

/* what these rows lack joins what others lacked before; every rank answers for its own tokens */
static bool lacks(struct machine *m, uint32_t i, struct recipe *r, size_t need, const struct blocks *tokens)
{
    struct parts *p = &m->c->parts[0];
    if (!conserve_read_parts(m, i, need, p))
        return false;
    r->output = (uint16_t)need;
    uint32_t node = conserve_find(m, i, r);
    if (node == NONE)
        return false;
    all_needs(m->c, node);
    struct value v = {.kind = VALUE_NODES, .node = node, .row = extent_new(0, 1), .col = extent_new(0, 2)}, sum;
    struct term *term = ARENA_NEW(m->c->scratch, struct term);
    *term = (struct term){node, *tokens};
    if (!blocks_whole(tokens, experts_node(m, node)->domain)) {
        v.node = NODE_ZERO;
        v.nterms = 1;
        v.terms = term;
    }
    sum = v;
    const char *why = p->n == 1 ? value_add(m->c->scratch, m->c->nodes, &p->at[0].value, &v, &sum)
                                : "what experts lack is not in one place";
    return why ? conserve_fail_inputs(m, i, "%s", why) : conserve_emit_one(m, i, need, &sum);
}

/* may blocks of so many rows lack room where nobody is told? */
static bool check_room(struct machine *m, uint32_t i, size_t need, int64_t rows, int64_t most, bool *bounded)
{
    *bounded = prove_operand(m->program, i, need)->buffer != NONE;
    return rows >= most || *bounded || m->program->insns[i].action != 'F' ||
           conserve_fail(m, i, "its blocks of %lld rows may lack room for up to %lld, and nobody is told",
                         (long long)rows, (long long)most);
}

/* choices that came to a node with the rows of tokens; of the node's own experts, counted from its first */
static bool arrange_node(struct machine *m, uint32_t i, struct recipe *r, const struct value *index)
{
    const struct moe *moe = experts_layer(m, index->node);
    const struct routed *came = index->routed, *sent = came->from;
    int64_t experts = prove_attr(m->program, i, ATTR(ARRANGE, experts))->u.i,
            blocks = prove_attr(m->program, i, ATTR(ARRANGE, blocks))->u.i;
    int64_t rows = prove_attr(m->program, i, ATTR(ARRANGE, rows))->u.i;
    bool bounded;
    if (!moe || !sent || came->home || index->row.len * came->blocks != moe->experts || sent->tokens.n != 1 ||
        experts_node(m, index->node)->recipe.op != OP_ARRANGE_ONCE)
        return conserve_fail_inputs(m, i, "it arranges %s, which are no choices that came to a node",
                                    value_text(m->c->arena, m->c->nodes, index));
    if (experts != index->row.len || experts % blocks)
        return conserve_fail(m, i, "it arranges %lld experts in %lld blocks", (long long)experts, (long long)blocks);
    int64_t tokens = sent->tokens.at[0].extent.len, own = experts / blocks, capacity = capacity_of(m, moe, tokens);
    const struct attr *start = prove_attr(m->program, i, ATTR(ARRANGE, start));
    if (prove_attr(m->program, i, ATTR(ARRANGE, capacity))->u.i || start->u.i || start->slot != NONE ||
        prove_attr(m->program, i, ATTR(ARRANGE, sequence))->u.i != conserve_sequence(m))
        return conserve_fail(m, i, "it counts choices that came to a node by sequence");
    if (prove_attr(m->program, i, ATTR(ARRANGE, tokens))->u.i != tokens)
        return conserve_fail(m, i, "its mean is not that of %lld tokens", (long long)tokens);
    int64_t each = moe->active < own ? moe->active : own, most = came->rows * each;
    if (capacity && most_rows(m, tokens, each, own, capacity) < most)
        most = most_rows(m, tokens, each, own, capacity);
    if (!check_room(m, i, OPND(ARRANGE, need), rows, most * came->blocks, &bounded))
        return false;
    struct routed *t = ARENA_NEW(m->c->scratch, struct routed);
    *t = (struct routed){.tokens = came->tokens, .blocks = (uint32_t)blocks, .rows = (uint32_t)rows, .from = came};
    r->input[OPND(ARRANGE, index)] = experts_sent(m, index);
    return (!bounded || lacks(m, i, r, OPND(ARRANGE, need), &sent->tokens)) &&
           experts_output(m, i, r, OPND(ARRANGE, place), NULL, index->row, index->col, t) &&
           experts_output(m, i, r, OPND(ARRANGE, counts), NULL, index->row, extent_new(0, 1), t);
}

bool experts_arrange(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_ARRANGE};
    struct value index;
    bool bounded;
    if (!experts_input(m, i, &r, OPND(ARRANGE, index), NULL, &index) || !experts_whole_columns(m, i, &index))
        return false;
    if (index.routed && index.routed->once)
        return arrange_node(m, i, &r, &index);
    if (!experts_check_start(m, i, ATTR(ARRANGE, sequence), ATTR(ARRANGE, start), &index.row))
        return false;
    const struct moe *moe = experts_layer(m, index.node);
    int64_t experts = prove_attr(m->program, i, ATTR(ARRANGE, experts))->u.i,
            blocks = prove_attr(m->program, i, ATTR(ARRANGE, blocks))->u.i;
    int64_t rows = prove_attr(m->program, i, ATTR(ARRANGE, rows))->u.i,
            capacity = prove_attr(m->program, i, ATTR(ARRANGE, capacity))->u.i;
    if (!moe || experts != moe->experts || experts % blocks || prove_attr(m->program, i, ATTR(ARRANGE, tokens))->u.i)
        return conserve_fail(m, i, "it arranges %lld experts in %lld blocks", (long long)experts,
                             (long long)blocks);
    if (capacity != capacity_of(m, moe, index.row.len))
        return conserve_fail(m, i, "its capacity of %lld rows is not the model's", (long long)capacity);
    int64_t own = experts / blocks, each = moe->active < own ? moe->active : own;
    if (!check_room(m, i, OPND(ARRANGE, need), rows, most_rows(m, index.row.len, each, own, capacity), &bounded))
        return false;
    const struct routed *t = new_routed(m, &index.row, (uint32_t)blocks, (uint32_t)rows);
    return (!bounded || lacks(m, i, &r, OPND(ARRANGE, need), &t->tokens)) &&
           experts_output(m, i, &r, OPND(ARRANGE, place), NULL, index.row, index.col, t) &&
           experts_output(m, i, &r, OPND(ARRANGE, counts), NULL, extent_new(0, experts), extent_new(0, 1), t);
}

/* a row of each token for every node that it has a choice on, and which */
bool experts_arrange_once(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_ARRANGE_ONCE};
    struct value index;
    bool bounded;
    if (!experts_input(m, i, &r, OPND(ARRANGE_ONCE, index), NULL, &index) || !experts_whole_columns(m, i, &index) ||
        !experts_check_start(m, i, ATTR(ARRANGE_ONCE, sequence), ATTR(ARRANGE_ONCE, start), &index.row))
        return false;
    const struct moe *moe = experts_layer(m, index.node);
    int64_t experts = prove_attr(m->program, i, ATTR(ARRANGE_ONCE, experts))->u.i,
            blocks = prove_attr(m->program, i, ATTR(ARRANGE_ONCE, blocks))->u.i;
    int64_t rows = prove_attr(m->program, i, ATTR(ARRANGE_ONCE, rows))->u.i,
            capacity = prove_attr(m->program, i, ATTR(ARRANGE_ONCE, capacity))->u.i;
    double mean = prove_attr(m->program, i, ATTR(ARRANGE_ONCE, mean))->u.f;
    if (!moe || index.routed || experts != moe->experts || blocks < 1 || experts % blocks ||
        mean != model_node_rows(moe, (uint32_t)blocks, (double)index.row.len))
        return conserve_fail(m, i, "it arranges %lld experts on %lld nodes", (long long)experts, (long long)blocks);
    if (capacity != capacity_of(m, moe, index.row.len))
        return conserve_fail(m, i, "its capacity of %lld rows is not the model's", (long long)capacity);
    if (!check_room(m, i, OPND(ARRANGE_ONCE, need), rows, most_rows(m, index.row.len, 1, experts / blocks, capacity), &bounded))
        return false;
    struct routed *t = new_routed(m, &index.row, (uint32_t)blocks, (uint32_t)rows);
    if (bounded && !lacks(m, i, &r, OPND(ARRANGE_ONCE, need), &t->tokens))
        return false;
    r.output = OPND(ARRANGE_ONCE, place);
    t->once = conserve_find(m, i, &r);
    return t->once != NONE && experts_output(m, i, &r, OPND(ARRANGE_ONCE, place), NULL, index.row, index.col, t) &&
           experts_output(m, i, &r, OPND(ARRANGE_ONCE, chosen), NULL, extent_new(0, experts), index.col, t);
}
