/* What switches of software stacks are worth, published and predicted: tests/bench/measured/pairs.tsv.
 *
 *     bench_pairs [FILE]
 *
 * Ends with 1 where a pair that the table does not call missed is off. */

#include "tests/compiler/target/pairs.h"

#include <stdio.h>

static bool print_pair(const struct pair *x)
{
    struct arena *a = arena_new();
    double seconds[2];
    const char *wrong = pair_predict(a, x, seconds);
    double gain = pair_gain(x), predicted = wrong ? 0 : 1 - seconds[1] / seconds[0];
    bool holds = !wrong && pair_holds(x, predicted), good = !wrong && holds == !*x->missed;
    if (wrong)
        printf("| %-22s | %s |\n", x->name, wrong);
    else
        printf("| %-22s | %-13s | %+6.1f %% | %+6.1f %% | %8.3f s | %8.3f s | %s%s%s\n", x->name, x->target, 100 * gain,
               100 * predicted, seconds[0], seconds[1], holds ? "within a third" : "off", *x->missed ? ": " : "",
               x->missed);
    arena_free(a);
    return good;
}

int main(int argc, char **argv)
{
    struct arena *a = arena_new();
    uint32_t n, bad = 0;
    const struct pair *all = pairs_read(a, argc > 1 ? argv[1] : "tests/bench/measured/pairs.tsv", &n);
    printf("| pair | target | published gain | predicted | without | with |\n|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; all && i < n; i++)
        bad += !print_pair(&all[i]);
    arena_free(a);
    return !all || bad ? 1 : 0;
}
