/* Making a folder's plan once more; see origin.h.
 *
 * The whole way is gone again: the search with the budget and the number of candidates that plan.json names, then
 * lowering and placing what it chooses.  If that is another decision than the folder's, the folder's own is compiled as
 * well, so that what is said about programs and predictions is not a consequence of it.
 *
 * Cost: that of `llmc plan` without its proofs. */

#include "compiler/origin/origin.h"

#include "compiler/export/export.h"
#include "compiler/support/strbuf.h"

#include <jansson.h>
#include <string.h>

void origin_add(struct origin *o, const struct difference *d)
{
    if (o->ndifferences < ORIGIN_MOST)
        o->differences[o->ndifferences++] = *d;
}

struct context {
    struct arena *arena;
    struct origin *origin;
};

static void report_decision(void *context, const char *key, const char *is, const char *wanted)
{
    const struct context *c = context;
    struct difference d = {.file = "plan.json", .key = arena_strdup(c->arena, key), .role = NONE, .instruction = NONE};
    if (!is)
        d.message = arena_printf(c->arena, "%s is missing, the search chooses %.300s", key, wanted);
    else if (!wanted)
        d.message = arena_printf(c->arena, "%s is %.300s, the search chooses none", key, is);
    else
        d.message = arena_printf(c->arena, "%s is %.300s, the search chooses %.300s", key, is, wanted);
    origin_add(c->origin, &d);
}

static json_t *decision_object(const struct plan *p)
{
    struct strbuf text = {0};
    decision_json(p->job, &p->decision, &text);
    json_t *o = json_loadb(text.text, text.length, 0, NULL);
    strbuf_free(&text);
    return o;
}

static bool same_decision(struct arena *a, const struct plan *p, const struct plan *q, struct origin *o)
{
    struct context c = {a, o};
    uint32_t before = o->ndifferences;
    json_t *x = decision_object(p), *y = decision_object(q);
    plan_json_compare(x, y, "decision", report_decision, &c);
    json_decref(x);
    json_decref(y);
    return o->ndifferences == before;
}

static void add_plain(struct origin *o, const char *message)
{
    origin_add(o, &(struct difference){.role = NONE, .instruction = NONE, .message = message});
}

/* the plan of the folder's own decision, with what the search found in q */
static struct plan *compile_own(struct arena *a, const struct plan *p, const struct plan *q, struct origin *o)
{
    const char *why = "";
    struct plan *own = decision_emittable(a, p->job, &p->decision, &why)
                           ? compile_decision(a, p->job, p->topo, &p->decision, &(struct compile_options){0}, &why)
                           : NULL;
    if (!own) {
        add_plain(o, arena_printf(a, "the decision cannot be compiled: %s", why));
        return NULL;
    }
    own->search = q->search;
    return own;
}

/* q: of the folder's inputs; its plan.json names the overrides as the folder does */
static void compare(struct arena *a, const struct plan *p, struct plan *q, struct origin *o)
{
    struct export x = {.arena = a};
    q->nsets = p->nsets;
    q->sets = p->sets;
    export_launch(&x, q);
    origin_files(a, p, q, o);
}

struct origin *origin_check(struct arena *a, const struct plan *p)
{
    struct origin *o = ARENA_NEW(a, struct origin);
    o->version = LLMC_VERSION;
    o->differences = ARENA_ARRAY(a, struct difference, ORIGIN_MOST);
    if (!p->version || strcmp(p->version, LLMC_VERSION) != 0) {
        add_plain(o, arena_printf(
                         a,
                         "the folder was written by %s%s, this is llmc %s, which can derive only its own plans again; "
                         "make the plan again with this one, or check it with that one",
                         p->version && *p->version ? "llmc " : "an older llmc", p->version ? p->version : "",
                         LLMC_VERSION));
        return o;
    }
    origin_wishes(a, p, o);
    struct diag *d = diag_new(a);
    struct plan *q = NULL;
    const struct compile_options options = {.top = p->search.top, .budget = p->search.budget};
    if (compile_best(a, d, p->job, p->topo, &options, &q, NULL) != STATUS_OK) {
        add_plain(o, arena_printf(a, "model.llm, cluster.xml and the overrides have no plan: %s", diag_first(d)));
        return o;
    }
    if (same_decision(a, p, q, o)) {
        compare(a, p, q, o);
    } else {
        struct plan *own = compile_own(a, p, q, o);
        if (own)
            compare(a, p, own, o);
        plan_close(own);
    }
    plan_close(q);
    return o;
}
