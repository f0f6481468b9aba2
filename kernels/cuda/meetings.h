#ifndef LLMC_CUDA_MEETINGS_H
#define LLMC_CUDA_MEETINGS_H

/* Kernels of the runtime itself: sums over ranks on one device, and marks of how far a stream has come.  Like those
 * in cuda_kernels.h, they are only launched. */

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
enum { CUDA_MOST_MEMBERS = 64 };

/* y[m] = sum, or maximum, of all members' x in member order, accumulated in fp32 or wider (integers as such), for every
 * m that has a y; rows x cols elements of one dtype; y[m] may be x[m], but parts of others' x it must not overlap */
struct cuda_sum {
    uint32_t nmembers, rows, cols;
    enum dtype dtype;
    bool max;
    const void *x[CUDA_MOST_MEMBERS];
    void *y[CUDA_MOST_MEMBERS]; /* NULL = this member gets nothing */
    uint32_t x_ld[CUDA_MOST_MEMBERS], y_ld[CUDA_MOST_MEMBERS];
};
const char *cuda_sum(const struct cuda_sum *s, struct CUstream_st *stream);
/* *word = value, where word lies in mapped host memory */
const char *cuda_mark(uint32_t *word, uint32_t value, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
