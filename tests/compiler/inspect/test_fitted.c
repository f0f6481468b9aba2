/* Views broken to the terminal's width: by hand, and that estimate, sweeps and explain say the same at 80 columns as at 200,
 * in lines that are no wider; tables that leave out what has no room; timelines also in colour and with Unicode. */

#include "tests/compiler/inspect/fixture.h"
#include "tests/texts.h"

#include "compiler/inspect/estimate.h"
#include "compiler/inspect/explain.h"
#include "compiler/inspect/fitted.h"
#include "compiler/inspect/forecast.h"
#include "compiler/inspect/show.h"
#include "compiler/inspect/sweep.h"
#include "compiler/llmc.h"
#include "compiler/model/sema.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

static void test_breaks(void)
{
    static const struct {
        uint32_t width;
        const char *text, *wanted;
    } cases[] = {
        {80, "one\n\ntwo", "one\n\ntwo\n"},
        {10, "aaaa bbbb cccc", "aaaa bbbb\n  cccc\n"},
        {9, "aaaa bbbb cccc", "aaaa bbbb\n  cccc\n"},
        {10, "  aaaa bbbb cccc", "  aaaa\n    bbbb\n    cccc\n"},
        {12, "Et*8|t*8|t*8|t*7L", "Et*8|t*8|\n  t*8|t*7L\n"},
        {5, "unbreakable word", "unbreakable\n  word\n"},
        {8, "öööö üüü ä", "öööö üüü\n  ä\n"},
        {44, "    1.   2.5s   73GiB  tp 8 sp, pp 16, dp 128, zero 1",
         "    1.   2.5s   73GiB  tp 8 sp, pp 16, dp\n         128, zero 1\n"},
        {54, "    1.   2.5s   73GiB  tp 8 sp, pp 16, dp 128, zero 1, microbatch 1",
         "    1.   2.5s   73GiB  tp 8 sp, pp 16, dp 128, zero 1,\n                       microbatch 1\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fitted f;
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        fputs(cases[i].text, fitted_open(&f));
        fitted_close(&f, cases[i].width, out);
        fclose(out);
        CU_ASSERT_STRING_EQUAL(text, cases[i].wanted);
        if (strcmp(text, cases[i].wanted) != 0)
            printf("\n    case %zu:\n%s", i, text);
        free(text);
    }
}

/* columns of the widest line; escape sequences have none */
static size_t widest(const char *text)
{
    size_t most = 0, column = 0;
    for (const char *p = text; *p; p++) {
        if (*p == '\033')
            p += strcspn(p, "m");
        else
            column = *p == '\n' ? 0 : column + (((unsigned char)*p & 0xc0) != 0x80);
        most = column > most ? column : most;
    }
    return most;
}

/* without blanks and ends of lines, and the heading that a narrow sweep leaves out */
static char *words(struct arena *a, const char *text)
{
    char *out = arena_strdup(a, text), *to = out;
    const char *plan = strstr(text, "  plan\n");
    for (const char *p = text; *p; p++)
        if (plan && p == plan)
            p += 6;
        else if (*p != ' ' && *p != '\n')
            *to++ = *p;
    *to = 0;
    return out;
}

struct asked {
    struct arena *a;
    struct job *job;
    struct topo *topo;
    struct forecast f;
};

static void view_estimate(struct asked *q, uint32_t width, FILE *out)
{
    estimate_print(q->job, q->topo, q->f.found, &(struct estimate_more){0}, width, out);
}

static void view_explain(struct asked *q, uint32_t width, FILE *out)
{
    const struct explain_options o = {.all = true, .budget = 2000, .quiet = true, .width = width};
    explain(q->a, diag_new(q->a), q->job, q->topo, q->f.plan, &o, out);
}

static void view_sweep(struct asked *q, uint32_t width, FILE *out)
{
    static const char *const sweeps[] = {"tp=1,16", "zero=0,1"}, *const sets[] = {"vpp=8", "batch=64 sequences"};
    const struct sweep_options o = {
        .model = "plans/llama3-8b/model.llm", .sets = sets, .nsets = 2, .sweeps = sweeps, .nsweeps = 2, .budget = 500, .width = width};
    sweep(q->a, diag_new(q->a), q->topo, &o, out);
}

static void test_widths(void)
{
    static const struct {
        void (*view)(struct asked *q, uint32_t width, FILE *out);
        size_t least; /* of the widest line at 200 columns, so that it is wider than 80 */
    } views[] = {{view_estimate, 81}, {view_explain, 81}, {view_sweep, 81}};
    static const char *const sets[] = {"vpp=8", "batch=64 sequences"};
    struct asked q = {.a = arena_new()};
    struct diag *d = diag_new(q.a);
    q.job = job_read(q.a, d, "plans/llama3-8b/model.llm", sets, 2);
    q.topo = topo_read(q.a, d, "topologies/h100x8.xml");
    CU_ASSERT_FATAL(q.job && q.topo);
    CU_ASSERT_EQUAL_FATAL(forecast(q.a, d, q.job, q.topo, 4, 2000, &q.f), STATUS_OK);
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        char *text[2] = {NULL};
        for (int wide = 0; wide < 2; wide++) {
            size_t size = 0;
            FILE *out = open_memstream(&text[wide], &size);
            views[i].view(&q, wide ? 200 : 80, out);
            fclose(out);
        }
        CU_ASSERT(widest(text[0]) <= 80);
        CU_ASSERT(widest(text[1]) <= 200 && widest(text[1]) >= views[i].least);
        CU_ASSERT_STRING_EQUAL(words(q.a, text[0]), words(q.a, text[1]));
        free(text[0]);
        free(text[1]);
    }
    plan_close(q.f.plan);
    arena_free(q.a);
}

/* a plan of five stages a rank as `show` has it, in 80 and in 100 columns (tests/cases/tables.txt); and no table is wider than it
 * may be where its columns can go */
static void test_tables(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_large(a);
    char *golden = NULL;
    size_t size = 0;
    FILE *all = open_memstream(&golden, &size);
    for (uint32_t width = 60; width <= 130; width += 10) {
        const struct show_options o = {.width = width, .rank = -1, .stage = -1};
        char *text = NULL;
        FILE *out = open_memstream(&text, &size);
        show_summary(p, out, &o);
        fclose(out);
        CU_ASSERT(widest(text) <= width);
        CU_ASSERT_EQUAL(strstr(text, "(no room for: ") != NULL, width < 90);
        if (width == 80 || width == 100)
            fprintf(all, "%s%u columns\n\n%s", width == 80 ? "" : "\n", width, text);
        free(text);
    }
    fclose(all);
    text_is_golden(golden, "tests/cases/tables.txt");
    free(golden);
    plan_close(p);
    arena_free(a);
}

/* the drawing, its legend and its axis, by their own width */
static void test_timelines(void)
{
    static const struct fixture pairs = {.tp = 1, .pp = 2, .dp = 1, .vpp = 2, .microbatches = 8, .schedule = SCHED_DUALPIPE_V,
                                         .unit = true, .f_ns = 1000, .b_ns = 2000, .c_ns = 100};
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &pairs);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    for (int k = 0; k < 8; k++) {
        const struct show_options o = {
            .width = k & 1 ? 80 : 200, .colour = k & 2, .unicode = k & 4, .rank = -1, .stage = k & 1 ? 0 : -1};
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        show_timeline(p, out, &o);
        fclose(out);
        CU_ASSERT_EQUAL(widest(text), o.width);
        CU_ASSERT_EQUAL(strchr(text, '\033') != NULL, o.colour);
        CU_ASSERT_EQUAL(strstr(text, "·") != NULL, o.unicode);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "the rank's second stage"));
        free(text);
    }
    plan_close(p);
    arena_free(a);
}

void suite_fitted(void);
void suite_fitted(void)
{
    CU_pSuite s = CU_add_suite("fitted", NULL, NULL);
    CU_add_test(s, "lines are broken at blanks and bars", test_breaks);
    CU_add_test(s, "views at 80 and 200 columns", test_widths);
    CU_add_test(s, "tables at 80 and 100 columns", test_tables);
    CU_add_test(s, "timelines at 80 and 200 columns", test_timelines);
}
