#ifndef LLMC_CUDA_API_H
#define LLMC_CUDA_API_H

/* The functions of CUDA's runtime and of NCCL that the runtime calls, as tables, so that nothing links against either
 * and fakes can stand in.  Types are declared here as the libraries' binary interface has them: no header of theirs is
 * needed.  Every function returns an error code, 0 = success.
 *
 * build/llmrun-cuda.so fills the first table (it links the CUDA runtime statically and holds all kernels), dlsym() the
 * second.  Tables of cuBLASLt and cuDNN, which only kernels call, are in kernels/cuda. */

#include "kernels/kernels.h"

typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;
typedef struct CUgraph_st *cuda_graph;
typedef struct CUgraphExec_st *cuda_graph_exec;
struct ncclComm;
struct nccl_id {
    char bytes[128];
};
/* ncclConfig_t of NCCL 2.28; an older library reads the fields that `version` says it knows */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas, channels_per_net_peer, nvlink_centric_sched;
};

enum { CUDA_OK = 0, CUDA_NOT_READY = 600 };
enum { CUDA_COPY_DEFAULT = 4 }; /* the direction follows from the addresses */
enum { CUDA_STREAM_NONBLOCKING = 1 };
enum { CUDA_EVENT_PLAIN = 0, CUDA_EVENT_NO_TIMING = 2 };
enum { CUDA_CAPTURE_THREAD_LOCAL = 1 };
enum { CUDA_INSTANTIATE_PRIORITIES = 8 }; /* cudaGraphInstantiateFlagUseNodePriority */
enum { CUDA_HOST_MAPPED = 3 };            /* portable | mapped: the device may read and write it */

/* F(name without "cuda", parameters) */
#define CUDA_RUNTIME(F)                                                                                                \
    F(GetDeviceCount, (int *count))                                                                                    \
    F(SetDevice, (int device))                                                                                         \
    F(DeviceGetAttribute, (int *value, int attribute, int device))                                                     \
    F(DeviceGetPCIBusId, (char *out, int size, int device))                                                            \
    F(DriverGetVersion, (int *version))                                                                                \
    F(RuntimeGetVersion, (int *version))                                                                               \
    F(MemGetInfo, (size_t * available, size_t * total))                                                                \
    F(Malloc, (void **p, size_t bytes))                                                                                \
    F(Free, (void *p))                                                                                                 \
    F(HostAlloc, (void **p, size_t bytes, unsigned flags))                                                             \
    F(FreeHost, (void *p))                                                                                             \
    F(DeviceGetStreamPriorityRange, (int *least, int *greatest))                                                       \
    F(StreamCreateWithPriority, (cuda_stream * s, unsigned flags, int priority))                                       \
    F(StreamDestroy, (cuda_stream s))                                                                                  \
    F(StreamQuery, (cuda_stream s))                                                                                    \
    F(StreamWaitEvent, (cuda_stream s, cuda_event e, unsigned flags))                                                  \
    F(EventCreateWithFlags, (cuda_event * e, unsigned flags))                                                          \
    F(EventDestroy, (cuda_event e))                                                                                    \
    F(EventRecord, (cuda_event e, cuda_stream s))                                                                      \
    F(EventQuery, (cuda_event e))                                                                                      \
    F(EventElapsedTime, (float *ms, cuda_event from, cuda_event to))                                                   \
    F(MemcpyAsync, (void *to, const void *from, size_t bytes, int kind, cuda_stream s))                                \
    F(Memcpy2DAsync, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width_bytes, size_t rows, \
                      int kind, cuda_stream s))                                                                        \
    F(MemsetAsync, (void *p, int value, size_t bytes, cuda_stream s))                                                  \
    F(StreamBeginCapture, (cuda_stream s, int mode))                                                                   \
    F(StreamEndCapture, (cuda_stream s, cuda_graph * g))                                                               \
    F(GraphInstantiate, (cuda_graph_exec * x, cuda_graph g, unsigned long long flags))                                 \
    F(GraphGetNodes, (cuda_graph g, void *nodes, size_t *n))                                                           \
    F(GraphLaunch, (cuda_graph_exec x, cuda_stream s))                                                                 \
    F(GraphExecDestroy, (cuda_graph_exec x))                                                                           \
    F(GraphDestroy, (cuda_graph g))                                                                                    \
    F(GetLastError, (void))
struct cuda_runtime {
#define MEMBER(name, parameters) int(*name) parameters;
    CUDA_RUNTIME(MEMBER)
#undef MEMBER
    const char *(*GetErrorString)(int error);
};
/* Is the work done?  CUDA keeps "not ready", which is no error, as the thread's last error, where a launch that
 * looks for its own error would find it; so it is cleared here, and all queries must go through these functions. */
static inline int cuda_poll_stream(const struct cuda_runtime *cu, cuda_stream s)
{
    int rc = cu->StreamQuery(s);
    if (rc == CUDA_NOT_READY)
        cu->GetLastError();
    return rc;
}
static inline int cuda_poll_event(const struct cuda_runtime *cu, cuda_event e)
{
    int rc = cu->EventQuery(e);
    if (rc == CUDA_NOT_READY)
        cu->GetLastError();
    return rc;
}

enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7, NCCL_SPLIT_NO_COLOUR = -1, NCCL_UNDEFINED = -2147483647 - 1 };
enum nccl_dtype {
    NCCL_INT8 = 0,
    NCCL_INT32 = 2,
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9
};
enum nccl_redop { NCCL_SUM = 0, NCCL_MAX = 2 };

/* F(name without "nccl", parameters) */
#define NCCL_FUNCTIONS(F)                                                                                              \
    F(GetVersion, (int *version))                                                                                      \
    F(GetUniqueId, (struct nccl_id * id))                                                                              \
    F(CommInitRankConfig, (struct ncclComm * *c, int nranks, struct nccl_id id, int rank, struct nccl_config *config)) \
    F(CommSplit, (struct ncclComm * c, int colour, int key, struct ncclComm **out, struct nccl_config *config))        \
    F(CommFinalize, (struct ncclComm * c))                                                                             \
    F(CommDestroy, (struct ncclComm * c))                                                                              \
    F(CommAbort, (struct ncclComm * c))                                                                                \
    F(CommGetAsyncError, (struct ncclComm * c, int *error))                                                            \
    F(MemAlloc, (void **p, size_t bytes))                                                                              \
    F(MemFree, (void *p))                                                                                              \
    F(CommRegister, (const struct ncclComm *c, void *buffer, size_t bytes, void **handle))                             \
    F(CommDeregister, (const struct ncclComm *c, void *handle))                                                        \
    F(GroupStart, (void))                                                                                              \
    F(GroupEnd, (void))                                                                                                \
    F(AllReduce, (const void *x, void *y, size_t n, int dtype, int op, struct ncclComm *c, cuda_stream s))             \
    F(ReduceScatter, (const void *x, void *y, size_t n, int dtype, int op, struct ncclComm *c, cuda_stream s))         \
    F(AllGather, (const void *x, void *y, size_t n, int dtype, struct ncclComm *c, cuda_stream s))                     \
    F(Broadcast, (const void *x, void *y, size_t n, int dtype, int root, struct ncclComm *c, cuda_stream s))           \
    F(Send, (const void *x, size_t n, int dtype, int peer, struct ncclComm *c, cuda_stream s))                         \
    F(Recv, (void *y, size_t n, int dtype, int peer, struct ncclComm *c, cuda_stream s))
struct nccl_functions {
#define MEMBER(name, parameters) int(*name) parameters;
    NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
    const char *(*GetErrorString)(int error);
    const char *(*GetLastError)(const struct ncclComm *c);
};

#endif
