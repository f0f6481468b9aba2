/* Traces against the rules of Chrome's trace event format, as Perfetto's importer and chrome://tracing read
 * it. */

#include "tests/compiler/inspect/fixture.h"

#include "compiler/inspect/diff.h"
#include "compiler/inspect/trace.h"
#include "compiler/inspect/traffic.h"

#include <CUnit/Basic.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TRACKS 256

struct track {
    json_int_t pid, tid;
    double end_us;
    bool named;
};

struct check {
    struct track tracks[MAX_TRACKS];
    size_t ntracks;
    json_t *open; /* flow ids begun: id -> ts */
    size_t nflows, nended, nslices;
};

static struct track *track_of(struct check *c, const json_t *e)
{
    json_int_t pid = json_integer_value(json_object_get(e, "pid")),
               tid = json_integer_value(json_object_get(e, "tid"));
    for (size_t i = 0; i < c->ntracks; i++) {
        if (c->tracks[i].pid == pid && c->tracks[i].tid == tid)
            return &c->tracks[i];
    }
    CU_ASSERT_FATAL(c->ntracks < MAX_TRACKS);
    c->tracks[c->ntracks] = (struct track){.pid = pid, .tid = tid};
    return &c->tracks[c->ntracks++];
}

static bool near(double x, double y)
{
    return x - y < 1e-4 && y - x < 1e-4;
}

/* a slice starts where the one before on its track has ended, and its track has a name */
static void check_slice(struct check *c, const json_t *e)
{
    struct track *t = track_of(c, e);
    const json_t *ts = json_object_get(e, "ts"), *dur = json_object_get(e, "dur");
    CU_ASSERT(t->named);
    CU_ASSERT_FATAL(json_is_number(ts) && json_is_number(dur));
    CU_ASSERT(json_is_string(json_object_get(e, "name")));
    CU_ASSERT(json_number_value(dur) >= 0);
    double start = json_number_value(ts);
    CU_ASSERT(start >= t->end_us || near(start, t->end_us));
    t->end_us = start + json_number_value(dur);
    c->nslices++;
}

/* an arrow's ends lie in slices and meet in time */
static void check_flow(struct check *c, const json_t *e, bool begins)
{
    char key[32];
    snprintf(key, sizeof key, "%lld", (long long)json_integer_value(json_object_get(e, "id")));
    double ts = json_number_value(json_object_get(e, "ts"));
    const struct track *t = track_of(c, e);
    CU_ASSERT(ts <= t->end_us);
    c->nflows += begins;
    c->nended += !begins;
    json_t *other = json_object_get(c->open, key);
    if (!other) {
        json_object_set_new(c->open, key, json_pack("{s:f,s:b}", "ts", ts, "begins", begins));
        return;
    }
    CU_ASSERT(json_boolean_value(json_object_get(other, "begins")) != begins);
    CU_ASSERT(near(json_number_value(json_object_get(other, "ts")), ts));
    if (!begins)
        CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(e, "bp")), "e");
    json_object_del(c->open, key);
}

static void check_event(struct check *c, const json_t *e)
{
    const char *ph = json_string_value(json_object_get(e, "ph"));
    CU_ASSERT_PTR_NOT_NULL_FATAL(ph);
    CU_ASSERT(json_is_integer(json_object_get(e, "pid")));
    if (strcmp(ph, "M") == 0) {
        CU_ASSERT(json_is_object(json_object_get(e, "args")));
        if (strcmp(json_string_value(json_object_get(e, "name")), "thread_name") == 0)
            track_of(c, e)->named = true;
    } else if (strcmp(ph, "X") == 0) {
        check_slice(c, e);
    } else if (strcmp(ph, "s") == 0 || strcmp(ph, "f") == 0) {
        check_flow(c, e, *ph == 's');
    } else if (strcmp(ph, "C") == 0) {
        CU_ASSERT(json_is_integer(json_object_get(json_object_get(e, "args"), "bytes")));
    } else {
        CU_FAIL("unknown phase");
    }
}

static json_t *load(const struct plan *p, const uint32_t *ranks, uint32_t n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    trace_write(p, ranks, n, false, f);
    fclose(f);
    json_error_t e;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(root);
    free(text);
    return root;
}

static struct check validate(const json_t *root)
{
    struct check c = {.open = json_object()};
    const json_t *events = json_object_get(root, "traceEvents");
    CU_ASSERT_FATAL(json_is_array(events));
    for (size_t i = 0; i < json_array_size(events); i++)
        check_event(&c, json_array_get(events, i));
    CU_ASSERT_EQUAL(json_object_size(c.open), 0);
    CU_ASSERT_EQUAL(c.nflows, c.nended);
    json_decref(c.open);
    return c;
}

static const struct fixture mixed = {
    .tp = 2, .pp = 2, .dp = 2, .zero = 1, .sp = true, .microbatches = 4, .schedule = SCHED_1F1B};
static const struct fixture deep = {
    .tp = 1, .pp = 4, .dp = 2, .zero = 0, .microbatches = 5, .schedule = SCHED_GPIPE};

static void test_rules(void)
{
    const struct fixture *const shapes[] = {&mixed, &deep};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct arena *a = arena_new();
        const struct fixture *f = shapes[i];
        struct plan *p = fixture_plan(a, f);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        json_t *root = load(p, NULL, 0);
        struct check c = validate(root);
        CU_ASSERT_EQUAL(c.nflows, 2 * (f->pp - 1) * f->microbatches);
        json_decref(root);
        uint32_t *all, n;
        const char *why;
        CU_ASSERT(trace_parse_ranks(a, "all", p->mesh.nranks, &all, &n, &why));
        root = load(p, all, n);
        c = validate(root);
        CU_ASSERT_EQUAL(c.nflows, 2 * (f->pp - 1) * f->microbatches * f->tp * f->dp);
        json_decref(root);
        plan_close(p);
        arena_free(a);
    }
}

/* one rank: no arrows without a partner, and what per-rank tools look for */
static void test_one_rank(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &mixed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    const uint32_t rank = 3;
    json_t *root = load(p, &rank, 1);
    struct check c = validate(root);
    uint32_t role = p->ranks->ranks[rank].role, nblocks = 0;
    const struct sim_role *r = &p->timeline->roles[role];
    double idle_us[NIDLE] = {0};
    json_int_t most = 0, moved = 0, bytes = 0;
    CU_ASSERT_EQUAL(c.nflows, 0);
    const json_t *info = json_object_get(root, "distributedInfo"),
                 *events = json_object_get(root, "traceEvents");
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(info, "rank")), 3);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(info, "world_size")), 8);
    for (size_t i = 0; i < json_array_size(events); i++) {
        const char *cat = json_string_value(json_object_get(json_array_get(events, i), "cat"));
        const json_t *e = json_array_get(events, i), *args = json_object_get(e, "args");
        json_int_t n = json_integer_value(json_object_get(args, "bytes"));
        nblocks += cat && strcmp(cat, "action") == 0;
        for (int k = 0; cat && k < NIDLE; k++)
            if (!strcmp(cat, "idle") && !strcmp(json_string_value(json_object_get(e, "name")), idle_names[k]))
                idle_us[k] += json_number_value(json_object_get(e, "dur"));
        if (!cat)
            most = n > most ? n : most; /* the counter */
        else
            moved += n;
    }
    CU_ASSERT_EQUAL(c.nslices, p->train[role]->ninsns + nblocks + r->nidles);
    CU_ASSERT_EQUAL((uint64_t)most, r->peak_live_bytes);
    for (uint32_t i = 0; i < p->train[role]->ninsns; i++) {
        struct transfer t;
        bytes += transfer_of(p, role, i, &t) ? (json_int_t)t.bytes : 0;
    }
    CU_ASSERT_EQUAL(moved, bytes);
    for (int k = 0; k < NIDLE; k++) {
        int64_t ns = k == IDLE_IMBALANCE ? 0 : r->idle_ns[k] + (k == IDLE_WAIT ? r->idle_ns[IDLE_IMBALANCE] : 0);
        CU_ASSERT_DOUBLE_EQUAL(1e3 * idle_us[k], (double)ns, 1);
    }
    json_decref(root);
    plan_close(p);
    arena_free(a);
}

/* a process is called by its rank's numbers, tp innermost and pp outermost, and by its layers */
static void test_names(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &mixed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    uint32_t *all, n, named = 0;
    const char *why;
    CU_ASSERT_FATAL(trace_parse_ranks(a, "all", p->mesh.nranks, &all, &n, &why));
    json_t *root = load(p, all, n), *e;
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        const char *kind = json_string_value(json_object_get(e, "name"));
        const json_t *args = json_object_get(e, "args");
        uint32_t rank = (uint32_t)json_integer_value(json_object_get(e, "pid"));
        const char *numbers = arena_printf(a, "rank %u: pp %u, tp %u, cp 0, dp %u", rank, rank / 4, rank % 2,
                                           rank / 2 % 2);
        if (!strcmp(kind, "process_name"))
            CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(args, "name")), numbers);
        if (!strcmp(kind, "process_labels"))
            CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(args, "labels")),
                                   rank < 4 ? "layers E 0-3" : "layers 4-7 L");
        named += !strcmp(kind, "process_name") || !strcmp(kind, "process_labels");
    }
    CU_ASSERT_EQUAL(named, 16);
    json_decref(root);
    plan_close(p);
    arena_free(a);
}

/* ---- against the plan ---- */

/* the plan's own trace as a run would write it: instructions alone, with the time that each had a core */
static json_t *own_trace(const struct plan *p)
{
    json_t *root = load(p, NULL, 0), *events = json_object_get(root, "traceEvents");
    for (size_t i = json_array_size(events); i-- > 0;) {
        json_t *e = json_array_get(events, i);
        const char *cat = json_string_value(json_object_get(e, "cat"));
        if (!cat || !strcmp(cat, "action") || strcmp(json_string_value(json_object_get(e, "ph")), "X") != 0)
            json_array_remove(events, i);
        else
            json_object_set(e, "tdur", json_object_get(e, "dur"));
    }
    return root;
}

/* each rank has as much of a core as it wants */
static void give_cores(struct arena *a, const struct plan *p)
{
    for (uint32_t r = 0; r < p->nroles; r++) {
        struct sim_role *role = &p->timeline->roles[r];
        role->core_ns = ARENA_ARRAY(a, int64_t, role->ninsns);
        for (uint32_t i = 0; i < role->ninsns; i++)
            role->core_ns[i] = role->insns[i].end_ns - role->insns[i].start_ns;
    }
}

/* what the comparison with this trace prints, or says where it is refused */
static char *compared(struct arena *a, const struct plan *p, const json_t *trace, bool json,
                      enum status status)
{
    char path[] = "/tmp/llmc-test-XXXXXX", *text = NULL;
    struct error error = {""};
    size_t size = 0;
    int file = mkstemp(path);
    CU_ASSERT_FATAL(file >= 0 && !json_dumpfd(trace, file, 0) && !close(file));
    FILE *out = open_memstream(&text, &size);
    CU_ASSERT_EQUAL(diff_trace(a, p, path, json, out, &error), status);
    fclose(out);
    unlink(path);
    char *copy = arena_strdup(a, *error.text ? error.text : text);
    free(text);
    return copy;
}

/* with itself: nothing is off, every instruction of the first rank of each role is there */
static void test_compared(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &deep);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    json_t *trace = own_trace(p);
    uint32_t ninsns = 0, n = 0;
    for (uint32_t r = 0; r < p->nroles; r++)
        ninsns += p->train[r]->ninsns;
    const char *text = compared(a, p, trace, false, STATUS_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, arena_printf(a, " %%), %u instructions\n", ninsns)));
    json_t *root = json_loads(compared(a, p, trace, true, STATUS_OK), JSON_REJECT_DUPLICATES, NULL), *x;
    CU_ASSERT(json_number_value(json_object_get(root, "planned_step_s")) > 0);
    CU_ASSERT_PTR_NULL(json_object_get(root, "planned_core_s")); /* ranks that do not share cores */
    json_decref(root);
    give_cores(a, p);
    text = compared(a, p, trace, false, STATUS_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, " of all ranks together (+0.0 %)\n"));
    root = json_loads(compared(a, p, trace, true, STATUS_OK), JSON_REJECT_DUPLICATES, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(root);
    double planned = 0, measured = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "rows"), i, x)
    {
        planned += json_number_value(json_object_get(x, "planned_s"));
        measured += json_number_value(json_object_get(x, "measured_s"));
        n += (uint32_t)json_integer_value(json_object_get(x, "instructions"));
    }
    CU_ASSERT_EQUAL(n, ninsns);
    CU_ASSERT_EQUAL(json_array_size(json_object_get(root, "instructions")), ninsns);
    CU_ASSERT_DOUBLE_EQUAL(measured, planned, 1e-6 * planned);
    double cores = json_number_value(json_object_get(root, "measured_core_s"));
    CU_ASSERT_DOUBLE_EQUAL(cores, measured, 1e-6 * measured);
    json_decref(root);
    json_decref(trace);
    plan_close(p);
    arena_free(a);
}

/* no trace of this plan: no instructions, no times on cores, more ranks, other instructions */
static void test_not_compared(void)
{
    static const char row[] = "{\"ph\": \"X\", \"pid\": %u, \"name\": \"%s\", \"cat\": \"compute\", "
                              "\"ts\": 0, \"dur\": 1, \"args\": {\"seq\": %u}}";
    static const struct {
        unsigned rank, seq;
        const char *op, *says; /* op: NULL = no event at all */
    } cases[] = {
        {0, 0, NULL, "it has no instructions"},
        {0, 0, "", "it does not say how long each instruction had a core ('llmrun --trace' does)"},
        {8, 0, "", "it has more ranks than the plan"},
        {0, 1000000, "", "it is the trace of another plan"},
        {0, 0, "NOSUCH", "it is the trace of another plan"},
    };
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &mixed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    give_cores(a, p);
    const struct insn *first = p->train[0]->insns;
    while (first->queue != QUEUE_COMPUTE)
        first++;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *op = cases[i].op && *cases[i].op ? cases[i].op : isa_info(first->op)->name;
        uint32_t seq = cases[i].seq ? cases[i].seq : first->seq;
        const char *event = cases[i].op ? arena_printf(a, row, cases[i].rank, op, seq) : "";
        json_t *trace = json_loads(arena_printf(a, "{\"traceEvents\": [%s]}", event), 0, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(trace);
        CU_ASSERT_PTR_NOT_NULL(strstr(compared(a, p, trace, false, STATUS_INPUT), cases[i].says));
        json_decref(trace);
    }
    plan_close(p);
    arena_free(a);
}

static void test_figures(void)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, &mixed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    json_t *root = load(p, NULL, 0);
    const json_t *data = json_object_get(root, "otherData");
    struct predicted f = plan_predicted(p);
    CU_ASSERT_EQUAL(json_number_value(json_object_get(data, "step_time_s")), f.step_time_s);
    CU_ASSERT_EQUAL(json_number_value(json_object_get(data, "bubble_fraction")), f.bubble_fraction);
    CU_ASSERT_EQUAL(json_number_value(json_object_get(data, "exposed_comm_fraction")),
                    f.exposed_comm_fraction);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(data, "peak_memory_bytes")),
                    (json_int_t)f.peak_memory_bytes);
    /* the last slice ends with the last instruction */
    const json_t *events = json_object_get(root, "traceEvents");
    double last_us = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        double end =
            json_number_value(json_object_get(e, "ts")) + json_number_value(json_object_get(e, "dur"));
        last_us = end > last_us ? end : last_us;
    }
    int64_t end_ns = 0;
    for (uint32_t r = 0; r < p->nroles; r++)
        end_ns = p->timeline->roles[r].end_ns > end_ns ? p->timeline->roles[r].end_ns : end_ns;
    CU_ASSERT(near(last_us, (double)end_ns * 1e-3));
    json_decref(root);
    plan_close(p);
    arena_free(a);
}

static const struct {
    const char *text, *ranks; /* NULL: refused */
} lists[] = {
    {"0", "0"},      {"7,0-2", "0 1 2 7"}, {"3,3,2-3", "2 3"}, {"all", "0 1 2 3 4 5 6 7"},
    {"", NULL},      {"8", NULL},          {"0,", NULL},       {"3-1", NULL},
    {"-1", NULL},    {"1-", NULL},         {"1x", NULL},       {"99999999999999", NULL},
    {"alles", NULL}, {"0-8", NULL},
};

static void test_lists(void)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct arena *a = arena_new();
        uint32_t *ranks = NULL, n = 0;
        const char *why = "";
        bool ok = trace_parse_ranks(a, lists[i].text, 8, &ranks, &n, &why);
        CU_ASSERT_EQUAL(ok, lists[i].ranks != NULL);
        const char *got = "";
        for (uint32_t k = 0; ok && k < n; k++)
            got = arena_printf(a, "%s%s%u", got, k ? " " : "", ranks[k]);
        if (lists[i].ranks)
            CU_ASSERT_STRING_EQUAL(got, lists[i].ranks);
        if (!ok)
            CU_ASSERT_STRING_EQUAL(
                why, arena_printf(a,
                                  "'%s' is not a list of ranks such as 0,8-15 or all, with ranks from "
                                  "0 to 7",
                                  lists[i].text));
        arena_free(a);
    }
}

void suite_trace(void);
void suite_trace(void)
{
    CU_pSuite s = CU_add_suite("trace", NULL, NULL);
    CU_add_test(s, "rules of the format", test_rules);
    CU_add_test(s, "one rank", test_one_rank);
    CU_add_test(s, "names of processes", test_names);
    CU_add_test(s, "figures of plan.json", test_figures);
    CU_add_test(s, "the plan's own trace compared with it", test_compared);
    CU_add_test(s, "what is no trace of the plan", test_not_compared);
    CU_add_test(s, "rank lists", test_lists);
}
