/* Figures of a plan from its trace and from the text of its programs; see figures.h. */

#include "tests/compiler/emit/figures.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double figures_predicted(const struct seen *x, const char *key)
{
    return json_number_value(json_object_get(json_object_get(x->json, "predicted"), key));
}

static double step_s(const struct seen *x)
{
    return figures_predicted(x, "step_time_s");
}

/* ---- from the trace: the first rank of every role ---- */

/* Microseconds in which a process's compute queue works.  *lasts becomes at least the time between the
 * process's first and last instruction. */
static double busy_us(const json_t *trace, double pid, double *lasts)
{
    size_t i;
    const json_t *e;
    double busy = 0, begin = INFINITY, end = 0;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, e)
    {
        const char *phase = json_string_value(json_object_get(e, "ph"));
        const char *cat = json_string_value(json_object_get(e, "cat"));
        double at = json_number_value(json_object_get(e, "ts")), dur = json_number_value(json_object_get(e, "dur"));
        if (strcmp(phase, "X") != 0 || json_number_value(json_object_get(e, "pid")) != pid || !strcmp(cat, "action"))
            continue;
        begin = fmin(begin, at);
        end = fmax(end, at + dur);
        busy += strcmp(cat, "compute") ? 0 : dur;
    }
    *lasts = fmax(*lasts, end - begin);
    return busy;
}
static double role_rank(const struct seen *x, size_t role)
{
    return json_number_value(json_object_get(json_array_get(json_object_get(x->memory, "roles"), role), "first_rank"));
}
static size_t nroles(const struct seen *x)
{
    return json_array_size(json_object_get(x->memory, "roles"));
}
/* a step is as long as the longest rank's: what lies between its first instruction and its last */
double figures_step_s(const struct seen *x)
{
    double end = 0;
    for (size_t r = 0; r < nroles(x); r++)
        busy_us(x->trace, role_rank(x, r), &end);
    return 1e-6 * end;
}
static double idle(const struct seen *x)
{
    double idle = 0, end = 0;
    for (size_t r = 0; r < nroles(x); r++)
        idle += 1 - 1e-6 * busy_us(x->trace, role_rank(x, r), &end) / step_s(x);
    return idle / (double)nroles(x);
}
struct event {
    bool compute;
    double at, end;
};
/* a process's instructions; compute instructions ascend in time */
static size_t events_of(const json_t *trace, double pid, struct event *out, size_t room)
{
    size_t i, n = 0;
    const json_t *e;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, e)
    {
        const char *phase = json_string_value(json_object_get(e, "ph"));
        const char *cat = json_string_value(json_object_get(e, "cat"));
        double at = json_number_value(json_object_get(e, "ts"));
        if (strcmp(phase, "X") != 0 || json_number_value(json_object_get(e, "pid")) != pid || !strcmp(cat, "action"))
            continue;
        CU_ASSERT_FATAL(n < room);
        out[n++] = (struct event){!strcmp(cat, "compute"), at, at + json_number_value(json_object_get(e, "dur"))};
    }
    return n;
}
/* microseconds of a rank's pauses in which the transfer ran that ended where the pause did */
static double exposed_us(const struct event *e, size_t n)
{
    double before = 0, exposed = 0;
    for (size_t i = 0; i < n; i++) {
        double longest = 0;
        if (!e[i].compute)
            continue;
        for (size_t k = 0; k < n; k++)
            if (!e[k].compute && fabs(e[k].end - e[i].at) < 5e-4)
                longest = fmax(longest, e[i].at - fmax(before, e[k].at));
        exposed += longest;
        before = e[i].end;
    }
    return exposed;
}
double figures_exposed(const struct seen *x)
{
    enum { ROOM = 20000 };
    struct event *e = calloc(ROOM, sizeof *e);
    double sum = 0;
    for (size_t r = 0; r < nroles(x); r++)
        sum += 1e-6 * exposed_us(e, events_of(x->trace, role_rank(x, r), e, ROOM)) / step_s(x);
    free(e);
    return sum / (double)nroles(x);
}
double figures_bubble(const struct seen *x)
{
    return idle(x) - figures_exposed(x);
}

/* seconds of a rank's idle slices: because of `whom`, or of anybody where that is -1; of exposed transfers or of all else */
static double idle_slices_s(const struct seen *x, double pid, double whom, bool transfers)
{
    size_t i;
    const json_t *e;
    double sum = 0;
    json_array_foreach(json_object_get(x->trace, "traceEvents"), i, e)
    {
        const char *cat = json_string_value(json_object_get(e, "cat")),
                   *name = json_string_value(json_object_get(e, "name"));
        double who = json_number_value(json_object_get(json_object_get(e, "args"), "because_of_role"));
        if (!cat || strcmp(cat, "idle") || json_number_value(json_object_get(e, "pid")) != pid ||
            (whom >= 0 && who != whom) || !strcmp(name, "exposed comm") != transfers)
            continue;
        sum += 1e-6 * json_number_value(json_object_get(e, "dur"));
    }
    return sum;
}
static bool near(double a, double b)
{
    return fabs(a - b) < 1e-5;
}
void figures_check_waiting(const struct seen *x)
{
    const json_t *all = json_object_get(x->json, "waiting"), *one;
    double step = step_s(x), end = 0;
    CU_ASSERT_EQUAL_FATAL(json_array_size(all), nroles(x));
    for (size_t r = 0, i; r < nroles(x); r++) {
        const json_t *role = json_array_get(all, r), *list = json_object_get(role, "for");
        double waits = json_number_value(json_object_get(role, "waits")), pid = role_rank(x, r), last = 1;
        size_t others = 0;
        double transfers = json_number_value(json_object_get(role, "transfers"));
        CU_ASSERT(near(waits + transfers, 1 - 1e-6 * busy_us(x->trace, pid, &end) / step));
        CU_ASSERT(near(waits, idle_slices_s(x, pid, -1, false) / step));
        CU_ASSERT(near(transfers, idle_slices_s(x, pid, -1, true) / step));
        for (size_t q = 0; q < nroles(x); q++)
            others += q != r && idle_slices_s(x, pid, (double)q, false) > 0;
        CU_ASSERT_EQUAL(json_array_size(list), others);
        json_array_foreach(list, i, one)
        {
            double who = json_number_value(json_array_get(one, 0)), share = json_number_value(json_array_get(one, 1));
            CU_ASSERT(who != (double)r && share <= last && near(share, idle_slices_s(x, pid, who, false) / step));
            last = share;
        }
    }
}

/* ---- from the programs' text ---- */

/* bytes of the arena that lie on the device */
static double device_bytes(const struct program *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    program_print(p, f);
    fclose(f);
    const char *arena = strstr(text, "\narena ");
    CU_ASSERT_PTR_NOT_NULL_FATAL(arena);
    double bytes = strtod(arena + 7, NULL), host = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        char copy[300];
        snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\n"), line);
        const char *offset = strstr(copy, " offset "), *size_at = strstr(copy, " bytes ");
        if (!strncmp(copy, "buffer ", 7) && strstr(copy, " host ") && offset && size_at)
            host = fmax(host, strtod(offset + 8, NULL) + strtod(size_at + 7, NULL));
    }
    free(text);
    return bytes - ceil(host / 256) * 256;
}
static double fullest(const struct seen *x, double *rank)
{
    double most = 0;
    for (uint32_t r = 0; r < x->plan->nroles; r++) {
        double bytes = device_bytes(x->plan->train[r]);
        if (bytes > most)
            *rank = role_rank(x, r);
        most = fmax(most, bytes);
    }
    return most;
}
double figures_peak_bytes(const struct seen *x)
{
    double rank;
    return fullest(x, &rank);
}
double figures_peak_rank(const struct seen *x)
{
    double rank = -1;
    fullest(x, &rank);
    return rank;
}
