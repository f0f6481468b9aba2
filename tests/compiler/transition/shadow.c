/* Bytes of state as words: bit-mixed numbers of (kind of buffer, tensor, member, element), which differ but for a chance of 2^-64
 * a pair. */

#include "tests/compiler/transition/shadow.h"

#include "runtime/channels.h"
#include "runtime/weights_private.h"
#include "tests/compiler/random_plan.h"

#include <stdlib.h>
#include <string.h>

/* words that are no element's */
enum { POISON, ZERO, FOREIGN };

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* a rank of a plan, and where its arena lies in its cells */
struct seated {
    const struct program *p;
    const struct ranks *ranks;
    uint32_t rank;
    uint64_t *cells;
};

/* a persistent buffer on a rank */
struct kept_buffer {
    const struct buffer *b;
    uint64_t first, n, size; /* element of the bucket with which it begins; its elements; bytes of one */
    enum buffer_kind kind;   /* of state: a master copy in the working copy's format is the same */
    uint64_t *is;            /* by element: what it should be */
    bool *kept;              /* does the step leave it behind? */
};

static bool is_kept_kind(const struct buffer *b)
{
    return b->bucket != NONE && b->kind >= BUFFER_PARAM && b->kind <= BUFFER_MOMENT2;
}

static void mark_written(const struct seated *at, const struct operand *o, struct kept_buffer *s)
{
    uint64_t slot = o->slot == UINT16_MAX ? 0 : rank_value(at->ranks, at->rank, o->slot);
    uint64_t first = (o->offset + slot * o->slot_stride) / s->size;
    for (uint64_t r = 0; r < o->rows; r++)
        for (uint64_t c = 0; c < o->cols; c++)
            s->kept[first + r * o->ld + c] = true;
}

static enum status name_run(void *context, const struct weights_run *run)
{
    struct kept_buffer *s = context;
    uint64_t word = s->kind;
    char name[WEIGHTS_NAME];
    tensor_name(run->tensor, run->member, name, sizeof name);
    for (const char *c = name; *c; c++)
        word = mix(word ^ (uint64_t)(unsigned char)*c << 8);
    for (uint32_t i = 0; i < run->n; i++)
        s->is[run->element - s->first + i] = mix(word ^ (run->first + i * run->step)) | 1u << 8;
    return STATUS_OK;
}

/* what a buffer of the rank is to hold, and what the step leaves behind of that */
static void find_state(const struct seated *at, uint32_t buffer, struct kept_buffer *s)
{
    const struct program *p = at->p;
    const struct buffer *b = &p->buffers[buffer];
    const struct weights_place place = {p, at->ranks, at->rank, NULL};
    *s = (struct kept_buffer){.b = b, .size = isa_dtype_bytes(b->dtype), .kind = b->kind};
    for (uint32_t i = 0; i < p->nbuffers; i++)
        if (b->kind == BUFFER_MASTER && p->buffers[i].kind == BUFFER_PARAM && p->buffers[i].bucket == b->bucket &&
            p->buffers[i].dtype == b->dtype)
            s->kind = BUFFER_PARAM;
    s->n = b->bytes / s->size;
    s->first = b->shard_slot == NONE ? 0 : rank_value(at->ranks, at->rank, b->shard_slot) * s->n;
    s->is = calloc(s->n + 1, sizeof *s->is);
    s->kept = calloc(s->n + 1, sizeof *s->kept);
    for (uint64_t e = 0; e < s->n; e++)
        s->is[e] = ZERO;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct isa_info *info = isa_info(p->insns[i].op);
        const struct operand *o = &p->operands[p->insns[i].operand];
        for (uint32_t k = 0; k < info->noperands && info->unit != UNIT_COLLECTIVE; k++)
            if (o[k].buffer == buffer && o[k].mark != MARK_READ)
                mark_written(at, &o[k], s);
    }
    weights_walk(&place, &p->buckets[b->bucket], s->first, s->first + s->n, name_run, s);
}

static void free_state(struct kept_buffer *s)
{
    free(s->is);
    free(s->kept);
}

/* what byte i of a buffer is to hold */
static uint64_t byte_of(const struct kept_buffer *s, uint64_t i)
{
    uint64_t word = s->is[i / s->size];
    return word == ZERO ? word : word + i % s->size;
}

static void put_state(const struct seated *at)
{
    for (uint32_t i = 0; i < at->p->nbuffers; i++) {
        struct kept_buffer s;
        if (!is_kept_kind(&at->p->buffers[i]))
            continue;
        find_state(at, i, &s);
        for (uint64_t e = 0; e < s.n * s.size; e++)
            if (s.kept[e / s.size])
                at->cells[s.b->offset + e] = byte_of(&s, e);
        free_state(&s);
    }
}

static struct seated seat_of(const struct shadow *s, uint32_t rank, bool old)
{
    const struct plan *p = old ? s->t->from : s->t->to;
    uint32_t own = old ? s->t->seats[rank].from : s->t->seats[rank].to;
    if (own == NONE)
        return (struct seated){.rank = NONE};
    return (struct seated){p->train[p->ranks->ranks[own].role], p->ranks, own,
                           s->cells[rank] + (old ? 0 : s->t->seats[rank].base)};
}

static uint64_t bytes_of(const struct transition *t, uint32_t rank)
{
    return t->programs[t->ranks->ranks[rank].role]->arena_bytes;
}

struct shadow *shadow_new(const struct transition *t, const struct shadow *before)
{
    struct shadow *s = malloc(sizeof *s);
    *s = (struct shadow){t, calloc(t->ranks->nranks, sizeof *s->cells)};
    for (uint32_t i = 0; i < t->ranks->nranks; i++) {
        s->cells[i] = calloc(bytes_of(t, i) + 1, sizeof **s->cells);
        struct seated at = seat_of(s, i, true);
        if (at.rank != NONE && !before)
            put_state(&at);
        for (uint32_t j = 0; before && at.rank != NONE && j < before->t->ranks->nranks; j++)
            if (before->t->seats[j].to == at.rank)
                memcpy(s->cells[i], before->cells[j] + before->t->seats[j].base,
                       transition_arena(t->from, at.rank) * sizeof **s->cells);
    }
    return s;
}

void shadow_free(struct shadow *s)
{
    for (uint32_t i = 0; i < s->t->ranks->nranks; i++)
        free(s->cells[i]);
    free(s->cells);
    free(s);
}

/* ---- running ---- */

struct running {
    struct shadow *s;
    uint32_t *at;    /* by rank and queue: instruction that comes next; ninsns: none */
    uint32_t *count; /* by rank and queue: how many are done */
    uint64_t left;
    const char *why;
};

static const struct program *program_of(const struct running *r, uint32_t rank)
{
    return r->s->t->programs[r->s->t->ranks->ranks[rank].role];
}

static uint32_t next_on(const struct program *p, uint32_t queue, uint32_t from)
{
    while (from < p->ninsns && p->insns[from].queue != queue)
        from++;
    return from;
}

/* NULL where the operand is not within the arena */
static uint64_t *cells_at(struct running *r, uint32_t rank, const struct operand *o)
{
    const struct program *p = program_of(r, rank);
    uint64_t offset = program_operand_offset(p, o), size = isa_dtype_bytes((enum dtype)o->dtype);
    offset += o->slot == UINT16_MAX ? 0 : rank_value(r->s->t->ranks, rank, o->slot) * o->slot_stride;
    uint64_t span = ((uint64_t)(o->rows - 1) * o->ld + o->cols) * size;
    if (o->rows && offset + span <= bytes_of(r->s->t, rank))
        return r->s->cells[rank] + offset;
    r->why = "it reaches beyond the arena";
    return NULL;
}

static void move_operand(struct running *r, uint32_t to, const struct operand *y, uint32_t from, const struct operand *x)
{
    uint64_t size = isa_dtype_bytes((enum dtype)y->dtype), *d = cells_at(r, to, y), *s = cells_at(r, from, x);
    if (x->rows != y->rows || x->cols != y->cols || x->dtype != y->dtype)
        r->why = "two sides of a transfer differ";
    for (uint64_t i = 0; i < y->rows && !r->why; i++)
        memmove(d + i * y->ld * size, s + i * x->ld * size, y->cols * size * sizeof *d);
}

static void fill_operand(struct running *r, uint32_t rank, const struct operand *y, double value)
{
    static const double zero = 0;
    uint64_t size = isa_dtype_bytes((enum dtype)y->dtype), *d = cells_at(r, rank, y);
    for (uint64_t i = 0; i < y->rows && !r->why; i++)
        for (uint64_t k = 0; k < y->cols * size; k++)
            d[i * y->ld * size + k] = memcmp(&value, &zero, sizeof value) ? FOREIGN : ZERO;
}

static bool waits(const struct running *r, uint32_t rank, const struct insn *in)
{
    const struct wait *w = program_of(r, rank)->waits + in->wait;
    for (uint32_t i = 0; i < in->nwaits; i++)
        if (r->count[rank * NQUEUES + w[i].queue] <= w[i].position)
            return true;
    return false;
}

static void finish(struct running *r, uint32_t rank, uint32_t queue)
{
    uint32_t k = rank * NQUEUES + queue;
    r->at[k] = next_on(program_of(r, rank), queue, r->at[k] + 1);
    r->count[k]++;
    r->left--;
}

/* the instruction that comes next on a queue; NULL: none, or it waits */
static const struct insn *ready(const struct running *r, uint32_t rank, uint32_t queue)
{
    const struct program *p = program_of(r, rank);
    uint32_t i = r->at[rank * NQUEUES + queue];
    return i == p->ninsns || waits(r, rank, &p->insns[i]) ? NULL : &p->insns[i];
}

static uint32_t peer_of(const struct running *r, uint32_t rank, const struct insn *in)
{
    return (uint32_t)rank_value(r->s->t->ranks, rank, program_of(r, rank)->attrs[in->attr + ATTR(SEND, peer)].slot);
}

/* does what comes next on a queue, if it can; a RECV is done by its SEND */
static bool advance(struct running *r, uint32_t rank, uint32_t queue)
{
    const struct program *p = program_of(r, rank);
    const struct insn *in = ready(r, rank, queue);
    if (!in || in->op == OP_RECV)
        return false;
    const struct operand *o = &p->operands[in->operand];
    if (in->op == OP_SEND) {
        uint32_t peer = peer_of(r, rank, in);
        const struct insn *meets = ready(r, peer, QUEUE_RECV);
        if (!meets || meets->op != OP_RECV || peer_of(r, peer, meets) != rank)
            return false;
        move_operand(r, peer, &program_of(r, peer)->operands[meets->operand], rank, o);
        finish(r, peer, QUEUE_RECV);
    } else if (in->op == OP_COPY) {
        move_operand(r, rank, &o[OPND(COPY, y)], rank, &o[OPND(COPY, x)]);
    } else if (in->op == OP_FILL) {
        fill_operand(r, rank, o, p->attrs[in->attr + ATTR(FILL, value)].u.f);
    } else {
        r->why = "an instruction that moves nothing";
    }
    finish(r, rank, queue);
    return true;
}

const char *shadow_run(struct shadow *s, uint64_t *random)
{
    uint32_t n = s->t->ranks->nranks * NQUEUES;
    struct running r = {.s = s, .at = calloc(n, sizeof *r.at), .count = calloc(n, sizeof *r.count)};
    for (uint32_t k = 0; k < n; k++) {
        const struct program *p = program_of(&r, k / NQUEUES);
        r.at[k] = next_on(p, k % NQUEUES, 0);
        r.left += k % NQUEUES ? 0 : p->ninsns;
    }
    while (r.left && !r.why) {
        uint32_t first = random_below(random, n), k = 0;
        while (k < n && !advance(&r, (first + k) % n / NQUEUES, (first + k) % n % NQUEUES))
            k++;
        if (k == n)
            r.why = "all ranks wait for ever";
    }
    free(r.at);
    free(r.count);
    return r.why;
}

/* ---- what came of it ---- */

/* the first element of a buffer that is neither what it should be nor, where that may be, untouched; s->n: none */
static uint64_t find_wrong(const struct seated *at, const struct kept_buffer *s, bool tensors)
{
    const uint64_t *cells = at->cells + s->b->offset;
    for (uint64_t e = 0; e < s->n * s->size; e++)
        if (cells[e] != byte_of(s, e) &&
            (tensors ? s->kept[e / s->size] && byte_of(s, e) != ZERO : s->kept[e / s->size] || cells[e] != POISON))
            return e / s->size;
    return s->n;
}

static const char *say_wrong(struct arena *a, const struct shadow *s, bool tensors)
{
    for (uint32_t rank = 0; rank < s->t->ranks->nranks; rank++) {
        struct seated at = seat_of(s, rank, false);
        for (uint32_t i = 0; at.rank != NONE && i < at.p->nbuffers; i++) {
            struct kept_buffer is;
            if (!is_kept_kind(&at.p->buffers[i]))
                continue;
            find_state(&at, i, &is);
            uint64_t e = find_wrong(&at, &is, tensors);
            free_state(&is);
            if (e < is.n)
                return arena_printf(a, "rank %u of the new plan: element %llu of %s is another one", at.rank,
                                    (unsigned long long)e, is.b->name);
        }
    }
    return NULL;
}

const char *shadow_wrong(struct arena *a, const struct shadow *s)
{
    return say_wrong(a, s, false);
}

const char *shadow_lost(struct arena *a, const struct shadow *s)
{
    return say_wrong(a, s, true);
}

/* ---- what is there at all ---- */

struct words {
    uint64_t *at;
    size_t n, room;
};

/* what a plan's ranks keep, but for those of a node */
static struct words list_words(const struct plan *p, uint32_t without)
{
    struct words w = {0};
    for (uint32_t rank = 0; rank < p->ranks->nranks; rank++) {
        const struct seated at = {p->train[p->ranks->ranks[rank].role], p->ranks, rank, NULL};
        for (uint32_t i = 0; p->ranks->ranks[rank].node != without && i < at.p->nbuffers; i++) {
            struct kept_buffer s;
            if (!is_kept_kind(&at.p->buffers[i]))
                continue;
            find_state(&at, i, &s);
            w.room = w.n + s.n > w.room ? 2 * (w.n + s.n) : w.room;
            w.at = realloc(w.at, w.room * sizeof *w.at);
            for (uint64_t e = 0; e < s.n; e++)
                if (s.kept[e] && s.is[e] != ZERO)
                    w.at[w.n++] = s.is[e];
            free_state(&s);
        }
    }
    return w;
}

static int by_word(const void *x, const void *y)
{
    const uint64_t *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

bool shadow_lacks(const struct plan *from, uint32_t lost, const struct plan *to)
{
    struct words there = list_words(from, lost), wanted = list_words(to, NONE);
    bool lacks = !there.n;
    if (there.n)
        qsort(there.at, there.n, sizeof *there.at, by_word);
    for (size_t i = 0; i < wanted.n && !lacks; i++)
        lacks = !bsearch(&wanted.at[i], there.at, there.n, sizeof *there.at, by_word);
    free(there.at);
    free(wanted.at);
    return lacks;
}
