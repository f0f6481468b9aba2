/* Counting drawn layouts by dimension.  One function names every value in turn and says whether the layout
 * has it; it runs once with nothing counted to print the names. */

#include "tests/e2e/layout_tally.h"

#include "compiler/schedule/schedule.h"

#include <stdio.h>
#include <string.h>

/* where the rows go: counted, or named */
struct rows {
    struct layout_tally *tally; /* NULL: names are wanted */
    const char **dimension;
    char (*name)[32];
    uint32_t n;
};

struct traits {
    bool dense, experts, latent, shared;
};

static struct traits job_traits(const struct job *job)
{
    struct traits t = {0};
    for (uint32_t i = 0; i < job->model.nlayers; i++) {
        const struct layer *l = job->model.layers[i];
        t.dense |= !l->is_moe;
        t.experts |= l->is_moe;
        t.latent |= l->attn.kind == ATTN_MLA;
        t.shared |= l->is_moe && l->moe.shared;
    }
    return t;
}

static void row(struct rows *r, const char *dimension, const char *name, bool has)
{
    if (r->n >= TALLY_ROWS)
        return;
    if (r->tally)
        r->tally->count[r->n] += has;
    else {
        r->dimension[r->n] = dimension;
        snprintf(r->name[r->n], sizeof r->name[0], "%s", name);
    }
    r->n++;
}

static void degree(struct rows *r, const char *dimension, const uint32_t *values, uint32_t n, uint32_t value)
{
    for (uint32_t i = 0; i < n; i++) {
        char name[12];
        snprintf(name, sizeof name, "%u", values[i]);
        row(r, dimension, name, values[i] == value);
    }
}
#define DEGREE(r, dimension, value, ...)                                                                     \
    degree(r, dimension, (const uint32_t[]){__VA_ARGS__},                                                    \
           sizeof(uint32_t[]){__VA_ARGS__} / sizeof(uint32_t), value)

static void degrees(struct rows *r, const struct decision *d, const struct traits *t)
{
    uint32_t ranks = d->tp * d->cp * d->pp * d->dp;
    row(r, "ranks", "2 to 4", ranks <= 4);
    row(r, "ranks", "5 to 8", ranks > 4 && ranks <= 8);
    row(r, "ranks", "9 to 16", ranks > 8);
    DEGREE(r, "tp", d->tp, 1, 2, 4);
    row(r, "tp", "with sp", d->sp);
    row(r, "tp", "without sp", d->tp > 1 && !d->sp);
    DEGREE(r, "cp", d->cp, 1, 2, 4);
    row(r, "cp", "ring", d->cp > 1 && d->context == CONTEXT_RING);
    row(r, "cp", "all_gather", d->cp > 1 && d->context == CONTEXT_ALL_GATHER);
    row(r, "cp", "all_to_all", d->cp > 1 && d->context == CONTEXT_ALL_TO_ALL);
    DEGREE(r, "pp", d->pp, 1, 2, 3, 4);
    DEGREE(r, "dp", d->dp, 1, 2, 3, 4, 8);
    DEGREE(r, "ep", t->experts ? d->ep : 0, 1, 2, 4, 8);
    DEGREE(r, "ep over nodes", t->experts ? d->ep_nodes : 0, 1, 2, 4);
    DEGREE(r, "etp", t->experts ? d->etp : 0, 1, 2);
    uint32_t above = (d->tp > 1 ? 1u : 0) + (d->cp > 1) + (d->pp > 1) + (d->dp > 1);
    DEGREE(r, "of tp cp pp dp above 1", above, 1, 2, 3, 4);
    row(r, "of tp cp pp dp above 1", "and ep", above == 4 && d->ep > 1);
    DEGREE(r, "microbatch", d->microbatch, 1, 2, 3);
    row(r, "order", "tp cp dp pp", d->order[0] == AXIS_TP && d->order[2] == AXIS_DP);
    row(r, "order", "tp cp pp dp", d->order[0] == AXIS_TP && d->order[2] == AXIS_PP);
    row(r, "order", "cp tp dp pp", d->order[0] == AXIS_CP);
}

static void sharding(struct rows *r, const struct job *job, const struct decision *d)
{
    bool part = d->shard > 1 && d->shard<d->dp * d->cp, split = d->shard> 1;
    DEGREE(r, "zero", d->zero && !split ? UINT32_MAX : d->zero, 0, 1, 2, 3);
    row(r, "zero", "1 over a part", d->zero == 1 && part);
    row(r, "zero", "2 over a part", d->zero == 2 && part);
    row(r, "zero", "3 over a part", d->zero == 3 && part);
    row(r, "prefetch", "as llmc chooses", d->zero == 3 && split && !d->prefetch);
    DEGREE(r, "prefetch", split ? d->prefetch : 0, 1, 2, 3);
    row(r, "offload", "optimizer", job->wishes.offload & OFFLOAD_OPTIMIZER);
    row(r, "offload", "activations", job->wishes.offload & OFFLOAD_ACTIVATIONS);
    row(r, "never overlap", "cp (ring)",
        job->wishes.never_overlap & OVERLAP_CP && d->cp > 1 && d->context == CONTEXT_RING);
    row(r, "never overlap", "dp", job->wishes.never_overlap & OVERLAP_DP && d->dp * d->cp > 1);
}

static void pipeline(struct rows *r, const struct job *job, const struct decision *d)
{
    bool uneven = false, empty = false, files = d->schedule == SCHED_FILE;
    for (uint32_t s = 0; s < d->nstages; s++) {
        uneven |= d->stages[s].count != d->stages[0].count;
        empty |= !d->stages[s].count;
    }
    DEGREE(r, "vpp", d->vpp, 1, 2, 3);
    row(r, "stages", "uneven", uneven);
    row(r, "stages", "uneven, vpp > 1", uneven && d->vpp > 1);
    row(r, "stages", "one without layers", empty);
    for (int k = 0; k < NSCHEDULES; k++)
        row(r, "schedule", k == SCHED_FILE ? "from a file" : schedule_name((enum schedule_kind)k),
            d->pp > 1 && d->schedule == (enum schedule_kind)k);
    row(r, "schedule", "of a file, folded", files && d->folds);
    row(r, "schedule", "wider groups", d->schedule_group > d->pp);
    row(r, "schedule", "post-validated", decision_skews(job, d));
}

static void recomputation(struct rows *r, const struct decision *d, const struct traits *t)
{
    const bool there[8] = {true, true, t->latent, t->dense, t->dense, t->experts, t->experts, t->shared};
    uint32_t spared = 0;
    for (uint32_t s = 0; s < d->nstages; s++)
        spared += d->stages[s].spared;
    row(r, "recompute", "none", d->recompute == RECOMPUTE_NONE);
    row(r, "recompute", "full", d->recompute == RECOMPUTE_FULL && !spared);
    row(r, "recompute", "full(layers=N)", d->recompute == RECOMPUTE_FULL && d->recompute_layers);
    row(r, "recompute", "some layers", d->recompute == RECOMPUTE_FULL && spared && !d->recompute_layers);
    for (int i = 0; i < 8; i++)
        row(r, "recompute part", recompute_part_names[i],
            d->recompute == RECOMPUTE_SELECTIVE && d->parts & 1u << i && there[i]);
    row(r, "recompute part", "one alone",
        d->recompute == RECOMPUTE_SELECTIVE && !(d->parts & (d->parts - 1)));
}

static void all_rows(struct rows *r, const struct job *job, const struct decision *d, const struct traits *t)
{
    degrees(r, d, t);
    sharding(r, job, d);
    pipeline(r, job, d);
    recomputation(r, d, t);
}

void tally_layout(struct layout_tally *t, const struct job *job, const struct decision *d)
{
    struct traits traits = job_traits(job);
    struct rows r = {.tally = t};
    all_rows(&r, job, d, &traits);
    t->nrows = r.n;
    t->layouts++;
}

void tally_add(struct layout_tally *to, const struct layout_tally *t)
{
    to->layouts += t->layouts;
    to->nrows = t->nrows ? t->nrows : to->nrows;
    for (uint32_t i = 0; i < t->nrows; i++)
        to->count[i] += t->count[i];
}

static void name_rows(const char **dimension, char (*name)[32])
{
    static const struct job job;
    static const struct decision none;
    struct traits t = {0};
    struct rows r = {.dimension = dimension, .name = name};
    all_rows(&r, &job, &none, &t);
}

void tally_print(const struct layout_tally *t)
{
    const char *dimension[TALLY_ROWS];
    char name[TALLY_ROWS][32];
    name_rows(dimension, name);
    printf("\n    %u layouts, of these with", t->layouts);
    for (uint32_t i = 0, column = 0; i < t->nrows; i++) {
        char text[48];
        if (!i || strcmp(dimension[i], dimension[i - 1])) {
            printf("\n    %-24s", dimension[i]);
            column = 24;
        }
        int n = snprintf(text, sizeof text, "%s: %u", name[i], t->count[i]);
        if (column + (uint32_t)n + 2 > 110) {
            printf("\n    %-24s", "");
            column = 24;
        }
        column += (uint32_t)printf("%s%s", column > 24 ? ", " : "", text);
    }
    printf("\n");
}

uint32_t tally_rare(const struct layout_tally *t, uint32_t least)
{
    const char *dimension[TALLY_ROWS];
    char name[TALLY_ROWS][32];
    uint32_t rare = 0;
    name_rows(dimension, name);
    for (uint32_t i = 0; i < t->nrows; i++)
        if (t->count[i] < least) {
            printf("\n    %s %s occurs %u times", dimension[i], name[i], t->count[i]);
            rare++;
        }
    return rare;
}
