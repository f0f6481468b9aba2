#!/usr/bin/env python3
"""Files of `llmc export --to deepspeed`, read as deepspeed.initialize() reads them.

    deepspeed.py --llmc build/llmc --work DIR [--draws 200] [--seed 1]

Every key must be one of deepspeed/runtime/config.py and the classes that it calls (2026-08); batches must agree as its
_batch_assertion() has it.  From the file come batch, degrees, ZeRO, precision, optimizer and learning rate, which must be the
plan's.  Where deepspeed is installed, its own DeepSpeedConfig reads the files, too.  Exit 1 with a difference."""

import json
import math
import re
import sys

from exported import differ, draw_plain, drawn, exactly, installed, lacking, options, pinned

KEYS = {
    "": """train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps gradient_clipping bf16 fp16 data_types
        communication_data_type zero_optimization tensor_parallel expert_parallel data_parallel_size sequence_parallel_size optimizer
        scheduler zero_allow_untested_optimizer""",
    "bf16": "enabled", "fp16": "enabled initial_scale_power loss_scale_window hysteresis", "data_types": "grad_accum_dtype",
    "zero_optimization": "stage overlap_comm mics_shard_size offload_optimizer", "offload_optimizer": "device pin_memory",
    "tensor_parallel": "autotp_size tp_overlap_comm", "expert_parallel": "enabled autoep_size", "optimizer": "type params",
    "scheduler": "type params"}
PARAMS = {"AdamW": "lr betas eps weight_decay", "SGD": "lr momentum",
          "WarmupLR": "warmup_min_lr warmup_max_lr warmup_num_steps warmup_type",
          "WarmupDecayLR": "total_num_steps warmup_min_lr warmup_max_lr warmup_num_steps warmup_type",
          "WarmupCosineLR": "total_num_steps warmup_min_ratio warmup_num_steps cos_min_ratio warmup_type"}
OWN = None  # DeepSpeed's own reader


def read(text):
    c = json.loads(text, object_pairs_hook=unique)
    look(c, "")
    return c


def unique(pairs):
    if len({k for k, _ in pairs}) < len(pairs):
        raise ValueError(f"a key twice: {pairs}")
    return dict(pairs)


def look(c, place):
    known = PARAMS[c["type"]] if place == "params" else KEYS[place]
    for key, value in c.items():
        if key not in known.split() and not (place == "params" and key == "type"):
            raise ValueError(f"{place}: unknown key {key}")
        if isinstance(value, dict):
            look(value | {"type": c["type"]} if key == "params" else value, key)


def steps():
    return 4_096_000 // 256  # of sequences


def check(text, plan):
    d, wrong, c = plan["decision"], [], read(text)
    world = d["tp"] * d["cp"] * d["dp"] * d["pp"]
    tp, sp = c.get("tensor_parallel", {}).get("autotp_size", 1), c.get("sequence_parallel_size", 1)
    dp = c.get("data_parallel_size", world // tp // sp)
    differ(wrong, "tp", tp, d["tp"]), differ(wrong, "cp", sp, d["cp"]), differ(wrong, "dp", dp, d["dp"])
    differ(wrong, "pp", 1, d["pp"])
    micro, again = c["train_micro_batch_size_per_gpu"], c["gradient_accumulation_steps"]
    differ(wrong, "train_batch_size", micro * again * dp, c["train_batch_size"])
    differ(wrong, "batch", f"{c['train_batch_size']} sequences", pinned(plan, "batch"))
    differ(wrong, "microbatch", micro, d["microbatch"]), differ(wrong, "microbatches", again, d["microbatches"])
    zero = c["zero_optimization"]
    differ(wrong, "zero", zero["stage"], d["zero"])
    if d["zero"] and d["dp"] * d["cp"] > 1:
        differ(wrong, "shard", zero.get("mics_shard_size", dp * sp), d["shard"])
    differ(wrong, "offload", ["optimizer"] * (zero.get("offload_optimizer", {}).get("device") == "cpu"), d["offload"])
    differ(wrong, "ep", c.get("expert_parallel", {}).get("autoep_size", 1), d["ep"])
    if d["cp"] > 1:
        differ(wrong, "context", "all_to_all", d["context"])
    differ(wrong, "recompute", "none", d["recompute"])
    check_training(wrong, c, plan)
    if OWN:
        own = OWN(dict(c) | {"train_batch_size": micro * again})  # one process
        differ(wrong, "zero by DeepSpeed", int(own.zero_optimization_stage), d["zero"])
        differ(wrong, "tp by DeepSpeed", max(own.tensor_parallel_config.autotp_size, 1), d["tp"])
    return wrong


def check_training(wrong, c, plan):
    precision = pinned(plan, "precision")
    differ(wrong, "precision", "bf16" if "bf16" in c else "fp16" if "fp16" in c else "fp32", precision.split("(")[0])
    if not precision.startswith("fp32"):
        grads = "bf16" if "grads=bf16" in precision else "fp32"
        differ(wrong, "grads", c["data_types"]["grad_accum_dtype"], grads)
        differ(wrong, "reduce", c["communication_data_type"], "bf16" if "reduce=bf16" in precision else grads)
    if "fp16" in c:
        wanted = (16, 2000, 1) if "scale=" in precision else (32, 1000, 2)
        differ(wrong, "scale", tuple(c["fp16"][k] for k in ("initial_scale_power", "loss_scale_window", "hysteresis")), wanted)
    o, sgd = c["optimizer"], pinned(plan, "optimizer").startswith("sgd")
    differ(wrong, "optimizer", o["type"], "SGD" if sgd else "AdamW")
    differ(wrong, "lr", o["params"]["lr"], 0.1 if sgd else 1e-3)
    if sgd:
        differ(wrong, "untested optimizer", c.get("zero_allow_untested_optimizer", False), plan["decision"]["zero"] > 0)
    else:
        differ(wrong, "decay", o["params"]["weight_decay"], 0 if "weight_decay=0" in pinned(plan, "optimizer") else 0.1)
    kind, s = pinned(plan, "lr_schedule"), c.get("scheduler")
    differ(wrong, "scheduler", s and s["type"], {"constant": None, "constant(warmup=20)": "WarmupLR",
                                                 "cosine(warmup=20, min=1e-4)": "WarmupCosineLR", "linear(warmup=10)": "WarmupDecayLR"}[kind])
    if s and "total_num_steps" in s["params"]:
        differ(wrong, "steps", s["params"]["total_num_steps"], math.ceil(steps() / c["train_batch_size"]))
    if s:
        differ(wrong, "warmup", s["params"]["warmup_num_steps"], 10 if "linear" in kind else 20)


def wanted(plan):
    d = plan["decision"]
    out = lacking(plan, (0, 1, 2, 3), (3,), (False,), ("all_to_all",), ("ep",), (), ("context_copies", "expert_copies"), ("optimizer",))
    if d["tp"] > 1 and d["cp"] > 1:
        out.append("tensor parallelism beside context parallelism")
    if d["tp"] > 1 and d["ep"] > 1 and d["zero"] == 3:
        out.append("zero 3 with experts and tensor parallelism")
    if d["zero"] == 3 and d["ep"] > 1 and (d["cp"] > 1 or d["shard"] < d["dp"] * d["cp"]):
        out.append("zero 3 with experts and context parallelism, or over some of the replicas")
    precision = pinned(plan, "precision")
    sums = re.search(r"grads=(\w+)", precision)
    if d["zero"] == 0 and not precision.startswith("fp32") and (sums[1] if sums else "fp32") != precision.split("(")[0]:
        out.append("zero 0 with gradients in another format than products")
    if d["zero"] == 3 and d["shard"] < d["dp"] * d["cp"] and d["cp"] > 1:
        out.append("zero 3 over some of the replicas with context parallelism")
    if d["offload"] and d["zero"] == 0:
        out.append("offload of optimizer with zero 0")
    elif d["offload"] and d["tp"] > 1 and d["ep"] > 1:
        out.append("offload of optimizer with experts and tensor parallelism")
    kind = pinned(plan, "lr_schedule")
    if kind.startswith("wsd"):
        out.append("a learning rate that stays before it falls")
    if kind.startswith(("linear", "cosine")) and not pinned(plan, "total"):
        out.append("a learning rate that falls until an end that is not said ('total' or 'decay' says it)")
    return out


def main():
    global OWN
    o = options(__doc__)
    if installed("deepspeed") and installed("torch"):
        from deepspeed.runtime.config import DeepSpeedConfig as OWN
    else:
        print("deepspeed is not installed: its own reader is not asked")
    return 1 if drawn(o, "deepspeed", check, exactly("deepspeed", wanted), draw_plain, 24) else 0


if __name__ == "__main__":
    sys.exit(main())
