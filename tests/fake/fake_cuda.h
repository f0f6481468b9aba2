#ifndef LLMC_TESTS_FAKE_CUDA_H
#define LLMC_TESTS_FAKE_CUDA_H

/* A CUDA that needs no GPU: streams are in-order queues in host memory, and whoever asks whether a stream is done makes the
 * device take some steps.  Which stream moves next is drawn from a seed, limited by events alone, so that a wait that is
 * missing shows as a wrong result sooner or later.  Graphs are recorded as nodes with the dependencies that capture gives
 * them, and replayed in any order those allow.  Kernels are those of kernels/cpu.
 *
 * Rules of use are checked as they are broken; the first breach is kept in words.  One fake per process; a process that
 * forks has one of its own, but device memory is shared, so that fake_nccl.h can reach peers. */

#include "runtime/cuda/gang.h"

enum { FAKE_LIBRARY_BYTES = 1 << 19 }; /* that the plugin takes where it is opened */

struct fake_setup {
    uint64_t seed;        /* of the order in which streams move; 0 = in turn */
    int devices;
    uint64_t memory_bytes; /* of each device */
    /* faults, counted over launches of the process; 0 = none */
    uint64_t refuse_launch; /* this launch returns an error */
    uint64_t break_launch;  /* this kernel breaks the device when it runs: from then on every call says 700 */
    uint64_t hang_launch;   /* this kernel never ends */
    uint64_t refuse_graph;  /* this launch of a graph, counted by itself, returns an error */
};
/* the plugin's table; state lives until fake_cuda_close() */
const struct cuda_plugin *fake_cuda_open(const struct fake_setup *s);
/* what is left behind (streams, events, graphs, memory), the first broken rule; "" = nothing */
void fake_cuda_complaints(char *out, size_t size);
void fake_cuda_close(void);
uint64_t fake_cuda_launches(void);

/* for fake_nccl.c: an operation on a stream that ends when step() says so, and the breach of a rule */
enum fake_progress { FAKE_STUCK, FAKE_MOVED, FAKE_DONE };
typedef enum fake_progress fake_step(void *state);
int fake_cuda_enqueue(cuda_stream s, fake_step *step, const void *state, size_t bytes);
void fake_cuda_breach(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *fake_cuda_allocate(size_t bytes);
void fake_cuda_release(void *p);
bool fake_cuda_is_device(const void *p, size_t bytes);
bool fake_cuda_is_capturing(cuda_stream s);
void fake_cuda_pending(int by); /* communications that began, less those that ended */
uint64_t fake_cuda_draw(uint64_t n); /* below n */
void fake_cuda_lock(void);
void fake_cuda_unlock(void);

#endif
