/* What switches of software stacks are worth, published and predicted: tests/bench/measured/pairs.tsv.
 *
 *     bench_pairs [FILE]
 *
 * Ends with 1 where a pair that the table does not call missed is off. */

#include "tests/compiler/target/pairs.h"

#include <math.h>
#include <stdio.h>

static void print_run(double seconds, double off)
{
    printf(" %8.3f s |", seconds);
    if (isnan(off))
        printf("          |");
    else
        printf(" %+6.1f %% |", 100 * off);
}

static bool print_pair(const struct pair *x)
{
    struct arena *a = arena_new();
    struct pair_figures f;
    const char *wrong = pair_predict(a, x, &f);
    double gain = pair_gain(x), predicted = wrong ? 0 : pair_predicted_gain(&f);
    bool holds = !wrong && pair_holds(x, predicted), good = !wrong && holds == !*x->missed;
    printf("| %-22s | %-13s |", x->name, x->target);
    if (wrong) {
        printf(" %s |\n", wrong);
    } else {
        printf(" %+6.1f %% | %+6.1f %% |", 100 * gain, 100 * predicted);
        for (int k = 0; k < 2; k++)
            print_run(f.seconds[k], f.off[k]);
        printf(" %s%s%s |\n", holds ? "within a third" : "off", *x->missed ? ": " : "", x->missed);
    }
    arena_free(a);
    return good;
}

int main(int argc, char **argv)
{
    struct arena *a = arena_new();
    uint32_t n, bad = 0;
    const struct pair *all = pairs_read(a, argc > 1 ? argv[1] : "tests/bench/measured/pairs.tsv", &n);
    printf("| pair | target | published gain | predicted | without | its speed is off by | with | its speed is off by | |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; all && i < n; i++)
        bad += !print_pair(&all[i]);
    arena_free(a);
    return !all || bad ? 1 : 0;
}
