/* Making a transition: which rank of it is what in both plans, then moves, then programs. */

#include "compiler/transition/moves.h"

#include "runtime/hash.h"

#include <stdlib.h>
#include <string.h>

void transition_hash(const struct plan *p, char out[65])
{
    *out = 0;
    for (uint32_t i = 0; i < p->nfiles; i++)
        if (!strcmp(p->files[i].name, "MANIFEST"))
            hash_sha256(p->files[i].bytes, p->files[i].size, out);
}

uint64_t transition_arena(const struct plan *p, uint32_t rank)
{
    uint32_t role = p->ranks->ranks[rank].role;
    uint64_t train = p->train[role]->arena_bytes, eval = p->eval[role] ? p->eval[role]->arena_bytes : 0,
             most = train > eval ? train : eval;
    return (most + 255) / 256 * 256;
}

/* where a rank of either plan is, on the nodes of the old one */
struct place {
    uint32_t node, gpu, rank;
    bool old;
};
static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->gpu != y->gpu)
        return x->gpu < y->gpu ? -1 : 1;
    return (int)y->old - (int)x->old;
}

static void seat_ranks(struct arena *a, struct transition *t)
{
    const struct ranks *from = t->from->ranks, *to = t->to->ranks;
    uint32_t n = 0, nseats = 0;
    struct place *place = ARENA_ARRAY(a, struct place, from->nranks + to->nranks + 1);
    for (uint32_t r = 0; r < from->nranks; r++)
        if (from->ranks[r].node != t->lost)
            place[n++] = (struct place){from->ranks[r].node, from->ranks[r].gpu, r, true};
    for (uint32_t r = 0; r < to->nranks; r++) {
        uint32_t node = to->ranks[r].node;
        node += t->lost != NONE && node >= t->lost;
        place[n++] = (struct place){node, to->ranks[r].gpu, r, false};
    }
    qsort(place, n, sizeof *place, by_place);
    t->seats = ARENA_ARRAY(a, struct seat, n + 1);
    t->ranks = ranks_new(n, 1, 0, 0);
    for (uint32_t i = 0; i < n; i++) {
        bool same = i && place[i].node == place[i - 1].node && place[i].gpu == place[i - 1].gpu;
        struct seat *s = &t->seats[same ? nseats - 1 : nseats];
        if (!same) {
            *s = (struct seat){NONE, NONE, 0};
            t->ranks->ranks[nseats++] = (struct rank_info){0, place[i].node, place[i].gpu, 0};
        }
        *(place[i].old ? &s->from : &s->to) = place[i].rank;
        if (place[i].old)
            s->base = transition_arena(t->from, place[i].rank);
    }
    t->ranks->nranks = nseats;
}

enum status transition_make(struct arena *a, const struct plan *from, const struct plan *to, uint32_t lost,
                            struct transition **out, struct error *error)
{
    struct transition *t = *out = ARENA_NEW(a, struct transition);
    struct plan_state state[2];
    uint32_t ntensors;
    *t = (struct transition){.from = from, .to = to, .lost = lost};
    transition_hash(from, t->from_hash);
    transition_hash(to, t->to_hash);
    TRY(state_read(a, from, to, state, &ntensors, error));
    seat_ranks(a, t);
    struct arena *scratch = arena_new();
    struct move_list *moves = ARENA_ARRAY(scratch, struct move_list, t->ranks->nranks + 1);
    enum status s = moves_find(scratch, t, state, ntensors, moves, error);
    s = s == STATUS_OK ? moves_lower(a, t, state, moves, error) : s;
    arena_free(scratch);
    return s;
}

void transition_close(struct transition *t)
{
    if (!t)
        return;
    ranks_free(t->ranks);
    for (uint32_t i = 0; t->programs && i < t->nroles; i++)
        program_free(t->programs[i]);
}
