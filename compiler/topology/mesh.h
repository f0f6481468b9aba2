#ifndef LLMC_MESH_H
#define LLMC_MESH_H

/* rank <-> digits: a mixed-radix number, the innermost digit varies fastest.
 *
 * Without experts, partly sharded state and shared key heads the digits are tp, cp, dp and pp.  Those fold these anew:
 * their degrees are products along the same number without pp, so each dimension is cut where another one ends, and
 * everything that people have a name for is a mask of digits.  Digits 0 to 3 are always the lowest of tp, cp, dp and
 * pp; pp has one. */

#include "compiler/topology/topo.h"
#include "runtime/program.h"

#define AXIS_BIT(axis) (1u << (axis))
/* the world of a mesh whose dimensions are one digit each; else mesh.dim[MESH_WORLD] */
#define AXES_WORLD (AXIS_BIT(AXIS_TP) | AXIS_BIT(AXIS_CP) | AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_PP))

enum mesh_dim {
    MESH_TP,
    MESH_CP,
    MESH_DP,
    MESH_PP,
    MESH_EP,           /* experts over ranks; */
    MESH_ETP,          /* one expert over ranks; */
    MESH_EDP,          /* ranks with the same part of the same experts */
    MESH_SHARD,        /* ranks over which ZeRO state of dense weights is split, within dp * cp; */
    MESH_REPLICA,      /* its copies */
    MESH_EXPERT_SHARD, /* the same of experts, within edp */
    MESH_EXPERT_REPLICA,
    MESH_EP_NEAR, /* of ep: ranks among which rows are spread once they are on their node; */
    MESH_EP_FAR,  /* the others, between which a token's row travels once per node */
    MESH_KEYS,    /* of tp: ranks that hold the same key head, where there are fewer of those than ranks */
    MESH_WORLD,
    NDIMS
};
extern const char *const mesh_dim_names[NDIMS];

struct mesh {
    uint32_t ndigits;
    uint32_t size[NDIGITS], stride[NDIGITS]; /* 1 for digits that there are not */
    uint32_t order[NDIGITS];                 /* digits, innermost first */
    uint32_t home[NDIGITS];                  /* enum axis: the one of tp, cp, dp, pp that a digit is of */
    uint32_t dim[NDIMS];                     /* masks; of those behind MESH_PP only digits of several ranks */
    uint32_t nranks;
};

/* one digit per axis */
struct mesh mesh_new(const uint32_t size[NAXES], const enum axis order[NAXES]);
struct mesh_degrees {
    uint32_t size[NAXES];
    enum axis order[NAXES];
    bool experts; /* else only tp to pp and shard count */
    uint32_t etp, ep;
    uint32_t nodes; /* that the ranks of ep are spread over, one run on each; 0 or 1: ep is one dimension */
    uint32_t keys;  /* neighbouring ranks of tp that hold the same key head; 0 or 1: each has its own */
    uint32_t shard, expert_shard; /* of dp * cp, of expert dp; 1 = no split, 0 means all */
};
/* false where two of them do not nest: neither divides the other along the ranks; what[] names them, or
 * MESH_WORLD where all nest but cut the axes into more digits than there are */
bool mesh_fold(const struct mesh_degrees *g, struct mesh *m, enum mesh_dim what[2]);

void mesh_coords(const struct mesh *m, uint32_t rank, uint32_t coord[NDIGITS]);
uint32_t mesh_rank(const struct mesh *m, const uint32_t coord[NDIGITS]);
/* the i-th rank of the first copy of the number without pp, in which experts and shards are runs; beyond its end too */
uint64_t mesh_unfold(const struct mesh *m, uint64_t i);
/* ranks from the first to one past the last of an aligned run that holds n members of that number */
uint64_t mesh_run(const struct mesh *m, uint64_t n);
/* the digits of a mask as one number, and what a digit of it counts there */
uint32_t mesh_number(const struct mesh *m, uint32_t rank, uint32_t mask);
uint32_t mesh_weight(const struct mesh *m, uint32_t mask, uint32_t digit);
/* names of the dimensions that a mask is made of, with something between; at most `size` bytes */
void mesh_mask_text(const struct mesh *m, uint32_t mask, const char *between, char *text, size_t size);

/* members of the group of `rank`; mask of digits or GROUP_TIE (pipeline ranks r and pp-1-r) */
uint32_t mesh_group_size(const struct mesh *m, uint32_t mask);
struct group mesh_group(const struct mesh *m, uint32_t rank, uint32_t mask);
/* groups of a mask are numbered by their first member: 0, 1, ... in order of it */
uint32_t mesh_group_index(const struct mesh *m, uint32_t rank, uint32_t mask);
uint32_t mesh_ngroups(const struct mesh *m, uint32_t mask);

uint32_t mesh_group_first(const struct mesh *m, uint32_t index, uint32_t mask); /* inverse: the first member */

/* Outermost network level (topo_level) that any two members of any group of the mask cross; nodes as in the decision.
 */
uint32_t mesh_group_level(const struct mesh *m, const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node,
                          uint32_t mask);
/* How many members of the first group of the mask sit together at or below a level, for hierarchical collectives. */
uint32_t mesh_group_below(const struct mesh *m, const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node,
                          uint32_t mask, uint32_t level);
/* outermost level between neighbouring pipeline ranks */
uint32_t mesh_next_stage_level(const struct mesh *m, const struct topo *t, const uint32_t *nodes,
                               uint32_t gpus_per_node);
/* level between two ranks */
uint32_t mesh_level(const struct topo *t, const uint32_t *nodes, uint32_t gpus_per_node, uint32_t a, uint32_t b);

#endif
