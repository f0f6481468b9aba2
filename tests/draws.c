#include "tests/draws.h"

#include <stdlib.h>
#include <string.h>

uint32_t test_draws_usual(uint32_t all, uint32_t usual, uint32_t few)
{
    const char *quick = getenv("LLMC_QUICK"), *draws = getenv("LLMC_DRAWS");
    if (quick && *quick)
        return few;
    if (draws && !strcmp(draws, "all"))
        return all;
    return usual;
}

uint32_t test_draws(uint32_t all, uint32_t few)
{
    return test_draws_usual(all, all / 6 > few ? all / 6 : few, few);
}
