/* Where a folder comes from, drawn: layouts over every dimension that a decision has, pinned in a plan block word by
 * word, must obey it and compile to the same files as they are read back; one digit of plan.json changed must be
 * refused; what a search finds for the pins must come from its inputs, and so must the worked examples: here where
 * sanitizers run, elsewhere in the suite plans, which has made them.
 *
 * ORIGIN=N: N drawn layouts instead of a few, and all of the examples (make check-origin). */

#include "compiler/model/sema.h"
#include "compiler/origin/origin.h"
#include "compiler/support/strbuf.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"
#include "tests/e2e/forge.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- drawn layouts ---- */

static void say_names(struct strbuf *b, const char *word, uint32_t bits, const char *const *names, uint32_t n)
{
    const char *between = "";
    strbuf_printf(b, "    %s [", word);
    for (uint32_t i = 0; i < n; i++)
        if (bits >> i & 1) {
            strbuf_printf(b, "%s%s", between, names[i]);
            between = ", ";
        }
    strbuf_text(b, "]\n");
}

/* what of a decision the plan block can pin, and the wishes that it came with */
static char *pinned(struct arena *a, const struct job *job, const struct decision *d)
{
    static const char *const parts[] = {"optimizer", "activations"}, *const overlaps[] = {"tp", "dp", "pp", "cp",
                                                                                          "all_to_all"};
    struct strbuf b = {0};
    strbuf_printf(
        &b, "plan {\n    tp = %u\n    cp = %u\n    pp = %u\n    vpp = %u\n    dp = %u\n    ep = %u\n    etp = %u\n",
        d->tp, d->cp, d->pp, d->vpp, d->dp, d->ep, d->etp);
    const char *layout = decision_layout(a, d); /* modules are in the last stage, before the loss */
    strbuf_printf(&b, "    zero = %u\n    shard = %u\n    microbatch = %u\n    gpus = %u\n    layout \"%.*s%sL\"\n",
                  d->zero, d->shard, d->microbatch, d->gpus_used, (int)strlen(layout) - 1, layout,
                  job->model.predict ? "m" : "");
    strbuf_printf(&b, "    order [%s, %s, %s, %s]\n    sequence_parallel %s\n", axis_names[d->order[0]],
                  axis_names[d->order[1]], axis_names[d->order[2]], axis_names[d->order[3]], d->sp ? "yes" : "no");
    if (d->cp > 1)
        strbuf_printf(&b, "    context %s\n", context_names[d->context]);
    uint32_t spared = 0;
    for (uint32_t s = 0; s < d->nstages && !d->recompute_layers; s++)
        spared += d->stages[s].spared;
    if (d->recompute == RECOMPUTE_SELECTIVE)
        say_names(&b, "recompute", d->parts, recompute_part_names, 8);
    else if (d->recompute_layers)
        strbuf_printf(&b, "    recompute full(layers=%u)\n", d->recompute_layers);
    else if (!spared)
        strbuf_printf(&b, "    recompute %s\n", recompute_names[d->recompute]);
    if (d->schedule == SCHED_FILE)
        strbuf_text(&b, "    schedule \"own.csv\"\n");
    else if (d->schedule_group && d->schedule == SCHED_INTERLEAVED)
        strbuf_printf(&b, "    schedule in [interleaved(group=%u)]\n", d->schedule_group);
    else if (!d->schedule_group) /* combined_1f1b has no word for its group */
        strbuf_printf(&b, "    schedule %s\n", schedule_name(d->schedule));
    if (job->wishes.offload)
        say_names(&b, "offload", job->wishes.offload, parts, 2);
    if (job->wishes.never_overlap)
        say_names(&b, "never overlap", job->wishes.never_overlap, overlaps, 5);
    strbuf_printf(&b, "    post_validation %s\n}\n", job->wishes.post_validation ? "yes" : "no");
    char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}

/* what a search for these wishes finds, if anything, comes from its inputs */
static void try_search(struct arena *a, uint64_t seed, struct job *job, struct topo *topo, const char *dir)
{
    const char *text;
    struct error error = {""};
    struct plan *p = NULL;
    if (compile_best(a, diag_new(a), job, topo, &(struct compile_options){0}, &p, NULL) != STATUS_OK)
        return;
    CU_ASSERT_EQUAL_FATAL(plan_write(p, dir, true, &error), STATUS_OK);
    CU_ASSERT_EQUAL(forge_judge(a, dir, &text), 0);
    if (*text)
        printf("\n    seed %llu: %s: %s\n", (unsigned long long)seed, decision_text(a, job, &p->decision), text);
    plan_close(p);
}

/* Digits of plan.json before the object `search`, one at a time, become others: each folder must be refused. */
static void try_digits(struct arena *a, uint64_t *state, const char *dir, const char *root, const char *name)
{
    static const char *const digits = "0123456789";
    struct forge f;
    const char *said;
    forge_read(a, dir, &f);
    char *json = arena_strdup(a, forge_file(&f, "plan.json")->bytes);
    for (size_t at = random_below(state, 40); at < strlen(json); at += 1 + random_below(state, 120)) {
        at += strcspn(json + at, digits);
        if (!json[at] || strstr(json + at, "\"search\"") == NULL)
            break;
        char was = json[at];
        json[at] = digits[(was - '0' + 1) % 10];
        forge_put(&f, "plan.json", json, strlen(json));
        int code = forge_try(&f, arena_printf(a, "%s/forged", root), &said);
        CU_ASSERT(code);
        if (!code)
            printf("\n    %s: accepted: %.60s\n", name, json + (at > 30 ? at - 30 : 0));
        json[at] = was;
    }
}

/* The wishes hold, and the decision as it is read back compiles to the same files; then values of plan.json are
 * changed. */
static void try_layout(uint64_t seed, const struct layout_model *model, const char *root)
{
    struct arena *a = arena_new();
    uint64_t state = seed;
    struct job *job = text_job(a, model->text);
    struct topo *topo = random_host(a, 16);
    struct decision d;
    const char *why = "", *dir = arena_printf(a, "%s/layout", root);
    struct error error = {""};
    layout_wishes(&state, job);
    if (!layout_draw(a, &state, job, topo, 16, &d)) {
        arena_free(a);
        return;
    }
    struct source *text = ARENA_NEW(a, struct source);
    const char *whole = arena_printf(a, "%s%s", model->text, pinned(a, job, &d));
    *text = (struct source){arena_printf(a, "%s/model.llm", root), whole, strlen(whole), false};
    struct diag *diag = diag_new(a);
    job = job_parse(a, diag, text, NULL, 0);
    diag_print(diag, stdout, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why), *back = NULL,
                *again = NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_EQUAL_FATAL(plan_write(p, dir, true, &error), STATUS_OK);
    bool fine = plan_read(a, dir, &back, &error) == STATUS_OK;
    struct difference list[ORIGIN_MOST];
    struct origin o = {.differences = list};
    if (fine) {
        origin_wishes(a, back, &o);
        again = compile_decision(a, back->job, back->topo, &back->decision, &(struct compile_options){0}, &why);
        origin_files(a, back, again, &o);
    }
    CU_ASSERT(fine && !o.ndifferences);
    if (!fine || o.ndifferences)
        printf("\n    %s, seed %llu: %s: %s\n", model->name, (unsigned long long)seed, decision_text(a, job, &d),
               fine ? o.differences[0].message : error.text);
    try_digits(a, &state, dir, root, arena_printf(a, "%s, seed %llu", model->name, (unsigned long long)seed));
    if (d.schedule != SCHED_FILE)
        try_search(a, seed, job, topo, dir);
    plan_close(again);
    plan_close(back);
    plan_close(p);
    arena_free(a);
}

static void test_layouts(void)
{
    const char *env = getenv("ORIGIN");
    uint32_t n = env && *env ? (uint32_t)strtoul(env, NULL, 10) : test_draws(6 * layout_nmodels, layout_nmodels);
    char root[E2E_PATH];
    e2e_folder(root, "origin-layouts");
    for (uint32_t i = 0; i < n; i++)
        try_layout(1 + i, &layout_models[i % layout_nmodels], root);
}

/* ---- worked examples ---- */

static void check_example(const char *root, const char *name, uint64_t most_bytes)
{
    struct arena *a = arena_new();
    const char *sets[8], *dir = arena_printf(a, "%s/%s", root, name), *text;
    uint32_t nsets = 0;
    struct source *s = source_read(a, diag_new(a), arena_printf(a, "plans/%s/cluster", name), 1 << 16),
                  *model = source_read(a, diag_new(a), arena_printf(a, "plans/%s/model.llm", name), 1 << 20);
    CU_ASSERT_FATAL(s && model);
    const char *cluster = arena_strndup(a, s->text, strcspn(s->text, "\n"));
    for (const char *at = s->text; (at = strstr(at, "\nset ")) && nsets < 8; at++)
        sets[nsets++] = arena_strndup(a, at + 5, strcspn(at + 5, "\n"));
    struct job *job = job_parse(a, diag_new(a), model, sets, nsets);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    if (model_parameters(&job->model) * job->train.batch <= most_bytes) {
        forge_plan(a, dir, model->text, cluster, sets, nsets);
        CU_ASSERT_EQUAL(forge_judge(a, dir, &text), 0);
        if (*text)
            printf("\n    %s: %s\n", name, text);
        CU_ASSERT_EQUAL(system(arena_printf(a, "rm -rf '%s'", dir)), 0);
    }
    arena_free(a);
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* without the four that take seconds, unless more is asked for */
static void test_examples(void)
{
    struct dirent **names;
    char root[E2E_PATH];
    int n = scandir("plans", &names, visible, alphasort);
    bool all = getenv("ORIGIN") && *getenv("ORIGIN");
    e2e_folder(root, "origin-examples");
    CU_ASSERT_FATAL(n >= 9);
    for (int i = 0; i < n; i++) {
        check_example(root, names[i]->d_name, all ? UINT64_MAX : (uint64_t)500e12);
        free(names[i]);
    }
    free(names);
}

void suite_origin_drawn(void);
void suite_origin_drawn(void)
{
    CU_pSuite s = CU_add_suite("origin_drawn", NULL, NULL);
    CU_add_test(s, "drawn layouts come from their decisions", test_layouts);
    if (test_quick() || (getenv("ORIGIN") && *getenv("ORIGIN")))
        CU_add_test(s, "worked examples come from their inputs", test_examples);
}
