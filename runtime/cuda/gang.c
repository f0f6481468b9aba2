/* The players on GPUs, and a gang's device: one allocation for the arenas of its ranks, workspaces and staged words; a
 * stream per rank and queue.
 *
 * Layout of the allocation: arenas, each of its device part alone (host buffers come first in an arena and lie in
 * pinned memory), then workspaces, one per stream that runs kernels, then staged words.  Pinned memory: per rank its
 * progress words, staged words, step block and metrics; then host parts of arenas. */

#include "runtime/cuda/gang_inside.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGN = 512, ARENA_ALIGN = 2 << 20, CC_MAJOR = 75, CC_MINOR = 76 };

static size_t round_up(uint64_t bytes, size_t to)
{
    return (size_t)((bytes + to - 1) / to * to);
}

enum status gang_new(struct gang **out, const struct gang_setup *s)
{
    struct gang *g = calloc(1, sizeof *g);
    if (!g || !(g->ranks = calloc(s->n, sizeof *g->ranks))) {
        free(g);
        return STATUS_WORLD;
    }
    g->s = *s;
    g->cu = s->plugin->runtime;
    *out = g;
    return STATUS_OK;
}

static size_t shared_bytes(const struct channel *channels, uint32_t nchannels)
{
    (void)channels;
    (void)nchannels;
    return sizeof(struct nccl_id);
}

static const char *admit(struct exec *e, enum op op, const struct kernel_args *k)
{
    return e->s.gang->s.plugin->check(op, k);
}

static void describe(const struct exec *e, char *out, size_t size)
{
    const struct gang *g = e->s.gang;
    static const char *const modes[] = {"instruction by instruction", "in segments", "as one graph"};
    g->s.plugin->describe(g->s.device, out, size);
    size_t used = strlen(out);
    snprintf(out + used, size - used, ", %s, replayed %s", g->s.meet->name, modes[g->s.replay]);
    used = strlen(out);
    if (g->noted)
        snprintf(out + used, size - used, "; %u product%s of a step not in fp8: %s", g->noted, g->noted == 1 ? "" : "s",
                 g->note);
}

/* the larger of both programs: what is in front of an arena's device part */
static uint64_t arena_host_bytes(const struct exec *e)
{
    uint64_t most = 0;
    for (enum routine w = 0; w < NROUTINES; w++) {
        uint64_t bytes = e->play[w].p ? program_host_bytes(e->play[w].p) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static uint64_t arena_bytes(const struct exec *e)
{
    uint64_t most = 0;
    for (enum routine w = 0; w < NROUTINES; w++)
        most = e->play[w].p && e->play[w].p->arena_bytes > most ? e->play[w].p->arena_bytes : most;
    return most;
}

/* what the plan itself has for kernels on the compute queue, where both its programs keep it; NULL: it was made for no
 * GPU */
static const struct buffer *workspace_buffer(const struct exec *e, enum routine which)
{
    const struct program *p = e->play[which].p;
    for (uint32_t b = 0; p && b < p->nbuffers; b++)
        if (p->buffers[b].kind == BUFFER_WORKSPACE)
            return &p->buffers[b];
    return NULL;
}

/* largest need of any instruction by queue; shapes are enough, operands have no place yet */
static void measure_workspaces(struct gang *g, struct gang_rank *r)
{
    for (enum routine w = 0; w < NROUTINES; w++) {
        const struct program *p = r->e->play[w].p;
        for (uint32_t i = 0; p && i < p->ninsns; i++) {
            struct kernel_args k = {.scratch = NULL};
            struct meeting m;
            bool meets = insn_is_meeting(&p->insns[i]);
            if (meets)
                exec_make_meeting(r->e, &r->e->play[w], i, &m);
            else
                exec_resolve(r->e, p, i, &k);
            size_t bytes = meets ? g->s.meet->workspace_bytes(&m)
                                 : g->s.plugin->workspace_bytes(p->insns[i].op, &k, g->sm);
            bytes = round_up(bytes, ALIGN);
            size_t *most = &r->workspace_bytes[p->insns[i].queue];
            *most = bytes > *most ? bytes : *most;
        }
    }
    r->placed = workspace_buffer(r->e, ROUTINE_TRAIN);
    if (r->placed && r->placed->bytes >= r->workspace_bytes[QUEUE_COMPUTE])
        r->workspace_bytes[QUEUE_COMPUTE] = 0; /* no more than that of its own */
    else
        r->placed = NULL;
    r->stage_bytes = gang_stage_bytes(r->e, ROUTINE_TRAIN);
    size_t eval = gang_stage_bytes(r->e, ROUTINE_EVAL);
    r->stage_bytes = round_up(r->stage_bytes > eval ? r->stage_bytes : eval, ALIGN);
}

static enum status allocate_pinned(struct gang *g, struct error *error)
{
    void *pinned = NULL;
    for (uint32_t i = 0; i < g->s.n; i++)
        g->pinned_bytes += ALIGN + g->ranks[i].stage_bytes + ALIGN + round_up(arena_host_bytes(g->ranks[i].e), ALIGN);
    int rc = g->cu->HostAlloc(&pinned, g->pinned_bytes, CUDA_HOST_MAPPED);
    if (rc)
        return error_set(error, STATUS_WORLD, "cannot get pinned host memory: %s", g->cu->GetErrorString(rc));
    uint8_t *next = g->pinned = pinned;
    for (uint32_t i = 0; i < g->s.n; i++) {
        struct gang_rank *r = &g->ranks[i];
        r->mark = (uint32_t *)(void *)next;
        memset(r->mark, 0, NMARKS * sizeof *r->mark);
        r->stage = next + ALIGN;
        r->host = r->stage + r->stage_bytes + ALIGN;
        next = r->host + round_up(arena_host_bytes(r->e), ALIGN);
    }
    return STATUS_OK;
}

static enum status allocate_device(struct gang *g, struct error *error)
{
    void *memory = NULL;
    for (uint32_t i = 0; i < g->s.n; i++) {
        const struct gang_rank *r = &g->ranks[i];
        g->lines.arena += round_up(arena_bytes(r->e) - arena_host_bytes(r->e), ARENA_ALIGN);
        for (uint32_t q = 0; q < NQUEUES; q++)
            g->lines.workspace += r->workspace_bytes[q];
        g->lines.staging += r->stage_bytes;
    }
    g->memory_bytes = round_up(g->lines.arena + g->lines.workspace + g->lines.staging, ARENA_ALIGN);
    /* NCCL reads and writes peers' memory in place only where it allocated it itself */
    int rc = g->s.nccl ? g->s.nccl->MemAlloc(&memory, g->memory_bytes) : g->cu->Malloc(&memory, g->memory_bytes);
    if (rc)
        return error_set(error, STATUS_MISMATCH, "the plan needs %.2f GiB on device %d, of which %.2f GiB are free: %s",
                         (double)g->memory_bytes / 0x1p30, g->s.device, (double)g->free_at_start / 0x1p30,
                         g->s.nccl ? g->s.nccl->GetErrorString(rc) : g->cu->GetErrorString(rc));
    uint8_t *next = g->memory = memory;
    for (uint32_t i = 0; i < g->s.n; i++) {
        struct gang_rank *r = &g->ranks[i];
        exec_place(r->e, r->host, arena_host_bytes(r->e), next);
        next += round_up(arena_bytes(r->e) - arena_host_bytes(r->e), ARENA_ALIGN);
    }
    for (uint32_t i = 0; i < g->s.n; i++) {
        struct gang_rank *r = &g->ranks[i];
        for (uint32_t q = 0; q < NQUEUES; q++) {
            r->workspace[q] = r->workspace_bytes[q] ? next : NULL;
            next += r->workspace_bytes[q];
        }
        if (r->placed) {
            r->workspace[QUEUE_COMPUTE] = exec_address(r->e, r->placed->offset);
            r->workspace_bytes[QUEUE_COMPUTE] = r->placed->bytes;
        }
        r->stage_device = next;
        next += r->stage_bytes;
    }
    return STATUS_OK;
}

/* communication before computation: a transfer that can start should not wait behind a kernel's blocks */
static int make_streams(struct gang *g)
{
    int least = 0, greatest = 0, rc = g->cu->DeviceGetStreamPriorityRange(&least, &greatest);
    for (uint32_t i = 0; i < g->s.n && !rc; i++)
        for (uint32_t q = 0; q < NQUEUES && !rc; q++) {
            rc = g->cu->StreamCreateWithPriority(&g->ranks[i].stream[q], CUDA_STREAM_NONBLOCKING,
                                                 q == QUEUE_COMPUTE ? least : greatest);
            if (!rc)
                rc = g->cu->EventCreateWithFlags(&g->ranks[i].end[q], CUDA_EVENT_NO_TIMING);
        }
    if (!rc)
        rc = g->cu->EventCreateWithFlags(&g->begin, CUDA_EVENT_NO_TIMING);
    return rc ? rc : g->cu->EventCreateWithFlags(&g->clock, CUDA_EVENT_PLAIN);
}

/* what does not run as it asks to: how many, and the first one's reason */
static void take_note(struct gang *g, bool counts, enum op op, const struct kernel_args *k)
{
    const char *note = counts && g->s.plugin->note ? g->s.plugin->note(op, k, g->sm) : NULL;
    g->noted += note != NULL;
    g->note = g->note ? g->note : note;
}

/* algorithms and plans are chosen on the operands' own memory, which is poisoned afterwards */
static const char *prepare_kernels(struct gang *g)
{
    for (uint32_t i = 0; i < g->s.n; i++)
        for (enum routine w = 0; w < NROUTINES; w++) {
            const struct program *p = g->ranks[i].e->play[w].p;
            for (uint32_t j = 0; p && j < p->ninsns; j++) {
                struct kernel_args k;
                struct cuda_call c;
                if (insn_is_meeting(&p->insns[j]))
                    continue;
                gang_call(g, &g->ranks[i], w, j, &k, &c);
                take_note(g, i == 0 && w == ROUTINE_TRAIN, p->insns[j].op, &k);
                const char *why = !g->s.plugin->prepare ? NULL : g->s.plugin->prepare(p->insns[j].op, &c);
                if (why)
                    return why;
            }
            const char *why = gang_prepare_fused(g, &g->ranks[i], w);
            if (why)
                return why;
        }
    return NULL;
}

static size_t free_bytes(const struct gang *g)
{
    size_t left = 0, total = 0;
    return g->cu->MemGetInfo(&left, &total) == CUDA_OK ? left : g->free_at_start;
}

/* adds what has been taken since *mark, the bytes that were free then */
static void take_line(const struct gang *g, uint64_t *line, size_t *mark)
{
    size_t now = free_bytes(g);
    *line += *mark > now ? *mark - now : 0;
    *mark = now;
}

/* kernels loaded before the first communication; on zeros, which every kernel takes for sizes, ids and places */
static enum status load_kernels(struct gang *g, struct error *error)
{
    if (!g->s.nccl || g->s.world->nranks == 1)
        return STATUS_OK;
    int rc = g->cu->MemsetAsync(g->memory, 0, g->memory_bytes, gang_origin(g));
    memset(g->ranks[0].host, 0, arena_host_bytes(g->ranks[0].e));
    if (rc)
        return error_set(error, STATUS_WORLD, "cannot use the device: %s", g->cu->GetErrorString(rc));
    TRY(gang_wait(g, ROUTINE_TRAIN));
    const char *why = gang_load(g);
    if (why)
        return error_set(error, STATUS_WORLD, "cannot load kernels: %s", why);
    for (uint32_t q = 0; q < NQUEUES; q++)
        while ((rc = cuda_poll_stream(g->cu, g->ranks[0].stream[q])) == CUDA_NOT_READY)
            TRY(world_failed(g->s.world));
    rc = rc ? rc : cuda_poll_stream(g->cu, gang_origin(g));
    return rc ? error_set(error, STATUS_WORLD, "a kernel fails on zeros: %s", g->cu->GetErrorString(rc)) : STATUS_OK;
}

static enum status open_device(struct gang *g, struct error *error)
{
    size_t total = 0, mark;
    int count = 0, major = 0, minor = 0, rc = g->cu->GetDeviceCount(&count);
    if (rc || g->s.device >= count)
        return error_set(error, rc ? STATUS_WORLD : STATUS_MISMATCH, "rank %u wants GPU %d, this machine has %d%s%s",
                         g->first, g->s.device, count, rc ? ": " : "", rc ? g->cu->GetErrorString(rc) : "");
    rc = g->cu->SetDevice(g->s.device);
    if (!rc)
        rc = g->cu->DeviceGetAttribute(&major, CC_MAJOR, g->s.device);
    if (!rc)
        rc = g->cu->DeviceGetAttribute(&minor, CC_MINOR, g->s.device);
    if (!rc)
        rc = g->cu->MemGetInfo(&g->free_at_start, &total);
    if (!rc)
        rc = make_streams(g);
    if (rc)
        return error_set(error, STATUS_WORLD, "cannot use the device: %s", g->cu->GetErrorString(rc));
    g->sm = 10 * major + minor;
    mark = g->free_at_start;
    const char *why = g->s.plugin->open(&g->libraries, g->s.device, g->s.deterministic);
    if (why)
        return error_set(error, STATUS_WORLD, "cannot use the device: %s", why);
    for (uint32_t i = 0; i < g->s.n; i++)
        measure_workspaces(g, &g->ranks[i]);
    TRY(allocate_pinned(g, error));
    take_line(g, &g->lines.libraries, &mark);
    TRY(allocate_device(g, error));
    mark = free_bytes(g);
    TRY(gang_plan(g, error));
    why = prepare_kernels(g);
    if (why)
        return error_set(error, STATUS_WORLD, "cannot prepare kernels: %s", why);
    TRY(load_kernels(g, error));
    take_line(g, &g->lines.libraries, &mark);
    rc = g->cu->MemsetAsync(g->memory, 0xff, g->memory_bytes, gang_origin(g));
    for (uint32_t i = 0; i < g->s.n; i++)
        memset(g->ranks[i].host, 0xff, arena_host_bytes(g->ranks[i].e));
    return rc ? error_set(error, STATUS_WORLD, "cannot use the device: %s", g->cu->GetErrorString(rc))
              : gang_wait(g, ROUTINE_TRAIN);
}

static enum status open_meet(struct gang *g, const struct exec *e, struct error *error)
{
    const struct meet_setup s = {.plugin = g->s.plugin,
                                 .nccl = g->s.nccl,
                                 .world = g->s.world,
                                 .channels = e->s.channels,
                                 .ranks = e->s.ranks,
                                 .programs = e->s.programs,
                                 .id = (const struct nccl_id *)(const void *)g->s.world->transport,
                                 .memory = g->memory,
                                 .memory_bytes = g->memory_bytes,
                                 .deadline_s = g->s.connect_s};
    size_t mark = free_bytes(g);
    enum status st = g->s.meet->open(&g->meet, &s, error);
    take_line(g, &g->lines.communicators, &mark);
    return st;
}

static struct gang_rank *rank_of(const struct exec *e)
{
    return &e->s.gang->ranks[e->s.gang->s.nccl ? 0 : e->s.world->rank];
}

/* with NCCL the gang is this rank's alone, and the first rank makes the id by which they meet, unless it came over the
 * network */
static void take_rank(struct gang *g, const struct exec *e)
{
    const struct world *w = e->s.world;
    g->first = w->rank;
    if (g->s.device < 0)
        g->s.device = (int)e->s.ranks->ranks[w->rank].gpu;
    if (w->rank == 0 && !w->remote && g->s.nccl->GetUniqueId((struct nccl_id *)(void *)w->transport))
        world_fail(w, STATUS_WORLD, "rank 0: NCCL finds no network interface to meet on");
}

static enum status join(struct exec *e, struct error *error)
{
    struct gang *g = e->s.gang;
    struct gang_rank *r = rank_of(e);
    if (exec_has_phases(e))
        return error_set(error, STATUS_MISMATCH,
                         "a post-validated plan runs on CPU ranks only; plan with 'post_validation no' for GPUs");
    r->e = e;
    if (g->s.nccl)
        take_rank(g, e);
    atomic_fetch_add(&g->joined, 1);
    TRY(world_barrier(e->s.world));
    if (r != g->ranks) {
        error->text[0] = 0;
        enum status st = world_barrier(e->s.world);
        if (st == STATUS_OK && g->cu->SetDevice(g->s.device))
            st = error_set(error, STATUS_WORLD, "cannot use the device");
        return st;
    }
    enum status st = open_device(g, error);
    if (st == STATUS_OK)
        st = open_meet(g, e, error);
    if (st != STATUS_OK) {
        world_fail(e->s.world, st, "rank %u: %s", e->s.world->rank, error->text);
        return st;
    }
    return world_barrier(e->s.world);
}

static enum status run(struct exec *e, enum routine which, enum phase phase)
{
    struct gang *g = e->s.gang;
    bool leader = rank_of(e) == g->ranks;
    if (phase != PHASE_BODY) /* without seams it holds all */
        return STATUS_OK;
    if (g->s.n > 1)
        TRY(world_barrier(e->s.world));
    if (leader) {
        for (uint32_t r = 0; r < g->s.n; r++)
            memset(g->ranks[r].mark, 0, NMARKS * sizeof *g->ranks[r].mark);
        enum status st = gang_issue(g, which);
        if (st != STATUS_OK)
            return st;
    }
    return g->s.n > 1 ? world_barrier(e->s.world) : world_failed(e->s.world);
}

enum status gang_copy(struct exec *e, uint64_t at, uint64_t bytes, bool to_device)
{
    const struct gang *g = e->s.gang;
    cuda_stream stream = rank_of(e)->stream[QUEUE_COMPUTE];
    uint8_t *device = exec_address(e, at), *host = e->s.world->arena[e->s.world->rank] + at;
    int rc = g->cu->MemcpyAsync(to_device ? device : host, to_device ? host : device, bytes, CUDA_COPY_DEFAULT, stream);
    while (!rc && (rc = cuda_poll_stream(g->cu, stream)) == CUDA_NOT_READY) {
        rc = 0;
        TRY(world_failed(e->s.world));
    }
    if (!rc)
        return STATUS_OK;
    world_fail(e->s.world, STATUS_WORLD, "rank %u: copying %llu bytes: %s", e->s.world->rank, (unsigned long long)bytes,
               g->cu->GetErrorString(rc));
    return STATUS_WORLD;
}

/* Streams that hang would make freeing hang: after a failure only what cannot block is given back, the process ends
 * soon. */
static bool drained(struct gang *g)
{
    int64_t end = world_now_ns() + 2000000000;
    for (uint32_t i = 0; i < g->s.n; i++)
        for (uint32_t q = 0; q < NQUEUES; q++)
            while (g->ranks[i].stream[q]) {
                int rc = cuda_poll_stream(g->cu, g->ranks[i].stream[q]);
                if (rc == CUDA_OK)
                    break;
                if (rc != CUDA_NOT_READY || world_now_ns() > end)
                    return false;
            }
    return true;
}

static void free_device(struct gang *g)
{
    if (world_failed(g->s.world) != STATUS_OK && g->meet)
        g->s.meet->abort(g->meet); /* else streams would wait for peers that have left */
    bool idle = drained(g);
    for (uint32_t i = 0; g->stamps && i < 2 * g->step[ROUTINE_TRAIN].n; i++)
        if (g->stamps[i])
            g->cu->EventDestroy(g->stamps[i]);
    free(g->stamps);
    gang_plan_free(g); /* graphs go before communicators */
    if (g->meet)
        g->s.meet->close(g->meet);
    for (uint32_t i = 0; i < g->s.n; i++)
        for (uint32_t q = 0; q < NQUEUES; q++) {
            if (g->ranks[i].end[q])
                g->cu->EventDestroy(g->ranks[i].end[q]);
            if (g->ranks[i].stream[q])
                g->cu->StreamDestroy(g->ranks[i].stream[q]);
        }
    if (g->begin)
        g->cu->EventDestroy(g->begin);
    if (g->clock)
        g->cu->EventDestroy(g->clock);
    if (!idle)
        return;
    if (g->libraries)
        g->s.plugin->close(g->libraries);
    if (g->memory && g->s.nccl)
        g->s.nccl->MemFree(g->memory);
    else if (g->memory)
        g->cu->Free(g->memory);
    if (g->pinned)
        g->cu->FreeHost(g->pinned);
}

/* The leader gives the device back when all others have come to their end, and they wait for it: it uses what is
 * theirs. */
static void leave(struct exec *e)
{
    struct gang *g = e->s.gang;
    const struct gang_rank *r = rank_of(e);
    if (!r->e)
        return;
    atomic_fetch_add(&g->left, 1);
    while (r == g->ranks ? atomic_load(&g->left) < atomic_load(&g->joined) : !atomic_load(&g->freed))
        usleep(200);
    if (r != g->ranks)
        return;
    free_device(g);
    atomic_store(&g->freed, 1);
}

void gang_free(struct gang *g)
{
    if (!g)
        return;
    free(g->ranks);
    free(g);
}

void gang_memory(const struct gang *g, struct gang_memory *m)
{
    size_t left = free_bytes(g);
    *m = g->lines;
    m->total = g->free_at_start > left ? g->free_at_start - left : 0;
    uint64_t named = m->arena + m->workspace + m->staging + m->libraries + m->communicators;
    m->rest = m->total > named ? m->total - named : 0;
}

/* what this process holds on its GPU, and what replaying costs the host */
static void report(const struct exec *e, json_t *out)
{
    const struct gang_counts *c = &e->s.gang->counts;
    struct gang_memory m;
    gang_memory(e->s.gang, &m);
    json_object_set_new(out, "gpu_memory",
                        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "arena_bytes", (json_int_t)m.arena,
                                  "workspace_bytes", (json_int_t)m.workspace, "staging_bytes", (json_int_t)m.staging,
                                  "libraries_bytes", (json_int_t)m.libraries, "communicators_bytes",
                                  (json_int_t)m.communicators, "rest_bytes", (json_int_t)m.rest, "total_bytes",
                                  (json_int_t)m.total));
    json_object_set_new(out, "replay",
                        json_pack("{s:I, s:I, s:I, s:o}", "graphs", (json_int_t)c->graphs, "instructions",
                                  (json_int_t)c->replayed, "fused", (json_int_t)c->fused, "host_ns_per_instruction",
                                  c->replayed ? json_real((double)c->issue_ns / (double)c->replayed) : json_null()));
}

const struct player player_d2d = {.transport = "d2d",
                                  .threads = true,
                                  .computes = true,
                                  .shared_bytes = shared_bytes,
                                  .admit = admit,
                                  .open = join,
                                  .close = leave,
                                  .run = run,
                                  .copy = gang_copy,
                                  .describe = describe,
                                  .report = report};
const struct player player_nccl = {.transport = "nccl",
                                   .computes = true,
                                   .shared_bytes = shared_bytes,
                                   .admit = admit,
                                   .open = join,
                                   .close = leave,
                                   .run = run,
                                   .copy = gang_copy,
                                   .describe = describe,
                                   .report = report};
