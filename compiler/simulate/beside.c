/* What travels beside a rank's actions, piece by piece: see pipeline_moves, compiler/lower/shard.c.
 *
 * The queue of such transfers is in order.  A use of a gathered piece waits for its parameters, which are asked for
 * `prefetch` uses ahead and wait for the buffer that the use before those read.  A gathered piece that is used twice in
 * a row is gathered once.  Gradients of a microbatch are made in one of two buffers, scattered, and added one piece
 * later.  With `blocks` everything is done in turn.  Activations that lie in host memory come and go on a queue of
 * their own. */

#include "compiler/simulate/beside.h"

#include <string.h>

static const char kinds[] = "FBIW";

#define MOST_AHEAD (DECISION_MOST_PREFETCH + 1u)

/* a piece in the order of the rank's uses: of action `at`, the index-th of the stage's pieces */
struct place {
    uint32_t at, index, again; /* again: of its run of equal ones */
};

/* buffers that pieces are gathered to: of actions by themselves and the first of two that run together, of the second
 */
struct gathered {
    struct place ahead; /* the next use to be asked for */
    const struct pipeline_piece *last_asked, *last_used;
    uint32_t asked, used, last_asked_again, last_used_again;
    double there_s[MOST_AHEAD], read_s[MOST_AHEAD];
};

/* the last gradients of inputs so far: their end, and seconds by themselves */
struct input_pass {
    double end_s, takes_s;
};

struct beside {
    const struct schedule *s;
    const struct pipeline_times *t;
    uint32_t rank, depth, *left; /* left: backward passes by chunk of the rank that still make gradients */
    bool *begun, *opened;        /* by stage: some microbatch's gradients are made; parameters have been used */
    double *head_s;              /* by stage: when the first of its pieces begins to be gathered at the step's begin */
    struct input_pass *input;    /* by stage */
    double wire_s;               /* the queue is free */
    struct gathered gathered[2];
    /* gradients */
    uint32_t made;
    double made_free_s[2], pending_s, pending_add_s, pending_finish_s;
    bool pending;
    double late_s;        /* what is summed with the mirror rank at the end; */
    double tied_s, tie_s; /* the table that is summed with the other end is complete; that sum */
    /* copies to host memory and back: their queue; a value's place, of two, is free; it has come there */
    double copies_s, *place_s[2][2], *there_s[2][2]; /* of the first and the second action of a pair; by value */
    uint32_t *first;                                 /* by stage: number of its first piece on this rank */
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static uint32_t chain_stage(const struct beside *b, uint32_t stage)
{
    return stage % (b->s->nstages / b->s->copies);
}

static const struct pipeline_moves *moves_of(const struct beside *b, uint32_t stage)
{
    return &b->t->moves[chain_stage(b, stage)];
}

struct beside *beside_new(struct arena *a, const struct schedule *s, const struct pipeline_times *t, uint32_t rank)
{
    struct beside *b = ARENA_NEW(a, struct beside);
    *b = (struct beside){.s = s, .t = t, .rank = rank, .depth = t->prefetch + 1};
    b->left = ARENA_ARRAY(a, uint32_t, s->nstages);
    b->begun = ARENA_ARRAY(a, bool, s->nstages);
    b->opened = ARENA_ARRAY(a, bool, s->nstages);
    b->head_s = ARENA_ARRAY(a, double, s->nstages);
    b->input = ARENA_ARRAY(a, struct input_pass, s->nstages);
    b->first = ARENA_ARRAY(a, uint32_t, s->nstages);
    for (int i = 0; i < 4 && t->nplaces; i++) {
        b->place_s[i % 2][i / 2] = ARENA_ARRAY(a, double, t->nplaces);
        b->there_s[i % 2][i / 2] = ARENA_ARRAY(a, double, t->nplaces);
    }
    for (uint32_t i = 0, n = 0; i < s->nstages; i++) {
        b->first[i] = n;
        for (uint32_t k = 0; s->stage_rank[i] == rank && k < moves_of(b, i)->npieces; k++)
            n += moves_of(b, i)->pieces[k].count;
    }
    return b;
}

/* ---- uses of gathered pieces ---- */

/* the index-th piece in an action's order; does it use gathered parameters of it? */
static bool uses(const struct beside *b, const struct action *x, uint32_t index, const struct pipeline_piece **piece)
{
    const struct pipeline_moves *m = moves_of(b, x->stage);
    *piece = &m->pieces[x->kind == 'F' ? index : m->npieces - 1 - index];
    return (*piece)->gathers && x->kind != 'W' && (x->kind == 'F' || (*piece)->reads);
}

/* The next gather in the order of a ring's uses onto the queue, if there is one: it waits until its buffer was read. */
static void ask(struct beside *b, struct gathered *r)
{
    const struct schedule *s = b->s;
    const struct action *all = s->actions[b->rank];
    while (r->ahead.at < s->nactions[b->rank]) {
        const struct action *x = &all[r->ahead.at];
        const struct pipeline_piece *p;
        if (x->kind == 'O')
            return;
        bool second = x > all && x[-1].pair;
        if (r != &b->gathered[second] || r->ahead.index >= moves_of(b, x->stage)->npieces) {
            r->ahead = (struct place){.at = r->ahead.at + 1};
            continue;
        }
        bool used = uses(b, x, r->ahead.index, &p);
        uint32_t again = x->kind == 'F' ? r->ahead.again : p->count - 1 - r->ahead.again;
        bool twice = p == r->last_asked && again == r->last_asked_again;
        if (++r->ahead.again >= p->count)
            r->ahead = (struct place){r->ahead.at, r->ahead.index + 1, 0};
        if (!used || twice)
            continue;
        r->last_asked = p;
        r->last_asked_again = again;
        b->wire_s = later(b->wire_s, r->asked >= b->depth ? r->read_s[r->asked % b->depth] : 0) + p->gather_s;
        r->there_s[r->asked++ % b->depth] = b->wire_s;
        return;
    }
}

/* A use of the again-th of equal pieces, the rank's kernels done at free_s: when its parameters are there.  Whoever
 * uses it says when it was read. */
static double open_piece(struct beside *b, struct gathered *r, const struct pipeline_piece *p, uint32_t again,
                         double free_s)
{
    if (r->used && p == r->last_used && again == r->last_used_again)
        return 0;
    r->last_used = p;
    r->last_used_again = again;
    r->used++;
    if (b->t->blocks) {
        ask(b, r);
        return free_s + p->gather_s;
    }
    while (r->asked < r->used + b->t->prefetch && r->ahead.at < b->s->nactions[b->rank] &&
           b->s->actions[b->rank][r->ahead.at].kind != 'O')
        ask(b, r);
    return r->there_s[(r->used - 1) % b->depth];
}

/* ---- gradients ---- */

/* a sum on the queue that is ready at now_s */
static void sum_up(struct beside *b, double now_s, double takes_s)
{
    b->wire_s = later(b->wire_s, now_s) + takes_s;
}

/* the part that came last is added to the sum */
static double add_part(struct beside *b, double now_s)
{
    if (!b->pending)
        return now_s;
    b->pending = false;
    now_s = later(now_s, b->pending_s) + b->pending_add_s;
    if (b->pending_finish_s > 0)
        sum_up(b, now_s, b->pending_finish_s);
    return now_s;
}

/* the gradients of one piece, made at now_s, for their sum at ready_s; until when kernels are busy with them */
static double made_piece(struct beside *b, const struct pipeline_piece *p, bool begun, bool last, double now_s,
                         double ready_s)
{
    now_s += p->scatters || last ? p->convert_s : 0;
    if (last && p->ties)
        b->tied_s = now_s;
    if (!p->scatters) {
        if (last && b->t->blocks) {
            now_s += p->sum_s + p->finish_s;
        } else if (last) {
            sum_up(b, p->early ? ready_s : now_s, p->sum_s + p->finish_s);
        }
        return now_s;
    }
    if (b->t->blocks)
        return now_s + p->sum_s + (begun ? p->add_s : p->back_s) + (last ? p->finish_s : 0);
    sum_up(b, now_s, p->sum_s);
    b->made_free_s[b->made++ % 2] = b->wire_s;
    double end = add_part(b, now_s);
    if (begun || p->back_s > 0) {
        b->pending = true;
        b->pending_s = b->wire_s;
        b->pending_add_s = begun ? p->add_s : p->back_s;
        b->pending_finish_s = last ? p->finish_s : 0;
    } else if (last) {
        sum_up(b, now_s, p->finish_s);
    }
    return end;
}

/* ---- actions ---- */

static uint32_t weight_passes(const struct beside *b, uint32_t stage)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < b->s->nactions[b->rank]; k++) {
        const struct action *x = &b->s->actions[b->rank][k];
        n += x->stage == stage && (x->kind == 'B' || x->kind == 'W');
    }
    return n;
}

double beside_begin(struct beside *b, double begin_s)
{
    const struct schedule *s = b->s;
    double vectors_s = 0;
    b->wire_s = b->copies_s = begin_s;
    for (uint32_t i = 0; i < 4 * b->t->nplaces; i++)
        b->place_s[i % 2][i / 2 % 2][i / 4] = begin_s;
    for (uint32_t i = 0; i < s->nstages; i++)
        if (s->stage_rank[i] == b->rank) {
            b->left[i] = weight_passes(b, i);
            vectors_s += moves_of(b, i)->gather_s;
        }
    b->wire_s += vectors_s;
    for (uint32_t i = 0; i < s->nstages; i++) {
        const struct pipeline_moves *m = moves_of(b, i);
        b->head_s[i] = b->wire_s;
        for (uint32_t k = 0; s->stage_rank[i] == b->rank && k < m->npieces; k++)
            if (!m->pieces[k].gathers)
                b->wire_s += m->pieces[k].count * m->pieces[k].gather_s;
    }
    for (uint32_t k = 0; k < b->t->prefetch; k++)
        ask(b, &b->gathered[0]);
    return b->t->blocks ? b->wire_s : begin_s + vectors_s;
}

static double share_of(const struct pipeline_piece *p, char kind)
{
    return kind == 'F' ? p->forward : kind == 'B' ? p->backward : kind == 'I' ? p->input : p->weight;
}

/* an action on its way through its stage's pieces */
struct pass {
    const struct action *x;
    const struct pipeline_moves *m;
    bool makes, last, opens, second, paired;
    uint32_t index, again, number; /* the next piece, the again-th of its run of equal ones; its number on this rank */
    double takes_s, done, head_s;  /* done: share of takes_s that is through */
    double before;                 /* share of an I's seconds in front of the next piece */
    bool open;                     /* the next piece's parameters were asked for; */
    double there_s;                /* when they are there */
};

static double copies_s(const struct pipeline_piece *p, char kind)
{
    return kind == 'W' ? p->fetch_s : p->park_s;
}

static double brings_s(const struct pipeline_copy *c, char kind)
{
    return kind == 'W' ? c->fetch_s : c->copy_s;
}

static const struct pipeline_copy_read *read_of(const struct pipeline_copy *c, char kind)
{
    return &c->read[kind == 'B' ? 0 : kind == 'I' ? 1 : 2];
}

/* What a layer keeps lies in one of two places while it is worked on, each value in its own.  A forward pass writes it
 * when what was there has been copied out; a backward pass needs what has been copied in, which is asked for as its
 * place is free: of the piece so many pieces ahead. */
static void fetch(struct beside *b, const struct pass *a, uint32_t ahead)
{
    uint32_t i = a->index, again = a->again + ahead, place = (a->number - ahead) % 2;
    const struct pipeline_piece *p;
    for (; i < a->m->npieces; again -= p->count, i++) {
        uses(b, a->x, i, &p);
        if (again < p->count)
            break;
    }
    for (uint32_t k = 0; i < a->m->npieces && k < p->ncopies; k++) {
        const struct pipeline_copy *c = &p->copies[k];
        double takes_s = brings_s(c, a->x->kind), *free_s = &b->place_s[a->second][place][c->place];
        if (takes_s > 0)
            *free_s = b->there_s[a->second][place][c->place] = b->copies_s = later(b->copies_s, *free_s) + takes_s;
    }
}

/* when a piece begins so that it waits for no copy, at now_s or later */
static double copied_s(const struct beside *b, const struct pass *a, const struct pipeline_piece *p, double now_s,
                       double own_s)
{
    char kind = a->x->kind;
    uint32_t place = a->number % 2;
    for (uint32_t k = 0; k < p->ncopies; k++) {
        const struct pipeline_copy *c = &p->copies[k];
        if (kind == 'F')
            now_s = later(now_s, b->place_s[a->second][place][c->place] - c->begun * own_s);
        else if (brings_s(c, kind) > 0 && read_of(c, kind)->reads)
            now_s = later(now_s, b->there_s[a->second][place][c->place] - read_of(c, kind)->need * own_s);
    }
    return now_s;
}

/* behind a piece that began at start_s: values are copied out as they are made, and leave their places as they are read
 */
static void park_behind(struct beside *b, const struct pass *a, const struct pipeline_piece *p, double start_s,
                        double own_s)
{
    char kind = a->x->kind;
    for (uint32_t k = 0; k < p->ncopies; k++) {
        const struct pipeline_copy *c = &p->copies[k];
        double *free_s = &b->place_s[a->second][a->number % 2][c->place];
        if (kind == 'F')
            *free_s = b->copies_s = later(b->copies_s, start_s + c->made * own_s) + c->copy_s;
        else if (brings_s(c, kind) > 0 && read_of(c, kind)->reads)
            *free_s = start_s + read_of(c, kind)->done * own_s;
    }
    if (kind != 'F')
        fetch(b, a, 2);
}

static struct pass begin_pass(struct beside *b, uint32_t k, double takes_s)
{
    const struct action *x = &b->s->actions[b->rank][k];
    struct pass a = {.x = x, .m = moves_of(b, x->stage), .takes_s = takes_s, .head_s = b->head_s[x->stage]};
    a.makes = x->kind == 'B' || x->kind == 'W';
    a.last = a.makes && --b->left[x->stage] == 0;
    a.opens = x->kind == 'F' && !b->opened[x->stage] && !b->t->blocks;
    a.second = k && b->s->actions[b->rank][k - 1].pair;
    a.paired = a.second || x->pair;
    a.number = b->first[x->stage];
    for (uint32_t i = 0; x->kind != 'F' && i < a.m->npieces; i++)
        a.number += a.m->pieces[i].count;
    a.number -= x->kind != 'F';
    for (uint32_t ahead = 0; x->kind != 'F' && ahead < 2; ahead++)
        fetch(b, &a, ahead);
    return a;
}

/* what the next piece gathers, if it does, is asked for; free_s: the rank's kernels are done */
static void open_next(struct beside *b, struct pass *a, double free_s)
{
    const struct pipeline_piece *p;
    if (a->open || a->index >= a->m->npieces || !uses(b, a->x, a->index, &p))
        return;
    a->open = true;
    a->there_s = open_piece(b, &b->gathered[a->second], p, a->x->kind == 'F' ? a->again : p->count - 1 - a->again,
                            free_s);
}

/* one of a run of equal pieces, whose parameters were asked for */
static double take_one(struct beside *b, struct pass *a, const struct pipeline_piece *p, double now_s)
{
    char kind = a->x->kind;
    double own_s = share_of(p, kind) * a->takes_s;
    struct gathered *r = &b->gathered[a->second];
    if (b->t->crowded && p->exchanges && kind != 'W')
        now_s = later(now_s, b->wire_s - (kind == 'F' ? p->free_forward : p->free_backward) * own_s);
    if (a->open) {
        now_s = later(now_s, a->there_s);
    } else if (a->opens) {
        a->head_s += p->gather_s;
        now_s = later(now_s, a->head_s);
    }
    now_s = copied_s(b, a, p, now_s, own_s);
    if (a->makes && p->scatters)
        now_s = later(now_s, b->made_free_s[b->made % 2]);
    if (a->open)
        r->read_s[(r->used - 1) % b->depth] = now_s + own_s;
    a->open = false;
    return now_s + own_s;
}

/* in a W: when the next piece's gradients of inputs had been made */
static double input_made_s(const struct beside *b, const struct pass *a, const struct pipeline_piece *p, double now_s)
{
    const struct input_pass *i = &b->input[a->x->stage];
    double left = 1 - a->before - p->input;
    return a->x->kind == 'W' ? i->end_s - (left > 0 ? left : 0) * i->takes_s : now_s;
}

/* The next piece, or a run of equal ones where nothing travels; *sent_s: when it is through, before its gradients are.
 */
static double take_piece(struct beside *b, struct pass *a, double now_s, double free_s, double *sent_s)
{
    const struct pipeline_piece *p;
    bool gathered = uses(b, a->x, a->index, &p), back = a->x->kind != 'F';
    open_next(b, a, free_s);
    double share = share_of(p, a->x->kind), own_s = share * a->takes_s;
    double turns_s = a->open && a->there_s > 0 ? p->gather_s : 0;
    bool waits = b->t->crowded && p->exchanges && b->wire_s > now_s;
    if (!gathered && !(a->makes && (p->scatters || a->last)) && !(a->opens && p->gather_s > 0) && !waits &&
        copies_s(p, a->x->kind) <= 0) {
        uint32_t left = p->count - a->again;
        *sent_s = now_s += left * own_s;
        for (uint32_t k = 0; back && k < left; k++)
            fetch(b, a, 2 + k);
        a->number += back ? 0u - left : left;
        a->done += left * share;
        a->before += left * p->input;
        a->again = p->count;
    } else {
        *sent_s = now_s = take_one(b, a, p, now_s);
        if (copies_s(p, a->x->kind) > 0)
            park_behind(b, a, p, now_s - own_s, own_s);
        else if (back)
            fetch(b, a, 2);
        if (a->makes)
            now_s = made_piece(b, p, b->begun[a->x->stage], a->last, now_s, input_made_s(b, a, p, now_s));
        if (b->t->blocks && !a->paired)
            now_s -= smaller(p->beside[strchr(kinds, a->x->kind) - kinds], turns_s + now_s - *sent_s);
        a->before += p->input;
        a->number += back ? 0u - 1u : 1;
        a->done += share;
        a->again++;
    }
    if (a->again >= p->count) {
        a->again = 0;
        a->index++;
    }
    return now_s;
}

static double end_pass(struct beside *b, const struct pass *a, double now_s)
{
    if (a->last && b->t->blocks)
        now_s += a->m->sum_s;
    else if (a->last)
        sum_up(b, now_s, a->m->sum_s);
    if (a->x->kind == 'I')
        b->input[a->x->stage] = (struct input_pass){now_s, a->takes_s};
    b->begun[a->x->stage] |= a->makes;
    b->opened[a->x->stage] |= a->x->kind == 'F';
    return now_s;
}

struct beside_end beside_action(struct beside *b, uint32_t k, double start_s, double free_s, double takes_s)
{
    struct pass a = begin_pass(b, k, takes_s);
    struct beside_end e = {.end_s = start_s};
    double sent_s = start_s + takes_s;
    while (a.index < a.m->npieces)
        e.end_s = take_piece(b, &a, e.end_s, e.end_s > start_s ? e.end_s : free_s, &sent_s);
    e.late_s[0] = sent_s - start_s - takes_s;
    e.end_s = end_pass(b, &a, e.end_s + (a.m->npieces == 0 ? takes_s : 0));
    return e;
}

/* of two passes at now_s, that whose next piece can start first; of two that can the one that is behind */
static struct pass *next_of(const struct beside *b, struct pass a[2], double now_s)
{
    double at[2];
    for (int i = 0; i < 2; i++) {
        if (a[i].index >= a[i].m->npieces)
            return &a[1 - i];
        const struct pipeline_piece *p;
        uses(b, a[i].x, a[i].index, &p);
        at[i] = a[i].open && !b->t->blocks ? later(now_s, a[i].there_s) : now_s;
        at[i] = copied_s(b, &a[i], p, at[i], share_of(p, a[i].x->kind) * a[i].takes_s);
    }
    return &a[at[1] < at[0] || (at[1] <= at[0] && a[1].done < a[0].done)];
}

/* Pieces of both in turn: their copies to host memory, sums of gradients and what they gather then have both actions'
 * kernels beside them. */
struct beside_end beside_pair(struct beside *b, uint32_t k, double start_s, double free_s, double first_s,
                              double second_s)
{
    struct pass a[2] = {begin_pass(b, k, first_s), begin_pass(b, k + 1, second_s)};
    struct beside_end e = {.end_s = start_s};
    double sent_s;
    while (a[0].index < a[0].m->npieces || a[1].index < a[1].m->npieces) {
        for (int i = 0; i < 2 && !b->t->blocks; i++)
            open_next(b, &a[i], free_s);
        struct pass *next = next_of(b, a, e.end_s);
        e.end_s = take_piece(b, next, e.end_s, e.end_s > start_s ? e.end_s : free_s, &sent_s);
        e.late_s[next - a] = sent_s - start_s - a[0].done * first_s - a[1].done * second_s;
    }
    for (int i = 0; i < 2; i++)
        e.end_s = end_pass(b, &a[i], e.end_s + (a[i].m->npieces == 0 ? a[i].takes_s : 0));
    return e;
}

double beside_wire_s(const struct beside *b)
{
    return b->wire_s;
}

double beside_copies_s(const struct beside *b)
{
    return b->copies_s;
}

void beside_settle(struct beside *const *all, uint32_t nranks, const double *ended_s, double *whole_s)
{
    for (uint32_t r = 0; r < nranks; r++) {
        struct beside *b = all[r];
        whole_s[r] = add_part(b, ended_s[r]);
        whole_s[r] = later(whole_s[r], b->wire_s);
        for (uint32_t i = 0; i < b->s->nstages; i++) {
            b->late_s += b->s->stage_rank[i] == r ? moves_of(b, i)->late_s : 0;
            b->tie_s = b->s->stage_rank[i] == r ? later(b->tie_s, moves_of(b, i)->tie_s) : b->tie_s;
        }
    }
    for (uint32_t r = 0; 2 * r + 1 < nranks;
         r++) { /* both ends of the pipeline, or mirror ranks, add theirs together */
        uint32_t mirror = nranks - 1 - r;
        double both_s = later(whole_s[r], whole_s[mirror]), late_s = all[r]->late_s;
        double tied_s = later(all[r]->tied_s, all[mirror]->tied_s) + all[r]->tie_s;
        if (all[r]->tie_s > 0) {
            whole_s[r] = later(whole_s[r], tied_s) + late_s;
            whole_s[mirror] = later(whole_s[mirror], tied_s) + late_s;
        } else if (late_s > 0) {
            whole_s[r] = whole_s[mirror] = both_s + late_s;
        }
    }
}
