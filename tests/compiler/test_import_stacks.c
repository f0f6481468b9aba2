/* Models, train and plan blocks from files of other stacks: what public examples come to, with the parameters that are
 * published; what is refused; and files that are damaged. */

#include "compiler/import/import.h"

#include "compiler/import/yaml.h"
#include "compiler/model/sema.h"
#include "tests/cases.h"
#include "tests/damage.h"
#include "tests/draws.h"
#include "tests/skip.h"
#include "tests/texts.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/cases/stacks/"

static struct job *job_of(struct arena *a, struct diag *d, char *text)
{
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){"model.llm", text, strlen(text), false};
    return job_parse(a, d, s, NULL, 0);
}

/* Words of a case are NAME=VALUE, or without '=' what is left out; the first of a known model's is its parameters. */
static char *import(struct arena *a, struct diag *d, const struct text_case *c, uint32_t first)
{
    struct source *s = ARENA_NEW(a, struct source);
    struct import_options o = {.name = c->name};
    const char *sets[8];
    *s = (struct source){c->name, c->text, c->size, false};
    for (uint32_t i = first; i < c->nwords; i++)
        if (strchr(c->words[i], '='))
            sets[o.nsets++] = c->words[i];
        else
            o.left_out = c->words[i];
    o.sets = sets;
    return import_model(a, d, s, &o);
}

static const char *known(struct arena *a, const struct text_case *c)
{
    struct diag *d = diag_new(a);
    char *text = import(a, d, c, 1);
    struct job *job = text ? job_of(a, d, text) : NULL;
    if (!job || diag_errors(d))
        return text_of_diag(a, d, false);
    uint64_t n = model_parameters(&job->model);
    if (n != strtoull(c->words[0], NULL, 10))
        printf("\n    %s: %llu parameters, published %s\n", c->name, (unsigned long long)n, c->words[0]);
    CU_ASSERT_EQUAL(n, strtoull(c->words[0], NULL, 10));
    return text;
}

/* the stacks' files, without YAML where it is not read */
static uint32_t check(struct arena *a, const char *kind, const char *(*say)(struct arena *a, const struct text_case *c))
{
    uint32_t n = cases_check(a, arena_printf(a, FOLDER "%s-megatron.cases", kind), say) +
                 cases_check(a, arena_printf(a, FOLDER "%s-titan.cases", kind), say);
    if (yaml_is_built)
        n += cases_check(a, arena_printf(a, FOLDER "%s-yaml.cases", kind), say);
    else
        test_skip("YAML: llmc was built without libyaml");
    return n;
}

static void test_known(void)
{
    struct arena *a = arena_new();
    CU_ASSERT(check(a, "known", known) >= 7);
    arena_free(a);
}

static const char *refused(struct arena *a, const struct text_case *c)
{
    struct diag *d = diag_new(a);
    char *text = import(a, d, c, 0);
    CU_ASSERT((text != NULL) == (diag_errors(d) == 0));
    return text ? text : text_of_diag(a, d, false);
}

static void test_refused(void)
{
    struct arena *a = arena_new();
    CU_ASSERT(check(a, "refused", refused) >= 50);
    arena_free(a);
}

static bool take(const struct damage *x, void *with)
{
    struct text_case c = ((const struct text_case *)with)[x->which];
    struct diag *d = diag_new(x->scratch);
    c.text = x->text;
    c.size = x->size;
    char *text = import(x->scratch, d, &c, 1);
    CU_ASSERT((text != NULL) == (diag_errors(d) == 0));
    if (text)
        job_of(x->scratch, d, text);
    return text != NULL;
}

static void test_damaged(void)
{
    static const char *const files[] = {FOLDER "known-megatron.cases", FOLDER "known-yaml.cases", FOLDER "known-titan.cases"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strstr(files[i], "yaml") && !yaml_is_built)
            continue;
        struct arena *a = arena_new();
        struct text_case *all;
        uint32_t n = cases_read(a, files[i], &all);
        struct damage_text *texts = ARENA_ARRAY(a, struct damage_text, n);
        for (uint32_t k = 0; k < n; k++)
            texts[k] = (struct damage_text){all[k].text, all[k].size};
        damage_all(texts, n, test_draws(3000, 300) / n + 2, "0123456789-.eE\"'{}[]()$\\,:=#;|*+tfn xT\n", take, all);
        arena_free(a);
    }
}

void suite_import_stacks(void);
void suite_import_stacks(void)
{
    CU_pSuite s = CU_add_suite("import_stacks", NULL, NULL);
    CU_add_test(s, "public examples: text, and parameters as published", test_known);
    CU_add_test(s, "what is refused, by its setting", test_refused);
    CU_add_test(s, "damaged files", test_damaged);
}
