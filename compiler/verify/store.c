/* Pieces of memory with values; see store.h.
 *
 * Rectangles are compared on a common pitch: a piece that is one run can be seen on any pitch if its value is
 * the same everywhere (zeros, "defined"), a matrix only on its own.  Almost all accesses find a piece of
 * exactly their own shape; the rest of this file is for views: columns of a fused projection, weights within
 * a bucket, parts of the metrics. */

#include "compiler/verify/store.h"

#include "compiler/verify/cut.h"

#include "compiler/support/vec.h"

#include <stdlib.h>

static bool uniform(const struct value *v)
{
    return v->kind == VALUE_ZERO || v->kind == VALUE_BYTES;
}

/* rows with experts, and weights of several, are no interval of rows: a part of them is nothing that has a name */
static bool has_own_rows(const struct value *v, uint64_t from, uint64_t rows, uint64_t all)
{
    return (v->routed || v->member.len) && (from || rows != all);
}

static uint64_t piece_end(const struct piece *p)
{
    return p->at + (p->rows - 1) * p->pitch + p->width;
}

static uint32_t cell_of(const struct store *s, const struct operand *o, uint64_t *at)
{
    const struct buffer *b = &s->program->buffers[o->buffer];
    uint64_t slot = b->ring == NONE ? 0 : o->offset / b->stride;
    *at = o->offset - slot * (b->ring == NONE ? 0 : b->stride);
    return s->first[o->buffer] + (uint32_t)slot;
}

/* The operand in its cell; at a slot, the range that all values cover, as parts one below the other. */
static struct region region_of(const struct store *s, const struct operand *o, uint32_t *cell)
{
    struct region r;
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype);
    *cell = cell_of(s, o, &r.at);
    r.rows = o->rows;
    r.width = o->cols * size;
    r.pitch = o->rows == 1 ? r.width : o->ld * size;
    if (o->slot != UINT16_MAX)
        r.rows *= (uint64_t)s->program->slots[o->slot].most + 1;
    return r;
}

uint32_t store_part(const struct program *p, const struct operand *o)
{
    if (o->slot == UINT16_MAX || p->slots[o->slot].kind != SLOT_COORD || (o->rows > 1 && o->ld != o->cols))
        return 0;
    return o->slot_stride == (uint64_t)o->rows * o->cols * isa_dtype_bytes((enum dtype)o->dtype)
               ? p->slots[o->slot].arg
               : 0;
}

/* ---- layout ---- */

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
            uint64_t start = b->offset + k * b->stride;
            s->cells[s->first[i] + k].start = start;
            s->cells[s->first[i] + k].end = start + (b->ring == NONE ? b->bytes : b->stride);
        }
    }
    s->holds = ARENA_ARRAY(a, bool, s->ncells + 1u);
    s->hint = ARENA_ARRAY(a, uint32_t, p->noperands + 1u);
    find_near(s);
    return s;
}

/* ---- taking out ---- */

static struct piece *new_piece(struct store *s, struct cell *c)
{
    if (c->n == c->room) {
        uint32_t room = c->room ? 2 * c->room : 4;
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
static void keep(struct store *s, struct cell *c, const struct piece *p, uint64_t row, uint64_t rows,
                 uint64_t col, uint64_t width)
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
        if (has_own_rows(&p->value, row, rows, p->rows))
            return; /* nothing is kept of them */
        if (!p->value.routed && !p->value.member.len)
            q.value.row = extent_part(&p->value.row, (int64_t)row, (int64_t)rows);
        q.value.col = extent_part(&p->value.col, (int64_t)col / size, (int64_t)width / size);
    }
    *new_piece(s, c) = q;
}

/* a run of bytes of a one-run piece, if whole rows */
static void keep_run(struct store *s, struct cell *c, const struct piece *p, uint64_t start, uint64_t end)
{
    if (start >= end)
        return;
    if (p->rows == 1) {
        keep(s, c, p, 0, 1, start - p->at, end - start);
    } else if (uniform(&p->value)) {
        struct piece run = *p;
        run.rows = 1;
        run.width = run.pitch = p->rows * p->width;
        keep(s, c, &run, 0, 1, start - p->at, end - start);
    } else if ((start - p->at) % p->pitch == 0 && (end - start) % p->pitch == 0) {
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
    } else if (run && uniform(&p.value) && (p.rows == 1 || p.pitch != r->pitch)) {
        keep_gaps(s, c, &p, r);
    } else {
        keep_around(s, c, &p, r);
    }
    return true;
}

/* other buffers on the same bytes lose what they held there */
static void drop_near(struct store *s, uint32_t cell, const struct region *r)
{
    const struct cell *c = &s->cells[cell];
    uint64_t start = c->start + r->at, end = c->start + region_end(r);
    for (uint32_t k = 0; k < c->nnear; k++) {
        uint32_t at = s->near[c->near + k];
        if (!s->holds[at])
            continue;
        struct cell *other = &s->cells[at];
        for (uint32_t i = 0; i < other->n;) {
            const struct piece *p = &other->pieces[i];
            if (other->start + p->at < end && other->start + piece_end(p) > start) {
                other->pieces[i] = other->pieces[--other->n];
                other->losses++;
            } else {
                i++;
            }
        }
        s->holds[at] = other->n != 0;
    }
}

/* make room for a write; a piece of exactly that shape is returned for reuse */
static struct piece *clear(struct store *s, uint32_t cell, const struct region *r)
{
    struct cell *c = &s->cells[cell];
    uint32_t same = NONE;
    drop_near(s, cell, r);
    for (uint32_t i = 0; i < c->n && same == NONE; i++)
        if (c->pieces[i].at == r->at && c->pieces[i].rows == r->rows && c->pieces[i].width == r->width &&
            (r->rows == 1 || c->pieces[i].pitch == r->pitch) && !c->pieces[i].own)
            same = i;
    uint64_t end = region_end(r);
    for (uint32_t i = c->n; i-- > 0 && c->n > 1 - (same == NONE);) {
        uint32_t last = c->n - 1;
        if (i == same || c->pieces[i].at >= end || piece_end(&c->pieces[i]) <= r->at)
            continue;
        if (take_out(s, c, i, r) && same == last)
            same = i; /* the last piece moved into the hole */
    }
    return same == NONE ? new_piece(s, c) : &c->pieces[same];
}

/* a piece there; its value is the caller's to write */
static struct piece *put(struct store *s, uint32_t cell, const struct region *r, uint32_t writer, uint8_t dtype)
{
    struct piece *at = clear(s, cell, r);
    at->at = r->at;
    at->rows = r->rows;
    at->width = r->width;
    at->pitch = r->rows == 1 ? r->width : r->pitch;
    at->writer = writer;
    at->dtype = dtype;
    at->own = false;
    at->mask = 0;
    return at;
}

static void write_rectangle(struct store *s, const struct operand *o, const struct part *part, const struct value *v,
                            uint32_t writer)
{
    uint32_t cell;
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype);
    struct region r = region_of(s, o, &cell);
    if (o->slot != UINT16_MAX) {
        uint32_t mask = store_part(s->program, o);
        struct piece *at = put(s, cell, &r, writer, o->dtype);
        at->own = true;
        at->mask = (uint8_t)mask;
        at->value = *v;
        if (!mask) /* no part of a whole: nothing is known */
            *at = s->cells[cell].pieces[--s->cells[cell].n];
        return;
    }
    if (part && (part->rows != o->rows || part->cols != o->cols)) {
        r.at += part->row * r.pitch + part->col * size;
        r.rows = part->rows;
        r.width = part->cols * size;
    }
    put(s, cell, &r, writer, o->dtype)->value = *v;
}

void store_write(struct store *s, const struct operand *o, const struct part *part, uint32_t writer)
{
    write_rectangle(s, o, part, &part->value, writer);
}

void store_write_whole(struct store *s, const struct operand *o, const struct value *v, uint32_t writer)
{
    write_rectangle(s, o, NULL, v, writer);
}

/* ---- reading ---- */

static bool cut_of(const struct piece *p, const struct region *r, struct cuts *out)
{
    struct region mine = {p->at, p->rows, p->width, p->pitch};
    return cut_piece(&mine, uniform(&p->value), r, out);
}

static bool overlaps(const struct piece *p, const struct region *r)
{
    struct region mine = {p->at, p->rows, p->width, p->pitch};
    return prove_overlap(&mine, r);
}

static bool same_place(const struct piece *p, const struct region *r)
{
    return p->at == r->at && p->rows == r->rows && p->width == r->width &&
           (r->rows == 1 || p->pitch == r->pitch);
}

static int by_row(const void *x, const void *y)
{
    const struct part *a = x, *b = y;
    return a->row != b->row ? (a->row < b->row ? -1 : 1) : (a->col > b->col) - (a->col < b->col);
}

static struct value part_value(const struct piece *p, const struct cut *c, int64_t size)
{
    struct value v = p->value;
    if (v.kind == VALUE_NODES) {
        if (has_own_rows(&v, c->from_row, c->rows, p->rows))
            v = (struct value){.kind = VALUE_BYTES};
        else if (!v.routed && !v.member.len)
            v.row = extent_part(&v.row, (int64_t)c->from_row, (int64_t)c->rows);
        v.col = extent_part(&v.col, (int64_t)c->from_col / size, (int64_t)c->width / size);
    }
    return v;
}

/* the pieces on a region of a cell, as parts in elements */
static bool read_parts(const struct cell *c, const struct region *r, uint8_t dtype, struct parts *out)
{
    uint64_t size = isa_dtype_bytes((enum dtype)dtype), area = 0;
    out->n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct piece *p = &c->pieces[i];
        struct cuts cuts;
        if (!overlaps(p, r))
            continue;
        if (p->own || (p->value.kind == VALUE_PART && !same_place(p, r)) ||
            (p->dtype != dtype && !uniform(&p->value)) || !cut_of(p, r, &cuts))
            return false;
        for (uint32_t k = 0; k < cuts.n; k++) {
            const struct cut *u = &cuts.at[k];
            if (out->n == MOST_PARTS)
                return false;
            out->at[out->n++] = (struct part){(uint32_t)u->row,
                                              (uint32_t)u->rows,
                                              (uint32_t)(u->col / size),
                                              (uint32_t)(u->width / size),
                                              p->writer,
                                              part_value(p, u, (int64_t)size)};
            area += u->rows * u->width;
        }
    }
    if (out->n > 1)
        qsort(out->at, out->n, sizeof *out->at, by_row);
    return area == r->rows * r->width;
}

static bool is_whole(const struct piece *p, const struct region *r, const struct operand *o)
{
    return same_place(p, r) && p->dtype == o->dtype && !p->own;
}

/* the piece that is the whole operand, first where it was the last time; else the number of pieces */
static uint32_t find_whole(struct store *s, const struct cell *c, const struct region *r, const struct operand *o)
{
    size_t k = ((uintptr_t)o - (uintptr_t)s->program->operands) / sizeof *o;
    uint32_t none, *hint = k < s->program->noperands ? &s->hint[k] : &none, i = 0;
    none = NONE;
    if (*hint < c->n && is_whole(&c->pieces[*hint], r, o))
        return *hint;
    while (i < c->n && !is_whole(&c->pieces[i], r, o))
        i++;
    *hint = i;
    return i;
}

const struct piece *store_whole(struct store *s, const struct operand *o)
{
    uint32_t cell;
    if (o->slot != UINT16_MAX)
        return NULL;
    struct region r = region_of(s, o, &cell);
    const struct cell *c = &s->cells[cell];
    uint32_t i = find_whole(s, c, &r, o);
    return i == c->n ? NULL : &c->pieces[i];
}

bool store_read(struct store *s, const struct operand *o, struct parts *out)
{
    uint32_t cell;
    struct region r = region_of(s, o, &cell);
    const struct cell *c = &s->cells[cell];
    if (o->slot == UINT16_MAX) {
        uint32_t i = find_whole(s, c, &r, o);
        if (i == c->n)
            return read_parts(c, &r, o->dtype, out);
        out->n = 1;
        out->at[0] = (struct part){0, o->rows, 0, o->cols, c->pieces[i].writer, c->pieces[i].value};
        return true;
    }
    uint32_t mask = store_part(s->program, o);
    if (!mask)
        return false;
    for (uint32_t i = 0; i < c->n; i++)
        if (same_place(&c->pieces[i], &r) && c->pieces[i].dtype == o->dtype && c->pieces[i].own &&
            c->pieces[i].mask == mask) {
            out->n = 1;
            out->at[0] = (struct part){0, o->rows, 0, o->cols, c->pieces[i].writer, c->pieces[i].value};
            return true;
        }
    /* the own rows of one matrix that lies there whole */
    if (!read_parts(c, &r, o->dtype, out) || out->n != 1 || out->at[0].value.kind == VALUE_PART)
        return false;
    out->at[0].rows = o->rows;
    out->at[0].value.row.len = o->rows;
    extent_move(&out->at[0].value.row, s->mesh, mask, o->rows);
    return true;
}

static int by_at(const void *x, const void *y)
{
    const struct stretch *a = x, *b = y;
    return (a->at > b->at) - (a->at < b->at);
}

bool store_read_flat(struct store *s, const struct operand *o, struct whole *out, uint32_t *mask)
{
    uint32_t cell, own = o->slot == UINT16_MAX ? 0 : store_part(s->program, o);
    struct region r = region_of(s, o, &cell);
    const struct cell *c = &s->cells[cell];
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype), bytes = r.rows * r.width, covered = 0;
    if (!cut_one_run(r.rows, r.width, r.pitch) || (o->slot != UINT16_MAX && !own))
        return false;
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->n; i++)
        most += c->pieces[i].at < r.at + bytes && piece_end(&c->pieces[i]) > r.at;
    *mask = own;
    *out = (struct whole){.elements = bytes / size};
    if (!(most == 1 && c->n == 1 && c->pieces[0].value.kind == VALUE_PART))
        out->at = ARENA_ARRAY(s->arena, struct stretch, most + 1u);
    for (uint32_t i = 0; i < c->n; i++) {
        const struct piece *p = &c->pieces[i];
        if (p->at >= r.at + bytes || piece_end(p) <= r.at)
            continue;
        if (p->own || p->value.kind == VALUE_PART) {
            bool mine = p->own ? p->mask == own && p->value.kind == VALUE_PART : !own;
            if (!mine || p->at != r.at || p->rows * p->width != bytes || p->dtype != o->dtype)
                return false;
            *mask = p->value.mask;
            *out = *p->value.whole;
            return true;
        }
        uint64_t start = cut_most(p->at, r.at), end = cut_least(piece_end(p), r.at + bytes);
        bool clipped = start != p->at || end != piece_end(p);
        if (!cut_one_run(p->rows, p->width, p->pitch) || (clipped && !uniform(&p->value)) ||
            (p->dtype != o->dtype && !uniform(&p->value)))
            return false;
        out->at[out->n++] = (struct stretch){(start - r.at) / size, (end - start) / size, p->value};
        covered += end - start;
    }
    qsort(out->at, out->n, sizeof *out->at, by_at);
    return covered == bytes;
}

bool store_write_flat(struct store *s, const struct operand *o, const struct whole *w, uint32_t mask,
                      uint32_t writer)
{
    uint32_t cell, own = o->slot == UINT16_MAX ? 0 : store_part(s->program, o);
    struct region r = region_of(s, o, &cell);
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype), bytes = r.rows * r.width;
    if (!cut_one_run(r.rows, r.width, r.pitch) || (o->slot != UINT16_MAX && own != mask))
        return false;
    if (mask && o->slot != UINT16_MAX && w->elements * size != bytes)
        return false;
    if (mask) {
        struct whole *copy = ARENA_NEW(s->arena, struct whole);
        *copy = *w;
        struct piece *at = put(s, cell, &r, writer, o->dtype);
        at->own = o->slot != UINT16_MAX;
        at->mask = (uint8_t)mask;
        at->value = (struct value){.kind = VALUE_PART, .mask = mask, .whole = copy};
        return true;
    }
    if (w->elements * size != bytes)
        return false;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct stretch *t = &w->at[i];
        struct region run = {r.at + t->at * size, 1, t->n * size, t->n * size};
        if (t->value.kind == VALUE_NODES) {
            run.rows = (uint64_t)(t->value.row.len * (t->value.member.len ? t->value.member.len : 1));
            run.width = run.pitch = (uint64_t)t->value.col.len * size;
        }
        if (run.rows * run.width != t->n * size)
            return false;
        put(s, cell, &run, writer, o->dtype)->value = t->value;
    }
    return true;
}

uint64_t store_missing(struct store *s, const struct operand *o)
{
    uint32_t cell;
    struct region r = region_of(s, o, &cell);
    const struct cell *c = &s->cells[cell];
    uint64_t area = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct piece *p = &c->pieces[i];
        struct cuts cuts;
        if (same_place(p, &r) && (!p->own || (o->slot != UINT16_MAX && p->mask == store_part(s->program, o))))
            return 0;
        if (p->own || !overlaps(p, &r) || !cut_of(p, &r, &cuts))
            continue;
        for (uint32_t k = 0; k < cuts.n; k++)
            area += cuts.at[k].rows * cuts.at[k].width;
    }
    return r.rows * r.width - area;
}

struct store_place store_place(const struct store *s, const struct operand *o)
{
    struct store_place at = {0};
    at.region = region_of(s, o, &at.cell);
    return at;
}

void store_drop_near(struct store *s, const struct store_place *at)
{
    drop_near(s, at->cell, &at->region);
}

void store_define(struct store *s, const struct operand *o, uint32_t writer)
{
    uint32_t cell;
    struct region r = region_of(s, o, &cell);
    if (o->slot != UINT16_MAX) {
        struct cell *c = &s->cells[cell];
        struct piece p = {r.at,
                          r.rows,
                          r.width,
                          r.pitch,
                          writer,
                          o->dtype,
                          true,
                          (uint8_t)store_part(s->program, o),
                          {.kind = VALUE_BYTES}};
        drop_near(s, cell, &r);
        for (uint32_t i = 0; i < c->n; i++)
            if (same_place(&c->pieces[i], &r) && c->pieces[i].own == p.own && c->pieces[i].mask == p.mask)
                return;
        *new_piece(s, c) = p;
        return;
    }
    if (cut_one_run(r.rows, r.width, r.pitch)) {
        r.width *= r.rows;
        r.pitch = r.width;
        r.rows = 1;
    }
    put(s, cell, &r, writer, o->dtype)->value = (struct value){.kind = VALUE_BYTES};
}

uint32_t store_writer(const struct store *s, const struct operand *o)
{
    uint32_t cell, last = NONE;
    struct region r = region_of(s, o, &cell);
    const struct cell *c = &s->cells[cell];
    for (uint32_t i = 0; i < c->n; i++)
        if (c->pieces[i].writer != NONE && (last == NONE || c->pieces[i].writer > last) &&
            overlaps(&c->pieces[i], &r))
            last = c->pieces[i].writer;
    return last;
}
