/* Text for JSON and for people: which bytes are well-formed UTF-8 (RFC 3629, table 3-7 of Unicode), escapes,
 * numbers that read back, lines that are filled by characters, not bytes. */

#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void suite_strbuf(void);

#define BAD "\xef\xbf\xbd" /* U+FFFD, for every byte that belongs to no character */

static void test_json_strings(void)
{
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"", "\"\""},
        {"a/b", "\"a/b\""},
        {"\"\\\n\x01\x1f\x7f", "\"\\\"\\\\\\u000a\\u0001\\u001f\x7f\""},
        /* first and last characters of each length, and what lies beyond them */
        {"\xc2\x80\xdf\xbf", "\"\xc2\x80\xdf\xbf\""},
        {"\xc1\xbf", "\"" BAD BAD "\""},
        {"\x80\xbf", "\"" BAD BAD "\""},
        {"\xc2\x7f", "\"" BAD "\x7f\""},
        {"\xc2\xc0", "\"" BAD BAD "\""},
        {"\xc2", "\"" BAD "\""},
        {"\xe0\xa0\x80\xef\xbf\xbf", "\"\xe0\xa0\x80\xef\xbf\xbf\""},
        {"\xe0\x9f\xbf", "\"" BAD BAD BAD "\""},
        {"\xed\x9f\xbf", "\"\xed\x9f\xbf\""},
        {"\xed\xa0\x80", "\"" BAD BAD BAD "\""}, /* half of a surrogate pair */
        {"\xe1\x80", "\"" BAD BAD "\""},
        {"\xe1\x80z", "\"" BAD BAD "z\""},
        {"\xe1\x80\xc0", "\"" BAD BAD BAD "\""},
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""},
        {"\xf0\x8f\xbf\xbf", "\"" BAD BAD BAD BAD "\""},
        {"\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\""},
        {"\xf1\x80\x80", "\"" BAD BAD BAD "\""},
        {"\xf5\x80\x80\x80", "\"" BAD BAD BAD BAD "\""},
        {"\xff", "\"" BAD "\""},
        {"\x7f", "\"\x7f\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct strbuf b = {0};
        strbuf_json_string(&b, cases[i].text);
        if (strcmp(b.text, cases[i].json))
            printf("\ncase %zu: %s, wanted %s", i, b.text, cases[i].json);
        CU_ASSERT_STRING_EQUAL(b.text, cases[i].json);
        CU_ASSERT_EQUAL(b.length, strlen(cases[i].json));
        strbuf_free(&b);
    }
}

static void test_json_numbers(void)
{
    static const struct {
        double v;
        const char *json;
    } cases[] = {
        {0, "0"},
        {1, "1"},
        {-2.5, "-2.5"},
        {0.1, "0.1"},
        {1.0 / 3, "0.3333333333333333"},
        {1e300, "1e+300"},
        {25e9, "2.5e+10"},
        {INFINITY, "null"},
        {-INFINITY, "null"},
        {NAN, "null"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct strbuf b = {0};
        strbuf_json_number(&b, cases[i].v);
        CU_ASSERT_STRING_EQUAL(b.text, cases[i].json);
        CU_ASSERT(!isfinite(cases[i].v) || fabs(strtod(b.text, NULL) - cases[i].v) <= 0);
        strbuf_free(&b);
    }
}

static void test_json(void)
{
    const char *none = getenv("");
    struct strbuf b = {0};
    strbuf_json(&b, "{'a': %g, 'b': %g, 'c': [%s, %s],\n", 1.5, NAN, "it's \"q\"", none);
    strbuf_json(&b, " 'd': %d, %s: %u, 'f': %lu, 'g': %llu}", true, "e", UINT32_MAX, (unsigned long)7, UINT64_MAX + 0ULL);
    CU_ASSERT_STRING_EQUAL(b.text, "{\"a\": 1.5, \"b\": null, \"c\": [\"it's \\\"q\\\"\", null],\n"
                                   " \"d\": true, \"e\": 4294967295, \"f\": 7, \"g\": 18446744073709551615}");
    strbuf_free(&b);
}

/* a word goes to the next line where it would end behind the width; one that is wider than a line stands
 * alone */
static void test_wrap(void)
{
    static const struct {
        const char *text;
        size_t column, indent, width;
        const char *lines;
    } cases[] = {
        {"aa bb cc", 0, 0, 5, "aa bb\ncc"},
        {"aa bb cc", 0, 0, 4, "aa\nbb\ncc"},
        {"aa bb cc", 0, 2, 5, "aa bb\n  cc"},
        {"aa bb cc", 3, 3, 6, "aa\n   bb\n   cc"},
        {"  aa   bb ", 0, 0, 5, "aa bb"},
        {"\xc3\xa4\xc3\xa4 \xc3\xb6\xc3\xb6", 0, 0, 5, "\xc3\xa4\xc3\xa4 \xc3\xb6\xc3\xb6"},
        {"aaaaaaaa b", 0, 1, 4, "aaaaaaaa\n b"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct strbuf b = {0};
        strbuf_wrap(&b, cases[i].text, cases[i].column, cases[i].indent, cases[i].width);
        if (strcmp(b.text, cases[i].lines))
            printf("\ncase %zu: %s", i, b.text);
        CU_ASSERT_STRING_EQUAL(b.text, cases[i].lines);
        strbuf_free(&b);
    }
}

void suite_strbuf(void)
{
    CU_pSuite s = CU_add_suite("strbuf", NULL, NULL);
    CU_add_test(s, "JSON strings hold well-formed UTF-8 alone", test_json_strings);
    CU_add_test(s, "JSON numbers are the shortest that read back", test_json_numbers);
    CU_add_test(s, "pieces of JSON", test_json);
    CU_add_test(s, "lines are filled by characters", test_wrap);
}
