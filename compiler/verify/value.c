/* Nodes (hash-consed matrices of the reference step) and linear forms over them; see value.h.
 *
 * A node is found by its whole recipe, compared exactly.  Sums are the one exception: a sum is told from
 * others by the sum of its addends' 128-bit fingerprints, so that order and grouping of additions don't
 * matter and x + y - which is added to a residual stream hundreds of times - costs one addition.  Two
 * different sums collide with probability about nodes^2 / 2^128. */

#include "compiler/verify/value.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

static uint64_t mix(uint64_t x)
{
    /* finaliser of splitmix64 (Steele, Lea, Flood 2014) */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t hash_recipe(const struct recipe *r, uint64_t seed)
{
    uint64_t h = mix(seed ^ ((uint64_t)r->op << 16 | r->output));
    for (int i = 0; i < RECIPE_INPUTS; i++)
        h = mix(h + 0x9e3779b97f4a7c15u * (r->input[i] + 1));
    for (int i = 0; i < RECIPE_ATTRS; i++)
        h = mix(h + r->attr[i] + 0x632be59bd9b4e019u);
    return h;
}

/* for the table, where recipes are compared as well: of those inputs and attributes alone that the opcode has */
static uint64_t hash_used(const struct recipe *r)
{
    const struct isa_info *info = recipe_info(r);
    uint32_t inputs = info ? info->noperands : RECIPE_INPUTS, attrs = info ? info->nattrs : RECIPE_ATTRS;
    uint64_t h = (uint64_t)r->op << 16 | r->output;
    for (uint32_t i = 0; i < inputs; i++)
        h = (h ^ r->input[i]) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < attrs; i++)
        h = (h ^ h >> 32 ^ r->attr[i]) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

struct nodes *nodes_new(struct arena *a)
{
    struct nodes *g = ARENA_NEW(a, struct nodes);
    *g = (struct nodes){.arena = a, .room = 256, .table_room = 1024, .sets = sets_new(a)};
    g->at = ARENA_ARRAY(a, struct node, g->room);
    g->table = ARENA_ARRAY(a, uint32_t, g->table_room); /* node + 1; 0 = free */
    g->at[NODE_ZERO] = (struct node){.recipe = {.op = RECIPE_SUM}, .name = "zero"};
    g->n = 1;
    return g;
}

/* sums hash by their fingerprint, others by their recipe */
static uint64_t node_hash(const struct node *n)
{
    return n->recipe.op == RECIPE_SUM ? n->sum[0] : hash_used(&n->recipe);
}

static bool same_recipe(const struct recipe *x, const struct recipe *y)
{
    return x->op == y->op && x->output == y->output && !memcmp(x->input, y->input, sizeof x->input) &&
           !memcmp(x->attr, y->attr, sizeof x->attr);
}

static bool same_node(const struct node *x, const struct node *y)
{
    if (x->recipe.op != y->recipe.op)
        return false;
    return x->recipe.op == RECIPE_SUM ? !memcmp(x->sum, y->sum, sizeof x->sum) : same_recipe(&x->recipe, &y->recipe);
}

static uint32_t *find_slot(const struct nodes *g, const struct node *n)
{
    uint32_t i = (uint32_t)node_hash(n) & (g->table_room - 1);
    while (g->table[i] && !same_node(&g->at[g->table[i] - 1], n))
        i = (i + 1) & (g->table_room - 1);
    return &g->table[i];
}

static void grow(struct nodes *g)
{
    if (g->n == g->room) {
        g->at = arena_grow(g->arena, g->at, g->room, 2 * (size_t)g->room, sizeof *g->at);
        g->room *= 2;
    }
    if (2 * g->n < g->table_room)
        return;
    g->table_room *= 2;
    g->table = ARENA_ARRAY(g->arena, uint32_t, g->table_room);
    for (uint32_t i = 1; i < g->n; i++)
        *find_slot(g, &g->at[i]) = i + 1;
}

static uint32_t add_node(struct nodes *g, const struct node *n)
{
    uint32_t *slot = find_slot(g, n);
    if (*slot) {
        struct node *have = &g->at[*slot - 1];
        if (!have->name)
            *have = *n;
        return *slot - 1;
    }
    *slot = g->n + 1;
    g->at[g->n++] = *n;
    uint32_t id = g->n - 1;
    grow(g);
    return id;
}

uint32_t nodes_find(const struct nodes *g, const struct recipe *r)
{
    struct node n = {.recipe = *r};
    uint32_t *slot = find_slot(g, &n);
    return *slot ? *slot - 1 : NONE;
}

bool nodes_are(const struct nodes *g, uint32_t node, const struct recipe *r)
{
    return node < g->n && r->op != RECIPE_SUM && same_recipe(&g->at[node].recipe, r);
}

uint32_t nodes_add(struct nodes *g, const struct recipe *r, const char *name, int64_t cols, int64_t domain)
{
    struct node n = {.recipe = *r, .name = name, .cols = cols, .domain = domain};
    n.sum[0] = hash_recipe(r, 2);
    n.sum[1] = hash_recipe(r, 3);
    return add_node(g, &n);
}

uint32_t nodes_sum(struct nodes *g, uint32_t x, uint32_t y)
{
    if (x == NODE_ZERO || y == NODE_ZERO)
        return x == NODE_ZERO ? y : x;
    struct node n = {.recipe = {.op = RECIPE_SUM}, .cols = g->at[x].cols};
    n.sum[0] = g->at[x].sum[0] + g->at[y].sum[0];
    n.sum[1] = g->at[x].sum[1] + g->at[y].sum[1] + (n.sum[0] < g->at[x].sum[0]);
    n.weight = g->at[x].weight && g->at[y].weight;
    n.recipe.input[0] = x; /* for messages only */
    n.recipe.input[1] = y;
    return add_node(g, &n);
}

uint32_t nodes_adopt(struct nodes *g, const struct node *n, uint32_t common)
{
    struct node mine = *n;
    if (n->recipe.op == RECIPE_SLICE) /* which names a list of its own run */
        return NONE;
    if (n->recipe.op == RECIPE_SUM)
        memset(mine.recipe.input, 0, sizeof mine.recipe.input);
    for (uint32_t k = 0; k < RECIPE_INPUTS; k++)
        if (mine.recipe.input[k] >= common)
            return NONE;
    return add_node(g, &mine);
}

void nodes_label(struct nodes *g, uint32_t node, const char *name)
{
    g->at[node].name = name;
}

const char *nodes_name(const struct nodes *g, uint32_t node)
{
    if (g->at[node].name)
        return g->at[node].name;
    const struct recipe *r = &g->at[node].recipe;
    for (int depth = 0; depth < 64 && r->op == RECIPE_SUM; depth++) {
        if (g->at[r->input[0]].name)
            return arena_printf(g->arena, "%s + ...", g->at[r->input[0]].name);
        r = &g->at[r->input[0]].recipe;
    }
    return "a sum that the model's step does not have";
}

bool value_complete(const struct nodes *g, const struct value *v, const struct term *t)
{
    int64_t domain = g->at[t->node].domain, group = g->group;
    if (domain != DOMAIN_MICROBATCH)
        return domain && blocks_whole(&t->blocks, domain);
    if (t->blocks.n != 1 || t->blocks.at[0].count != 1 || t->blocks.at[0].first || v->row.lo < 0)
        return false;
    struct extent all = extent_new(v->row.lo / group * group, group);
    for (uint32_t d = 0; d < NDIGITS; d++)
        all.step[d] = v->row.step[d] % group ? 0 : v->row.step[d];
    return extent_same(&t->blocks.at[0].extent, &all);
}

bool value_same_place(const struct value *x, const struct value *y)
{
    return extent_same(&x->row, &y->row) && extent_same(&x->col, &y->col) && extent_same(&x->member, &y->member);
}

/* a term that has become whole joins the full node */
static void settle(struct nodes *g, struct value *v, struct term *terms, struct term t)
{
    if (value_complete(g, v, &t)) {
        v->node = nodes_sum(g, v->node, t.node);
        return;
    }
    if (!t.blocks.n)
        return;
    uint32_t i = v->nterms++;
    for (; i > 0 && terms[i - 1].node > t.node; i--)
        terms[i] = terms[i - 1];
    terms[i] = t;
}

const char *value_add(struct arena *a, struct nodes *g, const struct value *x, const struct value *y, struct value *out)
{
    if (x->kind == VALUE_ZERO || y->kind == VALUE_ZERO) {
        *out = x->kind == VALUE_ZERO ? *y : *x;
        return NULL;
    }
    if (x->kind != VALUE_NODES || y->kind != VALUE_NODES)
        return "a shard of a bucket is added to something else";
    if (!extent_same(&x->row, &y->row) || !extent_same(&x->col, &y->col))
        return arena_printf(a, "rows %s, columns %s are added to rows %s, columns %s", extent_text(a, &y->row),
                            extent_text(a, &y->col), extent_text(a, &x->row), extent_text(a, &x->col));
    if (!value_routed_same(x->routed, y->routed) || !extent_same(&x->member, &y->member))
        return "rows or weights of other experts are added";
    struct value sum = *x;
    struct term *terms = x->nterms + y->nterms ? ARENA_ARRAY(a, struct term, x->nterms + y->nterms) : NULL;
    if (x->node != NODE_ZERO && x->node == y->node)
        return arena_printf(a, "%s is added to itself", nodes_name(g, x->node));
    sum.node = nodes_sum(g, x->node, y->node);
    sum.nterms = 0;
    sum.terms = terms;
    for (uint32_t i = 0, j = 0; i < x->nterms || j < y->nterms;) {
        struct term t;
        if (j == y->nterms || (i < x->nterms && x->terms[i].node < y->terms[j].node)) {
            t = x->terms[i++];
        } else if (i == x->nterms || y->terms[j].node < x->terms[i].node) {
            t = y->terms[j++];
        } else {
            t.node = x->terms[i].node;
            if (g->at[t.node].recipe.op == OP_ATTENTION)
                return arena_printf(a, "parts of %s are added: they must be merged", nodes_name(g, t.node));
            if (!sets_union(g->sets, &x->terms[i].blocks, &y->terms[j].blocks, &t.blocks))
                return arena_printf(a, "contributions to %s would count twice: %s are there, %s are added",
                                    nodes_name(g, t.node), blocks_text(a, &x->terms[i].blocks),
                                    blocks_text(a, &y->terms[j].blocks));
            i++;
            j++;
        }
        settle(g, &sum, terms, t);
    }
    *out = sum;
    return NULL;
}

/* the dimension that a digit is, or one of its parts */
static const char *digit_name(struct arena *a, const struct mesh *mesh, uint32_t digit)
{
    char name[40];
    mesh_mask_text(mesh, AXIS_BIT(digit), " ", name, sizeof name);
    return arena_printf(a, "%s", name);
}

const char *value_reduce(struct arena *a, struct nodes *g, const struct mesh *mesh, const struct value *value,
                         uint32_t digit, bool max, struct value *out)
{
    const struct value copy = *value, *x = &copy; /* *out may be *value */
    int64_t size = mesh->size[digit];
    *out = *x;
    if (x->kind == VALUE_ZERO || size == 1)
        return NULL;
    if (x->kind != VALUE_NODES)
        return "a shard of a bucket can't be reduced";
    if (x->routed && x->routed->once)
        return "rows of tokens that went to nodes are added where they lie";
    if (x->row.step[digit] || x->col.step[digit] || x->member.step[digit])
        return arena_printf(a, "the members along %s hold different rows or columns of it", digit_name(a, mesh, digit));
    if (x->node != NODE_ZERO)
        return arena_printf(a, "%s is complete on every rank along %s: reducing it would count it %lld times",
                            nodes_name(g, x->node), digit_name(a, mesh, digit), (long long)size);
    struct term *terms = ARENA_ARRAY(a, struct term, x->nterms);
    out->terms = terms;
    out->nterms = 0;
    for (uint32_t i = 0; i < x->nterms; i++) {
        struct term t = x->terms[i];
        if (g->at[t.node].recipe.op == OP_ATTENTION)
            return arena_printf(a, "parts of %s are reduced: they must be merged", nodes_name(g, t.node));
        if (g->at[t.node].max != max)
            return arena_printf(a, "%s is a %s", nodes_name(g, t.node),
                                max ? "sum, not a maximum" : "maximum, not a sum");
        if (!sets_reduce(g->sets, &x->terms[i].blocks, digit, size, &t.blocks))
            return arena_printf(a, "over %s contributions to %s would count twice: each rank has %s",
                                digit_name(a, mesh, digit), nodes_name(g, t.node), blocks_text(a, &x->terms[i].blocks));
        settle(g, out, terms, t);
    }
    return NULL;
}

bool value_routed_same(const struct routed *x, const struct routed *y)
{
    if (!x || !y)
        return x == y;
    return x->blocks == y->blocks && x->rows == y->rows && x->home == y->home && x->once == y->once &&
           blocks_equal(&x->tokens, &y->tokens) && value_routed_same(x->from, y->from);
}

char *value_text(struct arena *a, const struct nodes *g, const struct value *v)
{
    switch (v->kind) {
    case VALUE_ZERO:
        return arena_strdup(a, "zeros");
    case VALUE_BYTES:
        return arena_strdup(a, "something");
    case VALUE_PART:
        return arena_printf(a, "a shard of %s", v->whole->n ? value_text(a, g, &v->whole->at[0].value) : "nothing");
    case VALUE_NODES:
        break;
    }
    struct strbuf b = {0};
    if (v->node != NODE_ZERO || !v->nterms)
        strbuf_text(&b, nodes_name(g, v->node));
    for (uint32_t i = 0; i < v->nterms && i < 4; i++)
        strbuf_printf(&b, "%sa partial sum of %s over %s", b.length ? " + " : "", nodes_name(g, v->terms[i].node),
                      blocks_text(a, &v->terms[i].blocks));
    if (v->member.len)
        strbuf_printf(&b, " of experts %s", extent_text(a, &v->member));
    strbuf_printf(&b, " (%s %s, columns %s)", v->routed ? "experts" : "rows", extent_text(a, &v->row),
                  extent_text(a, &v->col));
    if (v->routed)
        strbuf_printf(&b, ", what tokens %s sent", blocks_text(a, &v->routed->tokens));
    char *s = arena_strdup(a, b.text);
    strbuf_free(&b);
    return s;
}
