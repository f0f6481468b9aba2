#!/usr/bin/env python3
"""Predicted against measured memory of published runs: per source the error, what was left out, and verdicts that
are wrong.

usage: memory.py BUILD MEASURED [--all] [--worst N] [profile.name=value ...]

Sources measure different things (column `memory` of sources.tsv); each is compared with the lines of the estimate
that it covers: what PyTorch's allocator has handed out (allocated), what it has taken from the device (reserved),
or what nvidia-smi shows (all).
"""
import collections, re, sys, tempfile

import rows

LIVE = ("parameters", "gradients", "states", "activations", "buffers")
COVERS = {"allocated": LIVE, "reserved": LIVE + ("allocator",), "all": LIVE + ("allocator", "communicators", "context")}
UNIT = 1e9


def measured_bytes(row):
    return row.memory_gb * UNIT if row.memory_gb else None


def predicted_bytes(row):
    return sum(row.predicted[k] for k in COVERS[row.memory_counts])


def spread(errors):
    sizes = [abs(e) for e in errors]
    return "median %5.1f %%   90th %5.1f %%   mean error %+5.1f %%" % (
        100 * rows.quantile(sizes, 0.5), 100 * rows.quantile(sizes, 0.9), 100 * sum(errors) / len(errors))


def compared(runs):
    """(error, run) of every run with a measured and a predicted memory; what was left out, by reason"""
    left = collections.Counter(r.left_out for r in runs if r.memory_gb and r.left_out)
    left["no plan fits"] += sum(bool(r.memory_gb) and r.status not in (None, 0) for r in runs)
    return [(predicted_bytes(r) / measured_bytes(r) - 1, r) for r in runs if r.memory_gb and r.status == 0], +left


def distinct(pairs):
    """each pair of measured and predicted bytes of a source once: schedules and batches that change neither are
    one fact"""
    return list({(r.family, measured_bytes(r), round(predicted_bytes(r))): e for e, r in pairs}.values())


def report(runs, show_all, worst):
    pairs, left = compared(runs)
    by = collections.defaultdict(list)
    for e, r in pairs:
        by[r.family].append((e, r))
    print("memory: error of the prediction, by source; every row, then each distinct pair of measured and predicted bytes once")
    for name, some in sorted(by.items()):
        once = distinct(some)
        print("  %-16s %3d   %s   once: %3d   median %5.1f %%   (%s)" % (name, len(some), spread([e for e, _ in some]), len(once),
              100 * rows.quantile([abs(e) for e in once], 0.5), some[0][1].memory_counts))
    for line in summary(pairs):
        print(line)
    print("left out: %d%s" % (sum(left.values()), "".join("; %d: %s" % (n, why) for why, n in left.most_common())))
    print("all rows:" if show_all else "worst rows:")
    for error, row in sorted(pairs, key=lambda p: -abs(p[0]))[:None if show_all else worst]:
        print("  %-58s %6.1f -> %6.1f GB %+6.1f %%  %s" % (
            row.id, measured_bytes(row) / UNIT, predicted_bytes(row) / UNIT, 100 * error,
            " ".join("%s %.1f" % (k[:5], row.predicted[k] / UNIT) for k in COVERS["all"])))


def summary(pairs):
    """the lines that the README beside this file repeats"""
    sets = (("memory, where a source prints it (`make bench-memory`)", [e for e, _ in pairs]),
            ("memory, each distinct pair of measured and predicted bytes once", distinct(pairs)))
    return ["| %s | %d | %.1f %% | %.1f %% | %d |" % (text, len(e), 100 * rows.quantile([abs(x) for x in e], 0.5),
            100 * rows.quantile([abs(x) for x in e], 0.9), sum(abs(x) > 0.25 for x in e)) for text, e in sets]


def verdicts(runs):
    ran = [r for r in runs if r.status not in (None, 0) and not r.oom]
    missed = [r for r in runs if r.status == 0 and r.oom]
    right = sum(r.status == 1 and r.oom for r in runs)
    print("verdicts: %d runs that ran are called infeasible; of %d that ran out of memory %d are called so" % (
        len(ran), right + len(missed), right))
    why = lambda r: ": " + r.quirk()["why"] if r.quirk() else ""
    for r in ran:
        print("  ran, no plan:       %s (exit %d)%s" % (r.id, r.status, why(r)))
    for r in missed:
        print("  ran out, predicted: %s %.1f GB%s" % (r.id, r.predicted["peak"] / UNIT, why(r)))


def main():
    words = sys.argv[1:]
    show_all = "--all" in words
    worst = int(words[words.index("--worst") + 1]) if "--worst" in words else 15
    build, measured = words[0], words[1]
    runs = [r for r in rows.read_runs(measured) if r.memory_gb or r.oom]
    with tempfile.TemporaryDirectory() as work:
        predictor = rows.Predictor(build, runs, work)
        for word in words[2:]:
            found = re.fullmatch(r"([\w-]+)\.(\w+)=([\d.]+)", word)
            if found:
                predictor.set(found[1], found[2], float(found[3]))
        predictor.run()
        predictor.close()
    report(runs, show_all, worst)
    verdicts(runs)


if __name__ == "__main__":
    main()
