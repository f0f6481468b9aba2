/* Norms and activations: a random function of a row's statistic, or of an element.
 *
 * A norm's 1 / sqrt is the random function r(mean of squares); its gradients have r as an operand and are
 * then polynomials, those of kernels/cpu/norm.c.  An activation f has f(0) = 0, for rows that are only
 * padding. */

#include "compiler/execute/kernel.h"

static uint64_t *row(const struct exact_view *v, uint64_t i)
{
    return v->at + i * v->cols;
}

static uint64_t share(uint64_t sum, uint32_t n)
{
    return field_mul(sum, field_inverse(n));
}

static uint64_t sum_of(const uint64_t *x, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t j = 0; j < n; j++)
        sum = field_add(sum, x[j]);
    return sum;
}

void exact_RMSNORM(struct exact_args *k)
{
    const struct exact_view *y = V(RMSNORM, y), *x = V(RMSNORM, x), *g = V(RMSNORM, g);
    for (uint32_t i = 0; i < x->rows; i++) {
        uint64_t mean = share(field_dot(row(x, i), 1, row(x, i), 1, x->cols), x->cols);
        uint64_t r = field_hash(SALT_RSTD, mean, field_image(NUMBER(RMSNORM, eps)));
        for (uint32_t j = 0; j < x->cols; j++)
            row(y, i)[j] = field_mul(field_mul(row(x, i)[j], r), g->at[j]);
        V(RMSNORM, rstd)->at[i] = r;
    }
}

/* dx = r (g dy - x r^2 mean(g dy x)) */
void exact_RMSNORM_I(struct exact_args *k)
{
    const struct exact_view *dx = V(RMSNORM_I, dx), *dy = V(RMSNORM_I, dy), *x = V(RMSNORM_I, x), *g = V(RMSNORM_I, g);
    for (uint32_t i = 0; i < x->rows; i++) {
        uint64_t r = V(RMSNORM_I, rstd)->at[i], *out = row(dx, i);
        for (uint32_t j = 0; j < x->cols; j++)
            out[j] = field_mul(row(dy, i)[j], g->at[j]);
        uint64_t pull = field_mul(share(field_dot(out, 1, row(x, i), 1, x->cols), x->cols), field_mul(r, r));
        for (uint32_t j = 0; j < x->cols; j++)
            out[j] = field_mul(r, field_sub(out[j], field_mul(row(x, i)[j], pull)));
    }
}

void exact_RMSNORM_W(struct exact_args *k)
{
    const struct exact_view *dg = V(RMSNORM_W, dg), *dy = V(RMSNORM_W, dy), *x = V(RMSNORM_W, x);
    for (uint32_t i = 0; i < x->rows; i++)
        for (uint32_t j = 0; j < x->cols; j++)
            dg->at[j] = field_add(dg->at[j],
                                  field_mul(field_mul(row(dy, i)[j], row(x, i)[j]), V(RMSNORM_W, rstd)->at[i]));
}

void exact_LAYERNORM(struct exact_args *k)
{
    const struct exact_view *y = V(LAYERNORM, y), *x = V(LAYERNORM, x), *g = V(LAYERNORM, g), *b = V(LAYERNORM, b);
    for (uint32_t i = 0; i < x->rows; i++) {
        uint64_t mean = share(sum_of(row(x, i), x->cols), x->cols), *out = row(y, i);
        for (uint32_t j = 0; j < x->cols; j++)
            out[j] = field_sub(row(x, i)[j], mean);
        uint64_t r = field_hash(SALT_RSTD, share(field_dot(out, 1, out, 1, x->cols), x->cols),
                                field_image(NUMBER(LAYERNORM, eps)));
        for (uint32_t j = 0; j < x->cols; j++)
            out[j] = field_add(field_mul(field_mul(out[j], r), g->at[j]), b->at ? b->at[j] : 0);
        V(LAYERNORM, mean)->at[i] = mean;
        V(LAYERNORM, rstd)->at[i] = r;
    }
}

/* with n = (x - mean) r: dx = r (g dy - mean(g dy) - n mean(g dy n)) */
void exact_LAYERNORM_I(struct exact_args *k)
{
    const struct exact_view *dx = V(LAYERNORM_I, dx), *dy = V(LAYERNORM_I, dy), *x = V(LAYERNORM_I, x),
                            *g = V(LAYERNORM_I, g);
    uint64_t *normal = ARENA_ARRAY(k->scratch, uint64_t, x->cols);
    for (uint32_t i = 0; i < x->rows; i++) {
        uint64_t mean = V(LAYERNORM_I, mean)->at[i], r = V(LAYERNORM_I, rstd)->at[i], *out = row(dx, i);
        for (uint32_t j = 0; j < x->cols; j++) {
            normal[j] = field_mul(field_sub(row(x, i)[j], mean), r);
            out[j] = field_mul(row(dy, i)[j], g->at[j]);
        }
        uint64_t shift = share(sum_of(out, x->cols), x->cols),
                 pull = share(field_dot(out, 1, normal, 1, x->cols), x->cols);
        for (uint32_t j = 0; j < x->cols; j++)
            out[j] = field_mul(r, field_sub(field_sub(out[j], shift), field_mul(normal[j], pull)));
    }
}

void exact_LAYERNORM_W(struct exact_args *k)
{
    const struct exact_view *dg = V(LAYERNORM_W, dg), *db = V(LAYERNORM_W, db), *dy = V(LAYERNORM_W, dy),
                            *x = V(LAYERNORM_W, x);
    for (uint32_t i = 0; i < x->rows; i++) {
        uint64_t mean = V(LAYERNORM_W, mean)->at[i], r = V(LAYERNORM_W, rstd)->at[i];
        for (uint32_t j = 0; j < x->cols; j++) {
            uint64_t normal = field_mul(field_sub(row(x, i)[j], mean), r);
            dg->at[j] = field_add(dg->at[j], field_mul(row(dy, i)[j], normal));
            if (db->at)
                db->at[j] = field_add(db->at[j], row(dy, i)[j]);
        }
    }
}

/* kinds of activations: combines the opcode of the forward instruction and its attribute */
static uint64_t act(uint64_t kind, uint64_t x)
{
    return x ? field_hash(SALT_ACT, kind, x) : 0;
}

static uint64_t slope(uint64_t kind, uint64_t x)
{
    return field_hash(SALT_ACT_SLOPE, kind, x);
}

static uint64_t act_kind(enum op op, int64_t attribute)
{
    return (uint64_t)op << 32 | (uint32_t)attribute;
}

static void act_forward(const struct exact_view *y, const struct exact_view *x, const struct exact_view *up,
                        uint64_t kind)
{
    for (uint64_t i = 0; i < (uint64_t)y->rows * y->cols; i++)
        y->at[i] = up ? field_mul(act(kind, x->at[i]), up->at[i]) : act(kind, x->at[i]);
}

static void act_backward(const struct exact_view *dx, const struct exact_view *dup, const struct exact_view *dy,
                         const struct exact_view *x, const struct exact_view *up, uint64_t kind)
{
    for (uint64_t i = 0; i < (uint64_t)dy->rows * dy->cols; i++) {
        uint64_t d = dy->at[i];
        dx->at[i] = field_mul(up ? field_mul(d, up->at[i]) : d, slope(kind, x->at[i]));
        if (dup)
            dup->at[i] = field_mul(d, act(kind, x->at[i]));
    }
}

void exact_GELU(struct exact_args *k)
{
    act_forward(V(GELU, y), V(GELU, x), NULL, act_kind(OP_GELU, INTEGER(GELU, tanh)));
}

void exact_GELU_I(struct exact_args *k)
{
    act_backward(V(GELU_I, dx), NULL, V(GELU_I, dy), V(GELU_I, x), NULL, act_kind(OP_GELU, INTEGER(GELU_I, tanh)));
}

void exact_RELU(struct exact_args *k)
{
    act_forward(V(RELU, y), V(RELU, x), NULL, act_kind(OP_RELU, INTEGER(RELU, power)));
}

void exact_RELU_I(struct exact_args *k)
{
    act_backward(V(RELU_I, dx), NULL, V(RELU_I, dy), V(RELU_I, x), NULL, act_kind(OP_RELU, INTEGER(RELU_I, power)));
}

/* the gate's function with limit and alpha; up is clamped by limit (its slope is one more function), plus offset */
struct exact_swiglu {
    uint64_t kind, limit, offset; /* images; limit 0 = none */
};

static struct exact_swiglu exact_swiglu_of(double limit, double alpha, double offset)
{
    uint64_t kind = act_kind(OP_SWIGLU, 0);
    if (limit > 0 || alpha > 0)
        kind = field_hash(kind, field_image(limit), field_image(alpha));
    return (struct exact_swiglu){kind, limit > 0 ? field_image(limit) : 0, field_real(offset)};
}

static uint64_t clamped(const struct exact_swiglu *w, uint64_t up)
{
    return field_add(w->limit && up ? field_hash(SALT_CLAMP, w->limit, up) : up, w->offset);
}

void exact_SWIGLU(struct exact_args *k)
{
    const struct exact_view *y = V(SWIGLU, y), *gate = V(SWIGLU, gate), *up = V(SWIGLU, up);
    struct exact_swiglu w = exact_swiglu_of(NUMBER(SWIGLU, limit), NUMBER(SWIGLU, alpha), NUMBER(SWIGLU, offset));
    for (uint64_t i = 0; i < (uint64_t)y->rows * y->cols; i++)
        y->at[i] = field_mul(act(w.kind, gate->at[i]), clamped(&w, up->at[i]));
}

void exact_SWIGLU_I(struct exact_args *k)
{
    const struct exact_view *dgate = V(SWIGLU_I, dgate), *dup = V(SWIGLU_I, dup), *dy = V(SWIGLU_I, dy),
                            *gate = V(SWIGLU_I, gate), *up = V(SWIGLU_I, up);
    struct exact_swiglu w = exact_swiglu_of(NUMBER(SWIGLU_I, limit), NUMBER(SWIGLU_I, alpha), NUMBER(SWIGLU_I, offset));
    for (uint64_t i = 0; i < (uint64_t)dy->rows * dy->cols; i++) {
        uint64_t d = dy->at[i], g = gate->at[i], u = up->at[i];
        uint64_t own = field_mul(d, act(w.kind, g));
        dgate->at[i] = field_mul(field_mul(d, clamped(&w, u)), slope(w.kind, g));
        dup->at[i] = w.limit ? field_mul(own, field_hash(SALT_CLAMP_SLOPE, w.limit, u)) : own;
    }
}

void exact_GEGLU(struct exact_args *k)
{
    act_forward(V(GEGLU, y), V(GEGLU, gate), V(GEGLU, up), act_kind(OP_GELU, INTEGER(GEGLU, tanh)));
}

void exact_GEGLU_I(struct exact_args *k)
{
    act_backward(V(GEGLU_I, dgate), V(GEGLU_I, dup), V(GEGLU_I, dy), V(GEGLU_I, gate), V(GEGLU_I, up),
                 act_kind(OP_GELU, INTEGER(GEGLU_I, tanh)));
}
