/* The views on real tiny plans: golden drawings under unit costs, and figures that agree with plan.json. */

#include "tests/compiler/inspect/fixture.h"
#include "tests/compiler/random_plan.h"
#include "tests/skip.h"

#include "compiler/inspect/show.h"
#include "compiler/support/units.h"
#include "compiler/support/strbuf.h"

#include <CUnit/Basic.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef void view(const struct plan *p, FILE *out, const struct show_options *o);

static const struct fixture unit_4 = {.tp = 1,
                                      .pp = 4,
                                      .dp = 1,
                                      .microbatches = 4,
                                      .schedule = SCHED_1F1B,
                                      .unit = true,
                                      .f_ns = 1000,
                                      .b_ns = 2000};
static const struct fixture mixed = {
    .tp = 2, .pp = 2, .dp = 2, .zero = 1, .sp = true, .microbatches = 4, .schedule = SCHED_1F1B};

static char *draw(struct arena *a, view *v, const struct plan *p, const struct show_options *o)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    v(p, f, o);
    fclose(f);
    char *copy = arena_strndup(a, text, size);
    free(text);
    return copy;
}

static json_t *draw_json(struct arena *a, view *v, const struct plan *p, const struct show_options *o)
{
    struct show_options with = *o;
    with.json = true;
    json_error_t e;
    json_t *root = json_loads(draw(a, v, p, &with), JSON_REJECT_DUPLICATES, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(root);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(root, "schema")), 1);
    return root;
}

static const struct show_options plain = {.width = 49, .rank = -1, .stage = -1};

static void test_timeline(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &unit_4);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_STRING_EQUAL(
        draw(a, show_timeline, p, &plain),
        "one step, 21us; a column is 500ns; one line per pipeline rank\n"
        "\n"
        "       |0ns                |10us\n"
        "    0  0-1-2-3-............0===..1===..2===..3===\n"
        "    1  ..0-1-2-........0===3-1===..2===..3===....\n"
        "    2  ....0-1-....0===2-1===3-2===..3===........\n"
        "    3  ......0-0===1-1===2-2===3-3===............\n"
        "       - forward   = backward   # optimizer\n"
        "       . idle   ~ exposed communication\n"
        "       number: microbatch\n"
        "\n"
        "% of the step; waited for: the rank whose part was missing, or own transfers\n"
        "rank   busy  bubble = warm-up + cool-down +  wait + imbalance  exposed  for\n"
        "0     57.14   42.86 =    0.00 +      0.00 + 42.86 +      0.00     0.00  1 42.86\n"
        "1     57.14   42.86 =    4.76 +      9.52 + 28.57 +      0.00     0.00  2 28.57\n"
        "2     57.14   42.86 =    9.52 +     19.05 + 14.29 +      0.00     0.00  3 14.29\n"
        "3     57.14   42.86 =   14.29 +     28.57 +  0.00 +      0.00     0.00\n"
        "mean  57.14   42.86 =    7.14 +     14.29 + 21.43 +      0.00     0.00\n");
    struct show_options one = plain;
    one.unicode = true;
    one.stage = 1;
    char *text = draw(a, show_timeline, p, &one);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n    1  ··0░1░2░········0▓▓▓3░1▓▓▓··2▓▓▓··3▓▓▓····\n"));
    CU_ASSERT_PTR_NULL(strstr(text, "\n    0  "));
    one.colour = true;
    text = draw(a, show_timeline, p, &one);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\033[97;44m0 \033[0m\033[97;44m1 \033[0m"));
    struct show_options narrow = plain; /* a column is a forward: its number would hide what it is */
    narrow.width = 28;
    text = draw(a, show_timeline, p, &narrow);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n    0  ----......0=.1=.2=.3=\n    1  .---....0=-1=.2=.3=..\n"
                                        "    2  ..--..0=-1=-2=.3=....\n    3  ...-0=-1=-2=-3=......\n"));
    narrow.width = 20; /* columns of 1.31 us: as many of each kind as it lasts */
    text = draw(a, show_timeline, p, &narrow);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n    0  ---.....0==.2=.=\n    1  .--...0=1=.2==..\n"
                                        "    2  ..1-.=-=-2=.=...\n    3  ..-0=1=-=-=.....\n"));
    plan_close(p);
    arena_free(a);
}

/* transfers that nothing hides, and forwards and backwards that run together */
static void test_timeline_kinds(void)
{
    static const struct fixture slow = {.tp = 1, .pp = 2, .dp = 1, .microbatches = 3, .schedule = SCHED_1F1B, .unit = true,
                                        .f_ns = 1000, .b_ns = 2000, .c_ns = 1200};
    static const struct fixture pairs = {.tp = 1, .pp = 2, .dp = 1, .vpp = 2, .microbatches = 4, .schedule = SCHED_DUALPIPE_V,
                                         .unit = true, .f_ns = 1000, .b_ns = 2000};
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &slow), *q = fixture_plan(a, &pairs);
    CU_ASSERT_FATAL(p && q);
    CU_ASSERT_PTR_NOT_NULL(strstr(draw(a, show_timeline, p, &plain), "\n    0  0--1-........~~~0====2-~1====.....~~~2====\n"
                                                                     "    1  ...~~~0-0====1--1====...~~~2-2====........\n"));
    struct show_options narrow = plain;
    narrow.width = 20; /* columns of 1.05 us */
    CU_ASSERT_PTR_NOT_NULL(strstr(draw(a, show_timeline, p, &narrow), "\n    0  --...~0=-1=..~~=\n    1  .~-0=-1=.~-2=...\n"));
    const char *text = draw(a, show_timeline, q, &plain);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n    0  0--2--0+0*-3&1%%..2&0%%2b=.3&1%%3b==+2*+3*\n"
                                        "    1  ..-0--1-2-0b=2&0%%3&1%%3&1%2b==2a=.3+3+*3*\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "% both at once"));
    plan_close(p);
    plan_close(q);
    arena_free(a);
}

/* without Unicode and colour every byte is plain; drawn lines keep to the width, with all lanes */
/* A line has as many columns of each kind as its rank spends time, at any width and in any window. */
static void test_shares(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, seed, 16);
        int64_t end = 0;
        for (uint32_t r = 0; r < p->nroles; r++)
            end = p->timeline->roles[r].end_ns > end ? p->timeline->roles[r].end_ns : end;
        for (uint32_t width = 40; width <= 200; width += 53) {
            struct show_options o = {.width = width, .rank = -1, .stage = -1};
            const char *line = strstr(draw(a, show_timeline, p, &o), "|0ns");
            for (uint32_t r = 0; r < p->nroles; r++) {
                line = strchr(line, '\n') + 8; /* behind the label */
                double columns = width - 7, comm = 0, idle = 0;
                for (const char *at = line; *at != '\n'; at++) {
                    comm += *at == '~';
                    idle += *at == '.';
                }
                const struct sim_role *role = &p->timeline->roles[r];
                double exposed = columns * (double)role->idle_ns[IDLE_COMM] / (double)end;
                double busy = columns * (double)role->busy_ns / (double)end;
                CU_ASSERT_DOUBLE_EQUAL(comm, exposed, 2);
                CU_ASSERT_DOUBLE_EQUAL(columns - comm - idle, busy, 2);
            }
        }
        plan_close(p);
        arena_free(a);
    }
}

/* a part of the step: its axis, a column's time, and the same drawing as the whole has there at so many times the width */
static void test_window(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &unit_4);
    struct show_options o = plain;
    o.zoom = 3;
    o.from_s = 7e-6;
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    const char *text = draw(a, show_timeline, p, &o);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "a column is 167ns"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "|7us                |10.3us"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n    3  1===========2-----2===========3-----3=====\n"));
    o.zoom = 0;
    o.to_s = 9e-6;
    CU_ASSERT_PTR_NOT_NULL(strstr(draw(a, show_timeline, p, &o), "a column is 47.6ns"));
    plan_close(p);
    arena_free(a);
}

static void test_plain(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &mixed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    view *const views[] = {show_summary, show_memory, show_traffic, show_schedule, show_code, show_timeline};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        struct show_options o = plain;
        o.width = 80;
        o.comm = true;
        const char *text = draw(a, views[i], p, &o);
        CU_ASSERT(strlen(text) > 100);
        for (const char *s = text; *s; s++)
            CU_ASSERT_FATAL(*s == '\n' || (*s >= ' ' && *s < 127));
    }
    struct show_options o = plain;
    o.comm = true;
    for (o.width = 40; o.width <= 200; o.width += 40) {
        const char *text = strstr(draw(a, show_timeline, p, &o), "\n\n") + 2;
        for (uint32_t line = 0; line < 9; line++) { /* the axis; two ranks; three or more lanes each */
            CU_ASSERT(strcspn(text, "\n") <= o.width);
            text += strcspn(text, "\n") + 1;
        }
    }
    /* who was waited for: longest first, as many as fit; of a chosen role all, in further lines */
    struct sim_role *role = &p->timeline->roles[0];
    const int64_t step = p->timeline->step_ns;
    role->waited_ns[0] = step / 8;
    role->waited_ns[1] = step / 4;
    static const struct {
        uint32_t width;
        int64_t rank;
        const char *waits;
    } rows[] = {{100, -1, "  rank 1 25.00, own 12.50\n"},
                {89, -1, "  rank 1 25.00 ...\n"},
                {89, 0, "  rank 1 25.00, own\n                                                                        12.50\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        o = (struct show_options){.width = rows[i].width, .rank = rows[i].rank, .stage = -1};
        const char *table = strstr(draw(a, show_timeline, p, &o), "\nrank ");
        CU_ASSERT_PTR_NOT_NULL(strstr(table, rows[i].waits));
    }
    plan_close(p);
    arena_free(a);
}

static double number(const json_t *root, const char *key)
{
    const json_t *v = json_object_get(root, key);
    CU_ASSERT_FATAL(json_is_number(v));
    return json_number_value(v);
}

static void test_figures(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &mixed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    json_t *plan = draw_json(a, show_summary, p, &plain), *timeline = draw_json(a, show_timeline, p, &plain);
    const json_t *predicted = json_object_get(plan, "predicted");
    static const char *const keys[] = {"step_time_s", "bubble_fraction", "exposed_comm_fraction"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        CU_ASSERT_EQUAL(number(predicted, keys[i]), number(timeline, keys[i]));
    CU_ASSERT_EQUAL(number(predicted, "step_time_s"), (double)p->timeline->step_ns / 1e9);
    struct show_options wide = plain;
    wide.width = 110;
    const char *text = draw(a, show_timeline, p, &plain), *summary = draw(a, show_summary, p, &wide);
    const char *mean = strstr(text, "\nmean ");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mean);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(mean, arena_printf(a, " %6.2f = ", 100 * number(predicted, "bubble_fraction"))));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(summary, arena_printf(a, "bubble %.2f %%, exposed communication %.2f %% of the step",
                                     100 * number(predicted, "bubble_fraction"),
                                     100 * number(predicted, "exposed_comm_fraction"))));
    /* busy and causes of each role add up to the step */
    const json_t *roles = json_object_get(timeline, "roles");
    for (size_t r = 0; r < json_array_size(roles); r++) {
        const json_t *role = json_array_get(roles, r), *idle = json_object_get(role, "idle");
        double sum = number(role, "busy_s") + number(idle, "warmup_s") + number(idle, "cooldown_s") +
                     number(idle, "exposed_comm_s") + number(idle, "wait_s") + number(idle, "imbalance_s");
        CU_ASSERT_DOUBLE_EQUAL(sum, number(predicted, "step_time_s"), 1e-12);
    }
    json_decref(plan);
    json_decref(timeline);
    plan_close(p);
    arena_free(a);
}

static void test_memory(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &mixed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    json_t *root = draw_json(a, show_memory, p, &plain);
    const json_t *roles = json_object_get(root, "roles");
    CU_ASSERT_EQUAL_FATAL(json_array_size(roles), p->nroles);
    for (uint32_t r = 0; r < p->nroles; r++) {
        const json_t *role = json_array_get(roles, r), *items = json_object_get(role, "items");
        const json_t *live = json_object_get(role, "live");
        json_int_t sum = json_integer_value(json_object_get(role, "not_live_bytes")), most = 0;
        for (size_t i = 0; i < json_array_size(items); i++)
            sum += json_integer_value(json_object_get(json_array_get(items, i), "bytes"));
        for (size_t i = 0; i < json_array_size(live); i++) {
            json_int_t bytes = json_integer_value(json_array_get(json_array_get(live, i), 1));
            most = bytes > most ? bytes : most;
        }
        CU_ASSERT_EQUAL(sum, (json_int_t)p->train[r]->arena_bytes);
        CU_ASSERT_EQUAL(most, json_integer_value(json_object_get(role, "live_peak_bytes")));
        CU_ASSERT(most <= sum);
    }
    json_decref(root);
    /* what persists comes first, however little it is */
    const char *text = draw(a, show_memory, p, &plain), *persists = strstr(text, "  step block "), *step = strstr(text, "  L*.");
    CU_ASSERT(persists && step && persists < step && strstr(text, "  parameters ") < step);
    plan_close(p);
    arena_free(a);
}

/* a text with one blank where there are several */
static const char *closed(struct arena *a, const char *text)
{
    char *copy = arena_strdup(a, text), *to = copy;
    for (const char *s = text; *s; s++)
        if (*s != ' ' || s[1] != ' ')
            *to++ = *s;
    *to = 0;
    return copy;
}

/* what one rank sends another receives, once per microbatch each way */
static void test_traffic(void)
{
    struct arena *a = arena_new();
    struct show_options wide = plain;
    wide.width = 120; /* all columns have room */
    struct plan *p = fixture_plan(a, &unit_4);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    json_t *root = draw_json(a, show_traffic, p, &plain);
    const json_t *rows = json_object_get(root, "traffic");
    json_int_t sent = 0, received = 0, nsent = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *op = json_string_value(json_object_get(row, "op"));
        json_int_t bytes = json_integer_value(json_object_get(row, "bytes"));
        sent += strcmp(op, "SEND") == 0 ? bytes : 0;
        nsent += strcmp(op, "SEND") == 0 ? json_integer_value(json_object_get(row, "count")) : 0;
        received += strcmp(op, "RECV") == 0 ? bytes : 0;
    }
    CU_ASSERT_EQUAL(nsent, 2 * 3 * 4);
    CU_ASSERT_EQUAL(sent, nsent * 64 * 64 * 4);
    CU_ASSERT_EQUAL(sent, received);
    /* the text says the same: bytes of each transfer, of all, their time and what that makes a second */
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        uint64_t bytes = (uint64_t)json_integer_value(json_object_get(row, "bytes")),
                 count = (uint64_t)json_integer_value(json_object_get(row, "count"));
        double time_s = json_real_value(json_object_get(row, "time_s"));
        char figures[320];
        snprintf(figures, sizeof figures, " %llu %s %s %s", (unsigned long long)count,
                 units_show_bytes(bytes / count).s, units_show_bytes(bytes).s, units_show_seconds(time_s).s);
        if (time_s > 0)
            snprintf(figures + strlen(figures), sizeof figures - strlen(figures), " %s",
                     units_show_bytes_s((double)bytes / time_s).s);
        CU_ASSERT_PTR_NOT_NULL(strstr(closed(a, draw(a, show_traffic, p, &wide)), figures));
    }
    json_decref(root);
    /* the two middle ranks are alike but for their peers */
    CU_ASSERT_PTR_NOT_NULL(
        strstr(closed(a, draw(a, show_traffic, p, &wide)), "\n1-2 RECV rank before "));
    plan_close(p);
    p = fixture_plan(a, &mixed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_PTR_NOT_NULL(strstr(closed(a, draw(a, show_traffic, p, &wide)), " ALL_REDUCE all ranks 8 "));
    plan_close(p);
    arena_free(a);
}

static void test_schedule(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &unit_4);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    struct show_options o = plain;
    o.width = 120;
    CU_ASSERT_STRING_EQUAL(draw(a, show_schedule, p, &o),
                           "# torch.distributed.pipelining CSV, one row per pipeline rank\n"
                           "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n"
                           "1F0,1F1,1F2,1B0,1F3,1B1,1B2,1B3\n"
                           "2F0,2F1,2B0,2F2,2B1,2F3,2B2,2B3\n"
                           "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3\n"
                           "\n"
                           "# unit ticks: F, I, W = 1, B = 2, transfers free: 21 ticks\n"
                           "    0  F0 F1 F2 F3 .  .  .  .  .  .  B0 B0 .  B1 B1 .  B2 B2 .  B3 B3\n"
                           "    1  .  F0 F1 F2 .  .  .  .  B0 B0 F3 B1 B1 .  B2 B2 .  B3 B3 .  .\n"
                           "    2  .  .  F0 F1 .  .  B0 B0 F2 B1 B1 F3 B2 B2 .  B3 B3 .  .  .  .\n"
                           "    3  .  .  .  F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 .  .  .  .  .  .\n");
    json_t *root = draw_json(a, show_schedule, p, &plain);
    const json_t *ranks = json_object_get(root, "ranks");
    CU_ASSERT_EQUAL(json_array_size(ranks), 4);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_array_get(json_array_get(ranks, 2), 2)), "2B0");
    json_decref(root);
    plan_close(p);
    arena_free(a);
}

/* what is no action of a schedule (head of a step, optimizer, nothing) is not listed, whatever its tags */
static void test_other_actions(void)
{
    static const char others[] = {'O', 'H', 'A', 'Z', 0};
    for (size_t i = 0; i < sizeof others; i++) {
        struct arena *a = arena_new();
        struct plan *p = fixture_plan(a, &unit_4);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        for (uint32_t k = 0; k < p->train[0]->ninsns; k++)
            if (p->train[0]->insns[k].action == 'F' && p->train[0]->insns[k].microbatch == 2)
                p->train[0]->insns[k].action = others[i];
        CU_ASSERT_PTR_NOT_NULL(strstr(draw(a, show_schedule, p, &plain), "\n0F0,0F1,0F3,0B0,0B1,0B2,0B3\n"));
        plan_close(p);
        arena_free(a);
    }
}

/* ---- where it is shown ---- */

static void set(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* Colours are for terminals that can show them, unless NO_COLOR says something; Unicode is for locales of
 * UTF-8.  A terminal knows its width; else COLUMNS says it, from 40 to 1000. */
static void test_detect(void)
{
    static const char *const names[] = {"TERM", "NO_COLOR", "COLUMNS", "LC_ALL", "LC_CTYPE", "LANG"};
    static const struct {
        const char *values[6];
        unsigned short wide; /* the terminal; 0 = it does not know */
        bool unicode, colour; /* colour: on a terminal */
        uint32_t width, terminal;
    } cases[] = {
        {{"xterm", NULL, NULL, NULL, NULL, "C.UTF-8"}, 0, true, true, 100, 100},
        {{"xterm", "", NULL, NULL, NULL, "C.UTF-8"}, 80, true, true, 100, 80},
        {{"xterm", "1", "90", NULL, NULL, "en_US.utf8"}, 80, true, false, 90, 80},
        {{"dumb", NULL, "40", NULL, NULL, "C.UTF-8"}, 0, false, false, 40, 40},
        {{NULL, NULL, "39", NULL, NULL, "C.UTF-8"}, 0, true, false, 100, 100},
        {{"xterm", NULL, "1000", "C", "C.UTF-8", "C.UTF-8"}, 39, false, true, 1000, 100},
        {{"xterm", NULL, "1001", "", "C", "C.UTF-8"}, 1000, false, true, 100, 1000},
        {{"xterm", NULL, "x", NULL, "C.UTF-8", "C"}, 1001, true, true, 100, 100},
        {{"xterm", NULL, NULL, NULL, NULL, NULL}, 0, false, true, 100, 100},
    };
    char *before[6];
    for (size_t k = 0; k < 6; k++)
        before[k] = getenv(names[k]) ? strdup(getenv(names[k])) : NULL;
    int ptmx = posix_openpt(O_RDWR | O_NOCTTY);
    bool has = ptmx >= 0 && !grantpt(ptmx) && !unlockpt(ptmx);
    FILE *terminal = has ? fopen(ptsname(ptmx), "w") : NULL, *file = fopen("/dev/null", "w");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t k = 0; k < 6; k++)
            set(names[k], cases[i].values[k]);
        struct show_options o = show_detect(file);
        CU_ASSERT(!o.colour && o.unicode == cases[i].unicode && o.width == cases[i].width);
        if (!terminal)
            continue;
        struct winsize size = {.ws_row = 24, .ws_col = cases[i].wide};
        CU_ASSERT_EQUAL(ioctl(ptmx, TIOCSWINSZ, &size), 0);
        o = show_detect(terminal);
        CU_ASSERT(o.colour == cases[i].colour && o.unicode == cases[i].unicode);
        CU_ASSERT_EQUAL(o.width, cases[i].terminal);
    }
    for (size_t k = 0; k < 6; k++) {
        set(names[k], before[k]);
        free(before[k]);
    }
    if (terminal)
        fclose(terminal);
    else
        test_skip("there are no pseudo-terminals here");
    fclose(file);
    close(ptmx);
}

/* a stage that only embeds computes nothing in its I, which is read off all the same */
static void test_embedding_alone(void)
{
    static const char model[] = "llmc 1\nmodel tiny {\n    vocab 29\n    width 16\n    norm rmsnorm\n    embed tokens\n"
                                "    repeat 2 {\n        layer {\n            attn mha(heads=2)\n"
                                "            ffn swiglu(16)\n        }\n    }\n    head untied\n}\n"
                                "train {\n    sequence 8\n    batch 4 sequences\n    precision fp32\n"
                                "    optimizer adamw(lr=1e-3)\n}\n";
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(a, model);
    struct topo *topo = random_host(a, 3);
    struct decision d = text_decision(a, job, topo, "pp=3 microbatch=1 schedule=zb_h1");
    CU_ASSERT_FATAL(decision_parse_layout(a, &d, 2, "E|t|tL", &why));
    struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    char *text = draw(a, show_schedule, p, &plain);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n0F0,0F1,0F2,0I0,0W0,0F3,0I1,"));
    CU_ASSERT_PTR_NULL(strstr(text, "cannot run"));
    plan_close(p);
    arena_free(a);
}

static void test_code(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &mixed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    struct show_options o = plain;
    o.rank = p->ranks->nranks - 1;
    uint32_t role = p->ranks->ranks[o.rank].role;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    program_print(p->train[role], f);
    fclose(f);
    CU_ASSERT_STRING_EQUAL(draw(a, show_code, p, &o), text);
    free(text);
    json_t *root = draw_json(a, show_code, p, &o);
    CU_ASSERT_EQUAL(json_array_size(json_object_get(root, "instructions")), p->train[role]->ninsns);
    json_decref(root);
    plan_close(p);
    arena_free(a);
}

static void test_role(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &mixed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    uint32_t role = 7;
    const char *why = "";
    struct show_options o = plain;
    CU_ASSERT(show_role(a, p, &o, &role, &why));
    CU_ASSERT_EQUAL(role, NONE);
    o.stage = 1;
    CU_ASSERT(show_role(a, p, &o, &role, &why));
    CU_ASSERT_EQUAL(role, 1);
    o.stage = 2;
    CU_ASSERT_FALSE(show_role(a, p, &o, &role, &why));
    CU_ASSERT_STRING_EQUAL(why, "there is no stage 2; the plan has stages 0 to 1");
    o.rank = 8;
    CU_ASSERT_FALSE(show_role(a, p, &o, &role, &why));
    CU_ASSERT_STRING_EQUAL(why, "there is no rank 8; the plan has ranks 0 to 7");
    CU_ASSERT_STRING_EQUAL(show_layers(a, p, 0), "E 0-3");
    CU_ASSERT_STRING_EQUAL(show_layers(a, p, 1), "4-7 L");
    plan_close(p);
    arena_free(a);
}

void suite_show(void);
void suite_show(void)
{
    CU_pSuite s = CU_add_suite("show", NULL, NULL);
    CU_add_test(s, "timeline", test_timeline);
    CU_add_test(s, "timeline of transfers and pairs", test_timeline_kinds);
    CU_add_test(s, "shares of a line", test_shares);
    CU_add_test(s, "part of a timeline", test_window);
    CU_add_test(s, "plain text", test_plain);
    CU_add_test(s, "figures of plan.json", test_figures);
    CU_add_test(s, "memory", test_memory);
    CU_add_test(s, "traffic", test_traffic);
    CU_add_test(s, "schedule", test_schedule);
    CU_add_test(s, "a stage that only embeds", test_embedding_alone);
    CU_add_test(s, "what is no action of a schedule", test_other_actions);
    CU_add_test(s, "terminals", test_detect);
    CU_add_test(s, "code", test_code);
    CU_add_test(s, "choice of a role", test_role);
}
