/* A block holds so many rows as one rank can send at most, unless the decision bounds it: then a step that lacks room
 * is not taken.  Over nodes a token's row travels once to each node that has any of its experts. */

#include "compiler/model/expert_rows.h"

#include <math.h>

/* rows of a block of at most `most`, with room over a mean; *bounded: it may be too few */
static uint32_t with_room(double room, double mean, uint64_t most, bool *bounded)
{
    double rows = ceil(room * mean);
    *bounded = room > 0 && rows < (double)most;
    return (uint32_t)(*bounded ? (uint64_t)rows : most);
}

struct expert_rows expert_rows_new(const struct moe *m, uint32_t ep, uint32_t nodes, double room, uint32_t local,
                                   uint32_t sequence)
{
    uint32_t blocks = ep / nodes, experts = m->experts / ep;
    struct expert_rows r = {.blocks = blocks, .experts = experts, .nodes = nodes, .node = local};
    uint64_t each = m->active < experts ? m->active : experts;
    if (m->capacity > 0) {
        uint32_t part = sequence < local ? sequence : local; /* of a sequence that is here */
        uint64_t sequences = local % part ? local / part + 2 : local / part;
        r.capacity = (uint32_t)ceil(m->capacity * part * m->active / m->experts);
        uint64_t rows = sequences * r.capacity * experts; /* of one expert rank */
        r.node = rows * blocks < r.node ? (uint32_t)(rows * blocks) : r.node;
        r.block = (uint32_t)(rows * nodes < nodes * r.node * each ? rows * nodes : nodes * r.node * each);
        return r;
    }
    if (nodes > 1)
        r.node = with_room(room, model_node_rows(m, nodes, local), r.node, &r.node_bounded);
    r.block = with_room(room, (double)local * m->active / blocks, nodes * r.node * each, &r.bounded);
    return r;
}
