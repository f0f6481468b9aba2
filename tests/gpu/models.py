"""The models that tests/gpu/run trains: tiny ones whose losses are compared, three whose speed is."""

HEADER = "llmc 1\nmodel %s {\n    vocab %d\n    width %d\n"
TRAIN = """train {
    sequence %d
    batch %d sequences
    precision %s
    optimizer adamw(lr=%g, beta1=0.9, beta2=0.95)
    lr_schedule constant
}
"""
MOE = """moe swiglu(%d) {
                experts 8
                active 2
%s            }"""

# name: body of the model at width 64; heads of 16 and more, so that bf16 is what it is on large models
TINY = {
    "gpt2": """    norm layernorm
    embed tokens
    embed positions(64)
    repeat 4 {
        layer {
            attn mha(heads=4, bias=yes)
            ffn gelu(256, bias=yes)
        }
    }
    head tied
}
""",
    "llama": """    norm rmsnorm
    embed tokens
    repeat 4 {
        layer {
            attn gqa(heads=4, kv=2, rope=10_000)
            ffn swiglu(176)
        }
    }
    head untied
}
""",
    "mixtral": """    norm rmsnorm
    embed tokens
    repeat 4 {
        layer {
            attn gqa(heads=4, kv=2, rope=10_000)
            """ + MOE % (96, "                router softmax\n") + """
        }
    }
    head untied
}
""",
    "deepseek": """    norm rmsnorm
    embed tokens
    repeat 1 {
        layer {
            attn mla(heads=4, q_rank=32, kv_rank=32, nope=16, rope=8, v=16)
            ffn swiglu(176)
        }
    }
    repeat 3 {
        layer {
            attn mla(heads=4, q_rank=32, kv_rank=32, nope=16, rope=8, v=16)
            """ + MOE % (32, "                shared 1\n                router sigmoid(groups=4, pick=2, bias=yes, scale=2.5)\n") + """
        }
    }
    head untied
}
""",
}
# eight ranks on one GPU; batch 8
LAYOUTS = {
    "gpt2": ("tp=2 pp=2 dp=2", "tp=1 pp=1 dp=8 zero=3"),
    "llama": ("tp=2 pp=1 cp=2 dp=2", "tp=1 pp=4 dp=2 schedule=1f1b", "tp=1 pp=1 cp=4 dp=2"),
    "mixtral": ("tp=1 pp=2 dp=4 ep=4", "tp=2 pp=1 dp=4 ep=8"),
    "deepseek": ("tp=1 pp=2 dp=4 ep=4", "tp=2 pp=2 dp=2 ep=2"),
}


ROUTED = ("mixtral", "deepseek")
EIGHT = ("llama", "mixtral")
# in 8 bits a number that comes out otherwise may round to another neighbour, an eighth away
TOLERANCE = {"fp32": 1e-5, "bf16": 1e-2, "fp8": 3e-2}
# the second ones have two stages a rank, of four layers in all; the last needs twice as many microbatches as ranks
SCHEDULES = (("gpipe", "1f1b", "zb_h1"), ("interleaved", "zb_v"), ("dualpipe_v",))


def draw(rng):
    """a model, a precision and what is pinned of a plan of eight ranks"""
    name = rng.choice(sorted(TINY))
    precision = rng.choice(("fp32", "bf16", "bf16", "fp8") if name in EIGHT else ("fp32", "bf16"))
    tp, pp = rng.choice((1, 1, 2)), rng.choice((1, 2, 4) if name != "deepseek" else (1, 2))
    cp = rng.choice((1, 2)) if name == "llama" and tp * pp < 8 else 1
    dp = 8 // (tp * pp * cp)
    sets = ["tp=%d" % tp, "pp=%d" % pp, "cp=%d" % cp, "dp=%d" % dp]
    if name in ROUTED:
        sets.append("ep=%d" % rng.choice([e for e in (1, 2, 4, 8) if tp * cp * dp % e == 0 and e % tp == 0]))
    if pp > 1:
        sets.append("schedule=%s" % rng.choice([w for words in SCHEDULES[:1 if pp > 2 else 2 if dp > 2 else 3] for w in words]))
    elif dp > 1:
        sets.append("zero=%d" % rng.choice((0, 1, 2, 3)))
    sets.append("recompute=%s" % rng.choice(("none", "selective", "full")))
    return name, precision, sets


def tiny(name, precision):
    words = "fp32" if precision == "fp32" else precision + "(master=fp32, grads=fp32)"
    return HEADER % (name, 256, 64) + TINY[name] + TRAIN % (64, 8, words, 2e-3)


def shape(kind, vocab, width, layers, heads, kv, head, ffn, sequence, microbatch, accumulate, tied):
    return dict(locals())


def shapes(gpu_bytes, dry):
    """What is timed, the most important first; depth of the 8B-like model by memory."""
    if dry:
        return {"llama3-8b-like": shape("llama", 512, 64, 2, 4, 2, 16, 96, 64, 1, 2, False),
                "gpt2-124m": shape("gpt2", 512, 64, 2, 4, 4, 16, 256, 64, 2, 2, True),
                "llama3.2-1b-like": shape("llama", 512, 64, 2, 4, 1, 16, 96, 64, 1, 2, True)}
    # 32,768 tokens a step: a GPU of a large run has as many or more, and the optimizer's share is that of one.
    # at most 12 layers, so that the host can hold the initial state.  18 bytes a parameter: 3.9 GB a layer of the 8B-like model, 19 GB for its two tables, 15 GB for what is kept and logits
    depth = max(2, min(12, int((gpu_bytes - 42e9) / 5.4e9)))
    return {"llama3-8b-like": shape("llama", 128256, 4096, depth, 32, 8, 128, 14336, 4096, 1, 8, False),
            "gpt2-124m": shape("gpt2", 50257, 768, 12, 12, 12, 64, 3072, 1024, 16, 4, True),
            "llama3.2-1b-like": shape("llama", 128256, 2048, 16, 32, 8, 64, 8192, 4096, 2, 4, True),
            "llama3-8b-like, 8192": shape("llama", 128256, 4096, max(2, depth - 2), 32, 8, 128, 14336, 8192, 1, 4, False)}


def text(name, c):
    gpt = c["kind"] == "gpt2"
    body = "    norm %s\n    embed tokens\n" % ("layernorm" if gpt else "rmsnorm(eps=1e-5)")
    if gpt:
        body += "    embed positions(%d)\n" % c["sequence"]
        layer = "attn mha(heads=%d, bias=yes)\n            ffn gelu(%d, bias=yes)" % (c["heads"], c["ffn"])
    else:
        layer = "attn gqa(heads=%d, kv=%d, head=%d, rope=500_000)\n            ffn swiglu(%d)" % (
            c["heads"], c["kv"], c["head"], c["ffn"])
    body += "    repeat %d {\n        layer {\n            %s\n        }\n    }\n    head %s\n}\n" % (
        c["layers"], layer, "tied" if c["tied"] else "untied")
    return HEADER % ("timed", c["vocab"], c["width"]) + body + TRAIN % (
        c["sequence"], c["microbatch"] * c["accumulate"], "bf16(master=fp32, grads=fp32)", 3e-4)


def parameters(c):
    """All, and those that are multiplied with (tables are looked up, a head is multiplied)."""
    attention = c["width"] * c["head"] * (2 * c["heads"] + 2 * c["kv"])
    layers = c["layers"] * (attention + c["width"] * c["ffn"] * (2 if c["kind"] == "gpt2" else 3))
    table = c["vocab"] * c["width"]
    return layers + table * (1 if c["tied"] else 2), layers + table


def flop_per_token(c):
    """6 per multiplied parameter, and causal attention: half of 12 layers heads head sequence."""
    return 6 * parameters(c)[1] + 6 * c["layers"] * c["heads"] * c["head"] * c["sequence"]
