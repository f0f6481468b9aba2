/* A plan's folder as the runtime reads it: every way in which a line of MANIFEST can be wrong, and that loading gives back
 * all memory it took, whatever was loaded and however far it came. */

#include "runtime/run.h"
#include "compiler/inspect/trace.h"
#include "tests/compiler/random_plan.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
    struct arena *a;
    struct plan *plan;
    char dir[E2E_PATH], plans[E2E_PATH + 16]; /* a folder of this test's own, and the plan in it */
};

static void open_place(struct place *p, const char *name)
{
    struct error error = {""};
    *p = (struct place){.a = arena_new()};
    p->plan = text_plan(p->a, tiny_llama, "tp=2 pp=2 microbatch=1");
    e2e_folder(p->dir, name);
    snprintf(p->plans, sizeof p->plans, "%s/plan", p->dir);
    CU_ASSERT_EQUAL_FATAL(plan_write(p->plan, p->plans, false, &error), STATUS_OK);
}

static void close_place(struct place *p)
{
    plan_close(p->plan);
    arena_free(p->a);
}

static const char *path_of(const struct place *p, const char *name)
{
    return arena_printf(p->a, "%s/%s", p->dir, name);
}

static FILE *open_file(const struct place *p, const char *name)
{
    FILE *f = fopen(path_of(p, name), "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    return f;
}

/* ---- lines ---- */

#define HEX63 "a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
#define LONG100 "0123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789"
#define LONG500 LONG100 LONG100 LONG100 LONG100 LONG100

/* a second line of MANIFEST that is none */
static const char *const malformed[] = {
    "\n",
    HEX63 "0\n",
    HEX63 "0  \n",                  /* no path */
    HEX63 "  notes.txt\n",          /* a short hash */
    HEX63 "00  notes.txt\n",        /* a long one */
    HEX63 "A  notes.txt\n",         /* letters that no hash has */
    HEX63 "g  notes.txt\n",
    HEX63 "0 *notes.txt\n",         /* one blank instead of two */
    HEX63 "0* notes.txt\n",
    HEX63 "0 notes.txt\n",
    HEX63 "0\t\tnotes.txt\n",
    HEX63 "0  /notes.txt\n",        /* places outside of the folder */
    HEX63 "0  ../notes.txt\n",
    HEX63 "0  programs/../../x\n",
    HEX63 "0  notes.txt",           /* no end */
    HEX63 "0  " LONG500 "012345678901\n", /* 512 characters */
};

/* a line that is one, of a file that is not there */
static const char *const missing[] = {HEX63 "0  notes.txt\n", HEX63 "f  a\n", HEX63 "0  " LONG500 "01234567890\n"};

static void expect_refused(const struct place *p, const char *line, const char *first, const char *says)
{
    struct folder *f;
    struct error error = {""};
    FILE *out = open_file(p, "plan/MANIFEST");
    fprintf(out, "%s%s", first, line);
    fclose(out);
    enum status st = folder_open(p->plans, &f, &error);
    CU_ASSERT_EQUAL(st, STATUS_INPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, says));
    if (st != STATUS_INPUT || !strstr(error.text, says))
        printf("\n    wanted: %s\n    %s    status %d, %s", says, line, (int)st, error.text);
}

static void test_manifest(void)
{
    struct place p;
    char first[1024] = "";
    struct error error = {""};
    struct folder *f = NULL;
    open_place(&p, "folder-lines");
    CU_ASSERT_EQUAL_FATAL(folder_open(p.plans, &f, &error), STATUS_OK);
    folder_close(f);
    e2e_read_text(path_of(&p, "plan/MANIFEST"), first, sizeof first);
    first[strcspn(first, "\n") + 1] = 0;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        expect_refused(&p, malformed[i], first, "/MANIFEST: malformed after 1 lines");
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        expect_refused(&p, missing[i], first, "No such file or directory");
    fclose(open_file(&p, "plan/notes.txt"));
    if (truncate(path_of(&p, "plan/notes.txt"), ((off_t)2048 << 20) + 1) == 0) /* takes no space */
        expect_refused(&p, HEX63 "0  notes.txt\n", first, "/notes.txt: larger than 2048 MiB");
    CU_ASSERT_EQUAL(folder_open("", &f, &error), STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(error.text, "the folder's name is empty");
    CU_ASSERT_EQUAL(remove(path_of(&p, "plan/MANIFEST")), 0);
    CU_ASSERT_EQUAL(folder_open(p.plans, &f, &error), STATUS_INPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "/plan/MANIFEST is missing: this is no plan folder ('llmc plan MODEL "));
    close_place(&p);
}

/* ---- memory ---- */

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* again and again: sooner or later a time takes no more than the one before it (freed pieces are kept for a while, so that
 * the first times do); a leak would be there every time */
static void expect_returned(const struct settings *o, enum status status)
{
    bool settled = false;
    for (int i = 0; i < 40 && !settled; i++) {
        struct run r = {.o = *o};
        struct error error = {""};
        size_t before = in_use();
        enum status st = run_open(&r, &error);
        run_close(&r);
        settled = in_use() == before;
        CU_ASSERT_EQUAL(st, status);
        if (st != status)
            printf("\n    %s", error.text);
    }
    CU_ASSERT(settled);
}

static void test_returned(void)
{
    /* in the order in which loading comes to them, the last first */
    static const char *const spoilt[] = {"programs/eval-1.bin", "programs/1.bin", "programs/0.bin", "ranks.bin", "plan.json"};
    struct place p;
    open_place(&p, "folder-memory");
    FILE *out = open_file(&p, "tokens.bin");
    for (int i = 0; i < 4000; i++)
        fwrite((const uint16_t[]){(uint16_t)(i % 29)}, 2, 1, out);
    fclose(out);
    out = open_file(&p, "times");
    trace_times(p.plan, out);
    fclose(out);
    const char *tokens = path_of(&p, "tokens.bin"), *times = path_of(&p, "times"), *none = path_of(&p, "none");
    const struct settings train = {.dir = p.plans, .data = tokens, .eval = tokens, .steps = 2},
                          paced = {.dir = p.plans, .paced = times, .steps = 2},
                          lost = {.dir = p.plans, .data = none, .steps = 2}, crossed = {.dir = p.plans, .paced = tokens};
    expect_returned(&train, STATUS_OK);
    expect_returned(&paced, STATUS_OK);
    expect_returned(&lost, STATUS_INPUT);
    expect_returned(&crossed, STATUS_INPUT);
    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) { /* each fails earlier than the one before it */
        out = fopen(path_of(&p, arena_printf(p.a, "plan/%s", spoilt[i])), "ab");
        CU_ASSERT_PTR_NOT_NULL_FATAL(out);
        fputc(' ', out);
        fclose(out);
        expect_returned(&train, STATUS_INPUT);
    }
    close_place(&p);
}

/* ---- what a rank is at ---- */

static const char *insn_text(const struct place *p, const char *before, const struct program *q, uint32_t i)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    fputs(before, out);
    program_print_insn(q, i, out);
    fclose(out);
    const char *kept = arena_strdup(p->a, text);
    free(text);
    return kept;
}

static void expect_described(const struct run *r, const char *want)
{
    char text[1024] = "-";
    run_describe(r, 1, text, sizeof text);
    CU_ASSERT_STRING_EQUAL(text, want);
    if (strcmp(text, want))
        printf("\n    wanted: %s\n    said: %s\n", want, text);
}

static void test_described(void)
{
    struct place p;
    struct error error = {""};
    open_place(&p, "folder-described");
    FILE *out = open_file(&p, "times");
    trace_times(p.plan, out);
    fclose(out);
    struct run r = {.o = {.dir = p.plans, .paced = path_of(&p, "times"), .steps = 2}};
    CU_ASSERT_EQUAL_FATAL(run_open(&r, &error), STATUS_OK);
    const struct world_sizes sizes = run_sizes(&r);
    CU_ASSERT_EQUAL_FATAL(world_open(&r.world, &sizes, NULL, NONE, 1, &error), STATUS_OK);
    struct world_rank *face = &r.world.ranks[1];
    uint32_t role = r.folder->ranks->ranks[1].role;
    for (uint32_t q = 0; q < NQUEUES; q++)
        face->head[q] = NONE;
    face->running = NONE;
    face->step = 6; /* the seventh */
    face->state = RANK_STARTING;
    expect_described(&r, "while starting");
    face->state = RANK_SAVING;
    expect_described(&r, "while saving");
    face->state = RANK_STEPPING;
    expect_described(&r, "at the end of step 7");
    face->head[QUEUE_TP] = 5;
    expect_described(&r, insn_text(&p, "in step 7 at ", r.folder->train[role], 5));
    face->running = 3;
    expect_described(&r, insn_text(&p, "in step 7 inside of ", r.folder->train[role], 3));
    face->evaluating = 1;
    expect_described(&r, insn_text(&p, "in step 7 inside of ", r.folder->eval[role], 3));
    run_close(&r);
    close_place(&p);
}

void suite_folder(void);
void suite_folder(void)
{
    CU_pSuite s = CU_add_suite("folder", NULL, NULL);
    CU_add_test(s, "lines of MANIFEST", test_manifest);
    CU_add_test(s, "what loading takes is given back", test_returned);
    CU_add_test(s, "what is said of a rank that died", test_described);
}
