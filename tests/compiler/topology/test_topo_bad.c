/* Every tests/bad/<name>.xml must be refused with exactly the text of tests/bad/<name>.err.  UPDATE=1 in the
 * environment rewrites the expectations; look at the difference before committing it. */

#include "compiler/topology/topo.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/bad/"

static int is_xml(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 4 && !strcmp(e->d_name + n - 4, ".xml");
}

/* What topo_parse() says about a file; the source is called by its name alone. */
static char *complaint(struct arena *a, const char *name, bool *refused)
{
    struct diag *d = diag_new(a);
    struct source *s = source_read(a, d, arena_printf(a, FOLDER "%s", name), (size_t)1 << 24);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (s)
        s->name = name;
    *refused = !s || !topo_parse(a, d, s, FOLDER);
    CU_ASSERT_EQUAL(*refused, diag_errors(d) > 0);
    diag_print(d, out, false);
    fclose(out);
    char *copy = arena_strndup(a, text, size);
    free(text);
    return copy;
}

static void check_file(const char *name)
{
    struct arena *a = arena_new();
    bool refused;
    char *got = complaint(a, name, &refused);
    const char *path = arena_printf(a, FOLDER "%.*s.err", (int)strlen(name) - 4, name);
    if (getenv("UPDATE")) {
        FILE *f = fopen(path, "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        fputs(got, f);
        fclose(f);
    }
    struct source *want = source_read(a, diag_new(a), path, (size_t)1 << 20);
    bool equal = want && !strcmp(want->text, got);
    if (!equal || !refused)
        printf("\n    %s:\n%s\n    instead of:\n%s\n", name, got, want ? want->text : "(no .err file)");
    CU_ASSERT(equal);
    CU_ASSERT(refused);
    arena_free(a);
}

static void test_bad_clusters(void)
{
    struct dirent **entries;
    int n = scandir(FOLDER, &entries, is_xml, alphasort);
    CU_ASSERT(n >= 100);
    for (int i = 0; i < n; i++) {
        check_file(entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

void suite_topo_bad(void);
void suite_topo_bad(void)
{
    CU_pSuite s = CU_add_suite("topo_bad", NULL, NULL);
    CU_add_test(s, "malformed clusters and their exact messages", test_bad_clusters);
}
