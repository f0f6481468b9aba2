/* Refusals that cases expect; see refused.h. */

#include "tests/runtime/refused.h"

#include <CUnit/CUnit.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* cases are functions of suites, which take no argument */
static struct refused *collected;

void refused_collect(struct refused *to)
{
    collected = to;
}

void refused_expect(enum status s, const char *said, const char *message)
{
    bool refused = s == STATUS_INPUT && !strcmp(said, message);
    CU_ASSERT(refused);
    if (!refused)
        printf("\n    got      \"%s\"\n    expected \"%s\"\n", said, message);
    else if (collected)
        vec_push(collected->arena, &collected->messages, arena_strdup(collected->arena, said));
}
