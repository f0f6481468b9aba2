/* llmrun: replays a plan.  Load and check, start a process per rank, step, report. */

#include "runtime/build.h"
#include "runtime/calibrate.h"
#include "runtime/calibrate_ranks.h"
#include "runtime/chain.h"
#include "runtime/device.h"
#include "runtime/file.h"
#include "runtime/flight.h"
#include "runtime/launch.h"
#include "runtime/memory.h"
#include "runtime/mpi_ranks.h"
#include "runtime/rendezvous.h"
#include "runtime/run.h"
#include "runtime/spare.h"
#include "runtime/stop.h"
#include "runtime/supervise.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>

static enum status rank_body(void *context, uint32_t rank)
{
    return run_rank(context, rank);
}

/* a thread's own view of the run: its rank, and what it counts */
static enum status thread_body(void *context, uint32_t rank)
{
    struct run mine = *(struct run *)context;
    mine.world.rank = rank;
    return run_rank(&mine, rank);
}

static enum status run_threads(struct run *r, struct error *error)
{
    if (r->world.named)
        return error_set(error, STATUS_USAGE,
                         "--transport d2d runs all ranks itself: start it once, not under a launcher");
    return launch_threads(&r->world, thread_body, r);
}

static void rank_describe(void *context, uint32_t rank, char *out, size_t size)
{
    run_describe(context, rank, out, size);
}

/* which rank this process is, if it is one of many */
static enum status find_launch(const struct run *r, const char *key, struct launch *l, struct error *error)
{
    TRY(launch_detect(l, key, error));
    if (r->o.ranks)
        *l = (struct launch){.given = true, .rank = (uint32_t)r->o.rank, .nranks = (uint32_t)r->o.ranks};
    return STATUS_OK;
}

/* where ranks meet if not in this machine's memory; false: they do */
static bool meets_remotely(const struct run *r, const struct launch *l, char *host, size_t size, uint16_t *port)
{
    const char *address = getenv("MASTER_ADDR"), *base = getenv("MASTER_PORT");
    if (r->o.rendezvous)
        return rendezvous_address(r->o.rendezvous, host, size, port);
    if (!r->o.nccl || !l->given || r->folder->nodes < 2 || !address || !base)
        return false;
    snprintf(host, size, "%s", address);
    *port = (uint16_t)(atoi(base) + 1); /* the launcher itself listens at its own */
    return true;
}

/* the run's end, where it was asked for */
static enum status stopped(const struct run *r)
{
    uint64_t step = atomic_load(&r->world.control->stop_after);
    if (step && !r->o.quiet && (r->world.rank == NONE || r->world.rank == 0))
        fprintf(stderr, "llmrun: stopped after step %llu, %s; --resume goes on from there\n", (unsigned long long)step,
                atomic_load(&r->world.control->asked) == ASKED_BY_SPIKE ? "because of the spike" : "as a signal asked");
    return step ? STATUS_STOPPED : STATUS_OK;
}

static enum status run_all(struct run *r, const struct launch *l, struct error *error)
{
    struct world_sizes sizes = run_sizes(r);
    if (l->given && l->nranks != sizes.nranks)
        return error_set(error, STATUS_MISMATCH, "%u ranks were started, the plan is for %u", l->nranks, sizes.nranks);
    char host[256];
    uint16_t port = 0;
    if (meets_remotely(r, l, host, sizeof host, &port))
        return run_remote(r, l, host, port, error);
    if (r->o.rendezvous)
        return error_set(error, STATUS_USAGE, "--rendezvous %s: not HOST:PORT", r->o.rendezvous);
    if (l->apart && r->player->on_cores)
        return error_set(error, STATUS_MISMATCH,
                         "the ranks were started on several hosts, which share no memory: pass --transport mpi");
    uint64_t need = 0, have = memory_available();
    for (uint32_t i = 0; i < sizes.nranks; i++)
        need += r->arena_sizes[i];
    if (need > have && r->player->on_cores)
        return error_set(error, STATUS_MISMATCH,
                         "the plan's %u ranks need %.1f GiB of memory here, %.1f GiB are available", sizes.nranks,
                         (double)need / 0x1p30, (double)have / 0x1p30);
    TRY(world_open(&r->world, &sizes, l->given ? l->name : NULL, l->given ? l->rank : NONE, 60, error));
    if (r->o.checkpoint.dir)
        stop_on_signals((_Atomic uint32_t *[]){&r->world.control->asked}, 1);
    enum status st = r->player->threads ? run_threads(r, error)
                     : l->given         ? run_rank(r, l->rank)
                                        : launch_local(&r->world, rank_body, rank_describe, r);
    if (st == STATUS_OK)
        return stopped(r);
    /* one of the processes prints the failure, whoever comes first */
    if (atomic_exchange(&r->world.control->message_ready, 0))
        error_set(error, st, "%s", r->world.control->message);
    if (!l->given && !r->player->threads && r->o.checkpoint.dir && !atomic_load(&r->world.control->unsaved))
        flight_write(r, r->o.checkpoint.dir, error->text);
    return world_failed(&r->world) ? world_failed(&r->world) : st;
}

/* one rank of a calibration of collectives; several meet as the ranks of a run do */
static enum status calibrate_rank(const struct run *r, FILE *out, struct error *error)
{
    static const char no_plan[] = "0000000000000000000000000000000000000000000000000000000000000000";
    const char *address = getenv("MASTER_ADDR"), *base = getenv("MASTER_PORT"), *local = getenv("LOCAL_RANK"),
               *per_node = getenv("LOCAL_WORLD_SIZE"), *secret = getenv("LLMRUN_SECRET");
    struct calibrate_group g = {.nranks = 1, .most_bytes = (uint64_t)256 << 20};
    struct rendezvous_setup s = {
        .plan_hash = no_plan, .secret = secret ? secret : "", .build = build_id(), .timeout_s = 600};
    struct rendezvous *meeting = NULL;
    struct launch l;
    char host[256];
    int devices = 0;
    TRY(find_launch(r, no_plan, &l, error));
    if (l.given) {
        g.rank = l.rank;
        g.nranks = l.nranks;
    }
    if (r->plugin->runtime->GetDeviceCount(&devices) || devices < 1)
        return error_set(error, STATUS_MISMATCH, "this machine has no GPU");
    g.per_node = per_node ? (uint32_t)atoi(per_node) : g.nranks < (uint32_t)devices ? g.nranks : (uint32_t)devices;
    g.device = local ? atoi(local) : (int)(g.rank % (uint32_t)devices);
    if (g.rank == 0 && r->nccl.GetUniqueId(&g.id))
        return error_set(error, STATUS_WORLD, "NCCL finds no network interface to meet on");
    if (g.nranks > 1) {
        bool given = r->o.rendezvous && rendezvous_address(r->o.rendezvous, host, sizeof host, &s.port);
        if (!given && (!address || !base))
            return error_set(error, STATUS_USAGE,
                             "where do %u ranks meet?  --rendezvous HOST:PORT, or MASTER_ADDR and MASTER_PORT",
                             g.nranks);
        s.host = given ? host : address;
        s.port = given ? s.port : (uint16_t)(atoi(base) + 1);
        s.rank = g.rank;
        s.nranks = g.nranks;
        TRY(rendezvous_join(&meeting, &s, &g.id, error));
    }
    enum status st = calibrate_collectives(r->plugin, &r->nccl, &g, out, error);
    rendezvous_close(meeting);
    return st;
}

static enum status calibrate_here(const struct run *r, struct error *error)
{
    struct file_out file = {.stream = stdout};
    const char *why = r->o.output ? file_create(r->o.output, &file) : NULL;
    enum status st = STATUS_OK;
    error_set(error, STATUS_WORLD, "out of memory"); /* of a failure that says nothing */
    if (!why)
        st = r->o.nccl   ? calibrate_rank(r, file.stream, error)
             : r->plugin ? calibrate(r->plugin, !r->o.free_order, file.stream, error)
                         : calibrate_ranks((uint32_t)r->o.ranks, file.stream, error);
    if (!why && r->o.output && st == STATUS_OK)
        why = file_publish(&file);
    else if (!why && r->o.output)
        file_discard(&file);
    return why ? error_set(error, STATUS_WORLD, "%s: %s", r->o.output, why) : st;
}

/* the exit code: what went to standard output may still turn out to be lost */
static int leave(enum status st)
{
    const char *lost = file_flush_stdout();
    if (lost && st == STATUS_OK) {
        fprintf(stderr, "llmrun: stdout: %s\n", lost);
        st = STATUS_WORLD;
    }
    return (int)st;
}

static enum status replay(struct run *r, struct error *error)
{
    struct launch l;
    if (r->o.then)
        return chain_run(r, error);
    TRY(find_launch(r, "", &l, error));
    if (l.given || r->mpi)
        spare_choose(r, r->mpi ? r->mpi->place.nranks : l.nranks, !(r->mpi ? r->mpi->place.rank : l.rank));
    enum status opened = run_open(r, error);
    if (r->o.mpi) { /* all ranks hear of it */
        TRY(run_mpi(r, opened, error));
        return stopped(r);
    }
    TRY(opened);
    TRY(find_launch(r, r->folder->hash, &l, error));
    if (r->o.restarts && (l.given || r->player->threads))
        return error_set(
            error, STATUS_USAGE,
            "--restarts is for ranks that llmrun starts as processes of its own; under a launcher, let that "
            "start it again with --resume");
    return run_all(r, &l, error);
}

int main(int argc, char **argv)
{
    struct run r = {.folder = NULL};
    bool done;
    struct error error = {""};
    file_guard_streams();
    enum status st = settings_parse(&r.o, argc, argv, &done);
    if (st != STATUS_OK || done)
        return leave(st);
    signal(SIGPIPE, SIG_IGN); /* a log or trace whose reader is gone is an error of writing, and no reason to die */
    signal(SIGXFSZ, SIG_IGN); /* so is a file that may not become so large */
    device_cpu_tune(argv);
    mallopt(M_MMAP_MAX, 0);           /* the heap in one place, so that its size is known */
    st = run_open_device(&r, &error); /* what is missing is said first */
    if (st == STATUS_OK)
        st = r.o.calibrate ? calibrate_here(&r, &error) : supervise(&r, replay, &error);
    if (st == STATUS_WORLD && !error.text[0])
        error_set(&error, st, "out of memory"); /* no other failure says nothing */
    if (st != STATUS_OK && error.text[0])
        fprintf(stderr, "llmrun: %s\n", error.text);
    run_close(&r);
    return leave(st);
}
