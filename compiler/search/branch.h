#ifndef LLMC_BRANCH_H
#define LLMC_BRANCH_H

/* Between branch.c, the tree of a search, dive.c, which looks at its best meshes first, and count.c. */

#include "compiler/search/search_private.h"

/* while nothing has been found that many budgets may be spent: "nothing fits" had better be true */
#define SEARCH_PATIENCE 10

/* families of a mesh in the first order of axes that there is, in the others */
enum which_orders { ORDERS_FIRST, ORDERS_OTHER };

/* the heap: least bound first, leaves before cells, families, lots and meshes, then by index */
void search_push(struct searching *s, struct node x);
struct node search_pop(struct searching *s);
/* the tree's meshes, into the heap */
void search_plant(struct searching *s);
/* a node whose turn has come: what it opens into goes into the heap, itself with a greater bound, or a leaf
 * is timed */
void search_open_node(struct searching *s, const struct node *x);
/* all meshes and nothing else into the heap, by their bounds */
void search_push_meshes(struct searching *s);

/* a mesh's degrees; before its families in any one order of axes; the next of them, false behind the last */
struct decision search_mesh_decision(const struct mesh_node *m);
struct decision search_before_families(const struct searching *s, const struct decision *mesh);
bool search_next_family(const struct searching *s, struct decision *d);

/* the mesh's families behind those of s, for a look: none of them into the heap */
void search_look_at_mesh(struct searching *s, struct mesh_node *m, enum which_orders which);
/* how many orders of axes the mesh has that cost differently */
uint32_t search_count_orders(struct searching *s, struct mesh_node *m);
/* a family's step, wherever its ranks are */
double search_floor_bound_s(struct searching *s, const struct mesh_node *m, const struct decision *d);
/* the least ZeRO level under which every rank's state may fit, which d then has; 4: there is none */
uint32_t search_least_zero(struct searching *s, const struct mesh_node *m, struct decision *d);
/* a mesh's bound with the transfers that no order of axes avoids, and whether it is dead */
void search_refine_mesh(struct searching *s, struct mesh_node *m);
/* a family's bound by its own blocks with transfers; called again, by its cuts */
void search_refine(struct searching *s, struct family *f);

/* candidates from the best of the heap's meshes; then the heap holds all meshes again */
void search_dive(struct searching *s);
/* the same where a wide gap is left, with a share of the whole budget; the heap stays as it is */
void search_dive_again(struct searching *s);
/* From the best candidate so far to better ones near it, until there are none or `most` is spent: its own mesh with many
 * microbatches, and those that differ from it in two axes or in the experts' degrees. */
void search_climb(struct searching *s, uint64_t most);

#endif
