/* The table of Megatron-LM's settings, and what several of them say together. */

#include "compiler/import/megatron.h"

#include <string.h>

static const struct arg_row rows[] = {
#define ARG(key, kind, names, otherwise, refused) {#key, names, otherwise, refused, ARG_##kind},
#define ELSEWHERE(names)
#include "compiler/import/megatron.def"
#undef ARG
#undef ELSEWHERE
};
static const char *const elsewhere[] = {
#define ARG(key, kind, names, otherwise, refused)
#define ELSEWHERE(names) names,
#include "compiler/import/megatron.def"
#undef ARG
#undef ELSEWHERE
};

struct args megatron_args(struct givens *g)
{
    return (struct args){g, rows, ARRAY_LEN(rows), elsewhere, ARRAY_LEN(elsewhere)};
}

/* the number of a launcher's word; 0: it leaves it open, as "1:4", "gpu" and "auto" do */
static uint64_t launched(const struct args *x, unsigned row)
{
    const struct given *at = arg_find(x, row);
    const char *text = at && at->n == 1 ? at->values[0] : "";
    return *text && strspn(text, "0123456789") == strlen(text) ? arg_count(x, row) : 0;
}

uint64_t megatron_world(const struct args *x)
{
    if (arg_said(x, A_world_size))
        return launched(x, A_world_size);
    uint64_t nodes = arg_said(x, A_nnodes) ? launched(x, A_nnodes) : 1, each = launched(x, A_nproc_per_node);
    return nodes <= UINT32_MAX && each <= UINT32_MAX ? nodes * each : 0;
}

uint64_t megatron_dp(const struct args *x)
{
    static const unsigned others[] = {A_tensor_model_parallel_size, A_pipeline_model_parallel_size,
                                      A_context_parallel_size};
    uint64_t world = megatron_world(x), model = 1;
    if (!world)
        return arg_count(x, A_data_parallel_size);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        uint64_t n = arg_count(x, others[i]);
        model *= n && n <= UINT16_MAX ? n : 1;
    }
    if (world % model) {
        arg_error(x, A_tensor_model_parallel_size,
                  "%llu ranks are no multiple of tensor * context * pipeline parallel sizes = %llu",
                  (unsigned long long)world, (unsigned long long)model);
        return 0;
    }
    return world / model;
}

uint64_t megatron_steps(const struct args *x, unsigned samples)
{
    uint64_t batch = arg_count(x, A_global_batch_size);
    return batch ? arg_count(x, samples) / batch : 0;
}
