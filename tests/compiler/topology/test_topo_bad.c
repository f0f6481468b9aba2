/* Refused clusters: the cases of tests/bad, each with the very text that is printed. */

#include "compiler/topology/topo.h"
#include "tests/cases.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>

#define FOLDER "tests/bad/"

/* what topo_parse() says of a file; the source is called by its name alone */
static const char *complaint(struct arena *a, const struct text_case *c)
{
    struct diag *d = diag_new(a);
    struct source s = {arena_printf(a, "%s.xml", c->name), c->text, c->size, false};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    bool refused = !topo_parse(a, d, &s, FOLDER);
    CU_ASSERT(refused);
    CU_ASSERT_EQUAL(refused, diag_errors(d) > 0);
    diag_print(d, out, false);
    fclose(out);
    char *copy = arena_strndup(a, text, size);
    free(text);
    return copy;
}

static void test_bad_clusters(void)
{
    struct arena *a = arena_new();
    CU_ASSERT(cases_check_folder(a, FOLDER, "cluster-", complaint) >= 140);
    arena_free(a);
}

void suite_topo_bad(void);
void suite_topo_bad(void)
{
    CU_pSuite s = CU_add_suite("topo_bad", NULL, NULL);
    CU_add_test(s, "malformed clusters and their exact messages", test_bad_clusters);
}
