"""A published run as inputs of the compiler: model.llm and cluster.xml.

What a row says of its run is a set of words (`tp=8 recompute=full order ...`).  Three levels build on each other:
what the source prints; the words of the software stack that ran (stacks.json); what other places say of this very
run (facts.json).  Everything that no word speaks of is left to the compiler's search.  A run that the language
cannot express, or whose source leaves out what it takes to say it, raises LeftOut with the reason.

Assumed where no source says anything: a vocabulary of 51,200 for GPT; rotary theta 500,000; tied heads in models
with GELU, untied ones in others; ZeRO 3 under FSDP, else 1; 200 Gb/s a GPU beside A100, 400 beside later ones.
"""
import re
import parameters

LEVELS = ("printed", "stack", "cited")
# what shares a scale, by what sources call it; any other name is of one for the tensor
RECIPES = (("row", "rowwise"), ("block", "blockwise"), ("mx", "mx"))


class LeftOut(Exception):
    pass


def need(value, name):
    if value is None:
        raise LeftOut("without the " + name)
    return value


def words_of(text):
    """`a=1 b` as a dictionary; a word without a value is True"""
    found = (w.partition("=") for w in text.split() if w != "-")
    return {key: value if equals else True for key, equals, value in found}


class Words(dict):
    def number(self, key):
        return int(self[key]) if key in self else None

    def degree(self, key):
        return self.number(key) or 1


def cluster(run, words):
    m = run.machine
    if m["gpu"] is None:
        raise LeftOut("on a GPU that the catalogue lacks")
    total, per = need(run.gpus, "number of GPUs"), int(m["per_node"] or 8)
    per = min(per, total)
    if total % per:
        raise LeftOut("whose GPUs do not fill its nodes")
    nodes, span, kind, up = total // per, 1, m["scale_up"], m["up"]
    if kind.startswith("mesh:"):
        kind, up = kind.split(":")
    if kind == "nvl72": # jobs of whole 64s take 16 of a rack's 18 trays
        kind, span = "nvswitch", 18 if nodes % 18 == 0 else min(16, nodes)
    rates = [(t, m[c]) for t, c in (("bf16", "peak16"), ("fp8", "peak8")) if m[c] != "0"]
    peaks = "".join('\n      <peak dtype="%s" rate="%sTFLOP/s"/>' % rate for rate in rates)
    return """<?xml version="1.0" encoding="UTF-8"?>
<cluster version="1" name="measured">
  <node-type id="node" gpus="%d">
    <gpu model="%s" memory="%s" memory-bandwidth="%s">%s
    </gpu>
    <scale-up kind="%s" bandwidth="%sGB/s"%s/>
    <nic count="%s" bandwidth="%sGb/s"/>
  </node-type>
  <nodes type="node" count="%d"/>
  <fabric medium="%s">
    <tier name="leaf" span="all"/>
  </fabric>
</cluster>
""" % (per, m["gpu"], m["memory"], m["bandwidth"], peaks, kind, up, ' span="%d"' % span if span > 1 else "",
       words.get("nics") or (per if m["nics"] == "each" else m["nics"]), words.get("gbits") or m["gbits"], nodes, m["medium"])


def attention(m, gpt, window):
    heads, sizes = need(m["heads"], "number of heads"), words_of(m["attention"] or "")
    if "mla" in sizes:
        q = "q_rank=%s, " % sizes["q_rank"] if "q_rank" in sizes else ""
        return "mla(heads=%s, %skv_rank=%s, nope=%s, rope=%s, v=%s)" % (
            heads, q, *(sizes.get(k, d) for k, d in (("kv_rank", 512), ("nope", 128), ("rope", 64), ("v", 128))))
    head = m["head"] or int(m["width"]) // int(heads)
    if gpt:
        return "mha(heads=%s, head=%s, bias=yes)" % (heads, head)
    return "gqa(heads=%s, kv=%s, head=%s, rope=500_000%s%s)" % (
        heads, m["kv"] or heads, head, ", bias=yes, sinks=yes" if "sinks" in sizes else "", ", window=%s" % window if window else "")


def layers_of(m, gpt):
    """(how often, layers) in order"""
    kind, layers, experts = m["mlp"] or "gelu", int(m["layers"]), words_of(m["experts"] or "")
    window = words_of(m["attention"] or "").get("window")

    def layer(body, within=None):
        return "        layer {\n            attn %s\n%s\n        }" % (attention(m, gpt, within), body)

    def dense():
        return "            ffn  %s(%s%s)" % (kind, need(m["ffn"], "width of the feed-forward layers"), ", bias=yes" if gpt else "")

    if not experts:
        return [(layers, [layer(dense())])]
    width = int(need(experts.get("width"), "width of the experts"))
    shared = int(experts.get("shared_width", 0)) // width
    biased = "biased" in experts
    inside = ["experts %s" % need(experts.get("experts"), "number of experts"),
              "active  %s" % need(experts.get("active"), "experts per token")]
    inside += ["shared  %d" % shared] if shared else []
    inside.append("router  " + experts.get("router", "softmax(linear_bias=yes)" if biased else "softmax").replace(",", ", "))
    bias = ", bias=yes, limit=%s" % experts["limit"] if biased else ""
    lines = "".join("                %s\n" % line for line in inside)
    moe = layer("            moe  %s(%d%s) {\n%s            }" % (kind, width, bias, lines))
    first = int(experts.get("dense", 0))
    found = [(first, [layer(dense())])] if first else []
    if experts.get("every") == "2":
        return found + [((layers - first) // 2, [layer(dense()), moe])]
    if window:
        near = moe.replace("rope=500_000", "rope=500_000, window=%s" % window)
        return found + [((layers - first) // 2, [near, moe])]
    return found + [(layers - first, [moe])]


def format_of(run):
    """the kind of number, and of fp8 the recipe, which may be None"""
    said = run.dtype or "bf16"
    if "fp4" in said:
        raise LeftOut("with 4-bit products, which the language lacks")
    kind = "fp8" if re.search("fp8|float8", said) else "fp16" if said.startswith("fp16") else "bf16"
    return kind, next((word for word, names in RECIPES if re.search(names, said)), None) if kind == "fp8" else None


def precision(run, words):
    kind, recipe = format_of(run)
    grads = words.get("grads") or words.get("grads." + kind) or "fp32"
    more = "".join(", %s=%s" % (k, words[k]) for k in ("moments",) if k in words)
    more += ", recipe=" + recipe if recipe else ""
    return "%s(master=%s, grads=%s%s)" % (kind, words.get("master", "fp32"), grads, more)


def stages(run, words, pp, vpp, schedule):
    """a layout in Megatron's form, where a word asks for one"""
    layers, chunks = int(run.model["layers"]), pp * vpp
    if "layout" in words:
        return words["layout"]
    if vpp == 1 and "interleaved" in schedule: # the search chooses how many chunks
        return None
    t = lambda k: "t*%d" % k if k > 1 else "t" * k
    if layers % chunks and (layers + 2) % chunks == 0: # embedding and head take a layer's place each: no other division is even
        each = (layers + 2) // chunks
        return "|".join(["E" + t(each - 1)] + [t(each)] * (chunks - 2) + [t(each - 1) + "L"])
    if chunks > layers:
        raise LeftOut("with more stages than layers")
    if layers % chunks or "even" not in words or "predict" in words_of(run.model["experts"] or ""):
        return None
    return "|".join(["E" + t(layers // chunks)] + [t(layers // chunks)] * (chunks - 2) + [t(layers // chunks) + "L"])


def pipeline(run, words, pp, vpp):
    if pp == 1:
        return []
    said = words.get("schedule", "")
    schedule = ("combined_1f1b" if "overlap_ep" in words and vpp > 1
                else "interleaved" if said == "interleaved" or vpp > 1 else said if said.startswith("zb_")
                else "1f1b" if said or "vpp" in words else "in [1f1b, interleaved]")
    layout = stages(run, words, pp, vpp, schedule)
    found = ["schedule " + schedule] + (['layout "%s"' % layout] if layout else [])
    return found + (["order [tp, cp, dp, pp]"] if "order" in words else [])


def overlaps(run, words, degree):
    found = []
    kind, recipe = format_of(run)
    job = ["precision %s_%s" % (kind, recipe or "tensor") if kind == "fp8" else "precision " + kind]
    for axis in ("tp", "dp", "pp"):
        if degree[axis] > 1:
            if axis == "tp" and "async" in words and "tp" in words.get("overlap", "").split(","):
                found += ["adjust %s = %s" % x for x in parameters.switch(words["async"], "async_tp", "yes", job).items()]
            elif axis in words.get("overlap", "").split(","):
                found.append("overlap %s with compute" % axis)
            elif axis in words.get("never", "").split(","):
                found.append("never overlap [%s]" % axis)
    if "overlap_ep" in words and words.degree("ep") > 1 and degree["pp"] == 1: # with a pipeline by its schedule
        found.append("adjust ep_together = 1")
    return found


def state(words, degree, stated):
    """ZeRO and the ranks over which it splits"""
    found, ranks = [], degree["dp"] * degree["cp"]
    if stated or "fsdp" in words:
        zero = words.number("zero") if "zero" in words else 3 if "fsdp" in words else 1
        found.append("zero = %d" % (zero if ranks > 1 or not stated else 0))
    shard = words.number("shard") or (ranks // words.number("replicas") if "replicas" in words else ranks)
    return found + (["shard = %d" % shard] if 0 < shard < ranks and ranks % shard == 0 else [])


def plan(run, words):
    degree = {k: words.degree(k) for k in ("tp", "cp", "pp")}
    n, stated, moe = run.gpus, run.layout_stated, run.model["experts"] is not None
    dp = degree["dp"] = n // (degree["tp"] * degree["pp"] * degree["cp"])
    vpp, batch = words.degree("vpp"), words.number("batch")
    found = ["recompute " + words.get("recompute", "auto").replace(",", ", "), 'profile "%s"' % run.stack["profile"]]
    if stated:
        if degree["tp"] * degree["pp"] * degree["cp"] * dp != n:
            raise LeftOut("whose printed degrees do not multiply to its GPUs")
        if batch % (dp * words.degree("microbatch")):
            raise LeftOut("whose printed batch does not divide by replicas and microbatch")
        if moe and dp * degree["cp"] * degree["tp"] % (words.degree("ep") * words.degree("etp")):
            raise LeftOut("whose printed ep does not divide the ranks of a stage")
        found += ["%s = %d" % (k, degree[k]) for k in ("tp", "cp", "pp", "dp")]
    else:
        found += ["gpus = %d" % n] + ["%s = %s" % (k, words[k]) for k in ("tp", "cp", "pp") if k in words]
    found += ["vpp = %d" % vpp] if vpp > 1 else []
    if moe and (stated or "ep" in words):
        found += ["ep = %d" % words.degree("ep")] + (["etp = %s" % words["etp"]] if "etp" in words else [])
    found += state(words, degree, stated) + (["microbatch = %s" % words["microbatch"]] if "microbatch" in words else [])
    found += overlaps(run, words, degree)
    if degree["tp"] > 1 and "sp" in words:
        found.append("sequence_parallel " + words["sp"])
    found += pipeline(run, words, degree["pp"], vpp)
    if re.search("expert|moe", str(words.get("offload", ""))): # a number of layers, as others have, is not in the language
        found.append("offload [activations]")
    if "dispatcher" in words and words.degree("ep") > 1 and run.stack["profile"] == "megatron-core":
        found += ["adjust %s = %s" % x for x in parameters.switch("megatron-core", "dispatcher", words["dispatcher"]).items()]
    return found + ["adjust %s = %s" % (k[7:], v) for k, v in words.items() if k.startswith("adjust.")]


def model(run, words):
    m = run.model
    if m["attention"] == "hybrid":
        raise LeftOut("with layers that lack attention, which the language has not")
    need(m["layers"], "number of layers"), need(m["width"], "width")
    gpt = (m["mlp"] or "gelu") in ("gelu", "relu")
    vocab = need(m["vocab"] or ("51200" if (m["mlp"] or "gelu") == "gelu" else None), "vocabulary")
    sequence, batch = need(run.sequence, "sequence length"), need(words.get("batch"), "batch")
    out = ["llmc 1", "", "# " + run.id, "model measured {", "    vocab " + vocab, "    width " + m["width"],
           "    norm  " + ("layernorm" if gpt else "rmsnorm"), "", "    embed tokens"]
    out += ["    embed positions(%s)" % sequence] if gpt else []
    for count, body in layers_of(m, gpt):
        out += ["    repeat %d {" % count] + body + ["    }"]
    predict = words_of(m["experts"] or "").get("predict")
    out += ["    predict %s ahead" % predict] if predict else []
    out += ["    head " + ("tied" if gpt else "untied"), "}", "", "train {", "    sequence  %s" % sequence,
            "    batch     %s sequences" % batch, "    precision " + precision(run, words), "    optimizer adamw", "}", "", "plan {"]
    return "\n".join(out + ["    " + line for line in plan(run, words)] + ["}"]) + "\n"


def write(run, level):
    """the two files' text at a level of LEVELS"""
    if run.left_out:
        raise LeftOut(run.left_out)
    words = run.words(level)
    return model(run, words), cluster(run, words)


def flops_per_token(run):
    """model FLOPs per token, forward and backward: six per weight of a product, attention over the whole square of
    scores"""
    m, experts = run.model, words_of(run.model["experts"] or "")
    width, layers, heads = int(m["width"]), int(m["layers"]), int(m["heads"])
    head = int(m["head"] or width // heads)
    projections = width * head * (2 * heads + 2 * int(m["kv"] or heads))
    factors = 3 if m["mlp"] in ("swiglu", "geglu") else 2
    inner = int(experts["active"]) * int(experts["width"]) + int(experts.get("shared_width", 0)) if experts else int(m["ffn"])
    weights = layers * (projections + factors * width * inner) + width * int(m["vocab"])
    return 6 * weights + 12 * layers * heads * head * run.sequence
