/* Results are words between two increments of a number that is odd while they are written; lines are a ring with one
 * writer and one reader. */

#include "runtime/told.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct log_step) == TOLD_WORDS * sizeof(uint64_t), "world_control has room for it");

void told_step(const struct world *w, const struct log_step *s)
{
    struct world_control *c = w->control;
    uint64_t words[TOLD_WORDS];
    memcpy(words, s, sizeof words);
    uint32_t turn = atomic_load(&c->told_turn);
    atomic_store(&c->told_turn, turn + 1);
    atomic_thread_fence(memory_order_release);
    for (uint32_t i = 0; i < TOLD_WORDS; i++)
        atomic_store_explicit(&c->told[i], words[i], memory_order_relaxed);
    atomic_store(&c->told_turn, turn + 2);
}

bool told_read(const struct world *w, struct log_step *out)
{
    struct world_control *c = w->control;
    uint64_t words[TOLD_WORDS];
    uint32_t turn = atomic_load(&c->told_turn);
    for (uint32_t i = 0; i < TOLD_WORDS; i++)
        words[i] = atomic_load_explicit(&c->told[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    if (!turn || turn % 2 || atomic_load(&c->told_turn) != turn)
        return false;
    memcpy(out, words, sizeof words);
    return true;
}

void told_say(const struct world *w, const char *line)
{
    struct world_control *c = w->control;
    uint32_t n = atomic_load(&c->lines_said);
    if (n - atomic_load(&c->lines_heard) == TOLD_LINES) {
        fprintf(stderr, "%s\n", line);
        return;
    }
    snprintf(c->line[n % TOLD_LINES], TOLD_LINE, "%s", line);
    atomic_store(&c->lines_said, n + 1);
}

bool told_hear(const struct world *w, char out[TOLD_LINE])
{
    struct world_control *c = w->control;
    uint32_t n = atomic_load(&c->lines_heard);
    if (n == atomic_load(&c->lines_said))
        return false;
    snprintf(out, TOLD_LINE, "%s", c->line[n % TOLD_LINES]);
    atomic_store(&c->lines_heard, n + 1);
    return true;
}
