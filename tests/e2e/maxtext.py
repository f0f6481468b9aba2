#!/usr/bin/env python3
"""Files of `llmc export --to maxtext`, read as MaxText reads them.

    maxtext.py --llmc build/llmc --work DIR [--draws 200] [--seed 1]

Every key must be one of src/maxtext/configs/base.yml with a value of its kind (2026-08), and mesh, batch and pipeline must
agree as types.py asserts.  From them come the decision and the number of parameters, which must be the plan's.  Exit 1 with a
difference."""

import re
import sys

from exported import differ, draw_plain, drawn, exactly, lacking, options, pinned

AXES = "expert tensor_sequence tensor context fsdp pipeline data".split()
KINDS = {
    int: """base_emb_dim base_num_decoder_layers base_num_query_heads base_num_kv_heads head_dim base_mlp_dim vocab_size
        rope_max_timescale num_experts num_experts_per_tok base_moe_mlp_dim steps max_target_length init_weights_seed
        learning_rate_schedule_steps gradient_accumulation_steps num_layers_per_pipeline_stage num_pipeline_repeats
        num_pipeline_microbatches max_segments_per_seq """ + " ".join(f"{net}_{axis}_parallelism" for net in ("ici", "dcn") for axis in AXES),
    float: """normalization_layer_epsilon rope_linear_scaling_factor capacity_factor load_balance_loss_weight
        gradient_clipping_threshold adam_b1 adam_b2 adam_eps adam_weight_decay learning_rate learning_rate_final_fraction
        warmup_steps_fraction wsd_decay_steps_fraction per_device_batch_size""",
    bool: """attention_bias use_qk_norm logits_via_embedding normalize_embedding_logits enable_dropout norm_topk_prob sparse_matmul
        shard_optimizer_over_data optimizer_memory_host_offload packing""",
    list: "mlp_activations adamw_mask"}
WORDS = {"base_config": ["base.yml"], "hardware": ["gpu"], "decoder_block": ["llama2", "mixtral", "qwen3", "qwen3_moe"],
         "rope_type": ["default", "llama3.1"], "weight_dtype": ["float32"], "dtype": ["float32", "bfloat16"],
         "grad_dtype": ["float32", "bfloat16"], "opt_type": ["adamw", "sgd"], "lr_schedule_type": ["cosine", "wsd"],
         "wsd_decay_style": ["linear"], "remat_policy": ["full", "minimal", "minimal_with_context"],
         "attention": ["cudnn_flash_te"], "context_parallel_strategy": ["all_gather", "ring"]}
KIND = {name: kind for kind, names in KINDS.items() for name in names.split()}


def value_of(key, text):
    if key in WORDS:
        if text not in WORDS[key]:
            raise ValueError(f"{key}: {text}")
        return text
    kind = KIND[key]
    if kind is bool:
        return {"true": True, "false": False}[text]
    if kind is list:
        return re.fullmatch(r"\['([^']+)'(?:, '([^']+)')*\]", text) and re.findall(r"'([^']+)'", text)
    return kind(text)


def read(text):
    c = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            key, value = re.fullmatch(r"([a-z0-9_]+): (.+)", line).groups()
            if key in c:
                raise ValueError(f"{key} twice")
            c[key] = value_of(key, value)
    return c


def check(text, plan):
    d, wrong, c = plan["decision"], [], read(text)
    size = {axis: c[f"ici_{axis}_parallelism"] * c[f"dcn_{axis}_parallelism"] for axis in AXES}
    ici, world, nodes = 1, 1, sum(n for _, n in d["nodes"])
    for axis in AXES:
        ici, world = ici * c[f"ici_{axis}_parallelism"], world * size[axis]
    differ(wrong, "ranks", world, d["tp"] * d["cp"] * d["dp"] * d["pp"])
    differ(wrong, "ranks of a node", ici * nodes, world)
    differ(wrong, "tp", size["tensor"] * size["tensor_sequence"], d["tp"]), differ(wrong, "cp", size["context"], d["cp"])
    if d["tp"] > 1:
        differ(wrong, "sp", size["tensor_sequence"] > 1, d["sp"])
    differ(wrong, "pp", size["pipeline"], d["pp"]), differ(wrong, "ep", size["expert"], d["ep"])
    differ(wrong, "dp", size["data"] * size["fsdp"] * size["expert"], d["dp"])
    if c.get("num_experts"):
        differ(wrong, "etp", 1 if d["ep"] > 1 else d["tp"], d["etp"])
    shard = size["fsdp"] * size["expert"] * size["context"]
    if d["dp"] * d["cp"] > 1:
        zero = 3 if shard > 1 else 1 if c["shard_optimizer_over_data"] else 0
        differ(wrong, "zero", zero, 0 if d["zero"] and d["shard"] == 1 else d["zero"])
        differ(wrong, "shard", shard if zero == 3 else d["shard"], d["shard"])
    batch = c["per_device_batch_size"] * world * c["gradient_accumulation_steps"]
    differ(wrong, "batch", f"{batch:g} sequences", pinned(plan, "batch"))
    passes = c["gradient_accumulation_steps"]
    if d["pp"] > 1:
        differ(wrong, "microbatches over stages", c["num_pipeline_microbatches"] % d["pp"], 0)
        differ(wrong, "layers", size["pipeline"] * c["num_pipeline_repeats"] * c["num_layers_per_pipeline_stage"],
               c["base_num_decoder_layers"])
        differ(wrong, "passes", passes, 1)
        passes = c["num_pipeline_microbatches"]
        differ(wrong, "schedule", "gpipe", d["schedule"])
    differ(wrong, "microbatches", passes, d["microbatches"])
    differ(wrong, "microbatch", batch / passes / d["dp"], d["microbatch"])
    if d["cp"] > 1:
        differ(wrong, "context", c["context_parallel_strategy"], d["context"])
    packed = c.get("packing", True)
    differ(wrong, "packed documents beside gathered keys", packed and d["cp"] > 1 and d["context"] != "ring", False)
    differ(wrong, "segments of packed documents", packed and c.get("max_segments_per_seq", -1) <= 0, False)
    differ(wrong, "recompute", {"minimal": ["core_attn"], "minimal_with_context": [], "full": "full"}[c["remat_policy"]],
           "full" if d["recompute"] == "full" else d["recompute_detail"])
    differ(wrong, "offload", ["optimizer"] * c["optimizer_memory_host_offload"], d["offload"])
    precision = pinned(plan, "precision")
    differ(wrong, "precision", {"bfloat16": "bf16", "float32": "fp32"}[c["dtype"]], precision.split("(")[0])
    differ(wrong, "grads", c["grad_dtype"], "bfloat16" if "grads=bf16" in precision else "float32")
    differ(wrong, "parameters", parameters(c), plan["model"]["parameters"])
    kind, steps = pinned(plan, "lr_schedule"), c.get("learning_rate_schedule_steps", c.get("steps", 0))
    warm = round(c.get("warmup_steps_fraction", 0) * steps)
    if steps:
        differ(wrong, "warmup", warm, int(re.search(r"warmup=(\d+)", kind)[1]) if "warmup" in kind else 0)
        decay = round(c.get("wsd_decay_steps_fraction", 0) * steps)
        differ(wrong, "decay", decay, 20 if kind.startswith("wsd") else steps - warm if kind.startswith("linear") else 0)
    return wrong


def parameters(c):
    h, head = c["base_emb_dim"], c["head_dim"]
    layer = 2 * h + h * head * 2 * (c["base_num_query_heads"] + c["base_num_kv_heads"])
    layer += c["num_experts"] * (3 * h * c["base_moe_mlp_dim"] + h) if "num_experts" in c else 3 * h * c["base_mlp_dim"]
    return c["base_num_decoder_layers"] * layer + h + c["vocab_size"] * h * (1 if c["logits_via_embedding"] else 2)


def wanted(plan):
    d, precision, kind = plan["decision"], pinned(plan, "precision"), pinned(plan, "lr_schedule")
    out = lacking(plan, (0, 1, 3), (3,), (False, True), ("ring", "all_gather", "all_to_all"), ("ep", "etp"), ("full",), (), ("optimizer",))
    out = [line for line in out if line not in ("schedule gpipe", "recompute core_attn", "ranks in pp_before_dp order")]
    if d["pp"] > 1 and d["vpp"] > 1 and d["schedule"] == "interleaved":
        out.append("groups of pp microbatches")
    counts = [0 if not t else int(t.split("*")[1]) if "*" in t else len(t) for t in (p.strip("EL") for p in d["layout"].split("|"))]
    if len(set(counts)) > 1:
        out.append("uneven stages")
    if any(n == 0 and p == "" for n, p in zip(counts, d["layout"].split("|"))):
        out.append("empty stages")
    if d["ep"] > 1 and d["etp"] > 1:
        out.append("ep with etp")
    if precision.startswith("fp16"):
        out.append("precision fp16")
    if precision == "bf16(reduce=bf16)":
        out.append("other_reduce")
    shard = d["shard"] if d["zero"] == 3 and d["dp"] * d["cp"] > 1 else d["cp"]
    data = d["dp"] * d["cp"] // shard
    if d["ep"] > 1 and (d["tp"] > 1 or d["cp"] > 1 or d["zero"] != 3 or d["shard"] % d["ep"]):
        out.append("experts spread otherwise than over ranks of zero 3 that split nothing else")
    inside = shard // d["cp"] > 1 or d["ep"] > 1
    order = [a for a in d["order"] if d[a] > 1]
    early = order == [a for a in ("tp", "cp", "pp", "dp") if d[a] > 1]
    late = order == [a for a in ("tp", "cp", "dp", "pp") if d[a] > 1]
    if d["pp"] > 1 and d["dp"] > 1 and (not late if data == 1 else inside or not early):
        out.append("stages, replicas and shards in another order than replicas of stages of shards")
    if d["zero"] == 1 and d["cp"] > 1:
        out.append("zero 1 with context parallelism")
    if d["cp"] > 1 and d["context"] == "all_to_all":
        out.append("context all_to_all on GPUs")
    if d["pp"] > 1 and d["microbatches"] % d["pp"]:
        out.append("microbatches that pp does not divide")
    if d["offload"] and d["zero"] == 0:
        out.append("offload of optimizer with zero 0")
    if "momentum" in pinned(plan, "optimizer"):
        out.append("SGD with momentum")
    if not pinned(plan, "total") and kind != "constant" and not kind.startswith("wsd"):
        out.append("a learning rate over steps that are not said ('total' says them)")
    return out


def main():
    o = options(__doc__)
    return 1 if drawn(o, "maxtext", check, exactly("maxtext", wanted), draw_plain, 24) else 0


if __name__ == "__main__":
    sys.exit(main())
