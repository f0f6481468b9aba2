/* Refused inputs: every tests/bad/NAME.llm must give exactly the text of tests/bad/NAME.err.
 *
 * Lines `# set KEY=VALUE` at the top of an input are overrides.  UPDATE=1 writes the .err files anew. */

#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <CUnit/Basic.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETS_MAX 8

/* what a run on that input prints, JSON behind the text if wanted; in the arena */
static char *messages(struct arena *a, const char *path, bool json)
{
    struct diag *d = diag_new(a);
    struct source *s = source_read(a, d, path, (size_t)1 << 20);
    const char *sets[SETS_MAX];
    uint32_t nsets = 0;
    if (s) {
        const char *slash = strrchr(path, '/');
        s->name = slash ? slash + 1 : path;
        for (const char *at = s->text; nsets < SETS_MAX && !strncmp(at, "# set ", 6);
             at += strcspn(at, "\n") + 1)
            sets[nsets++] = arena_strndup(a, at + 6, strcspn(at + 6, "\n"));
        job_parse(a, d, s, sets, nsets);
    }
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

static void check_one(struct arena *a, const char *name)
{
    char *input = arena_printf(a, "tests/bad/%s.llm", name),
         *wanted = arena_printf(a, "tests/bad/%s.err", name);
    char *got = messages(a, input, false);
    if (getenv("UPDATE")) {
        FILE *f = fopen(wanted, "w");
        CU_ASSERT_FATAL(f != NULL);
        fputs(got, f);
        fclose(f);
        return;
    }
    struct diag *d = diag_new(a);
    const struct source *s = source_read(a, d, wanted, (size_t)1 << 20);
    bool equal = s && !strcmp(s->text, got);
    if (!equal)
        printf("\n%s: wanted\n%sgot\n%s", input, s ? s->text : "(nothing)\n", got);
    CU_ASSERT(equal);
    CU_ASSERT(*got != 0);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static void test_bad_inputs(void)
{
    struct arena *a = arena_new();
    VEC(char *) names = {0};
    DIR *dir = opendir("tests/bad");
    CU_ASSERT_FATAL(dir != NULL);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        size_t n = strlen(e->d_name);
        if (n > 4 && !strcmp(e->d_name + n - 4, ".llm"))
            vec_push(a, &names, arena_strndup(a, e->d_name, n - 4));
    }
    closedir(dir);
    CU_ASSERT(names.n >= 60);
    qsort(names.at, names.n, sizeof *names.at, by_name);
    for (size_t i = 0; i < names.n; i++)
        check_one(a, names.at[i]);
    arena_free(a);
}

static void test_json(void)
{
    struct arena *a = arena_new();
    char *got = messages(a, "tests/bad/batch-tokens.llm", true);
    const char *json = strchr(got, '[');
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
