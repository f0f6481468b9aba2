/* Operands read from and written into a store's pieces; see store.h.
 *
 * Almost all accesses find a piece of exactly their own shape; the rest of this file is for views: columns of
 * a fused projection, weights within a bucket, parts of the metrics.  store_pieces.c keeps the pieces
 * disjoint. */

#include "compiler/verify/store.h"

#include "compiler/verify/store_pieces.h"

#include <stdlib.h>

static uint32_t cell_of(const struct store *s, const struct operand *o, uint64_t *at)
{
    const struct buffer *b = &s->program->buffers[o->buffer];
    uint64_t slot = b->ring == NONE ? 0 : o->offset / b->stride;
    *at = o->offset - slot * (b->ring == NONE ? 0 : b->stride);
    return s->first[o->buffer] + (uint32_t)slot;
}

uint32_t store_part(const struct program *p, const struct operand *o)
{
    if (o->slot == UINT16_MAX || p->slots[o->slot].kind != SLOT_COORD || (o->rows > 1 && o->ld != o->cols))
        return 0;
    return o->slot_stride == (uint64_t)o->rows * o->cols * isa_dtype_bytes((enum dtype)o->dtype) ? p->slots[o->slot].arg
                                                                                                 : 0;
}

/* The operand in its cell; at a slot, the range that all values cover: as parts one below the other, or where they are
 * no such parts, as one run with what lies between. */
struct store_place store_find_place(const struct store *s, const struct operand *o)
{
    struct store_place place = {.hint = 0};
    struct region *r = &place.region;
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype);
    place.cell = cell_of(s, o, &r->at);
    r->rows = o->rows;
    r->width = o->cols * size;
    r->pitch = o->rows == 1 ? r->width : o->ld * size;
    if (o->slot == UINT16_MAX)
        return place;
    uint64_t most = (uint64_t)s->program->slots[o->slot].most;
    if (store_part(s->program, o))
        r->rows *= most + 1;
    else
        *r = (struct region){.at = r->at, .rows = 1, .width = region_end(r) - r->at + most * o->slot_stride};
    r->pitch = r->width;
    return place;
}

/* of the program's operands; beyond them for any other */
static size_t operand_index(const struct store *s, const struct operand *o)
{
    return ((uintptr_t)o - (uintptr_t)s->program->operands) / sizeof *o;
}

/* the operand's place; *other holds it if it is none of the program's */
static struct store_place *place_of(const struct store *s, const struct operand *o, struct store_place *other)
{
    size_t k = operand_index(s, o);
    if (k < s->program->noperands)
        return &s->place[k];
    *other = store_find_place(s, o);
    return other;
}

static struct region region_of(const struct store *s, const struct operand *o, uint32_t *cell)
{
    struct store_place other;
    const struct store_place *at = place_of(s, o, &other);
    *cell = at->cell;
    return at->region;
}

/* a piece there; its value is the caller's to write */
static struct piece *put(struct store *s, uint32_t cell, const struct region *r, uint32_t writer, uint8_t dtype)
{
    struct piece *at = pieces_clear(s, cell, r);
    at->at = r->at;
    at->rows = r->rows;
    at->width = r->width;
    at->pitch = r->rows == 1 ? r->width : r->pitch;
    at->writer = writer;
    at->dtype = dtype;
    at->own = false;
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
    return cut_piece(&mine, piece_uniform(&p->value), r, out);
}

static bool overlaps(const struct piece *p, const struct region *r)
{
    struct region mine = {p->at, p->rows, p->width, p->pitch};
    return prove_overlap(&mine, r);
}

static bool same_place(const struct piece *p, const struct region *r)
{
    return p->at == r->at && p->rows == r->rows && p->width == r->width && (r->rows == 1 || p->pitch == r->pitch);
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
        if (piece_own_rows(&v, c->from_row, c->rows, p->rows))
            v = (struct value){.kind = VALUE_BYTES};
        else if (!v.routed && !v.member.len)
            v.row = extent_part(&v.row, (int64_t)c->from_row, (int64_t)c->rows);
        if (v.eight && c->width != p->width)
            v = (struct value){.kind = VALUE_BYTES};
        else if (!v.eight)
            v.col = extent_part(&v.col, (int64_t)c->from_col / size, (int64_t)c->width / size);
    }
    return v;
}

/* y's rows right below x's, in the operand as in the matrix that both are of: together they are one part of it */
static bool goes_on(const struct part *x, const struct part *y)
{
    const struct value *a = &x->value, *b = &y->value;
    if (y->row != x->row + x->rows || y->col != x->col || y->cols != x->cols || a->kind != VALUE_NODES ||
        b->kind != VALUE_NODES || a->node != b->node || a->nterms || b->nterms || a->routed || b->routed ||
        a->member.len || b->member.len)
        return false;
    struct extent next = a->row;
    next.lo += next.len;
    next.len = b->row.len;
    return extent_same(&next, &b->row) && extent_same(&a->col, &b->col);
}

static void join_rows(struct parts *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t above = n; /* not always the one before: matrices may lie side by side */
        while (above > 0 && !goes_on(&p->at[above - 1], &p->at[i]))
            above--;
        if (above) {
            p->at[above - 1].rows += p->at[i].rows;
            p->at[above - 1].value.row.len += p->at[i].value.row.len;
        } else {
            p->at[n++] = p->at[i];
        }
    }
    p->n = n;
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
            (p->dtype != dtype && !piece_uniform(&p->value)) || !cut_of(p, r, &cuts))
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
    if (out->n > 1) {
        qsort(out->at, out->n, sizeof *out->at, by_row);
        join_rows(out);
    }
    return area == r->rows * r->width;
}

static bool is_whole(const struct piece *p, const struct region *r, const struct operand *o)
{
    return same_place(p, r) && p->dtype == o->dtype && !p->own;
}

/* the piece that is the whole operand, first where it was the last time; else the number of pieces */
static uint32_t find_whole(const struct cell *c, struct store_place *at, const struct operand *o)
{
    if (at->hint < c->n && is_whole(&c->pieces[at->hint], &at->region, o))
        return at->hint;
    uint32_t i = 0;
    while (i < c->n && !is_whole(&c->pieces[i], &at->region, o))
        i++;
    return at->hint = i;
}

const struct piece *store_whole(struct store *s, const struct operand *o)
{
    if (o->slot != UINT16_MAX)
        return NULL;
    struct store_place other, *at = place_of(s, o, &other);
    const struct cell *c = &s->cells[at->cell];
    uint32_t i = find_whole(c, at, o);
    return i == c->n ? NULL : &c->pieces[i];
}

bool store_read(struct store *s, const struct operand *o, struct parts *out)
{
    struct store_place other, *at = place_of(s, o, &other);
    const struct region *r = &at->region;
    const struct cell *c = &s->cells[at->cell];
    if (o->slot == UINT16_MAX) {
        uint32_t i = find_whole(c, at, o);
        if (i == c->n)
            return read_parts(c, r, o->dtype, out);
        out->n = 1;
        out->at[0] = (struct part){0, o->rows, 0, o->cols, c->pieces[i].writer, c->pieces[i].value};
        return true;
    }
    uint32_t mask = store_part(s->program, o);
    if (!mask)
        return false;
    for (uint32_t i = 0; i < c->n; i++)
        if (same_place(&c->pieces[i], r) && c->pieces[i].dtype == o->dtype && c->pieces[i].own &&
            c->pieces[i].mask == mask) {
            out->n = 1;
            out->at[0] = (struct part){0, o->rows, 0, o->cols, c->pieces[i].writer, c->pieces[i].value};
            return true;
        }
    /* the own rows of one matrix that lies there whole */
    if (!read_parts(c, r, o->dtype, out) || out->n != 1 || out->at[0].value.kind == VALUE_PART ||
        out->at[0].value.routed || out->at[0].value.member.len)
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
            if (!mine || p->at != r.at || p->rows * p->width != bytes || p->dtype != o->dtype ||
                !cut_one_run(p->rows, p->width, p->pitch))
                return false;
            *mask = p->value.mask;
            *out = *p->value.whole;
            return true;
        }
        uint64_t start = cut_most(p->at, r.at), end = cut_least(piece_end(p), r.at + bytes);
        bool clipped = start != p->at || end != piece_end(p);
        if (!cut_one_run(p->rows, p->width, p->pitch) || (clipped && !piece_uniform(&p->value)) ||
            (p->dtype != o->dtype && !piece_uniform(&p->value)))
            return false;
        out->at[out->n++] = (struct stretch){(start - r.at) / size, (end - start) / size, p->value};
        covered += end - start;
    }
    qsort(out->at, out->n, sizeof *out->at, by_at);
    return covered == bytes;
}

bool store_write_flat(struct store *s, const struct operand *o, const struct whole *w, uint32_t mask, uint32_t writer)
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

void store_drop_near(struct store *s, const struct store_place *at)
{
    pieces_drop_near(s, at->cell, &at->region);
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
        pieces_drop_near(s, cell, &r);
        for (uint32_t i = 0; i < c->n; i++)
            if (same_place(&c->pieces[i], &r) && c->pieces[i].own == p.own && c->pieces[i].mask == p.mask)
                return;
        *pieces_add(s, c) = p;
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
        if (c->pieces[i].writer != NONE && (last == NONE || c->pieces[i].writer > last) && overlaps(&c->pieces[i], &r))
            last = c->pieces[i].writer;
    return last;
}
