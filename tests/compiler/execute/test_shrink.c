/* Plans of thousands of ranks, shrunken to what 16 ranks execute.  The decision that is kept is compared as text:
 * every degree above 1 stays above 1 while there is room, experts divide among their ranks, and groups of experts
 * stay groups. */

#include "compiler/execute/shrink.h"
#include "compiler/model/sema.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

void suite_shrink(void);

static const struct {
    const char *model, *cluster, *decision, *small; /* experts: of the last layer */
} cases[] = {
    {"llama3-405b", "meta-24k-roce", "tp=8 sp=1 pp=16 dp=128 zero=2 shard=128 microbatch=1",
     "tp 2 sp, pp 4, dp 2, zero 2, microbatch 1 x 8, 1f1b, recompute none; 8 layers"},
    {"llama3-405b", "meta-24k-roce", "tp=8 sp=1 ring=16 pp=16 dp=8 zero=1 shard=64 microbatch=1",
     "tp 2 sp, pp 2, cp 2 ring, dp 2, zero 1 over 2, microbatch 1 x 4, 1f1b, recompute none; 4 layers"},
    {"llama3-70b", "dgx-h100-superpod", "dp=256 zero=3 shard=256 prefetch=1 microbatch=1",
     "tp 1, pp 1, dp 16, zero 3, microbatch 1 x 2, 1f1b, recompute none; 2 layers"},
    {"llama3-70b", "dgx-h100-superpod",
     "tp=8 sp=1 pp=4 vpp=5 dp=8 zero=1 shard=8 microbatch=1 schedule=interleaved",
     "tp 2 sp, pp 4, vpp 3, dp 2, zero 1, microbatch 1 x 8, interleaved, recompute none; 24 layers"},
    {"mixtral-8x7b", "dgx-h100-superpod", "tp=2 sp=1 pp=8 dp=16 ep=8 zero=1 shard=16 microbatch=1",
     "tp 2 sp, pp 4, dp 2, ep 4, zero 1, microbatch 1 x 8, 1f1b, recompute none; 8 layers, 2 of 4 experts, 1 "
     "of 1 groups, width 8"},
    {"mixtral-8x7b", "dgx-h100-superpod", "dp=64 ep=8 nodes=2 zero=1 shard=64 microbatch=1",
     "tp 1, pp 1, dp 16, ep 8 over 2 nodes, zero 1, microbatch 1 x 2, 1f1b, recompute none; 2 layers, 2 of 8 "
     "experts, 1 of 1 groups, width 4"},
    {"deepseek-v3", "h800-2048", "pp=16 dp=128 ep=64 nodes=8 zero=1 shard=128 microbatch=1 schedule=dualpipe",
     "tp 1, pp 8, dp 2, ep 2, zero 1, microbatch 1 x 16, dualpipe, recompute none; 16 layers, 2 of 6 "
     "experts, 1 of 2 groups, width 4"},
    {"deepseek-v3", "h800-2048", "pp=8 vpp=2 dp=256 ep=32 zero=1 shard=256 microbatch=1 schedule=dualpipe_v",
     "tp 1, pp 8, vpp 2, dp 2, ep 2, zero 1, microbatch 1 x 16, dualpipe_v, recompute none; 32 layers, 2 of "
     "6 experts, 1 of 2 groups, width 4"},
};

static void test_cases(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        struct job *job = job_read(a, d, arena_printf(a, "plans/%s/model.llm", cases[i].model), NULL, 0);
        struct topo *topo = topo_read(a, d, arena_printf(a, "topologies/%s.xml", cases[i].cluster));
        CU_ASSERT_FATAL(job && topo);
        struct plan p = {.job = job, .topo = topo};
        const char *why = "";
        p.decision = text_decision(a, job, topo, cases[i].decision);
        struct shrunk *s = shrink_plan(a, &p, &why);
        if (!s)
            printf("\n%zu: %s", i, why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        const struct layer *l = s->job.model.layers[s->job.model.nlayers - 1];
        const struct moe *m = &l->moe;
        const char *text =
            arena_printf(a, "%s; %u layers", decision_text(a, &s->job, &s->decision), s->job.model.nlayers);
        if (l->is_moe)
            text = arena_printf(a, "%s, %u of %u experts, %u of %u groups, width %u", text, m->active,
                                m->experts, m->pick, m->groups, (uint32_t)m->expert.width);
        if (strcmp(text, cases[i].small))
            printf("\n    %zu: \"%s\"", i, text);
        CU_ASSERT_STRING_EQUAL(text, cases[i].small);
        const struct layer *next = s->job.model.predict_layer; /* a prediction module's, like the last */
        CU_ASSERT(!job->model.predict == !next);
        CU_ASSERT(!next || (next->attn.heads == l->attn.heads && next->moe.experts == m->experts &&
                            next->moe.expert.width == m->expert.width));
        const struct decision *small = &s->decision;
        uint64_t each = 2 * small->cp * (small->sp ? small->tp : 1);
        while (each < 8)
            each *= 2;
        CU_ASSERT_EQUAL(s->job.train.sequence, each); /* two tokens for each part, at least eight */
        const struct attn *t = &l->attn;
        CU_ASSERT(t->kind == ATTN_MLA ? t->head == t->nope + t->rope_dims && t->kv == t->heads && t->kv_rank < 64
                                      : t->heads % t->kv == 0 && t->kv_rank == 0);
        arena_free(a);
    }
}

/* a schedule that only a list has is made again for what is left of it */
static void test_listed(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct job *job = job_read(a, d, "plans/llama3-70b/model.llm", NULL, 0);
    struct topo *topo = topo_read(a, d, "topologies/dgx-h100-superpod.xml");
    CU_ASSERT_FATAL(job && topo);
    struct plan p = {.job = job, .topo = topo};
    const char *why = "";
    p.decision = text_decision(a, job, topo, "tp=8 sp=1 pp=4 dp=8 zero=1 shard=8 microbatch=1");
    struct schedule *listed = schedule_new(a, &p.decision);
    p.decision.listed = listed;
    p.decision.schedule = SCHED_AUTO;
    struct shrunk *s = shrink_plan(a, &p, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT(s->decision.microbatches < p.decision.microbatches && s->decision.listed && s->decision.listed != listed);
    uint32_t forwards = 0;
    for (uint32_t k = 0; s->decision.listed && k < s->decision.listed->nactions[0]; k++)
        forwards += s->decision.listed->actions[0][k].kind == 'F';
    CU_ASSERT_EQUAL(forwards, s->decision.microbatches);
    arena_free(a);
}

void suite_shrink(void)
{
    CU_pSuite s = CU_add_suite("shrink", NULL, NULL);
    CU_add_test(s, "large plans at small dimensions", test_cases);
    CU_add_test(s, "schedules that are lists", test_listed);
}
