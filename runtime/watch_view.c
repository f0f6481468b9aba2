/* Shares of a step, now and by the plan; and who is waited for in the end: from each rank the way goes to the one that
 * it waits for longest, over what is planned, and so on.  Nothing is allocated. */

#include "runtime/watch_view.h"
#include "runtime/sentence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* shares of a step over what is planned that are worth following, and telling */
static const double FOLLOWED = 0.01, TOLD = 0.03;
/* who is waited for waits itself so much less than those that wait for it */
static const double APART = 0.7;

static void say_bytes(struct sentence *t, uint64_t bytes)
{
    bool large = bytes >= (uint64_t)1 << 30;
    say(t, "%.3g%s", (double)bytes / (large ? 0x1p30 : 0x1p20), large ? "GiB" : "MiB");
}

static void say_time(struct sentence *t, double s)
{
    if (s < 120)
        say(t, "%.0f s", s);
    else if (s < 7200)
        say(t, "%.0f min", s / 60);
    else
        say(t, "%.1f h", s / 3600);
}

static void say_rank(struct sentence *t, const struct view *v, uint32_t rank)
{
    say_rank_of(t, rank, v->hosts ? v->hosts[rank] : NULL);
}

/* ---- shares ---- */

static bool is_known(const struct view *v, uint32_t rank)
{
    return v->waited[rank].steps && v->waited[rank].step_ns;
}

static double share(const struct view *v, uint32_t rank, uint64_t ns)
{
    return is_known(v, rank) ? (double)ns / (double)v->waited[rank].step_ns : 0;
}

static double waits(const struct view *v, uint32_t rank)
{
    return share(v, rank, v->waited[rank].waits_ns);
}

static uint32_t role_of(const struct view *v, uint32_t rank)
{
    return v->ranks->ranks[rank].role;
}

/* what is planned that a rank waits in all; 0 where that is not known */
static double planned_waits(const struct view *v, uint32_t rank)
{
    return v->planned.nroles ? v->planned.roles[role_of(v, rank)].waits : 0;
}

/* the i-th rank that a rank names, and how much longer it waits for it than planned; NONE: there is none */
static uint32_t named(const struct view *v, uint32_t rank, uint32_t i, double *more)
{
    const struct waited *x = &v->waited[rank];
    if (!x->most[i].ns || x->most[i].rank >= v->ranks->nranks)
        return NONE;
    uint32_t who = (uint32_t)x->most[i].rank, role = role_of(v, rank);
    double planned = role_of(v, who) == role ? 0 : planned_for(&v->planned, role, role_of(v, who));
    *more = share(v, rank, x->most[i].ns) - (planned > 0 ? planned : 0);
    return who;
}

/* the rank that a rank waits for longest, over what is planned; itself: there is none */
static uint32_t longest(const struct view *v, uint32_t rank)
{
    double most = FOLLOWED, more;
    uint32_t next = rank;
    for (uint32_t i = 0; i < WAITED_FOR; i++) {
        uint32_t who = named(v, rank, i, &more);
        if (who == NONE || !is_known(v, who) || more < most)
            continue;
        most = more;
        next = who;
    }
    return next;
}

/* whom a rank waits for in the end: of those on its way the one that waits least itself */
static uint32_t follow(const struct view *v, uint32_t rank)
{
    uint32_t least = rank;
    for (uint32_t steps = 0; steps < v->ranks->nranks; steps++) {
        rank = longest(v, rank);
        least = waits(v, rank) < waits(v, least) ? rank : least;
    }
    return least;
}

struct blame {
    uint32_t rank, n; /* NONE: nobody; n: ranks that wait for it */
    double share;     /* of their steps, over what is planned; of nobody: the mean of all ranks */
};

static double more_than_planned(const struct view *v, uint32_t rank)
{
    return waits(v, rank) - planned_waits(v, rank);
}

/* Does the rank wait for another one in the end, and for which? */
static bool blames(const struct view *v, uint32_t rank, uint32_t *whom)
{
    *whom = more_than_planned(v, rank) > FOLLOWED ? follow(v, rank) : rank;
    return *whom != rank;
}

static struct blame find_blame(const struct view *v)
{
    struct blame b = {.rank = NONE};
    uint32_t nranks = v->ranks->nranks, whom;
    double all = 0, its = 0;
    memset(v->scratch, 0, nranks * sizeof *v->scratch);
    for (uint32_t r = 0; r < nranks; r++) {
        all += more_than_planned(v, r);
        if (blames(v, r, &whom))
            v->scratch[whom] += more_than_planned(v, r);
    }
    for (uint32_t r = 0; r < nranks; r++)
        if (v->scratch[r] > 0 && (b.rank == NONE || v->scratch[r] > v->scratch[b.rank]))
            b.rank = r;
    for (uint32_t r = 0; b.rank != NONE && r < nranks; r++)
        if (blames(v, r, &whom) && whom == b.rank) {
            its += waits(v, r);
            b.n++;
        }
    b.share = b.n ? v->scratch[b.rank] / b.n : 0;
    if (b.rank != NONE && b.share > TOLD && waits(v, b.rank) < APART * its / b.n)
        return b;
    return (struct blame){.rank = NONE, .share = all / nranks};
}

static void say_blame(struct sentence *t, const struct view *v, const struct blame *b)
{
    const char *more = v->planned.nroles ? " more than planned" : "";
    if (b->rank == NONE && b->share < TOLD) {
        say(t, "no rank is waited for%s", more);
        return;
    }
    if (b->rank == NONE) {
        say(t, "ranks wait for each other, %.0f %% of a step%s", 100 * b->share, more);
        return;
    }
    say(t, "%u of %u ranks wait%s for ", b->n, v->ranks->nranks, b->n == 1 ? "s" : "");
    say_rank(t, v, b->rank);
    say(t, " in the end, %.0f %% of a step%s", 100 * b->share, more);
}

/* ---- results ---- */

static void say_results(struct sentence *t, const struct view *v, bool long_form)
{
    const struct log_step *s = &v->step;
    say(t, "step %llu/%llu", (unsigned long long)s->step, (unsigned long long)v->steps);
    if (isfinite(s->loss))
        say(t, "  loss %.4f", s->loss);
    if (isfinite(s->grad_norm) && long_form)
        say(t, "  grad %.3f", s->grad_norm);
    say(t, "  %.0f tokens/s", s->tokens_per_s);
    if (v->planned.mfu > 0 && s->step_time_s > 0)
        say(t, "  MFU %.1f %%", 100 * v->planned.mfu * v->planned.step_s / s->step_time_s);
}

static void say_step(struct sentence *t, const struct view *v)
{
    double s = v->step.step_time_s, planned = v->planned.step_s;
    say(t, "%.4g s a step", s);
    if (planned > 0)
        say(t, ", planned %.4g s (%+.1f %%)", planned, 100 * (s / planned - 1));
}

/* means over ranks, -1 where nothing is known */
static double mean_waits(const struct view *v, double *planned)
{
    double sum = 0, n = 0;
    *planned = 0;
    for (uint32_t r = 0; r < v->ranks->nranks; r++) {
        sum += waits(v, r);
        *planned += planned_waits(v, r);
        n += is_known(v, r);
    }
    *planned /= v->ranks->nranks;
    return n > 0 ? sum / n : -1;
}

void view_short(const struct view *v, char out[VIEW_WIDTH])
{
    struct sentence t = {out, VIEW_WIDTH, 0};
    double planned, mean = mean_waits(v, &planned);
    say_results(&t, v, false);
    say(&t, "  ");
    say_step(&t, v);
    if (v->resident_bytes) {
        say(&t, "  ");
        say_bytes(&t, v->resident_bytes);
        say(&t, " resident");
    }
    if (mean < 0)
        return;
    say(&t, "  waits %.0f %%", 100 * mean);
    if (v->planned.nroles)
        say(&t, ", planned %.0f %%", 100 * planned);
    struct blame b = find_blame(v);
    if (b.rank != NONE) {
        say(&t, "; ");
        say_blame(&t, v, &b);
    }
}

/* ---- the view ---- */

/* lines of at most `width` columns, broken at blanks where that is possible */
static void add(struct view_lines *l, const char *text, uint32_t width, uint32_t rows, bool strong)
{
    for (size_t left = strlen(text); left && l->n < rows && l->n < VIEW_LINES; left = strlen(text)) {
        size_t n = left, next = left;
        if (left > width) {
            for (n = width; n && text[n] != ' ';)
                n--;
            n = n ? n : width;
            for (next = n; text[next] == ' ';)
                next++;
            while (n && text[n - 1] == ' ')
                n--;
        }
        l->strong[l->n] = strong;
        snprintf(l->text[l->n++], VIEW_WIDTH + 1, "%.*s", (int)n, text);
        text += next;
    }
}

static void add_cut(struct view_lines *l, struct sentence *t, uint32_t width, bool strong)
{
    if (t->n > width)
        t->out[width] = 0;
    for (size_t n = strlen(t->out); n && t->out[n - 1] == ' ';)
        t->out[--n] = 0;
    l->strong[l->n] = strong;
    snprintf(l->text[l->n++], VIEW_WIDTH + 1, "%s", t->out);
    t->n = 0;
}

struct row { /* of a rank or a role */
    double waits, transfers;
    uint32_t role, n; /* n: ranks of which something is known */
    uint32_t who;     /* rank or role that is waited for longest; NONE */
    uint32_t queue;   /* NQUEUES: on several */
    double who_share, who_planned;
};

/* a share, and behind it the planned one, if it is known: it is 0 or more */
static void say_pair(struct sentence *t, int width, double now, double planned)
{
    char behind[16] = "";
    if (planned >= 0)
        snprintf(behind, sizeof behind, "(%.1f)", 100 * planned);
    say(t, " %*.1f %%%s%-*s", width, 100 * now, *behind ? " " : "", width ? 7 : 0, behind);
}

static void say_row(struct sentence *t, const struct view *v, const struct row *x, bool by_role)
{
    const struct planned_role *p = v->planned.nroles ? &v->planned.roles[x->role] : NULL;
    if (!x->n) {
        say(t, "       -");
        return;
    }
    say_pair(t, 7, x->waits, p ? p->waits : -1);
    say_pair(t, 11, x->transfers, p ? p->transfers : -1);
    if (x->who == NONE)
        return;
    say(t, "  %s %u", by_role ? "role" : "rank", x->who);
    say_pair(t, 0, x->who_share, p ? x->who_planned : -1);
    if (x->queue < NQUEUES)
        say(t, ", %s", isa_queue_name((enum queue)x->queue));
}

static struct row row_of_rank(const struct view *v, uint32_t rank)
{
    const struct waited *w = &v->waited[rank];
    struct row x = {.waits = waits(v, rank),
                    .transfers = share(v, rank, w->transfers_ns),
                    .role = role_of(v, rank),
                    .n = is_known(v, rank),
                    .who = NONE,
                    .who_planned = -1};
    if (!w->most[0].ns)
        return x;
    x.who = (uint32_t)w->most[0].rank;
    x.queue = (uint32_t)w->most[0].queue;
    x.who_share = share(v, rank, w->most[0].ns);
    if (role_of(v, x.who) != x.role)
        x.who_planned = planned_for(&v->planned, x.role, role_of(v, x.who));
    return x;
}

/* means over its ranks */
static struct row row_of_role(const struct view *v, uint32_t role)
{
    struct row x = {.role = role, .who = NONE, .queue = NQUEUES, .who_planned = -1};
    double *by_role = v->scratch; /* roles are no more than ranks */
    memset(by_role, 0, v->ranks->nroles * sizeof *by_role);
    for (uint32_t r = 0; r < v->ranks->nranks; r++) {
        if (role_of(v, r) != role || !is_known(v, r))
            continue;
        x.n++;
        x.waits += waits(v, r);
        x.transfers += share(v, r, v->waited[r].transfers_ns);
        for (uint32_t i = 0; i < WAITED_FOR && v->waited[r].most[i].ns; i++)
            by_role[role_of(v, (uint32_t)v->waited[r].most[i].rank)] += share(v, r, v->waited[r].most[i].ns);
    }
    for (uint32_t q = 0; q < v->ranks->nroles; q++)
        if (by_role[q] > 0 && (x.who == NONE || by_role[q] > by_role[x.who]))
            x.who = q;
    if (!x.n)
        return x;
    x.waits /= x.n;
    x.transfers /= x.n;
    if (x.who == NONE)
        return x;
    x.who_share = by_role[x.who] / x.n;
    if (x.who != role)
        x.who_planned = planned_for(&v->planned, role, x.who);
    return x;
}

static void add_rows(const struct view *v, uint32_t width, uint32_t rows, struct view_lines *out)
{
    char line[VIEW_WIDTH];
    struct sentence t = {line, sizeof line, 0};
    uint32_t room = rows - out->n, nranks = v->ranks->nranks;
    bool by_role = nranks + 1 > room;
    uint32_t n = by_role ? v->ranks->nroles : nranks, shown = n + 1 > room ? room - 2 : n;
    say(&t, "%4s    waits %s  transfers %s most of it for", by_role ? "role" : "rank",
        v->planned.nroles ? "(plan)" : "", v->planned.nroles ? "(plan)  " : "");
    add_cut(out, &t, width, false);
    for (uint32_t i = 0; i < shown; i++) {
        struct row x = by_role ? row_of_role(v, i) : row_of_rank(v, i);
        say(&t, "%4u", i);
        say_row(&t, v, &x, by_role);
        double planned = v->planned.nroles ? v->planned.roles[x.role].waits : x.waits;
        add_cut(out, &t, width, x.waits > planned + 0.1);
    }
    if (shown < n) {
        say(&t, "and %u more", n - shown);
        add_cut(out, &t, width, false);
    }
}

void view_draw(const struct view *v, uint32_t width, uint32_t rows, struct view_lines *out)
{
    char line[VIEW_WIDTH];
    struct sentence t = {line, sizeof line, 0};
    double planned;
    rows = rows < VIEW_LINES ? rows : VIEW_LINES;
    width = width < VIEW_WIDTH ? width : VIEW_WIDTH;
    out->n = 0;
    say_results(&t, v, true);
    add(out, line, width, rows, false);
    t.n = 0;
    say_step(&t, v);
    if (v->step.step < v->steps) {
        say(&t, "; ");
        say_time(&t, v->step.step_time_s * (double)(v->steps - v->step.step));
        say(&t, " to go");
    }
    add(out, line, width, rows, false);
    t.n = 0;
    if (v->resident_bytes) {
        say(&t, "memory: ");
        say_bytes(&t, v->resident_bytes);
        say(&t, " resident on rank %u, the fullest here; its arena has ", v->fullest);
        say_bytes(&t, v->arena_bytes);
        add(out, line, width, rows, false);
        t.n = 0;
    }
    if (mean_waits(v, &planned) < 0 || out->n + 5 > rows)
        return;
    add_rows(v, width, rows - 2, out);
    struct blame b = find_blame(v);
    say_blame(&t, v, &b);
    add(out, line, width, rows, b.rank != NONE);
}
