#!/usr/bin/env python3
"""Tokens per second of PyTorch training a GPT-2 or Llama on one GPU: what llmrun's figures are compared with.

    torch_baseline.py SHAPE.json [--steps N] [--device cuda|cpu] [--eager] [--autocast]      one JSON object on stdout

SHAPE.json: kind (gpt2 or llama), vocab, width, layers, heads, kv, head, ffn, sequence, microbatch, accumulate, tied.
Exit 4 with one line where PyTorch is not installed, 5 where the device is missing or its memory does not hold the model.

What a careful user of PyTorch does, with llmrun's own policy of numbers: weights in bf16 for all products, their masters, the
sums of gradients over microbatches and the moments in fp32.  torch.compile, also of those sums; of the flash and cuDNN kernels of
scaled_dot_product_attention the one that is faster at this shape; fused AdamW with weight decay on the masters, clipping, TF32
allowed, random tokens on the device.  --autocast has fp32 weights that are rounded at every use instead, which moves more
bytes.  Time is between synchronised ends of steps; the first steps warm up and compile.
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
        x = self.embed(ids).to(torch.bfloat16)  # as it is, without --autocast
        if self.places is not None:
            x = x + self.places.weight.to(torch.bfloat16)[: ids.shape[1]]
        cos, sin = (self.cos, self.sin) if self.places is None else (None, None)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))  # compiled, no fp32 copy


def adamw(params, device):
    groups = [{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), **({"fused": True} if device == "cuda" else {}))


def autocast_step(c, model, params, device):
    optimizer = adamw(params, device)

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


def set_sums(sums, grads):
    torch._foreach_copy_(sums, grads)


def add_sums(sums, grads):
    torch._foreach_add_(sums, grads)


def compiled(function, eager):
    """compiled where that works: what it does is the same"""
    fast = function if eager else torch.compile(function)

    def call(*args):
        nonlocal fast
        try:
            fast(*args)
        except Exception as e:  # whatever the compiler dislikes; out of memory comes again
            if fast is function:
                raise
            print("not compiled: %s: %s" % (function.__name__, str(e).splitlines()[0]), file=sys.stderr)
            fast = function
            fast(*args)
    return call


def master_step(c, model, params, device, eager):
    masters = [nn.Parameter(p.detach().float()) for p in params]
    sums = [torch.zeros_like(m) for m in masters]
    for m, s in zip(masters, sums):
        m.grad = s
    optimizer = adamw(masters, device)
    first, further = compiled(set_sums, eager), compiled(add_sums, eager)

    def step(data):
        for i, part in enumerate(data.split(c["microbatch"])):
            loss = model(part[:, :-1], part[:, 1:]) / c["accumulate"]
            loss.backward()
            with torch.no_grad():
                (further if i else first)(sums, [p.grad for p in params])
            for p in params:
                p.grad = None
        nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(params, masters)
        return loss
    return step


def faster_attention(c):
    """the backend of attention that is faster at this shape, forward and backward"""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    best, best_s = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION], float("inf")
    q, k, v = (torch.randn(c["microbatch"], c["sequence"], n, c["head"], device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
               for n in (c["heads"], c["kv"], c["kv"]))
    for backend in list(best):
        try:
            with sdpa_kernel([backend]):
                for i in range(13):
                    if i == 3:
                        begin = clock("cuda")
                    out = attention(q, k, v, c["heads"] // c["kv"])
                    out.backward(out.detach())
                seconds = clock("cuda") - begin
        except RuntimeError as e:
            print("%s: %s" % (backend, str(e).splitlines()[0]), file=sys.stderr)
            continue
        if seconds < best_s:
            best, best_s = [backend], seconds
    return best


def clock(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(c, o):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    cuda = o.device == "cuda"
    net = Model(c).to(o.device) if o.autocast else Model(c).to(o.device, torch.bfloat16)
    params = [p for p in net.parameters() if p.requires_grad]
    model = net if o.eager else torch.compile(net)
    step = autocast_step(c, model, params, o.device) if o.autocast else master_step(c, model, params, o.device, o.eager)
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
            "peak_bytes": torch.cuda.max_memory_allocated() if cuda else 0, "torch": torch.__version__, "compiled": not o.eager, "weights": "fp32, autocast" if o.autocast else "bf16, fp32 masters",
            "device": torch.cuda.get_device_name() if cuda else "cpu"}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("shape")
    a.add_argument("--steps", type=int, default=10)
    a.add_argument("--warm", type=int, default=3)
    a.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    a.add_argument("--eager", action="store_true")
    a.add_argument("--autocast", action="store_true")
    o = a.parse_args()
    with open(o.shape) as f:
        c = json.load(f)
    if o.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch %s finds no GPU" % torch.__version__, file=sys.stderr)
        return 5
    try:
        if o.device == "cuda" and hasattr(nn, "attention"):
            from torch.nn.attention import sdpa_kernel
            backends = faster_attention(c)
            with sdpa_kernel(backends):
                result = dict(measure(c, o), attention=[b.name for b in backends])
        else:
            result = measure(c, o)
    except RuntimeError as e:  # out of memory is one
        print("PyTorch: " + str(e).splitlines()[0], file=sys.stderr)
        return 5
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
