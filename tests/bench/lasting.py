#!/usr/bin/env python3
"""What it costs to survive and to watch: checkpoints, restarts, the watchdog, the view of --watch, on eight CPU ranks of the demo's model.

    lasting.py [--build build] [--steps 24] [--rounds 3]

Prints a table of figures against goals: from a rank's death to its report, from a standstill to the report that names it, what
a checkpoint takes from the steps, from a death to the first step that is taken again, and the step with the watchdog on over that
without, and with --watch over that without, in turns within one run.  Exit 1 if one misses its goal."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WATCHDOG_S = 2


class Bench:
    def __init__(self, build, folder):
        self.run, self.folder = str(Path(build) / "llmrun"), Path(folder)
        text = b"".join(p.read_bytes() for p in sorted(Path("runtime").glob("*.c")))
        (self.folder / "t.txt").write_bytes(text)
        llmc = str(Path(build) / "llmc")
        for words in ([llmc, "tokens", self.folder / "t.txt", "-q", "-o", self.folder / "t.bin"],
                      [llmc, "plan", "plans/tiny-llama/model.llm", "topologies/cpu8.xml", "--set", "tp=2", "--set", "pp=2", "--set",
                       "dp=2", "--set", "batch=8 sequences", "-q", "-o", self.folder / "p"]):
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    def words(self, *more):
        return [self.run, str(self.folder / "p"), "--data", str(self.folder / "t.bin"), *map(str, more)]

    def seconds(self, steps, *more, view="--quiet"):
        """median seconds of a step, and the summary"""
        log = self.folder / "log.jsonl"
        out = subprocess.run(self.words("--steps", steps, view, "--json", "--log", log, *more), check=True, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
        times = [json.loads(line)["step_time_s"] for line in log.read_text().splitlines()]
        return statistics.median(times[1:]), json.loads(out.stdout)

    def struck(self, blow, says, *more):
        """strikes a rank of a running job; seconds until `says` is on stderr, and until a step is logged after that"""
        log, folder = self.folder / "log.jsonl", tempfile.mkdtemp(dir=self.folder)
        log.unlink(missing_ok=True)
        job = subprocess.Popen(self.words("--steps", 10_000_000, "--checkpoint", folder, "--every", 2, "--restarts", 1, "--log", log, *more),
                               stderr=subprocess.PIPE, text=True)
        try:
            while not list(Path(folder).glob("step-*[0-9]")):
                time.sleep(0.01)
            ranks = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            start = time.monotonic()
            os.kill(int(ranks[3]), blow)
            for line in job.stderr:
                if says in line:
                    break
            said = time.monotonic() - start
            before = log.stat().st_size
            while log.stat().st_size == before:  # cut to its checkpoint, then a line longer
                time.sleep(0.002)
                before = min(before, log.stat().st_size)
            return said, time.monotonic() - start - said
        finally:
            job.send_signal(signal.SIGKILL)
            job.wait()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default="build")
    ap.add_argument("--steps", type=int, default=24)
    ap.add_argument("--rounds", type=int, default=3)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.build, folder)
        crashes = [bench.struck(signal.SIGKILL, "was killed by signal 9") for _ in range(args.rounds)]
        hangs = [bench.struck(signal.SIGSTOP, "its process is stopped", "--watchdog", WATCHDOG_S) for _ in range(args.rounds)]
        ratios, watched, steps, stalls = [], [], [], []
        for i in range(args.rounds):
            plain = bench.seconds(args.steps, "--watchdog", 0)[0]
            ratios.append(bench.seconds(args.steps, "--watchdog", WATCHDOG_S)[0] / plain)
            watched.append(bench.seconds(args.steps, "--watchdog", 0, view="--watch")[0] / plain)
            steps.append(plain)
            step, summary = bench.seconds(args.steps, "--checkpoint", f"{folder}/c{i}", "--every", 4)
            written = summary["checkpoints"]["written"]
            stalls.append(summary["checkpoints"]["stall_s"] / written)
    rows = [("a rank's death is reported", max(c[0] for c in crashes), 1, "s"),
            (f"a standstill is named, with --watchdog {WATCHDOG_S}", max(h[0] for h in hangs), 5, "s"),
            ("a checkpoint holds the steps up", max(stalls), 1, "s"),
            ("from a report to the first step again", max(c[1] for c in crashes), 2 + 2 * max(steps), "s"),
            ("the step with a watchdog over the step without", statistics.median(ratios), 1.05, ""),
            ("the step with --watch over the step without", statistics.median(watched), 1.05, "")]
    missed = 0
    print(f"eight CPU ranks on {os.cpu_count()} cores, {statistics.median(steps):.3f} s a step; the worst of {args.rounds}, ratios in the median")
    for name, value, goal, unit in rows:
        missed += value > goal
        print(f"{name:48}  {value:8.3f} {unit:1}  goal {goal:5.2f}{'  MISSED' if value > goal else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
