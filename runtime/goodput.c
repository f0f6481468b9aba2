/* Rank 0 adds its times up in the control block (world.h), which outlives it; the rest follows from when an attempt
 * began and ended. */

#include "runtime/goodput.h"
#include "runtime/flight.h"

#include <string.h>

bool goodput_same(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    for (; *a && *b; a++, b++) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (*a != *b)
            return false;
        if (!*a)
            return true;
    }
    return *a == *b;
}

static uint32_t find_cause(struct goodput *g, const char *failure)
{
    char words[sizeof g->cause->words];
    snprintf(words, sizeof words, "%s", failure);
    for (uint32_t i = 0; i < g->ncauses; i++)
        if (goodput_same(g->cause[i].words, words))
            return i;
    if (g->ncauses == GOODPUT_CAUSES)
        return GOODPUT_CAUSES - 1;
    memcpy(g->cause[g->ncauses].words, words, sizeof words);
    return g->ncauses++;
}

/* The attempt before this one, now that it is known how many of its steps are left; `first`: where this one began. */
static void settle(struct goodput *g, uint64_t first)
{
    uint64_t begun = g->reached - g->first, lost = g->reached > first ? g->reached - first : 0;
    lost = lost < begun ? lost : begun;
    double lost_s = begun ? g->stepped_s * (double)lost / (double)begun : 0;
    g->counted_s += g->stepped_s - lost_s;
    g->steps += begun - lost;
    g->again += lost;
    if (lost) {
        g->cause[g->last].steps += lost;
        g->cause[g->last].lost_s += lost_s;
    }
    g->reached = g->first = first;
    g->stepped_s = 0;
}

void goodput_add(struct goodput *g, const struct run *r, double wall_s, const char *failure)
{
    const struct world_control *c = r->world.control;
    double spent_s[NSPENT] = {0}, rest_s = wall_s;
    for (int i = 0; c && i < NSPENT; i++) {
        spent_s[i] = 1e-9 * (double)atomic_load(&c->spent_ns[i]);
        rest_s -= spent_s[i];
    }
    settle(g, r->resumed.step);
    g->all_s += wall_s;
    g->starts++;
    g->starting_s += c && spent_s[SPENT_STARTING] > 0 ? spent_s[SPENT_STARTING] : wall_s;
    g->saving_s += spent_s[SPENT_SAVING];
    g->evaluating_s += spent_s[SPENT_EVALUATING];
    g->ending_s += c && spent_s[SPENT_STARTING] > 0 && rest_s > 0 ? rest_s : 0;
    g->stepped_s = spent_s[SPENT_STEPS];
    /* a step that was begun and not ended is in the rest */
    g->reached = g->first + (c ? atomic_load(&c->steps_ended) : 0);
    if (!failure)
        return;
    g->last = find_cause(g, failure);
    g->cause[g->last].times++;
}

static void print_line(double seconds, double all_s, const char *what, FILE *out)
{
    if (seconds >= 0.0005)
        fprintf(out, "  %10.3f s  %5.1f %%  %s\n", seconds, all_s > 0 ? 100 * seconds / all_s : 0, what);
}

void goodput_print_losses(struct goodput *g, FILE *out)
{
    uint64_t failures = g->starts - 1;
    double lost_s = g->ending_s;
    settle(g, g->reached);
    for (uint32_t i = 0; i < g->ncauses; i++)
        lost_s += g->cause[i].lost_s;
    fprintf(out, "llmrun: %llu restart%s: %llu step%s taken again, %.1f s of %.1f s lost\n",
            (unsigned long long)failures, failures == 1 ? "" : "s", (unsigned long long)g->again,
            g->again == 1 ? "" : "s", lost_s, g->all_s);
}

void goodput_print(struct goodput *g, FILE *out)
{
    char words[64];
    settle(g, g->reached);
    fprintf(out, "goodput: %.1f %% of %.3f s went into %llu steps that count\n",
            g->all_s > 0 ? 100 * g->counted_s / g->all_s : 0, g->all_s, (unsigned long long)g->steps);
    snprintf(words, sizeof words, "starting, %llu time%s", (unsigned long long)g->starts, g->starts == 1 ? "" : "s");
    print_line(g->starting_s, g->all_s, words, out);
    print_line(g->saving_s, g->all_s, "steps waited for checkpoints", out);
    print_line(g->evaluating_s, g->all_s, "evaluations", out);
    print_line(g->ending_s, g->all_s, "steps that were not ended, failures until they were noticed, and ends", out);
    for (uint32_t i = 0; i < g->ncauses; i++) {
        const struct goodput_cause *c = &g->cause[i];
        fprintf(out, "  %10.3f s  %5.1f %%  %llu step%s again after %llu failure%s: %s\n", c->lost_s,
                g->all_s > 0 ? 100 * c->lost_s / g->all_s : 0, (unsigned long long)c->steps, c->steps == 1 ? "" : "s",
                (unsigned long long)c->times, c->times == 1 ? "" : "s", c->words);
    }
}
