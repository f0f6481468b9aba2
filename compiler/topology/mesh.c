/* Ranks as points of a four-axis mesh, and the groups that collectives run over.
 *
 * A rank is a mixed-radix number with the order's first axis as its lowest digit.  A group fixes every digit outside its
 * axis mask, so all groups of a mask are translates of one another by the fixed digits: size, extent and number follow
 * from the sizes alone, and only the network level needs the nodes.
 *
 * Levels assume what topo promises: nodes of a decision are in document order and every tier is a run of that order,
 * so the level between the first and the last member of a group bounds all its pairs.  Cost of a level: one pass over
 * the groups of the mask, cut short as soon as the outermost level has been met. */

#include "compiler/topology/mesh.h"

#include <assert.h>

struct mesh mesh_new(const uint32_t size[NAXES], const enum axis order[NAXES])
{
    struct mesh m = {.nranks = 1};
    for (int i = 0; i < NAXES; i++) {
        enum axis axis = order[i];
        assert(size[axis] > 0 && m.size[axis] == 0); /* the order is a permutation */
        m.order[i] = axis;
        m.size[axis] = size[axis];
        m.stride[axis] = m.nranks;
        m.nranks *= size[axis];
    }
    return m;
}

void mesh_coords(const struct mesh *m, uint32_t rank, uint32_t coord[NAXES])
{
    for (int a = 0; a < NAXES; a++)
        coord[a] = rank / m->stride[a] % m->size[a];
}

uint32_t mesh_rank(const struct mesh *m, const uint32_t coord[NAXES])
{
    uint32_t rank = 0;
    for (int a = 0; a < NAXES; a++)
        rank += coord[a] * m->stride[a];
    return rank;
}

/* The tie group fixes what a pipeline group fixes: it is two of its members. */
static uint32_t fixing_mask(uint32_t mask)
{
    return mask & GROUP_TIE ? AXIS_BIT(AXIS_PP) : mask;
}

uint32_t mesh_group_size(const struct mesh *m, uint32_t mask)
{
    if (mask & GROUP_TIE)
        return m->size[AXIS_PP] > 1 ? 2 : 1;
    uint32_t n = 1;
    for (uint32_t a = 0; a < NAXES; a++)
        if (mask & AXIS_BIT(a))
            n *= m->size[a];
    return n;
}

struct group mesh_group(const struct mesh *m, uint32_t rank, uint32_t mask)
{
    struct group g = {.first = rank, .n = {1, 1, 1, 1}};
    uint32_t fixing = fixing_mask(mask), used = 0;
    for (int i = 0; i < NAXES; i++) {
        enum axis axis = m->order[i];
        if (!(fixing & AXIS_BIT(axis)))
            continue;
        g.first -= rank / m->stride[axis] % m->size[axis] * m->stride[axis];
        if (m->size[axis] == 1)
            continue;
        bool tie = (mask & GROUP_TIE) != 0;
        g.n[used] = tie ? 2 : m->size[axis];
        g.stride[used] = tie ? (m->size[axis] - 1) * m->stride[axis] : m->stride[axis];
        used++;
    }
    return g;
}

uint32_t mesh_group_index(const struct mesh *m, uint32_t rank, uint32_t mask)
{
    uint32_t fixing = fixing_mask(mask), index = 0, radix = 1;
    for (int i = 0; i < NAXES; i++) {
        enum axis axis = m->order[i];
        if (fixing & AXIS_BIT(axis))
            continue;
        index += rank / m->stride[axis] % m->size[axis] * radix;
        radix *= m->size[axis];
    }
    return index;
}

uint32_t mesh_ngroups(const struct mesh *m, uint32_t mask)
{
    return m->nranks / mesh_group_size(m, fixing_mask(mask));
}

uint32_t mesh_group_first(const struct mesh *m, uint32_t index, uint32_t mask)
{
    uint32_t fixing = fixing_mask(mask), first = 0;
    for (int i = 0; i < NAXES; i++) {
        enum axis axis = m->order[i];
        if (fixing & AXIS_BIT(axis))
            continue;
        first += index % m->size[axis] * m->stride[axis];
        index /= m->size[axis];
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

uint32_t mesh_pair_level(const struct mesh *m, const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node,
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
        for (int i = 0; i < NAXES && (fixing_mask(mask) & AXIS_BIT(m->order[i]) || m->size[m->order[i]] == 1); i++)
            inner *= m->size[m->order[i]];
        if (inner == extent + 1)
            return 0;
    }
    return mesh_pair_level(m, t, nodes, gpus_per_node, mask, extent);
}

uint32_t mesh_next_stage_level(const struct mesh *m, const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node)
{
    uint32_t level = 0;
    for (uint32_t p = 0; p + 1 < m->size[AXIS_PP]; p++) {
        uint32_t n = mesh_ngroups(m, AXIS_BIT(AXIS_PP));
        for (uint32_t i = 0; i < n; i++) {
            uint32_t a = mesh_group_first(m, i, AXIS_BIT(AXIS_PP)) + p * m->stride[AXIS_PP];
            uint32_t l = mesh_level(t, nodes, gpus_per_node, a, a + m->stride[AXIS_PP]);
            level = l > level ? l : level;
            if (level >= t->ntiers)
                return level;
        }
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
