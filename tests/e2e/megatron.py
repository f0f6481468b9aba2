#!/usr/bin/env python3
"""Scripts of `llmc export --to megatron`, read as Megatron-LM reads its arguments.

    megatron.py --llmc build/llmc --work DIR [--draws 200] [--seed 1]

Arguments are declared with the names and types of megatron/training/arguments.py; pipeline layouts are read by the rules of
its PipelineParallelLayerLayout.  From them come the decision, which must be the plan's, and the number of parameters, which must
be what is published of the worked examples.  Plans are drawn over degrees, schedules, ZeRO, recomputation and experts; what
Megatron-LM has not must be refused, and nothing else.  Exit 1 with a difference."""

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

from exported import draw, drawn, options, pinned, run

INTEGERS = """num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels num-query-groups max-position-embeddings
    vocab-size make-vocab-size-divisible-by rotary-base rotary-seq-len-interpolation-factor original-max-position-embeddings
    kv-lora-rank q-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim num-experts moe-router-topk moe-ffn-hidden-size
    moe-shared-expert-intermediate-size moe-router-num-groups moe-router-group-topk mtp-num-layers seq-length global-batch-size
    micro-batch-size train-iters lr-warmup-iters lr-decay-iters lr-wsd-decay-iters seed tensor-model-parallel-size
    context-parallel-size pipeline-model-parallel-size expert-model-parallel-size expert-tensor-parallel-size
    microbatch-group-size-per-virtual-pipeline-stage num-distributed-optimizer-instances recompute-num-layers loss-scale-window
    hysteresis""".split()
REALS = """norm-epsilon rotary-percent rope-scaling-factor rotary-scaling-factor beta-fast beta-slow mscale mscale-all-dim
    moe-router-topk-scaling-factor moe-router-bias-update-rate moe-aux-loss-coeff moe-expert-capacity-factor
    mtp-loss-scaling-factor initial-loss-scale sgd-momentum adam-beta1 adam-beta2 adam-eps weight-decay lr min-lr clip-grad
    init-method-std hidden-dropout attention-dropout""".split()
WORDS = {"normalization": ["LayerNorm", "RMSNorm"], "position-embedding-type": ["learned_absolute", "rope", "none"],
         "rope-type": ["rope", "yarn"], "softmax-type": ["learnable"], "moe-router-score-function": ["sigmoid"],
         "moe-router-load-balancing-type": ["none", "seq_aux_loss"], "moe-token-dispatcher-type": ["alltoall", "flex"],
         "moe-flex-dispatcher-backend": ["deepep", "hybridep"], "cuda-graph-impl": ["transformer_engine", "full_iteration"],
         "moe-router-dtype": ["fp32"], "fp8-format": ["e4m3", "hybrid"], "fp8-recipe": ["tensorwise", "blockwise", "mxfp8"],
         "exp-avg-dtype": ["bf16"], "exp-avg-sq-dtype": ["bf16"], "optimizer": ["adam", "sgd"],
         "lr-decay-style": ["constant", "linear", "cosine", "WSD"], "lr-wsd-decay-style": ["linear"],
         "cp-comm-type": ["p2p", "all_gather", "a2a"], "data-parallel-sharding-strategy": ["optim_grads", "optim_grads_params"],
         "ckpt-format": ["fsdp_dtensor"], "recompute-granularity": ["full", "selective"],
         "recompute-method": ["uniform", "block"]}
FLAGS = """group-query-attention qk-layernorm multi-latent-attention use-rope-scaling rotary-interleaved swiglu squared-relu
    no-bias-gelu-fusion disable-bias-linear add-qkv-bias untie-embeddings-and-output-weights moe-router-pre-softmax
    moe-router-enable-expert-bias moe-grouped-gemm bf16 fp16 accumulate-allreduce-grads-in-fp32 grad-reduce-in-bf16
    use-precision-aware-optimizer sequence-parallel tp-comm-overlap use-tp-pp-dp-mapping overlap-moe-expert-parallel-comm
    no-rope-fusion use-distributed-optimizer overlap-grad-reduce overlap-param-gather use-megatron-fsdp optimizer-cpu-offload
    no-gradient-accumulation-fusion moe-permute-fusion delay-wgrad-compute no-check-for-nan-in-loss-and-grad""".split()
MODULES = {"layernorm": "norm", "core_attn": "core_attn", "mla_up_proj": "mla_up", "mlp": "ffn", "moe": "moe",
           "moe_act": "moe_act", "shared_experts": "shared"}


def parser():
    p = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for names, kind in ((INTEGERS, int), (REALS, float)):
        for name in names:
            p.add_argument("--" + name, type=kind)
    for name, choices in WORDS.items():
        p.add_argument("--" + name, choices=choices)
    for name in FLAGS:
        p.add_argument("--" + name, action="store_true")
    p.add_argument("--recompute-modules", nargs="*", choices=list(MODULES))
    p.add_argument("--cuda-graph-modules", nargs="*", choices=["attn", "mlp", "moe_router", "moe_preprocess"], default=[])
    p.add_argument("--pipeline-model-parallel-layout")
    p.add_argument("--moe-layer-freq")
    p.add_argument("--window-size")
    return p


def launcher(script, program):
    """(the words of torchrun, and what the script makes of CUDA_DEVICE_MAX_CONNECTIONS; the words of the program)"""
    words, queues = shlex.split(script.replace("\\\n", " "), comments=True), "the user's"
    if words[0] in ("export", "unset"):
        queues = words[1].removeprefix("CUDA_DEVICE_MAX_CONNECTIONS").removeprefix("=")
        words = words[2:]
    at = words.index(program)
    assert words[:2] == ["exec", "torchrun"] and words[-1] == "$@", words
    return {**dict(zip(words[2:at:2], words[3:at:2])), "queues": queues}, \
        [w.replace("${TRAIN_ITERS:?says how many steps to take}", "1") for w in words[at + 1:-1]]


def read(script):
    """(torchrun's own arguments, Megatron's)"""
    own, words = launcher(script, "pretrain_gpt.py")
    return own, parser().parse_args(words)


def asserted(own, a):
    """what validate_args(), OptimizerConfig and MegatronFSDP assert before Blackwell"""
    wrong = []
    aware = a.use_precision_aware_optimizer
    claims = {
        "the CPU's optimizer is precision-aware": aware or not a.optimizer_cpu_offload,
        "the precision-aware optimizer is distributed": a.use_distributed_optimizer or not aware,
        "the precision-aware optimizer is Adam": a.optimizer in (None, "adam") or not aware,
        "grouped products are in bf16": a.bf16 or not a.moe_grouped_gemm,
        "no expert parallelism in fp16": not a.fp16 or not a.num_experts or a.expert_model_parallel_size == 1,
        "prediction modules want rotary positions": not a.mtp_num_layers or a.position_embedding_type in ("rope", "none"),
        "cp cuts sequences in twice as many parts": a.context_parallel_size == 1 or
                                                    a.seq_length % (2 * a.context_parallel_size) == 0,
        "tp overlap wants sequence parallelism": a.sequence_parallel or not a.tp_comm_overlap,
        "experts and tp want sequence parallelism": not a.num_experts or a.tensor_model_parallel_size == 1 or
                                                    a.sequence_parallel,
        "experts' activations run again in grouped products": "moe_act" not in (a.recompute_modules or []) or
                                                              a.moe_grouped_gemm,
        "a bias of experts is beside sigmoids": not a.moe_router_enable_expert_bias or a.moe_router_score_function == "sigmoid",
        "fused rotary positions of latent attention are yarn's": not a.multi_latent_attention or a.rope_type == "yarn" or
                                                                 a.no_rope_fusion,
        "flexible dispatchers want experts on several ranks": a.moe_token_dispatcher_type != "flex" or
            a.expert_model_parallel_size * a.expert_tensor_parallel_size > 1,
        "latent attention is stretched by yarn alone": not a.multi_latent_attention or not (
            a.use_rope_scaling or a.rotary_seq_len_interpolation_factor),
        "experts' transfers hide in 16 bits": not a.overlap_moe_expert_parallel_comm or a.bf16 or a.fp16,
        "positions reach as far as sequences": a.max_position_embeddings >= a.seq_length,
        "one expert per token wants a softmax before the choice": a.moe_router_topk != 1 or a.moe_router_pre_softmax or
                                                                  a.moe_router_score_function == "sigmoid",
    }
    graphs, again = a.cuda_graph_impl == "transformer_engine", a.recompute_modules or []
    claims |= {
        "attention in a window goes around no ring": a.context_parallel_size == 1 or not a.window_size or a.cp_comm_type != "p2p",
        "sinks are for exchanged heads": a.context_parallel_size == 1 or not a.softmax_type or a.cp_comm_type == "a2a",
        "no kernel splits sequences in 32 bits": a.context_parallel_size == 1 or a.bf16 or a.fp16,
        "experts do not run again beside their transfers": not a.overlap_moe_expert_parallel_comm or "moe" not in again,
        "layers do not run again beside transfers of experts": not a.overlap_moe_expert_parallel_comm or
                                                               a.recompute_granularity != "full",
        "transfers of experts beside compute want virtual stages": not a.overlap_moe_expert_parallel_comm or
            a.pipeline_model_parallel_size == 1 or
            len(stages(a.pipeline_model_parallel_layout)) > a.pipeline_model_parallel_size,
        "transfers of experts beside compute are between ranks": not a.overlap_moe_expert_parallel_comm or
                                                                 a.expert_model_parallel_size > 1,
        "delayed weight gradients are beside such transfers": not a.delay_wgrad_compute or a.overlap_moe_expert_parallel_comm,
        "graphs of dense layers want some": "mlp" not in a.cuda_graph_modules or not a.num_experts or
                                            0 in eval(a.moe_layer_freq, {}),  # a list expression, as Megatron-LM reads it
        "graphs of dense layers are not beside transfers of experts": "mlp" not in a.cuda_graph_modules or
                                                                      not a.overlap_moe_expert_parallel_comm,
        "graphs of routers want experts": "moe_router" not in a.cuda_graph_modules or a.num_experts,
        "graphs of routers are of what does not run again": "moe_router" not in a.cuda_graph_modules or "moe" not in again,
        "nothing is copied to the host in a graph": "moe_preprocess" not in a.cuda_graph_modules or
            a.moe_token_dispatcher_type != "alltoall" or not a.moe_expert_capacity_factor,
        "layers that run again are in whole graphs": not graphs or a.recompute_granularity != "full",
        "whole graphs look for no NaN": a.cuda_graph_impl != "full_iteration" or a.no_check_for_nan_in_loss_and_grad,
        "whole graphs have shapes": a.cuda_graph_impl != "full_iteration" or not a.num_experts,
        "FSDP has graphs or transfers of experts beside compute": not a.use_megatron_fsdp or not graphs or
                                                                  not a.overlap_moe_expert_parallel_comm,
    }
    wrong += [f"not so: {claim}" for claim, holds in claims.items() if not holds]
    if a.use_megatron_fsdp:
        wrong += ["FSDP with one queue"] if own["queues"] else []
        wrong += [] if a.overlap_grad_reduce else ["FSDP without overlap_grad_reduce"]
        wrong += [] if a.use_distributed_optimizer else ["FSDP without use_distributed_optimizer"]
    elif (a.tensor_model_parallel_size > 1 or a.context_parallel_size > 1) and not a.overlap_moe_expert_parallel_comm:
        wrong += [] if own["queues"] == "1" else ["tp or cp with several queues"]
    if a.overlap_param_gather and not (a.use_distributed_optimizer and a.overlap_grad_reduce):
        wrong.append("overlap_param_gather without what it needs")
    return wrong


def stages(layout):
    """Contents of every stage by the layout's letters, with (...)*N and x*N written out."""
    text, old = layout.replace(",", ""), None
    while text != old:
        old = text
        text = re.sub(r"\(([^()]*)\)\*(\d+)", lambda m: m[1] * int(m[2]), text)
        text = re.sub(r"([EtmL])\*(\d+)", lambda m: m[1] * int(m[2]), text)
    return text.split("|")


def switched(a, plan):
    """what of the plan's switches the script does not say"""
    scope = {"": "none", "attn": "attn", "mlp": "mlp", "attn mlp": "attn_mlp", "moe_router moe_preprocess": "moe_router",
             "attn moe_router moe_preprocess": "attn_moe_router"}
    d = plan["decision"]
    said = {"dispatcher": a.moe_flex_dispatcher_backend if a.moe_token_dispatcher_type == "flex" else a.moe_token_dispatcher_type,
            "expert_overlap": a.overlap_moe_expert_parallel_comm, "delay_wgrad": a.delay_wgrad_compute,
            "fused_permutation": a.moe_permute_fusion, "tp_comm_overlap": a.tp_comm_overlap,
            "cuda_graphs": "full_iteration" if a.cuda_graph_impl == "full_iteration" else scope[" ".join(a.cuda_graph_modules)],
            "precision_aware": a.use_precision_aware_optimizer}
    said = {switch: {True: "yes", False: "no"}.get(word, word) for switch, word in said.items()}
    asked = {switch: pinned(plan, switch) for switch in SWITCHES if pinned(plan, switch)}
    if d["ep"] * d["etp"] == 1 and "dispatcher" in asked:
        asked["dispatcher"] = "alltoall"
    if d["tp"] == 1 and "tp_comm_overlap" in asked:
        asked["tp_comm_overlap"] = "no"
    if d["schedule"] == "combined_1f1b" and d["pp"] > 1:
        asked["expert_overlap"] = "yes"
    return [f"{switch}: {said[switch]} of the script, {word} of the plan" for switch, word in asked.items() if said[switch] != word]


def check_decision(own, a, plan):
    d, wrong = plan["decision"], []

    def same(what, x, y):
        if x != y:
            wrong.append(f"{what}: {x} of the script, {y} of the plan")
    gpus = int(own["--nnodes"]) * int(own["--nproc-per-node"])
    tp, cp, pp = a.tensor_model_parallel_size, a.context_parallel_size, a.pipeline_model_parallel_size
    same("tp", tp, d["tp"]), same("cp", cp, d["cp"]), same("pp", pp, d["pp"]), same("dp", gpus // (tp * cp * pp), d["dp"])
    same("sp", a.sequence_parallel, d["sp"])
    same("microbatches", a.global_batch_size // a.micro_batch_size // d["dp"], d["microbatches"])
    if a.num_experts:
        same("ep", a.expert_model_parallel_size, d["ep"]), same("etp", a.expert_tensor_parallel_size, d["etp"])
    zero = {"optim_grads": 2, "optim_grads_params": 3}[a.data_parallel_sharding_strategy] if a.use_megatron_fsdp else \
        1 if a.use_distributed_optimizer else 0
    same("zero", zero if d["dp"] * cp > 1 else 0, d["zero"] if d["dp"] * cp > 1 else 0)
    beside = d["dp"] * cp > 1 or zero > 1
    same("gradients beside compute", a.overlap_grad_reduce, beside)
    same("parameters beside compute", a.overlap_param_gather, beside and zero > 0)
    if zero == 1:
        same("shard", d["dp"] * cp // (a.num_distributed_optimizer_instances or 1), d["shard"])
    if cp > 1:
        same("context", {"p2p": "ring", "all_gather": "all_gather", "a2a": "all_to_all"}[a.cp_comm_type], d["context"])
    order = ["tp", "cp", "pp", "dp"] if a.use_tp_pp_dp_mapping else ["tp", "cp", "dp", "pp"]
    same("order", [x for x in order if d[x] > 1], [x for x in d["order"] if d[x] > 1])
    parts = stages(a.pipeline_model_parallel_layout) if pp > 1 else ["E" + "t" * a.num_layers + "L"]
    same("layers", sum(x.count("t") for x in parts), a.num_layers)
    same("prediction modules", sum(x.count("m") for x in parts), a.mtp_num_layers or 0 if pp > 1 else 0)
    same("ends", (parts[0][:1], parts[-1][-1:]), ("E", "L"))
    same("vpp", len(parts) // pp if pp > 1 else d["vpp"], d["vpp"])
    if pp > 1:
        same("stages", [x.count("t") for x in parts], [x.count("t") for x in stages(d["layout"])])
    again = a.recompute_granularity or "none"
    wrong += switched(a, plan)
    same("recompute", again, d["recompute"])
    if again == "selective":
        same("parts", sorted(MODULES[m] for m in a.recompute_modules), sorted(d["recompute_detail"]))
    if again == "full":
        counts = [x.count("t") for x in parts]
        block = a.recompute_num_layers if a.recompute_method == "block" else a.num_layers
        asked = d.get("recompute_layers") or a.num_layers
        same("layers recomputed", [min(block, n) for n in counts],
             d.get("recompute_stages") or [min(asked, n) for n in counts])
    return wrong + asserted(own, a)


def parameters(a):
    """as Megatron-LM's modules hold them"""
    h, bias = a.hidden_size, not a.disable_bias_linear
    norm = h if a.normalization == "RMSNorm" else 2 * h
    head = a.kv_channels or h // a.num_attention_heads
    q, kv = a.num_attention_heads * head, (a.num_query_groups or a.num_attention_heads) * head
    attention = h * (q + 2 * kv) + q * h + norm + (q + 2 * kv + h if bias else q + 2 * kv if a.add_qkv_bias else 0)
    attention += 2 * head if a.qk_layernorm else 0
    gates = 3 if a.swiglu else 2

    def ffn(width):
        return gates * h * width + ((gates - 1) * width + h if bias else 0)
    pattern = eval(a.moe_layer_freq, {}) if a.num_experts else [0] * a.num_layers  # a list expression, as Megatron-LM reads it
    total = a.vocab_size * h * (2 if a.untie_embeddings_and_output_weights else 1) + norm
    total += a.max_position_embeddings * h if a.position_embedding_type == "learned_absolute" else 0
    for experts in pattern:
        total += attention + norm + (a.num_experts * (ffn(a.moe_ffn_hidden_size) + h) if experts else ffn(a.ffn_hidden_size))
        total += ffn(a.moe_shared_expert_intermediate_size) if experts and a.moe_shared_expert_intermediate_size else 0
    return total


KNOWN = {"gpt2-124m": 124_439_808, "llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496, "llama3-405b": 405_853_388_800,
         "mixtral-8x7b": 46_702_792_704, "mixtral-8x22b": 140_630_071_296}


def known(o, form, reader):
    bad = 0
    for name, count in KNOWN.items():
        folder = Path("plans") / name
        cluster = folder.joinpath("cluster").read_text().split()[0]
        code = 1
        for again in ("none", "full"):
            if code != 0:
                code, _, errors = run(o.llmc, "plan", folder / "model.llm", cluster, "-q", "-o", o.work / name, "--force",
                                      "--set", "schedule in [1f1b, interleaved]", "--set", f"recompute={again}")
        code, script, errors = (code, "", errors) if code else run(o.llmc, "export", o.work / name, "--to", form)
        if code != 0:
            print(f"{name}: {errors}")
            bad += 1
            continue
        own, a = reader(script)
        wrong = check_decision(own, a, json.loads((o.work / name / "plan.json").read_text()))
        if parameters(a) != count:
            wrong.append(f"{parameters(a)} parameters, published {count}")
        bad += bool(wrong)
        for line in wrong:
            print(f"{name}: {line}")
    return bad


SWITCHES = {"dispatcher": ["alltoall", "deepep", "hybridep"], "expert_overlap": ["no", "yes"], "delay_wgrad": ["no", "yes"],
            "fused_permutation": ["no", "yes"], "cuda_graphs": ["none", "attn", "mlp", "attn_mlp", "moe_router", "attn_moe_router",
            "full_iteration"], "tp_comm_overlap": ["no", "yes"], "precision_aware": ["no", "yes"]}


def draw_switched(r):
    """a plan for Megatron-Core itself, with what it has and some of its switches"""
    model, pins = draw(r)
    pins = [p for p in pins if p.split("=")[0] not in ("schedule", "recompute", "order")]
    pins += ["target=megatron-core", "adjust=context_gib = 0.1", "adjust=communicator_mib = 8"]
    pins.append("precision=" + r.choice(["bf16", "bf16", "bf16", "fp16", "fp32"]))
    pins.append("schedule=" + r.choice(["1f1b", "interleaved"] if model == "tiny-llama" else ["1f1b", "interleaved", "combined_1f1b"]))
    pins.append("recompute=" + r.choice(["none", "none", "full", "full(layers=1)", "[norm]", "[core_attn, norm]", "[ffn]", "[moe]"]))
    for switch, words in SWITCHES.items():
        if r.random() < 0.3 and (model == "tiny-moe" or switch in ("cuda_graphs", "tp_comm_overlap", "precision_aware")):
            pins.append(f"{switch}={r.choice(words)}")
    return model, pins


def draw_training(r):
    """draw() with what Megatron's checks of its arguments are about, or a plan for Megatron-Core"""
    if r.random() < 0.7:  # most of which nothing satisfies
        return draw_switched(r)
    model, pins = draw(r)
    if r.random() < 0.7:
        pins = [p for p in pins if not p.startswith("precision=")] + \
            ["precision=" + r.choice(["fp16", "bf16", "bf16", "bf16(moments=bf16)"])]
    if r.random() < 0.2:
        pins.append("offload=[optimizer]")
    if r.random() < 0.2:
        pins.append("optimizer=sgd(0.1, momentum=0.9)")
    if r.random() < 0.3:
        pins.append("sequence_parallel=no")
    return model, pins


def clashes(plan):
    """what of a plan Megatron-LM's checks of its arguments refuse, as llmc says it"""
    d, moe, out = plan["decision"], plan["model"]["name"] == "tiny_moe", []
    precision, sgd = pinned(plan, "precision", "fp32"), pinned(plan, "optimizer", "adamw").startswith("sgd")
    offload, whole = "optimizer" in d["offload"], d["zero"] == 0 and d["dp"] * d["cp"] > 1
    out += ["zero 0 with bf16_moments"] * (whole and "moments" in precision)
    out += ["optimizer sgd with bf16_moments"] * (sgd and "moments" in precision)
    out += ["zero 0 with offload of optimizer"] * (whole and offload) + ["optimizer sgd with offload of optimizer"] * (sgd and offload)
    for what, so in (("ep", d["ep"] > 1), ("etp", d["etp"] > 1), ("ranks with whole_experts", d["ep"] == 1 and d["etp"] != d["tp"])):
        out += [f"sequence_parallel no with {what}"] * (moe and so and d["tp"] > 1 and not d["sp"])
    out += [f"context {d['context']} with precision fp32"] * (precision == "fp32" and d["cp"] > 1)
    out += ["precision fp16 with ep"] * (precision == "fp16" and d["ep"] > 1)
    out += [f"precision {precision} with recompute moe_act"] * \
        (precision in ("fp32", "fp16") and "moe_act" in (d.get("recompute_detail") or []))
    return out


def may_refuse(plan, errors):
    """is each thing that is refused one that Megatron-LM has not?"""
    d = plan["decision"]
    if pinned(plan, "target"):  # FSDP's own rule, of three things at once, is the only one that the search does not know
        return all("graphs of layers with zero" in line or (pinned(plan, "precision") == "fp16" and "fp16, whose" in line)
                   for line in errors.strip().splitlines())
    said = [line for line in errors.strip().splitlines() if not any(line.endswith(" " + c) for c in clashes(plan))]
    parts = d.get("recompute_detail") or []
    fewer = "recompute_stages" in d or "recompute_layers" in d
    spread = [axis for axis in d["order"] if d[axis] > 1]
    reasons = {"schedule ": d["schedule"] not in ("1f1b", "interleaved", "combined_1f1b") and d["pp"] > 1,
               "ranks in another order": True, "recompute ffn_act": "ffn_act" in parts,
               f"zero {d['zero']} over some of the replicas": d["zero"] >= 2 and d["shard"] < d["dp"] * d["cp"],
               f"zero {d['zero']} with ranks in pp_before_dp order": d["zero"] >= 2 and spread[-1] == "dp",
               "recompute some_layers": fewer,
               "fp16, whose gradients its recipe keeps in 16 bits": pinned(plan, "precision") == "fp16"}
    return all(any(key in line and true for key, true in reasons.items()) for line in said)


def judge(plan, errors):
    return [] if may_refuse(plan, errors) else [errors]


judge.wanted = clashes


def main():
    o = options(__doc__, [("--known", "the worked examples as well")])
    bad = drawn(o, "megatron", lambda text, plan: check_decision(*read(text), plan), judge, draw_training)
    return 1 if bad + (known(o, "megatron", read) if o.known else 0) else 0


if __name__ == "__main__":
    sys.exit(main())
