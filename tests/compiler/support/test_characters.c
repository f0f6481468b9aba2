/* A caret below a line of the user's: how wide each character is on a terminal, and which are shown as '?',
 * at both ends of every block. */

#include "compiler/support/diag.h"
#include "compiler/support/vec.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

void suite_characters(void);

static size_t utf8(uint32_t point, char *out)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    size_t more = 0;
    while (more < 3 && point >= least[more + 1])
        more++;
    static const unsigned lead[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[more] | point >> (6 * more));
    for (size_t i = 1; i <= more; i++)
        out[i] = (char)(0x80 | (point >> (6 * (more - i)) & 0x3f));
    return more + 1;
}

/* what an error at the x of "Cx" prints of C: its columns; *shown: it is not a '?' */
static int columns_of(uint32_t point, bool *shown)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    char line[8] = "", *text = NULL;
    size_t n = utf8(point, line), size = 0;
    strcpy(line + n, "x\n");
    struct source s = {.name = "x.llm", .text = line, .size = n + 2};
    diag_error(d, (struct span){&s, (uint32_t)n, 1}, "x", "here");
    FILE *out = open_memstream(&text, &size);
    diag_print(d, out, false);
    fclose(out);
    const char *echo = strstr(text, "    1 | "), *caret = strstr(text, "      | ");
    CU_ASSERT_FATAL(echo && caret);
    *shown = !strncmp(echo + 8, line, n);
    CU_ASSERT(*shown || !strncmp(echo + 8, "?x\n", 3));
    int columns = (int)strspn(caret + 8, " ");
    CU_ASSERT_EQUAL(caret[8 + columns], '^');
    free(text);
    arena_free(a);
    return columns;
}

static void test_columns(void)
{
    static const struct {
        uint32_t first, last;
        int columns; /* within; 1 on both sides */
    } blocks[] = {
        {0x300, 0x36f, 0},   {0x1100, 0x115f, 2},   {0x2e80, 0xa4cf, 2},
        {0xac00, 0xd7a3, 2}, {0xf900, 0xfaff, 2},   {0xfe30, 0xfe6f, 2},
        {0xff00, 0xff60, 2}, {0x1f300, 0x1faff, 2}, {0x20000, 0x3fffd, 2},
    };
    bool shown;
    CU_ASSERT(columns_of(0x10ffff, &shown) == 1 && shown); /* the last one of all */
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        CU_ASSERT_EQUAL(columns_of(blocks[i].first - 1, &shown), 1);
        CU_ASSERT_EQUAL(columns_of(blocks[i].first, &shown), blocks[i].columns);
        CU_ASSERT_EQUAL(columns_of(blocks[i].last, &shown), blocks[i].columns);
        CU_ASSERT_EQUAL(columns_of(blocks[i].last + 1, &shown), 1);
    }
}

/* control characters, and those that change the direction or cannot be seen */
static void test_hidden(void)
{
    static const uint32_t blocks[][2] = {{0x1, 0x8},       {0xb, 0x1f},      {0x7f, 0x9f},
                                         {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
                                         {0xfeff, 0xfeff}};
    bool shown;
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        columns_of(blocks[i][0], &shown);
        CU_ASSERT(!shown);
        columns_of(blocks[i][1], &shown);
        CU_ASSERT(!shown);
        if (blocks[i][1] > 0xb) { /* beside them are characters like any other */
            columns_of(blocks[i][1] + 1, &shown);
            CU_ASSERT(shown);
        }
        if (blocks[i][0] > 0xb) {
            columns_of(blocks[i][0] - 1, &shown);
            CU_ASSERT(shown);
        }
    }
}

/* bytes that are no character: too long a form, no character's number, cut short; each byte is a '?' */
static void test_malformed(void)
{
    static const char *const bytes[] = {
        "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf7\xbf\xbf\xbf", "\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xff",
    };
    for (size_t i = 0; i < ARRAY_LEN(bytes); i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        uint32_t n = (uint32_t)strlen(bytes[i]);
        char *line = arena_printf(a, "%sx\n", bytes[i]), *text = NULL;
        struct source s = {.name = "x.llm", .text = line, .size = n + 2};
        size_t size = 0;
        diag_error(d, (struct span){&s, n, 1}, "x", "here");
        FILE *out = open_memstream(&text, &size);
        diag_print(d, out, false);
        fclose(out);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, arena_printf(a, "    1 | %.*sx\n", (int)n, "????")));
        free(text);
        arena_free(a);
    }
}

void suite_characters(void)
{
    CU_pSuite s = CU_add_suite("characters", NULL, NULL);
    CU_add_test(s, "columns", test_columns);
    CU_add_test(s, "not shown", test_hidden);
    CU_add_test(s, "malformed", test_malformed);
}
