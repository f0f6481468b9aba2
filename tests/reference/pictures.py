#!/usr/bin/env python3
"""The data behind pictures of schedules, against the sources' own definitions of them.

Reads, on standard input, for every pipeline rank of a plan that was simulated with forwards of 1 unit, backwards of 2 and
their halves of 1, and transfers that take no time, a line

    SCHEDULE PP STAGES_PER_RANK MICROBATCHES RANK: block ...    block: F0.3@5-6, or (F0.3&B7.1)@5-8; or .@5-8, idle

and builds the same from the definitions below, which share nothing with the compiler: an order of actions per rank, run as
early as its inputs are there.  Says what differs, and whether idle time is what the source says; exit code 1 if anything is
otherwise.

GPipe: Huang et al., 2019, figure 2c.  1F1B, interleaved: Narayanan et al., 2021 (Megatron-LM), figures 3 and 4, section 2.2.
Eager 1F1B: Zhuang et al., 2023, figure 7 (warm-up of 2 (p - 1 - r)).  ZB-H1, ZB-H2: Qi et al., 2024 (zero bubble), figures 2, 3
and table 2.  ZB-V: figure 6 of the same.  DualPipe: DeepSeek-V3, 2024, figure 5 and table 2; DualPipeV: Qi's "cut-in-half" of it.
Combined 1F1B: Megatron-LM's overlap of experts' transfers, one warm-up more.  V-Half and V-Min: Qi et al., 2024 (controllable
memory), sections 3 and 4, of which the repeated building block, the memory and the idle time are checked here.
"""

import sys
from collections import deque

UNITS = {"F": 1, "B": 2, "I": 1, "W": 1}
PAIRED = ("combined_1f1b", "dualpipe", "dualpipe_v")  # transfers in the order of other costs: a unit late at the most


# ---- orders: per rank a list of actions (kind, stage, microbatch), or of pairs ((F ...), (B ...)) ----

def warmed(p, m, ahead):
    """F of all, then F and B in turn, then B; stage r on rank r."""
    def rank(r):
        w = min(m, ahead(r))
        turns = [x for k in range(m - w) for x in (("F", r, w + k), ("B", r, k))]
        return [("F", r, k) for k in range(w)] + turns + [("B", r, k) for k in range(m - w, m)]
    return [rank(r) for r in range(p)]


def gpipe(p, v, m):
    return [[("F", r, k) for k in range(m)] + [("B", r, k) for k in range(m)] for r in range(p)]


def one_f_one_b(p, v, m):
    return warmed(p, m, lambda r: p - 1 - r)


def eager(p, v, m):
    return warmed(p, m, lambda r: 2 * (p - 1 - r))


def looped(p, v, m, r, n):
    table = [(i, c) for g in range(0, m, n) for c in range(v) for i in range(g, min(g + n, m))]
    return ([("F", c * p + r, i) for i, c in table], [("B", (v - 1 - c) * p + r, i) for i, c in table])


def interleaved(p, v, m):
    n = min(p, m)
    ranks = []
    for r in range(p):
        f, b = looped(p, v, m, r, n)
        w = min(m * v, 2 * (p - 1 - r) + (v - 1) * n)
        ranks.append(f[:w] + [x for k in range(m * v - w) for x in (f[w + k], b[k])] + b[m * v - w:])
    return ranks


def combined(p, v, m):
    n = min(p, m)
    ranks = []
    for r in range(p):
        f, b = looped(p, v, m, r, n)
        w = min(m * v, 2 * (p - 1 - r) + (v - 1) * n + 1)
        ranks.append(f[:w] + [(f[w + k], b[k]) for k in range(m * v - w)] + b[m * v - w:])
    return ranks


def zb_h1(p, v, m):
    ranks = []
    for r in range(p):
        f = w = min(m, p - 1 - r)
        order, done = [("F", r, k) for k in range(w)], 0
        for k in range(m):
            if f < m:
                order.append(("F", r, f))
                f += 1
            order.append(("I", r, k))
            if k >= r:
                order.append(("W", r, done))
                done += 1
        ranks.append(order + [("W", r, k) for k in range(done, m)])
    return ranks


def zb_h2(p, v, m):
    ranks = []
    for r in range(p):
        f = w = min(m, 2 * (p - r) - 1)
        order, done = [("F", r, k) for k in range(w)], 0
        for k in range(m):
            order.append(("I", r, k))
            if k >= 2 * r:
                order.append(("W", r, done))
                done += 1
            if f < m:
                order.append(("F", r, f))
                f += 1
        ranks.append(order + [("W", r, k) for k in range(done, m)])
    return ranks


def zb_v(p, v, m):
    most, ranks = max(2 * p - 1, m), []
    for r in range(p):
        stage, n, order = (r, 2 * p - 1 - r), {}, []

        def act(kinds, slot):
            for kind in kinds:
                k = n.get((kind, slot), 0)
                n[kind, slot] = k + 1
                order.append((kind, stage[slot], k))

        for _ in range(2 * (p - r) - 1):
            act("F", 0)
        for _ in range(r):
            act("F", 1), act("F", 0)
        for _ in range(p - r):
            act("F", 1), act("IW", 1)
        while n.get(("F", 1), 0) < n["F", 0] or n["F", 0] < most:
            if n["F", 0] < most:
                act("F", 0)
            act("IW", 0), act("F", 1), act("IW", 1)
        for _ in range(r):
            act("I", 0), act("I", 1)
        for _ in range(p - r):
            act("IW", 0)
        for slot in (1, 0):
            while n.get(("W", slot), 0) < n["I", slot]:
                act("W", slot)
        ranks.append([x for x in order if x[2] < m])
    return ranks


def both_ways(p, h, n, m, stage, middle):
    """the eight steps of DeepSeek's code and figure; slot 0 is the one whose entry is nearer"""
    order, count, later = [], {}, deque()

    def take(kind, slot):
        k = count.get((kind == "F", slot), 0)
        count[kind == "F", slot] = k + 1
        return kind, stage[slot], k

    def back(slot, split):
        if not split:
            order.append(take("B", slot))
            return
        x = take("I", slot)
        order.append(x)
        later.append(("W",) + x[1:])

    def pair(f, b, together=True):
        x, y = take("F", f), take("B", b)
        order.extend([(x, y)] if together else [x, y])

    for _ in range(2 * (n - h - 1)):
        order.append(take("F", 0))
    for _ in range(h + 1):
        order.append(take("F", 0))
        order.append(take("F", 1))
    for _ in range(n - h - 1):
        back(1, True)
        order.append(later.popleft())
        order.append(take("F", 1))
    for i in range(m - 2 * n + h + 1):
        pair(0, 1, not (i == 0 and middle))
        pair(1, 0)
    for _ in range(n - h - 1):
        back(1, False)
        pair(1, 0)
    split = False
    for i in range(h + 1):
        split = split or (i == (h + 1) // 2 and h % 2 == 1)
        back(1, split)
        split = split or (i == (h + 1) // 2 and h % 2 == 0)
        back(0, split)
    for _ in range(n - h - 1):
        order.append(later.popleft())
        back(0, True)
    return order + list(later)


def dualpipe(p, v, m):
    ranks = []
    for r in range(p):
        h = min(r, p - 1 - r)
        ways = (r, 2 * p - 1 - r)  # stages p .. 2p - 1: those of the copy that runs the other way
        ranks.append(both_ways(p, h, p // 2, m // 2, ways if r < p // 2 else ways[::-1], r in (p // 2 - 1, p // 2)))
    return ranks


def dualpipe_v(p, v, m):
    return [both_ways(p, r, p, m, (r, 2 * p - 1 - r), r == p - 1) for r in range(p)]


ORDERS = {"gpipe": gpipe, "1f1b": one_f_one_b, "eager_1f1b": eager, "interleaved": interleaved, "combined_1f1b": combined,
          "zb_h1": zb_h1, "zb_h2": zb_h2, "zb_v": zb_v, "dualpipe": dualpipe, "dualpipe_v": dualpipe_v}


# ---- running them ----

def needs(x, chains):
    """the action whose end x waits for: of the stage before or behind"""
    kind, stage, k = x
    first, last = next(c for c in chains if c[0] <= stage <= c[1])
    if kind == "F":
        return [("F", stage - 1, k)] if stage > first else []
    if kind == "W":
        return [("I", stage, k)]
    return [("I", stage + 1, k), ("B", stage + 1, k)] if stage < last else [("F", stage, k)]


def run(ranks, chains):
    """start and end of every entry, as early as its rank and its inputs allow; a pair's two begin one after the other"""
    end, at, drawn = {}, [0] * len(ranks), [[] for _ in ranks]
    free, moved = [0] * len(ranks), True
    while moved:
        moved = False
        for r, order in enumerate(ranks):
            while at[r] < len(order):
                entry = order[at[r]]
                parts = entry if isinstance(entry[0], tuple) else (entry,)
                inputs = [[end[y] for y in needs(x, chains) if y in end] for x in parts]
                if any(needs(x, chains) and not i for x, i in zip(parts, inputs)):
                    break
                begin = now = None
                for x, i in zip(parts, inputs):
                    start = max([free[r] if now is None else now] + i)
                    begin = start if begin is None else begin
                    now = start + UNITS[x[0]]
                for x in parts:  # kernels of a pair alternate: both end with it
                    end[x] = now
                free[r] = now
                drawn[r].append((parts, begin, now))
                at[r] += 1
                moved = True
    if any(a < len(o) for a, o in zip(at, ranks)):
        raise SystemExit("a definition deadlocks")
    return drawn


def as_planned(name, p, m, x):
    """an action as plans number it: those of DualPipe's second copy have the second half of the microbatches"""
    kind, stage, k = x
    return (kind, stage - p, k + m // 2) if name == "dualpipe" and stage >= p else x


def chains_of(name, p, v):
    return [(0, p - 1), (p, 2 * p - 1)] if name == "dualpipe" else [(0, p * v - 1)]


# ---- what the sources say of idle time, in units of one forward of a whole rank's layers, 1 F = 1 I = 1 W ----

def published(name, p, v, m):
    """time of a step beside its work; None: the source says nothing for this shape"""
    f, b, w = 1, 2, 1
    if name in ("gpipe", "1f1b", "eager_1f1b"):
        return (p - 1) * (f + b)
    if name == "interleaved":
        return (p - 1) * (f + b) / v if m % p == 0 else None
    if name == "zb_h1":
        return (p - 1) * (f + b - 2 * w)
    if name == "zb_h2":  # a rank's own span has none; ranks begin and end one after the other
        return (p - 1) * f if m >= 2 * p - 1 else None
    if name == "zb_v":
        return (p - 1) * f / 2 if m >= 2 * p else None
    if name == "dualpipe":  # table 2: (PP/2 - 1)(F&B + B - 3W), F&B = F + B
        return (p / 2 - 1) * (f + b + b - 3 * w)
    if name == "dualpipe_v":
        return (p - 1) * (f + b + b - 3 * w) / 2
    return None


# ---- comparing ----

def parse(token):
    what, times = token.split("@")
    begin, end = (float(x) for x in times.split("-"))
    parts = () if what == "." else tuple((x[0], *map(int, x[1:].split("."))) for x in what.strip("()").split("&"))
    return parts, begin, end


def check_block(name, p, m, rows):
    """V-Half and V-Min: the same six actions over and over, microbatches in flight, idle time of about 1/2 and 2/3 of 1F1B's"""
    wrong, span = [], max(x[2] for row in rows for x in row)
    for r, row in enumerate(rows):
        acts = [x[0][0] for x in row if x[0]]
        kinds = [(a[0], a[1]) for a in acts]
        steady = kinds[len(kinds) // 2 - 6:len(kinds) // 2 + 6]
        if m >= 4 * p and (steady[:6] != steady[6:] or len(set(steady)) != 6):
            wrong.append(f"rank {r}: no building block of six actions in the middle: {steady}")
        live = most = 0
        for kind, _, _ in acts:
            live += (kind == "F") - (kind == "W")
            most = max(most, live)
        limit = p + 3 if name == "v_half" else -(-2 * p // 3) + 2  # of half a rank each: p / 2 and p / 3 microbatches, and O(1)
        if most > limit:
            wrong.append(f"rank {r}: {most} chunks in flight, more than {limit}")
    idle, share = span - 6 * m, {"v_half": 1 / 2, "v_min": 2 / 3}[name]
    if m >= 2 * p and idle > share * 6 * (p - 1) + 6:
        wrong.append(f"idle {idle} of a step, the source's share of 1F1B's is {share * 6 * (p - 1)}")
    return wrong


def check(name, p, v, m, rows):
    wrong = []
    for r, row in enumerate(rows):
        pairs = [x for x in row if len(x[0]) > 1]  # what waits within a pair is a part of it
        row = rows[r] = [x for x in row if x[0] or not any(y[1] <= x[1] and x[2] <= y[2] for y in pairs)]
        for a, b in zip(row, row[1:]):
            if a[2] != b[1]:
                wrong.append(f"rank {r}: nothing is drawn from {a[2]} to {b[1]}")
    if name in ("v_half", "v_min"):
        return wrong + check_block(name, p, m, rows)
    want = run(ORDERS[name](p, v, m), chains_of(name, p, v))
    span = max(x[2] for row in want for x in row)
    for r, (row, wanted) in enumerate(zip(rows, want)):
        got = [x for x in row if x[0]]
        for k in range(max(len(got), len(wanted))):
            x, y = got[k] if k < len(got) else None, wanted[k] if k < len(wanted) else None
            late = x[1] - y[1] if x and y else 0
            same = x and y and sorted(x[0]) == sorted(as_planned(name, p, m, z) for z in y[0]) and x[2] - x[1] == y[2] - y[1]
            if not same or late not in ((0, 1) if name in PAIRED else (0,)):
                wrong.append(f"rank {r}, action {k}: drawn {x}, by the definition {y}")
                break
        if row[0][1] != 0 or row[-1][2] != span:
            wrong.append(f"rank {r}: drawn from {row[0][1]} to {row[-1][2]}, the step has {span}")
    whole = len(chains_of(name, p, v)) if name == "dualpipe" else v
    work = sum(UNITS[x[0]] for parts in (x[0] for x in want[0]) for x in parts)
    says = published(name, p, v, m)
    chunks = 1 if name == "dualpipe" else whole
    if says is not None and span - work != says * chunks:
        wrong.append(f"idle {span - work} of a step, the source says {says * chunks}")
    return wrong


def main():
    plans, failed = {}, False
    for line in sys.stdin:
        head, blocks = line.split(":")
        name, p, v, m, r = head.split()
        plans.setdefault((name, int(p), int(v), int(m)), {})[int(r)] = [parse(t) for t in blocks.split()]
    for (name, p, v, m), rows in plans.items():
        for sentence in check(name, p, v, m, [rows[r] for r in range(p)])[:5]:
            print(f"{name}, pp {p}, {v} stages per rank, {m} microbatches: {sentence}")
            failed = True
    print(f"{len(plans)} pictures of {len({k[0] for k in plans})} schedules")
    return failed or not plans


if __name__ == "__main__":
    sys.exit(main())
