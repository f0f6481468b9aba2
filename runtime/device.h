#ifndef LLMC_DEVICE_H
#define LLMC_DEVICE_H

/* Kernels on the CPU, the reference for all others. */

#include "kernels/kernels.h"

/* runs a compute instruction to completion */
void device_cpu_run(enum op op, struct kernel_args *k);
/* OpenBLAS chooses slow kernels on processors newer than itself, and starts threads, unless the environment says
 * otherwise before it is loaded.  Restarts this program once with such an environment if needed; returns otherwise. */
void device_cpu_tune(char **argv);

#endif
