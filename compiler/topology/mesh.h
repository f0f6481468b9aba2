#ifndef LLMC_MESH_H
#define LLMC_MESH_H

/* rank <-> (tp, cp, dp, pp): the order's innermost axis varies fastest.  A group is the set of ranks that agree in all
 * coordinates but those of its axis mask; members are listed by ascending rank. */

#include "compiler/topology/topo.h"
#include "runtime/program.h"

#define AXIS_BIT(axis) (1u << (axis))
#define AXES_WORLD (AXIS_BIT(AXIS_TP) | AXIS_BIT(AXIS_CP) | AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_PP))

struct mesh {
    uint32_t size[NAXES], stride[NAXES];
    uint32_t nranks;
    enum axis order[NAXES];
};

struct mesh mesh_new(const uint32_t size[NAXES], const enum axis order[NAXES]);
void mesh_coords(const struct mesh *m, uint32_t rank, uint32_t coord[NAXES]);
uint32_t mesh_rank(const struct mesh *m, const uint32_t coord[NAXES]);
/* members of the group of `rank`; mask of axes or GROUP_TIE (first and last pipeline rank) */
uint32_t mesh_group_size(const struct mesh *m, uint32_t mask);
struct group mesh_group(const struct mesh *m, uint32_t rank, uint32_t mask);
/* groups of a mask are numbered by their first member: 0, 1, ... in order of it */
uint32_t mesh_group_index(const struct mesh *m, uint32_t rank, uint32_t mask);
uint32_t mesh_ngroups(const struct mesh *m, uint32_t mask);

uint32_t mesh_group_first(const struct mesh *m, uint32_t index, uint32_t mask); /* inverse: the first member */

/* Outermost network level (topo_level) that any two members of any group of the mask cross; nodes as in the decision. */
uint32_t mesh_group_level(const struct mesh *m, const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node,
                          uint32_t mask);
/* How many members of the first group of the mask sit together at or below a level, for hierarchical collectives. */
uint32_t mesh_group_below(const struct mesh *m, const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node,
                          uint32_t mask, uint32_t level);
/* outermost level between a member of a group of fixed_mask whose coordinates there are 0 and the rank `distance` on */
uint32_t mesh_pair_level(const struct mesh *m, const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node,
                         uint32_t fixed_mask, uint32_t distance);
/* outermost level between neighbouring pipeline ranks */
uint32_t mesh_next_stage_level(const struct mesh *m, const struct topo *t, const uint32_t *nodes,
                               uint32_t gpus_per_node);
/* level between two ranks */
uint32_t mesh_level(const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node, uint32_t a, uint32_t b);

#endif
