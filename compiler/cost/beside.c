/* Memory of two actions that run together: the steps of their stages' blocks (lives_levels.c), one after the other as
 * lower_pair() of compiler/lower/lower.c has them: next comes the one of the pass that is behind by its share of time.  While a step
 * runs, the other pass lies between two of its own.
 *
 * Linear in steps, some nanoseconds each; what a pair of stages comes to is remembered. */

#include "compiler/cost/moments.h"

#include "compiler/cost/cost_private.h"

#include <math.h>

/* a pass over a stage's blocks */
struct side {
    const struct moments_stage *stage;
    const struct cost_levels *levels; /* of the block; NULL: behind all of them */
    uint32_t run, at;                 /* at: the next of its steps */
    double left;                      /* blocks of the run behind this one */
    double kept;                      /* of blocks in front of it, and what it finds besides */
    double now;                       /* bytes between two steps */
    double done, share;               /* of its seconds; reciprocal of all of them */
};

static void begin_block(struct side *x, bool back)
{
    const struct moments_run *r = &x->stage->runs[x->run];
    x->levels = &r->lives->levels[back];
    x->at = 0;
}

/* of a pass that goes front to back or, `back`, back to front */
static struct side new_side(const struct moments_stage *s, bool back)
{
    struct side x = {.stage = s};
    double all_s = 0;
    for (uint32_t k = 0; k < s->nruns; k++)
        all_s += s->runs[k].times * s->runs[k].lives->levels[back].all_s;
    x.share = all_s > 0 ? 1 / all_s : 0;
    x.run = back ? s->nruns - 1 : 0;
    if (!s->nruns)
        return x;
    const struct moments_run *r = &s->runs[x.run];
    x.left = r->times - 1;
    x.kept = (back ? s->keep - r->keep : 0) + r->places;
    begin_block(&x, back);
    x.now = x.kept + x.levels->front;
    return x;
}

/* to the next block; false: there is none */
static bool next_block(struct side *x, bool back)
{
    const struct moments_run *r = &x->stage->runs[x->run];
    x->kept += back ? 0 : r->keep;
    if (x->left >= 1) {
        x->left--;
        x->kept -= back ? r->keep : 0;
    } else if (back ? x->run == 0 : x->run + 1 == x->stage->nruns) {
        x->levels = NULL;
        return false;
    } else {
        x->run = back ? x->run - 1 : x->run + 1;
        const struct moments_run *next = &x->stage->runs[x->run];
        x->left = next->times - 1;
        x->kept += next->places - r->places - (back ? next->keep : 0);
    }
    begin_block(x, back);
    return true;
}

/* the next step; returns bytes while it runs */
static double take(struct side *x)
{
    const struct cost_level *step = &x->levels->at[x->at++];
    x->now = x->kept + (double)step->behind;
    x->done += (double)step->seconds * x->share;
    return x->kept + (double)step->during;
}

static bool is_over(const struct side *x)
{
    return x->at >= x->levels->n;
}

static void note(double *most, double bytes)
{
    *most = bytes > *most ? bytes : *most;
}

static double *phase_of(struct moments_backward *b, uint32_t phase)
{
    return phase == 0 ? &b->begin : phase == 1 ? &b->made : &b->used;
}

/* the most of a pair while each of the backward pass's runs of blocks comes, in its last block and in those in front of it */
struct pair {
    struct moments_backward run[MOMENTS_RUNS][2];
};

static void run_together(const struct moments_stage *f, const struct moments_stage *b, struct pair *out)
{
    struct side x = new_side(f, false), y = new_side(b, true);
    for (uint32_t k = 0; k < b->nruns; k++)
        out->run[k][0] = out->run[k][1] = (struct moments_backward){-INFINITY, -INFINITY, -INFINITY};
    bool last = true;
    double *most = y.levels ? phase_of(&out->run[y.run][1], 0) : NULL;
    while (y.levels) {
        if (x.levels && x.done <= y.done) {
            double bytes = take(&x);
            note(most, bytes + y.now);
            if (is_over(&x))
                next_block(&x, false);
            continue;
        }
        most = phase_of(&out->run[y.run][last], y.levels->at[y.at].phase);
        double bytes = take(&y);
        note(most, bytes + x.now);
        if (!is_over(&y))
            continue;
        const struct moments_run *r = &b->runs[y.run];
        if (r->end > 0)
            note(most, y.kept - r->places + r->end + x.now);
        uint32_t run = y.run;
        last = next_block(&y, true) && y.run != run;
        most = y.levels ? phase_of(&out->run[y.run][last], 0) : most;
    }
    while (x.levels && most) {
        note(most, take(&x) + y.now);
        if (is_over(&x))
            next_block(&x, false);
    }
}

/* pairs of stages that have been asked for last, by their marks: the most of all; of those that are to make first gradients, in
 * parts */
#define PAIRS 4096
#define FIRST_PAIRS 512
struct moments_pairs {
    struct {
        uint64_t mark;
        double bytes;
    } all[PAIRS];
    struct {
        uint64_t mark;
        struct pair pair;
    } first[FIRST_PAIRS];
};

struct moments_pairs *moments_pairs_new(struct arena *a)
{
    return ARENA_NEW(a, struct moments_pairs);
}

static double most_of(const struct pair *x, const struct moments_stage *b, bool first)
{
    double most = 0, behind = 0; /* gradients of blocks behind the one that is looked at */
    for (uint32_t k = b->nruns; k-- > 0;) {
        const struct moments_run *r = &b->runs[k];
        for (int last = 1; last >= 0; last--) {
            const struct moments_backward *m = &x->run[k][last];
            double others = last ? 0 : (r->times - 1) * r->made, own = first ? r->made - r->scattered : 0;
            double made = (m->made > m->used ? m->made : m->used) + own;
            note(&most, (m->begin > made ? m->begin : made) + (first ? behind + others : 0));
        }
        behind += r->times * r->made;
    }
    return most;
}

static double most_new(const struct moments_stage *f, const struct moments_stage *b)
{
    struct pair own;
    run_together(f, b, &own);
    return most_of(&own, b, false);
}

double moments_beside(struct moments_pairs *known, const struct moments_stage *f, const struct moments_stage *b, bool first)
{
    uint64_t mark = f->mark * 3 + b->mark;
    if (!first && !known)
        return most_new(f, b);
    if (!first) {
        uint64_t i = mark % PAIRS;
        if (known->all[i].mark != mark) {
            known->all[i].mark = mark;
            known->all[i].bytes = most_new(f, b);
        }
        return known->all[i].bytes;
    }
    struct pair own, *x = known ? &known->first[mark % FIRST_PAIRS].pair : &own;
    if (!known || known->first[mark % FIRST_PAIRS].mark != mark)
        run_together(f, b, x);
    if (known)
        known->first[mark % FIRST_PAIRS].mark = mark;
    return most_of(x, b, true);
}
