#include "tests/compiler/inspect/fixture.h"

#include "compiler/llmc.h"
#include "compiler/lower/lower.h"
#include "compiler/model/sema.h"
#include "compiler/place/place.h"

#include <CUnit/CUnit.h>
#include <string.h>

static const char model_text[] =
    "llmc 1\n"
    "model tiny {\n"
    "    vocab 256\n"
    "    width 64\n"
    "    norm rmsnorm\n"
    "    embed tokens\n"
    "    repeat 8 { layer { attn gqa(heads=4, kv=4, rope=10_000)\n ffn swiglu(128) } }\n"
    "    head untied\n"
    "}\n"
    "train {\n"
    "    sequence 64\n"
    "    batch %u sequences\n"
    "    precision fp32\n"
    "    optimizer adamw(lr=1e-3)\n"
    "}\n"
    "plan { }\n";

static const char cluster_text[] =
    "<cluster version=\"1\" name=\"eight\">\n"
    "  <node-type id=\"machine\" gpus=\"8\" host-bandwidth=\"2GB/s\">\n"
    "    <gpu model=\"cpu\" memory=\"2GiB\" reserve=\"64MiB\" memory-bandwidth=\"5GB/s\">\n"
    "      <peak dtype=\"fp32\" rate=\"20GFLOP/s\"/>\n"
    "    </gpu>\n"
    "    <scale-up kind=\"none\"/>\n"
    "  </node-type>\n"
    "  <nodes type=\"machine\" count=\"1\"/>\n"
    "</cluster>\n";

static struct source *source_of(struct arena *a, const char *name, char *text)
{
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){.name = name, .text = text, .size = strlen(text)};
    return s;
}

static void decide(struct arena *a, struct plan *p, const struct fixture *f)
{
    struct decision *d = &p->decision;
    *d = (struct decision){.tp = f->tp,
                           .cp = 1,
                           .pp = f->pp,
                           .vpp = f->vpp ? f->vpp : 1,
                           .schedule_group = f->group,
                           .dp = f->dp,
                           .ep = 1,
                           .etp = 1,
                           .zero = f->zero,
                           .shard = f->zero ? f->dp : 1,
                           .microbatch = 1,
                           .microbatches = f->microbatches,
                           .sp = f->sp,
                           .schedule = f->schedule,
                           .context = CONTEXT_AUTO,
                           .nstages = f->pp * (f->vpp ? f->vpp : 1)};
    const enum axis order[NAXES] = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP};
    memcpy(d->order, order, sizeof order);
    d->gpus_used = f->tp * f->pp * f->dp;
    uint32_t *nodes;
    d->nnodes = topo_usable(a, p->topo, 0, &nodes);
    d->nodes = nodes;
    double *even = ARENA_ARRAY(a, double, p->job->model.nlayers);
    for (uint32_t i = 0; i < p->job->model.nlayers; i++)
        even[i] = 1;
    decision_cut(a, d, p->job->model.nlayers, even, 0, 0);
}

struct plan *fixture_plan(struct arena *a, const struct fixture *f)
{
    struct diag *diag = diag_new(a);
    struct plan *p = ARENA_NEW(a, struct plan);
    char *model = arena_printf(a, model_text, f->microbatches * f->dp),
         *cluster = arena_strdup(a, cluster_text);
    p->job = job_parse(a, diag, source_of(a, "tiny.llm", model), NULL, 0);
    p->topo = topo_parse(a, diag, source_of(a, "eight.xml", cluster), NULL);
    const char *why = "";
    if (p->job && p->topo) {
        decide(a, p, f);
        if (decision_legal(a, p->job, p->topo, &p->decision, &why) &&
            decision_emittable(a, p->job, &p->decision, &why)) {
            struct cost *c = cost_new(a, p->job, p->topo, &p->decision);
            c->unit = (struct cost_unit){.on = f->timed, .f_ns = f->f_ns, .b_ns = f->b_ns, .c_ns = f->c_ns};
            p->mesh = decision_mesh(p->job, &p->decision);
            lower_plan(a, c, p);
            for (uint32_t r = 0; r < p->nroles; r++)
                place_program(a, p->train[r], 0);
            p->ranks = plan_ranks(p);
            c->unit.on = f->unit;
            p->timeline = simulate(a, c, (const struct program *const *)p->train, p->nroles, &why);
        }
    }
    if (p->timeline)
        return p;
    diag_print(diag, stderr, false);
    fprintf(stderr, "fixture: %s\n", why);
    return NULL;
}

struct plan *fixture_large(struct arena *a)
{
    static const char *const sets[] = {"tp=8", "pp=4", "vpp=5", "dp=1", "gpus=32", "schedule=interleaved", "microbatch=1",
                                       "batch=64 sequences", "recompute=none"};
    struct diag *d = diag_new(a);
    struct job *job = job_read(a, d, "plans/llama3-70b/model.llm", sets, 9);
    struct topo *topo = topo_read(a, d, "topologies/h100-1024.xml");
    struct plan *p = NULL;
    CU_ASSERT_FATAL(job && topo);
    CU_ASSERT_EQUAL_FATAL(compile_best(a, d, job, topo, &(struct compile_options){0}, &p, NULL), STATUS_OK);
    return p;
}
