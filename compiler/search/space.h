#ifndef LLMC_SPACE_H
#define LLMC_SPACE_H

/* The space of decisions that wishes, job and cluster allow, as candidate lists per degree and a list of meshes.
 * A mesh fixes the four axes, their order and the nodes; everything below it is enumerated by search.c. */

#include "compiler/model/decision.h"
#include "compiler/topology/mesh.h"

struct space_list {
    uint32_t n;
    uint32_t *at;
};
struct space_mesh {
    uint32_t tp, cp, dp, pp;
    uint8_t order;
};
/* usable nodes in runs of `block` that cross no boundary of a level; a plan takes the first it needs */
struct space_nodes {
    uint64_t block;
    uint32_t level, n;
    const uint32_t *nodes;
};
struct space {
    struct arena *arena;
    const struct job *job;
    const struct topo *topo;
    bool emit_only;
    uint32_t type;
    uint64_t usable; /* GPUs */
    struct space_list tp, cp, pp, vpp, dp, ep, etp, zero;
    uint32_t norders;
    enum axis order[2][NAXES];
    uint32_t nschedules;
    enum schedule_kind schedules[NSCHEDULES];
    uint32_t groups[NSCHEDULES]; /* interleaved(group=N) */
    uint32_t nrecompute;
    enum recompute recompute[3];
    bool experts;
    uint32_t nplaces;       /* node lists so far; the first is all usable nodes */
    struct space_nodes places[32];
    uint64_t keeps_refused; /* meshes that a keep wish has removed */
};

/* lists, orders, schedules; false after an error that names the wish which leaves its list empty */
bool space_new(struct arena *a, struct diag *d, const struct job *job, const struct topo *topo, bool emit_only,
               struct space *s);
bool space_wants(const struct wish *w, uint64_t value);
/* all meshes, most GPUs first; nodes not chosen yet */
uint32_t space_meshes(struct arena *a, const struct space *s, struct space_mesh **meshes);
/* order, nodes and gpus_used of d from its degrees; false if a keep wish or the cluster forbids it */
bool space_place(struct space *s, uint32_t order, struct decision *d);

#endif
