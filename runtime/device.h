#ifndef LLMC_DEVICE_H
#define LLMC_DEVICE_H

/* Where kernels run.  A device is a small table; `cpu` is always there and is the reference. */

#include "kernels/kernels.h"
#include "runtime/status.h"

struct device {
    const char *name;
    /* one line about it for the log's header, for instance the BLAS and its core type */
    void (*describe)(char *out, size_t size);
    /* NULL if the kernel can take these shapes and attributes, else what is wrong */
    const char *(*check)(enum op op, const struct kernel_args *k);
    size_t (*scratch_floats)(enum op op, const struct kernel_args *k);
    /* runs a compute instruction to its end */
    void (*run)(enum op op, struct kernel_args *k);
};

const struct device *device_cpu(void);
/* OpenBLAS takes slow kernels on processors newer than itself, and starts threads, unless told by the
 * environment before it is loaded.  Starts this program anew once where that is needed; returns otherwise. */
void device_cpu_tune(char **argv);

#endif
