/* Refused models: the cases of tests/bad, each with the very text that is printed.  Words of a case are overrides. */

#include "compiler/model/sema.h"
#include "tests/cases.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/bad"

/* what a model prints, JSON behind the text if wanted; in the arena */
static const char *messages(struct arena *a, const struct text_case *c, bool json)
{
    struct diag *d = diag_new(a);
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){arena_printf(a, "%s.llm", c->name), c->text, c->size, false};
    job_parse(a, d, s, c->words, c->nwords);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    diag_print(d, out, false);
    if (json)
        diag_print_json(d, out);
    fclose(out);
    char *copy = arena_strndup(a, text, size);
    free(text);
    return copy;
}

static const char *complaint(struct arena *a, const struct text_case *c)
{
    return messages(a, c, false);
}

static void test_bad_inputs(void)
{
    struct arena *a = arena_new();
    CU_ASSERT(cases_check_folder(a, FOLDER, "model-", complaint) >= 160);
    arena_free(a);
}

static void test_json(void)
{
    struct arena *a = arena_new();
    struct text_case *all;
    uint32_t n = cases_read(a, FOLDER "/model-train.cases", &all), i = 0;
    while (i < n && strcmp(all[i].name, "batch-tokens"))
        i++;
    CU_ASSERT_FATAL(i < n);
    const char *json = strchr(messages(a, &all[i], true), '[');
    CU_ASSERT_FATAL(json != NULL);
    CU_ASSERT_STRING_EQUAL(
        json,
        "[{\"file\": \"batch-tokens.llm\", \"line\": 19, \"column\": 15, \"length\": 3, \"severity\": "
        "\"error\", "
        "\"code\": \"batch\", \"message\": \"batch of 16,000,000 tokens is not a whole number of 8192-token "
        "sequences\", \"notes\": [], \"fix\": \"write 16Mi tokens (2048 sequences) or 15_998_976 tokens "
        "(1953)\"}]\n");
    arena_free(a);
}

void suite_bad(void);
void suite_bad(void)
{
    CU_pSuite s = CU_add_suite("bad", NULL, NULL);
    CU_add_test(s, "every refused input says exactly what is expected", test_bad_inputs);
    CU_add_test(s, "diagnostics as JSON", test_json);
}
