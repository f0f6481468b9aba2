"""What the profiles' parameters rest on: which are fitted, set by hand or left at their default, and how many rows
feel each.

A row feels a parameter when its predicted step time moves by more than a thousandth where the parameter is changed
by a tenth of its value (or of its range, where it is 0); of a switch, which has only 0 and 1, when it is turned
over.  Fitted are those with a prior in priors.json; a file's other values were set by hand, and its comments say
from what.
"""
import json, os, re
import rows

FEW = 10
SAMPLE = 12 # of vTrain's runs on one node, which the fit looks at too, every so-many-th


def definitions():
    """name: (default, low, high, switch) in the order of profile.def"""
    found = {}
    with open(os.path.join(rows.HERE, "../../compiler/profile/profile.def")) as f:
        for name, value, low, high, text in re.findall(r'^PARAM\((\w+), ([\d.]+), ([\d.]+), ([\d.]+), "(.*)"\)', f.read(), re.M):
            found[name] = (float(value), float(low), float(high), bool(re.match(r"[01]: ", text)))
    return found


def values(profile):
    with open(os.path.join(rows.HERE, "../../compiler/profile", profile + ".profile")) as f:
        return {line.split()[0]: float(line.split()[1]) for line in f if line.split() and not line.startswith("#")}


def switch(target, row, word, job=()):
    """parameter: value of what the word of a target's setting changes in a job that has such words as "precision fp8_row"."""
    with open(os.path.join(rows.HERE, "../../compiler/target", target + ".target")) as f:
        found = re.findall(r"^sets %s %s (\w+) (\S+)(?: with (\w+ \w+))?" % (row, word), f.read(), re.M)
    return {name: value for name, value, beside in found if not beside or beside in job}


def priors():
    with open(os.path.join(rows.HERE, "priors.json")) as f:
        return json.load(f)


def other(value, definition):
    """the value a tenth away, within bounds"""
    _, low, high, switch = definition
    if switch:
        return 0.0 if value else 1.0
    away = 0.1 * (abs(value) or high - low)
    return value + away if value + away <= high else value - away


def felt(p, profile, which, names, defined):
    """parameter: fitted rows whose time moves, rows with a measured memory whose memory moves, and sampled runs on
    one node whose time moves"""
    p.run(which)
    before = {i: (p.rows[i].status, p.rows[i].predicted) for i in which}
    found = {}
    for name in names:
        value = p.get(profile, name)
        p.set(profile, name, other(value, defined[name]))
        p.run(which)
        p.set(profile, name, value)
        moved = lambda i, item: p.rows[i].status != before[i][0] or (p.rows[i].status == 0 and
                abs(p.rows[i].predicted[item] / before[i][1][item] - 1) > 1e-3)
        found[name] = (sum(p.rows[i].fitted() and p.rows[i].family != rows.SINGLE and moved(i, "step") for i in which),
                       sum(bool(p.rows[i].memory_gb or p.rows[i].oom) and moved(i, "peak") for i in which),
                       sum(p.rows[i].family == rows.SINGLE and moved(i, "step") for i in which))
    return found


def lines(runs):
    """what the README beside this file repeats: parameters fitted, set by hand, at their default; scored rows fitted, and these per
    parameter"""
    found, defined = [], definitions()
    for profile, fitted in priors().items():
        hand = len(set(values(profile)) - set(fitted))
        n = sum(r.profile == profile and r.status == 0 and r.fitted() and r.family != rows.SINGLE for r in runs)
        default = len(defined) - len(fitted) - hand
        found.append("| %s | %d | %d | %d | %d | %.0f |" % (profile, len(fitted), hand, default, n, n / len(fitted)))
    return found


def report(o, runs):
    """every profile that rows are predicted with"""
    single = [r for r in runs if r.family == rows.SINGLE]
    p = rows.Predictor(o.build, [r for r in runs if not r.left_out and r.family != rows.SINGLE] + single[::SAMPLE], o.work)
    defined, warn = definitions(), []
    print("\nparameters of the profiles: fitted rows whose time, rows with a measured memory whose memory, and of %d "
          "sampled runs on one node those whose time moves with each" % len(single[::SAMPLE]))
    print("| profile | fitted | by hand | default | rows fitted | rows per fitted parameter |\n|---|---|---|---|---|---|")
    print("\n".join(lines(runs)))
    for profile, fitted in priors().items():
        which = [i for i, r in enumerate(p.rows) if r.profile == profile and
                 (r.fitted() or (r.complete() and r.latest and (r.memory_gb or r.oom)))]
        set_ = values(profile)
        names = [n for n in defined if n in fitted or n in set_]
        moves = felt(p, profile, which, names, defined)
        hand = [n for n in names if n not in fitted]
        print(profile)
        for kind, list_ in (("fitted", [n for n in names if n in fitted]), ("by hand", hand)):
            for n in list_:
                few = max(moves[n]) < FEW
                print("    %-8s %-24s %-8g %4d rows' time %4d rows' memory %4d single-node%s" % (kind, n, p.get(profile, n), *moves[n],
                      "   fewer than %d" % FEW if few else ""))
                warn += ["%s of %s (%s)" % (n, profile, kind)] if few else []
    p.close()
    print("parameters that fewer than %d rows feel: %s" % (FEW, ", ".join(warn) if warn else "none"))
