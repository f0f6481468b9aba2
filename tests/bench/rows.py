"""Measured training runs beside their predictions: what accuracy.py and fit.py share.

The rows are JSON lines (one published run each) and a script that turns them into model.llm, cluster.xml and measured.json; both
live outside this repository, in MEASURED.  Predictions come from build/tests/bench/accuracy, one process for all rows.
"""
import json, math, os, re, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "quirks.json")) as quirks:
    QUIRKS = [(re.compile(q["rows"]), q["why"], q.get("fitted", False)) for q in json.load(quirks)]
ITEMS = ("step", "compute", "tp", "pp", "dp", "bubble", "optimizer", "peak", "parameters", "gradients", "states", "activations",
         "buffers", "allocator", "communicators", "context")


def folder_name(identifier):
    return re.sub(r"[^A-Za-z0-9._-]+", "_", identifier)


def make_inputs(measured, work):
    """model.llm and cluster.xml of every row that the language can express, in work; their folder."""
    script = os.path.join(measured, "..", "..", "tools", "measured_to_inputs.py")
    rows = os.path.join(measured, "runs.jsonl")
    for path in (script, rows):
        if not os.path.exists(path):
            sys.exit("%s is missing: name the folder of measured runs with MEASURED=FOLDER" % path)
    folder = os.path.join(work, "runs")
    subprocess.run([sys.executable, script, rows, folder], check=True, stdout=subprocess.DEVNULL)
    return folder


def release(row):
    """a sortable release of the software, from the row's tags or id"""
    text = " ".join(row.get("tags") or []) + " " + row["id"]
    found = re.search(r"release_v?([\d.]+)|/v([\d.]+)|-v(\d)/", text)
    return tuple(int(x) for x in re.findall(r"\d+", found[0])) if found else ()


class Row:
    def __init__(self, raw, target):
        self.id, self.raw, self.target = target["id"], raw, target
        self.family = target["family"]
        self.speed = target["tokens_per_s_per_gpu"]
        self.step_s = target["step_time_s"]
        self.oom = target["oom"]
        self.memory_gb = target["peak_memory_gb"]
        # reference rows: another architecture than the file says, or a configuration that the source does not give
        self.reference = bool({"arch_modified", "config_unknown", "inconsistent_dp"} & set(target["tags"]))
        self.scored = bool(self.speed) and not self.oom and not target["from_flops"] and not self.reference
        self.latest = raw.get("latest_release_of_config") is not False
        self.profile, self.status, self.predicted, self.layout = None, None, {}, ""

    def error(self):
        """log of predicted over measured speed; None where there is no prediction"""
        if self.status != 0 or not self.step_s:
            return None
        return math.log(self.step_s / self.predicted["step"])

    def quirk(self):
        """what is known of the source that no model of the configuration can tell; None for most rows"""
        return next((why for pattern, why, _ in QUIRKS if pattern.search(self.id)), None)

    def fitted(self):
        """may the fit look at it? not where the source is known to measure something else"""
        return all(fitted for pattern, _, fitted in QUIRKS if pattern.search(self.id))

    def config(self):
        """what two releases of one configuration have in common"""
        return (self.family, self.raw.get("group"), self.raw["hardware"]["n_gpus"], self.raw["config"].get("gbs"),
                self.raw.get("dtype"), self.raw["config"].get("ep"))


class Predictor:
    """the process with all rows read; rows by number"""

    def __init__(self, build, measured, folder):
        raw = {}
        with open(os.path.join(measured, "runs.jsonl")) as f:
            for line in f:
                r = json.loads(line)
                raw[folder_name(r["id"])] = r
        self.process = subprocess.Popen([os.path.join(build, "tests/bench/accuracy"), folder], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.rows = []
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name, "measured.json")
            if os.path.exists(path):
                with open(path) as f:
                    self.rows.append(Row(raw[name], json.load(f)))
        self.mark_latest()

    def mark_latest(self):
        """of several releases with one configuration the newest counts"""
        newest = {}
        for row in self.rows:
            key = row.config()
            newest[key] = max(newest.get(key, ()), release(row.raw))
        for row in self.rows:
            row.latest = row.latest and release(row.raw) == newest[row.config()]

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def set(self, profile, name, value):
        self.ask("set %s %s %.17g" % (profile, name, value))

    def get(self, profile, name):
        self.ask("get %s %s" % (profile, name))
        return float(self.process.stdout.readline())

    def run(self, numbers=None):
        self.ask("run" + ("" if numbers is None else " " + " ".join(map(str, numbers))))
        while True:
            line = self.process.stdout.readline()
            if not line:
                sys.exit("build/tests/bench/accuracy ended early")
            field = line.rstrip("\n").split("\t")
            if field[0] == "done":
                return
            row = self.rows[int(field[0])]
            if folder_name(row.id) != field[1]:
                sys.exit("rows are out of step: %s, %s" % (row.id, field[1]))
            row.profile, row.status = field[2], int(field[3])
            if row.status == 0:
                row.predicted = dict(zip(ITEMS, map(float, field[4:4 + len(ITEMS)])))
                row.layout = field[4 + len(ITEMS)]


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")
