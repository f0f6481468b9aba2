/* Expansion of multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2).
 *
 * Module k, from 1: what the depth before passes on (the residual stream before a final norm) and the
 * embedding of the token k places later are normalised, put side by side, embedding first as in the published
 * weights, and projected; one layer; a norm of its own, then the model's head and its loss on targets k
 * places later still.  Embedding and head are the model's; the result is the layer's output, which the next
 * module reads; nothing reads the last one's. */

#include "compiler/model/expand_build.h"

static uint32_t expand_shifted_embedding(struct expand_builder *b, uint32_t ahead)
{
    const struct model *m = b->model;
    uint32_t e = expand_value(b, "e", CLASS_TOKENS, m->width);
    struct opr *o = expand_opr(b, OPR_EMBED, "predict.embed", NO_VALUE, e);
    o->span = m->predict_span;
    o->ahead = ahead;
    struct opr_weight *w = expand_matrix(b, "model.embed_tokens.weight", "model.embed_tokens.weight", m->vocab,
                                         m->width, SPLIT_ROWS);
    w->shared_with = WEIGHT_OF_EMBED;
    if (m->embed_scale != 1) {
        o = expand_opr(b, OPR_SCALE, "predict.scale", e, e);
        o->span = m->predict_span;
        o->factor = m->embed_scale;
    }
    return e;
}

const struct expansion *expand_predict(struct arena *a, const struct model *m, uint32_t ahead)
{
    struct expand_builder b = {.arena = a, .model = m, .ffn = "mlp"};
    uint32_t before = expand_value(&b, "before", CLASS_TOKENS, m->width);
    uint32_t e = expand_shifted_embedding(&b, ahead);
    uint32_t en = expand_norm(&b, "predict.enorm", "een", e, "enorm", "enorm");
    uint32_t hn = expand_norm(&b, "predict.hnorm", "hhn", before, "hnorm", "hnorm");
    uint32_t eh = expand_value(&b, "eh", CLASS_TOKENS, 2 * m->width);
    struct opr *o = expand_opr(&b, OPR_CONCAT, "predict.concat", en, eh);
    o->in[1] = hn;
    o->span = m->predict_span;
    uint32_t x = expand_value(&b, "xm", CLASS_TOKENS, m->width);
    expand_opr(&b, OPR_LINEAR, "predict.project", eh, x)->span = m->predict_span;
    expand_matrix(&b, "eh_proj.weight", "eh_proj.weight", m->width, 2 * m->width, SPLIT_NONE);
    uint32_t out = expand_sublayers(&b, m->predict_layer, x);
    uint32_t again = (uint32_t)b.oprs.n;
    expand_logits_loss(&b, out, "shared_head.norm", "shared_head.norm", ahead);
    struct expansion *e1 = expand_finish(&b, ahead < m->predict ? out : NO_VALUE);
    e1->again = again;
    return e1;
}
