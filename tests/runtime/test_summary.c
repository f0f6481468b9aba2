/* The summary is JSON whatever a device says of itself, and a player's own figures are in it; runs of llmrun hold the rest. */

#include "runtime/player.h"
#include "runtime/summary.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void suite_summary(void);

static const char *says; /* the device's words of the test at hand */

static void describe(const struct exec *e, char *out, size_t size)
{
    (void)e;
    snprintf(out, size, "%s", says);
}

static void report(const struct exec *e, json_t *out)
{
    (void)e;
    json_object_set_new(out, "own", json_integer(7));
}

static void test_words(void)
{
    static const char *const words[][2] = {
        {"a \"card\" \\ 2\n", "a \"card\" \\ 2\n"}, {"32\xc2\xa0GiB", "32\xc2\xa0GiB"}, {"a card \xff", "a card ?"}};
    const struct player player = {.transport = "d2d", .describe = describe, .report = report};
    struct folder folder = {.hash = "0123"};
    const struct run run = {.player = &player, .folder = &folder};
    const struct summary s = {.steps = 1, .tokens = 96, .loss = 0.1, .eval_loss = NAN};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char *text = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        says = words[i][0];
        summary_print(&run, NULL, &s, out);
        fclose(out);
        json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(o);
        CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(o, "device")), words[i][1]);
        CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(o, "plan")), "0123");
        CU_ASSERT_EQUAL(json_integer_value(json_object_get(o, "own")), 7);
        CU_ASSERT_EQUAL(json_integer_value(json_object_get(o, "tokens")), 96);
        CU_ASSERT_EQUAL(json_real_value(json_object_get(o, "loss")), 0.1);
        CU_ASSERT(json_is_null(json_object_get(o, "eval_loss")) && json_is_null(json_object_get(o, "tokens_per_s")));
        json_decref(o);
        free(text);
    }
}

void suite_summary(void)
{
    CU_pSuite s = CU_add_suite("summary", NULL, NULL);
    CU_add_test(s, "a device's words", test_words);
}
