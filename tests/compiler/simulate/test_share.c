/* Ranks that share the cores of their node: steps of one plan on few and many cores, against the work that it holds; and what
 * the cluster file measured of kernels. */

#include "compiler/cost/cost_private.h"
#include "compiler/fit.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

enum { RANKS = 8 };

static const char measured[] =
    "<measured><kernel op=\"SWIGLU\" dtype=\"fp32\"><point size=\"100KB\" time=\"100us\"/><point size=\"300KB\" time=\"200us\"/>"
    "</kernel><attention dtype=\"fp32\"><point sequence=\"64\" head=\"32\" forward=\"1GFLOP/s\" backward=\"2GFLOP/s\"/>"
    "<point sequence=\"1024\" head=\"32\" forward=\"3GFLOP/s\" backward=\"4GFLOP/s\"/></attention></measured>";

static struct topo *read_topo(struct arena *a, struct diag *d, uint32_t cores)
{
    struct source *s = ARENA_NEW(a, struct source);
    const char *shared = cores ? arena_printf(a, " cores=\"%u\"", cores) : "";
    s->name = "shared.xml";
    s->text = arena_printf(a,
                           "<cluster version=\"1\"><node-type id=\"n\" gpus=\"%d\"%s host-bandwidth=\"5GB/s\"><gpu model=\"cpu\" "
                           "memory=\"1GiB\" memory-bandwidth=\"8GB/s\"><peak dtype=\"fp32\" rate=\"50GFLOP/s\"/></gpu>"
                           "<scale-up kind=\"none\"/></node-type><nodes type=\"n\" count=\"1\"/>%s</cluster>",
                           RANKS, shared, measured);
    s->size = strlen(s->text);
    return topo_parse(a, d, s, NULL);
}

/* seconds of a step, and those on cores of all ranks; 0: each rank has its own */
static double step_s(uint32_t cores, double *work_s)
{
    static const char *const sets[] = {"tp=2", "pp=2", "dp=2", "batch=16 sequences"};
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct job *job = job_read(a, d, "plans/tiny-llama/model.llm", sets, ARRAY_LEN(sets));
    struct topo *topo = read_topo(a, d, cores);
    diag_print(d, stdout, false);
    CU_ASSERT_FATAL(job && topo);
    struct search_result *found = search(a, d, job, topo, 1, 0, true);
    struct plan *p = NULL;
    CU_ASSERT_EQUAL_FATAL(fit_plan(a, d, job, topo, found, 1, &(struct compile_options){0}, &p), STATUS_OK);
    double step = (double)p->timeline->step_ns * 1e-9;
    *work_s = 0;
    for (uint32_t r = 0; r < p->nroles; r++) {
        CU_ASSERT_EQUAL(p->timeline->roles[r].core_ns != NULL, cores > 0);
        for (uint32_t i = 0; cores && i < p->timeline->roles[r].ninsns; i++)
            *work_s += (double)p->timeline->roles[r].core_ns[i] * 1e-9 * RANKS / p->nroles;
    }
    plan_close(p);
    arena_free(a);
    return step;
}

/* one core is never idle and does everything; two are hardly ever; with one for each rank nobody waits for a turn */
static void test_cores(void)
{
    double work, own = step_s(0, &work), one = step_s(1, &work);
    CU_ASSERT_DOUBLE_EQUAL(one / work, 1, 0.01);
    double two = step_s(2, &work);
    CU_ASSERT(two >= work / 2 * 0.999 && two < 1.1 * work / 2);
    double many = step_s(RANKS, &work);
    CU_ASSERT(many > 1.05 * work / RANKS && many < two);
    CU_ASSERT_DOUBLE_EQUAL(many / own, 1, 0.05);
}

static void test_measured(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct topo *t = read_topo(a, d, 2);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    struct cost c = {.topo = t, .type = &t->types[0]};
    static const double points[][2] = {{50e3, 50e-6}, {100e3, 100e-6}, {200e3, 150e-6}, {300e3, 200e-6}, {600e3, 400e-6}};
    for (size_t i = 0; i < ARRAY_LEN(points); i++)
        CU_ASSERT_DOUBLE_EQUAL(cost_measured_stream_s(&c, OP_SWIGLU, points[i][0], false), points[i][1], 1e-9);
    CU_ASSERT_EQUAL(cost_measured_stream_s(&c, OP_SWIGLU, 1e5, true), 0);
    CU_ASSERT_EQUAL(cost_measured_stream_s(&c, OP_SWIGLU_I, 1e5, false), 0);
    CU_ASSERT_DOUBLE_EQUAL(cost_measured_attention(&c, 128, 64, COST_F32)->flop_s, 1e9, 1);
    CU_ASSERT_DOUBLE_EQUAL(cost_measured_attention(&c, 512, 32, COST_F32)->backward_flop_s, 4e9, 1);
    CU_ASSERT_PTR_NULL(cost_measured_attention(&c, 512, 32, COST_HALF));
    arena_free(a);
}

void suite_share(void);
void suite_share(void)
{
    CU_pSuite s = CU_add_suite("share", NULL, NULL);
    CU_add_test(s, "steps of ranks that share cores", test_cores);
    CU_add_test(s, "kernels as measured", test_measured);
}
