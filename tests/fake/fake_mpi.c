#include "tests/fake/fake_mpi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024, MOST_DELAY = 6 };

struct post {
    bool used, sends, lost, done, cut;
    uint32_t rank, peer, tag, delay;
    enum mpi_lane lane;
    uint8_t *data;
    size_t bytes, came;
    uint64_t order;
    struct post *other; /* that it is matched with */
};
struct mpi_context {
    uint32_t rank;
};
static struct {
    pthread_mutex_t lock;
    struct fake_mpi_setup s;
    uint32_t nopen;
    uint64_t posts, sends, random;
    int aborted;
    char complaint[200];
    struct post post[MOST];
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void complain(const char *what, uint32_t rank, uint32_t peer)
{
    if (!fake.complaint[0])
        snprintf(fake.complaint, sizeof fake.complaint, "rank %u and %u: %s", rank, peer, what);
}

static uint32_t draw(uint32_t n)
{
    if (!fake.s.seed)
        return 0;
    fake.random = fake.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(fake.random >> 33) % n;
}

static const char *fake_open(struct mpi_context **out, struct mpi_place *place)
{
    struct mpi_context *c = fake.s.refuse ? NULL : malloc(sizeof *c);
    if (!c)
        return fake.s.refuse;
    pthread_mutex_lock(&fake.lock);
    c->rank = fake.nopen++;
    pthread_mutex_unlock(&fake.lock);
    *place = (struct mpi_place){c->rank, fake.s.nranks, fake.s.nranks, fake.s.tags};
    *out = c;
    return NULL;
}

static bool overlap(const struct post *a, const struct post *b)
{
    return a->bytes && b->bytes && a->data < b->data + b->bytes && b->data < a->data + a->bytes;
}

/* messages of one sender, receiver, lane and tag meet in their order */
static void match(struct post *p)
{
    struct post *first = NULL;
    for (struct post *q = fake.post; q < fake.post + MOST; q++)
        if (q->used && !q->other && !q->lost && q->sends != p->sends && q->rank == p->peer && q->peer == p->rank &&
            q->tag == p->tag && q->lane == p->lane && (!first || q->order < first->order))
            first = q;
    if (!first)
        return;
    p->other = first;
    first->other = p;
    p->delay = first->delay = draw(MOST_DELAY);
}

static enum mpi_state add(const struct post *what, struct mpi_request *out)
{
    struct post *p = fake.post;
    pthread_mutex_lock(&fake.lock);
    for (struct post *q = fake.post; q < fake.post + MOST; q++)
        if (q->used && q->rank == what->rank && !q->done && !(q->sends && what->sends) && overlap(q, what))
            complain("memory is in two messages", what->rank, what->peer);
    while (p->used && p < fake.post + MOST - 1)
        p++;
    if (p->used)
        complain("too many messages for a test", what->rank, what->peer);
    if (what->tag >= fake.s.tags || what->peer >= fake.s.nranks || what->peer == what->rank)
        complain("no such tag or peer", what->rank, what->peer);
    *p = *what;
    p->used = true;
    p->order = fake.posts++;
    p->lost = p->sends && ++fake.sends == fake.s.lose_send;
    if (!p->lost)
        match(p);
    out->word = (uint64_t)(p - fake.post);
    pthread_mutex_unlock(&fake.lock);
    return MESSAGE_OPEN;
}

static enum mpi_state fake_send(struct mpi_context *c, enum mpi_lane lane, uint32_t to, uint32_t tag, const void *data,
                                size_t bytes, struct mpi_request *out)
{
    return add(&(struct post){.sends = true, .rank = c->rank, .peer = to, .tag = tag, .lane = lane,
                              .data = (uint8_t *)(uintptr_t)data, .bytes = bytes}, out);
}

static enum mpi_state fake_receive(struct mpi_context *c, enum mpi_lane lane, uint32_t from, uint32_t tag, void *data,
                                   size_t bytes, struct mpi_request *out)
{
    return add(&(struct post){.rank = c->rank, .peer = from, .tag = tag, .lane = lane, .data = data, .bytes = bytes}, out);
}

static void move(struct post *sender, struct post *receiver)
{
    receiver->came = sender->bytes < receiver->bytes ? sender->bytes : receiver->bytes;
    receiver->cut = sender->bytes > receiver->bytes;
    memcpy(receiver->data, sender->data, receiver->came);
    sender->done = receiver->done = true;
}

static enum mpi_state test_locked(struct post *p, size_t *bytes)
{
    if (p->lost)
        return MESSAGE_FAILED;
    if (!p->done && p->other) {
        if (p->delay) {
            p->delay--;
            p->other->delay = p->delay;
            return MESSAGE_OPEN;
        }
        move(p->sends ? p : p->other, p->sends ? p->other : p);
    }
    if (!p->done)
        return MESSAGE_OPEN;
    *bytes = p->came;
    p->used = false;
    return p->cut ? MESSAGE_FAILED : MESSAGE_DONE;
}

static enum mpi_state fake_test(struct mpi_context *c, struct mpi_request *request, size_t *bytes)
{
    struct post *p = &fake.post[request->word];
    pthread_mutex_lock(&fake.lock);
    if (!p->used || p->rank != c->rank)
        complain("no such message", c->rank, c->rank);
    enum mpi_state state = test_locked(p, bytes);
    pthread_mutex_unlock(&fake.lock);
    return state;
}

static const char *fake_words(const struct mpi_context *c)
{
    (void)c;
    return "the fake lost it";
}

static void fake_describe(const struct mpi_context *c, char *out, size_t size)
{
    (void)c;
    snprintf(out, size, "fake MPI");
}

static void fake_abort(struct mpi_context *c, int code)
{
    (void)c;
    fake.aborted = fake.aborted ? fake.aborted : code;
}

static void fake_close(struct mpi_context *c)
{
    pthread_mutex_lock(&fake.lock);
    for (struct post *p = fake.post; p < fake.post + MOST; p++)
        if (p->used && p->rank == c->rank)
            complain("a message was left behind", p->rank, p->peer);
    pthread_mutex_unlock(&fake.lock);
    free(c);
}

const struct mpi_plugin *fake_mpi_start(const struct fake_mpi_setup *s)
{
    static const struct mpi_plugin plugin = {.shape = MPI_PLUGIN_SHAPE,
                                             .open = fake_open,
                                             .send = fake_send,
                                             .receive = fake_receive,
                                             .test = fake_test,
                                             .words = fake_words,
                                             .describe = fake_describe,
                                             .abort = fake_abort,
                                             .close = fake_close};
    memset(fake.post, 0, sizeof fake.post);
    fake.s = *s;
    fake.random = s->seed;
    fake.nopen = 0;
    fake.posts = fake.sends = 0;
    fake.aborted = 0;
    fake.complaint[0] = 0;
    return &plugin;
}

void fake_mpi_complaints(char *out, size_t size)
{
    snprintf(out, size, "%s", fake.complaint);
}

int fake_mpi_aborted(void)
{
    return fake.aborted;
}
