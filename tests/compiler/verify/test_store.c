/* The verifier's memory model against a map of single bytes, and its sets of contributions against sets of
 * numbers. */

#include "compiler/verify/store.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

enum { BYTES = 384, PITCH = 16 };
/* what a byte holds: which write, and which row and column of it; 0 = nothing */
struct byte {
    uint32_t write;
    int64_t row, col;
};

/* two buffers that share the bytes from 256 on */
static struct program *two_buffers(void)
{
    struct program *p = program_new(0, 1);
    struct buffer b = {.name = "x",
                       .kind = BUFFER_STEP,
                       .dtype = DTYPE_F32,
                       .ring = NONE,
                       .bytes = BYTES,
                       .stride = BYTES,
                       .bucket = NONE,
                       .shard_slot = NONE};
    program_buffer(p, &b);
    b.offset = 256;
    b.bytes = b.stride = BYTES - 256;
    program_buffer(p, &b);
    p->arena_bytes = BYTES;
    return p;
}

static struct operand draw(uint64_t *random)
{
    struct operand o = {.dtype = DTYPE_F32, .slot = UINT16_MAX};
    o.buffer = random_below(random, 5) == 0;
    uint32_t room = o.buffer ? (BYTES - 256) / 4 : BYTES / 4;
    do {
        bool grid = random_below(random, 3) != 0; /* mostly on one pitch, as compilers do */
        o.ld = grid ? PITCH / 4 : 1 + random_below(random, 6);
        o.cols = 1 + random_below(random, o.ld);
        o.rows = 1 + random_below(random, 8);
        o.offset = 4u * random_below(random, room);
    } while (o.offset / 4 + (o.rows - 1) * o.ld + o.cols > room);
    if (o.rows == 1)
        o.ld = o.cols;
    return o;
}

static size_t address(const struct operand *o, uint32_t i, uint32_t j)
{
    return (o->buffer ? 256 : 0) + o->offset + ((size_t)i * o->ld + j) * 4;
}

static void check_read(struct store *s, const struct operand *o, const struct byte *map,
                       const struct byte *owner, uint32_t *known)
{
    struct parts *p = calloc(1, sizeof *p);
    if (store_read(s, o, p)) {
        uint32_t seen = 0;
        ++*known;
        for (uint32_t k = 0; k < p->n; k++)
            for (uint32_t i = 0; i < p->at[k].rows; i++)
                for (uint32_t j = 0; j < p->at[k].cols; j++) {
                    size_t at = address(o, p->at[k].row + i, p->at[k].col + j);
                    const struct value *v = &p->at[k].value;
                    bool same = v->kind == VALUE_ZERO
                                    ? map[at].write && map[at].row < 0
                                    : map[at].write == v->node && map[at].row == v->row.lo + i &&
                                          map[at].col == v->col.lo + j;
                    CU_ASSERT_FATAL(same && owner[at].write == o->buffer + 1);
                    seen++;
                }
        CU_ASSERT_EQUAL_FATAL(seen, o->rows * o->cols);
    }
    free(p);
}

static void test_memory(void)
{
    uint32_t known = 0, reads = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct arena *a = arena_new();
        struct program *p = two_buffers();
        const struct mesh plain = mesh_new((const uint32_t[NAXES]){1, 1, 1, 1},
                                           (const enum axis[NAXES]){AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP});
        struct store *s = store_new(a, p, &plain);
        struct byte map[BYTES] = {{0, 0, 0}}, owner[BYTES] = {{0, 0, 0}};
        uint64_t random = seed;
        struct operand last = draw(&random);
        for (uint32_t k = 1; k <= 60; k++) {
            struct operand o = random_below(&random, 3) ? draw(&random) : last;
            if (random_below(&random, 2)) {
                bool zero = random_below(&random, 4) == 0;
                struct part part = {0,      o.rows, 0,
                                    o.cols, k,      {.kind = zero ? VALUE_ZERO : VALUE_NODES, .node = k}};
                part.value.row = extent_new(100 * k, o.rows);
                part.value.col = extent_new(7, o.cols);
                store_write(s, &o, &part, k);
                for (uint32_t i = 0; i < o.rows; i++)
                    for (uint32_t j = 0; j < o.cols; j++) {
                        map[address(&o, i, j)] =
                            (struct byte){k, zero ? -1 : (int64_t)(100 * k + i), 7 + (int64_t)j};
                        owner[address(&o, i, j)].write = o.buffer + 1;
                    }
                last = o;
            } else {
                reads++;
                check_read(s, &o, map, owner, &known);
            }
        }
        program_free(p);
        arena_free(a);
    }
    CU_ASSERT(known * 20 > reads); /* not all of them may be refused */
}

static bool knows_rows(struct store *s, struct operand o, uint32_t row, uint32_t rows)
{
    struct parts *p = calloc(1, sizeof *p);
    o.offset += (uint64_t)row * o.ld * 4;
    o.rows = rows;
    bool known = !rows || (store_read(s, &o, p) && p->n == 1 && p->at[0].value.node == 1 && p->at[0].value.row.lo == row);
    free(p);
    return known;
}

/* Rows of a matrix are written anew, wherever it begins: those before and behind them stay known. */
static void test_rows(void)
{
    struct arena *a = arena_new();
    struct program *p = two_buffers();
    const struct mesh plain = mesh_new((const uint32_t[NAXES]){1, 1, 1, 1},
                                       (const enum axis[NAXES]){AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP});
    for (uint32_t k = 0; k < 500; k++) {
        uint32_t cols = 1 + k % 5, from = k / 20 % 5, to = from + 1 + k / 100;
        struct operand o = {.dtype = DTYPE_F32, .slot = UINT16_MAX, .offset = k / 5 % 4 * 12, .rows = 5, .cols = cols, .ld = cols};
        if (to > o.rows)
            continue;
        struct store *s = store_new(a, p, &plain);
        struct part part = {0, 5, 0, cols, 1, {.kind = VALUE_NODES, .node = 1}},
                    some = {0, to - from, 0, cols, 2, {.kind = VALUE_NODES, .node = 2}};
        part.value.row = extent_new(0, 5);
        some.value.row = extent_new(0, to - from);
        part.value.col = some.value.col = extent_new(0, cols);
        struct operand x = o;
        x.offset += (uint64_t)from * cols * 4;
        x.rows = to - from;
        store_write(s, &o, &part, 1);
        store_write(s, &x, &some, 2);
        CU_ASSERT(knows_rows(s, o, 0, from) && knows_rows(s, o, to, 5 - to));
    }
    program_free(p);
    arena_free(a);
}

/* Rows that were written apart are one part where they go on in memory as in their matrix, and in nothing else. */
static void test_joined_rows(void)
{
    struct term term = {0};
    const struct {
        uint32_t node, nterms;
        int64_t row, col, step; /* of what lies below rows 4 to 7 of node 1 */
        uint32_t parts;
    } cases[] = {{1, 0, 8, 0, 0, 1}, {2, 0, 8, 0, 0, 2}, {1, 0, 7, 0, 0, 2}, {1, 0, 9, 0, 0, 2},
                 {1, 0, 0, 0, 0, 2}, {1, 0, 8, 2, 0, 2}, {1, 0, 8, 0, 4, 2}, {1, 1, 8, 0, 0, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct program *p = two_buffers();
        const struct mesh mesh = mesh_new((const uint32_t[NAXES]){3, 1, 1, 1},
                                          (const enum axis[NAXES]){AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP});
        struct store *s = store_new(a, p, &mesh);
        struct operand whole = {.dtype = DTYPE_F32, .slot = UINT16_MAX, .rows = 8, .cols = 2, .ld = 2}, half = whole;
        half.rows = 4;
        struct value v = {.kind = VALUE_NODES, .node = 1, .row = extent_new(4, 4), .col = extent_new(0, 2)};
        store_write_whole(s, &half, &v, 1);
        v.node = cases[i].node;
        v.nterms = cases[i].nterms;
        v.terms = &term;
        v.row = extent_new(cases[i].row, 4);
        v.row.step[AXIS_TP] = cases[i].step;
        v.col.lo = cases[i].col;
        half.offset = 4 * 2 * 4;
        store_write_whole(s, &half, &v, 2);
        struct parts *parts = ARENA_NEW(a, struct parts);
        CU_ASSERT(store_read(s, &whole, parts) && parts->n == cases[i].parts);
        const struct part *x = &parts->at[0];
        CU_ASSERT(x->row == 0 && x->rows == (parts->n == 1 ? 8 : 4) && x->value.row.lo == 4 && x->value.row.len == x->rows);
        program_free(p);
        arena_free(a);
    }
}

/* ---- parts by slots ---- */

/* Three ranks' parts are two rows of four columns each: known where a matrix lies there with all of their
 * rows.  Other columns or another type are not believed, nor rows that only some of the ranks would find. */
static void test_own_rows(void)
{
    static const struct {
        uint32_t first, rows, cols; /* of the matrix: these rows are there */
        enum dtype dtype;
        bool known;
    } cases[] = {{0, 6, 4, DTYPE_F32, true},   {0, 8, 4, DTYPE_F32, true},   {0, 3, 8, DTYPE_F32, false},
                 {0, 12, 2, DTYPE_F32, false}, {0, 1, 24, DTYPE_F32, false}, {0, 5, 4, DTYPE_F32, false},
                 {1, 5, 4, DTYPE_F32, false},  {0, 6, 4, DTYPE_I32, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct program *p = two_buffers();
        const struct mesh mesh = mesh_new((const uint32_t[NAXES]){3, 1, 1, 1},
                                          (const enum axis[NAXES]){AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP});
        uint16_t slot = (uint16_t)program_slot(p, "tp", SLOT_COORD, AXIS_BIT(AXIS_TP), 2);
        struct store *s = store_new(a, p, &mesh);
        struct operand whole = {.dtype = (uint8_t)cases[i].dtype,
                                .slot = UINT16_MAX,
                                .rows = cases[i].rows,
                                .cols = cases[i].cols,
                                .ld = cases[i].cols};
        whole.offset = (uint64_t)cases[i].first * cases[i].cols * 4;
        struct value v = {.kind = VALUE_NODES, .node = 1};
        v.row = extent_new(cases[i].first, cases[i].rows);
        v.col = extent_new(0, cases[i].cols);
        store_write_whole(s, &whole, &v, 1);
        struct operand own = {
            .dtype = DTYPE_F32, .slot = slot, .slot_stride = 2 * 4 * 4, .rows = 2, .cols = 4, .ld = 4};
        struct parts *parts = ARENA_NEW(a, struct parts);
        bool known = store_read(s, &own, parts);
        CU_ASSERT_EQUAL(known, cases[i].known);
        if (known) {
            const struct part *x = &parts->at[0];
            struct extent rows = extent_new(0, 2), cols = extent_new(0, 4);
            extent_move(&rows, &mesh, AXIS_BIT(AXIS_TP), 2);
            CU_ASSERT(parts->n == 1 && x->row == 0 && x->col == 0 && x->rows == 2 && x->cols == 4);
            CU_ASSERT(x->value.node == 1 && extent_same(&x->value.row, &rows) &&
                      extent_same(&x->value.col, &cols));
        }
        program_free(p);
        arena_free(a);
    }
}

/* ---- contributions ---- */

enum { DOMAIN = 240 };

/* elements of a set on one rank, as counts */
static void count(const struct blocks *b, const uint32_t coord[NDIGITS], uint32_t *n)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const struct block *x = &b->at[i];
        bool here = true;
        int64_t lo = x->extent.lo;
        for (uint32_t a = 0; a < NDIGITS; a++) {
            lo += x->extent.step[a] * coord[a];
            here = here && !(x->first & AXIS_BIT(a) && coord[a]);
        }
        for (int64_t k = 0; here && k < x->count; k++)
            for (int64_t e = 0; e < x->extent.len; e++) {
                int64_t at = lo + k * x->stride + e;
                CU_ASSERT_FATAL(at >= 0 && at < DOMAIN);
                n[at]++;
            }
    }
}

static struct block draw_block(uint64_t *random, int64_t tp, int64_t dp)
{
    struct block b = {.extent = extent_new(0, 1 + random_below(random, 6)), .count = 1};
    int64_t end = b.extent.len;
    if (random_below(random, 3) == 0) {
        b.count = 1 + random_below(random, 4);
        b.stride = b.extent.len + random_below(random, 8);
        end = (b.count - 1) * b.stride + b.extent.len;
    }
    if (random_below(random, 2))
        b.extent.step[AXIS_TP] = random_below(random, 2) ? end : b.extent.len;
    else if (random_below(random, 3) == 0)
        b.first = AXIS_BIT(AXIS_TP);
    if (random_below(random, 2))
        b.extent.step[AXIS_DP] = end + b.extent.step[AXIS_TP] * (tp - 1) + random_below(random, 4);
    int64_t span = end + b.extent.step[AXIS_TP] * (tp - 1) + b.extent.step[AXIS_DP] * (dp - 1);
    if (span >= DOMAIN)
        return draw_block(random, tp, dp);
    b.extent.lo = random_below(random, (uint32_t)(DOMAIN - span));
    return b;
}

/* Unions and reductions that succeed must hold each element that they should, once. */
static void test_contributions(void)
{
    uint32_t unions = 0, reductions = 0;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct arena *a = arena_new();
        uint64_t random = seed;
        int64_t tp = 1 + random_below(&random, 3), dp = 1 + random_below(&random, 3);
        struct blocks set = {0}, reduced;
        for (int k = 0; k < 5; k++) {
            struct block b = draw_block(&random, tp, dp);
            struct blocks one = {1, &b}, sum;
            if (!blocks_union(a, &set, &one, &sum))
                continue;
            unions++;
            for (uint32_t t = 0; t < tp; t++)
                for (uint32_t d = 0; d < dp; d++) {
                    uint32_t coord[NDIGITS] = {[AXIS_TP] = t, [AXIS_DP] = d}, want[DOMAIN] = {0},
                             have[DOMAIN] = {0};
                    count(&set, coord, want);
                    count(&one, coord, want);
                    count(&sum, coord, have);
                    CU_ASSERT_FATAL(!memcmp(want, have, sizeof want));
                    for (int e = 0; e < DOMAIN; e++)
                        CU_ASSERT_FATAL(have[e] <= 1);
                }
            set = sum;
        }
        if (blocks_reduce(a, &set, AXIS_TP, tp, &reduced)) {
            reductions++;
            for (uint32_t d = 0; d < dp; d++) {
                uint32_t want[DOMAIN] = {0}, have[DOMAIN] = {0};
                for (uint32_t t = 0; t < tp; t++)
                    count(&set, (uint32_t[NDIGITS]){[AXIS_TP] = t, [AXIS_DP] = d}, want);
                count(&reduced, (uint32_t[NDIGITS]){[AXIS_DP] = d}, have);
                CU_ASSERT_FATAL(!memcmp(want, have, sizeof want));
                for (int e = 0; e < DOMAIN; e++)
                    CU_ASSERT_FATAL(have[e] <= 1);
            }
        }
        arena_free(a);
    }
    CU_ASSERT(unions > 3000 && reductions > 100);
}

static void test_whole(void)
{
    const struct block halves[] = {{.extent = {0, 4, {[AXIS_TP] = 4}, .turn = 0}, .count = 1}},
                       comb[] = {{.extent = {0, 3, {[AXIS_TP] = 3}, .turn = 0}, .count = 5, .stride = 6}};
    struct arena *a = arena_new();
    struct blocks x = {1, halves}, y = {1, comb}, out;
    CU_ASSERT_FALSE(blocks_whole(&x, 8));
    CU_ASSERT_TRUE(blocks_reduce(a, &x, AXIS_TP, 2, &out) && blocks_whole(&out, 8) && !blocks_whole(&out, 9));
    CU_ASSERT_TRUE(blocks_reduce(a, &y, AXIS_TP, 2, &out) && blocks_whole(&out, 30));
    CU_ASSERT_FALSE(blocks_reduce(a, &out, AXIS_DP, 2, &y)); /* each rank has all of it */
    CU_ASSERT_FALSE(blocks_union(a, &x, &x, &out));
    arena_free(a);
}

void suite_verify_store(void);
void suite_verify_store(void)
{
    CU_pSuite s = CU_add_suite("verify_store", NULL, NULL);
    CU_add_test(s, "pieces of memory against single bytes", test_memory);
    CU_add_test(s, "rows that stay", test_rows);
    CU_add_test(s, "rows that were written apart", test_joined_rows);
    CU_add_test(s, "own rows of a matrix", test_own_rows);
    CU_add_test(s, "contributions against sets of numbers", test_contributions);
    CU_add_test(s, "whole sets", test_whole);
}
