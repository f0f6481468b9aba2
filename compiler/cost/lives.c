/* Bytes over the passes of a block as llmrun runs them: what the forward pass leaves, and the peaks of the forward
 * pass, of the backward pass, and of its two halves.
 *
 * The instructions of a piece are followed with what they read and write, by the rules of compiler/lower.  A store
 * is live from a write that needs none of its contents to the last access before the next such write, as in
 * placement (compiler/place/lives.c).  What is live at the start of a backward pass is what the forward pass must
 * leave.  Parameters and their gradients belong to the rank (mem.c).
 *
 * Cost: linear in the instructions of a piece, a few hundred. */

#include "compiler/cost/lives.h"

#include "compiler/model/backward.h"

#include <math.h>
#include <string.h>

uint32_t lives_store(struct lives *l, double bytes)
{
    vec_push(l->arena, &l->stores, (struct lives_store){.bytes = ceil(bytes / 256) * 256});
    return (uint32_t)l->stores.n - 1;
}

uint32_t lives_rows(struct lives *l, double rows, double cols)
{
    return lives_store(l, l->element * rows * cols);
}

uint32_t lives_whole(struct lives *l, enum lives_whole kind, double cols)
{
    uint32_t k = 0;
    while (k < LIVES_WIDTHS && l->whole[kind][k].cols > 0 &&
           (l->whole[kind][k].cols < cols || l->whole[kind][k].cols > cols))
        k++;
    if (k == LIVES_WIDTHS)
        return lives_rows(l, l->tokens, cols);
    if (l->whole[kind][k].cols <= 0) {
        l->whole[kind][k].cols = cols;
        l->whole[kind][k].store = lives_rows(l, l->tokens, cols);
    }
    return l->whole[kind][k].store;
}

void lives_insn(struct lives *l)
{
    vec_push(l->arena, &l->pass.insns,
             (struct lives_insn){(uint32_t)l->pass.touches.n, l->opr, l->recomputing, false, 0});
}

void lives_takes(struct lives *l, float parts)
{
    l->pass.insns.at[l->pass.insns.n - 1].parts = parts;
}

void lives_makes(struct lives *l, bool experts)
{
    if (l->pass.begun[experts] == NONE)
        l->pass.begun[experts] = (uint32_t)l->pass.insns.n;
    l->pass.made = (uint32_t)l->pass.insns.n;
    lives_insn(l);
    lives_takes(l, 1);
}

void lives_uses(struct lives *l)
{
    l->pass.used = (uint32_t)l->pass.insns.n;
    lives_insn(l);
    lives_takes(l, 1);
}

/* Inserts an empty instruction of a transfer into the list, with n empty touches; returns the index of the first of
 * them. */
static uint32_t insert(struct lives *l, uint32_t at, uint32_t n)
{
    uint32_t first = at < l->pass.insns.n ? l->pass.insns.at[at].touch : (uint32_t)l->pass.touches.n,
             behind = (uint32_t)l->pass.touches.n - first;
    for (uint32_t k = 0; k < n; k++)
        vec_push(l->arena, &l->pass.touches, (struct lives_touch){0});
    lives_insn(l);
    memmove(l->pass.touches.at + first + n, l->pass.touches.at + first, behind * sizeof *l->pass.touches.at);
    struct lives_insn own = l->pass.insns.at[l->pass.insns.n - 1];
    for (uint32_t i = (uint32_t)l->pass.insns.n - 1; i > at; i--) {
        l->pass.insns.at[i] = l->pass.insns.at[i - 1];
        l->pass.insns.at[i].touch += n;
    }
    own.touch = first;
    own.moves = true;
    l->pass.insns.at[at] = own;
    for (int k = 0; k < 2; k++)
        l->pass.begun[k] += l->pass.begun[k] != NONE && l->pass.begun[k] >= at;
    l->pass.used += l->pass.used != NONE && l->pass.used >= at;
    l->pass.made += l->pass.made != NONE && l->pass.made >= at;
    return first;
}

/* The transfer that brought the store is over before the last instruction, and so are all earlier transfers, because
 * they share one queue. */
static void settle(struct lives *l, uint32_t store)
{
    uint32_t n = l->nmoving;
    while (n && l->moving[n - 1].to != store)
        n--;
    if (!n)
        return;
    uint32_t at = insert(l, (uint32_t)l->pass.insns.n - 1, n);
    for (uint32_t k = 0; k < n; k++)
        l->pass.touches.at[at + k] = (struct lives_touch){l->moving[k].from, .reads = true};
    l->nmoving -= n;
    memmove(l->moving, l->moving + n, l->nmoving * sizeof *l->moving);
}

static void touch(struct lives *l, uint32_t store, bool reads, bool writes)
{
    if (store == NONE)
        return;
    if (l->nmoving)
        settle(l, store);
    vec_push(l->arena, &l->pass.touches, (struct lives_touch){store, reads, writes, writes && !reads});
}

void lives_read(struct lives *l, uint32_t store)
{
    touch(l, store, true, false);
}

void lives_write(struct lives *l, uint32_t store)
{
    touch(l, store, false, true);
}

void lives_part(struct lives *l, uint32_t store)
{
    touch(l, store, false, true);
    if (store != NONE)
        l->pass.touches.at[l->pass.touches.n - 1].covers = false;
}

void lives_move(struct lives *l, uint32_t to, uint32_t from)
{
    lives_insn(l);
    lives_write(l, to);
    lives_read(l, from);
}

void lives_update(struct lives *l, uint32_t store)
{
    lives_insn(l);
    touch(l, store, true, true);
}

/* The index after the last instruction that writes a store, or that uses it. */
static uint32_t made_at(const struct lives *l, uint32_t store, bool used)
{
    for (uint32_t i = (uint32_t)l->pass.insns.n; i-- > 0;) {
        size_t end = i + 1 < l->pass.insns.n ? l->pass.insns.at[i + 1].touch : l->pass.touches.n;
        for (size_t k = l->pass.insns.at[i].touch; k < end; k++)
            if (l->pass.touches.at[k].store == store && (used || l->pass.touches.at[k].writes))
                return i + 1;
    }
    return 0;
}

void lives_transfer(struct lives *l, uint32_t to, uint32_t from, bool early)
{
    uint32_t at = (uint32_t)l->pass.insns.n;
    if (early) {
        uint32_t there = made_at(l, from, false),
                 free = to + 1 < l->stores.n ? made_at(l, to, true) : 0; /* the last store is new */
        at = there > l->queue_at ? there : l->queue_at;
        at = free > at ? free : at;
    }
    uint32_t k = insert(l, at, from == NONE ? 1 : 2);
    l->pass.touches.at[k] = (struct lives_touch){to, .writes = true, .covers = true};
    l->queue_at = at + 1;
    if (from == NONE)
        return;
    l->pass.touches.at[k + 1] = (struct lives_touch){from, .reads = true};
    if (l->nmoving == LIVES_MOVING) /* the oldest transfer is over by now */
        memmove(l->moving, l->moving + 1, --l->nmoving * sizeof *l->moving);
    l->moving[l->nmoving].to = to;
    l->moving[l->nmoving++].from = from;
}

/* ---- values and gradients ---- */

double lives_cols(const struct lives *l, uint32_t v)
{
    const struct opr_value *x = &l->e->values[v];
    if (x->class == CLASS_TOKENS)
        return (double)x->cols;
    if (!strncmp(x->name, "logits", 6))
        return (double)expand_padded_vocab(x->cols, l->d->tp) / l->d->tp;
    return expand_own_cols(x, l->d->tp);
}

double lives_key_heads(const struct lives *l, const struct attn *t)
{
    return (double)t->kv / model_key_parts(t->kv, l->d->tp);
}

double lives_value_rows(const struct lives *l, uint32_t v)
{
    return l->e->values[v].class == CLASS_TOKENS ? l->local : l->tokens;
}

static uint32_t value_store(struct lives *l, uint32_t v)
{
    return lives_rows(l, lives_value_rows(l, v), lives_cols(l, v));
}

static bool is_half(const struct lives *l)
{
    return l->halves == LIVES_INPUT || l->halves == LIVES_WEIGHT;
}

uint32_t lives_value(struct lives *l, uint32_t v)
{
    if (l->kept[v] != NONE)
        return l->kept[v];
    bool late = l->plan.weighs[v] && is_half(l) && v != l->e->result && !l->eight[v];
    uint32_t *at = late ? &l->late_value[v] : &l->value[v];
    if (*at == NONE)
        *at = value_store(l, v);
    return *at;
}

static uint32_t words_store(struct lives *l, uint32_t v)
{
    return lives_store(l, cost_word_bytes(lives_value_rows(l, v), lives_cols(l, v), l->eight[v]));
}

static uint32_t words_of(struct lives *l, uint32_t v)
{
    if (l->kept_words[v] != NONE)
        return l->kept_words[v];
    uint32_t *at = l->plan.weighs[v] && is_half(l) ? &l->late_words[v] : &l->words[v];
    if (*at == NONE)
        *at = words_store(l, v);
    return *at;
}

uint32_t lives_kept(struct lives *l, uint32_t v)
{
    uint32_t x = lives_value(l, v);
    if (l->eight[v])
        lives_move(l, x, words_of(l, v));
    return x;
}

uint32_t lives_aux(struct lives *l, uint32_t opr, uint32_t k, double bytes)
{
    uint32_t *kept = &l->kept_aux[opr][k], *at = *kept != NONE ? kept : &l->aux[opr][k];
    if (*at == NONE) {
        const struct opr *o = &l->e->oprs[opr];
        bool inside = backward_act_only(o, l->again) && k != LIVES_EXPERTS_ACT, made = l->plan.needed[opr] && !inside;
        at = made ? at : kept;
        *at = lives_store(l, bytes);
        l->stores.at[*at].beside = true;
    }
    return *at;
}

uint32_t lives_gradient(struct lives *l, uint32_t v, bool *adds)
{
    *adds = l->has[v];
    if (!l->has[v] && l->gradient[v] == NONE) {
        bool late = l->plan.weighed[v] && is_half(l);
        if (late && l->late_gradient[v] == NONE)
            l->late_gradient[v] = value_store(l, v);
        l->gradient[v] = late ? l->late_gradient[v] : value_store(l, v);
    }
    l->has[v] = true;
    return l->gradient[v];
}

/* A write; adds: it adds to what is there. */
void lives_give(struct lives *l, uint32_t store, bool adds)
{
    touch(l, store, adds, true);
}

static bool is_late(const struct lives *l, uint32_t store)
{
    for (uint32_t v = 0; v < l->e->nvalues; v++)
        if (l->late_gradient[v] == store || l->kept[v] == store)
            return true;
    return false;
}

uint32_t lives_output_gradient(struct lives *l, uint32_t v)
{
    if (l->halves == LIVES_WEIGHT)
        return l->late[v];
    uint32_t dy = l->gradient[v];
    if (l->halves != LIVES_INPUT || l->undivided)
        return dy;
    if (!is_late(l, dy) && l->kind != LIVES_EMBED) {
        if (l->late_gradient[v] == NONE)
            l->late_gradient[v] = value_store(l, v);
        lives_move(l, l->late_gradient[v], dy);
        dy = l->late_gradient[v];
    }
    return l->late[v] = dy;
}

/* ---- passes ---- */

static uint32_t *nones(struct lives *l, uint32_t n)
{
    uint32_t *x = arena_array(l->arena, n + 1u, sizeof *x);
    memset(x, 0xff, (n + 1u) * sizeof *x);
    return x;
}

/* Starts a pass without temporaries. */
static void begin_pass(struct lives *l, uint32_t halves)
{
    const struct expansion *e = l->e;
    l->pass = (struct lives_pass){.begun = {NONE, NONE}, .used = NONE, .made = NONE};
    vec_reserve(l->arena, &l->pass.insns, 128);
    vec_reserve(l->arena, &l->pass.touches, 512);
    l->halves = halves;
    memset(l->value, 0xff, e->nvalues * sizeof *l->value);
    memset(l->words, 0xff, e->nvalues * sizeof *l->words);
    memset(l->aux, 0xff, e->noprs * sizeof *l->aux);
    memset(l->gradient, 0xff, e->nvalues * sizeof *l->gradient);
    memset(l->has, 0, e->nvalues * sizeof *l->has);
    l->choices_gradient = NONE;
    l->queue_at = l->nmoving = 0;
    memset(l->whole, 0, sizeof l->whole);
}

static void forward(struct lives *l, bool again)
{
    l->recomputing = again;
    for (uint32_t i = 0; i < l->e->noprs; i++) {
        uint32_t v = l->e->oprs[i].out;
        if (again && !l->plan.needed[i])
            continue;
        l->opr = i;
        lives_forward(l, i);
        if (v != NONE && l->eight[v] && (again || l->plan.saved[v]))
            lives_move(l, words_of(l, v), lives_value(l, v));
    }
    l->recomputing = false;
}

static void backward(struct lives *l)
{
    const struct expansion *e = l->e;
    uint32_t value = e->result == NONE ? 0 : e->result;
    if (l->kind == LIVES_PREDICT)
        l->gradient[0] = l->stream;
    l->gradient[value] = l->stream;
    l->has[value] = e->result != NONE;
    if (l->plan.recompute && l->halves & LIVES_INPUT)
        forward(l, true);
    for (uint32_t i = e->noprs; i-- > 0;) {
        bool late = expand_puts_off(e, &e->oprs[i]);
        if (!(l->halves & LIVES_INPUT) && !late)
            continue;
        l->undivided = !late;
        l->opr = i;
        lives_backward(l, i);
    }
}

/* What the first products of a W read is available as I ends, so it is gathered beside the last kernels of I. */
static void begin_weights(struct lives *l)
{
    double cols = (double)l->c->job->model.width;
    if (!l->sp || l->kind == LIVES_EMBED)
        return;
    for (int kind = WHOLE_INPUT; kind <= WHOLE_GRADIENT; kind++) {
        uint32_t whole = lives_whole(l, (enum lives_whole)kind, cols);
        lives_transfer(l, whole, NONE, true);
        lives_update(l, whole);
    }
}

/* Bytes of a set of stores; parked: only of those that are in host memory between a layer's passes. */
static double sum_of(const struct lives *l, const bool *set, bool parked)
{
    double bytes = 0;
    for (size_t s = 0; s < l->stores.n; s++)
        bytes += set[s] && (!parked || l->stores.at[s].parks) ? l->stores.at[s].bytes : 0;
    return bytes;
}

static void keep_values(struct lives *l)
{
    double stream = l->element * l->local * (double)l->c->job->model.width;
    bool parks = l->kind == LIVES_LAYER && l->c->job->wishes.offload & OFFLOAD_ACTIVATIONS;
    for (uint32_t v = 0; v < l->e->nvalues; v++) {
        bool choice = false;
        for (uint32_t i = 0; i < l->e->noprs; i++)
            choice |= l->e->oprs[i].kind == OPR_ROUTER && l->e->oprs[i].out == v;
        if (!l->plan.saved[v] || choice)
            continue;
        if (l->eight[v]) {
            l->kept_words[v] = words_store(l, v);
            continue;
        }
        l->kept[v] = value_store(l, v);
        l->stores.at[l->kept[v]].parks = parks && 4 * l->stores.at[l->kept[v]].bytes >= stream;
    }
}

static void park_aux(struct lives *l)
{
    double stream = l->element * l->local * (double)l->c->job->model.width;
    if (l->kind != LIVES_LAYER || !(l->c->job->wishes.offload & OFFLOAD_ACTIVATIONS))
        return;
    for (uint32_t i = 0; i < l->e->noprs; i++)
        for (uint32_t k = 0; k < LIVES_AUX; k++) {
            uint32_t s = l->kept_aux[i][k];
            if (s != NONE && !l->stores.at[s].counts)
                l->stores.at[s].parks = 4 * l->stores.at[s].bytes >= stream;
        }
}

static void park(struct lives *l, struct cost_parked x, uint32_t store)
{
    x.bytes = l->stores.at[store].bytes;
    if (l->each && l->stores.at[store].parks)
        l->each[l->nparked++] = x;
}

/* Finds what is copied to host memory after F, even where it is recomputed before anything reads it, and of that
 * what W has copied back: the values that it reads (compiler/lower/offload.c). */
static void find_copied(struct lives *l, struct cost_lives *out)
{
    bool *all = ARENA_ARRAY(l->arena, bool, l->stores.n), *read = ARENA_ARRAY(l->arena, bool, l->stores.n);
    for (uint32_t v = 0; v < l->e->nvalues; v++)
        if (l->kept[v] != NONE) {
            all[l->kept[v]] = true;
            read[l->kept[v]] = l->plan.weighs[v];
            park(l, (struct cost_parked){.value = v, .opr = NONE, .place = v}, l->kept[v]);
        }
    for (uint32_t i = 0; i < l->e->noprs; i++)
        for (uint32_t k = 0; k < LIVES_AUX; k++)
            if (l->kept_aux[i][k] != NONE) {
                all[l->kept_aux[i][k]] = true;
                uint32_t place = l->e->nvalues + i * LIVES_AUX + k;
                park(l, (struct cost_parked){.value = NONE, .opr = i, .part = k, .place = place}, l->kept_aux[i][k]);
            }
    out->copied = sum_of(l, all, true);
    out->fetched = sum_of(l, read, true);
    out->fetched_input = l->plan.weighs[0] ? out->parked_input : 0;
}

/* Records all passes, and then goes backwards: what is live at the start of a pass is what the one before must
 * leave. */
static void follow(struct lives *l, struct cost_lives *out)
{
    struct lives_pass f, b, i, w;
    struct lives_ends of_f, of_b, of_w;
    begin_pass(l, 0);
    l->sizing = true;
    forward(l, false);
    l->sizing = false;
    uint32_t result = l->e->result == NONE ? NONE : lives_value(l, l->e->result);
    f = l->pass;
    park_aux(l);
    begin_pass(l, LIVES_INPUT | LIVES_WEIGHT);
    backward(l);
    b = l->pass;
    begin_pass(l, LIVES_INPUT);
    backward(l);
    begin_weights(l);
    i = l->pass;
    begin_pass(l, LIVES_WEIGHT);
    backward(l);
    w = l->pass;
    bool *kept = ARENA_ARRAY(l->arena, bool, l->stores.n), *left = ARENA_ARRAY(l->arena, bool, l->stores.n);
    kept[l->stream] = true;
    for (int k = 0; k < 8; k++)
        out->backward_of[k] = out->input_of[k] = 0;
    out->backward = lives_most(l, &b, kept, out->backward_of, &of_b, l->levels ? &l->levels[1] : NULL);
    kept[l->stream] = false;
    out->keep = sum_of(l, kept, false);
    out->parked = sum_of(l, kept, true);
    out->parked_input = l->kept[0] != NONE && l->stores.at[l->kept[0]].parks ? l->stores.at[l->kept[0]].bytes : 0;
    find_copied(l, out);
    if (result != NONE)
        kept[result] = true;
    out->forward = lives_most(l, &f, kept, NULL, &of_f, l->levels);
    out->weight = lives_most(l, &w, left, NULL, &of_w, NULL);
    out->left = sum_of(l, left, false);
    out->left_parked = sum_of(l, left, true);
    left[l->stream] = true;
    out->input = lives_most(l, &i, left, out->input_of, NULL, NULL);
    out->sent[0] = of_b.made;
    out->sent[1] = of_w.made;
    out->moved = of_f.moved;
    out->ahead[0] = lives_ahead(l, &b);
    out->ahead[1] = lives_ahead(l, &i);
    out->ahead[2] = lives_ahead(l, &w);
    out->workspace = l->workspace;
    out->mark = 0;
    out->levels = l->levels;
    for (int k = 0; k < 2 && l->levels; k++) {
        const struct cost_levels *x = &l->levels[k];
        out->mark = cost_mark(out->mark, x->step, x->n * sizeof *x->step);
        out->mark = cost_mark(out->mark, x->bytes, x->n * sizeof *x->bytes);
    }
}

static void follow_block(struct arena *a, const struct cost *c, const struct decision *d, const struct expansion *e,
                         enum lives_kind kind, struct arena *levels, struct cost_parked *each, uint32_t *nparked,
                         struct cost_lives *out)
{
    struct lives l = {.arena = a, .c = c, .d = d, .e = e, .kind = kind, .each = each, .levels_arena = levels};
    bool recomputes = kind == LIVES_LAYER || kind == LIVES_PREDICT;
    l.again = recomputes ? backward_again(d->recompute, d->parts) : 0;
    l.plan = backward_new(a, e, l.again, decision_exchanges_heads(d));
    l.element = c->job->train.precision == DT_FP32 ? 4 : 2;
    l.tokens = (double)c->job->train.sequence * d->microbatch / d->cp;
    l.sp = d->sp && d->tp > 1;
    l.nodes = d->ep_nodes || d->ep == 1 ? d->ep_nodes + !d->ep_nodes : cost_exchange_nodes(c);
    l.local = l.sp ? l.tokens / d->tp : l.tokens;
    l.value = nones(&l, e->nvalues);
    l.kept = nones(&l, e->nvalues);
    l.kept_words = nones(&l, e->nvalues);
    l.late_words = nones(&l, e->nvalues);
    l.words = nones(&l, e->nvalues);
    l.eight = c->job->train.fp8_kept && recomputes ? backward_eight(a, e) : ARENA_ARRAY(a, uint8_t, e->nvalues + 1u);
    l.gradient = nones(&l, e->nvalues);
    l.late_value = nones(&l, e->nvalues);
    l.late_gradient = nones(&l, e->nvalues);
    l.late = nones(&l, e->nvalues);
    l.has = ARENA_ARRAY(a, bool, e->nvalues + 1u);
    l.aux = (uint32_t(*)[LIVES_AUX])nones(&l, e->noprs * LIVES_AUX);
    l.kept_aux = (uint32_t(*)[LIVES_AUX])nones(&l, e->noprs * LIVES_AUX);
    vec_reserve(a, &l.stores, 256);
    keep_values(&l);
    l.tokens_store = lives_store(&l, 4 * l.tokens);
    l.targets_store = lives_store(&l, 4 * l.tokens);
    l.stream = lives_rows(&l, l.local, (double)c->job->model.width);
    if (levels)
        lives_find_order(&l);
    follow(&l, out);
    *nparked = l.nparked;
}

/* For a decision of the same shape as c's; its recomputation may differ. */
static void follow_later(struct arena *a, const struct cost *c, const struct cost_lives_later *later,
                         struct arena *levels, struct cost_parked *each, uint32_t *nparked, struct cost_lives *out)
{
    struct decision d = *c->decision;
    struct cost own = *c;
    d.recompute = later->recompute;
    d.parts = later->parts;
    own.decision = &d;
    follow_block(a, &own, &d, later->e, later->kind, levels, each, nparked, out);
}

static const struct cost_lives *lives_of(const struct cost *c, const struct cost_block *b, bool levels)
{
    struct cost_lives_later *later = b->lives;
    if (!later->known || (levels && !later->lives.levels)) {
        struct arena *a = arena_new();
        uint32_t n;
        follow_later(a, c, later, levels ? later->arena : NULL, NULL, &n, &later->lives);
        later->known = true;
        arena_free(a);
    }
    return &later->lives;
}

const struct cost_lives *cost_lives(const struct cost *c, const struct cost_block *b)
{
    return lives_of(c, b, false);
}

const struct cost_lives *cost_paired_lives(const struct cost *c, const struct cost_block *b)
{
    return lives_of(c, b, true);
}

uint32_t cost_parked(struct arena *a, const struct cost *c, const struct cost_block *b, struct cost_parked **each)
{
    const struct cost_lives_later *later = b->lives;
    struct arena *own = arena_new();
    struct cost_lives lives;
    uint32_t n;
    *each = ARENA_ARRAY(a, struct cost_parked, later->e->nvalues + later->e->noprs * LIVES_AUX + 1u);
    follow_later(own, c, later, NULL, *each, &n, &lives);
    arena_free(own);
    return n;
}
