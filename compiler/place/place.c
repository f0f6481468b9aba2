/* Placement: host memory, then buffers that outlive the step, then step buffers, which may share bytes where lives.c
 * allows it.
 *
 * The slots of a ring are live at different times, so they can be placed one by one.  That matters for schedules
 * whose rings are not full at the same time (the rings for W of a zero-bubble schedule fill while those for I
 * drain).  But a ring stays in one piece where that costs little, since such a program is shorter and easier to
 * read.
 *
 * Where the arena still ends well above the most bytes that may be live at a time, the lives of a part get offsets
 * of their own, too.  Parts conflict if any of their lives do, so three buffers of which every two are live together
 * at some time need three places, while their lives may need only two.  Cost: lives.c, conflicts.c and pack.c, for
 * each granularity that is tried. */

#include "compiler/place/place_private.h"

#include "compiler/support/parallel.h"

#include <string.h>

/* a finer granularity is used if it saves more than 1/WORTH of the arena; lives are tried one by one if MUCH times
 * that may be saved */
enum { WORTH = 200, MUCH = 2 };

/* Most bytes live at a time, on the clock of the compute queue; sure: counting only the times at which a life is
 * live in every run. */
static uint64_t most_live(struct arena *a, const struct lives *l, bool sure)
{
    uint32_t length = l->length + 2;
    struct arena_mark mark = arena_mark(a);
    uint64_t *gain = ARENA_ARRAY(a, uint64_t, length + 1u), live = 0, most = 0; /* unsigned differences wrap around */
    uint32_t past = 0;
    for (uint32_t i = 0; i < l->nlives; i++) {
        const struct life *x = &l->lives[i];
        uint64_t bytes = place_align(l->parts[x->part].bytes);
        uint32_t from = sure ? x->sure_lo : x->lo, to = sure ? x->sure_end : x->hi + 1;
        past = i && x->part == x[-1].part ? past : 0; /* lives of one part may overlap on the clock */
        from = from > past ? from : past;
        if (from >= to)
            continue;
        gain[from] += bytes;
        gain[to] -= bytes;
        past = to;
    }
    for (uint32_t t = 0; t < length; t++) {
        live += gain[t];
        most = live > most ? live : most;
    }
    arena_reset(a, mark);
    return most;
}

/* result of packing at one granularity: items, their offsets, and the end of the last one */
struct packing {
    const struct items *items;
    uint64_t *offset, top;
};

static struct packing pack(struct arena *a, const struct lives *l, const struct items *items, bool thorough,
                           uint64_t bound, uint64_t enough)
{
    struct packing x = {items, ARENA_ARRAY(a, uint64_t, items->n + 1u), 0};
    x.top = place_pack(a, place_conflicts(a, l, items), items, thorough, bound, enough, x.offset);
    return x;
}

/* Host memory comes first, where both programs of a rank expect it; returns its end. */
static uint64_t place_host(struct program *p)
{
    uint64_t top = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (p->buffers[b].host) {
            p->buffers[b].offset = top;
            top = place_align(top + p->buffers[b].bytes);
        }
    return top;
}

static uint64_t place_kept(struct program *p, uint64_t top)
{
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (!p->buffers[b].host && p->buffers[b].kind != BUFFER_STEP) {
            p->buffers[b].offset = top;
            top = place_align(top + p->buffers[b].bytes);
        }
    return top;
}

/* A program on its way.  Whatever may be live at the same time conflicts, so no packing of its step buffers takes less
 * than `bound` bytes.  Arenas begin with host memory, which is compared with nothing: other sizes are of the device's
 * part alone. */
struct placing {
    struct arena *arena; /* of everything that is needed only while it is placed */
    struct program *program;
    const struct lives *lives;
    uint64_t host, floor; /* bytes; floor: end of host memory and kept buffers */
    uint64_t bound;
    struct packing best;
    bool whole, tight; /* best: of whole buffers; has been tried with lives one by one */
};

static uint64_t device_bytes(const struct placing *x, uint64_t step)
{
    return x->floor - x->host + step;
}

static void begin(struct placing *x)
{
    struct program *p = x->program;
    p->nplaces = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        p->buffers[b].scattered = false;
    uint64_t own = place_host(p);
    x->floor = place_kept(p, own > x->host ? own : x->host);
    x->lives = place_lives(x->arena, p);
    x->bound = most_live(x->arena, x->lives, false);
}

/* Packs at a finer granularity, where the program takes more than `enough` bytes and that may save something. */
static void refine(struct placing *x, bool lives, uint64_t enough)
{
    struct arena *a = x->arena;
    uint64_t worth = (x->floor + x->best.top) / WORTH, top = x->best.top;
    enough = enough > device_bytes(x, 0) ? enough - device_bytes(x, 0) : 0;
    if (top <= enough || top - x->bound <= (lives ? MUCH * worth : worth))
        return;
    uint64_t want = enough < top - worth ? enough : top - worth - 1;
    struct packing finer = pack(a, x->lives,
                                lives ? place_lives_apart(a, x->lives, x->bound) : place_parts_apart(a, x->lives),
                                lives, x->bound, want);
    if (finer.top >= top || top - finer.top <= worth)
        return;
    x->best = finer;
    x->whole = false;
}

static void loosely(struct placing *x, uint64_t enough)
{
    const struct items *whole = place_buffers_whole(x->arena, x->lives, x->program);
    uint64_t step = enough > device_bytes(x, 0) ? enough - device_bytes(x, 0) : 0;
    x->best = pack(x->arena, x->lives, whole, false, x->bound, step);
    x->whole = true;
    refine(x, false, enough);
}

static void tightly(struct placing *x, uint64_t enough)
{
    refine(x, true, enough);
    x->tight = true;
}

static void settle(const struct placing *x)
{
    if (x->whole)
        place_settle_buffers(x->program, x->lives, x->best.offset, x->floor);
    else
        place_settle_lives(x->arena, x->program, x->lives, x->best.items, x->best.offset, x->floor);
    x->program->arena_bytes = x->floor + x->best.top;
}

void place_program(struct arena *a, struct program *p, uint64_t host_bytes)
{
    struct arena_mark mark = arena_mark(a);
    struct placing x = {.arena = a, .program = p, .host = host_bytes};
    begin(&x);
    loosely(&x, 0);
    tightly(&x, 0);
    settle(&x);
    arena_reset(a, mark);
}

/* ---- all programs of a plan ---- */

struct placings {
    struct placing *at, **some;
    enum place_for purpose;
    uint64_t least; /* bytes that the fullest program needs at least */
};

static void begin_one(void *context, uint32_t i)
{
    struct placings *all = context;
    all->at[i].arena = arena_new();
    begin(&all->at[i]);
}

static void loosely_one(void *context, uint32_t i)
{
    struct placings *all = context;
    loosely(&all->at[i], all->purpose == PLACE_FOR_PEAK ? all->least : 0);
}

static void tightly_one(void *context, uint32_t i)
{
    struct placings *all = context;
    tightly(all->some[i], all->least);
}

static void settle_one(void *context, uint32_t i)
{
    struct placings *all = context;
    settle(&all->at[i]);
    arena_free(all->at[i].arena);
}

/* Lists the programs that take most, if that is more than the least; returns how many they are. */
static uint32_t find_fullest(struct placings *all, uint32_t n)
{
    uint64_t most = all->least;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct placing *x = &all->at[i];
        uint64_t bytes = device_bytes(x, x->best.top);
        if (bytes > most)
            count = 0;
        else if (bytes < most || !count)
            continue;
        most = bytes;
        all->some[count++] = x;
    }
    return count;
}

static bool any_tight(struct placing *const *x, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        any |= x[i]->tight;
    return any;
}

void place_roles(struct arena *a, struct program *const *train, struct program *const *eval, uint32_t nroles,
                 enum place_for purpose)
{
    struct arena_mark mark = arena_mark(a);
    struct placings all = {ARENA_ARRAY(a, struct placing, 2 * (size_t)nroles),
                           ARENA_ARRAY(a, struct placing *, 2 * (size_t)nroles), purpose, 0};
    uint32_t n = 0;
    for (uint32_t r = 0; r < nroles; r++) {
        uint64_t host = place_host(train[r]);
        all.at[n++] = (struct placing){.program = train[r], .host = host};
        if (eval && eval[r])
            all.at[n++] = (struct placing){.program = eval[r], .host = host};
    }
    parallel_each(n, begin_one, &all);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = device_bytes(&all.at[i], all.at[i].bound);
        all.least = bytes > all.least ? bytes : all.least;
    }
    parallel_each(n, loosely_one, &all);
    for (uint32_t fullest; (fullest = find_fullest(&all, n)) && !any_tight(all.some, fullest);)
        parallel_each(fullest, tightly_one, &all);
    parallel_each(n, settle_one, &all);
    arena_reset(a, mark);
}

struct place_peak place_peak(struct arena *a, const struct program *p)
{
    struct arena_mark mark = arena_mark(a);
    const struct lives *l = place_lives(a, p);
    uint64_t kept = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (!p->buffers[b].host && p->buffers[b].kind != BUFFER_STEP)
            kept += place_align(p->buffers[b].bytes);
    struct place_peak peak = {kept + most_live(a, l, true), kept + most_live(a, l, false)};
    arena_reset(a, mark);
    return peak;
}
