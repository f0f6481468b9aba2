#ifndef LLMC_CALIBRATE_H
#define LLMC_CALIBRATE_H

/* `llmrun --calibrate`: how fast this machine's kernels are, as the <measured> block of a cluster file.  Products are points
 * that llmc predicts by; what its cluster language has no words for, attention and memory-bound kernels, are comments. */

#include "runtime/cuda_plugin.h"
#include "runtime/status.h"

#include <stdio.h>

/* plugin NULL: the CPU, by sizes that take it a few seconds.  One sentence in error on failure. */
enum status calibrate(const struct cuda_plugin *plugin, FILE *out, char *error, size_t error_size);

#endif
