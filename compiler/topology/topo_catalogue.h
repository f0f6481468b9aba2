#ifndef LLMC_TOPO_CATALOGUE_H
#define LLMC_TOPO_CATALOGUE_H

/* What is publicly known of accelerators, so that <gpu model="H100-SXM"/> is enough. */

#include "compiler/topology/topo.h"

#include <stdio.h>

struct topo_catalogue_gpu {
    struct topo_gpu gpu;          /* model, memory, default reserve, dense peaks, sm */
    enum scale_up_kind scale_up;  /* how the usual machine joins its GPUs */
    double bidirectional_bytes_s; /* of scale-up, the data-sheet figure: both directions */
    const char *source;
};

/* by its name, or by what its name begins with up to a '-', where no other does; NULL when the model is not known */
const struct topo_catalogue_gpu *topo_catalogue_find(const char *model);
/* "H100-SXM, H100-PCIe", where several names begin so; else NULL */
const char *topo_catalogue_several(struct arena *a, const char *model);
/* all of them, a line each */
void topo_catalogue_print(FILE *out);
/* the known model that is spelt most alike, or NULL */
const char *topo_catalogue_nearest(const char *model);
/* the model that a PCI device id (such as 0x2330, vendor 0x10de) stands for, or NULL */
const char *topo_catalogue_device(unsigned long device);
/* the model that goes by such a name of its driver, "NVIDIA H100 80GB HBM3", blanks or '_' in it, upper or lower case;
 * or NULL */
const char *topo_catalogue_driver_name(const char *name);
/* the first model whose name begins with a word up to a '-', upper or lower case; *many: how many do; or NULL */
const struct topo_catalogue_gpu *topo_catalogue_begins(const char *word, uint32_t *many);
/* bytes/s of one NVLink, one direction, by its data-sheet; and how many such links a GPU's scale-up figure is, 0
 * where it has none */
double topo_catalogue_nvlink_bytes_s(const struct topo_catalogue_gpu *row);
uint32_t topo_catalogue_nvlinks(const struct topo_catalogue_gpu *row);

#endif
