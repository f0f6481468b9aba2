#ifndef LLMC_TESTS_FAKE_INSIDE_H
#define LLMC_TESTS_FAKE_INSIDE_H

/* Inside of the fake device: fake_cuda.c (memory, the tables), fake_streams.c (how the device moves, streams and events),
 * fake_graphs.c (captures and graphs), fake_launches.c (copies and kernels).  All that changes is under one lock but what
 * belongs to a thread: the last error, and how many captures it has open. */

#include "tests/fake/fake_cuda.h"

#include <pthread.h>

enum { MOST_ALLOCATIONS = 64, ERROR_VALUE = 1, ERROR_MEMORY = 2, ERROR_LAUNCH = 700, ERROR_CAPTURE = 900, ERROR_UNJOINED = 904 };

enum kind { KIND_STEP, KIND_RECORD, KIND_WAIT, KIND_GRAPH };
struct task { /* on a stream, or a node of a graph */
    enum kind kind;
    fake_step *step;
    void *state; /* owned; of a graph's launch: its instance */
    size_t bytes;
    cuda_event event;
    uint64_t version;
    struct task *next;
    int32_t after[2]; /* node: nodes before it, or -1 */
};
struct CUstream_st {
    struct task *head, **tail;
    cuda_graph capture;
    int32_t last; /* node of the capture, or -1 */
    struct CUstream_st *next;
};
struct CUevent_st {
    uint64_t recorded, done;
    int64_t done_ns;
    cuda_graph capture;
    int32_t node;
    bool timed;
    struct CUevent_st *next_dead;
};
struct CUgraph_st {
    struct task *nodes;
    uint32_t n, room;
    cuda_stream origin;
};
struct CUgraphExec_st {
    struct task *nodes;
    uint32_t n, *first, *behind; /* nodes behind node i: behind[first[i]] up to behind[first[i + 1]] */
};
struct instance {
    cuda_graph_exec exec;
    uint8_t *waits;   /* by node: nodes before it that have not ended */
    uint32_t *ready;  /* nodes that can run, ascending */
    void **state;     /* by node: its own copy while it runs */
    uint32_t nready, left;
};
struct allocation {
    uint8_t *start;
    size_t bytes;
    bool device;
};
struct fake {
    struct fake_setup s;
    struct cuda_plugin plugin;
    pthread_mutex_t lock;
    struct CUstream_st *streams, *favourite;
    uint32_t patience;
    uint64_t random, launches, graph_launches;
    struct CUevent_st *dead;
    uint32_t nstreams, nevents, ngraphs, nexecs;
    uint8_t *memory;
    uint64_t used;
    int device; /* processes are for one device each */
    struct allocation allocations[MOST_ALLOCATIONS];
    bool broken, hung;
    int depth; /* of nested graph steps */
    char breach[400];
    bool loaded[NOPS]; /* kernels that have been launched before */
    int pending;       /* communications under way that no graph holds */
};
/* CUDA's functions have no argument that could carry it */
extern struct fake fake;

/* fill their part of the tables */
void fake_streams_table(struct cuda_runtime *t);
void fake_graphs_table(struct cuda_runtime *t);
void fake_launches_table(struct cuda_runtime *t, struct cuda_plugin *p);

/* rc, which the thread remembers as its last error unless it is none */
int fake_cuda_error(int rc);
/* the text of the thread's last error, which is forgotten, or NULL: what a launch looks for */
const char *fake_cuda_launched(void);
/* captures that this thread has open; by: how many more.  Where there are any, CUDA forbids what might wait. */
int fake_cuda_captures(int by);
void fake_cuda_unless_capturing(const char *what);
/* the allocation that holds [p, p + bytes), or NULL */
struct allocation *fake_cuda_find(const void *p, size_t bytes);

struct task *fake_node(cuda_graph g, enum kind kind, int32_t before, int32_t other);
struct task *fake_append(cuda_stream s, enum kind kind);
enum fake_progress fake_instance_step(struct instance *it);
void fake_instance_free(struct instance *it);

/* bytes that a kernel uses besides operands; they are scribbled over */
size_t fake_cuda_workspace(enum op op);

#endif
