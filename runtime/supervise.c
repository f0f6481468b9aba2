/* Attempts, and what they cost. */

#include "runtime/supervise.h"
#include "runtime/flight.h"
#include "runtime/goodput.h"

#include <stdio.h>
#include <string.h>

enum {
    SAME = 3,    /* failures of a step in a row, in the same words but for numbers, are no accident any more */
    BARREN = 10, /* nor are attempts in a row of which none reached another checkpoint */
};

struct attempts {
    uint64_t restarts, same, barren;
    char words[sizeof((struct error *)NULL)->text];
    /* the attempt that failed last: steps taken before it; the step that failed, counted from 1 */
    uint64_t first, reached;
};

/* Is it a failure that may be the machine's, of processes that llmrun has started itself? */
static bool may_go_on(const struct run *r, const struct attempts *a, enum status st)
{
    bool stopped = r->world.control && atomic_load(&r->world.control->asked);
    return (st == STATUS_WORLD || st == STATUS_BUG || st >= 128) && r->world.control && !stopped &&
           a->restarts < r->o.restarts;
}

static void count_failure(struct attempts *a, const struct run *r, const struct error *error)
{
    uint64_t reached = flight_step(r);
    a->same = reached && reached == a->reached && goodput_same(a->words, error->text) ? a->same + 1 : 1;
    a->barren = a->restarts && a->first == r->resumed.step ? a->barren + 1 : 1;
    memcpy(a->words, error->text, sizeof a->words);
    a->reached = reached;
    a->first = r->resumed.step;
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

enum status supervise(struct run *r, enum status (*attempt)(struct run *r, struct error *error), struct error *error)
{
    struct attempts a = {.restarts = 0};
    struct goodput goodput = {.all_s = 0};
    for (int64_t began = world_now_ns();; began = world_now_ns()) {
        r->began_ns = began;
        enum status st = attempt(r, error);
        double seconds = (double)(world_now_ns() - began) * 1e-9;
        goodput_add(&goodput, r, seconds, st == STATUS_OK || st == STATUS_STOPPED ? NULL : error->text);
        if (st == STATUS_OK || st == STATUS_STOPPED || !may_go_on(r, &a, st)) {
            if (a.restarts && !r->o.quiet)
                goodput_print_losses(&goodput, stderr);
            if (r->o.goodput && (r->world.rank == NONE || !r->world.rank))
                goodput_print(&goodput, stderr);
            return st;
        }
        count_failure(&a, r, error);
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
