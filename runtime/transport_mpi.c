/* Meetings by messages: members' arenas are their own, and what one needs of another comes as it was posted.
 *
 * A meeting goes in rounds.  In each a member gives every other a share of its x, and takes a share for its y; the
 * shares follow from the operation alone (gives(), takes()), so that both sides know sizes without a word.  An
 * operand's elements travel from where they lie if they lie side by side, else by way of a slot of the meeting's
 * window.  A share is at most a piece, which bounds the windows and the size of messages.
 *
 * Sums are computed by their owner alone, from all members' shares in member order, by the code that shared memory
 * uses: the same bits.  Of a reduce-scatter the owner is the member that receives; of an all-reduce each member owns a
 * share of the round, and a second exchange brings the sums back to all: 2 (n - 1) / n of the operand each way, as a
 * ring, but two messages long instead of 2 (n - 1) (Thakur, Rabenseifner, Gropp 2005, section 4.5: pairwise exchange).
 *
 * Two ranks may share several channels, and a channel DEPTH meetings at once; each has its own tag.  Tags are numbered
 * by pairs of ranks, so that few are needed: MPI promises no more than 32,768.  A post is refused until the meeting
 * DEPTH earlier has ended here, so that messages of one tag are sent, and awaited, in the order of meetings. */

#include "kernels/cpu/sums.h"
#include "runtime/mpi_ranks.h"
#include "runtime/program.h"
#include "runtime/transport_way.h"

#include <stdlib.h>
#include <string.h>

/* Windows: ROUND bytes each way shared by the members' pieces.  A player has no more than one meeting per queue open.
 */
enum { DEPTH = 4, WINDOWS = 8, ROUND = 16 << 20, LEAST_PIECE = 64 << 10, MOST_PIECE = 8 << 20 };

_Static_assert((int)WINDOWS >= (int)NQUEUES, "a meeting of each queue has a window");

struct message {
    struct mpi_request request;
    uint32_t peer;
    bool receiving;
    size_t bytes;
    struct side to; /* where the slot's elements go when they have come; data NULL: nowhere */
    uint64_t first, n;
    uint8_t *slot;
};
struct work {          /* an open meeting */
    struct line *line; /* NULL: none */
    struct meeting m;
    uint64_t at;    /* elements of each lot that earlier rounds have moved */
    bool returning; /* an all-reduce's sums go back */
    uint32_t nmessages, nended;
    struct message *messages; /* two per member */
    uint8_t *window;          /* two slots per member: for what comes from it, and for what it gets */
};
struct line { /* a channel as this process knows it */
    struct channel channel;
    size_t piece;  /* bytes, at most, of a share */
    uint32_t *tag; /* by member: the first of DEPTH */
    struct work *work[DEPTH];
    uint64_t ended[DEPTH];   /* number + 1 of the last meeting in that turn that ended here */
    uint32_t awaited[DEPTH]; /* in the meeting of each turn: the rank of the last message that had not come; NONE */
};
struct transport_messages {
    struct transport base;
    struct mpi_ranks *mpi;
    struct line *lines;
    uint32_t *tags; /* storage for the lines' */
    struct message *messages;
    struct work works[WINDOWS];
};
struct share { /* n elements of an operand, from `first` on */
    struct side side;
    uint64_t first, n;
};

/* ---- opening ---- */

static size_t piece_bytes(uint32_t nmembers)
{
    size_t bytes = ROUND / (nmembers ? nmembers : 1) / 64 * 64;
    return bytes < LEAST_PIECE ? LEAST_PIECE : bytes > MOST_PIECE ? MOST_PIECE : bytes;
}

static uint32_t most_members(const struct channel *channels, uint32_t nchannels)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < nchannels; i++)
        most = channels[i].nmembers > most ? channels[i].nmembers : most;
    return most;
}

static size_t window_bytes(const struct channel *channels, uint32_t nchannels)
{
    size_t most = 0;
    for (uint32_t i = 0; i < nchannels; i++) {
        size_t bytes = 2 * channels[i].nmembers * piece_bytes(channels[i].nmembers);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t transport_mpi_bytes(const struct channel *channels, uint32_t nchannels)
{
    return WINDOWS * window_bytes(channels, nchannels);
}

/* A pair of ranks numbers the channels that both are in, in their order, which is the same on both.  The greatest tag.
 */
static bool make_tags(struct transport_messages *t, uint32_t nchannels, uint64_t *most)
{
    const struct world *w = t->base.world;
    uint32_t *next = t->tags, *shared = calloc(w->nranks, sizeof *shared);
    if (!shared)
        return false;
    *most = 0;
    for (uint32_t i = 0; i < nchannels; i++) {
        struct line *l = &t->lines[i];
        bool member = false;
        for (uint32_t k = 0; k < l->channel.nmembers; k++)
            member |= l->channel.members[k] == w->rank;
        l->tag = next;
        next += l->channel.nmembers;
        for (uint32_t k = 0; k < l->channel.nmembers && member; k++) {
            l->tag[k] = DEPTH * shared[l->channel.members[k]]++;
            *most = l->tag[k] + DEPTH - 1u > *most ? l->tag[k] + DEPTH - 1u : *most;
        }
    }
    free(shared);
    return true;
}

static void messages_close(struct transport *base)
{
    struct transport_messages *t = (struct transport_messages *)base;
    free(t->lines);
    free(t->tags);
    free(t->messages);
    free(t);
}

static enum status messages_open(struct transport **out, struct world *w, const struct channel *channels,
                                 uint32_t nchannels)
{
    struct transport_messages *t = calloc(1, sizeof *t);
    size_t members = 1, each = 2 * (size_t)most_members(channels, nchannels);
    uint64_t most;
    if (!t)
        return STATUS_WORLD;
    for (uint32_t i = 0; i < nchannels; i++)
        members += channels[i].nmembers;
    t->base = (struct transport){&transport_mpi, w};
    t->mpi = w->mpi;
    t->lines = calloc((size_t)nchannels + 1, sizeof *t->lines);
    t->tags = calloc(members, sizeof *t->tags);
    t->messages = calloc(WINDOWS * each, sizeof *t->messages);
    for (uint32_t i = 0; i < nchannels && t->lines; i++)
        t->lines[i] = (struct line){.channel = channels[i], .piece = piece_bytes(channels[i].nmembers)};
    for (uint32_t i = 0; i < WINDOWS; i++) {
        t->works[i].messages = t->messages + i * each;
        t->works[i].window = w->transport + i * window_bytes(channels, nchannels);
    }
    if (!t->lines || !t->tags || !t->messages || !make_tags(t, nchannels, &most)) {
        messages_close(&t->base);
        return STATUS_WORLD;
    }
    if (most >= t->mpi->place.tags) {
        world_fail(w, STATUS_MISMATCH, "two ranks share more groups than this MPI library has tags for (%u)",
                   t->mpi->place.tags);
        messages_close(&t->base);
        return STATUS_MISMATCH;
    }
    *out = &t->base;
    return STATUS_OK;
}

/* ---- shares ---- */

static struct side side_of(const struct view *v)
{
    return (struct side){v->data, v->cols, v->ld, isa_dtype_bytes(v->dtype)};
}

static uint32_t members_of(const struct work *w)
{
    return w->line->channel.nmembers;
}

/* the rank that all get it from: BROADCAST's root, or SEND's member 0 */
static uint32_t root_of(const struct meeting *m)
{
    return m->op == OP_BROADCAST ? m->argument : 0;
}

static bool is_sum(const struct work *w)
{
    return w->m.op == OP_REDUCE_SCATTER || (w->m.op == OP_ALL_REDUCE && !w->returning);
}

static uint64_t lot_elements(const struct work *w)
{
    return transport_lots(w->m.op, w->m.x.rows, w->m.x.cols, members_of(w)).elements;
}

/* elements of each lot that this round moves; of an all-reduce every member has a piece of them */
static uint64_t round_elements(const struct work *w)
{
    uint64_t left = lot_elements(w) - w->at, piece = w->line->piece / isa_dtype_bytes(w->m.x.dtype);
    uint64_t most = w->m.op == OP_ALL_REDUCE ? piece * members_of(w) : piece;
    return left < most ? left : most;
}

/* what of an all-reduce's round is a member's to add up */
static struct share own_share(const struct work *w, uint32_t member)
{
    uint64_t n = round_elements(w), each = (n + members_of(w) - 1) / members_of(w), first = each * member;
    first = first < n ? first : n;
    return (struct share){side_of(&w->m.x), w->at + first, n - first < each ? n - first : each};
}

/* what this member gives another, or keeps for itself */
static struct share gives(const struct work *w, uint32_t to)
{
    const struct meeting *m = &w->m;
    uint64_t n = round_elements(w), lot = lot_elements(w);
    struct share s = {side_of(&m->x), w->at, n};
    if (m->op == OP_ALL_REDUCE)
        return own_share(w, w->returning ? m->self : to);
    if (m->op == OP_REDUCE_SCATTER || m->op == OP_ALL_TO_ALL)
        s.first += lot * to;
    else if (m->op == OP_SHIFT)
        s.n = (m->self + m->argument) % members_of(w) == to ? n : 0;
    else if (m->op != OP_ALL_GATHER)
        s.n = root_of(m) == m->self ? n : 0;
    return s;
}

/* what it takes from another; of sums: what is to be added */
static struct share takes(const struct work *w, uint32_t from)
{
    const struct meeting *m = &w->m;
    uint64_t n = round_elements(w), lot = lot_elements(w);
    struct share s = {side_of(&m->y), w->at, n};
    if (m->op == OP_ALL_REDUCE)
        return own_share(w, w->returning ? from : m->self);
    if (m->op == OP_ALL_GATHER || m->op == OP_ALL_TO_ALL)
        s.first += lot * from;
    else if (m->op == OP_SHIFT)
        s.n = (from + m->argument) % members_of(w) == m->self ? n : 0;
    else if (m->op != OP_REDUCE_SCATTER)
        s.n = root_of(m) == from ? n : 0;
    return s;
}

/* ---- messages ---- */

static uint8_t *slot_of(const struct work *w, uint32_t member, bool receiving)
{
    return w->window + (2 * (size_t)member + !receiving) * w->line->piece;
}

static void fail_message(const struct transport_messages *t, const struct message *x)
{
    world_fail(t->base.world, STATUS_WORLD, "a message %s rank %u is lost: %s", x->receiving ? "from" : "to", x->peer,
               t->mpi->plugin->words(t->mpi->context));
}

static struct message *add_message(struct work *w, uint32_t member, const struct share *s, bool receiving)
{
    struct message *x = &w->messages[w->nmessages++];
    *x = (struct message){.peer = w->line->channel.members[member],
                          .receiving = receiving,
                          .bytes = s->n * s->side.bytes,
                          .slot = slot_of(w, member, receiving)};
    return x;
}

static uint32_t tag_of(const struct work *w, uint32_t member)
{
    return w->line->tag[member] + (uint32_t)(w->m.number % DEPTH);
}

static void take(struct transport_messages *t, struct work *w, uint32_t member)
{
    struct share s = takes(w, member);
    if (!s.n)
        return;
    struct message *x = add_message(w, member, &s, true);
    uint8_t *at = x->slot;
    if (!is_sum(w) && side_is_flat(&s.side, s.first, s.n)) {
        at = side_at(&s.side, s.first);
    } else if (!is_sum(w)) {
        x->to = s.side;
        x->first = s.first;
        x->n = s.n;
    }
    if (t->mpi->plugin->receive(t->mpi->context, LANE_DATA, x->peer, tag_of(w, member), at, x->bytes, &x->request) ==
        MESSAGE_FAILED)
        fail_message(t, x);
}

static void give(struct transport_messages *t, struct work *w, uint32_t member)
{
    struct share s = gives(w, member);
    if (!s.n)
        return;
    struct message *x = add_message(w, member, &s, false);
    const uint8_t *from = x->slot;
    if (side_is_flat(&s.side, s.first, s.n)) {
        from = side_at(&s.side, s.first);
    } else {
        struct side packed = {x->slot, (uint32_t)s.n, (uint32_t)s.n, s.side.bytes};
        side_copy(&packed, 0, &s.side, s.first, s.n);
    }
    if (t->mpi->plugin->send(t->mpi->context, LANE_DATA, x->peer, tag_of(w, member), from, x->bytes, &x->request) ==
        MESSAGE_FAILED)
        fail_message(t, x);
}

/* Everybody begins with its neighbour, so that not all send to one at once. */
static void begin_round(struct transport_messages *t, struct work *w)
{
    uint32_t n = members_of(w), self = w->m.self;
    w->nmessages = w->nended = 0;
    for (uint32_t k = 1; k < n; k++)
        take(t, w, (self + n - k) % n);
    for (uint32_t k = 1; k < n; k++)
        give(t, w, (self + k) % n);
    struct share from = gives(w, self), to = takes(w, self);
    bool keeps = w->m.op == OP_ALL_GATHER || w->m.op == OP_ALL_TO_ALL || w->m.op == OP_SHIFT;
    if (keeps && from.n && to.n)
        side_copy(&to.side, to.first, &from.side, from.first, from.n);
}

static uint64_t shorter(const struct side *s, uint64_t element, uint64_t n)
{
    uint64_t in_row = s->cols - element % s->cols;
    return s->ld == s->cols || n < in_row ? n : in_row;
}

/* the own share of what all members have, in member order */
static void add_up(const struct work *w)
{
    union sums sums;
    struct share in = gives(w, w->m.self), out = takes(w, w->m.self);
    enum sums_rule rule = w->m.op == OP_ALL_REDUCE && w->m.argument ? SUMS_MAX : SUMS_ADD;
    for (uint64_t at = 0, run; at < in.n; at += run) {
        run = in.n - at < SUMS_BLOCK ? in.n - at : SUMS_BLOCK;
        run = shorter(&in.side, in.first + at, run);
        run = shorter(&out.side, out.first + at, run);
        for (uint32_t k = 0; k < members_of(w); k++) {
            const uint8_t *from = k == w->m.self ? side_at(&in.side, in.first + at)
                                                 : slot_of(w, k, true) + at * in.side.bytes;
            sums_take(&sums, from, (uint32_t)run, w->m.x.dtype, k ? rule : SUMS_SET);
        }
        sums_store(&sums, side_at(&out.side, out.first + at), (uint32_t)run, w->m.x.dtype);
    }
}

/* all messages of a round have come and gone; false: it was the last one */
static bool end_round(struct transport_messages *t, struct work *w)
{
    uint64_t moved = round_elements(w);
    if (is_sum(w))
        add_up(w);
    if (w->m.op == OP_ALL_REDUCE)
        w->returning = !w->returning;
    w->at += w->returning ? 0 : moved;
    if (!w->returning && w->at == lot_elements(w))
        return false;
    begin_round(t, w);
    return true;
}

static enum meeting_state end_message(struct transport_messages *t, struct work *w, struct message *x)
{
    size_t bytes;
    enum mpi_state state = t->mpi->plugin->test(t->mpi->context, &x->request, &bytes);
    if (state == MESSAGE_OPEN)
        return MEETING_OPEN;
    if (state == MESSAGE_FAILED) {
        fail_message(t, x);
        return MEETING_FAILED;
    }
    if (x->receiving && bytes != x->bytes) {
        world_fail(t->base.world, STATUS_BUG,
                   "ranks %u and %u meet with different operations: %s of %s here takes %zu bytes, and %zu came",
                   t->base.world->rank, x->peer, isa_info(w->m.op)->name, isa_dtype_name(w->m.x.dtype), x->bytes,
                   bytes);
        return MEETING_FAILED;
    }
    if (x->to.data) {
        struct side packed = {x->slot, (uint32_t)x->n, (uint32_t)x->n, x->to.bytes};
        side_copy(&x->to, x->first, &packed, 0, x->n);
    }
    return MEETING_DONE;
}

/* ---- the transport ---- */

static enum meeting_state messages_post(struct transport *base, const struct meeting *m)
{
    struct transport_messages *t = (struct transport_messages *)base;
    struct line *l = &t->lines[m->channel];
    uint64_t before = m->number < DEPTH ? 0 : m->number - DEPTH + 1;
    struct work *w = t->works;
    if (l->ended[m->number % DEPTH] != before)
        return MEETING_REFUSED;
    while (w->line && w < t->works + WINDOWS - 1)
        w++;
    if (w->line)
        return MEETING_REFUSED;
    if (!transport_fits(m->op, m->x.rows, m->y.rows, m->argument, l->channel.nmembers)) {
        world_fail(base->world, STATUS_BUG, "%s of %u to %u rows among %u ranks", isa_info(m->op)->name, m->x.rows,
                   m->y.rows, l->channel.nmembers);
        return MEETING_FAILED;
    }
    l->work[m->number % DEPTH] = w;
    l->awaited[m->number % DEPTH] = NONE;
    w->line = l;
    w->m = *m;
    w->at = 0;
    w->returning = false;
    w->nmessages = w->nended = 0;
    if (lot_elements(w))
        begin_round(t, w);
    return world_failed(base->world) == STATUS_OK ? MEETING_OPEN : MEETING_FAILED;
}

static enum meeting_state messages_poll(struct transport *base, const struct meeting *m)
{
    struct transport_messages *t = (struct transport_messages *)base;
    struct line *l = &t->lines[m->channel];
    struct work *w = l->work[m->number % DEPTH];
    do {
        for (; w->nended < w->nmessages; w->nended++) {
            enum meeting_state state = end_message(t, w, &w->messages[w->nended]);
            if (state != MEETING_DONE) {
                l->awaited[m->number % DEPTH] = w->messages[w->nended].peer;
                return state;
            }
        }
        if (world_failed(base->world) != STATUS_OK)
            return MEETING_FAILED;
    } while (lot_elements(w) && end_round(t, w));
    w->line = NULL;
    l->work[m->number % DEPTH] = NULL;
    l->ended[m->number % DEPTH] = m->number + 1;
    return MEETING_DONE;
}

static int64_t messages_latest(struct transport *base, const struct meeting *m)
{
    (void)base;
    return m->ready_ns;
}

static uint32_t messages_last(struct transport *base, const struct meeting *m, int64_t *came_ns)
{
    *came_ns = INT64_MAX;
    return ((struct transport_messages *)base)->lines[m->channel].awaited[m->number % DEPTH];
}

const struct transport_way transport_mpi = {.open = messages_open,
                                            .close = messages_close,
                                            .post = messages_post,
                                            .poll = messages_poll,
                                            .latest = messages_latest,
                                            .last = messages_last};
