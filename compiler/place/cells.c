/* Which bytes of a buffer its operands touch, as sets of cells.
 *
 * Regions that overlap, directly or through others, form a patch of the buffer.  The bounds of a patch's regions cut
 * it into cells: runs of bytes where all regions are contiguous, rectangles of a grid where some are columns of one
 * row length.  So every region is a set of whole cells.  Where that fails (columns of unequal row lengths, too many
 * cells) the patch is one cell, which only a region of the whole patch covers.  An operand whose offset depends on
 * the rank gets a cell of its own, for the rank's part, if it is the only such part of the buffer: whoever touches
 * any rank's part touches the cell, and whoever covers all ranks' parts covers it.
 *
 * Cost: operands times distinct regions of their buffer, which are few. */

#include "compiler/place/place_private.h"

#include "compiler/support/vec.h"

#include <stdlib.h>

enum { MOST_CELLS = 63, OWN_CELL = 63 };

/* bytes of a buffer, or of any slot of a ring; contiguous ones are a single row */
struct region {
    uint64_t at, rows, width, pitch;
    uint64_t slot_stride; /* not 0: one of several such parts, one per rank, which begin that many bytes apart */
    uint32_t slot;
    uint64_t span; /* bytes from the begin of the first part to the end of the last */
    uint64_t touches, covers;
    uint32_t patch;
};
struct regions {
    VEC(struct region) v;
};

static uint64_t end_of(const struct region *r)
{
    return r->at + r->span;
}

static bool is_run(const struct region *r)
{
    return r->rows == 1 && !r->slot_stride;
}

static struct region region_of(const struct program *p, const struct operand *o)
{
    const struct buffer *b = &p->buffers[o->buffer];
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype);
    struct region r = {.at = b->ring == NONE ? o->offset : o->offset % b->stride,
                       .rows = o->rows,
                       .width = o->cols * size,
                       .pitch = o->ld * size};
    if (r.width == r.pitch || r.rows == 1) {
        r.width += (r.rows - 1) * r.pitch;
        r.rows = 1;
    }
    if (r.rows == 1)
        r.pitch = r.width;
    r.span = (r.rows - 1) * r.pitch + r.width;
    if (o->slot != UINT16_MAX && p->slots[o->slot].most > 0) {
        r.slot = o->slot;
        r.slot_stride = o->slot_stride;
        r.span += (uint64_t)p->slots[o->slot].most * o->slot_stride;
    }
    return r;
}

static bool same_region(const struct region *x, const struct region *y)
{
    return x->at == y->at && x->rows == y->rows && x->width == y->width && x->pitch == y->pitch &&
           x->slot_stride == y->slot_stride && x->slot == y->slot;
}

static uint32_t find_region(struct arena *a, struct regions *list, const struct region *r)
{
    for (size_t i = list->v.n; i-- > 0;)
        if (same_region(&list->v.at[i], r))
            return (uint32_t)i;
    vec_push(a, &list->v, *r);
    return (uint32_t)list->v.n - 1;
}

/* ---- patches ---- */

struct patch {
    uint64_t start, end, pitch; /* pitch: row length of its columns, bytes; 0: all regions are contiguous */
    bool whole;                 /* it cannot be cut into cells */
    uint64_t rows[MOST_CELLS + 1], cols[MOST_CELLS + 1];
    uint32_t nrows, ncols; /* numbers of bounds */
    uint32_t first;        /* its first cell */
};

static uint32_t cells_of(const struct patch *t)
{
    return t->whole ? 1 : (t->nrows - 1) * (t->ncols - 1);
}

/* Inserts a bound into a sorted list; false: there are too many. */
static bool add_bound(uint64_t *list, uint32_t *n, uint64_t at)
{
    uint32_t i = *n;
    while (i && list[i - 1] > at)
        i--;
    if (i && list[i - 1] == at)
        return true;
    if (*n > MOST_CELLS)
        return false;
    memmove(list + i + 1, list + i, (*n - i) * sizeof *list);
    list[i] = at;
    ++*n;
    return true;
}

/* A region's rows and columns in the grid of its patch; false if it does not align with the grid.  A patch without
 * columns has one column of one byte. */
static bool on_grid(const struct patch *t, const struct region *r, uint64_t row[2], uint64_t col[2])
{
    uint64_t pitch = t->pitch ? t->pitch : 1, at = r->at - t->start;
    row[0] = at / pitch;
    col[0] = at % pitch;
    if (r->rows > 1) {
        row[1] = row[0] + r->rows;
        col[1] = col[0] + r->width;
        return r->pitch == pitch && col[1] <= pitch;
    }
    bool within = t->pitch && col[0] + r->width <= pitch;
    row[1] = row[0] + (within ? 1 : r->width / pitch);
    col[1] = within ? col[0] + r->width : pitch;
    return within || (!col[0] && r->width % pitch == 0);
}

static void cut_patch(struct patch *t, const struct regions *list, uint32_t index)
{
    for (size_t i = 0; i < list->v.n && !t->whole; i++) {
        const struct region *r = &list->v.at[i];
        uint64_t row[2], col[2];
        if (r->patch != index || r->slot_stride)
            continue;
        t->whole = !on_grid(t, r, row, col) || !add_bound(t->rows, &t->nrows, row[0]) ||
                   !add_bound(t->rows, &t->nrows, row[1]) || !add_bound(t->cols, &t->ncols, col[0]) ||
                   !add_bound(t->cols, &t->ncols, col[1]) || (t->nrows - 1) * (t->ncols - 1) > MOST_CELLS;
    }
    t->whole |= !t->nrows; /* it has only parts that depend on the rank */
}

static uint64_t cells_from(uint32_t first, uint32_t n)
{
    return (n < 64 ? ((uint64_t)1 << n) - 1 : UINT64_MAX) << first;
}

static void set_cells(const struct patch *t, struct region *r)
{
    uint64_t row[2], col[2];
    if (t->whole) {
        r->touches = cells_from(t->first, 1);
        r->covers = r->at == t->start && end_of(r) == t->end && is_run(r) ? r->touches : 0;
        return;
    }
    if (r->slot_stride) { /* it touches any of the cells; set_own() refines this if the part gets a cell of its own */
        for (uint32_t k = 0; k < cells_of(t); k++)
            r->touches |= cells_from(t->first + k, 1);
        return;
    }
    on_grid(t, r, row, col);
    for (uint32_t i = 0; i + 1 < t->nrows; i++)
        for (uint32_t k = 0; k + 1 < t->ncols; k++)
            if (t->rows[i] >= row[0] && t->rows[i] < row[1] && t->cols[k] >= col[0] && t->cols[k] < col[1])
                r->touches |= cells_from(t->first + i * (t->ncols - 1) + k, 1);
    r->covers = r->touches;
}

static int by_at(const void *x, const void *y)
{
    const struct region *const *a = x, *const *b = y;
    return ((*a)->at > (*b)->at) - ((*a)->at < (*b)->at);
}

/* Finds the patches of a buffer, and the patch of each region. */
static struct patch *find_patches(struct arena *a, struct regions *list, uint32_t *n)
{
    struct region **order = ARENA_ARRAY(a, struct region *, list->v.n);
    struct patch *patches = ARENA_ARRAY(a, struct patch, list->v.n);
    for (size_t i = 0; i < list->v.n; i++)
        order[i] = &list->v.at[i];
    qsort(order, list->v.n, sizeof *order, by_at);
    *n = 0;
    for (size_t i = 0; i < list->v.n; i++) {
        struct region *r = order[i];
        if (!*n || patches[*n - 1].end <= r->at)
            patches[(*n)++] = (struct patch){.start = r->at};
        struct patch *t = &patches[*n - 1];
        t->end = end_of(r) > t->end ? end_of(r) : t->end;
        r->patch = *n - 1;
        if (r->rows > 1 && !r->slot_stride && !t->pitch)
            t->pitch = r->pitch;
    }
    return patches;
}

/* Makes the only part that depends on the rank a cell of its own. */
static void set_own(struct regions *list)
{
    const struct region *own = NULL;
    for (size_t i = 0; i < list->v.n; i++) {
        const struct region *r = &list->v.at[i];
        if (r->slot_stride && own && !same_region(own, r))
            return;
        own = r->slot_stride ? r : own;
    }
    for (size_t i = 0; own && i < list->v.n; i++) {
        struct region *r = &list->v.at[i];
        uint64_t cell = (uint64_t)1 << OWN_CELL;
        if (r->slot_stride)
            r->touches = r->covers = cell;
        else if (r->at < end_of(own) && end_of(r) > own->at)
            r->touches |= cell;
        if (is_run(r) && r->at <= own->at && end_of(r) >= end_of(own))
            r->covers |= cell;
    }
}

static void find_cells(struct arena *a, struct regions *list)
{
    struct arena_mark mark = arena_mark(a);
    uint32_t n, cells = 0;
    struct patch *patches = find_patches(a, list, &n);
    for (uint32_t k = 0; k < n; k++) {
        cut_patch(&patches[k], list, k);
        cells += cells_of(&patches[k]);
    }
    if (cells > MOST_CELLS) {
        cells = n;
        for (uint32_t k = 0; k < n; k++)
            patches[k].whole = true;
    }
    if (cells > MOST_CELLS) { /* the whole buffer is one patch */
        patches[0].end = patches[n - 1].end;
        for (size_t i = 0; i < list->v.n; i++)
            list->v.at[i].patch = 0;
    }
    for (uint32_t k = 0, first = 0; k < n; k++) {
        patches[k].first = first;
        first += cells_of(&patches[k]);
    }
    for (size_t i = 0; i < list->v.n; i++)
        set_cells(&patches[list->v.at[i].patch], &list->v.at[i]);
    set_own(list);
    arena_reset(a, mark);
}

struct use *place_uses(struct arena *a, const struct program *p)
{
    struct use *uses = ARENA_ARRAY(a, struct use, p->noperands + 1u);
    struct arena_mark mark = arena_mark(a);
    struct regions *lists = ARENA_ARRAY(a, struct regions, p->nbuffers + 1u);
    uint32_t *index = ARENA_ARRAY(a, uint32_t, p->noperands + 1u);
    for (uint32_t k = 0; k < p->noperands; k++) {
        const struct operand *o = &p->operands[k];
        const struct buffer *b = o->buffer == NONE ? NULL : &p->buffers[o->buffer];
        uses[k].buffer = NONE;
        if (!b || b->kind != BUFFER_STEP || b->host)
            continue;
        uses[k].buffer = o->buffer;
        uses[k].slot = b->ring == NONE ? 0 : (uint32_t)(o->offset / b->stride);
        struct region r = region_of(p, o);
        index[k] = find_region(a, &lists[o->buffer], &r);
    }
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (lists[b].v.n)
            find_cells(a, &lists[b]);
    for (uint32_t k = 0; k < p->noperands; k++)
        if (uses[k].buffer != NONE) {
            uses[k].touches = lists[uses[k].buffer].v.at[index[k]].touches;
            uses[k].covers = lists[uses[k].buffer].v.at[index[k]].covers;
        }
    arena_reset(a, mark);
    return uses;
}
