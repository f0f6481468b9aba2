/* MATMUL rows by cuBLASLt, and what products and attention answer about limits.
 *
 * cuBLASLt is column-major: our row-major c = op(a) op(b) is its c' = op(b)' op(a)', so its first operand is our b.  A
 * matrix that we store [out, in] and multiply transposed is then transposed there as well, and the gradient by the weight,
 * a' b, has its second operand transposed.  Accumulation in fp32, c = c + product by beta 1 within the kernel, bias by its
 * epilogue.  What cuBLASLt lacks goes to our own kernels: fp32 operands with a bf16 result, and a bf16 bias on an fp32
 * result, which is added afterwards. */

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
    bool narrow = p->a.dtype == DTYPE_F32 && p->c.dtype == DTYPE_BF16;
    return c->libraries && c->libraries->lt_handle && !narrow;
}

/* its bias has the dtype of the result */
static bool bias_apart(const struct product *p)
{
    return p->bias.data && p->bias.dtype != p->c.dtype;
}

const char *product_launch(const struct cuda_call *c, const struct product *p, struct product_plan *plan)
{
    struct cuda_libraries *l = c->libraries;
    const float one = 1, beta = p->c.add ? 1 : 0;
    if (plan->key.bias && l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_BIAS_POINTER, &p->bias.data, sizeof p->bias.data))
        return "cuBLASLt refuses the bias";
    int status = l->lt.cublasLtMatmul(l->lt_handle, plan->desc, &one, p->b.data, plan->layout_a, p->a.data, plan->layout_b, &beta,
                                      p->c.data, plan->layout_c, p->c.data, plan->layout_c, &plan->algo, c->workspace,
                                      plan->workspace_bytes, c->stream);
    if (!status)
        return NULL;
    snprintf(l->error, sizeof l->error, "cublasLtMatmul: %s (%ux%ux%u)", l->lt.cublasLtGetStatusString(status), p->m, p->n, p->k);
    return l->error;
}

static const char *run(enum op op, const struct cuda_call *c)
{
    struct product p;
    if (!product_get(op, c->args, &p))
        return "not a product";
    if (!lt_serves(c, &p))
        return product_own(c, &p);
    struct product without = p;
    if (bias_apart(&p))
        without.bias.data = NULL;
    struct product_plan *plan = product_plan_get(c, &without, false);
    if (!plan)
        return c->libraries->error;
    const char *why = product_launch(c, &without, plan);
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
    if (op == OP_ATTENTION || op == OP_ATTENTION_I)
        cudnn_attention_prepare(op, c);
    if (!product_get(op, c->args, &p) || !lt_serves(c, &p))
        return NULL;
    if (bias_apart(&p))
        p.bias.data = NULL;
    return product_plan_get(c, &p, true) ? NULL : c->libraries->error;
}

/* an instruction's fp8 recipe, 0 = none */
static int64_t recipe(enum op op, const struct kernel_args *k)
{
    const struct isa_info *info = isa_info(op);
    for (uint32_t i = 0; i < info->nattrs && info->unit == UNIT_MATMUL; i++)
        if (strcmp(info->attr[i].name, "fp8") == 0)
            return k->attr[i].i;
    return 0;
}

const char *cuda_product_check(enum op op, const struct kernel_args *k)
{
    if (recipe(op, k))
        return "products in fp8 are not supported on GPUs";
    const char *why = attention_check(op, k);
    return why ? why : grouped_check(op, k);
}
