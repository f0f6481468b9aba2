/* What a collective may cost, as lines: NCCL's algorithms and protocols on the links that a group crosses.
 *
 * Shape of the model: NCCL 2.30's tuning.cc.  A ring has 2(n - 1) steps for all-reduce and n - 1 for gathers, each a
 * hop on a link or across the network; a tree goes up and down chains inside nodes and log2(nodes) hops between them; a
 * switch that adds and multicasts (NVLS) replaces the ring inside a domain.  Protocols trade latency for bandwidth: LL
 * (half, capped), LL128 (0.92), Simple (all of it).  Every admissible pair becomes a line start + bytes * slope, plus a
 * term in sqrt(bytes): chunks grow with the message, so filling and draining of the pipeline grows as the root of it,
 * which is how measured curves approach their peak.
 *
 * Bandwidth of a ring is the least over the levels it crosses: a GPU's links inside; at network level l the share of
 * all members that sit together below l (each brings its share of the NICs and of the oversubscribed uplinks, and all
 * groups of the same axes cross at once).  A tree sends a node's whole message up and down through its NICs: once for
 * two nodes, twice for more.  All-to-all sends every part directly: what leaves a node is limited by one GPU's share.
 *
 * The numbers are NCCL's where a source says so, else fitted to measured curves by bench_micro (ramps, starts, hop
 * scale of Ampere and before).  Not modelled: CollNet (switches of the network that add), user-buffer registration,
 * channels left out by NCCL_MAX_CTAS. */

#include "compiler/cost/cost_private.h"
#include "compiler/support/real.h"

#include <math.h>
#include <string.h>

/* a NaN cannot occur here, so the library's function is not needed */
static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static double greater(double a, double b)
{
    return a > b ? a : b;
}

enum proto { LL, LL128, SIMPLE };
enum way { RING_LL, RING_LL128, RING, TREE_LL, TREE_LL128, TREE, NVLS, NVLS_TREE, PAT, DIRECT, NWAYS };
enum medium { NVLINK, PCI, NET, NMEDIA };

const char *cost_way_name(uint32_t way)
{
    static const char *const names[NWAYS] = {"ring LL", "ring LL128", "ring",          "tree LL", "tree LL128",
                                             "tree",    "NVLS",       "NVLS and tree", "PAT",     "direct"};
    return way < NWAYS ? names[way] : "";
}

/* microseconds: tuning.cc, baseLat and hwLat; PAT's and NVLSTree's in their functions */
static const double base_us[2][3] = {{6.6, 14, 8.4}, {6.8, 14, 8.4}}; /* ring, tree */
static const double hop_us[2][NMEDIA][3] = {
    {{0.6, 1.9, 3.4}, {1.0, 2.5, 5.7}, {2.7, 4.0, 14}}, /* ring */
    {{0.6, 1.25, 4.0}, {1.0, 1.9, 4.0}, {5.0, 8.5, 14}} /* tree */
};
static const double nvls_us = 25, nvls_net_us = 20.9;

/* Per generation of GPU.  link: share of the data-sheet's NVLink that transfers reach (topo.h: V100 20 of 25 GB/s per
 * link, though 22.4 are measured; A100 20 of 25; H100 20.6 of 25; B200 40.1 of 50, 37.8 measured).  nvls: the same
 * behind a switch that adds (tuning.cc has 0.85 of link on Hopper, 0.74 on Blackwell; these follow curves of 8 H200, 8
 * B200 and 72 GB200 up to 16 GiB).  direct: of all-to-all (dispatch of tokens on H100 and GB200).  pcie: bytes/s of x16
 * (topo.h). ll: cap in GB/s on one node, two, more (llMaxBws).  tree, tree128, ring128: caps per channel on two nodes
 * and on more (perChMaxTreeBws and its kin); a channel per NIC.  start, hops: software of the time against NCCL 2.30's
 * latencies (vTrain's and stas00's curves of A100, vTrain's of V100).  odd: steps' worth of copying besides the ring's
 * (vTrain's A100: 2 to 8 GPUs). */
struct generation {
    uint32_t sm;
    double link, nvls, direct, pcie, ll[3], tree[2], tree128[2], ring128, start_us, hops, odd, ramp_us, nvls_ramp_us;
};
static const struct generation generations[] = {
    /* sm link  nvls  direct pcie   ll             tree          tree LL128   ring LL128 start hops odd ramps */
    {100, 0.76, 0.615, 0.64, 48e9, {282, 90, 70}, {42.8, 24}, {31.67, 20}, 40, 5, 1.0, 0, 2, 11},
    {90, 0.82, 0.700, 0.72, 48e9, {141, 45, 35}, {41.4, 36}, {36.7, 29}, 36.7, 5, 1.0, 0, 2, 7},
    {80, 0.80, 0, 0.72, 24e9, {30, 22.5, 19}, {23.6, 17.8}, {20, 20}, 20, 20, 1.6, 0.4, 3, 0},
    {70, 0.90, 0, 0.72, 12e9, {39, 39, 20.4}, {18.5, 10}, {20, 20}, 20, 10, 1.5, 0, 0, 0},
    {0, 0.72, 0, 0.65, 12e9, {20, 20, 20}, {18.5, 10}, {20, 20}, 20, 5, 1.0, 0, 6, 0}, /* MI300X, 313 of 448 GB/s */
};

static const struct generation *generation(const struct cost *c)
{
    const struct generation *g = generations;
    while (g->sm > c->type->gpu.sm)
        g++;
    return g;
}

static enum medium inner_medium(const struct cost *c, const struct cost_group *g)
{
    bool links = c->type->scale_up.kind == SCALE_UP_NVSWITCH || c->type->scale_up.kind == SCALE_UP_MESH;
    return links && !g->beyond ? NVLINK : PCI;
}

/* what NCCL assumes: topo_level_latency_s() without a statement, but for EFA */
static const double assumed_s[NMEDIA] = {1.9e-6, 2.5e-6, 4.0e-6};

/* Networks: 48 of 50 GB/s per NIC (NCCL's channel speeds; 381.8 of 400 measured on 4 nodes of B200 over EFA at 16 GiB);
 * plain Ethernet: TCP's copies, assumed. */
void cost_net_init(struct cost *c)
{
    struct cost_net *net = &c->net;
    const struct topo *t = c->topo;
    bool torus = t->torus_dims > 0;
    net->plain = torus || (!c->type->gpu.sm && c->type->scale_up.kind == SCALE_UP_NONE);
    net->ordered = strcmp(t->medium, "efa"); /* packets of EFA arrive in any order: its plug-in turns LL128 off */
    for (uint32_t level = 0; level < COST_LEVELS && level <= t->ntiers; level++) {
        double stated = topo_level_latency_s(t, c->decision->type, level);
        enum medium m = level ? NET : c->type->scale_up.kind == SCALE_UP_PCIE ? PCI : NVLINK;
        net->extra_s[level] = net->plain ? stated : stated - assumed_s[m];
        double share = torus && level == 1 ? 0.90 : !strcmp(t->medium, "ethernet") ? 0.80 : 0.96;
        double bytes_s = level ? topo_level_bytes_s(t, c->decision->type, level) * c->device.nic_factor * share : 0;
        net->bytes_s[level] = level && bytes_s <= 0 ? 1e9 : bytes_s;
    }
}

/* DGX-1V's eight V100: rings of disjoint links through 2..8 of them, each 1/6 of a GPU's NVLink (vTrain's curves) */
static const uint8_t cube_mesh_rings[9] = {0, 0, 1, 2, 4, 2, 2, 4, 6};

static double plain_link_bytes_s(const struct cost *c)
{
    double bytes_s = c->type->host_bytes_s;
    if (bytes_s <= 0)
        bytes_s = greater(c->type->gpu.memory_bytes_s / 4, 2e9); /* read and written by both sides */
    if (c->topo->torus_dims)
        bytes_s = greater(topo_level_bytes_s(c->topo, c->decision->type, 0), 2e9);
    return 0.80 * bytes_s;
}

double cost_link_bytes_s(const struct cost *c, const struct cost_group *g, bool direct)
{
    const struct topo_scale_up *s = &c->type->scale_up;
    const struct generation *gen = generation(c);
    double together = g->below[0], bytes_s = s->bytes_s * (direct ? gen->direct : gen->link);
    if (c->net.plain)
        return plain_link_bytes_s(c);
    if (inner_medium(c, g) == PCI) {
        /* SimuMax, A100 PCIe: 22 GB/s of 32 raw; 8 GPUs on two sockets 0.6 of what 4 on one have, all-to-all 0.4 */
        double raw = s->kind == SCALE_UP_PCIE && !g->beyond ? 0.70 * s->bytes_s : 0.85 * c->type->host_bytes_s;
        raw = raw > 0 ? raw : 0.93 * gen->pcie;
        return together > 4 ? (direct ? 0.4 : 0.6) * raw : raw;
    }
    if (s->kind == SCALE_UP_MESH && s->gpus > 1 && together > 1) {
        if (gen->sm == 70 && s->gpus == 8 && together <= 8)
            return bytes_s * cube_mesh_rings[g->below[0]] / 6;
        /* Links to others than the members lie idle.  A GPU with fewer links than peers cannot be joined to all of
         * them: its links go where a switch or a ring takes them. */
        double links = s->bytes_s / (gen->sm >= 100 ? 50e9 : gen->sm ? 25e9 : 64e9);
        if (links > s->gpus - 1.5)
            bytes_s *= lesser(1, (together - 1) / (s->gpus - 1));
    }
    return greater(bytes_s, 1e9);
}

/* what the lines of one group are made from */
struct tuning {
    const struct cost *c;
    const struct generation *gen;
    struct cost_group *g;
    bool plain;
    enum medium medium;        /* inside a domain */
    double n, together, nodes; /* members; members in a domain; domains */
    double link, net, bus;     /* bytes per second of a ring: inside a domain, across the network, both */
    double channels;           /* number of NICs of a domain's members */
    double hop[2][3];          /* seconds of a hop inside a domain: ring or tree, by protocol */
};

/* Seconds of a hop.  What the topology states beyond (or below) NCCL's default counts twice under Simple on a
 * network, which flushes after data arrives. */
static double hop_s(const struct tuning *t, bool tree, enum proto p, uint32_t level)
{
    const struct cost_net *net = &t->c->net;
    if (t->plain)
        return net->extra_s[level];
    double own = hop_us[tree][level ? NET : t->medium][p] * 1e-6 * (level ? 1 : t->gen->hops),
           extra = net->extra_s[level];
    if (level == 0 && t->medium == PCI && t->c->type->scale_up.kind != SCALE_UP_PCIE)
        extra = 0; /* that is stated for the links, which the group leaves */
    return greater(own + extra * (level && p == SIMPLE ? 2 : 1), own / 2);
}

static void add_line(struct tuning *t, enum way way, double start_s, double bytes_s, double root_s)
{
    struct cost_group *g = t->g;
    struct cost_line line = {(float)start_s, (float)(1 / bytes_s), (float)root_s, way};
    uint32_t *end = &g->first[NMOVES]; /* increases with each line that is made */
    if (*end < COST_LINES)
        g->lines[(*end)++] = line;
}

/* Seconds of `passes` rounds of a ring. */
static double ring_hops_s(const struct tuning *t, enum proto p, double passes)
{
    double seconds = (t->n - t->nodes) * t->hop[0][p], sets = t->nodes;
    for (uint32_t level = 1; level <= t->g->level; level++) {
        double above = level == t->g->level ? 1 : ceil(t->n / t->g->below[level]);
        if (sets > above)
            seconds += (sets - above) * hop_s(t, false, p, level);
        sets = lesser(sets, above);
    }
    return passes * seconds;
}

/* Seconds of one way through a tree between nodes; own_us: replaces the tree's latency, 0 = none. */
static double tree_hops_s(const struct tuning *t, enum proto p, double own_us)
{
    double seconds = 0, below = t->together;
    for (uint32_t level = 1; level <= t->g->level; level++) {
        double sets = t->g->below[level] / below;
        if (sets <= 1)
            continue;
        double hop = hop_s(t, true, p, level);
        if (own_us > 0)
            hop = greater(hop + (own_us - hop_us[1][NET][p]) * 1e-6, hop / 2);
        seconds += real_log2(ceil(sets)) * hop;
        below = t->g->below[level];
    }
    return seconds;
}

static double ll_bytes_s(const struct tuning *t)
{
    return lesser(t->bus / 2, t->gen->ll[t->nodes <= 1 ? 0 : t->nodes <= 2 ? 1 : 2] * 1e9);
}

/* LL128 needs links and networks that keep 128 bytes together */
static bool admits(const struct tuning *t, enum proto p)
{
    bool links = t->together < 2 || t->medium == NVLINK;
    return p != LL128 || (links && t->gen->sm >= 70 && (t->nodes <= 1 || t->c->net.ordered));
}

static double start_s(const struct tuning *t, double us)
{
    return t->plain ? 3e-6 : (us + t->gen->start_us) * 1e-6;
}

static double ramp_s(const struct tuning *t, double us_per_root_mib)
{
    return t->plain ? 0 : us_per_root_mib * 1e-6 / 1024;
}

/* The bytes per second that so many GB/s per channel allow across the network; without a network nothing is capped. */
static double capped(const struct tuning *t, double bytes_s, double per_channel)
{
    return t->nodes > 1 && !t->plain ? lesser(bytes_s, t->channels * per_channel * 1e9) : bytes_s;
}

/* moved: bytes over the bottleneck per byte of the message. */
static void ring_lines(struct tuning *t, double passes, double moved)
{
    const enum way ways[3] = {RING_LL, RING_LL128, RING};
    const double bus[3] = {ll_bytes_s(t), capped(t, 0.92 * t->bus, t->gen->ring128), t->bus};
    double copied = t->medium == NVLINK && t->together > 1 ? t->gen->odd / t->n : 0;
    for (int p = t->plain ? SIMPLE : LL; p <= SIMPLE; p++)
        if (admits(t, (enum proto)p))
            add_line(t, ways[p], start_s(t, base_us[0][p]) + ring_hops_s(t, (enum proto)p, passes),
                     bus[p] / (moved + copied), p == LL ? 0 : ramp_s(t, t->gen->ramp_us * passes / 2));
}

static void tree_lines(struct tuning *t)
{
    double factor = t->nodes > 2 ? 2
                                 : 1; /* a node inside of one tree is a leaf of the other: at most 2 x the message */
    const double share[3] = {1 / 3.8, t->nodes > 1 ? 120.0 / 128 : 7.0 / 9, 0.92}; /* of the bus, twice the rate */
    const double cap[3] = {INFINITY, t->gen->tree128[t->nodes > 2], t->gen->tree[t->nodes > 2]};
    const enum way ways[3] = {TREE_LL, TREE_LL128, TREE};
    for (int p = t->plain ? SIMPLE : LL; p <= SIMPLE; p++) {
        if (!admits(t, (enum proto)p))
            continue;
        double hops = (t->together - 1) * t->hop[1][p] + tree_hops_s(t, (enum proto)p, 0);
        double rate = lesser(t->link / 2, t->net / factor) * share[p];
        rate = p == LL ? lesser(rate, ll_bytes_s(t)) : capped(t, rate, cap[p] / 2);
        add_line(t, ways[p], start_s(t, base_us[1][p]) + 2 * hops, rate, p == LL ? 0 : ramp_s(t, t->gen->ramp_us));
    }
}

/* A GPU sends its part once to be added and receives the sum of its share to send on: message * (1 + 1/p) a link, which
 * meets 363 / 414 / 436 / 460 / 473 GB/s on 4..8 H200.  72 GB200 reach no more bus bandwidth than 8. */
static void nvls_lines(struct tuning *t)
{
    if (!t->c->type->scale_up.multicast || t->gen->nvls <= 0 || t->together < 2 || t->g->beyond)
        return;
    double p = lesser(t->together, 8), bus = t->c->type->scale_up.bytes_s * t->gen->nvls * 2 * (p - 1) / (p + 1);
    double rate = bus * t->together / (2 * (t->together - 1)), net = t->net / (t->nodes > 2 ? 2 : 1);
    /* where the network is the narrower one, filling of the switch hides behind it */
    double start = start_s(t, nvls_us), ramp = ramp_s(t, net < rate ? t->gen->ramp_us : t->gen->nvls_ramp_us);
    if (t->nodes <= 1)
        add_line(t, NVLS, start, rate, ramp);
    else
        add_line(t, NVLS_TREE, start + 2 * tree_hops_s(t, SIMPLE, nvls_net_us), lesser(rate, net), ramp);
}

/* Gathers with one member per node: a tree per chunk.  NCCL 2.23 and later; runs of Ampere's time did not have it. */
static void pat_line(struct tuning *t)
{
    if (t->together > 1 || t->nodes < 4 || t->plain || t->gen->sm < 90)
        return;
    double start = start_s(t, 8 + 2.8 * t->n) + tree_hops_s(t, SIMPLE, 0) / 3.5;
    add_line(t, PAT, start, 0.75 * t->bus * t->n / (t->n - 1), ramp_s(t, t->gen->ramp_us / 2));
}

/* Every part is sent directly; first inside and then across, which matches dispatch on 8 to 64 H100. */
static void direct_line(struct tuning *t)
{
    const struct cost_group *g = t->g;
    double direct = t->together > 1 ? cost_link_bytes_s(t->c, g, true) : INFINITY, below = t->together, across = 0;
    double per_byte = (t->together - 1) / t->n / direct;
    for (uint32_t level = 1; level <= g->level; level++) {
        if (g->below[level] > below || level == g->level)
            across = greater(across, (t->n - below) / t->n / (t->c->net.bytes_s[level] * (t->plain ? 1 : DIRECT_NET)));
        below = g->below[level];
    }
    if (across > 0 && t->together > 1 && !t->c->topo->cross_rail) /* to the right rail over the links first */
        per_byte += (t->n - t->together) / t->n * (t->together - 1) / t->together / direct;
    double step = hop_s(t, false, SIMPLE, g->level);
    add_line(t, DIRECT, start_s(t, base_us[0][LL]) + step + (t->plain ? step : 0.3e-6) * (t->n - 1),
             1 / (per_byte + across), 0);
}

/* NCCL before 2.12: a ring leaves a node by the NIC it came in by, for a GPU without a NIC of its own beside it by way
 * of the host's memory.  Members that have a NIC each, where GPUs share NICs, meet none next to two of them.  Two of
 * them sit on two sockets; where there are more, neighbours share one, which vTrain's runs with tp 2 beside those with
 * tp 4 show to be half as fast again. */
static double far_nic_bytes_s(const struct tuning *t, double nics)
{
    double each = t->c->profile->far_nic_gbs * 1e9;
    if (each <= 0 || t->nodes < 2 || t->together < 2 || t->together > nics || nics >= t->c->type->gpus)
        return INFINITY;
    return t->together * each * (t->together > 2 ? 1.5 : 1);
}

void cost_tune(const struct cost *c, struct cost_group *g, uint32_t moves)
{
    memset(g->first, 0, sizeof g->first);
    memset(g->lines, 0, sizeof g->lines);
    if (g->n < 2)
        return;
    struct tuning t = {.c = c,
                       .gen = generation(c),
                       .g = g,
                       .plain = c->net.plain,
                       .medium = inner_medium(c, g),
                       .n = g->n,
                       .together = g->below[0],
                       .net = INFINITY};
    t.nodes = g->level ? ceil(t.n / t.together) : 1;
    double nics = 0;
    for (uint32_t i = 0; i < c->type->nnics; i++)
        nics += c->type->nics[i].count;
    t.channels = greater(1, t.together * nics / c->type->gpus);
    t.link = t.together > 1 ? cost_link_bytes_s(c, g, false) : INFINITY;
    for (int i = 0; i < 6 && t.together > 1; i++)
        t.hop[i / 3][i % 3] = hop_s(&t, i / 3, (enum proto)(i % 3), 0);
    double below = t.together;
    for (uint32_t level = 1; level <= g->level; level++) {
        if (g->below[level] > below || level == g->level)
            t.net = lesser(t.net, below * c->net.bytes_s[level]);
        below = g->below[level];
    }
    t.net = lesser(t.net, far_nic_bytes_s(&t, nics));
    t.bus = lesser(t.link, t.net);
    for (uint32_t move = 0; move < NMOVES; move++) {
        g->first[move] = g->first[NMOVES];
        if (!(moves & 1u << move))
            continue;
        if (move == MOVE_ALL_REDUCE) {
            ring_lines(&t, 2, 2 * (t.n - 1) / t.n);
            tree_lines(&t);
            nvls_lines(&t);
        } else if (move == MOVE_GATHER) {
            ring_lines(&t, 1, (t.n - 1) / t.n);
            pat_line(&t);
        } else if (move == MOVE_BROADCAST) {
            ring_lines(&t, 1, 1);
        } else {
            direct_line(&t);
        }
    }
}
