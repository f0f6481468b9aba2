/* The proof of a transition, from both plans and its programs alone; nothing here is shared with what made it.
 *
 * 1 structure: the loader's checks; instructions are SEND, RECV, COPY and FILL without waits; every rank of the new
 * plan has one seat, which is where both plans have it, and the new arena begins behind the old one.
 *
 * 2 matching: the RECV of a rank with seq s from a peer is the peer's instruction with seq s, a SEND to that rank of
 * the same shape and format; there are as many of one as of the other.
 *
 * 3 order: seq grows within every program, which the loader's checks say, so what waits waits for smaller numbers, and
 * somebody has the smallest.
 *
 * 7 conservation: what is read is state that the old plan's step leaves behind; what is written is the same element of
 * the same tensor, in the same kind of buffer; zeros are written where no tensor is.  Each element that the new plan's
 * step needs is written once, and nothing else is.
 *
 * Exactly once: rectangles cover a region exactly if the sum of their indicator functions is the region's, and a
 * function on the plane is determined by its mixed second differences, which for a rectangle are four signed corners.
 * So all corners are added up, the region's with the other sign, and must cancel.
 *
 * What a new step needs of the working copies is what it reads before it writes it; that is looked up in the programs.
 */

#include "compiler/transition/prove.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char unmatched[] = "its peer sends nothing like it";

static int compare(uint64_t x, uint64_t y)
{
    return x < y ? -1 : x > y;
}

static int by_corner(const void *a, const void *b)
{
    const struct corner *x = a, *y = b;
    int c = compare(x->buffer, y->buffer);
    c = c ? c : compare(x->span, y->span);
    c = c ? c : compare(x->row, y->row);
    return c ? c : compare(x->col, y->col);
}

static void add_rect(struct proof *f, uint32_t buffer, uint32_t span, const uint64_t r[4], int sign)
{
    vec_push(f->arena, &f->corners, (struct corner){buffer, span, r[0], r[2], sign});
    vec_push(f->arena, &f->corners, (struct corner){buffer, span, r[0], r[3], -sign});
    vec_push(f->arena, &f->corners, (struct corner){buffer, span, r[1], r[2], -sign});
    vec_push(f->arena, &f->corners, (struct corner){buffer, span, r[1], r[3], sign});
}

/* elements [lo, hi) of a box, as up to three rectangles of rows */
static void add_range(struct proof *f, uint32_t buffer, uint32_t span, uint64_t cols, uint64_t lo, uint64_t hi,
                      int sign)
{
    uint64_t row = lo / cols, col = lo % cols, last = hi / cols, rest = hi % cols;
    if (row == last) {
        add_rect(f, buffer, span, (uint64_t[]){row, row + 1, col, rest}, sign);
        return;
    }
    if (col)
        add_rect(f, buffer, span, (uint64_t[]){row, row + 1, col, cols}, sign);
    if (row + (col > 0) < last)
        add_rect(f, buffer, span, (uint64_t[]){row + (col > 0), last, 0, cols}, sign);
    if (rest)
        add_rect(f, buffer, span, (uint64_t[]){last, last + 1, 0, rest}, sign);
}

/* The next stretch of a run of elements of a bucket: within one box, or between boxes, which is *where NULL; returns
 * its length. */
static uint64_t stretch(const struct stated *s, uint32_t bucket, uint64_t e, uint64_t n, const struct stored **where)
{
    const struct stored *from = s->span + s->first[bucket], *end = s->span + s->first[bucket + 1], *to = end;
    while (from < to) { /* the first that ends behind e */
        const struct stored *middle = from + (to - from) / 2;
        if (middle->end > e)
            to = middle;
        else
            from = middle + 1;
    }
    uint64_t most = from == end ? n : from->at > e ? from->at - e : from->end - e;
    *where = from < end && from->at <= e ? from : NULL;
    return most < n ? most : n;
}

/* a box on a rank, in the orientation in which it is stored */
static struct boxed box_of(const struct plan *p, uint32_t rank, const struct program *q, const struct stored *s)
{
    const struct tensor *t = &q->tensors[s->tensor];
    uint64_t row = t->row + proof_slot(p, rank, t->row_slot) * t->row_stride,
             col = t->col + proof_slot(p, rank, t->col_slot) * t->col_stride;
    struct boxed b = {.name = t->name, .transposed = t->transposed};
    b.member = t->family ? t->member + proof_slot(p, rank, t->member_slot) * t->member_stride + s->box : 0;
    b.row = t->transposed ? col : row;
    b.col = t->transposed ? row : col;
    b.row_end = t->shape[t->transposed ? 1 : 0];
    b.col_end = t->shape[t->transposed ? 0 : 1];
    return b;
}

static bool same_tensor(const struct boxed *x, const struct boxed *y)
{
    return x->member == y->member && x->transposed == y->transposed && x->row_end == y->row_end &&
           x->col_end == y->col_end && !strcmp(x->name, y->name);
}

/* Where an operand lies: in which buffer of a plan's rank, from which element of its bucket on. */
static bool find_place(const struct proof *f, uint32_t rank, const struct operand *o, bool old, struct where *out)
{
    const struct transition *t = f->t;
    const struct seat *seat = &t->seats[rank];
    const struct plan *p = old ? t->from : t->to;
    uint32_t own = old ? seat->from : seat->to;
    const struct program *q = t->programs[t->ranks->ranks[rank].role];
    uint64_t at = program_operand_offset(q, o), base = old ? 0 : seat->base;
    if (own == NONE || o->slot != UINT16_MAX || at < base || (old && seat->to != NONE && at >= seat->base))
        return false;
    uint32_t role = p->ranks->ranks[own].role;
    const struct stated *s = &(old ? f->old : f->new)[role];
    at -= base;
    uint32_t from = 0, to = s->nbuffers; /* the last that begins at `at` or before */
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (s->p->buffers[s->buffer[middle]].offset <= at)
            from = middle + 1;
        else
            to = middle;
    }
    if (!from)
        return false;
    const struct buffer *b = &s->p->buffers[s->buffer[from - 1]];
    uint64_t size = isa_dtype_bytes(b->dtype), span = ((uint64_t)(o->rows - 1) * o->ld + o->cols) * size;
    if (at - b->offset >= b->bytes || span > b->bytes - (at - b->offset) || (at - b->offset) % size ||
        b->dtype != (enum dtype)o->dtype)
        return false;
    *out = (struct where){p, own, s, s->buffer[from - 1],
                          proof_slot(p, own, b->shard_slot) * (b->bytes / size) + (at - b->offset) / size};
    return true;
}

/* Does the old step leave the operand's elements behind?  Working copies only where the optimizer writes them. */
static bool is_left(const struct where *w, const struct operand *o)
{
    if (w->s->p->buffers[w->buffer].kind != BUFFER_PARAM)
        return true;
    const struct needed *n = &w->s->updated[w->s->p->buffers[w->buffer].bucket];
    uint64_t first = proof_first(w->p, w->rank, w->s->p, n), end = w->first + (uint64_t)(o->rows - 1) * o->ld + o->cols;
    return n->n && w->first >= first && end <= first + n->n;
}

/* One run of elements of both sides: the same elements of the same tensors?  Adds what is written. */
static bool same_run(struct proof *f, const struct where *to, uint64_t dst, const struct where *from, uint64_t src,
                     uint64_t n)
{
    uint32_t to_bucket = to->s->p->buffers[to->buffer].bucket, from_bucket = from->s->p->buffers[from->buffer].bucket;
    while (n) {
        const struct stored *d, *s;
        uint64_t part = stretch(from->s, from_bucket, src, stretch(to->s, to_bucket, dst, n, &d), &s);
        if (!d || !s)
            return false;
        struct boxed x = box_of(to->p, to->rank, to->s->p, d), y = box_of(from->p, from->rank, from->s->p, s);
        uint64_t lo = dst - d->at, row = lo / d->cols, col = lo % d->cols, from_row = (src - s->at) / s->cols,
                 from_col = (src - s->at) % s->cols;
        bool alike = d->cols == s->cols && x.col == y.col && x.col + d->cols <= x.col_end;
        if (!alike) {
            part = part < d->cols - col ? part : d->cols - col;
            part = part < s->cols - from_col ? part : s->cols - from_col;
        }
        uint64_t last = (lo + part - 1) / d->cols;
        if (!same_tensor(&x, &y) || x.row + row != y.row + from_row || x.col + col != y.col + from_col ||
            x.row + last >= x.row_end || (!alike && x.col + col + part > x.col_end))
            return false;
        add_range(f, to->buffer, (uint32_t)(d - to->s->span), d->cols, lo, lo + part, 1);
        dst += part;
        src += part;
        n -= part;
    }
    return true;
}

/* a run of zeros: between boxes, or beyond the end of a tensor */
static bool zero_run(struct proof *f, const struct where *to, uint64_t dst, uint64_t n)
{
    uint32_t bucket = to->s->p->buffers[to->buffer].bucket;
    while (n) {
        const struct stored *d;
        uint64_t part = stretch(to->s, bucket, dst, n, &d);
        if (!d) {
            add_rect(f, to->buffer, NONE, (uint64_t[]){0, 1, dst, dst + part}, 1);
        } else {
            struct boxed x = box_of(to->p, to->rank, to->s->p, d);
            uint64_t lo = dst - d->at, row = lo / d->cols, col = lo % d->cols;
            if (x.row + row < x.row_end) {
                part = part < d->cols - col ? part : d->cols - col;
                if (x.col + col < x.col_end)
                    return false;
            }
            add_range(f, to->buffer, (uint32_t)(d - to->s->span), d->cols, lo, lo + part, 1);
        }
        dst += part;
        n -= part;
    }
    return true;
}

/* Many rows at once, where both sides' rows lie in one box each; false: they do not. */
static bool same_rows(struct proof *f, const struct where *to, const struct operand *y, const struct where *from,
                      const struct operand *x)
{
    const struct stored *d, *s;
    stretch(to->s, to->s->p->buffers[to->buffer].bucket, to->first, 1, &d);
    stretch(from->s, from->s->p->buffers[from->buffer].bucket, from->first, 1, &s);
    if (!d || !s || y->ld != d->cols || x->ld != s->cols)
        return false;
    uint64_t row = (to->first - d->at) / d->cols, col = (to->first - d->at) % d->cols,
             from_row = (from->first - s->at) / s->cols, from_col = (from->first - s->at) % s->cols;
    struct boxed b = box_of(to->p, to->rank, to->s->p, d), c = box_of(from->p, from->rank, from->s->p, s);
    uint64_t d_rows = (d->end - d->at) / d->cols, s_rows = (s->end - s->at) / s->cols;
    if (col + y->cols > d->cols || from_col + y->cols > s->cols || row + y->rows > d_rows ||
        from_row + y->rows > s_rows || !same_tensor(&b, &c) || b.row + row != c.row + from_row ||
        b.col + col != c.col + from_col || b.row + row + y->rows > b.row_end || b.col + col + y->cols > b.col_end)
        return false;
    add_rect(f, to->buffer, (uint32_t)(d - to->s->span), (uint64_t[]){row, row + y->rows, col, col + y->cols}, 1);
    return true;
}

static bool zero_rows(struct proof *f, const struct where *to, const struct operand *y)
{
    for (uint32_t r = 0; r < y->rows; r++)
        if (!zero_run(f, to, to->first + (uint64_t)r * y->ld, y->cols))
            return false;
    return true;
}

/* A plan without a master copy has the weights themselves in its working copy. */
static bool same_kind(const struct where *to, const struct where *from)
{
    const struct program *p = from->s->p;
    enum buffer_kind y = to->s->p->buffers[to->buffer].kind, x = p->buffers[from->buffer].kind;
    bool master = false;
    for (uint32_t i = 0; i < p->nbuffers; i++)
        master |= p->buffers[i].kind == BUFFER_MASTER && p->buffers[i].bucket == p->buffers[from->buffer].bucket;
    return x == y || (y == BUFFER_MASTER && x == BUFFER_PARAM && !master);
}

/* y of rank `rank` becomes x of rank `peer`; x NULL: zeros */
static const char *check_transfer(struct proof *f, uint32_t rank, const struct operand *y, uint32_t peer,
                                  const struct operand *x)
{
    struct where to, from;
    if (!find_place(f, rank, y, false, &to))
        return "what it writes is no state of the new plan";
    if (!x)
        return zero_rows(f, &to, y) ? NULL : "it writes zeros over elements of a tensor";
    if (!find_place(f, peer, x, true, &from))
        return "what it moves is no state of the old plan";
    if (!is_left(&from, x))
        return "the old plan's step does not leave behind what it moves";
    if (!same_kind(&to, &from))
        return "it moves one kind of state to another";
    bool same = y->rows == 1 ? same_run(f, &to, to.first, &from, from.first, y->cols) : same_rows(f, &to, y, &from, x);
    return same ? NULL : "it moves elements to where others belong";
}

/* The peer's SEND for a RECV: its instruction of the same seq. */
static const struct operand *find_send(const struct proof *f, uint32_t rank, uint32_t insn, uint32_t *peer)
{
    const struct transition *t = f->t;
    const struct program *p = t->programs[t->ranks->ranks[rank].role];
    *peer = (uint32_t)proof_peer(t, rank, insn);
    const struct program *q = t->programs[t->ranks->ranks[*peer].role];
    uint32_t from = 0, to = q->ninsns;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (q->insns[middle].seq < p->insns[insn].seq)
            from = middle + 1;
        else
            to = middle;
    }
    const struct operand *y = &p->operands[p->insns[insn].operand];
    if (from == q->ninsns || q->insns[from].seq != p->insns[insn].seq || q->insns[from].op != OP_SEND ||
        proof_peer(t, *peer, from) != rank)
        return NULL;
    const struct operand *x = &q->operands[q->insns[from].operand];
    return x->rows == y->rows && x->cols == y->cols && x->dtype == y->dtype ? x : NULL;
}

/* what is wrong with an instruction; NULL: nothing */
static const char *check_insn(struct proof *f, uint32_t rank, uint32_t i)
{
    const struct program *p = f->t->programs[f->t->ranks->ranks[rank].role];
    const struct insn *in = &p->insns[i];
    const struct operand *o = &p->operands[in->operand];
    if (in->nwaits)
        return "it waits, and nothing here has to";
    if (in->op == OP_SEND) { /* looked at where it is received */
        f->sends++;
        return NULL;
    }
    if (in->op == OP_RECV) {
        uint32_t peer;
        const struct operand *x = find_send(f, rank, i, &peer);
        f->receives++;
        return x ? check_transfer(f, rank, o, peer, x) : unmatched;
    }
    if (in->op == OP_COPY)
        return check_transfer(f, rank, &o[OPND(COPY, y)], rank, &o[OPND(COPY, x)]);
    if (in->op != OP_FILL)
        return "it is none of SEND, RECV, COPY and FILL";
    double value = p->attrs[in->attr + ATTR(FILL, value)].u.f;
    return value == 0 && !signbit(value) ? check_transfer(f, rank, &o[OPND(FILL, y)], rank, NULL)
                                         : "it fills with something else than 0";
}

/* the other side of the sum: what the new plan's step needs of this rank */
static void add_needs(struct proof *f, uint32_t rank)
{
    const struct plan *p = f->t->to;
    const struct stated *s = &f->new[p->ranks->ranks[rank].role];
    for (uint32_t i = 0; i < s->nbuffers; i++) {
        uint32_t buffer = s->buffer[i];
        const struct needed *need = &s->need[i];
        uint64_t at = proof_first(p, rank, s->p, need), n = need->n;
        while (n) {
            const struct stored *d;
            uint64_t part = stretch(s, s->p->buffers[buffer].bucket, at, n, &d);
            if (d)
                add_range(f, buffer, (uint32_t)(d - s->span), d->cols, at - d->at, at - d->at + part, -1);
            else
                add_rect(f, buffer, NONE, (uint64_t[]){0, 1, at, at + part}, -1);
            at += part;
            n -= part;
        }
    }
}

/* Does everything cancel?  If not, the buffer where it does not. */
static bool is_covered(struct proof *f, uint32_t *buffer)
{
    if (!f->corners.n)
        return true;
    qsort(f->corners.at, f->corners.n, sizeof *f->corners.at, by_corner);
    for (size_t i = 0, end; i < f->corners.n; i = end) {
        int64_t sum = 0;
        for (end = i; end < f->corners.n && !by_corner(&f->corners.at[i], &f->corners.at[end]); end++)
            sum += f->corners.at[end].sign;
        *buffer = f->corners.at[i].buffer;
        if (sum)
            return false;
    }
    return true;
}

static void prove_rank(struct proof *f, uint32_t rank)
{
    const struct transition *t = f->t;
    uint32_t role = t->ranks->ranks[rank].role, buffer, to = t->seats[rank].to;
    const struct program *p = t->programs[role];
    bool fine = true;
    f->corners.n = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const char *why = check_insn(f, rank, i);
        if (why)
            proof_report(f, why == unmatched ? 2 : 7, rank, i, "%s", why);
        fine &= !why;
    }
    if (to != NONE)
        add_needs(f, to);
    if (fine && !is_covered(f, &buffer))
        proof_report(f, 7, rank, NONE, "not every element of %s of rank %u of the new plan is written exactly once",
                     to == NONE ? "a buffer" : t->to->train[t->to->ranks->ranks[to].role]->buffers[buffer].name, to);
}

struct verdict *transition_prove(struct arena *a, const struct transition *t)
{
    struct verdict *v = ARENA_NEW(a, struct verdict);
    struct proof f = {.arena = arena_new(), .messages = a, .t = t, .verdict = v};
    proof_structure(&f);
    if (!v->nviolations)
        proof_state(&f);
    for (uint32_t rank = 0; rank < t->ranks->nranks && !v->nviolations; rank++) {
        prove_rank(&f, rank);
        v->checked_insns += t->programs[t->ranks->ranks[rank].role]->ninsns;
    }
    if (!v->nviolations && f.sends != f.receives)
        proof_report(&f, 2, NONE, NONE, "there are %llu SENDs and %llu RECVs", (unsigned long long)f.sends,
                     (unsigned long long)f.receives);
    v->checked_ranks = t->ranks->nranks;
    v->certificate = !v->nviolations;
    arena_free(f.arena);
    return v;
}
