#ifndef LLMC_WORKSPACE_H
#define LLMC_WORKSPACE_H

/* The device memory that kernels/cuda uses in addition to operands, computed from shapes alone: the compiler places
 * that much in the arena, the verifier checks it, the kernels use it, and the tests compare it with what cuDNN's
 * plans ask for. */

#include "runtime/isa.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An instruction's operands, indexed by OPND() (absent: 0 x 0), and its attributes; of a real attribute, whether it
 * is not 0. */
struct workspace_of {
    struct {
        uint32_t rows, cols;
        enum dtype dtype;
    } operand[ISA_MAX_OPERANDS];
    int64_t attr[ISA_MAX_ATTRS];
};

enum {
    WORKSPACE_ALIGN = 256,
    WORKSPACE_PRODUCT = 32 << 20, /* as much as NVIDIA's own frameworks give cuBLASLt on sm_90 */
    WORKSPACE_PARTS = 1024,       /* of a sum that is computed in two launches */
    WORKSPACE_TILE = 128
};

/* Workspace of an instruction in bytes; 0 for communications, and where there are no such kernels.  sm: compute
 * capability, 90 = 9.0; 0 = no NVIDIA GPU. */
uint64_t workspace_bytes(enum op op, const struct workspace_of *w, uint32_t sm);

/* Workspace of attention by cuDNN: our own tensors in the order in which they are stored (log-sum-exps in cuDNN's
 * layout; in the backward pass also row sums and query gradients in fp32), each aligned, then what cuDNN's plan asks
 * for. */
struct workspace_attention {
    uint64_t stats, sums, dq_sum, plan, total;
};
struct workspace_heads {
    uint64_t sequences, sequence, heads, kv; /* sequence: tokens of one */
    uint32_t head, value;                    /* dimensions */
    bool capped, biased;                     /* scores have a soft cap; have linear biases */
};
struct workspace_attention workspace_attention(const struct workspace_heads *h, bool backward, uint32_t sm);
/* NULL: cuDNN has an engine for it, in bf16; else why our own kernels compute it */
const char *workspace_attention_refused(const struct workspace_heads *h, bool backward, uint32_t sm);

/* Operands in 8 bits, stored after what the product itself needs: largest magnitudes of parts of an operand's
 * groups, the groups' scales, and the numbers; offsets in bytes. */
struct workspace_eight {
    uint64_t parts, scales, numbers;
};
struct workspace_fp8 {
    uint64_t before, total;
    struct workspace_eight a, b;
};
enum { WORKSPACE_FP8_PARTS = 2048 };
/* an instruction's recipe, the attribute fp8; 0 = none */
int64_t workspace_recipe(enum op op, const int64_t *attr);
/* NULL: the product is computed in 8 bits, and *out says where its operands are; else why not, "" if 8 bits are not
 * asked for */
const char *workspace_fp8(enum op op, const struct workspace_of *w, uint32_t sm, struct workspace_fp8 *out);

/* number of chunks that sums over that many rows are divided into */
uint32_t workspace_chunks(uint64_t rows);
/* bytes for grouped products: which rows belong to which expert, and tiles of WORKSPACE_TILE of them */
uint64_t workspace_experts(uint64_t rows, uint64_t groups);

#ifdef __cplusplus
}
#endif

#endif
