/* MATMUL rows by cuBLASLt, and what products and attention answer about limits.
 *
 * cuBLASLt is column-major: our row-major c = op(a) op(b) is its c' = op(b)' op(a)', so its first operand is our b.  A
 * matrix that we store [out, in] and multiply transposed is then transposed there as well, and the gradient by the
 * weight, a' b, has its second operand transposed.  Accumulation in fp32, c = c + product by beta 1 within the kernel,
 * bias by its epilogue.  What cuBLASLt lacks goes to our own kernels: fp32 operands with a bf16 result, and a bf16 bias
 * on an fp32 result, which is added afterwards.
 *
 * In 8 bits (recipe `tensor`) both operands are rounded into the workspace first, by fp8.cu, with what is summed over
 * next to each other: then cuBLASLt's first operand is always transposed and its second never, the one layout that all
 * GPUs have. Scales lie on the device.  A product that does not fit runs in its operands' own dtype, and cuda_note()
 * says so. */

#include "kernels/cuda/products.h"

#include <stdio.h>
#include <string.h>

#define V(op, name) (&k->operand[OPND(op, name)])

static struct product product_of(const struct view *c, const struct view *a, bool ta, const struct view *b, bool tb,
                                 const struct view *bias)
{
    struct product p = {.c = *c, .a = *a, .b = *b, .ta = ta, .tb = tb};
    if (bias)
        p.bias = *bias;
    p.m = c->rows;
    p.n = c->cols;
    p.k = ta ? a->rows : a->cols;
    p.gradient = ta || !tb;
    return p;
}

bool product_get(enum op op, const struct kernel_args *k, struct product *p)
{
    if (op == OP_MATMUL_NT)
        *p = product_of(V(MATMUL_NT, c), V(MATMUL_NT, a), false, V(MATMUL_NT, b), true, V(MATMUL_NT, bias));
    else if (op == OP_MATMUL_NN)
        *p = product_of(V(MATMUL_NN, c), V(MATMUL_NN, a), false, V(MATMUL_NN, b), false, NULL);
    else if (op == OP_MATMUL_TN)
        *p = product_of(V(MATMUL_TN, c), V(MATMUL_TN, a), true, V(MATMUL_TN, b), false, NULL);
    else
        return false;
    return true;
}

/* does cuBLASLt have the combination of dtypes? */
static bool lt_serves(const struct cuda_call *c, const struct product *p)
{
    bool narrow = !p->eight && p->a.dtype == DTYPE_F32 && p->c.dtype == DTYPE_BF16;
    return c->libraries && c->libraries->lt_handle && !narrow;
}

/* its bias has the dtype of the result, in 8 bits bf16 */
static bool bias_apart(const struct product *p)
{
    return p->bias.data && (p->bias.dtype != p->c.dtype || (p->eight && p->c.dtype == DTYPE_F32));
}

const char *product_launch(const struct cuda_call *c, const struct product *p, struct product_plan *plan)
{
    struct cuda_libraries *l = c->libraries;
    const float one = 1, beta = p->c.add ? 1 : 0;
    if (plan->key.bias &&
        l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_BIAS_POINTER, &p->bias.data, sizeof p->bias.data))
        return "cuBLASLt refuses the bias";
    if (plan->key.act && l->lt.cublasLtMatmulDescSetAttribute(plan->desc, product_aux_attribute(p->act), &p->aux.data,
                                                              sizeof p->aux.data))
        return "cuBLASLt refuses where an epilogue's operand lies";
    if (p->eight &&
        (l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_A_SCALE_POINTER, &p->scale_b, sizeof p->scale_b) ||
         l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_B_SCALE_POINTER, &p->scale_a, sizeof p->scale_a)))
        return "cuBLASLt refuses scales of 8-bit operands";
    int status = l->lt.cublasLtMatmul(l->lt_handle, plan->desc, &one, p->b.data, plan->layout_a, p->a.data,
                                      plan->layout_b, &beta, p->c.data, plan->layout_c, p->c.data, plan->layout_c,
                                      &plan->algo, c->workspace, plan->workspace_bytes, c->stream);
    if (!status)
        return NULL;
    snprintf(l->error, sizeof l->error, "cublasLtMatmul: %s (%ux%ux%u)", l->lt.cublasLtGetStatusString(status), p->m,
             p->n, p->k);
    return l->error;
}

int product_sm(const struct cuda_call *c)
{
    return c->libraries ? c->libraries->sm : 90;
}

const char *product_fp8_plan(enum op op, const struct kernel_args *k, int sm, struct workspace_fp8 *w)
{
    struct workspace_of of = cuda_workspace_of(op, k);
    const char *why = workspace_fp8(op, &of, (uint32_t)sm, w);
    for (uint32_t i = 0; i < 3 && !why; i++) { /* c, a and b: 16 bytes at a time */
        const struct view *v = &k->operand[i];
        if ((uintptr_t)v->data % 16 || (size_t)v->ld * isa_dtype_bytes(v->dtype) % 16)
            why = "its rows begin at no multiples of 16 bytes";
    }
    return why;
}

/* GPUs without 8-bit products */
static const char *too_old(enum op op, const struct cuda_call *c)
{
    struct cuda_libraries *l = c->libraries;
    int64_t attr[ISA_MAX_ATTRS];
    for (uint32_t i = 0; i < ISA_MAX_ATTRS; i++)
        attr[i] = c->args->attr[i].i;
    if (!l || l->sm >= 89 || !workspace_recipe(op, attr))
        return NULL;
    snprintf(l->error, sizeof l->error, "%s is sm_%d, and products in fp8 need sm_89 or later: write precision bf16",
             l->device_name, l->sm);
    return l->error;
}

const char *product_operands(enum op op, const struct cuda_call *c, bool fill, struct product *p,
                             struct cuda_call *rest)
{
    struct product whole = *p;
    struct workspace_fp8 w;
    const char *why = too_old(op, c);
    *rest = *c;
    if (why || product_fp8_plan(op, c->args, product_sm(c), &w))
        return why;
    if (fill)
        why = product_fill(c, &p->a, 1);
    if (fill && !why)
        why = product_fill(c, &p->b, 2);
    return why ? why : product_fp8(c, &whole, &w, p, rest);
}

static const char *run(enum op op, const struct cuda_call *c)
{
    struct product p;
    struct cuda_call rest;
    if (!product_get(op, c->args, &p))
        return "not a product";
    const char *why = product_operands(op, c, false, &p, &rest);
    if (why || !lt_serves(c, &p))
        return why ? why : product_own(&rest, &p);
    struct product without = p;
    if (bias_apart(&p))
        without.bias.data = NULL;
    struct product_plan *plan = product_plan_get(&rest, &without, false);
    if (!plan) /* of 8 bits ours takes what cuBLASLt has no algorithm for */
        return p.eight ? product_own(&rest, &p) : c->libraries->error;
    why = product_launch(&rest, &without, plan);
    return !why && bias_apart(&p) ? product_add_bias(c, &p) : why;
}

const char *cuda_MATMUL_NT(const struct cuda_call *c)
{
    return run(OP_MATMUL_NT, c);
}
const char *cuda_MATMUL_NN(const struct cuda_call *c)
{
    return run(OP_MATMUL_NN, c);
}
const char *cuda_MATMUL_TN(const struct cuda_call *c)
{
    return run(OP_MATMUL_TN, c);
}

const char *cuda_prepare(enum op op, const struct cuda_call *c)
{
    struct product p;
    struct cuda_call rest;
    if (op == OP_ATTENTION || op == OP_ATTENTION_I)
        cudnn_attention_prepare(op, c);
    if (!product_get(op, c->args, &p))
        return too_old(op, c);
    const char *why = product_operands(op, c, true, &p, &rest);
    if (why || !lt_serves(c, &p))
        return why;
    if (bias_apart(&p))
        p.bias.data = NULL;
    return product_plan_get(&rest, &p, true) || p.eight ? NULL : c->libraries->error;
}

const char *cuda_note(enum op op, const struct kernel_args *k, int sm)
{
    struct workspace_fp8 w;
    const char *why = product_fp8_plan(op, k, sm, &w);
    return why && *why ? why : NULL;
}

const char *cuda_product_check(enum op op, const struct kernel_args *k)
{
    static const char *const refused[] = {[2] = "fp8(recipe=row) is not supported on GPUs: write fp8(recipe=tensor)",
                                          [3] = "fp8(recipe=block) is not supported on GPUs: write fp8(recipe=tensor)",
                                          [4] = "fp8(recipe=mx) is not supported on GPUs: write fp8(recipe=tensor)"};
    struct workspace_of w = cuda_workspace_of(op, k);
    int64_t recipe = workspace_recipe(op, w.attr);
    if (recipe > 1)
        return recipe <= 4 ? refused[recipe] : "an fp8 recipe that is not known";
    const char *why = attention_check(op, k);
    return why ? why : grouped_check(op, k);
}
