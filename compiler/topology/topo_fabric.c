/* The network between nodes: tiers of switches, innermost first; or a torus, or several equal ones (slices of
 * a machine), which tiers join.
 *
 * A tier cuts the document order of nodes into groups of `span`.  Where <group> names members, that tier
 * keeps an explicit group number per node: the named groups first, the remaining nodes cut by span behind
 * them. */

#include "compiler/topology/topo_walk.h"

#include "compiler/support/units.h"

#include <inttypes.h>
#include <string.h>

#define TIERS_MAX 16
#define NO_GROUP UINT32_MAX

struct tier_source {
    const struct xml_element *at;
    bool all;
};

/* ---- tiers ---- */

static bool check_tier(struct walk *w, const struct xml_element *e, const struct topo_tier *tier, bool all,
                       const struct tier_source *sources)
{
    const struct topo *t = w->topo;
    if (!strcmp(tier->name, "scale-up")) {
        diag_error(w->diag, xml_attr(e, "name")->at, "tier", "'scale-up' is the level inside an NVLink domain");
        diag_help(w->diag, "give the tier another name, such as leaf");
        return false;
    }
    for (uint32_t k = 0; k < t->ntiers; k++)
        if (!strcmp(t->tiers[k].name, tier->name)) {
            diag_error(w->diag, xml_attr(e, "name")->at, "repeated-name", "a second tier '%s'", tier->name);
            diag_note(w->diag, sources[k].at->at, "the first one");
            return false;
        }
    if (!t->ntiers)
        return true;
    const struct topo_tier *below = &t->tiers[t->ntiers - 1];
    if (sources[t->ntiers - 1].all || (!all && tier->span <= below->span)) {
        diag_error(w->diag, xml_attr(e, "span")->at, "tier", "spans must grow: tier '%s' below it spans %s",
                   below->name, sources[t->ntiers - 1].all ? "all" : units_show_commas(below->span).s);
        diag_help(w->diag, "list tiers from the innermost to the outermost");
        return false;
    }
    if (!all && tier->span % below->span) {
        diag_warning(w->diag, xml_attr(e, "span")->at, "tier-cut",
                     "tier '%s' of %" PRIu64 " nodes cuts through groups of '%s'", tier->name, tier->span, below->name);
        diag_caret(w->diag, "%" PRIu64 " is no multiple of %" PRIu64, tier->span, below->span);
    }
    return true;
}

static void read_tiers(struct walk *w, const struct xml_element *e, struct tier_source *sources)
{
    struct topo *t = w->topo;
    for (const struct xml_element *x = topo_child(e, "tier", NULL); x; x = topo_child(e, "tier", x)) {
        const char *name = topo_attr_text(x, "name");
        const struct xml_attr *span = xml_attr(x, "span");
        struct topo_tier tier = {.name = name, .oversubscription = 1};
        topo_attr_real(x, "oversubscription", &tier.oversubscription);
        topo_attr_real(x, "latency", &tier.latency_s);
        if (!name || !span || !span->valid)
            continue;
        if (t->ntiers == TIERS_MAX) {
            diag_error(w->diag, x->at, "too-many", "more than %d tiers", TIERS_MAX);
            return;
        }
        bool all = span->integer == UINT64_MAX;
        tier.span = all ? t->nnodes : span->integer;
        if (!check_tier(w, x, &tier, all, sources))
            continue;
        if (all && t->ntiers && tier.span < t->tiers[t->ntiers - 1].span)
            tier.span = t->tiers[t->ntiers - 1].span;
        tier.ngroups = tier.span ? (uint32_t)((t->nnodes + tier.span - 1) / tier.span) : 1;
        sources[t->ntiers] = (struct tier_source){x, all};
        t->tiers[t->ntiers++] = tier;
    }
    if (!t->ntiers)
        return;
    const struct topo_tier *last = &t->tiers[t->ntiers - 1];
    if (last->span < t->nnodes && !diag_errors(w->diag)) {
        diag_error(w->diag, xml_attr(sources[t->ntiers - 1].at, "span")->at, "tier",
                   "the last tier spans %" PRIu64 " of %" PRIu32 " nodes: nothing joins the rest", last->span,
                   t->nnodes);
        diag_help(w->diag, "add <tier name=\"core\" span=\"all\"/>");
    }
}

/* ---- groups ---- */

static struct topo_tier *find_tier(struct walk *w, const struct xml_element *e)
{
    struct topo *t = w->topo;
    const char *name = topo_attr_text(e, "tier"), *names[TIERS_MAX];
    if (!name)
        return NULL;
    for (uint32_t k = 0; k < t->ntiers; k++) {
        if (!strcmp(t->tiers[k].name, name))
            return &t->tiers[k];
        names[k] = t->tiers[k].name;
    }
    const char *near = diag_nearest(name, names, t->ntiers);
    diag_error(w->diag, xml_attr(e, "tier")->at, "unknown-tier", "there is no tier '%s'", name);
    if (near)
        diag_caret(w->diag, "did you mean '%s'?", near);
    return NULL;
}

/* Give the nodes of one <group> the next group number of its tier. */
static void read_group(struct walk *w, const struct xml_element *e, uint32_t *groups[TIERS_MAX])
{
    struct topo *t = w->topo;
    struct topo_tier *tier = find_tier(w, e);
    uint32_t n, *nodes;
    if (!tier || !walk_hosts(w, e, "nodes", &n, &nodes))
        return;
    size_t k = (size_t)(tier - t->tiers);
    if (!groups[k]) {
        groups[k] = ARENA_ARRAY(w->arena, uint32_t, t->nnodes);
        for (uint32_t i = 0; i < t->nnodes; i++)
            groups[k][i] = NO_GROUP;
        tier->group_of = groups[k];
        tier->ngroups = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (groups[k][nodes[i]] != NO_GROUP) {
            diag_error(w->diag, xml_attr(e, "nodes")->at, "repeated-name", "node '%s' is in two groups of tier '%s'",
                       t->nodes[nodes[i]].name, tier->name);
            return;
        }
        groups[k][nodes[i]] = tier->ngroups;
    }
    tier->ngroups++;
}

/* nodes that no <group> names: cut by span, in document order */
static void number_the_rest(const struct topo *t, struct topo_tier *tier, uint32_t *group_of)
{
    uint64_t seen = 0;
    uint32_t named = tier->ngroups;
    for (uint32_t i = 0; i < t->nnodes; i++)
        if (group_of[i] == NO_GROUP) {
            group_of[i] = named + (uint32_t)(seen++ / tier->span);
            tier->ngroups = group_of[i] + 1;
        }
}

/* With explicit groups a group must not be split by the tier above it. */
static void check_nesting(struct walk *w, uint32_t k, const struct xml_element *at)
{
    const struct topo *t = w->topo;
    uint32_t *above = ARENA_ARRAY(w->arena, uint32_t, t->tiers[k].ngroups);
    for (uint32_t i = 0; i < t->nnodes; i++) {
        uint32_t g = topo_group(t, k, i), up = topo_group(t, k + 1, i) + 1;
        if (above[g] && above[g] != up) {
            diag_error(w->diag, at->at, "tier", "tier '%s' splits the group of '%s' that node '%s' is in",
                       t->tiers[k + 1].name, t->tiers[k].name, t->nodes[i].name);
            diag_help(w->diag, "give '%s' groups of whole groups of '%s'", t->tiers[k + 1].name, t->tiers[k].name);
            return;
        }
        above[g] = up;
    }
}

static void read_groups(struct walk *w, const struct xml_element *e, const struct tier_source *sources)
{
    struct topo *t = w->topo;
    uint32_t *groups[TIERS_MAX] = {0};
    for (const struct xml_element *x = topo_child(e, "group", NULL); x; x = topo_child(e, "group", x))
        read_group(w, x, groups);
    for (uint32_t k = 0; k < t->ntiers; k++)
        if (groups[k])
            number_the_rest(t, &t->tiers[k], groups[k]);
    if (diag_errors(w->diag))
        return;
    for (uint32_t k = 0; k + 1 < t->ntiers; k++)
        if (groups[k] || groups[k + 1])
            check_nesting(w, k, sources[k + 1].at);
}

/* ---- torus ---- */

/* Nodes that fill the places of one torus; with several each run of so many nodes fills one.  false after an
 * error. */
static bool torus_nodes(struct walk *w, const struct xml_attr *v, uint64_t places, bool several, uint64_t *nodes)
{
    const struct topo *t = w->topo;
    uint64_t gpus = 0;
    bool even = true;
    *nodes = 0;
    for (uint32_t i = 0; i < t->nnodes; i++) {
        gpus += t->types[t->nodes[i].type].gpus;
        bool full = gpus % places == 0;
        *nodes = full && !*nodes ? i + 1 : *nodes;
        even &= full == (*nodes && (i + 1) % *nodes == 0);
    }
    if (diag_errors(w->diag) || !t->nnodes || (several ? even && gpus % places == 0 : places == gpus))
        return true;
    if (several)
        diag_error(w->diag, v->at, "torus",
                   "%" PRIu64 " GPUs don't fill tori of %s, %" PRIu64 " places each, by whole nodes in order", gpus,
                   v->value, places);
    else
        diag_error(w->diag, v->at, "torus",
                   "a torus of %s has %" PRIu64 " places, but the cluster has %" PRIu64 " GPUs", v->value, places,
                   gpus);
    if (!several && gpus % places == 0)
        diag_help(w->diag, "add the tier that joins several of them: <tier name=\"datacentre\" span=\"all\"/>");
    return false;
}

static bool read_dims(struct walk *w, const struct xml_attr *v, struct topo *t, bool several, uint64_t *nodes)
{
    uint64_t product = 1;
    for (size_t at = 0; at <= v->length; at++) {
        size_t n = strcspn(v->value + at, "x");
        uint64_t size = 0;
        struct units_error e;
        if (t->torus_dims == ARRAY_LEN(t->torus) || !units_count(v->value + at, n, &size, &e) || size < 1 ||
            size > TOPO_NODES_MAX) {
            diag_error(w->diag, v->at, "torus", "dims must be 1 to 4 sizes with x between them");
            diag_caret(w->diag, "such as 16x16x16");
            t->torus_dims = 0;
            return false;
        }
        t->torus[t->torus_dims++] = (uint32_t)size;
        if (__builtin_mul_overflow(product, size, &product))
            product = UINT64_MAX;
        at += n;
    }
    return torus_nodes(w, v, product, several, nodes);
}

/* the innermost tier: a torus of all nodes, or several of as many each, where tiers follow that join them */
static void read_torus(struct walk *w, const struct xml_element *e, const struct xml_element *fabric,
                       struct tier_source *sources)
{
    struct topo *t = w->topo;
    bool several = topo_child(fabric, "tier", NULL) != NULL;
    const struct xml_attr *dims = xml_attr(e, "dims");
    uint64_t nodes = 0;
    if (!topo_attr_yes(e, "wrap", true)) {
        diag_error(w->diag, xml_attr(e, "wrap")->at, "unsupported", "a torus without wrap-around is not supported");
        diag_help(w->diag, "describe it by tiers, or plan for a part of it that wraps around");
    }
    if (topo_child(fabric, "group", NULL)) {
        diag_error(w->diag, topo_child(fabric, "group", NULL)->at, "torus", "a fabric with a torus has no groups");
        diag_help(w->diag, "nodes are cut in their order into tori of as many places as 'dims' has");
        return;
    }
    topo_attr_real(e, "link", &t->torus_bytes_s);
    topo_attr_real(e, "latency", &t->torus_latency_s);
    if (!dims || !dims->valid || !read_dims(w, dims, t, several, &nodes))
        return;
    uint64_t span = nodes ? nodes : t->nnodes;
    uint32_t n = span ? (uint32_t)((t->nnodes + span - 1) / span) : 1;
    sources[t->ntiers] = (struct tier_source){e, n <= 1};
    t->tiers[t->ntiers++] = (struct topo_tier){.name = "torus", .span = span, .oversubscription = 1, .ngroups = n};
}

/* ---- fabric ---- */

static void check_rails(struct walk *w, const struct xml_element *e)
{
    struct topo *t = w->topo;
    const struct xml_attr *rails = xml_attr(e, "rails"), *cross = xml_attr(e, "cross-rail");
    for (uint32_t i = 0; i < t->ntypes; i++) {
        const struct topo_node_type *type = &t->types[i];
        if (!type->nnodes || !type->gpus)
            continue;
        if (rails && t->rails > type->gpus) {
            diag_error(w->diag, rails->at, "rails", "%" PRIu32 " rails, but a node of type '%s' has %" PRIu32 " GPUs",
                       t->rails, type->id, type->gpus);
            return;
        }
        if (!t->cross_rail && t->rails > 1 && type->scale_up.kind == SCALE_UP_NONE) {
            diag_error(w->diag, cross->at, "rails", "rails that never meet need a scale-up, and '%s' has none",
                       type->id);
            return;
        }
    }
    if (!t->cross_rail && t->rails < 2)
        diag_error(w->diag, cross->at, "rails", "cross-rail=\"no\" needs at least 2 rails");
}

/* A domain that reaches over a boundary of a tier is possible, but rarely meant. */
static void check_domains(struct walk *w, const struct tier_source *sources)
{
    const struct topo *t = w->topo;
    for (uint32_t k = 0; k < t->ntiers && t->ntypes == 1; k++) {
        uint32_t span = t->types[0].scale_up.span;
        const struct topo_tier *tier = &t->tiers[k];
        if (span > 1 && !tier->group_of && tier->span > span && tier->span < t->nnodes && tier->span % span) {
            diag_warning(w->diag, xml_attr(sources[k].at, "span")->at, "tier-cut",
                         "tier '%s' cuts through scale-up domains of %" PRIu32 " nodes", tier->name, span);
            diag_caret(w->diag, "%" PRIu64 " is no multiple of %" PRIu32, tier->span, span);
        }
    }
}

/* Nodes that no scale-up joins need a fabric, and NICs on it. */
static void check_reach(struct walk *w, const struct xml_element *fabric)
{
    const struct topo *t = w->topo;
    if (diag_errors(w->diag) || topo_ndomains(t) < 2 || (t->torus_dims && t->ntiers == 1))
        return;
    if (!t->ntiers) {
        diag_error(w->diag, fabric ? fabric->at : w->root->at, "missing-element", "nothing joins the %" PRIu32 " nodes",
                   t->nnodes);
        diag_help(w->diag, "add %s<tier name=\"leaf\" span=\"all\"/>%s", fabric ? "" : "<fabric medium=\"infiniband\">",
                  fabric ? " to <fabric>" : "</fabric>");
        return;
    }
    for (uint32_t i = 0; i < t->ntypes; i++)
        if (t->types[i].nnodes && t->types[i].nic_bytes_s_per_gpu <= 0) {
            diag_error(w->diag, t->types[i].span, "missing-element", "nodes of type '%s' have no <nic>",
                       t->types[i].id);
            diag_help(w->diag, "add <nic count=\"%" PRIu32 "\" bandwidth=\"400Gb/s\"/>", t->types[i].gpus);
        }
}

void walk_fabric(struct walk *w)
{
    struct topo *t = w->topo;
    const struct xml_element *e = topo_child(w->root, "fabric", NULL);
    struct tier_source sources[TIERS_MAX];
    t->rails = 1;
    t->cross_rail = true;
    t->medium = "";
    if (e) {
        const struct xml_element *torus = topo_child(e, "torus", NULL);
        t->medium = topo_attr_text(e, "medium") ? topo_attr_text(e, "medium") : "";
        topo_attr_count(e, "rails", &t->rails);
        t->cross_rail = topo_attr_yes(e, "cross-rail", true);
        t->tiers = ARENA_ARRAY(w->arena, struct topo_tier, TIERS_MAX);
        if (torus)
            read_torus(w, torus, e, sources);
        if (!torus || t->ntiers)
            read_tiers(w, e, sources);
        if (!torus && t->nnodes)
            read_groups(w, e, sources);
        check_rails(w, e);
        if (!torus)
            check_domains(w, sources);
    }
    check_reach(w, e);
}
