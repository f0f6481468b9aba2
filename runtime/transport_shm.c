/* Meetings in shared memory: every process sees every arena, so data moves once, from operand to operand.
 *
 * A channel has DEPTH seats used in turn.  The last member to post a meeting checks that all agree, cuts the
 * work into pieces and opens it; then every member that polls takes pieces until none are left, so whoever
 * has a core works and nobody waits for a particular rank to be scheduled.  A piece of a sum is computed by
 * one process from all members in member order and written to all who need it: one pass, the same bits
 * whoever does it, and operands may be in place because a piece is read before it is written and by nobody
 * else. A seat is free for meeting k + DEPTH when its poster has seen k end; opening k + DEPTH needs all
 * posters. */

#include "kernels/cpu/sums.h"
#include "runtime/transport_way.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH = 4, PIECE = 16384 /* elements */ };

struct offer { /* one member's operands, as arena offsets */
    uint64_t x, y;
    int64_t ready_ns;
    uint32_t x_rows, y_rows, cols, x_ld, y_ld, op, dtype, argument;
};
struct seat {
    _Alignas(64) _Atomic uint64_t arrivals; /* in all meetings of this seat */
    _Atomic uint64_t open;                  /* number + 1 of the meeting whose pieces may be taken */
    uint32_t pieces;
    _Alignas(64) _Atomic uint32_t taken;
    _Alignas(64) _Atomic uint32_t finished;
    struct offer offer[];
};
struct line { /* a channel as this process knows it */
    struct channel channel;
    uint8_t *seats;
    size_t seat_bytes;
    uint64_t ended[DEPTH]; /* number + 1 of the last meeting in that seat that this rank saw end */
};
struct shm {
    struct transport base;
    struct line *lines;
};

static size_t seat_bytes(uint32_t nmembers)
{
    size_t bytes = sizeof(struct seat) + nmembers * sizeof(struct offer);
    return (bytes + 63) / 64 * 64;
}

size_t transport_shared_bytes(const struct channel *channels, uint32_t nchannels)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < nchannels; i++)
        bytes += DEPTH * seat_bytes(channels[i].nmembers);
    return bytes;
}

static void shm_close(struct transport *t)
{
    free(((struct shm *)t)->lines);
    free(t);
}

static enum status shm_open_lines(struct transport **out, struct world *w, const struct channel *channels,
                                  uint32_t nchannels)
{
    struct shm *t = calloc(1, sizeof *t);
    if (!t || !(t->lines = calloc((size_t)nchannels + 1, sizeof *t->lines))) {
        free(t);
        return STATUS_WORLD;
    }
    t->base = (struct transport){&transport_shm, w};
    uint8_t *next = w->transport;
    for (uint32_t i = 0; i < nchannels; i++) {
        t->lines[i].channel = channels[i];
        t->lines[i].seats = next;
        t->lines[i].seat_bytes = seat_bytes(channels[i].nmembers);
        next += DEPTH * t->lines[i].seat_bytes;
    }
    *out = &t->base;
    return STATUS_OK;
}

static struct line *line_of(struct transport *t, const struct meeting *m)
{
    return &((struct shm *)t)->lines[m->channel];
}

static struct seat *seat_of(const struct line *l, uint64_t number)
{
    return (struct seat *)(void *)(l->seats + number % DEPTH * l->seat_bytes);
}

/* an operand of some member */
static struct side side_of(const struct transport *t, const struct line *l, const struct seat *s, uint32_t member,
                           bool receiving)
{
    const struct offer *o = &s->offer[member];
    struct side side = {t->world->arena[l->channel.members[member]] + (receiving ? o->y : o->x), o->cols,
                        receiving ? o->y_ld : o->x_ld, isa_dtype_bytes((enum dtype)o->dtype)};
    return side;
}

/* elements [e, e + n) of the members' x, summed; to every member's x at e, or to one member's y at f */
static void sum_elements(const struct transport *t, const struct line *l, const struct seat *s, uint64_t e, uint64_t n,
                         uint32_t to, uint64_t f)
{
    union sums sums;
    const struct offer *o = s->offer;
    enum dtype dtype = (enum dtype)o->dtype;
    bool everyone = to == UINT32_MAX, flat = true;
    enum sums_rule rule = o->argument && everyone ? SUMS_MAX : SUMS_ADD;
    uint32_t members = l->channel.nmembers, cols = o->cols; /* members may differ in ld, never in cols */
    for (uint32_t m = 0; m < members; m++)
        flat = flat && o[m].x_ld == cols && o[m].y_ld == cols;
    for (uint64_t run; n; n -= run, e += run, f += run) {
        run = n < SUMS_BLOCK ? n : SUMS_BLOCK;
        if (!flat)
            run = run < cols - e % cols ? run : cols - e % cols;
        for (uint32_t m = 0; m < members; m++) {
            struct side x = side_of(t, l, s, m, false);
            sums_take(&sums, side_at(&x, e), (uint32_t)run, dtype, m ? rule : SUMS_SET);
        }
        for (uint32_t m = everyone ? 0 : to; m < (everyone ? members : to + 1); m++) {
            struct side y = side_of(t, l, s, m, !everyone);
            sums_store(&sums, side_at(&y, everyone ? e : f), (uint32_t)run, dtype);
        }
    }
}

static void do_piece(const struct transport *t, const struct line *l, const struct seat *s, uint32_t piece)
{
    const struct offer *o = &s->offer[0];
    uint64_t n = l->channel.nmembers,
             elements = transport_lots((enum op)o->op, o->x_rows, o->cols, l->channel.nmembers).elements;
    uint64_t per_lot = (elements + PIECE - 1) / PIECE, lot = piece / per_lot, e = piece % per_lot * PIECE;
    uint64_t count = elements - e < PIECE ? elements - e : PIECE;
    struct side x, y;
    if (o->op == OP_ALL_REDUCE) {
        sum_elements(t, l, s, e, count, UINT32_MAX, 0);
    } else if (o->op == OP_REDUCE_SCATTER) {
        sum_elements(t, l, s, lot * elements + e, count, (uint32_t)lot, e);
    } else if (o->op == OP_ALL_TO_ALL) { /* lot = giver * n + receiver */
        x = side_of(t, l, s, (uint32_t)(lot / n), false);
        y = side_of(t, l, s, (uint32_t)(lot % n), true);
        side_copy(&y, lot / n * elements + e, &x, lot % n * elements + e, count);
    } else if (o->op == OP_SHIFT) {
        x = side_of(t, l, s, (uint32_t)lot, false);
        y = side_of(t, l, s, (uint32_t)((lot + o->argument) % n), true);
        side_copy(&y, e, &x, e, count);
    } else if (o->op == OP_ALL_GATHER) {
        x = side_of(t, l, s, (uint32_t)lot, false);
        for (uint32_t m = 0; m < n; m++) {
            y = side_of(t, l, s, m, true);
            side_copy(&y, lot * elements + e, &x, e, count);
        }
    } else { /* BROADCAST from the root, or SEND from member 0 */
        uint32_t root = o->op == OP_BROADCAST ? o->argument : 0;
        x = side_of(t, l, s, root, false);
        for (uint32_t m = 0; m < n; m++) {
            y = side_of(t, l, s, m, true);
            if (m != root)
                side_copy(&y, e, &x, e, count);
        }
    }
}

static bool is_pair(uint32_t op)
{
    return op == OP_SEND || op == OP_RECV;
}

/* all members' offers must describe the same meeting */
static bool agree(const struct transport *t, const struct line *l, const struct seat *s)
{
    const struct offer *a = &s->offer[0];
    if (!transport_fits((enum op)a->op, a->x_rows, a->y_rows, a->argument, l->channel.nmembers)) {
        world_fail(t->world, STATUS_BUG, "%s of %u to %u rows among %u ranks", isa_info((enum op)a->op)->name,
                   a->x_rows, a->y_rows, l->channel.nmembers);
        return false;
    }
    for (uint32_t m = 1; m < l->channel.nmembers; m++) {
        const struct offer *b = &s->offer[m];
        bool pair = is_pair(a->op) && is_pair(b->op) && a->op != b->op;
        if ((a->op == b->op || pair) && a->dtype == b->dtype && a->cols == b->cols && a->x_rows == b->x_rows &&
            a->y_rows == b->y_rows && a->argument == b->argument)
            continue;
        world_fail(t->world, STATUS_BUG,
                   "ranks %u and %u meet with different operations: %s %s %ux%u and %s %s %ux%u (argument %u, %u)",
                   l->channel.members[0], l->channel.members[m], isa_info((enum op)a->op)->name,
                   isa_dtype_name((enum dtype)a->dtype), a->x_rows, a->cols, isa_info((enum op)b->op)->name,
                   isa_dtype_name((enum dtype)b->dtype), b->x_rows, b->cols, a->argument, b->argument);
        return false;
    }
    return true;
}

static void bump_others(const struct transport *t, const struct line *l)
{
    for (uint32_t m = 0; m < l->channel.nmembers; m++)
        if (l->channel.members[m] != t->world->rank)
            world_bump(t->world, l->channel.members[m]);
}

static enum meeting_state shm_post(struct transport *t, const struct meeting *m)
{
    struct line *l = line_of(t, m);
    uint64_t before = m->number < DEPTH ? 0 : m->number - DEPTH + 1;
    if (l->ended[m->number % DEPTH] != before)
        return MEETING_REFUSED;
    struct seat *s = seat_of(l, m->number);
    struct offer *o = &s->offer[m->self];
    const uint8_t *arena = t->world->arena[t->world->rank];
    const struct view *x = &m->x, *y = &m->y;
    o->x = (uint64_t)((const uint8_t *)x->data - arena);
    o->y = (uint64_t)((const uint8_t *)y->data - arena);
    o->ready_ns = m->ready_ns;
    o->x_rows = x->rows;
    o->y_rows = y->rows;
    o->cols = x->cols;
    o->x_ld = x->ld;
    o->y_ld = y->ld;
    o->op = (uint32_t)m->op;
    o->dtype = (uint32_t)x->dtype;
    o->argument = m->argument;
    uint64_t all = (m->number / DEPTH + 1) * l->channel.nmembers;
    if (atomic_fetch_add(&s->arrivals, 1) + 1 < all)
        return MEETING_OPEN;
    if (!agree(t, l, s))
        return MEETING_FAILED;
    struct lots lots = transport_lots(m->op, o->x_rows, o->cols, l->channel.nmembers);
    s->pieces = (uint32_t)(lots.n * ((lots.elements + PIECE - 1) / PIECE));
    atomic_store(&s->taken, 0);
    atomic_store(&s->finished, 0);
    atomic_store(&s->open, m->number + 1);
    if (s->pieces > 1)
        bump_others(t, l);
    return MEETING_OPEN;
}

static enum meeting_state shm_poll(struct transport *t, const struct meeting *m)
{
    struct line *l = line_of(t, m);
    struct seat *s = seat_of(l, m->number);
    if (atomic_load(&s->open) != m->number + 1)
        return MEETING_OPEN;
    while (atomic_load(&s->taken) < s->pieces) {
        uint32_t piece = atomic_fetch_add(&s->taken, 1);
        if (piece >= s->pieces)
            break;
        do_piece(t, l, s, piece);
        if (atomic_fetch_add(&s->finished, 1) + 1 == s->pieces)
            bump_others(t, l);
    }
    if (atomic_load(&s->finished) < s->pieces)
        return MEETING_OPEN;
    l->ended[m->number % DEPTH] = m->number + 1;
    return MEETING_DONE;
}

/* offers are safe to read: the next meeting but DEPTH, which uses the seat again, needs this rank */
static uint32_t shm_last(struct transport *t, const struct meeting *m, int64_t *came_ns)
{
    const struct line *l = line_of(t, m);
    const struct seat *s = seat_of(l, m->number);
    uint32_t last = 0;
    for (uint32_t k = 1; k < l->channel.nmembers; k++)
        last = s->offer[k].ready_ns > s->offer[last].ready_ns ? k : last;
    *came_ns = s->offer[last].ready_ns;
    return l->channel.members[last];
}

static int64_t shm_latest(struct transport *t, const struct meeting *m)
{
    int64_t came_ns;
    shm_last(t, m, &came_ns);
    return came_ns;
}

const struct transport_way transport_shm = {.open = shm_open_lines,
                                            .close = shm_close,
                                            .post = shm_post,
                                            .poll = shm_poll,
                                            .latest = shm_latest,
                                            .last = shm_last};
