/* Slurm's switches and nodes put together: nodes in the order in which the tree is walked, so that the nodes below any
 * switch are in a row, and for every height the group that each node is in.
 *
 * A switch of nodes has height 1, one of switches one more than its highest.  The group of a node at a height is the
 * highest switch above it that is no higher: so trees whose branches differ in depth have groups that nest, too.
 * Heights that join nothing new are left out.  O(n log n) in nodes and switches. */

#include "compiler/import/slurm.h"

#include "compiler/support/units.h"
#include "compiler/topology/topo_catalogue.h"
#include "compiler/topology/topo_rules.h"

#include <stdlib.h>

#define HEIGHT_MAX 15u
#define NONE UINT32_MAX

struct named {
    const char *name;
    uint32_t group, line; /* the switch it is below, the NodeName line; NONE */
};

struct tree {
    struct cluster_facts *f;
    struct slurm *s;
    VEC(struct named) switches; /* by name; group: which */
    VEC(struct named) lines;    /* nodes of NodeName lines, by name */
    VEC(struct named) chosen;   /* nodes that are set, by name */
    VEC(struct named) nodes;    /* those that are taken, in order */
    uint32_t left_out;          /* nodes without GPUs */
};

static int by_name(const void *a, const void *b)
{
    const struct named *p = a, *q = b;
    int order = strcmp(p->name, q->name);
    return order ? order : (p->group > q->group) - (p->group < q->group);
}

static const struct named *find(const struct named *sorted, size_t n, const char *name)
{
    struct named key = {.name = name};
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(sorted[middle].name, key.name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && !strcmp(sorted[low].name, name) ? &sorted[low] : NULL;
}

static const char *kind(const struct tree *t)
{
    return t->s->blocks ? "block" : "switch";
}

/* ---- switches ---- */

static bool index_switches(struct tree *t)
{
    for (uint32_t i = 0; i < t->s->groups.n; i++)
        vec_push(t->f->arena, &t->switches, (struct named){t->s->groups.at[i].name, i, NONE});
    if (t->switches.n)
        qsort(t->switches.at, t->switches.n, sizeof *t->switches.at, by_name);
    for (size_t i = 1; i < t->switches.n; i++)
        if (!strcmp(t->switches.at[i].name, t->switches.at[i - 1].name)) {
            diag_error(t->f->diag, t->s->groups.at[t->switches.at[i].group].name_at, "repeated-name",
                       "a second %s '%s'", kind(t), t->switches.at[i].name);
            diag_note(t->f->diag, t->s->groups.at[t->switches.at[i - 1].group].name_at, "the first one");
            return false;
        }
    return true;
}

/* the switch that stands below another by name */
static bool join(struct tree *t, uint32_t above, const char *name)
{
    struct slurm_group *g = &t->s->groups.at[above];
    const struct named *found = find(t->switches.at, t->switches.n, name);
    if (!found) {
        diag_error(t->f->diag, g->below_at, "unknown-switch", "there is no switch '%s'", name);
        return false;
    }
    struct slurm_group *below = &t->s->groups.at[found->group];
    if (below->parent != NONE) {
        diag_error(t->f->diag, g->below_at, "two-parents", "switch '%s' is below '%s' and '%s'", name,
                   t->s->groups.at[below->parent].name, g->name);
        diag_note(t->f->diag, t->s->groups.at[below->parent].below_at, "first here");
        diag_help(t->f->diag, "Slurm's tree has one way up: name one of the switches that are joined alike");
        return false;
    }
    below->parent = above;
    g->nchildren++;
    return true;
}

/* Leaves first, each switch when all below it are done: what never is stands in a circle. */
static bool measure_heights(struct tree *t)
{
    struct slurm_group *g = t->s->groups.at;
    uint32_t n = (uint32_t)t->s->groups.n, *ready = ARENA_ARRAY(t->f->arena, uint32_t, n), first = 0, last = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!g[i].leaf)
            continue;
        g[i].height = 1;
        ready[last++] = i;
    }
    for (; first < last; first++) {
        uint32_t up = g[ready[first]].parent, height = g[ready[first]].height + 1;
        if (up == NONE)
            continue;
        g[up].height = g[up].height > height ? g[up].height : height;
        if (g[up].height > HEIGHT_MAX) {
            diag_error(t->f->diag, g[up].name_at, "too-many", "more than %u switches one above the other", HEIGHT_MAX);
            return false;
        }
        if (!--g[up].nchildren)
            ready[last++] = up;
    }
    if (last == n)
        return true;
    for (uint32_t i = 0; i < n; i++)
        if (g[i].nchildren) {
            diag_error(t->f->diag, g[i].name_at, "cycle", "switch '%s' is below itself", g[i].name);
            return false;
        }
    return true;
}

static bool join_all(struct tree *t)
{
    if (!index_switches(t))
        return false;
    for (uint32_t i = 0; i < t->s->groups.n; i++)
        for (uint32_t k = 0; !t->s->groups.at[i].leaf && k < t->s->groups.at[i].below.n; k++)
            if (!join(t, i, t->s->groups.at[i].below.names[k]))
                return false;
    return measure_heights(t);
}

/* ---- nodes ---- */

static bool index_lines(struct tree *t)
{
    for (uint32_t i = 0; i < t->s->nodes.n; i++)
        for (uint32_t k = 0; k < t->s->nodes.at[i].names.n; k++)
            vec_push(t->f->arena, &t->lines, (struct named){t->s->nodes.at[i].names.names[k], i, i});
    if (t->lines.n)
        qsort(t->lines.at, t->lines.n, sizeof *t->lines.at, by_name);
    for (size_t i = 1; i < t->lines.n; i++)
        if (!strcmp(t->lines.at[i].name, t->lines.at[i - 1].name)) {
            diag_error(t->f->diag, t->s->nodes.at[t->lines.at[i].line].at, "repeated-name", "a second node '%s'",
                       t->lines.at[i].name);
            diag_note(t->f->diag, t->s->nodes.at[t->lines.at[i - 1].line].at, "the first one");
            return false;
        }
    for (uint32_t i = 0; i < t->f->nnodes; i++)
        vec_push(t->f->arena, &t->chosen, (struct named){t->f->nodes[i], NONE, NONE});
    if (t->chosen.n)
        qsort(t->chosen.at, t->chosen.n, sizeof *t->chosen.at, by_name);
    return true;
}

/* is any node listed with GPUs?  Then those without are not meant. */
static bool any_gpus(const struct tree *t)
{
    for (size_t i = 0; i < t->s->nodes.n; i++)
        if (t->s->nodes.at[i].gpus)
            return true;
    return false;
}

/* One node below a switch, or of a NodeName line where there are no switches. */
static bool take(struct tree *t, const char *name, uint32_t group, struct span at)
{
    const struct named *line = find(t->lines.at, t->lines.n, name);
    if (t->chosen.n && !find(t->chosen.at, t->chosen.n, name))
        return true;
    if (t->lines.n && !line) {
        diag_error(t->f->diag, at, "contradiction", "node '%s' has no NodeName line in %s", name,
                   t->s->nodes.at[0].at.source->name);
        diag_note(t->f->diag, t->s->nodes.at[0].at, "nodes are listed here");
        return false;
    }
    if (line && !t->s->nodes.at[line->line].gpus && any_gpus(t)) {
        t->left_out++;
        return true;
    }
    vec_push(t->f->arena, &t->nodes, (struct named){name, group, line ? line->line : NONE});
    return true;
}

/* All nodes below a switch, in its order; as deep as HEIGHT_MAX. */
static bool take_below(struct tree *t, uint32_t group)
{
    const struct slurm_group *g = &t->s->groups.at[group];
    for (uint32_t i = 0; i < g->below.n; i++) {
        bool fine = g->leaf ? take(t, g->below.names[i], group, g->below_at)
                            : take_below(t, find(t->switches.at, t->switches.n, g->below.names[i])->group);
        if (!fine)
            return false;
    }
    return true;
}

static bool check_twice(struct tree *t)
{
    size_t n = t->nodes.n;
    struct named *sorted = ARENA_ARRAY(t->f->arena, struct named, n ? n : 1);
    if (n)
        memcpy(sorted, t->nodes.at, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(sorted[i].name, sorted[i - 1].name)) {
            const struct slurm_group *a = &t->s->groups.at[sorted[i - 1].group], *b = &t->s->groups.at[sorted[i].group];
            if (a == b)
                diag_error(t->f->diag, a->below_at, "repeated-name", "node '%s' is twice in %s '%s'", sorted[i].name,
                           kind(t), a->name);
            else
                diag_error(t->f->diag, b->below_at, "repeated-name", "node '%s' is in %s '%s' and in '%s'",
                           sorted[i].name, kind(t), a->name, b->name);
            diag_note(t->f->diag, a->below_at, "first here");
            return false;
        }
    for (size_t i = 0; i < t->chosen.n; i++)
        if (!find(sorted, n, t->chosen.at[i].name)) {
            diag_error(t->f->diag, t->f->facts[KEY_NODES].from, "unknown-node", "no file names a node '%s' with GPUs",
                       t->chosen.at[i].name);
            return false;
        }
    return true;
}

static bool take_all(struct tree *t)
{
    bool fine = true;
    for (uint32_t i = 0; i < t->s->groups.n && fine; i++)
        if (t->s->groups.at[i].parent == NONE)
            fine = take_below(t, i);
    for (uint32_t i = 0; i < t->s->nodes.n && fine && !t->s->groups.n; i++)
        for (uint32_t k = 0; k < t->s->nodes.at[i].names.n && fine; k++)
            fine = take(t, t->s->nodes.at[i].names.names[k], NONE, t->s->nodes.at[i].at);
    if (!fine || (t->s->groups.n && !check_twice(t)))
        return false;
    if (t->nodes.n && t->nodes.n <= TOPO_NODES_MAX)
        return true;
    diag_error(t->f->diag, (struct span){0}, "bad-conf",
               t->nodes.n ? "more than %u nodes" : "no file of Slurm names a node", TOPO_NODES_MAX);
    return false;
}

/* ---- levels ---- */

/* the group of a node at a height */
static uint32_t group_at(const struct tree *t, size_t node, uint32_t height)
{
    uint32_t g = t->nodes.at[node].group;
    while (t->s->groups.at[g].parent != NONE && t->s->groups.at[t->s->groups.at[g].parent].height <= height)
        g = t->s->groups.at[g].parent;
    return g;
}

/* A level whose groups are runs of nodes: group(i) tells runs apart.  It counts if it joins more than the last one. */
static void add_level(struct tree *t, const char *name, const uint32_t *group, const char *const *names)
{
    struct cluster_facts *f = t->f;
    uint32_t n = (uint32_t)t->nodes.n, ngroups = 0, *group_of = ARENA_ARRAY(f->arena, uint32_t, n);
    const char **groups = ARENA_ARRAY(f->arena, const char *, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!i || group[i] != group[i - 1]) {
            groups[ngroups] = names ? names[group[i]] : arena_printf(f->arena, "%s-%u", name, ngroups);
            ngroups++;
        }
        group_of[i] = ngroups - 1;
    }
    if (f->nlevels && f->levels[f->nlevels - 1].ngroups == ngroups)
        return;
    struct cluster_level *levels = ARENA_ARRAY(f->arena, struct cluster_level, f->nlevels + 1);
    if (f->nlevels)
        memcpy(levels, f->levels, f->nlevels * sizeof *levels);
    levels[f->nlevels++] = (struct cluster_level){name, ngroups, group_of, groups};
    f->levels = levels;
    f->levels_from = t->s->groups.at[0].name_at.source;
}

static void add_tree_levels(struct tree *t)
{
    static const char *const names[] = {"leaf", "spine", "core"};
    struct cluster_facts *f = t->f;
    const char **switches = ARENA_ARRAY(f->arena, const char *, t->s->groups.n);
    uint32_t highest = 0, *group = ARENA_ARRAY(f->arena, uint32_t, t->nodes.n);
    for (size_t i = 0; i < t->s->groups.n; i++) {
        switches[i] = t->s->groups.at[i].name;
        highest = t->s->groups.at[i].height > highest ? t->s->groups.at[i].height : highest;
    }
    for (uint32_t height = 1; height <= highest; height++) {
        for (size_t i = 0; i < t->nodes.n; i++)
            group[i] = group_at(t, i, height);
        uint32_t k = f->nlevels;
        add_level(t, k < ARRAY_LEN(names) ? names[k] : arena_printf(f->arena, "tier-%u", k + 1), group, switches);
    }
}

/* Blocks, then as many of them together as the further BlockSizes say, then all. */
static bool add_block_levels(struct tree *t)
{
    struct cluster_facts *f = t->f;
    const struct slurm *s = t->s;
    const char **blocks = ARENA_ARRAY(f->arena, const char *, s->groups.n);
    uint32_t *group = ARENA_ARRAY(f->arena, uint32_t, t->nodes.n);
    for (size_t i = 0; i < s->groups.n; i++)
        blocks[i] = s->groups.at[i].name;
    for (size_t i = 0; i < t->nodes.n; i++)
        group[i] = t->nodes.at[i].group;
    add_level(t, "block", group, blocks);
    for (size_t k = 1; k < s->block_sizes.n; k++) {
        uint32_t size = s->block_sizes.at[k], base = s->block_sizes.at[0];
        if (size % base || size <= s->block_sizes.at[k - 1]) {
            diag_error(f->diag, s->sizes_at, "bad-conf", "sizes of blocks must grow, as multiples of the first");
            return false;
        }
        for (size_t i = 0; i < t->nodes.n; i++)
            group[i] = t->nodes.at[i].group / (size / base);
        add_level(t, arena_printf(f->arena, "blocks-%u", size / base), group, NULL);
    }
    for (size_t i = 0; i < t->nodes.n; i++)
        group[i] = 0;
    add_level(t, "cluster", group, NULL);
    return true;
}

static bool add_levels(struct tree *t)
{
    struct cluster_facts *f = t->f;
    if (t->s->blocks && !add_block_levels(t))
        return false;
    if (!t->s->blocks)
        add_tree_levels(t);
    const struct cluster_level *top = &f->levels[f->nlevels - 1];
    if (top->ngroups == 1)
        return true;
    for (uint32_t i = 0; i < t->s->groups.n; i++)
        if (!strcmp(t->s->groups.at[i].name, top->groups[1]))
            diag_error(f->diag, t->s->groups.at[i].name_at, "bad-conf", "no switch joins '%s' and '%s'", top->groups[0],
                       top->groups[1]);
    diag_help(f->diag, "add the switch above them, or take the nodes below one with --set nodes=...");
    return false;
}

/* ---- gpus ---- */

/* GPUs of all nodes, which must be alike. */
static bool say_gpus(struct tree *t)
{
    struct cluster_facts *f = t->f;
    uint32_t line = t->nodes.at[0].line, many;
    if (line == NONE)
        return true;
    const struct slurm_node *first = &t->s->nodes.at[line];
    for (size_t i = 1; i < t->nodes.n; i++) {
        const struct slurm_node *x = &t->s->nodes.at[t->nodes.at[i].line];
        if (x->gpus == first->gpus &&
            (x->type == first->type || (x->type && first->type && !strcmp(x->type, first->type))))
            continue;
        diag_error(f->diag, x->gres_at, "bad-conf", "node '%s' has other GPUs than '%s'", t->nodes.at[i].name,
                   t->nodes.at[0].name);
        diag_note(f->diag, first->gres_at, "that one's");
        diag_help(f->diag, "take nodes of one kind with --set nodes=...");
        return false;
    }
    if (first->gpus && !cluster_say_count(f, KEY_GPUS, first->gpus, first->gres_at))
        return false;
    const char *model = first->type ? topo_catalogue_driver_name(first->type) : NULL;
    const struct topo_catalogue_gpu *row = first->type ? topo_catalogue_begins(first->type, &many) : NULL;
    f->gres = model ? NULL : first->type;
    f->gres_at = first->gres_at;
    if (model)
        return cluster_say(f, KEY_GPU, model, first->gres_at);
    if (row)
        cluster_guess(f, KEY_GPU, row->gpu.model, first->gres_at);
    return true;
}

bool cluster_resolve_slurm(struct cluster_facts *f)
{
    struct tree t = {.f = f, .s = f->slurm};
    const struct cluster_fact *set = &f->facts[KEY_NODES];
    if (!join_all(&t) || !index_lines(&t) || !take_all(&t))
        return false;
    uint32_t n = (uint32_t)t.nodes.n;
    if (set->is == FACT_SET && cluster_count(f, KEY_NODES) && cluster_count(f, KEY_NODES) != n) {
        diag_error(f->diag, set->from, "contradiction", "Slurm's files have %u nodes with names: say which", n);
        return false;
    }
    const char **names = ARENA_ARRAY(f->arena, const char *, n);
    for (uint32_t i = 0; i < n; i++)
        names[i] = t.nodes.at[i].name;
    f->nodes = names;
    f->nnodes = n;
    struct span from = t.s->groups.n ? t.s->groups.at[0].name_at : t.s->nodes.at[0].at;
    if (set->is != FACT_SET && !cluster_say_count(f, KEY_NODES, n, from))
        return false;
    if (t.left_out)
        cluster_assume(f, "%s without GPUs in Slurm's files: left out", units_show_count(t.left_out, "node").s);
    return (!t.s->groups.n || add_levels(&t)) && say_gpus(&t);
}
