#!/usr/bin/env python3
"""Tokens per second of PyTorch (eager, fp32, CPU) training the model of a .llm file that has the shape of
plans/tiny-llama: rmsnorm, rope, gqa, swiglu.  The counterpart of llmrun's figure in the same benchmark run.

    torch_tokens.py MODEL.llm STEPS THREADS [MICROBATCH]     prints one JSON object; exit 4 where PyTorch is not installed

The step is what llmrun's is: forward, backward, clipping, AdamW.  Without MICROBATCH several numbers of sequences per
forward are tried (gradients accumulate over the batch) and the fastest counts, so that PyTorch is not held to our
microbatch.  tokens_per_s is the median step's; tokens_per_cpu_s counts the processor time of all threads.
"""

import json
import math
import re
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(4)


def read_shape(path):
    text = re.sub(r"#.*", "", open(path).read())
    def number(pattern):
        return int(re.search(pattern, text).group(1).replace("_", ""))
    c = {"vocab": number(r"\bvocab\s+([\d_]+)"), "width": number(r"\bwidth\s+([\d_]+)"),
         "layers": number(r"\brepeat\s+([\d_]+)"), "heads": number(r"\bheads=([\d_]+)"),
         "ffn": number(r"\bswiglu\(([\d_]+)"), "sequence": number(r"\bsequence\s+([\d_]+)")}
    c["kv"] = number(r"\bkv=([\d_]+)") if "kv=" in text else c["heads"]
    batch = re.search(r"\bbatch\s+([\d_]+)(Ki|Mi|K|M)?\s+(tokens|sequences)", text)
    n = int(batch.group(1).replace("_", "")) * {"Ki": 1024, "Mi": 1 << 20, "K": 1000, "M": 10 ** 6, None: 1}[batch.group(2)]
    c["batch"] = n // c["sequence"] if batch.group(3) == "tokens" else n
    return c


def make_parameters(c):
    h, f, kv = c["width"], c["ffn"], c["kv"] * (c["width"] // c["heads"])
    def matrix(*shape):
        return (0.02 * torch.randn(*shape)).requires_grad_()
    def gain():
        return torch.ones(h, requires_grad=True)
    layers = [{"n1": gain(), "qkv": matrix(h + 2 * kv, h), "o": matrix(h, h), "n2": gain(),
               "up": matrix(2 * f, h), "down": matrix(h, f)} for _ in range(c["layers"])]
    return {"embed": matrix(c["vocab"], h), "layers": layers, "norm": gain(), "head": matrix(c["vocab"], h)}


def rms_norm(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gain


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def loss_of(c, p, tokens, cos, sin, mask):
    n, s = tokens.shape[0], c["sequence"]
    head, kv = c["width"] // c["heads"], c["kv"]
    x = F.embedding(tokens[:, :-1], p["embed"])
    for l in p["layers"]:
        q, k, v = F.linear(rms_norm(x, l["n1"]), l["qkv"]).split([c["width"], kv * head, kv * head], -1)
        q = rotate(q.view(n, s, c["heads"], head).transpose(1, 2), cos, sin)
        k = rotate(k.view(n, s, kv, head).transpose(1, 2), cos, sin)
        v = v.view(n, s, kv, head).transpose(1, 2)
        k, v = (t.repeat_interleave(c["heads"] // kv, 1) for t in (k, v))
        if hasattr(F, "scaled_dot_product_attention"):
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            a = torch.softmax(q @ k.transpose(-1, -2) * head ** -0.5 + mask, -1) @ v
        x = x + F.linear(a.transpose(1, 2).reshape(n, s, -1), l["o"])
        gate, up = F.linear(rms_norm(x, l["n2"]), l["up"]).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, l["down"])
    logits = F.linear(rms_norm(x, p["norm"]), p["head"])
    return F.cross_entropy(logits.view(-1, c["vocab"]), tokens[:, 1:].reshape(-1), reduction="sum")


def tokens_per_s(c, p, optimizer, leaves, microbatch, steps):
    s, head = c["sequence"], c["width"] // c["heads"]
    angle = torch.arange(s)[:, None] * 10000.0 ** (-torch.arange(head // 2) * 2.0 / head)
    mask = torch.full((s, s), -math.inf).triu(1)
    data = torch.randint(0, c["vocab"], (c["batch"], s + 1))
    walls, start_cpu = [], 0
    for step in range(steps + 1):  # the first warms up
        started = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for part in data.split(microbatch):
            (loss_of(c, p, part, angle.cos(), angle.sin(), mask) / (c["batch"] * s)).backward()
        torch.nn.utils.clip_grad_norm_(leaves, 1.0)
        optimizer.step()
        if step:
            walls.append(time.perf_counter() - started)
        else:
            start_cpu = time.process_time()
    tokens = c["batch"] * s
    return tokens / sorted(walls)[len(walls) // 2], tokens * steps / (time.process_time() - start_cpu)


def main():
    c = read_shape(sys.argv[1])
    steps, tries = int(sys.argv[2]), [int(sys.argv[4])] if len(sys.argv) > 4 else [2, 8, 32]
    torch.set_num_threads(int(sys.argv[3]))
    p = make_parameters(c)
    leaves = [p["embed"], p["norm"], p["head"]] + [w for l in p["layers"] for w in l.values()]
    optimizer = torch.optim.AdamW(leaves, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    rates = {m: tokens_per_s(c, p, optimizer, leaves, m, steps) for m in tries if m <= c["batch"]}
    fastest = max(rates, key=rates.get)
    print(json.dumps({"tokens_per_s": rates[fastest][0], "tokens_per_cpu_s": rates[fastest][1], "microbatch": fastest, "threads": torch.get_num_threads(),
                      "torch": torch.__version__, "parameters": sum(w.numel() for w in leaves)}))


if __name__ == "__main__":
    main()
