/* What went wrong, in words: the status comes back, old words may go into new ones, and what is too long is cut. */

#include "runtime/error.h"

#include <CUnit/CUnit.h>
#include <string.h>

void suite_error(void);

static void test_words(void)
{
    struct error e = {""};
    CU_ASSERT_EQUAL(error_set(&e, STATUS_INPUT, "%s, line %d", "no number", 7), STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(e.text, "no number, line 7");
    CU_ASSERT_EQUAL(error_set(&e, STATUS_WORLD, "%s: %s", "file", e.text), STATUS_WORLD);
    CU_ASSERT_STRING_EQUAL(e.text, "file: no number, line 7");
}

static void test_cut(void)
{
    struct error e = {""};
    char longest[sizeof e.text + 10];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    error_set(&e, STATUS_INPUT, "%s: is no file", longest);
    CU_ASSERT_EQUAL(strlen(e.text), sizeof e.text - 1);
    CU_ASSERT(strspn(e.text, "x") == sizeof e.text - 1);
}

void suite_error(void)
{
    CU_pSuite s = CU_add_suite("error", NULL, NULL);
    CU_add_test(s, "the status and the words", test_words);
    CU_add_test(s, "words that are too long", test_cut);
}
