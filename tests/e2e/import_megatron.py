#!/usr/bin/env python3
"""Scripts of `llmc export --to megatron`, imported again: the model must be the same, and the plan the same decision.

    import_megatron.py --llmc build/llmc --work DIR [--draws 200] [--seed 1]

Plans are drawn as megatron.py draws them; what Megatron-LM cannot be told is left out of the count.  Exit 1 with a
difference."""

import json
import random
import re
import sys
from pathlib import Path

from exported import draw, options, run

# what other inputs decide, or what differs in how it is written alone
ASIDE = {"nodes"}
# CPU ranks have little memory: what Megatron-LM takes beside the plan is made small
SMALL = ["--set", "adjust=context_gib = 0.1", "--set", "adjust=communicator_mib = 8"]


def model_block(text):
    """without names and comments, in canonical form"""
    text = re.sub(r" *#.*", "", text)
    return re.sub(r"model \w+", "model m", text[text.index("model "):text.index("\ntrain {")])


def canonical(llmc, work, text):
    """let and default arguments written out: as the compiler prints a model"""
    path = work / "model.llm"
    path.write_text("llmc 1\n\n" + text + "\ntrain {\n    sequence 256\n    batch 8 sequences\n}\n")
    code, out, errors = run(llmc, "fmt", path)
    return model_block(out) if code == 0 else errors


def plain(d):
    """the decision without what is said in several ways"""
    if d["pp"] == 1:
        d["schedule"] = "1f1b"  # microbatches one after the other, however that is called
    d["order"] = [axis for axis in d["order"] if d[axis] > 1]
    if d.get("recompute_layers") and d["recompute_layers"] >= max(layers(x) for x in d["layout"].split("|")):
        d["recompute_layers"] = None  # all that a chunk has
    return d


def layers(chunk):
    found = re.search(r"t(?:\*(\d+))?", chunk)
    return int(found[1] or 1) if found else 0


def same_plan(o, model, pins):
    """None: not to be told; else what differs"""
    sets = [w for pin in pins for w in ("--set", pin)]
    code, _, _ = run(o.llmc, "plan", f"plans/{model}/model.llm", "topologies/cpu8.xml", "-q", "--force", "-o", o.work / "there", *sets)
    if code == 0:
        code, _, _ = run(o.llmc, "export", o.work / "there", "--to", "megatron", "-o", o.work / "run.sh")
    if code != 0:
        return None
    code, _, errors = run(o.llmc, "import", o.work / "run.sh", "-o", o.work / "back.llm")
    if code == 0:
        code, _, errors = run(o.llmc, "plan", o.work / "back.llm", "topologies/cpu8.xml", "-q", "--force", "-o", o.work / "back", *SMALL)
    if code != 0:
        return [errors]
    there, back = (json.loads((o.work / name / "plan.json").read_text())["decision"] for name in ("there", "back"))
    there, back = plain(there), plain(back)
    wrong = [f"{key}: {there.get(key)} became {back.get(key)}" for key in sorted(there.keys() | back.keys() - ASIDE)
             if key not in ASIDE and there.get(key) != back.get(key)]
    a = canonical(o.llmc, o.work, model_block(Path(f"plans/{model}/model.llm").read_text()))
    b = canonical(o.llmc, o.work, model_block((o.work / "back.llm").read_text()))
    if a != b:
        wrong.append(f"model: {a}\nbecame\n{b}")
    return wrong


def main():
    o = options(__doc__)
    r, told, tries, bad = random.Random(o.seed), 0, 0, 0
    while told < o.draws and tries < 20 * o.draws:
        model, pins = draw(r)
        tries += 1
        wrong = same_plan(o, model, pins)
        told += wrong is not None
        bad += bool(wrong)
        for line in wrong or []:
            print(f"{model} {'; '.join(pins)}: {line}")
    print(f"{told} plans there and back, {bad} wrong")
    return 1 if bad or told < o.draws else 0


if __name__ == "__main__":
    sys.exit(main())
