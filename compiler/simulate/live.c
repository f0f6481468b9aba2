/* Live bytes over time.
 *
 * Uses are walked in program order.  A write that does not read starts a new life of its buffer (or ring slot) if it
 * covers bytes that were written and then read, or all bytes that were written; the previous life ended with its use
 * that ended last in time. Changes are attached to instructions (bytes gained at the start, lost at the end), and
 * the queues, each ordered in time, are merged; at equal times losses come before gains.  Linear in operands and
 * instructions.
 *
 * Limit: column views of equal row stride are distinguished by columns, other overlaps by their byte range.  This is
 * a picture for people; what is reserved is the arena's size, by exact live ranges (place/). */

#include "compiler/simulate/simulate.h"

#include "compiler/support/vec.h"

struct life {
    uint64_t lo, hi;                     /* smallest range that contains all bytes written */
    uint32_t columns_lo, columns_hi, ld; /* columns of those writes, if all have one row stride (else ld = 0) */
    uint32_t defined;                    /* instruction that defined it; NONE: not live */
    uint32_t last;                       /* the use that ends last */
    bool was_read;
};

struct live_run {
    const struct program *p;
    const struct sim_interval *times;
    uint32_t *first_life; /* by buffer */
    struct life *lives;
    uint64_t *gained, *lost; /* by instruction */
    struct arena *arena;     /* for spans; NULL: they are not wanted */
    VEC(struct live_span) spans;
};

static void end_life(struct live_run *run, const struct life *l, uint32_t buffer)
{
    if (l->defined == NONE)
        return;
    uint64_t bytes = run->p->buffers[buffer].stride;
    run->gained[l->defined] += bytes;
    run->lost[l->last] += bytes;
    if (run->arena)
        vec_push(run->arena, &run->spans, ((struct live_span){buffer, l->defined, l->last}));
}

static bool overwrites(const struct life *l, const struct operand *o, uint64_t lo, uint64_t hi, uint32_t column)
{
    if (hi <= l->lo || lo >= l->hi)
        return false;
    return l->ld == 0 || l->ld != o->ld || (column < l->columns_hi && column + o->cols > l->columns_lo);
}

/* Does the write replace everything that was written and not read yet? */
static bool replaces(const struct life *l, const struct operand *o, uint64_t lo, uint64_t hi, uint32_t column)
{
    bool columns = l->ld == o->ld && column <= l->columns_lo && column + o->cols >= l->columns_hi;
    return lo <= l->lo && hi >= l->hi && columns;
}

static void use_operand(struct live_run *run, uint32_t insn, const struct operand *o, bool reads, bool writes)
{
    const struct buffer *b = &run->p->buffers[o->buffer];
    uint64_t slot = b->ring == NONE || b->stride == 0 ? 0 : o->offset / b->stride;
    struct life *l = &run->lives[run->first_life[o->buffer] + slot];
    uint32_t size = isa_dtype_bytes((enum dtype)o->dtype);
    uint64_t lo = o->offset - slot * b->stride,
             hi = lo + ((uint64_t)(o->rows ? o->rows - 1 : 0) * o->ld + o->cols) * size;
    uint32_t column = o->ld ? (uint32_t)(lo / size % o->ld) : 0;
    bool over = l->was_read ? overwrites(l, o, lo, hi, column) : replaces(l, o, lo, hi, column);
    bool renewed = writes && !reads && l->defined != NONE && over;
    if (l->defined == NONE || renewed) {
        end_life(run, l, o->buffer);
        *l = (struct life){.lo = lo, .hi = hi, .columns_lo = column, .columns_hi = column + o->cols, .ld = o->ld};
        l->defined = l->last = insn;
        l->was_read = reads && !writes;
        return;
    }
    if (run->times[insn].end_ns >= run->times[l->last].end_ns)
        l->last = insn;
    l->was_read = l->was_read || reads;
    if (!writes)
        return;
    l->lo = lo < l->lo ? lo : l->lo;
    l->hi = hi > l->hi ? hi : l->hi;
    l->columns_lo = column < l->columns_lo ? column : l->columns_lo;
    l->columns_hi = column + o->cols > l->columns_hi ? column + o->cols : l->columns_hi;
    if (l->ld != o->ld)
        l->ld = 0;
}

static bool is_written(const struct operand *o)
{
    return o->mark == MARK_WRITE || o->mark == MARK_ADD || o->mark == MARK_UPDATE;
}

/* One pass over the operands of an instruction; a buffer that it both reads and writes is not defined by it. */
static void use_insn(struct live_run *run, uint32_t i)
{
    const struct insn *insn = &run->p->insns[i];
    const struct operand *o = &run->p->operands[insn->operand];
    uint32_t n = isa_info(insn->op)->noperands;
    for (uint32_t k = 0; k < n; k++) {
        if (o[k].buffer == NONE || run->p->buffers[o[k].buffer].kind != BUFFER_STEP ||
            run->p->buffers[o[k].buffer].host)
            continue;
        bool reads = o[k].mark != MARK_WRITE;
        for (uint32_t j = 0; j < n && !reads; j++)
            reads = o[j].buffer == o[k].buffer && o[j].mark != MARK_WRITE && o[j].mark != MARK_NONE;
        use_operand(run, i, &o[k], reads, is_written(&o[k]));
    }
}

struct merge {
    const struct sim_interval *times;
    uint32_t *by_queue;                                   /* instructions, queue by queue */
    uint32_t start[NQUEUES], end[NQUEUES], stop[NQUEUES]; /* next to start, next to end, end of the queue's part */
};

static void merge_start(struct merge *m, const struct program *p, uint32_t *by_queue)
{
    uint32_t count[NQUEUES] = {0}, at = 0;
    for (uint32_t i = 0; i < p->ninsns; i++)
        count[p->insns[i].queue]++;
    for (uint32_t q = 0; q < NQUEUES; q++) {
        m->start[q] = m->end[q] = m->stop[q] = at;
        at += count[q];
    }
    for (uint32_t i = 0; i < p->ninsns; i++)
        by_queue[m->stop[p->insns[i].queue]++] = i;
    m->by_queue = by_queue;
}

/* the next start or end in time; false when there is none */
static bool merge_next(struct merge *m, int64_t *at, uint32_t *insn, bool *ends)
{
    uint32_t best = NONE;
    for (uint32_t q = 0; q < NQUEUES; q++) {
        if (m->end[q] < m->start[q]) {
            int64_t t = m->times[m->by_queue[m->end[q]]].end_ns;
            if (best == NONE || t < *at || (t == *at && !*ends)) {
                best = q;
                *at = t;
                *ends = true;
            }
        }
        if (m->start[q] < m->stop[q]) {
            int64_t t = m->times[m->by_queue[m->start[q]]].start_ns;
            if (best == NONE || t < *at) {
                best = q;
                *at = t;
                *ends = false;
            }
        }
    }
    if (best == NONE)
        return false;
    *insn = m->by_queue[*ends ? m->end[best]++ : m->start[best]++];
    return true;
}

static uint64_t prepare(struct arena *a, struct live_run *run)
{
    const struct program *p = run->p;
    uint64_t persistent = 0, nlives = 0;
    run->first_life = ARENA_ARRAY(a, uint32_t, (size_t)p->nbuffers + 1);
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const struct buffer *b = &p->buffers[i];
        run->first_life[i] = (uint32_t)nlives;
        nlives += b->ring == NONE ? 1 : p->rings[b->ring].depth;
        if (b->kind != BUFFER_STEP && !b->host)
            persistent += b->bytes;
    }
    run->lives = ARENA_ARRAY(a, struct life, nlives + 1);
    for (uint64_t i = 0; i < nlives; i++)
        run->lives[i].defined = NONE;
    run->gained = ARENA_ARRAY(a, uint64_t, (size_t)p->ninsns + 1);
    run->lost = ARENA_ARRAY(a, uint64_t, (size_t)p->ninsns + 1);
    return persistent;
}

static void walk(struct live_run *run)
{
    const struct program *p = run->p;
    for (uint32_t i = 0; i < p->ninsns; i++)
        use_insn(run, i);
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        uint32_t n = p->buffers[i].ring == NONE ? 1 : p->rings[p->buffers[i].ring].depth;
        for (uint32_t k = 0; k < n; k++)
            end_life(run, &run->lives[run->first_life[i] + k], i);
    }
}

const struct live_point *simulate_memory(struct arena *a, const struct program *p, const struct sim_role *r,
                                         uint32_t *npoints)
{
    struct live_point *points = ARENA_ARRAY(a, struct live_point, 2 * (size_t)p->ninsns + 1);
    struct arena_mark mark = arena_mark(a);
    struct live_run run = {.p = p, .times = r->insns};
    uint64_t live = prepare(a, &run);
    walk(&run);
    struct merge m = {.times = r->insns};
    merge_start(&m, p, ARENA_ARRAY(a, uint32_t, (size_t)p->ninsns + 1));
    uint32_t n = 0, insn = 0;
    int64_t at = 0;
    bool ends = false;
    points[n++] = (struct live_point){r->begin_ns, live};
    while (merge_next(&m, &at, &insn, &ends)) {
        uint64_t change = ends ? run.lost[insn] : run.gained[insn];
        if (change == 0)
            continue;
        live = ends ? live - change : live + change;
        if (points[n - 1].at_ns != at)
            n++;
        points[n - 1] = (struct live_point){at, live};
    }
    arena_reset(a, mark);
    *npoints = n;
    return points;
}

const struct live_span *simulate_lives(struct arena *a, const struct program *p, const struct sim_role *r, uint32_t *n)
{
    struct arena *scratch = arena_new();
    struct live_run run = {.p = p, .times = r->insns, .arena = a};
    prepare(scratch, &run);
    walk(&run);
    arena_free(scratch);
    *n = (uint32_t)run.spans.n;
    return run.spans.at;
}

const uint64_t *simulate_memory_at(struct arena *a, const struct program *p, const struct sim_role *r, int64_t at_ns)
{
    uint64_t *bytes = ARENA_ARRAY(a, uint64_t, (size_t)p->nbuffers + 1);
    struct arena_mark mark = arena_mark(a);
    uint32_t n;
    const struct live_span *spans = simulate_lives(a, p, r, &n);
    for (uint32_t i = 0; i < n; i++)
        if (r->insns[spans[i].first].start_ns <= at_ns && at_ns < r->insns[spans[i].last].end_ns)
            bytes[spans[i].buffer] += p->buffers[spans[i].buffer].stride;
    for (uint32_t i = 0; i < p->nbuffers; i++)
        if (p->buffers[i].kind != BUFFER_STEP && !p->buffers[i].host)
            bytes[i] = p->buffers[i].bytes;
    arena_reset(a, mark);
    return bytes;
}
