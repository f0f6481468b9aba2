/* What a collective may cost, as lines: NCCL's algorithms and protocols on the links that a group crosses.
 *
 * Shape of the model: NCCL 2.30's tuning.cc.  A ring has 2(n - 1) steps for all-reduce and n - 1 for gathers, each a hop
 * on a link or across the network; a tree goes up and down chains inside nodes and log2(nodes) hops between them; a
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
 * The numbers are NCCL's where a source says so, else fitted to measured curves by bench_micro (ramps, starts, hop scale
 * of Ampere and before).  Not modelled: CollNet (switches of the network that add), user-buffer registration, channels
 * left out by NCCL_MAX_CTAS. */

#include "compiler/cost/cost_private.h"

#include <math.h>
#include <string.h>

enum proto { LL, LL128, SIMPLE };
enum way { RING_LL, RING_LL128, RING, TREE_LL, TREE_LL128, TREE, NVLS, NVLS_TREE, PAT, DIRECT, NWAYS };
enum medium { NVLINK, PCI, NET, NMEDIA };

const char *cost_way_name(uint32_t way)
{
    static const char *const names[NWAYS] = {
        "ring LL", "ring LL128", "ring", "tree LL", "tree LL128", "tree", "NVLS", "NVLS and tree", "PAT", "direct"};
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
 * link, though 22.4 are measured; A100 20 of 25; H100 20.6 of 25; B200 40.1 of 50, 37.8 measured).  nvls: the same behind
 * a switch that adds (tuning.cc has 0.85 of link on Hopper, 0.74 on Blackwell; these follow curves of 8 H200, 8 B200 and 72 GB200
 * up to 16 GiB).  direct: of all-to-all (dispatch of tokens on H100 and GB200).  pcie: bytes/s of x16 (topo.h).
 * ll: cap in GB/s on one node, two, more (llMaxBws).  start, hops: software of the time against NCCL 2.30's latencies
 * (vTrain's and stas00's curves of A100, vTrain's of V100).  odd: steps' worth of copying besides the ring's (vTrain's A100: 2
 * to 8 GPUs). */
struct generation {
    uint32_t sm;
    double link, nvls, direct, pcie, ll[3], start_us, hops, odd, ramp_us, nvls_ramp_us;
};
static const struct generation generations[] = {
    /* sm link  nvls  direct pcie   ll              start hops odd ramp, us per root of MiB */
    {100, 0.76, 0.620, 0.64, 48e9, {282, 90, 70}, 2, 1.0, 0, 6, 13},
    {90, 0.82, 0.700, 0.72, 48e9, {141, 45, 35}, 2, 1.0, 0, 6, 6.5},
    {80, 0.80, 0, 0.72, 24e9, {30, 22.5, 19}, 20, 1.6, 0.4, 3, 0},
    {70, 0.90, 0, 0.72, 12e9, {39, 39, 20.4}, 5, 1.3, 0, 0, 0},
    {0, 0.72, 0, 0.65, 12e9, {20, 20, 20}, 5, 1.0, 0, 6, 0}, /* not NVIDIA's: MI300X, 313 of 448 GB/s */
};

static const struct generation *generation(const struct cost *c)
{
    const struct generation *g = generations;
    while (g->sm > c->type->gpu.sm)
        g++;
    return g;
}

/* CPU ranks and chips on a torus: no NCCL; a hop is what the topology says, 3 us to start */
static bool plain(const struct cost *c)
{
    return c->topo->torus_dims || (!c->type->gpu.sm && c->type->scale_up.kind == SCALE_UP_NONE);
}

static enum medium inner_medium(const struct cost *c, const struct cost_group *g)
{
    bool links = c->type->scale_up.kind == SCALE_UP_NVSWITCH || c->type->scale_up.kind == SCALE_UP_MESH;
    return links && !g->beyond ? NVLINK : PCI;
}

/* DGX-1V's eight V100: rings of disjoint links through 2..8 of them, each 1/6 of a GPU's NVLink (vTrain's curves) */
static const uint8_t cube_mesh_rings[9] = {0, 0, 1, 2, 4, 2, 2, 4, 6};

double cost_link_bytes_s(const struct cost *c, const struct cost_group *g)
{
    const struct topo_scale_up *s = &c->type->scale_up;
    const struct generation *gen = generation(c);
    double together = g->below[0], bytes_s = s->bytes_s * gen->link;
    if (plain(c)) {
        bytes_s = topo_level_bytes_s(c->topo, c->decision->type, 0);
        if (!c->topo->torus_dims) /* through host memory: read and written by both sides */
            bytes_s = c->type->host_bytes_s > 0 ? c->type->host_bytes_s : c->type->gpu.memory_bytes_s / 4;
        return fmax(bytes_s, 2e9) * 0.80;
    }
    if (inner_medium(c, g) == PCI) {
        /* SimuMax, A100 PCIe: 22 GB/s of 32 raw; 8 GPUs on two sockets 0.6 of what 4 on one have */
        double raw = s->kind == SCALE_UP_PCIE && !g->beyond ? 0.70 * s->bytes_s : 0.85 * c->type->host_bytes_s;
        raw = raw > 0 ? raw : 0.93 * gen->pcie;
        return together > 4 ? 0.6 * raw : raw;
    }
    if (s->kind == SCALE_UP_MESH && s->gpus > 1 && together > 1) {
        if (gen->sm == 70 && s->gpus == 8 && together <= 8)
            return bytes_s * cube_mesh_rings[g->below[0]] / 6;
        bytes_s *= fmin(1, (together - 1) / (s->gpus - 1)); /* links to others than the members lie idle */
    }
    return fmax(bytes_s, 1e9);
}

/* measured: 381.8 of 400 GB/s on 4 B200 nodes over EFA; 46-48 of 50 per NIC on InfiniBand (maintainers of NCCL) */
double cost_net_bytes_s(const struct cost *c, uint32_t level)
{
    double share = c->topo->torus_dims ? 0.90 : !strcmp(c->topo->medium, "ethernet") ? 0.80 : 0.95;
    double bytes_s = topo_level_bytes_s(c->topo, c->decision->type, level) * c->device.nic_factor * share;
    return bytes_s > 0 ? bytes_s : 1e9;
}

/* seconds of a hop at a level; what the topology states beyond (or below) NCCL's default counts twice under Simple,
 * which flushes after data arrives */
static double hop_s(const struct cost *c, const struct cost_group *g, bool tree, enum proto p, uint32_t level)
{
    double stated = topo_level_latency_s(c->topo, c->decision->type, level);
    if (plain(c))
        return stated;
    enum medium m = level ? NET : inner_medium(c, g);
    static const double assumed[NMEDIA] = {1.9e-6, 2.5e-6, 4.0e-6}; /* topo_level_latency_s() without a statement */
    double own = hop_us[tree][m][p] * 1e-6 * (level ? 1 : generation(c)->hops), extra = stated - assumed[m];
    if (level == 0 && m == PCI)
        extra = 0;
    /* what AWS's plug-in tells NCCL of EFA (p5en, p6): fits 4 nodes of B200 from 16 MiB on */
    if (level && !strcmp(c->topo->medium, "efa") && fabs(extra) < 1e-9)
        extra = 35e-6;
    return fmax(own + extra * (level && p == SIMPLE ? 2 : 1), own / 2);
}

/* what the lines of one group are made from */
struct tuning {
    const struct cost *c;
    const struct generation *gen;
    struct cost_group *g;
    double n, together, nodes; /* members; of them in a domain; domains */
    double link, net, bus;     /* bytes/s of a ring: inside, across, both */
};

static void add_line(struct tuning *t, enum way way, double start_s, double bytes_s, double root_s)
{
    struct cost_group *g = t->g;
    struct cost_line line = {(float)start_s, (float)(1 / bytes_s), (float)root_s, way};
    uint32_t *end = &g->first[NMOVES]; /* grows with the lines while they are made */
    if (*end < COST_LINES)
        g->lines[(*end)++] = line;
}

/* seconds of `passes` rounds of a ring */
static double ring_hops_s(const struct tuning *t, enum proto p, double passes)
{
    double seconds = (t->n - t->nodes) * (t->together > 1 ? hop_s(t->c, t->g, false, p, 0) : 0), sets = t->nodes;
    for (uint32_t level = 1; level <= t->g->level; level++) {
        double above = ceil(t->n / t->g->below[level]);
        seconds += fmax(0, sets - above) * hop_s(t->c, t->g, false, p, level);
        sets = fmin(sets, above);
    }
    return passes * seconds;
}

/* seconds of one way through a tree between nodes */
static double tree_hops_s(const struct tuning *t, enum proto p, double net_us)
{
    double seconds = 0, below = t->together;
    for (uint32_t level = 1; level <= t->g->level; level++) {
        double sets = t->g->below[level] / below;
        if (sets <= 1)
            continue;
        double hop = hop_s(t->c, t->g, true, p, level);
        if (net_us > 0) /* NVLSTree has a latency of its own in place of the tree's */
            hop = fmax(hop + (net_us - hop_us[1][NET][p]) * 1e-6, hop / 2);
        seconds += log2(ceil(sets)) * hop;
        below = t->g->below[level];
    }
    return seconds;
}

static double ll_bytes_s(const struct tuning *t)
{
    return fmin(t->bus / 2, t->gen->ll[t->nodes <= 1 ? 0 : t->nodes <= 2 ? 1 : 2] * 1e9);
}

/* moved: bytes over the bottleneck per byte of message */
static void ring_lines(struct tuning *t, double passes, double moved)
{
    const enum way ways[3] = {RING_LL, RING_LL128, RING};
    const double bus[3] = {ll_bytes_s(t), 0.92 * t->bus, t->bus};
    bool links = t->together < 2 || inner_medium(t->c, t->g) == NVLINK;
    for (int p = plain(t->c) ? SIMPLE : LL; p <= SIMPLE; p++) {
        if (p == LL128 && (!links || t->gen->sm < 70)) /* needs 128-byte stores that stay whole */
            continue;
        double start = plain(t->c) ? 3e-6 : (base_us[0][p] + t->gen->start_us) * 1e-6;
        double copied = t->together > 1 ? t->gen->odd / t->n : 0;
        double ramp = p == LL || plain(t->c) ? 0 : t->gen->ramp_us * 1e-6 / 1024 * passes / 2;
        add_line(t, ways[p], start + ring_hops_s(t, (enum proto)p, passes), bus[p] / (moved + copied), ramp);
    }
}

static void tree_lines(struct tuning *t)
{
    double factor = t->nodes > 2 ? 2 : 1; /* a node of one tree's inside is a leaf of the other: at most 2 x the message */
    const double share[3] = {1 / 3.8, t->nodes > 1 ? 120.0 / 128 : 7.0 / 9, 0.92};
    const enum way ways[3] = {TREE_LL, TREE_LL128, TREE};
    bool links = t->together < 2 || inner_medium(t->c, t->g) == NVLINK;
    for (int p = plain(t->c) ? SIMPLE : LL; p <= SIMPLE; p++) {
        if (p == LL128 && (!links || t->gen->sm < 70))
            continue;
        double inner = t->together > 1 ? (t->together - 1) * hop_s(t->c, t->g, true, (enum proto)p, 0) : 0;
        double rate = fmin(t->together > 1 ? t->link / 2 : INFINITY, t->net / factor) * share[p];
        if (p == LL)
            rate = fmin(rate, ll_bytes_s(t));
        double start = plain(t->c) ? 3e-6 : (base_us[1][p] + t->gen->start_us) * 1e-6;
        add_line(t, ways[p], start + 2 * (inner + tree_hops_s(t, (enum proto)p, 0)), rate,
                 p == LL || plain(t->c) ? 0 : t->gen->ramp_us * 1e-6 / 1024);
    }
}

/* A GPU sends its part once to be added and receives the sum of its share to send on: message * (1 + 1/p) a link, which
 * meets 363 / 414 / 436 / 460 / 473 GB/s on 4..8 H200.  72 GB200 reach no more bus bandwidth than 8. */
static void nvls_lines(struct tuning *t)
{
    if (!t->c->type->scale_up.multicast || t->gen->nvls <= 0 || t->together < 2 || t->g->beyond)
        return;
    double p = fmin(t->together, 8), bus = t->c->type->scale_up.bytes_s * t->gen->nvls * 2 * (p - 1) / (p + 1);
    double rate = bus * t->together / (2 * (t->together - 1)), start = (t->gen->start_us + nvls_us) * 1e-6;
    double ramp = t->gen->nvls_ramp_us * 1e-6 / 1024;
    if (t->nodes <= 1)
        add_line(t, NVLS, start, rate, ramp);
    else
        add_line(t, NVLS_TREE, start + 2 * tree_hops_s(t, SIMPLE, nvls_net_us), fmin(rate, t->net / (t->nodes > 2 ? 2 : 1)),
                 ramp);
}

/* gathers with one member per node: a tree per chunk (NCCL 2.23 and later) */
static void pat_line(struct tuning *t)
{
    if (t->together > 1 || t->nodes < 4 || plain(t->c))
        return;
    double start = (8 + t->gen->start_us + 2.8 * t->n) * 1e-6 + tree_hops_s(t, SIMPLE, 0) / 3.5;
    add_line(t, PAT, start, 0.75 * t->bus * t->n / (t->n - 1), t->gen->ramp_us * 1e-6 / 2048);
}

/* every part directly; inside and across one after the other, as dispatch on 8 to 64 H100 adds up */
static void direct_line(struct tuning *t)
{
    const struct cost_group *g = t->g;
    double direct = t->link * (plain(t->c) || inner_medium(t->c, g) == PCI ? 1 : t->gen->direct / t->gen->link);
    double per_byte = t->together > 1 ? (t->together - 1) / t->n / direct : 0, across = 0, below = t->together;
    double start = plain(t->c) ? 3e-6 : (base_us[0][SIMPLE] + t->gen->start_us) * 1e-6;
    for (uint32_t level = 1; level <= g->level; level++) {
        if (g->below[level] > below || level == g->level)
            across = fmax(across, (t->n - below) / t->n / (cost_net_bytes_s(t->c, level) * 0.96));
        below = g->below[level];
    }
    if (across > 0 && t->together > 1 && !t->c->topo->cross_rail) /* to the right rail over the links first */
        per_byte += (t->n - t->together) / t->n * (t->together - 1) / t->together / direct;
    double step = hop_s(t->c, g, false, SIMPLE, g->level);
    add_line(t, DIRECT, start + step + 0.5e-6 * (t->n - 1), 1 / (per_byte + across), 0);
}

/* lines that another of the same move beats at every size */
static void drop_beaten(struct cost_group *g, uint32_t from)
{
    uint32_t kept = from, end = g->first[NMOVES];
    for (uint32_t i = from; i < end; i++) {
        const struct cost_line *x = &g->lines[i];
        bool beaten = false;
        for (uint32_t k = from; k < end && !beaten; k++) {
            const struct cost_line *y = &g->lines[k];
            bool no_worse = y->start_s <= x->start_s && y->per_byte_s <= x->per_byte_s && y->root_s <= x->root_s;
            bool equal = y->start_s == x->start_s && y->per_byte_s == x->per_byte_s && y->root_s == x->root_s;
            beaten = k != i && no_worse && (!equal || k < i);
        }
        if (!beaten)
            g->lines[kept++] = *x;
    }
    memset(&g->lines[kept], 0, (end - kept) * sizeof g->lines[0]);
    g->first[NMOVES] = kept;
}

void cost_tune(const struct cost *c, struct cost_group *g)
{
    memset(g->first, 0, sizeof g->first);
    memset(g->lines, 0, sizeof g->lines);
    if (g->n < 2)
        return;
    struct tuning t = {.c = c, .gen = generation(c), .g = g, .n = g->n, .together = g->below[0]};
    t.nodes = g->level ? ceil(t.n / t.together) : 1;
    t.link = t.together > 1 ? cost_link_bytes_s(c, g) : INFINITY;
    t.net = INFINITY;
    double below = t.together;
    for (uint32_t level = 1; level <= g->level; level++) {
        if (g->below[level] > below || level == g->level)
            t.net = fmin(t.net, below * cost_net_bytes_s(c, level));
        below = g->below[level];
    }
    t.bus = fmin(t.link, t.net);
    for (int move = 0; move < NMOVES; move++) {
        uint32_t from = g->first[move] = g->first[NMOVES];
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
        drop_beaten(g, from);
    }
}
