/* What files of cases mean (tests/cases.h). */

#include "tests/cases.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void suite_cases(void);

static const char file[] = "# about\n\n== base list\none\n  two\nthree\ntwo\n\n"
                           "== same from list\n> 20\n\n"
                           "== second from list\n$ some words\n$ more\n@ three\n- two\n+ 2\n+\n> said\n>\n> twice\n\n"
                           "== ends from list\n- one\n+ 1\n> x\n\n"
                           "== end from list\n+ four\n> x\n\n"
                           "== bytes\n* 3 ab\n\\  c\\x00\\xff\\\\\n+ d\\x\n\\ e\\c\n> x\n";

static const struct {
    const char *name, *text, *wanted;
    size_t size;
} cases[] = {
    {"same", "one\n  two\nthree\ntwo\n", "20\n", 20},
    {"second", "one\n  two\nthree\n2\n\n", "said\n\ntwice\n", 19},
    {"ends", "1\n  two\nthree\ntwo\n", "x\n", 18},
    {"end", "one\n  two\nthree\ntwo\nfour\n", "x\n", 25},
    {"bytes", "ababab c\0\xff\\\nd\\x\ne", "x\n", 17},
};

static const char *length(struct arena *a, const struct text_case *c)
{
    return arena_printf(a, "%zu\n", c->size);
}

static void write_file(const char *path)
{
    FILE *f = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(file, f);
    fclose(f);
}

static void test_read(void)
{
    struct arena *a = arena_new();
    char path[E2E_PATH + 16];
    struct text_case *all;
    e2e_folder(path, "cases");
    strcat(path, "/list.cases");
    write_file(path);
    CU_ASSERT_EQUAL_FATAL(cases_read(a, path, &all), sizeof cases / sizeof *cases);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CU_ASSERT_STRING_EQUAL(all[i].name, cases[i].name);
        CU_ASSERT_STRING_EQUAL(all[i].wanted, cases[i].wanted);
        CU_ASSERT(all[i].size == cases[i].size && !memcmp(all[i].text, cases[i].text, cases[i].size));
    }
    CU_ASSERT_EQUAL(all[1].nwords, 2);
    CU_ASSERT_STRING_EQUAL(all[1].words[0], "some words");
    arena_free(a);
}

/* what is said is written in the place of what was wanted, and nothing else changes */
static void test_update(void)
{
    struct arena *a = arena_new();
    char path[E2E_PATH + 16], text[1024];
    bool updates = getenv("UPDATE") != NULL;
    e2e_folder(path, "cases");
    strcat(path, "/list.cases");
    write_file(path);
    setenv("UPDATE", "1", 1);
    CU_ASSERT_EQUAL(cases_check(a, path, length), sizeof cases / sizeof *cases);
    if (!updates)
        unsetenv("UPDATE");
    CU_ASSERT_EQUAL(cases_check(a, path, length), sizeof cases / sizeof *cases);
    e2e_read_text(path, text, sizeof text);
    CU_ASSERT(!strncmp(text, file, strlen("# about\n\n== base list\none\n  two\nthree\ntwo\n\n== same from list\n> 20\n\n== second")));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "- two\n+ 2\n+\n> 19\n\n== ends from list\n- one\n+ 1\n> 18\n\n"));
    arena_free(a);
}

void suite_cases(void)
{
    CU_pSuite s = CU_add_suite("cases", NULL, NULL);
    CU_add_test(s, "texts, words, what is wanted", test_read);
    CU_add_test(s, "updated", test_update);
}
