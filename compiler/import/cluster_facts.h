#ifndef LLMC_IMPORT_CLUSTER_FACTS_H
#define LLMC_IMPORT_CLUSTER_FACTS_H

/* What files say about a cluster: each reader adds its part here, one writer makes a cluster file of it all.
 *
 * A fact is a text and the place that says it.  Two files that say different things contradict each other, which is an
 * error that names both; what is set beats every file, and a guess (a count that may include what is not meant) gives
 * way to what is said. */

#include "compiler/import/cluster.h"
#include "compiler/support/vec.h"
#include "compiler/topology/topo.h"

enum cluster_key {
    KEY_NODES,
    KEY_GPUS,
    KEY_GPU,
    KEY_NICS,
    KEY_NIC,
    KEY_MEDIUM,
    KEY_SPAN,
    KEY_NAME,
    KEY_OP,
    KEY_RANKS,
    KEY_PER_NODE,
    NCLUSTER_KEYS
};
extern const char *const cluster_keys[NCLUSTER_KEYS]; /* "nodes", "per-node": as --set has them */

struct cluster_fact {
    enum { FACT_OPEN, FACT_GUESSED, FACT_SAID, FACT_SET } is;
    const char *text; /* "8", "H100-SXM", "400Gb/s" */
    struct span from;
    const struct source *against; /* a file that says otherwise than what is set */
};

/* How NVLink joins the GPUs of a node.  Whether equal links between all pairs are links of pairs or lead to switches is
 * known with the GPU's number of links. */
struct cluster_links {
    enum { LINKS_NONE, LINKS_SWITCH, LINKS_PAIRS, LINKS_EITHER } by;
    uint32_t node_gpus; /* of the node that was looked at */
    uint32_t domain;    /* GPUs that are joined */
    uint32_t sum;       /* links of a GPU, added up over its pairs (LINKS_SWITCH: all of them) */
    uint32_t pair;      /* links between any two of a domain, 0 where pairs differ */
    bool in_order;      /* a domain is GPUs in a row */
    struct span from;
};

/* One level of switches: which group each node is in, numbered in the nodes' order, the nodes of a group in a row. */
struct cluster_level {
    const char *name; /* "leaf" */
    uint32_t ngroups;
    const uint32_t *group_of;  /* per node */
    const char *const *groups; /* names */
};

struct cluster_curve {
    const char *op;           /* NULL = not said */
    uint32_t ranks, per_node; /* 0 = not said */
    size_t npoints;
    const struct topo_point *points; /* bytes ascending, seconds */
    struct span from;
};

struct slurm; /* cluster_slurm.c */

struct cluster_facts {
    struct arena *arena;
    struct diag *diag;
    const struct cluster_file *files;
    size_t nfiles;
    struct cluster_fact facts[NCLUSTER_KEYS];
    VEC(struct topo_nic) nics; /* where a node's NICs differ: KEY_NICS and KEY_NIC are their sum and their list */
    VEC(struct cluster_links) links;
    VEC(struct cluster_curve) curves;
    VEC(const char *) assumed; /* for the head of the cluster file */
    struct slurm *slurm;       /* of all files of Slurm, or NULL */
    const char *gres;          /* a word in Slurm's Gres that may be short for several GPUs, or NULL */
    struct span gres_at;
    uint32_t nnodes;
    const char *const *nodes; /* names in order, or NULL: only their number is known */
    uint32_t nlevels;
    const struct cluster_level *levels; /* innermost first, the last one group */
    const struct source *levels_from;
    const struct cluster_file *dump; /* that <topology> names, or NULL */
};

/* A file says it; false after an error about a contradiction. */
bool cluster_say(struct cluster_facts *f, enum cluster_key key, const char *text, struct span from);
bool cluster_say_count(struct cluster_facts *f, enum cluster_key key, uint64_t count, struct span from);
/* the model that a PCI device of NVIDIA is; a warning where the catalogue has none */
bool cluster_say_device(struct cluster_facts *f, unsigned long device, struct span from);
void cluster_guess(struct cluster_facts *f, enum cluster_key key, const char *text, struct span from);
void cluster_assume(struct cluster_facts *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* a count that is known, else 0 */
uint32_t cluster_count(const struct cluster_facts *f, enum cluster_key key);
/* Which GPUs are joined by how many links: links[i * n + j]; error and false where that is no kind of scale-up. */
bool cluster_say_links(struct cluster_facts *f, uint32_t n, const uint32_t *links, bool pairs, struct span from);

/* The network of a NIC with this PCI class (0x0207), vendor and device: InfiniBand is a class of its own, Mellanox's
 * cards on Ethernet mean RoCE, Amazon's EFA; "" = not known. */
const char *cluster_medium(unsigned long class, unsigned long vendor, unsigned long device);

/* Readers: what a file says, or false after errors. */
bool cluster_read_nccl(struct cluster_facts *f, const struct cluster_file *file);
bool cluster_read_slurm(struct cluster_facts *f, const struct cluster_file *file);
bool cluster_read_nvidia_smi(struct cluster_facts *f, const struct cluster_file *file);
bool cluster_read_hwloc(struct cluster_facts *f, const struct cluster_file *file);
bool cluster_read_nccl_tests(struct cluster_facts *f, const struct cluster_file *file);
/* what all files of Slurm together say: nodes in the order of the switches, levels, GPUs */
bool cluster_resolve_slurm(struct cluster_facts *f);

/* cluster_write.c: the text, when nothing is missing */
char *cluster_write(struct cluster_facts *f);

#endif
