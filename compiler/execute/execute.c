/* check --execute; see execute.h. */

#include "compiler/execute/execute.h"

#include "compiler/execute/exact.h"
#include "compiler/execute/shrink.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <string.h>

enum { ORDERS = 4 };

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

static void execute_exactly(struct arena *a, const struct plan *p, const struct plan *one,
                            struct execution *e)
{
    const struct exact_truth *truth = exact_truth(a, one, &e->exact);
    for (uint64_t seed = 0; truth && seed < ORDERS && !e->exact; seed++) {
        struct exact_result r = exact_compare(a, p, truth, seed);
        e->exact = r.why;
        e->numbers += r.elements;
        e->ninsns += r.ninsns;
        e->orders++;
    }
}

/* the cluster, but for GPUs' kernels, which need not have room here */
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

static enum status execute_small(struct arena *a, const struct plan *p, struct shrunk *s, struct execution *e,
                                 char *error, size_t error_size)
{
    const char *why = "";
    struct topo *topo = without_kernels(a, p->topo);
    struct plan *small =
        compile_decision(a, &s->job, topo, &s->decision, &(struct compile_options){0}, &why);
    struct plan *one =
        small ? compile_decision(a, &s->job, topo, &s->alone, &(struct compile_options){0}, &why) : NULL;
    enum status st = STATUS_OK;
    if (one) {
        const struct verdict *v = verify_plan(a, small, true);
        e->verified = v->nviolations ? v->violations[0].message : NULL;
        execute_exactly(a, small, one, e);
        st = execute_real(a, small, one, e, error, error_size);
        plan_close(one);
    } else {
        snprintf(error, error_size, "the plan at small dimensions (%s): %s", e->decision, why);
        st = STATUS_BUG;
    }
    if (small)
        plan_close(small);
    return st;
}

enum status execute_plan(struct arena *a, const struct plan *p, struct execution *e, char *error,
                         size_t error_size)
{
    const char *why = "";
    *e = (struct execution){0};
    struct shrunk *s = shrink_plan(a, p, &why);
    if (!s) {
        snprintf(error, error_size, "the plan cannot be executed at small dimensions: %s", why);
        return STATUS_NO_PLAN;
    }
    e->decision = decision_text(a, &s->job, &s->decision);
    e->job = job_text(a, &s->job);
    return execute_small(a, p, s, e, error, error_size);
}

bool execution_equal(const struct execution *e)
{
    return !e->verified && !e->exact && !e->real;
}

void execution_print(const struct execution *e, FILE *out)
{
    fprintf(out, "executed   %s\n           %s\n", e->decision, e->job);
    if (e->verified)
        fprintf(out, "verified   NO: %s\n", e->verified);
    else
        fprintf(out, "verified   yes\n");
    if (e->exact)
        fprintf(out, "exact      DIFFERS from one rank: %s\n", e->exact);
    else
        fprintf(out, "exact      equals one rank modulo 2^61 - 1 in %u orders: %s numbers, %s instructions\n",
                e->orders, units_show_commas(e->numbers).s, units_show_commas(e->ninsns).s);
    if (e->real)
        fprintf(out, "real       DIFFERS from one rank: %s\n", e->real);
    else
        fprintf(
            out,
            "real       equals one rank in %u steps of llmrun: loss within %.1e, gradient norm within %.1e\n",
            e->steps, e->loss_error, e->norm_error);
}

static void why_json(struct strbuf *b, const char *why)
{
    strbuf_text(b, ", \"why\": ");
    if (why)
        strbuf_json_string(b, why);
    else
        strbuf_text(b, "null");
}

void execution_json(const struct execution *e, FILE *out)
{
    struct strbuf b = {0};
    strbuf_printf(&b, "{\"schema\": 1, \"equal\": %s, \"shrunk\": ", execution_equal(e) ? "true" : "false");
    strbuf_json_string(&b, e->decision);
    strbuf_text(&b, ", \"job\": ");
    strbuf_json_string(&b, e->job);
    strbuf_printf(&b,
                  ", \"verified\": %s, \"exact\": {\"equal\": %s, \"orders\": %u, \"numbers\": %llu, "
                  "\"instructions\": %llu",
                  e->verified ? "false" : "true", e->exact ? "false" : "true", e->orders,
                  (unsigned long long)e->numbers, (unsigned long long)e->ninsns);
    why_json(&b, e->exact);
    strbuf_printf(&b,
                  "}, \"real\": {\"equal\": %s, \"steps\": %u, \"loss_error\": %.3g, \"norm_error\": %.3g",
                  e->real ? "false" : "true", e->steps, e->loss_error, e->norm_error);
    why_json(&b, e->real);
    strbuf_text(&b, "}}\n");
    fputs(b.text, out);
    strbuf_free(&b);
}
