/* `show --traffic`: what a rank sends and takes part in during one step, by operation and group.
 *
 * Bytes are those of the instruction's largest operand, as the cost model counts them: a send's message, the
 * whole vector of a collective.  Time is the sum of the transfers' own durations, overlapped or not.
 * Neighbouring pipeline ranks with equal traffic share a line. */

#include "compiler/inspect/traffic.h"
#include "compiler/inspect/show.h"
#include "compiler/inspect/table.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <string.h>

struct flow {
    enum op op;
    uint8_t queue;
    struct transfer each; /* but for its bytes */
    uint32_t count;
    uint64_t bytes;
    int64_t ns;
};
struct flows {
    VEC(struct flow) of;
};

static uint64_t insn_bytes(const struct program *p, const struct insn *n)
{
    uint64_t most = 0;
    for (uint32_t k = 0; k < isa_info(n->op)->noperands; k++) {
        const struct operand *o = &p->operands[n->operand + k];
        if (o->buffer == NONE)
            continue;
        uint64_t bytes = (uint64_t)o->rows * o->cols * isa_dtype_bytes((enum dtype)o->dtype);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* the slot that says with whom, or NULL for an instruction that does not communicate */
static const struct slot *partner_slot(const struct program *p, const struct insn *n)
{
    const struct isa_info *info = isa_info(n->op);
    for (uint32_t k = 0; k < info->nattrs; k++) {
        if (info->attr[k].kind == ATTR_PEER || info->attr[k].kind == ATTR_GROUP) {
            uint32_t slot = p->attrs[n->attr + k].slot;
            return slot < p->nslots ? &p->slots[slot] : NULL;
        }
    }
    return NULL;
}

bool transfer_of(const struct plan *p, uint32_t role, uint32_t insn, struct transfer *out)
{
    const struct program *q = p->train[role];
    const struct insn *n = &q->insns[insn];
    const struct slot *slot = partner_slot(q, n);
    if (!slot)
        return false;
    *out = (struct transfer){.peer = slot->kind == SLOT_PEER, .with = slot->arg, .bytes = insn_bytes(q, n)};
    out->members = out->peer ? 2 : mesh_group_size(&p->mesh, out->with);
    return true;
}

static struct flows collect(struct arena *a, const struct plan *p, uint32_t role)
{
    const struct program *q = p->train[role];
    const struct sim_role *r = &p->timeline->roles[role];
    struct flows f = {0};
    for (uint32_t i = 0; i < q->ninsns; i++) {
        const struct insn *n = &q->insns[i];
        struct transfer t;
        if (!transfer_of(p, role, i, &t))
            continue;
        size_t k = 0;
        while (k < f.of.n && (f.of.at[k].op != n->op || f.of.at[k].queue != n->queue ||
                              f.of.at[k].each.peer != t.peer || f.of.at[k].each.with != t.with))
            k++;
        if (k == f.of.n)
            vec_push(a, &f.of, (struct flow){.op = n->op, .queue = n->queue, .each = t});
        f.of.at[k].count++;
        f.of.at[k].bytes += t.bytes;
        f.of.at[k].ns += r->insns[i].end_ns - r->insns[i].start_ns;
    }
    return f;
}

static bool same_flows(const struct flows *x, const struct flows *y, uint32_t distance)
{
    if (x->of.n != y->of.n)
        return false;
    for (size_t k = 0; k < x->of.n; k++) {
        const struct flow *a = &x->of.at[k], *b = &y->of.at[k];
        uint32_t with = a->each.peer ? a->each.with + distance : a->each.with;
        if (a->op != b->op || a->queue != b->queue || a->each.peer != b->each.peer || with != b->each.with ||
            a->count != b->count || a->bytes != b->bytes)
            return false;
    }
    return true;
}

char *transfer_group(struct arena *a, const struct plan *p, const struct transfer *t, uint32_t role)
{
    if (t->peer && t->with == role + 1)
        return arena_strdup(a, "next rank");
    if (t->peer && t->with + 1 == role)
        return arena_strdup(a, "rank before");
    if (t->peer)
        return arena_printf(a, "pipeline rank %u", t->with);
    if (t->with & GROUP_TIE)
        return arena_strdup(a, role == 0 || role + 1 == p->nroles ? "first and last" : "mirror rank");
    if (mesh_group_size(&p->mesh, t->with) == p->mesh.nranks)
        return arena_strdup(a, "all ranks");
    char text[80];
    mesh_mask_text(&p->mesh, t->with, " x ", text, sizeof text);
    return arena_strdup(a, text);
}

const char *transfer_tier(const struct plan *p, const struct transfer *t)
{
    uint32_t gpus = p->topo->types[p->decision.type].gpus;
    const uint32_t *nodes = p->decision.nodes;
    uint32_t level = t->peer ? mesh_next_stage_level(&p->mesh, p->topo, nodes, gpus)
                             : mesh_group_level(&p->mesh, p->topo, nodes, gpus, t->with);
    return topo_level_name(p->topo, level);
}

static void add_flows(struct table *t, const struct plan *p, struct arena *a, const struct flows *f, uint32_t first,
                      uint32_t last)
{
    for (size_t k = 0; k < f->of.n; k++) {
        const struct flow *flow = &f->of.at[k];
        double s = (double)flow->ns / 1e9;
        const char **cell = table_row(t),
                   *ranks = first == last ? arena_printf(a, "%u", first) : arena_printf(a, "%u-%u", first, last);
        *cell++ = k ? "" : ranks;
        *cell++ = isa_info(flow->op)->name;
        *cell++ = transfer_group(a, p, &flow->each, first);
        *cell++ = arena_printf(a, "%u", flow->each.members);
        *cell++ = transfer_tier(p, &flow->each);
        *cell++ = arena_printf(a, "%u", flow->count);
        *cell++ = arena_strdup(a, units_show_bytes(flow->bytes / flow->count).s);
        *cell++ = arena_strdup(a, units_show_bytes(flow->bytes).s);
        *cell++ = arena_strdup(a, units_show_seconds(s).s);
        *cell = flow->ns > 0 ? arena_strdup(a, units_show_bytes_s((double)flow->bytes / s).s) : "";
    }
}

static void print_json(const struct plan *p, FILE *out, struct arena *a, uint32_t only)
{
    struct strbuf b = {0};
    strbuf_json(&b, "{'schema': 1, 'target': %s, 'traffic': [", job_target(p->job));
    const char *comma = "";
    for (uint32_t r = 0; r < p->nroles; r++) {
        if (only != NONE && only != r)
            continue;
        struct flows f = collect(a, p, r);
        for (size_t k = 0; k < f.of.n; k++) {
            const struct flow *flow = &f.of.at[k];
            strbuf_text(&b, comma);
            strbuf_json(&b,
                        "\n  {'role': %u, 'op': %s, 'queue': %s, 'group': %s, 'members': %u, 'tier': %s, 'count': %u, "
                        "'bytes': %lu, 'time_s': %g}",
                        r, isa_info(flow->op)->name, isa_queue_name((enum queue)flow->queue),
                        transfer_group(a, p, &flow->each, r), flow->each.members, transfer_tier(p, &flow->each),
                        flow->count, flow->bytes, (double)flow->ns / 1e9);
            comma = ",";
        }
    }
    fprintf(out, "%s\n]}\n", b.text);
    strbuf_free(&b);
}

void traffic_tiers_json(const struct plan *p, struct strbuf *out)
{
    struct arena *a = arena_new();
    uint32_t role = plan_fullest(p);
    struct flows f = collect(a, p, role);
    const char *comma = "";
    strbuf_text(out, " \"traffic\": [");
    for (uint32_t level = 0; level <= p->topo->ntiers; level++) {
        const char *name = topo_level_name(p->topo, level);
        uint64_t bytes = 0;
        int64_t ns = 0;
        for (size_t k = 0; k < f.of.n; k++)
            if (!strcmp(transfer_tier(p, &f.of.at[k].each), name)) {
                bytes += f.of.at[k].bytes;
                ns += f.of.at[k].ns;
            }
        strbuf_text(out, comma);
        strbuf_json(out, "{'tier': %s, 'bytes': %lu, 'time_s': %g}", name, bytes, (double)ns / 1e9);
        comma = ", ";
    }
    strbuf_text(out, "],\n");
    arena_free(a);
}

void show_traffic(const struct plan *p, FILE *out, const struct show_options *o)
{
    struct arena *a = arena_new();
    uint32_t only = NONE;
    const char *why;
    show_role(a, p, o, &only, &why);
    if (o->json) {
        print_json(p, out, a, only);
        arena_free(a);
        return;
    }
    struct flows *all = ARENA_ARRAY(a, struct flows, p->nroles);
    for (uint32_t r = 0; r < p->nroles; r++)
        all[r] = collect(a, p, r);
    static const struct table_column columns[] = {{"rank", .left = true},
                                                  {"operation", .left = true},
                                                  {"group", .left = true, .wraps = true},
                                                  {"members", .may = 1},
                                                  {"tier", .left = true, .may = 3},
                                                  {"count", .may = 2},
                                                  {"each", .may = 4},
                                                  {"bytes", .may = 0},
                                                  {"time", .may = 0},
                                                  {"rate", .may = 5}};
    struct table *t = table_new(a, columns, ARRAY_LEN(columns));
    for (uint32_t r = 0; r < p->nroles;) {
        uint32_t last = r;
        while (only == NONE && last + 1 < p->nroles && same_flows(&all[r], &all[last + 1], last + 1 - r))
            last++;
        if (only == NONE || only == r)
            add_flows(t, p, a, &all[r], r, last);
        r = last + 1;
    }
    fputs("traffic of one rank per step\n", out);
    table_print(t, 0, o->width, out);
    arena_free(a);
}
