/* Choices of experts: recorded, replayed, compared, and files that are not what they should be. */

#include "runtime/routing.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct routing_shape shape = {
    .layers = 3, .choices = 2, .sequence = 4, .experts = 6, .samples = 5};

/* how often a file is mapped into this process */
static int mapped(const char *path)
{
    char line[1024], full[4096];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    if (!f || !realpath(path, full))
        return -1;
    while (fgets(line, sizeof line, f))
        n += strstr(line, full) != NULL;
    fclose(f);
    return n;
}

static void test_save_and_replay(void)
{
    struct routing r;
    char dir[E2E_PATH], path[E2E_PATH + 16];
    struct error error = {""};
    const float value[6] = {0.5f, 0.1f, 0.3f, 0.9f, 0.2f, 0.899f};
    e2e_folder(dir, "routing");
    snprintf(path, sizeof path, "%s/r", dir);
    CU_ASSERT_EQUAL_FATAL(routing_open(&r, ROUTING_SAVE, path, &shape, &error), STATUS_OK);
    int32_t chosen[2] = {3, 5};
    routing_token(&r, routing_at(&r, 1, 4, 2), chosen, 2, value, 6);
    int32_t few[1] = {2}; /* a layer with fewer experts, of which one is chosen */
    routing_token(&r, routing_at(&r, 2, 1, 3), few, 1, value, 3);
    CU_ASSERT_PTR_NULL(routing_at(&r, 3, 0, 0));
    CU_ASSERT_PTR_NULL(routing_at(&r, 0, 5, 0));
    CU_ASSERT_PTR_NULL(routing_at(&r, 0, 0, 4));
    CU_ASSERT_EQUAL(mapped(path), 1);
    routing_close(&r);
    CU_ASSERT_EQUAL(mapped(path), 0);

    CU_ASSERT_EQUAL_FATAL(routing_open(&r, ROUTING_REPLAY, path, &shape, &error), STATUS_OK);
    int32_t other[2] = {3, 0};
    routing_token(&r, routing_at(&r, 1, 4, 2), other, 2, value, 6);
    CU_ASSERT(other[0] == 3 && other[1] == 5);
    int32_t also[1] = {1};
    routing_token(&r, routing_at(&r, 2, 1, 3), also, 1, value, 3);
    CU_ASSERT_EQUAL(also[0], 2);
    int32_t unknown[2] = {1, 2};
    routing_token(&r, routing_at(&r, 0, 0, 0), unknown, 2, value, 6); /* nobody recorded it */
    CU_ASSERT(unknown[0] == 1 && unknown[1] == 2);
    routing_close(&r);

    CU_ASSERT_EQUAL_FATAL(routing_open(&r, ROUTING_COMPARE, path, &shape, &error), STATUS_OK);
    int32_t swapped[2] = {5, 3}, flipped[2] = {3, 0};
    routing_token(&r, routing_at(&r, 1, 4, 2), swapped, 2, value, 6);
    CU_ASSERT(r.compared == 1 && r.flips == 0);
    routing_token(&r, routing_at(&r, 1, 4, 2), flipped, 2, value, 6);
    CU_ASSERT(r.compared == 2 && r.flips == 1 && flipped[1] == 0);
    CU_ASSERT_DOUBLE_EQUAL(r.margin, (0.899 - 0.5) / 0.8, 1e-6);
    routing_close(&r);
}

static void test_refused(void)
{
    static const struct {
        struct routing_shape shape;
        enum status status;
        const char *says;
    } cases[] = {
        {{2, 2, 4, 6, 5}, STATUS_INPUT, "its choices are those of another model"},
        {{3, 2, 4, 6, 6}, STATUS_INPUT, "it holds fewer steps than are to be run"},
        {{0, 0, 4, 0, 5}, STATUS_USAGE, "the model has no experts to choose"},
    };
    struct routing r;
    char dir[E2E_PATH], path[E2E_PATH + 16];
    struct error error;
    e2e_folder(dir, "routing-bad");
    snprintf(path, sizeof path, "%s/r", dir);
    CU_ASSERT_EQUAL_FATAL(routing_open(&r, ROUTING_SAVE, path, &shape, &error), STATUS_OK);
    routing_close(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error.text[0] = 0;
        CU_ASSERT_EQUAL(routing_open(&r, ROUTING_REPLAY, path, &cases[i].shape, &error), cases[i].status);
        CU_ASSERT(strstr(error.text, cases[i].says) != NULL);
        routing_close(&r);
    }
    FILE *f = fopen(path, "w");
    CU_ASSERT_FATAL(f && fputs("not choices", f) >= 0 && fclose(f) == 0);
    CU_ASSERT_EQUAL(routing_open(&r, ROUTING_REPLAY, path, &shape, &error), STATUS_INPUT);
    CU_ASSERT(strstr(error.text, "it does not hold choices of experts") != NULL);
    routing_close(&r);
}

void suite_routing(void);
void suite_routing(void)
{
    CU_pSuite s = CU_add_suite("routing", NULL, NULL);
    CU_add_test(s, "recorded, replayed, compared", test_save_and_replay);
    CU_add_test(s, "files of something else", test_refused);
}
