/* See trial.h. */

#include "tests/runtime/trial.h"
#include "runtime/cuda/gang_inside.h"
#include "runtime/data.h"
#include "runtime/hash.h"
#include "runtime/launch.h"
#include "runtime/lr.h"
#include "runtime/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct shared { /* by all processes of the trial */
    double loss[TRIAL_STEPS], norm[TRIAL_STEPS];
    uint64_t weights[TRIAL_RANKS], graphs, launches;
    uint32_t backwards;
    _Atomic uint32_t complained;
    char complaints[1024];
};
struct context {
    struct trial *t;
    struct world world;
    struct channels channels;
    struct batch_source *data;
    struct shared *shared;
    const struct player *player;
    struct gang *gang;
};

static void write_block(double *block, const struct job_info *job, uint64_t step)
{
    memset(block, 0, STEP_WORDS * sizeof *block);
    block[STEP_NUMBER] = (double)step;
    block[STEP_LR] = lr_at(job, step, TRIAL_STEPS);
    block[STEP_CORRECTION1] = 1 - pow(job->beta1, (double)step + 1);
    block[STEP_CORRECTION2] = 1 - pow(job->beta2, (double)step + 1);
    block[STEP_SAMPLE] = (double)(step * job->batch);
}

static uint64_t hash_weights(const struct program *p, const uint8_t *arena)
{
    uint64_t hash = 1;
    for (uint32_t b = 0; b < p->nbuffers; b++) {
        enum buffer_kind kind = p->buffers[b].kind;
        if (kind == BUFFER_PARAM || kind == BUFFER_MASTER || kind == BUFFER_MOMENT1 || kind == BUFFER_MOMENT2)
            hash = hash64(arena + p->buffers[b].offset, p->buffers[b].bytes, hash);
    }
    return hash;
}

static uint32_t count_backwards(const struct program *p, const struct trace_span *spans)
{
    uint32_t bad = 0, count[NQUEUES], *position = calloc(p->ninsns + (size_t)1, sizeof *position);
    program_positions(p, position, count);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        bad += spans[i].end_ns < spans[i].start_ns;
        for (uint32_t w = 0; w < p->insns[i].nwaits; w++)
            for (uint32_t j = 0; j < i; j++)
                if (p->insns[j].queue == p->waits[p->insns[i].wait + w].queue &&
                    position[j] == p->waits[p->insns[i].wait + w].position)
                    bad += spans[i].end_ns + 1000 < spans[j].end_ns; /* times are floats of milliseconds */
    }
    free(position);
    return bad;
}

static enum status play(struct context *c, struct world *w, struct exec *e, struct error *error)
{
    struct trial *t = c->t;
    const struct program *p = exec_program(e, ROUTINE_TRAIN);
    struct weights_place place = {p, t->plan->ranks, w->rank, w->arena[w->rank]};
    if (t->kind == TRIAL_CPU)
        memset(w->arena[w->rank], 0xff, p->arena_bytes);
    TRY(weights_init(&place, NULL, p->job.seed, error));
    TRY(exec_to_device(e));
    TRY(world_barrier(w));
    struct trace_span *spans = t->trace ? calloc(p->ninsns + (size_t)1, sizeof *spans) : NULL;
    for (uint64_t step = 0; step < TRIAL_STEPS; step++) {
        double *block = exec_buffer(e, ROUTINE_TRAIN, BUFFER_BLOCK);
        if (block)
            write_block(block, &p->job, step);
        TRY(exec_run(e, ROUTINE_TRAIN, c->data, step + 1 == TRIAL_STEPS ? spans : NULL));
        const double *metrics = exec_buffer(e, ROUTINE_TRAIN, BUFFER_METRICS);
        if (w->rank == 0 && metrics) {
            c->shared->loss[step] = metrics[METRIC_LOSS];
            c->shared->norm[step] = metrics[METRIC_SQNORM];
        }
    }
    if (spans && w->rank == 0)
        c->shared->backwards = count_backwards(p, spans);
    free(spans);
    TRY(exec_from_device(e));
    c->shared->weights[w->rank] = hash_weights(p, w->arena[w->rank]);
    return world_barrier(w);
}

static void complain(struct context *c, void (*of)(char *out, size_t size))
{
    char text[1024];
    of(text, sizeof text);
    if (text[0] && !atomic_exchange(&c->shared->complained, 1))
        snprintf(c->shared->complaints, sizeof c->shared->complaints, "%s", text);
}

static enum status body(void *context, uint32_t rank)
{
    struct context *c = context;
    struct trial *t = c->t;
    struct world w = c->world; /* of a thread: its own rank */
    struct error error = {""};
    struct exec *e = NULL;
    w.rank = rank;
    const struct exec_setup setup = {.player = c->player,
                                     .world = &w,
                                     .channels = &c->channels,
                                     .ranks = t->plan->ranks,
                                     .programs = {(const struct program *const *)t->plan->train, NULL},
                                     .gang = c->gang,
                                     .watchdog_s = 30};
    atomic_store(&w.ranks[rank].state, RANK_STEPPING);
    atomic_store(&w.ranks[rank].running, NONE);
    enum status st = exec_open(&e, &setup, &error);
    if (st == STATUS_OK)
        st = play(c, &w, e, &error);
    if (st != STATUS_OK)
        world_fail(&w, st, "%s", error.text[0] ? error.text : "failed without a word");
    if (c->gang && rank == 0) {
        c->shared->graphs = c->gang->counts.graphs;
        c->shared->launches = fake_cuda_launches();
        if (t->look && st == STATUS_OK)
            t->look(c->gang);
    }
    exec_close(e);
    if (t->kind == TRIAL_NCCL) {
        complain(c, fake_cuda_complaints);
        complain(c, fake_nccl_complaints);
    }
    atomic_store(&w.ranks[rank].state, RANK_ENDED);
    return st;
}

static void describe(void *context, uint32_t rank, char *out, size_t size)
{
    (void)context;
    (void)rank;
    if (size)
        *out = 0;
}

static enum status open_data(struct context *c)
{
    char path[] = "/tmp/llmc-trial-XXXXXX";
    struct error error;
    const struct job_info *job = &c->t->plan->train[0]->job;
    uint64_t state = 5;
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!f)
        return STATUS_WORLD;
    for (uint64_t i = 0; i < 4000 + job->sequence; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint16_t token = (uint16_t)((state >> 33) % job->vocab);
        fwrite(&token, sizeof token, 1, f);
    }
    fclose(f);
    enum status st = data_open(path, job->sequence, job->vocab, &c->data, &error);
    unlink(path);
    return st;
}

static enum status launch(struct context *c)
{
    struct trial *t = c->t;
    if (t->kind == TRIAL_CPU)
        return launch_local(&c->world, body, describe, c);
    bool alone = t->kind == TRIAL_NCCL;
    const struct gang_setup s = {.plugin = fake_cuda_open(&t->cuda),
                                 .nccl = alone ? fake_nccl_open(&t->nccl, c->world.nranks) : NULL,
                                 .meet = t->meet ? t->meet : alone ? meet_nccl() : meet_d2d(),
                                 .world = &c->world,
                                 .device = alone ? -1 : 0,
                                 .n = alone ? 1 : c->world.nranks,
                                 .replay = t->replay,
                                 .deterministic = true,
                                 .watchdog_s = t->watchdog_s,
                                 .connect_s = 20};
    if (alone && !s.nccl)
        return STATUS_WORLD;
    TRY(gang_new(&c->gang, &s));
    enum status st = alone ? launch_local(&c->world, body, describe, c) : launch_threads(&c->world, body, c);
    gang_free(c->gang);
    if (alone)
        fake_nccl_close();
    else
        complain(c, fake_cuda_complaints);
    return st;
}

static uint64_t most_arena(const struct plan *p)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < p->nroles; r++)
        most = p->train[r]->arena_bytes > most ? p->train[r]->arena_bytes : most;
    return most;
}

void trial_run(struct trial *t)
{
    struct error error = {""};
    struct context c = {.t = t, .player = t->kind == TRIAL_CPU ? &player_cpu : t->kind == TRIAL_D2D ? &player_d2d : &player_nccl};
    const struct program *const *sets[] = {(const struct program *const *)t->plan->train};
    void *map = mmap(NULL, sizeof *c.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    c.shared = map == MAP_FAILED ? NULL : map;
    t->status = c.shared ? channels_make(&c.channels, t->plan->ranks, sets, 1) : STATUS_WORLD;
    if (t->status == STATUS_OK)
        t->status = open_data(&c);
    const struct world_sizes sizes = {.nranks = t->plan->ranks->nranks,
                                      .arena_bytes = most_arena(t->plan),
                                      .transport_bytes = c.player->shared_bytes(c.channels.list, c.channels.n)};
    if (t->status == STATUS_OK)
        t->status = world_open(&c.world, &sizes, NULL, NONE, 1, &error);
    if (t->status == STATUS_OK) {
        t->status = launch(&c);
        snprintf(t->error, sizeof t->error, "%s", c.world.control->message);
        world_close(&c.world);
        if (t->kind != TRIAL_CPU)
            fake_cuda_close();
    }
    memcpy(t->loss, c.shared->loss, sizeof t->loss);
    memcpy(t->norm, c.shared->norm, sizeof t->norm);
    snprintf(t->complaints, sizeof t->complaints, "%s", c.shared->complaints);
    t->weights = hash64(c.shared->weights, sizeof c.shared->weights, 0);
    t->graphs = c.shared->graphs;
    t->launches = c.shared->launches;
    t->backwards = c.shared->backwards;
    data_close(c.data);
    channels_free(&c.channels);
    munmap(c.shared, sizeof *c.shared);
}

bool trial_equal(const struct trial *a, const struct trial *b)
{
    return a->status == STATUS_OK && b->status == STATUS_OK && memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->norm, b->norm, sizeof a->norm) == 0 && a->weights == b->weights;
}
