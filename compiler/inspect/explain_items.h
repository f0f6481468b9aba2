#ifndef LLMC_EXPLAIN_ITEMS_H
#define LLMC_EXPLAIN_ITEMS_H

/* A candidate's step time and memory as named items that add up, for `llmc estimate` and `llmc explain`. */

#include "compiler/cost/cost.h"

struct explain_item {
    const char *key, *name; /* of JSON with its unit; for people */
    double value;           /* seconds or bytes, never negative */
    const char *meaning;    /* what it is */
    const char *how;        /* what gave it, in a few words; "" = nothing to say */
    const char *detail; /* algorithm or measured curve, rate and latency of its largest transfer; "" = none */
};
#define EXPLAIN_ITEMS 24

/* Items of the whole step and of the fullest stage, in the order of the step and of size; `how` only with c,
 * the cost of the very decision.  Returns the number of items; texts live in the arena or for ever. */
uint32_t explain_time_items(struct arena *a, const struct cost *c, const struct estimate *e,
                            struct explain_item *out);
uint32_t explain_memory_items(struct arena *a, const struct cost *c, const struct estimate *e,
                              struct explain_item *out);

/* Whole multiples of `unit` that add up to the total's nearest multiple: each value is rounded down, and what
 * is missing goes to the largest remainders (Hamilton's method).  Returns that total. */
int64_t explain_round(const double *value, uint32_t n, double unit, int64_t *out);
/* a unit for figures of this size: four digits of the total; name: "s", "ms", "us"; decimals: digits behind
 * the point */
struct explain_unit {
    const char *name;
    double step, per_name; /* seconds or bytes: of the last digit, of one `name` */
    int decimals;
};
struct explain_unit explain_unit_seconds(double total_s);
struct explain_unit explain_unit_bytes(double total_bytes);

#endif
