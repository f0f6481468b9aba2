/* check --execute; see execute.h. */

#include "compiler/execute/execute.h"

#include "compiler/execute/exact.h"
#include "compiler/execute/shrink.h"
#include "compiler/inspect/verdict.h"
#include "compiler/origin/origin.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <string.h>

/* Programs are executed unchanged if a step has at most MOST_FLOPS FLOPs and all arenas together have at most
 * MOST_ARENA_BYTES bytes: the exact interpreter runs 10^9 FLOPs in about a second, and takes ten bytes for one of an
 * arena.  Up to FEW_FLOPS it runs ORDERS orders, above that LEAST_ORDERS. */
#define MOST_FLOPS 1e11
#define FEW_FLOPS 2e9
#define MOST_ARENA_BYTES ((uint64_t)256 << 20)
enum { ORDERS = 4, LEAST_ORDERS = 2 };

static const char *job_text(struct arena *a, const struct job *job)
{
    uint32_t experts = 0;
    for (uint32_t i = 0; i < job->model.nlayers; i++)
        experts += job->model.layers[i]->is_moe;
    const char *with = experts ? arena_printf(a, " (%u with experts)", experts) : "";
    return arena_printf(a, "%u layers%s of width %llu, vocabulary %llu, %llu sequences of %llu tokens",
                        job->model.nlayers, with, (unsigned long long)job->model.width,
                        (unsigned long long)job->model.vocab, (unsigned long long)job->train.batch,
                        (unsigned long long)job->train.sequence);
}

static void progress(const struct execute_options *o, const char *what)
{
    if (o->progress)
        fprintf(stderr, "\r\033[K%s", what);
}

/* All orders are adversarial, except that the first of ORDERS is the fixed one. */
static void execute_exactly(struct arena *a, const struct plan *p, const struct plan *one, uint32_t orders,
                            const struct execute_options *o, struct execution *e)
{
    progress(o, "executing one rank");
    const struct exact_truth *truth = exact_truth(a, one, &e->exact);
    uint64_t first = orders < ORDERS ? 1 : 0;
    for (uint64_t i = 0; truth && i < orders && !e->exact; i++) {
        progress(o, arena_printf(a, "executing all ranks, order %u of %u", (unsigned)i + 1, orders));
        struct exact_result r = exact_compare(a, p, truth, first + i);
        e->exact = r.why;
        e->numbers += r.elements;
        e->ninsns += r.ninsns;
        e->orders++;
    }
    progress(o, "");
}

/* The cluster without its GPUs' kernels, whose workspace need not fit here. */
static struct topo *without_kernels(struct arena *a, const struct topo *from)
{
    struct topo *t = ARENA_NEW(a, struct topo);
    *t = *from;
    t->types = ARENA_ARRAY(a, struct topo_node_type, t->ntypes);
    for (uint32_t i = 0; i < t->ntypes; i++) {
        t->types[i] = from->types[i];
        t->types[i].gpu.sm = 0;
    }
    return t;
}

static enum status execute_small(struct arena *a, const struct plan *p, struct shrunk *s,
                                 const struct execute_options *o, struct execution *e, struct error *error)
{
    const char *why = "";
    struct topo *topo = without_kernels(a, p->topo);
    struct plan *small = compile_decision(a, &s->job, topo, &s->decision, &(struct compile_options){0}, &why);
    struct plan *one = small ? compile_decision(a, &s->job, topo, &s->alone, &(struct compile_options){0}, &why) : NULL;
    enum status st;
    if (one) {
        const struct verdict *v = verify_plan(a, small, true);
        e->verified = v->nviolations ? v->violations[0].message : NULL;
        execute_exactly(a, small, one, ORDERS, o, e);
        st = execute_real(a, NULL, small, one, e, error);
        plan_close(one);
    } else {
        st = error_set(error, STATUS_BUG, "the plan at small dimensions (%s): %s", e->decision, why);
    }
    if (small)
        plan_close(small);
    return st;
}

/* Can the folder's programs be interpreted unchanged?  Where experts have less capacity than for all rows that can
 * arrive, random scores would exceed it. */
static bool runs_as_it_is(const struct plan *p)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < p->ranks->nranks; r++) {
        const struct program *t = p->train[p->ranks->ranks[r].role], *v = p->eval[p->ranks->ranks[r].role];
        uint64_t most = t->arena_bytes > v->arena_bytes ? t->arena_bytes : v->arena_bytes;
        bytes += most < MOST_ARENA_BYTES ? most : MOST_ARENA_BYTES;
    }
    return p->ranks->nranks <= SHRINK_MOST_RANKS && bytes <= MOST_ARENA_BYTES && !(p->decision.room > 0) &&
           model_flops(&p->job->model, p->job->train.sequence, p->job->train.batch) <= MOST_FLOPS;
}

static enum status execute_programs(struct arena *a, const char *dir, const struct plan *p,
                                    const struct execute_options *o, struct execution *e, struct error *error)
{
    const char *why = "";
    struct topo *topo = without_kernels(a, p->topo);
    struct decision alone = decision_single();
    alone.microbatches = (uint32_t)p->job->train.batch;
    alone.type = p->decision.type;
    struct plan *one = NULL;
    if (decision_place(a, topo, &alone, &why)) {
        decision_cut(a, &alone, p->job->model.nlayers, NULL, 0, 0);
        one = compile_decision(a, p->job, topo, &alone, &(struct compile_options){0}, &why);
    }
    if (!one)
        return error_set(error, STATUS_BUG, "one rank of the job: %s", why);
    double flops = model_flops(&p->job->model, p->job->train.sequence, p->job->train.batch);
    e->what = EXECUTED_PROGRAMS;
    execute_exactly(a, p, one, flops > FEW_FLOPS ? LEAST_ORDERS : ORDERS, o, e);
    enum status st = STATUS_OK;
    if (!e->verified && !e->exact) /* programs that deadlock would run for ever */
        st = execute_real(a, dir, p, one, e, error);
    plan_close(one);
    return st;
}

enum status execute_plan(struct arena *a, const char *dir, const struct plan *p, const struct execute_options *o,
                         struct execution *e, struct error *error)
{
    const char *why = "";
    const struct verdict *v = verify_plan(a, p, o->full);
    *e = (struct execution){.origin = origin_check(a, p), .verified = v->nviolations ? v->violations[0].message : NULL};
    e->decision = decision_text(a, p->job, &p->decision);
    e->job = job_text(a, p->job);
    if (runs_as_it_is(p))
        return execute_programs(a, dir, p, o, e, error);
    if (e->verified || e->origin->ndifferences)
        return STATUS_OK;
    struct shrunk *s = shrink_plan(a, p, &why);
    if (!s)
        return error_set(error, STATUS_NO_PLAN, "the plan cannot be executed at small dimensions: %s", why);
    e->what = EXECUTED_SHRUNK;
    e->decision = decision_text(a, &s->job, &s->decision);
    e->job = job_text(a, &s->job);
    return execute_small(a, p, s, o, e, error);
}

bool execution_equal(const struct execution *e)
{
    return e->what != EXECUTED_NOTHING && !e->verified && !e->exact && !e->real && !e->origin->ndifferences;
}

static void print_what(const struct execution *e, FILE *out)
{
    switch (e->what) {
    case EXECUTED_PROGRAMS:
        fprintf(out, "executed   the folder's programs: %s\n           %s\n", e->decision, e->job);
        break;
    case EXECUTED_SHRUNK:
        fprintf(out,
                "executed   the same decision at small dimensions: %s\n           %s\n"
                "           the folder's programs are byte for byte what it compiles to at full size\n",
                e->decision, e->job);
        break;
    case EXECUTED_NOTHING:
        fprintf(out, "executed   nothing: the folder's programs are too large, and those of its decision at small\n"
                     "           dimensions would not speak for them\n");
        break;
    }
}

void execution_print(const struct execution *e, FILE *out)
{
    print_what(e, out);
    if (e->verified)
        fprintf(out, "verified   NO: %s\n", e->verified);
    else
        fprintf(out, "verified   yes\n");
    if (e->what != EXECUTED_NOTHING && e->exact)
        fprintf(out, "exact      DIFFERS from one rank: %s\n", e->exact);
    else if (e->what != EXECUTED_NOTHING)
        fprintf(out, "exact      equals one rank modulo 2^61 - 1 in %u orders: %s numbers, %s instructions\n",
                e->orders, units_show_commas(e->numbers).s, units_show_commas(e->ninsns).s);
    if (e->real)
        fprintf(out, "real       DIFFERS from one rank: %s\n", e->real);
    else if (e->steps)
        fprintf(out, "real       equals one rank in %u steps of llmrun: loss within %.1e, gradient norm within %.1e\n",
                e->steps, e->loss_error, e->norm_error);
    else if (e->what != EXECUTED_NOTHING)
        fprintf(out, "real       not run\n");
    origin_print(e->origin, out);
}

void execution_json(const struct execution *e, FILE *out)
{
    static const char *const words[] = {
        [EXECUTED_NOTHING] = NULL, [EXECUTED_PROGRAMS] = "programs", [EXECUTED_SHRUNK] = "shrunk"};
    struct strbuf b = {0};
    strbuf_json(&b,
                "{'schema': 1, 'equal': %d, 'executed': %s, 'decision': %s, 'shrunk': %s, 'job': %s, 'verified': %d, "
                "'exact': {'equal': %d, 'orders': %u, 'numbers': %lu, 'instructions': %lu, 'why': %s}, "
                "'real': {'equal': %d, 'steps': %u, ",
                execution_equal(e), words[e->what], e->decision, e->what == EXECUTED_SHRUNK ? e->decision : NULL,
                e->job, !e->verified, e->what != EXECUTED_NOTHING && !e->exact, e->orders, e->numbers, e->ninsns,
                e->exact, e->steps && !e->real, e->steps);
    strbuf_printf(&b, "\"loss_error\": %.3g, \"norm_error\": %.3g", e->loss_error, e->norm_error);
    strbuf_json(&b, ", 'why': %s}", e->real);
    origin_json(e->origin, &b);
    strbuf_text(&b, "}\n");
    fputs(b.text, out);
    strbuf_free(&b);
}
