#!/usr/bin/env python3
"""Files of `llmc export --to accelerate`, read as `accelerate launch --config_file` reads them.

    accelerate.py --llmc build/llmc --work DIR [--draws 200] [--seed 1]

Every key must be a field of accelerate's ClusterConfig or an argument of its launcher (2026-07), and the sizes of
parallelism_config must be what ParallelismConfig takes.  From them, and the head's launch line, come the decision and the
machines, which must be the plan's.  Where accelerate is installed, its own ClusterConfig reads the files, too.  Exit 1 with a
difference."""

import re
import sys

from deepspeed import wanted as deepspeed_wanted
from exported import differ, draw_plain, drawn, exactly, installed, lacking, options, pinned

TOP = """compute_environment num_machines machine_rank num_processes main_process_ip main_process_port same_network
    main_training_function mixed_precision distributed_type fsdp_config parallelism_config deepspeed_config""".split()
INNER = {
    "fsdp_config": """fsdp_version fsdp_reshard_after_forward fsdp_auto_wrap_policy fsdp_activation_checkpointing fsdp_offload_params
        fsdp_state_dict_type""".split(),
    "parallelism_config": [f"parallelism_config_{x}" for x in ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size",
                                                               "cp_comm_strategy")],
    "deepspeed_config": ["deepspeed_config_file", "zero3_init_flag"]}
OWN = None  # accelerate's own reader


def scalar(text):
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if text in ("no", "NO", "yes", "on", "off", "null", "~", ""):
        raise ValueError(f"YAML reads {text!r} as something else")
    return text[1:-1] if text[0] == "'" == text[-1] else text


def read(text):
    """the part of YAML that these files are: mappings of scalars, one level deep"""
    c, inner = {}, None
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        indent, key, value = re.fullmatch(r"(  )?([a-z0-9_]+):(?: (.+))?", line).groups()
        place = inner if indent else c
        if key in place or key not in (INNER[name] if indent else TOP):
            raise ValueError(f"{key}: unknown or twice")
        if value is None:
            name, inner = key, {}
            c[key] = inner
        else:
            place[key] = scalar(value)
    return c


def check(text, plan):
    d, wrong, c = plan["decision"], [], read(text)
    f = c.get("fsdp_config", {})
    p = {k.removeprefix("parallelism_config_"): v for k, v in c.get("parallelism_config", {}).items()}
    kind, world = c["distributed_type"], c["num_processes"]
    differ(wrong, "ranks", world, d["tp"] * d["cp"] * d["dp"] * d["pp"])
    differ(wrong, "machines", c["num_machines"], sum(n for _, n in d["nodes"]))
    differ(wrong, "processes that machines do not share evenly", world % c["num_machines"], 0)
    if kind == "DEEPSPEED":  # the rest is in its file
        differ(wrong, "file", c["deepspeed_config"]["deepspeed_config_file"], "ds_config.json")
        differ(wrong, "precision beside DeepSpeed's file", c.get("mixed_precision"), None)
        differ(wrong, "zero", 1, d["zero"])
        return wrong
    tp, cp = p.get("tp_size", 1), p.get("cp_size", 1)
    replicate, shard = p.get("dp_replicate_size", world), p.get("dp_shard_size", 1)
    differ(wrong, "sizes", replicate * shard * cp * tp, world)
    differ(wrong, "tp", tp, d["tp"]), differ(wrong, "cp", cp, d["cp"]), differ(wrong, "dp", replicate * shard, d["dp"])
    differ(wrong, "pp", 1, d["pp"])
    if replicate > 1 and shard == 1 and (p or kind == "FSDP"):
        wrong.append("dp_replicate without dp_shard")
    if p and (kind != "FSDP" or f["fsdp_version"] != 2):
        wrong.append("a mesh without FSDP 2")
    if d["dp"] * d["cp"] > 1:
        zero = {"MULTI_GPU": 0, "FSDP": 3 if f.get("fsdp_reshard_after_forward") else 2}[kind]
        differ(wrong, "zero", zero, d["zero"] if d["shard"] > 1 else 0)
        if kind == "FSDP":
            differ(wrong, "shard", shard * cp, d["shard"])
    if cp > 1:
        differ(wrong, "context", {"allgather": "all_gather", "alltoall": "ring"}[p["cp_comm_strategy"]], d["context"])
    differ(wrong, "recompute", "full" if f.get("fsdp_activation_checkpointing") else "none", d["recompute"])
    differ(wrong, "precision", {"no": "fp32"}.get(c["mixed_precision"], c["mixed_precision"]), pinned(plan, "precision").split("(")[0])
    again = int(re.search(r"ACCELERATE_GRADIENT_ACCUMULATION_STEPS=(\d+) accelerate launch", text)[1])
    micro = int(re.search(r"takes (\d+) sequences of 256 tokens", text)[1])
    differ(wrong, "microbatches", again, d["microbatches"]), differ(wrong, "microbatch", micro, d["microbatch"])
    differ(wrong, "batch", f"{again * micro * replicate * shard} sequences", pinned(plan, "batch"))
    if OWN:
        import yaml
        differ(wrong, "processes by accelerate", OWN(**OWN.process_config(yaml.safe_load(text))).num_processes, world)
    return wrong


def wanted(plan):
    d, precision = plan["decision"], pinned(plan, "precision")
    if d["zero"] == 1 and d["dp"] * d["cp"] > 1:
        return deepspeed_wanted(plan) + ["context parallelism with DeepSpeed"] * (d["cp"] > 1)
    fsdp = (d["zero"] >= 2 and d["shard"] > 1 and d["dp"] * d["cp"] > 1) or d["tp"] * d["cp"] > 1
    out = lacking(plan, (0, 2, 3), (2, 3), (False,), ("ring", "all_gather"), (), ("full",), ())
    if d["tp"] * d["cp"] > 1 and d["dp"] > 1 and d["zero"] == 0:
        out.append("zero 0 with tensor or context parallelism")
    if d["tp"] * d["cp"] > 1 and d["dp"] > 1 and d["zero"] >= 2 and d["shard"] == d["cp"]:
        out.append("replicas that split nothing with tensor or context parallelism")
    if not fsdp and d["recompute"] == "full":
        out.append("recompute full without FSDP")
    if fsdp and precision.startswith("fp16"):
        out.append("fp16 with FSDP")
    if fsdp and precision in ("bf16", "bf16(grads=bf16)"):
        out.append("gradients that FSDP does not keep in fp32 and sum in bf16")
    if not fsdp and precision in ("bf16(reduce=bf16)", "bf16(grads=bf16)"):
        out.append("gradients that are kept or summed in another format than fp32")
    if precision == "fp16":
        out.append("a loss scale that is not torch's (scale=65_536, window=2_000, hysteresis=1)")
    return out


def main():
    global OWN
    o = options(__doc__)
    if installed("accelerate") and installed("torch"):
        from accelerate.commands.config.config_args import ClusterConfig as OWN
    else:
        print("accelerate is not installed: its own reader is not asked")
    return 1 if drawn(o, "accelerate", check, exactly("accelerate", wanted), draw_plain, 24) else 0


if __name__ == "__main__":
    sys.exit(main())
