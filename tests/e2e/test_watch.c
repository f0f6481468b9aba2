/* llmrun --watch.  Lines on a pipe are compared with the log's and with plan.json; what a terminal of some size is sent is
 * played on a screen of the test's own, on which nothing but one view and the sentences above it may be left. */

#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[E2E_PATH];

/* p: tp 2, pp 2, four ranks; wide: eight */
static int prepare(void)
{
    char script[2048];
    e2e_folder(dir, "watched");
    snprintf(script, sizeof script, "cat >$D/m.llm <<'.'\n%s.\n%s", e2e_small_model,
             "cat runtime/*.c >$D/t.txt && $L tokens $D/t.txt -q -o $D/t.bin && "
             "head -c 2000 $D/t.txt >$D/e.txt && $L tokens $D/e.txt -q -o $D/e.bin && "
             "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=2 --set pp=2 --set dp=1 --set gpus=4 -o $D/p && "
             "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=2 --set pp=2 --set dp=2 -o $D/wide");
    return e2e_shell(dir, script);
}

static char *read_text(const char *name)
{
    enum { ROOM = 1 << 20 };
    char path[E2E_PATH + 32], *text = calloc(1, ROOM);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    e2e_read_text(path, text, ROOM);
    return text;
}

static json_t *read_json(const char *path)
{
    char name[E2E_PATH + 32];
    snprintf(name, sizeof name, "%s/%s", dir, path);
    json_t *o = json_load_file(name, 0, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    return o;
}

/* what a line must say of a step before it comes to memory and waits */
static void expected_line(char *out, size_t size, const json_t *step, const json_t *plan, unsigned steps)
{
    const json_t *predicted = json_object_get(plan, "predicted");
    double took = json_number_value(json_object_get(step, "step_time_s")),
           planned = json_number_value(json_object_get(predicted, "step_time_s")),
           mfu = json_number_value(json_object_get(predicted, "mfu")) * planned / took;
    snprintf(out, size, "step %d/%u  loss %.4f  %.0f tokens/s  MFU %.1f %%  %.4g s a step, planned %.4g s (%+.1f %%)  ",
             (int)json_integer_value(json_object_get(step, "step")), steps,
             json_number_value(json_object_get(step, "loss")), json_number_value(json_object_get(step, "tokens_per_s")),
             100 * mfu, took, planned, 100 * (took / planned - 1));
}

/* the log's line of a step; NULL: none */
static json_t *logged(const char *log, unsigned step)
{
    char begins[32];
    snprintf(begins, sizeof begins, "{\"step\": %u,", step);
    const char *at = strstr(log, begins);
    return at ? json_loads(at, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

static void test_lines(void)
{
    enum { STEPS = 260 };
    regex_t rest;
    char *said, *log;
    CU_ASSERT_EQUAL_FATAL(e2e_shell(dir, "$R $D/p --data $D/t.bin --steps 260 --watch --log $D/log --eval $D/e.bin 2>$D/said"), 0);
    CU_ASSERT_EQUAL_FATAL(regcomp(&rest,
                                  "^[0-9.]+(MiB|GiB) resident  waits [0-9]+ %, planned [0-9]+ %(; [1-3] of 4 ranks waits? "
                                  "for rank [0-3] in the end, [0-9]+ % of a step more than planned)?$",
                                  REG_EXTENDED | REG_NOSUB),
                          0);
    said = read_text("said");
    log = read_text("log");
    json_t *plan = read_json("p/plan.json");
    unsigned n = 0, last = 0, step;
    bool evaluated = false;
    CU_ASSERT_PTR_NULL(strchr(said, '\033'));
    for (char *line = strtok(said, "\n"); line; line = strtok(NULL, "\n")) {
        char want[300];
        evaluated |= !strncmp(line, "step 260  held-out loss ", 24);
        if (sscanf(line, "step %u", &step) != 1 || !strstr(line, "/260  loss "))
            continue;
        json_t *o = logged(log, step);
        CU_ASSERT_FATAL(o && step > last);
        expected_line(want, sizeof want, o, plan, STEPS);
        bool fine = !strncmp(line, want, strlen(want)) && regexec(&rest, line + strlen(want), 0, NULL, 0) == 0;
        CU_ASSERT(fine);
        if (!fine)
            printf("\n    %s\n    is not: %s...\n", line, want);
        json_decref(o);
        last = step;
        n++;
    }
    CU_ASSERT(n >= 2 && last == STEPS && evaluated);
    regfree(&rest);
    json_decref(plan);
    free(said);
    free(log);
}

/* ---- a terminal ---- */

enum { ROWS = 600, COLUMNS = 256 };
struct screen {
    char cell[ROWS][COLUMNS];
    int row, column, widest; /* widest: columns of the longest line that was ever there */
    bool coloured;
};

/* one escape sequence from behind its '['; returns what is behind it */
static const char *obey(struct screen *s, const char *at)
{
    char *end;
    long n = strtol(at, &end, 10);
    while (*end == ';' || (*end >= '0' && *end <= '9'))
        end++;
    if (*end == 'A') {
        s->row -= (int)(n ? n : 1);
        CU_ASSERT_FATAL(s->row >= 0);
    } else if (*end == 'J') {
        memset(s->cell[s->row] + s->column, 0, (size_t)(COLUMNS - s->column));
        memset(s->cell[s->row + 1], 0, sizeof s->cell[0] * (size_t)(ROWS - s->row - 1));
    } else {
        CU_ASSERT_EQUAL(*end, 'm');
        s->coloured = true;
    }
    return end + 1;
}

static void play(struct screen *s, const char *text)
{
    memset(s, 0, sizeof *s);
    while (*text) {
        if (text[0] == '\033' && text[1] == '[') {
            text = obey(s, text + 2);
            continue;
        }
        if (*text == '\r')
            s->column = 0;
        else if (*text == '\n')
            s->row++;
        else
            s->cell[s->row][s->column++] = *text;
        CU_ASSERT_FATAL(s->row < ROWS - 1 && s->column < COLUMNS - 1);
        s->widest = s->column > s->widest && s->row > 0 ? s->column : s->widest; /* the first line is llmrun's own */
        text++;
    }
}

static int rows_with(const struct screen *s, const char *begins)
{
    int n = 0;
    for (int i = 0; i < ROWS; i++)
        n += !strncmp(s->cell[i], begins, strlen(begins));
    return n;
}

/* on a terminal of so many columns and rows; environment: "NAME=value ", or "" */
static void run_on(struct screen *s, int columns, int rows, const char *environment, const char *words)
{
    char script[1024];
    snprintf(script, sizeof script,
             "export TERM=xterm; R=$(realpath $R); cat >$D/run.sh <<'.'\nstty cols %d rows %d\n"
             "%s\"$1\" \"$2\"/%s --data \"$2\"/t.bin --watch\n.\n"
             "script -qec \"sh $D/run.sh $R $D\" /dev/null >$D/seen",
             columns, rows, environment, words);
    CU_ASSERT_EQUAL_FATAL(e2e_shell(dir, script), 0);
    char *text = read_text("seen");
    play(s, text);
    free(text);
}

static struct screen screen;

static void test_terminal(void)
{
    static const int widths[] = {50, 80, 120};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct screen *s = &screen;
        run_on(s, widths[i], 30, "NO_COLOR=1 ", "p --steps 60 --eval-every 20 --eval $2/e.bin");
        CU_ASSERT(s->widest < widths[i] && s->widest > 40);
        CU_ASSERT_FALSE(s->coloured);
        CU_ASSERT_EQUAL(rows_with(s, "step 60/60  loss "), 1);
        CU_ASSERT_EQUAL(rows_with(s, "step "), 4); /* with three evaluations */
        CU_ASSERT_EQUAL(rows_with(s, "rank    waits (plan)"), 1);
        for (int r = 0; r < 4; r++) {
            char begins[32];
            snprintf(begins, sizeof begins, "%4d  ", r);
            CU_ASSERT_EQUAL(rows_with(s, begins), 1);
        }
        CU_ASSERT(s->column == 0 && !s->cell[s->row][0]); /* whoever writes next writes below */
    }
}

/* eight ranks do not fit twelve rows, and there are two roles */
static void test_low(void)
{
    run_on(&screen, 80, 12, "", "wide --steps 40");
    CU_ASSERT_EQUAL(rows_with(&screen, "role    waits (plan)"), 1);
    CU_ASSERT_EQUAL(rows_with(&screen, "   0  ") + rows_with(&screen, "   1  "), 2);
    CU_ASSERT_EQUAL(rows_with(&screen, "   2  "), 0);
    run_on(&screen, 80, 3, "", "wide --steps 40");
    CU_ASSERT_EQUAL(rows_with(&screen, "step 40/40  "), 1);
    run_on(&screen, 80, 24, "TERM=dumb ", "p --steps 40");
    CU_ASSERT_EQUAL(rows_with(&screen, "rank    waits"), 0);
}

/* A rank that is slow is the one that all wait for in the end, whichever it is.  Where other work takes the cores, another
 * rank may have been slower for a while: six tries. */
static void test_slow(void)
{
    for (int rank = test_usual() ? 3 : 1; rank < 4; rank++) {
        char words[64], script[400];
        snprintf(words, sizeof words, " ranks wait for rank %d in the end, ", rank);
        snprintf(script, sizeof script,
                 "for i in 1 2 3 4 5 6; do $R $D/p --data $D/t.bin --steps 60 --watch --slow-rank %d:8 2>$D/all || exit; "
                 "tail -n 1 $D/all >$D/said; grep -q '%s' $D/said && break; done", rank, words);
        e2e_expect(dir, script, 0, words);
    }
    bool seen = false;
    for (int i = 0; i < 6 && !seen; i++) {
        run_on(&screen, 80, 30, "", "p --steps 60 --slow-rank 2:8");
        seen = screen.coloured && rows_with(&screen, "3 of 4 ranks wait for rank 2 in the end") == 1;
    }
    CU_ASSERT(seen);
}

/* the view goes on with the run, and what is said of the death can be read */
static void test_death(void)
{
    e2e_expect(dir,
               "rm -rf $D/c; $R $D/p --data $D/t.bin --steps 300 --watch --checkpoint $D/c --every 20 --restarts 3 2>$D/said & P=$!; "
               "for i in $(seq 400); do test -e $D/c/step-40 && break; sleep 0.01; done; "
               "kill -9 $(child 3); wait $P && "
               "test $(grep -c '^step 300/300  ' $D/said) = 1",
               0, "llmrun: rank 2 was killed by signal 9 (Killed) ");
}

static void test_refused(void)
{
    e2e_expect(dir, "$R $D/p --data $D/t.bin --watch --quiet 2>$D/said", 2, "llmrun: --watch: not with --quiet");
    e2e_expect(dir, "$R $D/p --init $D --generate a --watch 2>$D/said", 2, "llmrun: --watch: shows training, not --generate");
    e2e_expect(dir, "$R --help >$D/said", 0, "\n  --watch               a view of the run");
}

static void test_hosts(void)
{
    if (e2e_shell(dir, "command -v mpirun && test -e ${R}-mpi.so")) {
        test_skip("Open MPI is not installed, or the plugin was built before it was");
        return;
    }
    e2e_expect(dir,
               "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0; "
               "for i in 1 2 3 4 5 6; do timeout 400 mpirun --oversubscribe --bind-to none -n 4 $R $D/p --data $D/t.bin --steps 25 "
               "--watch --slow-rank 2:30 --transport mpi 2>$D/all || exit; tail -n 1 $D/all >$D/said; "
               "grep -q 'for rank 2 on' $D/said && break; done",
               0, " for rank 2 on ");
}

void suite_watch(void);
void suite_watch(void)
{
    CU_pSuite s = CU_add_suite("watch", prepare, NULL);
    CU_add_test(s, "lines", test_lines);
    CU_add_test(s, "a terminal", test_terminal);
    CU_add_test(s, "few rows, and no terminal to move about on", test_low);
    CU_add_test(s, "a slow rank", test_slow);
    CU_add_test(s, "a rank that dies", test_death);
    CU_add_test(s, "what does not go together", test_refused);
    CU_add_test(s, "several hosts", test_hosts);
}
