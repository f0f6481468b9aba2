/* What llmc says in situations that people get into: each case's words, handed to llmc, must end with the exit code that the case
 * wants and print the rest of it: stderr first, then stdout.
 *
 * What is asserted is what is said and in which order: figures are '#', as the cost model may move them; that
 * they add up is tested where they are made. */

#include "tests/cases.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void suite_explain_cases(void);

#define ROOM 32768

static size_t unit_length(const char *p)
{
    static const char *const units[] = {"TFLOP/s", "GFLOP/s", "PFLOP/s", "TB/s", "GB/s", "MB/s",
                                        "GiB",     "MiB",     "KiB",     "TiB",  "min",  "ms",
                                        "us",      "ns",      "h",       "d",    "s",    "%"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i]);
        if (!strncmp(p, units[i], n) && !isalnum((unsigned char)p[n]))
            return n;
    }
    return 0;
}

/* length of the figure at p, its unit included; 0 = a number that says what, not how much; first: of its line
 */
static size_t figure_length(const char *p, bool first)
{
    size_t n = strspn(p, "0123456789.,"), digits = strspn(p, "0123456789");
    while (n && strchr(".,", p[n - 1]))
        n--;
    size_t unit = unit_length(p + n);
    size_t apart = p[n] == ' ' && !strchr("dh", p[n + 1]) ? unit_length(p + n + 1) : 0;
    bool count = !strncmp(p + n, " GPU", 4) || !strncmp(p + n, " of ", 4);
    bool figure = n > digits || unit || apart || !strncmp(p + n, " %", 2) ||
                  (!first && !strncmp(p + n, "  ", 2)) || !strncmp(p + n, " configurations", 15) ||
                  (digits >= 4 && !count);
    return figure ? n + unit : 0;
}

/* figures to '#', times and sizes with their units; blanks inside a line to one */
static void mask(const char *text, char *out)
{
    char *at = out;
    bool inside = false;
    for (const char *p = text; *p && at - out < ROOM - 2;) {
        bool word = p > text && (isalnum((unsigned char)p[-1]) || strchr("_.-'", p[-1]));
        size_t n = isdigit((unsigned char)*p) && !word ? figure_length(p, p == text || p[-1] == '\n') : 0;
        if (isdigit((unsigned char)*p) && p > text && p[-1] == '-' && (p - 1 == text || strchr(" (", p[-2])))
            n = figure_length(p, false);
        if (n) {
            if (at > out && strchr("+-", at[-1]))
                at--;
            *at++ = '#';
            p += n;
            inside = true;
        } else if (*p == ' ' && inside) {
            p += strspn(p, " ");
            if (*p && *p != '\n')
                *at++ = ' ';
        } else {
            inside = *p != '\n' && (inside || *p != ' ');
            *at++ = *p++;
        }
    }
    *at = 0;
}

static const char *said(struct arena *a, const struct text_case *c)
{
    static const char *const streams[] = {"err", "out"};
    char path[E2E_PATH + 8], dir[E2E_PATH], *raw = arena_alloc(a, ROOM), *masked = arena_alloc(a, ROOM);
    e2e_folder(dir, "explain");
    const char *all = arena_printf(a, "exit %d\n", e2e_llmc(dir, c->words[0]));
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, streams[i]);
        e2e_read_text(path, raw, (size_t)ROOM / 2);
        mask(raw, masked);
        all = arena_printf(a, "%s%s", all, masked);
    }
    return all;
}

static void test_cases(void)
{
    struct arena *a = arena_new();
    const char *columns = getenv("COLUMNS");
    char *before = columns ? arena_strdup(a, columns) : NULL;
    setenv("COLUMNS", "200", 1); /* where lines are broken hangs on figures, which are masked */
    CU_ASSERT(cases_check(a, "tests/cases/explain/explain.cases", said) >= 14);
    before ? setenv("COLUMNS", before, 1) : unsetenv("COLUMNS");
    arena_free(a);
}

static void test_mask(void)
{
    static const char *const texts[][2] = {
        {"tp 8, pp 16, microbatch 2 x 24: 16.4s per step (+3.1 %)",
         "tp 8, pp 16, microbatch 2 x 24: # per step (# %)"},
        {"  compute      14.84 s    90.6 %  12 x 3ms\n", "  compute # s # % 12 x #\n"},
        {"on 512 of 1016 GPUs of m3: 1,024 plans, A100-SXM-80GB",
         "on 512 of 1016 GPUs of m3: # plans, A100-SXM-80GB"},
        {"nodes instead of 128: -0.3 % of 77.6GiB, zero 1", "nodes instead of 128: # % of #, zero 1"},
        {"361 GB/s, tp 2 sp, (-3.5 %)", "# GB/s, tp 2 sp, (# %)"},
    };
    char out[ROOM];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mask(texts[i][0], out);
        CU_ASSERT_STRING_EQUAL(out, texts[i][1]);
    }
}

/* what the plan block leaves open and what it decides, by --all */
static void test_decided(void)
{
    char dir[E2E_PATH], path[E2E_PATH + 8], *out = malloc(ROOM);
    e2e_folder(dir, "decided");
    snprintf(path, sizeof path, "%s/out", dir);
    CU_ASSERT_EQUAL(e2e_command(path, "%s/llmc explain plans/tiny-llama/model.llm topologies/cpu8.xml --all "
                                      "--set 'order=[tp, cp, dp, pp]'", e2e_build()), 0);
    e2e_read_text(path, out, ROOM);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(out, "\n  open were cp, vpp, ep, etp, zero, shard, gpus, sequence_parallel, context, layout\n"
                    "  the plan block decides tp, pp, dp, microbatch, schedule, recompute, order\n"));
    free(out);
}

void suite_explain_cases(void)
{
    CU_pSuite s = CU_add_suite("explain_cases", NULL, NULL);
    CU_add_test(s, "figures are masked, words are not", test_mask);
    CU_add_test(s, "what is said in which situation", test_cases);
    CU_add_test(s, "what is open and what is decided", test_decided);
}
