#!/usr/bin/env python3
"""Tokens per second of PyTorch training a GPT-2 or Llama on one GPU: what llmrun's figures are compared with.

    torch_baseline.py SHAPE.json [--steps N] [--device cuda|cpu] [--eager]      one JSON object on stdout

SHAPE.json: kind (gpt2 or llama), vocab, width, layers, heads, kv, head, ffn, sequence, microbatch, accumulate, tied.
Exit 4 with one line where PyTorch is not installed, 5 where the device is missing or its memory does not hold the model.

What a careful user of PyTorch does: fp32 weights, bf16 autocast, torch.compile, scaled_dot_product_attention held to its
flash and cuDNN kernels, fused AdamW with weight decay, clipping, TF32 allowed, gradients accumulated over microbatches,
random tokens on the device.  Without autocast, in pure bf16, it would be faster and train worse: llmrun keeps fp32 masters
and sums, so this does.  Time is between events around each step; the first steps warm up and compile.
"""

import argparse
import json
import sys
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    print("PyTorch is missing: `import torch` fails for " + sys.executable, file=sys.stderr)
    sys.exit(4)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), 1e-5)
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight.to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q, k, v, groups):
    if groups == 1:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    try:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    except TypeError:  # before 2.5
        return F.scaled_dot_product_attention(q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), is_causal=True)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, gpt, h = c, c["kind"] == "gpt2", c["width"]
        norm = nn.LayerNorm if gpt else RMSNorm
        self.norm1, self.norm2 = norm(h), norm(h)
        self.qkv = nn.Linear(h, (c["heads"] + 2 * c["kv"]) * c["head"], bias=gpt)
        self.out = nn.Linear(c["heads"] * c["head"], h, bias=gpt)
        self.up = nn.Linear(h, c["ffn"] * (1 if gpt else 2), bias=gpt)
        self.down = nn.Linear(c["ffn"], h, bias=gpt)

    def forward(self, x, cos, sin):
        c, (n, s, _) = self.c, x.shape
        q, k, v = self.qkv(self.norm1(x)).split([c["heads"] * c["head"], c["kv"] * c["head"], c["kv"] * c["head"]], -1)
        q, k, v = (t.view(n, s, -1, c["head"]).transpose(1, 2) for t in (q, k, v))
        if cos is not None:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        a = attention(q, k, v, c["heads"] // c["kv"])
        x = x + self.out(a.transpose(1, 2).reshape(n, s, -1))
        u = self.up(self.norm2(x))
        if c["kind"] == "gpt2":
            return x + self.down(F.gelu(u, approximate="tanh"))
        gate, up = u.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, gpt = c, c["kind"] == "gpt2"
        self.vocab = (c["vocab"] + 63) // 64 * 64  # rows that no token has, for the products' sake
        self.embed = nn.Embedding(self.vocab, c["width"])
        self.places = nn.Embedding(c["sequence"], c["width"]) if gpt else None
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(c["width"]) if gpt else RMSNorm(c["width"])
        self.head = nn.Linear(c["width"], self.vocab, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        if c["tied"]:
            self.head.weight = self.embed.weight
        if not gpt:
            angle = torch.arange(c["sequence"])[:, None] * 500000.0 ** (-torch.arange(0, c["head"], 2) / c["head"])
            self.register_buffer("cos", angle.cos().to(torch.bfloat16), persistent=False)
            self.register_buffer("sin", angle.sin().to(torch.bfloat16), persistent=False)

    def forward(self, ids, targets):
        x = self.embed(ids).to(torch.bfloat16)
        if self.places is not None:
            x = x + self.places.weight.to(torch.bfloat16)[: ids.shape[1]]
        cos, sin = (self.cos, self.sin) if self.places is None else (None, None)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def make_step(c, model, params, optimizer, device):
    def step(data):
        for part in data.split(c["microbatch"]):
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = model(part[:, :-1], part[:, 1:]) / c["accumulate"]
            loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss
    return step


def clock(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(c, o):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    cuda = o.device == "cuda"
    net = Model(c).to(o.device)
    params = [p for p in net.parameters() if p.requires_grad]
    matrices = [p for p in params if p.dim() > 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), **({"fused": True} if cuda else {}))
    model = net if o.eager else torch.compile(net)
    step = make_step(c, model, params, optimizer, o.device)
    rows = c["microbatch"] * c["accumulate"]
    seconds, started, loss = [], clock(o.device), None
    for i in range(o.warm + o.steps):
        data = torch.randint(0, c["vocab"], (rows, c["sequence"] + 1), device=o.device)
        begin = clock(o.device)
        loss = step(data)
        if i >= o.warm:
            seconds.append(clock(o.device) - begin)
        if i + 1 == o.warm:
            print("warm after %.0f s" % (clock(o.device) - started), file=sys.stderr)
    seconds.sort()
    tokens = rows * c["sequence"]
    return {"tokens_per_s": tokens / seconds[len(seconds) // 2], "step_s": seconds[len(seconds) // 2], "best_step_s": seconds[0],
            "steps": o.steps, "loss": float(loss.detach()) * c["accumulate"], "parameters": sum(p.numel() for p in params),
            "peak_bytes": torch.cuda.max_memory_allocated() if cuda else 0, "torch": torch.__version__, "compiled": not o.eager,
            "device": torch.cuda.get_device_name() if cuda else "cpu"}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("shape")
    a.add_argument("--steps", type=int, default=10)
    a.add_argument("--warm", type=int, default=3)
    a.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    a.add_argument("--eager", action="store_true")
    o = a.parse_args()
    with open(o.shape) as f:
        c = json.load(f)
    if o.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch %s finds no GPU" % torch.__version__, file=sys.stderr)
        return 5
    try:
        if o.device == "cuda" and hasattr(nn, "attention") and not o.eager:
            from torch.nn.attention import SDPBackend, sdpa_kernel
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
                result = measure(c, o)
        else:
            result = measure(c, o)
    except RuntimeError as e:  # out of memory is one
        print("PyTorch: " + str(e).splitlines()[0], file=sys.stderr)
        return 5
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
