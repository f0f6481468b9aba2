/* Reading Slurm's topology.yaml (Slurm 25.05 and later; its man page, topology.yaml(5)): a list of topologies, each a
 * tree of switches, or blocks with their sizes.  Of several the one for the whole cluster counts, which is the first
 * with "cluster_default: true". */

#include "compiler/import/slurm.h"
#include "compiler/import/yaml.h"

#include "compiler/topology/topo_rules.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool fail(struct cluster_facts *f, const struct yaml_value *at, const char *what)
{
    diag_error(f->diag, at->at, "bad-conf", "%s", what);
    return false;
}

/* Has a mapping no keys but those known? */
static bool check_keys(struct cluster_facts *f, const struct yaml_value *v, const char *const *known, size_t n)
{
    if (v->form != YAML_MAP) {
        diag_error(f->diag, v->at, "bad-conf", "a mapping with '%s:' should stand here", known[0]);
        return false;
    }
    for (uint32_t i = 0; i < v->n; i++) {
        const char *key = v->keys[i]->text, *near;
        bool fine = false;
        for (size_t k = 0; k < n; k++)
            fine = fine || !strcmp(key, known[k]);
        if (fine)
            continue;
        near = diag_nearest(key, known, n);
        diag_error(f->diag, v->keys[i]->at, "unknown-word", "'%.40s' is no key beside '%s'", key, known[0]);
        if (near)
            diag_caret(f->diag, "did you mean '%s'?", near);
        return false;
    }
    return true;
}

static bool read_hosts(struct cluster_facts *f, const struct yaml_value *v, struct hostlist *list)
{
    struct hostlist_error e;
    if (v->form != YAML_TEXT || !*v->text)
        return fail(f, v, "names should stand here, such as node[01-04]");
    if (!hostlist_expand(f->arena, v->text, strlen(v->text), f->slurm->names_left, list, &e)) {
        struct span at = v->at;
        if (v->plain && e.at + e.length <= at.length)
            at = (struct span){at.source, at.start + (uint32_t)e.at, (uint32_t)e.length};
        diag_error(f->diag, at, "bad-hostlist", "%s", e.message);
        return false;
    }
    f->slurm->names_left -= list->n;
    return true;
}

/* a switch with its children or nodes, or a block with its nodes */
static bool read_group(struct cluster_facts *f, const struct yaml_value *v, bool block)
{
    static const char *const of_switch[] = {"switch", "children", "nodes"}, *const of_block[] = {"block", "nodes"};
    const char *const *known = block ? of_block : of_switch;
    if (!check_keys(f, v, known, block ? ARRAY_LEN(of_block) : ARRAY_LEN(of_switch)))
        return false;
    const struct yaml_value *name = yaml_member(v, known[0]), *nodes = yaml_member(v, "nodes"),
                            *children = block ? NULL : yaml_member(v, "children"), *below = nodes ? nodes : children;
    struct hostlist names;
    if (!name || !nodes == !children)
        return fail(f, v,
                    !name      ? "it has no name"
                    : block    ? "the block has no nodes"
                    : children ? "the switch has both nodes and children"
                               : "the switch has neither nodes nor children");
    if (!read_hosts(f, name, &names))
        return false;
    if (names.n != 1)
        return fail(f, name, "one name is wanted");
    struct slurm_group g = {.name = names.names[0], .name_at = name->at, .below_at = below->at, .leaf = nodes != NULL};
    return read_hosts(f, below, &g.below) && slurm_add(f, block, name->at, g);
}

static bool read_groups(struct cluster_facts *f, const struct yaml_value *of, const char *key, bool block)
{
    const struct yaml_value *list = yaml_member(of, key);
    if (!list || list->form != YAML_LIST || !list->n) {
        diag_error(f->diag, (list ? list : of)->at, "bad-conf", "a list of %s should stand here", key);
        return false;
    }
    bool fine = true;
    for (uint32_t i = 0; i < list->n; i++)
        fine = read_group(f, list->values[i], block) && fine;
    return fine;
}

static bool read_sizes(struct cluster_facts *f, const struct yaml_value *list)
{
    f->slurm->sizes_at = list->at;
    f->slurm->block_sizes.n = 0;
    bool fine = list->form == YAML_LIST && list->n;
    for (uint32_t i = 0; fine && i < list->n; i++) {
        const char *text = list->values[i]->text;
        size_t n = strspn(text, "0123456789");
        fine = n && n < 8 && !text[n] && slurm_add_size(f, strtoull(text, NULL, 10));
    }
    return fine || fail(f, list, "block_sizes wants a list of numbers of nodes");
}

/* Reads the topology of one of the kinds that are known. */
static bool read_topology(struct cluster_facts *f, const struct yaml_value *v)
{
    static const char *const keys[] = {"topology", "cluster_default", "tree", "block", "flat"};
    static const char *const of_tree[] = {"switches"}, *const of_block[] = {"block_sizes", "blocks"};
    const struct yaml_value *tree = yaml_member(v, "tree"), *block = yaml_member(v, "block");
    if (!check_keys(f, v, keys, ARRAY_LEN(keys)))
        return false;
    if (!tree == !block)
        return fail(f, v,
                    tree ? "a topology is a tree or of blocks, not both" : "this topology says nothing of switches");
    if (tree)
        return check_keys(f, tree, of_tree, ARRAY_LEN(of_tree)) && read_groups(f, tree, "switches", false);
    const struct yaml_value *sizes = yaml_member(block, "block_sizes");
    return check_keys(f, block, of_block, ARRAY_LEN(of_block)) && (!sizes || read_sizes(f, sizes)) &&
           read_groups(f, block, "blocks", true);
}

static bool is_true(const struct yaml_value *v)
{
    return v && v->form == YAML_TEXT && (!strcasecmp(v->text, "true") || !strcasecmp(v->text, "yes"));
}

bool slurm_read_yaml(struct cluster_facts *f, const struct source *source)
{
    const struct yaml_value *root = yaml_tree(f->arena, f->diag, source), *chosen = NULL;
    if (!root)
        return false;
    if (root->form != YAML_LIST || !root->n)
        return fail(f, root, "a list of topologies should stand here: '- topology: NAME'");
    for (uint32_t i = 0; i < root->n && !chosen; i++)
        chosen = is_true(yaml_member(root->values[i], "cluster_default")) ? root->values[i] : NULL;
    if (!chosen && root->n > 1)
        return fail(f, root, "none of several topologies has 'cluster_default: true'");
    chosen = chosen ? chosen : root->values[0];
    const struct yaml_value *name = yaml_member(chosen, "topology");
    if (root->n > 1)
        cluster_assume(f, "of %u topologies '%.60s', the cluster's default", root->n, name ? name->text : "");
    return read_topology(f, chosen);
}
