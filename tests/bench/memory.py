#!/usr/bin/env python3
"""Predicted against measured memory of published runs: per source the error, and verdicts that are wrong.

usage: memory.py BUILD MEASURED [--all] [--worst N] [profile.name=value ...]

Sources measure different things; each is compared with the lines of the estimate that it covers: what PyTorch's allocator
has handed out (allocated), what it has taken from the device (reserved), or what nvidia-smi shows (all).
"""
import re, sys, tempfile

import rows

# what a source's numbers count, and the unit that it prints
DEFINITION = {"simumax-b200": "allocated", "zerobubble": "allocated", "torchtitan": "reserved", "kempner": "reserved",
              "nanotron": "reserved", "internevo-mem": "all", "bloom": "all"}
LIVE = ("parameters", "gradients", "states", "activations", "buffers")
COVERS = {"allocated": LIVE, "reserved": LIVE + ("allocator",), "all": LIVE + ("allocator", "communicators", "context")}
UNIT = 1e9
# rows whose inputs do not say what the run did, by source or id: why
QUIRKS = {
    "kempner": "bf16 weights and moments without fp32 masters: state shrinks by 6 bytes per parameter over the sweep",
    "torchtitan/h200": "the loss compiled into one kernel: 24 GB less than the same run on H100",
}


def measured_bytes(row):
    return row.memory_gb * UNIT if row.memory_gb else None


def predicted_bytes(row):
    return sum(row.predicted[k] for k in COVERS[DEFINITION.get(row.family, "all")])


def quirk(row):
    return next((why for k, why in QUIRKS.items() if row.family == k or row.id.startswith(k)), row.quirk() if row.oom else None)


def family_line(name, errors):
    sizes = [abs(e) for e in errors]
    print("  %-16s %3d   median %5.1f %%   90th %5.1f %%   mean error %+5.1f %%   (%s)" % (
        name, len(errors), 100 * rows.quantile(sizes, 0.5), 100 * rows.quantile(sizes, 0.9), 100 * sum(errors) / len(errors),
        DEFINITION.get(name, "all")))


def report(predictor, show_all, worst):
    by_family, every, distinct = {}, [], {}
    for row in predictor.rows:
        have = measured_bytes(row)
        if have and row.status == 0:
            error = predicted_bytes(row) / have - 1
            by_family.setdefault(row.family, []).append((error, row))
            every.append(error if not quirk(row) else None)
            distinct[(row.family, have, round(predicted_bytes(row)))] = error if not quirk(row) else None
    print("memory: error of the prediction, by source")
    for name, pairs in sorted(by_family.items()):
        family_line(name, [e for e, _ in pairs])
    plain = [abs(e) for e in every if e is not None]
    once = [abs(e) for e in distinct.values() if e is not None]
    print("  all but %d rows with a known quirk: %d, median %.1f %%, 90th %.1f %%; each distinct pair once: %d, median %.1f %%" % (
        len(every) - len(plain), len(plain), 100 * rows.quantile(plain, 0.5), 100 * rows.quantile(plain, 0.9), len(once),
        100 * rows.quantile(once, 0.5)))
    pairs = sorted((p for ps in by_family.values() for p in ps), key=lambda p: -abs(p[0]))
    if not show_all:
        pairs = [p for p in pairs if not quirk(p[1])][:worst]
    print("all rows:" if show_all else "worst rows without a known quirk:")
    for error, row in pairs:
        p = row.predicted
        print("  %-58s %6.1f -> %6.1f GB %+6.1f %%  %s" % (
            row.id, measured_bytes(row) / UNIT, predicted_bytes(row) / UNIT, 100 * error,
            " ".join("%s %.1f" % (k[:5], p[k] / UNIT) for k in COVERS["all"])))
    for name, why in sorted(QUIRKS.items()):
        print("quirk of %s: %s" % (name, why))
    return plain


def verdicts(predictor):
    ran = [r for r in predictor.rows if r.status != 0 and not r.oom]
    missed = [r for r in predictor.rows if r.status == 0 and r.oom]
    right = sum(r.status == 1 and r.oom for r in predictor.rows)
    print("verdicts: %d runs that ran are called infeasible; of %d that ran out of memory %d are called so" % (
        len(ran), right + len(missed), right))
    why = lambda r: ": " + quirk(r) if quirk(r) else ""
    for r in ran:
        print("  ran, no plan:       %s (exit %d)%s" % (r.id, r.status, why(r)))
    for r in missed:
        print("  ran out, predicted: %s %.1f GB%s" % (r.id, r.predicted["peak"] / UNIT, why(r)))


def main():
    words = sys.argv[1:]
    show_all = "--all" in words
    worst = int(words[words.index("--worst") + 1]) if "--worst" in words else 15
    build, measured = words[0], words[1]
    with tempfile.TemporaryDirectory() as work:
        folder = rows.make_inputs(measured, work)
        predictor = rows.Predictor(build, measured, folder)
        for word in words[2:]:
            found = re.fullmatch(r"([\w-]+)\.(\w+)=([\d.]+)", word)
            if found:
                predictor.set(found[1], found[2], float(found[3]))
        predictor.run()
        report(predictor, show_all, worst)
        verdicts(predictor)


if __name__ == "__main__":
    main()
