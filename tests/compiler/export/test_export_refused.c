/* What another stack cannot be told: the cases of tests/bad/export-*.cases, each with all that its forms refuse of it, or
 * why there is no plan for the stack; and no refusal without a case. */

#include "compiler/export/export.h"
#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "tests/cases.h"
#include "tests/formats.h"
#include "tests/texts.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* the line of words of a case: forms, a cluster (NAME.xml), and overrides, which have an '=' */
struct words {
    const char *forms[12], *sets[12], *cluster;
    uint32_t nforms, nsets;
};

static struct words sorted(struct arena *a, const struct text_case *c)
{
    struct words w = {.cluster = "topologies/cpu8.xml"};
    char *rest = arena_strdup(a, c->nwords ? c->words[0] : "");
    CU_ASSERT_EQUAL_FATAL(c->nwords, 1);
    for (char *word; (word = strsep(&rest, " "));) {
        CU_ASSERT_FATAL(w.nsets < 12 && w.nforms < 8);
        if (strchr(word, '='))
            w.sets[w.nsets++] = word;
        else if (strstr(word, ".xml"))
            w.cluster = word;
        else
            w.forms[w.nforms++] = word;
    }
    return w;
}

/* "FORM: a sentence" in a line for each, or "FORM takes it" */
static void tell(struct arena *a, struct strbuf *out, const struct plan *p, const char *form)
{
    struct export x = {.arena = a};
    CU_ASSERT_FATAL(export_plan(&x, p, form));
    for (size_t i = 0; i < x.refused.n; i++)
        strbuf_printf(out, "%s: %s\n", form, x.refused.at[i]);
    if (!x.refused.n)
        strbuf_printf(out, "%s takes it\n", form);
    export_free(&x);
}

static const char *refusals(struct arena *a, const struct text_case *c)
{
    struct diag *d = diag_new(a);
    struct source *s = ARENA_NEW(a, struct source);
    struct words w = sorted(a, c);
    struct strbuf out = {0};
    struct plan *p = NULL;
    *s = (struct source){arena_printf(a, "%s.llm", c->name), c->text, c->size, false};
    struct job *job = job_parse(a, d, s, w.sets, w.nsets);
    struct topo *topo = topo_read(a, d, w.cluster);
    if (!job || !topo || compile_best(a, d, job, topo, &(struct compile_options){0}, &p, NULL) != STATUS_OK)
        return text_of_diag(a, d, false);
    for (uint32_t i = 0; i < w.nforms; i++)
        tell(a, &out, p, w.forms[i]);
    plan_close(p);
    const char *text = arena_strdup(a, out.text ? out.text : "");
    strbuf_free(&out);
    return text;
}

static void test_cases(void)
{
    struct arena *a = arena_new();
    CU_ASSERT(cases_check_folder(a, "tests/bad", "export-", refusals) >= 60);
    arena_free(a);
}

/* all files of a folder whose names begin and end so, one behind the other */
static const char *all_of(struct arena *a, const char *folder, const char *begins, const char *ends)
{
    const char *text = "";
    DIR *dir = opendir(folder);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        size_t n = strlen(e->d_name), end = strlen(ends);
        if (!strncmp(e->d_name, begins, strlen(begins)) && n > end && !strcmp(e->d_name + n - end, ends))
            text = arena_printf(a, "%s%s", text, formats_read(a, arena_printf(a, "%s/%s", folder, e->d_name)));
    }
    closedir(dir);
    return text;
}

/* the sentences of a call of export_refuse(), up to what is filled in, are in the cases, or in what reads drawn plans back */
static uint32_t sentences(struct arena *a, const char *call, const char *tested)
{
    uint32_t n = 0;
    for (const char *at = call, *end = strstr(call, ");"); (at = strchr(at, '"')) && at < end; n++) {
        size_t length = strcspn(++at, "\"");
        const char *sentence = arena_printf(a, "%.*s", (int)strcspn(at, "\"%"), at);
        if (!strstr(tested, sentence)) {
            printf("\n    no case is refused for \"%s\"", sentence);
            CU_FAIL("a refusal without a case");
        }
        at += length + 1;
    }
    return n;
}

static void test_all(void)
{
    struct arena *a = arena_new();
    const char *source = all_of(a, "compiler/export", "", ".c"), *tested = all_of(a, "tests/bad", "export-", ".cases");
    uint32_t n = 0;
    tested = arena_printf(a, "%s%s%s", tested, all_of(a, "tests/e2e", "", ".py"), all_of(a, "tests/e2e", "test_export", ".c"));
    for (const char *at = source; (at = strstr(at, "export_refuse(")); at++)
        n += sentences(a, at, tested);
    CU_ASSERT(n >= 90);
    arena_free(a);
}

void suite_export_refused(void);
void suite_export_refused(void)
{
    CU_pSuite s = CU_add_suite("export_refused", NULL, NULL);
    CU_add_test(s, "what a form refuses, to the byte", test_cases);
    CU_add_test(s, "no refusal without a case", test_all);
}
