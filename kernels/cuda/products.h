#ifndef LLMC_CUDA_PRODUCTS_H
#define LLMC_CUDA_PRODUCTS_H

/* Private to products and attention: one product as cuBLASLt and our own kernels see it, and which of them computes
 * it. */

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/libraries.h"
#include "runtime/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* what cuBLASLt does in addition: gelu (tanh form) before storing c, with the product itself stored to aux;
 * multiplies the product by gelu's slope at aux; stores a's column sums to aux, in fp32 */
enum product_act { PRODUCT_PLAIN, PRODUCT_GELU, PRODUCT_GELU_SLOPE, PRODUCT_BIAS_SUM };

/* c (+)= op(a) op(b) + bias, row-major: m x n with k summed */
struct product {
    struct view c, a, b, bias; /* bias.data NULL = none */
    bool ta, tb;
    /* a is a gradient: in 8 bits it is E5M2, and cuBLASLt may not use its fast accumulation */
    bool gradient;
    bool eight;                     /* a and b are in 8 bits, whatever their dtype says, divided by these: */
    const float *scale_a, *scale_b; /* on the device */
    uint32_t m, n, k;
    enum product_act act;
    struct view aux; /* for an act; gelu's is as large as c */
};

/* the key under which an algorithm is cached: everything that cuBLASLt's choice may depend on */
struct product_key {
    uint32_t m, n, k, lda, ldb, ldc, ldaux;
    uint16_t align_a, align_b, align_c;
    uint8_t dtype, dtype_c, ta, tb, bias, add, act,
        spare[1]; /* dtype: that of 8 bits is PRODUCT_EIGHT or PRODUCT_EIGHT_GRADIENT */
};
enum { PRODUCT_EIGHT = 100, PRODUCT_EIGHT_GRADIENT };
/* a product prepared for cuBLASLt: descriptors live as long as the libraries are open */
struct product_plan {
    struct product_key key;
    void *desc, *layout_a, *layout_b, *layout_c; /* in cuBLASLt's column-major sense, whose a is our b */
    struct lt_algo algo;
    size_t workspace_bytes;
    float measured_us;      /* 0 = cuBLASLt's first suggestion, not measured */
    bool compared, differs; /* for an act: compared with the single instructions; the results differ */
};

/* fills in the product of a MATMUL row; false: it is another instruction */
bool product_get(enum op op, const struct kernel_args *k, struct product *p);
/* the plan, made at the first call; NULL: l->error says why there is none.  measure: choose by time, on the
 * product's operands */
struct product_plan *product_plan_get(const struct cuda_call *c, const struct product *p, bool measure);
/* cuBLASLt's attribute for the address of an act's aux */
int product_aux_attribute(enum product_act act);
/* NULL = launched */
const char *product_launch(const struct cuda_call *c, const struct product *p, struct product_plan *plan);

/* Launches the kernels that quantise operands to 8 bits, in the workspace: out is the product of these, rest the
 * remaining call. */
const char *product_fp8(const struct cuda_call *c, const struct product *p, const struct workspace_fp8 *w,
                        struct product *out, struct cuda_call *rest);
/* NULL: this call multiplies in 8 bits, with its operands as *w says; "": that is not asked for; else why not */
const char *product_fp8_plan(enum op op, const struct kernel_args *k, int sm, struct workspace_fp8 *w);

/* The product as it is run, and the call for it: in 8 bits, with the quantising kernels launched, or unchanged.
 * fill: operands get random numbers first.  NULL: fine. */
const char *product_operands(enum op op, const struct cuda_call *c, bool fill, struct product *p,
                             struct cuda_call *rest);
/* compute capability of the device; without libraries, in tests, Hopper's */
int product_sm(const struct cuda_call *c);

/* our own kernels, which support any dtypes and any alignment */
const char *product_own(const struct cuda_call *c, const struct product *p);
/* bias of n columns added to all rows of c */
const char *product_add_bias(const struct cuda_call *c, const struct product *p);
/* uniform in (-1, 1), for measuring: products of zeros draw less power and run faster than any training */
const char *product_fill(const struct cuda_call *c, const struct view *v, uint32_t seed);

/* matmul_fused.c: fused.h's functions for products and the instructions fused with them; args[0] is the product */
unsigned product_joined_fuse(const enum op *ops, const struct kernel_args *const *args, unsigned n);
const char *product_joined(const enum op *ops, const struct kernel_args *const *args, unsigned n,
                           const struct cuda_call *c);

const char *attention_check(enum op op, const struct kernel_args *k);
const char *grouped_check(enum op op, const struct kernel_args *k);

/* true: cuDNN executes this instruction, and *why says how its launch went; false: our own kernels do */
bool cudnn_attention(enum op op, const struct cuda_call *c, const char **why);
/* the same without what this project adds to cuDNN's plan, for measuring: results are not the instruction's */
bool cudnn_attention_alone(enum op op, const struct cuda_call *c, const char **why);
/* builds the plan if cuDNN can serve it */
void cudnn_attention_prepare(enum op op, const struct cuda_call *c);
/* log-sum-exps of a view [rows][heads] <-> dense [sequences][heads][rows of a sequence] */
const char *attention_statistics(const struct cuda_call *c, const struct view *lse, float *dense, uint32_t sequence,
                                 bool to_dense);

#ifdef __cplusplus
}
#endif

#endif
