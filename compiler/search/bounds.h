#ifndef LLMC_SEARCH_BOUNDS_H
#define LLMC_SEARCH_BOUNDS_H

/* Private to the files of search/: lower bounds, and the cached shapes that they need. */

#include "compiler/search/state.h"

/* levels.c: bounds of all schedules that apply, by their cuts; what memory requires is computed later */
struct search_least *search_family_bound(struct searching *s, const struct family *f);

/* floor.c: a cost for d's tp, cp, ep and etp whose blocks take no longer than on any nodes in any order of axes */
const struct cost *search_floor(struct searching *s, const struct decision *d);
/* Lower bound in seconds on ZeRO 2's or 3's transfers for one microbatch, on a rank that holds its share of the
 * model; splits: under schedules that split the backward. */
double search_floor_shards_s(struct searching *s, const struct cost *c, const struct cost_shape *x, bool splits);

/* room.c: search_room_bound_s(): a lower bound on a step of c's decision, no less than step_s, given what memory
 * forces layers to recompute; h: its shape without zero, shard, schedule and stages; INFINITY: nothing fits under
 * any state, schedule and recomputation. */
/* Does the least that every rank must hold fit under c's ZeRO level, activations aside? */
bool search_state_fits(struct searching *s, const struct cost *c, struct search_shape *h);
double search_room_bound_s(struct searching *s, const struct cost *c, struct search_shape *h, double step_s);
/* a bit per kind of recomputation under which such a step could still become a candidate */
uint32_t search_roomy_kinds(struct searching *s, const struct cost *c, struct search_shape *h);

/* shapes.c: the cached shape of c's decision; its cut into stages, made once per number of stages */
struct search_shape *search_shape(struct searching *s, const struct cost *c);
/* may decisions spare layers from recomputation? */
bool search_spares(const struct searching *s);
/* least seconds of a microbatch in a layer of that kind: in all; on its path forward and back */
double search_least_s(const struct searching *s, const struct cost_shape *x, uint32_t kind);
double search_least_path_s(const struct searching *s, const struct cost_shape *x, uint32_t kind);
const struct search_cut *search_cut(struct searching *s, struct search_shape *h, const struct decision *d);
bool search_same_group(const struct cost_group *a, const struct cost_group *b);
/* Lower bounds in seconds on a step: by kernels alone, for any cut and schedule; by a cut and its placement. */
enum placement { PLACE_LOOPED, PLACE_FOLDED, PLACE_BOTH_WAYS };
double search_shape_bound_s(const struct search_shape *h, const struct decision *d);
double search_share_bound_s(const struct search_shape *h, const struct decision *d); /* with transfers */
/* By d's stages and placement, for all schedules that run pairs as d's does or does not; the same by rank r alone. */
double search_class_bound_s(struct searching *s, struct search_shape *h, const struct decision *d,
                            enum placement placement);
double search_rank_bound_s(struct searching *s, struct search_shape *h, const struct decision *d,
                           enum placement placement, uint32_t r);
/* Spares as many layers from recomputation as every rank's memory allows, in d's own stages, which are those of x.
 * SPARE_FULL: a rank does not fit even with none spared, and *e has its memory; SPARE_SLOW: with what a rank has to
 * recompute the decision is too slow to become a candidate. */
enum spare_fate { SPARE_FITS, SPARE_FULL, SPARE_SLOW };
enum spare_fate search_spare(struct searching *s, const struct search_sparing *by, const struct cost_rooms *x,
                             struct decision *d, struct estimate *e);

#endif
