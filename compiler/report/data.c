/* A plan's JSON object: what `show`, `check` and `estimate` print of it with --json, and what only a picture needs:
 * roles, the mesh and the nodes that it lies on, lines of the model, candidates of the search. */

#include "compiler/report/report.h"

#include "compiler/inspect/show.h"
#include "compiler/inspect/verdict.h"
#include "compiler/model/decision.h"

#include <stdlib.h>

/* what a view prints as JSON, as the value of a member */
static void view(const struct report_plan *p, const char *key, struct strbuf *out,
                 void (*print)(const struct plan *, FILE *, const struct show_options *))
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    const struct show_options o = {.json = true, .brief = true, .width = 100, .rank = -1, .stage = -1};
    if (!f)
        return;
    print(p->plan, f, &o);
    fclose(f);
    strbuf_printf(out, ",\n\"%s\": ", key);
    strbuf_bytes(out, text, n);
    free(text);
}

static void verdict(const struct report_plan *p, struct strbuf *out)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return;
    verdict_json(p->verdict, NULL, f);
    fclose(f);
    strbuf_text(out, ",\n\"check\": ");
    strbuf_bytes(out, text, n);
    free(text);
}

static void numbers(struct strbuf *out, const char *key, const int64_t *v, uint32_t n)
{
    strbuf_printf(out, ", \"%s\": [", key);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(out, "%s%lld", i ? ", " : "", (long long)v[i]);
    strbuf_text(out, "]");
}

static void role(struct arena *a, const struct plan *p, uint32_t r, struct strbuf *out)
{
    const struct sim_role *s = &p->timeline->roles[r];
    const struct report_transfers t = report_transfers(a, p, r);
    uint32_t n;
    const char *const *classes = report_memory_classes(a, p->train[r], &n);
    strbuf_json(out, "\n {'first_rank': %u, 'ranks': %u, 'layers': %s, ", show_first_rank(p, r),
                p->mesh.nranks / p->nroles, show_layers(a, p, r));
    strbuf_printf(out, "\"begin_ns\": %lld, \"busy_ns\": %lld", (long long)s->begin_ns, (long long)s->busy_ns);
    strbuf_json(out, ", 'arena_bytes': %lu", p->train[r]->arena_bytes - program_host_bytes(p->train[r]));
    numbers(out, "idle_ns", s->idle_ns, NIDLE);
    numbers(out, "waited_ns", s->waited_ns, p->nroles);
    strbuf_text(out, ",\n  \"transfers\": [");
    for (uint32_t k = 0; k < t.n; k++)
        strbuf_json(out, k ? ", {'group': %s, 'tier': %s, 'members': %u}" : "{'group': %s, 'tier': %s, 'members': %u}",
                    transfer_group(a, p, &t.list[k], r), transfer_tier(p, &t.list[k]), t.list[k].members);
    strbuf_text(out, "], \"classes\": [");
    for (uint32_t k = 0; k < n; k++)
        strbuf_json(out, k ? ", %s" : "%s", classes[k]);
    strbuf_text(out, "]}");
}

static void roles(const struct plan *p, struct strbuf *out)
{
    strbuf_printf(out, ",\n\"step_ns\": %lld, \"roles\": [", (long long)p->timeline->step_ns);
    for (uint32_t r = 0; r < p->nroles; r++) {
        struct arena *a = arena_new();
        strbuf_text(out, r ? "," : "");
        role(a, p, r, out);
        arena_free(a);
    }
    strbuf_text(out, "]");
}

/* digits of the mesh, innermost first, and the nodes in rank order as runs [first, count] */
static void places(const struct plan *p, struct strbuf *out)
{
    const struct mesh *m = &p->mesh;
    const struct decision *d = &p->decision;
    const struct topo *t = p->topo;
    const char *comma = "";
    strbuf_text(out, ",\n\"mesh\": [");
    for (uint32_t i = 0; i < m->ndigits; i++) {
        char name[80];
        uint32_t digit = m->order[i];
        if (m->size[digit] <= 1)
            continue;
        mesh_mask_text(m, AXIS_BIT(digit), " x ", name, sizeof name);
        strbuf_text(out, comma);
        strbuf_json(out, "{'name': %s, 'size': %u, 'pp': %d}", name, m->size[digit], m->home[digit] == AXIS_PP);
        comma = ", ";
    }
    const struct topo_node_type *type = &t->types[d->type];
    uint32_t nnodes = (m->nranks + type->gpus - 1) / type->gpus;
    strbuf_json(out, "],\n'gpus_per_node': %u, 'nodes': [", type->gpus);
    for (uint32_t i = 0, n; i < nnodes; i += n) {
        for (n = 1; i + n < nnodes && d->nodes[i + n] == d->nodes[i] + n;)
            n++;
        strbuf_printf(out, "%s[%u, %u]", i ? ", " : "", d->nodes[i], n);
    }
    strbuf_json(out, "], 'cluster_nodes': %u, 'scale_up_bytes_s': %g, 'nic_bytes_s': %g, 'tiers': [", t->nnodes,
                type->scale_up.bytes_s, type->nic_bytes_s_per_gpu);
    for (uint32_t i = 0; i < t->ntiers; i++)
        strbuf_json(out, i ? ", {'name': %s, 'span': %lu}" : "{'name': %s, 'span': %lu}", t->tiers[i].name,
                    t->tiers[i].span);
    strbuf_text(out, "]");
}

static void lines(const struct plan *p, struct strbuf *out)
{
    const char *s = p->job->source->text, *end = s + p->job->source->size;
    strbuf_text(out, ",\n\"lines\": [");
    for (const char *next; s < end; s = next) {
        struct strbuf one = {0};
        next = s;
        while (next < end && *next != '\n')
            next++;
        strbuf_bytes(&one, s, (size_t)(next - s));
        next += next < end;
        strbuf_json_string(out, one.text ? one.text : "");
        strbuf_text(out, next < end ? ",\n " : "");
        strbuf_free(&one);
    }
    strbuf_text(out, "]");
}

static void candidates(const struct report_plan *p, struct strbuf *out)
{
    struct arena *a = arena_new();
    const struct search_result *f = p->found;
    strbuf_text(out, ",\n\"candidates\": [");
    for (uint32_t i = 0; i < f->ncandidates; i++) {
        const struct candidate *c = &f->candidates[i];
        strbuf_text(out, i ? ",\n " : "\n ");
        strbuf_json(out, "{'decision': %s, 'step_time_s': %g, 'peak_memory_bytes': %lu}",
                    decision_text(a, p->plan->job, &c->decision), c->estimate.step_time_s, c->estimate.peak_bytes);
    }
    strbuf_json(out, "],\n'memory_limit_bytes': %lu, 'branches_removed': {", f->memory_limit_bytes);
    for (uint32_t i = 0; i < NREMOVALS; i++)
        strbuf_json(out, i ? ", %s: %lu" : "%s: %lu", removal_names[i], f->removed[i]);
    strbuf_text(out, "}");
    arena_free(a);
}

static void names(struct strbuf *out)
{
    strbuf_text(out, ",\n\"ops\": [");
    for (uint32_t op = 0; op < NOPS; op++)
        strbuf_json(out, op ? ", %s" : "%s", isa_info((enum op)op)->name);
    strbuf_text(out, "], \"queues\": [");
    for (uint32_t q = 0; q < NQUEUES; q++)
        strbuf_json(out, q ? ", %s" : "%s", isa_queue_name((enum queue)q));
    strbuf_text(out, "], \"causes\": [");
    for (uint32_t k = 0; k < NIDLE; k++)
        strbuf_json(out, k ? ", %s" : "%s", idle_names[k]);
    strbuf_text(out, "]");
}

void report_data(const struct report_plan *p, struct strbuf *out)
{
    struct arena *a = arena_new();
    strbuf_json(out, "{'name': %s, 'decision_text': %s", p->name, decision_text(a, p->plan->job, &p->plan->decision));
    arena_free(a);
    view(p, "show", out, show_summary);
    view(p, "memory", out, show_memory);
    view(p, "traffic", out, show_traffic);
    verdict(p, out);
    names(out);
    roles(p->plan, out);
    places(p->plan, out);
    lines(p->plan, out);
    candidates(p, out);
    strbuf_text(out, "}");
}
