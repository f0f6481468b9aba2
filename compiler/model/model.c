/* What follows from the checked model by arithmetic alone: parameters, floating-point operations, learning
 * rate, and the first thing that cannot be run.
 *
 * Counts are exact while they fit 64 bits; sema bounds every dimension by 2^20 and layers by 2^16, so that a
 * layer has fewer than 2^60 parameters only in practice: sums saturate rather than wrap.  FLOPs are doubles.
 */

#include "compiler/model/model.h"
#include "compiler/support/real.h"
#include "compiler/target/target.h"

#include <math.h>
#include <string.h>

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t norm_parameters(const struct model *m)
{
    return m->width * (m->norm.bias ? 2 : 1);
}

/* weights of the products alone; every one of them is used once per token */
static uint64_t attn_matrices(const struct model *m, const struct attn *a)
{
    if (a->kind == ATTN_GQA)
        return mul(m->width, mul(2 * ((uint64_t)a->heads + a->kv), a->head));
    uint64_t q_out = mul(a->heads, a->head);
    uint64_t q = a->q_rank ? add(mul(m->width, a->q_rank), mul(a->q_rank, q_out)) : mul(m->width, q_out);
    uint64_t kv = add(mul(m->width, (uint64_t)a->kv_rank + a->rope_dims),
                      mul(a->kv_rank, mul(a->heads, (uint64_t)a->nope + a->v)));
    return add(add(q, kv), mul(mul(a->heads, a->v), m->width));
}

static uint64_t attn_parameters(const struct model *m, const struct attn *a)
{
    uint64_t n = attn_matrices(m, a);
    if (a->kind == ATTN_MLA) /* norms of the compressed query, keys and values */
        return add(n, (uint64_t)a->q_rank + a->kv_rank);
    uint64_t q = mul(a->heads, a->head), kv = mul(a->kv, a->head);
    if (a->bias || a->qkv_bias)
        n = add(n, q + 2 * kv);
    if (a->bias)
        n = add(n, m->width);
    if (a->qk_norm == QK_NORM_HEAD)
        n = add(n, 2 * (uint64_t)a->head);
    if (a->qk_norm == QK_NORM_FULL)
        n = add(n, q + kv);
    return add(n, a->sinks ? a->heads : 0);
}

static uint64_t ffn_matrices(const struct model *m, const struct ffn *f, uint64_t width)
{
    bool gated = f->act == ACT_SWIGLU || f->act == ACT_GEGLU;
    return mul(gated ? 3 : 2, mul(m->width, width));
}

static uint64_t ffn_parameters(const struct model *m, const struct ffn *f, uint64_t width)
{
    bool gated = f->act == ACT_SWIGLU || f->act == ACT_GEGLU;
    uint64_t n = ffn_matrices(m, f, width);
    return f->bias && width ? add(n, add(mul(gated ? 2 : 1, width), m->width)) : n;
}

static uint64_t moe_parameters(const struct model *m, const struct moe *e, bool active)
{
    uint64_t n = mul(active ? e->active : e->experts, ffn_parameters(m, &e->expert, e->expert.width));
    n = add(n, ffn_parameters(m, &e->expert, mul(e->shared, e->expert.width)));
    n = add(n, mul(m->width, e->experts));
    return add(n, (uint64_t)e->experts * ((e->linear_bias ? 1u : 0u) + (e->bias ? 1u : 0u)));
}

uint64_t model_layer_parameters(const struct model *m, const struct layer *l, bool active)
{
    uint64_t norms = l->parallel ? l->parallel_norms : m->norm.place == NORM_BOTH ? 4 : 2;
    uint64_t sublayer = l->is_moe ? moe_parameters(m, &l->moe, active) : ffn_parameters(m, &l->ffn, l->ffn.width);
    return add(add(attn_parameters(m, &l->attn), sublayer), norms * norm_parameters(m));
}

static uint64_t all_parameters(const struct model *m, bool active)
{
    uint64_t n = mul(m->vocab, m->width) + mul(m->positions, m->width);
    n += norm_parameters(m) * (m->embed_norm ? 2 : 1);
    n = add(n, m->tied ? 0 : mul(m->vocab, m->width));
    n = add(n, m->head_bias ? m->vocab : 0);
    uint64_t layer = 0;
    for (uint32_t i = 0; i < m->nlayers; i++) {
        if (!i || m->layers[i] != m->layers[i - 1])
            layer = model_layer_parameters(m, m->layers[i], active);
        n = add(n, layer);
    }
    return n;
}

uint64_t model_parameters(const struct model *m)
{
    return all_parameters(m, false);
}

uint64_t model_active_parameters(const struct model *m)
{
    return all_parameters(m, true);
}

/* DeepSeek-V3 (arXiv:2412.19437, section 2.2): a layer, a projection of [hidden; embedding] and three norms
 * each */
uint64_t model_predict_parameters(const struct model *m)
{
    if (!m->predict || !m->predict_layer)
        return 0;
    uint64_t one = add(model_layer_parameters(m, m->predict_layer, false), mul(2 * m->width, m->width));
    return mul(m->predict, add(one, 3 * norm_parameters(m)));
}

uint64_t attn_reach(const struct attn *a, uint64_t sequence)
{
    return a->chunk && a->chunk < sequence ? a->chunk : sequence;
}

bool attn_local(const struct attn *a, uint64_t sequence, uint32_t cp)
{
    uint64_t reach = attn_reach(a, sequence);
    return reach < sequence && sequence % (2 * (uint64_t)cp * reach) == 0;
}

static double layer_flops_token(const struct model *m, const struct layer *l, uint64_t sequence)
{
    const struct attn *a = &l->attn;
    double span = (double)attn_reach(a, sequence);
    if (a->window && a->window < sequence)
        span = a->window;
    double scores = a->kind == ATTN_MLA ? (double)a->head + a->v : 2.0 * a->head;
    double products = 2.0 * span * a->heads * scores;
    double weights = (double)attn_matrices(m, a);
    if (l->is_moe) {
        const struct moe *e = &l->moe;
        weights += (double)ffn_matrices(m, &e->expert, e->expert.width) * ((double)e->active + e->shared);
        weights += (double)m->width * e->experts;
    } else {
        weights += (double)ffn_matrices(m, &l->ffn, l->ffn.width);
    }
    return 2 * weights + products;
}

double model_flops(const struct model *m, uint64_t sequence, uint64_t sequences)
{
    double w = (double)m->width, head = 2 * w * (double)m->vocab, layer = 0, token = head;
    for (uint32_t i = 0; i < m->nlayers; i++) {
        if (!i || m->layers[i] != m->layers[i - 1])
            layer = layer_flops_token(m, m->layers[i], sequence);
        token += layer;
    }
    if (m->predict && m->predict_layer)
        token += m->predict * (layer_flops_token(m, m->predict_layer, sequence) + 4 * w * w + head);
    return 3 * token * (double)sequence * (double)sequences;
}

bool job_is_modelled(const struct job *job)
{
    return job->wishes.target && strcmp(job->wishes.target->name, TARGET_DEFAULT) != 0;
}

bool model_has_experts(const struct model *m)
{
    for (uint32_t i = 0; i < model_all_layers(m); i++)
        if (model_layer(m, i)->is_moe)
            return true;
    return false;
}

bool model_unsupported(const struct job *job, const char **what, struct span *where)
{
    if (!job->nplan_only)
        return false;
    *what = job->plan_only[0].what;
    *where = job->plan_only[0].span;
    return true;
}

/* k draws among M sets meet M (1 - (1 - 1/M)^k) of them.  M = n where any expert may be chosen.  Where only the `pick`
 * best of g groups may be: a set that is one or several groups is left out by all of them with the probability prod
 * over i < pick of (g - g/n - i) / (g - i), so M = n times what is left of 1; where a group is several sets M = n pick
 * / g. DeepSeek-V3 (arXiv 2412.19437, sections 2.1.2 and 3.2.2), 8 choices in at most 4 of 8 nodes: 3.6 nodes a token.
 */
double model_sets_met(double n, uint32_t k, double groups, double pick)
{
    double among = n;
    if (pick > 0 && pick < groups && n <= groups) {
        double missed = 1;
        for (double i = 0; i < pick; i++)
            missed *= fmax(0, (groups - groups / n - i) / (groups - i));
        among = n * (1 - missed);
    } else if (pick > 0 && pick < groups) {
        among = n * pick / groups;
    }
    return among > 1 ? among * (1 - real_power(1 - 1 / among, k)) : 1;
}

double model_node_rows(const struct moe *m, uint32_t nodes, double tokens)
{
    return tokens * model_sets_met(nodes, m->active, m->groups, m->pick) / nodes;
}
