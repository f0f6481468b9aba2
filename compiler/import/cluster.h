#ifndef LLMC_IMPORT_CLUSTER_H
#define LLMC_IMPORT_CLUSTER_H

/* Cluster files from what other programs print or read: NCCL's dumps, Slurm's configuration, `nvidia-smi topo -m`,
 * tables of nccl-tests.  Each file says a part; together with settings they make one cluster of one kind of node. */

#include "compiler/topology/topo.h"

enum cluster_format {
    CLUSTER_NCCL,
    CLUSTER_SLURM,
    CLUSTER_NVIDIA_SMI,
    CLUSTER_NCCL_TESTS,
    CLUSTER_HWLOC,
    NCLUSTER_FORMATS
};
extern const char *const cluster_formats[NCLUSTER_FORMATS]; /* "nccl", "slurm", "nvidia-smi", "nccl-tests", "hwloc" */

struct cluster_file {
    enum cluster_format format;
    const struct source *source;
    const char
        *href; /* the file as seen from the cluster file's folder; NULL: elsewhere, so that it cannot be named there */
};

#define CLUSTER_IMPORT_MAX ((size_t)16 << 20) /* bytes of one file */

/* Text of a cluster file, which our own reader takes as *topo; or NULL after errors, of which one names all that
 * neither the files nor the settings ("gpu=H100-SXM") say and a cluster needs.  folder: where the cluster file will
 * lie, with its
 * '/', for what it names by href; NULL where no file has one. */
char *cluster_import(struct arena *a, struct diag *d, const struct cluster_file *files, size_t nfiles,
                     const char *const *sets, size_t nsets, const char *folder, struct topo **topo);

#endif
