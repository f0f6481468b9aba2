/* The `model` block: embedding, norm, head, and the layers listed in model order.
 *
 * Two passes over the block: first what all layers need (width, norm), then the layers, so that the order of
 * the statements does not matter.  A `repeat` keeps one struct per layer of the file and repeats the
 * pointers. */

#include "compiler/model/check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define LAYERS_MAX 65536
#define PREDICT_MAX 16

struct layers {
    const struct layer **at;
    size_t n, room;
};

static void sema_norm(struct check *c, const struct value *v, struct norm *n)
{
    bool rms = !strcmp(v->text, "rmsnorm");
    struct binding b = check_bind(c, rms ? SCOPE_rmsnorm : SCOPE_layernorm, v);
    n->kind = rms ? NORM_RMS : NORM_LAYER;
    n->eps = bound_real(&b, "eps");
    n->bias = !rms && bound_yes(&b, "bias");
    n->place = bound_is(&b, "place", "post") ? NORM_POST : bound_is(&b, "place", "both") ? NORM_BOTH : NORM_PRE;
}

static void sema_head(struct check *c, const struct value *v, struct model *m)
{
    m->tied = !strcmp(v->text, "tied");
    struct binding b = check_bind(c, m->tied ? SCOPE_tied : SCOPE_untied, v);
    m->head_softcap = bound_real(&b, "softcap");
    m->head_scale = bound_real(&b, "scale");
    m->head_bias = bound_yes(&b, "bias");
    m->head_span = v->span;
}

static void sema_tokens(struct check *c, const struct value *v, struct model *m)
{
    struct binding b = check_bind(c, SCOPE_tokens, v);
    const struct bound *scale = bound_find(&b, "scale");
    m->embed_scale = 1;
    if (bound_set(&b, "scale") && !bound_is(&b, "scale", "no"))
        m->embed_scale = scale->value.kind == VALUE_NUMBER ? scale->value.number.real : sqrt((double)m->width);
    m->embed_norm = bound_yes(&b, "norm");
    m->embed_span = v->span;
}

static void sema_embed(struct check *c, const struct entry *e, struct model *m)
{
    static const char *const kinds[] = {"tokens", "positions"};
    struct value v;
    if (!check_one_item(c, e, &v))
        return;
    bool named = v.kind == VALUE_NAME || v.kind == VALUE_CALL;
    bool tokens = named && !strcmp(v.text, "tokens"), positions = named && !strcmp(v.text, "positions");
    const struct span *first = tokens ? &m->embed_span : &m->positions_span;
    if (!tokens && !positions) {
        check_unknown(c, v.span, "embedding", named ? v.text : "this", kinds, ARRAY_LEN(kinds));
    } else if (first->source) {
        diag_error(c->diag, v.span, "twice", "'embed %s' is said twice", v.text);
        diag_note(c->diag, *first, "the first");
    } else if (tokens) {
        sema_tokens(c, &v, m);
    } else {
        struct binding b = check_bind(c, SCOPE_positions, &v);
        m->positions = bound_count(&b, "count");
        m->positions_span = v.span;
    }
}

static bool add_layers(struct check *c, struct layers *out, const struct layer *const *from, size_t n, struct span at)
{
    c->layers_listed += n;
    if (out->n + n > LAYERS_MAX || c->layers_listed > 8 * LAYERS_MAX) {
        diag_error(c->diag, at, "limit", "more than %d layers", LAYERS_MAX);
        return false;
    }
    vec_reserve(c->arena, out, out->n + n);
    if (n)
        memcpy(out->at + out->n, from, n * sizeof *from);
    out->n += n;
    return true;
}

static void sema_layers(struct check *c, const struct stmt *stmts, const struct env *env, struct layers *out);

static void sema_repeat(struct check *c, const struct entry *e, struct layers *out)
{
    const struct stmt *s = e->stmt;
    struct value v;
    uint64_t times = 1;
    if (check_one_item(c, e, &v))
        check_count(c, &v, "repeat", 1, LAYERS_MAX, &times);
    if (!s->has_block) {
        diag_error(c->diag, s->word_span, "form", "repeat needs a block with its layers");
        return;
    }
    struct layers inner = {0};
    sema_layers(c, s->block, e->env, &inner);
    if (!inner.n && diag_errors(c->diag) == 0)
        diag_error(c->diag, s->word_span, "missing", "repeat without a layer");
    for (uint64_t i = 0; i < times && inner.n; i++)
        if (!add_layers(c, out, inner.at, inner.n, s->word_span))
            return;
}

static void sema_layer_entry(struct check *c, const struct entry *e, struct layers *out)
{
    if (!strcmp(e->row->name, "repeat")) {
        sema_repeat(c, e, out);
    } else if (!strcmp(e->row->name, "layer")) {
        const struct layer *l = sema_layer(c, e->stmt, e->env);
        add_layers(c, out, &l, 1, e->stmt->word_span);
    }
}

/* inside repeat: layers, repeats and lets */
static void sema_layers(struct check *c, const struct stmt *stmts, const struct env *env, struct layers *out)
{
    static const char *const words[] = {"layer", "repeat", "let"};
    for (const struct stmt *s = stmts; s; s = s->next) {
        if (s->let) {
            env = check_let(c, env, s);
        } else if (!strcmp(s->word, "layer") || !strcmp(s->word, "repeat")) {
            struct entry e = {vocab_find(SCOPE_model, s->word), s, env};
            sema_layer_entry(c, &e, out);
        } else {
            check_unknown(c, s->word_span, "word in repeat", s->word, words, ARRAY_LEN(words));
        }
    }
}

/* predict K ahead [{ layer { ... } weight F }] */
static void sema_predict(struct check *c, const struct entry *e, struct model *m)
{
    const struct stmt *s = e->stmt;
    const struct item *ahead = s->items ? s->items->next : NULL;
    uint64_t k = 0;
    bool form = ahead && !ahead->next && s->items->relop == RELOP_NONE && ahead->relop == RELOP_NONE &&
                ahead->expr->kind == EXPR_NAME && !strcmp(ahead->expr->text, "ahead");
    if (!form) {
        diag_error(c->diag, s->span, "form", "write 'predict K ahead', such as 'predict 1 ahead'");
        return;
    }
    struct value v = check_eval(c, e->env, s->items->expr);
    if (!check_count(c, &v, "predict", 1, PREDICT_MAX, &k))
        return;
    m->predict = (uint32_t)k;
    m->predict_span = s->span;
    struct block b = check_block(c, SCOPE_predict, s->block, e->env, s->span);
    m->predict_weight = bound_real(&b.words, "weight");
    m->predict_layer = m->nlayers ? m->layers[m->nlayers - 1] : NULL;
    for (size_t i = 0; i < b.n; i++)
        if (!strcmp(b.entries[i].row->name, "layer"))
            m->predict_layer = sema_layer(c, b.entries[i].stmt, b.entries[i].env);
}

static const char *model_name(struct check *c, const struct stmt *s)
{
    const struct item *item = s->items;
    const struct expr *e = item && !item->next && item->relop == RELOP_NONE ? item->expr : NULL;
    if (e && (e->kind == EXPR_NAME || e->kind == EXPR_STRING) && *e->text)
        return e->text;
    diag_error(c->diag, item ? item->span : s->word_span, "form", "a model has one name");
    diag_caret(c->diag, "help: model my_model { ... }, or model \"my-model\" { ... }");
    return "model";
}

void sema_model(struct check *c, const struct stmt *s, const struct env *env)
{
    struct model *m = &c->job->model;
    m->name = model_name(c, s);
    m->span = s->word_span;
    struct block b = check_block(c, SCOPE_model, s->block, env, s->word_span);
    m->vocab = bound_count(&b.words, "vocab");
    m->width = bound_set(&b.words, "width") ? bound_count(&b.words, "width") : 0;
    if (bound_set(&b.words, "norm")) {
        m->norm_span = bound_find(&b.words, "norm")->value.span;
        sema_norm(c, &bound_find(&b.words, "norm")->value, &m->norm);
    }
    if (bound_set(&b.words, "head"))
        sema_head(c, &bound_find(&b.words, "head")->value, m);

    struct layers layers = {0};
    for (size_t i = 0; i < b.n; i++) {
        if (!strcmp(b.entries[i].row->name, "embed"))
            sema_embed(c, &b.entries[i], m);
        sema_layer_entry(c, &b.entries[i], &layers);
    }
    m->layers = layers.at;
    m->nlayers = (uint32_t)layers.n;
    for (size_t i = 0; i < b.n; i++)
        if (!strcmp(b.entries[i].row->name, "predict"))
            sema_predict(c, &b.entries[i], m);
    if (m->predict && (m->positions || m->embed_norm))
        check_plan_only(c, m->predict_span, "'predict' with more than tokens in the embedding");
    if (bound_find(&b.words, "embed")->set && !m->embed_span.source && m->positions_span.source)
        diag_error(c->diag, s->word_span, "missing", "model needs 'embed tokens'");
    if (!layers.n && diag_errors(c->diag) == 0)
        diag_error(c->diag, s->word_span, "missing", "model has no layer");
}
