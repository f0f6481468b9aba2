/* One rank's way through a run: fill the arena, step, log, evaluate, save, report.  Failures are recorded in the world.
 */

#include "runtime/run.h"
#include "runtime/allocations.h"
#include "runtime/file.h"
#include "runtime/lr.h"
#include "runtime/replicas.h"
#include "runtime/slowness.h"
#include "runtime/spikes.h"
#include "runtime/summary.h"
#include "runtime/trace.h"
#include "runtime/watch.h"
#include "runtime/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(NMEMORY == 8 && NREPORTS <= 8, "world_rank holds eight figures of each kind");
static const uint64_t FILE_BYTES = (uint64_t)4 << 30; /* of weights, at most, in one file */

/* one rank's run */
struct session {
    struct run *run;
    struct world *world;
    struct exec *exec;
    struct log log;
    struct watch *watch; /* rank 0's, with --watch */
    struct world_rank *face;
    struct weights_place place;
    struct weights_sink gradients;
    struct summary summary; /* rank 0 */
    bool ahead;             /* the next step's early phase has run, on parameters as they are */
    int64_t core_ns;        /* of all ranks, when core_s() was last asked */
    uint64_t allocations;   /* at the end of the first step */
    double loss_scale;      /* of the next step; 0 = none */
    uint64_t skipped;       /* steps whose gradients overflowed: they move neither corrections nor the learning rate */
    struct saver *saver;    /* NULL without --checkpoint */
    struct slowness *slowness; /* rank 0's */
    struct spikes spikes;      /* rank 0's */
    uint64_t taken;            /* steps that have been taken, with those of earlier runs that this one resumes */
    struct error error;
};

static enum status report(struct session *s, enum status st)
{
    if (st != STATUS_OK)
        world_fail(s->world, st, "%s", s->error.text[0] ? s->error.text : "out of memory");
    return st;
}

/* adds what has passed since a moment to what the run's time went to; returns the present moment */
static int64_t spend(struct session *s, int what, int64_t since_ns)
{
    int64_t now = world_now_ns();
    if (s->world->rank == 0)
        atomic_fetch_add(&s->world->control->spent_ns[what], now - since_ns);
    return now;
}

static void measure(struct session *s, uint32_t when)
{
    if (s->run->player->threads && s->world->rank)
        return; /* one process: rank 0 accounts for all */
    size_t scratch_bytes, data_bytes = 0, held_bytes = 0;
    const void *scratch = exec_scratch(s->exec, &scratch_bytes),
               *data = s->run->data ? data_mapping(s->run->data, &data_bytes) : NULL;
    const void *held = s->run->held_out ? data_mapping(s->run->held_out, &held_bytes) : NULL;
    const struct memory_range ranges[] = {{s->world->map, s->world->control_bytes, MEMORY_CONTROL},
                                          {s->world->arenas, s->world->arenas_bytes, MEMORY_ARENA},
                                          {scratch, scratch_bytes, MEMORY_SCRATCH},
                                          {data, data_bytes, MEMORY_DATA},
                                          {held, held_bytes, MEMORY_DATA}};
    memory_measure(ranges, sizeof ranges / sizeof *ranges, s->face->memory[when]);
    s->face->report[when ? REPORT_END : REPORT_LOADED] = memory_total();
}

/* Brings back what a checkpoint holds besides weights and moments. */
static void resume_scale(struct session *s)
{
    const struct checkpoint *c = &s->run->resumed;
    double *scale = exec_buffer(s->exec, ROUTINE_TRAIN, BUFFER_SCALE);
    s->taken = c->step;
    if (!scale || !s->run->player->computes)
        return;
    if (c->scaled)
        memcpy(scale, c->scale, sizeof c->scale);
    s->loss_scale = scale[SCALE_FACTOR];
    s->skipped = (uint64_t)scale[SCALE_SKIPPED];
}

/* Do all ranks go on from the same step?  Processes that a launcher started have each looked for themselves, perhaps in
 * folders of different machines.  There is a barrier between the two. */
static void tell_start(struct session *s)
{
    atomic_fetch_add(&s->world->control->resumed, s->run->resumed.step);
}

static enum status check_start(struct session *s)
{
    uint64_t mine = s->run->resumed.step, sum = atomic_load(&s->world->control->resumed);
    if (s->world->remote)
        TRY(world_sum(s->world, &sum, 1));
    if (sum == mine * s->world->nranks)
        return STATUS_OK;
    return report(s,
                  error_set(&s->error, STATUS_MISMATCH,
                            "rank %u finds step %llu in %s, another rank finds another: all must see the same folder",
                            s->world->rank, (unsigned long long)mine, s->run->o.checkpoint.dir));
}

static enum status open_saver(struct session *s)
{
    struct run *r = s->run;
    return r->o.checkpoint.dir ? report(s, saver_open(&s->saver, s->world, &s->place, &r->saved, &r->o.checkpoint,
                                                      r->resumed.step, r->steps, &s->error))
                               : STATUS_OK;
}

static enum status open_session(struct session *s, struct run *r, uint32_t rank)
{
    const struct exec_setup setup = {
        .player = r->player,
        .world = &r->world,
        .channels = &r->channels,
        .ranks = r->folder->ranks,
        .programs = {r->programs[ROUTINE_TRAIN], r->evaluates ? r->programs[ROUTINE_EVAL] : NULL},
        .shuffle_seed = r->o.shuffle_seed,
        .watchdog_s = r->o.watchdog_s,
        .routing = r->routing.use ? &r->routing : NULL,
        .pace_ns = (const int64_t *const *)r->pace.ns,
        .work = &r->work,
        .slow = r->o.slow_by > 0 && r->o.slow_rank == rank ? r->o.slow_by - 1 : 0,
        .watched = r->o.watch,
        .gang = r->gang};
    *s = (struct session){.run = r, .world = &r->world, .face = &r->world.ranks[rank]};
    s->summary.loss = s->summary.eval_loss = NAN;
    atomic_store(&s->face->pid, (int32_t)getpid());
    atomic_store(&s->face->running, NONE);
    TRY(report(s, exec_open(&s->exec, &setup, &s->error)));
    const struct program *p = exec_program(s->exec, ROUTINE_TRAIN);
    s->place = (struct weights_place){p, r->folder->ranks, rank, r->world.arena[rank]};
    tell_start(s);
    TRY(world_barrier(s->world));
    measure(s, 0);
    TRY(world_barrier(s->world));
    if (r->o.resume)
        TRY(check_start(s));
    if (r->player->computes && r->player->on_cores && !r->moved)
        memset(r->world.arena[rank], 0xff, r->arena_sizes[rank]);
    if (r->player->computes && !r->moved)
        TRY(report(s, weights_init(&s->place, (const struct safetensors *const *)r->init, p->job.seed, &s->error)));
    resume_scale(s);
    TRY(exec_to_device(s->exec));
    for (int state = 0; state < NSTATES; state++) {
        if (!r->player->threads)
            safetensors_close(r->init[state]);
        r->init[state] = NULL;
    }
    TRY(open_saver(s));
    if (rank == 0 && !r->o.quiet && !r->o.generate) {
        char device[256];
        r->player->describe(s->exec, device, sizeof device);
        fprintf(stderr, "%u rank%s over %s, %llu step%s, %s\n", r->world.nranks, r->world.nranks == 1 ? "" : "s",
                r->player->transport, (unsigned long long)r->steps, r->steps == 1 ? "" : "s", device);
        if (*r->folder->target && strcmp(r->folder->target, "llmrun") != 0)
            fprintf(stderr,
                    "the plan is for %s: these programs compute the same step in llmrun's way, and its seconds and "
                    "bytes are not what the plan predicts\n",
                    r->folder->target);
    }
    if (rank == 0 && r->player->on_cores && r->player->computes && r->world.nranks > 1)
        TRY(report(s, slowness_open(&s->slowness, s->world, r->folder->ranks, &r->work)));
    if (rank == 0)
        TRY(report(s, log_open(&s->log, r->o.log, r->resumed.step, r->steps, r->o.quiet, r->o.watch ? s->world : NULL,
                               &s->error)));
    if (rank == 0 && r->o.watch)
        TRY(report(s, watch_start(&s->watch, s->world, r->folder, r->steps)));
    return world_barrier(s->world);
}

/* taken: how many steps before this one changed the parameters */
static void write_block(double *block, const struct job_info *job, uint64_t step, uint64_t taken, uint64_t total,
                        uint64_t sample)
{
    memset(block, 0, STEP_WORDS * sizeof *block);
    block[STEP_NUMBER] = (double)step;
    block[STEP_LR] = lr_at(job, taken, total);
    block[STEP_CORRECTION1] = 1 - pow(job->beta1, (double)taken + 1);
    block[STEP_CORRECTION2] = 1 - pow(job->beta2, (double)taken + 1);
    block[STEP_SAMPLE] = (double)sample;
}

/* Rows that experts lacked room for: then no rank has taken the step.  The plan's last reduction told all ranks. */
static enum status check_room(struct session *s, enum routine which, uint64_t step)
{
    const double *metrics = exec_buffer(s->exec, which, BUFFER_METRICS);
    if (!metrics || !s->run->player->computes || !(metrics[METRIC_NEED] > 0))
        return STATUS_OK;
    return report(s, error_set(&s->error, STATUS_WORLD,
                               "%s %llu was not taken: a rank has %.0f rows for one expert rank, but the plan holds "
                               "fewer; the mean is %.1f, so plan with expert_room %.4g or more",
                               which == ROUTINE_EVAL ? "evaluation at step" : "step", (unsigned long long)step,
                               metrics[METRIC_NEED_ROWS], metrics[METRIC_NEED_ROWS] / metrics[METRIC_NEED],
                               ceil(metrics[METRIC_NEED] * 100) / 100));
}

/* A loss or gradients that are not finite: no rank has taken the step (CLIP), so that all state is as it was before;
 * the rank whose state was already broken says so.  With a loss scale a step that overflows is skipped instead. */
static enum status check_finite(struct session *s)
{
    const double *metrics = exec_buffer(s->exec, ROUTINE_TRAIN, BUFFER_METRICS);
    char what[256];
    if (!metrics || !s->run->player->computes || s->loss_scale > 0 ||
        (isfinite(metrics[METRIC_LOSS]) && isfinite(metrics[METRIC_SQNORM])))
        return STATUS_OK;
    TRY(exec_from_device(s->exec));
    if (!weights_finite(&s->place, what, sizeof what))
        return report(s,
                      error_set(&s->error, STATUS_WORLD,
                                "step %llu was not taken: its loss or its gradients are not finite; on rank %u %s are "
                                "not, so its memory or what was loaded is damaged",
                                (unsigned long long)s->taken, s->world->rank, what));
    TRY(world_barrier(s->world)); /* that rank speaks first */
    return report(
        s, error_set(&s->error, STATUS_WORLD,
                     "step %llu was not taken: its %s not finite, while all weights and moments are; the same step "
                     "again tells a fault of the machine from one of the training",
                     (unsigned long long)s->taken, isfinite(metrics[METRIC_LOSS]) ? "gradients are" : "loss is"));
}

/* mean loss over all whole batches of the held-out data */
static enum status evaluate(struct session *s, uint64_t step)
{
    const struct job_info *job = &exec_program(s->exec, ROUTINE_TRAIN)->job;
    uint64_t batches = data_nsamples(s->run->held_out) / job->batch;
    double *block = exec_buffer(s->exec, ROUTINE_EVAL, BUFFER_BLOCK), sum = 0;
    const double *metrics = exec_buffer(s->exec, ROUTINE_EVAL, BUFFER_METRICS);
    batches = batches ? batches : 1;
    for (uint64_t b = 0; b < batches; b++) {
        if (block)
            write_block(block, job, step, step, step + 1, b * job->batch);
        TRY(exec_run(s->exec, ROUTINE_EVAL, s->run->held_out, NULL));
        TRY(check_room(s, ROUTINE_EVAL, step));
        sum += metrics ? metrics[METRIC_LOSS] : NAN;
    }
    s->summary.eval_loss = sum / (double)batches;
    if (s->world->rank == 0)
        log_eval(&s->log, step, s->summary.eval_loss, batches * job->batch * job->sequence);
    return STATUS_OK;
}

static enum status create_files(struct session *s, struct weights_sink *sink, const char *dir, const char *stem,
                                uint32_t which)
{
    struct run *r = s->run;
    for (uint32_t turn = 0; turn < 2; turn++) { /* rank 0 makes the files, then the others open them */
        bool make = turn == 0;
        if ((s->world->rank == 0) == make)
            TRY(report(
                s, safetensors_create(dir, stem, r->catalog, r->ncatalog, FILE_BYTES, make, &sink->files, &s->error)));
        TRY(world_barrier(s->world));
    }
    sink->catalog = r->catalog;
    sink->ncatalog = r->ncatalog;
    sink->covered = (_Atomic uint64_t *)(void *)s->world->coverage + (size_t)which * r->ncatalog;
    return STATUS_OK;
}

static enum status finish_files(struct session *s, struct weights_sink *sink)
{
    bool first = s->world->rank == 0;
    if (!first)
        TRY(report(s, safetensors_finish(sink->files, false, &s->error)));
    TRY(world_barrier(s->world));
    TRY(world_share(s->world, sink->covered, sink->ncatalog));
    if (first) {
        TRY(report(s, weights_complete(sink, &s->error)));
        TRY(report(s, safetensors_finish(sink->files, true, &s->error)));
    }
    return world_barrier(s->world);
}

static void dump_gradient(void *context, const struct program *p, uint32_t insn, const struct kernel_args *k)
{
    struct session *s = context;
    (void)p;
    (void)k;
    weights_save_gradient(&s->place, insn, &s->gradients);
}

static enum status first_step_done(struct session *s)
{
    if (s->run->o.gradients) {
        exec_set_hook(s->exec, NULL, NULL);
        TRY(finish_files(s, &s->gradients));
    }
    s->allocations = allocations_count();
    return STATUS_OK;
}

/* seconds on cores of all ranks since it was last asked for: of the last step, but for what a rank is behind or ahead
 */
static double core_s(struct session *s)
{
    int64_t all = 0, before = s->core_ns;
    atomic_store(&s->face->core_ns, world_core_ns());
    bool known = s->run->player->on_cores && !s->world->remote;
    for (uint32_t r = 0; r < s->world->nranks && known; r++)
        all += atomic_load(&s->world->ranks[r].core_ns);
    s->core_ns = all;
    return 1e-9 * (double)(all - before);
}

/* A loss or gradients far above those of the steps before: said, and where it is wanted the run stops as for a signal.
 */
static void look_for_spike(struct session *s, const struct log_step *line)
{
    const char *words = line->skipped ? NULL : spikes_add(&s->spikes, line->step, line->loss, line->grad_norm);
    if (!words)
        return;
    log_say(&s->log, "%s", words);
    if (s->run->o.stop_on_spike)
        atomic_store(&s->world->control->asked, ASKED_BY_SPIKE);
}

static void log_results(struct session *s, uint64_t step, double step_time_s)
{
    const struct job_info *job = &exec_program(s->exec, ROUTINE_TRAIN)->job;
    const double *metrics = exec_buffer(s->exec, ROUTINE_TRAIN, BUFFER_METRICS);
    const double *scale = exec_buffer(s->exec, ROUTINE_TRAIN, BUFFER_SCALE);
    double tokens = (double)job->batch * (double)job->sequence;
    struct log_step line = {.step = step + 1,
                            .tokens = (step + 1) * job->batch * job->sequence,
                            .loss = NAN,
                            .grad_norm = NAN,
                            .lr = lr_at(job, step - s->skipped, run_lr_steps(s->run)),
                            .step_time_s = step_time_s,
                            .tokens_per_s = tokens / step_time_s,
                            .core_s = core_s(s)};
    if (metrics && s->run->player->computes) {
        line.loss = metrics[METRIC_LOSS];
        line.grad_norm = sqrt(metrics[METRIC_SQNORM]);
        line.loss_scale = s->loss_scale;
    }
    if (scale && s->run->player->computes) {
        uint64_t skipped = (uint64_t)scale[SCALE_SKIPPED];
        line.skipped = skipped > s->skipped;
        s->skipped = skipped;
        s->loss_scale = scale[SCALE_FACTOR];
    }
    s->summary.loss = line.loss;
    s->summary.skipped = s->skipped;
    s->summary.loss_scale = s->loss_scale;
    s->summary.tokens = line.tokens;
    s->summary.steps = step + 1;
    s->summary.seconds += step != s->run->resumed.step ? step_time_s : 0;
    if (s->world->rank == 0)
        log_step(&s->log, &line);
    if (s->world->rank == 0)
        look_for_spike(s, &line);
}

/* What this rank's own instructions took, and which rank's take too long. */
static void look_for_slow(struct session *s)
{
    if (s->run->player->on_cores && s->run->player->computes)
        slowness_tell(s->world, (uint32_t)(s->taken - s->run->resumed.step), exec_work(s->exec));
    const char *words = s->slowness ? slowness_look(s->slowness) : NULL;
    if (words)
        log_say(&s->log, "%s", words);
}

static void set_block(struct session *s, uint64_t step)
{
    const struct job_info *job = &exec_program(s->exec, ROUTINE_TRAIN)->job;
    double *block = exec_buffer(s->exec, ROUTINE_TRAIN, BUFFER_BLOCK);
    if (block)
        write_block(block, job, step, step - s->skipped, run_lr_steps(s->run), step * job->batch);
}

/* where the last step's times go */
static struct trace_span *spans_of(const struct session *s, uint64_t step)
{
    const struct run *r = s->run;
    bool traced = step + 1 == r->steps && r->o.trace;
    return traced ? (struct trace_span *)(void *)r->world.trace + run_first_span(r, s->world->rank) : NULL;
}

/* A step with seams, whose early phase has run before the last one's check.  ahead: the same for the next one. */
static enum status run_phases(struct session *s, uint64_t step, bool ahead)
{
    const struct batch_source *data = s->run->data;
    if (!s->ahead)
        TRY(exec_run_phase(s->exec, ROUTINE_TRAIN, PHASE_EARLY, data, spans_of(s, step)));
    TRY(exec_run_phase(s->exec, ROUTINE_TRAIN, PHASE_BODY, data, spans_of(s, step)));
    if (ahead) {
        set_block(s, step + 1);
        TRY(exec_run_phase(s->exec, ROUTINE_TRAIN, PHASE_EARLY, data, spans_of(s, step + 1)));
        set_block(s, step);
    }
    TRY(exec_run_phase(s->exec, ROUTINE_TRAIN, PHASE_CHECK, data, spans_of(s, step)));
    s->ahead = ahead && (!s->run->player->computes || !exec_clipped(s->exec));
    return STATUS_OK;
}

static enum status take_checkpoint(struct session *s, bool wait)
{
    int64_t begun = world_now_ns();
    const double *scale = exec_buffer(s->exec, ROUTINE_TRAIN, BUFFER_SCALE);
    struct checkpoint c = s->run->job;
    c.step = s->taken;
    c.scaled = scale != NULL;
    TRY(exec_from_device(s->exec));
    if (scale)
        memcpy(c.scale, scale, sizeof c.scale);
    if (wait)
        atomic_store(&s->face->state, RANK_SAVING);
    bool written = saver_take(s->saver, &c, wait);
    spend(s, SPENT_SAVING, begun);
    if (written || !wait)
        return STATUS_OK;
    if (world_failed(s->world) == STATUS_OK)
        atomic_store(&s->world->control->unsaved, 1);
    return report(s, error_set(&s->error, STATUS_WORLD, "the last checkpoint, of step %llu, is missing",
                               (unsigned long long)s->taken));
}

/* Flips a bit of the rank's first parameter, as failing memory might: a test. */
static void flip(struct session *s)
{
    for (uint32_t i = 0; i < s->place.p->nbuffers; i++)
        if (s->place.p->buffers[i].kind == BUFFER_PARAM) {
            s->place.arena[s->place.p->buffers[i].offset] ^= 1;
            return;
        }
}

/* Compares what replicas hold: every so many steps, and before a checkpoint makes it last. */
static enum status check_replicas(struct session *s, bool saves)
{
    const struct run *r = s->run;
    if (r->o.flip[1] == s->taken && r->o.flip[0] == s->world->rank && !r->o.resume)
        flip(s);
    bool due = saves || (r->o.replicas_every && s->taken % r->o.replicas_every == 0);
    if (!due || s->world->remote || !r->player->computes)
        return STATUS_OK;
    TRY(exec_from_device(s->exec));
    return report(s, replicas_check(s->world, &s->place, r->replicas, s->taken, &s->error));
}

/* What follows a step: its results, an evaluation, a checkpoint. */
static enum status end_step(struct session *s, bool evaluates, double step_time_s)
{
    bool first = s->taken++ == s->run->resumed.step;
    TRY(check_room(s, ROUTINE_TRAIN, s->taken));
    TRY(check_finite(s));
    log_results(s, s->taken - 1, step_time_s);
    look_for_slow(s);
    if (first)
        TRY(first_step_done(s));
    if (evaluates) {
        int64_t begun = world_now_ns();
        TRY(evaluate(s, s->taken));
        core_s(s); /* of no step */
        spend(s, SPENT_EVALUATING, begun);
    }
    bool stops = s->saver && saver_stops(s->saver, s->taken),
         saves = s->saver && (saver_is_due(s->saver, s->taken) || s->taken == s->run->steps);
    TRY(check_replicas(s, saves));
    return s->saver && saver_is_due(s->saver, s->taken) ? take_checkpoint(s, stops) : STATUS_OK;
}

static enum status run_step(struct session *s, bool ahead)
{
    if (s->saver)
        TRY(saver_agree(s->saver, s->taken));
    atomic_store(&s->face->step, (uint32_t)s->taken);
    set_block(s, s->taken);
    return exec_has_phases(s->exec) ? run_phases(s, s->taken, ahead)
                                    : exec_run(s->exec, ROUTINE_TRAIN, s->run->data, spans_of(s, s->taken));
}

/* where the job is, for the plan that goes on with what this one leaves in memory */
static void hand_on(struct session *s)
{
    const double *scale = exec_buffer(s->exec, ROUTINE_TRAIN, BUFFER_SCALE);
    struct checkpoint *c = s->run->handed;
    if (!c || s->world->rank)
        return;
    c->step = s->taken;
    c->scaled = scale != NULL;
    if (scale)
        memcpy(c->scale, scale, sizeof c->scale);
}

static enum status train(struct session *s)
{
    struct run *r = s->run;
    uint64_t every = r->o.eval_every, end = r->until ? r->until : r->steps;
    if (r->o.gradients) {
        TRY(create_files(s, &s->gradients, r->o.gradients, "gradients", 0));
        exec_set_hook(s->exec, dump_gradient, s);
    }
    int64_t start = spend(s, SPENT_STARTING, r->began_ns), begun = start;
    for (bool stops = false; s->taken < end && !stops;) {
        uint64_t then = s->taken + 1;
        bool last = then == r->steps, evaluates = r->held_out && (last || (every && then % every == 0)),
             first = s->taken == r->resumed.step;
        stops = s->saver && saver_stops(s->saver, then);
        begun = world_now_ns();
        TRY(run_step(s, then < end && !evaluates && !(s->saver && saver_is_due(s->saver, then))));
        int64_t now = spend(s, SPENT_STEPS, begun);
        exec_tell_waits(s->exec, now - begun);
        TRY(end_step(s, evaluates, (double)(now - start) * 1e-9));
        if (s->world->rank == 0)
            atomic_fetch_add(&s->world->control->steps_ended, 1);
        start = first || r->held_out || s->saver ? world_now_ns() : now;
    }
    if (s->saver && s->taken == r->steps && s->taken != r->resumed.step) /* else what it has resumed is its end */
        TRY(take_checkpoint(s, true));
    s->face->report[REPORT_ALLOCATIONS] = allocations_count() - s->allocations;
    hand_on(s);
    return STATUS_OK;
}

static enum status write_trace(struct session *s)
{
    struct run *r = s->run;
    uint32_t nranks = r->folder->ranks->nranks;
    const struct trace_span **spans = calloc(nranks, sizeof *spans);
    if (!spans)
        return STATUS_WORLD;
    for (uint32_t i = 0; i < nranks; i++)
        spans[i] = (const struct trace_span *)(const void *)r->world.trace + run_first_span(r, i);
    enum status st = run_trace_write(r->o.trace, r->folder->ranks, r->programs[ROUTINE_TRAIN], spans, &s->error);
    free(spans);
    return st;
}

/* each rank's figures to all, where they share no memory */
static enum status share_figures(struct session *s)
{
    const struct world *w = s->world;
    enum { WORDS = NREPORTS + 2 * NMEMORY + 1 };
    uint64_t *all = w->remote ? calloc(w->nranks, WORDS * sizeof *all) : NULL;
    if (!w->remote || !all)
        return w->remote ? STATUS_WORLD : STATUS_OK;
    uint64_t *own = all + (size_t)w->rank * WORDS;
    memcpy(own, s->face->report, NREPORTS * sizeof *own);
    memcpy(own + NREPORTS, s->face->memory, sizeof s->face->memory);
    memcpy(own + WORDS - 1, &s->face->margin, sizeof *own);
    enum status st = world_sum(w, all, w->nranks * WORDS); /* of one rank's figures and zeros */
    for (uint32_t r = 0; r < w->nranks && st == STATUS_OK; r++) {
        const uint64_t *its = all + (size_t)r * WORDS;
        memcpy(w->ranks[r].report, its, NREPORTS * sizeof *its);
        memcpy(w->ranks[r].memory, its + NREPORTS, sizeof w->ranks[r].memory);
        memcpy(&w->ranks[r].margin, its + WORDS - 1, sizeof *its);
    }
    free(all);
    return st;
}

static enum status report_end(struct session *s)
{
    struct run *r = s->run;
    size_t scratch;
    exec_scratch(s->exec, &scratch);
    s->face->report[REPORT_SCRATCH] = scratch;
    s->face->report[REPORT_INSTRUCTIONS] = exec_program(s->exec, ROUTINE_TRAIN)->ninsns;
    TRY(world_barrier(s->world));
    measure(s, 1);
    TRY(world_barrier(s->world));
    s->face->report[REPORT_ARENA_TOUCHED] = exec_touched(s->exec);
    s->face->report[REPORT_COMPARED] = r->routing.compared;
    s->face->report[REPORT_FLIPS] = r->routing.flips;
    memcpy(&s->face->margin, &r->routing.margin, sizeof s->face->margin);
    TRY(report(s, share_figures(s)));
    return world_barrier(s->world);
}

/* What rank 0 writes at the end, also where the weights could not be saved; the first failure counts. */
static enum status finish_outputs(struct session *s)
{
    struct run *r = s->run;
    if (s->world->rank != 0)
        return STATUS_OK;
    enum status st = r->o.trace ? report(s, write_trace(s)) : STATUS_OK;
    for (uint32_t i = 0; i < s->world->nranks; i++)
        for (uint32_t line = 0; line < NMEMORY; line++) {
            s->summary.before[line] += s->world->ranks[i].memory[0][line];
            s->summary.after[line] += s->world->ranks[i].memory[1][line];
        }
    if (r->o.paced && r->steps > 1 && !r->o.quiet) {
        double measured_s = s->summary.seconds / (double)(r->steps - 1), planned_s = (double)r->pace.step_ns * 1e-9;
        fprintf(stderr, "paced: a step took %.6g s, planned %.6g s (%+.1f %%)\n", measured_s, planned_s,
                100 * (measured_s / planned_s - 1));
    }
    if (s->saver)
        s->summary.checkpoints = saver_figures(s->saver);
    if (r->o.json)
        summary_print(r, s->exec, &s->summary, stdout);
    const char *lost = file_flush_stdout();
    if (lost)
        st = report(s, error_set(&s->error, STATUS_WORLD, "stdout: %s", lost));
    enum status logged = report(s, log_close(&s->log, &s->error));
    return st == STATUS_OK ? logged : st;
}

static enum status save(struct session *s)
{
    struct weights_sink sink;
    atomic_store(&s->face->state, RANK_SAVING);
    TRY(create_files(s, &sink, s->run->o.save, "model", 1));
    TRY(exec_from_device(s->exec));
    TRY(report(s, weights_save(&s->place, &sink)));
    return finish_files(s, &sink);
}

static enum status train_and_save(struct session *s)
{
    const struct run *r = s->run;
    TRY(train(s));
    TRY(report_end(s));
    bool whole = s->taken == r->steps; /* not stopped before its end */
    enum status saved = r->o.save && whole ? save(s) : STATUS_OK, written = finish_outputs(s);
    return saved == STATUS_OK ? written : saved;
}

enum status run_rank(struct run *r, uint32_t rank)
{
    struct session s;
    enum status st = open_session(&s, r, rank);
    atomic_store(&s.face->state, RANK_STEPPING);
    if (st == STATUS_OK)
        st = r->o.generate ? report(&s, generate_rank(r, s.exec, &s.error)) : train_and_save(&s);
    saver_close(s.saver);
    slowness_close(s.slowness);
    watch_stop(s.watch);
    exec_close(s.exec);
    atomic_store(&s.face->state, RANK_ENDED);
    return st;
}
