#!/usr/bin/env python3
"""Independent references for tiny models: loss, every parameter gradient and a few AdamW steps, in float64.

Nothing here is shared with the compiler or its kernels: the models are written in PyTorch from their published
definitions, gradients come from autograd, the optimizer is torch.optim.AdamW.  Where Hugging Face transformers is
installed the same weights are loaded into GPT2LMHeadModel, LlamaForCausalLM, Qwen2ForCausalLM or BloomForCausalLM (also in float64) and
loss and gradients must agree; the versions and the outcome are recorded in the metadata of expected.safetensors.

    python3 tests/reference/make_fixtures.py [NAME ...]     rewrites tests/reference/<name>/ for the models below

What it writes per model:
    model.llm                   the job in our language
    model.safetensors           the initial weights, Hugging Face names and layouts
    tokens.bin                  flat little-endian uint16 token ids
    expected.safetensors        gradient of the first step's loss by every parameter, under the parameter's name
    expected.jsonl              loss and gradient norm (before clipping) of each step, one JSON object per line

The committed files were made on Debian 12 (python3-torch 1.13, transformers 4.40.2 in a virtual environment with
--system-site-packages).  Weights are much larger than a usual initialisation, gains and biases are random: a missing
or doubled term then shows in the first digits.
"""

import json
import math
import os
import struct
import sys

import numpy
import torch
import torch.nn.functional as F

STEPS = 8
BETAS, EPS, DECAY, LR, CLIP = (0.9, 0.95), 1e-8, 0.1, 1e-3, 1.0
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F64": torch.float64}

MODELS = {
    "gpt2": dict(family="gpt2", seed=11, vocab=101, width=32, layers=4, heads=4, kv=4, ffn=128, positions=32,
                 sequence=20, batch=8, tied=True, weights="F32"),
    "llama": dict(family="llama", seed=22, vocab=109, width=32, layers=4, heads=4, kv=2, ffn=72, theta=500.0,
                  sequence=24, batch=8, tied=False, weights="F32"),
    "qwen2": dict(family="qwen2", seed=33, vocab=99, width=32, layers=4, heads=4, kv=2, ffn=40, theta=10000.0,
                  sequence=16, batch=8, tied=True, weights="BF16"),
    # heads that are no power of two; a checkpoint fuses q, k and v, and names its tensors in another way
    "bloom": dict(family="bloom", seed=55, vocab=83, width=36, layers=4, heads=6, kv=6, ffn=66, sequence=20, batch=8, tied=True,
                  weights="F32"),
    # two prediction modules whose layer has experts, behind dense layers
    "module": dict(family="module", seed=66, vocab=89, width=24, layers=2, heads=4, kv=2, ffn=40, theta=500.0, sequence=16,
                   batch=8, tied=False, weights="F32", ahead=2, ahead_weight=0.5, module_heads=2, inner=20, experts=4, active=2),
    # sinks, windows in every other layer, clamped experts with biases
    "gpt_oss": dict(family="gpt_oss", seed=77, vocab=89, width=24, layers=2, heads=4, kv=2, theta=500.0, window=5, sequence=16,
                    batch=8, tied=False, weights="F32", ffn=0, inner=20, experts=4, active=2, limit=0.7),
    # what no published model combines: the less common choices of the language, in one small model
    "mixed": dict(family="mixed", seed=44, vocab=97, width=24, layers=2, heads=4, kv=2, head=12, ffn=40, theta=500.0,
                  rope_dims=8, llama3=(8.0, 1.0, 4.0, 64.0), score_scale=20, sequence=16, batch=8, tied=True,
                  weights="F32"),
}


# ---- the files -----------------------------------------------------------------------------------------------------

def write_safetensors(path, tensors, dtype, metadata):
    """tensors: name -> float64 tensor.  One dtype for all; header padded with blanks to a multiple of 8."""
    size = {"F32": 4, "BF16": 2, "F64": 8}[dtype]
    header, at, parts = {"__metadata__": metadata}, 0, []
    for name in sorted(tensors):
        t = tensors[name].detach()
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, at + t.numel() * size]}
        at += t.numel() * size
        if dtype == "BF16":  # numpy has no bfloat16: the high halves of the float32 patterns
            bits = t.to(torch.bfloat16).to(torch.float32).contiguous().numpy().view(numpy.uint32)
            parts.append((bits >> 16).astype("<u2").tobytes())
        else:
            parts.append(t.to(DTYPES[dtype]).contiguous().numpy().astype("<f" + str(size)).tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def model_text(name, c):
    if c["family"] == "mixed":
        norm = "rmsnorm(eps=1e-5)"
        rotary = "rotary(500, dims=8, pairs=adjacent, scaling=llama3(8, 1, 4, 64))"
        sublayers = (f"attn gqa(heads={c['heads']}, kv={c['kv']}, head={c['head']}, bias=yes, scale={c['score_scale']},\n"
                     f"                     rope={rotary})\n"
                     f"            ffn  geglu({c['ffn']}, bias=yes, approx=none)")
    elif c["family"] in ("gpt2", "bloom"):
        norm = "layernorm(eps=1e-5)"
        alibi = ", alibi=yes" if c["family"] == "bloom" else ""
        sublayers = f"attn mha(heads={c['heads']}, bias=yes{alibi})\n            ffn  gelu({c['ffn']}, bias=yes)"
    elif c["family"] == "gpt_oss":
        norm = "rmsnorm(eps=1e-5)"
        layer = f"""attn gqa(heads={c['heads']}, kv={c['kv']}, rope={c['theta']:g}, bias=yes, sinks=yes%s)
            moe  swiglu({c['inner']}, bias=yes, limit={c['limit']}, alpha=1.702, offset=1) {{
                experts {c['experts']}
                active  {c['active']}
                router  softmax(linear_bias=yes)
            }}"""
        sublayers = layer % f", window={c['window']}" + "\n        }\n        layer {\n            " + layer % ""
    else:
        norm = "rmsnorm(eps=1e-5)"
        bias = ", qkv_bias=yes" if c["family"] == "qwen2" else ""
        sublayers = (f"attn gqa(heads={c['heads']}, kv={c['kv']}, rope={c['theta']:g}{bias})\n"
                     f"            ffn  swiglu({c['ffn']})")
    head = "tied" if c["tied"] else "untied"
    if "ahead" in c:
        head += f"""
    predict {c['ahead']} ahead {{
        layer {{
            attn mha(heads={c['module_heads']}, rope={c['theta']:g})
            moe  swiglu({c['inner']}) {{
                experts {c['experts']}
                active  {c['active']}
            }}
        }}
        weight {c['ahead_weight']}
    }}"""
    positions = f"    embed positions({c['positions']})\n" if "positions" in c else ""
    return f"""llmc 1

model {name} {{
    vocab {c['vocab']}
    width {c['width']}
    norm  {norm}

    embed tokens{"(norm=yes)" if c["family"] == "bloom" else ""}
{positions}    repeat {c['layers'] // (2 if c['family'] == 'gpt_oss' else 1)} {{
        layer {{
            {sublayers}
        }}
    }}
    head {head}
}}

train {{
    sequence  {c['sequence']}
    batch     {c['batch']} sequences
    precision fp32
    optimizer adamw(lr={LR}, beta1={BETAS[0]}, beta2={BETAS[1]}, eps=1e-8, weight_decay={DECAY})
    clip      {CLIP}
}}
"""


# ---- the models: parameters by Hugging Face name, and the forward pass ----------------------------------------------

def head_size(c):
    return c.get("head", c["width"] // c["heads"])


def parameter_shapes(c):
    """name -> (shape, decays): matrices and embeddings decay, gains and biases do not"""
    h, f, hd = c["width"], c["ffn"], head_size(c)
    p = {}
    if c["family"] == "gpt2":
        p["transformer.wte.weight"] = (c["vocab"], h), True
        p["transformer.wpe.weight"] = (c["positions"], h), True
        for i in range(c["layers"]):
            b = f"transformer.h.{i}."
            for n, rows, cols in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h), ("mlp.c_fc", h, f), ("mlp.c_proj", f, h)):
                p[b + n + ".weight"] = (rows, cols), True  # Conv1D: [in, out]
                p[b + n + ".bias"] = (cols,), False
        norms = [f"transformer.h.{i}.ln_{k}" for i in range(c["layers"]) for k in (1, 2)] + ["transformer.ln_f"]
        for n in norms:
            p[n + ".weight"] = (h,), False
            p[n + ".bias"] = (h,), False
        return p
    p["model.embed_tokens.weight"] = (c["vocab"], h), True
    if c["family"] == "gpt_oss":
        for i in range(c["layers"]):
            b = f"model.layers.{i}."
            shapes = [("self_attn.q_proj", c["heads"] * hd, h), ("self_attn.k_proj", c["kv"] * hd, h),
                      ("self_attn.v_proj", c["kv"] * hd, h), ("self_attn.o_proj", h, c["heads"] * hd), ("mlp.gate", c["experts"], h)]
            for e in range(c["experts"]):
                shapes += [(f"mlp.experts.{e}.gate_proj", c["inner"], h), (f"mlp.experts.{e}.up_proj", c["inner"], h),
                           (f"mlp.experts.{e}.down_proj", h, c["inner"])]
            for n, rows, cols in shapes:
                p[b + n + ".weight"] = (rows, cols), True
                p[b + n + ".bias"] = (rows,), False
            p[b + "self_attn.sinks"] = (c["heads"],), False
            p[b + "input_layernorm.weight"] = (h,), False
            p[b + "post_attention_layernorm.weight"] = (h,), False
        p["model.norm.weight"] = (h,), False
        p["lm_head.weight"] = (c["vocab"], h), True
        return p
    if c["family"] == "bloom":
        for i in range(c["layers"]):
            b = f"model.layers.{i}."
            for n, rows, cols in (("self_attn.q_proj", h, h), ("self_attn.k_proj", h, h), ("self_attn.v_proj", h, h),
                                  ("self_attn.o_proj", h, h), ("mlp.up_proj", f, h), ("mlp.down_proj", h, f)):
                p[b + n + ".weight"] = (rows, cols), True
                p[b + n + ".bias"] = (rows,), False
        norms = [f"model.layers.{i}.{n}" for i in range(c["layers"]) for n in ("input_layernorm", "post_attention_layernorm")]
        for n in ["model.embed_layernorm", "model.norm"] + norms:
            p[n + ".weight"] = (h,), False
            p[n + ".bias"] = (h,), False
        return p
    for i in range(c["layers"]):
        b = f"model.layers.{i}."
        for n, rows, cols in (("self_attn.q", c["heads"] * hd, h), ("self_attn.k", c["kv"] * hd, h),
                              ("self_attn.v", c["kv"] * hd, h), ("self_attn.o", h, c["heads"] * hd),
                              ("mlp.gate", f, h), ("mlp.up", f, h), ("mlp.down", h, f)):
            p[b + n + "_proj.weight"] = (rows, cols), True
            if c["family"] == "mixed" or (c["family"] == "qwen2" and n[-1] in "qkv" and "attn" in n):
                p[b + n + "_proj.bias"] = (rows,), False
        p[b + "input_layernorm.weight"] = (h,), False
        p[b + "post_attention_layernorm.weight"] = (h,), False
    for k in range(c.get("ahead", 0)):
        b = f"model.layers.{c['layers'] + k}."
        for n in ("enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"):
            p[b + n + ".weight"] = (h,), False
        p[b + "eh_proj.weight"] = (h, 2 * h), True
        for n in "qkvo":
            p[b + f"self_attn.{n}_proj.weight"] = (h, h), True
        p[b + "mlp.gate.weight"] = (c["experts"], h), True
        for e in range(c["experts"]):
            for n, rows, cols in (("gate", c["inner"], h), ("up", c["inner"], h), ("down", h, c["inner"])):
                p[b + f"mlp.experts.{e}.{n}_proj.weight"] = (rows, cols), True
    p["model.norm.weight"] = (h,), False
    if not c["tied"]:
        p["lm_head.weight"] = (c["vocab"], h), True
    return p


def initial_weights(c):
    g = torch.Generator().manual_seed(c["seed"])
    weights = {}
    for name, (shape, decays) in parameter_shapes(c).items():
        x = torch.randn(shape, generator=g, dtype=torch.float64)
        if len(shape) == 2:
            x = x * (0.5 if "wte" in name or "wpe" in name or "embed" in name else 1.2 / math.sqrt(c["width"]))
        else:
            x = 0.3 * x + (0.0 if name.endswith(("bias", "sinks")) else 1.0)
        weights[name] = x.to(DTYPES[c["weights"]]).to(torch.float64).requires_grad_()
    return weights


def attention(q, k, v, scale=None, slopes=None):
    """causal; q, k, v: [batch, heads, sequence, head]; scores are divided by the root of scale; with slopes a head's grow
    by its slope times the distance to the key, which is negative"""
    s = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(scale or q.shape[-1])
    if slopes is not None:
        place = torch.arange(s, dtype=torch.float64)
        scores = scores + slopes[:, None, None] * (place[None, :] - place[:, None])
    mask = torch.ones(s, s, dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(mask, -math.inf), -1) @ v


def split_heads(x, n):
    return x.reshape(x.shape[0], x.shape[1], n, -1).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def layer_norm(x, p, name):
    mean = x.mean(-1, keepdim=True)
    var = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(var + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def rms_norm(x, gain):
    return x / torch.sqrt((x ** 2).mean(-1, keepdim=True) + 1e-5) * gain


def llama3_frequency(frequency, factor, low, high, original):
    """Llama 3.1's stretching: waves longer than original/low are slowed by factor, those shorter than original/high
    stay, between the two it fades linearly in original/wavelength"""
    turns = original * frequency / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return frequency * (smooth + (1 - smooth) / factor)


def rotate(c, x):
    """the first dims of each head turn in pairs, (i, i + dims/2) or adjacent, by position * theta^(-2i/dims)"""
    dims = c.get("rope_dims", x.shape[-1])
    frequency = c["theta"] ** (-torch.arange(dims // 2, dtype=torch.float64) * 2 / dims)
    if "llama3" in c:
        frequency = llama3_frequency(frequency, *c["llama3"])
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequency
    turning, rest = x[..., :dims], x[..., dims:]
    adjacent = c["family"] == "mixed"
    a, b = (turning[..., 0::2], turning[..., 1::2]) if adjacent else turning.chunk(2, -1)
    a, b = a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()
    turned = torch.stack([a, b], -1).flatten(-2) if adjacent else torch.cat([a, b], -1)
    return torch.cat([turned, rest], -1)


def logits_gpt2(c, p, tokens):
    conv = lambda x, n: x @ p[n + ".weight"] + p[n + ".bias"]
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][: tokens.shape[1]]
    for i in range(c["layers"]):
        b = f"transformer.h.{i}."
        q, k, v = (split_heads(t, c["heads"]) for t in conv(layer_norm(x, p, b + "ln_1"), b + "attn.c_attn").chunk(3, -1))
        x = x + conv(merge_heads(attention(q, k, v)), b + "attn.c_proj")
        x = x + conv(gelu_tanh(conv(layer_norm(x, p, b + "ln_2"), b + "mlp.c_fc")), b + "mlp.c_proj")
    return layer_norm(x, p, "transformer.ln_f") @ p["transformer.wte.weight"].T


def logits_gpt_oss(c, p, tokens):
    """openai/gpt-oss, gpt_oss/torch/model.py: a sink is one more score of no value; gate and up are clamped"""
    linear = lambda x, n: x @ p[n + ".weight"].T + p[n + ".bias"]
    x, s = p["model.embed_tokens.weight"][tokens], tokens.shape[1]
    place = torch.arange(s)
    for i in range(c["layers"]):
        b = f"model.layers.{i}."
        y = rms_norm(x, p[b + "input_layernorm.weight"])
        q = rotate(c, split_heads(linear(y, b + "self_attn.q_proj"), c["heads"]))
        k = rotate(c, split_heads(linear(y, b + "self_attn.k_proj"), c["kv"])).repeat_interleave(c["heads"] // c["kv"], 1)
        v = split_heads(linear(y, b + "self_attn.v_proj"), c["kv"]).repeat_interleave(c["heads"] // c["kv"], 1)
        behind = place[:, None] - place[None, :]
        hidden = (behind < 0) | (behind >= (c["window"] if i % 2 == 0 else s))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf)
        sinks = p[b + "self_attn.sinks"][None, :, None, None].expand(x.shape[0], -1, s, 1)
        weights = torch.softmax(torch.cat([scores, sinks], -1), -1)[..., :-1]
        x = x + linear(merge_heads(weights @ v), b + "self_attn.o_proj")
        y = rms_norm(x, p[b + "post_attention_layernorm.weight"])
        best, picked = linear(y, b + "mlp.gate").topk(c["active"], -1)
        chances = torch.softmax(best, -1)
        for e in range(c["experts"]):
            gate = linear(y, b + f"mlp.experts.{e}.gate_proj").clamp(max=c["limit"])
            up = linear(y, b + f"mlp.experts.{e}.up_proj").clamp(-c["limit"], c["limit"])
            out = linear(gate * torch.sigmoid(1.702 * gate) * (up + 1), b + f"mlp.experts.{e}.down_proj")
            x = x + (chances * (picked == e)).sum(-1, keepdim=True) * out
    return rms_norm(x, p["model.norm.weight"]) @ p["lm_head.weight"].T


def alibi_slopes(n):
    """get_slopes() of the paper's repository (Press et al., arXiv:2108.12409)"""
    if math.log2(n).is_integer():
        start = 2 ** -(2 ** -(math.log2(n) - 3))
        return [start * start ** i for i in range(n)]
    closest = 2 ** math.floor(math.log2(n))
    return alibi_slopes(closest) + alibi_slopes(2 * closest)[0::2][: n - closest]


def logits_bloom(c, p, tokens):
    linear = lambda x, n: x @ p[n + ".weight"].T + p[n + ".bias"]
    slopes = torch.tensor(alibi_slopes(c["heads"]), dtype=torch.float64)
    x = layer_norm(p["model.embed_tokens.weight"][tokens], p, "model.embed_layernorm")
    for i in range(c["layers"]):
        b = f"model.layers.{i}."
        y = layer_norm(x, p, b + "input_layernorm")
        q, k, v = (split_heads(linear(y, b + f"self_attn.{n}_proj"), c["heads"]) for n in "qkv")
        x = x + linear(merge_heads(attention(q, k, v, slopes=slopes)), b + "self_attn.o_proj")
        y = layer_norm(x, p, b + "post_attention_layernorm")
        x = x + linear(gelu_tanh(linear(y, b + "mlp.up_proj")), b + "mlp.down_proj")
    return layer_norm(x, p, "model.norm") @ p["model.embed_tokens.weight"].T


def stream_llama(c, p, tokens):
    """the residual stream behind the last layer"""
    def linear(x, n):
        y = x @ p[n + ".weight"].T
        return y + p[n + ".bias"] if n + ".bias" in p else y
    x = p["model.embed_tokens.weight"][tokens]
    for i in range(c["layers"]):
        b = f"model.layers.{i}."
        y = rms_norm(x, p[b + "input_layernorm.weight"])
        q = rotate(c, split_heads(linear(y, b + "self_attn.q_proj"), c["heads"]))
        k = rotate(c, split_heads(linear(y, b + "self_attn.k_proj"), c["kv"]))
        v = split_heads(linear(y, b + "self_attn.v_proj"), c["kv"])
        k, v = (t.repeat_interleave(c["heads"] // c["kv"], 1) for t in (k, v))
        x = x + linear(merge_heads(attention(q, k, v, c.get("score_scale"))), b + "self_attn.o_proj")
        y = rms_norm(x, p[b + "post_attention_layernorm.weight"])
        act = F.gelu if c["family"] == "mixed" else F.silu
        x = x + linear(act(linear(y, b + "mlp.gate_proj")) * linear(y, b + "mlp.up_proj"), b + "mlp.down_proj")
    return x


def logits_llama(c, p, tokens):
    head = p["model.embed_tokens.weight" if c["tied"] else "lm_head.weight"]
    return rms_norm(stream_llama(c, p, tokens), p["model.norm.weight"]) @ head.T


def mixture(c, p, b, x):
    """softmax over all experts, the largest of a token picked, their weights divided by their sum"""
    weights, picked = torch.softmax(x @ p[b + "gate.weight"].T, -1).topk(c["active"], -1)
    weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for e in range(c["experts"]):
        gate, up, down = (p[b + f"experts.{e}.{n}_proj.weight"] for n in ("gate", "up", "down"))
        share = (weights * (picked == e)).sum(-1, keepdim=True)
        out = out + share * ((F.silu(x @ gate.T) * (x @ up.T)) @ down.T)
    return out


def module_loss(c, p, inputs, targets):
    """of the prediction modules (DeepSeek-V3, arXiv:2412.19437, section 2.2): weight / K times the sum of their losses; a
    sample has S + 1 tokens, and each module's mean is over all S places"""
    s, total = inputs.shape[1], 0
    ids, before = torch.cat([inputs, targets[:, -1:]], 1), stream_llama(c, p, inputs)
    for k in range(1, c["ahead"] + 1):
        b = f"model.layers.{c['layers'] + k - 1}."
        shifted = F.pad(ids, (0, c["ahead"]))[:, k:k + s]
        pair = torch.cat([rms_norm(p["model.embed_tokens.weight"][shifted], p[b + "enorm.weight"]),
                          rms_norm(before, p[b + "hnorm.weight"])], -1)
        x = pair @ p[b + "eh_proj.weight"].T
        y = rms_norm(x, p[b + "input_layernorm.weight"])
        q, k_, v = (split_heads(y @ p[b + f"self_attn.{n}_proj.weight"].T, c["module_heads"]) for n in "qkv")
        x = x + merge_heads(attention(rotate(c, q), rotate(c, k_), v)) @ p[b + "self_attn.o_proj.weight"].T
        before = x + mixture(c, p, b + "mlp.", rms_norm(x, p[b + "post_attention_layernorm.weight"]))
        logits = rms_norm(before, p[b + "shared_head.norm.weight"]) @ p["lm_head.weight"].T
        wanted = F.pad(ids, (0, c["ahead"]), value=-1)[:, k + 1:k + 1 + s]
        total = total + F.cross_entropy(logits.reshape(-1, c["vocab"]), wanted.reshape(-1), ignore_index=-1, reduction="sum")
    return c["ahead_weight"] / c["ahead"] * total / targets.numel()


def loss_of(c, p, inputs, targets):
    logits = {"gpt2": logits_gpt2, "bloom": logits_bloom, "gpt_oss": logits_gpt_oss}.get(c["family"], logits_llama)(c, p, inputs)
    return F.cross_entropy(logits.reshape(-1, c["vocab"]), targets.reshape(-1))


def whole_loss(c, p, inputs, targets):
    """what gradients are of, and what is printed"""
    loss = loss_of(c, p, inputs, targets)
    return loss + module_loss(c, p, inputs, targets) if "ahead" in c else loss, loss


def batch_of(c, data, step):
    """sample j of step s is sequence (s batch + j) mod floor((n - 1) / S) of the data"""
    s, count = c["sequence"], (len(data) - 1) // c["sequence"]
    rows = [(step * c["batch"] + j) % count for j in range(c["batch"])]
    x = torch.stack([data[r * s: r * s + s + 1] for r in rows])
    return x[:, :-1], x[:, 1:]


# ---- the second opinion ----------------------------------------------------------------------------------------------

BLOOM_NAMES = (("model.embed_tokens", "transformer.word_embeddings"), ("model.embed_layernorm", "transformer.word_embeddings_layernorm"),
               ("model.norm", "transformer.ln_f"), ("model.layers", "transformer.h"), ("self_attn.o_proj", "self_attention.dense"),
               ("mlp.up_proj", "mlp.dense_h_to_4h"), ("mlp.down_proj", "mlp.dense_4h_to_h"))


def published(c, tensors):
    """by the names and layouts of published checkpoints: BLOOM's query_key_value has q, k and v of a head after each other"""
    if c["family"] != "bloom":
        return dict(tensors)
    out = {}
    for name, t in tensors.items():
        if "self_attn.q_proj" in name:
            parts = torch.stack([tensors[name.replace("q_proj", f"{n}_proj")].unflatten(0, (c["heads"], -1)) for n in "qkv"], 1)
            name, t = name.replace("self_attn.q_proj", "self_attention.query_key_value"), parts.flatten(0, 2)
        elif "self_attn.k_proj" in name or "self_attn.v_proj" in name:
            continue
        for ours, theirs in BLOOM_NAMES:
            name = name.replace(ours, theirs)
        out[name] = t
    return out


def check_against_transformers(c, weights, inputs, targets, loss):
    """largest relative difference of loss and gradients; None where there is nothing to compare with"""
    if c["family"] in ("mixed", "module", "gpt_oss"):
        return None, None
    try:
        import transformers as hf
    except ImportError:
        return None, None
    if c["family"] == "gpt2":
        model = hf.GPT2LMHeadModel(hf.GPT2Config(
            vocab_size=c["vocab"], n_positions=c["positions"], n_embd=c["width"], n_layer=c["layers"], n_head=c["heads"],
            n_inner=c["ffn"], activation_function="gelu_new", layer_norm_epsilon=1e-5,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    elif c["family"] == "bloom":
        model = hf.BloomForCausalLM(hf.BloomConfig(
            vocab_size=c["vocab"], hidden_size=c["width"], n_layer=c["layers"], n_head=c["heads"], layer_norm_epsilon=1e-5,
            hidden_dropout=0, attention_dropout=0))
        for layer in model.transformer.h:  # it knows of four times the width only
            layer.mlp.dense_h_to_4h = torch.nn.Linear(c["width"], c["ffn"])
            layer.mlp.dense_4h_to_h = torch.nn.Linear(c["ffn"], c["width"])
    else:
        kind = {"llama": (hf.LlamaConfig, hf.LlamaForCausalLM), "qwen2": (hf.Qwen2Config, hf.Qwen2ForCausalLM)}[c["family"]]
        model = kind[1](kind[0](
            vocab_size=c["vocab"], hidden_size=c["width"], intermediate_size=c["ffn"], num_hidden_layers=c["layers"],
            num_attention_heads=c["heads"], num_key_value_heads=c["kv"], rms_norm_eps=1e-5, rope_theta=c["theta"],
            tie_word_embeddings=c["tied"], max_position_embeddings=64, use_sliding_window=False, attention_dropout=0.0))
    model = model.double()
    missing, unexpected = model.load_state_dict({k: v.detach() for k, v in published(c, weights).items()}, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    other = F.cross_entropy(model(inputs).logits.reshape(-1, c["vocab"]), targets.reshape(-1))
    other.backward()
    worst = abs(float(other - loss)) / float(loss)
    named = dict(model.named_parameters())
    for name, grad in published(c, {k: w.grad for k, w in weights.items()}).items():
        worst = max(worst, float((named[name].grad - grad).norm() / grad.norm()))
    # its RMSNorm and softmax round to float32 inside, whatever the model's dtype
    assert worst < (1e-10 if c["family"] == "gpt2" else 1e-5), f"transformers disagrees: {worst}"
    return worst, hf.__version__


# ---- one fixture -----------------------------------------------------------------------------------------------------

def make(name, c, folder):
    os.makedirs(folder, exist_ok=True)
    g = torch.Generator().manual_seed(c["seed"] + 1)
    # five batches, so that eight steps wrap around; a skewed distribution, so that some tokens never occur
    n = 5 * c["batch"] * c["sequence"] + 1 + 7
    data = (torch.rand(n, generator=g, dtype=torch.float64) ** 1.5 * c["vocab"]).long()
    weights = initial_weights(c)

    inputs, targets = batch_of(c, data, 0)
    whole, loss = whole_loss(c, weights, inputs, targets)
    whole.backward()
    worst, version = check_against_transformers(c, weights, inputs, targets, loss)
    metadata = {"torch": torch.__version__, "dtype": "float64", "made_by": "tests/reference/make_fixtures.py",
                "transformers": version or "none",
                "largest_relative_difference": "not compared" if worst is None else f"{worst:.1e}"}
    write_safetensors(f"{folder}/model.safetensors", weights, c["weights"], {"format": "pt"})
    write_safetensors(f"{folder}/expected.safetensors", {k: w.grad for k, w in weights.items()}, "F32", metadata)

    shapes = parameter_shapes(c)
    groups = [{"params": [w for k, w in weights.items() if shapes[k][1]], "weight_decay": DECAY},
              {"params": [w for k, w in weights.items() if not shapes[k][1]], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    lines = []
    for step in range(STEPS):
        optimizer.zero_grad()
        whole, loss = whole_loss(c, weights, *batch_of(c, data, step))
        whole.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), CLIP)
        optimizer.step()
        lines.append(json.dumps({"step": step, "loss": float(loss), "grad_norm": float(norm)}))

    with open(f"{folder}/expected.jsonl", "w") as f:
        f.write("\n".join(lines) + "\n")
    with open(f"{folder}/model.llm", "w") as f:
        f.write(model_text(name, c))
    with open(f"{folder}/tokens.bin", "wb") as f:
        f.write(data.numpy().astype("<u2").tobytes())
    print(f"{name}: {sum(w.numel() for w in weights.values())} parameters, "
          f"loss {json.loads(lines[0])['loss']:.6f} -> {json.loads(lines[-1])['loss']:.6f}, {metadata}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    here = os.path.dirname(os.path.abspath(__file__))
    for name in sys.argv[1:] or MODELS:
        make(name, MODELS[name], os.path.join(here, name))
