/* Schedules that are not a formula's in the search: synthesised ones where they gain or are asked for, and
 * one from a file. */

#include "compiler/model/actions.h"
#include "compiler/model/sema.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/candidates.h"
#include "compiler/search/leaves.h"
#include "compiler/search/passes.h"
#include "compiler/simulate/predict.h"
#include "tests/compiler/search/found.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *model, *cluster, *sets[4], *formula;
} asked[] = {
    /* NULL: memory decides */
    {"tiny-llama", "cpu8", {"tp=1", "pp=4", "dp=2", "vpp=1"}, "schedule=zb_h1"},
    {"tiny-llama", "cpu8", {"tp=2", "pp=2", "dp=2", "vpp=2"}, "schedule=zb_v"},
    {"llama3-70b", "dgx-h100-superpod", {"gpus=64", "batch=128 sequences", "pp=8", "tp=4"}, NULL},
};

/* asked for by name: every candidate has its own, and the best is no slower than a formula asked for by name
 */
static void test_asked(void)
{
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const char *sets[5];
        memcpy(sets, asked[i].sets, sizeof asked[i].sets);
        sets[4] = "schedule=auto";
        struct found f = search_example(asked[i].model, asked[i].cluster, sets, 5, 3, true);
        CU_ASSERT_FATAL(f.r->ncandidates > 0);
        for (uint32_t k = 0; k < f.r->ncandidates; k++) {
            const struct candidate *x = &f.r->candidates[k];
            const char *why = "";
            CU_ASSERT_EQUAL(x->decision.schedule, SCHED_AUTO);
            CU_ASSERT(x->emittable);
            CU_ASSERT(decision_legal(f.a, f.job, f.topo, &x->decision, &why));
            CU_ASSERT_PTR_NULL(schedule_unsupported(f.a, &x->decision));
            CU_ASSERT(schedule_check(f.a, schedule_new(f.a, &x->decision), &why));
            CU_ASSERT(x->estimate.peak_bytes <= f.r->memory_limit_bytes);
            struct estimate e;
            CU_ASSERT(predict(f.a, cost_new(f.a, f.job, f.topo, &x->decision), &e));
            CU_ASSERT_DOUBLE_EQUAL(e.step_time_s, x->estimate.step_time_s, 1e-9 * e.step_time_s);
        }
        sets[4] = asked[i].formula;
        if (!asked[i].formula) {
            arena_free(f.a);
            continue;
        }
        struct found other = search_example(asked[i].model, asked[i].cluster, sets, 5, 3, true);
        CU_ASSERT_FATAL(other.r->ncandidates > 0);
        double own = f.r->candidates[0].estimate.step_time_s,
               best = other.r->candidates[0].estimate.step_time_s;
        CU_ASSERT(own <= best);
        arena_free(other.a);
        arena_free(f.a);
    }
}

/* in a byte less than a schedule of its own takes another one is made, which takes less */
static void test_less_memory(void)
{
    const char *const sets[] = {"tp=1", "pp=4", "dp=2", "vpp=1", "schedule=auto"};
    struct found f = search_example("tiny-llama", "cpu8", sets, 5, 1, true);
    uint32_t n = 0;
    while (f.r->ncandidates && n < 12) {
        f.job->wishes.memory = f.r->candidates[0].estimate.peak_bytes - 1;
        f.r = search(f.a, f.d, f.job, f.topo, 1, 0, true);
        CU_ASSERT_EQUAL(f.r->memory_limit_bytes, f.job->wishes.memory);
        CU_ASSERT(!f.r->ncandidates || f.r->candidates[0].estimate.peak_bytes <= f.job->wishes.memory);
        n++;
    }
    CU_ASSERT(n > 3 && !f.r->ncandidates);
    arena_free(f.a);
}

/* named formulas stay as they are */
static void test_not_asked(void)
{
    const char *const sets[] = {"tp=1", "pp=4", "dp=2", "schedule=zb_h1"};
    struct found f = search_example("tiny-llama", "cpu8", sets, 4, 3, true);
    CU_ASSERT_FATAL(f.r->ncandidates > 0);
    for (uint32_t k = 0; k < f.r->ncandidates; k++)
        CU_ASSERT_EQUAL(f.r->candidates[k].decision.schedule, SCHED_ZB_H1);
    arena_free(f.a);
}

/* transfers that only pairs of actions can hide: none is made that has none */
static void test_pairs_asked(void)
{
    const char *const sets[] = {"tp=1", "pp=2", "dp=4", "overlap=all_to_all with compute",
                                "schedule in [combined_1f1b, auto]"};
    struct found f = search_example("tiny-llama", "cpu8", sets, 5, 8, true);
    CU_ASSERT_FATAL(f.r->ncandidates > 0);
    for (uint32_t k = 0; k < f.r->ncandidates; k++) {
        const char *why = "";
        CU_ASSERT(decision_emittable(f.a, f.job, &f.r->candidates[k].decision, &why));
    }
    arena_free(f.a);
}

/* Context parallelism of short sequences is seldom worth trying: it is tried where nothing else makes up the
 * GPUs, and three ranks of it where they are named. */
static void test_last_resort(void)
{
    static const char *const sets[][5] = {{"tp=1", "pp=2", "dp=1", "gpus=4", "sequence=256"},
                                          {"tp=1", "pp=2", "dp=1", "cp=3", "sequence=240"}};
    for (uint32_t i = 0; i < 2; i++) {
        struct found f = search_example("tiny-llama", "cpu8", sets[i], 5, 1, true);
        CU_ASSERT_FATAL(f.r->ncandidates > 0);
        CU_ASSERT_EQUAL(f.r->candidates[0].decision.cp, 2 + i);
        arena_free(f.a);
    }
}

static const struct {
    const char *csv, *sets[2], *message; /* NULL: it is taken */
    uint32_t nsets;
} files[] = {
    {"0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1B0,1F1,1B1\n", {"dp=4", "batch=8 sequences"}, NULL, 2},
    {"0F0,3F0,3B0,0B0\n1F0,2F0,2I0,1I0,2W0,1W0\n", {"dp=2", "batch=2 sequences"}, NULL, 2},
    {"0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n", {"dp=1", "batch=1 sequences"}, NULL, 2},
    {"0F0,0B0\n1F0,1B0\n2F0,2B0\n",
     {0},
     "it has 3 pipeline ranks, which neither wishes nor job and cluster allow",
     0},
    {"0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n",
     {0},
     "its 4 stages on 2 ranks are neither in turn (stage s on rank s mod pp) nor folded (stages r and 2 pp - "
     "1 - r on "
     "rank r)",
     0},
    {"0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n", {"vpp=1"}, "it has 2 stages per rank, which 'vpp' excludes", 1},
    /* from here on the file itself is bad, not what is asked for beside it */
    {"0F0,0F1,0B0\n1F0,1B0\n", {0}, "0B1 is missing", 0},
    {"0F0\n1F0\n", {0}, "it has no backward actions", 0},
};

static void test_files(void)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[] = "/tmp/llmc-schedule-XXXXXX";
        int fd = mkstemp(path);
        CU_ASSERT_FATAL(fd >= 0);
        CU_ASSERT_EQUAL(write(fd, files[i].csv, strlen(files[i].csv)), (ssize_t)strlen(files[i].csv));
        close(fd);
        struct arena *a = arena_new();
        const char *sets[6];
        uint32_t n = files[i].nsets;
        memcpy(sets, files[i].sets, n * sizeof *sets);
        sets[n++] = "tp=1";
        sets[n++] = "microbatch=1";
        sets[n++] = arena_printf(a, "schedule=\"%s\"", path);
        struct found f = search_example("tiny-llama", "cpu8", sets, n, 2, true);
        bool bad = i + 2 >= sizeof files / sizeof *files;
        if (files[i].message) {
            CU_ASSERT_EQUAL(f.r->ncandidates, 0);
            CU_ASSERT_STRING_EQUAL(diag_first(f.d),
                                   arena_printf(a, "%sschedule \"%s\": %s", bad ? "" : "no plan: ",
                                                path, files[i].message));
            CU_ASSERT_EQUAL(diag_has(f.d, "bad-schedule"), bad);
        } else {
            CU_ASSERT_FATAL(f.r->ncandidates > 0);
            const struct decision *d = &f.r->candidates[0].decision;
            CU_ASSERT_EQUAL(d->schedule, SCHED_FILE);
            CU_ASSERT(f.r->candidates[0].emittable);
            CU_ASSERT_PTR_NOT_NULL_FATAL(d->listed);
            CU_ASSERT_EQUAL(d->microbatches, d->listed->microbatches);
            CU_ASSERT_EQUAL(d->nstages, d->listed->nstages);
            char *text = NULL;
            size_t size = 0;
            FILE *out = open_memstream(&text, &size);
            schedule_print(schedule_new(a, d), out);
            fclose(out);
            CU_ASSERT_STRING_EQUAL(text, files[i].csv);
            free(text);
        }
        arena_free(f.a);
        arena_free(a);
        unlink(path);
    }
}

/* cells that a schedule of their own is tried for once: what its actions and their times follow from */
static void test_alike(void)
{
    const struct decision d = {.tp = 2, .cp = 2, .dp = 2, .pp = 2, .vpp = 2, .ep = 2, .etp = 2, .microbatch = 2,
                               .sp = true, .schedule = SCHED_ZB_V, .zero = 1, .shard = 2};
    struct decision x = d;
    x.zero = 2;
    x.shard = 4;
    x.schedule = SCHED_V_HALF; /* folded as well */
    CU_ASSERT(search_alike(&d, &x) && search_alike(&d, &d));
    uint32_t *const fields[] = {&x.tp, &x.cp, &x.dp, &x.pp, &x.vpp, &x.ep, &x.etp, &x.microbatch};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        *fields[i] = 4;
        CU_ASSERT(!search_alike(&d, &x));
        *fields[i] = 2;
    }
    x.sp = false;
    CU_ASSERT(!search_alike(&d, &x));
    x.sp = true;
    x.schedule = SCHED_INTERLEAVED;
    CU_ASSERT(!search_alike(&d, &x));
}

/* Where they may do best: the leaves fit, none makes pairs, no two are alike, the most promising first; 16 ranks have no
 * more than two stages each, the model has 32 layers. */
static void test_starts(void)
{
    const char *const sets[] = {"gpus=64", "pp=16", "tp=4", "batch=24 sequences"};
    struct found f = search_example("llama3-8b", "dgx-h100-superpod", sets, 4, 16, true);
    struct searching s = {.arena = f.a, .job = f.job, .topo = f.topo, .emit_only = true, .top = 16, .budget = 100000};
    struct search_starts *x = ARENA_NEW(f.a, struct search_starts);
    s.result = ARENA_NEW(f.a, struct search_result);
    CU_ASSERT_FATAL(search_prepare(&s, f.d));
    search_branch(&s);
    search_find_starts(&s, x);
    CU_ASSERT(x->n > 1 && x->n <= SEARCH_STARTS);
    for (uint32_t i = 0; i < x->n; i++) {
        const struct decision *d = &x->at[i].candidate.decision;
        CU_ASSERT(d->pp == 16 && d->vpp <= 2 && !decision_pairs(d->schedule));
        CU_ASSERT(x->at[i].candidate.estimate.peak_bytes <= s.memory_limit);
        CU_ASSERT(i == 0 || x->at[i - 1].bound <= x->at[i].bound);
        for (uint32_t j = 0; j < i; j++)
            CU_ASSERT(!search_alike(d, &x->at[j].candidate.decision));
    }
    arena_free(f.a);
}

static const char levels_job[] =
    "llmc 1\nmodel drawn {\nvocab 32000\nwidth 2560\nnorm rmsnorm\nembed tokens\nrepeat 31 {\nlayer {\n"
    "attn gqa(heads=20, kv=20, rope=500_000)\nmoe swiglu(1280) {\nexperts 256\nactive 4\nshared 1\n}\n}\n}\nhead untied\n}\n"
    "train {\nsequence 4096\nbatch 25000 sequences\nprecision bf16\noptimizer adamw(lr=1e-4)\n}\nplan {\n"
    "profile \"megatron-2022\"\ngpus = 70000\ntp = 1\npp = 7\nvpp = 4\ncp = 2\nep = 16\nmicrobatch = 1\n}\n";
static const char levels_cluster[] =
    "<cluster version=\"1\" name=\"drawn\"><node-type id=\"n\" gpus=\"8\" host-memory=\"2TB\"><gpu model=\"H800-SXM\"/>"
    "<scale-up kind=\"nvswitch\" bandwidth=\"200GB/s\"/><nic count=\"8\" bandwidth=\"400Gb/s\"/></node-type>"
    "<nodes type=\"n\" count=\"12500\"/><fabric medium=\"infiniband\"><tier name=\"rack\" span=\"32\"/>"
    "<tier name=\"all\" span=\"all\"/></fabric></cluster>";

/* a step of the best plan; set: NULL, or what is wished for besides */
static double levels_step_s(const char *set)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct source model = {"drawn.llm", levels_job, strlen(levels_job), false};
    struct source cluster = {"drawn.xml", levels_cluster, strlen(levels_cluster), false};
    struct job *job = job_parse(a, d, &model, &set, set != NULL);
    struct topo *topo = topo_parse(a, d, &cluster, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    struct search_result *r = search(a, d, job, topo, 16, 0, true);
    CU_ASSERT_FATAL(r->ncandidates > 0);
    CU_ASSERT_EQUAL(r->candidates[0].decision.schedule, SCHED_AUTO);
    double step_s = r->fastest.estimate.step_time_s;
    arena_free(a);
    return step_s;
}

/* A schedule that was made under one ZeRO level is made anew under another one: naming that level gives no faster plan. */
static void test_levels(void)
{
    double step_s = levels_step_s(NULL);
    CU_ASSERT(step_s <= levels_step_s("zero=0") * (1 + 1e-9));
    CU_ASSERT(step_s <= levels_step_s("zero=1") * (1 + 1e-9));
}

void suite_finalists(void);
void suite_finalists(void)
{
    CU_pSuite s = CU_add_suite("finalists", NULL, NULL);
    CU_add_test(s, "synthesised where asked for", test_asked);
    CU_add_test(s, "not where another is named", test_not_asked);
    CU_add_test(s, "not where pairs of actions are needed", test_pairs_asked);
    CU_add_test(s, "values that are seldom worth trying, as a last resort", test_last_resort);
    CU_add_test(s, "from a file", test_files);
    CU_add_test(s, "one per cell", test_alike);
    CU_add_test(s, "where they may do best", test_starts);
    CU_add_test(s, "made anew under other ZeRO levels", test_levels);
    CU_add_test(s, "less memory by a byte", test_less_memory);
}
