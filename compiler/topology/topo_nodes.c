/* Nodes: names and order, then which of them are excluded, spare or degraded.
 *
 * Names are found again in a sorted index: O(n log n) whatever the names are.  Everything that a list may
 * expand to is bounded before it is expanded: TOPO_NODES_MAX nodes, and a budget for the lists that refer to
 * them. */

#include "compiler/topology/topo_walk.h"

#include "compiler/support/units.h"
#include "compiler/topology/hostlist.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void report_hosts(struct walk *w, const struct xml_attr *v, const struct hostlist_error *e)
{
    diag_error(w->diag, xml_value_span(v, e->at, e->length), "bad-hosts", "%s: %s", v->name, e->message);
}

/* ---- <nodes> ---- */

/* <type>-0001 and on, counted per type */
static void name_nodes(struct walk *w, const struct topo_node_type *type, uint32_t before, uint32_t count,
                       struct hostlist *list)
{
    list->n = count;
    list->names = ARENA_ARRAY(w->arena, const char *, count);
    for (uint32_t i = 0; i < count; i++)
        list->names[i] = arena_printf(w->arena, "%s-%04" PRIu32, type->id, before + i + 1);
}

/* The names of one <nodes> element; false after an error. */
static bool list_nodes(struct walk *w, const struct xml_element *e, uint32_t type, uint32_t before, uint64_t room,
                       struct hostlist *list)
{
    const struct xml_attr *names = xml_attr(e, "names"), *count = xml_attr(e, "count");
    struct hostlist_error error;
    if (!names && !count) {
        if (e->nattrs > 1) /* misspelt, and reported so */
            return false;
        diag_error(w->diag, e->at, "missing-attribute", "<nodes> needs count or names");
        diag_caret(w->diag, "such as count=\"16\" or names=\"gpu[001-016]\"");
        return false;
    }
    if ((names && !names->valid) || (count && !count->valid))
        return false;
    if (!names) {
        if (count->integer > room) {
            diag_error(w->diag, count->at, "too-many", "more than %u nodes in all", TOPO_NODES_MAX);
            return false;
        }
        name_nodes(w, &w->topo->types[type], before, (uint32_t)count->integer, list);
        return true;
    }
    if (!hostlist_expand(w->arena, names->value, names->length, room, list, &error)) {
        report_hosts(w, names, &error);
        return false;
    }
    if (count && count->integer != list->n) {
        diag_error(w->diag, names->at, "node-count", "names expands to %" PRIu32 " nodes, but count is %" PRIu64,
                   list->n, count->integer);
        diag_note(w->diag, count->at, "count");
        return false;
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct walk_host *p = a, *q = b;
    int order = strcmp(p->name, q->name);
    return order ? order : p->node < q->node ? -1 : p->node > q->node;
}

/* Sort the names; of those that are there twice the first is an error, at the <nodes> that brings it again.
 */
static void index_names(struct walk *w, const struct xml_element *const *declared)
{
    struct topo *t = w->topo;
    w->hosts = ARENA_ARRAY(w->arena, struct walk_host, t->nnodes);
    for (uint32_t i = 0; i < t->nnodes; i++)
        w->hosts[i] = (struct walk_host){t->nodes[i].name, i};
    if (t->nnodes)
        qsort(w->hosts, t->nnodes, sizeof *w->hosts, by_name);
    uint32_t twice = UINT32_MAX;
    for (uint32_t i = 1; i < t->nnodes; i++)
        if (!strcmp(w->hosts[i].name, w->hosts[i - 1].name) && w->hosts[i].node < twice)
            twice = w->hosts[i].node;
    if (twice == UINT32_MAX)
        return;
    const struct xml_attr *names = xml_attr(declared[twice], "names");
    diag_error(w->diag, names ? names->at : declared[twice]->at, "repeated-name", "a second node '%s'",
               t->nodes[twice].name);
    diag_help(w->diag, "every node has a name of its own");
}

static void number_domains(struct topo *t)
{
    uint32_t domains = 0;
    for (uint32_t i = 0; i < t->ntypes; i++) {
        uint32_t span = t->types[i].scale_up.span;
        t->types[i].first_domain = domains;
        domains += span ? (t->types[i].nnodes + span - 1) / span : 0;
    }
}

void walk_nodes(struct walk *w)
{
    struct topo *t = w->topo;
    VEC(struct topo_node) nodes = {0};
    VEC(const struct xml_element *) declared = {0}; /* per node, its <nodes> */
    for (const struct xml_element *e = topo_child(w->root, "nodes", NULL); e; e = topo_child(w->root, "nodes", e)) {
        uint32_t type;
        struct hostlist list;
        if (!walk_type(w, e, "type", &type) ||
            !list_nodes(w, e, type, t->types[type].nnodes, TOPO_NODES_MAX - nodes.n, &list))
            continue;
        for (uint32_t i = 0; i < list.n; i++) {
            vec_push(w->arena, &nodes,
                     (struct topo_node){.name = list.names[i],
                                        .type = type,
                                        .ordinal = t->types[type].nnodes++,
                                        .nic_factor = 1,
                                        .compute_factor = 1});
            vec_push(w->arena, &declared, e);
        }
    }
    t->nodes = nodes.at;
    t->nnodes = (uint32_t)nodes.n;
    index_names(w, declared.at);
    for (uint32_t i = 0; i < t->ntypes && t->nnodes && !diag_errors(w->diag); i++)
        if (!t->types[i].nnodes)
            diag_warning(w->diag, t->types[i].span, "unused-type", "no node is of type '%s'", t->types[i].id);
    number_domains(t);
}

/* ---- references to nodes ---- */

static bool find_host(struct walk *w, const struct xml_attr *v, struct span at, const char *name, uint32_t *node)
{
    for (uint32_t low = 0, high = w->topo->nnodes; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(name, w->hosts[middle].name);
        if (!order) {
            *node = w->hosts[middle].node;
            return true;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    diag_error(w->diag, at, "unknown-host", "%s: there is no node '%s'", v->name, name);
    if (w->topo->nnodes)
        diag_help(w->diag, "nodes are called %s to %s", w->topo->nodes[0].name,
                  w->topo->nodes[w->topo->nnodes - 1].name);
    return false;
}

bool walk_hosts(struct walk *w, const struct xml_element *e, const char *attribute, uint32_t *n, uint32_t **nodes)
{
    const struct xml_attr *v = xml_attr(e, attribute);
    struct hostlist list;
    struct hostlist_error error;
    uint64_t count;
    if (!v || !v->valid)
        return false;
    if (!hostlist_count(v->value, v->length, TOPO_NODES_MAX, &count, &error)) {
        report_hosts(w, v, &error);
        return false;
    }
    if (count > w->names_left || !hostlist_expand(w->arena, v->value, v->length, count, &list, &error)) {
        diag_error(w->diag, v->at, "too-many", "the host lists of this file name too many nodes in all");
        return false;
    }
    w->names_left -= list.n;
    *nodes = ARENA_ARRAY(w->arena, uint32_t, list.n);
    *n = list.n;
    for (uint32_t i = 0; i < list.n; i++)
        if (!find_host(w, v, v->at, list.names[i], &(*nodes)[i]))
            return false;
    return true;
}

/* gpus="host:0,3-5": one host and the GPUs of it, as a bit mask */
static bool read_gpu_list(struct walk *w, const struct xml_attr *v, uint32_t *node, uint64_t *mask)
{
    const char *colon = strchr(v->value, ':');
    const char *second = colon ? strchr(colon + 1, ':') : NULL;
    if (!colon || colon == v->value || !colon[1]) {
        diag_error(w->diag, v->at, "bad-gpus", "gpus is a host and its GPUs");
        diag_caret(w->diag, "such as gpu007:0,3");
        return false;
    }
    if (second) {
        diag_error(w->diag, v->at, "bad-gpus", "several hosts in one gpus=");
        diag_help(w->diag, "write one element per host");
        return false;
    }
    const char *host = arena_strndup(w->arena, v->value, (size_t)(colon - v->value));
    if (!find_host(w, v, xml_value_span(v, 0, strlen(host)), host, node))
        return false;
    /* the numbers are a bracket of a host list */
    char *bracket = arena_printf(w->arena, "[%s]", colon + 1);
    struct hostlist list;
    struct hostlist_error error;
    if (!hostlist_expand(w->arena, bracket, strlen(bracket), TOPO_NODE_GPUS_MAX, &list, &error)) {
        diag_error(w->diag, xml_value_span(v, strlen(host) + 1, v->length), "bad-gpus",
                   "the GPUs of a host are numbers, such as 0,3 or 4-7");
        return false;
    }
    uint32_t gpus = w->topo->types[w->topo->nodes[*node].type].gpus;
    *mask = 0;
    for (uint32_t i = 0; i < list.n; i++) {
        uint64_t gpu = 0;
        struct units_error ignored;
        if (!units_count(list.names[i], strlen(list.names[i]), &gpu, &ignored) || gpu >= gpus) {
            diag_error(w->diag, xml_value_span(v, strlen(host) + 1, v->length), "bad-gpus",
                       "%s has GPUs 0 to %u, no %s", host, gpus ? gpus - 1 : 0, list.names[i]);
            return false;
        }
        *mask |= UINT64_C(1) << gpu;
    }
    return true;
}

/* The nodes that nodes= or gpus= names, and the mask of GPUs (0 = whole nodes). */
static bool read_which(struct walk *w, const struct xml_element *e, uint32_t *n, uint32_t **nodes, uint64_t *mask)
{
    const struct xml_attr *hosts = xml_attr(e, "nodes"), *gpus = xml_attr(e, "gpus");
    *mask = 0;
    if (!hosts == !gpus) {
        diag_error(w->diag, e->at, "missing-attribute", "<%s> needs %s nodes %s gpus", e->name,
                   hosts ? "only one of" : "either", hosts ? "and" : "or");
        diag_help(w->diag, "such as nodes=\"gpu007\" or gpus=\"gpu007:0,3\"");
        return false;
    }
    if (hosts)
        return walk_hosts(w, e, "nodes", n, nodes);
    *n = 1;
    *nodes = ARENA_NEW(w->arena, uint32_t);
    return gpus->valid && read_gpu_list(w, gpus, *nodes, mask);
}

/* ---- <exclude>, <degraded>, <spare> ---- */

static void read_exclude(struct walk *w, const struct xml_element *e)
{
    uint32_t n, *nodes;
    uint64_t mask;
    if (!read_which(w, e, &n, &nodes, &mask))
        return;
    for (uint32_t i = 0; i < n; i++) {
        struct topo_node *node = &w->topo->nodes[nodes[i]];
        node->reason = topo_attr_text(e, "reason");
        if (mask)
            node->excluded_gpus |= mask;
        else
            node->state = NODE_EXCLUDED;
    }
}

/* share of the healthy NIC bandwidth that is left when each NIC gives at most bytes_s */
static double nic_factor(const struct topo_node_type *type, double bytes_s)
{
    double sum = 0, left = 0;
    for (uint32_t i = 0; i < type->nnics; i++) {
        const struct topo_nic *nic = &type->nics[i];
        sum += nic->count * nic->bytes_s;
        left += nic->count * (nic->bytes_s < bytes_s ? nic->bytes_s : bytes_s);
    }
    return sum > 0 ? left / sum : 1;
}

static void read_degraded(struct walk *w, const struct xml_element *e)
{
    const struct xml_attr *nic = xml_attr(e, "nic-bandwidth");
    double compute = 1, bytes_s = 0;
    uint32_t n, *nodes;
    uint64_t mask;
    if (!nic && !topo_attr_given(e, "compute")) {
        diag_error(w->diag, e->at, "missing-attribute", "<degraded> needs nic-bandwidth or compute");
        return;
    }
    topo_attr_real(e, "compute", &compute);
    topo_attr_real(e, "nic-bandwidth", &bytes_s);
    if (!read_which(w, e, &n, &nodes, &mask))
        return;
    for (uint32_t i = 0; i < n; i++) {
        struct topo_node *node = &w->topo->nodes[nodes[i]];
        const struct topo_node_type *type = &w->topo->types[node->type];
        double factor = bytes_s > 0 ? nic_factor(type, bytes_s) : 1;
        if (bytes_s > 0 && factor >= 1) {
            diag_error(w->diag, nic->at, "degraded", "that is no less than the NICs of '%s' give", type->id);
            diag_help(w->diag, "nic-bandwidth is what each NIC still gives, in one direction");
            return;
        }
        node->reason = node->reason ? node->reason : topo_attr_text(e, "reason");
        node->nic_factor = factor < node->nic_factor ? factor : node->nic_factor;
        node->compute_factor = compute < node->compute_factor ? compute : node->compute_factor;
    }
}

/* What `per` of a spare divides the cluster into: one group per scale-up domain or tier group.  group_of is
 * filled. */
static bool spare_groups(struct walk *w, const struct xml_element *e, uint32_t *group_of, uint32_t *ngroups)
{
    const struct topo *t = w->topo;
    const char *per = topo_attr_text(e, "per");
    *ngroups = 1;
    if (!per)
        return !topo_attr_given(e, "per");
    if (!strcmp(per, "scale-up")) {
        *ngroups = topo_ndomains(t);
        for (uint32_t i = 0; i < t->nnodes; i++)
            group_of[i] = topo_domain(t, i);
        return true;
    }
    for (uint32_t k = 0; k < t->ntiers; k++)
        if (!strcmp(t->tiers[k].name, per)) {
            *ngroups = t->tiers[k].ngroups;
            for (uint32_t i = 0; i < t->nnodes; i++)
                group_of[i] = topo_group(t, k, i);
            return true;
        }
    diag_error(w->diag, xml_attr(e, "per")->at, "unknown-tier", "there is no tier '%s'", per);
    diag_help(w->diag, "per is the name of a tier, or scale-up");
    return false;
}

/* the last `count` usable nodes of every group */
static void spare_last(struct walk *w, const struct xml_element *e, uint32_t count)
{
    struct topo *t = w->topo;
    struct arena_mark mark = arena_mark(w->arena);
    uint32_t ngroups, *group_of = ARENA_ARRAY(w->arena, uint32_t, t->nnodes);
    bool known = spare_groups(w, e, group_of, &ngroups);
    uint32_t *left = ARENA_ARRAY(w->arena, uint32_t, ngroups);
    for (uint32_t g = 0; g < ngroups; g++)
        left[g] = count;
    for (uint32_t i = t->nnodes; known && i-- > 0;) {
        struct topo_node *node = &t->nodes[i];
        if (node->state != NODE_USABLE || !left[group_of[i]])
            continue;
        left[group_of[i]]--;
        node->state = NODE_SPARE;
        node->reason = topo_attr_text(e, "reason");
    }
    if (known)
        arena_reset(w->arena, mark);
}

static void read_spare(struct walk *w, const struct xml_element *e)
{
    bool named = topo_attr_given(e, "nodes"), counted = topo_attr_given(e, "count");
    uint32_t n, *nodes, count;
    if (named == counted) {
        diag_error(w->diag, e->at, "missing-attribute", "<spare> needs %s nodes %s count",
                   named ? "only one of" : "either", named ? "and" : "or");
        return;
    }
    if (named && topo_attr_given(e, "per")) {
        diag_error(w->diag, xml_attr(e, "per")->name_at, "spare", "per goes with count, not with nodes");
        return;
    }
    if (counted) {
        if (w->names_left < w->topo->nnodes) /* each passes over all nodes */
            diag_error(w->diag, e->at, "too-many", "too many <spare> elements");
        else if (topo_attr_count(e, "count", &count) && w->topo->nnodes)
            spare_last(w, e, count);
        w->names_left -= w->names_left < w->topo->nnodes ? w->names_left : w->topo->nnodes;
        return;
    }
    if (!walk_hosts(w, e, "nodes", &n, &nodes))
        return;
    for (uint32_t i = 0; i < n; i++)
        if (w->topo->nodes[nodes[i]].state == NODE_USABLE) {
            w->topo->nodes[nodes[i]].state = NODE_SPARE;
            w->topo->nodes[nodes[i]].reason = topo_attr_text(e, "reason");
        }
}

/* Spares by count come last: they are taken from what the named lists leave. */
void walk_node_states(struct walk *w)
{
    struct topo *t = w->topo;
    static const struct {
        const char *name;
        void (*read)(struct walk *, const struct xml_element *);
        int counted; /* of spares: 0 named, 1 counted */
    } passes[] = {{"exclude", read_exclude, 0},
                  {"degraded", read_degraded, 0},
                  {"spare", read_spare, 0},
                  {"spare", read_spare, 1}};
    for (size_t p = 0; p < ARRAY_LEN(passes); p++)
        for (const struct xml_element *e = topo_child(w->root, passes[p].name, NULL); e;
             e = topo_child(w->root, passes[p].name, e)) {
            bool counted = topo_attr_given(e, "count") && !topo_attr_given(e, "nodes");
            if (passes[p].read != read_spare || counted == passes[p].counted)
                passes[p].read(w, e);
        }
    for (uint32_t i = 0; i < t->nnodes; i++) {
        const struct topo_node *node = &t->nodes[i];
        t->gpus += t->types[node->type].gpus;
        if (node->state == NODE_USABLE && !node->excluded_gpus)
            t->usable_gpus += t->types[node->type].gpus;
    }
    if (t->nnodes && !t->usable_gpus && !diag_errors(w->diag))
        diag_error(w->diag, w->root->at, "no-usable-node",
                   "no usable node is left: all %" PRIu32 " are excluded or spare", t->nnodes);
}
