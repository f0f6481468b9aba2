/* Property 7: which row each choice gets.
 *
 * ARRANGE gives one to every choice, ARRANGE_ONCE one to all choices of a token on a node, and what it says
 * of them is what ARRANGE reads where the rows arrive.  A block that may lack room must say what it lacks, or
 * be as long as what its tokens can send at most.  Choices that are arranged once more, in as many rows or
 * more, lack nothing that was not said before.  That nothing of what was said is lost shows at the end, where
 * all choices are complete (conserve_state.c); so no choice may be said twice, or one that says less could
 * stand in for it. */

#include "compiler/verify/conserve_experts.h"

#include <math.h>
#include <stdlib.h>

static struct routed *new_routed(struct machine *m, const struct extent *row, uint32_t blocks, uint32_t rows)
{
    struct routed *t = ARENA_NEW(m->c->scratch, struct routed);
    struct blocks own = sets_one(m->c->nodes->sets, &(struct block){.extent = *row, .count = 1});
    *t = (struct routed){.tokens = own, .blocks = blocks, .rows = rows};
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

/* Which layers' blocks may lack room follows from the rows that they have (check_room()): what these say is
 * what the step needs to know. */
static void all_needs(struct conserve *c, uint32_t node)
{
    for (size_t k = 0; k < c->lacks.n; k++)
        if (c->lacks.at[k] == node)
            return;
    vec_push(c->scratch, &c->lacks, node);
    c->need = nodes_sum(c->nodes, c->need, node);
    nodes_label(c->nodes, c->need, "rows that experts lack");
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

/* ---- what was told ---- */

static int64_t first_token(const struct told *t)
{
    return t->own.n ? t->own.at[0].extent.lo : 0;
}

static uint32_t *told_chain(const struct conserve *c, const struct told *t)
{
    uint64_t h = ((uint64_t)t->node << 40 ^ (uint64_t)first_token(t)) * 0x9e3779b97f4a7c15u;
    return &c->told_at[h >> 32 & (TOLD_ROOM - 1)];
}

static void tell(struct conserve *c, struct told t)
{
    uint32_t *chain = told_chain(c, &t);
    t.next = *chain;
    vec_push(c->scratch, &c->told, t);
    *chain = (uint32_t)c->told.n;
}

void conserve_adopt_told(struct conserve *to, const struct conserve *from)
{
    for (size_t k = 0; k < from->lacks.n; k++)
        all_needs(to, from->lacks.at[k]);
    for (size_t k = 0; k < from->told.n; k++)
        tell(to, from->told.at[k]);
}

static bool told_before(const struct conserve *c, const struct told *t)
{
    for (uint32_t k = *told_chain(c, t); k; k = c->told.at[k - 1].next) {
        const struct told *x = &c->told.at[k - 1];
        if (x->node == t->node && x->rows <= t->rows && x->blocks == t->blocks && extent_same(&x->row, &t->row) &&
            blocks_equal(&x->own, &t->own) && blocks_equal(&x->came, &t->came))
            return true;
    }
    return false;
}

static int by_node(const void *x, const void *y)
{
    const struct told *a = x, *b = y;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return (first_token(a) > first_token(b)) - (first_token(a) < first_token(b));
}

/* Do two sets of tokens, as they mostly are, move from rank to rank in the same way? */
static bool same_steps(const struct blocks *x, const struct blocks *y)
{
    if (x->n != 1 || y->n != 1)
        return false;
    struct block moved = x->at[0];
    moved.extent.lo = y->at[0].extent.lo;
    return blocks_same(&moved, &y->at[0]) && moved.count == 1 && !moved.turns;
}

/* Have both sets some token in common?  y's do not begin before x's. */
static bool share_tokens(struct conserve *c, const struct told *x, const struct told *y)
{
    struct blocks both;
    if (!same_steps(&x->own, &y->own))
        return !blocks_union(c->scratch, &x->own, &y->own, &both);
    return first_token(y) < first_token(x) + x->own.at[0].extent.len;
}

/* The n of one node are in order of their tokens: where all move alike, only neighbours can have tokens in common. */
static bool told_once(struct conserve *c, const struct told *t, size_t n)
{
    bool alike = true;
    for (size_t i = 1; i < n && alike; i++)
        alike = same_steps(&t[0].own, &t[i].own);
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k-- > (alike ? i - 1 : 0);)
            if (share_tokens(c, &t[k], &t[i]))
                return conserve_fail(&c->machines[t[i].role], t[i].insn, "what these choices lack is told twice");
    return true;
}

bool conserve_told(struct conserve *c)
{
    if (c->told.n)
        qsort(c->told.at, c->told.n, sizeof *c->told.at, by_node);
    for (size_t i = 0, n; i < c->told.n; i += n) {
        for (n = 1; i + n < c->told.n && c->told.at[i + n].node == c->told.at[i].node;)
            n++;
        if (!told_once(c, &c->told.at[i], n))
            return false;
    }
    return true;
}

/* Refuses blocks that may lack room for up to `most` rows while nobody is told. */
static bool check_room(struct machine *m, uint32_t i, struct recipe *r, size_t need, const struct value *index,
                       const struct routed *t, const struct blocks *own, int64_t most, bool *bounded)
{
    r->output = (uint16_t)need;
    struct told told = {conserve_find(m, i, r), m->role, i, t->blocks, t->rows, index->row, *own, t->tokens, 0};
    *bounded = prove_operand(m->program, i, need)->buffer != NONE;
    if (told.node == NONE)
        return false;
    if (*bounded)
        tell(m->c, told);
    return *bounded || t->rows >= most || told_before(m->c, &told) ||
           conserve_fail(m, i, "its blocks of %lld rows may lack room for up to %lld, and nobody is told",
                         (long long)t->rows, (long long)most);
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
    if (experts != index->row.len)
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
    struct routed *t = ARENA_NEW(m->c->scratch, struct routed);
    *t = (struct routed){.tokens = came->tokens, .blocks = (uint32_t)blocks, .rows = (uint32_t)rows, .from = came};
    r->input[OPND(ARRANGE, index)] = experts_sent(m, index);
    if (!check_room(m, i, r, OPND(ARRANGE, need), index, t, &sent->tokens, most * came->blocks, &bounded))
        return false;
    return (!bounded || lacks(m, i, r, OPND(ARRANGE, need), &sent->tokens)) &&
           experts_output(m, i, r, OPND(ARRANGE, place), NULL, index->row, index->col, t) &&
           experts_output(m, i, r, OPND(ARRANGE, counts), NULL, index->row, extent_new(0, 1), t);
}

bool rule_ARRANGE(struct machine *m, uint32_t i)
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
    if (!moe || experts != moe->experts || prove_attr(m->program, i, ATTR(ARRANGE, tokens))->u.i)
        return conserve_fail(m, i, "it arranges %lld experts in %lld blocks", (long long)experts, (long long)blocks);
    if (capacity != capacity_of(m, moe, index.row.len))
        return conserve_fail(m, i, "its capacity of %lld rows is not the model's", (long long)capacity);
    int64_t own = experts / blocks, each = moe->active < own ? moe->active : own;
    const struct routed *t = new_routed(m, &index.row, (uint32_t)blocks, (uint32_t)rows);
    if (!check_room(m, i, &r, OPND(ARRANGE, need), &index, t, &t->tokens,
                    most_rows(m, index.row.len, each, own, capacity), &bounded))
        return false;
    return (!bounded || lacks(m, i, &r, OPND(ARRANGE, need), &t->tokens)) &&
           experts_output(m, i, &r, OPND(ARRANGE, place), NULL, index.row, index.col, t) &&
           experts_output(m, i, &r, OPND(ARRANGE, counts), NULL, extent_new(0, experts), extent_new(0, 1), t);
}

/* a row of each token for every node that it has a choice on, and which */
bool rule_ARRANGE_ONCE(struct machine *m, uint32_t i)
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
    if (!moe || index.routed || experts != moe->experts ||
        mean != model_node_rows(moe, (uint32_t)blocks, (double)index.row.len))
        return conserve_fail(m, i, "it arranges %lld experts on %lld nodes", (long long)experts, (long long)blocks);
    if (capacity != capacity_of(m, moe, index.row.len))
        return conserve_fail(m, i, "its capacity of %lld rows is not the model's", (long long)capacity);
    struct routed *t = new_routed(m, &index.row, (uint32_t)blocks, (uint32_t)rows);
    if (!check_room(m, i, &r, OPND(ARRANGE_ONCE, need), &index, t, &t->tokens,
                    most_rows(m, index.row.len, 1, experts / blocks, capacity), &bounded))
        return false;
    if (bounded && !lacks(m, i, &r, OPND(ARRANGE_ONCE, need), &t->tokens))
        return false;
    r.output = OPND(ARRANGE_ONCE, place);
    t->once = conserve_find(m, i, &r);
    return t->once != NONE && experts_output(m, i, &r, OPND(ARRANGE_ONCE, place), NULL, index.row, index.col, t) &&
           experts_output(m, i, &r, OPND(ARRANGE_ONCE, chosen), NULL, extent_new(0, experts), index.col, t);
}
