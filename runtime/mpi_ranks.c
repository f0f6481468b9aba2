/* Meetings of all ranks over MPI's lane for control.  Rank 0 takes everybody's message in the order of ranks, then
 * answers all; nothing here is on the way of a step but a pulse twice a second.
 *
 * A run fails as MPI programs do: the rank that fails says why and aborts the job, and the launcher ends the others
 * wherever they are.  Of several that fail at once the first one speaks. */

#include "runtime/mpi_ranks.h"
#include "runtime/file.h"
#include "runtime/hash.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG_JOIN = 1, TAG_SUM, TAG_PULSE, TAG_FAIL, MOST_VALUES = 4096, HASH = 64, WORDS = 1000, PULSE_NS = 500000000 };

struct introduction {
    uint64_t step, build;
    uint32_t status, plan_ranks;
    char plan_hash[HASH], secret[HASH], host[WORLD_HOST], words[WORDS];
};
struct verdict {
    uint32_t status;
};
struct pulse {         /* what exec_report.c says of a rank */
    uint64_t progress; /* rank 0's: of all ranks */
    uint32_t last, state, step, evaluating, running, head[NQUEUES];
    uint32_t work_steps; /* see slowness.h */
    uint64_t work_ns[WORK_KINDS];
    uint64_t waited[WAITED_WORDS]; /* see waits.h */
};
struct peer {
    uint32_t rank;
    struct pulse pulse;
    struct mpi_request sending, receiving;
    bool is_sending, is_receiving;
    int64_t heard_ns; /* when its last pulse came */
};
struct notice { /* that a rank has failed */
    struct mpi_request request;
    uint8_t failed;
};
struct mpi_pulses {
    struct pulse mine;
    int64_t next_ns;
    uint32_t npeers;
    struct peer peers[]; /* rank 0's are all others, and theirs is rank 0 */
};

enum status mpi_load(const struct mpi_plugin **out, struct error *error)
{
    char path[FILE_PATH];
    const char *given = getenv("LLMRUN_MPI");
    file_beside_program("llmrun-mpi.so", path, sizeof path);
    const char *name = given ? given : path;
    if (access(name, R_OK))
        return error_set(error, STATUS_WORLD,
                         "--transport mpi needs the plugin %s, which is not there: `make` builds it where Open MPI's "
                         "headers are (Debian: libopenmpi-dev)",
                         name);
    void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL); /* parts of MPI libraries look for the library's names */
    const struct mpi_plugin *p = library ? dlsym(library, "llmrun_mpi") : NULL;
    if (!p)
        return error_set(error, STATUS_WORLD, "--transport mpi needs its plugin: %s", dlerror());
    if (p->shape != MPI_PLUGIN_SHAPE)
        return error_set(error, STATUS_WORLD, "--transport mpi needs a plugin of this version: %s is another", name);
    *out = p;
    return STATUS_OK;
}

static int64_t deadline(double seconds)
{
    return world_now_ns() + (int64_t)(seconds * 1e9);
}

/* Where ranks step, they come as soon as the watchdog wants it; rank 0, which knows most, speaks first.  Elsewhere one
 * may be loading or writing files. */
static double patience(const struct mpi_ranks *m)
{
    const struct world *w = m->world;
    bool steps = w && atomic_load(&w->ranks[w->rank].state) == RANK_STEPPING;
    return steps ? m->step_patience_s + (w->rank ? 5 : 0) : m->patience_s;
}

/* how long nothing is heard of a rank before it counts as silent; a pulse comes twice a second */
static double silence_s(const struct mpi_ranks *m)
{
    double half_s = m->step_patience_s / 2, least_s = 2.5 * PULSE_NS * 1e-9;
    return half_s < least_s ? least_s : half_s > 10 ? 10 : half_s;
}

static bool is_silent(const struct mpi_ranks *m, const struct peer *p, int64_t now)
{
    return p->heard_ns && (double)(now - p->heard_ns) * 1e-9 > silence_s(m);
}

static enum status late(struct mpi_ranks *m, uint32_t peer, double patience_s, struct error *error)
{
    char words[400];
    if (m->world && mpi_ranks_silent(m, words, sizeof words))
        return error_set(error, STATUS_WORLD, "rank %u does not come within %.0f s: %s", peer, patience_s, words);
    return error_set(error, STATUS_WORLD, "rank %u does not come within %.0f s", peer, patience_s);
}

static void look(void *context, const struct world *w);

/* Is its time up for `peer`?  Then the next pulse decides whether it is late, or not heard of any more. */
static bool is_late(const struct mpi_ranks *m, uint32_t peer, int64_t end)
{
    int64_t now = world_now_ns();
    const struct peer *p = m->world ? &m->pulses->peers[m->place.rank ? 0 : peer - 1] : NULL;
    bool open = p && p->heard_ns && p->heard_ns < end && !is_silent(m, p, now);
    return now > end && !open;
}

/* a message to or from `peer`, on its way, until it is done */
static enum status finish(struct mpi_ranks *m, enum mpi_state state, struct mpi_request *request, uint32_t peer,
                          size_t *bytes, double patience_s, struct error *error)
{
    int64_t end = deadline(patience_s);
    for (uint32_t polls = 0; state == MESSAGE_OPEN; polls++) {
        state = m->plugin->test(m->context, request, bytes);
        if (state == MESSAGE_OPEN && m->world && polls >= 100)
            look(m, m->world); /* who waits is not silent, and hears who is */
        if (state == MESSAGE_OPEN && is_late(m, peer, end))
            return late(m, peer, patience_s, error);
        if (state == MESSAGE_OPEN && polls < 100)
            sched_yield();
        else if (state == MESSAGE_OPEN)
            usleep(100);
    }
    return state == MESSAGE_DONE
               ? STATUS_OK
               : error_set(error, STATUS_WORLD, "rank %u cannot be reached: %s", peer, m->plugin->words(m->context));
}

static enum status receive(struct mpi_ranks *m, uint32_t from, uint32_t tag, void *data, size_t room, size_t *bytes,
                           struct error *error)
{
    struct mpi_request request;
    enum mpi_state state = m->plugin->receive(m->context, LANE_CONTROL, from, tag, data, room, &request);
    return finish(m, state, &request, from, bytes, patience(m), error);
}

static enum status send(struct mpi_ranks *m, uint32_t to, uint32_t tag, const void *data, size_t bytes,
                        struct error *error)
{
    struct mpi_request request;
    size_t came;
    enum mpi_state state = m->plugin->send(m->context, LANE_CONTROL, to, tag, data, bytes, &request);
    return finish(m, state, &request, to, &came, patience(m), error);
}

/* rank 0's answer to all; each has asked, so that none of them is long in coming */
static enum status answer(struct mpi_ranks *m, uint32_t tag, const void *data, size_t bytes, struct error *error)
{
    for (uint32_t r = 1; r < m->place.nranks; r++)
        TRY(send(m, r, tag, data, bytes, error));
    return STATUS_OK;
}

/* values: room for MOST_VALUES at rank 0, behind the n that are summed */
static enum status sum(void *context, uint64_t *values, uint32_t n, struct error *error)
{
    struct mpi_ranks *m = context;
    uint64_t message[MOST_VALUES + 1] = {n}; /* a count, and so many values */
    size_t bytes = (n + (size_t)1) * sizeof *message, came;
    if (n > MOST_VALUES)
        return error_set(error, STATUS_WORLD, "%u values are too many for one sum", n);
    if (m->place.rank) {
        memcpy(message + 1, values, n * sizeof *values);
        TRY(send(m, 0, TAG_SUM, message, bytes, error));
        TRY(receive(m, 0, TAG_SUM, message, sizeof message, &came, error));
    }
    for (uint32_t r = 1; r < m->place.nranks && !m->place.rank; r++) {
        TRY(receive(m, r, TAG_SUM, message, sizeof message, &came, error));
        if (came != bytes || message[0] != n)
            return error_set(error, STATUS_BUG, "rank %u meets the others elsewhere", r);
        for (uint32_t i = 0; i < n; i++)
            values[i] += message[1 + i];
    }
    if (m->place.rank) {
        memcpy(values, message + 1, n * sizeof *values);
        return STATUS_OK;
    }
    memcpy(message + 1, values, n * sizeof *values);
    return answer(m, TAG_SUM, message, bytes, error);
}

/* is it a run, as far as this rank's introduction says?  own: rank 0's */
static enum status judge(const struct mpi_ranks *m, uint32_t rank, const struct introduction *i,
                         const struct introduction *own, struct error *error)
{
    if (i->status != STATUS_OK)
        return error_set(error, (enum status)i->status, "rank %u: %.*s", rank, WORDS - 1, i->words);
    if (i->build != own->build)
        return error_set(error, STATUS_MISMATCH, "rank %u on %.*s runs another build of llmrun than rank 0", rank,
                         WORLD_HOST - 1, i->host);
    if (memcmp(i->secret, own->secret, HASH) != 0)
        return error_set(error, STATUS_MISMATCH, "rank %u on %.*s has another secret than rank 0", rank, WORLD_HOST - 1,
                         i->host);
    if (memcmp(i->plan_hash, own->plan_hash, HASH) != 0)
        return error_set(error, STATUS_MISMATCH, "rank %u has another plan than rank 0: %.16s..., not %.16s...", rank,
                         i->plan_hash, own->plan_hash);
    if (i->step != own->step)
        return error_set(error, STATUS_MISMATCH, "rank %u would go on from step %llu, rank 0 from step %llu", rank,
                         (unsigned long long)i->step, (unsigned long long)own->step);
    if (rank == 0 && i->plan_ranks != m->place.nranks)
        return error_set(error, STATUS_MISMATCH,
                         "%u rank%s started, the plan is for %u: mpirun -n %u llmrun ..., or srun --mpi=pmix -n %u",
                         m->place.nranks, m->place.nranks == 1 ? " was" : "s were", i->plan_ranks, i->plan_ranks,
                         i->plan_ranks);
    return STATUS_OK;
}

/* what ranks compare in place of LLMRUN_SECRET */
static void hash_secret(char out[HASH])
{
    static const char role[] = "llmrun over MPI";
    const char *secret = getenv("LLMRUN_SECRET");
    char digest[HASH + 1];
    struct sha256 s;
    sha256_start(&s);
    sha256_add(&s, role, sizeof role);
    sha256_add(&s, secret ? secret : "", secret ? strlen(secret) : 0);
    sha256_finish(&s, digest);
    memcpy(out, digest, HASH);
}

enum status mpi_ranks_join(struct mpi_ranks *m, const struct mpi_start *start, struct error *error)
{
    struct introduction own = {.status = start->status, .plan_ranks = start->plan_ranks, .step = start->step}, other;
    struct verdict verdict;
    size_t bytes = 0;
    own.build = start->build;
    hash_secret(own.secret);
    gethostname(own.host, sizeof own.host - 1);
    memcpy(m->hosts[m->place.rank], own.host, WORLD_HOST);
    if (start->plan_hash)
        memcpy(own.plan_hash, start->plan_hash, strnlen(start->plan_hash, HASH));
    snprintf(own.words, sizeof own.words, "%.*s", WORDS - 1, error->text);
    error->text[0] = 0;
    if (m->place.rank) {
        TRY(send(m, 0, TAG_JOIN, &own, sizeof own, error));
        TRY(receive(m, 0, TAG_JOIN, &verdict, sizeof verdict, &bytes, error));
        return bytes == sizeof verdict ? (enum status)verdict.status : STATUS_WORLD;
    }
    enum status st = judge(m, 0, &own, &own, error);
    for (uint32_t r = 1; r < m->place.nranks; r++) {
        struct error words = {""};
        enum status one = receive(m, r, TAG_JOIN, &other, sizeof other, &bytes, &words);
        if (one == STATUS_OK && bytes != sizeof other)
            one = error_set(&words, STATUS_MISMATCH, "rank %u runs another version of llmrun", r);
        if (one == STATUS_OK)
            one = judge(m, r, &other, &own, &words);
        if (bytes == sizeof other)
            snprintf(m->hosts[r], WORLD_HOST, "%.*s", WORLD_HOST - 1, other.host);
        if (st == STATUS_OK && one != STATUS_OK)
            st = error_set(error, one, "%s", words.text);
    }
    verdict.status = (uint32_t)st;
    struct error ignored;
    enum status told = answer(m, TAG_JOIN, &verdict, sizeof verdict, &ignored);
    return st == STATUS_OK ? told : st;
}

/* ---- pulses ---- */

static void lost(const struct world *w, const struct mpi_ranks *m, uint32_t rank)
{
    world_fail(w, STATUS_WORLD, "rank %u is gone: %s", rank, m->plugin->words(m->context));
}

static void listen_to(struct mpi_ranks *m, const struct world *w, struct peer *p)
{
    enum mpi_state state = m->plugin->receive(m->context, LANE_CONTROL, p->rank, TAG_PULSE, &p->pulse, sizeof p->pulse,
                                              &p->receiving);
    p->is_receiving = state == MESSAGE_OPEN;
    if (!p->is_receiving && w)
        lost(w, m, p->rank);
}

/* w: NULL at the end of a run, when nobody wants to know any more */
static void hear(struct mpi_ranks *m, const struct world *w, struct peer *p)
{
    size_t bytes;
    enum mpi_state state = p->is_receiving ? m->plugin->test(m->context, &p->receiving, &bytes) : MESSAGE_OPEN;
    if (state == MESSAGE_OPEN)
        return;
    p->is_receiving = false;
    p->heard_ns = world_now_ns();
    if (state == MESSAGE_FAILED && w)
        lost(w, m, p->rank);
    if (state == MESSAGE_FAILED)
        return;
    if (w) {
        struct world_rank *face = &w->ranks[p->rank];
        atomic_store(&face->progress, p->pulse.progress);
        atomic_store(&face->state, p->pulse.state);
        atomic_store(&face->step, p->pulse.step);
        atomic_store(&face->evaluating, p->pulse.evaluating);
        atomic_store(&face->running, p->pulse.running);
        for (uint32_t q = 0; q < NQUEUES; q++)
            atomic_store(&face->head[q], p->pulse.head[q]);
        for (uint32_t k = 0; k < WORK_KINDS; k++)
            atomic_store(&face->work_ns[k], p->pulse.work_ns[k]);
        atomic_store(&face->work_steps, p->pulse.work_steps);
        for (uint32_t k = 0; k < WAITED_WORDS; k++)
            atomic_store_explicit(&face->waited[k], p->pulse.waited[k], memory_order_relaxed);
    }
    if (!p->pulse.last)
        listen_to(m, w, p);
}

static void speak(struct mpi_ranks *m, const struct world *w, struct peer *p)
{
    enum mpi_state state = m->plugin->send(m->context, LANE_CONTROL, p->rank, TAG_PULSE, &m->pulses->mine,
                                           sizeof m->pulses->mine, &p->sending);
    p->is_sending = state == MESSAGE_OPEN;
    if (state == MESSAGE_FAILED && w)
        lost(w, m, p->rank);
}

static bool is_speaking(struct mpi_ranks *m, const struct world *w, struct peer *p)
{
    size_t bytes;
    enum mpi_state state = p->is_sending ? m->plugin->test(m->context, &p->sending, &bytes) : MESSAGE_DONE;
    p->is_sending = state == MESSAGE_OPEN;
    if (state == MESSAGE_FAILED && w)
        lost(w, m, p->rank);
    return p->is_sending;
}

static void look(void *context, const struct world *w)
{
    struct mpi_ranks *m = context;
    struct mpi_pulses *all = m->pulses;
    int64_t now = world_now_ns();
    bool busy = false;
    if (now < all->next_ns)
        return;
    all->next_ns = now + PULSE_NS;
    if (getppid() != m->parent)
        world_fail(w, STATUS_WORLD, "the process that started this rank is gone");
    for (uint32_t i = 0; i < all->npeers; i++) {
        hear(m, w, &all->peers[i]);
        busy |= is_speaking(m, w, &all->peers[i]);
    }
    if (busy) /* somebody has not taken the last one, and it may not change before */
        return;
    const struct world_rank *face = &w->ranks[w->rank];
    all->mine = (struct pulse){.state = atomic_load(&face->state),
                               .step = atomic_load(&face->step),
                               .evaluating = atomic_load(&face->evaluating),
                               .running = atomic_load(&face->running),
                               .progress = w->rank ? atomic_load(&face->progress) : 0};
    for (uint32_t q = 0; q < NQUEUES; q++)
        all->mine.head[q] = atomic_load(&face->head[q]);
    all->mine.work_steps = atomic_load(&face->work_steps);
    for (uint32_t k = 0; k < WORK_KINDS; k++)
        all->mine.work_ns[k] = atomic_load(&face->work_ns[k]);
    for (uint32_t k = 0; k < WAITED_WORDS; k++)
        all->mine.waited[k] = atomic_load_explicit(&face->waited[k], memory_order_relaxed);
    for (uint32_t r = 0; r < w->nranks && !w->rank; r++)
        all->mine.progress += atomic_load(&w->ranks[r].progress);
    for (uint32_t i = 0; i < all->npeers; i++)
        speak(m, w, &all->peers[i]);
}

/* Every pulse that was sent is received, so that nothing is on its way when MPI ends: each says which is its last. */
static void stop_pulses(struct mpi_ranks *m)
{
    struct mpi_pulses *all = m->pulses;
    int64_t end = deadline(10);
    bool said = false, busy = true;
    while (busy && world_now_ns() < end) {
        busy = false;
        for (uint32_t i = 0; i < all->npeers; i++) {
            hear(m, NULL, &all->peers[i]);
            busy |= is_speaking(m, NULL, &all->peers[i]) || (said && all->peers[i].is_receiving);
        }
        if (!busy && !said) {
            all->mine.last = said = busy = true;
            for (uint32_t i = 0; i < all->npeers; i++)
                speak(m, NULL, &all->peers[i]);
        }
        sched_yield();
    }
}

/* ---- silence ---- */

/* ranks of a host of which nothing is heard, and of which something is, rank 0 among these */
static void count_host(const struct mpi_ranks *m, const char *host, int64_t now, uint32_t *silent, uint32_t *heard)
{
    *silent = 0;
    *heard = !strcmp(m->hosts[0], host);
    for (uint32_t i = 0; i < m->pulses->npeers; i++)
        if (!strcmp(m->hosts[i + 1], host))
            ++*(is_silent(m, &m->pulses->peers[i], now) ? silent : heard);
}

/* the ranks of the host of the peer `first`, which is the first silent one there; how many characters it took */
static int list_silent(const struct mpi_ranks *m, uint32_t first, int64_t now, char *out, size_t size)
{
    enum { NAMED = 8 };
    const char *host = m->hosts[first + 1];
    uint32_t silent, heard, n = 0;
    count_host(m, host, now, &silent, &heard);
    int at = snprintf(out, size, "rank%s ", silent > 1 ? "s" : "");
    for (uint32_t i = first; i < m->pulses->npeers && (size_t)at < size && n <= NAMED; i++)
        if (!strcmp(m->hosts[i + 1], host) && is_silent(m, &m->pulses->peers[i], now) && n++ < NAMED)
            at += snprintf(out + at, size - (size_t)at, "%s%u", n > 1 ? ", " : "", i + 1);
    if ((size_t)at < size)
        at += snprintf(out + at, size - (size_t)at, "%s on %s for %.0f s: %s%s%s", n > NAMED ? " and more" : "", host,
                       (double)(now - m->pulses->peers[first].heard_ns) * 1e-9,
                       heard ? "other ranks there answer, so it is the process that stands still"
                             : "the link between it and ",
                       heard ? "" : m->hosts[0], heard ? "" : " is cut, or the host is down");
    return at;
}

bool mpi_ranks_silent(const struct mpi_ranks *m, char *out, size_t size)
{
    int64_t now = world_now_ns();
    int at = 0;
    if (m->place.rank)
        return false;
    for (uint32_t i = 0; i < m->pulses->npeers && (size_t)at < size; i++) {
        bool silent = is_silent(m, &m->pulses->peers[i], now), first = silent;
        for (uint32_t k = 0; k < i && first; k++)
            first = strcmp(m->hosts[k + 1], m->hosts[i + 1]) != 0 || !is_silent(m, &m->pulses->peers[k], now);
        if (first)
            at += snprintf(out + at, size - (size_t)at, "%snothing is heard of ", at ? "; " : "");
        if (first && (size_t)at < size)
            at += list_silent(m, i, now, out + at, size - (size_t)at);
    }
    return at > 0;
}

/* ---- opening and closing ---- */

static enum status open_pulses(struct mpi_ranks *m)
{
    uint32_t npeers = m->place.rank ? 1 : m->place.nranks - 1;
    m->pulses = calloc(1, sizeof *m->pulses + npeers * sizeof *m->pulses->peers);
    if (!m->pulses)
        return STATUS_WORLD;
    m->pulses->npeers = npeers;
    for (uint32_t i = 0; i < npeers; i++) {
        m->pulses->peers[i].rank = m->place.rank ? 0 : i + 1;
        listen_to(m, NULL, &m->pulses->peers[i]);
    }
    return STATUS_OK;
}

enum status mpi_ranks_open(struct mpi_ranks **out, const struct mpi_plugin *plugin, struct error *error)
{
    struct mpi_ranks *m = calloc(1, sizeof *m);
    if (!m)
        return STATUS_WORLD;
    m->plugin = plugin;
    m->patience_s = m->step_patience_s = 600;
    m->parent = getppid();
    m->remote = (struct world_remote){.sum = sum, .look = look, .context = m};
    const char *why = plugin->open(&m->context, &m->place);
    m->notices = why ? NULL : calloc(m->place.nranks, sizeof *m->notices);
    m->hosts = why ? NULL : calloc(m->place.nranks, sizeof *m->hosts);
    if (why || !m->notices || !m->hosts || open_pulses(m) != STATUS_OK) {
        free(m->notices);
        free(m->hosts);
        free(m);
        return error_set(error, STATUS_WORLD, "--transport mpi: %s", why ? why : "out of memory");
    }
    *out = m;
    return STATUS_OK;
}

/* Tells higher ranks of this one's failure, and listens for a moment whether a lower one has failed, too. */
static bool another_speaks(struct mpi_ranks *m)
{
    static const uint8_t failed = 1;
    struct notice *all = m->notices;
    uint32_t rank = m->place.rank;
    bool heard = false;
    for (uint32_t r = 0; r < m->place.nranks; r++)
        if (r < rank)
            m->plugin->receive(m->context, LANE_CONTROL, r, TAG_FAIL, &all[r].failed, 1, &all[r].request);
        else if (r > rank)
            m->plugin->send(m->context, LANE_CONTROL, r, TAG_FAIL, &failed, 1, &all[r].request);
    for (int64_t end = deadline(0.5); rank && !heard && world_now_ns() < end; usleep(1000))
        for (uint32_t r = 0; r < rank && !heard; r++) {
            size_t bytes;
            heard = m->plugin->test(m->context, &all[r].request, &bytes) == MESSAGE_DONE && all[r].failed;
        }
    return heard;
}

void mpi_ranks_abort(struct mpi_ranks *m, enum status st, const char *words)
{
    bool quiet = another_speaks(m);
    for (int64_t end = deadline(m->patience_s < 10 ? m->patience_s : 10); quiet && world_now_ns() < end;)
        usleep(10000); /* until the launcher ends this process */
    fflush(NULL);
    if (!quiet)
        fprintf(stderr, "llmrun: rank %u: %s\n", m->place.rank, words);
    m->plugin->abort(m->context, (int)st);
}

void mpi_ranks_close(struct mpi_ranks *m)
{
    if (!m)
        return;
    stop_pulses(m);
    m->plugin->close(m->context);
    free(m->pulses);
    free(m->notices);
    free(m->hosts);
    free(m);
}
