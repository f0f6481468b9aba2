#ifndef LLMC_ROUTING_H
#define LLMC_ROUTING_H

/* The experts that every token of every step chose, as a file that all ranks map.  Layouts round differently, and
 * where two experts' scores are nearly equal that decides which one is taken.  A run can record its choices, use
 * those of another run, or count how often its own differ, and by what margin.
 *
 * The file: magic, layers, choices per token, tokens per sample, experts (32 bits each; the maximum where layers
 * differ), samples (64 bits); then 16-bit expert numbers by layer, sample since the first step, position in it, and
 * choice; 65535 = not recorded. */

#include "runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum routing_use { ROUTING_NONE, ROUTING_SAVE, ROUTING_REPLAY, ROUTING_COMPARE };
struct routing_shape {
    uint32_t layers, choices, sequence, experts;
    uint64_t samples;
};
struct routing {
    enum routing_use use;
    struct routing_shape shape;
    uint8_t *map;
    size_t bytes;
    uint64_t compared, flips; /* numbers of tokens, of this process */
    double margin;            /* the largest margin of a differing choice */
};

/* SAVE makes the file; the others need one of the same shape with as many samples or more.  Before ranks are started.
 */
enum status routing_open(struct routing *r, enum routing_use use, const char *path, const struct routing_shape *shape,
                         struct error *error);
void routing_close(struct routing *r);
/* a token's recorded choices, `choices` of them, of which a layer's router may use fewer; NULL: out of range */
uint16_t *routing_at(const struct routing *r, int64_t layer, uint64_t sample, uint64_t place);
/* Records, replaces or compares a router's n choices for a token; value: `experts` scores that it chose by.  May
 * replace `chosen`. */
void routing_token(struct routing *r, uint16_t *at, int32_t *chosen, uint32_t n, const float *value, uint32_t experts);

#endif
