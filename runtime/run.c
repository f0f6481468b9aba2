/* Loading a run: what all ranks share, and the device that they run on.  session.c is one rank's way through it. */

#include "runtime/run.h"
#include "runtime/build.h"
#include "runtime/cuda/gang.h"
#include "runtime/cuda/load.h"
#include "runtime/file.h"
#include "runtime/launch.h"
#include "runtime/lr.h"
#include "runtime/memory.h"
#include "runtime/mpi_ranks.h"
#include "runtime/stop.h"
#include "runtime/rendezvous.h"
#include "runtime/replicas.h"
#include "runtime/weights.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* polls of a rank with a core of its own before it naps; world_open() knows only how many ranks there are in all */
enum { MPI_SPINS = 100 };

static enum status open_data(struct run *r, struct error *error)
{
    const struct job_info *job = &r->folder->train[0]->job;
    uint64_t samples = 0;
    r->evaluates = r->o.eval || r->o.generate;
    if (r->o.generate)
        return generate_open(r, error);
    if (r->o.paced)
        return planned_times_read(r->o.paced, r->programs[ROUTINE_TRAIN], r->folder->ranks->nroles, &r->pace, error);
    TRY(data_open(r->o.data, job->sequence, job->vocab, &r->data, error));
    if (__builtin_mul_overflow(r->steps, job->batch, &samples))
        samples = UINT64_MAX;
    TRY(data_check(r->data, samples, error));
    if (!r->o.eval)
        return STATUS_OK;
    if (!r->folder->eval)
        return error_set(error, STATUS_INPUT, "%s has no evaluation programs", r->o.dir);
    TRY(data_open(r->o.eval, job->sequence, job->vocab, &r->held_out, error));
    return data_check(r->held_out, UINT64_MAX, error);
}

/* what all routers of the plan choose in the run, at most */
static struct routing_shape routing_shape(const struct run *r)
{
    const struct job_info *job = &r->folder->train[0]->job;
    struct routing_shape s = {.sequence = (uint32_t)job->sequence, .samples = r->steps * job->batch};
    for (uint32_t role = 0; role < r->folder->ranks->nroles; role++) {
        const struct program *p = r->folder->train[role];
        for (uint32_t i = 0; i < p->ninsns; i++) {
            const struct insn *in = &p->insns[i];
            if (in->op != OP_ROUTE)
                continue;
            int64_t layer = p->attrs[in->attr + ATTR(ROUTE, layer)].u.i;
            if (layer >= s.layers && layer < UINT32_MAX)
                s.layers = (uint32_t)layer + 1;
            uint32_t choices = p->operands[in->operand + OPND(ROUTE, index)].cols;
            uint32_t experts = p->operands[in->operand + OPND(ROUTE, logits)].cols;
            s.choices = choices > s.choices ? choices : s.choices;
            s.experts = experts > s.experts ? experts : s.experts;
        }
    }
    return s;
}

static enum status open_routing(struct run *r, struct error *error)
{
    struct routing_shape shape = routing_shape(r);
    for (int use = ROUTING_SAVE; use <= ROUTING_COMPARE; use++)
        if (r->o.routing[use])
            return routing_open(&r->routing, (enum routing_use)use, r->o.routing[use], &shape, error);
    return STATUS_OK;
}

/* a folder that weights go to: made if it is not there, and nothing in it that is no file stands in the way */
static enum status try_folder(const char *dir, const char *stem, struct error *error)
{
    static const char *const ends[] = {"", ".tmp"};
    char path[4300];
    const char *why = file_not_folder(dir);
    if (why)
        return error_set(error, STATUS_WORLD, "%s: %s, and weights go into a folder", dir, why);
    if (mkdir(dir, 0777) && errno != EEXIST)
        return error_set(error, STATUS_WORLD, "cannot make folder %s: %s", dir, strerror(errno));
    for (int i = 0; i < 2 && !why; i++) {
        snprintf(path, sizeof path, "%.4096s/%s.safetensors%s", dir, stem, ends[i]);
        why = file_may_replace(path);
    }
    return why ? error_set(error, STATUS_WORLD, "%s: %s", path, why) : STATUS_OK;
}

uint64_t run_lr_steps(const struct run *r)
{
    uint64_t total = r->folder->train[0]->job.steps_total;
    return total ? total : r->steps;
}

/* which instruction keeps the moments, and how fast they decay */
static void find_optimizer(const struct program *p, struct checkpoint *c)
{
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *in = &p->insns[i];
        const struct attr *a = p->attrs + in->attr;
        if (in->op != OP_ADAMW && in->op != OP_SGD)
            continue;
        snprintf(c->optimizer, sizeof c->optimizer, "%s", isa_info(in->op)->name);
        c->rates[0] = in->op == OP_ADAMW ? a[ATTR(ADAMW, beta1)].u.f : a[ATTR(SGD, momentum)].u.f;
        c->rates[1] = in->op == OP_ADAMW ? a[ATTR(ADAMW, beta2)].u.f : 0;
    }
}

/* what checkpoints of this run say of its job */
static struct checkpoint describe_job(const struct run *r)
{
    const struct job_info *job = &r->folder->train[0]->job;
    struct checkpoint c = {.batch = job->batch,
                           .sequence = job->sequence,
                           .samples = data_nsamples(r->data),
                           .data = data_hash(r->data),
                           .seed = job->seed,
                           .steps = run_lr_steps(r),
                           .optimizer = "none"};
    for (uint32_t role = 0; role < r->folder->ranks->nroles; role++)
        find_optimizer(r->folder->train[role], &c);
    memcpy(c.plan, r->folder->hash, sizeof c.plan);
    return c;
}

/* Is the checkpoint one of this job, and of these data?  Another plan may have written it. */
static enum status check_resumed(const struct run *r, const char *folder, struct error *error)
{
    const struct checkpoint *c = &r->resumed, *job = &r->job;
    if (c->batch != job->batch || c->sequence != job->sequence)
        return error_set(error, STATUS_MISMATCH,
                         "%s is of a job with %llu sequences of %llu tokens in a step, the plan takes %llu of %llu",
                         folder, (unsigned long long)c->batch, (unsigned long long)c->sequence,
                         (unsigned long long)job->batch, (unsigned long long)job->sequence);
    if (c->samples != job->samples)
        return error_set(error, STATUS_MISMATCH, "%s was taken on data of %llu sequences, %s has %llu", folder,
                         (unsigned long long)c->samples, r->o.data, (unsigned long long)job->samples);
    if (c->data != job->data)
        return error_set(error, STATUS_MISMATCH, "%s was taken on other data than %s has, though on as many sequences",
                         folder, r->o.data);
    if (strcmp(c->optimizer, job->optimizer) != 0 || memcmp(c->rates, job->rates, sizeof c->rates) != 0)
        return error_set(error, STATUS_MISMATCH,
                         "%s has moments of %s, which decay by %.10g and %.10g; those of the plan are of %s, by %.10g "
                         "and %.10g",
                         folder, c->optimizer, c->rates[0], c->rates[1], job->optimizer, job->rates[0], job->rates[1]);
    if (c->step > r->steps)
        return error_set(error, STATUS_USAGE, "%s: the run has only %llu steps", folder, (unsigned long long)r->steps);
    return STATUS_OK;
}

/* Is this the process that starts the ranks, or rank 0 of those that a launcher has started? */
static bool is_first(const struct run *r)
{
    struct launch l;
    struct error later; /* of the launcher's variables: whoever starts the ranks says it */
    if (r->mpi)
        return r->mpi->place.rank == 0;
    if (r->o.ranks)
        return r->o.rank == 0;
    return launch_detect(&l, r->folder->hash, &later) == STATUS_OK && (!l.given || l.rank == 0);
}

/* --resume: where the newest checkpoint left off, or at the beginning if there is none yet */
static enum status resume(struct run *r, bool *found, struct error *error)
{
    char folder[CHECKPOINT_PATH], path[CHECKPOINT_PATH + 32];
    TRY(checkpoint_find(r->o.checkpoint.dir, &r->resumed, folder, found, error));
    if (*found)
        TRY(check_resumed(r, folder, error));
    if (!r->o.quiet && is_first(r)) {
        fprintf(stderr, *found ? "resuming from %s\n" : "%s has no checkpoint yet: from the beginning\n",
                *found ? folder : r->o.checkpoint.dir);
        if (*found && r->resumed.steps != r->job.steps && lr_needs_total(&r->folder->train[0]->job))
            fprintf(stderr,
                    "the learning rate goes by a run of %llu steps from here on; the checkpoint's went by %llu\n",
                    (unsigned long long)r->job.steps, (unsigned long long)r->resumed.steps);
    }
    for (int state = 0; *found && state < NSTATES; state++) {
        snprintf(path, sizeof path, "%s/%s", folder, checkpoint_folders[state]);
        if (r->saved.n[state])
            TRY(safetensors_open(path, &r->init[state], error));
    }
    return STATUS_OK;
}

/* A run from the beginning does not mix its generations with another's, which --resume would take for its own. */
static enum status check_empty(const struct run *r, struct error *error)
{
    uint64_t *steps;
    uint32_t n;
    TRY(checkpoint_list(r->o.checkpoint.dir, &steps, &n, error));
    uint64_t last = n ? steps[n - 1] : 0;
    free(steps);
    return n ? error_set(error, STATUS_USAGE,
                         "%s has checkpoints up to step %llu: --resume goes on from there, another folder begins anew",
                         r->o.checkpoint.dir, (unsigned long long)last)
             : STATUS_OK;
}

static enum status try_checkpoints(const char *dir, struct error *error)
{
    char path[CHECKPOINT_PATH];
    const char *why = file_not_folder(dir);
    if (why)
        return error_set(error, STATUS_WORLD, "%s: %s, and checkpoints go into a folder", dir, why);
    why = file_make_folder(dir);
    if (why)
        return error_set(error, STATUS_WORLD, "cannot make folder %s: %s", dir, why);
    snprintf(path, sizeof path, "%.4096s/step", dir);
    why = file_may_replace(path);
    return why ? error_set(error, STATUS_WORLD, "checkpoints cannot be written into %s: %s", dir, why) : STATUS_OK;
}

/* The folder of checkpoints is this run's from here on, before anybody looks at what is in it. */
static enum status lock_checkpoints(struct run *r, struct error *error)
{
    TRY(try_checkpoints(r->o.checkpoint.dir, error));
    return is_first(r) && !r->moved ? checkpoint_lock(r->o.checkpoint.dir, &r->lock, error) : STATUS_OK;
}

/* what the run starts from */
static enum status open_start(struct run *r, struct error *error)
{
    bool found = false;
    if (r->o.checkpoint.dir) {
        r->job = describe_job(r);
        TRY(lock_checkpoints(r, error));
    }
    if (r->o.resume)
        TRY(resume(r, &found, error));
    else if (r->o.checkpoint.dir)
        TRY(check_empty(r, error));
    return r->o.init && !found ? safetensors_open(r->o.init, &r->init[STATE_WEIGHT], error) : STATUS_OK;
}

/* Can what is written later be written?  Better to know before the first step than after the last. */
static enum status try_outputs(const struct settings *o, struct error *error)
{
    if (o->save)
        TRY(try_folder(o->save, "model", error));
    if (o->gradients)
        TRY(try_folder(o->gradients, "gradients", error));
    const char *why = o->trace ? file_may_write(o->trace) : NULL;
    return why ? error_set(error, STATUS_WORLD, "%s: %s", o->trace, why) : STATUS_OK;
}

enum status run_open_device(struct run *r, struct error *error)
{
    const struct mpi_plugin *mpi;
    if (r->o.mpi) {
        TRY(mpi_load(&mpi, error));
        return mpi_ranks_open(&r->mpi, mpi, error);
    }
    if (!r->o.cuda)
        return STATUS_OK;
    TRY(cuda_load(&r->plugin, error));
    return r->o.nccl ? nccl_load(&r->nccl, error) : STATUS_OK;
}

/* With d2d all ranks are threads of this process; with NCCL each has one of its own, on the GPU of its place in the
 * node unless the launcher says which. */
static enum status choose_player(struct run *r)
{
    const char *local = getenv("LOCAL_RANK");
    const struct gang_setup s = {.plugin = r->plugin,
                                 .nccl = r->o.nccl ? &r->nccl : NULL,
                                 .meet = r->o.nccl ? meet_nccl() : meet_d2d(),
                                 .world = &r->world,
                                 .device = !r->o.nccl ? 0
                                           : local    ? atoi(local)
                                                      : -1,
                                 .n = r->o.nccl ? 1 : r->folder->ranks->nranks,
                                 .replay = (enum replay)r->o.replay,
                                 .deterministic = !r->o.free_order,
                                 .watchdog_s = r->o.watchdog_s,
                                 .connect_s = 300};
    r->player = r->o.nccl    ? &player_nccl
                : r->o.cuda  ? &player_d2d
                : r->o.mpi   ? &player_mpi
                : r->o.paced ? &player_paced
                             : &player_cpu;
    return r->o.cuda ? gang_new(&r->gang, &s) : STATUS_OK;
}

enum status run_open(struct run *r, struct error *error)
{
    const struct settings *o = &r->o;
    TRY(folder_open(o->dir, &r->folder, error));
    if (!r->folder->train[0]->nbuckets)
        return error_set(error, STATUS_INPUT, "%s is a transition between plans, and no plan", o->dir);
    const struct job_info *job = &r->folder->train[0]->job;
    r->programs[ROUTINE_TRAIN] = (const struct program *const *)r->folder->train;
    r->programs[ROUTINE_EVAL] = (const struct program *const *)r->folder->eval;
    r->steps = o->steps ? o->steps : o->paced ? 3 : job->steps_total;
    if (!r->steps && !o->generate)
        return error_set(error, STATUS_USAGE, "the job states no length ('total'); say --steps N");
    if (o->local_ranks && r->folder->nodes > 1 && !o->mpi)
        return error_set(error, STATUS_MISMATCH,
                         "the plan is for %u nodes, and shared memory reaches one; --ranks all runs them all here",
                         r->folder->nodes);
    TRY(channels_make(&r->channels, r->folder->ranks, r->programs, r->folder->eval ? 2 : 1));
    TRY(weights_catalog(r->programs[ROUTINE_TRAIN], r->folder->ranks->nroles, STATE_WEIGHT, false, &r->catalog,
                        &r->ncatalog, error));
    if (o->checkpoint.dir)
        TRY(saver_catalogs(r->programs[ROUTINE_TRAIN], r->folder->ranks->nroles, 2 * (size_t)r->ncatalog, &r->saved,
                           error));
    r->replicas = 2 * (uint64_t)r->ncatalog + r->saved.nvalues;
    TRY(open_data(r, error));
    TRY(open_start(r, error));
    TRY(open_routing(r, error));
    TRY(try_outputs(o, error));
    r->arena_sizes = calloc(r->folder->ranks->nranks, sizeof *r->arena_sizes);
    for (uint32_t i = 0; r->arena_sizes && i < r->folder->ranks->nranks; i++) {
        uint32_t role = r->folder->ranks->ranks[i].role;
        uint64_t train = r->folder->train[role]->arena_bytes,
                 eval = r->evaluates ? r->folder->eval[role]->arena_bytes : 0;
        r->arena_sizes[i] = train > eval ? train : eval;
    }
    if (!r->arena_sizes || work_make(&r->work, r->folder->ranks, r->programs[ROUTINE_TRAIN]) != STATUS_OK)
        return STATUS_WORLD;
    return choose_player(r);
}

void run_close(struct run *r)
{
    if (r->lock)
        fclose(r->lock);
    data_close(r->data);
    data_close(r->held_out);
    for (int state = 0; state < NSTATES; state++)
        safetensors_close(r->init[state]);
    saver_catalogs_free(&r->saved);
    channels_free(&r->channels);
    free(r->catalog);
    free(r->prompt.ids);
    planned_times_free(&r->pace);
    work_free(&r->work);
    routing_close(&r->routing);
    free(r->arena_sizes);
    gang_free(r->gang);
    world_close(&r->world);
    folder_close(r->folder);
    mpi_ranks_close(r->mpi);
}

size_t run_first_span(const struct run *r, uint32_t rank)
{
    size_t first = 0;
    for (uint32_t i = 0; i < rank; i++)
        first += r->folder->train[r->folder->ranks->ranks[i].role]->ninsns;
    return first;
}

struct world_sizes run_sizes(const struct run *r)
{
    struct world_sizes s = {.nranks = r->folder->ranks->nranks};
    s.each = r->arena_sizes;
    s.transport_bytes = r->player->shared_bytes(r->channels.list, r->channels.n);
    s.trace_bytes = r->o.trace ? run_first_span(r, s.nranks) * sizeof(struct trace_span) : 0;
    s.coverage_bytes = (r->replicas + replicas_words(r->programs[ROUTINE_TRAIN], r->folder->ranks)) * sizeof(uint64_t);
    s.logits_bytes = r->o.generate ? generate_shared_bytes(r) : 0;
    return s;
}

static enum status sum_remotely(void *context, uint64_t *values, uint32_t n, struct error *error)
{
    return rendezvous_sum(context, values, n, error);
}

static void fail_remotely(void *context, const char *words)
{
    rendezvous_fail(context, words);
}

/* What ranks share otherwise is this rank's alone: a region with room for its arena, which must be in this host's
 * memory if kernels run there. */
static enum status open_own_region(struct run *r, uint32_t rank, struct error *error)
{
    struct world_sizes sizes = run_sizes(r);
    uint64_t have = memory_available(), need = r->arena_sizes[rank], *each = calloc(sizes.nranks, sizeof *each);
    if (!each)
        return STATUS_WORLD;
    each[rank] = need;
    sizes.each = each;
    enum status st = need > have && r->player->on_cores
                         ? error_set(error, STATUS_MISMATCH, "it needs %.1f GiB of memory, %.1f GiB are available",
                                     (double)need / 0x1p30, (double)have / 0x1p30)
                         : world_open(&r->world, &sizes, NULL, rank, 60, error);
    free(each);
    return st;
}

/* the rendezvous carries barriers, the weights' coverage and the first failure */
enum status run_remote(struct run *r, const struct launch *l, const char *host, uint16_t port, struct error *error)
{
    const char *secret = getenv("LLMRUN_SECRET");
    const struct rendezvous_setup s = {host,       port, l->rank, l->nranks, r->folder->hash, secret ? secret : "",
                                       build_id(), 600};
    if (r->o.trace)
        return error_set(error, STATUS_USAGE, "--trace takes ranks of one machine");
    TRY(open_own_region(r, l->rank, error));
    if (l->rank == 0 && r->nccl.GetUniqueId((struct nccl_id *)(void *)r->world.transport))
        return error_set(error, STATUS_WORLD, "NCCL finds no network interface to meet on");
    struct rendezvous *meeting;
    TRY(rendezvous_join(&meeting, &s, r->world.transport, error));
    const struct world_remote remote = {.sum = sum_remotely, .fail = fail_remotely, .context = meeting};
    r->world.remote = &remote;
    enum status st = run_rank(r, l->rank);
    if (st != STATUS_OK)
        error_set(error, st, "%s", r->world.control->message);
    rendezvous_close(meeting);
    r->world.remote = NULL;
    return st;
}

enum status run_mpi(struct run *r, enum status opened, struct error *error)
{
    uint32_t rank = r->mpi->place.rank;
    struct mpi_start start = {.status = opened, .build = build_id()};
    if (opened == STATUS_OK)
        start = (struct mpi_start){.plan_hash = r->folder->hash,
                                   .plan_ranks = r->folder->ranks->nranks,
                                   .step = r->resumed.step,
                                   .build = build_id()};
    TRY(mpi_ranks_join(r->mpi, &start, error));
    enum status st = open_own_region(r, rank, error);
    if (st == STATUS_OK) {
        r->world.mpi = r->mpi;
        r->world.remote = &r->mpi->remote;
        r->world.hosts = rank ? NULL : (const char(*)[WORLD_HOST])r->mpi->hosts;
        r->mpi->world = &r->world;
        r->mpi->step_patience_s = r->o.watchdog_s > 0 ? r->o.watchdog_s : r->mpi->patience_s;
        if (r->mpi->place.local <= (uint32_t)sysconf(_SC_NPROCESSORS_ONLN))
            r->world.spins = MPI_SPINS;
        if (r->o.checkpoint.dir)
            stop_on_signals((_Atomic uint32_t *[]){&r->world.control->asked}, 1);
        st = run_rank(r, rank);
        if (st != STATUS_OK)
            error_set(error, st, "%s", r->world.control->message);
    }
    if (st != STATUS_OK)
        mpi_ranks_abort(r->mpi, st, error->text);
    return st;
}

void run_describe(const struct run *r, uint32_t rank, char *out, size_t size)
{
    const struct world_rank *face = &r->world.ranks[rank];
    const struct program *const *set = r->programs[atomic_load(&face->evaluating) ? ROUTINE_EVAL : ROUTINE_TRAIN];
    uint32_t state = atomic_load(&face->state), i = atomic_load(&face->running);
    const struct program *p = set[r->folder->ranks->ranks[rank].role];
    *out = 0;
    if (state != RANK_STEPPING) {
        snprintf(out, size, "while %s", state == RANK_STARTING ? "starting" : "saving");
        return;
    }
    uint32_t at = i;
    for (uint32_t q = 0; q < NQUEUES && at == NONE; q++)
        at = atomic_load(&face->head[q]);
    if (at >= p->ninsns) {
        snprintf(out, size, "at the end of step %u", atomic_load(&face->step) + 1);
        return;
    }
    FILE *f = fmemopen(out, size, "w");
    if (!f)
        return;
    fprintf(f, "in step %u %s ", atomic_load(&face->step) + 1, i == NONE ? "at" : "inside of");
    program_print_insn(p, at, f);
    fclose(f);
}
