/* See host.h.  Scheduling of a block: threads run on fibers until they wait.  Whoever completes a barrier or a warp
 * operation makes the waiting ones ready, in thread order; a thread that never waits ends on the fiber it was given, which
 * the next thread takes over, so kernels without barriers cost no switch at all.  When nobody is ready and all have
 * started, the block hangs: that is reported with what each waits for.
 *
 * Switching is a few instructions on x86-64 and swapcontext() elsewhere (which costs two system calls). */

#include "tests/emulated/host.cuh"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#if !defined(__x86_64__) || defined(CUDA_HOST_UCONTEXT)
#define USE_UCONTEXT
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN
#endif
#endif
#ifdef ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

struct cuda_host_launch {
    const char *name;
    dim3 grid, block;
    size_t shared_bytes;
    void (*call)(void *);
    void (*drop)(void *);
    void *arguments;
};

namespace {

enum { THREADS = 1024, WARPS = THREADS / 32, PIECES = 16, PAGE = 4096 };
#ifdef ASAN
enum { STACK = 1 << 18 };
#else
enum { STACK = 1 << 16 };
#endif
enum { SHARED_LIMIT = 227 * 1024, SHARED_STATIC_LIMIT = 48 * 1024 };

struct context {
#ifdef USE_UCONTEXT
    ucontext_t machine;
#else
    void *top; /* stack pointer while switched away */
#endif
    void *fake; /* ASan's */
    const void *stack;
    size_t stack_bytes;
};

enum wait { RUNNING, AT_BARRIER, AT_WARP, ENDED };
struct lane {
    enum cuda_host_kind kind;
    unsigned mask;
    uint64_t value, result;
    int argument, width;
};
struct thread {
    enum wait wait;
    unsigned fiber;
    struct lane lane;
};
struct piece { /* of shared memory */
    const void *key;
    void *memory;
    size_t bytes;
};

/* all of an operating system thread's state */
struct engine {
    uint8_t *stacks; /* THREADS stacks, a guard page below each */
    struct context scheduler, fiber[THREADS];
    bool made[THREADS];
    unsigned idle[THREADS], nidle; /* fibers whose thread has ended, or that never had one */
    struct thread thread[THREADS];
    unsigned current, started, alive, waiting, nthreads;
    unsigned ready[THREADS], first_ready, nready;
    int barrier_line;
    struct piece piece[PIECES];
    unsigned npieces;
    size_t static_bytes;
    const struct cuda_host_launch *launch;
    bool failed, reverse;
    char text[400], reported[400], pending[400];
    cuda_host_sink *sink;
    void *sink_context;
};

__thread struct engine *mine;
pthread_key_t key;
pthread_once_t once = PTHREAD_ONCE_INIT;

void engine_free(void *p)
{
    struct engine *e = static_cast<struct engine *>(p);
    munmap(e->stacks, (size_t)THREADS * STACK);
    free(e);
}

void make_key()
{
    pthread_key_create(&key, engine_free);
}

struct engine *engine_get()
{
    if (mine)
        return mine;
    pthread_once(&once, make_key);
    struct engine *e = static_cast<struct engine *>(calloc(1, sizeof *e));
    void *map = mmap(nullptr, (size_t)THREADS * STACK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!e || map == MAP_FAILED)
        abort();
    e->stacks = static_cast<uint8_t *>(map);
    for (unsigned i = 0; i < THREADS; i++)
        mprotect(e->stacks + (size_t)i * STACK, PAGE, PROT_NONE);
    pthread_setspecific(key, e);
    return mine = e;
}

#ifndef USE_UCONTEXT
/* saves the registers a function must keep, and the stack pointer, and takes up those of another fiber */
__attribute__((naked, noinline)) void switch_stack(void ** /* save */, void * /* load */)
{
    asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
#endif

/* leaves from, which goes on when somebody switches to it */
void context_switch(struct context *from, struct context *to)
{
#ifdef ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->stack_bytes);
#endif
#ifdef USE_UCONTEXT
    swapcontext(&from->machine, &to->machine);
#else
    switch_stack(&from->top, to->top);
#endif
#ifdef ASAN
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

void fail(struct engine *e, const char *what)
{
    if (e->failed)
        return;
    e->failed = true;
    snprintf(e->text, sizeof e->text, "%.160s, block (%u, %u, %u), thread %u of %u: %.160s", e->launch->name, blockIdx.x, blockIdx.y,
             blockIdx.z, e->current, e->nthreads, what);
}

void place_thread(const struct engine *e, unsigned t)
{
    const dim3 &b = e->launch->block;
    threadIdx.x = t % b.x;
    threadIdx.y = t / b.x % b.y;
    threadIdx.z = t / b.x / b.y;
}

void make_ready(struct engine *e, unsigned t)
{
    e->thread[t].wait = RUNNING;
    e->ready[(e->first_ready + e->nready++) % THREADS] = t;
}

/* back to the scheduler, until made ready; after a failure nobody comes back */
void suspend(struct engine *e, enum wait wait)
{
    unsigned t = e->current;
    e->thread[t].wait = wait;
    context_switch(&e->fiber[e->thread[t].fiber], &e->scheduler);
    e = mine;
    e->current = t;
    place_thread(e, t);
}

/* what lane `at` of a complete group gets */
uint64_t lane_result(struct engine *e, unsigned warp, unsigned at, unsigned present)
{
    const struct thread *lanes = &e->thread[warp * 32];
    const struct lane *l = &lanes[at].lane;
    uint64_t bits = 0;
    if (l->kind == CUDA_HOST_SYNC)
        return 0;
    if (l->kind == CUDA_HOST_BALLOT || l->kind == CUDA_HOST_MATCH) {
        for (unsigned i = 0; i < 32; i++)
            if (present >> i & 1 && (l->kind == CUDA_HOST_BALLOT ? lanes[i].lane.value != 0 : lanes[i].lane.value == l->value))
                bits |= (uint64_t)1 << i;
        return bits;
    }
    int width = l->width, base = (int)at & ~(width - 1), in = (int)at & (width - 1), from = in;
    if (l->kind == CUDA_HOST_SHUFFLE)
        from = l->argument & (width - 1);
    else if (l->kind == CUDA_HOST_UP)
        from = in < l->argument ? in : in - l->argument;
    else if (l->kind == CUDA_HOST_DOWN)
        from = in + l->argument < width ? in + l->argument : in;
    else if ((in ^ l->argument) < width)
        from = in ^ l->argument;
    if (!(present >> (base + from) & 1))
        fail(e, "a shuffle reads a lane that takes no part");
    return lanes[base + from].lane.value;
}

/* lanes of a warp that are there and have not ended */
unsigned live_lanes(const struct engine *e, unsigned warp)
{
    unsigned live = 0;
    for (unsigned i = 0; i < 32 && warp * 32 + i < e->nthreads; i++)
        live |= (unsigned)(e->thread[warp * 32 + i].wait != ENDED) << i;
    return live;
}

/* if all of a group have come: their results, and all but `self` become ready; false: some are missing */
bool complete_group(struct engine *e, unsigned warp, unsigned at, unsigned self)
{
    struct thread *lanes = &e->thread[warp * 32];
    unsigned mask = lanes[at].lane.mask, present = mask & live_lanes(e, warp);
    for (unsigned i = 0; i < 32; i++) {
        if (!(present >> i & 1) || i == self)
            continue;
        if (lanes[i].wait != AT_WARP)
            return false;
        if (lanes[i].lane.kind != lanes[at].lane.kind || lanes[i].lane.mask != mask)
            return false; /* found when the later one came */
    }
    for (unsigned i = 0; i < 32; i++)
        if (present >> i & 1)
            lanes[i].lane.result = lane_result(e, warp, i, present);
    for (unsigned i = 0; i < 32; i++)
        if (present >> i & 1 && i != self)
            make_ready(e, warp * 32 + i);
    return true;
}

/* a thread has ended: others may have waited for it alone, which a warp operation allows and a barrier does not */
void thread_end(struct engine *e)
{
    unsigned t = e->current, warp = t / 32;
    e->thread[t].wait = ENDED;
    e->alive--;
    if (e->waiting)
        fail(e, "it ended while others wait at a barrier");
    for (unsigned i = 0; i < 32 && warp * 32 + i < e->nthreads; i++)
        if (e->thread[warp * 32 + i].wait == AT_WARP)
            complete_group(e, warp, i, 32);
}

/* threads that have not started, one after the other, until one of them waits */
void fiber_main()
{
    struct engine *e = mine;
#ifdef ASAN
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    for (;;) {
        unsigned f = e->idle[--e->nidle];
        while (e->started < e->nthreads && !e->nready && !e->failed) {
            unsigned t = e->started++;
            e->current = t = e->reverse ? e->nthreads - 1 - t : t;
            e->thread[t].fiber = f;
            place_thread(e, t);
            e->launch->call(e->launch->arguments);
            f = e->thread[e->current].fiber;
            thread_end(e);
        }
        e->idle[e->nidle++] = f;
        context_switch(&e->fiber[f], &e->scheduler);
        e = mine;
    }
}

void fiber_make(struct engine *e, unsigned f)
{
    struct context *c = &e->fiber[f];
    uint8_t *low = e->stacks + (size_t)f * STACK + PAGE, *high = e->stacks + (size_t)(f + 1) * STACK;
    c->stack = low;
    c->stack_bytes = (size_t)(high - low);
#ifdef ASAN
    __asan_unpoison_memory_region(low, c->stack_bytes);
#endif
#ifdef USE_UCONTEXT
    getcontext(&c->machine);
    c->machine.uc_stack.ss_sp = low;
    c->machine.uc_stack.ss_size = c->stack_bytes;
    c->machine.uc_link = nullptr;
    makecontext(&c->machine, fiber_main, 0);
#else
    void **top = reinterpret_cast<void **>(high) - 1; /* fiber_main() is entered with the alignment of a call */
    *--top = reinterpret_cast<void *>(fiber_main);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    c->top = top;
#endif
    e->made[f] = true;
}

void scheduler_enter(struct engine *e, unsigned f)
{
#ifdef ASAN
    pthread_attr_t a;
    void *low = nullptr;
    size_t bytes = 0;
    if (!e->scheduler.stack && pthread_getattr_np(pthread_self(), &a) == 0) {
        pthread_attr_getstack(&a, &low, &bytes);
        pthread_attr_destroy(&a);
        e->scheduler.stack = low;
        e->scheduler.stack_bytes = bytes;
    }
#endif
    if (!e->made[f])
        fiber_make(e, f);
    context_switch(&e->scheduler, &e->fiber[f]);
}

void describe_hang(struct engine *e)
{
    unsigned warps = 0;
    char what[160];
    for (unsigned t = 0; t < e->nthreads; t++)
        warps += e->thread[t].wait == AT_WARP;
    snprintf(what, sizeof what, "nobody can go on: %u wait at the barrier of line %d, %u in warp operations, %u have ended",
             e->waiting, e->barrier_line, warps, e->nthreads - e->alive);
    fail(e, what);
}

void free_pieces(struct engine *e)
{
    for (unsigned i = 0; i < e->npieces; i++)
        free(e->piece[i].memory);
    e->npieces = 0;
    e->static_bytes = 0;
}

void run_block(struct engine *e)
{
    e->nthreads = e->launch->block.x * e->launch->block.y * e->launch->block.z;
    e->started = e->waiting = e->nready = e->first_ready = 0;
    e->alive = e->nthreads;
    for (unsigned t = 0; t < e->nthreads; t++)
        e->thread[t].wait = RUNNING;
    while (e->alive && !e->failed) {
        if (e->nready) {
            unsigned t = e->ready[e->first_ready];
            e->first_ready = (e->first_ready + 1) % THREADS;
            e->nready--;
            scheduler_enter(e, e->thread[t].fiber);
        } else if (e->started < e->nthreads) {
            scheduler_enter(e, e->idle[e->nidle - 1]);
        } else {
            describe_hang(e);
        }
    }
    free_pieces(e);
}

const char *wrong_shape(const struct cuda_host_launch *l)
{
    uint64_t threads = (uint64_t)l->block.x * l->block.y * l->block.z;
    if (!threads || threads > THREADS || l->block.x > THREADS || l->block.y > THREADS || l->block.z > 64)
        return "a block of too many threads, or none";
    if (!l->grid.x || !l->grid.y || !l->grid.z || l->grid.x > 0x7fffffffu || l->grid.y > 65535 || l->grid.z > 65535)
        return "a grid that is empty or too large";
    return l->shared_bytes > SHARED_LIMIT ? "too much shared memory" : nullptr;
}

} // namespace

__thread struct cuda_host_place cuda_host_here;

void cuda_host_barrier(int line)
{
    struct engine *e = mine;
    if (e->waiting && e->barrier_line != line)
        fail(e, "threads of a block meet at different barriers");
    if (!e->failed && e->alive < e->nthreads)
        fail(e, "it waits at a barrier that others never reached");
    e->barrier_line = line;
    if (e->waiting + 1 < e->alive || e->failed) {
        e->waiting++;
        suspend(e, AT_BARRIER);
        return;
    }
    e->waiting = 0;
    for (unsigned i = 0; i < e->nthreads; i++) {
        unsigned t = e->reverse ? e->nthreads - 1 - i : i;
        if (e->thread[t].wait == AT_BARRIER)
            make_ready(e, t);
    }
}

uint64_t cuda_host_warp(enum cuda_host_kind kind, unsigned mask, uint64_t value, int argument, int width)
{
    struct engine *e = mine;
    unsigned t = e->current, at = t % 32;
    e->thread[t].lane = {kind, mask, value, 0, argument, width};
    if (!(mask >> at & 1))
        fail(e, "its own lane is not in the mask of a warp operation");
    for (unsigned i = t - at; i < t - at + 32 && i < e->nthreads; i++) /* those that wait for this lane */
        if (e->thread[i].wait == AT_WARP && e->thread[i].lane.mask >> at & 1 &&
            (e->thread[i].lane.mask != mask || e->thread[i].lane.kind != kind))
            fail(e, "lanes of a warp meet in different operations or with different masks");
    if (e->failed || !complete_group(e, t / 32, at, at) || e->failed)
        suspend(e, AT_WARP);
    return mine->thread[t].lane.result;
}

void *cuda_host_shared(const void *piece_key, size_t bytes)
{
    struct engine *e = mine;
    for (unsigned i = 0; i < e->npieces; i++)
        if (e->piece[i].key == piece_key)
            return e->piece[i].memory;
    if (!piece_key)
        bytes = e->launch->shared_bytes;
    else
        e->static_bytes += bytes;
    if (e->npieces == PIECES || e->static_bytes > SHARED_STATIC_LIMIT) {
        fail(e, "too many pieces of shared memory, or more than 48 KiB");
        suspend(e, AT_BARRIER);
    }
    void *memory = nullptr; /* exactly as many bytes: what lies behind is a red zone */
    if (posix_memalign(&memory, 128, bytes ? bytes : 1))
        abort();
    memset(memory, 0xff, bytes);
    e->piece[e->npieces++] = {piece_key, memory, bytes};
    return memory;
}

void cuda_host_launch_new(const char *name, dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream,
                          void (*call)(void *), void (*drop)(void *), void *arguments)
{
    struct engine *e = engine_get();
    struct cuda_host_launch *l = static_cast<struct cuda_host_launch *>(malloc(sizeof *l));
    if (!l)
        abort();
    *l = {name, grid, block, shared_bytes, call, drop, arguments};
    const char *why = e->sink ? e->sink(e->sink_context, stream, l) : cuda_host_run(l);
    if (!e->sink)
        cuda_host_drop(l);
    if (why && !e->pending[0])
        snprintf(e->pending, sizeof e->pending, "%s", why);
}

const char *cuda_host_run(const struct cuda_host_launch *l)
{
    struct engine *e = engine_get();
    e->launch = l;
    e->failed = false;
    cuda_host_here = {{0, 0, 0}, {0, 0, 0}, {l->block.x, l->block.y, l->block.z}, {l->grid.x, l->grid.y, l->grid.z}};
    e->nidle = 0;
    for (unsigned f = THREADS; f-- > 0;)
        e->idle[e->nidle++] = f;
    const char *why = wrong_shape(l);
    if (why)
        fail(e, why);
    uint64_t n = (uint64_t)l->grid.x * l->grid.y * l->grid.z;
    for (uint64_t i = 0; i < n && !e->failed; i++) {
        uint64_t b = e->reverse ? n - 1 - i : i;
        blockIdx.x = (unsigned)(b % l->grid.x);
        blockIdx.y = (unsigned)(b / l->grid.x % l->grid.y);
        blockIdx.z = (unsigned)(b / l->grid.x / l->grid.y);
        run_block(e);
    }
    if (!e->failed)
        return nullptr;
    for (unsigned f = 0; f < THREADS; f++) /* threads left in the middle are given up with their stacks' contents */
        e->made[f] = false;
    snprintf(e->reported, sizeof e->reported, "%s", e->text);
    return e->reported;
}

void cuda_host_drop(struct cuda_host_launch *l)
{
    l->drop(l->arguments);
    free(l);
}

void cuda_host_set_sink(cuda_host_sink *sink, void *context)
{
    struct engine *e = engine_get();
    e->sink = sink;
    e->sink_context = context;
}

const char *cuda_host_error(void)
{
    struct engine *e = engine_get();
    if (!e->pending[0])
        return nullptr;
    snprintf(e->reported, sizeof e->reported, "%s", e->pending);
    e->pending[0] = 0;
    return e->reported;
}

void cuda_host_set_reverse(int reverse)
{
    engine_get()->reverse = reverse != 0;
}
