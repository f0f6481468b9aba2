#!/usr/bin/env python3
"""Random jobs as a stranger would ask for them: does `plan` find a plan whenever there is one?

    jobs.py [--build build] [--count 500] [--seed 1] [--budget 100] [--limit 1800] [--keep DIR]

Draws a model (dense or with experts, 0.1 to 1,000 billion parameters), a cluster of 1 to 100,000 GPUs, a profile and some
pins; all by its number, so that `--seed N --count 1` is job N alone.  A job for which `plan` says that nothing fits is
searched again with so many times the budget, and so is one whose printed gap is above 2 %: a plan that comes out then, or
one that is faster by more than 2 % by its simulation, is a miss.  So are a refusal by placement, another exit code than 0 and
1, an estimate that tells of another decision, step or peak than the plan's, or of a plan where there is none, and a command
that takes more than `limit` seconds.

Prints a line per miss and the distribution of gaps.  Exit 1 with a miss."""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BUDGET = 3_000_000
WIDTHS = [(768, 12), (1024, 24), (2048, 24), (2560, 32), (4096, 32), (5120, 40), (6144, 48), (8192, 80), (12288, 96),
          (16384, 126), (18432, 118)]
NODES = {
    # GPU, GB/s in a node, NICs, Gb/s of each
    "h100": ("H100-SXM", 450, 8, 400),
    "h800": ("H800-SXM", 200, 8, 400),
    "a100": ("A100-SXM-80GB", 300, 8, 200),
    "a100-40": ("A100-SXM-40GB", 300, 4, 200),
}
PROFILES = ["llmrun"] * 4 + ["megatron-core", "torch-fsdp", "megatron-2022"]
SCHEDULES = ["1f1b", "interleaved", "zb_h1", "zb_v", "v_half", "v_min", "dualpipe_v", "dualpipe", "gpipe", "eager_1f1b"]


def model(r, experts):
    width, layers = r.choice(WIDTHS[:9] if experts else WIDTHS)
    layers = max(2, layers + r.choice([0, 0, 0, -1, 2, -4]))
    heads = max(4, width // 128)
    kv = r.choice([k for k in (heads, 8, 4, 1) if heads % k == 0])
    attention = f"gqa(heads={heads}, kv={kv}, rope=500_000)" if r.random() < 0.85 else \
        f"mla(heads={heads}, q_rank={min(1536, width // 2)}, kv_rank=512, nope=128, rope=64, v=128)"
    if experts:
        n = r.choice([8, 16, 64, 128, 256])
        inner = max(256, width // r.choice([1, 2, 4]) // 128 * 128)
        ffn = f"moe swiglu({inner}) {{\n experts {n}\n active {r.choice([1, 2, 4, 8])}\n shared {r.choice([0, 0, 1])}\n }}"
    else:
        ffn = r.choice([f"ffn swiglu({(width * 8 // 3 + 255) // 256 * 256})", f"ffn gelu({4 * width})"])
    return (f"model drawn {{\n vocab {r.choice([32000, 50257, 128256, 151936])}\n width {width}\n norm rmsnorm\n embed tokens\n"
            f" repeat {layers} {{\n layer {{\n attn {attention}\n {ffn}\n }}\n }}\n head {r.choice(['untied', 'tied'])}\n}}\n")


def pins(r, gpus):
    out = []
    if r.random() < 0.5:
        for degree, sizes in (("tp", (1, 2, 4, 8)), ("pp", (1, 2, 4, 8, 16)), ("cp", (1, 2, 4)), ("zero", (0, 1, 2, 3)),
                              ("microbatch", (1, 2, 4))):
            if r.random() < 0.3:
                out.append(f"{degree} {r.choice(['=', '=', '<=', '>='])} {r.choice(sizes)}")
    if r.random() < 0.3:
        out.append("schedule in [" + ", ".join(r.sample(SCHEDULES, r.choice([1, 2, 3]))) + "]")
    if r.random() < 0.2:
        out.append("recompute " + r.choice(["none", "full", "selective"]))
    if r.random() < 0.1:
        out.append("minimize gpu_time")
    if r.random() < 0.1:
        out.append("keep tp within node")
    if r.random() < 0.1:
        out.append("offload [optimizer]")
    if r.random() < 0.2 and gpus > 8:
        out.append(f"gpus <= {r.randrange(gpus // 2, gpus)}")
    return out


def job(number):
    """The two texts of job `number`, and a line about it."""
    r = random.Random(f"job {number}")
    experts = r.random() < 0.4
    kind = r.choice(sorted(NODES))
    gpu, scale_up, nics, speed = NODES[kind]
    count = r.choice([1, 1, 2, 3, 4, 8, 12, 16, 32, 64, 100, 128, 256, 512, 1024, 2048, 4096, 12500])
    gpus = 8 * count
    text = model(r, experts)
    sequence = r.choice([2048, 4096, 4096, 8192, 32768])
    batch = max(1, min(r.choice([gpus // 4, gpus, 2 * gpus, 4 * gpus, 1536]), 65536))
    heads = int(re.search(r"heads=(\d+)", text).group(1))
    wishes = [w for w in pins(r, gpus) if not w.startswith("tp = ") or heads % int(w[5:]) == 0]  # an error of its own
    profile = r.choice(PROFILES)
    precision = r.choice(["bf16", "bf16", "bf16", "fp8"]) if kind.startswith("h") else "bf16"
    llm = (f"llmc 1\n{text}train {{\n sequence {sequence}\n batch {batch} sequences\n precision {precision}\n"
           f" optimizer adamw(lr=1e-4)\n}}\nplan {{\n profile \"{profile}\"\n" + "".join(f" {w}\n" for w in wishes) + "}\n")
    fabric = ""
    if count > 1:
        tier = f'<tier name="rack" span="{r.choice([4, 16, 32])}"/>' if count > 64 else ""
        over = f' oversubscription="{r.choice([1, 1, 2, 7])}"' if tier else ""
        fabric = f'<fabric medium="infiniband">{tier}<tier name="all" span="all"{over}/></fabric>'
    xml = (f'<?xml version="1.0"?><cluster version="1" name="drawn"><node-type id="n" gpus="8" host-memory="2TB">'
           f'<gpu model="{gpu}"/><scale-up kind="nvswitch" bandwidth="{scale_up}GB/s"/>'
           f'<nic count="{nics}" bandwidth="{speed}Gb/s"/></node-type><nodes type="n" count="{count}"/>{fabric}</cluster>\n')
    width = re.search(r"width (\d+)", text).group(1)
    about = f"{'experts' if experts else 'dense'} {width}, {gpus} {kind}, {profile}, sequence {sequence}, batch {batch}; "
    about += "; ".join(wishes)
    return llm, xml, about


class Bench:
    def __init__(self, build, folder, limit):
        self.llmc, self.folder, self.limit = Path(build).resolve() / "llmc", Path(folder), limit
        self.files = [str(self.folder / "model.llm"), str(self.folder / "cluster.xml")]

    def call(self, words):
        p = subprocess.run([str(self.llmc), *words], capture_output=True, text=True, timeout=self.limit)
        return p.returncode, p.stdout, p.stderr

    def plan(self, budget=None, words=()):
        """(exit code, plan.json or None, last words on stderr)"""
        out = self.folder / "plan"
        shutil.rmtree(out, ignore_errors=True)
        more = ["--budget", str(budget)] if budget else []
        code, text, errors = self.call(["plan", *self.files, "-o", str(out), "--json", "-q", *more, *words])
        return code, json.loads(text) if code == 0 else None, errors.strip()

    def estimate(self, code, plan):
        """what `estimate` tells that `plan` does not"""
        own, text, _ = self.call(["estimate", *self.files, "--json", "-q", "--top", "1"])
        told = json.loads(text) if own == 0 else None
        if code != 0:
            return "" if not told or not told["emittable"] else f"plan ends with {code}, the estimate tells of a plan"
        if not told:
            return f"plan ends with 0, estimate with {own}"
        for key in ("step_time_s", "peak_memory_bytes"):
            if abs(told["predicted"][key] - plan["predicted"][key]) > 1e-9 * plan["predicted"][key]:
                return f"{key}: {told['predicted'][key]} by the estimate, {plan['predicted'][key]} of the plan"
        return "" if told["decision"] == plan["decision"] else "the estimate tells of another decision"

    def judge(self, number, times):
        """(about, gap or None, what is wrong or '')"""
        llm, xml, about = job(number)
        Path(self.files[0]).write_text(llm)
        Path(self.files[1]).write_text(xml)
        code, plan, errors = self.plan()
        first = errors.splitlines()[0] if errors else ""
        wrong = self.estimate(code, plan)
        if wrong:
            return about, None, wrong
        if code not in (0, 1):
            return about, None, f"plan ends with {code}: {first}"
        if "placed in" in errors:
            return about, None, f"refused by placement: {first}"
        if code == 0:
            gap, step = plan["search"]["gap"], plan["predicted"]["step_time_s"]
            if gap <= 0.02:
                return about, gap, ""
            code, better, _ = self.plan(times * BUDGET)
            if code != 0:
                return about, gap, f"with {times} times the budget plan ends with {code}"
            gain = 1 - better["predicted"]["step_time_s"] / step
            return about, gap, f"with {times} times the budget {100 * gain:.1f} % faster" if gain > 0.02 else ""
        code, _, _ = self.plan(times * BUDGET)
        return about, None, "" if code == 1 else f"with {times} times the budget plan ends with {code}, without: {first}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--count", type=int, default=500)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--budget", type=int, default=100)
    p.add_argument("--limit", type=float, default=1800, help="seconds that a command may take")
    p.add_argument("--keep", help="folder for the last job's files")
    o = p.parse_args()
    folder = o.keep or tempfile.mkdtemp()
    Path(folder).mkdir(exist_ok=True)
    bench, gaps, missed, none = Bench(o.build, folder, o.limit), [], 0, 0
    for number in range(o.seed, o.seed + o.count):
        try:
            about, gap, wrong = bench.judge(number, o.budget)
        except subprocess.TimeoutExpired:
            about, gap, wrong = job(number)[2], None, f"takes more than {o.limit:g} s"
        gaps += [gap] if gap is not None else []
        none += gap is None and not wrong
        if wrong:
            missed += 1
            print(f"job {number}: {wrong}\n    {about}", flush=True)
    gaps.sort()
    at = lambda share: 100 * gaps[min(len(gaps) - 1, int(share * len(gaps)))] if gaps else 0
    print(f"{o.count} jobs: {len(gaps)} planned, of {none} no plan exists, {missed} wrong; gap median {at(0.5):.2f} %, "
          f"95th percentile {at(0.95):.2f} %, widest {at(1):.2f} %")
    if not o.keep:
        shutil.rmtree(folder)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
