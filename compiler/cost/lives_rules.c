/* The instructions of each kind of operator, forward and backward, with what they read and write of a block's
 * stores: the rules of compiler/lower (linear.c, norm.c, attention.c, context.c, heads.c, act.c, residual.c,
 * embed.c), without attributes.  Those of experts are in lives_experts.c. */

#include "compiler/cost/lives.h"

#include "runtime/workspace.h"

#include <math.h>

/* Gathers a TOKENS value where it is split. */
static uint32_t gather(struct lives *l, enum lives_whole kind, uint32_t x, double cols)
{
    if (!l->sp)
        return x;
    uint32_t whole = lives_whole(l, kind, cols);
    lives_transfer(l, whole, x, true);
    return whole;
}

static uint32_t partial(struct lives *l, uint32_t out, double cols)
{
    return l->sp ? lives_whole(l, WHOLE_PART, cols) : out;
}

static void reduce_into(struct lives *l, uint32_t part, uint32_t out)
{
    if (l->sp) {
        lives_transfer(l, out, part, false);
    } else if (l->d->tp > 1) {
        lives_update(l, out);
        l->queue_at = (uint32_t)l->pass.insns.n;
    }
}

static void need_workspace(struct lives *l, double bytes)
{
    if (l->c->type->gpu.sm)
        l->workspace = fmax(l->workspace, ceil(bytes / 256) * 256);
}

/* ---- products ---- */

static bool gathers(const struct lives *l, const struct opr *o)
{
    return !o->row_parallel && l->e->values[o->out].class == CLASS_COLS;
}

/* One product c = a b, in the order of the instruction's operands. */
static void product(struct lives *l, const struct opr *o, double m, double n, double k)
{
    struct workspace_of w = {.attr = {0}};
    bool fp8 = l->c->job->train.precision == DT_FP8 && strcmp(o->name, "head");
    w.attr[ATTR(MATMUL_NT, fp8)] = fp8 ? (int64_t)l->c->job->train.recipe + 1 : 0;
    w.operand[OPND(MATMUL_NT, c)].rows = (uint32_t)m;
    w.operand[OPND(MATMUL_NT, c)].cols = (uint32_t)n;
    w.operand[OPND(MATMUL_NT, a)].rows = (uint32_t)m;
    w.operand[OPND(MATMUL_NT, a)].cols = (uint32_t)k;
    w.operand[OPND(MATMUL_NT, b)].rows = (uint32_t)n;
    w.operand[OPND(MATMUL_NT, b)].cols = (uint32_t)k;
    l->workspace = fmax(l->workspace, (double)workspace_bytes(OP_MATMUL_NT, &w, l->c->type->gpu.sm));
}

static double product_rows(const struct lives *l, const struct opr *o)
{
    return o->row_parallel || gathers(l, o) ? l->tokens : l->local;
}

static void linear(struct lives *l, const struct opr *o)
{
    uint32_t x = lives_value(l, o->in[0]), y = lives_value(l, o->out);
    double in = lives_cols(l, o->in[0]), out = lives_cols(l, o->out), rows = product_rows(l, o);
    uint32_t a = gathers(l, o) ? gather(l, WHOLE_INPUT, x, in) : x, c = o->row_parallel ? partial(l, y, out) : y;
    lives_uses(l);
    lives_write(l, c);
    lives_read(l, a);
    if (o->row_parallel)
        reduce_into(l, c, y);
    if (!l->sizing)
        return;
    product(l, o, rows, out, in);
    product(l, o, rows, in, out);
    product(l, o, out, in, rows);
}

static void input_gradient(struct lives *l, const struct opr *o, uint32_t dy)
{
    bool adds, reduces = gathers(l, o) && l->d->tp > 1;
    double cols = lives_cols(l, o->in[0]);
    uint32_t dx = lives_gradient(l, o->in[0], &adds), sum = dx;
    if (reduces && adds)
        sum = lives_rows(l, lives_value_rows(l, o->in[0]), cols);
    uint32_t c = reduces ? partial(l, sum, cols) : dx;
    lives_uses(l);
    lives_give(l, c, !reduces && adds);
    lives_read(l, dy);
    if (!reduces)
        return;
    reduce_into(l, c, sum);
    if (!adds)
        return;
    lives_insn(l);
    lives_give(l, dx, true);
    lives_read(l, sum);
}

static void linear_back(struct lives *l, const struct opr *o)
{
    uint32_t dy = lives_output_gradient(l, o->out), x = NONE;
    bool weight = l->halves & LIVES_WEIGHT || l->undivided;
    if (weight)
        x = lives_kept(l, o->in[0]);
    if (o->row_parallel)
        dy = gather(l, WHOLE_GRADIENT, dy, lives_cols(l, o->out));
    else if (weight && gathers(l, o))
        x = gather(l, WHOLE_INPUT, x, lives_cols(l, o->in[0]));
    if (l->halves & LIVES_INPUT)
        input_gradient(l, o, dy);
    if (!weight)
        return;
    if (l->e->weights[o->weight].shared_with == WEIGHT_OWN)
        lives_makes(l, false);
    else
        lives_insn(l);
    lives_takes(l, 1);
    lives_read(l, dy);
    lives_read(l, x);
    if (!o->nbiases)
        return;
    lives_insn(l);
    lives_read(l, dy);
}

/* ---- norms ---- */

static uint32_t statistics(const struct lives *l, const struct opr *o)
{
    return o->attn || l->c->job->model.norm.kind == NORM_RMS ? 1 : 2;
}

static uint32_t row_numbers(struct lives *l, uint32_t opr, uint32_t k, double rows, double cols)
{
    return lives_aux(l, opr, k, 4 * rows * cols);
}

static void norm(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    lives_move(l, lives_value(l, o->out), lives_value(l, o->in[0]));
    for (uint32_t k = 0; k < statistics(l, o); k++)
        lives_write(l, row_numbers(l, opr, k, l->local, 1));
}

static void norm_back(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    bool adds;
    uint32_t dx = lives_gradient(l, o->in[0], &adds), x = lives_value(l, o->in[0]);
    for (int weight = 0; weight < 2; weight++) {
        lives_insn(l);
        if (!weight)
            lives_give(l, dx, adds);
        lives_read(l, l->gradient[o->out]);
        lives_read(l, x);
        for (uint32_t k = 0; k < statistics(l, o); k++)
            lives_read(l, row_numbers(l, opr, k, l->local, 1));
    }
}

static double normed_heads(const struct lives *l, const struct opr *o)
{
    const struct attn *t = o->attn;
    return t->qk_norm == QK_NORM_FULL ? 1 : o->keys ? lives_key_heads(l, t) : (double)t->heads / l->d->tp;
}

static void headnorm(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    uint32_t y = lives_value(l, o->out), x = lives_value(l, o->in[0]);
    lives_insn(l);
    if (o->keys)
        lives_part(l, y);
    else
        lives_write(l, y); /* the other half follows */
    lives_read(l, x);
    lives_write(l, row_numbers(l, opr, 0, l->tokens, normed_heads(l, o)));
}

/* attention has written the gradient of v beside that of q and k */
static void headnorm_back(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    bool adds;
    uint32_t x = lives_value(l, o->in[0]), dx = lives_gradient(l, o->in[0], &adds), dy = l->gradient[o->out];
    for (int weight = 0; weight < 2; weight++) {
        lives_insn(l);
        if (!weight)
            lives_part(l, dx);
        lives_read(l, dy);
        lives_read(l, x);
        lives_read(l, row_numbers(l, opr, 0, l->tokens, normed_heads(l, o)));
    }
}

/* ---- attention ---- */

static void attention_workspace(struct lives *l, const struct attn *t)
{
    struct workspace_of w = {.attr = {0}};
    uint32_t heads = t->heads / l->d->tp, kv = (uint32_t)lives_key_heads(l, t);
    const int64_t attr[4] = {heads, kv, t->head, (int64_t)attn_reach(t, l->c->job->train.sequence)};
    const size_t at[4] = {ATTR(ATTENTION_I, heads), ATTR(ATTENTION_I, kv), ATTR(ATTENTION_I, head),
                          ATTR(ATTENTION_I, sequence)};
    for (int k = 0; k < 4; k++)
        w.attr[at[k]] = attr[k];
    w.attr[ATTR(ATTENTION_I, softcap)] = t->softcap != 0;
    w.attr[ATTR(ATTENTION_I, alibi)] = t->alibi;
    w.operand[OPND(ATTENTION_I, q)].rows = (uint32_t)l->tokens;
    w.operand[OPND(ATTENTION_I, q)].dtype = l->element < 4 ? DTYPE_BF16 : DTYPE_F32;
    w.operand[OPND(ATTENTION_I, v)].cols = kv * (t->kind == ATTN_MLA ? t->v : t->head);
    l->workspace = fmax(l->workspace, (double)workspace_bytes(OP_ATTENTION_I, &w, l->c->type->gpu.sm));
}

/* Reads what attention reads, including its log-sum-exp. */
static void read_operands(struct lives *l, const struct opr *o)
{
    for (int k = 0; k < 2; k++)
        if (o->in[k] != NONE)
            lives_read(l, lives_value(l, o->in[k]));
}

static bool has_context(const struct lives *l, const struct attn *t)
{
    return l->d->cp > 1 && !attn_local(t, l->c->job->train.sequence, l->d->cp);
}

static void attention(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    if (has_context(l, o->attn)) {
        lives_context(l, opr);
        return;
    }
    uint32_t out = lives_value(l, o->out), lse = row_numbers(l, opr, 0, l->tokens, (double)o->attn->heads / l->d->tp);
    lives_insn(l);
    lives_write(l, out);
    lives_write(l, lse);
    read_operands(l, o);
    if (l->sizing)
        attention_workspace(l, o->attn);
}

static void attention_back(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    bool adds;
    if (has_context(l, o->attn)) {
        lives_context_back(l, opr);
        return;
    }
    uint32_t first = lives_gradient(l, o->in[0], &adds),
             second = o->in[1] == NONE ? NONE : lives_gradient(l, o->in[1], &adds);
    lives_insn(l);
    lives_write(l, first);
    if (second != NONE)
        lives_write(l, second);
    read_operands(l, o);
    lives_read(l, lives_value(l, o->out));
    lives_read(l, l->gradient[o->out]);
    lives_read(l, row_numbers(l, opr, 0, l->tokens, (double)o->attn->heads / l->d->tp));
}

static void keys(struct lives *l, const struct opr *o)
{
    uint32_t rope = gather(l, WHOLE_KEYS, lives_value(l, o->in[1]), lives_cols(l, o->in[1]));
    lives_move(l, lives_value(l, o->out), lives_value(l, o->in[0]));
    lives_read(l, rope);
}

static void keys_back(struct lives *l, const struct opr *o)
{
    bool adds;
    uint32_t dkv = lives_gradient(l, o->in[0], &adds), drope = lives_gradient(l, o->in[1], &adds);
    uint32_t part = partial(l, drope, lives_cols(l, o->in[1]));
    lives_move(l, dkv, l->gradient[o->out]);
    lives_write(l, part);
    reduce_into(l, part, drope);
}

/* ---- between products ---- */

static void add_back(struct lives *l, const struct opr *o)
{
    for (int k = 0; k < 2 && o->in[k] != NONE; k++) {
        l->gradient[o->in[k]] = l->gradient[o->out];
        l->has[o->in[k]] = true;
    }
    if (o->nbiases) {
        lives_insn(l);
        lives_read(l, l->gradient[o->out]);
    }
}

static void map_forward(struct lives *l, const struct opr *o)
{
    bool kept = o->kind == OPR_ACT && l->recomputing && l->plan.saved[o->in[0]];
    uint32_t y = lives_value(l, o->out), a = (kept ? lives_kept : lives_value)(l, o->in[0]);
    uint32_t b = o->in[1] == NONE ? NONE : lives_value(l, o->in[1]);
    lives_move(l, y, a);
    if (b != NONE)
        lives_read(l, b);
}

static void act_back(struct lives *l, const struct opr *o)
{
    bool adds;
    uint32_t x = lives_kept(l, o->in[0]), dx = lives_gradient(l, o->in[0], &adds);
    lives_move(l, dx, l->gradient[o->out]);
    lives_read(l, x);
}

static void softcap_back(struct lives *l, const struct opr *o)
{
    uint32_t dy = l->gradient[o->out];
    lives_update(l, dy);
    lives_read(l, lives_value(l, o->in[0]));
    l->gradient[o->in[0]] = dy;
    l->has[o->in[0]] = true;
}

static void concat_back(struct lives *l, const struct opr *o)
{
    bool adds;
    uint32_t da = lives_gradient(l, o->in[0], &adds), db = lives_gradient(l, o->in[1], &adds);
    lives_move(l, da, l->gradient[o->out]);
    lives_write(l, db);
}

/* ---- tables and the loss ---- */

static void embed(struct lives *l, const struct opr *o)
{
    lives_insn(l);
    lives_write(l, l->tokens_store);
    uint32_t y = lives_value(l, o->out), c = partial(l, y, lives_cols(l, o->out));
    lives_move(l, c, l->tokens_store);
    reduce_into(l, c, y);
    need_workspace(
        l, 4 * (3 * (double)expand_padded_vocab(l->c->job->model.vocab, l->d->tp) / l->d->tp + 3 * l->tokens + 2));
}

static void embed_back(struct lives *l, const struct opr *o)
{
    uint32_t dy = lives_output_gradient(l, o->out);
    if (!(l->halves & LIVES_WEIGHT))
        return;
    dy = gather(l, WHOLE_GRADIENT, dy, lives_cols(l, o->out));
    lives_makes(l, false);
    lives_read(l, dy);
    lives_read(l, l->tokens_store);
}

static void position_back(struct lives *l, const struct opr *o)
{
    uint32_t dy = lives_output_gradient(l, o->out);
    bool adds, both = l->halves == (LIVES_INPUT | LIVES_WEIGHT);
    if (l->halves & LIVES_INPUT && (both || l->c->job->model.embed_scale == 1)) {
        l->gradient[o->in[0]] = l->gradient[o->out];
        l->has[o->in[0]] = true;
    } else if (l->halves & LIVES_INPUT) {
        lives_move(l, lives_gradient(l, o->in[0], &adds), l->gradient[o->out]);
    }
    if (!(l->halves & LIVES_WEIGHT))
        return;
    lives_makes(l, false);
    lives_read(l, dy);
}

static void loss(struct lives *l, uint32_t opr)
{
    uint32_t logits = lives_value(l, l->e->oprs[opr].in[0]);
    uint32_t max = row_numbers(l, opr, 0, l->tokens, 1), sum = row_numbers(l, opr, 1, l->tokens, 2);
    lives_insn(l);
    lives_write(l, l->targets_store);
    lives_move(l, max, logits);
    lives_move(l, sum, logits);
    lives_read(l, max);
    lives_read(l, l->targets_store);
}

/* the gradient of the logits is made in place */
static void loss_back(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    uint32_t logits = lives_value(l, o->in[0]);
    lives_update(l, logits);
    lives_read(l, row_numbers(l, opr, 0, l->tokens, 1));
    lives_read(l, row_numbers(l, opr, 1, l->tokens, 2));
    lives_read(l, l->targets_store);
    l->gradient[o->in[0]] = logits;
    l->has[o->in[0]] = true;
}

/* ---- all kinds ---- */

void lives_forward(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    switch (o->kind) {
    case OPR_EMBED:
        embed(l, o);
        break;
    case OPR_NORM:
        norm(l, opr);
        break;
    case OPR_LINEAR:
        linear(l, o);
        break;
    case OPR_ROPE:
    case OPR_SCALE:
        lives_update(l, lives_value(l, o->in[0]));
        break;
    case OPR_HEADNORM:
        headnorm(l, opr);
        break;
    case OPR_KEYS:
        keys(l, o);
        break;
    case OPR_ATTENTION:
        attention(l, opr);
        break;
    case OPR_POSITION:
    case OPR_ACT:
    case OPR_ADD:
    case OPR_SOFTCAP:
    case OPR_CONCAT:
        map_forward(l, o);
        break;
    case OPR_LOSS:
        loss(l, opr);
        break;
    case OPR_ROUTER:
        lives_router(l, opr);
        break;
    case OPR_EXPERTS:
        lives_experts(l, opr);
        break;
    }
}

void lives_backward(struct lives *l, uint32_t opr)
{
    const struct opr *o = &l->e->oprs[opr];
    switch (o->kind) {
    case OPR_EMBED:
        embed_back(l, o);
        break;
    case OPR_POSITION:
        position_back(l, o);
        break;
    case OPR_NORM:
        norm_back(l, opr);
        break;
    case OPR_LINEAR:
        linear_back(l, o);
        break;
    case OPR_ROPE:
    case OPR_SCALE:
        lives_update(l, l->gradient[o->out]);
        break;
    case OPR_HEADNORM:
        headnorm_back(l, opr);
        break;
    case OPR_KEYS:
        keys_back(l, o);
        break;
    case OPR_ATTENTION:
        attention_back(l, opr);
        break;
    case OPR_ACT:
        act_back(l, o);
        break;
    case OPR_ADD:
        add_back(l, o);
        break;
    case OPR_SOFTCAP:
        softcap_back(l, o);
        break;
    case OPR_CONCAT:
        concat_back(l, o);
        break;
    case OPR_LOSS:
        loss_back(l, opr);
        break;
    case OPR_ROUTER:
        lives_router_back(l, opr);
        break;
    case OPR_EXPERTS:
        lives_experts_back(l, opr);
        break;
    }
}
