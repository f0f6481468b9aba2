#!/usr/bin/env python3
"""The page of `llmc explore` in a headless Chromium: is what it shows, for drawn settings, what `llmc estimate --json` prints,
to the last bit?  Does it say why something cannot be, and find the best of what is free?

    explore.py --llmc LLMC --work DIR --model FILE --cluster FILE [--draws N] [--seed N] [--budget N] [--shots DIR]

Exit 1 with a line for each thing that is wrong, 77 where no Chromium starts."""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import browser
from report import Checks

READY = "window.explore"
PATIENCE_S = 60  # for a drawn setting: where memory is tight a search may take minutes, in the page and without it


def untimed(text):
    """an estimate without the seconds that its search took"""
    return re.sub(r'("gap": [^,]*), "seconds": [^}]*\}', r"\1}", text)


class Native:
    """the same commands at the command line, in a folder with the same files"""

    def __init__(self, llmc, work):
        self.llmc, self.work, self.took_s = Path(llmc).resolve(), Path(work), 0

    def run(self, words, model=None):
        if model is not None:
            (self.work / words[1]).write_text(model)
        began = time.time()
        done = subprocess.run([self.llmc, *words], capture_output=True, text=True, cwd=self.work)
        self.took_s = time.time() - began
        return done


def choose(b, choices):
    """Moves controls to those places, the last one as a hand does; what the page then says, None if not soon."""
    return b.run(f"""(async () => {{
        const choices = {json.dumps(choices)}, last = choices[choices.length - 1];
        for (const [key, place] of choices) explore.setting(key).input.value = place;
        explore.setting(last[0]).input.dispatchEvent(new Event("input"));
        const late = new Promise(f => setTimeout(f, {1000 * PATIENCE_S}, true));
        if (await Promise.race([late, explore.pending]) === true) return null;
        return {{ ...explore.said, model: document.getElementById("model").value,
            message: document.getElementById("error").textContent, shown: !document.getElementById("numbers").hidden,
            tiles: Object.fromEntries([...document.querySelectorAll("#tiles [data-key]")]
                .map(e => [e.dataset.key, Number(e.dataset.value)])),
            cells: [...document.querySelectorAll("#time td[data-value], #bytes td[data-value]")].map(e => Number(e.dataset.value)) }};
    }})()""")


def same(c, what, said, native):
    """Bit for bit: the texts are equal but for the seconds of the search.  Is there a plan?"""
    done = native.run(said["words"], said["model"])
    c.equal(f"{what}: exit code of {said['words']}", said["status"], done.returncode)
    c.true(f"{what}: JSON of {said['words']}", untimed(said["out"]) == untimed(done.stdout))
    c.equal(f"{what}: numbers are shown", said["shown"], done.returncode == 0)
    if done.returncode:
        plain = native.run([w for w in said["words"] if w != "--json"])
        c.equal(f"{what}: message of {said['words']}", said["message"], plain.stderr)
        return False
    answer = json.loads(done.stdout)
    for key, value in said["tiles"].items():
        c.equal(f"{what}: tile {key}", value, answer["predicted"][key])
    drawn = sorted(v for part in ("time", "memory") for v in answer[part].values() if v > 0)
    c.equal(f"{what}: items of time and memory", sorted(said["cells"]), drawn)
    return True


def draw(c, b, native, o):
    """Drawn settings, at every second of them with another number in the model's text."""
    rng = random.Random(o.seed)
    sizes = dict(b.run("explore.settings.map(s => [s.key, s.choices.length])"))
    plain = b.run("document.getElementById('model').value")
    spots, plans, page_s, native_s = b.run("modelNumbers(document.getElementById('model').value)"), 0, 0, 0
    late = 0
    for i in range(o.draws):
        choices = [[key, rng.randrange(n) if rng.random() < o.move else 0] for key, n in sizes.items() if key != "budget"]
        text = plain
        if i % 2 and spots:
            at = rng.choice(spots)
            value = rng.choice([at["value"] * 2, at["value"] + 1, max(1, at["value"] // 2)])
            text = plain[:at["start"]] + str(value) + plain[at["start"] + at["length"]:]
        b.run(f"document.getElementById('model').value = {json.dumps(text)}")
        said = choose(b, choices + [["budget", o.budget]])
        if said is None:
            late += 1
        elif same(c, f"draw {i}", said, native):
            plans += 1
            page_s += said["ms"] / 1000
            native_s += native.took_s
    b.run(f"document.getElementById('model').value = {json.dumps(plain)}")
    c.true(f"{late} of {o.draws} draws took longer than {PATIENCE_S} s", late <= 1 + o.draws // 20)
    return f"{o.draws} drawn settings, {late} of them not waited for, {plans} with a plan: {1000 * page_s / max(1, plans):.0f} ms each in the page, " \
           f"{1000 * native_s / max(1, plans):.0f} ms by the command"


def errors(c, b, native):
    """What cannot be says so in llmc's words, and goes away again."""
    before = choose(b, [["gpus", 0]])
    b.run("document.getElementById('further').value = 'tp = 3\\nnonsense = 1'")
    said = choose(b, [["gpus", 0]])
    c.equal("refused settings", said["status"], 3)
    c.true("why", "nonsense" in said["message"])
    same(c, "refused", said, native)
    b.run("document.getElementById('further').value = ''")
    c.equal("and numbers again", choose(b, [["gpus", 0]])["shown"], before["shown"])


def best(c, b, native):
    """What is free is searched: the best of all is what `estimate` finds for the model without a plan block; and it stays
    what it is once it is pinned."""
    said = b.run("""(async () => { document.getElementById("reset").click(); await explore.pending;
        document.getElementById("best").click(); await explore.pending;
        return { ...explore.said, model: document.getElementById("model").value }; })()""")
    found = json.loads(said["out"])
    bare = re.sub(r"^plan \{.*?^\}\n?", "", said["model"], flags=re.S | re.M)
    free = json.loads(native.run([*said["words"][:3], "--json"], bare).stdout)
    for key in ("decision", "predicted", "time", "memory"):
        c.equal(f"best of all: {key}", found[key], free[key])
    held = b.run("""(async () => { document.getElementById("hold").click(); await explore.pending;
        return { ...explore.said, model: document.getElementById("model").value,
            pinned: explore.settings.filter(s => s.pinned).map(s => s.key) }; })()""")
    c.true(f"pinned: {held['pinned']}", {"gpus", "tp", "pp", "zero", "schedule"} <= set(held["pinned"])
           and "dp" not in held["pinned"])
    c.equal("exit code of what was found, pinned", held["status"], 0)
    c.near("step of what was found, pinned", json.loads(held["out"])["predicted"]["step_time_s"], free["predicted"]["step_time_s"], 0.01)
    b.run("(async () => { document.getElementById('reset').click(); await explore.pending; })()")


def hands(c, b, native):
    """Keys, the model's inputs and its text, formulas, explain."""
    before = b.run("document.getElementById('set-microbatch').focus(), explore.setting('microbatch').choice")
    b.key("End")
    after = b.run("(async () => { await explore.pending; return explore.setting('microbatch').choice; })()")
    c.true("a key moves a slider", before != after and b.run("explore.said.words.some(w => w.startsWith('microbatch='))"))
    b.key("Home")
    said = b.run("""(async () => { document.getElementById("teach").click(); await explore.pending;
        return { ...explore.said, model: document.getElementById("model").value }; })()""")
    wanted = json.loads(native.run(said["words"], said["model"]).stdout)["formulas"]
    told = b.run("[...document.querySelectorAll('#lesson dd')].map(e => e.innerText)")
    c.equal("formulas", len(told), len(wanted))
    for f, text in zip(wanted, told):
        c.true(f"formula of {f['key']}", f["formula"] in text and f["values"] in text)
    shown = {f["key"] for f in wanted}
    c.true(f"formulas of the main figures: {shown}", {"step_time_s", "mfu", "bubble_fraction", "peak_memory_bytes",
                                                     "parameter_bytes", "activation_bytes"} <= shown)
    b.run("(async () => { document.getElementById('teach').click(); await explore.pending; })()")
    numbers = b.run("document.querySelectorAll('#shape input').length")
    c.true(f"inputs of the model ({numbers})", numbers >= 5)
    deeper = b.run("""(async () => { const i = [...document.querySelectorAll("#shape .setting")]
        .find(e => e.innerText.startsWith("repeat")).querySelector("input");
        i.value = Number(i.value) * 2; i.dispatchEvent(new Event("input")); await explore.pending;
        return [explore.answer.model.layers, explore.job.model.text !== document.getElementById("model").value]; })()""")
    c.true(f"twice the layers ({deeper})", deeper[1])
    text = b.run("""(async () => { document.getElementById("explain").click();
        while (/^computing/.test(document.getElementById("explanation").textContent)) await new Promise(f => setTimeout(f, 50));
        return document.getElementById("explanation").textContent; })()""")
    words = b.run("['explain', ...explore.words()]")
    done = native.run(words, b.run("document.getElementById('model').value"))
    c.equal("explain", text, done.stdout + done.stderr)


def accessible(c, b, width):
    c.equal("inputs without a label", b.run("""[...document.querySelectorAll("input, select, textarea")]
        .filter(e => !e.labels?.length).map(e => e.id)"""), [])
    c.equal("sliders that do not say their value", b.run("""[...document.querySelectorAll("input[type=range]")]
        .filter(e => !e.getAttribute("aria-valuetext")).length"""), 0)
    c.true(f"nothing is wider than {width} pixels", b.run("document.documentElement.scrollWidth") <= width)


def main():
    a = argparse.ArgumentParser()
    for name in ("--llmc", "--work", "--model", "--cluster"):
        a.add_argument(name, required=True)
    a.add_argument("--draws", type=int, default=0)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--move", type=float, default=0.12, help="share of the controls that a draw moves")
    a.add_argument("--budget", type=int, default=1, help="place in the menu of what the search may do")
    a.add_argument("--all", action="store_true", help="also everything but drawn settings")
    a.add_argument("--shots")
    o = a.parse_args()
    if not browser.starts():
        print("there is no chromium that starts here")
        return 77
    work = Path(o.work)
    work.mkdir(parents=True, exist_ok=True)
    names = [Path(o.model).name, Path(o.cluster).name]
    for source, name in zip((o.model, o.cluster), names):
        shutil.copy(source, work / name)
    c, native, page = Checks(), Native(o.llmc, work), work / "explore.html"
    native.run(["explore", *names, "-o", page.name])
    for width, dark in ((1400, False), (400, True)) if o.all else ((1400, False),):
        with browser.Browser(width=width, dark=dark) as b:
            opened = b.open(page, READY)
            accessible(c, b, width)
            if not dark:
                told = draw(c, b, native, o)
            if o.all and not dark:
                for check in (errors, best, hands):
                    check(c, b, native)
            if o.shots:
                b.screenshot(Path(o.shots) / f"explore-{width}.png")
            c.equal(f"errors at {width} pixels", b.errors, [])
    print(f"{page.stat().st_size} bytes, shown after {opened:.1f} s; {told}; {c.wrong} wrong")
    return 1 if c.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
