/* Which elements go from which rank to which.
 *
 * What the old plan's ranks keep is sorted by tensor, box, range of the box's elements, and rank: ranks with the same
 * range are its holders.  Of every box that a new rank needs the rectangles that its range covers are cut with the old
 * boxes of the same tensor; what is left of each old box is followed along its ranges, row by row, many rows at a time
 * where one range has them.  A holder is the rank itself, else one on its node, else each of them in turn.
 *
 * Runs that continue one another on both sides become one move, so equal shards move as a whole.  Linear in the ranges
 * and moves, but for sorting the former. */

#include "compiler/transition/moves.h"

#include <stdlib.h>

static const uint64_t RUN = (uint64_t)1 << 31; /* elements of a row of a move, at most */
/* Transfers, each kind of state counted: a plan that keeps whole copies of what another one cuts into many shards has
 * as many as copies times shards, and its programs would need all memory. */
enum { MOST_TRANSFERS = 1 << 23 };

/* elements [lo, hi) of a box, by the rank that keeps them */
struct hold {
    struct box box;
    uint64_t lo, hi;
    uint32_t rank, kept;
};
/* holders of equal ranges: holds [first, first + n) */
struct range {
    uint32_t first, n;
};
/* boxes of one tensor: ranges [first, end) */
struct held_box {
    uint32_t first, end;
};
struct search {
    struct arena *arena;
    const struct transition *t;
    const struct plan_state *from, *to;
    VEC(struct hold) holds;
    VEC(struct range) ranges;
    VEC(struct held_box) boxes;
    uint32_t *first_box; /* by tensor; ntensors + 1 */
    uint32_t *from_seat; /* by rank of the old plan: rank here; NONE */
    struct move_list *list;
    struct error *error;
    uint32_t rank;      /* that receives */
    uint32_t kept;      /* what of its role's */
    uint64_t transfers; /* so far */
};

static int compare(uint64_t x, uint64_t y)
{
    return x < y ? -1 : x > y;
}

static int by_box(const struct box *x, const struct box *y)
{
    int c = compare(x->id, y->id);
    c = c ? c : compare(x->row, y->row);
    c = c ? c : compare(x->col, y->col);
    c = c ? c : compare(x->rows, y->rows);
    return c ? c : compare(x->cols, y->cols);
}

static int by_hold(const void *a, const void *b)
{
    const struct hold *x = a, *y = b;
    int c = by_box(&x->box, &y->box);
    c = c ? c : compare(x->lo, y->lo);
    c = c ? c : compare(x->hi, y->hi);
    return c ? c : compare(x->rank, y->rank);
}

/* the part of a rank's elements that lies in a box; false: none */
static bool part_of(const struct box *b, uint64_t first, uint64_t n, uint64_t *lo, uint64_t *hi)
{
    uint64_t end = b->at + b->rows * b->cols;
    *lo = first > b->at ? first - b->at : 0;
    *hi = (first + n < end ? first + n : end) - b->at;
    return first + n > b->at && first < end;
}

static void list_holds(struct search *s)
{
    const struct plan *p = s->from->plan;
    for (uint32_t old = 0; old < p->ranks->nranks; old++) {
        const struct role_state *role = &s->from->role[p->ranks->ranks[old].role];
        for (uint32_t k = 0; k < role->nkept && s->from_seat[old] != NONE; k++) {
            const struct kept *kept = &role->kept[k];
            uint64_t first = kept_first(s->from, old, kept);
            for (uint32_t i = 0; i < role->p->buckets[kept->bucket].ntensors; i++)
                for (uint32_t j = 0; j < tensor_boxes(&role->p->tensors[kept->tensor[i]]); j++) {
                    struct hold h = {state_box(s->from, old, kept->tensor[i], j), 0, 0, s->from_seat[old], k};
                    if (part_of(&h.box, first, kept->n, &h.lo, &h.hi))
                        vec_push(s->arena, &s->holds, h);
                }
        }
    }
    if (s->holds.n)
        qsort(s->holds.at, s->holds.n, sizeof *s->holds.at, by_hold);
}

static void index_holds(struct search *s, uint32_t ntensors)
{
    s->first_box = ARENA_ARRAY(s->arena, uint32_t, ntensors + 1);
    uint32_t id = 0;
    for (uint32_t i = 0; i < s->holds.n; i++) {
        const struct hold *h = &s->holds.at[i], *last = i ? h - 1 : NULL;
        bool box = last && !by_box(&last->box, &h->box), range = box && last->lo == h->lo && last->hi == h->hi;
        if (!range)
            vec_push(s->arena, &s->ranges, (struct range){i, 0});
        s->ranges.at[s->ranges.n - 1].n++;
        if (!box) {
            while (id <= h->box.id)
                s->first_box[id++] = (uint32_t)s->boxes.n;
            vec_push(s->arena, &s->boxes, (struct held_box){(uint32_t)s->ranges.n - 1, 0});
        }
        s->boxes.at[s->boxes.n - 1].end = (uint32_t)s->ranges.n;
    }
    while (id <= ntensors)
        s->first_box[id++] = (uint32_t)s->boxes.n;
}

/* the range of a box that has element x; NULL: nobody keeps it */
static const struct range *range_at(const struct search *s, const struct held_box *b, uint64_t x)
{
    uint32_t from = b->first, to = b->end;
    while (from < to) { /* the first that begins behind x */
        uint32_t middle = from + (to - from) / 2;
        if (s->holds.at[s->ranges.at[middle].first].lo > x)
            to = middle;
        else
            from = middle + 1;
    }
    while (from-- > b->first)
        if (s->holds.at[s->ranges.at[from].first].hi > x)
            return &s->ranges.at[from];
    return NULL;
}

static const struct hold *choose(const struct search *s, const struct range *r)
{
    const struct rank_info *ranks = s->t->ranks->ranks;
    const struct hold *h = &s->holds.at[r->first], *near = NULL;
    uint32_t nnear = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        if (h[i].rank == s->rank)
            return &h[i];
        nnear += ranks[h[i].rank].node == ranks[s->rank].node;
    }
    uint32_t turn = s->rank % (nnear ? nnear : r->n);
    for (uint32_t i = 0; i < r->n && !near; i++)
        if ((!nnear || ranks[h[i].rank].node == ranks[s->rank].node) && !turn--)
            near = &h[i];
    return near;
}

/* adds a move of one row, to the last one where it continues that */
static void add_run(struct search *s, struct move m, uint64_t n)
{
    struct move *last = s->list->list.n ? &s->list->list.at[s->list->list.n - 1] : NULL;
    bool goes_on = last && last->rows == 1 && last->src == m.src && last->src_kept == m.src_kept &&
                   last->dst_kept == m.dst_kept && last->dst_first + last->cols == m.dst_first &&
                   (m.src == NONE || last->src_first + last->cols == m.src_first) && last->cols + n <= RUN;
    if (goes_on) {
        last->cols += (uint32_t)n;
        last->src_ld = last->dst_ld = last->cols;
        return;
    }
    for (uint64_t at = 0; at < n; at += RUN) {
        struct move part = m;
        part.rows = 1;
        part.cols = (uint32_t)(n - at < RUN ? n - at : RUN);
        part.src_first += at;
        part.dst_first += at;
        part.src_ld = part.dst_ld = part.cols;
        vec_push(s->arena, &s->list->list, part);
    }
}

static void add_move(struct search *s, struct move m, uint64_t rows, uint64_t cols)
{
    if (m.dst_ld == cols && (m.src_ld == cols || m.src == NONE)) {
        add_run(s, m, rows * cols);
    } else if (rows == 1) {
        add_run(s, m, cols);
    } else {
        m.rows = (uint32_t)rows;
        m.cols = (uint32_t)cols;
        vec_push(s->arena, &s->list->list, m);
    }
}

/* rows and columns [row, row_end) x [col, col_end) of a tensor, as stored */
struct rect {
    uint64_t row, row_end, col, col_end;
};

static struct rect cut(struct rect x, const struct box *b)
{
    x.row = x.row > b->row ? x.row : b->row;
    x.col = x.col > b->col ? x.col : b->col;
    x.row_end = x.row_end < b->row + b->rows ? x.row_end : b->row + b->rows;
    x.col_end = x.col_end < b->col + b->cols ? x.col_end : b->col + b->cols;
    return x;
}

static uint64_t element_of(const struct box *b, uint64_t row, uint64_t col)
{
    return b->at + (row - b->row) * b->cols + (col - b->col);
}

/* the name of a box's tensor, as far as people need it: of a family that of all its members */
static const char *name_of(const struct search *s, const struct box *b)
{
    const struct plan *p = s->to->plan;
    for (uint32_t role = 0; role < p->nroles; role++)
        for (uint32_t i = 0; i < p->train[role]->ntensors; i++) {
            const struct tensor *t = &p->train[role]->tensors[i];
            if (b->id - s->to->role[role].id[i] < (t->family ? t->family : 1))
                return t->name;
        }
    return "?";
}

static enum status lacks(const struct search *s, const struct box *b)
{
    if (s->t->lost == NONE)
        return error_set(s->error, STATUS_NO_PLAN, "no rank of the first plan keeps all of %s", name_of(s, b));
    return error_set(s->error, STATUS_NO_PLAN,
                     "node %u had a part of the state of %s that no other node has: go by way of a checkpoint "
                     "(llmrun --resume)",
                     s->t->lost, name_of(s, b));
}

/* Moves what old ranks keep of a rectangle that lies in one of their boxes and in the new one `to`. */
static enum status follow(struct search *s, const struct held_box *from, struct rect r, const struct box *to)
{
    uint64_t row = r.row, col = r.col, width = r.col_end - r.col;
    const struct box *b = &s->holds.at[s->ranges.at[from->first].first].box;
    while (row < r.row_end) {
        uint64_t x = (row - b->row) * b->cols + (col - b->col), n = r.col_end - col, rows = 1;
        const struct range *range = range_at(s, from, x);
        if (!range)
            return lacks(s, to);
        const struct hold *h = choose(s, range);
        uint64_t left = h->hi - x;
        if (col == r.col && left >= width) {
            rows += (left - width) / b->cols;
            rows = rows < r.row_end - row ? rows : r.row_end - row;
        } else {
            n = left < n ? left : n;
        }
        struct move m = {.src = h->rank, .src_kept = h->kept, .dst_kept = s->kept};
        m.src_first = element_of(&h->box, row, col);
        m.src_ld = h->box.cols;
        m.dst_first = element_of(to, row, col);
        m.dst_ld = to->cols;
        add_move(s, m, rows, n);
        col += n;
        if (col == r.col_end) {
            col = r.col;
            row += rows;
        }
    }
    return STATUS_OK;
}

static bool meet(const struct box *x, const struct box *y)
{
    return x->row < y->row + y->rows && y->row < x->row + x->rows && x->col < y->col + y->cols &&
           y->col < x->col + x->cols;
}

/* The old boxes of a tensor in turn; where two share elements, as copies that are cut in another way do, the one like
 * the new box goes first. */
static enum status fetch(struct search *s, struct rect r, const struct box *to)
{
    uint32_t first = s->first_box[to->id], end = s->first_box[to->id + 1];
    uint64_t want = (r.row_end - r.row) * (r.col_end - r.col), have = 0;
    for (int turn = 0; turn < 2; turn++)
        for (uint32_t i = first; i < end && have < want; i++) {
            const struct box *b = &s->holds.at[s->ranges.at[s->boxes.at[i].first].first].box;
            bool same = !by_box(b, to), taken = false;
            for (uint32_t j = first; j < end && turn && !taken; j++) {
                const struct box *c = &s->holds.at[s->ranges.at[s->boxes.at[j].first].first].box;
                taken = j != i && (j < i || !by_box(c, to)) && meet(b, c);
            }
            struct rect part = cut(r, b);
            if (same == (turn > 0) || taken || part.row >= part.row_end || part.col >= part.col_end)
                continue;
            have += (part.row_end - part.row) * (part.col_end - part.col);
            TRY(follow(s, &s->boxes.at[i], part, to));
        }
    return have == want ? STATUS_OK : lacks(s, to);
}

static void fill(struct search *s, const struct box *to, struct rect r)
{
    struct move m = {.src = NONE, .dst_kept = s->kept, .dst_ld = to->cols};
    if (r.row >= r.row_end || r.col >= r.col_end)
        return;
    m.dst_first = element_of(to, r.row, r.col);
    add_move(s, m, r.row_end - r.row, r.col_end - r.col);
}

/* a rectangle of a new box: what the tensor has of it, and zeros where it ends */
static enum status serve(struct search *s, const struct box *to, struct rect r)
{
    struct rect in = r, right = r, below = r;
    in.row_end = r.row_end < to->rows_end ? r.row_end : to->rows_end;
    in.col_end = r.col_end < to->cols_end ? r.col_end : to->cols_end;
    in.row_end = in.row_end > r.row ? in.row_end : r.row;
    in.col_end = in.col_end > r.col ? in.col_end : r.col;
    if (in.row < in.row_end && in.col < in.col_end)
        TRY(fetch(s, in, to));
    right.col = in.col_end;
    right.row_end = in.row_end;
    fill(s, to, right);
    below.row = in.row_end;
    fill(s, to, below);
    return STATUS_OK;
}

/* Elements [lo, hi) of a new box: the rest of its first row, whole rows, the beginning of its last. */
static enum status serve_range(struct search *s, const struct box *b, uint64_t lo, uint64_t hi)
{
    while (lo < hi) {
        uint64_t row = lo / b->cols, col = lo % b->cols, rows = 1, end = b->cols;
        if (!col && hi - lo >= b->cols)
            rows = (hi - lo) / b->cols;
        else if (hi - lo < b->cols - col)
            end = col + (hi - lo);
        TRY(serve(s, b, (struct rect){b->row + row, b->row + row + rows, b->col + col, b->col + end}));
        lo = (row + rows - 1) * b->cols + end;
    }
    return STATUS_OK;
}

static enum status count(struct search *s, const struct kept *k, size_t before)
{
    for (int kind = 0; kind < STATE_KINDS; kind++)
        s->transfers += k->buffer[kind] == NONE ? 0 : s->list->list.n - before;
    return s->transfers <= MOST_TRANSFERS
               ? STATUS_OK
               : error_set(s->error, STATUS_NO_PLAN,
                           "it takes more than %d transfers: go by way of a checkpoint (llmrun --resume)",
                           MOST_TRANSFERS);
}

/* everything that a new rank keeps of a bucket, in the order of its elements */
static enum status serve_kept(struct search *s, uint32_t rank, const struct kept *k)
{
    const struct program *p = s->to->role[s->to->plan->ranks->ranks[rank].role].p;
    uint64_t at = kept_first(s->to, rank, k), end = at + k->n;
    for (uint32_t i = 0; i < p->buckets[k->bucket].ntensors; i++)
        for (uint32_t j = 0; j < tensor_boxes(&p->tensors[k->tensor[i]]); j++) {
            struct box b = state_box(s->to, rank, k->tensor[i], j);
            uint64_t lo, hi;
            if (!part_of(&b, at, end - at, &lo, &hi))
                continue;
            if (b.at + lo > at)
                add_run(s, (struct move){.src = NONE, .dst_kept = s->kept, .dst_first = at}, b.at + lo - at);
            TRY(serve_range(s, &b, lo, hi));
            at = b.at + hi;
        }
    if (at < end)
        add_run(s, (struct move){.src = NONE, .dst_kept = s->kept, .dst_first = at}, end - at);
    return STATUS_OK;
}

enum status moves_find(struct arena *a, const struct transition *t, const struct plan_state state[2], uint32_t ntensors,
                       struct move_list *moves, struct error *error)
{
    struct search s = {.arena = a, .t = t, .from = &state[0], .to = &state[1], .error = error};
    s.from_seat = ARENA_ARRAY(a, uint32_t, t->from->ranks->nranks + 1);
    for (uint32_t i = 0; i < t->from->ranks->nranks; i++)
        s.from_seat[i] = NONE;
    for (uint32_t i = 0; i < t->ranks->nranks; i++)
        if (t->seats[i].from != NONE)
            s.from_seat[t->seats[i].from] = i;
    list_holds(&s);
    index_holds(&s, ntensors);
    for (s.rank = 0; s.rank < t->ranks->nranks; s.rank++) {
        uint32_t rank = t->seats[s.rank].to;
        s.list = &moves[s.rank];
        if (rank == NONE)
            continue;
        const struct role_state *role = &s.to->role[t->to->ranks->ranks[rank].role];
        for (s.kept = 0; s.kept < role->nkept; s.kept++) {
            size_t before = s.list->list.n;
            TRY(serve_kept(&s, rank, &role->kept[s.kept]));
            TRY(count(&s, &role->kept[s.kept], before));
        }
    }
    return STATUS_OK;
}
