#ifndef LLMC_DEVICE_H
#define LLMC_DEVICE_H

/* Kernels on this processor, the reference of all others. */

#include "kernels/kernels.h"

/* runs a compute instruction to its end */
void device_cpu_run(enum op op, struct kernel_args *k);
/* OpenBLAS takes slow kernels on processors newer than itself, and starts threads, unless told by the
 * environment before it is loaded.  Starts this program anew once where that is needed; returns otherwise. */
void device_cpu_tune(char **argv);

#endif
