#!/usr/bin/env python3
"""Predictions against published runs: errors by source, ranking within sweeps, verdicts on memory.

usage: accuracy.py [--build DIR] [--measured DIR] [--work DIR] [--rows FAMILY] [--json FILE]

Scored are rows with a measured speed (not one derived from printed FLOP/s), of the newest release of their configuration; older
releases are listed apart.  Ranking takes every row with a speed.  Rows off by more than a quarter are listed with what is known
of their source (quirks.json) or as unexplained.  Exit status 1 if a goal is missed.
"""
import argparse, collections, json, math, statistics, sys
from rows import Predictor, SINGLE, make_inputs, quantile


def percent(x):
    return "%5.1f" % (100 * x)


def errors(rows):
    """relative errors of the predicted speed"""
    return [math.exp(r.error()) - 1 for r in rows if r.error() is not None]


def table(title, rows):
    print("\n%s\n%-16s %-16s %5s %10s %10s %10s" % (title, "profile", "source", "rows", "median %", "p90 %", "bias %"))
    by = collections.defaultdict(list)
    for r in rows:
        by[r.profile, r.family].append(r)
    for key in sorted(by):
        e = errors(by[key])
        if e:
            a = [abs(x) for x in e]
            print("%-16s %-16s %5d %10s %10s %10s" % (*key, len(e), percent(statistics.median(a)), percent(quantile(a, 0.9)),
                                                     percent(statistics.median(e))))
    a = [abs(x) for x in errors(rows)]
    print("%-33s %5d %10s %10s" % ("all", len(a), percent(statistics.median(a)), percent(quantile(a, 0.9))))
    return statistics.median(a), quantile(a, 0.9)


def far_off(rows):
    """rows beyond 25 %, gathered by their explanation; the number of unexplained ones"""
    by, unexplained = collections.defaultdict(list), 0
    for r in rows:
        if r.error() is not None and abs(math.exp(r.error()) - 1) > 0.25:
            by[r.quirk()].append(r)
    print("\nrows off by more than 25 %%: %d" % sum(map(len, by.values())))
    for why in sorted(by, key=lambda w: w or ""):
        print("  %s (%d)" % (why or "not explained", len(by[why])))
        unexplained += 0 if why else len(by[why])
        for r in by[why]:
            print("    %+5.0f %%  %s" % (100 * (math.exp(r.error()) - 1), r.id))
    return unexplained


def sweep_of(r):
    m, h = r.raw["model"], r.raw["hardware"]
    return (r.family, m["name"], m["layers"], m["hidden"], m["seq"], h["gpu"], h["n_gpus"], r.raw.get("dtype"))


def ranking(rows, which):
    """the share of pairs ordered right in the worst sweep, the worst regret"""
    sweeps = collections.defaultdict(list)
    for r in rows:
        if r.speed and not r.oom and r.error() is not None:
            sweeps[sweep_of(r)].append((r.speed, r.speed * math.exp(r.error())))
    right = pairs = 0
    regrets, least = [], 1
    print("\nranking within sweeps of ten or more rows%s (pairs that differ by more than 5 %%)" % which)
    for key in sorted(sweeps, key=str):
        s = sweeps[key]
        if len(s) < 10:
            continue
        n = ok = 0
        for i in range(len(s)):
            for j in range(i):
                if max(s[i][0], s[j][0]) > 1.05 * min(s[i][0], s[j][0]):
                    n += 1
                    ok += (s[i][0] - s[j][0]) * (s[i][1] - s[j][1]) > 0
        regret = max(x[0] for x in s) / max(s, key=lambda x: x[1])[0] - 1
        right, pairs, least = right + ok, pairs + n, min(least, ok / n if n else 1)
        regrets.append(regret)
        print("  %-60s %3d rows  %4d pairs  %s %% right  regret %s %%" % (" ".join(map(str, key))[:60], len(s), n,
                                                                    percent(ok / n if n else 1), percent(regret)))
    if not pairs:
        return 1, 0
    print("  all: %s %% of %d pairs right; regret: mean %s %%, worst %s %%" % (percent(right / pairs), pairs,
          percent(statistics.mean(regrets)), percent(max(regrets))))
    return least, max(regrets)


def verdicts(rows):
    wrong = [r for r in rows if r.status == 1 and not r.oom]
    missed = [r for r in rows if r.status == 0 and r.oom]
    refused = [r for r in rows if r.status == 3]
    print("\nmemory verdicts: %d rows ran and are called infeasible, %d of %d rows that ran out of memory are called feasible, "
          "%d inputs refused" % (len(wrong), len(missed), sum(r.oom for r in rows), len(refused)))
    for word, list_ in (("infeasible", wrong), ("feasible", missed), ("refused", refused)):
        for r in list_:
            print("    %-10s %s%s" % (word, r.id, ": " + r.quirk() if r.quirk() else ""))
    return sum(not r.quirk() for r in wrong + missed + refused)


def listing(rows):
    for r in rows:
        if r.status or not r.step_s:
            print("  %-64s %s" % (r.id, "no speed" if r.status == 0 else "status %d" % r.status))
            continue
        q, t = r.predicted, r.predicted["step"]
        share = " ".join("%s %2.0f" % (k, 100 * q[k] / t) for k in ("compute", "tp", "pp", "dp", "bubble", "optimizer"))
        print("%s %-64s %8.3f s, measured %8.3f s %+5.0f %%  %s | %s" % (" " if r.scored and r.latest else "-", r.id[-64:], t, r.step_s,
              100 * (math.exp(r.error()) - 1), share, r.layout))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", default="build")
    a.add_argument("--measured", default="../shared/data/measured")
    a.add_argument("--work", default="build/bench")
    a.add_argument("--rows")
    a.add_argument("--json")
    o = a.parse_args()
    p = Predictor(o.build, o.measured, make_inputs(o.measured, o.work))
    p.run()
    if o.rows:
        return listing([r for r in p.rows if r.family == o.rows])
    scored = [r for r in p.rows if r.scored and r.latest and r.status == 0 and r.family != SINGLE]
    median, p90 = table("error of predicted tokens/s/GPU, newest release of each configuration", scored)
    table("the same without the rows whose source has a known quirk (quirks.json)", [r for r in scored if not r.quirk()])
    table("single-node runs (not scored: calibration of kernels and host)", [r for r in p.rows if r.family == SINGLE and r.status == 0])
    older = [r for r in p.rows if r.scored and not r.latest and r.status == 0]
    table("superseded releases (not scored)", older)
    unexplained = far_off(scored)
    published = [r for r in p.rows if r.family != SINGLE]
    right, regret = ranking(published, "")
    without = ranking([r for r in published if not r.quirk()], " without the rows whose source has a known quirk")
    ranking([r for r in p.rows if r.family == SINGLE], " on a single node")
    bad = verdicts(p.rows)
    if o.json:
        with open(o.json, "w") as f:
            for r in p.rows:
                f.write(json.dumps({"id": r.id, "status": r.status, "measured_step_s": r.step_s, "predicted": r.predicted,
                                    "layout": r.layout, "scored": r.scored and r.latest}) + "\n")
    goals = (("median error", median, 0.06), ("90th percentile", p90, 0.15), ("wrong pairs, worst sweep", 1 - right, 0.10),
             ("worst regret", regret, 0.04), ("wrong pairs, no quirks", 1 - without[0], 0.10),
             ("worst regret, no quirks", without[1], 0.04))
    print()
    for name, value, goal in goals:
        print("%-24s %s %%   goal %s %%   %s" % (name, percent(value), percent(goal), "met" if value <= goal else "missed"))
    print("%-24s %5d     goal     0     %s" % ("unexplained rows", unexplained, "missed" if unexplained else "met"))
    print("%-24s %5d     goal     0     %s" % ("unexplained verdicts", bad, "missed" if bad else "met"))
    return 1 if bad or unexplained or any(v > g for _, v, g in goals) else 0


sys.exit(main())
