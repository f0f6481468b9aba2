"""Measured training runs beside their predictions: what accuracy.py and fit.py share.

The rows are JSON lines (one published run each) and a script that turns them into model.llm, cluster.xml and measured.json; both
live outside this repository, in MEASURED.  Predictions come from build/tests/bench/accuracy, one process for all rows.
"""
import json, math, os, re, subprocess, sys

SINGLE = "vtrain" # 1,440 runs of one stack on one node: they would outweigh everything else
HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "quirks.json")) as quirks:
    QUIRKS = [(re.compile(q["rows"]), q["why"], q.get("fitted", False)) for q in json.load(quirks)]
ITEMS = ("step", "compute", "tp", "pp", "dp", "bubble", "optimizer", "peak", "parameters", "gradients", "states", "activations",
         "buffers", "allocator", "communicators", "context")


def folder_name(identifier):
    return re.sub(r"[^A-Za-z0-9._-]+", "_", identifier)


def raw_rows(measured):
    """the rows by the name of their folder"""
    with open(os.path.join(measured, "runs.jsonl")) as f:
        rows = {folder_name(r["id"]): r for r in map(json.loads, f)}
    for row in rows.values():
        if row["family"] == "vtrain-multi": # its 800 Gb/s per node are four HDR ports
            row["hardware"]["inter"] = "4x 200 Gb/s"
    path = os.path.join(measured, "a100_single_node.jsonl")
    if os.path.exists(path):
        with open(path) as f:
            rows.update((folder_name(r["id"]), single_node(r)) for r in map(json.loads, f))
    return rows


def single_node(row):
    """vTrain's runs on one node, completed: GPT layers, Megatron-LM of 2022.  They did not recompute, whatever the column
    says: with the forward pass run twice, layers of width 2,048 would sustain 211 TFLOP/s with unfused attention."""
    row["model"].update(ffn=4 * row["model"]["hidden"], mlp="gelu", name="vTrain GPT")
    row["hardware"]["inter"] = "800 Gb/s per node"
    row["config"].update(sp=False, recompute="none")
    row["measured"].update(tokens_per_s_per_gpu=None, peak_mem_gb=None)
    row.update(family="vtrain", tags=[])
    return row


def make_inputs(measured, work):
    """model.llm and cluster.xml of every row that the language can express, in work; their folder."""
    script = os.path.join(measured, "..", "..", "tools", "measured_to_inputs.py")
    for path in (script, os.path.join(measured, "runs.jsonl")):
        if not os.path.exists(path):
            sys.exit("%s is missing: name the folder of measured runs with MEASURED=FOLDER" % path)
    os.makedirs(work, exist_ok=True)
    rows, folder, raw = os.path.join(work, "rows.jsonl"), os.path.join(work, "runs"), raw_rows(measured)
    with open(rows, "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in raw.values())
    subprocess.run([sys.executable, script, rows, folder], check=True, stdout=subprocess.DEVNULL)
    for name in raw:
        path = os.path.join(folder, name, "model.llm")
        if os.path.exists(path):
            with open(path) as f:
                text = f.read()
            with open(path, "w") as f:
                f.write(as_run(name, raw[name], text))
    return folder


def plan_line(text, line):
    """the input with one more line in its plan block, which ends it"""
    return text.rstrip()[:-1] + "    %s\n}\n" % line


def plan_value(text, key):
    return int((re.search(r"^    %s = (\d+)" % key, text, re.M) or [0, 1])[1])


def even_layout(text):
    """stages of equally many layers, where these divide and nothing else is said"""
    chunks = plan_value(text, "pp") * plan_value(text, "vpp")
    layers = sum(int(n) * body.count("layer {") for n, body in re.findall(r"repeat (\d+) \{(.*?)\n    \}", text, re.S))
    searched = re.search(r"schedule .*interleaved", text) and plan_value(text, "vpp") == 1
    if chunks == 1 or layers % chunks or "layout" in text or searched or "predict" in text:
        return text
    each = "t*%d" % (layers // chunks)
    return plan_line(text, 'layout "%s"' % "|".join(["E" + each] + [each] * (chunks - 2) + [each + "L"]))


def as_run(name, raw, text):
    """The input with what was so in the run although its row's columns do not say it: Megatron's order of ranks and even
    stages, the virtual stages and the offload that the row's notes name, a host that waited for every kernel; gradients and
    moments in bf16 in NVIDIA's recipes of DeepSeek-V3, gradients in InternEvo."""
    if re.match(r"(mbridge.*_dsv3|mcore-moe_dsv3)", name):
        text = text.replace("grads=fp32)", "grads=bf16, moments=bf16)")
    if name.startswith("internevo"): # its optimizer sums the gradients of bf16 parameters as they are
        text = text.replace("grads=fp32)", "grads=bf16)")
    if 'profile "megatron-2022"' in text:
        if not name.startswith("korth22"): # the release with sequence parallelism adds to fp32 gradients
            text = text.replace("fp16(master=fp32, parameters=fp16)", "fp16(master=fp32, parameters=fp16, grads=fp16)")
        if plan_value(text, "tp") > 1 and re.match("bloom|mlm-|mtnlg|sc21", name):
            text = plan_line(text, "never overlap [tp]")
        # more than 160 GPUs hung unless CUDA_LAUNCH_BLOCKING was set (BLOOM's chronicles, "dealing with JZ hanging")
        if name.startswith("bloom") and raw["hardware"]["n_gpus"] > 160:
            text = plan_line(text, "adjust launches_block = 1")
    if 'profile "megatron' in text and plan_value(text, "pp") > 1 and "order" not in text: # Megatron's own
        text = plan_line(text, "order [tp, cp, dp, pp]")
    noted = re.search(r"VP printed NA here but .*treat as (\d+)", raw.get("notes") or "")
    if noted and "vpp =" not in text:
        text = plan_line(text.replace("schedule 1f1b", "schedule interleaved"), "vpp = %s" % noted[1])
    if raw["config"].get("ep_overlap") and plan_value(text, "ep") > 1:
        text = plan_line(text, "overlap all_to_all with compute")
    if re.search("expert|moe", raw["config"].get("offload") or ""): # a number of layers, as others have, is not in the language
        text = plan_line(text, "offload [activations]")
    return even_layout(text)


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
        """What two releases of one configuration have in common: the columns of their page besides the batch.  The names
        of 8-bit formats changed in 2026: fp8-mx became mxfp8, and fp8-cs, which scales by tensor, fp8."""
        c, h = self.raw["config"], self.raw["hardware"]
        dtype = {"fp8-mx": "mxfp8", "fp8-cs": "fp8"}.get(self.raw.get("dtype"), self.raw.get("dtype"))
        layout = tuple(c.get(k) or 1 for k in ("tp", "cp", "pp", "vpp", "ep", "mbs")) + (bool(c.get("fsdp")),)
        return (self.family, self.raw["model"]["name"], self.raw["model"]["seq"], h["gpu"], h["n_gpus"], dtype) + layout


class Predictor:
    """the process with all rows read; rows by number"""

    def __init__(self, build, measured, folder):
        raw = raw_rows(measured)
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
