/* The resolved view of a cluster, for people and as JSON.
 *
 * Everything that a plan will rest on is here with its origin, (file) or (catalogue), and every level of the
 * network with GB/s per GPU and direction, so that a mistaken unit is seen at once. */

#include "compiler/topology/topo.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/topology/topo_rules.h"

#include <inttypes.h>
#include <string.h>

#define NAMES_SHOWN 6u

static const char *origin(const struct topo_gpu *gpu, uint32_t fact)
{
    return gpu->given & fact ? "file" : gpu->known ? "catalogue" : "default";
}

/* ---- text ---- */

static void print_gpu(const struct topo_gpu *gpu, FILE *out)
{
    fprintf(out, "  gpu         %s%s\n", gpu->model, gpu->known ? "" : " (not in the catalogue)");
    fprintf(out, "  memory      %s (%s), of which %s reserved (%s)\n", units_show_bytes(gpu->memory_bytes).s,
            origin(gpu, FACT_MEMORY), units_show_bytes(gpu->reserve_bytes).s, origin(gpu, FACT_RESERVE));
    if (gpu->memory_bytes_s > 0)
        fprintf(out, "              %s (%s)\n", units_show_bytes_s(gpu->memory_bytes_s).s,
                origin(gpu, FACT_MEMORY_RATE));
    const char *label = "dense peak";
    for (int i = 0; i < NTOPO_DTYPES; i++) {
        if (gpu->peak_flop_s[i] <= 0)
            continue;
        fprintf(out, "  %-10s  %-5s %s (%s)", label, topo_dtype_words[i], units_show_flop_s(gpu->peak_flop_s[i]).s,
                origin(gpu, (uint32_t)FACT_PEAK << i));
        if (gpu->efficiency[i] > 0)
            fprintf(out, ", efficiency %s", units_show_real(gpu->efficiency[i]).s);
        fprintf(out, "\n");
        label = "";
    }
}

static void print_scale_up(const struct topo_node_type *type, FILE *out)
{
    const struct topo_scale_up *s = &type->scale_up;
    if (s->kind == SCALE_UP_NONE) {
        fprintf(out, "  scale-up    none\n");
        return;
    }
    fprintf(out, "  scale-up    %s, %s one way per GPU (%s), %s per domain", topo_scale_up_words[s->kind],
            units_show_bytes_s(s->bytes_s).s, type->gpu.given & FACT_SCALE_UP ? "file" : "catalogue",
            units_show_count(s->gpus, "GPU").s);
    if (s->kind == SCALE_UP_MESH && s->gpus > 1)
        fprintf(out, ", %s between two", units_show_bytes_s(s->bytes_s / (s->gpus - 1)).s);
    if (s->span > 1) {
        uint32_t rest = type->nnodes % s->span;
        fprintf(out, " on %u nodes", s->span);
        if (rest)
            fprintf(out, "; the last domain has %s", units_show_count(rest, "node").s);
    }
    fprintf(out, "%s\n", s->multicast ? ", multicast" : "");
}

static void print_type(const struct topo_node_type *type, FILE *out)
{
    fprintf(out, "\nnode type %s: %s of %s\n", type->id, units_show_count(type->nnodes, "node").s,
            units_show_count(type->gpus, "GPU").s);
    print_gpu(&type->gpu, out);
    print_scale_up(type, out);
    for (uint32_t i = 0; i < type->nnics; i++)
        fprintf(out, "  %-10s  %u x %s%s\n", i ? "" : "nic", type->nics[i].count,
                units_show_bytes_s(type->nics[i].bytes_s).s, type->nics[i].gdr ? "" : ", not direct to GPU memory");
    if (type->nnics)
        fprintf(out, "              %s one way per GPU\n", units_show_bytes_s(type->nic_bytes_s_per_gpu).s);
    if (type->cores)
        fprintf(out, "  cores       %s shared by a node's ranks\n", units_show_count(type->cores, "core").s);
    if (type->host_memory_bytes)
        fprintf(out, "  host        %s\n", units_show_bytes(type->host_memory_bytes).s);
    if (type->host_bytes_s > 0)
        fprintf(out, "  to host     %s per GPU\n", units_show_bytes_s(type->host_bytes_s).s);
    if (type->mtbf_s > 0)
        fprintf(out, "  interrupts  a run once in %s%s, steps go on after %s\n", units_show_seconds(type->mtbf_s).s,
                type->mtbf_assumed ? ", as is assumed" : "", units_show_seconds(type->restart_s).s);
    if (type->detail) {
        fprintf(out, "  dump        %s, %s, %s", units_show_count(type->detail->ngpus, "GPU").s,
                units_show_count(type->detail->nnics, "NIC").s, units_show_count(type->detail->nnuma, "NUMA node").s);
        if (type->detail->nvlink_bytes_s > 0)
            fprintf(out, ", NVLink %s effective", units_show_bytes_s(type->detail->nvlink_bytes_s).s);
        fprintf(out, "\n");
    }
}

static void print_level(const struct topo *t, uint32_t level, FILE *out)
{
    uint64_t groups = level ? t->tiers[level - 1].ngroups : topo_ndomains(t);
    char span[sizeof(struct units_text)] = "", over[sizeof(struct units_text)] = "-";
    if (level && t->tiers[level - 1].group_of)
        snprintf(span, sizeof span, "irregular");
    else if (level)
        snprintf(span, sizeof span, "%s",
                 units_show_commas(t->tiers[level - 1].span < t->nnodes ? t->tiers[level - 1].span : t->nnodes).s);
    else
        snprintf(span, sizeof span, "%s", units_show_commas(t->types[0].scale_up.span).s);
    if (level)
        snprintf(over, sizeof over, "%s", units_show_real(t->tiers[level - 1].oversubscription).s);
    fprintf(out, "  %5u  %-12s %9s %8s %8s", level, topo_level_name(t, level), span, units_show_commas(groups).s, over);
    for (uint32_t i = 0; i < t->ntypes; i++)
        fprintf(out, "  %12.4g %9s", topo_level_bytes_s(t, i, level) / 1e9,
                units_show_seconds(topo_level_latency_s(t, i, level)).s);
    uint64_t rest = level && !t->tiers[level - 1].group_of ? t->nnodes % t->tiers[level - 1].span : 0;
    if (rest && groups > 1)
        fprintf(out, "  last group: %" PRIu64 " nodes", rest);
    fprintf(out, "\n");
}

static void print_network(const struct topo *t, FILE *out)
{
    fprintf(out, "\nnetwork%s%s", *t->medium ? " " : "", t->medium);
    if (t->rails > 1)
        fprintf(out, ", %u rails%s", t->rails, t->cross_rail ? "" : " that never meet");
    if (t->torus_dims) {
        fprintf(out, ", torus");
        for (uint32_t i = 0; i < t->torus_dims; i++)
            fprintf(out, "%s%u", i ? "x" : " ", t->torus[i]);
        fprintf(out, " of %s links", units_show_bytes_s(t->torus_bytes_s).s);
    }
    fprintf(out, "\n  level  %-12s %9s %8s %8s", "name", "nodes", "groups", "oversub");
    for (uint32_t i = 0; i < t->ntypes; i++)
        fprintf(out, "  %12s %9s", "GB/s per GPU", "latency");
    fprintf(out, "\n");
    if (t->ntypes > 1) {
        fprintf(out, "  %46s", "");
        for (uint32_t i = 0; i < t->ntypes; i++)
            fprintf(out, "  %22.22s", t->types[i].id);
        fprintf(out, "\n");
    }
    for (uint32_t level = 0; level <= t->ntiers; level++)
        print_level(t, level, out);
}

/* "excluded 2 nodes: h017 (ECC), h023 (ECC)" */
static void print_state(const struct topo *t, enum node_state state, const char *label, FILE *out)
{
    uint32_t n = 0, shown = 0;
    for (uint32_t i = 0; i < t->nnodes; i++)
        n += t->nodes[i].state == state;
    if (!n)
        return;
    fprintf(out, "%s %s node%s:", label, units_show_commas(n).s, n > 1 ? "s" : "");
    for (uint32_t i = 0; i < t->nnodes && shown < NAMES_SHOWN; i++) {
        const struct topo_node *node = &t->nodes[i];
        if (node->state != state)
            continue;
        fprintf(out, "%s %s", shown++ ? "," : "", node->name);
        if (node->reason)
            fprintf(out, " (%s)", node->reason);
    }
    fprintf(out, "%s\n", n > shown ? ", ..." : "");
}

static void print_damage(const struct topo *t, FILE *out)
{
    uint32_t shown = 0;
    for (uint32_t i = 0; i < t->nnodes; i++) {
        const struct topo_node *node = &t->nodes[i];
        if (!node->excluded_gpus && node->nic_factor >= 1 && node->compute_factor >= 1)
            continue;
        if (shown++ == 4 * NAMES_SHOWN) {
            fprintf(out, "...\n");
            return;
        }
        fprintf(out, "%s:", node->name);
        if (node->excluded_gpus)
            fprintf(out, " without %d of %s", __builtin_popcountll(node->excluded_gpus),
                    units_show_count(t->types[node->type].gpus, "GPU").s);
        if (node->nic_factor < 1)
            fprintf(out, " NICs at %.0f%%", 100 * node->nic_factor);
        if (node->compute_factor < 1)
            fprintf(out, " compute at %.0f%%", 100 * node->compute_factor);
        fprintf(out, "%s%s%s\n", node->reason ? " (" : "", node->reason ? node->reason : "", node->reason ? ")" : "");
    }
}

static void print_measured(const struct topo *t, FILE *out)
{
    for (uint32_t i = 0; i < t->nmeasured; i++) {
        const struct topo_measured *m = &t->measured[i];
        bool kernel = !strcmp(m->kind, "kernel");
        fprintf(out, "%smeasured %s", i ? "" : "\n", kernel ? isa_info(m->op)->name : m->kind);
        if (m->dtype)
            fprintf(out, " %s", m->dtype);
        else
            fprintf(out, " over %u ranks, %u per node, level %s", m->ranks, m->per_node, m->tier);
        if (m->type)
            fprintf(out, " on %s", m->type);
        fprintf(out, ": %s%s%s\n", units_show_count(m->npoints, "point").s, *m->date ? ", " : "", m->date);
    }
}

void topo_print(const struct topo *t, FILE *out)
{
    fprintf(out, "cluster %s: %s, %s, %s usable\n", t->name, units_show_count(t->nnodes, "node").s,
            units_show_count(t->gpus, "GPU").s, units_show_commas(t->usable_gpus).s);
    for (uint32_t i = 0; i < t->ntypes; i++)
        print_type(&t->types[i], out);
    print_network(t, out);
    print_measured(t, out);
    if (t->usable_gpus < t->gpus)
        fprintf(out, "\n");
    print_state(t, NODE_EXCLUDED, "excluded", out);
    print_state(t, NODE_SPARE, "spare", out);
    print_damage(t, out);
}

/* ---- JSON: base units, unit in the key ---- */

static void json_type(struct strbuf *b, const struct topo_node_type *type)
{
    const struct topo_gpu *gpu = &type->gpu;
    strbuf_json(b,
                "{'id': %s, 'nodes': %u, 'gpus_per_node': %u, 'gpu': {'model': %s, 'in_catalogue': %d, "
                "'memory_bytes': %lu, 'reserve_bytes': %lu, 'memory_bytes_s': %g, 'dense_peak_flop_s': {",
                type->id, type->nnodes, type->gpus, gpu->model, gpu->known, gpu->memory_bytes, gpu->reserve_bytes,
                gpu->memory_bytes_s);
    const char *format = "%s: %g";
    for (int i = 0; i < NTOPO_DTYPES; i++)
        if (gpu->peak_flop_s[i] > 0) {
            strbuf_json(b, format, topo_dtype_words[i], gpu->peak_flop_s[i]);
            format = ", %s: %g";
        }
    strbuf_json(b,
                "}}, 'scale_up': {'kind': %s, 'bytes_s_per_gpu': %g, 'span_nodes': %u, 'domain_gpus': %u, "
                "'multicast': %d}, 'nics': [",
                topo_scale_up_words[type->scale_up.kind], type->scale_up.bytes_s, type->scale_up.span,
                type->scale_up.gpus, type->scale_up.multicast);
    for (uint32_t i = 0; i < type->nnics; i++)
        strbuf_json(b, i ? ", {'count': %u, 'bytes_s': %g}" : "{'count': %u, 'bytes_s': %g}", type->nics[i].count,
                    type->nics[i].bytes_s);
    strbuf_json(b, "], 'nic_bytes_s_per_gpu': %g, 'mtbf_s': %g, 'mtbf_assumed': %d, 'restart_s': %g}",
                type->nic_bytes_s_per_gpu, type->mtbf_s, type->mtbf_assumed, type->restart_s);
}

static void json_levels(struct strbuf *b, const struct topo *t)
{
    for (uint32_t level = 0; level <= t->ntiers; level++) {
        const struct topo_tier *tier = level ? &t->tiers[level - 1] : NULL;
        strbuf_text(b, level ? ", " : "");
        strbuf_json(b, "{'name': %s, 'groups': %u, 'span_nodes': %lu, 'oversubscription': %g, 'bytes_s_per_gpu': {",
                    topo_level_name(t, level), tier ? tier->ngroups : topo_ndomains(t),
                    tier ? tier->span : t->types[0].scale_up.span, tier ? tier->oversubscription : 1);
        for (uint32_t i = 0; i < t->ntypes; i++)
            strbuf_json(b, i ? ", %s: %g" : "%s: %g", t->types[i].id, topo_level_bytes_s(t, i, level));
        strbuf_text(b, "}, \"latency_s\": {");
        for (uint32_t i = 0; i < t->ntypes; i++)
            strbuf_json(b, i ? ", %s: %g" : "%s: %g", t->types[i].id, topo_level_latency_s(t, i, level));
        strbuf_text(b, "}}");
    }
}

/* nodes that are not simply healthy and usable */
static void json_nodes(struct strbuf *b, const struct topo *t)
{
    static const char *const states[] = {
        [NODE_USABLE] = "usable", [NODE_EXCLUDED] = "excluded", [NODE_SPARE] = "spare"};
    const char *comma = "";
    for (uint32_t i = 0; i < t->nnodes; i++) {
        const struct topo_node *node = &t->nodes[i];
        if (node->state == NODE_USABLE && !node->excluded_gpus && node->nic_factor >= 1 && node->compute_factor >= 1)
            continue;
        strbuf_text(b, comma);
        comma = ", ";
        strbuf_json(b, "{'name': %s, 'state': %s, 'excluded_gpus': [", node->name, states[node->state]);
        for (uint32_t g = 0, n = 0; g < TOPO_NODE_GPUS_MAX; g++)
            if (node->excluded_gpus >> g & 1)
                strbuf_json(b, n++ ? ", %u" : "%u", g);
        strbuf_json(b, "], 'nic_factor': %g, 'compute_factor': %g, 'reason': %s}", node->nic_factor,
                    node->compute_factor, node->reason);
    }
}

void topo_print_json(const struct topo *t, FILE *out)
{
    struct strbuf b = {0};
    strbuf_json(&b, "{'schema': 1, 'name': %s, 'nodes': %u, 'gpus': %lu, 'usable_gpus': %lu, 'node_types': [", t->name,
                t->nnodes, t->gpus, t->usable_gpus);
    for (uint32_t i = 0; i < t->ntypes; i++) {
        strbuf_text(&b, i ? ", " : "");
        json_type(&b, &t->types[i]);
    }
    strbuf_json(&b, "], 'medium': %s, 'rails': %u, 'cross_rail': %d, 'torus': [", t->medium, t->rails, t->cross_rail);
    for (uint32_t i = 0; i < t->torus_dims; i++)
        strbuf_json(&b, i ? ", %u" : "%u", t->torus[i]);
    strbuf_text(&b, "], \"levels\": [");
    json_levels(&b, t);
    strbuf_text(&b, "], \"marked_nodes\": [");
    json_nodes(&b, t);
    strbuf_text(&b, "]}\n");
    fputs(b.text, out);
    strbuf_free(&b);
}
