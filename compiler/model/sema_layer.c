/* One `layer { }`: attention, feed-forward, experts, and the relations between their numbers.
 *
 * Relations are checked only where all their values were accepted, so one mistake makes one message. */

#include "compiler/model/check.h"
#include "compiler/support/real.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void sema_scaling(struct check *c, const struct binding *b, struct rope *r)
{
    const struct bound *at = bound_find(b, "scaling");
    r->factor = 1;
    if (!bound_set(b, "scaling") || bound_is(b, "scaling", "none"))
        return;
    struct binding s = check_bind(c, (enum scope)vocab_scope(at->value.text), &at->value);
    r->factor = bound_real(&s, "factor");
    if (bound_is(b, "scaling", "linear")) {
        r->scaling = ROPE_LINEAR;
    } else if (bound_is(b, "scaling", "llama3")) {
        r->scaling = ROPE_LLAMA3;
        r->low = bound_real(&s, "low");
        r->high = bound_real(&s, "high");
        r->original = bound_real(&s, "original");
        if (!s.bad && r->low >= r->high)
            diag_error(c->diag, at->value.span, "relation", "low = %s must be below high = %s",
                       units_show_real(r->low).s, units_show_real(r->high).s);
    } else {
        r->scaling = ROPE_YARN;
        r->original = bound_real(&s, "original");
        r->fast = bound_real(&s, "fast");
        r->slow = bound_real(&s, "slow");
        r->mscale = bound_real(&s, "mscale");
        r->mscale_all = bound_real(&s, "mscale_all");
        if (!s.bad && r->slow > r->fast)
            diag_error(c->diag, at->value.span, "relation", "slow = %s must not be above fast = %s",
                       units_show_real(r->slow).s, units_show_real(r->fast).s);
    }
}

static void check_even(struct check *c, struct span at, const char *what, uint32_t n)
{
    if (n % 2)
        diag_error(c->diag, at, "relation", "rotary positions turn pairs: %s = %u must be even", what, n);
}

static void sema_rope(struct check *c, const struct binding *b, struct attn *a)
{
    const struct bound *at = bound_find(b, "rope");
    struct rope *r = &a->rope;
    if (!bound_set(b, "rope") || bound_is(b, "rope", "none"))
        return;
    *r = (struct rope){.on = true, .theta = at->value.number.real, .dims = a->head, .factor = 1};
    if (at->value.kind == VALUE_NUMBER) {
        if (!b->bad)
            check_even(c, at->value.span, "head", a->head);
        return;
    }
    struct binding s = check_bind(c, SCOPE_rotary, &at->value);
    r->theta = bound_real(&s, "theta");
    r->adjacent = bound_is(&s, "pairs", "adjacent");
    if (bound_set(&s, "dims") && !bound_is(&s, "dims", "head"))
        r->dims = (uint32_t)bound_count(&s, "dims");
    sema_scaling(c, &s, r);
    if (s.bad || b->bad)
        return;
    struct span span = bound_span(&s, "dims", at->value.span);
    check_even(c, span, "dims", r->dims);
    if (r->dims > a->head)
        diag_error(c->diag, span, "relation", "dims = %u is more than head = %u", r->dims, a->head);
}

static void sema_head(struct check *c, const struct binding *b, struct attn *a)
{
    uint64_t width = c->job->model.width;
    if (bound_set(b, "head")) {
        a->head = (uint32_t)bound_count(b, "head");
        return;
    }
    a->head = a->heads ? (uint32_t)(width / a->heads) : 1;
    if (!b->bad && width && width % a->heads) {
        diag_error(c->diag, bound_span(b, "heads", a->span), "relation", "heads = %u does not divide width = %" PRIu64,
                   a->heads, width);
        diag_caret(c->diag, "help: say the size of a head, such as head=128");
    }
    if (!a->head)
        a->head = 1;
}

/* gqa and mha */
static void sema_gqa(struct check *c, const struct binding *b, struct attn *a, bool mha)
{
    a->kind = ATTN_GQA;
    a->heads = (uint32_t)bound_count(b, "heads");
    a->kv = mha ? a->heads : (uint32_t)bound_count(b, "kv");
    sema_head(c, b, a);
    a->bias = bound_yes(b, "bias");
    a->qkv_bias = bound_yes(b, "qkv_bias");
    a->qk_norm = bound_is(b, "qk_norm", "head")   ? QK_NORM_HEAD
                 : bound_is(b, "qk_norm", "full") ? QK_NORM_FULL
                                                  : QK_NORM_NO;
    a->window = (uint32_t)fmin((double)bound_count(b, "window"), UINT32_MAX);
    a->chunk = (uint32_t)fmin((double)bound_count(b, "chunk"), UINT32_MAX);
    a->softcap = bound_real(b, "softcap");
    a->scale = bound_is(b, "scale", "head") ? a->head : bound_real(b, "scale");
    a->sinks = bound_yes(b, "sinks");
    a->alibi = bound_yes(b, "alibi");
    sema_rope(c, b, a);
    if (b->bad)
        return;
    if (a->heads % a->kv) {
        diag_error(c->diag, bound_span(b, "kv", a->span), "relation", "kv = %u does not divide heads = %u", a->kv,
                   a->heads);
        diag_caret(c->diag, "every key head serves the same number of query heads");
    }
    if (a->window && a->chunk)
        diag_error(c->diag, bound_span(b, "chunk", a->span), "relation", "a layer has a window or chunks, not both");
    if (a->alibi && a->rope.on)
        diag_error(c->diag, bound_span(b, "alibi", a->span), "relation", "a layer has alibi or rope, not both");
}

/* Yarn's magnitude (arXiv:2309.00071, equation 22): scores are multiplied by m^2, m = 0.1 mscale_all
 * ln(factor) + 1, which is the same as dividing scale by m^4. */
static void sema_mla(struct check *c, const struct binding *b, struct attn *a)
{
    a->kind = ATTN_MLA;
    a->heads = a->kv = (uint32_t)bound_count(b, "heads");
    a->q_rank = (uint32_t)bound_count(b, "q_rank");
    a->kv_rank = (uint32_t)bound_count(b, "kv_rank");
    a->nope = (uint32_t)bound_count(b, "nope");
    a->rope_dims = (uint32_t)bound_count(b, "rope");
    a->v = (uint32_t)bound_count(b, "v");
    a->head = a->nope + a->rope_dims;
    a->rope = (struct rope){.on = true, .theta = bound_real(b, "theta"), .dims = a->rope_dims, .adjacent = true};
    sema_scaling(c, b, &a->rope);
    a->scale = a->head;
    if (a->rope.scaling == ROPE_YARN) {
        double m = 0.1 * a->rope.mscale_all * real_log(a->rope.factor) + 1;
        a->scale /= m * m * m * m;
    }
    if (!b->bad)
        check_even(c, bound_span(b, "rope", a->span), "rope", a->rope_dims);
}

static void sema_attn(struct check *c, const struct value *v, struct attn *a)
{
    *a = (struct attn){.span = v->span};
    struct binding b = check_bind(c, (enum scope)vocab_scope(v->text), v);
    if (!strcmp(v->text, "mla"))
        sema_mla(c, &b, a);
    else
        sema_gqa(c, &b, a, !strcmp(v->text, "mha"));
}

static void sema_ffn(struct check *c, const struct value *v, struct ffn *f)
{
    static const char *const names[] = {[ACT_GELU] = "gelu",
                                        [ACT_RELU] = "relu",
                                        [ACT_RELU2] = "relu2",
                                        [ACT_SWIGLU] = "swiglu",
                                        [ACT_GEGLU] = "geglu"};
    *f = (struct ffn){.span = v->span};
    while (strcmp(names[f->act], v->text) != 0)
        f->act++;
    struct binding b = check_bind(c, (enum scope)vocab_scope(v->text), v);
    f->width = bound_count(&b, "width");
    f->bias = bound_yes(&b, "bias");
    if (f->act == ACT_GELU || f->act == ACT_GEGLU)
        f->approx_tanh = bound_is(&b, "approx", "tanh");
    if (f->act == ACT_SWIGLU) {
        f->limit = bound_real(&b, "limit");
        f->alpha = bound_real(&b, "alpha");
        f->offset = bound_real(&b, "offset");
    }
}

static void sema_router(struct check *c, const struct binding *b, struct moe *m)
{
    const struct bound *at = bound_find(b, "router");
    struct value standard = {.kind = VALUE_NAME, .span = m->span, .text = at->row->standard};
    const struct value *v = bound_set(b, "router") ? &at->value : &standard;
    struct binding r = check_bind(c, (enum scope)vocab_scope(v->text), v);
    m->router = !strcmp(v->text, "sigmoid") ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
    m->groups = (uint32_t)bound_count(&r, "groups");
    m->pick = (uint32_t)bound_count(&r, "pick");
    m->normalize = bound_yes(&r, "normalize");
    m->scale = bound_real(&r, "scale");
    m->bias = bound_yes(&r, "bias");
    m->rate = bound_real(&r, "rate");
    m->linear_bias = bound_yes(&r, "linear_bias");
    if (r.bad || b->bad)
        return;
    if (bound_set(&r, "rate") && !m->bias)
        diag_error(c->diag, bound_span(&r, "rate", v->span), "relation",
                   "rate moves the correction bias, which is off; write bias=yes");
    if (m->pick > m->groups)
        diag_error(c->diag, bound_span(&r, "pick", v->span), "relation", "pick = %u is more than groups = %u", m->pick,
                   m->groups);
    else if (m->experts % m->groups)
        diag_error(c->diag, bound_span(&r, "groups", v->span), "relation", "groups = %u does not divide experts = %u",
                   m->groups, m->experts);
    else if (m->active > m->experts / m->groups * m->pick)
        diag_error(c->diag, bound_span(&r, "pick", v->span), "relation",
                   "%u of %u groups hold %u experts, fewer than active = %u", m->pick, m->groups,
                   m->experts / m->groups * m->pick, m->active);
}

static void sema_moe_words(struct check *c, const struct binding *b, struct moe *m)
{
    m->experts = (uint32_t)bound_count(b, "experts");
    m->active = (uint32_t)bound_count(b, "active");
    m->shared = (uint32_t)bound_count(b, "shared");
    m->capacity = bound_real(b, "capacity");
    m->balance = bound_real(b, "balance");
    if (!b->bad && m->active > m->experts)
        diag_error(c->diag, bound_span(b, "active", m->span), "relation", "active = %u is more than experts = %u",
                   m->active, m->experts);
    else
        sema_router(c, b, m);
}

/* `moe KIND(W) { ... }`, or a moe(...) call, mostly by a let */
static bool sema_moe(struct check *c, const struct entry *e, struct moe *m)
{
    struct value v;
    if (!check_one_item(c, e, &v))
        return false;
    *m = (struct moe){.span = v.span};

    if (v.kind == VALUE_CALL && !strcmp(v.text, "moe")) {
        if (e->stmt->has_block)
            diag_error(c->diag, e->stmt->open, "no-block", "moe(...) has its words as arguments and no block");
        struct binding b = check_bind(c, SCOPE_moe, &v);
        if (bound_set(&b, "expert"))
            sema_ffn(c, &bound_find(&b, "expert")->value, &m->expert);
        sema_moe_words(c, &b, m);
        return true;
    }
    if (!check_takes(c, vocab_find(SCOPE_moe, "expert"), &v, v.span))
        return false;
    sema_ffn(c, &v, &m->expert);
    struct block block = check_block(c, SCOPE_moe, e->stmt->block, e->env, e->stmt->span);
    sema_moe_words(c, &block.words, m);
    return true;
}

static void sema_parallel(struct check *c, const struct stmt *s, const struct env *env, struct layer *l)
{
    if (!s->items)
        return;
    struct value v = check_eval(c, env, s->items->expr);
    if (v.kind == VALUE_BAD)
        return;
    bool named = (v.kind == VALUE_NAME || v.kind == VALUE_CALL) && !strcmp(v.text, "parallel") &&
                 s->items->relop == RELOP_NONE;
    if (!named || s->items->next) {
        diag_error(c->diag, named ? s->items->next->span : s->items->span, "form",
                   "a layer is written layer { ... } or layer parallel(norms=1) { ... }");
        return;
    }
    struct binding b = check_bind(c, SCOPE_parallel, &v);
    l->parallel = true;
    l->parallel_norms = (uint32_t)bound_count(&b, "norms");
    if (c->job->model.norm.place != NORM_PRE) {
        diag_error(c->diag, v.span, "relation", "parallel sublayers need place=pre");
        diag_note(c->diag, c->job->model.norm_span, "the norm");
    }
}

struct layer *sema_layer(struct check *c, const struct stmt *s, const struct env *env)
{
    struct layer *l = ARENA_NEW(c->arena, struct layer);
    l->span = s->word_span;
    sema_parallel(c, s, env, l);
    if (!s->has_block) {
        diag_error(c->diag, s->word_span, "form", "a layer needs its block");
        diag_caret(c->diag, "help: layer { attn ... ffn ... }, one statement per line");
        return l;
    }
    struct block b = check_block(c, SCOPE_layer, s->block, env, s->word_span);
    const struct entry *ffn = NULL, *moe = NULL;
    if (bound_set(&b.words, "attn"))
        sema_attn(c, &bound_find(&b.words, "attn")->value, &l->attn);
    for (size_t i = 0; i < b.n; i++) {
        if (!strcmp(b.entries[i].row->name, "ffn"))
            ffn = &b.entries[i];
        if (!strcmp(b.entries[i].row->name, "moe"))
            moe = &b.entries[i];
    }
    if (bound_set(&b.words, "ffn"))
        sema_ffn(c, &bound_find(&b.words, "ffn")->value, &l->ffn);
    if (moe)
        l->is_moe = sema_moe(c, moe, &l->moe);
    if (ffn && moe) {
        diag_error(c->diag, moe->stmt->word_span, "relation", "a layer has ffn or moe, not both");
        diag_note(c->diag, ffn->stmt->word_span, "the 'ffn'");
    } else if (!ffn && !moe && !b.words.bad) {
        diag_error(c->diag, s->word_span, "missing", "layer needs 'ffn' or 'moe'");
    }
    return l;
}
