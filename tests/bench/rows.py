"""Measured training runs beside their predictions: what accuracy.py, memory.py, parameters.py and fit.py share.

The runs are the tables of tests/bench/measured, or others that compact.py made.  inputs.py turns a run into
model.llm and cluster.xml; predictions come from build/tests/bench/accuracy, one process for all.
"""
import argparse, json, math, os, re, subprocess, sys
import inputs

SINGLE = "vtrain" # 1,440 runs of one stack on one node: they would outweigh everything else
HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, "measured")
ITEMS = ("step", "compute", "tp", "pp", "dp", "bubble", "optimizer", "peak", "parameters", "gradients", "states", "activations",
         "buffers", "allocator", "communicators", "context")


def table(folder, name):
    """the rows of NAME.tsv by column; `-` is None"""
    with open(os.path.join(folder, name + ".tsv")) as f:
        lines = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    return [{k: None if v == "-" else v for k, v in zip(lines[0], line)} for line in lines[1:]]


def listed(name):
    with open(os.path.join(TREE, name + ".json")) as f:
        return json.load(f)


def release(text):
    """a sortable release of the software"""
    found = re.search(r"release_v?([\d.]+)|/v([\d.]+)|-v(\d)/", text)
    return tuple(int(x) for x in re.findall(r"\d+", found[0])) if found else ()


class Run:
    """a published run: one line of runs.tsv, and where its keys lead; with its prediction once there is one"""

    def __init__(self, line, machine, model, source, known):
        self.id, self.source, self.machine, self.model, self.dtype = line["id"], line["source"], machine, model, line["dtype"]
        self.family, self.memory_counts = self.source, source["memory"]
        self.gpus, self.sequence = (int(line[k]) if line[k] else None for k in ("gpus", "sequence"))
        self.tags = set((line["tags"] or "").split())
        stacks, self.quirks = known["stacks"], known["quirks"] # a stack may name rows whose source ran others too
        self.stack = next((s for s in stacks.values() if self.id in s.get("rows", ())), stacks[source["stack"]])
        self.printed = inputs.Words(inputs.words_of(line["plan"] or ""))
        self.facts = [f for f in known["facts"] if self.id in f["rows"] or f.get("all_of") == self.source]
        self.layout_stated = self.printed.degree("tp") > 0 and "tp" in self.printed and "pp" in self.printed
        self.left_out = ("outliers on their own page" if "outlier" in self.tags
                         else "of one layer, not a step" if "single_layer" in self.tags else None)
        self.latest = "older" not in self.tags
        self.release = release(" ".join(sorted(t for t in self.tags if t.startswith("release_"))) + " " + self.id)
        self.profile, self.status, self.predicted, self.layout = self.stack["profile"], None, {}, ""
        self.read_measured(inputs.words_of(re.sub(r"(step|tokens)~", r"\1_of_formula=", line["measured"] or "")))

    def words(self, level):
        """what is known of the run, up to a level"""
        known = inputs.Words(self.printed)
        if level != "printed":
            known.update((k, v) for k, v in inputs.words_of(self.stack["words"]).items() if k not in known or k == "never")
        if level == "cited":
            for fact in self.facts:
                known.update(inputs.words_of(fact["words"]))
        return known

    def read_measured(self, m):
        number = lambda *keys: next((float(m[k]) for k in keys if k in m), None)
        self.step_s, self.speed = number("step", "step_of_formula"), number("tokens", "tokens_of_formula")
        self.basis = "printed" if "step" in m or "tokens" in m else "formula" if self.step_s or self.speed else None
        self.oom, memory = "oom" in m, m.get("memory")
        self.memory_gb = memory and (float(memory[:-3]) * 1.073741824 if memory.endswith("GiB") else float(memory[:-2]))
        half = (self.dtype or "bf16") in ("bf16", "fp16")
        if not self.basis and ("tflops" in m or ("mfu" in m and half)):
            try:
                rate = float(m["tflops"]) if "tflops" in m else float(m["mfu"]) * float(self.machine["peak16"])
                self.speed, self.basis = rate * 1e12 / inputs.flops_per_token(self), "FLOP/s"
            except (TypeError, KeyError): # sizes that the source does not give
                pass
        batch = self.printed.number("batch")
        if batch and self.sequence and self.gpus:
            tokens = batch * self.sequence / self.gpus
            self.speed = self.speed or (tokens / self.step_s if self.step_s else None)
            self.step_s = self.step_s or (tokens / self.speed if self.speed else None)
        if not self.step_s and not self.memory_gb and not self.oom and not self.left_out:
            self.left_out = "with nothing that can be compared"

    def not_scored(self):
        """why the prediction of its speed is not counted; None where it is"""
        if {"arch_modified", "config_unknown", "inconsistent_dp"} & self.tags:
            return "of another architecture than the row says, or without a configuration"
        if self.family == SINGLE:
            return "on one node of vTrain's cluster, much alike: for kernels and host"
        if self.oom or not self.step_s:
            return "with memory only"
        if self.basis == "FLOP/s":
            return "with FLOP/s only, whose conventions differ"
        return None if self.latest else "superseded by a newer release of the same configuration"

    def quirk(self):
        """a cause of its error that anyone can check; None for most rows"""
        return next((q for q in self.quirks if self.id in q["rows"]), None)

    def complete(self):
        """does the source print the layout and the microbatch?"""
        return self.layout_stated and "microbatch" in self.printed

    def error(self):
        """log of predicted over measured speed; None where there is no prediction"""
        if self.status != 0 or not self.step_s:
            return None
        return math.log(self.step_s / self.predicted["step"])

    def config(self):
        """What two releases of one configuration have in common: the columns of their page besides the batch.  The
        names of 8-bit formats changed in 2026: fp8-mx became mxfp8, and fp8-cs, which scales by tensor, fp8."""
        dtype = {"fp8-mx": "mxfp8", "fp8-cs": "fp8"}.get(self.dtype, self.dtype)
        layout = tuple(self.printed.degree(k) for k in ("tp", "cp", "pp", "vpp", "ep", "microbatch")) + ("fsdp" in self.printed,)
        return (self.family, self.model["name"], self.sequence, self.machine["said"], self.gpus, dtype) + layout

    def kin(self):
        """what a source has published of one model on one GPU, whatever the configuration"""
        return (self.family, self.model["name"], self.machine["gpu"])

    def fitted(self):
        """Does the fit look at it?  A profile is its stack's newest release: of a model on a GPU only rows of
        that.  What the search has to fill in says little of parameters, other stacks nothing.  And BLOOM's source
        gives eight GPUs a node with four NVLinks each, a mesh which no A100 board has: predicted, not fitted."""
        return (self.newest and self.complete() and not self.quirk() and not self.stack.get("nearest")
                and not self.machine["scale_up"].startswith("mesh") and (self.not_scored() is None or self.family == SINGLE))


def single_node(folder):
    """lines of runs.tsv, of a file without the columns that are all alike"""
    models = {}
    for r in table(folder, "single_node"):
        key = (r["layers"], r["width"])
        models[key] = {"name": "vTrain GPT", "layers": key[0], "width": key[1], "heads": "16", "kv": None, "head": None,
                       "ffn": str(4 * int(key[1])), "vocab": "50257", "mlp": "gelu", "attention": None, "experts": None}
        plan = "tp=%s cp=1 pp=%s zero=0 microbatch=%s batch=%s recompute=full sp=no schedule=1f1b"
        yield {"id": "vtrain-single/" + r["number"], "source": SINGLE, "gpus": r["gpus"], "sequence": "1024", "dtype": "fp16",
               "plan": plan % tuple(r[k] for k in ("tp", "pp", "microbatch", "batch")), "measured": "step=" + r["step"],
               "tags": None}, models[key]


def read_runs(folder):
    keyed = lambda name, key: {r[key]: r for r in table(folder if name != "sources" else TREE, name)}
    machines, models, sources = keyed("machines", "machine"), keyed("models", "model"), keyed("sources", "source")
    known = {name: listed(name) for name in ("stacks", "facts", "quirks")}
    for entry in known["facts"] + known["quirks"]:
        entry["rows"] = set(entry["rows"])
    lines = [(r, models[r["model"]]) for r in table(folder, "runs")]
    vtrain = next(machines[r["machine"]] for r, _ in lines if r["source"] == "vtrain-multi")
    runs = [Run(r, machines[r["machine"]], m, sources[r["source"]], known) for r, m in lines]
    runs += [Run(r, vtrain, m, sources[SINGLE], known) for r, m in single_node(folder)]
    newest = {}
    for run in runs: # of several releases with one configuration the newest counts
        for key in (run.config(), run.kin()):
            newest[key] = max(newest.get(key, ()), run.release)
    for run in runs:
        run.latest = run.latest and run.release == newest[run.config()]
        run.newest = run.latest and run.release == newest[run.kin()]
    return runs


def folder_name(identifier):
    return re.sub(r"[^A-Za-z0-9._-]+", "_", identifier)


def write_inputs(runs, work, level):
    """inputs of every run that the language can express, in a folder; the runs written, others get `left_out`"""
    written, found = set(), []
    for run in runs:
        try:
            text, xml = inputs.write(run, level)
        except inputs.LeftOut as why:
            run.left_out = str(why)
            continue
        folder = os.path.join(work, folder_name(run.id))
        os.makedirs(folder, exist_ok=True)
        for name, contents in (("model.llm", text), ("cluster.xml", xml)):
            with open(os.path.join(folder, name), "w") as f:
                f.write(contents)
        written.add(folder_name(run.id))
        found.append(run)
    for name in set(os.listdir(work)) - written: # of an earlier call
        for part in ("model.llm", "cluster.xml"):
            if os.path.exists(os.path.join(work, name, part)):
                os.remove(os.path.join(work, name, part))
    return sorted(found, key=lambda r: folder_name(r.id))


class Predictor:
    """the process with all rows read; rows by number"""

    def __init__(self, build, runs, work, level="cited"):
        folder = os.path.join(work, level)
        os.makedirs(folder, exist_ok=True)
        self.rows = write_inputs(runs, folder, level)
        self.process = subprocess.Popen([os.path.join(build, "tests/bench/accuracy"), folder], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

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
            row.status = int(field[3])
            if row.status == 0:
                row.predicted = dict(zip(ITEMS, map(float, field[4:4 + len(ITEMS)])))
                row.layout = field[4 + len(ITEMS)]


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def arguments(description):
    a = argparse.ArgumentParser(description=description)
    a.add_argument("--build", default="build")
    a.add_argument("--measured", default=TREE)
    a.add_argument("--work", default="build/bench")
    return a
