/* See fake_nccl.h.
 *
 * Shared by all processes: a table of communicators.  Every member numbers its operations on a communicator; operation k
 * lives in seat k % SEATS, where members leave what they bring when their stream comes to it.  The last to arrive compares
 * what all have brought, moves the data between the processes' device memories, which all can reach, and opens the seat.
 * A communicator is made when all of its members have asked for it, and a while later is ready.
 *
 * The fake device runs communications of a process one at a time in the order of launching. */

#include "tests/fake/fake_nccl.h"
#include "kernels/cpu/sums.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 64, COMMS = 1024, SEATS = 8, GROUP = 2 * MOST, ERROR_INVALID = 5, ERROR_REMOTE = 6, ERROR_SYSTEM = 2 };

struct move { /* one call */
    int kind, dtype, op, peer; /* kind: the letter of the function */
    const uint8_t *x;
    uint8_t *y;
    uint64_t n;
};
struct bring { /* a member's part in one operation: one call, or the calls of a group */
    uint32_t nmoves;
    struct move move[GROUP];
};
struct seat {
    _Atomic uint64_t arrivals; /* in all uses of the seat */
    _Atomic uint64_t open, left;
    struct bring bring[];
};
struct shared_comm {
    _Atomic uint32_t asked, gone;
    uint32_t n, parent, split, colour;
    int members[MOST]; /* world ranks by index */
    size_t seats;      /* offset of its seats in the region */
    _Atomic uint32_t locked;
};
struct region {
    _Atomic uint32_t lock, ncomms, breached;
    _Atomic size_t used;
    uint32_t nranks;
    char breach[400];
    struct shared_comm comm[COMMS];
    struct { /* by split of the world: what ranks have asked for */
        _Atomic uint32_t asked;
        int colour[MOST], key[MOST];
    } split[512];
};
struct ncclComm {
    uint32_t shared, self, splits, polls; /* polls: until it says that it is ready */
    uint64_t ops;
    struct { /* memory that may be used */
        const uint8_t *start;
        size_t bytes;
    } registered;
    bool ready, finalized, aborted, busy;
    int error;
    struct ncclComm *pending; /* split under way */
    struct ncclComm **out;
    int colour, key;
};
struct operation { /* on a stream */
    struct ncclComm *c;
    uint64_t number, ticket;
    bool arrived, hang, captured;
    struct bring bring;
};
struct fake_nccl {
    struct fake_nccl_setup s;
    struct region *r;
    size_t bytes;
    uint32_t nranks, world_rank, live, registered, depth;
    uint64_t calls, tickets[2], turn[2]; /* [captured]: turn is the launch whose communication may run */
    struct bring group;
    struct ncclComm *group_comm;
    cuda_stream group_stream;
    bool hung;
};
/* NCCL's functions have no argument that could carry it */
static struct fake_nccl fake;

static void breach(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (!atomic_exchange(&fake.r->breached, 1))
        vsnprintf(fake.r->breach, sizeof fake.r->breach, format, ap);
    va_end(ap);
}

static struct seat *seat_of(const struct shared_comm *c, uint64_t number)
{
    size_t each = sizeof(struct seat) + c->n * sizeof(struct bring);
    return (struct seat *)(void *)((uint8_t *)fake.r + c->seats + number % SEATS * each);
}

static void lock(void)
{
    while (atomic_exchange(&fake.r->lock, 1))
        usleep(10);
}
static void unlock(void)
{
    atomic_store(&fake.r->lock, 0);
}

/* the communicator of these members: whoever comes first enters it */
static uint32_t enter(uint32_t split, uint32_t colour, const int *members, uint32_t n)
{
    uint32_t i = 0;
    lock();
    while (i < fake.r->ncomms && (fake.r->comm[i].split != split || fake.r->comm[i].colour != colour))
        i++;
    if (i == fake.r->ncomms && i < COMMS) {
        struct shared_comm *c = &fake.r->comm[i];
        c->split = split;
        c->colour = colour;
        c->n = n;
        memcpy(c->members, members, n * sizeof *members);
        c->seats = fake.r->used;
        fake.r->used += SEATS * (sizeof(struct seat) + n * sizeof(struct bring));
        if (fake.r->used > fake.bytes)
            breach("the fake has too little memory");
        fake.r->ncomms++;
    }
    atomic_fetch_add(&fake.r->comm[i].asked, 1);
    unlock();
    return i;
}

static uint32_t delay(void)
{
    return fake.s.seed ? (uint32_t)fake_cuda_draw(6) : 0;
}

static struct ncclComm *new_comm(uint32_t shared, uint32_t self)
{
    struct ncclComm *c = calloc(1, sizeof *c);
    *c = (struct ncclComm){.shared = shared, .self = self, .polls = 1 + delay()};
    fake.live++;
    return c;
}

static int f_version(int *version)
{
    *version = 22809;
    return 0;
}
static int f_id(struct nccl_id *id)
{
    memset(id, 0x5a, sizeof *id);
    return 0;
}

static int f_init(struct ncclComm **out, int n, struct nccl_id id, int rank, struct nccl_config *config)
{
    int all[MOST];
    for (int i = 0; i < MOST; i++)
        all[i] = i;
    if (id.bytes[5] != 0x5a || config->blocking != 0 || config->magic != 0xcafebeef || n != (int)fake.nranks)
        breach("CommInitRankConfig: wrong id, configuration or number of ranks");
    fake.world_rank = (uint32_t)rank;
    *out = new_comm(enter(UINT32_MAX, 0, all, (uint32_t)n), (uint32_t)rank);
    return NCCL_IN_PROGRESS;
}

static bool usable(const struct ncclComm *c, const char *what)
{
    if (c->aborted || c->finalized || !c->ready || c->pending || c->busy)
        breach("%s: the communicator %s", what,
               c->aborted     ? "was aborted"
               : c->finalized ? "was finalized"
               : !c->ready    ? "was not polled until it was ready"
                              : "has not ended its last call");
    return !c->aborted && !c->finalized;
}

static int f_split(struct ncclComm *c, int colour, int key, struct ncclComm **out, struct nccl_config *config)
{
    if (!usable(c, "CommSplit"))
        return ERROR_INVALID;
    if (config->blocking != 0)
        breach("CommSplit: a blocking communicator");
    uint32_t split = c->splits++;
    fake.r->split[split].colour[c->self] = colour;
    fake.r->split[split].key[c->self] = key;
    atomic_fetch_add(&fake.r->split[split].asked, 1);
    c->pending = c;
    c->colour = colour;
    c->key = key;
    c->out = out;
    *out = NULL;
    return NCCL_IN_PROGRESS;
}

/* when all ranks of the world have called, the split is known */
static bool finish_split(struct ncclComm *c)
{
    uint32_t split = c->splits - 1, n = 0;
    int members[MOST], self = 0;
    if (atomic_load(&fake.r->split[split].asked) < fake.nranks)
        return false;
    for (uint32_t r = 0; r < fake.nranks && c->colour >= 0; r++) {
        if (fake.r->split[split].colour[r] != c->colour)
            continue;
        uint32_t at = n++;
        while (at && fake.r->split[split].key[members[at - 1]] > fake.r->split[split].key[r]) {
            members[at] = members[at - 1];
            at--;
        }
        members[at] = (int)r;
    }
    for (uint32_t i = 0; i < n; i++)
        self = members[i] == (int)c->self ? (int)i : self;
    if (c->colour >= 0)
        *c->out = new_comm(enter(split, (uint32_t)c->colour, members, n), (uint32_t)self);
    c->pending = NULL;
    return true;
}

static int f_async(struct ncclComm *c, int *error)
{
    *error = c->error;
    if (c->aborted) {
        breach("CommGetAsyncError: after the abort");
        return ERROR_INVALID;
    }
    if (c->error)
        return 0;
    if (c->polls) {
        c->polls--;
        *error = NCCL_IN_PROGRESS;
        return 0;
    }
    const struct shared_comm *s = &fake.r->comm[c->shared];
    if (!c->ready && atomic_load(&s->asked) < s->n) {
        *error = NCCL_IN_PROGRESS;
        return 0;
    }
    c->ready = true;
    c->busy = false;
    if (c->pending && !finish_split(c))
        *error = NCCL_IN_PROGRESS;
    return 0;
}

static int f_finalize(struct ncclComm *c)
{
    if (!usable(c, "CommFinalize"))
        return ERROR_INVALID;
    c->finalized = true;
    c->polls = delay();
    return NCCL_IN_PROGRESS;
}

static int f_destroy(struct ncclComm *c)
{
    if (c->registered.bytes)
        breach("CommDestroy: memory is still registered");
    if (!c->finalized)
        breach("CommDestroy: it was not finalized");
    fake.live--;
    free(c);
    return 0;
}

static int f_abort(struct ncclComm *c)
{
    if (c->aborted)
        breach("CommAbort: twice");
    fake.registered -= c->registered.bytes != 0;
    c->aborted = true; /* kept: operations on streams may refer to it */
    fake.live--;
    return 0;
}

static int f_mem_alloc(void **p, size_t bytes)
{
    fake_cuda_lock();
    *p = fake_cuda_allocate(bytes);
    fake_cuda_unlock();
    return *p ? 0 : 1;
}
static int f_mem_free(void *p)
{
    if (fake.registered)
        breach("MemFree: memory is still registered");
    fake_cuda_lock();
    fake_cuda_release(p);
    fake_cuda_unlock();
    return 0;
}
static int f_register(const struct ncclComm *given, void *p, size_t bytes, void **handle)
{
    struct ncclComm *c = (struct ncclComm *)(uintptr_t)given;
    usable(c, "CommRegister");
    c->registered.start = p;
    c->registered.bytes = bytes;
    *handle = c;
    fake.registered++;
    return 0;
}
static int f_deregister(const struct ncclComm *given, void *handle)
{
    struct ncclComm *c = (struct ncclComm *)(uintptr_t)given;
    if (handle != c)
        breach("CommDeregister: a wrong handle");
    c->registered.bytes = 0;
    fake.registered--;
    return 0;
}

/* --- operations --- */

static enum dtype dtype_of(int d)
{
    return d == NCCL_FLOAT32 ? DTYPE_F32 : d == NCCL_BFLOAT16 ? DTYPE_BF16 : d == NCCL_FLOAT16 ? DTYPE_F16 : d == NCCL_FLOAT64 ? DTYPE_F64 : DTYPE_I32;
}

static void sum_to(const struct seat *s, uint32_t n, uint64_t from, uint64_t count, bool all, uint32_t to)
{
    union sums sums;
    const struct move *first = &s->bring[0].move[0];
    size_t size = isa_dtype_bytes(dtype_of(first->dtype));
    for (uint64_t e = 0, run; e < count; e += run) {
        run = count - e < SUMS_BLOCK ? count - e : SUMS_BLOCK;
        for (uint32_t m = 0; m < n; m++)
            sums_take(&sums, s->bring[m].move[0].x + (from + e) * size, (uint32_t)run, dtype_of(first->dtype),
                      !m                      ? SUMS_SET
                      : first->op == NCCL_MAX ? SUMS_MAX
                                              : SUMS_ADD);
        for (uint32_t m = all ? 0 : to; m < (all ? n : to + 1); m++)
            sums_store(&sums, s->bring[m].move[0].y + e * size, (uint32_t)run, dtype_of(first->dtype));
    }
}

/* the k-th send of `from` to `to` meets the k-th receive */
static void match_pairs(const struct seat *s, uint32_t n)
{
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t i = 0; i < s->bring[from].nmoves; i++) {
            const struct move *send = &s->bring[from].move[i];
            const struct bring *other = &s->bring[send->peer];
            uint32_t skip = 0, j = 0;
            if (send->kind != 'S')
                continue;
            for (uint32_t k = 0; k < i; k++)
                skip += s->bring[from].move[k].kind == 'S' && s->bring[from].move[k].peer == send->peer;
            while (j < other->nmoves && (other->move[j].kind != 'R' || other->move[j].peer != (int)from || skip--))
                j++;
            if (j == other->nmoves)
                breach("a send has no receive");
            else if (other->move[j].n != send->n || other->move[j].dtype != send->dtype)
                breach("a receive of %llu elements meets a send of %llu", (unsigned long long)other->move[j].n,
                       (unsigned long long)send->n);
            else
                memmove(other->move[j].y, send->x, send->n * isa_dtype_bytes(dtype_of(send->dtype)));
        }
}

static void carry_out(const struct shared_comm *c, const struct seat *s)
{
    const struct move *a = &s->bring[0].move[0];
    size_t size = isa_dtype_bytes(dtype_of(a->dtype));
    for (uint32_t m = 1; m < c->n && a->kind != 'S' && a->kind != 'R'; m++) {
        const struct move *b = &s->bring[m].move[0];
        if (a->kind != b->kind || a->n != b->n || a->dtype != b->dtype || a->op != b->op || a->peer != b->peer)
            breach("members of a communicator disagree: %c of %llu, %c of %llu", a->kind, (unsigned long long)a->n, b->kind,
                   (unsigned long long)b->n);
    }
    if (a->kind == 'A')
        sum_to(s, c->n, 0, a->n, true, 0);
    for (uint32_t m = 0; m < c->n; m++) {
        const struct move *b = &s->bring[m].move[0];
        if (a->kind == 'C')
            sum_to(s, c->n, m * a->n, a->n, false, m);
        for (uint32_t o = 0; o < c->n && a->kind == 'G'; o++)
            memmove(s->bring[o].move[0].y + m * a->n * size, b->x, a->n * size);
        if (a->kind == 'B')
            memmove(b->y, s->bring[a->peer].move[0].x, a->n * size);
    }
    if (a->kind == 'S' || a->kind == 'R')
        match_pairs(s, c->n);
}

/* the next launch may run; those of a graph begin anew when it is launched again (one graph per process) */
static void take_turn(const struct operation *o)
{
    if (o->ticket == fake.turn[o->captured])
        fake.turn[o->captured]++;
    if (o->captured && fake.turn[1] == fake.tickets[1])
        fake.turn[1] = 0;
}

static enum fake_progress step_operation(void *state)
{
    struct operation *o = state;
    struct ncclComm *c = o->c;
    struct shared_comm *s = &fake.r->comm[c->shared];
    if (c->aborted || c->error) {
        take_turn(o);
        fake_cuda_pending(o->captured ? 0 : -1);
        return FAKE_DONE;
    }
    if (o->ticket != fake.turn[o->captured] || o->hang)
        return FAKE_STUCK;
    if (!o->arrived)
        o->number = c->ops;
    struct seat *seat = seat_of(s, o->number);
    if (!o->arrived) {
        if (atomic_load(&seat->left) < o->number / SEATS * s->n)
            return FAKE_STUCK; /* its last use is not over */
        seat->bring[c->self] = o->bring;
        o->arrived = true;
        c->ops++;
        if (atomic_fetch_add(&seat->arrivals, 1) + 1 == (o->number / SEATS + 1) * s->n) {
            carry_out(s, seat);
            atomic_store(&seat->open, o->number / SEATS + 1);
        }
        return FAKE_MOVED;
    }
    if (atomic_load(&seat->open) < o->number / SEATS + 1)
        return FAKE_STUCK;
    atomic_fetch_add(&seat->left, 1);
    take_turn(o);
    fake_cuda_pending(o->captured ? 0 : -1);
    return FAKE_DONE;
}

static int launch(struct ncclComm *c, cuda_stream stream, const struct bring *b)
{
    struct operation *o = calloc(1, sizeof *o);
    bool captured = fake_cuda_is_capturing(stream);
    *o = (struct operation){.c = c, .captured = captured, .ticket = fake.tickets[captured]++, .bring = *b};
    fake.calls++;
    bool mine = fake.world_rank == fake.s.fail_rank;
    if (mine && fake.calls == fake.s.fail_call)
        c->error = ERROR_REMOTE;
    o->hang = mine && fake.calls == fake.s.hang_call;
    fake.hung |= o->hang;
    fake_cuda_lock();
    fake_cuda_pending(captured ? 0 : 1);
    fake_cuda_enqueue(stream, step_operation, o, sizeof *o);
    fake_cuda_unlock();
    free(o);
    c->busy = true;
    c->polls = delay();
    if (mine && fake.calls == fake.s.refuse_call)
        return ERROR_SYSTEM;
    return NCCL_IN_PROGRESS;
}

static int call(struct move v, struct ncclComm *c, cuda_stream stream)
{
    uint32_t n = fake.r->comm[c->shared].n;
    size_t size = isa_dtype_bytes(dtype_of(v.dtype));
    const uint8_t *start = c->registered.start, *end = start + c->registered.bytes;
    const uint8_t *x = v.kind == 'R' ? v.y : v.x, *y = v.kind == 'S' ? v.x : v.y;
    size_t nx = v.n * size * (v.kind == 'C' ? n : 1), ny = v.n * size * (v.kind == 'G' ? n : 1);
    if (!fake.depth && !usable(c, "an operation"))
        return ERROR_INVALID;
    if (x < start || x + nx > end || y < start || y + ny > end)
        breach("operation %c of %llu elements on memory that is not registered", v.kind, (unsigned long long)v.n);
    if (v.kind == 'G' && v.x >= v.y && v.x < v.y + ny && v.x != v.y + c->self * v.n * size)
        breach("AllGather: in place at another member's part");
    if (v.kind == 'C' && v.y >= v.x && v.y < v.x + nx && v.y != v.x + c->self * v.n * size)
        breach("ReduceScatter: in place at another member's part");
    if ((v.kind == 'S' || v.kind == 'R' || v.kind == 'B') && (v.peer < 0 || v.peer >= (int)n))
        breach("operation %c: no member %d", v.kind, v.peer);
    if (!fake.depth) {
        struct bring *b = calloc(1, sizeof *b);
        b->nmoves = 1;
        b->move[0] = v;
        int rc = launch(c, stream, b);
        free(b);
        return rc;
    }
    if ((fake.group_comm && (fake.group_comm != c || fake.group_stream != stream)) || fake.group.nmoves == GROUP)
        breach("a group over several communicators or too many calls");
    if (!fake.group_comm)
        usable(c, "an operation");
    fake.group_comm = c;
    fake.group_stream = stream;
    fake.group.move[fake.group.nmoves++] = v;
    return 0;
}

static int f_group_start(void)
{
    fake.depth++;
    return 0;
}
static int f_group_end(void)
{
    if (!fake.depth) {
        breach("GroupEnd without GroupStart");
        return ERROR_INVALID;
    }
    if (--fake.depth || !fake.group_comm)
        return 0;
    struct ncclComm *c = fake.group_comm;
    int rc = launch(c, fake.group_stream, &fake.group);
    fake.group_comm = NULL;
    fake.group.nmoves = 0;
    return rc;
}

static int f_all_reduce(const void *x, void *y, size_t n, int dtype, int op, struct ncclComm *c, cuda_stream s)
{
    return call((struct move){'A', dtype, op, 0, x, y, n}, c, s);
}
static int f_reduce_scatter(const void *x, void *y, size_t n, int dtype, int op, struct ncclComm *c, cuda_stream s)
{
    return call((struct move){'C', dtype, op, 0, x, y, n}, c, s);
}
static int f_all_gather(const void *x, void *y, size_t n, int dtype, struct ncclComm *c, cuda_stream s)
{
    return call((struct move){'G', dtype, 0, 0, x, y, n}, c, s);
}
static int f_broadcast(const void *x, void *y, size_t n, int dtype, int root, struct ncclComm *c, cuda_stream s)
{
    return call((struct move){'B', dtype, 0, root, x, y, n}, c, s);
}
static int f_send(const void *x, size_t n, int dtype, int peer, struct ncclComm *c, cuda_stream s)
{
    return call((struct move){'S', dtype, 0, peer, x, NULL, n}, c, s);
}
static int f_recv(void *y, size_t n, int dtype, int peer, struct ncclComm *c, cuda_stream s)
{
    return call((struct move){'R', dtype, 0, peer, NULL, y, n}, c, s);
}
static const char *f_error_string(int error)
{
    return error == ERROR_REMOTE    ? "remote process exited or there was a network error"
           : error == ERROR_SYSTEM  ? "unhandled system error"
           : error == ERROR_INVALID ? "invalid usage"
                                    : "unhandled cuda error";
}
static const char *f_last_error(const struct ncclComm *c)
{
    (void)c;
    return "";
}

const struct nccl_functions *fake_nccl_open(const struct fake_nccl_setup *s, uint32_t nranks)
{
    static const struct nccl_functions functions = {f_version,    f_id,         f_init,      f_split,       f_finalize,
                                                    f_destroy,    f_abort,      f_async,     f_mem_alloc,   f_mem_free,
                                                    f_register,   f_deregister, f_group_start, f_group_end, f_all_reduce,
                                                    f_reduce_scatter, f_all_gather, f_broadcast, f_send,    f_recv,
                                                    f_error_string, f_last_error};
    memset(&fake, 0, sizeof fake);
    fake.s = *s;
    fake.nranks = nranks;
    fake.bytes = (size_t)1 << 32;
    void *map = mmap(NULL, fake.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fake.r = map == MAP_FAILED ? NULL : map;
    if (!fake.r || nranks > MOST)
        return NULL;
    fake.r->nranks = nranks;
    fake.r->used = (sizeof *fake.r + 63) / 64 * 64;
    return &functions;
}

void fake_nccl_complaints(char *out, size_t size)
{
    snprintf(out, size, "%s", fake.r->breach);
    if (!*out && (fake.live || fake.registered || fake.depth))
        snprintf(out, size, "left behind: %u communicators, %u registrations, %u open groups", fake.live, fake.registered,
                 fake.depth);
}

void fake_nccl_close(void)
{
    if (fake.r)
        munmap(fake.r, fake.bytes);
    memset(&fake, 0, sizeof fake);
}
