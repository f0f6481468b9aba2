/* What the memory-bound kernels need and cannot take, beyond what kernel_check() says. */

#include "kernels/cuda/stream.cuh"

namespace {

const size_t SHARED_BYTES = 48 * 1024; /* without asking for more */

#define VIEW(op, name) (k->operand[OPND(op, name)])
#define ATTRIBUTE(op, name) (k->attr[ATTR(op, name)].i)

const char *shared_fits(size_t bytes)
{
    return bytes <= SHARED_BYTES - 1024 ? nullptr : "too many experts for the CUDA kernels";
}

} // namespace

const char *cuda_stream_check(enum op op, const struct kernel_args *k)
{
    const struct isa_info *info = isa_info(op);
    for (unsigned i = 0; i < info->noperands; i++)
        if (k->operand[i].data && (!k->operand[i].rows || !k->operand[i].cols))
            return "an operand is empty";
    if (op == OP_ROPE && ATTRIBUTE(ROPE, dims) > 512)
        return "more than 512 rotary dimensions";
    if (op == OP_ROUTE)
        return shared_fits(8 * ((size_t)VIEW(ROUTE, logits).cols + (size_t)ATTRIBUTE(ROUTE, groups)) * sizeof(float));
    if (op == OP_ROUTE_I)
        return shared_fits(4 * (size_t)VIEW(ROUTE_I, score).cols * sizeof(float));
    if (op == OP_LOAD)
        return shared_fits(VIEW(LOAD, load).cols * sizeof(unsigned));
    if (op == OP_BIAS_MOVE)
        return shared_fits(VIEW(BIAS_MOVE, bias).cols * sizeof(double));
    if (op == OP_ARRANGE)
        return shared_fits((size_t)ATTRIBUTE(ARRANGE, experts) * sizeof(int32_t) + 256 * sizeof(double));
    if ((op == OP_MLA_KEYS && ATTRIBUTE(MLA_KEYS, heads) > 65535) || (op == OP_MLA_KEYS_I && ATTRIBUTE(MLA_KEYS_I, heads) > 65535) ||
        (op == OP_COLUMNS_SPLIT && ATTRIBUTE(COLUMNS_SPLIT, parts) > 65535) ||
        (op == OP_COLUMNS_JOIN && ATTRIBUTE(COLUMNS_JOIN, parts) > 65535))
        return "more pieces than a grid has";
    return nullptr;
}

size_t cuda_stream_workspace_bytes(enum op op, const struct kernel_args *k)
{
    if (op == OP_BIAS_W)
        return cuda_columns_workspace_bytes(&VIEW(BIAS_W, dy), VIEW(BIAS_W, db).cols, 1);
    if (op == OP_RMSNORM_W)
        return cuda_columns_workspace_bytes(&VIEW(RMSNORM_W, dy), VIEW(RMSNORM_W, dg).cols, 1);
    if (op == OP_HEADNORM_W)
        return cuda_columns_workspace_bytes(&VIEW(HEADNORM_W, dy), VIEW(HEADNORM_W, dg).cols, 1);
    if (op == OP_LAYERNORM_W)
        return cuda_columns_workspace_bytes(&VIEW(LAYERNORM_W, dy), VIEW(LAYERNORM_W, dg).cols, 2);
    if (op == OP_EMBED_W)
        return cuda_embed_workspace_bytes(VIEW(EMBED_W, dy).rows, VIEW(EMBED_W, dtable).rows);
    if (op == OP_ARRANGE)
        return cuda_arrange_workspace_bytes((size_t)ATTRIBUTE(ARRANGE, experts));
    if (op == OP_SQNORM || op == OP_XENT_LOSS || op == OP_BALANCE)
        return MOST_PARTS * sizeof(double);
    return 0;
}
