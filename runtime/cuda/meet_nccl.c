/* Ranks on GPUs of their own, by NCCL.
 *
 * A communicator serves one group on one queue, or one directed pair of pipeline neighbours, so that operations of a
 * communicator are always on one stream.  All are split from one world in an order that every rank works out alike from
 * the plan: the list of (channel, queue) is sorted, and each goes into the first round in which none of its members is
 * busy; a round is one ncclCommSplit of the world, with the list's index as colour.  So a few rounds make thousands of
 * communicators.
 *
 * All are non-blocking (NCCL user guide, "Fault tolerance"): a call may say that it is in progress, and then the
 * communicator is polled, with a deadline, before it is used again; errors come out of ncclCommGetAsyncError, and
 * whoever sees one aborts all.  The device memory comes from ncclMemAlloc and is registered with every communicator as
 * a whole, so that operands of ranks of one role lie at equal offsets from the registered start.
 *
 * NCCL knows no gaps between rows.  An operand that has some, as the keys and values beside the queries have, goes
 * through the stream's workspace, packed before and unpacked afterwards by copies on that stream. */

#include "runtime/cuda/gang.h"
#include "runtime/cuda/nccl_comm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 512 };

struct key { /* a communicator to be made; equal lists on all ranks */
    uint32_t channel, queue, round;
};
struct comm {
    struct ncclComm *c;
    void *handle;
    uint32_t channel, queue;
};
struct meet {
    const struct nccl_functions *f;
    const struct cuda_runtime *cu;
    struct world *world;
    const struct channels *channels;
    struct ncclComm *root;
    struct comm *comms;
    uint32_t ncomms, unregistered;
    uint32_t *index; /* [channel * NQUEUES + queue] -> comms, or NONE */
    double deadline_s;
    bool aborted;
    char error[300];
};

static int by_key(const void *pa, const void *pb)
{
    const struct key *a = pa, *b = pb;
    if (a->channel != b->channel)
        return a->channel < b->channel ? -1 : 1;
    return a->queue < b->queue ? -1 : a->queue > b->queue;
}

/* Which slots a role's communications go by, and on which queue: used[slot * NQUEUES + queue].  Pairs count as of the
 * sending queue at both ends. */
static uint8_t *slots_used(const struct program *p, uint8_t *used)
{
    for (uint32_t i = 0; p && i < p->ninsns; i++) {
        const struct insn *in = &p->insns[i];
        enum unit unit = isa_info(in->op)->unit;
        if (unit == UNIT_COLLECTIVE)
            used[p->attrs[in->attr].slot * NQUEUES + in->queue] = 1;
        else if (unit == UNIT_P2P)
            used[p->attrs[in->attr].slot * NQUEUES + QUEUE_SEND] |= in->op == OP_SEND ? 2 : 4;
    }
    return used;
}

static void mark_channels(const struct meet_setup *s, uint32_t rank, const struct program *p, const uint8_t *used,
                          uint8_t *marks)
{
    for (uint32_t slot = 0; slot < p->nslots; slot++)
        for (uint32_t q = 0; q < NQUEUES; q++) {
            uint8_t how = used[slot * NQUEUES + q];
            uint64_t value = how ? rank_value(s->ranks, rank, slot) : 0;
            size_t out = (size_t)rank * s->channels->nranks + value, in = (size_t)value * s->channels->nranks + rank;
            if (how & 1)
                marks[value * NQUEUES + q] = 1;
            if (how & 2)
                marks[(size_t)s->channels->pair[out] * NQUEUES + QUEUE_SEND] = 1;
            if (how & 4)
                marks[(size_t)s->channels->pair[in] * NQUEUES + QUEUE_SEND] = 1;
        }
}

/* marks[channel * NQUEUES + queue] of the whole plan */
static uint8_t *mark_all(const struct meet_setup *s)
{
    uint8_t *marks = calloc((size_t)s->channels->n * NQUEUES + 1, 1);
    for (uint32_t role = 0; marks && role < s->ranks->nroles; role++)
        for (enum routine w = 0; w < NROUTINES; w++) {
            const struct program *p = s->programs[w] ? s->programs[w][role] : NULL;
            uint8_t *used = p ? calloc((size_t)p->nslots * NQUEUES + 1, 1) : NULL;
            if (!used)
                continue;
            slots_used(p, used);
            for (uint32_t r = 0; r < s->ranks->nranks; r++)
                if (s->ranks->ranks[r].role == role)
                    mark_channels(s, r, p, used, marks);
            free(used);
        }
    return marks;
}

/* the first round that is free for all members; false: too many */
static bool place_key(const struct meet_setup *s, struct key *k, uint64_t *busy)
{
    const struct channel *c = &s->channels->list[k->channel];
    for (k->round = 0; k->round < MOST_ROUNDS; k->round++) {
        bool idle = true;
        for (uint32_t m = 0; m < c->nmembers && idle; m++)
            idle = !(busy[(size_t)c->members[m] * (MOST_ROUNDS / 64) + k->round / 64] >> k->round % 64 & 1);
        if (!idle)
            continue;
        for (uint32_t m = 0; m < c->nmembers; m++)
            busy[(size_t)c->members[m] * (MOST_ROUNDS / 64) + k->round / 64] |= (uint64_t)1 << k->round % 64;
        return true;
    }
    return false;
}

static struct key *make_keys(const struct meet_setup *s, uint32_t *n, uint32_t *rounds)
{
    uint8_t *marks = mark_all(s);
    uint64_t *busy = calloc((size_t)s->ranks->nranks * (MOST_ROUNDS / 64), sizeof *busy);
    struct key *keys = calloc((size_t)s->channels->n * NQUEUES + 1, sizeof *keys);
    bool fine = marks && busy && keys;
    *n = *rounds = 0;
    for (uint32_t c = 0; fine && c < s->channels->n; c++)
        for (uint32_t q = 0; q < NQUEUES; q++)
            if (marks[c * NQUEUES + q] && s->channels->list[c].nmembers > 1)
                keys[(*n)++] = (struct key){c, q, 0};
    if (fine)
        qsort(keys, *n, sizeof *keys, by_key);
    for (uint32_t i = 0; i < *n && fine; i++) {
        fine = place_key(s, &keys[i], busy);
        *rounds = keys[i].round + 1 > *rounds ? keys[i].round + 1 : *rounds;
    }
    free(marks);
    free(busy);
    if (!fine)
        free(keys);
    return fine ? keys : NULL;
}

static const char *say(struct meet *m, const char *what, int rc)
{
    const char *more = m->root ? m->f->GetLastError(m->root) : NULL;
    snprintf(m->error, sizeof m->error, "NCCL: %s: %s%s%s", what, m->f->GetErrorString(rc), more && *more ? ": " : "",
             more && *more ? more : "");
    return m->error;
}

/* until the communicator has done what was asked of it */
static const char *settle(struct meet *m, struct ncclComm *c, const char *what)
{
    int64_t end = world_now_ns() + (int64_t)(m->deadline_s * 1e9);
    for (;;) {
        int state = NCCL_OK, rc = m->f->CommGetAsyncError(c, &state);
        if (rc == NCCL_OK && state == NCCL_OK)
            return NULL;
        if (rc != NCCL_OK || state != NCCL_IN_PROGRESS)
            return say(m, what, rc != NCCL_OK ? rc : state);
        if (world_failed(m->world) != STATUS_OK)
            return "another rank has failed";
        if (world_now_ns() > end) {
            snprintf(m->error, sizeof m->error, "NCCL: %s: no end within %.3g s", what, m->deadline_s);
            return m->error;
        }
        sched_yield();
    }
}

static uint32_t member_index(const struct channel *c, uint32_t rank)
{
    uint32_t m = 0;
    while (m < c->nmembers && c->members[m] != rank)
        m++;
    return m;
}

/* one split of the world: this rank's communicator of the round, if it has any */
static const char *split_round(struct meet *m, const struct meet_setup *s, const struct key *keys, uint32_t nkeys,
                               uint32_t round)
{
    struct nccl_config config = nccl_config_new("llmc");
    struct comm *c = &m->comms[m->ncomms]; /* NCCL writes it when it is made, perhaps after this call has given up */
    const struct key *mine = NULL;
    uint32_t self = 0;
    for (uint32_t i = 0; i < nkeys && !mine; i++) {
        const struct channel *channel = &s->channels->list[keys[i].channel];
        if (keys[i].round == round && (self = member_index(channel, s->world->rank)) < channel->nmembers)
            mine = &keys[i];
    }
    int colour = mine ? (int)(mine - keys) : NCCL_SPLIT_NO_COLOUR;
    int rc = m->f->CommSplit(m->root, colour, (int)(mine ? self : 0), &c->c, &config);
    if (rc != NCCL_OK && rc != NCCL_IN_PROGRESS)
        return say(m, "splitting communicators", rc);
    const char *why = settle(m, m->root, "splitting communicators");
    if (!mine || why)
        return why;
    if (!c->c)
        return "NCCL made no communicator";
    m->index[mine->channel * NQUEUES + mine->queue] = m->ncomms++;
    c->channel = mine->channel;
    c->queue = mine->queue;
    why = settle(m, c->c, "splitting communicators");
    if (!why && m->f->CommRegister(c->c, s->memory, s->memory_bytes, &c->handle) != NCCL_OK) {
        c->handle = NULL; /* slower, and nothing else */
        m->unregistered++;
    }
    return why ? why : settle(m, c->c, "registering memory");
}

static const char *connect_all(struct meet *m, const struct meet_setup *s)
{
    struct nccl_config config = nccl_config_new("llmc world");
    uint32_t nkeys = 0, rounds = 0;
    struct key *keys = make_keys(s, &nkeys, &rounds);
    const char *why = keys ? NULL : "the plan needs too many communicators on one rank";
    m->comms = keys ? calloc(rounds + (size_t)1, sizeof *m->comms) : NULL;
    if (!why && !m->comms)
        why = "out of memory";
    if (!why) {
        int rc = m->f->CommInitRankConfig(&m->root, (int)s->world->nranks, *s->id, (int)s->world->rank, &config);
        if (rc != NCCL_OK && rc != NCCL_IN_PROGRESS)
            why = say(m, "joining the world", rc);
    }
    if (!why)
        why = settle(m, m->root, "joining the world");
    for (uint32_t r = 0; r < rounds && !why; r++)
        why = split_round(m, s, keys, nkeys, r);
    free(keys);
    return why;
}

static void nccl_abort(struct meet *m)
{
    if (m->aborted)
        return;
    m->aborted = true;
    for (uint32_t i = 0; i < m->ncomms; i++)
        m->f->CommAbort(m->comms[i].c);
    if (m->root)
        m->f->CommAbort(m->root);
}

/* finalising waits for peers, so it has a deadline like all else */
static void end_comm(struct meet *m, struct comm *c)
{
    if (c->handle)
        m->f->CommDeregister(c->c, c->handle);
    int rc = m->f->CommFinalize(c->c);
    if ((rc == NCCL_OK || rc == NCCL_IN_PROGRESS) && !settle(m, c->c, "finalising"))
        m->f->CommDestroy(c->c);
    else
        m->f->CommAbort(c->c);
}

static void nccl_close(struct meet *m)
{
    if (world_failed(m->world) != STATUS_OK)
        nccl_abort(m);
    if (!m->aborted) {
        for (uint32_t i = 0; i < m->ncomms; i++)
            end_comm(m, &m->comms[i]);
        struct comm root = {.c = m->root};
        if (m->root)
            end_comm(m, &root);
    }
    free(m->index);
    free(m->comms);
    free(m);
}

static enum status nccl_open(struct meet **out, const struct meet_setup *s, struct error *error)
{
    struct meet *m = calloc(1, sizeof *m);
    size_t n = (size_t)s->channels->n * NQUEUES;
    if (!m || !(m->index = malloc((n + 1) * sizeof *m->index))) {
        free(m);
        return error_set(error, STATUS_WORLD, "out of memory");
    }
    memset(m->index, 0xff, (n + 1) * sizeof *m->index);
    m->f = s->nccl;
    m->cu = s->plugin->runtime;
    m->world = s->world;
    m->channels = s->channels;
    m->deadline_s = s->deadline_s;
    const char *why = connect_all(m, s);
    if (!why) {
        *out = m;
        return STATUS_OK;
    }
    enum status st = error_set(error, STATUS_WORLD, "%s", why);
    nccl_abort(m);
    nccl_close(m);
    return st;
}

static int dtype_of(enum dtype d)
{
    switch (d) {
    case DTYPE_F32:
        return NCCL_FLOAT32;
    case DTYPE_BF16:
        return NCCL_BFLOAT16;
    case DTYPE_F16:
        return NCCL_FLOAT16;
    case DTYPE_F64:
        return NCCL_FLOAT64;
    case DTYPE_I32:
        return NCCL_INT32;
    case NDTYPES:
        break;
    }
    return NCCL_INT8;
}

static bool is_dense(const struct view *v)
{
    return v->ld == v->cols || v->rows <= 1;
}

/* rows `part` of `parts` */
static void *part_of(const struct view *v, uint64_t part, uint64_t parts)
{
    return (uint8_t *)v->data + part * (v->rows / parts) * v->cols * isa_dtype_bytes(v->dtype);
}

/* grouped sends and receives: everyone to everyone, or around the ring */
static int exchange(struct meet *m, const struct meeting *g, uint32_t n, struct ncclComm *c, cuda_stream stream)
{
    int dtype = dtype_of(g->x.dtype), rc = m->f->GroupStart();
    bool ring = g->op == OP_SHIFT;
    uint64_t parts = ring ? 1 : n;
    size_t count = (size_t)(g->x.rows / parts) * g->x.cols;
    for (uint32_t i = 0; i < n && rc == NCCL_OK; i++) {
        if (ring && i != (g->self + g->argument) % n)
            continue;
        uint32_t from = ring ? (g->self + n - g->argument % n) % n : i;
        rc = m->f->Send(part_of(&g->x, ring ? 0 : i, parts), count, dtype, (int)i, c, stream);
        if (rc == NCCL_OK || rc == NCCL_IN_PROGRESS)
            rc = m->f->Recv(part_of(&g->y, ring ? 0 : from, parts), count, dtype, (int)from, c, stream);
        rc = rc == NCCL_IN_PROGRESS ? NCCL_OK : rc;
    }
    int end = m->f->GroupEnd(); /* also after a failure: a group must not stay open */
    return rc != NCCL_OK ? rc : end;
}

static int operate(struct meet *m, const struct meet_part *p, uint32_t n, struct ncclComm *c)
{
    const struct meeting *g = &p->m;
    int dtype = dtype_of(g->x.dtype), op = g->argument ? NCCL_MAX : NCCL_SUM;
    size_t nx = (size_t)g->x.rows * g->x.cols, ny = (size_t)g->y.rows * g->y.cols;
    if (g->op == OP_SEND)
        return m->f->Send(g->x.data, nx, dtype, 1, c, p->stream);
    if (g->op == OP_RECV)
        return m->f->Recv(g->y.data, ny, dtype, 0, c, p->stream);
    if (g->op == OP_ALL_REDUCE)
        return m->f->AllReduce(g->x.data, g->y.data, nx, dtype, op, c, p->stream);
    if (g->op == OP_ALL_GATHER)
        return m->f->AllGather(g->x.data, g->y.data, nx, dtype, c, p->stream);
    if (g->op == OP_REDUCE_SCATTER)
        return m->f->ReduceScatter(g->x.data, g->y.data, ny, dtype, NCCL_SUM, c, p->stream);
    if (g->op == OP_BROADCAST)
        return m->f->Broadcast(g->x.data, g->y.data, nx, dtype, (int)g->argument, c, p->stream);
    return exchange(m, g, n, c, p->stream); /* SHIFT and ALL_TO_ALL */
}

static size_t dense_bytes(const struct view *v)
{
    size_t bytes = (size_t)v->rows * v->cols * isa_dtype_bytes(v->dtype);
    return (bytes + 511) / 512 * 512;
}

/* Where x and y are packed: y at the workspace's beginning; x in its own part of a gathered y, in y's place where it is
 * y, else behind it.  A packed x of its own has that much. */
static bool gives(const struct meeting *g)
{
    return g->op != OP_RECV && !is_dense(&g->x);
}
static bool receives(const struct meeting *g)
{
    return g->op != OP_SEND && !is_dense(&g->y);
}
static bool is_one_operand(enum op op)
{
    return op == OP_ALL_REDUCE || op == OP_BROADCAST;
}

static size_t nccl_workspace_bytes(const struct meeting *g)
{
    bool apart = gives(g) && !is_one_operand(g->op) && g->op != OP_ALL_GATHER;
    return (receives(g) ? dense_bytes(&g->y) : 0) + (apart ? dense_bytes(&g->x) : 0);
}

/* rows of equal shapes */
static int copy_rows(const struct meet *m, const struct view *to, const struct view *from, cuda_stream stream)
{
    size_t size = isa_dtype_bytes(to->dtype);
    return m->cu->Memcpy2DAsync(to->data, to->ld * size, from->data, from->ld * size, to->cols * size, to->rows,
                                CUDA_COPY_DEFAULT, stream);
}

/* the part with operands that have no gaps, x's elements packed */
static const char *pack(const struct meet *m, const struct meet_part *p, struct meet_part *out)
{
    const struct meeting *g = &p->m;
    uint8_t *at = p->workspace;
    *out = *p;
    if (nccl_workspace_bytes(g) > p->workspace_bytes)
        return "there is no room to pack operands with gaps between rows";
    if (receives(g)) {
        out->m.y.data = at;
        out->m.y.ld = g->y.cols;
        at += dense_bytes(&g->y);
    }
    if (is_one_operand(g->op) && receives(g))
        out->m.x = out->m.y;
    else if (gives(g) && g->op == OP_ALL_GATHER)
        out->m.x.data = (uint8_t *)out->m.y.data +
                        (size_t)g->self * g->x.rows * g->x.cols * isa_dtype_bytes(g->x.dtype);
    else if (gives(g))
        out->m.x.data = at;
    if (!gives(g))
        return NULL;
    out->m.x.ld = g->x.cols;
    int rc = copy_rows(m, &out->m.x, &g->x, p->stream);
    return rc ? m->cu->GetErrorString(rc) : NULL;
}

static const char *nccl_launch(struct meet *m, const struct meet_part *given, uint32_t nparts)
{
    const struct channel *channel = &m->channels->list[given->m.channel];
    bool pair = given->m.op == OP_SEND || given->m.op == OP_RECV;
    struct meet_part packed, *p = &packed;
    if (nparts != 1)
        return "NCCL takes one rank per process";
    if (m->aborted)
        return "the communicators are gone";
    if (channel->nmembers == 1) {
        int rc = given->m.x.data == given->m.y.data ? 0 : copy_rows(m, &given->m.y, &given->m.x, given->stream);
        return rc ? m->cu->GetErrorString(rc) : NULL;
    }
    uint32_t i = m->index[given->m.channel * NQUEUES + (pair ? QUEUE_SEND : given->queue)];
    if (i == NONE)
        return "no communicator was made for it";
    const char *why = pack(m, given, p);
    if (why)
        return why;
    int rc = operate(m, p, channel->nmembers, m->comms[i].c);
    if (rc != NCCL_OK && rc != NCCL_IN_PROGRESS)
        return say(m, "launching", rc);
    why = settle(m, m->comms[i].c, "launching"); /* from here on the operation is on the stream */
    rc = why || !receives(&given->m) ? 0 : copy_rows(m, &given->m.y, &p->m.y, p->stream);
    return rc ? m->cu->GetErrorString(rc) : why;
}

static const char *nccl_poll(struct meet *m)
{
    for (uint32_t i = 0; i < m->ncomms && !m->aborted; i++) {
        int state = NCCL_OK, rc = m->f->CommGetAsyncError(m->comms[i].c, &state);
        if (rc == NCCL_OK && (state == NCCL_OK || state == NCCL_IN_PROGRESS))
            continue;
        char what[80];
        snprintf(what, sizeof what, "communicator %u of %u ranks on queue %s", m->comms[i].channel,
                 m->channels->list[m->comms[i].channel].nmembers, isa_queue_name((enum queue)m->comms[i].queue));
        return say(m, what, rc != NCCL_OK ? rc : state);
    }
    return NULL;
}

const struct meet_ops *meet_nccl(void)
{
    static const struct meet_ops nccl = {"nccl",      nccl_open, nccl_close, nccl_workspace_bytes,
                                         nccl_launch, nccl_poll, nccl_abort};
    return &nccl;
}
