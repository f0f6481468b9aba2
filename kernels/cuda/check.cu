/* What the memory-bound kernels cannot take, beyond what kernel_check() says. */

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
