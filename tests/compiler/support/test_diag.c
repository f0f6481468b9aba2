/* Diagnostics: places, carets, order, limits, hostile text, files, and the nearest word. */

#include "compiler/support/diag.h"
#include "compiler/support/vec.h"
#include "tests/texts.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct source source_of(const char *text)
{
    return (struct source){.name = "x.llm", .text = text, .size = strlen(text)};
}

static void test_form(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct source s = source_of("llmc 1\n\tb\xc3\xa4tch\t16M tokens\n");
    diag_error(d, (struct span){&s, 15, 3}, "batch", "batch of %d tokens", 16);
    diag_caret(d, "help: write %s", "16Mi");
    diag_error(d, (struct span){&s, 8, 6}, "word", "unknown word");
    diag_note(d, (struct span){&s, 0, 4}, "the header");
    diag_help(d, "write batch");
    CU_ASSERT_STRING_EQUAL(text_of_diag(a, d, false), "x.llm:2:2: error: unknown word\n"
                                                 "    2 | \tb\xc3\xa4tch\t16M tokens\n"
                                                 "      | \t^~~~~\n"
                                                 "   note: x.llm:1: the header\n"
                                                 "   help: write batch\n"
                                                 "x.llm:2:8: error: batch of 16 tokens\n"
                                                 "    2 | \tb\xc3\xa4tch\t16M tokens\n"
                                                 "      | \t     \t^~~ help: write 16Mi\n");
    CU_ASSERT_PTR_NOT_NULL(strstr(text_of_diag(a, d, true), "\033[1;31m^~~"));
    CU_ASSERT_PTR_NULL(strstr(text_of_diag(a, d, true), "\033[1;35m"));
    struct diag *warned = diag_new(a);
    diag_warning(warned, (struct span){&s, 8, 6}, "word", "unusual word");
    CU_ASSERT_PTR_NOT_NULL(strstr(text_of_diag(a, warned, true), "\033[1;35m^~~~~"));
    CU_ASSERT_EQUAL(diag_errors(d), 2);
    arena_free(a);
}

static void test_hostile(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct source s = source_of("a\x1b[31m \xff b\xe2\x80\xae"
                                "c\n");
    diag_warning(d, (struct span){&s, 20, 3}, "x", "name '%s'", "\x1b]0;");
    CU_ASSERT_STRING_EQUAL(text_of_diag(a, d, false), "x.llm:2:1: warning: name '?]0;'\n    2 | \n      | ^\n");
    diag_error(d, (struct span){&s, 0, 1}, "x", "first");
    CU_ASSERT_STRING_EQUAL(text_of_diag(a, d, false), "x.llm:1:1: error: first\n    1 | a?[31m ? b?c\n      | ^\n"
                                                 "x.llm:2:1: warning: name '?]0;'\n    2 | \n      | ^\n");
    CU_ASSERT_EQUAL(diag_errors(d), 1);
    CU_ASSERT_EQUAL(diag_warnings(d), 1);
    s.imported = true;
    CU_ASSERT_STRING_EQUAL(text_of_diag(a, d, false),
                           "x.llm:1:1: error: first\nx.llm:2:1: warning: name '?]0;'\n");
    arena_free(a);
}

static void test_limits(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct source s = source_of("abc\n");
    for (int i = 0; i < 25; i++)
        diag_error(d, (struct span){&s, 1, 1}, "x", "error %d", i);
    diag_caret(d, "goes nowhere");
    for (int i = 0; i < 2; i++)
        diag_error(d, (struct span){&s, 1, 1}, "x", "error 3"); /* said already */
    CU_ASSERT_EQUAL(diag_errors(d), 25);
    const char *text = text_of_diag(a, d, false);
    CU_ASSERT(strstr(text, "error 19\n") != NULL);
    CU_ASSERT(strstr(text, "error 20\n") == NULL);
    CU_ASSERT(strstr(text, "too many errors: 5 more not shown\n") != NULL);
    CU_ASSERT(strstr(text, "nowhere") == NULL);
    arena_free(a);
}

static void test_no_place(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    diag_error(d, (struct span){0}, "memory", "nothing fits in %s", "74GiB");
    diag_help(d, "use more GPUs");
    CU_ASSERT_STRING_EQUAL(text_of_diag(a, d, false), "error: nothing fits in 74GiB\n   help: use more GPUs\n");
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    diag_print_json(d, out);
    fclose(out);
    CU_ASSERT_STRING_EQUAL(
        text,
        "[{\"file\": null, \"line\": 0, \"column\": 0, \"length\": 0, \"severity\": \"error\", \"code\": "
        "\"memory\", \"message\": \"nothing fits in 74GiB\", \"notes\": [], \"fix\": \"use more GPUs\"}]\n");
    free(text);
    arena_free(a);
}

static void test_position(void)
{
    struct source s = source_of("a\nb\xc3\xa4"
                                "c\n");
    static const struct {
        uint32_t offset, line, column;
    } rows[] = {{0, 1, 1}, {1, 1, 2}, {2, 2, 1}, {3, 2, 2}, {5, 2, 3}, {6, 2, 4}, {7, 3, 1}, {99, 3, 1}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t line = 0, column = 0;
        source_position(&s, rows[i].offset, &line, &column);
        CU_ASSERT_EQUAL(line, rows[i].line);
        CU_ASSERT_EQUAL(column, rows[i].column);
    }
}

static void test_nearest(void)
{
    static const char *const words[] = {"gqa", "mha", "mla", "rmsnorm", "layernorm", "precision"};
    static const struct {
        const char *word, *near;
    } rows[] = {{"gqaa", "gqa"},
                {"gaq", "gqa"},
                {"mma", "mha"},
                {"x", NULL},
                {"", NULL},
                {"rsmnorm", "rmsnorm"},
                {"percision", "precision"},
                {"batch", NULL},
                {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *near = diag_nearest(rows[i].word, words, ARRAY_LEN(words));
        CU_ASSERT(near == rows[i].near || (near && rows[i].near && !strcmp(near, rows[i].near)));
    }
}

static void test_read(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    char path[] = "/tmp/llmc-test-XXXXXX";
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, "abcde", 5), 5);
    close(fd);
    struct source *s = source_read(a, d, path, 5);
    CU_ASSERT_FATAL(s != NULL);
    CU_ASSERT_EQUAL(s->size, 5);
    CU_ASSERT_STRING_EQUAL(s->text, "abcde");
    CU_ASSERT_PTR_NULL(source_read(a, d, path, 4));
    CU_ASSERT_PTR_NULL(source_read(a, d, "/tmp", 100));
    CU_ASSERT_PTR_NULL(source_read(a, d, "/nowhere/at/all", 100));
    unlink(path);
    char *wanted = arena_printf(
        a,
        "error: cannot read '%s': larger than 4 bytes\nerror: cannot read '/tmp': it is a folder, not a file\n"
        "error: cannot read '/nowhere/at/all': No such file or directory\n",
        path);
    CU_ASSERT_STRING_EQUAL(text_of_diag(a, d, false), wanted);
    arena_free(a);
}

void suite_diag(void);
void suite_diag(void)
{
    CU_pSuite s = CU_add_suite("diag", NULL, NULL);
    CU_add_test(s, "form, order, tabs and UTF-8", test_form);
    CU_add_test(s, "hostile text is made printable", test_hostile);
    CU_add_test(s, "at most twenty errors", test_limits);
    CU_add_test(s, "without a place", test_no_place);
    CU_add_test(s, "lines and columns", test_position);
    CU_add_test(s, "did you mean", test_nearest);
    CU_add_test(s, "reading files", test_read);
}
