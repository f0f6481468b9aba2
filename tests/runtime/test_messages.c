/* Ranks that share no memory, over a fake MPI: meetings by messages are, bit for bit, those in shared memory, in one round
 * and in several; operands are not touched while they travel; what is lost or of another size is said.  And what such
 * ranks say to each other: the first meeting, sums, how far they are, the end. */

#include "tests/fake/fake_mpi.h"
#include "tests/runtime/meetings.h"

#include <CUnit/CUnit.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAGS = 32767 };

static const struct mpi_plugin *start(uint32_t nranks, uint64_t seed)
{
    return fake_mpi_start(&(struct fake_mpi_setup){.nranks = nranks, .tags = TAGS, .seed = seed});
}

static void expect_no_complaints(void)
{
    char text[200];
    fake_mpi_complaints(text, sizeof text);
    CU_ASSERT_STRING_EQUAL(text, "");
    if (text[0])
        printf("\n    %s", text);
}

/* ---- meetings ---- */

static void test_forms(void)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct meetings t;
        open_meetings(&t, start(MEMBERS, seed));
        check_forms(&t);
        close_meetings(&t);
        expect_no_complaints();
    }
}

/* shares larger than a piece, so that meetings go in rounds */
struct large {
    enum op op;
    uint32_t x_rows, y_rows, argument;
    bool in_place;
};
enum { LARGE_ROWS = 1100, LARGE_COLS = 1300, GAP = 3 }; /* 5.7 MB in fp32: a piece of three members is 5.6 MB */
static const struct large large[] = {
    {OP_ALL_REDUCE, 3 * LARGE_ROWS, 3 * LARGE_ROWS, 0, true},
    {OP_ALL_REDUCE, 3 * LARGE_ROWS, 3 * LARGE_ROWS, 1, true},
    {OP_ALL_GATHER, LARGE_ROWS, 3 * LARGE_ROWS, 0, false},
    {OP_REDUCE_SCATTER, 3 * LARGE_ROWS, LARGE_ROWS, 0, false},
    {OP_ALL_TO_ALL, 3 * LARGE_ROWS, 3 * LARGE_ROWS, 0, false},
    {OP_SHIFT, LARGE_ROWS, LARGE_ROWS, 2, false},
    {OP_BROADCAST, LARGE_ROWS, LARGE_ROWS, 1, true},
};

static void fill(uint8_t *arena, uint32_t seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < ARENA / sizeof(float); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ((float *)(void *)arena)[i] = (float)(int32_t)(state >> 32) * 1e-5f;
    }
}

static void meet_large(struct meetings *t, const struct large *l, uint32_t gap, uint64_t number)
{
    struct meeting m[MEMBERS];
    for (uint32_t r = 0; r < MEMBERS; r++) {
        uint8_t *x = t->world[r].arena[r], *y = l->in_place ? x : x + ARENA / 2;
        uint32_t ld = LARGE_COLS + gap * (r + 1);
        fill(x, r + 1);
        m[r] = (struct meeting){.op = l->op,
                                .self = r,
                                .number = number,
                                .argument = l->argument,
                                .x = {x, DTYPE_F32, false, l->x_rows, LARGE_COLS, ld},
                                .y = {y, DTYPE_F32, false, l->y_rows, LARGE_COLS, ld}};
    }
    meet(t, m, MEMBERS);
}

/* all of the arenas, what lies between the rows of operands included */
static void test_large(void)
{
    struct meetings shared, messages;
    open_meetings(&shared, NULL);
    open_meetings(&messages, start(MEMBERS, 7));
    for (uint32_t i = 0; i < sizeof large / sizeof *large; i++) {
        meet_large(&shared, &large[i], i % 2 ? GAP : 0, i);
        meet_large(&messages, &large[i], i % 2 ? GAP : 0, i);
        for (uint32_t r = 0; r < MEMBERS; r++)
            CU_ASSERT(!memcmp(shared.world[r].arena[r], messages.world[r].arena[r], ARENA));
    }
    close_meetings(&shared);
    close_meetings(&messages);
    expect_no_complaints();
}

/* the sender of a pair may be ahead by four meetings; each is received as it was sent */
static void test_pairs(void)
{
    struct meetings t;
    open_meetings(&t, start(MEMBERS, 3));
    float *a = (float *)(void *)t.world[0].arena[0], *b = (float *)(void *)t.world[1].arena[1];
    struct meeting send[5], receive;
    for (uint32_t k = 0; k < 5; k++) {
        struct view x = {a + 32 * k, DTYPE_F32, false, 2, 3, 4};
        for (uint32_t i = 0; i < 8; i++)
            a[32 * k + i] = (float)(10 * k + i);
        send[k] = (struct meeting){.op = OP_SEND, .channel = 1, .number = k, .x = x, .y = x};
        CU_ASSERT(transport_post(t.end[0], &send[k]) == (k < 4 ? MEETING_OPEN : MEETING_REFUSED));
    }
    for (uint32_t k = 0; k < 4; k++) {
        struct view y = {b, DTYPE_F32, false, 2, 3, 5};
        for (uint32_t i = 0; i < 10; i++)
            b[i] = -1;
        receive = (struct meeting){.op = OP_RECV, .channel = 1, .self = 1, .number = k, .x = y, .y = y};
        CU_ASSERT(transport_post(t.end[1], &receive) == MEETING_OPEN);
        while (transport_poll(t.end[1], &receive) != MEETING_DONE)
            ;
        while (transport_poll(t.end[0], &send[k]) != MEETING_DONE)
            ;
        CU_ASSERT(b[0] == (float)(10 * k) && b[2] == b[0] + 2 && b[5] == b[0] + 4 && b[7] == b[0] + 6);
        CU_ASSERT(b[3] == -1 && b[4] == -1 && b[8] == -1);
    }
    close_meetings(&t);
    expect_no_complaints();
}

/* Two meetings of the same ranks, posted in different orders, find their own messages. */
static void test_two_channels(void)
{
    struct meetings t;
    struct meeting all[MEMBERS], pair[2];
    open_meetings(&t, start(MEMBERS, 5));
    for (uint32_t r = 0; r < MEMBERS; r++) {
        float *v = (float *)(void *)t.world[r].arena[r];
        struct view x = {v, DTYPE_F32, false, 1, 1, 1}, y = {v + 64, DTYPE_F32, false, 1, 1, 1};
        v[0] = (float)(r + 1);
        v[64] = (float)(100 + r);
        all[r] = (struct meeting){.op = OP_BROADCAST, .self = r, .x = x, .y = x};
        if (r < 2)
            pair[r] = (struct meeting){.op = r ? OP_RECV : OP_SEND, .channel = 1, .self = r, .x = y, .y = y};
    }
    transport_post(t.end[0], &all[0]);
    transport_post(t.end[0], &pair[0]);
    transport_post(t.end[1], &pair[1]);
    transport_post(t.end[1], &all[1]);
    transport_post(t.end[2], &all[2]);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        while (transport_poll(t.end[r], &all[r]) != MEETING_DONE)
            ;
        while (r < 2 && transport_poll(t.end[r], &pair[r]) != MEETING_DONE)
            ;
        CU_ASSERT(((float *)(void *)t.world[r].arena[r])[0] == 1);
    }
    CU_ASSERT(((float *)(void *)t.world[1].arena[1])[64] == 100);
    close_meetings(&t);
    expect_no_complaints();
}

/* a rank of a job that ends in the middle of something, so that the others are not waited for */
static void forget(struct mpi_ranks *m)
{
    free(m->pulses);
    free(m->notices);
    free(m->hosts);
    free(m->context);
    free(m);
}

/* more meetings than windows: the last one is refused until another has ended */
static void test_windows(void)
{
    enum { CHANNELS = 9 };
    static const uint32_t both[] = {0, 1};
    struct channel channels[CHANNELS];
    struct world world;
    struct transport *end;
    struct mpi_ranks *mpi;
    struct error error;
    for (uint32_t i = 0; i < CHANNELS; i++)
        channels[i] = (struct channel){2, both};
    const struct world_sizes sizes = {
        .nranks = 2, .arena_bytes = 4096, .transport_bytes = transport_mpi_bytes(channels, CHANNELS)};
    CU_ASSERT_FATAL(mpi_ranks_open(&mpi, start(2, 1), &error) == STATUS_OK);
    CU_ASSERT_FATAL(world_open(&world, &sizes, NULL, 0, 1, &error) == STATUS_OK);
    world.mpi = mpi;
    CU_ASSERT_FATAL(transport_open(&end, &world, channels, CHANNELS) == STATUS_OK);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        struct view v = {world.arena[0] + 64 * i, DTYPE_F32, false, 1, 4, 4};
        struct meeting m = {.op = OP_SEND, .channel = i, .x = v, .y = v};
        CU_ASSERT(transport_post(end, &m) == (i < 8 ? MEETING_OPEN : MEETING_REFUSED));
    }
    transport_close(end);
    /* and tags: a pair with nine channels needs 36 of them */
    for (uint32_t tags = 35; tags <= 36; tags++) {
        mpi->place.tags = tags;
        bool opens = transport_open(&end, &world, channels, CHANNELS) == STATUS_OK;
        CU_ASSERT_EQUAL(opens, tags == 36);
        if (opens)
            transport_close(end);
    }
    CU_ASSERT_STRING_EQUAL(world.control->message,
                           "two ranks share more groups than this MPI library has tags for (35)");
    CU_ASSERT_EQUAL(world_failed(&world), STATUS_MISMATCH);
    world_close(&world);
    forget(mpi);
}

/* a message that is lost, one of another size, and an operand that does not fit its operation */
static void test_failures(void)
{
    static const struct {
        uint64_t lose;
        uint32_t rows[2];
        enum status status;
        const char *says; /* of rank 0 or rank 1 */
    } cases[] = {
        {MEMBERS + 1, {1, 1}, STATUS_WORLD, "a message to rank 1 is lost: the fake lost it"},
        {0, {1, 2}, STATUS_BUG,
         "ranks 1 and 0 meet with different operations: RECV of f32 here takes 32 bytes, and 16 came"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_mpi_setup s = {.nranks = MEMBERS, .tags = TAGS, .lose_send = cases[i].lose ? 1 : 0};
        struct meetings t;
        open_meetings(&t, fake_mpi_start(&s));
        struct meeting m[2];
        for (uint32_t r = 0; r < 2; r++) {
            struct view v = {t.world[r].arena[r], DTYPE_F32, false, cases[i].rows[r], 4, 4};
            m[r] = (struct meeting){.op = r ? OP_RECV : OP_SEND, .channel = 1, .self = r, .x = v, .y = v};
            CU_ASSERT(transport_post(t.end[r], &m[r]) == MEETING_OPEN);
        }
        uint32_t who = cases[i].lose ? 0 : 1;
        enum meeting_state state = MEETING_OPEN;
        for (int polls = 0; polls < 100 && state == MEETING_OPEN; polls++)
            state = transport_poll(t.end[who], &m[who]);
        CU_ASSERT_EQUAL(state, MEETING_FAILED);
        CU_ASSERT_EQUAL(world_failed(&t.world[who]), cases[i].status);
        CU_ASSERT_STRING_EQUAL(t.world[who].control->message, cases[i].says);
        close_meetings(&t);
    }
    struct meetings t;
    open_meetings(&t, start(MEMBERS, 1));
    struct view x = {t.world[0].arena[0], DTYPE_F32, false, 4, 3, 3}, y = x;
    y.rows = 5;
    CU_ASSERT(transport_post(t.end[0], &(struct meeting){.op = OP_ALL_GATHER, .x = x, .y = y}) == MEETING_FAILED);
    CU_ASSERT_STRING_EQUAL(t.world[0].control->message, "ALL_GATHER of 4 to 5 rows among 3 ranks");
    close_meetings(&t);
}

/* ---- what ranks say to each other ---- */

enum { RANKS = 4 };
struct rank {
    const struct mpi_plugin *plugin;
    uint32_t rank; /* found by MPI */
    const char *plan;
    uint32_t plan_ranks;
    uint64_t step;
    bool other_build;
    enum status own, status;
    struct error error;
    uint64_t sum, many;
};

static void add_up(struct rank *k, struct mpi_ranks *m)
{
    struct world_sizes sizes = {.nranks = RANKS, .arena_bytes = 4096};
    struct world w;
    struct error error;
    uint64_t *values = calloc(10000, sizeof *values);
    CU_ASSERT_FATAL(values && world_open(&w, &sizes, NULL, m->place.rank, 1, &error) == STATUS_OK);
    w.remote = &m->remote;
    w.mpi = m;
    for (uint32_t i = 0; i < 10000; i++) /* more than one message's */
        values[i] = i + m->place.rank;
    k->status = world_barrier(&w);
    if (k->status == STATUS_OK)
        k->status = world_sum(&w, values, 10000);
    for (uint32_t i = 0; i < 10000; i++)
        k->many += values[i] != RANKS * i + 6;
    /* how far they are reaches rank 0, and their sum all others */
    atomic_store(&w.ranks[w.rank].progress, 10 + w.rank);
    atomic_store(&w.ranks[w.rank].head[2], 20 + w.rank);
    for (int64_t end = world_now_ns() + 2200000000; world_now_ns() < end; usleep(10000))
        world_look(&w);
    for (uint32_t r = 0; r < RANKS; r++)
        k->sum += atomic_load(&w.ranks[r].progress) + (w.rank ? 0 : atomic_load(&w.ranks[r].head[2]));
    world_close(&w);
    free(values);
}

static void *run(void *argument)
{
    struct rank *k = argument;
    struct mpi_ranks *m;
    k->status = mpi_ranks_open(&m, k->plugin, &k->error);
    if (k->status != STATUS_OK)
        return NULL;
    k->rank = m->place.rank;
    m->patience_s = 5;
    if (k->own != STATUS_OK)
        error_set(&k->error, k->own, "no such file");
    struct mpi_start start = {k->own, k->plan, k->plan_ranks, k->step, 7 + k->other_build};
    k->status = mpi_ranks_join(m, &start, &k->error);
    if (k->status == STATUS_OK)
        add_up(k, m);
    mpi_ranks_close(m);
    return NULL;
}

static const char plan[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void set_up(struct rank *ranks)
{
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r] = (struct rank){.plugin = start(RANKS, 0), .plan = plan, .plan_ranks = RANKS};
}

/* ranks by number, although threads find theirs as they come */
static void run_all(struct rank *ranks, struct rank **by_number)
{
    pthread_t threads[RANKS];
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_create(&threads[r], NULL, run, &ranks[r]);
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < RANKS; r++)
        by_number[ranks[r].rank] = &ranks[r];
    expect_no_complaints();
}

static void test_run(void)
{
    struct rank ranks[RANKS], *k[RANKS];
    set_up(ranks);
    run_all(ranks, k);
    for (uint32_t r = 0; r < RANKS; r++) {
        CU_ASSERT_EQUAL(k[r]->status, STATUS_OK);
        CU_ASSERT_STRING_EQUAL(k[r]->error.text, "");
        CU_ASSERT_EQUAL(k[r]->many, 0);
        /* rank 0: 10 to 13, and 20 to 23; the others: rank 0's sum, and their own */
        CU_ASSERT_EQUAL(k[r]->sum, r ? 46 + 10 + r : 46 + 86);
        if (k[r]->sum != (r ? 46 + 10 + r : 46 + 86))
            printf("\n    rank %u: %llu", r, (unsigned long long)k[r]->sum);
    }
}

/* no run: all end alike, and rank 0 alone says why */
__attribute__((format(printf, 3, 0))) static void expect_refusal(struct rank *const *k, enum status status,
                                                                 const char *format)
{
    char want[300];
    uint32_t other = 0;
    for (uint32_t r = 1; r < RANKS; r++)
        other = k[r]->plan != plan || k[r]->step || k[r]->other_build || k[r]->own != STATUS_OK ? r : other;
    snprintf(want, sizeof want, format, other);
    for (uint32_t r = 0; r < RANKS; r++) {
        CU_ASSERT_EQUAL(k[r]->status, status);
        CU_ASSERT_STRING_EQUAL(k[r]->error.text, r ? "" : want);
        if (strcmp(k[r]->error.text, r ? "" : want))
            printf("\n    rank %u: %s", r, k[r]->error.text);
    }
}

static void test_refusals(void)
{
    struct rank ranks[RANKS], *k[RANKS];
    set_up(ranks);
    ranks[RANKS - 1].own = STATUS_INPUT;
    run_all(ranks, k);
    expect_refusal(k, STATUS_INPUT, "rank %u: no such file");
    do { /* another plan than rank 0's, on another rank than that */
        set_up(ranks);
        ranks[RANKS - 1].plan = "ff23456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        run_all(ranks, k);
    } while (k[0]->plan != plan);
    expect_refusal(k, STATUS_MISMATCH,
                   "rank %u has another plan than rank 0: ff23456789abcdef..., not 0123456789abcdef...");
    do {
        set_up(ranks);
        ranks[RANKS - 1].step = 20;
        run_all(ranks, k);
    } while (k[0]->step);
    expect_refusal(k, STATUS_MISMATCH, "rank %u would go on from step 20, rank 0 from step 0");
    do {
        set_up(ranks);
        ranks[RANKS - 1].other_build = true;
        run_all(ranks, k);
    } while (k[0]->other_build);
    char host[64] = "", want[128];
    gethostname(host, sizeof host - 1);
    snprintf(want, sizeof want, "rank %%u on %s runs another build of llmrun than rank 0", host);
    expect_refusal(k, STATUS_MISMATCH, want);
    set_up(ranks);
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r].plan_ranks = 8;
    run_all(ranks, k);
    expect_refusal(k, STATUS_MISMATCH,
                   "4 ranks were started, the plan is for 8: mpirun -n 8 llmrun ..., or srun --mpi=pmix -n 8");
}

static void test_not_open(void)
{
    struct mpi_ranks *m = NULL;
    struct error error = {""};
    struct fake_mpi_setup s = {.nranks = 1, .tags = TAGS, .refuse = "MPI_Init_thread() fails"};
    CU_ASSERT_EQUAL(mpi_ranks_open(&m, fake_mpi_start(&s), &error), STATUS_WORLD);
    CU_ASSERT_STRING_EQUAL(error.text, "--transport mpi: MPI_Init_thread() fails");
    mpi_ranks_close(NULL);
    const struct mpi_plugin *p = NULL;
    setenv("LLMRUN_MPI", "/nonexistent/llmrun-mpi.so", 1);
    CU_ASSERT_EQUAL(mpi_load(&p, &error), STATUS_WORLD);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "needs the plugin /nonexistent/llmrun-mpi.so, which is not there"));
    setenv("LLMRUN_MPI", "README.md", 1);
    CU_ASSERT_EQUAL(mpi_load(&p, &error), STATUS_WORLD);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "--transport mpi needs its plugin: "));
    unsetenv("LLMRUN_MPI");
}

struct failing {
    struct mpi_ranks *ranks;
    bool fails;
};

static void *fail(void *argument)
{
    const struct failing *f = argument;
    char words[40];
    snprintf(words, sizeof words, "the sky falls on %u", f->ranks->place.rank);
    f->ranks->patience_s = 1;
    if (f->fails)
        mpi_ranks_abort(f->ranks, STATUS_INPUT, words);
    return NULL;
}

/* what the ranks of a job say when some of them fail */
static void fail_together(const bool *fails, char *text, size_t size)
{
    struct failing f[RANKS];
    pthread_t threads[RANKS];
    const struct mpi_plugin *plugin = start(RANKS, 0);
    struct error error;
    fflush(stderr);
    int old = dup(STDERR_FILENO);
    FILE *said = tmpfile();
    CU_ASSERT_FATAL(said != NULL);
    dup2(fileno(said), STDERR_FILENO);
    for (uint32_t r = 0; r < RANKS; r++) {
        f[r].fails = fails[r];
        CU_ASSERT_FATAL(mpi_ranks_open(&f[r].ranks, plugin, &error) == STATUS_OK);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_create(&threads[r], NULL, fail, &f[r]);
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    close(old);
    rewind(said);
    text[fread(text, 1, size - 1, said)] = 0;
    fclose(said);
    for (uint32_t r = 0; r < RANKS; r++)
        forget(f[r].ranks);
}

/* Of ranks that fail at once the first says why; the job ends with the failure's code. */
static void test_abort(void)
{
    static const struct {
        bool fails[RANKS];
        const char *says;
    } cases[] = {
        {{true}, "llmrun: rank 0: the sky falls on 0\n"},
        {{false, false, true}, "llmrun: rank 2: the sky falls on 2\n"},
        {{false, true, true, true}, "llmrun: rank 1: the sky falls on 1\n"},
        {{true, true, true, true}, "llmrun: rank 0: the sky falls on 0\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        fail_together(cases[i].fails, text, sizeof text);
        CU_ASSERT_STRING_EQUAL(text, cases[i].says);
        CU_ASSERT_EQUAL(fake_mpi_aborted(), STATUS_INPUT);
    }
}

void suite_messages(void);
void suite_messages(void)
{
    CU_pSuite s = CU_add_suite("messages", NULL, NULL);
    CU_add_test(s, "every operation, dtype, stride, in place", test_forms);
    CU_add_test(s, "rounds: the bits of shared memory", test_large);
    CU_add_test(s, "pairs", test_pairs);
    CU_add_test(s, "channels that share ranks", test_two_channels);
    CU_add_test(s, "windows and tags", test_windows);
    CU_add_test(s, "lost messages and wrong sizes", test_failures);
    CU_add_test(s, "joining, sums and pulses", test_run);
    CU_add_test(s, "no run", test_refusals);
    CU_add_test(s, "what cannot be opened", test_not_open);
    CU_add_test(s, "aborting", test_abort);
}
