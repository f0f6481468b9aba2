#!/usr/bin/env python3
"""Predictions against published runs: what was used, what was left out and why, errors with and without what is
known of a run beyond its printed configuration, ranking within sweeps, verdicts on memory, and what the profiles'
parameters rest on.

usage: accuracy.py [--build DIR] [--measured DIR] [--work DIR] [--rows SOURCE] [--json FILE] [--readme FILE] [--no-parameters]

Scored are rows whose source prints a speed (or figures and the formula that lead to it), of the newest release of
their configuration.  Ranking takes every row with a speed.  Rows off by more than a quarter are listed: those with
a cause that can be checked (measured/quirks.json) and the others, which count against a goal.  --readme: only
whether that file has every line of figures and counts, and the README at the top says the same.  Exit status 1 if a
goal, or a line, is missed.
"""
import collections, copy, json, math, os, statistics, sys
import inputs, memory, parameters, rows
from rows import Predictor, SINGLE, quantile

LEVELS = (("printed", "from the configuration that the source prints"),
          ("stack", "with what its software stack is known to do"),
          ("cited", "with what else is published of the run"))


def percent(x):
    return "%5.1f" % (100 * x)


def errors(runs):
    """relative errors of the predicted speed"""
    return [math.exp(r.error()) - 1 for r in runs if r.error() is not None]


def table(title, runs):
    print("\n%s\n%-16s %-16s %5s %10s %10s %10s" % (title, "profile", "source", "rows", "median %", "p90 %", "bias %"))
    by = collections.defaultdict(list)
    for r in runs:
        by[r.profile, r.family].append(r)
    for key in sorted(by):
        e = errors(by[key])
        if e:
            a = [abs(x) for x in e]
            print("%-16s %-16s %5d %10s %10s %10s" % (*key, len(e), percent(statistics.median(a)), percent(quantile(a, 0.9)),
                                                     percent(statistics.median(e))))
    a = [abs(x) for x in errors(runs)]
    print("%-33s %5d %10s %10s" % ("all", len(a), percent(statistics.median(a)), percent(quantile(a, 0.9))))


def reasons(of):
    return sum(of.values()), "; ".join("%d %s" % (n, why) for why, n in of.most_common())


def count_lines(runs):
    """which rows are used, and why not the others; the README beside this file repeats these lines"""
    published = [r for r in runs if r.family != SINGLE]
    scored = scored_of(published)
    formula = "from printed FLOP/s by the source's own formula"
    basis = collections.Counter("printed" if r.basis == "printed" else formula for r in scored)
    not_scored = collections.Counter(r.not_scored() for r in published if not r.left_out and r.not_scored())
    left_out = collections.Counter(r.left_out for r in published if r.left_out)
    tables = (("scored", basis), ("predicted, not scored", not_scored), ("left out", left_out))
    return ["| %s | %d | %s |" % (title, *reasons(of)) for title, of in tables]


def used(runs):
    single = sum(r.family == SINGLE for r in runs)
    print("published runs: %d, and %d on one node of vTrain's cluster, which are not scored" % (len(runs) - single, single))
    print("| rows | number | of these |\n|---|---|---|\n" + "\n".join(count_lines(runs)))
    scored = scored_of(runs)
    print("known beyond the printed configuration: words of the stack of %d scored rows; cited facts of %d" % (
        sum(bool(r.stack["words"]) for r in scored), sum(bool(r.facts) for r in scored)))
    for fact in rows.listed("facts"):
        n = sum(any(f["key"] == fact["key"] for f in r.facts) for r in runs if not r.left_out)
        how = " (inferred; none of these rows is scored)" if fact.get("inferred") else ""
        print("  %5d  %s: %s%s" % (n, fact["key"], fact["says"], how))
    nearest = [r for r in scored if r.stack.get("nearest")]
    print("  %5d  scored rows of stacks without a profile of their own, predicted by the nearest and not fitted" % len(nearest))


def figures(runs, by_level):
    """(text, errors) for the table that the README beside this file repeats"""
    scored, now = scored_of(runs), by_level["cited"]
    which = lambda test: [e for r, e in zip(scored, now) if test(r)]
    return [(text, by_level[level]) for level, text in LEVELS] + [
        ("the same without rows whose error has a cause that can be checked (`quirks.json`)", which(lambda r: not r.quirk())),
        ("only rows whose source prints layout and microbatch", which(lambda r: r.complete())),
        ("only the others: the search fills in what is missing", which(lambda r: not r.complete())),
        ("dense models", which(lambda r: not r.model["experts"])),
        ("models with experts", which(lambda r: r.model["experts"]))]


def figure_lines(found):
    lines = []
    for text, errors_ in found:
        a = [abs(e) for e in errors_ if e is not None]
        no_plan = sum(e is None for e in errors_)
        more = " (%d more fit no plan)" % no_plan if no_plan else ""
        lines.append("| %s | %d%s | %.1f %% | %.1f %% | %d |" % (text, len(a), more, 100 * statistics.median(a),
                                                               100 * quantile(a, 0.9), sum(x > 0.25 for x in a)))
    return lines


def told(table):
    """what the README at the top says of lines of the table beside this file"""
    def cells(title): # median, 90th percentile
        return [cell.strip() for cell in next(line for line in table if line.startswith("| " + title)).split("|")[3:5]]
    return ["an error of %s in the median and %s at the 90th percentile: " % tuple(cells(LEVELS[-1][1])) +
            "%s for dense models, %s for those with experts." % (cells("dense models")[0], cells("models with experts")[0]),
            "Each source predicted by a fit without it: %s." % cells("each source predicted by a fit without it")[0],
            "Memory, where a source prints it: %s." % cells("memory, where a source prints it")[0]]


def error_of(run):
    return None if run.error() is None else math.exp(run.error()) - 1


def with_less(o, scored, level):
    """errors where less is known: only of rows whose inputs differ for it are new predictions asked"""
    differs = [copy.copy(r) for r in scored if inputs.write(r, level) != inputs.write(r, "cited")]
    p = Predictor(o.build, differs, o.work, level)
    p.run()
    p.close()
    new = {r.id: None if r.left_out else error_of(r) for r in differs}
    return [new[r.id] if r.id in new else error_of(r) for r in scored]


def predict_levels(o, runs):
    """predicts the runs with all that is known; errors of the scored ones at each level"""
    p = Predictor(o.build, runs, o.work)
    p.run()
    p.close()
    scored = scored_of(runs)
    return {level: [error_of(r) for r in scored] if level == "cited" else with_less(o, scored, level) for level, _ in LEVELS}


def scored_of(runs):
    return [r for r in runs if r.status is not None and r.not_scored() is None]


def far_off(runs):
    """rows beyond 25 %, those with a checkable cause apart; the number of the others"""
    far = [r for r in runs if r.error() is not None and abs(math.exp(r.error()) - 1) > 0.25]
    caused = [r for r in far if r.quirk()]
    print("\nrows off by more than 25 %%: %d; with a cause that can be checked: %d, without: %d" % (
        len(far), len(caused), len(far) - len(caused)))
    for q in rows.listed("quirks"):
        n = sum(r.quirk() is not None and r.quirk()["key"] == q["key"] for r in runs)
        print("  %s (%d rows listed, %d scored): %s\n      %s%s" % (q["key"], len(q["rows"]), n, q["why"], q["source"],
              "".join("; beside " + r for r in q.get("against", []))))
    for title, which in (("with", caused), ("without", [r for r in far if not r.quirk()])):
        print("  %s a checkable cause" % title)
        for r in which:
            print("    %+5.0f %%  %s" % (100 * (math.exp(r.error()) - 1), r.id))
    return len(far) - len(caused)


def sweep_of(r):
    m = r.model
    return (r.family, m["name"], m["layers"], m["width"], r.sequence, r.machine["said"], r.gpus, r.dtype)


def ranking(runs, which):
    """the share of pairs ordered right in the worst sweep, the worst regret"""
    sweeps = collections.defaultdict(list)
    for r in runs:
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


def verdicts(runs):
    wrong = [r for r in runs if r.status == 1 and not r.oom]
    missed = [r for r in runs if r.status == 0 and r.oom]
    refused = [r for r in runs if r.status == 3]
    print("\nmemory verdicts: %d rows ran and are called infeasible, %d of %d rows that ran out of memory are called feasible, "
          "%d inputs refused" % (len(wrong), len(missed), sum(r.oom for r in runs), len(refused)))
    for word, list_ in (("infeasible", wrong), ("feasible", missed), ("refused", refused)):
        for r in list_:
            print("    %-10s %s%s" % (word, r.id, ": " + r.quirk()["why"] if r.quirk() else ""))
    return sum(not r.quirk() for r in wrong + missed + refused)


def listing(runs):
    for r in runs:
        if r.status or not r.step_s:
            print("  %-64s %s" % (r.id, "no speed" if r.status == 0 else "status %d" % r.status))
            continue
        q, t = r.predicted, r.predicted["step"]
        share = " ".join("%s %2.0f" % (k, 100 * q[k] / t) for k in ("compute", "tp", "pp", "dp", "bubble", "optimizer"))
        print("%s %-64s %8.3f s, measured %8.3f s %+5.0f %%  %s | %s" % (
            " " if r.not_scored() is None else "-", r.id[-64:], t, r.step_s, 100 * (math.exp(r.error()) - 1), share, r.layout))


def arguments():
    a = rows.arguments(__doc__.splitlines()[0])
    a.add_argument("--rows")
    a.add_argument("--json")
    a.add_argument("--readme")
    a.add_argument("--no-parameters", action="store_true")
    return a.parse_args()


def check_readme(o, runs):
    """are the figures that the file claims these, and was every input accepted?"""
    by_level = predict_levels(o, runs)
    pairs, _ = memory.compared(runs)
    lines = count_lines(runs) + figure_lines(figures(runs, by_level)) + memory.summary(pairs) + parameters.lines(runs)
    with open(o.readme) as f:
        claimed = f.read().splitlines()
    missing = [line for line in lines if line not in claimed]
    for line in missing:
        print("%s lacks the line: %s" % (o.readme, line))
    with open(os.path.join(rows.HERE, "../../README.md")) as f:
        tour = " ".join(f.read().split())
    unsaid = [words for words in told(claimed) if words not in tour]
    for words in unsaid:
        print("README.md does not say: " + words)
    missing += unsaid
    refused = [r.id for r in runs if r.status == 3]
    for name in refused:
        print("the compiler refuses the input of " + name)
    return 1 if missing or refused else 0


def judge(goals, counts):
    print()
    for name, value, goal in goals:
        print("%-24s %s %%   goal %s %%   %s" % (name, percent(value), percent(goal), "met" if value <= goal else "missed"))
    for name, value in counts:
        print("%-24s %5d     goal     0     %s" % (name, value, "missed" if value else "met"))
    return 1 if any(v > g for _, v, g in goals) or any(v for _, v in counts) else 0


def main():
    o = arguments()
    runs = rows.read_runs(o.measured)
    if o.readme:
        runs = [r for r in runs if r.family != SINGLE]
        return check_readme(o, runs)
    by_level = predict_levels(o, runs)
    predicted = [r for r in runs if r.status is not None]
    if o.rows:
        return listing([r for r in predicted if r.family == o.rows])
    used(runs)
    print("\nerror of predicted tokens/s per GPU, newest release of each configuration")
    lines = figure_lines(figures(runs, by_level))
    print("| rows | number | median | 90th percentile | off by more than 25 % |\n|---|---|---|---|---|\n" + "\n".join(lines))
    scored = scored_of(runs)
    table("by source, with all that is known", scored)
    table("single-node runs (not scored)", [r for r in predicted if r.family == SINGLE])
    table("superseded releases (not scored)", [r for r in predicted if r.basis != "FLOP/s" and not r.latest and r.step_s])
    uncaused = far_off(scored)
    published = [r for r in predicted if r.family != SINGLE]
    right, regret = ranking(published, "")
    ranking([r for r in predicted if r.family == SINGLE], " on a single node")
    bad = verdicts(predicted)
    if o.json:
        with open(o.json, "w") as f:
            for r in predicted:
                f.write(json.dumps({"id": r.id, "status": r.status, "measured_step_s": r.step_s, "predicted": r.predicted,
                                    "layout": r.layout, "scored": r.not_scored() is None}) + "\n")
    if not o.no_parameters:
        parameters.report(o, runs)
    e = [abs(x) for x in errors(scored)]
    return judge((("median error", statistics.median(e), 0.06), ("90th percentile", quantile(e, 0.9), 0.15),
                  ("wrong pairs, worst sweep", 1 - right, 0.10), ("worst regret", regret, 0.04)),
                 (("far off without a cause", uncaused), ("unexplained verdicts", bad)))


sys.exit(main())
