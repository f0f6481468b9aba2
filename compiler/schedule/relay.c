/* What stages hand to each other: their times and transfers, and the state at the beginning of a step. */

#include "compiler/schedule/relay.h"

#include <string.h>

struct relay *relay_new(struct arena *a, struct relay_stage *stages, uint32_t n, uint32_t nranks, uint32_t microbatches,
                        struct cost_pairs *pairs)
{
    struct relay *x = ARENA_NEW(a, struct relay);
    size_t cells = (size_t)n * microbatches;
    *x = (struct relay){.n = n, .m = microbatches, .stage = stages, .pairs = pairs};
    x->forward_in = ARENA_ARRAY(a, double, cells);
    x->backward_in = ARENA_ARRAY(a, double, cells);
    x->next_free = ARENA_ARRAY(a, double, n);
    x->back_free = ARENA_ARRAY(a, double, n);
    x->stack = ARENA_ARRAY(a, uint32_t, nranks);
    x->stacked = ARENA_ARRAY(a, bool, nranks);
    return x;
}

void relay_stage_times(struct relay_stage *st, const struct pipeline_times *times, uint32_t stage, bool sends,
                       bool sends_back)
{
    const struct pipeline_stage *from = &times->stages[stage];
    st->forward_held = sends ? times->held * from->next_s : 0;
    st->backward_held = sends_back ? times->held * from->back_s : 0;
    st->forward_hidden = from->forward_hidden_s;
    st->backward_hidden = from->backward_hidden_s;
    st->takes[RELAY_F] = from->forward_s + st->forward_held;
    st->takes[RELAY_I] = from->input_s + st->backward_held;
    st->takes[RELAY_W] = from->weight_s;
    st->takes[RELAY_B] = from->backward_s + st->backward_held;
    st->next_s = sends ? (1 - times->held) * from->next_s : 0;
    st->back_s = sends_back ? (1 - times->held) * from->back_s : 0;
    st->lead_s = from->lead_s;
    st->stage = stage;
}

void relay_begin(struct relay *x)
{
    for (uint32_t s = 0; s < x->n; s++) {
        double *in = x->forward_in + (size_t)s * x->m, begin = x->stage[s].back == NONE ? 0 : RELAY_NOT_YET;
        for (uint32_t k = 0; k < x->m; k++)
            in[k] = begin;
    }
    for (size_t k = 0; k < (size_t)x->n * x->m; k++)
        x->backward_in[k] = RELAY_NOT_YET;
}

void relay_free_channels(struct relay *x)
{
    memset(x->next_free, 0, x->n * sizeof *x->next_free);
    memset(x->back_free, 0, x->n * sizeof *x->back_free);
}
