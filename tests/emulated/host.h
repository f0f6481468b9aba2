#ifndef LLMC_CUDA_HOST_H
#define LLMC_CUDA_HOST_H

/* Kernels without a GPU: every .cu file also compiles as plain C++ (language.cuh), and its launches run here, on the
 * CPU. A block's threads are fibers that are switched at barriers and warp operations; blocks run one after the other.
 * What would hang or be undefined on a GPU is an error here: threads that miss a barrier or meet at different ones,
 * warp operations with disagreeing masks, a shuffle from a lane that isn't there, more threads or shared memory than
 * there are. Shared memory is filled with 0xff (NaN) before a block and lies between a sanitizer's red zones.
 *
 * All state belongs to the calling operating system thread. */

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct cuda_host_launch; /* a launch with its arguments by value; may be run often */

/* NULL, or what went wrong, until the next call */
const char *cuda_host_run(const struct cuda_host_launch *l);
void cuda_host_drop(struct cuda_host_launch *l);

/* Where launches go: NULL (as at first) = run at once.  A sink owns what it gets, and says NULL or what went wrong; a
 * stream being captured keeps launches, a graph runs them. */
typedef const char *cuda_host_sink(void *context, struct CUstream_st *stream, struct cuda_host_launch *l);
void cuda_host_set_sink(cuda_host_sink *sink, void *context);

/* the first error since the last call, or NULL: what cudaGetLastError() is for launches */
const char *cuda_host_error(void);

/* Threads and blocks start in order, or in reverse: results that depend on it lack a barrier. */
void cuda_host_set_reverse(int reverse);

#ifdef __cplusplus
}
#endif

#endif
