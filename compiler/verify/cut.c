/* Where one rectangle of bytes lies on another's grid; see cut.h.
 *
 * Two rectangles of equal pitch differ by whole rows and a column; a wrap at the end of a row makes two parts
 * at most. One run of equal bytes fits any pitch, as head, body and tail.  Everything else is refused, not
 * approximated. */

#include "compiler/verify/cut.h"

static void add_cut(struct cuts *c, uint64_t row, uint64_t rows, uint64_t col, uint64_t width, uint64_t from_row,
                    uint64_t from_col)
{
    if (rows && width)
        c->at[c->n++] = (struct cut){row, rows, col, width, from_row, from_col};
}

/* A piece whose first byte lies at (row, col) of the region's grid; col may be negative by less than a pitch.
 */
static void cut_aligned(const struct region *p, const struct region *r, int64_t row, int64_t col, struct cuts *out)
{
    int64_t top = row < 0 ? 0 : row, bottom = row + (int64_t)p->rows;
    int64_t left = col < 0 ? 0 : col, right = col + (int64_t)p->width;
    bottom = bottom > (int64_t)r->rows ? (int64_t)r->rows : bottom;
    right = right > (int64_t)r->width ? (int64_t)r->width : right;
    if (top < bottom && left < right)
        add_cut(out, (uint64_t)top, (uint64_t)(bottom - top), (uint64_t)left, (uint64_t)(right - left),
                (uint64_t)(top - row), (uint64_t)(left - col));
}

/* one run of bytes on the grid of a region: head, body, tail */
static void cut_run(uint64_t at, uint64_t end, const struct region *r, struct cuts *out)
{
    uint64_t start = cut_most(at, r->at) - r->at, stop = cut_least(end, region_end(r)) - r->at;
    uint64_t row = start / r->pitch, last = stop / r->pitch, col = start % r->pitch;
    if (row == last) {
        add_cut(out, row, 1, col, cut_least(stop % r->pitch, r->width) - cut_least(col, r->width), 0, 0);
        return;
    }
    if (col) {
        add_cut(out, row, 1, col, r->width - cut_least(col, r->width), 0, 0);
        row++;
    }
    add_cut(out, row, last - row, 0, r->width, 0, 0);
    if (last < r->rows)
        add_cut(out, last, 1, 0, cut_least(stop % r->pitch, r->width), 0, 0);
}

/* Where a piece lies on a region's grid; false: it can't be said in few rectangles.  They must overlap in
 * outer bounds. */
bool cut_piece(const struct region *p, bool uniform, const struct region *r, struct cuts *out)
{
    out->n = 0;
    int64_t distance = (int64_t)p->at - (int64_t)r->at;
    if (p->rows == 1 && r->rows == 1) {
        cut_aligned(p, r, 0, distance, out);
        return true;
    }
    if (p->rows > 1 && r->rows == 1 && (!uniform || !cut_one_run(p->rows, p->width, p->pitch))) {
        uint64_t first = distance < 0 ? (uint64_t)-distance / p->pitch
                                      : 0; /* the piece's row where the region starts */
        int64_t col = distance + (int64_t)(first * p->pitch);
        struct region row = *p;
        row.rows = 1;
        if (col + (int64_t)p->width <= 0) { /* between two rows */
            first++;
            col += (int64_t)p->pitch;
        }
        if (first >= p->rows || col >= (int64_t)r->width)
            return true;
        if (col + (int64_t)p->pitch < (int64_t)r->width && first + 1 < p->rows)
            return false;
        cut_aligned(&row, r, 0, col, out);
        for (uint32_t i = 0; i < out->n; i++)
            out->at[i].from_row += first;
        return true;
    }
    if (uniform && cut_one_run(p->rows, p->width, p->pitch) && (p->rows == 1 || p->pitch != r->pitch)) {
        cut_run(p->at, region_end(p), r, out);
        return true;
    }
    if (p->rows > 1 && p->pitch != r->pitch)
        return false;
    int64_t pitch = (int64_t)r->pitch, row = distance / pitch - (distance % pitch < 0), col = distance - row * pitch;
    if (p->rows == 1 && col + (int64_t)p->width > pitch && p->width > r->pitch)
        return false; /* a vector over several rows */
    cut_aligned(p, r, row, col, out);
    cut_aligned(p, r, row + 1, col - pitch, out);
    return true;
}
