#!/usr/bin/env python3
"""Files of `llmc export --to torch-csv`, read as torch.distributed.pipelining reads them.

    torch_csv.py --llmc build/llmc --work DIR [--draws 200] [--seed 1]

A cell is an action by torch's grammar: stage, F, I, W or B, microbatch; or several between brackets that overlap.  What torch
asks of a schedule must hold (a stage on one rank, every microbatch forward once, backward once or in two halves, in order),
ranks must come to their ends when each takes its actions in turn, and the actions must be those of the plan's programs, as
`show --timeline` lists their blocks.  Only schedules with each stage on two ranks may be refused.  Exit 1 with a difference."""

import csv
import json
import random
import re
import sys
from pathlib import Path

from exported import options, run

ACTION = re.compile(r"(\d+)([FBIW])(\d+)")
SCHEDULES = ["gpipe", "1f1b", "eager_1f1b", "interleaved", "combined_1f1b", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "dualpipe",
             "dualpipe_v", "auto"]


def read_cell(text):
    """the actions that run at once, as (stage, letter, microbatch)"""
    match = re.fullmatch(r"\((.*)\)OVERLAP_F_B", text)
    parts = match[1].split(";") if match else [text]
    found = [ACTION.fullmatch(p) for p in parts]
    if not all(found) or len(parts) != (2 if match else 1):
        raise ValueError(f"no action: {text}")
    return [(int(f[1]), f[2], int(f[3])) for f in found]


def read(text):
    return [[read_cell(cell.strip()) for cell in row if cell.strip()] for row in csv.reader(text.splitlines())]


def check_stages(rows, microbatches):
    """what torch asks of each stage"""
    wrong, home = [], {}
    for rank, row in enumerate(rows):
        done = set()
        for stage, letter, mb in (a for cell in row for a in cell):
            if home.setdefault(stage, rank) != rank:
                wrong.append(f"stage {stage} on ranks {home[stage]} and {rank}")
            before = {"F": None, "B": "F", "I": "F", "W": "I"}[letter]
            if (stage, letter, mb) in done or (before and (stage, before, mb) not in done):
                wrong.append(f"{stage}{letter}{mb} out of order on rank {rank}")
            done.add((stage, letter, mb))
        for stage in (s for s, r in home.items() if r == rank):
            for mb in range(microbatches):
                had = "".join(letter for letter in "FBIW" if (stage, letter, mb) in done)
                if had not in ("FB", "FIW"):
                    wrong.append(f"stage {stage}, microbatch {mb}: {had}")
    return wrong, len(home)


def check_run(rows, stages):
    """takes actions in turn as soon as what they need has ended"""
    at, done = [0] * len(rows), set()

    def ready(stage, letter, mb):
        if letter == "F":
            return stage == 0 or (stage - 1, "F", mb) in done
        if letter == "W" or stage == stages - 1:
            return True
        return (stage + 1, "B", mb) in done or (stage + 1, "I", mb) in done
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row) and all(ready(*a) for a in row[at[rank]]):
                done.update(row[at[rank]])
                at[rank] += 1
                moved = True
    return [f"rank {rank} stands at {row[at[rank]]}" for rank, row in enumerate(rows) if at[rank] < len(row)]


def blocks(role):
    out = []
    for b in role["blocks"]:
        if b["action"] in "FBIW" and "microbatch" in b:
            one = [(b["stage"], b["action"], b["microbatch"])]
            other = b.get("other")
            out.append(one + ([(other["stage"], other["action"], other["microbatch"])] if other else []))
    return out


def check(text, plan, timeline):
    d, rows = plan["decision"], read(text)
    wrong, stages = check_stages(rows, d["microbatches"])
    wrong += check_run(rows, stages)
    if (len(rows), stages) != (d["pp"], d["pp"] * d["vpp"]):
        wrong.append(f"{len(rows)} ranks, {stages} stages, not {d['pp']} and {d['pp'] * d['vpp']}")
    for rank, row in enumerate(rows):
        mine = [sorted(cell) for cell in row]
        its = [sorted(b) for b in blocks(timeline["roles"][rank])]
        if [a for cell in mine for a in cell] != [a for cell in its for a in cell]:
            wrong.append(f"rank {rank} has {mine[:9]}, its program {its[:9]}")
    return wrong


def draw(r, schedule):
    pp = r.choice([1, 2, 4, 8])
    tp = r.choice([n for n in (1, 2) if n * pp <= 8])
    return ["tp=%d" % tp, "pp=%d" % pp, "dp=1", "gpus=%d" % (pp * tp), "schedule=" + schedule, "microbatch=1",
            "batch=%d sequences" % r.choice([4, 8, 16, 20])]


def main():
    o = options(__doc__)
    r, told, refused, bad, seen, tried = random.Random(o.seed), 0, 0, 0, set(), 0
    text = Path("plans/tiny-llama/model.llm").read_text()
    (o.work / "model.llm").write_text(re.sub(r"repeat \d+", "repeat 16", text))
    while told + refused < o.draws and tried < 20 * o.draws:
        schedule = SCHEDULES[(told + refused) % len(SCHEDULES)] # the next once a plan of this one is there
        tried += 1
        pins = draw(r, schedule)
        sets = [w for pin in pins for w in ("--set", pin)]
        if run(o.llmc, "plan", o.work / "model.llm", "topologies/cpu8.xml", "-q", "--force", "-o", o.work / "drawn", *sets)[0]:
            continue
        plan = json.loads((o.work / "drawn" / "plan.json").read_text())
        code, text, errors = run(o.llmc, "export", o.work / "drawn", "--to", "torch-csv")
        if code == 1 and errors and not text:
            refused += 1
            wrong = [] if plan["decision"]["schedule"] == "dualpipe" else [errors]
        elif code == 0:
            told += 1
            seen.add(plan["decision"]["schedule"])
            wrong = check(text, plan, json.loads(run(o.llmc, "show", o.work / "drawn", "--timeline", "--json")[1]))
        else:
            wrong = [f"exit {code}: {errors}"]
        bad += bool(wrong)
        for line in wrong[:3]:
            print(f"{'; '.join(pins)}: {line}")
    print(f"{told} plans of {len(seen)} schedules as they are, {refused} refused, {bad} wrong")
    return 1 if bad or told < o.draws // 2 or not refused or len(seen) < len(SCHEDULES) - 1 else 0


if __name__ == "__main__":
    sys.exit(main())
