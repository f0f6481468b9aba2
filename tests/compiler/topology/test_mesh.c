/* Meshes: coordinates, groups and their numbers in every order of axes; levels on a cluster of two tiers. */

#include "compiler/topology/mesh_runs.h"

#include <CUnit/Basic.h>
#include <string.h>

static const uint32_t size[NAXES] = {[AXIS_TP] = 2, [AXIS_CP] = 1, [AXIS_DP] = 3, [AXIS_PP] = 4};
static const enum axis order[NAXES] = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP};

static void test_coords(void)
{
    const enum axis orders[][NAXES] = {{AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP},
                                       {AXIS_PP, AXIS_DP, AXIS_TP, AXIS_CP}};
    for (size_t i = 0; i < 2; i++) {
        struct mesh m = mesh_new(size, orders[i]);
        CU_ASSERT_EQUAL(m.nranks, 24);
        CU_ASSERT_EQUAL(m.stride[orders[i][0]], 1);
        for (uint32_t rank = 0; rank < m.nranks; rank++) {
            uint32_t coord[NDIGITS];
            mesh_coords(&m, rank, coord);
            CU_ASSERT_EQUAL(mesh_rank(&m, coord), rank);
            for (int a = 0; a < NAXES; a++)
                CU_ASSERT(coord[a] < size[a]);
        }
    }
}

/* every rank is in exactly one group of a mask, members ascend, and the number leads back to the first member
 */
static void check_mask(const struct mesh *m, uint32_t mask)
{
    uint32_t seen[24] = {0}, n = mesh_ngroups(m, mask);
    for (uint32_t rank = 0; rank < m->nranks; rank++) {
        struct group g = mesh_group(m, rank, mask);
        uint32_t index = mesh_group_index(m, rank, mask);
        CU_ASSERT(index < n);
        CU_ASSERT_EQUAL(g.first, mesh_group_first(m, index, mask));
        CU_ASSERT_EQUAL(group_size(&g), mesh_group_size(m, mask));
        bool inside = false;
        for (uint32_t i = 0; i < group_size(&g); i++) {
            inside |= group_rank(&g, i) == rank;
            CU_ASSERT(i == 0 || group_rank(&g, i) > group_rank(&g, i - 1));
            if (rank == g.first)
                seen[group_rank(&g, i)]++;
        }
        CU_ASSERT(inside || (mask & GROUP_TIE));
    }
    for (uint32_t rank = 0; rank < m->nranks && !(mask & GROUP_TIE); rank++)
        CU_ASSERT_EQUAL(seen[rank], 1);
    for (uint32_t i = 1; i < n; i++)
        CU_ASSERT(mesh_group_first(m, i, mask) > mesh_group_first(m, i - 1, mask));
}

static void test_groups(void)
{
    struct mesh m = mesh_new(size, order);
    for (uint32_t mask = 1; mask <= AXES_WORLD; mask++)
        check_mask(&m, mask);
    check_mask(&m, GROUP_TIE);
    struct group tie = mesh_group(&m, 7, GROUP_TIE); /* coordinates tp 1, dp 0, pp 1 */
    CU_ASSERT_EQUAL(group_size(&tie), 2);
    CU_ASSERT_EQUAL(group_rank(&tie, 0), 7);
    CU_ASSERT_EQUAL(group_rank(&tie, 1), 13);
    tie = mesh_group(&m, 1, GROUP_TIE);
    CU_ASSERT_EQUAL(group_rank(&tie, 0), 1);
    CU_ASSERT_EQUAL(group_rank(&tie, 1), 19);
}

/* Dimensions as masks: sizes and first strides of what people name, on 2 x 2 x 8 x 3 ranks. */
static void test_folds(void)
{
    static const struct {
        struct mesh_degrees g;
        uint32_t digits;
        struct {
            enum mesh_dim dim;
            uint32_t size, stride;
        } want[5];
    } cases[] = {
        {{.etp = 1, .ep = 1, .shard = 1},
         4,
         {{MESH_TP, 2, 1}, {MESH_CP, 2, 2}, {MESH_DP, 8, 4}, {MESH_PP, 3, 32}}},
        {{.etp = 1, .ep = 1, .shard = 0}, 4, {{MESH_SHARD, 16, 2}, {MESH_REPLICA, 1, 0}}},
        {{.etp = 1, .ep = 1, .shard = 4}, 5, {{MESH_SHARD, 4, 2}, {MESH_REPLICA, 4, 8}, {MESH_DP, 8, 4}}},
        {{.experts = true, .etp = 1, .ep = 8, .shard = 1, .expert_shard = 1},
         5,
         {{MESH_EP, 8, 1}, {MESH_EDP, 4, 8}, {MESH_TP, 2, 1}, {MESH_DP, 8, 4}}},
        {{.experts = true, .etp = 2, .ep = 8, .shard = 0, .expert_shard = 0},
         5,
         {{MESH_ETP, 2, 1},
          {MESH_EP, 8, 2},
          {MESH_EDP, 2, 16},
          {MESH_EXPERT_SHARD, 2, 16},
          {MESH_SHARD, 16, 2}}},
        {{.experts = true, .etp = 1, .ep = 4, .shard = 4, .expert_shard = 4},
         6,
         {{MESH_EP, 4, 1}, {MESH_EXPERT_SHARD, 4, 4}, {MESH_EXPERT_REPLICA, 2, 16}, {MESH_SHARD, 4, 2}}},
        {{.etp = 1, .ep = 1, .shard = 1, .keys = 2}, 4, {{MESH_KEYS, 2, 1}, {MESH_TP, 2, 1}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mesh_degrees g = cases[i].g;
        struct mesh m;
        enum mesh_dim what[2];
        memcpy(g.size, (const uint32_t[NAXES]){2, 2, 8, 3}, sizeof g.size);
        memcpy(g.order, order, sizeof g.order);
        CU_ASSERT_FATAL(mesh_fold(&g, &m, what));
        CU_ASSERT_EQUAL(m.nranks, 96);
        CU_ASSERT_EQUAL(m.ndigits, cases[i].digits);
        for (size_t k = 0; k < 5 && cases[i].want[k].size; k++) {
            uint32_t mask = m.dim[cases[i].want[k].dim], stride = cases[i].want[k].stride;
            CU_ASSERT_EQUAL(mesh_group_size(&m, mask), cases[i].want[k].size);
            for (uint32_t rank = 0; rank < m.nranks && stride; rank++) {
                struct group group = mesh_group(&m, rank, mask);
                CU_ASSERT_EQUAL(group_rank(&group, 1) - group.first, stride);
                CU_ASSERT_EQUAL(group_rank(&group, mesh_number(&m, rank, mask)), rank);
            }
        }
        for (uint32_t mask = 1; mask < 1u << NDIGITS; mask++)
            if (!(mask & ~m.dim[MESH_WORLD]))
                for (uint32_t rank = 0; rank < m.nranks; rank += 7) {
                    struct group group = mesh_group(&m, rank, mask);
                    CU_ASSERT_EQUAL(group_rank(&group, mesh_number(&m, rank, mask)), rank);
                    CU_ASSERT_EQUAL(mesh_group_first(&m, mesh_group_index(&m, rank, mask), mask),
                                    group.first);
                }
    }
}

/* Nothing folded is the plain mesh, in every dimension that a dense model has. */
static void test_plain(void)
{
    const enum axis orders[][NAXES] = {{AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP},
                                       {AXIS_PP, AXIS_DP, AXIS_TP, AXIS_CP},
                                       {AXIS_CP, AXIS_PP, AXIS_DP, AXIS_TP}};
    const uint32_t sizes[][NAXES] = {{2, 3, 4, 5}, {2, 1, 3, 4}, {1, 2, 1, 2}, {1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            struct mesh_degrees g = {.etp = 1, .ep = 1, .shard = 1};
            struct mesh plain = mesh_new(sizes[k], orders[i]), folded;
            enum mesh_dim what[2];
            memcpy(g.size, sizes[k], sizeof g.size);
            memcpy(g.order, orders[i], sizeof g.order);
            CU_ASSERT_FATAL(mesh_fold(&g, &folded, what));
            CU_ASSERT_EQUAL(plain.nranks, folded.nranks);
            CU_ASSERT_EQUAL(plain.ndigits, folded.ndigits);
            for (uint32_t d = 0; d < NDIMS; d++)
                CU_ASSERT_EQUAL(plain.dim[d], folded.dim[d]);
            CU_ASSERT_EQUAL(mesh_group_size(&plain, plain.dim[MESH_REPLICA]),
                            sizes[k][AXIS_CP] * sizes[k][AXIS_DP]);
        }
}

/* Ranks that hold one key head are neighbours in tp, wherever tp is in the order and whatever else cuts it. */
static void test_keys(void)
{
    struct mesh_degrees g = {.size = {8, 2, 2, 2},
                             .order = {AXIS_CP, AXIS_TP, AXIS_PP, AXIS_DP},
                             .experts = true,
                             .etp = 4,
                             .ep = 2,
                             .shard = 1,
                             .expert_shard = 1,
                             .keys = 4};
    struct mesh m;
    enum mesh_dim what[2];
    CU_ASSERT_FATAL(mesh_fold(&g, &m, what));
    CU_ASSERT_EQUAL(mesh_group_size(&m, m.dim[MESH_KEYS]), 4);
    CU_ASSERT_EQUAL(m.dim[MESH_KEYS] & ~m.dim[MESH_TP], 0);
    for (uint32_t rank = 0; rank < m.nranks; rank++) {
        uint32_t tp = mesh_number(&m, rank, m.dim[MESH_TP]), keys = mesh_number(&m, rank, m.dim[MESH_KEYS]);
        CU_ASSERT_EQUAL(tp % 4, keys);
        CU_ASSERT_EQUAL(mesh_number(&m, rank, m.dim[MESH_TP] & ~m.dim[MESH_KEYS]), tp / 4);
    }
    g.etp = 1;
    g.size[AXIS_TP] = 12;
    g.order[0] = AXIS_TP;
    g.order[1] = AXIS_CP;
    g.keys = 6;
    g.ep = 4;
    CU_ASSERT_FALSE(mesh_fold(&g, &m, what));
    CU_ASSERT(what[0] == MESH_EP && what[1] == MESH_KEYS);
}

static void test_unfoldable(void)
{
    struct mesh_degrees g = {.size = {2, 1, 6, 1},
                             .order = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP},
                             .experts = true,
                             .etp = 1,
                             .ep = 3,
                             .shard = 1,
                             .expert_shard = 1};
    struct mesh m;
    enum mesh_dim what[2];
    CU_ASSERT_FALSE(mesh_fold(&g, &m, what));
    CU_ASSERT(what[0] == MESH_TP && what[1] == MESH_EP);
    g.ep = 1;
    g.shard = 4;
    CU_ASSERT_FALSE(mesh_fold(&g, &m, what));
    CU_ASSERT(what[0] == MESH_SHARD && what[1] == MESH_DP);
}

static const char cluster[] =
    "<cluster version=\"1\"><node-type id=\"n\" gpus=\"8\"><gpu model=\"H100-SXM\"/>"
    "<scale-up kind=\"nvswitch\" bandwidth=\"450GB/s\"/><nic count=\"8\" bandwidth=\"400Gb/s\"/></node-type>"
    "<nodes type=\"n\" count=\"8\"/><fabric medium=\"infiniband\"><tier name=\"leaf\" span=\"2\"/>"
    "<tier name=\"core\" span=\"all\"/></fabric></cluster>";

static void test_levels(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct source source = {"test.xml", cluster, strlen(cluster), false};
    struct topo *t = topo_parse(a, d, &source, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    uint32_t *nodes;
    CU_ASSERT_EQUAL(topo_usable(a, t, 0, &nodes), 8);
    const uint32_t big[NAXES] = {[AXIS_TP] = 4, [AXIS_CP] = 1, [AXIS_DP] = 4, [AXIS_PP] = 4};
    struct mesh m = mesh_new(big, order);
    static const struct {
        uint32_t mask, level;
    } cases[] = {{AXIS_BIT(AXIS_TP), 0}, {AXIS_BIT(AXIS_DP), 1}, {AXIS_BIT(AXIS_TP) | AXIS_BIT(AXIS_DP), 1},
                 {AXIS_BIT(AXIS_PP), 2}, {GROUP_TIE, 2},         {AXES_WORLD, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CU_ASSERT_EQUAL(mesh_group_level(&m, t, nodes, 8, cases[i].mask), cases[i].level);
    CU_ASSERT_EQUAL(mesh_next_stage_level(&m, t, nodes, 8), 2);
    CU_ASSERT_EQUAL(mesh_group_below(&m, t, nodes, 8, AXIS_BIT(AXIS_DP), 0), 2);
    CU_ASSERT_EQUAL(mesh_group_below(&m, t, nodes, 8, AXIS_BIT(AXIS_DP), 1), 4);
    CU_ASSERT_EQUAL(mesh_group_below(&m, t, nodes, 8, AXES_WORLD, 1), 16);
    CU_ASSERT_EQUAL(mesh_level(t, nodes, 8, 3, 4), 0);
    CU_ASSERT_EQUAL(mesh_level(t, nodes, 8, 7, 8), 1);
    CU_ASSERT_EQUAL(mesh_level(t, nodes, 8, 15, 16), 2);
    arena_free(a);
}

static uint32_t draw(uint64_t *random, uint32_t n)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*random >> 33) % n);
}

/* any order, and sizes of up to 9 that leave it on so many ranks */
static struct mesh random_mesh(uint64_t *random, uint32_t ranks)
{
    uint32_t sizes[NAXES];
    enum axis axes[NAXES] = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP};
    for (uint32_t i = 0; i < NAXES; i++) {
        uint32_t at = i + draw(random, NAXES - i);
        enum axis axis = axes[at];
        axes[at] = axes[i];
        axes[i] = axis;
        sizes[axis] = 1 + draw(random, ranks < 9 ? ranks : 9);
        ranks /= sizes[axis];
    }
    return mesh_new(sizes, axes);
}

/* Levels from runs of nodes are those of a walk over all groups: random meshes on lists with gaps. */
static void compare_runs(struct arena *a, const char *text, uint32_t gaps, uint64_t *random)
{
    struct diag *d = diag_new(a);
    struct source source = {"test.xml", text, strlen(text), false};
    struct topo *t = topo_parse(a, d, &source, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    uint32_t *nodes, n = topo_usable(a, t, 0, &nodes), kept = 1;
    for (uint32_t i = 1; i < n; i++)
        if (draw(random, 16) >= gaps)
            nodes[kept++] = nodes[i];
    const struct mesh_runs *runs = mesh_runs_new(a, t, nodes, kept, 8);
    for (uint32_t k = 0; k < 60; k++) {
        struct mesh m = random_mesh(random, kept * 8);
        for (uint32_t mask = 1; mask <= AXES_WORLD; mask++)
            CU_ASSERT_EQUAL(mesh_runs_group_level(runs, &m, mask), mesh_group_level(&m, t, nodes, 8, mask));
        CU_ASSERT_EQUAL(mesh_runs_group_level(runs, &m, GROUP_TIE), mesh_group_level(&m, t, nodes, 8, GROUP_TIE));
        CU_ASSERT_EQUAL(mesh_runs_next_level(runs, &m), mesh_next_stage_level(&m, t, nodes, 8));
    }
}

static void test_runs(void)
{
    static const struct {
        uint32_t nodes, span, leaf;
    } clusters[] = {{40, 1, 4}, {37, 1, 5}, {64, 4, 16}, {60, 3, 4}, {24, 1, 32}};
    uint64_t random = 7; /* the fourth has domains across its leaves */
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++)
        for (uint32_t gaps = 0; gaps < 12; gaps += 3) {
            struct arena *a = arena_new();
            const char *text = arena_printf(
                a, "<cluster version=\"1\" name=\"x\"><node-type id=\"n\" gpus=\"8\"><gpu model=\"H100-SXM\"/>"
                   "<scale-up kind=\"nvswitch\" bandwidth=\"450GB/s\" span=\"%u\"/><nic count=\"8\" bandwidth=\"400Gb/s\"/>"
                   "</node-type><nodes type=\"n\" count=\"%u\"/><fabric medium=\"infiniband\"><tier name=\"leaf\" "
                   "span=\"%u\"/><tier name=\"core\" span=\"all\"/></fabric></cluster>",
                clusters[i].span, clusters[i].nodes, clusters[i].leaf);
            compare_runs(a, text, gaps, &random);
            arena_free(a);
        }
}

void suite_mesh(void);
void suite_mesh(void)
{
    CU_pSuite s = CU_add_suite("mesh", NULL, NULL);
    CU_add_test(s, "rank and coordinates are inverse", test_coords);
    CU_add_test(s, "levels from runs of nodes are those of a walk over groups", test_runs);
    CU_add_test(s, "groups partition the ranks", test_groups);
    CU_add_test(s, "levels of groups", test_levels);
    CU_add_test(s, "experts and shards fold into digits", test_folds);
    CU_add_test(s, "nothing folded", test_plain);
    CU_add_test(s, "what does not nest does not fold", test_unfoldable);
    CU_add_test(s, "ranks that hold one key head", test_keys);
}
