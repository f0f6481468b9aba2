#ifndef LLMC_IMPORT_SLURM_H
#define LLMC_IMPORT_SLURM_H

/* Slurm's files as read (cluster_slurm.c, slurm_yaml.c), before switches and nodes of all of them are put together
 * (slurm_tree.c). */

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

/* cluster_slurm.c: Adds a switch of nodes or switches, or a block; false after an error where the others are of the
 * other kind.  kind_at: the word that says what it is. */
bool slurm_add(struct cluster_facts *f, bool block, struct span kind_at, struct slurm_group g);
/* One of several sizes of blocks; false where that is none. */
bool slurm_add_size(struct cluster_facts *f, uint64_t size);

/* slurm_yaml.c: topology.yaml */
bool slurm_read_yaml(struct cluster_facts *f, const struct source *source);

#endif
