/* What the timeline draws, against pictures that others drew: of every schedule of the language by its source's definition
 * (tests/reference/pictures.py), and one large plan as text, line by line (tests/cases/pictures/). */

#include "tests/compiler/inspect/fixture.h"
#include "tests/skip.h"
#include "tests/texts.h"

#include "compiler/inspect/show.h"
#include "compiler/llmc.h"
#include "compiler/model/sema.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNIT = 1000 };

/* actions and idle intervals of a rank in order of time: "F0.3@5-6 .@6-8" */
static void print_rank(FILE *out, struct arena *a, const struct plan *p, uint32_t r)
{
    const struct sim_role *s = &p->timeline->roles[r];
    uint32_t n, idle = 0;
    const struct show_block *b = show_blocks(a, p->train[r], s, &n);
    for (uint32_t i = 0; i < n || idle < s->nidles;) {
        bool waits = idle < s->nidles && (i == n || s->idles[idle].start_ns <= b[i].start_ns);
        int64_t start = waits ? s->idles[idle].start_ns : b[i].start_ns, end = waits ? s->idles[idle].end_ns : b[i].end_ns;
        const struct show_block *x = &b[i];
        idle += waits;
        i += !waits;
        if (start == end || (!waits && !strchr("FBIW", x->action))) /* the optimizer's, and others that take no time here */
            continue;
        if (waits)
            fprintf(out, " .");
        else if (x->other)
            fprintf(out, " (%c%u.%u&%c%u.%u)", x->action, x->stage, x->microbatch, x->other, x->other_stage,
                    x->other_microbatch);
        else
            fprintf(out, " %c%u.%u", x->action, x->stage, x->microbatch);
        fprintf(out, "@%g-%g", (double)start / UNIT, (double)end / UNIT);
    }
}

static void print_schedule(FILE *out, enum schedule_kind kind, uint32_t p, uint32_t v, uint32_t m)
{
    struct arena *a = arena_new();
    const struct fixture f = {.tp = 1, .pp = p, .vpp = v, .dp = 1, .microbatches = m, .schedule = kind, .unit = true,
                              .timed = !decision_pairs(kind), .f_ns = UNIT, .b_ns = 2 * UNIT};
    struct plan *q = fixture_plan(a, &f);
    CU_ASSERT_PTR_NOT_NULL_FATAL(q);
    for (uint32_t r = 0; r < p; r++) {
        fprintf(out, "%s %u %u %u %u:", schedule_name(kind), p, v, m, r);
        print_rank(out, a, q, r);
        fputc('\n', out);
    }
    plan_close(q);
    arena_free(a);
}

static void test_sources(void)
{
    static const struct {
        uint32_t p, m;
    } shapes[] = {{2, 8}, {4, 8}, {4, 12}, {4, 16}, {2, 5}, {4, 20}};
    if (system("python3 -c 'import json' >/dev/null 2>&1")) {
        test_skip("there is no python3");
        return;
    }
    FILE *out = popen("PYTHONDONTWRITEBYTECODE=1 python3 tests/reference/pictures.py", "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    for (uint32_t k = 0; k < SCHED_AUTO; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            uint32_t chunks = schedule_chunks((enum schedule_kind)k), p = shapes[i].p, m = shapes[i].m;
            bool odd = m % 2 && (k == SCHED_DUALPIPE || !chunks);
            for (uint32_t v = chunks ? chunks : 2; !odd && v <= (chunks ? chunks : 8 / p); v++)
                print_schedule(out, (enum schedule_kind)k, p, v, m);
        }
    CU_ASSERT_EQUAL(pclose(out), 0);
}

/* tp 8, pp 4, vpp 5, 64 microbatches, a sixth of the step exposed: to be read at 100 columns */
static void test_large(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_large(a);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    static const double from_s[] = {0, 0.45, 15.6}, zoom[] = {1, 64, 64};
    for (int i = 0; i < 3; i++) {
        const struct show_options o = {.width = 100, .unicode = true, .rank = -1, .stage = -1, .from_s = from_s[i], .zoom = zoom[i]};
        show_timeline(p, out, &o);
    }
    fclose(out);
    text_is_golden(text, "tests/cases/pictures/llama3-70b.txt");
    CU_ASSERT(p->timeline->exposed_comm_fraction > 0.17 && strstr(text, "~") != NULL);
    free(text);
    plan_close(p);
    arena_free(a);
}

void suite_pictures(void);
void suite_pictures(void)
{
    CU_pSuite s = CU_add_suite("pictures", NULL, NULL);
    CU_add_test(s, "every schedule as its source defines it", test_sources);
    CU_add_test(s, "a large plan, line by line", test_large);
}
