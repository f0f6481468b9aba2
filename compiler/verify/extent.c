/* Intervals that are affine in a rank's coordinates, and the sets of contributions made of them.
 *
 * Sets are short lists of combs (count intervals of len elements, stride apart); neighbours are joined, so
 * that tokens of consecutive microbatches, or columns of all ranks, become one comb again.  Questions whose
 * answer would need more than a comparison of combs are answered conservatively: "they may overlap", "it is
 * not whole". */

#include "compiler/verify/extent.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <stdlib.h>

#define MOST_COPIES 4096 /* of a comb, where it must be written out */

/* extents know no mesh: folded digits have no better name here */
static const char *const digit_names[NDIGITS] = {"tp", "cp", "dp", "pp", "d4", "d5", "d6", "d7"};

void extent_move(struct extent *x, const struct mesh *m, uint32_t mask, int64_t stride)
{
    for (uint32_t i = 0; i < m->ndigits; i++) {
        uint32_t digit = m->order[i];
        if (!(mask & AXIS_BIT(digit)))
            continue;
        if (m->size[digit] > 1)
            x->step[digit] += stride;
        stride *= m->size[digit];
    }
}

struct extent extent_new(int64_t lo, int64_t len)
{
    return (struct extent){.lo = lo, .len = len};
}

bool extent_same(const struct extent *x, const struct extent *y)
{
    return x->lo == y->lo && x->len == y->len && !memcmp(x->step, y->step, sizeof x->step) && x->turn == y->turn;
}

struct extent extent_part(const struct extent *x, int64_t at, int64_t len)
{
    struct extent e = *x;
    e.lo += at;
    e.len = len;
    return e;
}

static bool same_step(const struct extent *x, const struct extent *y)
{
    return !memcmp(x->step, y->step, sizeof x->step);
}

bool blocks_same(const struct block *x, const struct block *y)
{
    return extent_same(&x->extent, &y->extent) && x->count == y->count && (x->count <= 1 || x->stride == y->stride) &&
           x->first == y->first && x->turns == y->turns;
}

/* Are two intervals those of different ranks of one ring?  Then they share no element: a rank's own are disjoint. */
static bool other_turns(const struct block *x, const struct block *y)
{
    const struct extent *a = &x->extent, *b = &y->extent;
    uint32_t n = a->ring ? a->members : b->members;
    if ((!a->turn && !b->turn) || !n || a->lo != b->lo || a->len != b->len || x->count != 1 || y->count != 1 ||
        (a->ring && b->ring && (a->ring != b->ring || a->members != b->members)))
        return false;
    return (b->turn + n - a->turn) % n > x->turns && (a->turn + n - b->turn) % n > y->turns;
}

/* turns of x, then those of y; all of them are all members' elements */
static bool join_turns(const struct block *x, const struct block *y, struct block *out)
{
    if (!other_turns(x, y))
        return false;
    uint32_t n = x->extent.ring ? x->extent.members : y->extent.members;
    const struct block *first = (x->extent.turn + x->turns + 1) % n == y->extent.turn ? x : y,
                       *last = first == x ? y : x;
    if ((first->extent.turn + first->turns + 1) % n != last->extent.turn)
        return false;
    *out = *first;
    out->extent.ring = x->extent.ring ? x->extent.ring : y->extent.ring;
    out->extent.members = (uint16_t)n;
    out->turns = x->turns + y->turns + 1;
    if (out->turns + 1 < n)
        return true;
    for (uint32_t d = 0; d < NDIGITS; d++)
        out->extent.step[d] *= !(out->extent.ring & AXIS_BIT(d));
    out->extent.len *= n;
    out->extent.ring = out->turns = out->extent.turn = out->extent.members = 0;
    return true;
}

static bool everywhere(const struct extent *x)
{
    static const int64_t zero[NDIGITS];
    return !memcmp(x->step, zero, sizeof zero);
}

struct extent extent_scaled(const struct extent *x, int64_t multiply, int64_t divide)
{
    struct extent e = {.lo = x->lo * multiply / divide, .len = x->len * multiply / divide};
    for (int a = 0; a < NDIGITS; a++)
        e.step[a] = x->step[a] * multiply / divide;
    return e;
}

bool extent_whole(const struct extent *x, int64_t size)
{
    return everywhere(x) && x->lo == 0 && x->len >= size;
}

static int64_t block_end(const struct block *b)
{
    return b->extent.lo + (b->count - 1) * b->stride + b->extent.len;
}

/* does [lo, lo + len) share an element with a tooth of the comb? */
static bool meets_tooth(const struct block *comb, int64_t lo, int64_t len)
{
    int64_t from = lo - comb->extent.len - comb->extent.lo; /* teeth that start at or before it end before lo */
    int64_t k = from < 0 ? 0 : from / comb->stride + 1;
    return k < comb->count && comb->extent.lo + k * comb->stride < lo + len;
}

/* May two combs of equal step share an element?  Exact for single intervals and for strides that differ. */
static bool may_meet(const struct block *x, const struct block *y)
{
    if (x->extent.turn || y->extent.turn || x->turns || y->turns)
        return !other_turns(x, y);
    if (x->extent.lo >= block_end(y) || y->extent.lo >= block_end(x))
        return false;
    if (x->count == 1 && y->count == 1)
        return true;
    const struct block *few = x->count <= y->count ? x : y, *many = few == x ? y : x;
    if (few->count > 1 && few->stride != many->stride) {
        bool meet = few->count > MOST_COPIES;
        for (int64_t k = 0; k < few->count && !meet; k++)
            meet = meets_tooth(many, few->extent.lo + k * few->stride, few->extent.len);
        return meet;
    }
    int64_t stride = many->stride;
    if (x->extent.len > stride || y->extent.len > stride)
        return true;
    int64_t apart = ((y->extent.lo - x->extent.lo) % stride + stride) %
                    stride; /* y's start after x's, round a period */
    return apart < x->extent.len || apart + y->extent.len > stride;
}

/* x with y appended, if that is one comb again */
static bool join(const struct block *x, const struct block *y, struct block *out)
{
    if (!same_step(&x->extent, &y->extent) || x->first != y->first)
        return false;
    if (x->extent.turn || y->extent.turn || x->turns || y->turns)
        return join_turns(x, y, out);
    if (y->extent.lo < x->extent.lo) {
        const struct block *swap = x;
        x = y;
        y = swap;
    }
    *out = *x;
    if (x->count == y->count && (x->count == 1 || x->stride == y->stride) &&
        x->extent.lo + x->extent.len == y->extent.lo) {
        out->extent.len += y->extent.len;
    } else if (x->extent.len == y->extent.len) {
        int64_t stride = x->count > 1 ? x->stride : y->count > 1 ? y->stride : y->extent.lo - x->extent.lo;
        if ((y->count > 1 && y->stride != stride) || y->extent.lo != x->extent.lo + x->count * stride)
            return false;
        out->stride = stride;
        out->count = x->count + y->count;
    } else {
        return false;
    }
    if (out->count > 1 && out->stride == out->extent.len) {
        out->extent.len *= out->count;
        out->count = 1;
    }
    return true;
}

static bool insert(struct block *list, uint32_t *n, struct block b)
{
    for (uint32_t i = 0; i < *n; i++)
        if (!same_step(&list[i].extent, &b.extent) || may_meet(&list[i], &b))
            return false;
    for (uint32_t i = 0; i < *n;) {
        struct block joined;
        if (join(&list[i], &b, &joined)) {
            b = joined;
            list[i] = list[--*n];
            i = 0;
        } else {
            i++;
        }
    }
    uint32_t at = *n;
    for (; at > 0 && list[at - 1].extent.lo > b.extent.lo; at--)
        list[at] = list[at - 1];
    list[at] = b;
    ++*n;
    return true;
}

/* Combs that share no element are one interval if they leave none out between the first and the last, and one comb if
 * their teeth are as many as there are places between the first and the last. */
static void fill(struct block *list, uint32_t *n)
{
    int64_t lo = INT64_MAX, end = INT64_MIN, total = 0, teeth = 0, len = list[0].extent.len;
    for (uint32_t i = 0; i < *n; i++) {
        const struct block *b = &list[i];
        if (b->first != list[0].first || b->turns || b->extent.turn || !same_step(&b->extent, &list[0].extent))
            return;
        lo = b->extent.lo < lo ? b->extent.lo : lo;
        end = block_end(b) > end ? block_end(b) : end;
        total += b->count * b->extent.len;
        teeth += b->count;
        len = b->extent.len == len ? len : 0;
    }
    bool whole = total == end - lo;
    int64_t stride = teeth > 1 ? (end - len - lo) / (teeth - 1) : 0;
    bool comb = !whole && len && stride * (teeth - 1) == end - len - lo;
    for (uint32_t i = 0; i < *n && comb; i++)
        comb = (list[i].extent.lo - lo) % stride == 0 && (list[i].count == 1 || list[i].stride % stride == 0);
    if (!whole && !comb)
        return;
    list[0].extent.lo = lo;
    list[0].extent.len = whole ? total : len;
    list[0].count = whole ? 1 : teeth;
    list[0].stride = whole ? 0 : stride;
    *n = 1;
}

bool blocks_union(struct arena *a, const struct blocks *x, const struct blocks *y, struct blocks *out)
{
    struct block few[8], *list = x->n + y->n <= ARRAY_LEN(few) ? few : ARENA_ARRAY(a, struct block, x->n + y->n);
    uint32_t n = x->n;
    if (n)
        memcpy(list, x->at, n * sizeof *list);
    for (uint32_t i = 0; i < y->n; i++)
        if (!insert(list, &n, y->at[i]))
            return false;
    if (n > 1)
        fill(list, &n);
    *out = (struct blocks){n, list};
    if (list == few) { /* they mostly join, and stay as long as their value */
        struct block *kept = ARENA_ARRAY(a, struct block, n);
        memcpy(kept, few, n * sizeof *kept);
        out->at = kept;
    }
    return true;
}

/* All ranks' copies of one comb along an axis, `step` apart, as at most two levels: false = they overlap;
 * *copies = how often the comb must be repeated, `step` apart, because no single comb says it. */
static bool spread(struct block *b, int64_t step, int64_t size, int64_t *copies)
{
    *copies = 1;
    if (step < 0)
        return false;
    if (b->count == 1) {
        if (step < b->extent.len)
            return false;
        b->count = size;
        b->stride = step;
    } else if (step * size <= b->stride && step >= b->extent.len) {
        if (step == b->extent.len)
            b->extent.len *= size;
        else
            *copies = size;
    } else if (step == b->stride * b->count) {
        b->count *= size;
    } else {
        *copies = size;
    }
    if (b->count > 1 && b->stride == b->extent.len) {
        b->extent.len *= b->count;
        b->count = 1;
    }
    return *copies <= MOST_COPIES;
}

bool blocks_reduce(struct arena *a, const struct blocks *x, uint32_t digit, int64_t size, struct blocks *out)
{
    VEC(struct block) list = {.at = ARENA_ARRAY(a, struct block, x->n), .room = x->n};
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        struct block b = x->at[i];
        int64_t step = b.extent.step[digit], copies = 1;
        if ((b.extent.turn || b.turns) && step)
            return false; /* which rank has which is known, but not needed */
        b.extent.step[digit] = 0;
        if (b.first & AXIS_BIT(digit))
            b.first &= ~AXIS_BIT(digit); /* only coordinate 0 had it */
        else if (size > 1 && !spread(&b, step, size, &copies))
            return false;
        vec_reserve(a, &list, n + (size_t)copies);
        for (int64_t k = 0; k < copies; k++) {
            if (!insert(list.at, &n, b))
                return false;
            b.extent.lo += step;
        }
        list.n = n;
    }
    *out = (struct blocks){n, list.at};
    return true;
}

struct interval {
    int64_t lo, len;
};

static int by_lo(const void *x, const void *y)
{
    const struct interval *a = x, *b = y;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

/* all intervals of a set on one rank, sorted, neighbours joined; returns their number */
static size_t list_intervals(const struct blocks *x, struct interval *out)
{
    size_t n = 0, kept = 0;
    for (uint32_t i = 0; i < x->n; i++)
        for (int64_t k = 0; k < x->at[i].count; k++)
            out[n++] = (struct interval){x->at[i].extent.lo + k * x->at[i].stride, x->at[i].extent.len};
    qsort(out, n, sizeof *out, by_lo);
    for (size_t i = 0; i < n; i++)
        if (kept && out[kept - 1].lo + out[kept - 1].len == out[i].lo)
            out[kept - 1].len += out[i].len;
        else
            out[kept++] = out[i];
    return kept;
}

/* elements of a set whose blocks all follow the ranks as `like` does; -1: they do not, or are too many to list */
static int64_t listable(const struct blocks *x, const struct block *like, int64_t *count)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        const struct block *b = &x->at[i];
        if (b->first != like->first || b->turns || b->extent.turn || !same_step(&b->extent, &like->extent))
            return -1;
        total += b->count * b->extent.len;
        *count += b->count;
    }
    return *count <= (int64_t)1 << 16 ? total : -1;
}

/* One set can be several combs in several ways: where the combs differ, their elements decide. */
static bool same_elements(const struct blocks *x, const struct blocks *y)
{
    int64_t nx = 0, ny = 0;
    if (!x->n || !y->n)
        return false;
    int64_t total = listable(x, &x->at[0], &nx);
    if (total < 0 || total != listable(y, &x->at[0], &ny))
        return false;
    struct arena *scratch = arena_new();
    struct interval *a = ARENA_ARRAY(scratch, struct interval, (size_t)nx),
                    *b = ARENA_ARRAY(scratch, struct interval, (size_t)ny);
    size_t n = list_intervals(x, a);
    bool same = n == list_intervals(y, b);
    for (size_t i = 0; same && i < n; i++)
        same = a[i].lo == b[i].lo && a[i].len == b[i].len;
    arena_free(scratch);
    return same;
}

bool blocks_equal(const struct blocks *x, const struct blocks *y)
{
    bool same = x->n == y->n;
    for (uint32_t k = 0; same && k < x->n; k++)
        same = blocks_same(&x->at[k], &y->at[k]);
    return same || same_elements(x, y);
}

bool blocks_whole(const struct blocks *x, int64_t size)
{
    int64_t total = 0, count = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        if (!everywhere(&x->at[i].extent) || x->at[i].first)
            return false;
        total += x->at[i].count * x->at[i].extent.len;
        count += x->at[i].count;
    }
    if (x->n == 1 && count == 1)
        return extent_whole(&x->at[0].extent, size);
    if (total < size || count > (int64_t)1 << 20)
        return false;
    struct arena *scratch = arena_new();
    struct interval *all = ARENA_ARRAY(scratch, struct interval, (size_t)count);
    size_t n = 0;
    for (uint32_t i = 0; i < x->n; i++)
        for (int64_t k = 0; k < x->at[i].count; k++)
            all[n++] = (struct interval){x->at[i].extent.lo + k * x->at[i].stride, x->at[i].extent.len};
    qsort(all, n, sizeof *all, by_lo);
    int64_t end = 0;
    for (size_t i = 0; i < n && all[i].lo == end; i++)
        end += all[i].len;
    arena_free(scratch);
    return end >= size;
}

static void print_extent(struct strbuf *b, const struct extent *x)
{
    strbuf_printf(b, "[%lld, %lld)", (long long)x->lo, (long long)(x->lo + x->len));
    for (int i = 0; i < NDIGITS; i++)
        if (x->step[i])
            strbuf_printf(b, " + %lld %s", (long long)x->step[i], digit_names[i]);
    if (x->turn)
        strbuf_printf(b, " of the rank %u places before", x->turn);
}

char *extent_text(struct arena *a, const struct extent *x)
{
    struct strbuf b = {0};
    print_extent(&b, x);
    char *s = arena_strdup(a, b.text);
    strbuf_free(&b);
    return s;
}

char *blocks_text(struct arena *a, const struct blocks *x)
{
    struct strbuf b = {0};
    strbuf_text(&b, x->n ? "" : "nothing");
    for (uint32_t i = 0; i < x->n && i < 8; i++) {
        strbuf_text(&b, i ? " and " : "");
        print_extent(&b, &x->at[i].extent);
        if (x->at[i].count > 1)
            strbuf_printf(&b, " and %lld more, %lld apart", (long long)x->at[i].count - 1, (long long)x->at[i].stride);
        if (x->at[i].turns)
            strbuf_printf(&b, " and of the %u before it", x->at[i].turns);
        if (x->at[i].first)
            strbuf_text(&b, " of the first rank");
    }
    if (x->n > 8)
        strbuf_text(&b, " ...");
    char *s = arena_strdup(a, b.text);
    strbuf_free(&b);
    return s;
}
