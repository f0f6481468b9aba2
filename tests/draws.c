#include "tests/draws.h"
#include "tests/skip.h"

#include <stdlib.h>
#include <string.h>

bool test_quick(void)
{
    const char *quick = getenv("LLMC_QUICK");
    return quick && *quick;
}

bool test_whole(void)
{
    const char *draws = getenv("LLMC_DRAWS");
    return !test_quick() && draws && !strcmp(draws, "all");
}

bool test_usual(void)
{
    return !test_quick() && !test_whole();
}

bool test_whole_or_skip(void)
{
    if (!test_whole())
        test_skip("only 'make check DRAWS=all' has it");
    return test_whole();
}

uint32_t test_draws_usual(uint32_t all, uint32_t usual, uint32_t few)
{
    return test_quick() ? few : test_whole() ? all : usual;
}

uint32_t test_draws(uint32_t all, uint32_t few)
{
    return test_draws_usual(all, all / 12 > few ? all / 12 : few, few);
}
