#ifndef LLMC_AUTO_TURNS_H
#define LLMC_AUTO_TURNS_H

/* Which player comes next: a tournament tree over keys.  The least key wins; among equal keys the lower index.
 * Changing a key takes log2(n) steps. */

#include "compiler/support/arena.h"

#include <math.h>
#include <stdint.h>

struct auto_turns {
    double *key; /* by player */
    uint32_t *winner, leaves;
};

static inline void auto_turns_play(struct auto_turns *t, uint32_t node)
{
    uint32_t x = t->winner[2 * node], y = t->winner[2 * node + 1];
    t->winner[node] = t->key[y] < t->key[x] ? y : x;
}

static inline void auto_turns_set(struct auto_turns *t, uint32_t player, double key)
{
    t->key[player] = key;
    for (uint32_t node = (player + t->leaves) / 2; node; node /= 2)
        auto_turns_play(t, node);
}

/* sets the keys of players 0 .. n - 1 to 0 */
static inline void auto_turns_reset(struct auto_turns *t, uint32_t n)
{
    for (uint32_t r = 0; r < t->leaves; r++) {
        t->key[r] = r < n ? 0 : INFINITY;
        t->winner[t->leaves + r] = r;
    }
    for (uint32_t node = t->leaves; node-- > 1;)
        auto_turns_play(t, node);
}

static inline struct auto_turns auto_turns_new(struct arena *a, uint32_t n)
{
    struct auto_turns t = {.leaves = 2};
    while (t.leaves < n)
        t.leaves *= 2;
    t.key = ARENA_ARRAY(a, double, t.leaves);
    t.winner = ARENA_ARRAY(a, uint32_t, 2 * (size_t)t.leaves);
    return t;
}

#endif
