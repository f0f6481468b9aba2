/* When is a sum whole?  value_complete() lets a partial sum become the model's own value, so it must not be
 * generous: of an index with a domain all elements must be there on every rank, of a microbatch's rows
 * exactly those of the value's own microbatch. */

#include "compiler/verify/value.h"

#include <CUnit/CUnit.h>

void suite_value(void);

enum { GROUP = 16 };

struct asked {
    struct nodes *nodes;
    uint32_t node;
    struct extent row; /* of the value */
    struct block block[2];
    uint32_t nblocks;
};

static bool complete(const struct asked *x)
{
    struct value v = {.kind = VALUE_NODES, .row = x->row, .col = extent_new(0, 4)};
    struct term t = {x->node, {x->nblocks, x->block}};
    return value_complete(x->nodes, &v, &t);
}

static struct asked ask(struct arena *a, int64_t domain, struct extent row, struct extent block)
{
    struct recipe r = {.op = RECIPE_SLICE, .attr = {(uint64_t)domain}};
    struct asked x = {.nodes = nodes_new(a), .row = row, .nblocks = 1};
    x.nodes->group = GROUP;
    x.node = nodes_add(x.nodes, &r, "sum", 4, domain);
    x.block[0] = x.block[1] = (struct block){.extent = block, .count = 1};
    return x;
}

static struct extent moved(struct extent x, enum axis axis, int64_t step)
{
    x.step[axis] = step;
    return x;
}

static void test_domain(void)
{
    struct arena *a = arena_new();
    struct asked whole = ask(a, 32, extent_new(0, 4), extent_new(0, 32));
    CU_ASSERT(complete(&whole));
    struct asked less = ask(a, 32, extent_new(0, 4), extent_new(0, 31)),
                 later = ask(a, 32, extent_new(0, 4), extent_new(1, 32)),
                 part = ask(a, 32, extent_new(0, 4), moved(extent_new(0, 32), AXIS_DP, 32)),
                 none = ask(a, 0, extent_new(0, 4), extent_new(0, 32));
    CU_ASSERT(!complete(&less) && !complete(&later) && !complete(&part) && !complete(&none));
    whole.block[0].first = AXIS_BIT(AXIS_TP);
    CU_ASSERT(!complete(&whole));
    arena_free(a);
}

/* the value's rows are 20 .. 24 of the second group of 16, or of each replica's own */
static void test_microbatch(void)
{
    struct arena *a = arena_new();
    struct asked x = ask(a, DOMAIN_MICROBATCH, extent_new(20, 4), extent_new(16, GROUP));
    CU_ASSERT(complete(&x));
    struct asked replica = ask(a, DOMAIN_MICROBATCH, moved(extent_new(20, 4), AXIS_DP, 32),
                               moved(extent_new(16, GROUP), AXIS_DP, 32)),
                 context =
                     ask(a, DOMAIN_MICROBATCH, moved(extent_new(20, 4), AXIS_CP, 4), extent_new(16, GROUP));
    CU_ASSERT(complete(&replica) && complete(&context));
    struct asked before = ask(a, DOMAIN_MICROBATCH, extent_new(20, 4), extent_new(0, GROUP)),
                 longer = ask(a, DOMAIN_MICROBATCH, extent_new(20, 4), extent_new(16, 2 * GROUP)),
                 shorter = ask(a, DOMAIN_MICROBATCH, extent_new(20, 4), extent_new(16, GROUP - 1)),
                 stays =
                     ask(a, DOMAIN_MICROBATCH, moved(extent_new(20, 4), AXIS_DP, 32), extent_new(16, GROUP)),
                 negative = ask(a, DOMAIN_MICROBATCH, extent_new(-4, 4), extent_new(0, GROUP));
    CU_ASSERT(!complete(&before) && !complete(&longer) && !complete(&shorter) && !complete(&stays) &&
              !complete(&negative));
    x.nblocks = 2;
    CU_ASSERT(!complete(&x));
    x.nblocks = 1;
    x.block[0].count = 2;
    x.block[0].stride = GROUP;
    CU_ASSERT(!complete(&x));
    x.block[0].count = 1;
    x.block[0].first = AXIS_BIT(AXIS_TP);
    CU_ASSERT(!complete(&x));
    arena_free(a);
}

void suite_value(void)
{
    CU_pSuite s = CU_add_suite("value", NULL, NULL);
    CU_add_test(s, "all elements of a domain", test_domain);
    CU_add_test(s, "all rows of the own microbatch", test_microbatch);
}
