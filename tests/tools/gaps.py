#!/usr/bin/env python3
"""Does the printed gap hold?  No other decision of the space, pinned and planned, may beat a plan by more than its gap.

    gaps.py [--build build] [--count 300] [--seed 1] [--rivals 8] [--limit 600] [--keep DIR]

The jobs are those of jobs.py, by their number.  Each job that plans gets rivals: one to three dimensions, which the job
leaves open, are set to other values of the space than the plan's; the others are the plan's own or free, by a coin.  A
rival that plans and whose simulated step (or GPU time, where that is the wish) is less than the plan's times 1 - gap is a
miss.  A rival may come to the plan's own decision; then it is none, but under `auto` the order of actions that is made for
it can differ with what else was looked at, and what that gains is told.  A plan that takes more than `limit` seconds is not
waited for.

Prints a line per miss and how close the rivals came.  Exit 1 with a miss."""

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jobs

LATE = -1  # of a plan that was not waited for, as its exit code
SLACK = 1e-9  # of rounding: a plan may be its own rival
VALUES = {
    "tp": [1, 2, 4, 8],
    "cp": [1, 2, 4],
    "pp": [1, 2, 4, 8, 16],
    "vpp": [1, 2, 3, 4],
    "ep": [1, 2, 4, 8, 16, 32, 64],
    "zero": [0, 1, 2, 3],
    "microbatch": [1, 2, 4, 8],
    "schedule": jobs.SCHEDULES,
    "recompute": ["none", "selective", "full"],
    "sequence_parallel": ["yes", "no"],
}


def space(llm):
    """VALUES that a search for the job tries without being told: short sequences are not split, and Megatron-LM shards no
    parameters or gradients, that of 2022 no sequences either."""
    out, sequence = dict(VALUES), int(re.search(r"\bsequence (\d+)", llm).group(1))
    out["cp"] = [v for v in VALUES["cp"] if v == 1 or sequence // v >= 2048]
    if 'profile "megatron' in llm:
        out["zero"] = [0, 1]
    if 'profile "megatron-2022"' in llm:
        del out["sequence_parallel"]
    return out


def chosen(decision):
    """The decision's values as the plan block writes them."""
    out = {k: decision[k] for k in VALUES if k in decision}
    out["sequence_parallel"] = "yes" if decision["sp"] else "no"
    if decision["tp"] == 1:
        del out["sequence_parallel"]
    if decision["pp"] == 1:
        del out["schedule"], out["vpp"]
    if out["recompute"] not in VALUES["recompute"] or decision["recompute_detail"]:
        del out["recompute"]
    return out


def is_tight(said):
    """Does a plan have less room for experts' rows than usual?  It is in the space only where nothing has more."""
    return "memory leaves experts room" in said


def objective(plan, gpu_time):
    d = plan["decision"]
    gpus = d["tp"] * d["cp"] * d["dp"] * d["pp"]
    return plan["predicted"]["step_time_s"] * (gpus if gpu_time else 1)


def rival(r, decision, wishes, values):
    """`--set` words of another decision."""
    own = chosen(decision)
    stated = {w.split()[0] for w in wishes}
    free = [k for k in values if k not in stated and (k != "schedule" or "vpp" not in stated)]
    changed = r.sample(free, r.choice([1, 1, 2, 3]))
    kept = [k for k in free if k in own and r.random() < 0.5]
    words = {k: own[k] for k in kept}
    for k in changed:
        words[k] = r.choice([v for v in values[k] if v != own.get(k)] or values[k])
    return [x for k, v in words.items() for x in ("--set", f"{k}={v}")]


def plan_in_time(bench, number, words):
    """bench.plan(), or LATE in place of its exit code."""
    try:
        return bench.plan(words=words)
    except subprocess.TimeoutExpired:
        print(f"job {number}: {' '.join(words) or 'its plan'}: not waited for", flush=True)
        return LATE, None, ""


def judge(bench, number, rivals):
    """(rivals that planned, least of rival / (plan * (1 - gap)), words of that one, least of plan made again / plan) or None
    where the job does not plan in time"""
    llm, xml, about = jobs.job(number)
    Path(bench.files[0]).write_text(llm)
    Path(bench.files[1]).write_text(xml)
    code, plan, said = plan_in_time(bench, number, [])
    if code:
        return None
    wishes = [w for w in about.split("; ")[1:] if w]
    gpu_time = "minimize gpu_time" in wishes
    bound = objective(plan, gpu_time) * (1 - plan["search"]["gap"])
    values = space(llm)
    r, planned, least, words, same = random.Random(f"rivals {number}"), 0, float("inf"), [], 1
    for _ in range(rivals):
        more = rival(r, plan["decision"], wishes, values)
        code, other, errors = plan_in_time(bench, number, more)
        if code not in (0, 1, 3, LATE):  # 3: a degree that does not divide the model
            print(f"job {number}: {' '.join(more)}: plan ends with {code}: {errors}", flush=True)
        if code or (is_tight(errors) and not is_tight(said)):
            continue
        if other["decision"] == plan["decision"]:
            same = min(same, objective(other, gpu_time) / objective(plan, gpu_time))
            continue
        planned += 1
        if objective(other, gpu_time) / bound < least:
            least, words = objective(other, gpu_time) / bound, more
    return planned, least, words, same


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--count", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--rivals", type=int, default=8)
    p.add_argument("--limit", type=float, default=600, help="seconds that a plan may take")
    p.add_argument("--keep", help="folder for the last job's files")
    o = p.parse_args()
    folder = o.keep or tempfile.mkdtemp()
    Path(folder).mkdir(exist_ok=True)
    bench, seen, planned, missed = jobs.Bench(o.build, folder, o.limit), 0, 0, 0
    least, same = [], 1
    for number in range(o.seed, o.seed + o.count):
        found = judge(bench, number, o.rivals)
        if not found:
            continue
        seen += 1
        planned += found[0]
        least.append(found[1])
        same = min(same, found[3])
        if found[1] < 1 - SLACK:
            missed += 1
            print(f"job {number}: a rival is {100 * (1 - found[1]):.2f} % below the gap: {' '.join(found[2])}\n"
                  f"    {jobs.job(number)[2]}", flush=True)
    print(f"{seen} plans of {o.count} jobs, {planned} rivals that plan too, {missed} below a printed gap; the nearest is at "
          f"{min(least, default=0):.4f} of its bound; the same decision in another order gains {100 * (1 - same):.2f} %")
    if not o.keep:
        shutil.rmtree(folder)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
