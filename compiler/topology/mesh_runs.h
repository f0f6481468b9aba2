#ifndef LLMC_MESH_RUNS_H
#define LLMC_MESH_RUNS_H

/* A list of nodes as runs that end where a level of the network does, for questions about meshes on its first nodes:
 * the answers are those of mesh.h, in time that does not grow with the number of ranks where levels are regular. */

#include "compiler/support/arena.h"
#include "compiler/topology/mesh.h"

struct mesh_ends {
    uint32_t n, step; /* step: every run has so many nodes; 0: they differ */
    const uint32_t
        *at; /* ascending places in the list, each the first node of a run; the list's own first is left out */
};
struct mesh_runs {
    const struct topo *topo;
    const uint32_t *nodes;
    uint32_t nnodes, gpus_per_node, nlevels;
    bool nested;                               /* two nodes are as far apart as the furthest neighbours between them */
    const struct mesh_ends *ends;              /* by level: pairs on both sides of an end are beyond it */
    const double *compute_factor, *nic_factor; /* the least of the first i + 1 nodes */
};
/* nodes: in document order, n > 0 of one type */
struct mesh_runs *mesh_runs_new(struct arena *a, const struct topo *t, const uint32_t *nodes, uint32_t n,
                                uint32_t gpus_per_node);

/* mesh_group_level() and mesh_next_stage_level() */
uint32_t mesh_runs_group_level(const struct mesh_runs *x, const struct mesh *m, uint32_t mask);
uint32_t mesh_runs_next_level(const struct mesh_runs *x, const struct mesh *m);

#endif
