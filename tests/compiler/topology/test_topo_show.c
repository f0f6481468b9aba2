/* The printed view of a cluster, whole: every tests/cases/topology/show/NAME.xml looks to people like
 * NAME.txt and in JSON like NAME.json.  UPDATE=1 rewrites.  mixed: two types, domains of several nodes, an
 * irregular level, damage of every kind, measurements (one at the very peak), a GPU of its own; torus: no
 * switches; many: lists that are cut; plain: one GPU per node, which nothing joins; even: domains of two
 * nodes without a rest, below leaves and rows that have one. */

#include "compiler/topology/topo.h"
#include "tests/texts.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

void suite_topo_show(void);

#define CASES "tests/cases/topology/show/"

static void check(void (*print)(const struct topo *, FILE *), const struct topo *t,
                  const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    print(t, f);
    fclose(f);
    text_is_golden(text, path);
    free(text);
}

static void test_cases(void)
{
    static const char *const names[] = {"mixed", "torus", "many", "plain", "even"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        struct topo *t = topo_read(a, d, arena_printf(a, CASES "%s.xml", names[i]));
        diag_print(d, stdout, false);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        check(topo_print, t, arena_printf(a, CASES "%s.txt", names[i]));
        check(topo_print_json, t, arena_printf(a, CASES "%s.json", names[i]));
        arena_free(a);
    }
}

void suite_topo_show(void)
{
    CU_pSuite s = CU_add_suite("topo_show", NULL, NULL);
    CU_add_test(s, "whole views of five clusters", test_cases);
}
