/* Collectives: bus bandwidth of published measurements, which algorithm where, shares of links that groups have to divide,
 * and the laws any model of them obeys. */

#include "compiler/llmc.h"
#include "compiler/cost/cost_private.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#define MIB 1048576.0

static const char model[] = "llmc 1\nmodel m {\n vocab 32000\n width 2048\n norm rmsnorm\n embed tokens\n"
                            " repeat 8 { layer { attn gqa(heads=16, kv=8, rope=10_000)\n ffn swiglu(8192) } }\n"
                            " head untied\n}\ntrain {\n sequence 2048\n batch 8192 sequences\n precision bf16\n}\n";

/* a machine as text: GPUs per node, catalogue name, scale-up, NICs and their rate, nodes, fabric */
struct machine {
    uint32_t gpus;
    const char *model, *scale_up, *nic;
    uint32_t nodes;
    const char *fabric, *extra;
};
#define LEAF "<tier name=\"leaf\" span=\"all\"/>"
#define SWITCH(rate) "kind=\"nvswitch\" bandwidth=\"" rate "GB/s\""
#define NDR "count=\"8\" bandwidth=\"400Gb/s\""

/* tp over whole nodes, dp over them, pp of the rest */
static struct cost *machine_cost(struct arena *a, const struct machine *m, uint32_t tp, uint32_t pp)
{
    char *text = arena_printf(a, "<cluster version=\"1\"><node-type id=\"n\" gpus=\"%u\"><gpu model=\"%s\"/><scale-up %s/><nic %s/>"
                              "</node-type><nodes type=\"n\" count=\"%u\"/><fabric %s</fabric>%s</cluster>", m->gpus, m->model,
                              m->scale_up, m->nic, m->nodes, m->fabric ? m->fabric : "medium=\"infiniband\">" LEAF,
                              m->extra ? m->extra : "");
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){"c.xml", text, strlen(text), false};
    struct diag *diag = diag_new(a);
    struct topo *topo = topo_parse(a, diag, s, NULL);
    if (!topo)
        diag_print(diag, stderr, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    struct decision *d = ARENA_NEW(a, struct decision);
    *d = decision_single();
    d->tp = tp;
    d->pp = pp;
    d->dp = m->gpus * m->nodes / tp / pp;
    const char *why = "";
    bool placed = decision_place(a, topo, d, &why);
    CU_ASSERT_FATAL(placed);
    return cost_new(a, text_job(a, model), topo, d);
}

static double bus(const struct cost *c, enum op op, double bytes, const struct cost_group *g)
{
    double n = g->n, factor = op == OP_ALL_REDUCE ? 2 * (n - 1) / n : (n - 1) / n;
    return factor * bytes / cost_group_s(c, op, bytes, g) / 1e9;
}

/* bus bandwidth in GB/s as published, and how far the model may be from it */
static void test_anchors(void)
{
    static const struct machine
        h100 = {8, "H100-SXM", SWITCH("450"), NDR, 1, NULL, NULL},
        h100_ring = {8, "H100-SXM", SWITCH("450") " multicast=\"no\"", NDR, 1, NULL, NULL},
        h200 = {8, "H200-SXM", SWITCH("450"), NDR, 1, NULL, NULL},
        h200x2 = {8, "H200-SXM", SWITCH("450"), NDR, 2, "medium=\"roce\">" LEAF, NULL},
        h100x6 = {8, "H100-SXM", SWITCH("450"), NDR, 6, NULL, NULL},
        h800 = {8, "H800-SXM", SWITCH("200"), NDR, 1, NULL, NULL},
        a100 = {8, "A100-SXM", SWITCH("300"), "count=\"8\" bandwidth=\"200Gb/s\"", 1, NULL, NULL},
        a100x3 = {8, "A100-SXM", SWITCH("300"), "count=\"4\" bandwidth=\"200Gb/s\"", 3, NULL, NULL},
        b200 = {8, "B200", SWITCH("900"), NDR, 1, NULL, NULL},
        b200_efa = {8, "B200", SWITCH("900"), NDR, 4, "medium=\"efa\">" LEAF, NULL},
        nvl72 = {4, "GB200", SWITCH("900") " span=\"18\"", "count=\"4\" bandwidth=\"400Gb/s\"", 18, NULL, NULL},
        mi300 = {8, "MI300X", "kind=\"mesh\" bandwidth=\"448GB/s\"", NDR, 1, NULL, NULL},
        v100 = {8, "V100", "kind=\"mesh\" bandwidth=\"150GB/s\"", "count=\"4\" bandwidth=\"100Gb/s\"", 1, NULL, NULL};
    static const struct {
        const struct machine *machine;
        uint32_t n;
        enum op op;
        double mib, published, tolerance;
        const char *from;
    } rows[] = {
        {&h100_ring, 8, OP_ALL_REDUCE, 16384, 367, 0.03, "stas00: 8 x H200, NVLS off; nccl 1455: 365-370 for 2 to 8"},
        {&h100_ring, 2, OP_ALL_REDUCE, 16384, 367, 0.03, "nccl 1455"},
        {&h100, 8, OP_ALL_GATHER, 16384, 361.4, 0.03, "stas00"},
        {&h100, 8, OP_REDUCE_SCATTER, 16384, 362.9, 0.03, "stas00"},
        {&h100, 8, OP_ALL_REDUCE, 16384, 480, 0.03, "nccl-tests 212: NVLS peak"},
        {&h200, 4, OP_ALL_REDUCE, 16384, 363, 0.04, "stas00: by number of GPUs"},
        {&h200, 6, OP_ALL_REDUCE, 16384, 436, 0.04, "stas00"},
        {&h200, 8, OP_ALL_REDUCE, 256, 436, 0.08, "stas00"},
        {&h200, 8, OP_ALL_REDUCE, 64, 346.5, 0.15, "stas00"},
        {&h800, 8, OP_ALL_REDUCE, 8192, 215, 0.04, "nccl 1374: NVLS on H800"},
        {&h200x2, 16, OP_ALL_REDUCE, 1024, 459, 0.10, "nccl-tests 256: 2 nodes of H200, RoCE"},
        {&h200x2, 16, OP_ALL_REDUCE, 9700, 489, 0.08, "nccl-tests 256"},
        {&h100x6, 48, OP_ALL_REDUCE, 8192, 376, 0.05, "nccl-tests 290: 46-48 GB/s per 400 Gb/s NIC"},
        {&a100, 8, OP_ALL_REDUCE, 16384, 234.9, 0.03, "stas00"},
        {&a100, 8, OP_ALL_REDUCE, 1024, 229, 0.04, "vTrain, stas00"},
        {&a100, 2, OP_ALL_REDUCE, 12288, 208, 0.06, "nccl-tests 178: two A100"},
        {&a100, 2, OP_ALL_REDUCE, 16, 127, 0.10, "vTrain"},
        {&a100x3, 24, OP_ALL_REDUCE, 128, 96, 0.14, "nccl-tests 119: 3 nodes, 4 x 200 Gb/s each"},
        {&b200, 8, OP_ALL_REDUCE, 16384, 845.7, 0.03, "stas00"},
        {&b200, 8, OP_ALL_GATHER, 1024, 651, 0.06, "SimuMax"},
        {&b200_efa, 32, OP_ALL_REDUCE, 16384, 381.8, 0.03, "stas00: 4 nodes over EFA"},
        {&b200_efa, 32, OP_ALL_REDUCE, 16, 64, 0.15, "stas00"},
        {&nvl72, 72, OP_ALL_REDUCE, 8192, 840, 0.05, "coreweave nccl-tests 43: a rack of 72 GB200"},
        {&nvl72, 72, OP_ALL_REDUCE, 1024, 702, 0.08, "coreweave nccl-tests 43: 681 and 724"},
        {&mi300, 8, OP_ALL_REDUCE, 4096, 312.9, 0.05, "stas00"},
        {&mi300, 2, OP_ALL_REDUCE, 4096, 47.7, 0.06, "stas00"},
        {&v100, 8, OP_ALL_REDUCE, 1024, 134.5, 0.03, "vTrain"},
        {&v100, 2, OP_ALL_REDUCE, 1024, 22.55, 0.03, "vTrain"},
    };
    struct arena *a = arena_new();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct cost *c = machine_cost(a, rows[i].machine, rows[i].machine->gpus, 1);
        struct cost_group g = cost_run_group(c, rows[i].n, 1);
        double got = bus(c, rows[i].op, rows[i].mib * MIB, &g);
        if (fabs(got / rows[i].published - 1) > rows[i].tolerance)
            fprintf(stderr, "%s, %u GPUs, %g MiB: %g GB/s, published %g (%s)\n", rows[i].machine->model, rows[i].n, rows[i].mib, got,
                    rows[i].published, rows[i].from);
        CU_ASSERT(fabs(got / rows[i].published - 1) <= rows[i].tolerance);
    }
    arena_free(a);
}

/* longer messages never take less; a gather after a scatter is what a ring's all-reduce does */
static void test_laws(void)
{
    static const struct machine m = {8, "H100-SXM", SWITCH("450") " multicast=\"no\"", NDR, 16,
                                     "medium=\"infiniband\"><tier name=\"leaf\" span=\"4\"/><tier name=\"core\" span=\"all\"/>", NULL};
    static const enum op ops[] = {OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_TO_ALL, OP_BROADCAST, OP_SEND};
    struct arena *a = arena_new();
    struct cost *c = machine_cost(a, &m, 8, 1);
    for (uint32_t n = 2; n <= 128; n *= 2)
        for (uint32_t stride = 1; stride * n <= 128; stride *= 4) {
            struct cost_group g = cost_run_group(c, n, stride);
            for (size_t k = 0; k < ARRAY_LEN(ops); k++) {
                double before = 0;
                for (double bytes = 1; bytes < 1e12; bytes *= 3) {
                    double s = cost_group_s(c, ops[k], bytes, &g);
                    CU_ASSERT(s > before && s < 1e4 && isfinite(s));
                    before = s;
                }
            }
            if (n == 2 * g.below[0]) /* on two nodes a tree moves less than the ring */
                continue;
            double large = 16384 * MIB, both = cost_group_s(c, OP_ALL_GATHER, large, &g) + cost_group_s(c, OP_REDUCE_SCATTER, large, &g);
            CU_ASSERT_DOUBLE_EQUAL(both / cost_group_s(c, OP_ALL_REDUCE, large, &g), 1, 0.03);
            CU_ASSERT(cost_group_s(c, OP_ALL_REDUCE, large, &g) > 1.5 * cost_group_s(c, OP_ALL_GATHER, large, &g));
        }
    struct cost_group one = cost_run_group(c, 1, 1);
    CU_ASSERT_EQUAL(cost_group_s(c, OP_ALL_REDUCE, 1e9, &one), 0);
    arena_free(a);
}

static void check_why(const struct cost *c, const struct cost_group *g, enum op op, double bytes, const char *begins)
{
    char why[160];
    cost_collective_why(c, op, bytes, g, why, sizeof why);
    if (strncmp(why, begins, strlen(begins)))
        fprintf(stderr, "'%s' does not begin with '%s'\n", why, begins);
    CU_ASSERT_NSTRING_EQUAL(why, begins, strlen(begins));
}

/* the algorithm that NCCL takes for a size */
static void test_choice(void)
{
    static const struct machine a100 = {8, "A100-SXM", SWITCH("300"), "count=\"8\" bandwidth=\"200Gb/s\"", 64, NULL, NULL};
    static const struct machine h100 = {8, "H100-SXM", SWITCH("450"), NDR, 64, NULL,
        "<measured date=\"2026-01-01\"><collective op=\"reduce_scatter\" ranks=\"8\" per-node=\"8\"><point size=\"1MiB\" time=\"50us\"/>"
        "<point size=\"4MiB\" time=\"70us\"/></collective></measured>"};
    struct arena *a = arena_new();
    struct cost *c = machine_cost(a, &a100, 8, 1), *h = machine_cost(a, &h100, 8, 1);
    struct cost_group spread = cost_run_group(c, 64, 8), node = cost_run_group(h, 8, 1), all = cost_run_group(h, 512, 1),
                      rail = cost_run_group(h, 64, 8);
    check_why(c, &spread, OP_ALL_REDUCE, 4096, "tree LL over 64, 1 a domain, leaf: ");
    check_why(c, &spread, OP_ALL_REDUCE, 1e11, "ring over 64");
    check_why(h, &node, OP_ALL_REDUCE, 4096, "ring LL over 8, scale-up");
    check_why(h, &node, OP_ALL_REDUCE, 1e9, "NVLS over 8, scale-up");
    check_why(h, &node, OP_ALL_GATHER, 1e9, "ring over 8, scale-up");
    check_why(h, &all, OP_ALL_REDUCE, 2e7, "tree LL128 over 512, 8 a domain");
    check_why(h, &all, OP_ALL_REDUCE, 1e9, "NVLS and tree over 512, 8 a domain, leaf");
    check_why(h, &rail, OP_ALL_GATHER, 1e7, "PAT over 64");
    check_why(h, &node, OP_ALL_TO_ALL, 1e8, "direct over 8");
    check_why(h, &node, OP_REDUCE_SCATTER, 2 * MIB, "curve of 2026-01-01 measured over 8, scale-up: 31GB/s");
    check_why(h, &node, OP_REDUCE_SCATTER, 8 * MIB, "curve of 2026-01-01 measured, continued beyond its points, over 8");
    char little[8];
    cost_collective_why(h, OP_ALL_REDUCE, 1e9, &all, little, sizeof little);
    CU_ASSERT_STRING_EQUAL(little, "NVLS an");
    /* ten times the ranks: a ring's latency grows with them, a tree's with their logarithm */
    struct cost_group few = cost_run_group(c, 8, 8);
    CU_ASSERT(cost_group_s(c, OP_ALL_REDUCE, 4096, &spread) < 2.5 * cost_group_s(c, OP_ALL_REDUCE, 4096, &few));
    /* small messages on 8 GPUs: 12 to 19 us up to 32 KiB on H100 (DeepEP 303, Mooncake 3484) */
    double small_s = cost_group_s(h, OP_ALL_REDUCE, 16384, &node);
    CU_ASSERT(small_s > 12e-6 && small_s < 24e-6);
    arena_free(a);
}

/* An all-reduce of 8 bytes between GPUs without links of their own is NCCL's ring or tree of protocol LL: baseLat and a
 * hwLat of PCIe per step (tuning.cc), beside what the generation's software takes.  A latency that the cluster file
 * states in place of the assumed 2.5 us counts at every step; behind bridges, which the group leaves, it does not. */
static void test_pcie(void)
{
#define PCIE(latency) "kind=\"pcie\" bandwidth=\"32GB/s\"" latency
    static const struct machine h100 = {8, "H100-PCIe", PCIE(""), NDR, 2, NULL, NULL},
                                slow = {8, "H100-PCIe", PCIE(" latency=\"4.5us\""), NDR, 2, NULL, NULL},
                                pairs = {8, "H100-PCIe", SWITCH("300") " gpus=\"2\" latency=\"9us\"", NDR, 2, NULL, NULL};
    struct arena *a = arena_new();
    struct cost *c = machine_cost(a, &h100, 8, 1), *s = machine_cost(a, &slow, 8, 1), *p = machine_cost(a, &pairs, 2, 1);
    for (uint32_t n = 2; n <= 8; n *= 2) {
        struct cost_group g = cost_run_group(c, n, 1), later = cost_run_group(s, n, 1), beyond = cost_run_group(p, n, 1);
        double us = cost_group_s(c, OP_ALL_REDUCE, 8, &g) * 1e6;
        CU_ASSERT_DOUBLE_EQUAL(us, 6.6 + 5 + 2 * (n - 1) * 1.0, 0.1);
        CU_ASSERT_DOUBLE_EQUAL(cost_group_s(s, OP_ALL_REDUCE, 8, &later) * 1e6 - us, 2 * (n - 1) * 2.0, 0.1);
        if (n > 2)
            CU_ASSERT_DOUBLE_EQUAL(cost_group_s(p, OP_ALL_REDUCE, 8, &beyond) * 1e6, us, 0.1);
    }
    /* eight share two sockets: 0.6 of what each of four has, 0.4 where all send to all (SimuMax, A100 PCIe) */
    struct cost_group four = cost_run_group(c, 4, 1), eight = cost_run_group(c, 8, 1);
    CU_ASSERT_DOUBLE_EQUAL(bus(c, OP_ALL_GATHER, 16384 * MIB, &eight) / bus(c, OP_ALL_GATHER, 16384 * MIB, &four), 0.6, 0.01);
    CU_ASSERT_DOUBLE_EQUAL(bus(c, OP_ALL_TO_ALL, 16384 * MIB, &eight) / bus(c, OP_ALL_TO_ALL, 16384 * MIB, &four), 0.4, 0.01);
    arena_free(a);
#undef PCIE
}

static double rail_s(const char *nic, const char *fabric, const char *extra, uint32_t n, uint32_t stride)
{
    struct arena *a = arena_new();
    const struct machine m = {8, "H100-SXM", SWITCH("450"), nic, 16, fabric, extra};
    struct cost *c = machine_cost(a, &m, 8, 1);
    struct cost_group g = cost_run_group(c, n, stride);
    double s = cost_group_s(c, OP_ALL_GATHER, 4096 * MIB, &g);
    arena_free(a);
    return s;
}

/* what groups that run at once have to divide among them */
static void test_shares(void)
{
#define PODS(over) "medium=\"roce\"><tier name=\"pod\" span=\"4\"/><tier name=\"core\" span=\"all\" oversubscription=\"" over "\"/>"
    double free_s = rail_s(NDR, NULL, NULL, 16, 8);
    /* one member a node: its GPU's NIC; half as many NICs are half as fast */
    CU_ASSERT_DOUBLE_EQUAL(rail_s("count=\"4\" bandwidth=\"400Gb/s\"", NULL, NULL, 16, 8) / free_s, 2, 0.05);
    /* eight members a node bring eight NICs, as far as a GPU's links carry them: 369 of 384 GB/s */
    CU_ASSERT_DOUBLE_EQUAL(free_s / rail_s(NDR, NULL, NULL, 128, 1), 7, 0.4);
    /* one member a pod: all of it crosses the uplinks, 7 to 1; four members a pod share one crossing */
    CU_ASSERT_DOUBLE_EQUAL(rail_s(NDR, PODS("7"), NULL, 4, 32) / rail_s(NDR, PODS("1"), NULL, 4, 32), 7, 0.2);
    CU_ASSERT_DOUBLE_EQUAL(rail_s(NDR, PODS("7"), NULL, 16, 8) / rail_s(NDR, PODS("1"), NULL, 16, 8), 7.0 / 4, 0.1);
    CU_ASSERT_DOUBLE_EQUAL(rail_s(NDR, PODS("7"), NULL, 4, 8) / rail_s(NDR, PODS("1"), NULL, 4, 8), 1, 1e-6);
    /* everybody waits for the node with the slow NIC */
    double slow = rail_s(NDR, NULL, "<degraded nodes=\"n-0003\" nic-bandwidth=\"200Gb/s\"/>", 16, 8);
    CU_ASSERT_DOUBLE_EQUAL(slow / free_s, 2, 0.05);
    CU_ASSERT(rail_s("count=\"8\" bandwidth=\"400Gb/s\" latency=\"40us\"", NULL, NULL, 16, 8) > free_s);
#undef PODS
}

/* domains of more than a node, of less than one, and none */
static void test_domains(void)
{
    static const struct machine
        rack = {4, "GB200", SWITCH("900") " span=\"16\"", "count=\"4\" bandwidth=\"400Gb/s\"", 32, NULL, NULL},
        trays = {4, "GB200", SWITCH("900"), "count=\"4\" bandwidth=\"400Gb/s\"", 32, NULL, NULL},
        pairs = {8, "A100-PCIe-80GB", SWITCH("300") " gpus=\"2\"", "count=\"2\" bandwidth=\"200Gb/s\"", 1, NULL, NULL};
    struct arena *a = arena_new();
    struct cost *r = machine_cost(a, &rack, 4, 1), *t = machine_cost(a, &trays, 4, 1), *p = machine_cost(a, &pairs, 2, 1);
    struct cost_group in_rack = cost_run_group(r, 64, 1), in_trays = cost_run_group(t, 64, 1), two = cost_run_group(p, 2, 1),
                      four = cost_run_group(p, 4, 1), racks = cost_run_group(r, 128, 1);
    CU_ASSERT_EQUAL(in_rack.level, 0);
    CU_ASSERT(bus(r, OP_ALL_GATHER, 1024 * MIB, &in_rack) > 500);
    CU_ASSERT(bus(t, OP_ALL_GATHER, 1024 * MIB, &in_trays) < 200);
    CU_ASSERT(bus(r, OP_ALL_GATHER, 16384 * MIB, &racks) > 600); /* 64 NICs a rack carry more than a GPU's links */
    CU_ASSERT(bus(p, OP_ALL_REDUCE, 1024 * MIB, &two) > 180);
    CU_ASSERT(bus(p, OP_ALL_REDUCE, 1024 * MIB, &four) < 30); /* over PCIe, not the bridges */
    arena_free(a);
}

/* Members of a ring that have NICs of their own on nodes where GPUs share them, in a stack that goes by the host: so much of
 * each, half as much again behind a shared socket.  All others are as without. */
static void test_far_nics(void)
{
    static const struct {
        uint32_t nics, together, nodes;
        double far_gbs; /* of the members of a node; 0: as fast as without */
    } rows[] = {{4, 2, 3, 2 * 2.5},  {4, 4, 3, 4 * 2.5 * 1.5}, {4, 1, 3, 0}, {4, 8, 3, 0}, {4, 2, 1, 0}, {4, 4, 1, 0}, {8, 2, 3, 0},
                {8, 4, 3, 0},        {2, 2, 3, 2 * 2.5},       {2, 4, 3, 0}, {1, 2, 3, 0}};
    struct arena *a = arena_new();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct machine m = {8, "A100-SXM", SWITCH("300"), arena_printf(a, "count=\"%u\" bandwidth=\"200Gb/s\"", rows[i].nics), 3,
                            NULL, NULL};
        struct cost *c = machine_cost(a, &m, 8, 1);
        struct profile far = *c->profile;
        CU_ASSERT_EQUAL(far.far_nic_gbs, 0);
        uint32_t n = rows[i].together * rows[i].nodes, stride = rows[i].nodes > 1 ? 8 / rows[i].together : 1;
        struct cost_group near = cost_run_group(c, n, stride);
        double near_gbs = bus(c, OP_ALL_GATHER, 16384 * MIB, &near);
        far.far_nic_gbs = 2.5;
        c->profile = &far;
        struct cost_group g = cost_run_group(c, n, stride);
        double gbs = bus(c, OP_ALL_GATHER, 16384 * MIB, &g);
        CU_ASSERT(near_gbs > 5);
        if (rows[i].far_gbs > 0)
            CU_ASSERT_DOUBLE_EQUAL(gbs / rows[i].far_gbs, 0.95, 0.03)
        else
            CU_ASSERT_EQUAL(gbs, near_gbs);
    }
    arena_free(a);
}

/* tokens to experts: DeepSeek-V3's shape, 4096 tokens of 7168 values, 8 of 256 experts from 4 of 8 groups */
static void test_dispatch(void)
{
    static const struct machine h100 = {8, "H100-SXM", SWITCH("450"), NDR, 8, NULL, NULL};
    static const struct {
        uint32_t ranks;
        double all_us, once_us; /* Megatron-Core's report on experts: dispatch by all-to-all, and once per node */
    } rows[] = {{8, 1265, 661}, {16, 5774, 1485}, {32, 8059, 3064}, {64, 9164, 4626}};
    struct arena *a = arena_new();
    struct cost *c = machine_cost(a, &h100, 8, 1);
    double bytes = 4096.0 * 7168 * 2;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct cost_group g = cost_run_group(c, rows[i].ranks, 1);
        CU_ASSERT_DOUBLE_EQUAL(cost_dispatch_s(c, bytes, 8, 8, 4, &g, false) * 1e6 / rows[i].all_us, 1, 0.10);
        CU_ASSERT_DOUBLE_EQUAL(cost_dispatch_s(c, bytes, 8, 8, 4, &g, true) * 1e6 / rows[i].once_us, 1, 0.12);
        CU_ASSERT_DOUBLE_EQUAL(cost_dispatch_s(c, bytes, 8, 0, 0, &g, false), cost_group_s(c, OP_ALL_TO_ALL, 8 * bytes, &g), 1e-12);
        /* any node may be needed where routing does not pick groups first */
        CU_ASSERT(cost_dispatch_s(c, bytes, 8, 0, 0, &g, true) >= cost_dispatch_s(c, bytes, 8, 8, 4, &g, true));
    }
    struct cost_group one = cost_run_group(c, 1, 1);
    CU_ASSERT_EQUAL(cost_dispatch_s(c, bytes, 8, 8, 4, &one, true), 0);
    arena_free(a);
}

/* between stages, and how long a NIC is busy */
static void test_transfers(void)
{
    static const struct machine h100 = {8, "H100-SXM", SWITCH("450"), NDR, 4, NULL, NULL};
    struct arena *a = arena_new();
    struct cost *across = machine_cost(a, &h100, 8, 4), *inside = machine_cost(a, &h100, 1, 32), *none = machine_cost(a, &h100, 8, 1);
    double bytes = 256 * MIB;
    CU_ASSERT_EQUAL(across->next.level, 1);
    CU_ASSERT_DOUBLE_EQUAL(bytes / cost_transfer_s(across, bytes) / 1e9, 48, 3); /* a 400 Gb/s NIC */
    CU_ASSERT(cost_transfer_s(inside, bytes) > 0);
    CU_ASSERT_EQUAL(cost_transfer_s(none, bytes), 0);
    struct cost_group world = cost_run_group(across, 32, 1), rail = cost_run_group(across, 4, 8), node = cost_run_group(across, 8, 1);
    CU_ASSERT_DOUBLE_EQUAL(cost_wire_s(across, OP_ALL_GATHER, bytes, &rail) * 48e9, bytes * 3 / 4, bytes / 1e6);
    CU_ASSERT_DOUBLE_EQUAL(cost_wire_s(across, OP_ALL_REDUCE, bytes, &world) * 48e9, bytes * 2 * 31 / 32 / 8, bytes / 1e6);
    CU_ASSERT_DOUBLE_EQUAL(cost_wire_s(across, OP_ALL_TO_ALL, bytes, &world) * 48e9, bytes * 24 / 32, bytes / 1e6);
    CU_ASSERT_EQUAL(cost_wire_s(across, OP_ALL_GATHER, bytes, &node), 0);
    CU_ASSERT(cost_wire_s(across, OP_ALL_GATHER, bytes, &rail) < cost_group_s(across, OP_ALL_GATHER, bytes, &rail));
    arena_free(a);
}

/* CPU ranks exchange at the rate that is stated, however low; where none is, at a quarter of their memory's, or 2 GB/s */
static void test_host_rate(void)
{
    static const struct {
        const char *stated;
        double memory_gb_s, expected_gb_s;
    } cases[] = {{" host-bandwidth=\"1GB/s\"", 5, 0.8}, {" host-bandwidth=\"4GB/s\"", 5, 3.2}, {"", 40, 8}, {"", 5, 1.6}};
    struct arena *a = arena_new();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *text = arena_printf(a, "<cluster version=\"1\"><node-type id=\"n\" gpus=\"8\"%s><gpu model=\"cpu\" memory=\"64GiB\" "
                                  "memory-bandwidth=\"%gGB/s\"><peak dtype=\"bf16\" rate=\"20GFLOP/s\"/></gpu>"
                                  "<scale-up kind=\"none\"/></node-type><nodes type=\"n\" count=\"1\"/></cluster>",
                                  cases[i].stated, cases[i].memory_gb_s);
        struct source *s = ARENA_NEW(a, struct source);
        *s = (struct source){"c.xml", text, strlen(text), false};
        struct topo *topo = topo_parse(a, diag_new(a), s, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
        struct decision d = decision_single();
        const char *why = "";
        d.tp = 8;
        CU_ASSERT_FATAL(decision_place(a, topo, &d, &why));
        struct cost *c = cost_new(a, text_job(a, model), topo, &d);
        struct cost_group node = cost_run_group(c, 8, 1);
        CU_ASSERT_DOUBLE_EQUAL(cost_link_bytes_s(c, &node, false) / 1e9, cases[i].expected_gb_s, 1e-9);
    }
    arena_free(a);
}

void suite_comm(void);
void suite_comm(void)
{
    CU_pSuite s = CU_add_suite("comm", NULL, NULL);
    CU_add_test(s, "bus bandwidth as published", test_anchors);
    CU_add_test(s, "laws", test_laws);
    CU_add_test(s, "algorithm by size", test_choice);
    CU_add_test(s, "latencies of PCIe", test_pcie);
    CU_add_test(s, "shares of links", test_shares);
    CU_add_test(s, "domains", test_domains);
    CU_add_test(s, "far NICs", test_far_nics);
    CU_add_test(s, "dispatch to experts", test_dispatch);
    CU_add_test(s, "transfers between stages", test_transfers);
    CU_add_test(s, "rate between CPU ranks", test_host_rate);
}
