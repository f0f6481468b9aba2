/* The fake device as a plugin that llmrun opens, and the fake NCCL, of one rank, as a library:
 *   LLMRUN_CUDA=build/tests/fake/llmrun-fake.so LLMRUN_NCCL=$LLMRUN_CUDA llmrun --device cuda ...
 * FAKE_GPUS says how many devices there are, 1 if it does not.  FAKE_IDLE: for a test that only asks how long kernels take; each
 * takes IDLE_MS by the events' clock, and nothing is computed or copied. */

#include "tests/fake/fake_nccl.h"

#include <stdlib.h>

extern struct cuda_plugin llmrun_cuda;
struct cuda_plugin llmrun_cuda;
static const struct nccl_functions *nccl;

static const float IDLE_MS = 90;
static struct cuda_runtime idle;
static float launched_ms, recorded_ms[2]; /* at the last two events */

static const char *idle_launch(enum op op, const struct cuda_call *c)
{
    (void)op, (void)c;
    launched_ms += IDLE_MS;
    return NULL;
}

static int idle_record(cuda_event e, cuda_stream s)
{
    (void)e, (void)s;
    recorded_ms[0] = recorded_ms[1];
    recorded_ms[1] = launched_ms;
    return 0;
}

static int idle_elapsed(float *ms, cuda_event from, cuda_event to)
{
    (void)from, (void)to;
    *ms = recorded_ms[1] - recorded_ms[0];
    return 0;
}

static int idle_copy(void *to, const void *from, size_t bytes, int kind, cuda_stream s)
{
    (void)to, (void)from, (void)bytes, (void)kind, (void)s;
    return 0;
}

__attribute__((constructor)) static void fill(void)
{
    const char *devices = getenv("FAKE_GPUS");
    const struct fake_setup s = {.seed = 1, .devices = devices ? atoi(devices) : 1, .memory_bytes = (uint64_t)16 << 30};
    const struct fake_nccl_setup quiet = {.seed = 0};
    llmrun_cuda = *fake_cuda_open(&s);
    if (getenv("FAKE_IDLE")) {
        idle = *llmrun_cuda.runtime;
        idle.EventRecord = idle_record;
        idle.EventElapsedTime = idle_elapsed;
        idle.MemcpyAsync = idle_copy;
        llmrun_cuda.runtime = &idle;
        llmrun_cuda.launch = idle_launch;
    }
    nccl = fake_nccl_open(&quiet, 1);
    if (!nccl)
        abort();
}

#define FORWARD(name, parameters, arguments)                                                                 \
    int nccl##name parameters;                                                                               \
    int nccl##name parameters                                                                                \
    {                                                                                                        \
        return nccl->name arguments;                                                                         \
    }
FORWARD(GetVersion, (int *version), (version))
FORWARD(GetUniqueId, (struct nccl_id * id), (id))
FORWARD(CommInitRankConfig, (struct ncclComm * *c, int nranks, struct nccl_id id, int rank, struct nccl_config *config),
        (c, nranks, id, rank, config))
FORWARD(CommSplit, (struct ncclComm * c, int colour, int key, struct ncclComm **out, struct nccl_config *config),
        (c, colour, key, out, config))
FORWARD(CommFinalize, (struct ncclComm * c), (c))
FORWARD(CommDestroy, (struct ncclComm * c), (c))
FORWARD(CommAbort, (struct ncclComm * c), (c))
FORWARD(CommGetAsyncError, (struct ncclComm * c, int *error), (c, error))
FORWARD(MemAlloc, (void **p, size_t bytes), (p, bytes))
FORWARD(MemFree, (void *p), (p))
FORWARD(CommRegister, (const struct ncclComm *c, void *buffer, size_t bytes, void **handle), (c, buffer, bytes, handle))
FORWARD(CommDeregister, (const struct ncclComm *c, void *handle), (c, handle))
FORWARD(GroupStart, (void), ())
FORWARD(GroupEnd, (void), ())
FORWARD(AllReduce, (const void *x, void *y, size_t n, int dtype, int op, struct ncclComm *c, cuda_stream s), (x, y, n, dtype, op, c, s))
FORWARD(ReduceScatter, (const void *x, void *y, size_t n, int dtype, int op, struct ncclComm *c, cuda_stream s),
        (x, y, n, dtype, op, c, s))
FORWARD(AllGather, (const void *x, void *y, size_t n, int dtype, struct ncclComm *c, cuda_stream s), (x, y, n, dtype, c, s))
FORWARD(Broadcast, (const void *x, void *y, size_t n, int dtype, int root, struct ncclComm *c, cuda_stream s), (x, y, n, dtype, root, c, s))
FORWARD(Send, (const void *x, size_t n, int dtype, int peer, struct ncclComm *c, cuda_stream s), (x, n, dtype, peer, c, s))
FORWARD(Recv, (void *y, size_t n, int dtype, int peer, struct ncclComm *c, cuda_stream s), (y, n, dtype, peer, c, s))

const char *ncclGetErrorString(int error);
const char *ncclGetErrorString(int error)
{
    return nccl->GetErrorString(error);
}
const char *ncclGetLastError(const struct ncclComm *c);
const char *ncclGetLastError(const struct ncclComm *c)
{
    return nccl->GetLastError(c);
}
