/* Ranks as points of a mesh of digits, and the groups that collectives run over.
 *
 * A rank is a mixed-radix number with the order's first digit as its lowest.  Folding: experts and shards end at
 * products of the same number (Megatron-Core's parallel folding); where all these products divide one another in order,
 * the quotients are the common digits.  A group fixes every digit outside its mask, so all groups of a mask are
 * translates of one another by the fixed digits: size, extent and number follow from the sizes alone, and only the
 * network level needs the nodes.
 *
 * Levels assume what topo promises: nodes of a decision are in document order and every tier is a run of that order,
 * so the level between the first and the last member of a group bounds all its pairs.  Cost of a level: one pass over
 * the groups of the mask, cut short as soon as the outermost level has been met. */

#include "compiler/topology/mesh.h"

#include <assert.h>
#include <stdio.h>

const char *const mesh_dim_names[NDIMS] = {
    "tp",      "cp",     "dp",   "pp",   "ep", "etp", "edp", "shard", "replica", "expert_shard", "expert_replica",
    "ep_near", "ep_far", "keys", "world"};

/* Cut an axis into digits at products `at[]` (ascending, of the number without pp) that lie inside of it. */
static void add_digits(struct mesh *m, enum axis axis, uint32_t size, uint64_t below, const uint64_t *at, uint32_t n)
{
    uint64_t from = below, end = below * size;
    uint32_t digit = axis;
    for (uint32_t i = 0; i <= n; i++) {
        uint64_t to = i < n && at[i] < end ? at[i] : end;
        bool first = digit == (uint32_t)axis;
        if (to <= from && !(first && i == n))
            continue;
        m->order[m->ndigits++] = digit;
        m->home[digit] = axis;
        m->size[digit] = (uint32_t)(to / from);
        m->stride[digit] = m->nranks;
        m->nranks *= m->size[digit];
        m->dim[axis] |= AXIS_BIT(digit);
        m->dim[MESH_WORLD] |= AXIS_BIT(digit);
        from = to;
        for (digit = NAXES; digit < NDIGITS - 1 && m->dim[MESH_WORLD] & AXIS_BIT(digit);)
            digit++;
        if (from == end)
            return;
    }
}

static struct mesh mesh_cut(const uint32_t size[NAXES], const enum axis order[NAXES], const uint64_t *at, uint32_t n)
{
    struct mesh m = {.nranks = 1};
    uint64_t below = 1;
    for (int i = 0; i < NDIGITS; i++)
        m.size[i] = m.stride[i] = 1;
    for (int i = 0; i < NAXES; i++) {
        enum axis axis = order[i];
        assert(size[axis] > 0 && m.dim[axis] == 0); /* the order is a permutation */
        add_digits(&m, axis, size[axis], below, at, axis == AXIS_PP ? 0 : n);
        if (axis != AXIS_PP)
            below *= size[axis];
    }
    return m;
}

/* digits of several ranks from product `from` to product `to` of the number without pp */
static uint32_t digits_between(const struct mesh *m, uint64_t from, uint64_t to)
{
    uint64_t below = 1;
    uint32_t mask = 0;
    for (uint32_t i = 0; i < m->ndigits; i++) {
        uint32_t digit = m->order[i];
        if (digit == AXIS_PP || m->size[digit] == 1)
            continue;
        mask |= below >= from && below < to ? AXIS_BIT(digit) : 0;
        below *= m->size[digit];
    }
    return mask;
}

struct mesh mesh_new(const uint32_t size[NAXES], const enum axis order[NAXES])
{
    struct mesh m = mesh_cut(size, order, NULL, 0);
    m.dim[MESH_EDP] = digits_between(&m, 1, m.nranks);
    m.dim[MESH_REPLICA] = (m.dim[MESH_CP] | m.dim[MESH_DP]) & m.dim[MESH_EDP];
    m.dim[MESH_EXPERT_REPLICA] = m.dim[MESH_EDP];
    return m;
}

/* Where the inner `shard` of the dp and cp ranks end, as a product of the number without pp. */
static uint64_t shard_end(const struct mesh_degrees *g, uint64_t shard, bool *nests)
{
    uint64_t below = 1;
    *nests = true;
    for (int i = 0; i < NAXES; i++) {
        uint64_t n = g->size[g->order[i]];
        bool counts = g->order[i] == AXIS_CP || g->order[i] == AXIS_DP;
        if (g->order[i] == AXIS_PP)
            continue;
        if (counts && shard <= n) {
            *nests = n % shard == 0;
            return below * shard;
        }
        if (counts) {
            *nests = *nests && shard % n == 0;
            shard /= n;
        }
        below *= n;
    }
    return below;
}

/* where the ranks of tp that hold a key head end */
static uint64_t keys_end(const struct mesh_degrees *g)
{
    uint64_t below = 1;
    for (int i = 0; i < NAXES && g->order[i] != AXIS_TP; i++)
        below *= g->order[i] == AXIS_PP ? 1 : g->size[g->order[i]];
    return below * g->keys;
}

struct boundary {
    uint64_t at;
    enum mesh_dim dim; /* that ends there */
};

/* all ends, ascending, each once; false where one does not divide the next */
static uint32_t sort_boundaries(struct boundary *b, uint32_t n, enum mesh_dim what[2], bool *nests)
{
    uint32_t kept = 0;
    *nests = true;
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = i; k > 0 && b[k - 1].at > b[k].at; k--) {
            struct boundary swap = b[k];
            b[k] = b[k - 1];
            b[k - 1] = swap;
        }
    for (uint32_t i = 0; i < n; i++) {
        if (kept && b[i].at == b[kept - 1].at)
            continue;
        if (kept && b[i].at % b[kept - 1].at) {
            what[0] = b[kept - 1].dim;
            what[1] = b[i].dim;
            *nests = false;
            return 0;
        }
        b[kept++] = b[i];
    }
    return kept;
}

/* how many of them lie inside an axis and so need a digit more */
static uint32_t cuts_inside(const struct mesh_degrees *g, const struct boundary *b, uint32_t n)
{
    uint32_t cuts = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t below = 1;
        bool inside = b[i].at > 1;
        for (int k = 0; k < NAXES; k++) {
            below *= g->order[k] == AXIS_PP ? 1 : g->size[g->order[k]];
            inside = inside && b[i].at != below;
        }
        cuts += inside;
    }
    return cuts;
}

bool mesh_fold(const struct mesh_degrees *g, struct mesh *m, enum mesh_dim what[2])
{
    struct boundary b[9];
    uint64_t at[9], below = 1, all = (uint64_t)g->size[AXIS_TP] * g->size[AXIS_CP] * g->size[AXIS_DP];
    uint64_t experts = g->experts ? (uint64_t)g->etp * g->ep : 1;
    uint64_t shard = g->shard ? g->shard : (uint64_t)g->size[AXIS_CP] * g->size[AXIS_DP];
    uint64_t copies = g->expert_shard ? g->expert_shard : all / experts;
    uint32_t n = 0;
    bool nests;
    for (int i = 0; i < NAXES; i++)
        if (g->order[i] != AXIS_PP) {
            below *= g->size[g->order[i]];
            b[n++] = (struct boundary){below, (enum mesh_dim)g->order[i]};
        }
    uint64_t end = shard_end(g, shard, &nests);
    what[0] = MESH_SHARD;
    what[1] = MESH_DP;
    if (!nests)
        return false;
    if (shard > 1)
        b[n++] = (struct boundary){end, MESH_SHARD};
    if (g->keys > 1)
        b[n++] = (struct boundary){keys_end(g), MESH_KEYS};
    if (g->experts) {
        b[n++] = (struct boundary){g->etp, MESH_ETP};
        if (g->nodes > 1)
            b[n++] = (struct boundary){experts / g->nodes, MESH_EP_NEAR};
        b[n++] = (struct boundary){experts, MESH_EP};
        b[n++] = (struct boundary){experts * copies, MESH_EXPERT_SHARD};
    }
    n = sort_boundaries(b, n, what, &nests);
    if (!nests)
        return false;
    what[0] = what[1] = MESH_WORLD;
    if (NAXES + cuts_inside(g, b, n) > NDIGITS)
        return false;
    for (uint32_t i = 0; i < n; i++)
        at[i] = b[i].at;
    *m = mesh_cut(g->size, g->order, at, n);
    uint32_t dense = (m->dim[MESH_CP] | m->dim[MESH_DP]) & digits_between(m, 1, all);
    m->dim[MESH_SHARD] = shard > 1 ? dense & digits_between(m, 1, end) : 0;
    m->dim[MESH_REPLICA] = dense & ~m->dim[MESH_SHARD];
    m->dim[MESH_ETP] = g->experts ? digits_between(m, 1, g->etp) : 0;
    m->dim[MESH_EP] = g->experts ? digits_between(m, g->etp, experts) : 0;
    if (g->experts && g->nodes > 1) {
        m->dim[MESH_EP_NEAR] = digits_between(m, g->etp, experts / g->nodes);
        m->dim[MESH_EP_FAR] = digits_between(m, experts / g->nodes, experts);
    }
    if (g->keys > 1)
        m->dim[MESH_KEYS] = m->dim[MESH_TP] & digits_between(m, 1, keys_end(g));
    m->dim[MESH_EDP] = digits_between(m, experts, all);
    m->dim[MESH_EXPERT_SHARD] = g->experts ? digits_between(m, experts, experts * copies) : 0;
    m->dim[MESH_EXPERT_REPLICA] = m->dim[MESH_EDP] & ~m->dim[MESH_EXPERT_SHARD];
    return true;
}

uint64_t mesh_unfold(const struct mesh *m, uint64_t i)
{
    uint64_t rank = 0;
    uint32_t outermost = m->order[m->ndigits - 1] == AXIS_PP && m->ndigits > 1 ? m->order[m->ndigits - 2]
                                                                               : m->order[m->ndigits - 1];
    for (uint32_t k = 0; k < m->ndigits; k++) {
        uint32_t digit = m->order[k];
        if (digit == AXIS_PP)
            continue;
        rank += (digit == outermost ? i : i % m->size[digit]) * m->stride[digit];
        i /= m->size[digit];
    }
    return rank;
}

uint64_t mesh_run(const struct mesh *m, uint64_t n)
{
    uint64_t inside = 1; /* what lies within pp */
    for (uint32_t k = 0; k < m->ndigits && m->order[k] != AXIS_PP; k++)
        inside *= m->size[m->order[k]];
    return n <= inside ? n : mesh_unfold(m, n);
}

void mesh_coords(const struct mesh *m, uint32_t rank, uint32_t coord[NDIGITS])
{
    for (int a = 0; a < NDIGITS; a++)
        coord[a] = rank / m->stride[a] % m->size[a];
}

uint32_t mesh_rank(const struct mesh *m, const uint32_t coord[NDIGITS])
{
    uint32_t rank = 0;
    for (int a = 0; a < NDIGITS; a++)
        rank += coord[a] * m->stride[a];
    return rank;
}

uint32_t mesh_number(const struct mesh *m, uint32_t rank, uint32_t mask)
{
    uint32_t number = 0, radix = 1;
    for (uint32_t i = 0; i < m->ndigits; i++) {
        uint32_t digit = m->order[i];
        if (!(mask & AXIS_BIT(digit)))
            continue;
        number += rank / m->stride[digit] % m->size[digit] * radix;
        radix *= m->size[digit];
    }
    return number;
}

uint32_t mesh_weight(const struct mesh *m, uint32_t mask, uint32_t digit)
{
    uint32_t radix = 1;
    for (uint32_t i = 0; i < m->ndigits && m->order[i] != digit; i++)
        if (mask & AXIS_BIT(m->order[i]))
            radix *= m->size[m->order[i]];
    return radix;
}

static uint32_t of_several(const struct mesh *m, uint32_t mask)
{
    for (uint32_t digit = 0; digit < NDIGITS; digit++)
        if (m->size[digit] == 1)
            mask &= ~AXIS_BIT(digit);
    return mask;
}

void mesh_mask_text(const struct mesh *m, uint32_t mask, const char *between, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (uint32_t d = MESH_EP_NEAR; d <= MESH_EP_FAR; d++) /* digits of several axes have no shorter name */
        if (mask && of_several(m, mask) == m->dim[d]) {
            snprintf(text, size, "%s", mesh_dim_names[d]);
            return;
        }
    for (uint32_t d = 0; d < MESH_WORLD && mask; d++) {
        uint32_t dim = d <= MESH_PP ? m->dim[d] : of_several(m, m->dim[d]);
        bool whole = d <= MESH_PP ? (dim & mask) == dim : dim && of_several(m, mask) == dim;
        if (!dim || !whole)
            continue;
        if (n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? between : "", mesh_dim_names[d]);
        mask &= ~dim;
    }
    for (uint32_t i = 0; i < m->ndigits && mask; i++) /* no dimension is all of the rest: single digits */
        if (mask & AXIS_BIT(m->order[i]) && m->size[m->order[i]] > 1 && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%s.%u", n ? between : "", mesh_dim_names[m->home[m->order[i]]],
                                  i);
}

/* A tie group fixes what a pipeline group fixes: it is two of its members, r and its mirror image pp-1-r. */
static uint32_t fixing_mask(uint32_t mask)
{
    return mask & GROUP_TIE ? AXIS_BIT(AXIS_PP) : mask;
}

/* the lower pipeline coordinate of {r, pp-1-r} */
static uint32_t mirror_pair(const struct mesh *m, uint32_t rank)
{
    uint32_t r = rank / m->stride[AXIS_PP] % m->size[AXIS_PP], mirror = m->size[AXIS_PP] - 1 - r;
    return r < mirror ? r : mirror;
}

/* values that a digit contributes to the number of a mask's groups: 1 where groups run along it */
static uint32_t group_digits(const struct mesh *m, uint32_t mask, uint32_t digit)
{
    if (!(fixing_mask(mask) & AXIS_BIT(digit)))
        return m->size[digit];
    return mask & GROUP_TIE ? (m->size[digit] + 1) / 2 : 1;
}

uint32_t mesh_group_size(const struct mesh *m, uint32_t mask)
{
    if (mask & GROUP_TIE)
        return m->size[AXIS_PP] > 1 ? 2 : 1;
    uint32_t n = 1;
    for (uint32_t a = 0; a < NDIGITS; a++)
        if (mask & AXIS_BIT(a))
            n *= m->size[a];
    return n;
}

/* Neighbouring digits of one axis, or of any if `all`, are one run of the box.  false: more than NAXES runs. */
static bool group_runs(const struct mesh *m, uint32_t mask, bool all, struct group *g)
{
    uint32_t used = 0, last = NDIGITS;
    for (uint32_t i = 0; i < m->ndigits; i++) {
        uint32_t digit = m->order[i];
        if (!(mask & AXIS_BIT(digit)) || m->size[digit] == 1)
            continue;
        bool joins = last < NDIGITS && m->stride[last] * m->size[last] == m->stride[digit] &&
                     (all || m->home[last] == m->home[digit]);
        last = digit;
        if (joins) {
            g->n[used - 1] *= m->size[digit];
            continue;
        }
        if (used == NAXES)
            return false;
        g->n[used] = m->size[digit];
        g->stride[used++] = m->stride[digit];
    }
    return true;
}

struct group mesh_group(const struct mesh *m, uint32_t rank, uint32_t mask)
{
    struct group g = {.first = rank, .n = {1, 1, 1, 1}};
    uint32_t fixing = fixing_mask(mask);
    for (uint32_t i = 0; i < m->ndigits; i++) {
        uint32_t digit = m->order[i];
        if (fixing & AXIS_BIT(digit))
            g.first -= rank / m->stride[digit] % m->size[digit] * m->stride[digit];
    }
    if (mask & GROUP_TIE) {
        uint32_t pair = mirror_pair(m, rank), apart = m->size[AXIS_PP] - 1 - 2 * pair;
        g.first += pair * m->stride[AXIS_PP];
        if (apart) {
            g.n[0] = 2;
            g.stride[0] = apart * m->stride[AXIS_PP];
        }
        return g;
    }
    struct group empty = g;
    if (!group_runs(m, mask, false, &g)) {
        g = empty;
        bool fits = group_runs(m, mask, true, &g);
        assert(fits); /* 8 digits have at most 4 runs that are not neighbours */
        (void)fits;
    }
    return g;
}

uint32_t mesh_group_index(const struct mesh *m, uint32_t rank, uint32_t mask)
{
    uint32_t index = 0, radix = 1;
    for (uint32_t i = 0; i < m->ndigits; i++) {
        uint32_t digit = m->order[i], values = group_digits(m, mask, digit);
        uint32_t coord = rank / m->stride[digit] % m->size[digit];
        index += (values == m->size[digit] ? coord : values == 1 ? 0 : mirror_pair(m, rank)) * radix;
        radix *= values;
    }
    return index;
}

uint32_t mesh_ngroups(const struct mesh *m, uint32_t mask)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < m->ndigits; i++)
        n *= group_digits(m, mask, m->order[i]);
    return n;
}

uint32_t mesh_group_first(const struct mesh *m, uint32_t index, uint32_t mask)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < m->ndigits; i++) {
        uint32_t digit = m->order[i], values = group_digits(m, mask, digit);
        first += index % values * m->stride[digit];
        index /= values;
    }
    return first;
}

uint32_t mesh_level(const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node, uint32_t a, uint32_t b)
{
    uint32_t node_a = nodes[a / gpus_per_node], node_b = nodes[b / gpus_per_node];
    return node_a == node_b ? 0 : topo_level(t, node_a, node_b);
}

/* distance of a group's last member from its first */
static uint32_t group_extent(const struct mesh *m, uint32_t mask)
{
    struct group g = mesh_group(m, 0, mask);
    uint32_t extent = 0;
    for (int i = 0; i < NAXES; i++)
        extent += (g.n[i] - 1) * g.stride[i];
    return extent;
}

/* outermost level between a member of a group of fixed_mask whose coordinates there are 0 and the rank `distance` on */
static uint32_t pair_level(const struct mesh *m, const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node,
                           uint32_t fixed_mask, uint32_t distance)
{
    if (distance == 0)
        return 0;
    uint32_t level = 0, most = mesh_level(t, nodes, gpus_per_node, 0, m->nranks - 1);
    uint32_t ngroups = mesh_ngroups(m, fixed_mask), last_a = NONE, last_b = NONE;
    for (uint32_t i = 0; i < ngroups && level < most; i++) {
        uint32_t first = mesh_group_first(m, i, fixed_mask);
        uint32_t a = first / gpus_per_node, b = (first + distance) / gpus_per_node;
        if (a == b || (a == last_a && b == last_b))
            continue;
        last_a = a;
        last_b = b;
        uint32_t l = topo_level(t, nodes[a], nodes[b]);
        level = l > level ? l : level;
    }
    return level;
}

uint32_t mesh_group_level(const struct mesh *m, const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node,
                          uint32_t mask)
{
    uint32_t extent = group_extent(m, mask);
    if (extent < gpus_per_node && gpus_per_node % (extent + 1) == 0) {
        /* innermost axes only: their groups are runs aligned to their length, inside a node */
        uint32_t inner = 1;
        for (uint32_t i = 0; i < m->ndigits && (fixing_mask(mask) & AXIS_BIT(m->order[i]) || m->size[m->order[i]] == 1);
             i++)
            inner *= m->size[m->order[i]];
        if (inner == extent + 1)
            return 0;
    }
    /* the outermost pair of a tie has the others between its ranks */
    return pair_level(m, t, nodes, gpus_per_node, fixing_mask(mask), extent);
}

uint32_t mesh_next_stage_level(const struct mesh *m, const struct topo *t, const uint32_t *nodes,
                               uint32_t gpus_per_node)
{
    /* rank = (set * pp + stage) * stride + inner: all but the last stage of a set are a run, each paired with rank +
     * stride */
    uint64_t stride = m->stride[AXIS_PP], set = stride * m->size[AXIS_PP], node = gpus_per_node;
    uint32_t level = 0, most = mesh_level(t, nodes, gpus_per_node, 0, m->nranks - 1);
    for (uint64_t first = 0; first < m->nranks && level < most; first += set)
        for (uint64_t a = first, end = first + set - stride; a < end && level < most;) {
            uint64_t b = a + stride, next_a = (a / node + 1) * node, next_b = (b / node + 1) * node - stride;
            uint32_t l = a / node == b / node ? 0 : topo_level(t, nodes[a / node], nodes[b / node]);
            level = l > level ? l : level;
            a = next_a < next_b ? next_a : next_b;
        }
    return level;
}

uint32_t mesh_group_below(const struct mesh *m, const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node,
                          uint32_t mask, uint32_t level)
{
    struct group g = mesh_group(m, 0, mask);
    /* members ascend and tiers are runs of nodes, so those near the first come first */
    uint32_t low = 1, high = group_size(&g);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (mesh_level(t, nodes, gpus_per_node, g.first, group_rank(&g, middle)) <= level)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
