#ifndef LLMC_TOPO_WALK_H
#define LLMC_TOPO_WALK_H

/* Inside the reader of cluster files: one struct walk per file, one function per part of it.  Each reads its
 * checked elements into walk.topo and reports what contradicts; values that were refused before are simply
 * absent here. */

#include "compiler/topology/topo.h"
#include "compiler/topology/topo_rules.h"

#include "compiler/support/vec.h"

/* bytes start .. end of the cluster file, to be replaced */
struct walk_edit {
    uint32_t start, end;
    const char *text;
    size_t length;
};

struct walk {
    struct arena *arena;
    struct diag *diag;
    const char *base; /* folder of the file, or NULL: hrefs are refused */
    const struct xml_element *root;
    struct topo *topo;
    uint64_t names_left; /* host names that lists other than <nodes> may still expand to: bounds the time */
    size_t import_left;  /* bytes that imported files may have in all */
    struct walk_host {
        const char *name;
        uint32_t node;
    } * hosts; /* all nodes, by name */
    VEC(struct walk_edit) edits;
    VEC(struct topo_measured) measured;
};

/* topo_types.c: <node-type> with <gpu>, <scale-up>, <nic>, dumps */
void walk_node_types(struct walk *w);
/* index of the type that the attribute names; false after an error */
bool walk_type(struct walk *w, const struct xml_element *e, const char *attribute, uint32_t *type);

/* topo_nodes.c: <nodes>, then <exclude>, <spare>, <degraded> */
void walk_nodes(struct walk *w);
void walk_node_states(struct walk *w);
/* nodes that a host list attribute names, each of which must exist; false after an error */
bool walk_hosts(struct walk *w, const struct xml_element *e, const char *attribute, uint32_t *n, uint32_t **nodes);

/* topo_fabric.c: <fabric> with tiers, groups or a torus */
void walk_fabric(struct walk *w);

/* topo_measured.c: <measured> */
void walk_measured(struct walk *w);

/* topo_nccl.c: what a dump says about a node of this type.  dump_at: where the cluster file brings it in. */
void walk_nccl(struct walk *w, const struct xml_element *system, struct span dump_at,
               const struct xml_element *node_type, struct topo_node_type *type);

/* What takes the place of an element with an href in topo.text. */
void walk_replace(struct walk *w, const struct xml_element *e, const char *text, size_t length);

/* Read a file that an href names, relative to the cluster file; NULL after an error. */
const struct source *walk_import(struct walk *w, const struct xml_attr *href);

#endif
