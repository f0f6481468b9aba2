/* A search on a worked example, for several suites. */

#include "tests/compiler/search/found.h"

#include "compiler/model/sema.h"

#include <CUnit/Basic.h>

struct found search_example(const char *model, const char *cluster, const char *const *sets, uint32_t nsets, uint32_t top,
                            bool emit_only)
{
    struct found f = {.a = arena_new()};
    f.d = diag_new(f.a);
    f.job = job_read(f.a, f.d, arena_printf(f.a, "plans/%s/model.llm", model), sets, nsets);
    f.topo = topo_read(f.a, f.d, arena_printf(f.a, "topologies/%s.xml", cluster));
    CU_ASSERT_PTR_NOT_NULL_FATAL(f.job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f.topo);
    f.r = search(f.a, f.d, f.job, f.topo, top, 0, emit_only);
    return f;
}
