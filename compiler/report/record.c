/* The simulated step of all roles as a stream of numbers, which page/record.js reads back.
 *
 * Every number is a varint (strbuf_varint()); one that may be negative is folded to 0, -1, 1, -2, ...
 * first. Times are nanoseconds.  For each role:
 *
 *   kinds of instructions: how many; then of each opcode, queue, action's letter, stage + 1, layer + 1, line,
 *       1 for a recomputation, bytes that it moves, transfer + 1 (of the role's list in the JSON), peer's role + 1
 *   instructions in program order: how many; then of each kind, microbatch + 1, start since the end of the one before
 * on its queue, duration, and how many instructions before it lies the one that it waited for last, or 0 idle
 * intervals: how many; then of each start since the end of the one before, duration, cause, instruction + 1,
 *       instruction waited for + 1, role waited for
 *   memory: how many points in time; then of each the time since the one before, and the change of each class
 *
 * Points in time are those of the most live bytes in each of POINTS equal parts of the step, so the peak is one. */

#include "compiler/report/report.h"

#include "compiler/inspect/show.h"
#include "compiler/support/vec.h"

#include <stdlib.h>
#include <string.h>

enum { POINTS = 1000 };

static void put_signed(struct strbuf *out, int64_t v)
{
    strbuf_varint(out, v < 0 ? ~((uint64_t)v << 1) : (uint64_t)v << 1);
}

/* ---- kinds of instructions ---- */

struct kind {
    uint16_t op;
    uint8_t queue, again;
    char action;
    uint16_t stage;
    uint32_t layer, line, transfer, peer; /* NONE: none */
    uint64_t bytes;
};
struct kinds {
    struct arena *arena;
    VEC(struct kind) list;
    uint32_t *table, room; /* index + 1, by hash */
};

static uint32_t kind_hash(const struct kind *k)
{
    uint64_t h = ((uint64_t)k->op << 48) ^ ((uint64_t)k->stage << 32) ^ k->layer;
    h = (h ^ ((uint64_t)k->line << 20) ^ ((uint64_t)(uint8_t)k->action << 8) ^ k->queue) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29 ^ k->bytes ^ ((uint64_t)k->transfer << 40) ^ k->again) * 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32);
}

static bool same_kind(const struct kind *x, const struct kind *y)
{
    return x->op == y->op && x->queue == y->queue && x->again == y->again && x->action == y->action &&
           x->stage == y->stage && x->layer == y->layer && x->line == y->line && x->transfer == y->transfer &&
           x->peer == y->peer && x->bytes == y->bytes;
}

/* where the table has the kind, or would have it */
static uint32_t *slot_of(const struct kinds *k, const struct kind *x)
{
    uint32_t at = kind_hash(x) & (k->room - 1);
    while (k->table[at] && !same_kind(&k->list.at[k->table[at] - 1], x))
        at = (at + 1) & (k->room - 1);
    return &k->table[at];
}

static void make_room(struct kinds *k)
{
    if (2 * k->list.n < k->room)
        return;
    k->room = k->room ? 2 * k->room : 1024;
    k->table = ARENA_ARRAY(k->arena, uint32_t, k->room);
    for (uint32_t i = 0; i < k->list.n; i++)
        *slot_of(k, &k->list.at[i]) = i + 1;
}

static uint32_t find_kind(struct kinds *k, const struct kind *x)
{
    make_room(k);
    uint32_t *slot = slot_of(k, x);
    if (!*slot) {
        vec_push(k->arena, &k->list, *x);
        *slot = (uint32_t)k->list.n;
    }
    return *slot - 1;
}

/* ---- recomputation ---- */

/* What an instruction makes, as a kind whose members mean other things: line and bytes say where its output lies. */
static bool output_of(const struct program *p, uint32_t i, struct kind *out)
{
    const struct insn *n = &p->insns[i];
    const struct isa_info *info = isa_info(n->op);
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = &p->operands[n->operand + k];
        if (o->buffer == NONE || o->mark != MARK_WRITE)
            continue;
        const struct buffer *b = &p->buffers[o->buffer];
        *out = (struct kind){.op = n->op, .layer = n->layer, .stage = n->stage, .line = o->buffer};
        out->bytes = b->ring == NONE ? o->offset : o->offset % b->stride;
        return true;
    }
    return false;
}

/* An instruction of a backward pass is a recomputation if a forward pass has one with the same opcode, layer and
 * output. Returns, by instruction, whether it is. */
static const uint8_t *find_again(struct arena *a, const struct program *p)
{
    struct kinds forward = {.arena = a};
    struct kind x;
    uint8_t *again = ARENA_ARRAY(a, uint8_t, p->ninsns + 1u);
    make_room(&forward);
    for (uint32_t i = 0; i < p->ninsns; i++)
        if (p->insns[i].action == 'F' && output_of(p, i, &x))
            find_kind(&forward, &x);
    for (uint32_t i = 0; i < p->ninsns; i++)
        if ((p->insns[i].action == 'B' || p->insns[i].action == 'I') && output_of(p, i, &x))
            again[i] = *slot_of(&forward, &x) != 0;
    return again;
}

/* ---- instructions ---- */

struct report_transfers report_transfers(struct arena *a, const struct plan *p, uint32_t role)
{
    uint32_t n = p->train[role]->ninsns;
    struct report_transfers t = {.of = ARENA_ARRAY(a, uint32_t, n + 1u)};
    VEC(struct transfer) list = {0};
    for (uint32_t i = 0; i < n; i++) {
        struct transfer x;
        t.of[i] = NONE;
        if (!transfer_of(p, role, i, &x))
            continue;
        uint32_t k = 0;
        while (k < list.n && (list.at[k].peer != x.peer || list.at[k].with != x.with))
            k++;
        if (k == list.n)
            vec_push(a, &list, x);
        t.of[i] = k;
    }
    t.n = (uint32_t)list.n;
    t.list = list.at;
    return t;
}

struct recorder {
    struct arena *arena;
    const struct plan *plan;
    uint32_t role;
    const struct program *p;
    const struct sim_role *r;
    struct strbuf *out;
};

static void put_kind(struct strbuf *out, const struct kind *k)
{
    strbuf_varint(out, k->op);
    strbuf_varint(out, k->queue);
    strbuf_varint(out, (uint8_t)k->action);
    strbuf_varint(out, k->stage == UINT16_MAX ? 0 : k->stage + 1u);
    strbuf_varint(out, k->layer + 1u); /* NONE + 1 = 0 */
    strbuf_varint(out, k->line);
    strbuf_varint(out, k->again);
    strbuf_varint(out, k->bytes);
    strbuf_varint(out, k->transfer + 1u);
    strbuf_varint(out, k->peer + 1u);
}

/* instruction at each position of each queue: at[first[q] + position] */
static uint32_t *by_queue(struct arena *a, const struct program *p, uint32_t first[NQUEUES])
{
    uint32_t *position = ARENA_ARRAY(a, uint32_t, p->ninsns + 1u), *at = ARENA_ARRAY(a, uint32_t, p->ninsns + 1u);
    uint32_t count[NQUEUES], sum = 0;
    program_positions(p, position, count);
    for (uint32_t q = 0; q < NQUEUES; q++) {
        first[q] = sum;
        sum += count[q];
    }
    for (uint32_t i = 0; i < p->ninsns; i++)
        at[first[p->insns[i].queue] + position[i]] = i;
    return at;
}

static void put_insns(const struct recorder *x)
{
    const struct program *p = x->p;
    struct kinds kinds = {.arena = x->arena};
    uint32_t *of = ARENA_ARRAY(x->arena, uint32_t, p->ninsns + 1u), first[NQUEUES];
    const uint8_t *again = find_again(x->arena, p);
    const uint32_t *at = by_queue(x->arena, p, first);
    struct report_transfers t = report_transfers(x->arena, x->plan, x->role);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        struct kind k = {n->op, n->queue, again[i], n->action, n->stage, n->layer, n->line, t.of[i], NONE, 0};
        struct transfer moved;
        if (transfer_of(x->plan, x->role, i, &moved)) {
            k.bytes = moved.bytes;
            k.peer = moved.peer ? moved.with : NONE;
        }
        of[i] = find_kind(&kinds, &k);
    }
    strbuf_varint(x->out, kinds.list.n);
    for (size_t k = 0; k < kinds.list.n; k++)
        put_kind(x->out, &kinds.list.at[k]);
    int64_t now[NQUEUES] = {0};
    strbuf_varint(x->out, p->ninsns);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        const struct sim_interval *s = &x->r->insns[i];
        uint32_t last = i;
        int64_t latest = INT64_MIN;
        for (uint32_t w = 0; w < n->nwaits; w++) {
            uint32_t on = at[first[p->waits[n->wait + w].queue] + p->waits[n->wait + w].position];
            if (x->r->insns[on].end_ns > latest && on < i) {
                latest = x->r->insns[on].end_ns;
                last = on;
            }
        }
        strbuf_varint(x->out, of[i]);
        strbuf_varint(x->out, n->microbatch + 1u);
        put_signed(x->out, s->start_ns - now[n->queue]);
        strbuf_varint(x->out, (uint64_t)(s->end_ns - s->start_ns));
        strbuf_varint(x->out, i - last);
        now[n->queue] = s->end_ns;
    }
}

static void put_blocks(const struct recorder *x)
{
    uint32_t n;
    const struct show_block *b = show_blocks(x->arena, x->p, x->r, &n);
    strbuf_varint(x->out, n);
    for (; n--; b++) {
        strbuf_varint(x->out, b->first);
        strbuf_varint(x->out, b->last);
        strbuf_varint(x->out, (uint8_t)b->action);
        strbuf_varint(x->out, b->stage + 1u);
        strbuf_varint(x->out, b->microbatch + 1u);
        strbuf_varint(x->out, (uint8_t)b->other);
        strbuf_varint(x->out, b->other ? b->other_stage + 1u : 0);
        strbuf_varint(x->out, b->other ? b->other_microbatch + 1u : 0);
    }
}

static void put_idles(const struct recorder *x)
{
    int64_t now = 0;
    strbuf_varint(x->out, x->r->nidles);
    for (uint32_t i = 0; i < x->r->nidles; i++) {
        const struct sim_idle *d = &x->r->idles[i];
        put_signed(x->out, d->start_ns - now);
        strbuf_varint(x->out, (uint64_t)(d->end_ns - d->start_ns));
        strbuf_varint(x->out, d->cause);
        strbuf_varint(x->out, d->insn + 1u);
        strbuf_varint(x->out, d->on + 1u);
        strbuf_varint(x->out, d->who);
        now = d->end_ns;
    }
}

/* ---- memory ---- */

struct change {
    int64_t at_ns, bytes;
    uint32_t class;
};

/* at equal times losses come first, as in simulate_memory() */
static int by_time(const void *x, const void *y)
{
    const struct change *a = x, *b = y;
    if (a->at_ns != b->at_ns)
        return a->at_ns < b->at_ns ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

struct classes {
    VEC(char *) names;
    uint32_t *of; /* by buffer */
};

static struct classes find_classes(struct arena *a, const struct program *p)
{
    struct classes c = {.of = ARENA_ARRAY(a, uint32_t, p->nbuffers + 1u)};
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        char name[64];
        uint32_t k = 0;
        show_memory_class(p, &p->buffers[i], name, sizeof name);
        while (k < c.names.n && strcmp(c.names.at[k], name))
            k++;
        if (k == c.names.n)
            vec_push(a, &c.names, arena_strdup(a, name));
        c.of[i] = k;
    }
    return c;
}

static void put_point(struct strbuf *out, int64_t *last, int64_t at, uint32_t n, int64_t *told, const int64_t *bytes)
{
    strbuf_varint(out, (uint64_t)(at - *last));
    for (uint32_t k = 0; k < n; k++) {
        put_signed(out, bytes[k] - told[k]);
        told[k] = bytes[k];
    }
    *last = at;
}

static void put_memory(const struct recorder *x)
{
    const struct program *p = x->p;
    struct classes c = find_classes(x->arena, p);
    uint32_t nspans, n = (uint32_t)c.names.n, points = 0;
    const struct live_span *spans = simulate_lives(x->arena, p, x->r, &nspans);
    struct change *changes = ARENA_ARRAY(x->arena, struct change, 2 * (size_t)nspans + 1);
    int64_t *bytes = ARENA_ARRAY(x->arena, int64_t, 3 * (size_t)n + 1), *most = bytes + n, *told = most + n;
    int64_t live = 0, best = -1, best_ns = x->r->begin_ns, last = x->r->begin_ns;
    for (uint32_t i = 0; i < nspans; i++) {
        int64_t stride = (int64_t)p->buffers[spans[i].buffer].stride;
        uint32_t class = c.of[spans[i].buffer];
        changes[2 * i] = (struct change){x->r->insns[spans[i].first].start_ns, stride, class};
        changes[2 * i + 1] = (struct change){x->r->insns[spans[i].last].end_ns, -stride, class};
    }
    qsort(changes, 2 * (size_t)nspans, sizeof *changes, by_time);
    for (uint32_t i = 0; i < p->nbuffers; i++)
        if (p->buffers[i].kind != BUFFER_STEP && !p->buffers[i].host) {
            bytes[c.of[i]] += (int64_t)p->buffers[i].bytes;
            live += (int64_t)p->buffers[i].bytes;
        }
    struct strbuf list = {0};
    int64_t part = (x->plan->timeline->step_ns + POINTS) / POINTS, next = x->r->begin_ns + part;
    for (uint32_t i = 0; i <= 2 * nspans; i++) {
        bool settled = i == 2 * nspans || i == 0 || changes[i].at_ns != changes[i - 1].at_ns;
        if (settled && live > best) {
            best = live;
            best_ns = i ? changes[i - 1].at_ns : x->r->begin_ns;
            memcpy(most, bytes, n * sizeof *most);
        }
        if (i == 2 * nspans || (settled && changes[i].at_ns >= next)) {
            put_point(&list, &last, best_ns > last ? best_ns : last, n, told, most);
            points++;
            best = -1;
            next = i < 2 * nspans ? changes[i].at_ns + part : next;
        }
        if (i < 2 * nspans) {
            bytes[changes[i].class] += changes[i].bytes;
            live += changes[i].bytes;
        }
    }
    strbuf_varint(x->out, points);
    strbuf_bytes(x->out, list.text, list.length);
    strbuf_free(&list);
}

const char *const *report_memory_classes(struct arena *a, const struct program *p, uint32_t *n)
{
    struct classes c = find_classes(a, p);
    *n = (uint32_t)c.names.n;
    return (const char *const *)c.names.at;
}

void report_record(const struct plan *p, struct strbuf *out)
{
    for (uint32_t role = 0; role < p->nroles; role++) {
        struct arena *a = arena_new();
        const struct recorder x = {a, p, role, p->train[role], &p->timeline->roles[role], out};
        put_insns(&x);
        put_blocks(&x);
        put_idles(&x);
        put_memory(&x);
        arena_free(a);
    }
}
