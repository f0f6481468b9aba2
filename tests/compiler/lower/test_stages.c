/* Golden text of every stage: tests/cases/stages/<name>/{model.llm, decision} against <stage>.txt beside them.
 * Unit costs, so that no constant of the cost model is in the expected text.  UPDATE=1 rewrites. */

#include "tests/compiler/random_plan.h"

#include "compiler/model/fmt.h"

#include <CUnit/CUnit.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void suite_stages(void);

#define CASES "tests/cases/stages/"

static char *read_text(struct arena *a, const char *path)
{
    struct diag *d = diag_new(a);
    struct source *s = source_read(a, d, path, 1 << 22);
    return s ? (char *)s->text : NULL;
}

static void compare(struct arena *a, const char *name, const char *stage, const char *got)
{
    char *path = arena_printf(a, CASES "%s/%s.txt", name, stage);
    if (getenv("UPDATE")) {
        FILE *f = fopen(path, "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        fputs(got, f);
        fclose(f);
    }
    const char *want = read_text(a, path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(want);
    if (!strcmp(want, got))
        return;
    uint32_t line = 1;
    while (*want && *want == *got) {
        line += *want == '\n';
        want++;
        got++;
    }
    fprintf(stderr, "%s differs at line %u: UPDATE=1 rewrites it, git diff shows it\n", path, line);
    CU_FAIL("golden text differs");
}

struct memory_file {
    char *text;
    size_t size;
    FILE *f;
};

static FILE *open_memory(struct memory_file *m)
{
    *m = (struct memory_file){0};
    m->f = open_memstream(&m->text, &m->size);
    return m->f;
}

static void finish(struct arena *a, struct memory_file *m, const char *name, const char *stage)
{
    fclose(m->f);
    compare(a, name, stage, m->text);
    free(m->text);
}

static void print_value(const struct expansion *e, uint32_t v, FILE *out)
{
    if (v == UINT32_MAX)
        return;
    const struct opr_value *x = &e->values[v];
    fprintf(out, " %s[%s%" PRIu64 "]", x->name, x->class == CLASS_COLS ? "/" : "", x->cols);
}

static void print_weight(const struct opr_weight *w, FILE *out)
{
    static const char *const split[] = {[SPLIT_NONE] = "", [SPLIT_ROWS] = " rows/tp", [SPLIT_COLS] = " cols/tp"};
    static const char *const init[] = {
        [WEIGHT_NORMAL] = "normal", [WEIGHT_RESIDUAL] = "residual", [WEIGHT_ONES] = "ones", [WEIGHT_ZEROS] = "zeros"};
    fprintf(out, "    %s", w->suffix);
    if (w->vector)
        fprintf(out, " [%" PRIu64 "]", w->cols);
    else
        fprintf(out, " [%" PRIu64 "x%" PRIu64 "]", w->rows, w->cols);
    if (w->family)
        fprintf(out, " in %" PRIu32 "%s", w->family, w->member_split == SPLIT_ROWS ? " rows/etp" : " cols/etp");
    else if (w->hf_rows != (w->vector ? w->cols : w->rows))
        fprintf(out, " from output %" PRIu64 " of %" PRIu64, w->hf_row, w->hf_rows);
    fprintf(out, "%s%s %s%s\n", w->transposed ? " transposed" : "", split[w->split], init[w->init],
            w->decay ? "" : " no-decay");
}

/* operators, values ("/" = split over tp) and weights as text, one a line */
static void print_expansion(const struct expansion *e, FILE *out)
{
    for (uint32_t i = 0; i < e->noprs; i++) {
        const struct opr *o = &e->oprs[i];
        fprintf(out, "  %-12s %-10s%s:", o->name, opr_info(o->kind)->name, o->row_parallel ? " row-parallel" : "");
        print_value(e, o->in[0], out);
        print_value(e, o->in[1], out);
        fputs(" ->", out);
        print_value(e, o->out, out);
        fputc('\n', out);
        for (uint32_t k = 0; k < o->nweights; k++)
            print_weight(&e->weights[o->weight + k], out);
        for (uint32_t k = 0; k < o->nbiases; k++)
            print_weight(&e->weights[o->bias + k], out);
    }
}

static void check_case(const char *name)
{
    struct arena *a = arena_new();
    struct memory_file m;
    struct job *job = text_job(a, read_text(a, arena_printf(a, CASES "%s/model.llm", name)));
    struct topo *host = random_host(a, 8);
    const char *why = "";
    struct decision d = text_decision(a, job, host, read_text(a, arena_printf(a, CASES "%s/decision", name)));
    compare(a, name, "ast", fmt_text(a, diag_new(a), job->source));
    FILE *f = open_memory(&m);
    fprintf(f, "embedding\n");
    print_expansion(expand_embed(a, &job->model), f);
    fprintf(f, "layer\n");
    print_expansion(expand_layer(a, &job->model, job->model.layers[0]), f);
    fprintf(f, "head\n");
    print_expansion(expand_head(a, &job->model), f);
    finish(a, &m, name, "expand");
    f = open_memory(&m);
    fprintf(f, "%s\n%s\n", decision_text(a, job, &d), decision_layout(a, &d));
    schedule_print(schedule_new(a, &d), f);
    finish(a, &m, name, "sched");
    struct compile_options o = {.unit = true, .costs = {true, 1000, 2000, 0}};
    struct plan *p = compile_decision(a, job, host, &d, &o, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    f = open_memory(&m);
    for (uint32_t r = 0; r < p->nroles; r++)
        program_print(p->train[r], f);
    finish(a, &m, name, "asm");
    plan_close(p);
    arena_free(a);
}

static void test_llama(void)
{
    check_case("llama");
}

static void test_gpt2(void)
{
    check_case("gpt2");
}

static void test_interleaved(void)
{
    check_case("interleaved");
}

static void test_zb_v(void)
{
    check_case("zb_v");
}

static void test_fp8(void)
{
    check_case("fp8");
}

void suite_stages(void)
{
    CU_pSuite s = CU_add_suite("stages", NULL, NULL);
    CU_add_test(s, "llama, bf16, tp 2 sp pp 2", test_llama);
    CU_add_test(s, "gpt2, fp32, dp 2 zero 1 recompute", test_gpt2);
    CU_add_test(s, "two chunks per rank, interleaved", test_interleaved);
    CU_add_test(s, "two chunks per rank in a V, backward split, tied", test_zb_v);
    CU_add_test(s, "latent attention and experts in 8 bits, dualpipe", test_fp8);
}
