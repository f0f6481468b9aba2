/* What decisions need of a software stack.  A row that a decision does not touch, such as the schedule of one rank,
 * needs nothing; bits stand for the words of a row in their order, which is that of the enumerations they are from. */

#include "compiler/model/means.h"

#include "compiler/model/orders.h"

enum { FULL = 256, FIRST_LAYERS = 512, SOME_LAYERS = 1024 }; /* of row recompute, behind the parts */
enum { UNEVEN = 1, EMPTY = 2 };
enum { NO_EP = 1, EP = 2, ETP = 4 };
enum { FOLDED = SCHED_FILE + 1 }; /* of row schedule, behind the kinds */
enum { SHARED_KEYS = 1, CONTEXT_COPIES = 2, EXPERT_COPIES = 4, WHOLE_EXPERTS = 8, PREDICT_MODULES = 16 };
enum { WINDOW = 1, SINKS = 2 }; /* of row attention */
enum { EXPERTS = 1, EXPERTS_ALONE = 2, CAPACITY = 4 };
enum { BF16_MASTER = 1, BF16_MOMENTS = 2, OTHER_REDUCE = 4, FP8_ACTIVATIONS = 8, FP8_DISPATCH = 16 };

uint32_t means_of(const struct job *job, enum target_row row)
{
    return job->wishes.target ? job->wishes.target->has[row] : UINT32_MAX;
}

uint32_t means_setting(const struct job *job, enum target_row row)
{
    const struct wishes *w = &job->wishes;
    uint32_t bit = w->settings ? w->settings[row].bit : 0;
    bool asked = row == TARGET_async_tp && w->overlap & OVERLAP_TP && w->target && w->target->has[row];
    return bit || !asked ? bit : target_bit(row, "yes"); /* `overlap tp with compute` is that stack's switch */
}

uint32_t means_in_force(const struct job *job, enum target_row row)
{
    uint32_t bit = means_setting(job, row);
    return bit || !job->wishes.target ? bit : job->wishes.target->usual[row];
}

/* are the axes that have more than one rank in that order? */
static bool in_order(const struct decision *d, const enum axis *order)
{
    const uint32_t size[NAXES] = {[AXIS_TP] = d->tp, [AXIS_CP] = d->cp, [AXIS_DP] = d->dp, [AXIS_PP] = d->pp};
    uint32_t at = 0;
    for (uint32_t i = 0; i < NAXES; i++) {
        if (size[d->order[i]] == 1)
            continue;
        while (at < NAXES && size[order[at]] == 1)
            at++;
        if (at == NAXES || order[at++] != d->order[i])
            return false;
    }
    return true;
}

enum means_order means_order(const struct decision *d)
{
    static const enum axis late[] = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP},
                           early[] = {AXIS_TP, AXIS_CP, AXIS_PP, AXIS_DP};
    return in_order(d, late) ? MEANS_TP_CP_DP_PP : in_order(d, early) ? MEANS_TP_CP_PP_DP : MEANS_ANOTHER_ORDER;
}

static uint32_t recompute_of(const struct decision *d)
{
    bool spares = false, alike = true;
    uint32_t first = d->nstages ? d->stages[0].count - d->stages[0].spared : 0;
    for (uint32_t s = 0; s < d->nstages; s++) {
        const struct stage *st = &d->stages[s];
        spares |= st->spared > 0;
        alike = alike && st->count - st->spared == (first < st->count ? first : st->count);
    }
    if (d->recompute == RECOMPUTE_FULL)
        return !spares ? FULL : alike ? FIRST_LAYERS : SOME_LAYERS;
    return d->recompute == RECOMPUTE_SELECTIVE ? d->parts | (spares ? SOME_LAYERS : 0) : 0;
}

static uint32_t stages_of(const struct decision *d)
{
    uint32_t bits = 0;
    for (uint32_t s = 0; s < d->nstages; s++) {
        const struct stage *st = &d->stages[s];
        bits |= st->count != d->stages[0].count ? UNEVEN : 0;
        bits |= !st->count && !st->embed && !st->head ? EMPTY : 0;
    }
    return bits;
}

static uint32_t precision_of(const struct train *t)
{
    switch (t->precision) {
    case DT_FP32:
        return 1;
    case DT_BF16:
        return 2;
    case DT_FP16:
        return 4;
    case DT_FP8:
        return 8u << t->recipe;
    }
    return 0;
}

static uint32_t numbers_of(const struct train *t)
{
    return (t->precision != DT_FP32 && t->master != DT_FP32 ? BF16_MASTER : 0) |
           (t->moments == DT_BF16 ? BF16_MOMENTS : 0) | (t->reduce != t->grads ? OTHER_REDUCE : 0) |
           (t->fp8_kept ? FP8_ACTIVATIONS : 0) | (t->fp8_sent ? FP8_DISPATCH : 0);
}

/* what ranks have beside one another, whatever stack they run */
static uint32_t ranks_of(const struct job *job, const struct decision *d)
{
    uint32_t replicas = d->dp * d->cp, parts = d->zero ? d->shard : 1; /* of state, over replicas */
    bool experts = model_has_experts(&job->model);
    return (decision_key_ranks(job, d) > 1 ? SHARED_KEYS : 0) |
           (replicas > 1 && d->cp > 1 && parts % d->cp ? CONTEXT_COPIES : 0) |
           (experts && parts * d->tp % (d->ep * d->etp) ? EXPERT_COPIES : 0) |
           (experts && d->ep == 1 && d->etp != d->tp ? WHOLE_EXPERTS : 0) |
           (job->model.predict && (d->pp > 1 || d->cp > 1) ? PREDICT_MODULES : 0);
}

static uint32_t attention_of(const struct attn *a)
{
    return (a->window ? WINDOW : 0) | (a->sinks ? SINKS : 0);
}

static uint32_t layers_of(const struct model *m)
{
    uint32_t experts = 0, bits = 0;
    for (uint32_t i = 0; i < m->nlayers; i++) {
        experts += m->layers[i]->is_moe;
        bits |= m->layers[i]->is_moe && m->layers[i]->moe.capacity > 0 ? CAPACITY : 0;
    }
    return bits | (experts ? EXPERTS : 0) | (experts && experts == m->nlayers ? EXPERTS_ALONE : 0);
}

/* what the job alone needs: the rows from `offload` on */
static void needs_of_job(const struct job *job, uint32_t *needs)
{
    needs[TARGET_offload] = job->wishes.offload;
    needs[TARGET_overlap] = job->wishes.overlap;
    needs[TARGET_precision] = precision_of(&job->train);
    needs[TARGET_numbers] = numbers_of(&job->train);
    needs[TARGET_optimizer] = job->train.optimizer == OPT_SGD ? 2 : 1;
    for (uint32_t i = 0; i < job->model.nlayers; i++)
        needs[TARGET_attention] |= attention_of(&job->model.layers[i]->attn);
    needs[TARGET_layers] = layers_of(&job->model);
    for (enum target_row row = TARGET_SETTINGS; row < TARGET_ROWS; row++)
        needs[row] = means_setting(job, row);
}

void means_set(const struct job *job, struct profile *p)
{
    uint32_t needs[TARGET_ROWS] = {0};
    needs_of_job(job, needs);
    for (enum target_row row = TARGET_SETTINGS; row < TARGET_ROWS; row++)
        needs[row] = means_in_force(job, row);
    if (job->wishes.target)
        target_set(job->wishes.target, needs, p);
}

static void needs_of(const struct job *job, const struct decision *d, uint32_t *needs)
{
    uint32_t replicas = d->dp * d->cp;
    bool looped = d->pp > 1 && d->vpp > 1 && schedule_chunks(d->schedule) == 0 && d->schedule < SCHED_AUTO;
    needs_of_job(job, needs);
    bool listed = d->schedule == SCHED_AUTO || d->schedule == SCHED_FILE;
    needs[TARGET_schedule] = d->pp > 1 ? 1u << d->schedule | (listed && d->folds ? 1u << FOLDED : 0) : 0;
    needs[TARGET_pipeline] = d->pp > 1 && job->model.tied;
    needs[TARGET_group] = !looped ? 0 : d->schedule_group && d->schedule_group != d->pp ? 2 : 1;
    needs[TARGET_zero] = replicas > 1 ? 1u << d->zero : 0;
    needs[TARGET_replicas] = d->zero && d->shard < replicas ? 1u << (d->zero - 1) : 0;
    needs[TARGET_sequence_parallel] = d->tp > 1 ? d->sp ? 2 : 1 : 0;
    needs[TARGET_context] = d->cp > 1 && d->context != CONTEXT_AUTO ? 1u << (d->context - 1) : 0;
    needs[TARGET_experts] = (d->ep > 1 ? EP : NO_EP) | (d->etp > 1 ? ETP : 0);
    needs[TARGET_recompute] = recompute_of(d);
    needs[TARGET_stages] = stages_of(d);
    needs[TARGET_order] = means_order(d);
    needs[TARGET_ranks] = ranks_of(job, d);
    needs[TARGET_step] = decision_skews(job, d);
    if (needs[TARGET_delay_wgrad] && !needs[TARGET_expert_overlap] && !(d->pp > 1 && decision_pairs(d->schedule)))
        needs[TARGET_expert_overlap] = target_bit(TARGET_expert_overlap, "no");
}

/* what excludes that word of a row, of what the job itself has; NULL: nothing */
static const struct target_clash *clash_of(const struct job *job, enum target_row row, uint32_t bit)
{
    uint32_t needs[TARGET_ROWS] = {0};
    const struct target *t = job->wishes.target;
    if (!t || !t->nclashes)
        return NULL;
    needs_of_job(job, needs);
    for (uint32_t i = 0; i < t->nclashes; i++) {
        const struct target_clash *x = &t->clashes[i];
        for (int k = 0; k < 2; k++) {
            uint32_t other = x->row[!k] < TARGET_SETTINGS ? needs[x->row[!k]] : means_in_force(job, x->row[!k]);
            if (x->row[k] == row && x->bit[k] == bit && other & x->bit[!k])
                return x;
        }
    }
    return NULL;
}

bool means_offer(const struct job *job, enum target_row row, uint32_t bit)
{
    return means_of(job, row) & bit && !clash_of(job, row, bit);
}

static const char *clash_phrase(struct arena *a, const struct target_clash *x)
{
    return arena_printf(a, "%s with %s", target_phrase(a, x->row[0], x->bit[0]),
                        target_phrase(a, x->row[1], x->bit[1]));
}

bool means_exclude(const struct job *job, enum target_row row, uint32_t bit, enum target_row other, uint32_t with)
{
    const struct target *t = job->wishes.target;
    for (uint32_t i = 0; t && i < t->nclashes; i++) {
        const struct target_clash *x = &t->clashes[i];
        for (int k = 0; k < 2; k++)
            if (x->row[k] == row && x->bit[k] == bit && x->row[!k] == other && x->bit[!k] == with)
                return true;
    }
    return false;
}

uint32_t means_lacking(struct arena *a, const struct target *t, const struct job *job, const struct decision *d,
                       const char **lacks, uint32_t most)
{
    uint32_t needs[TARGET_ROWS] = {0}, n = 0;
    if (t->everything)
        return 0;
    needs_of(job, d, needs);
    for (enum target_row row = TARGET_SETTINGS; t == job->wishes.target && row < TARGET_ROWS; row++)
        needs[row] = needs[row] ? needs[row] : t->usual[row];
    for (enum target_row row = 0; row < TARGET_ROWS; row++)
        for (uint32_t rest = needs[row] & ~(t->has[row] | (row == TARGET_experts ? NO_EP : 0)); rest && n < most;
             rest &= rest - 1)
            lacks[n++] = target_phrase(a, row, rest);
    for (uint32_t i = 0; i < t->nclashes && n < most; i++) {
        const struct target_clash *x = &t->clashes[i];
        if (needs[x->row[0]] & x->bit[0] && needs[x->row[1]] & x->bit[1])
            lacks[n++] = clash_phrase(a, x);
    }
    return n;
}

bool means_allow(struct arena *a, const struct job *job, const struct decision *d, const char **why)
{
    const struct target *t = job->wishes.target;
    const char *lack;
    if (!t || !means_lacking(a, t, job, d, &lack, 1))
        return true;
    *why = arena_printf(a, "%s has no %s", t->name, lack);
    return false;
}

/* ---- what the file asks for ---- */

static void refuse(struct arena *a, struct diag *d, const struct target *t, enum target_row row, uint32_t missing,
                   struct span at)
{
    diag_error(d, at, "target", "no plan: target %s has no %s", t->name, target_phrase(a, row, missing));
    if (t->has[row])
        diag_help(d, "of '%s' it has %s; or write 'target %s', which has all", target_row_name(row),
                  target_words(a, row, t->has[row]), TARGET_DEFAULT);
    else
        diag_help(d, row < TARGET_SETTINGS ? "leave that out, or write 'target " TARGET_DEFAULT "', which has it"
                                           : "leave that out: it is a setting of other targets");
}

/* what the plan block pins: of a list of schedules one is enough */
static uint32_t pinned(const struct job *job, enum target_row row, struct span *at)
{
    const struct wishes *w = &job->wishes;
    uint32_t bits = 0;
    if (row == TARGET_schedule && w->nschedules) {
        *at = w->schedules[0].span;
        for (uint32_t i = 0; i < w->nschedules; i++)
            bits |= 1u << w->schedules[i].kind;
        return bits & means_of(job, row) ? 0 : bits;
    }
    if (row == TARGET_sequence_parallel && w->sequence_parallel == TRI_YES) { /* 'no' is true of any plan without tp */
        *at = w->sequence_parallel_span;
        return 2;
    }
    if (row == TARGET_context && w->context != CONTEXT_AUTO) {
        *at = w->context_span;
        return 1u << (w->context - 1);
    }
    if (row == TARGET_recompute && w->recompute != RECOMPUTE_AUTO) {
        *at = w->recompute_span;
        return w->recompute == RECOMPUTE_SELECTIVE ? w->parts
               : w->recompute == RECOMPUTE_NONE    ? 0
               : w->recompute_layers               ? FIRST_LAYERS
                                                   : FULL;
    }
    if (row == TARGET_step && w->post_validation) {
        *at = w->post_validation_span;
        return 1;
    }
    return 0;
}

static bool speaks_of_experts(enum target_row row, uint32_t bit)
{
    return target_setting_of(row) == TARGET_OF_EXPERTS ||
           (row == TARGET_cuda_graphs && bit & (target_bit(row, "moe_router") | target_bit(row, "attn_moe_router")));
}

/* of the first layer with attention or experts of such a kind */
static struct span layer_span(const struct model *m, enum target_row row, uint32_t bits)
{
    for (uint32_t i = 0; i < m->nlayers; i++) {
        const struct layer *l = m->layers[i];
        if (row == TARGET_attention && attention_of(&l->attn) & bits)
            return l->attn.span;
        if (row == TARGET_layers && l->is_moe && l->moe.capacity > 0)
            return l->moe.span;
    }
    return m->span;
}

const char *means_refused(struct arena *a, const struct job *job, enum target_row row, uint32_t bit,
                          enum target_row *with)
{
    const struct target_clash *x = clash_of(job, row, bit);
    *with = !x ? TARGET_ROWS : x->row[x->row[0] == row];
    if (x)
        return clash_phrase(a, x);
    return means_of(job, row) & bit ? NULL : target_phrase(a, row, bit);
}

/* where the job says what it needs of a row from `offload` on */
static struct span span_of(const struct job *job, enum target_row row, uint32_t bits)
{
    const struct wishes *w = &job->wishes;
    if (row >= TARGET_SETTINGS)
        return w->settings ? w->settings[row].span : w->span;
    return row == TARGET_offload                             ? w->offload_span
           : row == TARGET_overlap                           ? w->overlap_span
           : row == TARGET_optimizer                         ? job->train.optimizer_span
           : row == TARGET_attention || row == TARGET_layers ? layer_span(&job->model, row, bits)
                                                             : job->train.precision_span;
}

/* no two words of the job, its wished context among them, exclude each other */
static bool check_clashes(struct arena *a, struct diag *d, const struct job *job)
{
    const struct wishes *w = &job->wishes;
    uint32_t needs[TARGET_ROWS] = {0};
    bool good = true;
    needs_of_job(job, needs);
    needs[TARGET_context] = w->context == CONTEXT_AUTO ? 0 : 1u << (w->context - 1);
    for (uint32_t i = 0; i < w->target->nclashes; i++) {
        const struct target_clash *x = &w->target->clashes[i];
        if (!(needs[x->row[0]] & x->bit[0] && needs[x->row[1]] & x->bit[1]))
            continue;
        struct span at = x->row[0] == TARGET_context ? w->context_span : span_of(job, x->row[0], x->bit[0]);
        diag_error(d, at, "target", "no plan: target %s has no %s", w->target->name, clash_phrase(a, x));
        diag_help(d, "drop the line, or write 'target %s'", TARGET_DEFAULT);
        good = false;
    }
    return good;
}

bool means_check(struct arena *a, struct diag *d, const struct job *job)
{
    const struct target *t = job->wishes.target;
    uint32_t needs[TARGET_ROWS] = {0};
    bool good = true;
    if (!t)
        return true;
    needs_of_job(job, needs);
    for (enum target_row row = t->everything ? TARGET_SETTINGS : 0; row < TARGET_ROWS; row++) {
        struct span at = span_of(job, row, ~t->has[row]);
        uint32_t missing = (needs[row] | pinned(job, row, &at)) & ~t->has[row];
        bool idle = row >= TARGET_SETTINGS && needs[row] && !missing && speaks_of_experts(row, needs[row]) &&
                    !model_has_experts(&job->model);
        if (missing)
            refuse(a, d, t, row, missing, at);
        if (idle) {
            diag_error(d, at, "target", "no plan: %s is for models with experts", target_phrase(a, row, needs[row]));
            diag_help(d, "drop the line");
        }
        good = good && !missing && !idle;
    }
    return good && check_clashes(a, d, job);
}
