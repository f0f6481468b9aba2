#ifndef LLMC_BRANCH_H
#define LLMC_BRANCH_H

/* Shared by branch.c (the tree of a search), dive.c (a first look at the best meshes) and count.c. */

#include "compiler/search/state.h"

/* while nothing has been found, the search goes on for so many budgets: "nothing fits" should be true */
#define SEARCH_PATIENCE 10

/* families of a mesh: in the first order of axes, in the others */
enum which_orders { ORDERS_FIRST, ORDERS_OTHER };

/* the heap of nodes: least bound first; among equals leaves before cells, families, lots and meshes; then by index */
void search_push(struct searching *s, struct node x);
struct node search_pop(struct searching *s);
/* puts the tree's meshes into the heap */
void search_plant(struct searching *s);
/* Handles a node taken from the heap: pushes what it opens into, or the node itself with a greater bound, or
 * evaluates a leaf. */
void search_open_node(struct searching *s, const struct node *x);
/* makes the heap hold all meshes, by their bounds, and nothing else */
void search_push_meshes(struct searching *s);

/* A mesh's degrees as a decision; the state before its first family, in no order of axes; moves to the next family,
 * false after the last. */
struct decision search_mesh_decision(const struct mesh_node *m);
struct decision search_before_families(const struct searching *s, const struct decision *mesh);
bool search_next_family(const struct searching *s, struct decision *d);

/* Appends the mesh's families to those of s without pushing them into the heap. */
void search_look_at_mesh(struct searching *s, struct mesh_node *m, enum which_orders which);
/* how many orders of axes the mesh has that cost differently */
uint32_t search_count_orders(struct searching *s, struct mesh_node *m);
/* lower bound in seconds on a family's step, for any placement of its ranks */
double search_floor_bound_s(struct searching *s, const struct mesh_node *m, const struct decision *d);
/* Sets in d, and returns, the least ZeRO level under which every rank's state may fit; 4: there is none. */
uint32_t search_least_zero(struct searching *s, const struct mesh_node *m, struct decision *d);
/* Raises a mesh's bound by the transfers that no order of axes avoids, and finds whether it is dead. */
void search_refine_mesh(struct searching *s, struct mesh_node *m);
/* Raises a family's bound: by its own blocks with transfers; when called again, by its cuts into stages. */
void search_refine(struct searching *s, struct family *f);

/* Finds first candidates in the most promising meshes; afterwards the heap holds all meshes again. */
void search_dive(struct searching *s);
/* The same where a wide gap is left, with a share of the whole budget; the heap is not changed. */
void search_dive_again(struct searching *s);
/* Improves the best candidate by looking at similar decisions, until none is better or `most` work is spent: its own
 * mesh with more microbatch sizes, and meshes that differ from it in two axes or in the experts' degrees. */
void search_climb(struct searching *s, uint64_t most);

#endif
