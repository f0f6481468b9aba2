/* The instructions of experts and their router with what they read and write of a block's stores, as in
 * compiler/lower/moe.c, and those of attention to keys of all ranks of a sequence, as in compiler/lower/context.c. */

#include "compiler/cost/lives.h"

#include <math.h>

/* ---- context parallelism ---- */

static double out_cols(const struct lives *l, const struct attn *t)
{
    return (double)t->heads * (t->kind == ATTN_MLA ? t->v : t->head) / l->d->tp;
}

static double query_cols(const struct lives *l, const struct attn *t)
{
    return (double)t->heads * t->head / l->d->tp;
}

static double pair_cols(const struct lives *l, const struct attn *t)
{
    return lives_key_heads(l, t) * (t->head + (t->kind == ATTN_MLA ? t->v : t->head));
}

static uint32_t own_numbers(struct lives *l, uint32_t opr)
{
    const struct attn *t = l->e->oprs[opr].attn;
    return lives_aux(l, opr, 0, 4 * l->tokens * t->heads / l->d->tp);
}

/* Reads what attention reads of the block's own rows. */
static void read_own(struct lives *l, const struct opr *o)
{
    for (int k = 0; k < 2; k++)
        if (o->in[k] != NONE)
            lives_read(l, lives_value(l, o->in[k]));
}

static uint32_t wide_rows(struct lives *l, double cols)
{
    return lives_store(l, 4 * l->tokens * cols);
}

/* Keys and values go round the ring in two stores, in turn. */
static void ring(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    const struct attn *t = o->attn;
    bool wide = l->element >= 4;
    uint32_t out = lives_value(l, o->out), lse = own_numbers(l, opr), sum = wide ? out : wide_rows(l, out_cols(l, t));
    uint32_t part = wide_rows(l, out_cols(l, t)), part_lse = wide_rows(l, (double)t->heads / l->d->tp);
    uint32_t pair[2] = {lives_rows(l, l->tokens, pair_cols(l, t)), lives_rows(l, l->tokens, pair_cols(l, t))};
    for (uint32_t s = 0; s < l->d->cp; s++) {
        if (s + 1 < l->d->cp) {
            lives_insn(l);
            lives_write(l, pair[s % 2]);
            if (s)
                lives_read(l, pair[(s + 1) % 2]);
            else
                read_own(l, o);
        }
        lives_insn(l);
        lives_write(l, s ? part : sum);
        lives_write(l, s ? part_lse : lse);
        read_own(l, o);
        if (s)
            lives_read(l, pair[(s + 1) % 2]);
        if (!s)
            continue;
        lives_update(l, sum);
        lives_read(l, lse);
        lives_read(l, part);
        lives_read(l, part_lse);
    }
    if (!wide)
        lives_move(l, out, sum);
}

static void ring_back(struct lives *l, uint32_t opr, uint32_t first, uint32_t second)
{
    const struct opr *o = &l->e->oprs[opr];
    const struct attn *t = o->attn;
    bool wide = l->element >= 4;
    uint32_t cp = l->d->cp, dq = wide ? first : wide_rows(l, query_cols(l, t)), part = wide_rows(l, pair_cols(l, t));
    uint32_t pair[2] = {lives_rows(l, l->tokens, pair_cols(l, t)), lives_rows(l, l->tokens, pair_cols(l, t))};
    uint32_t sums[2] = {wide_rows(l, pair_cols(l, t)), wide_rows(l, pair_cols(l, t))};
    for (uint32_t s = 0; s < cp; s++) {
        if (s + 1 < cp) {
            lives_insn(l);
            lives_write(l, pair[s % 2]);
            if (s)
                lives_read(l, pair[(s + 1) % 2]);
            else
                read_own(l, o);
        }
        lives_insn(l);
        lives_give(l, dq, s > 0);
        lives_write(l, s ? part : sums[s % 2]);
        read_own(l, o);
        if (s)
            lives_read(l, pair[(s + 1) % 2]);
        lives_read(l, lives_value(l, o->out));
        lives_read(l, l->gradient[o->out]);
        lives_read(l, own_numbers(l, opr));
        if (s) {
            lives_update(l, sums[s % 2]);
            lives_read(l, part);
        }
        if (s + 1 < cp || !wide) {
            lives_move(l, sums[(s + 1) % 2], sums[s % 2]);
        } else {
            lives_insn(l);
            if (first == second)
                lives_part(l, second);
            else
                lives_write(l, second);
            lives_read(l, sums[s % 2]);
        }
    }
    if (wide)
        return;
    lives_insn(l);
    lives_write(l, second);
    lives_read(l, sums[cp % 2]);
    lives_insn(l);
    if (first == second)
        lives_part(l, first);
    else
        lives_write(l, first);
    lives_read(l, dq);
}

static void gathered(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    uint32_t out = lives_value(l, o->out), lse = own_numbers(l, opr);
    uint32_t all = lives_rows(l, l->d->cp * l->tokens, pair_cols(l, o->attn));
    lives_insn(l);
    lives_write(l, all);
    read_own(l, o);
    lives_insn(l);
    lives_write(l, out);
    lives_write(l, lse);
    read_own(l, o);
    lives_read(l, all);
}

static void gathered_back(struct lives *l, uint32_t opr, uint32_t first, uint32_t second)
{
    const struct opr *o = &l->e->oprs[opr];
    double cols = pair_cols(l, o->attn);
    uint32_t all = lives_rows(l, l->d->cp * l->tokens, cols), sums = lives_rows(l, l->d->cp * l->tokens, cols);
    bool early = !(l->c->job->wishes.never_overlap & OVERLAP_CP);
    lives_transfer(l, all, lives_value(l, o->in[o->in[1] != NONE]), early);
    lives_insn(l);
    lives_write(l, first);
    lives_write(l, sums);
    read_own(l, o);
    lives_read(l, all);
    lives_read(l, lives_value(l, o->out));
    lives_read(l, l->gradient[o->out]);
    lives_read(l, own_numbers(l, opr));
    lives_insn(l);
    if (first == second)
        lives_part(l, second);
    else
        lives_write(l, second);
    lives_read(l, sums);
}

/* Queries, keys, values and output of all rows and some heads. */
static uint32_t exchanged(struct lives *l, uint32_t opr)
{
    const struct attn *t = l->e->oprs[opr].attn;
    double cols = (query_cols(l, t) + pair_cols(l, t) + out_cols(l, t)) / l->d->cp;
    return lives_aux(l, opr, 1, l->element * l->d->cp * l->tokens * cols);
}

static void exchange(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    double rows = l->d->cp * l->tokens, in = (query_cols(l, o->attn) + pair_cols(l, o->attn)) / l->d->cp;
    uint32_t whole = exchanged(l, opr), lse = own_numbers(l, opr), out = lives_value(l, o->out);
    uint32_t there = lives_rows(l, rows, in), back = lives_rows(l, rows, out_cols(l, o->attn) / l->d->cp);
    lives_insn(l);
    lives_write(l, there);
    read_own(l, o);
    lives_move(l, whole, there);
    lives_update(l, whole);
    lives_write(l, lse);
    lives_move(l, back, whole);
    lives_move(l, out, back);
}

static void exchange_back(struct lives *l, uint32_t opr, uint32_t first, uint32_t second)
{
    const struct opr *o = &l->e->oprs[opr];
    double rows = l->d->cp * l->tokens, in = (query_cols(l, o->attn) + pair_cols(l, o->attn)) / l->d->cp;
    double cols = out_cols(l, o->attn) / l->d->cp;
    uint32_t packed = lives_rows(l, rows, cols), dout = lives_rows(l, rows, cols);
    uint32_t all = lives_rows(l, rows, in), back = lives_rows(l, rows, in);
    lives_move(l, packed, l->gradient[o->out]);
    lives_move(l, dout, packed);
    lives_move(l, all, dout);
    lives_read(l, exchanged(l, opr));
    lives_read(l, own_numbers(l, opr));
    lives_move(l, back, all);
    lives_move(l, first, back);
    if (second != first)
        lives_write(l, second);
}

void lives_context(struct lives *l, uint32_t opr)
{
    if (l->d->context == CONTEXT_ALL_GATHER)
        gathered(l, opr);
    else if (l->d->context == CONTEXT_ALL_TO_ALL)
        exchange(l, opr);
    else
        ring(l, opr);
}

void lives_context_back(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    bool adds;
    uint32_t first = lives_gradient(l, o->in[0], &adds),
             second = o->in[1] == NONE ? first : lives_gradient(l, o->in[1], &adds);
    double numbers = 4 * l->tokens * o->attn->heads / l->d->tp; /* rows' sums, of the kernels' own */
    l->workspace = l->c->type->gpu.sm ? fmax(l->workspace, ceil(numbers / 256) * 256) : 0;
    if (l->d->context == CONTEXT_ALL_GATHER)
        gathered_back(l, opr, first, second);
    else if (l->d->context == CONTEXT_ALL_TO_ALL)
        exchange_back(l, opr, first, second);
    else
        ring_back(l, opr, first, second);
}

/* ---- router ---- */

enum { SCORE, INDEX, WEIGHT, PLACE, COUNTS, LOAD, CHOSEN = COUNTS };
enum { ROWS, UP, HIDDEN = LIVES_EXPERTS_ACT, CAME_COUNTS, CAME_PLACE, CAME_WEIGHT };

static struct expert_rows rows_of(struct lives *l, const struct moe *m)
{
    if (l->moe == m)
        return l->rows;
    const struct decision *d = l->d;
    bool said = d->room > 0 || l->c->job->train.expert_room > 0;
    l->moe = m;
    return l->rows = expert_rows_new(m, d->ep, l->nodes, said || d->ep > 1 ? cost_room_kept(l->c) : 0,
                                     (uint32_t)l->local, (uint32_t)l->c->job->train.sequence / d->cp);
}

static uint32_t router_aux(struct lives *l, uint32_t opr, uint32_t k)
{
    const struct moe *m = l->e->oprs[opr].moe;
    struct expert_rows r = rows_of(l, m);
    double choices = 4 * l->local * m->active;
    const double bytes[] = {4 * l->local * m->experts,
                            choices,
                            choices,
                            choices,
                            r.nodes > 1 ? 4.0 * r.nodes * r.node * m->active : 4.0 * m->experts,
                            8.0 * l->d->microbatch * m->experts};
    uint32_t store = lives_aux(l, opr, k, bytes[k]);
    l->stores.at[store].counts = k == INDEX || k >= PLACE;
    return store;
}

void lives_router(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    const struct moe *m = o->moe;
    bool over_nodes = rows_of(l, m).nodes > 1;
    uint32_t logits = lives_store(l, 4 * l->local * m->experts), index = router_aux(l, opr, INDEX);
    lives_move(l, logits, lives_value(l, o->in[0]));
    lives_move(l, index, logits);
    lives_write(l, router_aux(l, opr, WEIGHT));
    lives_write(l, router_aux(l, opr, SCORE));
    if (m->balance > 0)
        lives_move(l, router_aux(l, opr, LOAD), index);
    lives_move(l, router_aux(l, opr, PLACE), index);
    lives_write(l, router_aux(l, opr, over_nodes ? CHOSEN : COUNTS));
}

void lives_router_back(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    const struct moe *m = o->moe;
    bool adds;
    uint32_t dlogits = lives_rows(l, l->local, m->experts);
    lives_move(l, dlogits, l->choices_gradient);
    lives_read(l, router_aux(l, opr, INDEX));
    lives_read(l, router_aux(l, opr, SCORE));
    if (m->balance > 0)
        lives_read(l, router_aux(l, opr, LOAD));
    uint32_t dx = lives_gradient(l, o->in[0], &adds);
    lives_uses(l);
    lives_give(l, dx, adds);
    lives_read(l, dlogits);
    uint32_t x = lives_kept(l, o->in[0]);
    lives_makes(l, false);
    lives_read(l, dlogits);
    lives_read(l, x);
}

/* ---- experts ---- */

struct experts {
    const struct opr *o;
    const struct moe *m;
    uint32_t opr, router; /* operators */
    struct expert_rows r;
    double sent, came, far;  /* numbers of rows: in blocks as they are sent, and as experts receive them; that arrive
                              * at this node */
    double width, inner, up; /* columns */
    bool exchanges, over_nodes;
};

static struct experts experts_new(struct lives *l, uint32_t opr)
{
    struct experts x = {.o = &l->e->oprs[opr], .m = l->e->oprs[opr].moe, .opr = opr};
    while (l->e->oprs[x.router].out != x.o->in[1])
        x.router++;
    x.r = rows_of(l, x.m);
    x.sent = (double)x.r.blocks * x.r.block;
    x.came = x.sent * l->d->etp;
    x.far = (double)x.r.nodes * x.r.node;
    x.width = (double)l->c->job->model.width;
    x.inner = floor((double)x.m->expert.width / l->d->etp);
    x.up = x.inner * (x.o->nweights - 1);
    x.exchanges = l->d->ep > 1 || l->d->etp > 1;
    x.over_nodes = x.r.nodes > 1;
    return x;
}

static double kept_bytes(const struct lives *l, double rows, double cols, uint32_t parts)
{
    return l->c->job->train.fp8_kept ? cost_word_bytes(rows, cols, parts) : l->element * rows * cols;
}

static uint32_t experts_aux(struct lives *l, const struct experts *x, uint32_t k)
{
    uint32_t parts = k == UP ? x->o->nweights - 1 : 1;
    const double bytes[] = {kept_bytes(l, x->came, x->width, 1), kept_bytes(l, x->came, x->up, parts),
                            kept_bytes(l, x->came, x->inner, 1), 4.0 * x->r.blocks * l->d->etp * x->r.experts,
                            4 * x->far * x->m->active,           4 * x->far * x->m->active};
    uint32_t store = lives_aux(l, x->opr, k, bytes[k]);
    l->stores.at[store].counts = k == CAME_COUNTS || k == CAME_PLACE;
    return store;
}

static uint32_t place_of(struct lives *l, const struct experts *x)
{
    return x->over_nodes ? experts_aux(l, x, CAME_PLACE) : router_aux(l, x->router, PLACE);
}

static uint32_t weight_of(struct lives *l, const struct experts *x)
{
    return x->over_nodes ? experts_aux(l, x, CAME_WEIGHT) : router_aux(l, x->router, WEIGHT);
}

static uint32_t counts_of(struct lives *l, const struct experts *x)
{
    return x->exchanges ? experts_aux(l, x, CAME_COUNTS) : router_aux(l, x->router, COUNTS);
}

/* Sends rows of `bytes` each among the expert ranks, then to all ranks that share an expert; and back. */
static void exchange_rows(struct lives *l, const struct experts *x, uint32_t from, uint32_t to, double bytes)
{
    bool both = l->d->ep > 1 && l->d->etp > 1 && l->d->ep > x->r.nodes;
    uint32_t part = both ? lives_store(l, bytes * x->sent) : from;
    if (both)
        lives_transfer(l, part, from, false);
    lives_transfer(l, to, part, false);
}

/* Places rows of x or, without one, weights, among the rows of their experts. */
static void dispatch(struct lives *l, const struct experts *x, uint32_t from, uint32_t to, double bytes)
{
    uint32_t sent = x->exchanges ? lives_store(l, bytes * x->sent) : to;
    lives_insn(l);
    lives_write(l, sent);
    lives_read(l, from);
    lives_read(l, place_of(l, x));
    if (x->exchanges)
        exchange_rows(l, x, sent, to, bytes);
}

/* Tokens' rows in the format in which they are sent. */
static uint32_t outbound(struct lives *l, uint32_t rows)
{
    if (!l->c->job->train.fp8_sent)
        return rows;
    uint32_t sent = lives_store(l, cost_sent_bytes(l->c) * l->local);
    lives_move(l, sent, rows);
    return sent;
}

/* Sends these to their experts, in the format in which they are read there; words: the store where they stay in 8
 * bits, or NONE. */
static void dispatch_rows(struct lives *l, const struct experts *x, uint32_t from, uint32_t to, uint32_t words)
{
    double bytes = cost_sent_bytes(l->c);
    bool sent = l->c->job->train.fp8_sent;
    uint32_t came = !sent ? to : words != NONE ? words : lives_store(l, bytes * x->came);
    dispatch(l, x, from, came, bytes);
    if (sent)
        lives_move(l, to, came);
    else if (words != NONE)
        lives_move(l, words, to);
}

/* Sends a row of each token to every node on which it has a choice. */
static void carry(struct lives *l, const struct experts *x, uint32_t from, uint32_t to, double bytes)
{
    uint32_t sent = lives_store(l, bytes * x->far);
    lives_move(l, sent, from);
    lives_read(l, router_aux(l, x->router, PLACE));
    lives_transfer(l, to, sent, false);
}

static void send_rows(struct lives *l, const struct experts *x, uint32_t from, uint32_t rows, uint32_t words)
{
    uint32_t counts = router_aux(l, x->router, COUNTS);
    if (x->over_nodes) {
        uint32_t chosen = lives_store(l, 4 * x->far * x->m->active), choices = counts;
        counts = lives_store(l, 4.0 * x->r.blocks * x->r.experts);
        lives_transfer(l, chosen, choices, false);
        lives_move(l, experts_aux(l, x, CAME_PLACE), chosen);
        lives_write(l, counts);
    }
    if (x->exchanges)
        lives_transfer(l, experts_aux(l, x, CAME_COUNTS), counts, false);
    from = outbound(l, from);
    if (x->over_nodes) {
        uint32_t came = lives_store(l, cost_sent_bytes(l->c) * x->far);
        carry(l, x, router_aux(l, x->router, WEIGHT), experts_aux(l, x, CAME_WEIGHT), 4.0 * x->m->active);
        carry(l, x, from, came, cost_sent_bytes(l->c));
        from = came;
    }
    dispatch_rows(l, x, from, rows, words);
}

/* The store of rows that came back from expert ranks, once they are on the tokens' ranks; where rows go once per
 * node, they are summed first. */
static uint32_t send_sums(struct lives *l, const struct experts *x, uint32_t back, uint32_t weight, double bytes)
{
    if (!x->over_nodes)
        return back;
    uint32_t sum = lives_store(l, bytes * x->far), came = lives_store(l, bytes * x->far);
    lives_move(l, sum, back);
    lives_read(l, place_of(l, x));
    lives_read(l, weight);
    lives_transfer(l, came, sum, false);
    return came;
}

/* Sums these. */
static void sum_rows(struct lives *l, const struct experts *x, uint32_t came, uint32_t weight, uint32_t to, bool adds)
{
    lives_insn(l);
    lives_give(l, to, adds);
    lives_read(l, came);
    lives_read(l, router_aux(l, x->router, PLACE));
    lives_read(l, x->over_nodes ? NONE : weight);
}

/* The store of the rows that experts have made, once they are back from the expert ranks. */
static uint32_t brought(struct lives *l, const struct experts *x, uint32_t out, double bytes)
{
    if (!x->exchanges)
        return out;
    uint32_t back = lives_store(l, bytes * x->sent);
    exchange_rows(l, x, out, back, bytes);
    return back;
}

/* The store in which what the backward pass reads is made: the kept one or, where only words are kept, one of
 * numbers.  words_of(): the store of these words; NONE: they are recomputed before the backward pass. */
static uint32_t made(struct lives *l, const struct experts *x, uint32_t k, double cols)
{
    return l->c->job->train.fp8_kept ? lives_rows(l, x->came, cols) : experts_aux(l, x, k);
}

static uint32_t words_of(struct lives *l, const struct experts *x, uint32_t k)
{
    bool inside = backward_act_only(x->o, l->again) &&
                  k != LIVES_EXPERTS_ACT; /* kept, although the activation function is recomputed */
    bool read = l->recomputing || inside || !l->plan.needed[x->opr];
    return l->c->job->train.fp8_kept && read ? experts_aux(l, x, k) : NONE;
}

static void keep(struct lives *l, const struct experts *x, uint32_t k, uint32_t from)
{
    uint32_t words = words_of(l, x, k);
    if (words != NONE)
        lives_move(l, words, from);
}

static uint32_t kept(struct lives *l, const struct experts *x, uint32_t k, double cols)
{
    uint32_t to = made(l, x, k, cols);
    if (l->c->job->train.fp8_kept)
        lives_move(l, to, experts_aux(l, x, k));
    return to;
}

void lives_experts(struct lives *l, uint32_t opr)
{
    struct experts x = experts_new(l, opr);
    uint32_t rows = made(l, &x, ROWS, x.width), up = made(l, &x, UP, x.up), hidden = made(l, &x, HIDDEN, x.inner);
    if (l->recomputing && l->kept_aux[opr][UP] != NONE) { /* everything else was kept */
        lives_move(l, hidden, kept(l, &x, UP, x.up));
        keep(l, &x, HIDDEN, hidden);
        return;
    }
    send_rows(l, &x, lives_value(l, x.o->in[0]), rows, words_of(l, &x, ROWS));
    lives_move(l, up, rows);
    lives_takes(l, (float)(x.o->nweights - 1));
    lives_read(l, counts_of(l, &x));
    lives_move(l, hidden, up);
    keep(l, &x, UP, up);
    keep(l, &x, HIDDEN, hidden);
    if (l->recomputing && l->plan.unread[opr])
        return;
    uint32_t out = lives_rows(l, x.came, x.width);
    lives_move(l, out, hidden);
    lives_takes(l, 1);
    lives_read(l, counts_of(l, &x));
    double bytes = l->element * x.width;
    uint32_t came = send_sums(l, &x, brought(l, &x, out, bytes), weight_of(l, &x), bytes);
    sum_rows(l, &x, came, weight_of(l, &x), lives_value(l, x.o->out), false);
}

/* The gradients of the choices' weights. */
static void weights_back(struct lives *l, const struct experts *x, uint32_t drow)
{
    uint32_t dweight = l->choices_gradient = lives_store(l, 4 * l->local * x->m->active);
    uint32_t there = x->over_nodes ? lives_store(l, 4 * x->far * x->m->active) : dweight, home = brought(l, x, drow, 4);
    lives_move(l, there, home);
    lives_read(l, place_of(l, x));
    if (!x->over_nodes)
        return;
    uint32_t came = lives_store(l, 4 * x->far * x->m->active);
    lives_move(l, came, there);
    sum_rows(l, x, came, NONE, dweight, false);
}

/* Sends rows' gradients back, unless they are there already, and makes weight gradients beside that. */
static void bring_rows(struct lives *l, const struct experts *x, uint32_t dback, uint32_t weighted, uint32_t dup,
                       uint32_t drows)
{
    bool adds;
    uint32_t dx = lives_gradient(l, x->o->in[0], &adds), counts = counts_of(l, x);
    double bytes = l->element * x->width;
    if (!x->exchanges)
        sum_rows(l, x, drows, NONE, dx, adds);
    uint32_t back = brought(l, x, drows, bytes);
    lives_makes(l, true);
    lives_read(l, dback);
    lives_read(l, weighted);
    lives_read(l, counts);
    uint32_t came = send_sums(l, x, back, NONE, bytes), rows = kept(l, x, ROWS, x->width);
    lives_insn(l);
    lives_takes(l, (float)(x->o->nweights - 1));
    lives_read(l, dup);
    lives_read(l, rows);
    lives_read(l, counts);
    if (x->exchanges)
        sum_rows(l, x, came, NONE, dx, adds);
}

void lives_experts_back(struct lives *l, uint32_t opr)
{
    struct experts x = experts_new(l, opr);
    uint32_t dy = l->gradient[x.o->out], counts = counts_of(l, &x);
    uint32_t weight = lives_store(l, 4 * x.came), drow = lives_store(l, 4 * x.came),
             dback = lives_rows(l, x.came, x.width);
    uint32_t dsum = lives_rows(l, x.came, x.inner), dhidden = lives_rows(l, x.came, x.inner),
             weighted = lives_rows(l, x.came, x.inner);
    uint32_t dup = lives_rows(l, x.came, x.up), drows = lives_rows(l, x.came, x.width);
    dispatch(l, &x, weight_of(l, &x), weight, 4);
    dy = outbound(l, dy);
    if (x.over_nodes) {
        uint32_t came = lives_store(l, cost_sent_bytes(l->c) * x.far);
        carry(l, &x, dy, came, cost_sent_bytes(l->c));
        dy = came;
    }
    dispatch_rows(l, &x, dy, dback, NONE);
    lives_move(l, dsum, dback);
    lives_takes(l, 1);
    lives_read(l, counts);
    uint32_t hidden = kept(l, &x, HIDDEN, x.inner);
    lives_move(l, dhidden, dsum);
    lives_write(l, weighted);
    lives_write(l, drow);
    lives_read(l, hidden);
    lives_read(l, weight);
    weights_back(l, &x, drow);
    uint32_t up = kept(l, &x, UP, x.up);
    lives_move(l, dup, dhidden);
    lives_read(l, up);
    lives_uses(l);
    lives_takes(l, (float)(x.o->nweights - 1));
    lives_write(l, drows);
    lives_read(l, dup);
    bring_rows(l, &x, dback, weighted, dup, drows);
}
