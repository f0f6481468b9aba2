/* The table of ranks: groups, the file, and the check against the programs' slot declarations. */

#include "runtime/channels.h"
#include "runtime/program.h"
#include "tests/runtime/random_program.h"
#include "tests/runtime/refused.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void suite_ranks(void);

enum { TP = 4, DP = 3, PP = 2, NRANKS = TP * DP * PP };

/* a mesh of tp 4 (innermost), dp 3, pp 2: role = stage; slots: tp coordinate, first over dp, peer, tp and dp
 * groups */
static struct ranks *mesh_table(void)
{
    struct ranks *r = ranks_new(NRANKS, PP, DP * PP + TP * PP, NRANKS * 5);
    for (uint32_t i = 0; i < DP * PP; i++)
        r->groups[i] = (struct group){TP * i, {TP, 1, 1, 1}, {1, 0, 0, 0}};
    for (uint32_t i = 0; i < TP * PP; i++)
        r->groups[DP * PP + i] = (struct group){i / TP * TP * DP + i % TP, {1, 1, DP, 1}, {0, 0, TP, 0}};
    for (uint32_t i = 0; i < NRANKS; i++) {
        uint32_t tp = i % TP, dp = i / TP % DP, pp = i / (TP * DP);
        const uint64_t values[5] = {tp, !dp, tp + TP * (dp + DP * (PP - 1 - pp)), i / TP,
                                    DP * PP + pp * TP + tp};
        r->ranks[i] = (struct rank_info){.role = pp, .node = i / 8, .gpu = i % 8, .slot = 5 * i};
        memcpy(r->values + 5 * i, values, sizeof values);
    }
    return r;
}

static struct program *mesh_program(uint32_t role)
{
    struct program *p = program_new(role, PP);
    program_slot(p, "tp", SLOT_COORD, 1u << AXIS_TP, TP - 1);
    program_slot(p, "first", SLOT_FIRST, 1u << AXIS_DP, 1);
    program_slot(p, "peer", SLOT_PEER, 1 - role, NRANKS - 1);
    program_slot(p, "tpgroup", SLOT_GROUP, 1u << AXIS_TP, TP);
    program_slot(p, "dpgroup", SLOT_GROUP, 1u << AXIS_DP, DP);
    return p;
}

static void test_groups(void)
{
    const struct group g = {100, {2, 1, 3, 2}, {1, 0, 10, 40}};
    const uint32_t members[] = {100, 101, 110, 111, 120, 121, 140, 141, 150, 151, 160, 161};
    CU_ASSERT_EQUAL(group_size(&g), 12);
    for (uint32_t i = 0; i < 12; i++)
        CU_ASSERT_EQUAL(group_rank(&g, i), members[i]);
}

/* of 200 ranks those that say so, whatever the order of the axes */
static void test_members(void)
{
    static const struct group groups[] = {{100, {2, 1, 3, 2}, {1, 0, 10, 40}},
                                          {100, {2, 1, 3, 2}, {40, 7, 10, 1}},
                                          {0, {1, 200, 1, 1}, {0, 1, 0, 0}},
                                          {199, {1, 1, 1, 1}, {0, 0, 0, 0}},
                                          {0, {2, 2, 2, 2}, {4, 2, 1, 192}}};
    struct program *p[2] = {program_new(0, 2), program_new(1, 2)};
    const struct program *programs[2] = {p[0], p[1]};
    uint32_t slot = program_slot(p[1], "g", SLOT_GROUP, 1, 1);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (uint32_t rank = 0; rank < 200; rank++) { /* the only one of role 1, with the only value */
            struct ranks *r = ranks_new(200, 2, 1, 1), *q;
            uint8_t *bytes;
            size_t size;
            struct error error;
            bool member = false;
            r->groups[0] = groups[g];
            r->ranks[rank].role = 1;
            for (uint32_t i = rank + 1; i < 200; i++)
                r->ranks[i].slot = 1;
            p[1]->slots[slot].most = group_size(&groups[g]);
            for (uint32_t i = 0; i < group_size(&groups[g]); i++)
                member |= group_rank(&groups[g], i) == rank;
            CU_ASSERT_EQUAL(ranks_check(r, programs, &error), member ? STATUS_OK : STATUS_INPUT);
            CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
            CU_ASSERT_EQUAL_FATAL(ranks_decode(bytes, size, &q, &error), STATUS_OK);
            CU_ASSERT(!memcmp(r->ranks, q->ranks, 200 * sizeof *r->ranks));
            free(bytes);
            ranks_free(q);
            ranks_free(r);
        }
    program_free(p[0]);
    program_free(p[1]);
}

static void test_round_trip(void)
{
    struct ranks *r = mesh_table(), *q;
    uint8_t *bytes, *again;
    size_t size, again_size;
    char path[] = "/tmp/test_ranks_XXXXXX";
    struct error error = {""};
    CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
    CU_ASSERT_EQUAL_FATAL(ranks_decode(bytes, size, &q, &error), STATUS_OK);
    CU_ASSERT(q->nranks == NRANKS && q->nroles == PP && q->ngroups == 14 && q->nvalues == 5 * NRANKS);
    CU_ASSERT(!memcmp(r->groups, q->groups, 14 * sizeof *r->groups));
    CU_ASSERT(!memcmp(r->ranks, q->ranks, NRANKS * sizeof *r->ranks));
    CU_ASSERT(!memcmp(r->values, q->values, 5 * NRANKS * sizeof *r->values));
    CU_ASSERT_EQUAL(ranks_encode(q, &again, &again_size), STATUS_OK);
    CU_ASSERT(again_size == size && !memcmp(bytes, again, size));
    ranks_free(q);
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, bytes, size), (ssize_t)size);
    close(fd);
    CU_ASSERT_EQUAL(ranks_read(path, &q, &error), STATUS_OK);
    CU_ASSERT_EQUAL(q->nranks, NRANKS);
    unlink(path);
    ranks_free(q);
    CU_ASSERT_EQUAL(ranks_read(path, &q, &error), STATUS_INPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "No such file"));
    CU_ASSERT_PTR_NULL(q);
    ranks_free(r);
    free(bytes);
    free(again);
}

static void test_empty(void)
{
    struct ranks *r = ranks_new(0, 0, 0, 0), *q;
    uint8_t *bytes;
    size_t size;
    struct error error;
    CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
    CU_ASSERT_EQUAL(ranks_decode(bytes, size, &q, &error), STATUS_OK);
    ranks_free(q);
    ranks_free(r);
    free(bytes);
}

/* values at the ends of 64 bits, ranks with different numbers of them */
static void test_values(void)
{
    struct ranks *r = ranks_new(3, 1, 0, 5), *q;
    const uint64_t values[] = {0, UINT64_MAX, (uint64_t)1 << 63, UINT64_MAX, 0};
    uint8_t *bytes;
    size_t size;
    struct error error;
    memcpy(r->values, values, sizeof values);
    r->ranks[1].slot = 1;
    r->ranks[2].slot = 1;
    CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
    CU_ASSERT_EQUAL_FATAL(ranks_decode(bytes, size, &q, &error), STATUS_OK);
    CU_ASSERT(!memcmp(q->values, values, sizeof values));
    ranks_free(q);
    free(bytes);
    r->ranks[1].slot = 2;
    CU_ASSERT_EQUAL(ranks_encode(r, &bytes, &size), STATUS_BUG);
    r->ranks[2].slot = 6; /* of 5 */
    CU_ASSERT_EQUAL(ranks_encode(r, &bytes, &size), STATUS_BUG);
    for (uint32_t i = 0; i < 3; i++)
        r->ranks[i].slot = 1;
    CU_ASSERT_EQUAL(ranks_encode(r, &bytes, &size), STATUS_BUG);
    ranks_free(r);
}

/* 98,304 ranks in a file of about a byte per number */
static void test_size(void)
{
    const uint32_t n = 98304;
    struct ranks *r = ranks_new(n, 16, 0, 10 * n);
    uint8_t *bytes;
    size_t size;
    for (uint32_t i = 0; i < n; i++) {
        r->ranks[i] = (struct rank_info){.role = i / (n / 16), .node = i / 8, .gpu = i % 8, .slot = 10 * i};
        for (uint32_t k = 0; k < 10; k++)
            r->values[10 * i + k] = k < 5 ? i / (k + 1) : (i + 1000 * k) % n;
    }
    CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
    CU_ASSERT(size < 15 * (size_t)n);
    free(bytes);
    ranks_free(r);
}

static void test_damage(void)
{
    struct ranks *r = mesh_table(), *q;
    uint8_t *bytes;
    size_t size;
    struct error error;
    uint64_t state = 1;
    CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
    uint8_t *copy = malloc(size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
    for (size_t n = 0; n < size; n++) {
        CU_ASSERT_EQUAL(ranks_decode(bytes, n, &q, &error), STATUS_INPUT);
        memcpy(copy, bytes, size);
        copy[n] ^= (uint8_t)(1u << random_next(&state) % 8);
        CU_ASSERT_EQUAL(ranks_decode(copy, size, &q, &error), STATUS_INPUT);
        repair_file(copy, size, 0);
        if (ranks_decode(copy, size, &q, &error) == STATUS_OK) {
            uint8_t *again;
            size_t again_size;
            CU_ASSERT_EQUAL(ranks_encode(q, &again, &again_size), STATUS_OK);
            CU_ASSERT(again_size == size && !memcmp(again, copy, size));
            free(again);
            ranks_free(q);
        }
    }
    free(copy);
    free(bytes);
    ranks_free(r);
}

/* what ranks_decode() refuses of a group or a rank, and what ranks_check() refuses of a value */
static void test_bad(void)
{
    enum field { ROLE, FIRST, N, STRIDE, VALUE, COUNT, ALL };
    static const struct {
        enum field field;
        uint32_t at; /* rank, group or value; axis in the tens of a group's */
        uint64_t value;
        const char *message;
    } table[] = {
        {ROLE, 3, 2, "rank 3: role 2 of 2"},
        {FIRST, 5, 21, "group 5: its members are not distinct ranks below 24"},
        {FIRST, 2, UINT32_MAX, "group 2: its members are not distinct ranks below 24"},
        {N, 0, 0, "group 0: its members are not distinct ranks below 24"},
        {N, 300, 0, "group 0: its members are not distinct ranks below 24"},
        {N, 100, 25, "group 0: its members are not distinct ranks below 24"},
        {STRIDE, 0, 0, "group 0: its members are not distinct ranks below 24"},
        {STRIDE, 0, 8, "group 0: its members are not distinct ranks below 24"},
        {STRIDE, 0, UINT32_MAX, "group 0: its members are not distinct ranks below 24"},
        {VALUE, 5 * 7 + 0, 4, "rank 7: slot tp is 4, at most 3 is declared"},
        {VALUE, 5 * 7 + 1, UINT64_MAX, "rank 7: slot first is 18446744073709551615, at most 1 is declared"},
        {VALUE, 5 * 7 + 2, 24, "rank 7: peer peer is 24, of 24 ranks and at most 23 declared"},
        {VALUE, 5 * 7 + 3, 14, "rank 7: group tpgroup is 14 of 14"},
        {VALUE, 5 * 7 + 3, 6, "rank 7: group tpgroup has 3 members, 4 are declared"},
        {VALUE, 5 * 7 + 3, 0, "rank 7: it is not a member of its group tpgroup"},
        {VALUE, 5 * 7 + 4, 6, "rank 7: it is not a member of its group dpgroup"},
        {VALUE, 5 * 0 + 3, 1, "rank 0: it is not a member of its group tpgroup"},
        {COUNT, 1, 4, "rank 0: values 0 to 4 of 120, but its program has 5 slots"},
        {COUNT, 0, UINT32_MAX - 4, "rank 0: values 4294967291 to 5 of 120, but its program has 5 slots"},
        {ALL, 0, 100, "rank 20: values 100 to 105 of 100, but its program has 5 slots"},
    };
    struct program *p[PP] = {mesh_program(0), mesh_program(1)};
    const struct program *programs[PP] = {p[0], p[1]};
    struct error error = {""};
    struct ranks *r = mesh_table();
    CU_ASSERT_EQUAL(ranks_check(r, programs, &error), STATUS_OK);
    ranks_free(r);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        uint8_t *bytes;
        size_t size;
        struct ranks *q = NULL;
        uint32_t at = table[i].at % 100, axis = table[i].at / 100;
        r = mesh_table();
        switch (table[i].field) {
        case ROLE:
            r->ranks[at].role = (uint32_t)table[i].value;
            break;
        case FIRST:
            r->groups[at].first = (uint32_t)table[i].value;
            break;
        case N:
            r->groups[at].n[axis] = (uint32_t)table[i].value;
            break;
        case STRIDE:
            r->groups[at].stride[axis] = (uint32_t)table[i].value;
            break;
        case VALUE:
            r->values[at] = table[i].value;
            break;
        case COUNT:
            r->ranks[at].slot = (uint32_t)table[i].value;
            break;
        case ALL:
            r->nvalues = (uint32_t)table[i].value;
            break;
        }
        refused_expect(ranks_check(r, programs, &error), error.text, table[i].message);
        if (table[i].field < VALUE) { /* nothing but the file is needed to see these */
            CU_ASSERT_EQUAL_FATAL(ranks_encode(r, &bytes, &size), STATUS_OK);
            refused_expect(ranks_decode(bytes, size, &q, &error), error.text, table[i].message);
            free(bytes);
        }
        ranks_free(r);
    }
    p[0]->slots[2].most = 5; /* peer */
    r = mesh_table();
    refused_expect(ranks_check(r, programs, &error), error.text,
                   "rank 0: peer peer is 12, of 24 ranks and at most 5 declared");
    ranks_free(r);
    p[0]->slots[2].most = 24;
    r = mesh_table();
    r->values[2] = 24;
    refused_expect(ranks_check(r, programs, &error), error.text,
                   "rank 0: peer peer is 24, of 24 ranks and at most 24 declared");
    r->ranks[0].slot = UINT32_MAX;
    r->ranks[1].slot = 4;
    refused_expect(ranks_check(r, programs, &error), error.text,
                   "rank 0: values 4294967295 to 4 of 120, but its program has 5 slots");
    ranks_free(r);
    program_free(p[0]);
    program_free(p[1]);
}

/* one group of all ranks whose axes lie in each order: all are members, and none is where two axes overlap */
static void test_orders(void)
{
    static const uint32_t size[3] = {2, 3, 4};
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct program *p = program_new(0, 1);
    program_slot(p, "all", SLOT_GROUP, 7, NRANKS);
    const struct program *programs[] = {p};
    struct error error = {""};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct ranks *r = ranks_new(NRANKS, 1, 1, NRANKS);
        struct group *g = &r->groups[0];
        *g = (struct group){0, {1, 1, 1, 1}, {0, 0, 0, 0}};
        for (uint32_t k = 0, stride = 1; k < 3; stride *= size[orders[i][k++]]) {
            g->n[orders[i][k]] = size[orders[i][k]];
            g->stride[orders[i][k]] = stride;
        }
        for (uint32_t k = 0; k < NRANKS; k++)
            r->ranks[k] = (struct rank_info){.node = k / 8, .gpu = k % 8, .slot = k};
        CU_ASSERT_EQUAL(ranks_check(r, programs, &error), STATUS_OK);
        for (uint32_t k = 1; k < 3; k++) {
            struct group before = *g;
            g->stride[orders[i][k]] = g->stride[orders[i][k - 1]];
            refused_expect(ranks_check(r, programs, &error), error.text,
                           "group 0: its members are not distinct ranks below 24");
            *g = before;
        }
        ranks_free(r);
    }
    program_free(p);
}

/* Channels are the groups and the pairs that send; what memory held before has no part in it. */
static void test_channels(void)
{
    struct ranks *r = mesh_table();
    struct program *p[PP] = {mesh_program(0), mesh_program(1)};
    const struct program *const set[PP] = {p[0], p[1]};
    const struct program *const *const sets[] = {set};
    struct channels c;
    size_t bytes = sizeof(uint32_t) * NRANKS * NRANKS;
    void *before = calloc(1, bytes);
    free(before); /* the next of this size is likely the same */
    CU_ASSERT_EQUAL_FATAL(channels_make(&c, r, sets, 1), STATUS_OK);
    CU_ASSERT_EQUAL(c.n, r->ngroups);
    for (uint32_t i = 0; i < NRANKS * NRANKS; i++)
        CU_ASSERT_EQUAL(c.pair[i], UINT32_MAX);
    channels_free(&c);
    program_free(p[0]);
    program_free(p[1]);
    ranks_free(r);
}

void ranks_refusals(void)
{
    test_bad();
}

void suite_ranks(void)
{
    CU_pSuite s = CU_add_suite("ranks", NULL, NULL);
    CU_add_test(s, "groups", test_groups);
    CU_add_test(s, "members", test_members);
    CU_add_test(s, "round trip", test_round_trip);
    CU_add_test(s, "empty", test_empty);
    CU_add_test(s, "values", test_values);
    CU_add_test(s, "size", test_size);
    CU_add_test(s, "damage", test_damage);
    CU_add_test(s, "bad", test_bad);
    CU_add_test(s, "axes of a group in any order", test_orders);
    CU_add_test(s, "channels", test_channels);
}
