#ifndef LLMC_CUDA_LOAD_H
#define LLMC_CUDA_LOAD_H

/* Loads what --device cuda needs.  What is loaded stays open until the process ends. */

#include "runtime/cuda_plugin.h"
#include "runtime/error.h"

/* llmrun-cuda.so beside the program, or the file that LLMRUN_CUDA names; it must be of this version, and a driver and a
 * device must be there.  STATUS_WORLD and one sentence that says what is missing. */
enum status cuda_load(const struct cuda_plugin **out, struct error *error);
/* libnccl.so.2, or the file that LLMRUN_NCCL names; *out lives in *functions */
enum status nccl_load(struct nccl_functions *functions, struct error *error);

#endif
