#ifndef LLMC_IMPORT_SLURM_H
#define LLMC_IMPORT_SLURM_H

/* Slurm's files as read (cluster_slurm.c), before switches and nodes of all of them are put together (slurm_tree.c). */

#include "compiler/import/cluster_facts.h"
#include "compiler/topology/hostlist.h"

struct slurm_group { /* a switch or a block */
    const char *name;
    struct span name_at, below_at; /* below_at: the names below it */
    bool leaf;                     /* nodes stand below it, else switches */
    struct hostlist below;
    /* slurm_tree.c */
    uint32_t parent, height, nchildren; /* parent: index, UINT32_MAX = none; height: 1 for a leaf */
};

struct slurm_node { /* one NodeName line */
    struct hostlist names;
    uint32_t gpus;    /* 0: no GPUs */
    const char *type; /* the word in Gres, or NULL */
    struct span at;
    struct span gres_at;
};

struct slurm {
    VEC(struct slurm_group) groups; /* all switches, or all blocks */
    bool blocks;
    VEC(uint32_t) block_sizes;
    struct span sizes_at;
    VEC(struct slurm_node) nodes;
    uint64_t names_left;   /* that lists may still expand to */
    uint32_t default_gpus; /* of NodeName=DEFAULT */
    const char *default_type;
};

#endif
