#ifndef LLMC_EXPLAIN_ITEMS_H
#define LLMC_EXPLAIN_ITEMS_H

/* A candidate's step time and memory as named items that add up, for `llmc estimate` and `llmc explain`. */

#include "compiler/cost/cost.h"

struct explain_item {
    const char *key, *name; /* key: for JSON, with its unit; name: for people */
    double value;           /* seconds or bytes, never negative */
    const char *meaning;    /* what it is */
    const char *how;        /* what determines it, in a few words; "": nothing to say */
    const char *detail;     /* of its largest transfer: algorithm or measured curve, rate and latency; "": none */
};
#define EXPLAIN_ITEMS 24

/* Items of the whole step, in its order, and of the fullest stage, by size; `how` is filled in only with c, the cost
 * of exactly that decision.  Return the number of items; texts live in the arena or are static. */
uint32_t explain_time_items(struct arena *a, const struct cost *c, const struct estimate *e, struct explain_item *out);
uint32_t explain_memory_items(struct arena *a, const struct cost *c, const struct estimate *e,
                              struct explain_item *out);

/* Rounds values to integer multiples of `unit` that add up to the nearest multiple of their total: each is rounded
 * down, and what is missing goes to the largest remainders (Hamilton's method).  Returns that total. */
int64_t explain_round(const double *value, uint32_t n, double unit, int64_t *out);
/* A unit for figures of this size, so that the total has four digits; name: "s", "ms", "us"; decimals: digits after
 * the decimal point. */
struct explain_unit {
    const char *name;
    double step, per_name; /* in seconds or bytes: the value of the last digit; of one `name` */
    int decimals;
};
struct explain_unit explain_unit_seconds(double total_s);
struct explain_unit explain_unit_bytes(double total_bytes);

#endif
