#!/usr/bin/env python3
"""Makes the tables of tests/bench/measured from the large collection they were taken from: JSON lines, one
published run each.

usage: compact.py FOLDER [OUT]        FOLDER holds runs.jsonl, a100_single_node.jsonl and microbench.jsonl

Only facts go over: what ran, on what, how, and how long it took.  Words of the sources are put into words of the
tables (and of the model language), figures keep six digits.  sources.tsv, stacks.json, facts.json and quirks.json
are written by hand and not touched.
"""
import json, os, re, sys

# what a source calls a GPU, and the catalogue's name, memory as the driver reports it, memory bandwidth, dense TFLOP/s in 16 and
# 8 bits (0: none), GB/s to the GPUs of its node one way
GPUS = (("A100-SXM4-40GB", "A100-SXM-40GB 39.5GiB 1555GB/s 312 0 300"),
        ("H100-SXM 9", "H100-SXM-96GB-HBM2e 95GiB 2.4TB/s 989 1979 450"),
        ("H100", "H100-SXM 79.6GiB 3.35TB/s 989 1979 450"), ("H200", "H200-SXM 140.4GiB 4.8TB/s 989 1979 450"),
        ("H800", "H800-SXM 79.6GiB 3.35TB/s 989 1979 200"), ("A800", "A800-SXM 79.6GiB 2039GB/s 312 0 200"),
        ("A100", "A100-SXM-80GB 79.6GiB 2039GB/s 312 0 300"), ("GB300", "GB300 277GiB 8TB/s 2500 5000 900"),
        ("GB200", "GB200 185GiB 8TB/s 2500 5000 900"), ("B300", "B300 268GiB 8TB/s 2250 4500 900"),
        ("B200", "B200 179GiB 7.7TB/s 2250 4500 900"))
# what recipes call a part that is computed again, in the language's words
PARTS = {"mla_up_proj": "mla_up", "layernorm": "norm", "norm": "norm", "act": "moe_act", "moe_act": "moe_act", "moe": "moe",
         "mlp": "ffn", "core_attn": "core_attn", "shared_expert": "shared"}
KIND = {"swiglu-clamped": "swiglu", None: "-"}
IN_GIB = {"simumax-b200", "torchtitan"}
SCHEDULES = {"interleaved-1f1b": "interleaved", "1f1b": "1f1b", "1f1b (DeepSpeed)": "1f1b", "zb-1p": "zb_h1", "zb-2p": "zb_h2"}


# how experts are picked, where the model is known by name: official configurations; elsewhere softmax
ROUTERS = {"DeepSeek-V3": "sigmoid(groups=8,pick=4,bias=yes,scale=2.5)", "Kimi": "sigmoid(bias=yes,scale=2.827)"}


def short(x):
    return "-" if x is None else "%.7g" % x if isinstance(x, float) else str(x)


def slug(text):
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


class Side:
    """a side table: equal contents get one key"""

    def __init__(self):
        self.key_of, self.taken = {}, set()

    def key(self, name, contents):
        if contents not in self.key_of:
            key, n = slug(name), 2
            while key in self.taken:
                key, n = "%s.%d" % (slug(name), n), n + 1
            self.taken.add(key)
            self.key_of[contents] = key
        return self.key_of[contents]

    def lines(self):
        return ["\t".join((key,) + contents) for contents, key in self.key_of.items()]


def fabric(said, default):
    """NICs of a node (or `each`: one per GPU), Gb/s of one, medium, and whether the source says so"""
    stated = "assumed" if not said or "not stated" in said else "stated"
    medium = "roce" if "RoCE" in (said or "") else "infiniband"
    for pattern, count, rate in ((r"(\d+)x ?(?:[A-Za-z][\w-]* )*(\d+) Gb/s", 1, 1), (r"(\d+)x(\d+) GB/s", 1, 8)):
        found = re.search(pattern, said or "")
        if found:
            return found[1], str(int(found[2]) * rate), medium, stated
    found = re.search(r"(\d+) Gb/s.*per GPU", said or "")
    if found:
        return "each", found[1], medium, stated
    found = re.search(r"(\d+) Gb/s", said or "")
    if found: # of the whole node, one NIC beside each of its eight GPUs
        return "8", str(int(found[1]) // 8), medium, stated
    known = {"HDR": "200", "NDR": "400"}
    rate = next((v for k, v in known.items() if k in (said or "")), None)
    return "each", rate or default, medium, stated if rate else "assumed"


def machine(row, machines):
    h = row["hardware"]
    gpu = next((g for part, g in GPUS if part in h["gpu"]), None)
    count, rate, medium, stated = fabric(h["inter"], "200" if gpu and " 312 " in gpu else "400")
    intra = h["intra"] or ""
    scale_up = "mesh:100" if "4 links/GPU" in intra else "nvl72" if "NVL72" in intra else "nvswitch"
    contents = (h["gpu"], *(gpu.split() if gpu else ["-"] * 6), short(h["gpus_per_node"]), scale_up, count, rate, medium, stated)
    return machines.key("%s-%s" % (h["gpu"].split(" ")[0], h["gpus_per_node"] or "x"), contents)


def attention(m):
    """kind of attention and its sizes; `hybrid` where layers differ in kind"""
    text = m["attn"] or ""
    if "hybrid" in text + m["name"] or m.get("layer_pattern"):
        return "hybrid"
    if "MLA" in text:
        sizes = [(k, re.search(k + r"(\d+)", text)) for k in ("q_lora", "kv_lora", "nope", "rope", " v")]
        return "mla " + " ".join("%s=%s" % (k.strip().replace("_lora", "_rank"), found[1]) for k, found in sizes if found)
    sinks = " sinks" if "GPT-OSS" in m["name"] else "" # as its published configuration
    return "window=128" + sinks if "sliding-window 128" in text else "-"


def model(row, models):
    m = row["model"]
    e = m.get("moe") or {}
    named = (("experts", "experts"), ("active", "topk"), ("width", "expert_ffn"), ("shared_width", "shared"),
             ("dense", "dense_layers"), ("every", "interleave"), ("predict", "mtp"))
    experts = " ".join("%s=%s" % (name, short(e[k])) for name, k in named if e.get(k))
    if "GPT-OSS" in m["name"]: # biases and clamped activations, as its published configuration
        experts += " biased limit=7"
    router = next((v for k, v in ROUTERS.items() if e and k in m["name"]), None)
    experts = (experts + (" router=" + router if router else "")) or "-"
    contents = tuple(map(short, (m["name"], m["layers"], m["hidden"], m["heads"], m["kv_heads"], m.get("head_dim"), m["ffn"],
                                 m["vocab"], KIND.get(m["mlp"], m["mlp"]), attention(m), experts)))
    return models.key(m["name"], contents)


def recompute(text, layers):
    if text is None or text in ("none", "full", "selective"):
        return text
    if text.startswith("gelu"): # llm.c computes the activation's input again, which no plan needs
        return "none"
    if text.startswith("full ("):
        return "full(layers=%s)" % re.search(r"\d+", text)[0]
    if "every other layer" in text:
        return "full(layers=%d)" % (layers // 2)
    if text.startswith("selective:"):
        return "[%s]" % ",".join(PARTS[w] for w in text[10:].split(","))
    return "selective"


def plan(row):
    c, words = row["config"], []

    def put(key, value):
        if value is not None:
            words.append("%s=%s" % (key, value))

    for key in ("tp", "cp", "pp", "vpp", "ep", "etp", "zero"):
        put(key, c.get(key))
    if c.get("fsdp"):
        words.append("fsdp")
    shard = re.match(r"(\d+) ranks", str(c.get("zero_shard")))
    put("shard", shard and shard[1])
    put("replicas", c.get("dp_replicate"))
    put("microbatch", c.get("mbs"))
    put("batch", c.get("gbs"))
    put("recompute", recompute(c.get("recompute"), row["model"]["layers"]))
    put("sp", None if c.get("sp") is None else "yes" if c["sp"] else "no")
    if (c.get("pp") or 1) > 1:
        put("schedule", SCHEDULES.get(c.get("schedule")))
    put("layout", c.get("pp_layout"))
    for word, yes in (("overlap", True), ("never", False)):
        said = [a for a in ("tp", "dp", "pp") if c.get(a + "_overlap") is not None and bool(c[a + "_overlap"]) == yes]
        put(word, ",".join(said) or None)
    dispatcher = c.get("dispatcher") and c["dispatcher"].lower()
    put("dispatcher", "alltoall" if dispatcher == "a2a" else dispatcher)
    if c.get("ep_overlap"):
        words.append("overlap_ep")
    put("offload", c.get("offload"))
    return " ".join(words)


def measured(row):
    """what the source prints; with `~` where it is worked out from printed figures by the source's own formula"""
    m, d, words = row["measured"], row.get("derived") or {}, []
    for key, name in (("step_time_s", "step"), ("tokens_per_s_per_gpu", "tokens"), ("tflops_per_gpu", "tflops"), ("mfu", "mfu")):
        if m.get(key):
            words.append("%s=%s" % (name, short(m[key])))
    if not m.get("step_time_s") and not m.get("tokens_per_s_per_gpu"):
        for key, name in (("step_time_s", "step"), ("tokens_per_s_per_gpu", "tokens")):
            if d.get(key):
                words.append("%s~%s" % (name, short(d[key])))
    if m.get("peak_mem_gb"):
        words.append("memory=%s%s" % (short(m["peak_mem_gb"]), "GiB" if row["family"] in IN_GIB else "GB"))
    return " ".join(words + (["oom"] if row.get("oom") else []))


def tags(row):
    t = ["secondary"] if row.get("confidence") == "medium" else []
    t += ["older"] if row.get("latest_release_of_config") is False else []
    return " ".join(t + [x for x in row["tags"]]) or "-"


def dtype(row):
    said = row.get("dtype") or "-"
    names = {"mixed (fp16/bf16 not stated)": "mixed", "fp8 (TE delayed scaling) + bf16": "fp8-delayed", "fp8 (TE)": "fp8-te",
             "fp8 (tensorwise current scaling)": "fp8-current", "float8 (linear) + bf16": "float8-linear"}
    return names.get(said, said.replace(" + ", "+").replace(" ", "-"))


def write(path, comment, columns, lines):
    with open(path, "w") as f:
        f.writelines("# %s\n" % c for c in comment)
        f.write("\t".join(columns) + "\n")
        f.writelines(line + "\n" for line in lines)


def runs(folder, out):
    machines, models, lines = Side(), Side(), []
    with open(os.path.join(folder, "runs.jsonl")) as f:
        for row in map(json.loads, f):
            lines.append("\t".join((row["id"], row["family"], machine(row, machines), short(row["hardware"]["n_gpus"]),
                                    model(row, models), short(row["model"]["seq"]), dtype(row), plan(row), measured(row), tags(row))))
    write(os.path.join(out, "runs.tsv"), (
        "Published training runs, one a line; `-`: the source does not say.  Keys lead to sources.tsv, machines.tsv and models.tsv.",
        "plan: degrees and words as the source prints them; what it does not speak of is absent.",
        "measured: seconds per step, tokens/s per GPU, model TFLOP/s per GPU, share of the peak; `~` instead of `=`: from printed",
        "figures by the source's own formula; memory of the fullest GPU; oom: ran out of memory."),
        ("id", "source", "machine", "gpus", "model", "sequence", "dtype", "plan", "measured", "tags"), lines)
    write(os.path.join(out, "machines.tsv"), (
        "Nodes of the runs.  memory: as the driver reports it; peak16, peak8: dense TFLOP/s; up: GB/s to the other GPUs of the node,",
        "one way.  nics: of a node, or one for each GPU; gbits: of one NIC; fabric: does the source state its network?"),
        ("machine", "said", "gpu", "memory", "bandwidth", "peak16", "peak8", "up", "per_node", "scale_up", "nics", "gbits", "medium",
         "fabric"), machines.lines())
    write(os.path.join(out, "models.tsv"), ("Models of the runs; a shared expert's width is that of all shared ones together.",),
          ("model", "name", "layers", "width", "heads", "kv", "head", "ffn", "vocab", "mlp", "attention", "experts"), models.lines())
    return machines, models


def single(folder, out):
    lines = []
    with open(os.path.join(folder, "a100_single_node.jsonl")) as f:
        for row in map(json.loads, f):
            m, c = row["model"], row["config"]
            common = (m["heads"], m["vocab"], m["seq"], c["cp"], row["dtype"], c["recompute"])
            assert common == (16, 50257, 1024, 1, "fp16", "full")
            lines.append("\t".join(map(short, (row["id"].split("/")[1], row["hardware"]["n_gpus"], m["layers"], m["hidden"], c["tp"],
                                               c["pp"], c["mbs"], c["gbs"], row["measured"]["step_time_s"]))))
    write(os.path.join(out, "single_node.tsv"), (
        "vTrain's runs on one node of A100 (source vtrain): GPT of 16 heads, sequences of 1,024 tokens, vocabulary of 50,257, fp16,",
        "1F1B, activation checkpointing; dp is what tp and pp leave."),
        ("number", "gpus", "layers", "width", "tp", "pp", "microbatch", "batch", "step"), lines)


# kind: columns of micro.tsv and the keys they are taken from (within `shape` where there is one)
MICRO = {
    "gemm": "gpu layout out=out_dtype m n k tflops", "grouped_gemm": "gpu stage grads=main_grad_dtype groups=ng m=M n=N k=K tflops",
    "gemm_peak": "gpu dtype shape=shape_mnk tflops",
    "sdp_fwd": "gpu batch seq=seq_len heads=head_num kv=kv_head_num qk=qk_head_dim v=v_head_dim tflops",
    "sdp_bwd": "gpu batch seq=seq_len heads=head_num kv=kv_head_num qk=qk_head_dim v=v_head_dim tflops",
    "flash_attention": "gpu impl pass=pass_ head=head_dim causal seq tflops", "mla": "gpu seq fwd=tflops_fwd bwd=tflops_bwd",
    "nccl": "gpu op gpus=n_gpus nodes bytes=size_bytes busbw=busbw_GBps setup source",
    "comm_fit": "gpu link op peak=peak_GBps efficiency latency=latency_us fixed=fixed_latency_us",
    "moe_dispatch": "gpu op ep tokens hidden latency=latency_us", "ring_attention": "gpu impl efficiency",
    "moe_layer": "gpu case ep forward=forward_ms backward=backward_ms",
}


def micro_line(row, columns):
    notes, source = row.get("notes") or "", row["source"]
    row["setup"] = "efa" if "EFA" in notes else "ring" if "ring (NVLS off)" in notes else None
    row["source"] = "vTrain" if "vTrain" in source else "stas00"
    for inner in ("shape", "values"):
        row.update(row[inner] if isinstance(row.get(inner), dict) else {})
    values = (row.get(c.partition("=")[2] or c) for c in columns)
    return "\t".join(str(v).lower() if isinstance(v, bool) else short(v) for v in values)


def micro(folder, out):
    blocks = {kind: [] for kind in MICRO}
    with open(os.path.join(folder, "microbench.jsonl")) as f:
        for row in map(json.loads, f):
            kind = "mla" if "tflops_fwd" in row else row["kind"]
            blocks[kind].append(micro_line(row, MICRO[kind].split()))
    with open(os.path.join(out, "micro.tsv"), "w") as f:
        f.write("# Published microbenchmarks: blocks of one kind, each under a line with its kind and columns.  Sources: simumax (gemm,\n"
                "# grouped_gemm, sdp_*, comm_fit), mamf (gemm_peak), flash2 and flash3 (flash_attention), stas00 and vtrain-trace (nccl),\n"
                "# mcore-moe-micro (mla, moe_dispatch), mcore-ci (moe_layer, in milliseconds); sources.tsv has what they stand for.  TFLOP/s,\n"
                "# GB/s, microseconds.\n")
        for kind, lines in blocks.items():
            f.write("@%s\t%s\n" % (kind, "\t".join(c.partition("=")[0] for c in MICRO[kind].split())))
            f.writelines(line + "\n" for line in lines)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = sys.argv[1]
    out = sys.argv[2] if len(sys.argv) == 3 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "measured")
    runs(folder, out)
    single(folder, out)
    micro(folder, out)


main()
