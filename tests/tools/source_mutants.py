#!/usr/bin/env python3
"""Do the tests notice faults in the compiler and the runtime?  One fault at a time is put into a copy of the built
tree.

    source_mutants.py [--count 400] [--seed 1] [--from 0] [--jobs 1] [--whole] [--first FILE]    drawn faults
    source_mutants.py --sanitize ...   those of the same draw that no suite has noticed, under sanitizers
    source_mutants.py --rules      every refusal of the verifier and the loader, made never to happen

Folders of compiler/ and runtime/ have their share by lines of code; of a file first the kind of fault is drawn,
then the place.  What does not compile, or compiles to the same object code, is drawn again.  A fault is tried on
the suites that execute its line, by coverage of one run each; the likeliest to notice per second come first, and
the first test that fails ends it.  A suite that takes far longer than usual has noticed.  A line that no suite
executes needs no run.

--first FILE has lines "NUMBER SUITE": suites that are believed to notice that fault, which are tried on it before others.

Everything is in build/source-mutants: the coverage, kept as long as no source file changes, and a line per fault
in a file by which a run that was cut off goes on.  Its name tells the compiler's and runtime's sources: where tests
alone have changed, what was noticed stays so and the survivors are tried again.  The last line counts; survivors are
listed before it.  Suites run with LLMC_QUICK=1, those of ALWAYS without, as NAME+; --whole adds those of WHOLE.  --sanitize tries again what
that file holds as not noticed, with the file at fault and arenas under the address and UB sanitizers, as
`make asan` has them.  Not tried: suite `tree`, which reads the source; headers, tables outside of functions; the
plugins of tests/fake, which have objects of their own.
"""

import argparse
import bisect
import hashlib
import json
import os
import queue
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import mutate_c

PRODUCTS = ["build/llmc", "build/llmrun", "build/tests/run"]
PARTS = ["compiler", "runtime", "kernels", "grammar", "tests", "plans", "topologies", "Makefile", "README.md", "LICENSE"]
LEFT_OUT = {"tree", "gpu_script"}
OURS = ["MAKEFLAGS", "SEED", "JOBS", "MOST", "FIRST", "RULES"]  # what make was told for this program; suites read some of them
ALWAYS = ["gpu_script+"]  # a quick run does nothing
WHOLE = ["verify_mutation", "expert_mutations", "exact", "verify_accept"]
PLAIN = ["-O2", "-ffp-contract=off", "-Werror=incompatible-pointer-types", "-Werror=int-conversion",
         "-Werror=implicit-function-declaration"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
ASK = ["compiler/support/arena.c", "runtime/allocations.c"]  # whether a sanitizer is there
EXIT_C = "void __gcov_dump(void);void __real__exit(int);void __wrap__exit(int s){__gcov_dump();__real__exit(s);}\n"
# a refusal says its number on the way, once per process, in the file that $REFUSED names
REFUSED_C = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static char seen[4096];
void mutants_refused(int n)
{
    char line[16];
    int fd = seen[n]++ || !getenv("REFUSED") ? -1 : open(getenv("REFUSED"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (fd >= 0 && write(fd, line, (size_t)snprintf(line, sizeof line, "%d\n", n)) > 0)
        close(fd);
    seen[n] = 1;
}
"""
MOST_MEMORY = 8 << 30
RUNNING = set()


def say(text):
    print(text, flush=True)


def sources(root):
    out = sorted(Path(root).glob("compiler/**/*.c")) + sorted(Path(root).glob("runtime/**/*.c"))
    return [str(p.relative_to(root)) for p in out if p.name != "plugin.c"]


class Tree:
    """A copy of the built tree, in which one file at a time is changed."""

    def __init__(self, origin, path, base):
        self.path, self.base = Path(path), Path(base)
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        for part in PARTS:
            subprocess.run(["cp", "-a", str(origin / part), str(self.path)], check=True)
        (self.path / "build").mkdir()
        for p in sorted((origin / "build").iterdir()):
            if p.name != "source-mutants":
                subprocess.run(["cp", "-a", str(p), str(self.path / "build")], check=True)
        for p in self.path.glob("build/**/*.d"):
            p.unlink()  # this project's make reads them wherever they lie in build/
        self.compile, self.link = self._commands()
        self.tmp = self.path / "tmp"
        self.tmp.mkdir()

    def _commands(self):
        """What make would do: a command per object and per product."""
        touch = [x for s in sources(self.path) for x in ("-W", s)]
        text = subprocess.run(["make", "-n", "V=1", "WASM=", *touch, *PRODUCTS], cwd=self.path, capture_output=True, text=True,
                              check=True).stdout
        commands = [line.split("; ")[-1].split() for line in text.splitlines() if " -o build/" in line]
        commands = {c[c.index("-o") + 1]: c for c in commands if "-o" in c}
        plain = {}
        for out, c in commands.items():
            if "-c" in c:
                plain[c[-1]] = [x for x in c[:c.index("-o")] if not x.startswith(("-W", "-O", "-g", "-M", "-ff"))]
        return plain, {p: commands[p] for p in PRODUCTS}

    def object(self, source, to, extra=PLAIN):
        """Compile; None if that fails, else the object's bytes."""
        r = subprocess.run([*self.compile[source], *extra, "-o", to, source], cwd=self.path, capture_output=True)
        return None if r.returncode else (self.path / to).read_bytes()

    def original(self, source):
        kept = self.base / source.replace("/", "+")
        if not kept.exists():
            code = self.object(source, "build/base.o")
            if code is None:
                sys.exit(f"{source} does not compile")
            kept.with_suffix(f".{id(self)}").write_bytes(code)
            kept.with_suffix(f".{id(self)}").rename(kept)
        return kept.read_bytes()

    def put(self, source, text, fault):
        """True when the fault is in the tree's source and has an object of its own."""
        base = self.original(source)
        (self.path / source).write_text(text[:fault.start] + fault.text + text[fault.end:])
        code = self.object(source, "build/fault.o")
        return code is not None and code != base

    def build(self, source, sanitized=False):
        """Link all products that have the file, with the object of `put`; keep the good ones.  Sanitized are the file
        and those of ASK."""
        name, instead = "build/" + source[:-2] + ".o", {}
        for asks in ASK if sanitized else []:
            instead["build/" + asks[:-2] + ".o"] = to = "build/sanitized-" + os.path.basename(asks)[:-2] + ".o"
            self.object(asks, to, PLAIN + SANITIZE)
        instead[name] = "build/fault.o"
        if sanitized:
            self.object(source, "build/fault.o", PLAIN + SANITIZE)
        for p in PRODUCTS:
            if name in self.link[p]:
                os.rename(self.path / p, self.path / (p + ".good"))
                command = [instead.get(x, x) for x in self.link[p]] + (SANITIZE if sanitized else [])
                subprocess.run(command, cwd=self.path, check=True, capture_output=True)

    def restore(self, source, text):
        (self.path / source).write_text(text)
        for p in PRODUCTS:
            if (self.path / (p + ".good")).exists():
                os.replace(self.path / (p + ".good"), self.path / p)
        shutil.rmtree(self.tmp, ignore_errors=True)
        self.tmp.mkdir()

    def run(self, suite, limit):
        """The first test that fails, 'hang', 'crash', or None.  Nothing of it is alive afterwards."""
        return self._run(suite, limit, {}, MOST_MEMORY)

    def report(self, suite, limit):
        """What a sanitizer says while a sanitized product runs the suite, or None."""
        for old in self.path.glob("said.*"):
            old.unlink()
        options = f"log_path={self.path}/said"
        env = {"ASAN_OPTIONS": options, "UBSAN_OPTIONS": options, "SAN": "1"}
        self._run(suite, limit, env, resource.RLIM_INFINITY)
        for said in sorted(self.path.glob("said.*")):
            lines = [x for x in said.read_text(errors="replace").splitlines() if "ERROR:" in x or "runtime error" in x]
            if lines:
                return lines[0].split("ERROR: ")[-1].split(" on ")[0][:80]
        return None

    def _run(self, suite, limit, more, memory):
        quick = "" if suite[-1] == "+" else "1"
        env = dict(os.environ, LLMC_BUILD="build", LLMC_QUICK=quick, TMPDIR=str(self.tmp), LLMC_CC="false",
                   **more)
        for word in OURS:
            env.pop(word, None)
        limits = lambda: (resource.setrlimit(resource.RLIMIT_DATA, (memory, memory)),
                          resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
                          resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40)))
        p = subprocess.Popen(["build/tests/run", "=" + suite.rstrip("+")], cwd=self.path, env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limits)
        RUNNING.add(p.pid)
        late = threading.Event()
        timer = threading.Timer(limit, lambda: (late.set(), end_session(p.pid)))
        timer.start()
        test, failed = "", None
        for line in p.stdout:
            line = line.decode(errors="replace")
            if line.lstrip().startswith("Test: "):
                test = line.split("Test: ")[1].split("...")[0].strip()
            if line.rstrip().endswith("FAILED"):
                failed = test
                break
        if failed:
            end_session(p.pid)
        p.stdout.close()
        code = p.wait()
        timer.cancel()
        end_session(p.pid)
        RUNNING.discard(p.pid)
        if late.is_set():
            return f"{test}: hang"
        return failed or (f"{test}: crash" if code else None)


def end_session(leader):
    """End every process of a session that this program began; `timeout` makes groups of its own, so by session."""
    for _ in range(3):
        found = False
        for d in os.listdir("/proc"):
            try:
                if d.isdigit() and int(Path(f"/proc/{d}/stat").read_text().rsplit(")", 1)[1].split()[3]) == leader:
                    os.kill(int(d), signal.SIGKILL)
                    found = True
            except (OSError, IndexError):
                pass
        if not found:
            return
        time.sleep(0.01)


def stopped(number, frame):
    for leader in list(RUNNING):
        end_session(leader)
    os._exit(128 + number)


def digest(origin, parts):
    key = hashlib.sha256()
    for part in parts:
        for p in sorted((origin / part).rglob("*")):
            if p.is_file() and "__pycache__" not in p.parts and p.suffix != ".py":
                key.update(str(p.relative_to(origin)).encode() + b"\0" + p.read_bytes())
    return key.hexdigest()


class Coverage:
    """Which suites execute a line, and how long each takes."""

    def __init__(self, origin, work, whole):
        self.file = work / "coverage.json"
        self.product, self.key = digest(origin, PARTS[:4]), digest(origin, PARTS[:-3])
        known = json.loads(self.file.read_text()) if self.file.exists() else {}
        if known.get("key") != self.key:
            known = {"key": self.key, "seconds": {}, "lines": {}, "unused": []}
        names = [line[6:-1] for line in (origin / "tests/suites.def").read_text().split() if line.startswith("SUITE(")]
        missing = [s for s in names + ALWAYS + [w + "+" for w in WHOLE if whole]
                   if s not in known["seconds"] and s not in known["unused"] and s not in LEFT_OUT]
        if missing:
            self._measure(origin, work, known, missing)
        self.seconds, self.lines = known["seconds"], known["lines"]

    def _measure(self, origin, work, known, suites):
        """Seconds and lines of each suite, side by side in trees of their own."""
        say(f"measuring which lines {len(suites)} suites execute")
        plain, counted = Tree(origin, work / "plain", work), Tree(origin, work / "cover", work)
        self._instrument(counted)
        lines = threading.Thread(target=self._lines, args=(counted, known, suites))
        lines.start()
        for suite in suites:
            begin = time.monotonic()
            failed = plain.run(suite, 900)
            known["seconds"][suite] = time.monotonic() - begin
            if failed:
                say(f"  suite {suite} fails without any fault ({failed}): not used")
                known["unused"].append(suite)
        lines.join()
        for suite in known["unused"]:
            known["seconds"].pop(suite, None)
        self.file.write_text(json.dumps(known))
        for tree in (plain, counted):
            shutil.rmtree(tree.path, ignore_errors=True)

    def _lines(self, tree, known, suites):
        for suite in suites:
            for p in tree.path.glob("build/**/*.gcda"):
                p.unlink()
            tree.run(suite, 1800)
            self._read(tree, known["lines"], suite)

    @staticmethod
    def _instrument(tree):
        work = queue.Queue()
        for s in tree.compile:
            if s.startswith(("compiler/", "runtime/")):
                work.put(s)

        def some():
            while True:
                try:
                    s = work.get_nowait()
                except queue.Empty:
                    return
                tree.object(s, "build/" + s[:-2] + ".o", ["-w", "-O1", "-g", "-ffp-contract=off", "--coverage"])

        threads = [threading.Thread(target=some) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        (tree.path / "build/exit.c").write_text(EXIT_C)
        subprocess.run(["cc", "-c", "-o", "build/exit.o", "build/exit.c"], cwd=tree.path, check=True)
        for p in PRODUCTS:
            subprocess.run([*tree.link[p], "build/exit.o", "--coverage", "-Wl,--wrap=_exit"], cwd=tree.path, check=True)

    @staticmethod
    def _read(tree, lines, suite):
        data = [str(p.relative_to(tree.path)) for p in tree.path.glob("build/**/*.gcda")]
        text = subprocess.run(["gcov", "-j", "-t", *data], cwd=tree.path, capture_output=True).stdout if data else b""
        for report in text.splitlines():
            for f in json.loads(report)["files"] if report.startswith(b"{") else []:
                known = lines.setdefault(f["file"], {})
                for line in f["lines"]:
                    hit = known.setdefault(str(line["line_number"]), [])
                    if line["count"] and suite not in hit:
                        hit.append(suite)

    def suites(self, source, first, line):
        """Suites that execute a line, or where it has no code of its own the nearest before and after it in reach."""
        known = self.lines.get(source, {})
        out = set()
        for at in {first, line}:
            if str(at) in known:
                out.update(known[str(at)])
                continue
            numbers = sorted(int(k) for k in known)
            k = bisect.bisect(numbers, at)
            for near in numbers[max(k - 1, 0):k + 1]:
                if abs(near - at) <= 5:
                    out.update(known[str(near)])
        return out & self.seconds.keys()


class Trial:
    """Tries faults in trees of its own; knows which suites have noticed much."""

    def __init__(self, origin, work, jobs, whole):
        self.coverage = Coverage(origin, work, whole)
        for old in work.glob("tree*-*"):
            if not Path("/proc", old.name.rsplit("-")[-1]).exists():
                shutil.rmtree(old)
        base = work / f"base-{self.coverage.key[:16]}"
        for old in work.glob("base-*"):
            if old != base:
                shutil.rmtree(old)
        base.mkdir(exist_ok=True)
        self.trees = [Tree(origin, work / f"tree{k}-{os.getpid()}", base) for k in range(jobs)]
        self.wins, self.tries, self.lock = {}, {}, threading.Lock()

    def order(self, suites, folder):
        def worth(s):
            known = sum(self.wins.get((s, f), 0) + 0.3 for f in (folder, ""))
            return known / (sum(self.tries.get((s, f), 0) for f in (folder, "")) + 1) / (self.coverage.seconds[s] + 0.05)

        with self.lock:
            return sorted(suites, key=worth, reverse=True)

    def believed(self, suites, folder, first):
        """The suites in the order in which they are tried."""
        known = [x for x in first if x in self.coverage.seconds]
        return known + [x for x in self.order(suites, folder) if x not in known]

    def verdict(self, tree, source, text, suites, fault, most=1e9, first=()):
        """'suite: test' that noticed, '' if none did, 'not executed', 'undecided after N s', or None where there
        is nothing to try."""
        try:
            if not tree.put(source, text, fault):
                return None
            if not suites and not first:
                return "not executed"
            tree.build(source)
            folder, spent = os.path.dirname(source), 0
            for suite in self.believed(suites, folder, first):
                spent += self.coverage.seconds[suite]
                if spent > most:
                    return f"undecided after {most:g} s"
                failed = tree.run(suite, 20 + 5 * self.coverage.seconds[suite])
                with self.lock:
                    for f in (folder, ""):
                        self.tries[suite, f] = self.tries.get((suite, f), 0) + 1
                        self.wins[suite, f] = self.wins.get((suite, f), 0) + bool(failed)
                if failed:
                    return f"{suite}: {failed}"
            return ""
        finally:
            tree.restore(source, text)

    def sanitized(self, tree, source, text, suites, fault, most=1e9, first=()):
        """As verdict(), by what sanitizers report."""
        try:
            if not tree.put(source, text, fault) or not suites:
                return ""
            tree.build(source, True)
            spent = 0
            for suite in self.believed(suites, os.path.dirname(source), first):
                spent += self.coverage.seconds[suite]
                if spent > most:
                    return ""
                said = tree.report(suite, 60 + 15 * self.coverage.seconds[suite])
                if said:
                    return f"{suite}: sanitizer: {said}"
            return ""
        finally:
            tree.restore(source, text)

    def all(self, items, work):
        """work(tree, item) for every item, on all trees."""
        waiting = queue.Queue()
        for item in items:
            waiting.put(item)

        def some(tree):
            while True:
                try:
                    item = waiting.get_nowait()
                except queue.Empty:
                    return
                work(tree, item)

        threads = [threading.Thread(target=some, args=(t,)) for t in self.trees]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def short(text):
    return " ".join(text.split())[:90]


def refusals(origin):
    """(name, file, text, sentence, fault, start and end of the call) of every refusal, the same in every run."""
    out = []
    for f in sources(origin):
        if not f.startswith(("compiler/verify/", "runtime/program_")):
            continue
        text, seen = (origin / f).read_text(), set()
        for sentence, fault, start, end in mutate_c.rules(mutate_c.Source(text), f.startswith("compiler/verify/")):
            name = f"{f}:{fault.line}" + ("b" if fault.line in seen else "")
            seen.add(fault.line)
            out.append((name, f, text, sentence, fault, start, end))
    return out


def refusing(origin, work, items, coverage):
    """The suites in which each refusal happens."""
    kept = work / f"refusing-{coverage.key[:12]}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    tree = Tree(origin, work / "refuse", work)
    (tree.path / "build/refused.c").write_text(REFUSED_C)
    subprocess.run(["cc", "-c", "-o", "build/refused.o", "build/refused.c"], cwd=tree.path, check=True)
    for f in sorted({x[1] for x in items}):
        text = next(x[2] for x in items if x[1] == f)
        for n, x in sorted(enumerate(items), key=lambda x: -x[1][5]):
            if x[1] == f:
                text = text[:x[5]] + f"(mutants_refused({n}), {text[x[5]:x[6]]})" + text[x[6]:]
        (tree.path / f).write_text("void mutants_refused(int);\n" + text)
        if tree.object(f, "build/" + f[:-2] + ".o") is None:
            sys.exit(f"{f}: a refusal is not where it was taken to be")
    for p in PRODUCTS:
        subprocess.run([*tree.link[p], "build/refused.o"], cwd=tree.path, check=True)
    found = {x[0]: [] for x in items}
    os.environ["REFUSED"] = str(tree.path / "refused")
    for suite in coverage.seconds:
        (tree.path / "refused").write_text("")
        tree.run(suite, 900)
        for n in {int(n) for n in (tree.path / "refused").read_text().split()}:
            found[items[n][0]].append(suite)
    del os.environ["REFUSED"]
    shutil.rmtree(tree.path)
    kept.write_text(json.dumps(found))
    return found


def all_rules(trial, origin, work, out):
    """A line per refusal: place, what noticed that it never happened, its sentence."""
    items = refusals(origin)
    found = refusing(origin, work, items, trial.coverage)
    done = {line.split("\t")[0] for line in out.read_text().splitlines()} if out.exists() else set()

    def one(tree, item):
        name, f, text, sentence, fault, _, _ = item
        begin = time.monotonic()
        v = trial.verdict(tree, f, text, found[name], fault) if found[name] else "never happens"
        v = "same code" if v is None else v or "SURVIVES"
        with trial.lock, open(out, "a") as log:
            log.write(f"{name}\t{v}\t{time.monotonic() - begin:.1f}\t{sentence}\n")

    trial.all(sorted((x for x in items if x[0] not in done), key=lambda x: len(found[x[0]]) > 0), one)
    lines = [line.split("\t") for line in out.read_text().splitlines()]
    left = [x for x in lines if x[1] in ("SURVIVES", "never happens")]
    for x in sorted(left):
        say(f"{x[0]}: {x[1]}: {x[3]}")
    say(f"{len(lines)} refusals, {len(left)} that no test notices the lack of")


class Draw:
    """Fault number i of a seed, whatever was drawn before: the same on every machine."""

    def __init__(self, origin):
        headers = [p.read_text() for part in ("compiler", "runtime") for p in sorted((origin / part).rglob("*.h"))]
        self.fields, self.constants = mutate_c.declared(headers)
        self.files, self.ends, total = [], [], 0
        for f in sources(origin):
            text = (origin / f).read_text()
            total += text.count("\n")
            self.files.append((f, text))
            self.ends.append(total)
        self.cache = {}

    def of(self, i):
        f, text = self.files[i]
        if i not in self.cache:
            source = mutate_c.Source(text)
            kinds = {}
            for kind, found in mutate_c.faults(source, self.fields, self.constants).items():
                places = {}
                for fault in found:
                    places.setdefault(fault.start, []).append(fault)
                kinds[kind] = list(places.values())
            self.cache[i] = source, kinds
        return f, text, *self.cache[i]

    def candidates(self, seed, number):
        """Faults of one file, to be tried in turn; the golden ratio spreads consecutive numbers over all lines of
        code."""
        chance = random.Random(f"{seed}/{number}")
        at = (random.Random(f"{seed}").random() + number * 0.6180339887498949) % 1 * self.ends[-1]
        while True:
            f, text, source, kinds = self.of(bisect.bisect(self.ends, at))
            for _ in range(12 if kinds else 0):
                place = chance.choice(kinds[chance.choice(sorted(kinds))])
                for fault in chance.sample(place, min(len(place), 4)):
                    yield f, text, source.statement_line(fault.start), fault
            at = chance.random() * self.ends[-1]


def read_drawn(out):
    """Results by number; the last line of a number counts."""
    lines = out.read_text().splitlines() if out.exists() else []
    return {int(line.split("\t")[0]): line.split("\t") for line in lines}


def unnoticed(x):
    return x[1] in ("SURVIVES", "not executed") or x[1].startswith("undecided")


def drawn(trial, origin, out, o):
    draw = Draw(origin)
    known = read_drawn(out)
    taken = {x[2] + x[3] + x[4] + x[5] for x in known.values()}
    tests = trial.coverage.key[:12]
    alive = {n: x for n, x in known.items() if unnoticed(x)}
    again = {n for n, x in alive.items() if x[8] != tests or (x[1][0] == "u" and float(x[1].split()[2]) < o.most)}
    if o.sanitize:
        again = {n for n, x in alive.items() if x[1] != "not executed"}
    first = {}
    for line in Path(o.first).read_text().splitlines() if o.first else []:
        n, suite = line.split()
        first.setdefault(int(n), []).append(suite)

    def one(tree, number):
        begin, skipped = time.monotonic(), 0
        for f, text, line_of, fault in draw.candidates(o.seed, number):
            line = text.count("\n", 0, text.rfind("\n", 0, fault.start) + 1)
            column = fault.start - text.rfind("\n", 0, fault.start)
            name = [f"{f}:{line + 1}:{column}", fault.kind, short(text[fault.start:fault.end]), short(fault.text)]
            with trial.lock:
                if number not in again and "".join(name) in taken:
                    continue
            if number in again and name != known[number][2:6]:
                continue
            tried = trial.sanitized if o.sanitize else trial.verdict
            v = tried(tree, f, text, trial.coverage.suites(f, line_of, fault.line), fault, o.most, first.get(number, ()))
            if o.sanitize and not v:
                v = known[number][1]
            if v is not None:
                break
            skipped += 1
        v = v or "SURVIVES"
        with trial.lock, open(out, "a") as log:
            taken.add("".join(name))
            seconds = time.monotonic() - begin
            log.write("\t".join([str(number), v, *name, f"{seconds:.1f}", str(skipped), tests]) + "\n")
        if v in ("SURVIVES", "not executed"):
            say(f"{number}: {v}: {name[0]}: {name[1]}: {name[2]} -> {name[3]}")

    numbers = range(o.start, o.start + o.count)
    trial.all([n for n in numbers if n in again or (n not in known and not o.sanitize)], one)
    known = [x for n, x in read_drawn(out).items() if n in numbers]
    left = [x for x in known if unnoticed(x)]
    for x in sorted(left, key=lambda x: x[2]):
        say(f"{x[2]}: {x[1]}: {x[3]}: {x[4]} -> {x[5]}")
    seconds = sum(float(x[6]) for x in known)
    say(f"{len(known)} faults, {len(known) - len(left)} noticed, {100 * (1 - len(left) / len(known)):.1f} %, "
        f"{seconds / len(known):.1f} s each; {sum(int(x[7]) for x in known)} were drawn again")
    return len(left)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--count", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--from", dest="start", type=int, default=0)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--whole", action="store_true")
    p.add_argument("--rules", action="store_true")
    p.add_argument("--sanitize", action="store_true")
    p.add_argument("--most", type=float, default=1e9, help="seconds of suites per fault; what is left undecided so, "
                   "a run with more decides")
    p.add_argument("--first", help="file of suites to be tried first, by number")
    p.add_argument("--goal", type=float, default=92, help="per cent to be noticed")
    o = p.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stopped)
    origin = Path.cwd()
    work = origin / "build" / "source-mutants"
    work.mkdir(parents=True, exist_ok=True)
    trial = Trial(origin, work, o.jobs, o.whole)
    if o.rules:
        all_rules(trial, origin, work, work / f"rules-{trial.coverage.key[:12]}.txt")
        return 0
    left = drawn(trial, origin, work / f"drawn-{trial.coverage.product[:12]}-{o.seed}.txt", o)
    return 1 if 100 * left > o.count * (100 - o.goal) else 0


if __name__ == "__main__":
    sys.exit(main())
