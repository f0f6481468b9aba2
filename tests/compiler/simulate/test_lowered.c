/* The simulator on real lowered programs under unit costs: bubbles and step against their closed forms,
 * exactly. */

#include "tests/compiler/inspect/fixture.h"
#include "tests/compiler/random_plan.h"

#include "compiler/schedule/schedule.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

static void check(const struct fixture *f, int64_t step_ns)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, f);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_EQUAL(p->timeline->step_ns, step_ns);
    int64_t idle = 0;
    for (uint32_t r = 0; r < p->nroles; r++) {
        const struct sim_role *role = &p->timeline->roles[r];
        int64_t sum = role->busy_ns;
        for (int k = 0; k < NIDLE; k++)
            sum += role->idle_ns[k];
        CU_ASSERT_EQUAL(sum, p->timeline->step_ns);
        CU_ASSERT(role->peak_live_bytes <= p->train[r]->arena_bytes);
        idle += sum - role->busy_ns;
    }
    if (f->c_ns == 0) {
        uint32_t m = f->microbatches;
        CU_ASSERT_EQUAL(p->timeline->bubble_fraction, (double)(f->pp - 1) / (m + f->pp - 1));
        CU_ASSERT_EQUAL(idle * (m + f->pp - 1), (int64_t)(f->pp - 1) * step_ns * f->pp);
    }
    plan_close(p);
    arena_free(a);
}

static void test_bubbles(void)
{
    for (uint32_t p = 1; p <= 8; p *= 2) {
        for (uint32_t m = 1; m <= 17; m += 4) {
            struct fixture f = {
                .tp = 1, .pp = p, .dp = 1, .microbatches = m, .unit = true, .f_ns = 1000, .b_ns = 2000};
            f.schedule = SCHED_GPIPE;
            check(&f, (m + p - 1) * 3000);
            f.schedule = SCHED_1F1B;
            check(&f, (m + p - 1) * 3000);
        }
    }
    struct fixture mixed = {.tp = 2,
                            .pp = 2,
                            .dp = 2,
                            .zero = 1,
                            .sp = true,
                            .microbatches = 6,
                            .unit = true,
                            .f_ns = 1000,
                            .b_ns = 2000,
                            .schedule = SCHED_1F1B};
    check(&mixed, 7 * 3000);
}

/* Closed form: (m+p-1)(F+X) + 2c[(p-1)m/p + p-2] for p | m */
static void test_transfers(void)
{
    for (uint32_t p = 2; p <= 8; p *= 2) {
        for (uint32_t m = p; m <= 3 * p; m += p) {
            struct fixture f = {.tp = 1,
                                .pp = p,
                                .dp = 1,
                                .microbatches = m,
                                .unit = true,
                                .f_ns = 1000,
                                .b_ns = 2000,
                                .c_ns = 50,
                                .schedule = SCHED_1F1B};
            check(&f, (m + p - 1) * 3000 + 100 * ((p - 1) * (m / p) + p - 2));
        }
    }
}

/* seconds of every stage's actions and transfers as the lowered programs have them */
struct measured {
    double s[16][128]; /* by stage and letter */
    uint32_t n[16][128];
};

static struct measured measure(const struct plan *p, const struct schedule *s, double *end_s)
{
    struct measured m = {0};
    uint32_t chain = s->nstages / s->copies;
    for (uint32_t r = 0; r < s->nranks; r++)
        for (uint32_t k = 0; k + 1 < s->nactions[r]; k++)
            m.n[s->actions[r][k].stage % chain][(int)s->actions[r][k].kind]++;
    for (uint32_t r = 0; r < p->nroles; r++) {
        const struct sim_role *role = &p->timeline->roles[r];
        for (uint32_t i = 0; i < role->ninsns; i++) {
            const struct insn *n = &p->train[r]->insns[i];
            double seconds = (double)(role->insns[i].end_ns - role->insns[i].start_ns) * 1e-9;
            double at_s = (double)(role->insns[i].end_ns - role->begin_ns) * 1e-9;
            if (!strchr("FBIW", n->action))
                continue;
            if (n->op == OP_SEND) /* letter of the channel: f forward, b back */
                m.s[n->stage][n->action == 'F' ? 'f' : 'b'] = seconds;
            if (n->queue != QUEUE_COMPUTE)
                continue;
            m.s[n->stage][(int)n->action] += seconds / m.n[n->stage][(int)n->action];
            *end_s = at_s > *end_s ? at_s : *end_s;
        }
    }
    return m;
}

/* With predicted costs and uneven stages: actions, given the stages' compute and transfer times, agree with
 * the instructions up to the end of the last backward within 1 %. */
static void test_two_simulators(void)
{
    static const struct {
        enum schedule_kind kind;
        uint32_t vpp, group, microbatches;
    } cases[] = {{SCHED_GPIPE, 1, 0, 8},       {SCHED_1F1B, 1, 0, 8},         {SCHED_EAGER_1F1B, 1, 0, 8},
                 {SCHED_INTERLEAVED, 2, 0, 8}, {SCHED_INTERLEAVED, 2, 6, 12}, {SCHED_COMBINED_1F1B, 2, 0, 8},
                 {SCHED_ZB_H1, 1, 0, 8},       {SCHED_ZB_H2, 1, 0, 9},        {SCHED_ZB_V, 2, 0, 8},
                 {SCHED_V_HALF, 2, 0, 8},      {SCHED_V_MIN, 2, 0, 8},        {SCHED_DUALPIPE_V, 2, 0, 8},
                 {SCHED_DUALPIPE, 1, 0, 12}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct arena *a = arena_new();
        struct fixture f = {.tp = 1,
                            .pp = 4,
                            .dp = 1,
                            .microbatches = cases[k].microbatches,
                            .vpp = cases[k].vpp,
                            .group = cases[k].group,
                            .schedule = cases[k].kind};
        struct plan *p = fixture_plan(a, &f);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        const struct schedule *s = schedule_new(a, &p->decision);
        double end_s = 0;
        struct measured m = measure(p, s, &end_s);
        struct pipeline_stage stages[16];
        for (uint32_t i = 0; i < p->decision.nstages; i++)
            stages[i] = (struct pipeline_stage){.forward_s = m.s[i]['F'],
                                                .backward_s = m.s[i]['B'],
                                                .input_s = m.s[i]['I'],
                                                .weight_s = m.s[i]['W'],
                                                .next_s = m.s[i]['f'],
                                                .back_s = m.s[i]['b']};
        struct pipeline_times times = {.stages = stages};
        double actions_s = simulate_actions(a, s, &times, NULL, NULL);
        if (fabs(actions_s - end_s) > 0.01 * end_s)
            fprintf(stderr, "%s: actions %.6f, instructions %.6f\n", decision_text(a, p->job, &p->decision),
                    actions_s, end_s);
        CU_ASSERT_DOUBLE_EQUAL(actions_s, end_s, 0.01 * end_s);
        plan_close(p);
        arena_free(a);
    }
}

/* exposed share of the step of layers as Llama-3 405B has them, over tp 8 */
static double exposed(const char *decision, const char *overlap, double *step_s, uint64_t *arena_bytes)
{
    static const char model[] = "llmc 1\nmodel wide {\n vocab 32000\n width 16384\n norm rmsnorm\n embed tokens\n"
                                " repeat 12 {\n  layer {\n   attn gqa(heads=128, kv=8, head=128, rope=500_000)\n"
                                "   ffn swiglu(53248)\n  }\n }\n head untied\n}\n"
                                "train {\n sequence 8192\n batch 2 sequences\n precision bf16(master=fp32, grads=fp32)\n"
                                " optimizer adamw(lr=1e-4)\n}\n";
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(a, arena_printf(a, "%s%s", model, overlap));
    struct topo *topo = topo_read(a, diag_new(a), "topologies/h100x8.xml");
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    struct decision d = text_decision(a, job, topo, decision);
    struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    double share = p->timeline->exposed_comm_fraction;
    *step_s = 1e-9 * (double)p->timeline->step_ns;
    *arena_bytes = p->train[0]->arena_bytes;
    plan_close(p);
    arena_free(a);
    return share;
}

/* `overlap tp with compute`: what a step exposes of its transfers falls, and its kernels take hardly longer for being cut */
static void test_hidden_tp(void)
{
    static const char *const decisions[] = {"tp=8 sp=1 pp=1 dp=1 microbatch=1", "tp=8 sp=0 pp=1 dp=1 microbatch=1"};
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        double step_s, hidden_s;
        uint64_t bytes, hidden_bytes;
        double all = exposed(decisions[i], "", &step_s, &bytes);
        double rest = exposed(decisions[i], "plan {\n overlap tp with compute\n}\n", &hidden_s, &hidden_bytes);
        CU_ASSERT(all > 0.05);
        CU_ASSERT(rest < all / 3);
        CU_ASSERT(hidden_s < step_s * (1 - 0.7 * (all - rest)));
        CU_ASSERT(hidden_bytes <= bytes + bytes / 100);
        printf("%.1f %% exposed, %.1f %% left; %.3f s, %.3f s ", 100 * all, 100 * rest, step_s, hidden_s);
    }
}

void suite_simulate_lowered(void);
void suite_simulate_lowered(void)
{
    CU_pSuite s = CU_add_suite("simulate_lowered", NULL, NULL);
    CU_add_test(s, "bubbles of lowered plans", test_bubbles);
    CU_add_test(s, "transfer time of lowered plans", test_transfers);
    CU_add_test(s, "actions and instructions agree", test_two_simulators);
    CU_add_test(s, "transfers of tensor parallelism behind products", test_hidden_tp);
}
