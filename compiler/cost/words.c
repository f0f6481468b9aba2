/* Seconds of conversions to and from 8 bits, where llmrun's blocks keep in 8 bits what products and gates read in
 * the backward pass (compiler/lower/eight.c): after the operator that makes a value, and before each operator that
 * reads it. */

#include "compiler/cost/cost_private.h"

#include <math.h>

struct cost_words *cost_words(struct arena *a, const struct cost *c, const struct decision *d,
                              const struct expansion *e, bool layer)
{
    if (!c->job->train.fp8_kept || !layer || c->profile->allocator > 0.5)
        return NULL;
    uint32_t again = backward_again(d->recompute, d->parts);
    struct cost_words *w = ARENA_NEW(a, struct cost_words);
    w->again = again;
    w->plan = backward_new(a, e, again, decision_exchanges_heads(d));
    w->eight = backward_eight(a, e);
    return w;
}

double cost_word_bytes(double rows, double cols, uint32_t parts)
{
    return 4 * rows * parts * (ceil(cols / parts / 4) + ceil(cols / parts / 128));
}

static double convert_s(const struct cost *c, double rows, double cols, uint32_t parts)
{
    return parts * cost_stream_s(c, (2 * rows * cols + cost_word_bytes(rows, cols, parts)) / parts);
}

static double value_s(const struct cost *c, const struct decision *d, const struct expansion *e, uint32_t v,
                      uint32_t parts)
{
    double tokens = (double)c->job->train.sequence * d->microbatch / d->cp,
           cols = expand_own_cols(&e->values[v], d->tp);
    bool whole = e->values[v].class == CLASS_TOKENS;
    return convert_s(c, whole && d->sp ? tokens / d->tp : tokens, whole ? (double)e->values[v].cols : cols, parts);
}

/* Rows that arrived, gate and up, and the activation function; alone: only that function is recomputed, from gate
 * and up as they are kept. */
static void experts_s(const struct cost *c, const struct decision *d, const struct opr *o, bool again, bool alone,
                      struct cost_conversions *out)
{
    double tokens = (double)c->job->train.sequence * d->microbatch / d->cp / d->tp,
           w = (double)o->moe->expert.width / d->etp;
    double rows = tokens * o->moe->active * cost_rows_moved(c, o->moe) * d->etp;
    uint32_t gates = o->nweights - 1;
    double came = convert_s(c, rows, (double)c->job->model.width, 1), gate = convert_s(c, rows, gates * w, gates);
    double act = convert_s(c, rows, w, 1), first = gate + (c->job->train.fp8_sent ? 0 : came);
    uint32_t nfirst = gates + !c->job->train.fp8_sent;
    out->backward_s = came + gate + act;
    out->backward = gates + 2;
    out->forward_s = again && !alone ? 0 : first + (again ? 0 : act);
    out->forward = again && !alone ? 0 : nfirst + !again;
    out->again_s = !again ? 0 : alone ? gate + act : first + act;
    out->again = !again ? 0 : alone ? gates + 1 : nfirst + 1;
}

struct cost_conversions cost_conversions(const struct cost *c, const struct decision *d, const struct expansion *e,
                                         const struct cost_words *w, uint32_t i)
{
    const struct opr *o = &e->oprs[i];
    struct cost_conversions s = {0};
    bool made = o->out != NONE && w->eight[o->out], stays = made && w->plan.saved[o->out];
    bool reads = (o->kind == OPR_LINEAR || o->kind == OPR_ROUTER || o->kind == OPR_ACT) && w->eight[o->in[0]];
    bool again = w->plan.needed[i];
    uint32_t parts = made ? w->eight[o->out] : 0, gates = reads ? w->eight[o->in[0]] : 0;
    if (o->kind == OPR_EXPERTS) {
        experts_s(c, d, o, again, backward_act_only(o, w->again), &s);
        return s;
    }
    double to_s = made ? value_s(c, d, e, o->out, parts) : 0, from_s = reads ? value_s(c, d, e, o->in[0], gates) : 0;
    bool expands = again && o->kind == OPR_ACT && reads && w->plan.saved[o->in[0]];
    s.backward = gates;
    s.backward_s = from_s;
    s.forward = stays ? parts : 0;
    s.forward_s = stays ? to_s : 0;
    s.again = (again ? parts : 0) + (expands ? gates : 0);
    s.again_s = (again ? to_s : 0) + (expands ? from_s : 0);
    return s;
}
