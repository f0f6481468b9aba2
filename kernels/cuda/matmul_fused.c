/* Products of cuBLASLt that do what is beside them as well.
 *
 *   forward   c = a b' + bias and y = gelu(c): a pass over c less
 *   input     dx = (a b) gelu'(x): three less, and a b is never stored.  The weight's gradient, which lowering puts
 * between the two, reads and writes nothing of that and goes first weight    c (+)= a' b and the bias's gradient, a's
 * column sums: a pass over a less gelu sees the product before it is rounded to bf16; cuBLASLt has the tanh form alone.
 *
 * Whether the joined product is taken is decided by what both ways' products took when they were measured, and by the
 * bytes that the rest alone moves: both are the same from run to run, as the cache of algorithms is.  Before that it
 * must agree with one by one on random operands.  Where it is not taken all run one by one. */

#include "kernels/cuda/fused.h"
#include "kernels/cuda/products.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(k, op, name) (&(k)->operand[OPND(op, name)])

/* of an elementwise kernel, on the slow side: it is the way that needs nothing of cuBLASLt */
static const float BYTES_PER_US_SM80 = 1.5e6f, BYTES_PER_US_SM90 = 3e6f, BYTES_PER_US_SM100 = 6e6f, LAUNCH_US = 2;
enum { SAMPLE = 256 /* elements that are compared */ };

static bool same(const struct view *a, const struct view *b)
{
    return a->data == b->data && a->dtype == b->dtype && a->rows == b->rows && a->cols == b->cols && a->ld == b->ld;
}

static bool share_memory(const struct view *a, const struct view *b)
{
    uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    return x < y + (uintptr_t)b->rows * b->ld * isa_dtype_bytes(b->dtype) &&
           y < x + (uintptr_t)a->rows * a->ld * isa_dtype_bytes(a->dtype);
}

/* as cuBLASLt wants results and what goes with them; no sum */
static bool fits(const struct view *v)
{
    return v->dtype == DTYPE_BF16 && !v->add && (uintptr_t)v->data % 16 == 0 && v->ld % 8 == 0;
}

static bool fits_forward(const struct kernel_args *k, const struct kernel_args *act)
{
    const struct view *c = AT(k, MATMUL_NT, c), *y = AT(act, GELU, y);
    return fits(c) && fits(y) && AT(k, MATMUL_NT, a)->dtype == DTYPE_BF16 && same(c, AT(act, GELU, x)) &&
           !share_memory(c, y) && act->attr[ATTR(GELU, tanh)].i && !k->attr[ATTR(MATMUL_NT, fp8)].i;
}

static bool fits_backward(const struct kernel_args *k, const struct kernel_args *act)
{
    const struct view *c = AT(k, MATMUL_NN, c), *x = AT(act, GELU_I, x), *dx = AT(act, GELU_I, dx);
    return fits(c) && fits(dx) && fits(x) && AT(k, MATMUL_NN, a)->dtype == DTYPE_BF16 && same(c, AT(act, GELU_I, dy)) &&
           !share_memory(x, dx) && !share_memory(AT(k, MATMUL_NN, a), dx) && !share_memory(AT(k, MATMUL_NN, b), dx) &&
           act->attr[ATTR(GELU_I, tanh)].i && !k->attr[ATTR(MATMUL_NN, fp8)].i;
}

/* may the weight's gradient come before the product k? */
static bool fits_before(const struct kernel_args *k, const struct kernel_args *weight)
{
    const struct view *c = AT(weight, MATMUL_TN, c), *own = AT(k, MATMUL_NN, c);
    return !share_memory(c, AT(k, MATMUL_NN, a)) && !share_memory(c, AT(k, MATMUL_NN, b)) && !share_memory(c, own) &&
           !share_memory(AT(weight, MATMUL_TN, a), own) && !share_memory(AT(weight, MATMUL_TN, b), own);
}

static bool fits_bias(const struct kernel_args *k, const struct kernel_args *bias)
{
    const struct view *a = AT(k, MATMUL_TN, a), *c = AT(k, MATMUL_TN, c), *db = AT(bias, BIAS_W, db);
    return same(a, AT(bias, BIAS_W, dy)) && a->dtype == DTYPE_BF16 && c->dtype == DTYPE_F32 && db->dtype == DTYPE_F32 &&
           db->cols == a->cols && !share_memory(c, db) && !k->attr[ATTR(MATMUL_TN, fp8)].i;
}

unsigned product_joined_fuse(const enum op *ops, const struct kernel_args *const *args, unsigned n)
{
    if (n >= 2 && ops[0] == OP_MATMUL_NT && ops[1] == OP_GELU)
        return fits_forward(args[0], args[1]) ? 2 : 1;
    if (n >= 2 && ops[0] == OP_MATMUL_TN && ops[1] == OP_BIAS_W)
        return fits_bias(args[0], args[1]) ? 2 : 1;
    if (n >= 2 && ops[0] == OP_MATMUL_NN && ops[1] == OP_GELU_I)
        return fits_backward(args[0], args[1]) ? 2 : 1;
    if (n >= 3 && ops[0] == OP_MATMUL_NN && ops[1] == OP_MATMUL_TN && ops[2] == OP_GELU_I)
        return fits_backward(args[0], args[2]) && fits_before(args[0], args[1]) ? 3 : 1;
    return 1;
}

unsigned cuda_fused_hides(const enum op *ops, unsigned n)
{
    return n > 1 && ops[0] == OP_MATMUL_NN ? 0 : n;
}

/* apart: the product alone; joined: with the last instruction; call: the workspace that products have, without what a
 * bias's gradient takes where it is to be added to another */
struct join {
    struct product apart, joined;
    struct cuda_call call;
    bool adds;
};

static bool join(const enum op *ops, const struct kernel_args *const *args, unsigned n, const struct cuda_call *c,
                 struct join *j)
{
    const struct kernel_args *last = args[n - 1];
    j->call = *c;
    j->call.args = args[0];
    j->adds = false;
    if (!c->libraries || !c->libraries->lt_handle || !product_get(ops[0], args[0], &j->apart))
        return false;
    struct product *p = &j->joined;
    *p = j->apart;
    if (ops[0] == OP_MATMUL_NT) {
        p->act = PRODUCT_GELU;
        p->c = *AT(last, GELU, y);
        p->aux = j->apart.c;
    } else if (ops[0] == OP_MATMUL_NN) {
        p->act = PRODUCT_GELU_SLOPE;
        p->c = *AT(last, GELU_I, dx);
        p->aux = *AT(last, GELU_I, x);
    } else {
        size_t bytes = ((size_t)p->m * sizeof(float) + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
        p->act = PRODUCT_BIAS_SUM;
        p->aux = *AT(last, BIAS_W, db);
        j->adds = p->aux.add || (uintptr_t)p->aux.data % 16;
        if (c->workspace_bytes < bytes)
            return false;
        j->call.workspace_bytes -= bytes;
        if (j->adds)
            p->aux.data = (uint8_t *)c->workspace + j->call.workspace_bytes;
    }
    return true;
}

/* microseconds that the rest takes by itself, less what the joined way has besides its product */
static float rest_us(const struct join *j)
{
    const struct product *p = &j->joined;
    int sm = j->call.libraries->sm;
    float per_us = sm >= 100 ? BYTES_PER_US_SM100 : sm >= 90 ? BYTES_PER_US_SM90 : BYTES_PER_US_SM80;
    if (p->act == PRODUCT_BIAS_SUM) /* two launches less one */
        return (float)p->m * (float)p->k * 2 / per_us + LAUNCH_US * (j->adds ? 1 : 2);
    return (p->act == PRODUCT_GELU ? 2.0f : 3.0f) * (float)p->m * (float)p->n * 2 / per_us + LAUNCH_US;
}

/* the joined product where it is the faster way, else NULL */
static struct product_plan *plan_for(const struct join *j, bool measure)
{
    const struct product_plan *alone = product_plan_get(&j->call, &j->apart, measure);
    struct product_plan *both = alone ? product_plan_get(&j->call, &j->joined, measure) : NULL;
    bool faster = both && both->measured_us > 0 && alone->measured_us > 0 &&
                  both->measured_us < alone->measured_us + rest_us(j);
    return faster && !both->differs ? both : NULL;
}

static const char *run_joined(const struct join *j, struct product_plan *plan, const struct kernel_args *last)
{
    const char *why = product_launch(&j->call, &j->joined, plan);
    if (why || j->joined.act != PRODUCT_BIAS_SUM || !j->adds)
        return why;
    struct kernel_args k = {.scratch = NULL};
    struct cuda_call add = j->call;
    add.args = &k;
    k.operand[OPND(ADD, y)] = *AT(last, BIAS_W, db);
    k.operand[OPND(ADD, a)] = j->joined.aux;
    return cuda_ADD(&add);
}

/* ---- do both ways agree? ---- */

/* the first numbers of a result; false: they cannot be had */
static bool sample(const struct cuda_call *c, const struct view *v, double *out)
{
    const struct cuda_runtime *r = c->libraries->runtime;
    uint8_t bytes[SAMPLE * sizeof(float)];
    uint32_t n = v->cols < SAMPLE ? v->cols : SAMPLE;
    int state;
    if (r->MemcpyAsync(bytes, v->data, n * isa_dtype_bytes(v->dtype), CUDA_COPY_DEFAULT, c->stream))
        return false;
    while ((state = cuda_poll_stream(r, c->stream)) == CUDA_NOT_READY)
        continue;
    for (uint32_t i = 0; i < n; i++) {
        uint16_t half;
        uint32_t bits;
        float x;
        memcpy(&half, bytes + (size_t)i * sizeof half, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&x, v->dtype == DTYPE_BF16 ? (uint8_t *)&bits : bytes + (size_t)i * sizeof x, sizeof x);
        out[i] = (double)x;
    }
    return state == CUDA_OK;
}

/* Both on the same random operands, by the first row of what they leave; nothing is added to. */
static bool agree(const struct join *j, const enum op *ops, const struct kernel_args *const *args, unsigned n,
                  struct product_plan *plan)
{
    double one[SAMPLE] = {0}, other[SAMPLE] = {0}, most = 0, worst = 0;
    struct kernel_args first = *args[0], last = *args[n - 1];
    struct cuda_call c = j->call;
    struct join plain = *j;
    const struct view *result = &last.operand[0]; /* gelu's, or the bias's gradient */
    if (product_fill(&c, &first.operand[1], 1) || product_fill(&c, &first.operand[2], 2) ||
        (first.operand[3].data && ops[0] == OP_MATMUL_NT && product_fill(&c, &first.operand[3], 3)) ||
        (ops[0] == OP_MATMUL_NN && product_fill(&c, &j->joined.aux, 4)) || product_fill(&c, &first.operand[0], 5) ||
        product_fill(&c, result, 6))
        return false;
    last.operand[0].add = plain.adds = false;
    const struct view *mine = j->joined.act == PRODUCT_BIAS_SUM ? &plain.joined.aux : result;
    if (run_joined(&plain, plan, &last) || !sample(&c, mine, one))
        return false;
    c.args = &first;
    const char *why = cuda_kernel(ops[0], &c);
    c.args = &last;
    if (why || cuda_kernel(ops[n - 1], &c) || !sample(&c, result, other))
        return false;
    for (uint32_t i = 0; i < SAMPLE; i++) {
        double apart = fabs(one[i] - other[i]);
        most = fmax(most, fabs(other[i]));
        worst = apart <= 1e30 ? fmax(worst, apart) : INFINITY;
    }
    return worst <= 0.02 * most; /* 16 bits twice */
}

const char *cuda_fused_prepare(const enum op *ops, const struct kernel_args *const *args, unsigned n,
                               const struct cuda_call *c)
{
    struct join j;
    if (n < 2 || product_joined_fuse(ops, args, n) != n || !join(ops, args, n, c, &j))
        return NULL;
    struct product_plan *plan = plan_for(&j, true);
    if (plan && !plan->compared && c->libraries->runtime && c->libraries->runtime->MemcpyAsync) {
        plan->compared = true;
        plan->differs = !agree(&j, ops, args, n, plan);
        if (plan->differs)
            fprintf(stderr,
                    "llmrun: cuBLASLt's product with %s disagrees with one by one on %u x %u x %u, and is not used\n",
                    j.joined.act == PRODUCT_BIAS_SUM ? "a bias's gradient" : "gelu", j.joined.m, j.joined.n,
                    j.joined.k);
    }
    return NULL; /* without a plan they run one by one */
}

const char *product_joined(const enum op *ops, const struct kernel_args *const *args, unsigned n,
                           const struct cuda_call *c)
{
    struct cuda_call one = *c;
    struct join j;
    const char *why = NULL;
    for (unsigned i = 1; i + 1 < n && !why; i++) {
        one.args = args[i];
        why = cuda_kernel(ops[i], &one);
    }
    struct product_plan *plan = join(ops, args, n, c, &j) ? plan_for(&j, false) : NULL;
    if (why || plan)
        return why ? why : run_joined(&j, plan, args[n - 1]);
    one.args = args[0];
    why = cuda_kernel(ops[0], &one);
    one.args = args[n - 1];
    return why ? why : cuda_kernel(ops[n - 1], &one);
}
