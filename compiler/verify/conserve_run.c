/* Property 7: how the programs of all roles are interpreted.
 *
 * Alone, one role after the other runs as far as it gets, until all are at their end.
 *
 * Of a large plan most of the step is interpreted side by side first.  Each worker has roles of its own, and everything
 * that their rules write: the reference's nodes, sets, reports; so the same rules run, and need no locks.  Only what a
 * role sends passes between workers: values of nodes that the reference has, which have the same numbers everywhere.
 * Where roles meet in a collective, or sum over weights begins, a worker stops; when all have, what they hold is
 * brought together, and the rest runs alone.  If anything was wrong, or can't be brought together, none of it counts,
 * and the whole step is interpreted alone, so that what is reported is always the same. */

#include "compiler/verify/conserve.h"

#include "compiler/support/parallel.h"

#include <pthread.h>

/* what workers share while they run side by side */
struct team {
    pthread_mutex_t lock;
    pthread_cond_t news;
    uint32_t waiting;
    uint64_t sent;  /* messages so far */
    uint64_t round; /* counts how often those that waited were told to go on */
    bool over;      /* no worker can go on, or one has failed */
    struct conserve *worker;
};

/* ---- the names of shapes ---- */

static uint8_t name_index(struct shape *s, const char *name)
{
    if (!strcmp(name, "1") || !strcmp(name, "2"))
        return 0;
    for (uint8_t i = 1; i < s->n; i++)
        if (!strcmp(s->name[i], name))
            return i;
    strncpy(s->name[s->n], name, sizeof s->name[0] - 1);
    return s->n++;
}

static void learn_shapes(struct conserve *c)
{
    c->shapes = ARENA_ARRAY(c->scratch, struct shape, NOPS);
    for (enum op op = 0; op < NOPS; op++) {
        const struct isa_info *info = isa_info(op);
        struct shape *s = &c->shapes[op];
        s->n = 1;
        for (uint32_t k = 0; k < info->noperands; k++) {
            s->row[k] = name_index(s, info->operand[k].rows);
            s->col[k] = name_index(s, info->operand[k].cols);
        }
    }
}

/* ---- messages ---- */

/* Has the value the reference's nodes alone, which have the same numbers for all workers? */
static bool common(const struct conserve *c, const struct value *v)
{
    bool all = v->node < c->common;
    for (uint32_t j = 0; j < v->nterms; j++)
        all = all && v->terms[j].node < c->common;
    for (const struct routed *r = v->routed; r; r = r->from)
        all = all && r->once < c->common;
    for (uint32_t k = 0; v->whole && k < v->whole->n; k++)
        all = all && common(c, &v->whole->at[k].value);
    return all;
}

void conserve_put(struct conserve *c, uint32_t from, uint32_t to, const struct message *msg)
{
    struct channel *ch = &c->channels[from * c->nroles + to];
    struct team *t = c->team;
    for (uint32_t k = 0; t && k < msg->nparts; k++)
        c->failed |= !common(c, &msg->parts[k].value);
    if (t)
        pthread_mutex_lock(&t->lock);
    vec_push(c->scratch, &ch->messages, *msg);
    if (!t)
        return;
    t->sent++;
    if (t->waiting) {
        t->waiting = 0;
        t->round++;
        pthread_cond_broadcast(&t->news);
    }
    pthread_mutex_unlock(&t->lock);
}

bool conserve_take(struct conserve *c, uint32_t from, uint32_t to, struct message *msg)
{
    struct channel *ch = &c->channels[from * c->nroles + to];
    if (c->team)
        pthread_mutex_lock(&c->team->lock);
    bool have = ch->taken < ch->messages.n;
    if (have)
        *msg = ch->messages.at[ch->taken++];
    if (c->team)
        pthread_mutex_unlock(&c->team->lock);
    return have;
}

/* ---- one role ---- */

static bool step(struct machine *m, uint32_t i)
{
    static bool (*const rules[NOPS])(struct machine *, uint32_t) = {
#define INSN(name, queue, unit, operands, attributes, meaning) [OP_##name] = rule_##name,
#include "runtime/isa.def"
    };
    memset(m->writer, 0xff, sizeof m->writer);
    m->waits = false;
    return rules[m->program->insns[i].op](m, i) && !m->waits;
}

/* Asks for what the coming instructions will look at in the store, a pointer of the chain at a time. */
static void expect(const struct machine *m, uint32_t next)
{
    static void (*const chain[])(const struct store *, uint32_t) = {store_expect_piece, store_expect_cell,
                                                                    store_expect_place};
    enum { LINKS = sizeof chain / sizeof *chain, APART = 3 };
    const struct program *p = m->program;
    for (uint32_t link = 0, i = next + APART; link < LINKS && i < p->ninsns; link++, i += APART) {
        const struct insn *insn = &p->insns[i];
        for (uint32_t k = 0; k < isa_info(insn->op)->noperands; k++)
            if (p->operands[insn->operand + k].buffer != NONE)
                chain[link](m->store, insn->operand + k);
    }
}

/* Does the instruction need what several roles hold?  SQNORM begins sums whose names are not the reference's. */
static bool meets(const struct machine *m, uint32_t i)
{
    enum op op = m->program->insns[i].op;
    return op == OP_SQNORM || (op == OP_ALL_REDUCE && conserve_crosses(m, i));
}

/* as far as it gets; true: further than it was */
static bool advance(struct machine *m)
{
    uint32_t before = m->next;
    for (; m->next < m->program->ninsns; m->next++) {
        if (m->c->team && meets(m, m->next))
            break;
        expect(m, m->next);
        if (!step(m, m->next))
            break;
    }
    return m->next > before;
}

/* ---- alone ---- */

static void run(struct conserve *c)
{
    bool moved = true, done = false;
    while (moved && !done && !c->failed) {
        moved = false;
        done = true;
        for (uint32_t r = 0; r < c->nroles && !c->failed; r++) {
            moved |= advance(&c->machines[r]);
            done = done && c->machines[r].next == c->machines[r].program->ninsns;
        }
    }
    for (uint32_t r = 0; r < c->nroles && !done && !c->failed; r++)
        if (c->machines[r].next < c->machines[r].program->ninsns)
            conserve_fail(&c->machines[r], c->machines[r].next, "it never gets what it waits for");
    for (uint32_t r = 0; r < c->nroles && !c->failed && conserve_told(c); r++)
        conserve_end(&c->machines[r]);
}

/* what a worker needs beside its roles; false: the reference can't express the step */
static bool equip(struct conserve *c)
{
    const char *cannot;
    c->reference = reference_new(c->scratch, c->plan->job, &c->plan->decision, &cannot);
    if (!c->reference) {
        struct site at = {7, NONE, NONE, c->kind == PROGRAM_EVAL, NONE};
        prove_report(c->arena, c->plan, c->verdict, at, "the reference step can't express %s", cannot);
        return false;
    }
    c->nodes = c->reference->nodes;
    c->common = c->nodes->n;
    c->parts = ARENA_ARRAY(c->scratch, struct parts, 5);
    c->told_at = ARENA_ARRAY(c->scratch, uint32_t, TOLD_ROOM);
    learn_shapes(c);
    return true;
}

static void machine_start(struct conserve *c, uint32_t role)
{
    const struct program *q = prove_program(c->plan, role, c->kind);
    c->machines[role] = (struct machine){.c = c,
                                         .program = q,
                                         .role = role,
                                         .site = {7, role, NONE, c->kind == PROGRAM_EVAL, NONE},
                                         .saw_need = NONE,
                                         .guess = ARENA_ARRAY(c->scratch, uint32_t, q->noperands + ISA_MAX_OPERANDS),
                                         .store = store_new(c->scratch, q, &c->plan->mesh)};
    if (!c->failed)
        conserve_start(&c->machines[role]);
}

static struct conserve new_run(struct arena *a, struct arena *scratch, const struct plan *p, int kind,
                               struct verdict *v)
{
    struct conserve c = {.arena = a, .scratch = scratch, .plan = p, .verdict = v, .kind = kind, .nroles = p->nroles};
    c.machines = ARENA_ARRAY(scratch, struct machine, p->nroles);
    c.channels = ARENA_ARRAY(scratch, struct channel, (size_t)p->nroles * p->nroles);
    return c;
}

static void prove_alone(struct arena *a, const struct plan *p, int kind, struct verdict *v)
{
    struct arena *scratch = arena_new();
    struct conserve c = new_run(a, scratch, p, kind, v);
    if (equip(&c)) {
        for (uint32_t r = 0; r < p->nroles; r++)
            machine_start(&c, r);
        run(&c);
    }
    arena_free(scratch);
}

/* ---- side by side ---- */

/* Waits for news since `sent` messages; false: none of the n workers can go on. */
static bool await(struct team *t, uint32_t n, uint64_t sent)
{
    pthread_mutex_lock(&t->lock);
    if (!t->over && t->sent == sent) {
        uint64_t round = t->round;
        t->over = ++t->waiting == n;
        if (t->over)
            pthread_cond_broadcast(&t->news);
        while (!t->over && t->round == round)
            pthread_cond_wait(&t->news, &t->lock);
    }
    bool on = !t->over;
    pthread_mutex_unlock(&t->lock);
    return on;
}

static uint64_t messages_so_far(struct team *t)
{
    pthread_mutex_lock(&t->lock);
    uint64_t sent = t->sent;
    pthread_mutex_unlock(&t->lock);
    return sent;
}

static void give_up(struct team *t)
{
    pthread_mutex_lock(&t->lock);
    t->over = true;
    pthread_cond_broadcast(&t->news);
    pthread_mutex_unlock(&t->lock);
}

static void work(void *context, uint32_t w, uint32_t n)
{
    struct team *t = context;
    struct conserve *c = &t->worker[w];
    uint64_t sent;
    if (n == 1)
        return;
    bool fine = equip(c);
    for (uint32_t r = w; r < c->nroles && fine; r += n) /* neighbours of a pipeline: all have work from the start */
        machine_start(c, r);
    c->failed |= !fine;
    do {
        sent = messages_so_far(t);
        bool moved = true;
        while (moved && !c->failed) {
            moved = false;
            for (uint32_t r = w; r < c->nroles && !c->failed; r += n)
                moved |= advance(&c->machines[r]);
        }
        if (c->failed)
            give_up(t);
    } while (!c->failed && await(t, n, sent));
}

/* ---- brought together ---- */

/* the numbers that a worker's nodes have in another's table; NONE where they can't be had there */
static uint32_t *adopt_nodes(struct conserve *to, const struct conserve *from)
{
    uint32_t *number = ARENA_ARRAY(to->scratch, uint32_t, from->nodes->n);
    for (uint32_t i = 0; i < from->nodes->n; i++)
        number[i] = i < to->common ? i : nodes_adopt(to->nodes, &from->nodes->at[i], to->common);
    return number;
}

static bool adopt_value(struct conserve *to, struct value *v, const uint32_t *number)
{
    if (common(to, v))
        return true;
    struct term *terms = ARENA_ARRAY(to->scratch, struct term, v->nterms + 1u);
    for (uint32_t j = 0; j < v->nterms; j++) {
        terms[j] = (struct term){number[v->terms[j].node], v->terms[j].blocks};
        if (terms[j].node == NONE || (j && terms[j].node <= terms[j - 1].node))
            return false; /* they are sorted */
    }
    v->node = number[v->node];
    v->terms = terms;
    struct value rest = {.whole = v->whole, .routed = v->routed};
    return v->node != NONE && common(to, &rest);
}

static bool adopt_machine(struct conserve *to, struct machine *m, const uint32_t *number)
{
    struct store *s = m->store;
    for (uint32_t c = 0; c < s->ncells; c++)
        for (uint32_t i = 0; i < s->cells[c].n; i++)
            if (!adopt_value(to, &s->cells[c].pieces[i].value, number))
                return false;
    if (m->saw_need != NONE)
        m->saw_need = number[m->saw_need];
    m->c = to;
    return true;
}

/* the first of n workers gets the roles of all; false: they can't be had */
static bool bring_together(struct team *t, uint32_t n)
{
    struct conserve *to = &t->worker[0];
    to->team = NULL;
    for (uint32_t w = 1; w < n; w++) {
        const struct conserve *from = &t->worker[w];
        const uint32_t *number = adopt_nodes(to, from);
        if (from->common != to->common)
            return false;
        for (uint32_t r = w; r < to->nroles; r += n)
            if (!adopt_machine(to, &to->machines[r], number))
                return false;
        conserve_adopt_told(to, from);
    }
    return true;
}

/* Returns how many workers there were; 0: nothing was proved. */
static uint32_t prove_by_workers(const struct plan *p, int kind, uint32_t most)
{
    struct arena *scratch = arena_new();
    struct team t = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
    struct conserve first = new_run(scratch, scratch, p, kind, NULL);
    t.worker = ARENA_ARRAY(scratch, struct conserve, most);
    for (uint32_t w = 0; w < most; w++) {
        t.worker[w] = first;
        t.worker[w].team = &t;
        t.worker[w].arena = t.worker[w].scratch = arena_new();
        t.worker[w].verdict = ARENA_NEW(scratch, struct verdict);
    }
    uint32_t n = parallel_together(most, work, &t);
    bool fine = n > 1;
    for (uint32_t w = 0; w < n; w++)
        fine = fine && !t.worker[w].failed;
    fine = fine && bring_together(&t, n);
    if (fine)
        run(&t.worker[0]);
    fine = fine && !t.worker[0].failed;
    for (uint32_t w = 0; w < most; w++)
        arena_free(t.worker[w].scratch);
    arena_free(scratch);
    return fine ? n : 0;
}

uint32_t conserve_prove(struct arena *a, const struct plan *p, int kind, uint32_t workers, struct verdict *v)
{
    for (uint32_t r = 0; r < p->nroles; r++)
        if (!prove_program(p, r, kind))
            return 0;
    workers = workers < p->nroles ? workers : p->nroles;
    uint32_t n = workers > 1 ? prove_by_workers(p, kind, workers) : 0;
    if (n)
        return n;
    prove_alone(a, p, kind, v);
    return 1;
}

/* plans that are proved sooner than workers have started are proved alone */
static void prove_kind(struct arena *a, const struct plan *p, int kind, struct verdict *v)
{
    enum { MANY_INSNS = 100000, MOST_WORKERS = 8 };
    uint64_t ninsns = 0;
    for (uint32_t r = 0; r < p->nroles; r++)
        ninsns += prove_program(p, r, kind) ? prove_program(p, r, kind)->ninsns : 0;
    conserve_prove(a, p, kind, ninsns < MANY_INSNS ? 1 : MOST_WORKERS, v);
}

void verify_training(struct arena *a, const struct plan *p, struct verdict *v)
{
    prove_kind(a, p, PROGRAM_TRAIN, v);
}

void verify_evaluation(struct arena *a, const struct plan *p, struct verdict *v)
{
    prove_kind(a, p, PROGRAM_EVAL, v);
}
