/* The cluster: reading it part by part, and the questions that the rest of the compiler asks of it.
 *
 * Order of reading matters: node types, nodes, fabric (its groups name nodes), states (spares are counted per
 * tier), measurements.  Errors are collected throughout; the result is returned only when there are none. */

#include "compiler/topology/topo_walk.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

/* The folder of a path, with its '/'; "" for the current one. */
static const char *folder_of(struct arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? arena_strndup(a, path, (size_t)(slash - path) + 1) : "";
}

const struct source *walk_import(struct walk *w, const struct xml_attr *href)
{
    if (!w->base) {
        diag_error(w->diag, href->at, "href", "href is not followed here");
        return NULL;
    }
    if (href->value[0] == '/' || strchr(href->value, ':') || strchr(href->value, '\\')) {
        diag_error(w->diag, href->at, "href", "href must be a path relative to this file");
        diag_caret(w->diag, "such as node.xml");
        return NULL;
    }
    size_t n = strlen(w->base);
    const char *slash = n && w->base[n - 1] != '/' ? "/" : "";
    const char *path = arena_printf(w->arena, "%s%s%s", w->base, slash, href->value);
    int before = diag_errors(w->diag);
    struct source *source = source_read(w->arena, w->diag, path, w->import_left);
    if (!source) {
        if (diag_errors(w->diag) > before)
            diag_note(w->diag, href->at, "named here");
        return NULL;
    }
    source->imported = true;
    w->import_left -= source->size;
    return source;
}

void walk_replace(struct walk *w, const struct xml_element *e, const char *text, size_t length)
{
    vec_push(w->arena, &w->edits, (struct walk_edit){e->at.start - 1, e->end, text, length});
}

static int by_start(const void *a, const void *b)
{
    const struct walk_edit *p = a, *q = b;
    return (p->start > q->start) - (p->start < q->start);
}

/* The source with all replacements made; elements do not overlap, so neither do they. */
static void set_text(struct walk *w)
{
    struct topo *t = w->topo;
    t->text = t->source->text;
    t->text_size = t->source->size;
    if (!w->edits.n)
        return;
    qsort(w->edits.at, w->edits.n, sizeof *w->edits.at, by_start);
    for (size_t i = 0; i < w->edits.n; i++)
        t->text_size += w->edits.at[i].length - (w->edits.at[i].end - w->edits.at[i].start);
    char *text = arena_alloc(w->arena, t->text_size + 1), *out = text;
    size_t from = 0;
    for (size_t i = 0; i < w->edits.n; i++) {
        const struct walk_edit *e = &w->edits.at[i];
        out = mempcpy(out, t->source->text + from, e->start - from);
        out = mempcpy(out, e->text, e->length);
        from = e->end;
    }
    memcpy(out, t->source->text + from, t->source->size - from);
    t->text = text;
}

struct topo *topo_parse(struct arena *a, struct diag *d, const struct source *source, const char *base)
{
    int errors = diag_errors(d);
    struct xml_element *root = xml_parse(a, d, source);
    if (!root)
        return NULL;
    topo_rules_check(a, d, root);
    if (strcmp(root->name, "cluster") != 0)
        return NULL;
    struct topo *t = ARENA_NEW(a, struct topo);
    struct walk w = {.arena = a,
                     .diag = d,
                     .base = base,
                     .root = root,
                     .topo = t,
                     .names_left = 4ull * TOPO_NODES_MAX,
                     .import_left = TOPO_IMPORT_MAX};
    t->source = source;
    t->name = topo_attr_text(root, "name") ? topo_attr_text(root, "name") : "cluster";
    walk_node_types(&w);
    walk_nodes(&w);
    walk_fabric(&w);
    walk_node_states(&w);
    walk_measured(&w);
    if (diag_errors(d) > errors)
        return NULL;
    set_text(&w);
    return t;
}

struct topo *topo_read(struct arena *a, struct diag *d, const char *path)
{
    struct source *source = source_read(a, d, path, TOPO_FILE_MAX);
    return source ? topo_parse(a, d, source, folder_of(a, path)) : NULL;
}

/* ---- questions ---- */

static bool may_use(const struct topo_node *node)
{
    return node->state == NODE_USABLE && !node->excluded_gpus;
}

uint32_t topo_usable(struct arena *a, const struct topo *t, uint32_t type, uint32_t **nodes)
{
    uint32_t n = 0;
    bool any = type == UINT32_MAX;
    *nodes = NULL;
    for (uint32_t i = 0; i < t->nnodes; i++) {
        if (!may_use(&t->nodes[i]))
            continue;
        if (any && type != UINT32_MAX && t->nodes[i].type != type)
            return 0;
        if (any)
            type = t->nodes[i].type;
        n += t->nodes[i].type == type;
    }
    *nodes = ARENA_ARRAY(a, uint32_t, n);
    n = 0;
    for (uint32_t i = 0; i < t->nnodes; i++)
        if (may_use(&t->nodes[i]) && t->nodes[i].type == type)
            (*nodes)[n++] = i;
    return n;
}

uint32_t topo_group(const struct topo *t, uint32_t tier, uint32_t node)
{
    const struct topo_tier *k = &t->tiers[tier];
    return k->group_of ? k->group_of[node] : k->span ? (uint32_t)(node / k->span) : 0;
}

uint32_t topo_domain(const struct topo *t, uint32_t node)
{
    const struct topo_node_type *type = &t->types[t->nodes[node].type];
    uint32_t span = type->scale_up.span;
    return type->first_domain + (span > 1 ? t->nodes[node].ordinal / span : t->nodes[node].ordinal);
}

uint32_t topo_ndomains(const struct topo *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->ntypes; i++) {
        uint32_t span = t->types[i].scale_up.span;
        n += span > 1 ? (t->types[i].nnodes + span - 1) / span : t->types[i].nnodes;
    }
    return n;
}

uint32_t topo_level(const struct topo *t, uint32_t node_a, uint32_t node_b)
{
    if (node_a == node_b || topo_domain(t, node_a) == topo_domain(t, node_b))
        return 0;
    for (uint32_t k = 0; k < t->ntiers; k++)
        if (topo_group(t, k, node_a) == topo_group(t, k, node_b))
            return k + 1;
    return t->ntiers;
}

uint32_t topo_level_of_nodes(const struct topo *t, uint32_t type, uint64_t nodes)
{
    if (nodes <= 1 || nodes <= t->types[type].scale_up.span)
        return 0;
    for (uint32_t k = 0; k < t->ntiers; k++)
        if (nodes <= t->tiers[k].span)
            return k + 1;
    return t->ntiers;
}

/* Level 0 without NVLink: ranks meet in host memory, which is written once and read once. */
static double host_bytes_s(const struct topo_node_type *type)
{
    return type->host_bytes_s > 0 ? type->host_bytes_s : type->gpu.memory_bytes_s / 2;
}

/* does the torus carry what meets at that level?  Without a scale-up it also joins the GPUs of a node. */
static bool on_torus(const struct topo *t, const struct topo_node_type *type, uint32_t level)
{
    return t->torus_dims && (level == 1 || (level == 0 && type->scale_up.kind == SCALE_UP_NONE));
}

double topo_level_bytes_s(const struct topo *t, uint32_t type, uint32_t level)
{
    const struct topo_node_type *y = &t->types[type];
    if (on_torus(t, y, level))
        return 2 * t->torus_bytes_s;
    if (level == 0)
        return y->scale_up.kind == SCALE_UP_NONE ? host_bytes_s(y) : y->scale_up.bytes_s;
    double product = 1, worst = 1;
    for (uint32_t k = 0; k < level && k < t->ntiers; k++) {
        product *= t->tiers[k].oversubscription;
        worst = product > worst ? product : worst;
    }
    return y->nic_bytes_s_per_gpu / worst;
}

/* Where the file gives no latency: NCCL 2.30's hop latencies of its LL128 protocol (tuning.cc), which
 * middle-sized messages use: NVLink 1.9 us, PCIe 2.5 us, network 4.0 us.  Through host memory: one cache line
 * bounced between two cores, about 1 us with the polling on both sides.  A torus hop: as NVLink.  EFA: 35 us more, as
 * AWS's plug-in tells NCCL (p5en, p6), which meets 4 nodes of B200 from 16 MiB on. */
static double default_latency_s(const struct topo *t, const struct topo_node_type *type, uint32_t level)
{
    if (on_torus(t, type, level))
        return 1.9e-6;
    if (level > 0)
        return !strcmp(t->medium, "efa") ? 39e-6 : 4.0e-6;
    switch (type->scale_up.kind) {
    case SCALE_UP_NVSWITCH:
    case SCALE_UP_MESH:
        return 1.9e-6;
    case SCALE_UP_PCIE:
        return 2.5e-6;
    case SCALE_UP_NONE:
        break;
    }
    return 1.0e-6;
}

double topo_level_latency_s(const struct topo *t, uint32_t type, uint32_t level)
{
    const struct topo_node_type *y = &t->types[type];
    double base = 0;
    if (on_torus(t, y, level))
        base = t->torus_latency_s;
    else if (level == 0)
        base = y->scale_up.latency_s;
    else
        for (uint32_t i = 0; i < y->nnics; i++)
            base = y->nics[i].latency_s > base ? y->nics[i].latency_s : base;
    if (base <= 0)
        base = default_latency_s(t, y, level);
    for (uint32_t k = 0; k < level && k < t->ntiers; k++)
        base += t->tiers[k].latency_s;
    return base;
}

const char *topo_level_name(const struct topo *t, uint32_t level)
{
    return level == 0 ? "scale-up" : level <= t->ntiers ? t->tiers[level - 1].name : "";
}
