/* Models from Hugging Face's configurations: the text and number of parameters of those of known models, what is said of
 * fields that cannot be expressed, and files that are damaged. */

#include "compiler/import/import.h"

#include "compiler/model/fmt.h"
#include "compiler/model/sema.h"
#include "tests/cases.h"
#include "tests/damage.h"
#include "tests/texts.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/cases/huggingface/"

/* the text's model block; the text must be in the language's canonical form */
static char *model_block(struct arena *a, char *text)
{
    struct source s = {"model.llm", text, strlen(text), false};
    struct diag *d = diag_new(a);
    const char *same = fmt_text(a, d, &s);
    CU_ASSERT_PTR_NOT_NULL_FATAL(same);
    CU_ASSERT_STRING_EQUAL(same, text);
    char *train = strstr(text, "\ntrain {");
    CU_ASSERT_PTR_NOT_NULL_FATAL(train);
    return arena_strndup(a, text + strlen("llmc 1\n\n"), (size_t)(train - text) - strlen("llmc 1\n\n"));
}

static struct job *job_of(struct arena *a, struct diag *d, char *text)
{
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){"model.llm", text, strlen(text), false};
    return job_parse(a, d, s, NULL, 0);
}

static const char *known(struct arena *a, const struct text_case *c)
{
    struct diag *d = diag_new(a);
    struct source s = {arena_printf(a, "%s.json", c->name), c->text, c->size, false};
    char *text = import_model(a, d, &s, &(struct import_options){c->name, c->nwords > 1 ? c->words[1] : NULL, NULL, 0});
    if (!text)
        return text_of_diag(a, d, false);
    struct job *job = job_of(a, d, text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    uint64_t n = model_parameters(&job->model);
    if (n != strtoull(c->words[0], NULL, 10))
        printf("\n    %s: %llu parameters, published %s\n", c->name, (unsigned long long)n, c->words[0]);
    CU_ASSERT_EQUAL(n, strtoull(c->words[0], NULL, 10));
    return model_block(a, text);
}

static void test_known(void)
{
    struct arena *a = arena_new();
    CU_ASSERT(cases_check(a, FOLDER "known.cases", known) >= 60);
    arena_free(a);
}

static const char *refused(struct arena *a, const struct text_case *c)
{
    struct diag *d = diag_new(a);
    struct source s = {arena_printf(a, "%s.json", c->name), c->text, c->size, false};
    char *text = import_model(a, d, &s, &(struct import_options){c->name, c->nwords ? c->words[0] : NULL, NULL, 0});
    if (text && job_of(a, d, text))
        return model_block(a, text);
    CU_ASSERT(diag_errors(d) > 0);
    return text_of_diag(a, d, false);
}

static void test_refused(void)
{
    struct arena *a = arena_new();
    CU_ASSERT(cases_check(a, FOLDER "refused.cases", refused) >= 25);
    arena_free(a);
}

/* Whatever a file holds, it ends in errors or in a model that the language takes or refuses by its own. */
static bool take(const struct damage *x, void *with)
{
    const struct text_case *all = with;
    struct diag *d = diag_new(x->scratch);
    struct source s = {"damaged", x->text, x->size, false};
    char *model = import_model(x->scratch, d, &s, &(struct import_options){.name = all[x->which].name});
    CU_ASSERT((model != NULL) == (diag_errors(d) == 0));
    if (model)
        CU_ASSERT((job_of(x->scratch, d, model) != NULL) == (diag_errors(d) == 0));
    return model != NULL;
}

static void test_damaged(void)
{
    struct arena *a = arena_new();
    struct text_case *all;
    uint32_t n = cases_read(a, FOLDER "known.cases", &all);
    struct damage_text *texts = ARENA_ARRAY(a, struct damage_text, n);
    for (uint32_t i = 0; i < n; i++)
        texts[i] = (struct damage_text){all[i].text, all[i].size};
    damage_all(texts, n, 200, "0123456789-.eE\"{}[],:tfn x", take, all);
    arena_free(a);
}

void suite_import(void);
void suite_import(void)
{
    CU_pSuite s = CU_add_suite("import", NULL, NULL);
    CU_add_test(s, "configurations of known models: text, and parameters as published", test_known);
    CU_add_test(s, "what is refused, by its field", test_refused);
    CU_add_test(s, "damaged files", test_damaged);
}
