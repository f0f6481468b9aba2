"""What readers of `llmc export` share: plans are drawn over degrees, schedules, ZeRO, recomputation and experts, exported, read
back by the form's own rules, and compared with plan.json; what the stack has not must be refused, and nothing else."""

import argparse
import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

HERE = str(Path(__file__).resolve().parent)


def installed(package):
    """is there such a package, other than the reader of that name in this folder?"""
    sys.path = [p for p in sys.path if str(Path(p or ".").resolve()) != HERE]
    return importlib.util.find_spec(package) is not None


def run(*words):
    p = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    return p.returncode, p.stdout, p.stderr


def draw(r):
    """model and pins of a plan of at most eight ranks"""
    experts = r.random() < 0.4
    model, pins = ("tiny-moe", []) if experts else ("tiny-llama", [])
    left = 8
    for axis in ("tp", "cp", "pp"):
        size = r.choice([n for n in (1, 2, 4) if n <= left])
        left //= size
        pins.append(f"{axis}={size}")
    pins += [f"dp={left}", f"zero={r.randint(0, 3)}", f"microbatch={r.choice([1, 2])}"]
    if r.random() < 0.5:
        pins.append(f"shard={r.choice([1, 2, 4])}")
    if experts and r.random() < 0.7:
        pins.append(f"ep={r.choice([1, 2, 4])}")
    pins.append("schedule=" + r.choice(["1f1b", "interleaved", "1f1b", "interleaved", "gpipe", "zb_h1", "dualpipe_v"]))
    pins.append("recompute=" + r.choice(["none", "full", "full(layers=1)", "[norm]", "[core_attn, norm]", "[ffn]", "[ffn_act]"]))
    if r.random() < 0.3:
        pins.append("order=[" + r.choice(["tp, cp, pp, dp", "pp, tp, cp, dp", "dp, tp, cp, pp"]) + "]")
    if r.random() < 0.3:
        pins.append("context=" + r.choice(["ring", "all_gather", "all_to_all"]))
    return model, pins + ["batch=16 sequences"]


def draw_flat(r, plain=0.5):
    """the same without what few stacks have: with `plain` chance each, no pipeline, no split context, no parts that run again"""
    experts = r.random() < 0.3
    left, pins = 8, []
    for axis in ("tp", "cp", "pp"):
        size = 1 if axis != "tp" and r.random() < plain else r.choice([n for n in (1, 2, 4) if n <= left])
        left //= size
        pins.append(f"{axis}={size}")
    pins += [f"dp={left}", f"zero={r.randint(0, 3)}", f"microbatch={r.choice([1, 2])}"]
    if r.random() < 0.2:
        pins.append(f"shard={r.choice([1, 2, 4])}")
    pins.append("precision=" + r.choice(["fp32", "bf16", "bf16"]))
    if experts:
        pins += [f"ep={r.choice([1, 2, 4])}", f"etp={r.choice([1, 1, 2, 4])}"]
    pins.append("schedule=" + r.choice(["1f1b", "interleaved", "gpipe", "zb_v", "auto", "zb_h1", "dualpipe_v", "eager_1f1b"]))
    pins.append("recompute=" + r.choice(["none", "full", "none", "full", "[core_attn]", "full(layers=1)", "[norm]"]))
    pins.append("context=" + r.choice(["ring", "all_gather", "all_gather", "all_to_all"]))
    if r.random() < 0.1:
        pins.append("order=[tp, cp, pp, dp]")
    return "tiny-moe" if experts else "tiny-llama", pins + [f"batch={r.choice([16, 32])} sequences"]


def draw_plain(r):
    """for stacks whose file has neither pipelines nor models: draw_flat() and what else such a file says"""
    model, pins = draw_flat(r, 0.85)
    pins = [p for p in pins if not p.startswith("precision=")]
    pins += ["precision=" + r.choice(["fp32", "bf16", "bf16(reduce=bf16)", "bf16(grads=bf16)", "fp16",
                                      "fp16(scale=65_536, window=2_000, hysteresis=1)"]),
             "lr_schedule=" + r.choice(["constant", "constant(warmup=20)", "cosine(warmup=20, min=1e-4)", "linear(warmup=10)",
                                        "wsd(warmup=10, stable=100, decay=20)"]),
             "optimizer=" + r.choice(["adamw(lr=1e-3)", "adamw(lr=1e-3, weight_decay=0)", "sgd(0.1, momentum=0.9)"])]
    if r.random() < 0.8:
        pins.append("total=4_096_000 tokens")
    if r.random() < 0.6:
        pins.append("sequence_parallel=no")
    if r.random() < 0.15:
        pins.append("offload=[optimizer]")
    return model, pins


def pinned(plan, word, usual=None):
    """what was drawn for a word"""
    return next((p.split("=", 1)[1] for p in plan.get("pins", ()) if p.startswith(word + "=")), usual)


def lacking(plan, zero, copies, sequence_parallel, context, experts, recompute, ranks, offload=()):
    """what a stack without pipelines has not of a plan, as llmc says it; `ranks`: what of ranks it has"""
    d, out, moe = plan["decision"], [], plan["model"]["name"] == "tiny_moe"
    replicas, parts = d["dp"] * d["cp"], d["shard"] if d["zero"] else 1
    if d["pp"] > 1:
        out += [f"schedule {d['schedule']}"] + ["schedule folded"] * bool(d.get("folded"))
    if replicas > 1 and d["zero"] not in zero:
        out.append(f"zero {d['zero']}")
    if d["zero"] and d["shard"] < replicas and d["zero"] not in copies:
        out.append(f"zero {d['zero']} over some of the replicas")
    if d["tp"] > 1 and d["sp"] not in sequence_parallel:
        out.append("sequence_parallel yes" if d["sp"] else "sequence_parallel no")
    if d["cp"] > 1 and d["context"] not in context:
        out.append(f"context {d['context']}")
    out += [what for what in ("ep", "etp") if d[what] > 1 and what not in experts]
    if d["recompute"] == "selective":
        out += [f"recompute {part}" for part in d["recompute_detail"]]
    if d["recompute"] == "full":
        counts = lines_of(d["layout"])
        first = any(n > (d.get("recompute_layers") or n) for n in counts)
        out += ["recompute first_layers"] if first else [] if "full" in recompute else ["recompute full"]
    axes = [a for a in d["order"] if d[a] > 1]
    if axes != [a for a in ("tp", "cp", "dp", "pp") if d[a] > 1]:
        out.append(f"ranks in {'pp_before_dp' if axes == [a for a in ('tp', 'cp', 'pp', 'dp') if d[a] > 1] else 'another'} order")
    has = {"context_copies": d["cp"] > 1 and parts % d["cp"], "expert_copies": moe and parts * d["tp"] % (d["ep"] * d["etp"]),
           "whole_experts": moe and d["ep"] == 1 and d["etp"] != d["tp"]}
    out += [f"ranks with {what}" for what, so in has.items() if so and what not in ranks]
    out += [f"offload of {part}" for part in d["offload"] if part not in offload]
    return out


def differ(wrong, what, has, wanted):
    if has != wanted:
        wrong.append(f"{what}: {has} of the file, {wanted} of the plan")


def lines_of(layout):
    """layers of each stage of a layout as plan.json writes it"""
    counts = []
    for part in layout.split("|"):
        text = part.strip("EL")
        counts.append(0 if not text else int(text.split("*")[1]) if "*" in text else len(text))
    return counts


def drawn(o, form, check, refuses, draws=draw, least=4):
    """check(text, plan) gives differences, and so does refuses(plan, errors); plan["pins"]: what was drawn"""
    r, planned, told, refused, bad = random.Random(o.seed), 0, 0, 0, 0
    while planned < o.draws:
        model, pins = draws(r)
        sets = [w for pin in pins for w in ("--set", pin)]
        code, _, errors = run(o.llmc, "plan", f"plans/{model}/model.llm", "topologies/cpu8.xml", "-q", "--force", "-o",
                              o.work / "drawn", *sets)
        if code != 0:
            continue
        planned += 1
        plan = json.loads((o.work / "drawn" / "plan.json").read_text()) | {"pins": pins}
        code, text, errors = run(o.llmc, "export", o.work / "drawn", "--to", form)
        if code == 1 and errors and not text:
            refused += 1
            wrong = refuses(plan, errors)
        elif code == 0:
            told += 1
            wrong = check(text, plan) + [f"is not refused: {line}" for line in must(refuses, plan)]
        else:
            wrong = [f"exit {code}: {errors}"]
        bad += bool(wrong)
        for line in wrong:
            print(f"{model} {'; '.join(pins)}: {line}")
    print(f"{planned} plans: {told} as they are, {refused} refused, {bad} wrong")
    return bad + (told < o.draws // least or refused < o.draws // 20)


def must(refuses, plan):
    return getattr(refuses, "wanted", lambda plan: [])(plan)


def exactly(form, wanted):
    """a judge of refusals: just the sentences that wanted(plan) lists, no more, no fewer"""
    def judge(plan, errors):
        has = {line.removeprefix(f"llmc: {form} cannot be told of ") for line in errors.strip().splitlines()}
        want = set(wanted(plan))
        return [f"refused: {line}" for line in sorted(has - want)] + [f"is not refused: {line}" for line in sorted(want - has)]
    judge.wanted = wanted
    return judge


def options(description, extra=()):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--llmc", default="build/llmc")
    p.add_argument("--work", type=Path, required=True)
    p.add_argument("--draws", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    for name, meaning in extra:
        p.add_argument(name, action="store_true", help=meaning)
    o = p.parse_args()
    o.work.mkdir(parents=True, exist_ok=True)
    return o
