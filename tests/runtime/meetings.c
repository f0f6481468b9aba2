#include "tests/runtime/meetings.h"
#include "kernels/cpu/rows.h"

#include <CUnit/CUnit.h>
#include <pthread.h>
#include <string.h>

static const uint32_t identity[MEMBERS] = {0, 1, 2};
static const struct channel channels[] = {{MEMBERS, identity}, {2, identity}};

static void open_alone(struct meetings *t, uint32_t r, const struct mpi_plugin *mpi)
{
    struct error error = {""};
    const uint64_t each[MEMBERS] = {r == 0 ? ARENA : 0, r == 1 ? ARENA : 0, r == 2 ? ARENA : 0};
    const struct world_sizes sizes = {
        .nranks = MEMBERS, .each = each, .transport_bytes = transport_mpi_bytes(channels, 2)};
    CU_ASSERT_FATAL(mpi_ranks_open(&t->mpi[r], mpi, &error) == STATUS_OK);
    CU_ASSERT_FATAL(world_open(&t->world[r], &sizes, NULL, r, 1, &error) == STATUS_OK);
    t->world[r].mpi = t->mpi[r];
}

void open_meetings(struct meetings *t, const struct mpi_plugin *mpi)
{
    struct error error;
    struct world_sizes sizes = {
        .nranks = MEMBERS, .arena_bytes = ARENA, .transport_bytes = transport_shared_bytes(channels, 2)};
    *t = (struct meetings){.end = {NULL}};
    if (!mpi)
        CU_ASSERT_FATAL(world_open(&t->world[0], &sizes, NULL, 0, 1, &error) == STATUS_OK);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        if (mpi)
            open_alone(t, r, mpi);
        else
            t->world[r] = t->world[0];
        t->world[r].rank = r;
        CU_ASSERT_FATAL(transport_open(&t->end[r], &t->world[r], channels, 2) == STATUS_OK);
    }
}

static void *close_mpi(void *ranks)
{
    mpi_ranks_close(ranks);
    return NULL;
}

void close_meetings(struct meetings *t)
{
    pthread_t threads[MEMBERS];
    for (uint32_t r = 0; r < MEMBERS; r++) {
        transport_close(t->end[r]);
        if (r == 0 || t->mpi[r])
            world_close(&t->world[r]);
    }
    for (uint32_t r = 0; r < MEMBERS && t->mpi[0]; r++) /* they wait for each other */
        pthread_create(&threads[r], NULL, close_mpi, t->mpi[r]);
    for (uint32_t r = 0; r < MEMBERS && t->mpi[0]; r++)
        pthread_join(threads[r], NULL);
}

void meet(struct meetings *t, struct meeting *m, uint32_t n)
{
    bool done[MEMBERS] = {false};
    for (uint32_t r = 0; r < n; r++)
        CU_ASSERT(transport_post(t->end[r], &m[r]) == MEETING_OPEN);
    for (uint32_t left = n; left;)
        for (uint32_t r = 0; r < n; r++)
            if (!done[r] && transport_poll(t->end[r], &m[r]) == MEETING_DONE) {
                done[r] = true;
                left--;
            }
}

double get(const struct view *v, uint32_t i, uint32_t j)
{
    size_t at = (size_t)i * v->ld + j;
    switch (v->dtype) {
    case DTYPE_F32:
        return (double)((const float *)v->data)[at];
    case DTYPE_BF16:
        return (double)bf16_load(((const uint16_t *)v->data)[at]);
    case DTYPE_F16:
        return (double)f16_load(((const uint16_t *)v->data)[at]);
    case DTYPE_F64:
        return ((const double *)v->data)[at];
    case DTYPE_I32:
        return ((const int32_t *)v->data)[at];
    case NDTYPES:
        break;
    }
    return 0;
}

void put(const struct view *v, uint32_t i, uint32_t j, double x)
{
    size_t at = (size_t)i * v->ld + j;
    switch (v->dtype) {
    case DTYPE_F32:
        ((float *)v->data)[at] = (float)x;
        return;
    case DTYPE_BF16:
        ((uint16_t *)v->data)[at] = bf16_round((float)x);
        return;
    case DTYPE_F16:
        ((uint16_t *)v->data)[at] = f16_round((float)x);
        return;
    case DTYPE_F64:
        ((double *)v->data)[at] = x;
        return;
    case DTYPE_I32:
        ((int32_t *)v->data)[at] = (int32_t)x;
        return;
    case NDTYPES:
        return;
    }
}

/* small integers: exact in every dtype */
static double value(uint32_t member, uint32_t i, uint32_t j)
{
    return (double)((member * 5 + i * 3 + j * 7) % 11) - 4;
}

struct form {
    enum op op;
    uint32_t x_rows, y_rows; /* of t = ROWS */
    bool in_place;           /* x or y is the member's own part of the other, or both are one */
    uint32_t argument;
};
enum { ROWS = 5 };
static const struct form forms[] = {
    {OP_ALL_REDUCE, ROWS, ROWS, true, 0},
    {OP_ALL_REDUCE, ROWS, ROWS, true, 1},
    {OP_ALL_GATHER, ROWS, MEMBERS *ROWS, false, 0},
    {OP_ALL_GATHER, ROWS, MEMBERS *ROWS, true, 0},
    {OP_REDUCE_SCATTER, MEMBERS *ROWS, ROWS, false, 0},
    {OP_REDUCE_SCATTER, MEMBERS *ROWS, ROWS, true, 0},
    {OP_BROADCAST, ROWS, ROWS, true, 2},
    {OP_ALL_TO_ALL, MEMBERS *ROWS, MEMBERS *ROWS, false, 0},
    {OP_SHIFT, ROWS, ROWS, false, 1},
    {OP_SHIFT, ROWS, ROWS, false, MEMBERS - 1},
};

static double expected(const struct form *f, uint32_t member, uint32_t i, uint32_t j)
{
    double sum = 0, most = -100;
    uint32_t row = f->op == OP_REDUCE_SCATTER ? member * ROWS + i : i;
    for (uint32_t m = 0; m < MEMBERS; m++) {
        sum += value(m, row, j);
        most = value(m, row, j) > most ? value(m, row, j) : most;
    }
    if (f->op == OP_ALL_GATHER)
        return value(i / ROWS, i % ROWS, j);
    if (f->op == OP_BROADCAST)
        return value(f->argument, i, j);
    if (f->op == OP_ALL_TO_ALL)
        return value(i / ROWS, member * ROWS + i % ROWS, j);
    if (f->op == OP_SHIFT)
        return value((member + MEMBERS - f->argument) % MEMBERS, i, j);
    return f->argument ? most : sum;
}

static void check_form(struct meetings *t, const struct form *f, enum dtype dtype, uint32_t cols,
                       uint32_t gap, uint64_t number)
{
    struct meeting m[MEMBERS];
    uint32_t size = isa_dtype_bytes(dtype);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        uint8_t *x = t->world[r].arena[r] + 1024, *y = t->world[r].arena[r] + ARENA / 2;
        uint32_t ld = cols + gap * (r + 1); /* members may differ */
        size_t part = (size_t)r * ROWS * ld * size;
        if (f->in_place)
            y = f->op == OP_ALL_GATHER ? x : f->op == OP_REDUCE_SCATTER ? x + part : x;
        if (f->in_place && f->op == OP_ALL_GATHER)
            x = y + part;
        m[r] = (struct meeting){.op = f->op,
                                .channel = 0,
                                .self = r,
                                .number = number,
                                .argument = f->argument,
                                .x = {x, dtype, false, f->x_rows, cols, ld},
                                .y = {y, dtype, false, f->y_rows, cols, ld}};
        for (uint32_t i = 0; i < f->x_rows; i++)
            for (uint32_t j = 0; j < cols; j++)
                put(&m[r].x, i, j, value(r, i, j));
    }
    meet(t, m, MEMBERS);
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < MEMBERS; r++)
        for (uint32_t i = 0; i < f->y_rows; i++)
            for (uint32_t j = 0; j < cols; j++)
                wrong += get(&m[r].y, i, j) != expected(f, r, i, j);
    CU_ASSERT(wrong == 0);
}

void check_forms(struct meetings *t)
{
    uint64_t number = 0;
    for (uint32_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (uint32_t d = 0; d < NDTYPES; d++)
            for (uint32_t gap = 0; gap < 4; gap += 3)
                check_form(t, &forms[f], (enum dtype)d, gap ? 7 : 4000, gap, number++);
}
