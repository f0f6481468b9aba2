/* A job with a legal decision; see given.h. */

#include "tests/compiler/model/given.h"

#include "compiler/model/sema.h"

#include <CUnit/CUnit.h>
#include <string.h>

static const char model[] =
    "llmc 1\nmodel m {\n vocab 1000\n width 256\n norm rmsnorm\n embed tokens\n"
    " repeat 6 { layer { attn gqa(heads=8, kv=4, rope=10_000)\n ffn swiglu(512) } }\n head tied\n}\n"
    "train {\n sequence 64\n batch 16 sequences\n precision fp32\n}\n";
static const char cluster[] =
    "<cluster version=\"1\"><node-type id=\"c\" gpus=\"8\"><gpu model=\"cpu\" memory=\"1GiB\" "
    "memory-bandwidth=\"20GB/s\"><peak dtype=\"fp32\" rate=\"50GFLOP/s\"/></gpu>"
    "<scale-up kind=\"none\"/></node-type><nodes type=\"c\" count=\"1\"/></cluster>";

struct given given(void)
{
    struct given g = {.a = arena_new()};
    struct diag *diag = diag_new(g.a);
    struct source *m = ARENA_NEW(g.a, struct source), *c = ARENA_NEW(g.a, struct source);
    *m = (struct source){"m.llm", model, strlen(model), false};
    *c = (struct source){"c.xml", cluster, strlen(cluster), false};
    g.job = job_parse(g.a, diag, m, NULL, 0);
    g.topo = topo_parse(g.a, diag, c, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g.job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g.topo);
    g.layer = ARENA_NEW(g.a, struct layer);
    *g.layer = *g.job->model.layers[0];
    for (uint32_t i = 0; i < g.job->model.nlayers; i++)
        g.job->model.layers[i] = g.layer;
    g.d = (struct decision){.tp = 2,
                            .cp = 1,
                            .pp = 2,
                            .vpp = 1,
                            .dp = 2,
                            .ep = 1,
                            .etp = 1,
                            .zero = 1,
                            .shard = 2,
                            .microbatch = 2,
                            .microbatches = 4,
                            .sp = true,
                            .schedule = SCHED_1F1B,
                            .order = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP}};
    const char *why;
    CU_ASSERT(decision_place(g.a, g.topo, &g.d, &why));
    decision_cut(g.a, &g.d, g.job->model.nlayers, NULL, 0, 0);
    return g;
}
