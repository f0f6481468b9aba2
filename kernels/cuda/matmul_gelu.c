/* A linear layer and the gelu behind it, or its gradient by its input and gelu's slope, as one product by cuBLASLt.
 *
 * Forward the activation costs a pass over the product less: c = a b' + bias goes to memory and y = gelu(c) with it.
 * Backward three: dx = (a b) gelu'(x), and a b itself is never stored.  The weight's gradient, which lowering puts between the
 * two, reads and writes nothing of that and goes first.  gelu sees the product before it is rounded to bf16.  cuBLASLt has the
 * tanh form alone.
 *
 * Whether the joined product is taken is decided by what both ways' products took when they were measured, and by the bytes
 * that the activation alone moves: both are the same from run to run, as the cache of algorithms is. */

#include "kernels/cuda/fused.h"
#include "kernels/cuda/products.h"

#define AT(k, op, name) (&(k)->operand[OPND(op, name)])

/* of an elementwise kernel, on the slow side: it is the way that needs nothing of cuBLASLt */
static const float BYTES_PER_US_SM80 = 1.5e6f, BYTES_PER_US_SM90 = 3e6f, BYTES_PER_US_SM100 = 6e6f, LAUNCH_US = 2;

static bool same(const struct view *a, const struct view *b)
{
    return a->data == b->data && a->dtype == b->dtype && a->rows == b->rows && a->cols == b->cols && a->ld == b->ld;
}

static bool share_memory(const struct view *a, const struct view *b)
{
    uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    return x < y + (uintptr_t)b->rows * b->ld * isa_dtype_bytes(b->dtype) && y < x + (uintptr_t)a->rows * a->ld * isa_dtype_bytes(a->dtype);
}

/* as cuBLASLt wants results and what goes with them; no sum */
static bool fits(const struct view *v)
{
    return v->dtype == DTYPE_BF16 && !v->add && (uintptr_t)v->data % 16 == 0 && v->ld % 8 == 0;
}

static bool fits_forward(const struct kernel_args *k, const struct kernel_args *act)
{
    const struct view *c = AT(k, MATMUL_NT, c), *y = AT(act, GELU, y);
    return fits(c) && fits(y) && AT(k, MATMUL_NT, a)->dtype == DTYPE_BF16 && same(c, AT(act, GELU, x)) && !share_memory(c, y) &&
           act->attr[ATTR(GELU, tanh)].i && !k->attr[ATTR(MATMUL_NT, fp8)].i;
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

unsigned product_gelu_fuse(const enum op *ops, const struct kernel_args *const *args, unsigned n)
{
    if (n >= 2 && ops[0] == OP_MATMUL_NT && ops[1] == OP_GELU)
        return fits_forward(args[0], args[1]) ? 2 : 1;
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

/* *apart: the product alone */
static bool joined(const enum op *ops, const struct kernel_args *const *args, unsigned n, struct product *apart, struct product *p)
{
    const struct kernel_args *act = args[n - 1];
    if (!product_get(ops[0], args[0], apart))
        return false;
    *p = *apart;
    p->act = ops[0] == OP_MATMUL_NT ? PRODUCT_GELU : PRODUCT_GELU_SLOPE;
    p->c = p->act == PRODUCT_GELU ? *AT(act, GELU, y) : *AT(act, GELU_I, dx);
    p->aux = p->act == PRODUCT_GELU ? apart->c : *AT(act, GELU_I, x);
    return true;
}

/* the joined product where it is the faster way, else NULL */
static struct product_plan *plan_for(const struct cuda_call *c, const struct product *apart, const struct product *p, bool measure)
{
    if (!c->libraries || !c->libraries->lt_handle)
        return NULL;
    const struct product_plan *alone = product_plan_get(c, apart, measure);
    struct product_plan *both = alone ? product_plan_get(c, p, measure) : NULL;
    if (!both || both->measured_us <= 0 || alone->measured_us <= 0)
        return NULL;
    float per_us = c->libraries->sm >= 100 ? BYTES_PER_US_SM100 : c->libraries->sm >= 90 ? BYTES_PER_US_SM90 : BYTES_PER_US_SM80;
    float bytes = (p->act == PRODUCT_GELU ? 2.0f : 3.0f) * (float)p->m * (float)p->n * 2;
    return both->measured_us < alone->measured_us + LAUNCH_US + bytes / per_us ? both : NULL;
}

const char *cuda_fused_prepare(const enum op *ops, const struct kernel_args *const *args, unsigned n, const struct cuda_call *c)
{
    struct product apart, p;
    if (n > 1 && (ops[0] == OP_MATMUL_NT || ops[0] == OP_MATMUL_NN) && joined(ops, args, n, &apart, &p))
        plan_for(c, &apart, &p, true);
    return NULL; /* without a plan they run one by one */
}

const char *product_gelu(const enum op *ops, const struct kernel_args *const *args, unsigned n, const struct cuda_call *c)
{
    struct cuda_call one = *c;
    struct product apart, p;
    const char *why = NULL;
    for (unsigned i = 1; i + 1 < n && !why; i++) {
        one.args = args[i];
        why = cuda_kernel(ops[i], &one);
    }
    one.args = args[0];
    struct product_plan *plan = joined(ops, args, n, &apart, &p) ? plan_for(c, &apart, &p, false) : NULL;
    if (why || plan)
        return why ? why : product_launch(&one, &p, plan);
    why = cuda_kernel(ops[0], &one);
    one.args = args[n - 1];
    return why ? why : cuda_kernel(ops[n - 1], &one);
}
