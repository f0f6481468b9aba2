/* Rows by number, the two halves of the checks put together, and workspaces by the common rule. */

#include "kernels/cuda/cuda_kernels.h"
#include "runtime/workspace.h"

typedef const char *launcher(const struct cuda_call *c);

const char *cuda_kernel(enum op op, const struct cuda_call *c)
{
#define KERNEL_MATMUL(name) [OP_##name] = cuda_##name,
#define KERNEL_ATTENTION(name) [OP_##name] = cuda_##name,
#define KERNEL_STREAM(name) [OP_##name] = cuda_##name,
#define KERNEL_HOST(name) [OP_##name] = cuda_##name,
#define KERNEL_P2P(name)
#define KERNEL_COLLECTIVE(name)
#define INSN(name, queue, unit, operands, attributes, meaning) KERNEL_##unit(name)
    static launcher *const row[NOPS] = {
#include "runtime/isa.def"
    };
    return row[op] ? row[op](c) : "not a compute instruction";
}

/* products, attention, and the merge of its parts; the rest is memory-bound */
static bool is_product(enum op op)
{
    return isa_info(op)->unit == UNIT_MATMUL || isa_info(op)->unit == UNIT_ATTENTION || op == OP_ATTENTION_MERGE;
}

const char *cuda_check(enum op op, const struct kernel_args *k)
{
    for (uint32_t i = 0; i < isa_info(op)->noperands; i++)
        if (k->operand[i].data && k->operand[i].dtype == DTYPE_F16)
            return "fp16 is played on CPU ranks only: write precision bf16";
    return is_product(op) ? cuda_product_check(op, k) : cuda_stream_check(op, k);
}

struct workspace_of cuda_workspace_of(enum op op, const struct kernel_args *k)
{
    const struct isa_info *info = isa_info(op);
    struct workspace_of w = {.attr = {0}};
    for (uint32_t i = 0; i < info->noperands; i++) {
        const struct view *v = &k->operand[i];
        w.operand[i].rows = v->rows;
        w.operand[i].cols = v->cols;
        w.operand[i].dtype = v->dtype;
    }
    for (uint32_t i = 0; i < info->nattrs; i++)
        w.attr[i] = info->attr[i].kind == ATTR_REAL ? k->attr[i].f != 0 : k->attr[i].i;
    return w;
}

size_t cuda_workspace_bytes(enum op op, const struct kernel_args *k, int sm)
{
    struct workspace_of w = cuda_workspace_of(op, k);
    return (size_t)workspace_bytes(op, &w, (uint32_t)sm);
}
