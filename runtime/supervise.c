/* Attempts, and what they cost. */

#include "runtime/supervise.h"
#include "runtime/flight.h"

#include <stdio.h>
#include <string.h>

enum {
    SAME = 3,    /* failures of a step in a row, in the same words but for numbers, are no accident any more */
    BARREN = 10, /* nor are attempts in a row of which none reached another checkpoint */
};

struct attempts {
    uint64_t restarts, same, barren;
    char words[sizeof((struct error *)NULL)->text];
    /* the attempt that failed last: steps taken before it; the step that failed, counted from 1; what it took */
    uint64_t first, reached;
    double seconds;
    uint64_t again; /* steps that were begun in attempts that failed, and had to be taken again */
    double lost_s;  /* of these attempts, by the share of their steps that was lost */
};

/* Is it a failure that may be the machine's, of processes that llmrun has started itself? */
static bool may_go_on(const struct run *r, const struct attempts *a, enum status st)
{
    bool stopped = r->world.control && atomic_load(&r->world.control->asked);
    return (st == STATUS_WORLD || st == STATUS_BUG || st >= 128) && r->world.control && !stopped &&
           a->restarts < r->o.restarts;
}

/* What the failure before cost, now that it is known which step the attempt after it began with. */
static void count_losses(struct attempts *a, uint64_t first)
{
    uint64_t begun = a->reached > a->first ? a->reached - a->first : 0,
             lost = a->reached > first ? a->reached - first : 0;
    if (!a->restarts)
        return;
    a->again += lost;
    a->lost_s += begun ? a->seconds * (double)lost / (double)begun : a->seconds;
}

/* Are they the same but for their numbers? */
static bool same_words(const char *a, const char *b)
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

static void count_failure(struct attempts *a, const struct run *r, const struct error *error, double seconds)
{
    uint64_t reached = flight_step(r);
    a->same = reached && reached == a->reached && same_words(a->words, error->text) ? a->same + 1 : 1;
    a->barren = a->restarts && a->first == r->resumed.step ? a->barren + 1 : 1;
    memcpy(a->words, error->text, sizeof a->words);
    a->reached = reached;
    a->first = r->resumed.step;
    a->seconds = seconds;
    a->restarts++;
}

/* The same options again; what they opened is gone. */
static void forget(struct run *r)
{
    struct settings o = r->o;
    run_close(r);
    *r = (struct run){.o = o};
    r->o.resume = true;
}

static void print_losses(const struct attempts *a, double all_s)
{
    fprintf(stderr, "llmrun: %llu restart%s: %llu step%s taken again, %.1f s of %.1f s lost\n",
            (unsigned long long)a->restarts, a->restarts == 1 ? "" : "s", (unsigned long long)a->again,
            a->again == 1 ? "" : "s", a->lost_s, all_s);
}

enum status supervise(struct run *r, enum status (*attempt)(struct run *r, struct error *error), struct error *error)
{
    struct attempts a = {.restarts = 0};
    int64_t start = world_now_ns();
    for (int64_t began = start;; began = world_now_ns()) {
        enum status st = attempt(r, error);
        count_losses(&a, r->resumed.step);
        if (st == STATUS_OK || st == STATUS_STOPPED || !may_go_on(r, &a, st)) {
            if (a.restarts && !r->o.quiet)
                print_losses(&a, (double)(world_now_ns() - start) * 1e-9);
            return st;
        }
        count_failure(&a, r, error, (double)(world_now_ns() - began) * 1e-9);
        if (a.barren >= BARREN)
            return error_set(error, st,
                             "%s; %d attempts have not reached another checkpoint than that of step %llu: giving up",
                             error->text, BARREN, (unsigned long long)r->resumed.step);
        if (a.same >= SAME)
            return error_set(error, st, "%s; that has happened %d times running, so it is no accident: giving up",
                             error->text, SAME);
        fprintf(stderr, "llmrun: %s\nllmrun: starting again from the newest checkpoint (restart %llu of %llu)\n",
                error->text, (unsigned long long)a.restarts, (unsigned long long)r->o.restarts);
        *error = (struct error){""};
        forget(r);
    }
}
