/* Three worlds, mapped before the processes start: the first plan's, the transition's, the second plan's.  Only the
 * transition's has arenas; the others' are parts of them. */

#include "runtime/chain.h"
#include "runtime/exec.h"
#include "runtime/file.h"
#include "runtime/flight.h"
#include "runtime/launch.h"
#include "runtime/memory.h"
#include "runtime/stop.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum phase_of_rank { BY_FIRST, MOVING, BY_SECOND };

/* what a rank of the transition is in the two plans: NONE, or a rank of theirs */
struct seat {
    uint32_t rank[2];
    uint64_t base; /* where the second plan's arena begins */
};
struct chain {
    struct run *run[2];
    struct folder *folder; /* of the transition */
    struct seat *seats;
    struct channels channels;
    struct world world;
    uint64_t *arena_bytes; /* by rank */
};

/* bytes of a rank's arena for both of its programs, as the transition has them */
static uint64_t arena_of(const struct run *r, uint32_t rank)
{
    uint32_t role = r->folder->ranks->ranks[rank].role;
    uint64_t train = r->folder->train[role]->arena_bytes,
             eval = r->folder->eval ? r->folder->eval[role]->arena_bytes : 0, most = train > eval ? train : eval;
    return (most + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
}

static bool read_seats(struct chain *c, const json_t *list, int which)
{
    uint32_t n = c->folder->ranks->nranks, most = c->run[which]->folder->ranks->nranks, seated = 0;
    uint8_t *taken = calloc(most, 1);
    bool fine = taken && json_is_array(list) && json_array_size(list) == n;
    for (uint32_t i = 0; i < n && fine; i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t rank = json_integer_value(value);
        fine = json_is_integer(value) && rank >= -1 && rank < (json_int_t)most && (rank < 0 || !taken[rank]++);
        c->seats[i].rank[which] = fine && rank >= 0 ? (uint32_t)rank : NONE;
        seated += fine && rank >= 0;
    }
    free(taken);
    return fine && (!which || seated == most);
}

/* the seats' arenas against the programs' */
static enum status check_arenas(struct chain *c, struct error *error)
{
    c->arena_bytes = calloc(c->folder->ranks->nranks, sizeof *c->arena_bytes);
    for (uint32_t i = 0; c->arena_bytes && i < c->folder->ranks->nranks; i++) {
        struct seat *s = &c->seats[i];
        s->base = s->rank[0] == NONE ? 0 : arena_of(c->run[0], s->rank[0]);
        c->arena_bytes[i] = s->base + (s->rank[1] == NONE ? 0 : arena_of(c->run[1], s->rank[1]));
        if (c->folder->train[c->folder->ranks->ranks[i].role]->arena_bytes != c->arena_bytes[i])
            return error_set(error, STATUS_INPUT, "%s: its rank %u has not the arenas of both plans",
                             c->run[0]->o.transition, i);
    }
    return c->arena_bytes ? STATUS_OK : STATUS_WORLD;
}

static enum status take_json(struct chain *c, const json_t *root, struct error *error)
{
    static const char *const keys[2][2] = {{"from", "from_ranks"}, {"to", "to_ranks"}};
    const char *dir = c->run[0]->o.transition;
    for (int which = 0; which < 2; which++) {
        const char *hash = json_string_value(json_object_get(root, keys[which][0]));
        if (!hash || strcmp(hash, c->run[which]->folder->hash) != 0)
            return error_set(error, STATUS_MISMATCH, "%s is for another plan than %s", dir, c->run[which]->o.dir);
        if (!read_seats(c, json_object_get(root, keys[which][1]), which))
            return error_set(error, STATUS_INPUT, "%s/transition.json: %s is malformed", dir, keys[which][1]);
    }
    return check_arenas(c, error);
}

static enum status open_transition(struct chain *c, struct error *error)
{
    const char *dir = c->run[0]->o.transition;
    char path[FILE_PATH];
    json_error_t where;
    FILE *in;
    TRY(folder_open(dir, &c->folder, error));
    snprintf(path, sizeof path, "%.4000s/transition.json", dir);
    const char *why = file_read(path, &in);
    if (why && errno == ENOENT)
        return error_set(error, STATUS_INPUT, "%s is no transition ('llmc transition PLAN PLAN -o DIR' makes one)",
                         dir);
    if (why)
        return error_set(error, STATUS_INPUT, "%s: %s", path, why);
    json_t *root = json_loadf(in, JSON_REJECT_DUPLICATES, &where);
    fclose(in);
    c->seats = calloc(c->folder->ranks->nranks, sizeof *c->seats);
    enum status st = !root      ? error_set(error, STATUS_INPUT, "%s: %s", path, where.text)
                     : c->seats ? take_json(c, root, error)
                                : STATUS_WORLD;
    json_decref(root);
    const struct program *const *programs = (const struct program *const *)c->folder->train;
    return st == STATUS_OK ? channels_make(&c->channels, c->folder->ranks, &programs, 1) : st;
}

/* A plan's world has arenas in the transition's. */
static enum status open_part(struct chain *c, int which, struct error *error)
{
    struct run *r = c->run[which];
    struct world_sizes sizes = run_sizes(r);
    uint64_t *none = calloc(sizes.nranks, sizeof *none);
    if (!none)
        return STATUS_WORLD;
    sizes.each = none;
    enum status st = world_open(&r->world, &sizes, NULL, NONE, 60, error);
    free(none);
    for (uint32_t i = 0; st == STATUS_OK && i < c->folder->ranks->nranks; i++) {
        uint32_t rank = c->seats[i].rank[which];
        if (rank == NONE)
            continue;
        r->world.arena[rank] = c->world.arena[i] + (which ? c->seats[i].base : 0);
        r->world.arena_size[rank] = r->arena_sizes[rank];
    }
    r->world.arenas = c->world.arenas;
    r->world.arenas_bytes = c->world.arenas_bytes;
    c->world.within[which] = &r->world;
    return st;
}

static enum status open_worlds(struct chain *c, struct error *error)
{
    struct world_sizes sizes = {.nranks = c->folder->ranks->nranks,
                                .each = c->arena_bytes,
                                .transport_bytes = player_cpu.shared_bytes(c->channels.list, c->channels.n),
                                .logits_bytes = sizeof(struct checkpoint)};
    uint64_t need = 0, have = memory_available();
    for (uint32_t i = 0; i < sizes.nranks; i++)
        need += c->arena_bytes[i];
    if (need > have)
        return error_set(error, STATUS_MISMATCH,
                         "both plans' ranks need %.1f GiB of memory here, %.1f GiB are available",
                         (double)need / 0x1p30, (double)have / 0x1p30);
    TRY(world_open(&c->world, &sizes, NULL, NONE, 60, error));
    for (int which = 0; which < 2; which++)
        TRY(open_part(c, which, error));
    return STATUS_OK;
}

/* where the job is when the first plan's steps are done: written by one rank, read by all behind a barrier */
static struct checkpoint *handed(const struct chain *c)
{
    return (struct checkpoint *)(void *)c->world.logits;
}

/* The first plan's memory goes back to the kernel, but for pages that it shares with the second's. */
static void release(const struct chain *c, uint32_t rank)
{
    uintptr_t from = (uintptr_t)c->world.arena[rank], to = from + c->seats[rank].base;
    from = (from + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    to = to / PAGE_BYTES * PAGE_BYTES;
    if (to > from)
        madvise((void *)from, to - from, MADV_REMOVE);
}

static enum status move(struct chain *c)
{
    struct error error = {""};
    const struct exec_setup setup = {.player = &player_cpu,
                                     .world = &c->world,
                                     .channels = &c->channels,
                                     .ranks = c->folder->ranks,
                                     .programs = {(const struct program *const *)c->folder->train},
                                     .watchdog_s = c->run[0]->o.watchdog_s};
    struct exec *e;
    enum status st = exec_open(&e, &setup, &error);
    if (st != STATUS_OK)
        world_fail(&c->world, st, "%s", error.text[0] ? error.text : "out of memory");
    st = st == STATUS_OK ? exec_run(e, ROUTINE_TRAIN, NULL, NULL) : st;
    exec_close(e);
    return st;
}

/* steps by one of the plans, if this is a rank of it */
static enum status step(struct chain *c, uint32_t rank, int which)
{
    struct run *r = c->run[which];
    r->world.rank = c->seats[rank].rank[which];
    atomic_store(&c->world.ranks[rank].step, which ? BY_SECOND : BY_FIRST);
    if (r->world.rank == NONE)
        return STATUS_OK;
    enum status st = run_rank(r, r->world.rank);
    if (st != STATUS_OK)
        world_fail(&c->world, st, "%s", r->world.control->message);
    return st;
}

static enum status chain_rank(void *context, uint32_t rank)
{
    struct chain *c = context;
    struct world_rank *face = &c->world.ranks[rank];
    atomic_store(&face->pid, (int32_t)getpid());
    TRY(step(c, rank, 0));
    if (atomic_load(&c->run[0]->world.control->stop_after))
        return STATUS_OK;
    TRY(world_barrier(&c->world));
    c->run[1]->resumed = *handed(c);
    atomic_store(&face->step, MOVING);
    atomic_store(&face->state, RANK_STEPPING);
    int64_t start = world_now_ns();
    TRY(move(c));
    TRY(world_barrier(&c->world));
    release(c, rank);
    if (rank == 0 && !c->run[0]->o.quiet)
        fprintf(stderr, "step %llu: state moved from %s to %s in %.3g s\n", (unsigned long long)c->run[1]->resumed.step,
                c->run[0]->o.dir, c->run[1]->o.dir, (double)(world_now_ns() - start) * 1e-9);
    TRY(step(c, rank, 1));
    return world_barrier(&c->world);
}

static void chain_describe(void *context, uint32_t rank, char *out, size_t size)
{
    const struct chain *c = context;
    uint32_t phase = atomic_load(&c->world.ranks[rank].step), which = phase == BY_SECOND;
    uint32_t own = c->seats[rank].rank[which];
    if (phase == MOVING || own == NONE)
        snprintf(out, size, phase == MOVING ? "while state was moved" : "while it waited for the other ranks");
    else
        run_describe(c->run[which], own, out, size);
}

static enum status check_settings(const struct run *a, const struct run *b, struct error *error)
{
    if (a->o.at >= a->steps)
        return error_set(error, STATUS_USAGE, "--at %llu: the run has only %llu steps", (unsigned long long)a->o.at,
                         (unsigned long long)a->steps);
    return a->steps == b->steps ? STATUS_OK
                                : error_set(error, STATUS_MISMATCH, "the plans' jobs are of %llu and %llu steps",
                                            (unsigned long long)a->steps, (unsigned long long)b->steps);
}

static enum status run_both(struct chain *c, struct error *error)
{
    struct run *a = c->run[0], *b = c->run[1];
    TRY(run_open(a, error)); /* which holds the checkpoints' folder for both */
    b->moved = true;
    TRY(run_open(b, error));
    TRY(check_settings(a, b, error));
    TRY(open_transition(c, error));
    TRY(open_worlds(c, error));
    a->until = a->o.at;
    a->handed = handed(c);
    if (a->o.checkpoint.dir)
        stop_on_signals((_Atomic uint32_t *[]){&a->world.control->asked, &b->world.control->asked}, 2);
    enum status st = launch_local(&c->world, chain_rank, chain_describe, c);
    uint64_t stopped_a = atomic_load(&a->world.control->stop_after),
             stopped_b = atomic_load(&b->world.control->stop_after);
    if (st == STATUS_OK && (stopped_a || stopped_b)) {
        if (!a->o.quiet)
            fprintf(stderr,
                    "llmrun: stopped after step %llu, as a signal asked; llmrun %s --resume goes on from there\n",
                    (unsigned long long)(stopped_b ? stopped_b : stopped_a), b->o.dir);
        return STATUS_STOPPED;
    }
    if (st != STATUS_OK) {
        error_set(error, st, "%s", c->world.control->message);
        if (a->o.checkpoint.dir)
            flight_write(atomic_load(&b->world.ranks->state) == RANK_STARTING ? a : b, a->o.checkpoint.dir,
                         error->text);
    }
    return st;
}

enum status chain_run(struct run *r, struct error *error)
{
    struct run second = {.o = r->o};
    struct chain c = {.run = {r, &second}};
    second.o.dir = r->o.then;
    second.o.init = NULL;
    r->o.save = NULL;
    r->o.json = false;
    enum status st = run_both(&c, error);
    world_close(&c.world);
    channels_free(&c.channels);
    folder_close(c.folder);
    free(c.seats);
    free(c.arena_bytes);
    run_close(&second);
    return st;
}
