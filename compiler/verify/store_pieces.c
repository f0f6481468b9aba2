/* Where the cells of a store lie, and what is left of pieces when bytes are written; see store_pieces.h.
 *
 * Rectangles are compared on a common pitch: a piece that is one run can be seen on any pitch if its value is
 * the same everywhere (zeros, "defined"), a matrix only on its own.  Cells that share bytes are paired once,
 * by a sweep over their starts, so that a write looks at its neighbours alone. */

#include "compiler/verify/store_pieces.h"

#include "compiler/support/vec.h"

#include <stdlib.h>

struct span_of_cell {
    uint64_t start, end;
    uint32_t cell;
};

static int by_start(const void *x, const void *y)
{
    const struct span_of_cell *a = x, *b = y;
    return a->start != b->start ? (a->start < b->start ? -1 : 1) : (a->cell > b->cell) - (a->cell < b->cell);
}

static void find_near(struct store *s)
{
    struct arena *scratch = arena_new();
    struct span_of_cell *span = ARENA_ARRAY(scratch, struct span_of_cell, s->ncells + 1u);
    uint32_t *open = ARENA_ARRAY(scratch, uint32_t, s->ncells + 1u), nopen = 0, sum = 0;
    VEC(uint64_t) pairs = {0};
    for (uint32_t i = 0; i < s->ncells; i++)
        span[i] = (struct span_of_cell){s->cells[i].start, s->cells[i].end, i};
    qsort(span, s->ncells, sizeof *span, by_start);
    for (uint32_t k = 0; k < s->ncells; k++) {
        uint32_t keep = 0;
        for (uint32_t j = 0; j < nopen; j++)
            if (s->cells[open[j]].end > span[k].start) {
                open[keep++] = open[j];
                vec_push(scratch, &pairs, (uint64_t)open[j] << 32 | span[k].cell);
            }
        nopen = keep;
        open[nopen++] = span[k].cell;
    }
    for (size_t k = 0; k < pairs.n; k++) {
        s->cells[pairs.at[k] >> 32].nnear++;
        s->cells[(uint32_t)pairs.at[k]].nnear++;
    }
    for (uint32_t i = 0; i < s->ncells; i++) {
        s->cells[i].near = sum;
        sum += s->cells[i].nnear;
        s->cells[i].nnear = 0;
    }
    s->near = ARENA_ARRAY(s->arena, uint32_t, sum + 1u);
    for (size_t k = 0; k < pairs.n; k++) {
        struct cell *x = &s->cells[pairs.at[k] >> 32], *y = &s->cells[(uint32_t)pairs.at[k]];
        s->near[x->near + x->nnear++] = (uint32_t)pairs.at[k];
        s->near[y->near + y->nnear++] = (uint32_t)(pairs.at[k] >> 32);
    }
    arena_free(scratch);
}

struct store *store_new(struct arena *a, const struct program *p, const struct mesh *m)
{
    struct store *s = ARENA_NEW(a, struct store);
    *s = (struct store){.arena = a, .program = p, .mesh = m};
    s->first = ARENA_ARRAY(a, uint32_t, p->nbuffers + 1u);
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        s->first[i] = s->ncells;
        s->ncells += p->buffers[i].ring == NONE ? 1 : p->rings[p->buffers[i].ring].depth;
    }
    s->cells = ARENA_ARRAY(a, struct cell, s->ncells + 1u);
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const struct buffer *b = &p->buffers[i];
        uint32_t n = b->ring == NONE ? 1 : p->rings[b->ring].depth;
        for (uint32_t k = 0; k < n; k++) {
            uint64_t start = program_slot_offset(p, b, k);
            s->cells[s->first[i] + k].start = start;
            s->cells[s->first[i] + k].end = start + (b->ring == NONE ? b->bytes : b->stride);
        }
    }
    s->holds = ARENA_ARRAY(a, bool, s->ncells + 1u);
    s->place = ARENA_ARRAY(a, struct store_place, p->noperands + 1u);
    for (uint32_t k = 0; k < p->noperands; k++)
        if (p->operands[k].buffer != NONE)
            s->place[k] = store_find_place(s, &p->operands[k]);
    find_near(s);
    return s;
}

struct piece *pieces_add(struct store *s, struct cell *c)
{
    if (c->n == c->room) {
        uint32_t room = c->room ? 2 * c->room : 1; /* most cells hold one matrix */
        struct piece *p = ARENA_ARRAY(s->arena, struct piece, room);
        if (c->n)
            memcpy(p, c->pieces, c->n * sizeof *p);
        c->pieces = p;
        c->room = room;
    }
    s->holds[c - s->cells] = true;
    return &c->pieces[c->n++];
}

/* the rectangle row, col .. of a piece as a piece of its own */
static void keep(struct store *s, struct cell *c, const struct piece *p, uint64_t row, uint64_t rows, uint64_t col,
                 uint64_t width)
{
    if (!rows || !width)
        return;
    struct piece q = *p;
    q.at += row * p->pitch + col;
    q.rows = rows;
    q.width = width;
    if (rows == 1)
        q.pitch = width;
    if (p->value.kind == VALUE_NODES) {
        int64_t size = isa_dtype_bytes((enum dtype)p->dtype);
        if (piece_own_rows(&p->value, row, rows, p->rows) || (p->value.eight && width != p->width))
            return; /* nothing is kept of them */
        if (!p->value.routed && !p->value.member.len)
            q.value.row = extent_part(&p->value.row, (int64_t)row, (int64_t)rows);
        if (!p->value.eight)
            q.value.col = extent_part(&p->value.col, (int64_t)col / size, (int64_t)width / size);
    }
    *pieces_add(s, c) = q;
}

/* one end of a one-run piece, if whole rows */
static void keep_run(struct store *s, struct cell *c, const struct piece *p, uint64_t start, uint64_t end)
{
    if (start >= end)
        return;
    if (p->rows == 1) {
        keep(s, c, p, 0, 1, start - p->at, end - start);
    } else if (piece_uniform(&p->value)) {
        struct piece run = *p;
        run.rows = 1;
        run.width = run.pitch = p->rows * p->width;
        keep(s, c, &run, 0, 1, start - p->at, end - start);
    } else if ((end - start) % p->pitch == 0) {
        keep(s, c, p, (start - p->at) / p->pitch, (end - start) / p->pitch, 0, p->width);
    }
}

/* what is left of a piece without a region, on the piece's own grid */
static void keep_around(struct store *s, struct cell *c, const struct piece *p, const struct region *r)
{
    struct region grid = {p->at, p->rows, p->width, p->pitch};
    struct cuts cuts;
    if (!cut_piece(r, false, &grid, &cuts) || cuts.n != 1)
        return; /* not one rectangle of it: nothing is kept */
    const struct cut *h = &cuts.at[0];
    keep(s, c, p, 0, h->row, 0, p->width);
    keep(s, c, p, h->row + h->rows, p->rows - h->row - h->rows, 0, p->width);
    keep(s, c, p, h->row, h->rows, 0, h->col);
    keep(s, c, p, h->row, h->rows, h->col + h->width, p->width - h->col - h->width);
}

/* What is left of one run of equal bytes without a region of several rows: both ends, and the gaps between
 * its rows. */
static void keep_gaps(struct store *s, struct cell *c, const struct piece *p, const struct region *r)
{
    uint64_t end = piece_end(p), from = cut_most(p->at, r->at), to = cut_least(end, region_end(r));
    uint64_t row = (from - r->at) / r->pitch, last = (to - r->at) / r->pitch;
    struct piece run = *p;
    run.rows = 1;
    run.width = run.pitch = end - p->at;
    keep_run(s, c, &run, p->at, cut_least(r->at, end));
    keep_run(s, c, &run, cut_most(region_end(r), p->at), end);
    if ((from - r->at) % r->pitch) { /* the run starts within a row */
        uint64_t start = r->at + row * r->pitch;
        keep_run(s, c, &run, cut_most(from, start + r->width), cut_least(to, start + r->pitch));
        row++;
    }
    if (row > last)
        return;
    struct piece gap = run;
    gap.at = r->at + row * r->pitch + r->width;
    gap.rows = last - row;
    gap.width = r->pitch - r->width;
    gap.pitch = r->pitch;
    if (gap.rows)
        keep(s, c, &gap, 0, gap.rows, 0, gap.width);
    keep_run(s, c, &run, r->at + last * r->pitch + r->width, to);
}

/* is the piece gone? */
static bool take_out(struct store *s, struct cell *c, uint32_t i, const struct region *r)
{
    struct piece p = c->pieces[i];
    struct region mine = {p.at, p.rows, p.width, p.pitch};
    bool run = cut_one_run(p.rows, p.width, p.pitch);
    if (!prove_overlap(&mine, r))
        return false;
    c->pieces[i] = c->pieces[--c->n];
    c->losses++;
    if (p.own || p.value.kind == VALUE_PART)
        return true;
    if (run && cut_one_run(r->rows, r->width, r->pitch)) {
        keep_run(s, c, &p, p.at, r->at);
        keep_run(s, c, &p, region_end(r), piece_end(&p));
    } else if (run && piece_uniform(&p.value) && (p.rows == 1 || p.pitch != r->pitch)) {
        keep_gaps(s, c, &p, r);
    } else {
        keep_around(s, c, &p, r);
    }
    return true;
}

/* the pieces of a cell that lie on these bytes of the arena */
static void drop_pieces(struct cell *c, uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < c->n;) {
        const struct piece *p = &c->pieces[i];
        if (c->start + p->at >= end || c->start + piece_end(p) <= start) {
            i++;
            continue;
        }
        if (i != --c->n)
            c->pieces[i] = c->pieces[c->n];
        c->losses++;
    }
}

void pieces_drop_near(struct store *s, uint32_t cell, const struct region *r)
{
    const struct cell *c = &s->cells[cell];
    const uint32_t *near = s->near + c->near, *end = near + c->nnear;
    bool *holds = s->holds;
    for (; near < end; near++) {
        if (!holds[*near])
            continue;
        drop_pieces(&s->cells[*near], c->start + r->at, c->start + region_end(r));
        holds[*near] = s->cells[*near].n != 0;
    }
}

struct piece *pieces_clear(struct store *s, uint32_t cell, const struct region *r)
{
    struct cell *c = &s->cells[cell];
    uint32_t same = NONE;
    for (uint32_t i = 0; i < c->n && same == NONE; i++)
        if (c->pieces[i].at == r->at && c->pieces[i].rows == r->rows && c->pieces[i].width == r->width &&
            (r->rows == 1 || c->pieces[i].pitch == r->pitch) && !c->pieces[i].own)
            same = i;
    if (same == NONE) /* else nothing of other buffers can lie there */
        pieces_drop_near(s, cell, r);
    uint64_t end = region_end(r);
    for (uint32_t i = c->n; i-- > 0 && c->n > 1 - (same == NONE);) {
        uint32_t last = c->n - 1;
        if (i == same || c->pieces[i].at >= end || piece_end(&c->pieces[i]) <= r->at)
            continue;
        if (take_out(s, c, i, r) && same == last)
            same = i; /* the last piece moved into the hole */
    }
    return same == NONE ? pieces_add(s, c) : &c->pieces[same];
}
