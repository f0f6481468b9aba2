#!/usr/bin/env python3
"""Fits the profiles to measured runs, and cross-validates them by leaving each source out in turn.

usage: fit.py [--build DIR] [--measured DIR] [--work DIR] [--profile NAME]... [--out DIR] [--leave-out] [--rounds N]

Each profile is a handful of physical parameters (compiler/profile/profile.def).  They minimise a robust loss of
the log of predicted over measured step time, every source weighing as the root of its number of rows, plus a
penalty for leaving the prior (the parameter's own default here, in units of its spread), by Levenberg-Marquardt
with finite differences.  With --leave-out the fit is repeated without each source, and its rows are predicted by
the rest.  --out writes NAME.profile; without it nothing changes.  Run.fitted() in rows.py says which rows a fit
looks at.  Needs numpy.
"""
import collections, math, os, sys
import numpy
import parameters, rows
from rows import Predictor, SINGLE, quantile

# of one repository or paper, or of one cluster: left out together
TOGETHER = ({"vtrain", "vtrain-multi"}, {"sc21", "sc21-t2"}, {"mlm-jan21", "mlm-sep20"})
# parameter: (prior, spread); what is not named here is not fitted
PRIORS = parameters.priors()


def weights(runs):
    count = collections.Counter(r.family for r in runs)
    # models of one node are small: their hosts and heads should not outweigh what large ones show
    even = numpy.array([count[r.family] ** -0.25 * (0.3 if r.family == SINGLE else 1) for r in runs])
    return even * math.sqrt(len(runs) / float(even @ even)) / 2


def huber(r, k):
    """square roots of the robust loss, signed: its square is quadratic near zero and linear beyond k"""
    a = numpy.abs(r)
    return numpy.where(a <= k, r, numpy.sign(r) * numpy.sqrt(numpy.maximum(2 * k * a - k * k, 0)))


class Fit:
    def __init__(self, predictor, profile, rows, bounds):
        self.p, self.profile, self.rows, self.bounds = predictor, profile, rows, bounds
        self.names = [n for n in PRIORS[profile]]
        self.prior = numpy.array([PRIORS[profile][n][0] for n in self.names], float)
        self.spread = numpy.array([PRIORS[profile][n][1] for n in self.names], float)
        self.x = numpy.array([predictor.get(profile, n) for n in self.names])
        self.weight = weights([predictor.rows[i] for i in rows])

    def errors(self, x):
        for n, v in zip(self.names, x):
            self.p.set(self.profile, n, v)
        self.p.run(self.rows)
        e = [self.p.rows[i].error() for i in self.rows]
        return numpy.array([0.7 if v is None else v for v in e])

    def residuals(self, e, x):
        return numpy.concatenate([self.weight * huber(e, 0.10) / 0.06, (x - self.prior) / self.spread])

    def clip(self, x):
        low = numpy.array([self.bounds[n][0] for n in self.names])
        high = numpy.array([self.bounds[n][1] for n in self.names])
        return numpy.clip(x, low, high)

    def solve(self, rounds, log):
        x, damping = self.clip(self.x), 1e-2
        r = self.residuals(self.errors(x), x)
        for k in range(rounds):
            jacobian = numpy.empty((len(r), len(x)))
            for j in range(len(x)):
                step = 0.1 * self.spread[j]
                y = x.copy()
                y[j] = y[j] + step if y[j] + step <= self.bounds[self.names[j]][1] else y[j] - step
                jacobian[:, j] = (self.residuals(self.errors(y), y) - r) / (y[j] - x[j])
            gained, a, slope = 0, jacobian.T @ jacobian, jacobian.T @ r
            low, high = (numpy.array([self.bounds[n][k] for n in self.names]) for k in (0, 1))
            free = ~((x <= low) & (slope > 0) | (x >= high) & (slope < 0)) # others stay at their bounds
            for attempt in range(5):
                b = a[numpy.ix_(free, free)]
                dx = numpy.zeros(len(x))
                dx[free] = numpy.linalg.solve(b + damping * numpy.diag(numpy.diag(b)), -slope[free])
                y = self.clip(x + dx)
                s = self.residuals(self.errors(y), y)
                if s @ s < r @ r:
                    gained, x, r, damping = r @ r - s @ s, y, s, damping / 4
                    break
                damping *= 6
            if log:
                print("  round %d: loss %.2f" % (k, r @ r), file=sys.stderr)
            if gained < 3e-4 * (r @ r):
                break
        self.x = x
        return x


def bounds_of():
    return {name: (low, high, value) for name, (value, low, high, _) in parameters.definitions().items()}


def start_from(predictor, profile):
    """the values of the profile's file, which may be newer than the program's"""
    for name, value in parameters.values(profile).items():
        predictor.set(profile, name, value)


def summary(runs):
    e = [abs(math.exp(r.error()) - 1) for r in runs if r.error() is not None]
    return "n %4d  median %4.1f %%  p90 %5.1f %%" % (len(e), 100 * quantile(e, 0.5), 100 * quantile(e, 0.9))


def write(out, profile, fit, bounds):
    """the profile's file, its leading comments kept, values in the order of profile.def"""
    path = os.path.join(out, profile + ".profile")
    values = {}
    head = []
    for line in open(path):
        if line.startswith("#"):
            head.append(line)
        elif line.split():
            values[line.split()[0]] = line.split()[1]
    for n, v in zip(fit.names, fit.x):
        values[n] = "%.3g" % v
    with open(path, "w") as f:
        f.writelines(head)
        for n in bounds:
            if n in values and float(values[n]) != bounds[n][2]:
                f.write("%-24s %s\n" % (n, values[n]))


def main():
    a = rows.arguments(__doc__.splitlines()[0])
    a.add_argument("--profile", action="append")
    a.add_argument("--out")
    a.add_argument("--leave-out", action="store_true")
    a.add_argument("--rounds", type=int, default=12)
    a.add_argument("--verbose", action="store_true")
    o = a.parse_args()
    p = Predictor(o.build, rows.read_runs(o.measured), o.work)
    bounds = bounds_of()
    for profile in PRIORS:
        start_from(p, profile)
    p.run()
    left_out = []
    for profile in o.profile or list(PRIORS):
        which = [i for i, r in enumerate(p.rows) if r.profile == profile and r.status != 3 and r.fitted()]
        start = Fit(p, profile, which, bounds)
        start.solve(o.rounds, o.verbose)
        start.errors(start.x)
        found = summary([p.rows[i] for i in which])
        print("%s: %d parameters fitted to %d rows: %s" % (profile, len(start.names), len(which), found))
        for n, v, b in zip(start.names, start.x, start.prior):
            print("    %-24s %-8.3g prior %.3g" % (n, v, b))
        if o.out:
            write(o.out, profile, start, bounds)
        if not o.leave_out:
            continue
        scored = [i for i, r in enumerate(p.rows) if r.profile == profile and r.not_scored() is None and r.status == 0]
        few = [i for i in which if p.rows[i].family != SINGLE or i % 6 == 0] # much alike: a sixth tells as much, sooner
        for family in sorted({p.rows[i].family for i in scored}):
            kin = next((t for t in TOGETHER if family in t), {family})
            fit = Fit(p, profile, [i for i in few if p.rows[i].family not in kin], bounds)
            fit.x = start.x.copy()
            if len(fit.rows) < len(few): # from the priors: nothing that the left-out source taught
                fit.x = fit.prior.copy()
                fit.solve(o.rounds, False)
            fit.rows = [i for i in scored if p.rows[i].family == family] # with those that no fit looks at
            fit.errors(fit.x)
            test = [p.rows[i] for i in fit.rows]
            left_out += [(abs(math.exp(r.error()) - 1), r.quirk()) for r in test if r.error() is not None]
            print("    without %-16s it is predicted with %s" % (family, summary(test)))
            sys.stdout.flush()
    for title, test in (("all", lambda q: True), ("without rows whose error has a checkable cause", lambda q: not q)):
        e = [x for x, q in left_out if test(q)]
        if e:
            print("left out, %s: n %d  median %.1f %%  p90 %.1f %%" % (title, len(e), 100 * quantile(e, 0.5), 100 * quantile(e, 0.9)))

main()
