/* Parameters by name: what each rank holds where, their initial values, and the comparison.
 *
 * An element of a bucket belongs to at most one element of a logical tensor; these are numbered through the single
 * rank's tensors, one after the other.  Bucket elements outside all tensors (padding) start as 0 and are not
 * compared. */

#include "compiler/execute/exact.h"
#include "compiler/execute/machine.h"

#include <stdarg.h>
#include <string.h>

#define NOWHERE UINT64_MAX

enum kept { KEPT_PARAM, KEPT_MOMENT1, KEPT_MOMENT2, KEPT_GRADIENT, NKEPT = KEPT_GRADIENT + EXACT_STEPS };

struct exact_tensor {
    const char *name;
    uint64_t rows, cols, first;
};
struct exact_truth {
    uint32_t ntensors;
    struct exact_tensor *tensors;
    uint64_t n;                                    /* number of elements of all tensors */
    uint64_t *kept[NKEPT];                         /* by element; the gradients of each step separately */
    uint8_t *known[NKEPT];                         /* the element has a value */
    uint64_t metric[2][METRIC_WORDS][EXACT_STEPS]; /* of the step; of the evaluation after it */
    uint64_t scale[2][SCALE_WORDS][EXACT_STEPS];   /* likewise */
    uint64_t batch;
};

/* one execution, either of the single rank (record) or of another plan, which is compared with `truth` */
struct session {
    struct arena *arena; /* for messages */
    struct exact_machine *m;
    struct exact_truth *truth;
    bool record;
    uint32_t step;
    uint64_t ***where; /* [rank][bucket][element]: number of the logical element, or NOWHERE */
    uint8_t *seen[NKEPT];
    uint64_t elements, ninsns, undefined;
    const char *why;
};

static bool differ(struct session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool differ(struct session *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!s->why)
        s->why = arena_vprintf(s->arena, fmt, ap);
    va_end(ap);
    return false;
}

static const struct exact_tensor *find_tensor(const struct exact_truth *t, const char *name)
{
    for (uint32_t i = 0; i < t->ntensors; i++)
        if (!strcmp(t->tensors[i].name, name))
            return &t->tensors[i];
    return NULL;
}

static bool add_tensor(struct session *s, const struct tensor *x, uint64_t member)
{
    struct exact_truth *t = s->truth;
    char name[160];
    tensor_name(x, member, name, sizeof name);
    if (find_tensor(t, name))
        return true;
    if (x->shape[1] && x->shape[0] > ((uint64_t)1 << 28) / x->shape[1])
        return differ(s, "tensor %s is too large to be executed exactly", name);
    t->tensors[t->ntensors++] = (struct exact_tensor){arena_strdup(s->arena, name), x->shape[0], x->shape[1], t->n};
    t->n += x->shape[0] * x->shape[1];
    return true;
}

static bool list_tensors(struct session *s, const struct plan *p)
{
    struct exact_truth *t = s->truth;
    size_t room = 1;
    for (uint32_t r = 0; r < p->nroles; r++)
        for (uint32_t i = 0; i < p->train[r]->ntensors; i++)
            room += p->train[r]->tensors[i].family ? p->train[r]->tensors[i].family : 1;
    t->tensors = ARENA_ARRAY(s->arena, struct exact_tensor, room);
    for (uint32_t r = 0; r < p->nroles; r++)
        for (uint32_t i = 0; i < p->train[r]->ntensors; i++)
            for (uint32_t k = 0; k == 0 || k < p->train[r]->tensors[i].family; k++)
                if (!add_tensor(s, &p->train[r]->tensors[i], k))
                    return false;
    for (int k = 0; k < NKEPT; k++) {
        t->kept[k] = ARENA_ARRAY(s->arena, uint64_t, t->n + 1);
        t->known[k] = ARENA_ARRAY(s->arena, uint8_t, t->n + 1);
    }
    return true;
}

static uint64_t bound(const struct session *s, uint32_t rank, uint64_t base, uint32_t slot, uint64_t stride)
{
    return base + (slot == NONE ? 0 : exact_value(s->m, rank, slot) * stride);
}

static bool place_tensor(struct session *s, uint32_t rank, const struct tensor *x, uint64_t *where, uint64_t elements)
{
    uint64_t row = bound(s, rank, x->row, x->row_slot, x->row_stride),
             col = bound(s, rank, x->col, x->col_slot, x->col_stride);
    uint64_t member = x->family ? bound(s, rank, x->member, x->member_slot, x->member_stride) : 0, e = x->at;
    for (uint32_t box = 0; box < tensor_boxes(x); box++) {
        char name[160];
        tensor_name(x, member + box, name, sizeof name);
        const struct exact_tensor *t = find_tensor(s->truth, name);
        if (!t || t->rows != x->shape[0] || t->cols != x->shape[1])
            return differ(s, "rank %u: tensor %s (%llu x %llu) is none of the single rank's", rank, name,
                          (unsigned long long)x->shape[0], (unsigned long long)x->shape[1]);
        for (uint64_t i = 0; i < x->rows; i++)
            for (uint64_t j = 0; j < x->cols; j++, e++) {
                uint64_t r = row + (x->transposed ? j : i), c = col + (x->transposed ? i : j);
                if (r < t->rows && c < t->cols && e < elements)
                    where[e] = t->first + r * t->cols + c;
            }
    }
    return true;
}

static bool place_tensors(struct session *s)
{
    struct arena *a = s->m->arena;
    s->where = ARENA_ARRAY(a, uint64_t **, s->m->nranks);
    for (uint32_t r = 0; r < s->m->nranks; r++) {
        const struct program *p = s->m->plan->train[s->m->plan->ranks->ranks[r].role];
        s->where[r] = ARENA_ARRAY(a, uint64_t *, p->nbuckets);
        for (uint32_t b = 0; b < p->nbuckets; b++) {
            const struct bucket *x = &p->buckets[b];
            s->where[r][b] = ARENA_ARRAY(a, uint64_t, x->elements);
            memset(s->where[r][b], 0xff, x->elements * sizeof(uint64_t));
            for (uint32_t k = 0; k < x->ntensors; k++)
                if (!place_tensor(s, r, &p->tensors[x->tensor + k], s->where[r][b], x->elements))
                    return false;
        }
    }
    for (int k = 0; k < NKEPT; k++)
        s->seen[k] = ARENA_ARRAY(a, uint8_t, s->truth->n + 1);
    return true;
}

/* The index in its bucket of a buffer's first element. */
static uint64_t shard_base(const struct session *s, uint32_t rank, const struct buffer *b)
{
    return b->shard_slot == NONE ? 0 : exact_value(s->m, rank, b->shard_slot) * (b->bytes / isa_dtype_bytes(b->dtype));
}

static void fill_buffer(struct session *s, uint32_t rank, const struct program *p, const struct buffer *b)
{
    uint64_t size = isa_dtype_bytes(b->dtype), n = b->bytes / size, base = shard_base(s, rank, b);
    uint64_t which = b->kind == BUFFER_MOMENT1 ? 1 : b->kind == BUFFER_MOMENT2 ? 2 : 0;
    for (uint64_t e = 0; e < n; e++) {
        uint64_t at = base + e < p->buckets[b->bucket].elements ? s->where[rank][b->bucket][base + e] : NOWHERE;
        uint64_t value = at == NOWHERE ? 0 : field_hash(SALT_WEIGHT, at, which);
        memory_write(&s->m->ranks[rank].memory, b->offset + e * size, b->dtype, value);
    }
}

/* the loss scale before s->step */
static void begin_scale(struct session *s, uint32_t rank, const struct program *p, const struct buffer *b)
{
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct attr *attr = &p->attrs[p->insns[i].attr];
        if (p->insns[i].op != OP_CLIP_SCALED)
            continue;
        const uint64_t state[SCALE_WORDS] = {field_real(attr[ATTR(CLIP_SCALED, initial)].u.f), 0,
                                             field_integer(attr[ATTR(CLIP_SCALED, hysteresis)].u.i), 0};
        for (uint32_t w = 0; w < SCALE_WORDS && 8 * w < b->bytes; w++)
            memory_write(&s->m->ranks[rank].memory, b->offset + 8 * (uint64_t)w, DTYPE_F64,
                         s->step ? s->truth->scale[EXACT_TRAIN][w][s->step - 1] : state[w]);
    }
}

/* What a rank has when s->step begins; its state only if that is the first one. */
static bool fill_ranks(struct session *s)
{
    for (uint32_t r = 0; r < s->m->nranks; r++) {
        const struct program *p = s->m->plan->train[s->m->plan->ranks->ranks[r].role];
        for (uint32_t b = 0; b < p->nbuffers; b++) {
            const struct buffer *x = &p->buffers[b];
            bool scale = x->kind == BUFFER_SCALE;
            if (!scale && (x->bucket == NONE || x->kind == BUFFER_STEP))
                continue;
            if ((x->offset + x->bytes) / 2 > s->m->ranks[r].memory.nwords)
                return differ(s, "rank %u: buffer %s leaves the arena", r, x->name);
            if (scale)
                begin_scale(s, r, p, x);
            else if (s->step == 0)
                fill_buffer(s, r, p, x);
        }
    }
    return true;
}

static const struct buffer *find_buffer(const struct program *p, enum buffer_kind kind)
{
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (p->buffers[b].kind == kind)
            return &p->buffers[b];
    return NULL;
}

static void write_block(struct session *s, enum exact_program which, uint64_t sample)
{
    for (uint32_t r = 0; r < s->m->nranks; r++) {
        uint32_t role = s->m->plan->ranks->ranks[r].role;
        const struct program *p = which == EXACT_EVAL ? s->m->plan->eval[role] : s->m->plan->train[role];
        const struct buffer *b = find_buffer(p, BUFFER_BLOCK);
        for (uint32_t w = 0; b && w < STEP_WORDS && 8 * w < b->bytes; w++) {
            uint64_t value = w == STEP_SAMPLE ? sample : w == STEP_NUMBER ? s->step : field_hash(SALT_STEP, w, s->step);
            memory_write(&s->m->ranks[r].memory, b->offset + 8 * (uint64_t)w, DTYPE_F64, value);
        }
    }
}

/* Records or compares one element of one kind. */
static bool meet(struct session *s, uint32_t rank, enum kept kind, uint64_t at, uint64_t value)
{
    static const char *const names[] = {"parameter", "first moment", "second moment", "gradient"};
    struct exact_truth *t = s->truth;
    s->elements++;
    s->seen[kind][at] = 1;
    if (s->record) {
        t->kept[kind][at] = value;
        t->known[kind][at] = 1;
        return true;
    }
    if (t->known[kind][at] && t->kept[kind][at] == value)
        return true;
    for (uint32_t i = 0; i < t->ntensors; i++)
        if (at - t->tensors[i].first < t->tensors[i].rows * t->tensors[i].cols && at >= t->tensors[i].first)
            return differ(s, "step %u: rank %u: the %s of %s differs, first at row %llu, column %llu", s->step + 1,
                          rank, names[kind < KEPT_GRADIENT ? kind : KEPT_GRADIENT], t->tensors[i].name,
                          (unsigned long long)((at - t->tensors[i].first) / t->tensors[i].cols),
                          (unsigned long long)((at - t->tensors[i].first) % t->tensors[i].cols));
    return false;
}

/* The operands of an updating instruction: parameters, both moments, gradient; NONE = absent. */
static void updated_operands(enum op op, uint32_t out[4])
{
    const size_t adam[] = {OPND(ADAMW, p), OPND(ADAMW, m), OPND(ADAMW, v), OPND(ADAMW, g)};
    const size_t sgd[] = {OPND(SGD, p), OPND(SGD, m), NONE, OPND(SGD, g)};
    const size_t bias[] = {OPND(BIAS_MOVE, bias), NONE, NONE, NONE};
    for (int i = 0; i < 4; i++)
        out[i] = (uint32_t)(op == OP_ADAMW ? adam[i] : op == OP_SGD ? sgd[i] : bias[i]);
}

/* The place in a bucket that an optimizer instruction updates: that of its parameters or, where these have been
 * fetched from host memory to a place of their own, that of its working copy. */
static const struct buffer *updated_place(struct session *s, uint32_t rank, uint32_t insn, uint32_t p,
                                          struct place *place)
{
    const struct program *q = s->m->ranks[rank].p;
    const struct insn *in = &q->insns[insn];
    const size_t copy = in->op == OP_ADAMW ? OPND(ADAMW, copy) : OPND(SGD, copy);
    uint32_t operand = p;
    if (q->buffers[q->operands[in->operand + p].buffer].bucket == NONE && in->op != OP_BIAS_MOVE)
        operand = (uint32_t)copy;
    uint32_t buffer = q->operands[in->operand + operand].buffer;
    if (buffer == NONE || q->buffers[buffer].bucket == NONE || !exact_place(s->m, rank, insn, operand, place))
        return NULL;
    return &q->buffers[buffer];
}

/* Called after an optimizer instruction: handles what it read and wrote, by the elements of its parameters. */
static void update(void *context, uint32_t rank, uint32_t insn, const struct exact_args *k)
{
    struct session *s = context;
    const struct program *p = s->m->ranks[rank].p;
    const struct insn *in = &p->insns[insn];
    uint32_t operand[4];
    struct place place;
    updated_operands(in->op, operand);
    const struct buffer *b = updated_place(s, rank, insn, operand[0], &place);
    if (!b)
        return;
    uint64_t base = shard_base(s, rank, b) + (place.at - b->offset) / isa_dtype_bytes(b->dtype);
    for (uint32_t which = 0; which < 4; which++) {
        const struct exact_view *v = operand[which] == NONE ? NULL : &k->v[operand[which]];
        enum kept kind = which == KEPT_GRADIENT ? (enum kept)(KEPT_GRADIENT + s->step) : (enum kept)which;
        for (uint64_t e = 0; v && v->at && e < (uint64_t)v->rows * v->cols; e++) {
            uint64_t element = base + e / place.cols * place.ld + e % place.cols;
            uint64_t at = element < p->buckets[b->bucket].elements ? s->where[rank][b->bucket][element] : NOWHERE;
            if (at != NOWHERE && (kind >= KEPT_GRADIENT || s->step + 1 == EXACT_STEPS) &&
                !meet(s, rank, kind, at, v->at[e]))
                return;
        }
    }
}

static bool compare_number(struct session *s, uint32_t rank, const char *what, uint64_t value, uint64_t *truth)
{
    s->elements++;
    if (s->record && rank == 0)
        *truth = value;
    return value == *truth ? true : differ(s, "step %u: rank %u: the %s differs", s->step + 1, rank, what);
}

/* Compares everything that the host reads, except the norm of an evaluation, which has none. */
static bool compare_metrics(struct session *s, enum exact_program which)
{
    static const struct {
        uint32_t word;
        const char *names[2];
    } metrics[] = {{METRIC_LOSS, {"loss", "held-out loss"}},
                   {METRIC_SQNORM, {"gradient norm", NULL}},
                   {METRIC_BALANCE, {"balance loss", "held-out balance loss"}},
                   {METRIC_NEED, {"rows that experts lack", "rows that experts lack in the evaluation"}},
                   {METRIC_NEED_ROWS, {"rows that experts need", "rows that experts need in the evaluation"}}};
    for (uint32_t r = 0; r < s->m->nranks; r++) {
        const struct buffer *b = find_buffer(s->m->ranks[r].p, BUFFER_METRICS),
                            *scale = find_buffer(s->m->ranks[r].p, BUFFER_SCALE);
        for (uint32_t w = 0; scale && w < SCALE_WORDS; w++)
            if (!compare_number(s, r, "loss scale",
                                memory_read(&s->m->ranks[r].memory, scale->offset + 8 * (uint64_t)w, DTYPE_F64),
                                &s->truth->scale[which == EXACT_EVAL][w][s->step]))
                return false;
        for (size_t i = 0; b && i < sizeof metrics / sizeof *metrics; i++) {
            const char *name = metrics[i].names[which == EXACT_EVAL];
            uint64_t at = b->offset + 8 * (uint64_t)metrics[i].word;
            if (name && !compare_number(s, r, name, memory_read(&s->m->ranks[r].memory, at, DTYPE_F64),
                                        &s->truth->metric[which == EXACT_EVAL][metrics[i].word][s->step]))
                return false;
        }
    }
    return true;
}

/* Has every element of a kind that the single rank updates been seen? */
static bool covers(struct session *s, uint32_t k)
{
    struct exact_truth *t = s->truth;
    for (uint32_t i = 0; i < t->ntensors; i++)
        for (uint64_t e = t->tensors[i].first; e < t->tensors[i].first + t->tensors[i].rows * t->tensors[i].cols; e++)
            if (t->known[k][e] && !s->seen[k][e])
                return differ(s, "no rank updates row %llu, column %llu of %s",
                              (unsigned long long)((e - t->tensors[i].first) / t->tensors[i].cols),
                              (unsigned long long)((e - t->tensors[i].first) % t->tensors[i].cols), t->tensors[i].name);
    return true;
}

/* of the steps [first, s->step) */
static bool compare_coverage(struct session *s, uint32_t first)
{
    bool fine = true;
    for (uint32_t k = 0; k < KEPT_GRADIENT && s->step == EXACT_STEPS; k++)
        fine = fine && covers(s, k);
    for (uint32_t step = first; step < s->step; step++)
        fine = fine && covers(s, KEPT_GRADIENT + step);
    return fine;
}

/* The steps from s->step to `end`. */
static bool run_steps(struct session *s, uint32_t end)
{
    uint32_t first = s->step;
    for (; s->step < end; s->step++) {
        write_block(s, EXACT_TRAIN, s->step * s->truth->batch);
        if (!exact_run(s->m, EXACT_TRAIN) || !compare_metrics(s, EXACT_TRAIN) || s->why)
            return false;
        write_block(s, EXACT_EVAL, 1000 * s->truth->batch);
        if (!exact_run(s->m, EXACT_EVAL) || !compare_metrics(s, EXACT_EVAL))
            return false;
    }
    return s->record || compare_coverage(s, first);
}

/* s->m for a plan, with what its ranks hold where */
static bool open_plan(struct session *s, const struct plan *p, uint64_t seed)
{
    s->m = exact_open(s->arena, p, seed, &s->why);
    if (!s->m)
        return false;
    s->m->update = update;
    s->m->context = s;
    return place_tensors(s);
}

/* takes what a machine has to say */
static void close_machine(struct session *s, struct exact_machine *m)
{
    if (!m)
        return;
    if (!s->why && m->why[0])
        s->why = arena_strdup(s->arena, m->why);
    s->ninsns += m->ninsns;
    for (uint32_t r = 0; r < m->nranks; r++)
        s->undefined += m->ranks[r].memory.undefined;
    exact_close(m);
}

static struct exact_result result_of(const struct session *s)
{
    return (struct exact_result){s->why, s->elements, s->ninsns, s->undefined};
}

static struct exact_result execute(struct session *s, const struct plan *p, uint64_t seed)
{
    if (open_plan(s, p, seed) && fill_ranks(s))
        run_steps(s, EXACT_STEPS);
    close_machine(s, s->m);
    return result_of(s);
}

struct exact_truth *exact_truth(struct arena *a, const struct plan *one, const char **why)
{
    struct session s = {.arena = a, .record = true, .truth = ARENA_NEW(a, struct exact_truth)};
    s.truth->batch = one->train[0]->job.batch;
    if (list_tensors(&s, one))
        s.why = execute(&s, one, 0).why;
    *why = s.why;
    return s.why ? NULL : s.truth;
}

struct exact_result exact_compare(struct arena *a, const struct plan *p, const struct exact_truth *t, uint64_t seed)
{
    struct session s = {.arena = a, .truth = (struct exact_truth *)t};
    return execute(&s, p, seed);
}

/* A transition's ranks after its programs, with what the old plan's ranks leave behind at the beginning of their
 * memory; NULL: s->why. */
static struct exact_machine *move_state(struct session *s, const struct transition *t, uint64_t seed)
{
    const struct plan seats = {.nroles = t->nroles, .train = t->programs, .eval = t->programs, .ranks = t->ranks};
    struct exact_machine *m = exact_open(s->arena, &seats, seed, &s->why);
    for (uint32_t r = 0; m && r < m->nranks; r++) {
        uint32_t old = t->seats[r].from;
        if (old == NONE)
            continue;
        exact_forget(s->m, old);
        memory_copy(&m->ranks[r].memory, 0, &s->m->ranks[old].memory, 0);
    }
    if (!m || exact_run(m, EXACT_MOVE))
        return m;
    close_machine(s, m);
    return NULL;
}

/* the new plan's ranks, with nothing in their memory but what is there after the transition */
static bool take_state(struct session *s, const struct transition *t, const struct exact_machine *moved, uint64_t seed)
{
    if (!open_plan(s, t->to, seed))
        return false;
    for (uint32_t r = 0; r < moved->nranks; r++)
        if (t->seats[r].to != NONE)
            memory_copy(&s->m->ranks[t->seats[r].to].memory, 0, &moved->ranks[r].memory, t->seats[r].base);
    return fill_ranks(s);
}

struct exact_result exact_transition(struct arena *a, const struct transition *t, const struct exact_truth *truth,
                                     uint64_t seed)
{
    struct session s = {.arena = a, .truth = (struct exact_truth *)truth};
    struct exact_machine *moved = NULL;
    if (open_plan(&s, t->from, seed) && fill_ranks(&s) && run_steps(&s, 1))
        moved = move_state(&s, t, seed);
    close_machine(&s, s.m);
    s.m = NULL;
    if (moved && take_state(&s, t, moved, seed))
        run_steps(&s, EXACT_STEPS);
    close_machine(&s, moved);
    close_machine(&s, s.m);
    return result_of(&s);
}
