/* The tree and its canonical text: parse(print(x)) = x, formatting is idempotent and keeps comments; the
 * vocabulary table agrees with itself. */

#include "compiler/model/fmt.h"
#include "compiler/model/parse.h"
#include "compiler/model/vocab.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"
#include "tests/cases.h"

#include <CUnit/Basic.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct source *source_of(struct arena *a, const char *text)
{
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){.name = "text", .text = text, .size = strlen(text)};
    return s;
}

static bool text_equal(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool expr_equal(const struct expr *a, const struct expr *b)
{
    if (!a || !b)
        return a == b;
    if (a->kind != b->kind || a->op != b->op || a->nargs != b->nargs || !text_equal(a->text, b->text))
        return false;
    const struct arg *x = a->args, *y = b->args;
    for (; x && y; x = x->next, y = y->next)
        if (!text_equal(x->name, y->name) || !expr_equal(x->value, y->value))
            return false;
    return expr_equal(a->left, b->left) && expr_equal(a->right, b->right);
}

static bool stmts_equal(const struct stmt *a, const struct stmt *b)
{
    for (; a && b; a = a->next, b = b->next) {
        if (a->let != b->let || a->has_block != b->has_block || a->nitems != b->nitems || strcmp(a->word, b->word) != 0)
            return false;
        const struct item *x = a->items, *y = b->items;
        for (; x && y; x = x->next, y = y->next)
            if (x->relop != y->relop || !expr_equal(x->expr, y->expr))
                return false;
        if (!stmts_equal(a->block, b->block))
            return false;
    }
    return a == b;
}

/* Do the trees have the same words, items and blocks?  Source spans are ignored. */
static bool ast_equal(const struct ast *a, const struct ast *b)
{
    return stmts_equal(a->stmts, b->stmts);
}

/* both printers give a text that reads back as the same tree; the canonical one does not change again */
static void check_source(struct arena *a, const struct source *s)
{
    struct diag *d = diag_new(a);
    const struct ast *tree = parse_source(a, d, s);
    if (!tree)
        return; /* refused inputs have no tree */
    struct strbuf plain = {0};
    ast_print(&plain, tree, false);
    const struct ast *back = parse_source(a, d, source_of(a, arena_strdup(a, plain.text)));
    CU_ASSERT(back && ast_equal(tree, back));
    strbuf_free(&plain);
    const char *once = fmt_text(a, d, s);
    CU_ASSERT_FATAL(once != NULL);
    back = parse_source(a, d, source_of(a, once));
    CU_ASSERT(back && ast_equal(tree, back));
    const char *twice = fmt_text(a, d, source_of(a, once));
    CU_ASSERT_FATAL(twice != NULL);
    CU_ASSERT_STRING_EQUAL(once, twice);
}

static void check_folder(struct arena *a, const char *path)
{
    DIR *dir = opendir(path);
    CU_ASSERT_FATAL(dir != NULL);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (strstr(e->d_name, ".llm")) {
            struct source *s =
                source_read(a, diag_new(a), arena_printf(a, "%s/%s", path, e->d_name), PARSE_SIZE_MAX);
            CU_ASSERT_FATAL(s != NULL);
            check_source(a, s);
        }
    closedir(dir);
}

/* models that are refused for what they say, not how it is written */
static void check_cases(struct arena *a, const char *path)
{
    struct text_case *all;
    for (uint32_t n = cases_read(a, path, &all), i = 0; i < n; i++)
        check_source(a, source_of(a, all[i].text));
}

static void test_round_trip(void)
{
    struct arena *a = arena_new();
    check_folder(a, "tests/cases/oracles");
    check_cases(a, "tests/bad/model-layers.cases");
    check_cases(a, "tests/bad/model-plan.cases");
    check_cases(a, "tests/bad/model-train.cases");
    arena_free(a);
}

/* what we ship is canonical */
static void test_canonical(void)
{
    static const char *const names[] = {"gpt2-124m",    "llama3-8b",   "llama3-70b",
                                        "llama3-405b",  "gpt3-175b",   "turing-nlg-530b",
                                        "mixtral-8x7b", "deepseek-v3", "tiny-llama"};
    struct arena *a = arena_new();
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct diag *d = diag_new(a);
        struct source *s = source_read(a, d, arena_printf(a, "plans/%s/model.llm", names[i]), PARSE_SIZE_MAX);
        CU_ASSERT_FATAL(s != NULL);
        const char *text = fmt_text(a, d, s);
        CU_ASSERT_FATAL(text != NULL);
        CU_ASSERT_STRING_EQUAL(text, s->text);
    }
    arena_free(a);
}

static void test_fmt(void)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"llmc 1\na 1;b 2 # two\n", "llmc 1\n\na 1\nb 2     # two\n"},
        {"# top\nllmc 1 # version\n\n\n\n# above\nlet  d=2*( 3+4 )\n",
         "# top\nllmc 1  # version\n\n# above\nlet d = 2 * (3 + 4)\n"},
        {"llmc 1\nm x{\n  vocab 3 # a\n  # own\n\n  width   4\n  norm r # b\n\n\n  # end\n}\n# last",
         "llmc 1\n\nm x {\n    vocab 3  # a\n    # own\n\n    width 4\n    norm  r  # b\n\n    # end\n}\n# "
         "last\n"},
        {"llmc 1\nm x {\na 1\nlong f(b, # why\n   c)\nlonger 2\n}\n", /* lines are neighbours as they are printed */
         "llmc 1\n\nm x {\n    a 1\n    # why\n    long   f(b, c)\n    longer 2\n}\n"},
        {"llmc 1\nf x(a, # why\n   b=[1,2,], ) # tail\n", "llmc 1\n\n# why\nf x(a, b=[1, 2])  # tail\n"},
        {"llmc 1\nr 2 { layer { a b; c \"d\\\"e\" } }\n",
         "llmc 1\n\nr 2 {\n    layer {\n        a b\n        c \"d\\\"e\"\n    }\n}\n"},
        {"\n\n# a\nllmc 1\n\n\n", "# a\nllmc 1\n"},
        {"# a\n# b\n\n# c\nllmc 1\n", "# a\n# b\n\n# c\nllmc 1\n"},
        {"llmc 1\nr 2 { }\n", "llmc 1\n\nr 2 {\n}\n"},
        {"llmc 1\ntp<=8\nmicrobatch   =1 sequence\nkeep tp within node\n",
         "llmc 1\n\ntp         <= 8\nmicrobatch = 1 sequence\nkeep tp within node\n"},
    };
    struct arena *a = arena_new();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct diag *d = diag_new(a);
        const char *text = fmt_text(a, d, source_of(a, rows[i].in));
        CU_ASSERT_FATAL(text != NULL);
        if (strcmp(text, rows[i].out) != 0)
            printf("\nwanted\n%sgot\n%s", rows[i].out, text);
        CU_ASSERT_STRING_EQUAL(text, rows[i].out);
        check_source(a, source_of(a, rows[i].in));
    }
    CU_ASSERT_PTR_NULL(fmt_text(a, diag_new(a), source_of(a, "llmc 1\na {\n")));
    arena_free(a);
}

static void test_limits(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    char *text = arena_alloc(a, PARSE_SIZE_MAX + 2);
    memset(text, '#', PARSE_SIZE_MAX + 1);
    memcpy(text, "llmc 1\n", 7);
    struct source s = {.name = "big", .text = text, .size = PARSE_SIZE_MAX};
    CU_ASSERT_PTR_NOT_NULL(parse_source(a, d, &s));
    s.size++;
    CU_ASSERT_PTR_NULL(parse_source(a, d, &s));
    struct strbuf deep = {0};
    for (int n = 98; n <= 100; n++) { /* a statement, n parentheses and a number are n + 2 levels */
        strbuf_clear(&deep);
        strbuf_text(&deep, "llmc 1\na ");
        strbuf_repeat(&deep, '(', (size_t)n);
        strbuf_text(&deep, "1");
        strbuf_repeat(&deep, ')', (size_t)n);
        CU_ASSERT_EQUAL(parse_source(a, d, source_of(a, arena_strdup(a, deep.text))) != NULL,
                        n <= AST_DEPTH_MAX - 2);
    }
    strbuf_free(&deep);
    arena_free(a);
}

static void test_equal(void)
{
    static const char *const texts[] = {"llmc 1\na 1\n",      "llmc 1\na 2\n",      "llmc 1\na = 1\n",
                                        "llmc 1\na 1 1\n",    "llmc 1\na 1 {\n}\n", "llmc 1\na f(1)\n",
                                        "llmc 1\na f(x=1)\n", "llmc 1\na [1]\n",    "llmc 1\na (1)\n",
                                        "llmc 1\na 1+1\n",    "llmc 1\na 1-1\n",    "llmc 1\nlet a = 1\n",
                                        "llmc 1\na \"1\"\n",  "llmc 1\na 1\na 1\n",  "llmc 1\na 1 {\nb 1\n}\n",
                                        "llmc 1\na 1 {\nb 2\n}\n"};
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        for (size_t k = 0; k < ARRAY_LEN(texts); k++) {
            const struct ast *x = parse_source(a, d, source_of(a, texts[i])),
                             *y = parse_source(a, d, source_of(a, texts[k]));
            CU_ASSERT_FATAL(x && y);
            CU_ASSERT_EQUAL(ast_equal(x, y), i == k);
        }
    arena_free(a);
}

/* every row says something, its default is one of its values, and its range is one */
static void test_vocabulary(void)
{
    size_t total = 0;
    for (int scope = 0; scope < NSCOPES; scope++) {
        const struct word *rows;
        size_t n = vocab_rows((enum scope)scope, &rows);
        CU_ASSERT(n > 0);
        total += n;
        for (size_t i = 0; i < n; i++) {
            const struct word *w = &rows[i];
            struct choice c;
            double v = 0;
            struct units_error e;
            CU_ASSERT(*w->meaning != 0 && w->lo <= w->hi);
            CU_ASSERT_PTR_EQUAL(vocab_find((enum scope)scope, w->name), w);
            CU_ASSERT(*w->plan == 0 || !strcmp(w->plan, "*") || *w->plan == '>');
            for (const char *at = w->words; (w->takes & TAKES_NAMES) && vocab_choice(&at, &c);)
                CU_ASSERT(vocab_choose(w, c.name, &c) && vocab_is_value(c.name));
            if (!w->standard || !*w->standard || (w->takes & (TAKES_FORM | TAKES_STRING)) ||
                !strcmp(w->standard, "width/heads"))
                continue;
            bool number = (w->takes & (TAKES_COUNT | TAKES_REAL)) &&
                          units_real(w->standard, strlen(w->standard), &v, &e);
            bool yes = (w->takes & TAKES_YES) && (!strcmp(w->standard, "yes") || !strcmp(w->standard, "no"));
            CU_ASSERT(number || yes || vocab_choose(w, w->standard, &c));
        }
    }
    CU_ASSERT(total > 150);
    for (size_t i = 0; i < vocab_nrefused(); i++)
        for (int scope = 0; scope < NSCOPES; scope++)
            CU_ASSERT_PTR_NULL(vocab_find((enum scope)scope, vocab_refused_word(i)));
    CU_ASSERT_PTR_NULL(vocab_refused("vocab"));
}

/* under every title the words of its scope in their order, and no others: continued lines are further in */
static void check_sections(const char *text)
{
    char title[256], word[64];
    for (int scope = 0; scope < NSCOPES; scope++) {
        const struct word *rows;
        size_t n = vocab_rows((enum scope)scope, &rows), i = 0;
        snprintf(title, sizeof title, "\n\n%s\n", vocab_title((enum scope)scope));
        const char *at = strstr(text, title);
        CU_ASSERT_PTR_NOT_NULL_FATAL(at);
        for (at += strlen(title); *at == ' '; at = strchr(at, '\n') + 1) {
            if (at[2] == ' ' || sscanf(at, "%63s", word) != 1)
                continue;
            CU_ASSERT_FATAL(i < n);
            CU_ASSERT_STRING_EQUAL(word, rows[i++].name);
        }
        CU_ASSERT_EQUAL(i, n);
    }
}

/* A row is a word, at column 22 its form and at column 54 its meaning, which stands on the lines below where
 * the form leaves no room; forms are of single blanks. */
static void check_columns(struct arena *a, const char *text)
{
    const char *at = strstr(text, "\nmodel NAME { ... }\n");
    const char *end = strstr(text, "\nKnown, and not supported\n");
    unsigned beside = 0, below = 0;
    for (; at && at + 1 < end; at += 1 + strcspn(at + 1, "\n")) {
        const char *line = arena_strndup(a, at + 1, strcspn(at + 1, "\n"));
        size_t blank = strspn(line, " "), length = strlen(line);
        CU_ASSERT(length <= 110 && (blank == 0 || blank == 2 || blank == 21 || blank == 53));
        if (blank != 2)
            continue;
        CU_ASSERT_FATAL(length > 21 && line[20] == ' ' && line[21] != ' ');
        const char *gap = strstr(line + 21, "  ");
        beside += gap != NULL;
        below += !gap;
        CU_ASSERT(!gap || gap + strspn(gap, " ") == line + 53);
        CU_ASSERT(gap || strspn(at + length + 2, " ") >= 21);
    }
    CU_ASSERT(beside > 100 && below > 5);
}

static void test_help(void)
{
    struct arena *a = arena_new();
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    help_language(out);
    fclose(out);
    static const char *const lines[] = {
        "\nmodel NAME { ... }\n", "  attn               gqa(...) | mha(...) | mla(...)",
        "  tp                 <= N, >= N, = N, in [N, ...]", "  dropout            "};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        CU_ASSERT(strstr(text, lines[i]) != NULL);
    check_columns(a, text);
    check_sections(text);
    free(text);
    arena_free(a);
}

void suite_ast(void);
void suite_ast(void)
{
    CU_pSuite s = CU_add_suite("ast", NULL, NULL);
    CU_add_test(s, "parse(print(x)) = x", test_round_trip);
    CU_add_test(s, "the worked models are canonical", test_canonical);
    CU_add_test(s, "fmt", test_fmt);
    CU_add_test(s, "limits of size and depth", test_limits);
    CU_add_test(s, "equality of trees", test_equal);
    CU_add_test(s, "the vocabulary agrees with itself", test_vocabulary);
    CU_add_test(s, "help language", test_help);
}
