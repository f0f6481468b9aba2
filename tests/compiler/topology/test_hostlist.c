/* Host lists: examples by hand, bounds, and random lists against a slow and obvious expansion. */

#include "compiler/topology/hostlist.h"

#include "compiler/support/vec.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

#define MAX 1048576u

/* names joined by blanks, or the error */
static const char *expand(struct arena *a, const char *text, uint64_t max)
{
    struct hostlist list;
    struct hostlist_error e;
    if (!hostlist_expand(a, text, strlen(text), max, &list, &e))
        return arena_printf(a, "%zu+%zu: %s", e.at, e.length, e.message);
    const char *all = "";
    for (uint32_t i = 0; i < list.n; i++)
        all = arena_printf(a, "%s%s%s", all, i ? " " : "", list.names[i]);
    return all;
}

static void test_examples(void)
{
    static const char *const cases[][2] = {
        {"a", "a"},
        {"a[001-004,7],b-[1-2]x[1-3]", "a001 a002 a003 a004 a7 b-1x1 b-1x2 b-1x3 b-2x1 b-2x2 b-2x3"},
        {"n[8-11]", "n8 n9 n10 n11"},
        {"n[08-11]", "n08 n09 n10 n11"},
        {"n[0,00,000]", "n0 n00 n000"},
        {"n[098-101]x", "n098x n099x n100x n101x"},
        {"[1-2]", "1 2"},
        {"a.b_c-d[5]", "a.b_c-d5"},
        {"r[1-2]t[1-2]g[0-1]", "r1t1g0 r1t1g1 r1t2g0 r1t2g1 r2t1g0 r2t1g1 r2t2g0 r2t2g1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        CU_ASSERT_STRING_EQUAL(expand(a, cases[i][0], MAX), cases[i][1]);
        arena_free(a);
    }
}

/* Lists in their shortest form are printed as they were, others as what expands to the same. */
static void test_printed(void)
{
    static const char *const cases[][2] = {
        {"a", "a"},
        {"a,b", "a,b"},
        {"n[1-3],m", "n[1-3],m"},
        {"n8,n9,n10,n12", "n[8-10,12]"},
        {"n08,n09,n10", "n[08-10]"},
        {"n098,n099,n100", "n[098-100]"},
        {"n99,n100,n0100", "n[99-100,0100]"},
        {"n9,n09,n010", "n[9,09,010]"},
        {"n2,n1", "n[2,1]"},
        {"r1t1,r1t2,r2t1", "r1t[1-2],r2t1"},
        {"n1-ib,n2-ib,n3", "n[1-2]-ib,n3"},
        {"1,2", "[1-2]"},
        {"n1234567890123,n1234567890124", "n1234567890123,n1234567890124"},
        {"n[0-1],n[00-01]", "n[0-1,00-01]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        struct hostlist list;
        struct hostlist_error e;
        struct strbuf b = {0};
        CU_ASSERT_FATAL(hostlist_expand(a, cases[i][0], strlen(cases[i][0]), MAX, &list, &e));
        hostlist_print(&b, list.names, list.n);
        CU_ASSERT_STRING_EQUAL(b.text, cases[i][1]);
        CU_ASSERT_STRING_EQUAL(expand(a, b.text, MAX), expand(a, cases[i][0], MAX));
        strbuf_free(&b);
        arena_free(a);
    }
}

static void test_refused(void)
{
    static const char *const cases[][2] = {
        {"", "0+0: a host name is missing"},
        {"a,", "2+0: a host name is missing"},
        {",a", "0+1: a host name is missing"},
        {"a[", "1+1: this bracket is never closed"},
        {"a[]", "2+0: a number is missing in a bracket"},
        {"a[1-]", "4+0: a number is missing in a bracket"},
        {"a[-1]", "2+1: a number is missing in a bracket"},
        {"a[1,]", "4+0: a number is missing in a bracket"},
        {"a[3-2]", "2+3: a range runs backwards"},
        {"a[1-2-3]", "5+1: only digits, '-' and ',' may stand in a bracket"},
        {"a[[1]]", "2+1: a number is missing in a bracket"},
        {"a]", "1+1: this character cannot stand in a host name"},
        {"a b", "1+1: a host list has no blanks"},
        {"a:0", "1+1: this character cannot stand in a host name"},
        {"a[0-9999999999999]", "4+12: a number in a bracket has more than 12 digits"},
        {"a[1][1][1][1][1][1][1][1][1]", "25+1: more than 8 brackets in one name"},
        {"a[1-10]", "0+7: this stands for more than 9 nodes"},
        {"b,a[1-9]", "2+6: this stands for more than 9 nodes"},
        {"a[0-999999999999][0-999999999999][0-999999999999]", "0+49: this stands for more than 9 nodes"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        CU_ASSERT_STRING_EQUAL(expand(a, cases[i][0], 9), cases[i][1]);
        arena_free(a);
    }
}

/* a host name is of letters, digits, '-', '_' and '.'; what else there is cannot stand in it */
static void test_characters(void)
{
    for (int c = 1; c < 256; c++) {
        struct arena *a = arena_new();
        bool name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-_.", c);
        const char *text = arena_printf(a, "a%cb", c);
        if (c != ',' && c != '[')
            CU_ASSERT_EQUAL(!strcmp(expand(a, text, 1), text), name);
        arena_free(a);
    }
}

/* at the limits, and one beyond */
static void test_limits(void)
{
    struct arena *a = arena_new();
    struct hostlist list;
    struct hostlist_error e;
    uint64_t count;
    const char *million = "n[0-1048575]", *more = "n[0-1048576]";
    CU_ASSERT(hostlist_expand(a, million, strlen(million), MAX, &list, &e) && list.n == MAX);
    CU_ASSERT_STRING_EQUAL(list.names[MAX - 1], "n1048575");
    CU_ASSERT(!hostlist_count(more, strlen(more), MAX, &count, &e));
    char name[300];
    memset(name, 'x', sizeof name);
    CU_ASSERT(hostlist_count(name, 255, MAX, &count, &e) && count == 1);
    CU_ASSERT(!hostlist_count(name, 256, MAX, &count, &e));
    CU_ASSERT_STRING_EQUAL(e.message, "a host name has more than 255 characters");
    memcpy(name + 250, "[00008-00011]", 14); /* the longest names that are, digits last */
    CU_ASSERT(hostlist_expand(a, name, strlen(name), MAX, &list, &e) && list.n == 4);
    for (uint32_t i = 0; i < list.n; i++)
        CU_ASSERT_STRING_EQUAL(list.names[i], arena_printf(a, "%.250s%05u", name, 8 + i));
    /* 250 letters, 1,048,576 times: refused before anything is allocated */
    memcpy(name + 250, "[0-999999]", 11);
    size_t before = arena_bytes(a);
    CU_ASSERT(!hostlist_expand(a, name + 1, strlen(name + 1), MAX, &list, &e));
    CU_ASSERT_STRING_EQUAL(e.message, "the names of this list are too long in all");
    CU_ASSERT_EQUAL(arena_bytes(a), before);
    arena_free(a);
}

/* ---- random lists ---- */

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

struct names {
    VEC(const char *) v;
};

/* prefix x every number of a random bracket; writes the bracket's text */
static void multiply(struct arena *a, uint64_t *seed, struct names *names, char *text)
{
    struct names out = {0};
    char digits[3][16];
    uint32_t low[3], high[3], n = 1 + next_random(seed) % 3;
    size_t at = (size_t)sprintf(text, "[");
    for (uint32_t r = 0; r < n; r++) {
        low[r] = next_random(seed) % 200;
        high[r] = low[r] + next_random(seed) % 4;
        sprintf(digits[r], next_random(seed) % 2 ? "%05u" : "%u", low[r]);
        at += (size_t)sprintf(text + at, "%s%s", r ? "," : "", digits[r]);
        if (high[r] > low[r])
            at += (size_t)sprintf(text + at, "-%u", high[r]);
    }
    sprintf(text + at, "]");
    for (size_t i = 0; i < names->v.n; i++)
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t k = low[r]; k <= high[r]; k++) {
                int width = digits[r][0] == '0' && digits[r][1] ? (int)strlen(digits[r]) : 1;
                vec_push(a, &out.v, arena_printf(a, "%s%0*u", names->v.at[i], width, k));
            }
    *names = out;
}

static void test_random(void)
{
    uint64_t seed = 20260901;
    for (int round = 0; round < 500; round++) {
        struct arena *a = arena_new();
        const char *text = "";
        struct names all = {0};
        for (uint32_t p = 0, n = 1 + next_random(&seed) % 3; p < n; p++) {
            struct names some = {0};
            vec_push(a, &some.v, "");
            text = p ? arena_printf(a, "%s,", text) : text;
            for (uint32_t part = 0, parts = 1 + next_random(&seed) % 3; part < parts; part++) {
                char bracket[128];
                for (size_t i = 0; i < some.v.n; i++)
                    some.v.at[i] = arena_printf(a, "%sh%c", some.v.at[i], 'a' + (int)part);
                text = arena_printf(a, "%sh%c", text, 'a' + (int)part);
                if (next_random(&seed) % 4 == 0)
                    continue;
                multiply(a, &seed, &some, bracket);
                text = arena_printf(a, "%s%s", text, bracket);
            }
            for (size_t i = 0; i < some.v.n; i++)
                vec_push(a, &all.v, some.v.at[i]);
        }
        struct hostlist list;
        struct hostlist_error e;
        uint64_t count = 0;
        bool read = hostlist_expand(a, text, strlen(text), MAX, &list, &e);
        CU_ASSERT(read && hostlist_count(text, strlen(text), MAX, &count, &e));
        CU_ASSERT(count == list.n && list.n == all.v.n);
        for (uint32_t i = 0; read && i < list.n && i < all.v.n; i++)
            if (strcmp(list.names[i], all.v.at[i]) != 0) {
                printf("\n    %s: %s instead of %s\n", text, list.names[i], all.v.at[i]);
                CU_FAIL("a name differs");
                break;
            }
        arena_free(a);
    }
}

void suite_hostlist(void);
void suite_hostlist(void)
{
    CU_pSuite s = CU_add_suite("hostlist", NULL, NULL);
    CU_add_test(s, "examples", test_examples);
    CU_add_test(s, "printed", test_printed);
    CU_add_test(s, "refused lists", test_refused);
    CU_add_test(s, "characters of names", test_characters);
    CU_add_test(s, "limits", test_limits);
    CU_add_test(s, "random lists against nested loops", test_random);
}
