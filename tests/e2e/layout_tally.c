/* Counting drawn layouts by dimension. */

#include "tests/e2e/tally.h"

#include "compiler/schedule/schedule.h"

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

static void degrees(struct tally *t, const struct decision *d, const struct traits *x)
{
    uint32_t ranks = d->tp * d->cp * d->pp * d->dp;
    tally_row(t, "ranks", "2 to 4", ranks <= 4);
    tally_row(t, "ranks", "5 to 8", ranks > 4 && ranks <= 8);
    tally_row(t, "ranks", "9 to 16", ranks > 8);
    TALLY_NUMBER(t, "tp", d->tp, 1, 2, 4);
    tally_row(t, "tp", "with sp", d->sp);
    tally_row(t, "tp", "without sp", d->tp > 1 && !d->sp);
    TALLY_NUMBER(t, "cp", d->cp, 1, 2, 4);
    tally_row(t, "cp", "ring", d->cp > 1 && d->context == CONTEXT_RING);
    tally_row(t, "cp", "all_gather", d->cp > 1 && d->context == CONTEXT_ALL_GATHER);
    tally_row(t, "cp", "all_to_all", d->cp > 1 && d->context == CONTEXT_ALL_TO_ALL);
    TALLY_NUMBER(t, "pp", d->pp, 1, 2, 3, 4);
    TALLY_NUMBER(t, "dp", d->dp, 1, 2, 3, 4, 8);
    TALLY_NUMBER(t, "ep", x->experts ? d->ep : 0, 1, 2, 4, 8);
    TALLY_NUMBER(t, "ep over nodes", x->experts ? d->ep_nodes : 0, 1, 2, 4);
    TALLY_NUMBER(t, "etp", x->experts ? d->etp : 0, 1, 2);
    uint32_t above = (d->tp > 1 ? 1u : 0) + (d->cp > 1) + (d->pp > 1) + (d->dp > 1);
    TALLY_NUMBER(t, "of tp cp pp dp above 1", above, 1, 2, 3, 4);
    tally_row(t, "of tp cp pp dp above 1", "and ep", above == 4 && d->ep > 1);
    TALLY_NUMBER(t, "microbatch", d->microbatch, 1, 2, 3);
    bool tp_cp = d->order[0] == AXIS_TP && d->order[1] == AXIS_CP,
         cp_tp = d->order[0] == AXIS_CP && d->order[1] == AXIS_TP;
    tally_row(t, "order", "tp cp dp pp", tp_cp && d->order[2] == AXIS_DP);
    tally_row(t, "order", "tp cp pp dp", tp_cp && d->order[2] == AXIS_PP);
    tally_row(t, "order", "cp tp dp pp", cp_tp && d->order[2] == AXIS_DP);
    tally_row(t, "order", "another", !(tp_cp || (cp_tp && d->order[2] == AXIS_DP)));
}

static void sharding(struct tally *t, const struct job *job, const struct decision *d)
{
    bool part = d->shard > 1 && d->shard<d->dp * d->cp, split = d->shard> 1;
    TALLY_NUMBER(t, "zero", d->zero && !split ? UINT32_MAX : d->zero, 0, 1, 2, 3);
    tally_row(t, "zero", "1 over a part", d->zero == 1 && part);
    tally_row(t, "zero", "2 over a part", d->zero == 2 && part);
    tally_row(t, "zero", "3 over a part", d->zero == 3 && part);
    tally_row(t, "prefetch", "as llmc chooses", d->zero == 3 && split && !d->prefetch);
    TALLY_NUMBER(t, "prefetch", split ? d->prefetch : 0, 1, 2, 3);
    tally_row(t, "offload", "optimizer", job->wishes.offload & OFFLOAD_OPTIMIZER);
    tally_row(t, "offload", "activations", job->wishes.offload & OFFLOAD_ACTIVATIONS);
    tally_row(t, "overlap", "tp, sp", decision_cuts(job, d) > 1 && d->sp);
    tally_row(t, "overlap", "tp", decision_cuts(job, d) > 1 && !d->sp);
    tally_row(t, "never overlap", "cp (ring)",
              job->wishes.never_overlap & OVERLAP_CP && d->cp > 1 && d->context == CONTEXT_RING);
    tally_row(t, "never overlap", "tp", job->wishes.never_overlap & OVERLAP_TP && d->tp > 1);
    tally_row(t, "never overlap", "all_to_all", job->wishes.never_overlap & OVERLAP_ALL_TO_ALL && d->ep > 1);
    tally_row(t, "never overlap", "dp", job->wishes.never_overlap & OVERLAP_DP && d->dp * d->cp > 1);
}

static void pipeline(struct tally *t, const struct job *job, const struct decision *d)
{
    bool uneven = false, empty = false, files = d->schedule == SCHED_FILE;
    for (uint32_t s = 0; s < d->nstages; s++) {
        uneven |= d->stages[s].count != d->stages[0].count;
        empty |= !d->stages[s].count;
    }
    TALLY_NUMBER(t, "vpp", d->vpp, 1, 2, 3);
    tally_row(t, "stages", "uneven", uneven);
    tally_row(t, "stages", "uneven, vpp > 1", uneven && d->vpp > 1);
    tally_row(t, "stages", "one without layers", empty);
    for (int k = 0; k < NSCHEDULES; k++)
        tally_row(t, "schedule", k == SCHED_FILE ? "from a file" : schedule_name((enum schedule_kind)k),
                  d->pp > 1 && d->schedule == (enum schedule_kind)k);
    tally_row(t, "schedule", "of a file, folded", files && d->folds);
    tally_row(t, "schedule", "wider groups", d->schedule_group > d->pp);
    tally_row(t, "schedule", "post-validated", decision_skews(job, d));
}

static void recomputation(struct tally *t, const struct decision *d, const struct traits *x)
{
    const bool there[8] = {true, true, x->latent, x->dense, x->dense, x->experts, x->experts, x->shared};
    uint32_t spared = 0;
    for (uint32_t s = 0; s < d->nstages; s++)
        spared += d->stages[s].spared;
    tally_row(t, "recompute", "none", d->recompute == RECOMPUTE_NONE);
    tally_row(t, "recompute", "full", d->recompute == RECOMPUTE_FULL && !spared);
    tally_row(t, "recompute", "full(layers=N)", d->recompute == RECOMPUTE_FULL && d->recompute_layers);
    tally_row(t, "recompute", "some layers",
              d->recompute == RECOMPUTE_FULL && spared && !d->recompute_layers);
    for (int i = 0; i < 8; i++)
        tally_row(t, "recompute part", recompute_part_names[i],
                  d->recompute == RECOMPUTE_SELECTIVE && d->parts & 1u << i && there[i]);
    tally_row(t, "recompute part", "one alone",
              d->recompute == RECOMPUTE_SELECTIVE && !(d->parts & (d->parts - 1)));
}

void tally_layout(struct tally *t, const struct job *job, const struct decision *d)
{
    struct traits traits = job_traits(job);
    tally_item(t);
    degrees(t, d, &traits);
    sharding(t, job, d);
    pipeline(t, job, d);
    recomputation(t, d, &traits);
}
