#!/usr/bin/env python3
"""Scripts of `llmc export --to megatron-bridge`, read as Megatron Bridge reads its overrides.

    megatron_bridge.py --llmc build/llmc --work DIR [--draws 200] [--seed 1]

An override is PATH=VALUE by Hydra's grammar, and every path must be a field of ConfigContainer: here those of
megatron/core/{model_parallel_config,transformer/transformer_config,optimizer/optimizer_config}.py and Bridge's own
(2026-08), on the defaults of its recipe vanilla_gpt_pretrain_config.  From them come Megatron-LM's arguments, and so the
decision and the number of parameters, as megatron.py has them.  Exit 1 with a difference."""

import re
import sys
import types

import megatron
from exported import drawn, options

INT, REAL, WORD, BOOL = int, float, str, "bool"
FIELDS = {  # path: (kind, the recipe's value)
    **{f"model.{name}": (INT, value) for name, value in {
        "num_layers": 1, "hidden_size": 0, "num_attention_heads": 0, "kv_channels": None, "num_query_groups": None,
        "ffn_hidden_size": None, "vocab_size": None, "make_vocab_size_divisible_by": 128, "rotary_base": 10000,
        "seq_len_interpolation_factor": None, "num_moe_experts": None, "moe_router_topk": 2, "moe_ffn_hidden_size": None,
        "moe_shared_expert_intermediate_size": None, "moe_router_num_groups": None, "moe_router_group_topk": None,
        "mtp_num_layers": None, "seq_length": 1024, "tensor_model_parallel_size": 1, "context_parallel_size": 1,
        "pipeline_model_parallel_size": 1, "expert_model_parallel_size": 1, "expert_tensor_parallel_size": None,
        "virtual_pipeline_model_parallel_size": None, "microbatch_group_size_per_vp_stage": None,
        "recompute_num_layers": None}.items()},
    **{f"model.{name}": (REAL, value) for name, value in {
        "layernorm_epsilon": 1e-5, "rotary_percent": 1.0, "rope_scaling_factor": 1.0, "hidden_dropout": 0.1,
        "attention_dropout": 0.1, "moe_router_topk_scaling_factor": None, "moe_router_bias_update_rate": 1e-3,
        "moe_aux_loss_coeff": 0.0, "moe_expert_capacity_factor": None, "mtp_loss_scaling_factor": 0.1,
        "init_method_std": 0.02}.items()},
    **{f"model.{name}": (BOOL, value) for name, value in {
        "should_pad_vocab": False, "qk_layernorm": False, "rotary_interleaved": False, "rope_scaling": False,
        "gated_linear_unit": False, "bias_activation_fusion": False, "add_bias_linear": True, "add_qkv_bias": False,
        "moe_router_pre_softmax": False, "moe_router_enable_expert_bias": False, "moe_grouped_gemm": False,
        "share_embeddings_and_output_weights": True, "sequence_parallel": False, "tp_comm_overlap": False,
        "overlap_moe_expert_parallel_comm": False, "delay_wgrad_compute": False, "moe_permute_fusion": False,
        "use_te_rng_tracker": False}.items()},
    **{f"model.{name}": (WORD, value) for name, value in {
        "normalization": "LayerNorm", "position_embedding_type": "learned_absolute", "activation_func": "gelu",
        "softmax_type": "vanilla", "moe_router_score_function": "softmax", "moe_router_load_balancing_type": "aux_loss",
        "moe_router_dtype": None, "moe_token_dispatcher_type": "allgather", "moe_flex_dispatcher_backend": "deepep",
        "cp_comm_type": None, "pipeline_model_parallel_layout": None, "recompute_granularity": None,
        "recompute_method": None, "cuda_graph_impl": "none"}.items()},
    "model.moe_layer_freq": (list, 1), "model.recompute_modules": (list, None), "model.window_size": (list, None),
    "model.cuda_graph_modules": (list, []), "rerun_state_machine.check_for_nan_in_loss": (BOOL, True),
    "ddp.check_for_nan_in_grad": (BOOL, True),
    "tokenizer.vocab_size": (INT, None), "dataset.seq_length": (INT, 1024), "train.global_batch_size": (INT, 32),
    "train.micro_batch_size": (INT, 2), "train.train_iters": (INT, 300000), "mixed_precision": (WORD, "bf16_mixed"),
    "optimizer.use_precision_aware_optimizer": (BOOL, False), "optimizer.exp_avg_dtype": (WORD, "torch.float32"),
    "optimizer.exp_avg_sq_dtype": (WORD, "torch.float32"), "optimizer.optimizer": (WORD, "adam"),
    **{f"optimizer.{name}": (REAL, value) for name, value in {
        "sgd_momentum": 0.9, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "weight_decay": 0.1, "lr": 3e-4,
        "min_lr": 3e-5, "clip_grad": 1.0}.items()},
    "optimizer.use_distributed_optimizer": (BOOL, True), "optimizer.optimizer_cpu_offload": (BOOL, False),
    "scheduler.start_weight_decay": (REAL, 0.033), "scheduler.end_weight_decay": (REAL, 0.033),
    "scheduler.lr_decay_style": (WORD, "cosine"), "scheduler.lr_warmup_iters": (INT, 500),
    "scheduler.lr_decay_iters": (INT, None), "scheduler.lr_wsd_decay_style": (WORD, "minus_sqrt"),
    "scheduler.lr_wsd_decay_iters": (INT, None), "rng.seed": (INT, 1234), "dist.use_tp_pp_dp_mapping": (BOOL, False),
    "ddp.use_distributed_optimizer": (BOOL, False), "ddp.overlap_grad_reduce": (BOOL, False),
    "ddp.overlap_param_gather": (BOOL, False), "ddp.num_distributed_optimizer_instances": (INT, 1),
    "ddp.use_megatron_fsdp": (BOOL, False), "ddp.data_parallel_sharding_strategy": (WORD, "no_shard"),
    "checkpoint.ckpt_format": (WORD, "torch_dist")}
PRECISIONS = {None, "bf16_mixed", "bf16_with_mxfp8_mixed"}
HYDRA = re.compile(r"[A-Za-z0-9_/\-\\+.$%*@?|:]+")  # a value without quotes


def value_of(path, text):
    kind = FIELDS[path][0]
    if kind is list:
        if not re.fullmatch(r"\[[A-Za-z0-9_,]+\]", text):
            raise ValueError(f"{path}: no list: {text}")
        return [int(v) if v.isdigit() else v for v in text[1:-1].split(",")]
    if not HYDRA.fullmatch(text):
        raise ValueError(f"{path}: Hydra wants quotes around {text}")
    if text == "null":
        return None
    return {"true": True, "false": False}[text] if kind == BOOL else kind(text)


def read(script):
    """(torchrun's own arguments, the configuration's fields)"""
    own, words = megatron.launcher(script, "scripts/training/run_recipe.py")
    assert words[:4] == ["--recipe", "vanilla_gpt_pretrain_config", "--mode", "pretrain"], words
    c, said = {path: default for path, (_, default) in FIELDS.items()}, set()
    for word in words[4:]:
        path, text = word.split("=", 1)
        if path in said:
            raise ValueError(f"{path} is said twice")
        said.add(path)
        c[path] = value_of(path, text)
    return own, c


def arguments(c):
    """as Megatron-LM would have been told, and what of it is amiss"""
    wrong, m = [], {path.split(".", 1)[1]: v for path, v in c.items() if path.startswith("model.")}
    for what, x, y in (("sequence", c["dataset.seq_length"], m["seq_length"]), ("vocabulary", c["tokenizer.vocab_size"], m["vocab_size"]),
                       ("weight decay", c["optimizer.weight_decay"], c["scheduler.start_weight_decay"]),
                       ("weight decay", c["optimizer.weight_decay"], c["scheduler.end_weight_decay"]),
                       ("distributed optimizer", c["ddp.use_distributed_optimizer"],
                        c["optimizer.use_distributed_optimizer"])):
        if x != y:
            wrong.append(f"{what}: {x} and {y}")
    if c["mixed_precision"] not in PRECISIONS:
        wrong.append(f"precision {c['mixed_precision']}")
    if m["cuda_graph_impl"] != "none" and not m["use_te_rng_tracker"]:
        wrong.append("graphs without the tracker of random numbers that can be captured")
    if m["hidden_dropout"] or m["attention_dropout"]:
        wrong.append("dropout")
    parts = megatron.stages(m["pipeline_model_parallel_layout"] or "")
    if m["pipeline_model_parallel_size"] > 1 and \
            len(parts) // m["pipeline_model_parallel_size"] != (m["virtual_pipeline_model_parallel_size"] or 1):
        wrong.append(f"layout of {len(parts)} stages with vpp {m['virtual_pipeline_model_parallel_size']}")
    a = types.SimpleNamespace(
        **m, global_batch_size=c["train.global_batch_size"], micro_batch_size=c["train.micro_batch_size"],
        num_experts=m["num_moe_experts"], use_megatron_fsdp=c["ddp.use_megatron_fsdp"],
        use_distributed_optimizer=c["ddp.use_distributed_optimizer"],
        multi_latent_attention=False, optimizer=c["optimizer.optimizer"],
        use_precision_aware_optimizer=c["optimizer.use_precision_aware_optimizer"],
        optimizer_cpu_offload=c["optimizer.optimizer_cpu_offload"], bf16=(c["mixed_precision"] or "").startswith("bf16"),
        fp16=(c["mixed_precision"] or "").startswith("fp16"),
        overlap_grad_reduce=c["ddp.overlap_grad_reduce"], overlap_param_gather=c["ddp.overlap_param_gather"],
        data_parallel_sharding_strategy=c["ddp.data_parallel_sharding_strategy"],
        num_distributed_optimizer_instances=c["ddp.num_distributed_optimizer_instances"],
        use_tp_pp_dp_mapping=c["dist.use_tp_pp_dp_mapping"], swiglu=m["gated_linear_unit"] and m["activation_func"] == "silu",
        disable_bias_linear=not m["add_bias_linear"], max_position_embeddings=m["seq_length"],
        untie_embeddings_and_output_weights=not m["share_embeddings_and_output_weights"])
    a.moe_layer_freq = repr(m["moe_layer_freq"])
    a.softmax_type = None if a.softmax_type == "vanilla" else a.softmax_type
    a.no_check_for_nan_in_loss_and_grad = not (c["rerun_state_machine.check_for_nan_in_loss"] or c["ddp.check_for_nan_in_grad"])
    return a, wrong


def check(text, plan):
    own, c = read(text)
    a, wrong = arguments(c)
    return wrong + megatron.check_decision(own, a, plan)


def main():
    o = options(__doc__, [("--known", "the worked examples as well")])
    bad = drawn(o, "megatron-bridge", check, megatron.judge, megatron.draw_training)

    def counted(script):
        own, c = read(script)
        return own, arguments(c)[0]
    return 1 if bad + (megatron.known(o, "megatron-bridge", counted) if o.known else 0) else 0


if __name__ == "__main__":
    sys.exit(main())
