#!/usr/bin/env python3
"""Pages of `llmc report`, opened in a headless Chromium: do they say what --json says, and do they answer?

    report.py --llmc LLMC --work DIR [--shots DIR] PLAN [PLAN]

Makes the page of the plans (folders), reads its numbers back, and clicks, zooms and moves in it.  Exit 1 with a line for
each thing that is wrong, 77 where no Chromium starts."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import browser


class Checks:
    def __init__(self):
        self.wrong = 0

    def equal(self, what, found, wanted):
        if found != wanted:
            self.wrong += 1
            print(f"{what}: {found!r}, not {wanted!r}")

    def near(self, what, found, wanted, share=1e-9):
        if abs(found - wanted) > share * max(abs(wanted), 1e-300):
            self.equal(what, found, wanted)

    def true(self, what, found):
        self.equal(what, bool(found), True)


def view(llmc, plan, *words):
    return json.loads(subprocess.run([llmc, "show", plan, "--json", *words], capture_output=True, check=True, text=True).stdout)


def figures(c, b, llmc, plans):
    for i, plan in enumerate(plans):
        shown = view(llmc, plan)["predicted"]
        tiles = b.run(f"""Object.fromEntries([...document.querySelectorAll(".plan")[{i}].querySelectorAll("[data-key]")]
            .map(e => [e.dataset.key, Number(e.dataset.value)]))""")
        for key in ("step_time_s", "tokens_per_s_per_gpu", "mfu", "bubble_fraction", "exposed_comm_fraction", "peak_memory_bytes"):
            c.equal(f"{plan}: tile {key}", tiles.get(key), shown[key])
        run = view(llmc, plan).get("run", {})
        for key in ("seconds", "gpu_hours", "goodput", "interruptions", "checkpoint_every_s"):
            c.equal(f"{plan}: tile {key}", tiles.get(key), run.get(key))


def idle(c, b, llmc, plans):
    """The intervals add up to the causes, the causes to the step, and the shares to what `show` tells."""
    for i, plan in enumerate(plans):
        roles = b.run(f"""report.plans[{i}].roles.map(r => ({{ busy: r.busy_ns, idle: r.idle_ns,
            sums: r.idles.reduce((s, d) => (s[d.cause] += d.end - d.start, s), [0, 0, 0, 0, 0]) }}))""")
        step = b.run(f"report.plans[{i}].step_ns")
        shown, n = view(llmc, plan)["predicted"], len(roles)
        for k, r in enumerate(roles):
            c.equal(f"{plan}: rank {k}: computing and idle time", r["busy"] + sum(r["idle"]), step)
            warm, cool, comm, wait, imbalance = r["idle"]
            c.equal(f"{plan}: rank {k}: idle intervals by cause", r["sums"], [warm, cool, comm, wait + imbalance, 0])
        exposed = sum(r["idle"][2] for r in roles)
        c.near(f"{plan}: exposed", exposed / step / n, shown["exposed_comm_fraction"])
        c.near(f"{plan}: bubble", (sum(sum(r["idle"]) for r in roles) - exposed) / step / n, shown["bubble_fraction"])
        c.near(f"{plan}: step", step / 1e9, shown["step_time_s"])
        cells = b.run(f"""[...document.querySelectorAll("#idle-table > div")[{i}].querySelectorAll("tbody tr")]
            .map(r => [...r.querySelectorAll("[data-value]")].map(e => Number(e.dataset.value)))""")
        c.equal(f"{plan}: table of idle time", cells, [[r["busy"], *r["idle"]] for r in roles])


def memory(c, b, llmc, plans):
    """The stacked classes have the role's peak, and at it the bytes that `show --memory` lists."""
    for i, plan in enumerate(plans):
        for shown in view(llmc, plan, "--memory")["roles"]:
            k = shown["role"]
            peak = b.run(f"""(() => {{ const r = report.plans[{i}].roles[{k}];
                const m = r.memory.reduce((best, x) => x.sum > best.sum ? x : best);
                return {{ sum: m.sum, at: (m.at - r.begin_ns) / 1e9,
                    kept: r.classes.reduce((s, n, j) => /^(ring|gradients$|temporaries$)/.test(n) ? s : s + m.bytes[j], 0) }}; }})()""")
            c.equal(f"{plan}: rank {k}: peak", peak["sum"], shown["live_peak_bytes"])
            c.near(f"{plan}: rank {k}: time of the peak", peak["at"], shown["live_peak_s"], 1e-6)
            c.equal(f"{plan}: rank {k}: what is kept over steps", peak["kept"],
                    sum(x["bytes"] for x in shown["items"] if x["persistent"]))


def traffic(c, b, llmc, plans):
    """Bytes of the record's transfers are those of `show --traffic`, by rank and tier, and so are the tables'."""
    for i, plan in enumerate(plans):
        wanted, drawn = {}, {}
        for t in view(llmc, plan, "--traffic")["traffic"]:
            key = f"{t['role']} {t['tier']}"
            wanted[key] = wanted.get(key, 0) + t["bytes"]
        for role, tier, moved in b.run(f"""report.plans[{i}].roles.flatMap(r => Array.from(r.kind, k => r.kinds[k])
                .filter(k => k.transfer >= 0).map(k => [r.number, r.transfers[k.transfer].tier, k.bytes]))"""):
            key = f"{role} {tier}"
            drawn[key] = drawn.get(key, 0) + moved
        c.equal(f"{plan}: bytes by rank and tier", drawn, wanted)
        cells = b.run(f"""[...document.querySelectorAll("#traffic-table > div")[{i}].querySelectorAll("tbody tr")]
            .reduce((s, r) => s + Number(r.querySelectorAll("[data-value]")[0].dataset.value), 0)""")
        c.equal(f"{plan}: tables of traffic", cells, sum(wanted.values()))


def moving(c, b):
    """Buttons, wheel, keys and clicks do what they say."""
    t = "report.timeline"
    settle = "new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)))"
    b.run(f"{t}.canvas.focus()")  # it scrolls
    box = b.run(f"(() => {{ const r = {t}.canvas.getBoundingClientRect(); return [r.left, r.top]; }})()")
    window = lambda: b.run(f"(async () => {{ await {settle}; return [{t}.from, {t}.to]; }})()")
    whole = window()
    b.run("document.getElementById('zoom-in').click()")
    half = window()
    c.near("zoom in", half[1] - half[0], (whole[1] - whole[0]) / 2)
    b.wheel(box[0] + 600, box[1] + 30, -400)
    closer = window()
    c.true("the wheel zooms", closer[1] - closer[0] < half[1] - half[0])
    b.key("ArrowRight")
    moved = window()
    c.true("an arrow key moves", moved[0] > closer[0])
    b.key("0", "0")
    c.equal("0 shows the whole step", window(), whole)
    # the middle of the longest instruction of rank 0's compute queue, zoomed in on
    i = b.run(f"""(() => {{ const r = report.plans[0].roles[0], all = r.queues[0];
        const i = all.reduce((best, k) => r.end[k] - r.start[k] > r.end[best] - r.start[best] ? k : best);
        {t}.show(r.start[i] - (r.end[i] - r.start[i]), r.end[i] + (r.end[i] - r.start[i])); return i; }})()""")
    window()
    x, y = b.run(f"""(() => {{ const r = report.plans[0].roles[0];
        return [{t}.x((r.start[{i}] + r.end[{i}]) / 2), {t}.lanes[0].y + 11]; }})()""")
    b.click(box[0] + x, box[1] + y)
    text = b.run("document.getElementById('detail').innerText")
    op, line = b.run(f"""(() => {{ const r = report.plans[0].roles[0], k = r.kinds[r.kind[{i}]];
        return [report.plans[0].ops[k.op], report.plans[0].lines[k.line - 1] || ""]; }})()""")
    c.true(f"a click names the instruction ({op} in {text!r})", op in text and f"number {i} " in text)
    c.true(f"and its line ({line!r} in {text!r})", " ".join(line.split()) in " ".join(text.split()))
    # the first wait has a cause and a link to what was waited for
    if b.run("report.plans[0].roles[0].idles.some(d => d.insn >= 0 && d.on >= 0)"):
        b.run(f"""(() => {{ const r = report.plans[0].roles[0]; {t}.reveal(r, r.idles.find(d => d.insn >= 0 && d.on >= 0).insn); }})()""")
        c.true("idle time says its cause", "idle before" in b.run("document.getElementById('detail').innerText"))
        c.true("and links to what was waited for", b.run("""(() => { const links = document.querySelectorAll("#detail button");
            links[0].click(); return links.length > 0 && document.getElementById("detail").innerText.length > 0; })()"""))
    b.run("document.getElementById('zoom-fit').click()")
    b.run("document.getElementById('queues').checked || document.getElementById('queues').click()")
    c.true("queues of transfers have lanes", b.run(f"{t}.lanes.length > {t}.plans.flatMap(p => p.roles).length"))
    b.run("""(() => { const s = document.getElementById("memory-rank"); s.value = s.options.length - 1;
        s.dispatchEvent(new Event("change")); })()""")
    c.true("memory of another rank", b.run("document.querySelectorAll('#memory-table tbody tr').length > 2"))


def colours(c, b):
    """The drawing is not empty: the canvas has more colours than paper, axis and text."""
    b.run("document.getElementById('zoom-fit').click()")
    distinct = b.run("""(async () => { await new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)));
        const t = report.timeline, c = t.canvas.getContext("2d");
        const d = c.getImageData(60, 0, t.canvas.width - 60, t.canvas.height).data, seen = new Set();
        for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
        return seen.size; })()""")
    c.true(f"the timeline has colours ({distinct})", distinct > 5)


def frame_ms(b):
    """milliseconds that drawing the whole step takes, the least of ten"""
    return b.run("""(() => { const t = report.timeline, took = [];
        t.show(0, t.whole);
        for (let i = 0; i < 11; i++) { const began = performance.now(); t.paint(); took.push(performance.now() - began); }
        return Math.min(...took); })()""")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--llmc", required=True)
    a.add_argument("--work", required=True)
    a.add_argument("--shots")
    a.add_argument("plans", nargs="+")
    o = a.parse_args()
    if not browser.starts():
        print("there is no chromium that starts here")
        return 77
    page = Path(o.work) / "report.html"
    subprocess.run([o.llmc, "report", *o.plans, "-o", str(page)], check=True)
    c = Checks()
    for width, dark in ((1400, False), (700, True)):
        with browser.Browser(width=width, dark=dark) as b:
            opened = b.open(page)
            if not dark:
                speed = f"shown after {opened:.1f} s, a frame of the whole step in {frame_ms(b):.0f} ms"
                for check in (figures, idle, memory, traffic):
                    check(c, b, o.llmc, o.plans)
                moving(c, b)
            colours(c, b)
            if o.shots:
                b.screenshot(Path(o.shots) / f"report-{width}.png")
            c.equal(f"errors at {width} pixels", b.errors, [])
    print(f"{page.stat().st_size} bytes, {speed}; {c.wrong} wrong")
    return 1 if c.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
