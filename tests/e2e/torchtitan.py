#!/usr/bin/env python3
"""Files of `llmc export --to torchtitan`, run as torchtitan runs its configurations.

    torchtitan.py --llmc build/llmc --work DIR [--draws 200] [--seed 1]

The file is executed: with torchtitan's own classes where it is installed, else with stand-ins that have the fields of
torchtitan/config/configs.py and the classes beside it (2026-08), and refuse any other.  From the Trainer.Config that plan()
returns come the decision, by the rules of trainer.py and distributed/parallel_dims.py, which must be the plan's, and the number
of parameters, which must be what is published of the worked examples.  Exit 1 with a difference."""

import importlib.util
import json
import os
import re
import sys
import types
from pathlib import Path

from exported import differ, draw_flat, drawn, exactly, installed, lines_of, options, pinned, run

REQUIRED = object()
FIELDS = {  # of each class and function that the files call; a field without a default must be given
    "ParallelismConfig": dict(
        data_parallel_replicate_degree=1, data_parallel_shard_degree=-1, fsdp_reshard_after_forward="default",
        tensor_parallel_degree=1, enable_sequence_parallel=True, pipeline_parallel_degree=1, module_fqns_per_model_part=None,
        pipeline_parallel_schedule="1F1B", pipeline_parallel_schedule_csv="", num_pp_microbatches=1, context_parallel_degree=1,
        expert_parallel_degree=1),
    "TrainingConfig": dict(
        num_tokens_per_microbatch_per_dp_rank=16384, num_tokens_per_train_step=-1, max_context_length=2048, max_norm=1.0,
        steps=10000, disable_cuda_graphs=False, mixed_precision_param="bfloat16"),
    "CompileConfig": dict(enable=False, enable_async_tensor_parallel=False),
    "DebugConfig": dict(seed=None),
    "OptimizersContainer.Config": dict(param_groups=REQUIRED, implementation="fused"),
    "ParamGroupConfig": dict(pattern=REQUIRED, optimizer_name=REQUIRED, optimizer_kwargs=REQUIRED),
    "LRSchedulersContainer.Config": dict(warmup_steps=200, total_steps=None, decay_ratio=None, decay_type="linear",
                                         min_lr_factor=0.0),
    "Trainer.Config": dict(model_spec=REQUIRED, hf_assets_path=REQUIRED, dataloader=REQUIRED, optimizer=REQUIRED,
                           lr_scheduler=REQUIRED, training=REQUIRED, parallelism=REQUIRED, activation_checkpoint=REQUIRED,
                           compile=REQUIRED, debug=REQUIRED, loss=REQUIRED),
    "ModelSpec": dict(name=REQUIRED, flavor=REQUIRED, model=REQUIRED, parallelize_fn=REQUIRED, pipelining_fn=REQUIRED,
                      post_optimizer_build_fn=REQUIRED, state_dict_adapter=REQUIRED),
    "FullAC.Config": {}, "SelectiveAC.Config": {},
    "GrainDataLoader.Config": dict(dataset=REQUIRED), "ConcatThenSplitPackingConfig": dict(dataset=REQUIRED),
    "ChunkedLossWrapper.Config": dict(loss_fn=REQUIRED), "CrossEntropyLoss.Config": dict(global_vocab_size=None),
    "MTPLoss.Config": dict(mtp_scale=0.3, global_vocab_size=None),
    "RMSNorm.Config": dict(normalized_shape=REQUIRED, eps=1e-5, param_init=None),
    "Linear.Config": dict(in_features=REQUIRED, out_features=REQUIRED, bias=False, param_init=None),
    "Embedding.Config": dict(num_embeddings=REQUIRED, embedding_dim=REQUIRED, param_init=None),
    "FeedForward.Config": dict(w1=REQUIRED, w2=REQUIRED, w3=REQUIRED),
    "make_gqa_config": dict(dim=REQUIRED, n_heads=REQUIRED, wqkv_param_init=REQUIRED, wo_param_init=REQUIRED,
                            inner_attention=REQUIRED, rope=REQUIRED, n_kv_heads=None, head_dim=None, fuse_qkv=False, qk_norm=None),
    "make_moe_config": dict(num_experts=8, router=REQUIRED, routed_experts=REQUIRED, shared_experts=None,
                            load_balance_coeff=1e-3),
    "make_router_config": dict(dim=REQUIRED, num_experts=REQUIRED, gate_param_init=REQUIRED, top_k=1, score_func="sigmoid",
                               route_norm=False, route_scale=1.0, num_expert_groups=None, num_limited_groups=None, bias=False),
    "make_routed_experts_config": dict(dim=REQUIRED, hidden_dim=REQUIRED, num_experts=REQUIRED, top_k=REQUIRED,
                                       param_init=REQUIRED, comm_backend=REQUIRED),
    "make_mla_attention_config": {k: REQUIRED for k in """layer_id dim n_heads q_lora_rank kv_lora_rank qk_nope_head_dim
        qk_rope_head_dim v_head_dim mscale attn_backend linear_init norm_init depth_init rope""".split()},
    "Float8LinearConverter.Config": dict(recipe_name="rowwise", filter_fqns=(), model_compile_enabled=False),
    "Float8GroupedExpertsConverter.Config": dict(model_compile_enabled=False),
    "MXFP8LinearConverter.Config": dict(fqns=(), model_compile_enabled=False),
    "MXFP8GroupedExpertsConverter.Config": dict(model_compile_enabled=False)}
ROPE = dict(dim=REQUIRED, max_context_length=REQUIRED, theta=10000.0, scaling="none", scaling_factor=8.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=8192, rope_factor=1.0, beta_fast=32.0, beta_slow=1.0,
            original_seq_len=4096)
BLOCK = dict(attention=REQUIRED, feed_forward=None, moe=None, attention_norm=REQUIRED, ffn_norm=REQUIRED)
MODEL = dict(dim=REQUIRED, vocab_size=REQUIRED, lm_head=REQUIRED, tok_embeddings=REQUIRED, norm=REQUIRED, layers=REQUIRED,
             enable_weight_tying=False)
FIELDS |= {"ComplexRoPE.Config": ROPE, "CosSinRoPE.Config": ROPE, "Llama3TransformerBlock.Config": BLOCK,
           "Qwen3TransformerBlock.Config": BLOCK, "DeepSeekV3TransformerBlock.Config": BLOCK, "Llama3Model.Config": MODEL,
           "Qwen3Model.Config": MODEL, "DeepSeekV3Model.Config": MODEL | dict(mtp_layers=[]),
           "MTPTransformerBlock.Config": BLOCK | dict(enorm=REQUIRED, hnorm=REQUIRED, eh_proj=REQUIRED, mtp_norm=REQUIRED)}
NAMES = {"init", "skip_param_init", "DATASETS", "pipeline_llm", "register_moe_load_balancing_hook", "get_attention_config",
         "parallelize_llama", "parallelize_qwen3", "parallelize_deepseekv3", "Llama3StateDictAdapter", "Qwen3StateDictAdapter",
         "DeepSeekV3StateDictAdapter"} | {name.split(".")[0] for name in FIELDS}
SCHEDULES = {"GPipe": "gpipe", "1F1B": "1f1b", "Interleaved1F1B": "interleaved", "ZBVZeroBubble": "zb_v", "DualPipeV": "dualpipe_v"}


class Made:
    """what a call gave: its class and its fields"""
    def __init__(self, name, fields, given):
        unknown, missing = set(given) - set(fields), {k for k, v in fields.items() if v is REQUIRED} - set(given)
        if unknown or missing:
            raise TypeError(f"{name}: unknown {sorted(unknown)}, missing {sorted(missing)}")
        self.__dict__.update({"name": name} | fields | given)
        if name == "make_gqa_config":
            self.qkv_linear = types.SimpleNamespace(wqkv=types.SimpleNamespace(bias=False))
        if name == "make_mla_attention_config":
            self.q_norm, self.kv_norm = types.SimpleNamespace(), types.SimpleNamespace()

    def build(self):
        return self

    def convert(self, model):
        model.converted = getattr(model, "converted", []) + [self.name]
        return model


class Stand:
    """a name of torchtitan's, which may be called, have a Config, or be indexed"""
    def __init__(self, name):
        self.stands_for = name

    def __call__(self, *values, **given):
        if self.stands_for == "get_attention_config":
            return values[0]
        return Made(self.stands_for, FIELDS[self.stands_for], given)

    def __getattr__(self, name):
        if self.stands_for == "init" or name == "Config":
            return Stand(f"{self.stands_for}.{name}")
        raise AttributeError(name)

    def __getitem__(self, key):
        return f"{self.stands_for}[{key}]"


class Finder:
    """modules of torchtitan and torch, where they are not installed"""
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name.split(".")[0] in ("torchtitan", "torch") else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: Stand(name) if name in NAMES else self.none(spec.name, name)
        return module

    def none(self, module, name):
        raise AttributeError(f"{module} has no {name}")

    def exec_module(self, module):
        pass


def read(text, path="plan.py"):
    """(nodes, GPUs of each, what plan() returns)"""
    line = re.search(r"torchrun --nnodes (\d+) --nproc-per-node (\d+)", text)
    assert "--module titanplan --config plan" in text, "no launch line"
    module = types.ModuleType("titanplan")
    module.__file__ = path
    exec(compile(text, path, "exec"), module.__dict__)
    return int(line[1]), int(line[2]), module.plan()


def check(text, plan):
    d, wrong = plan["decision"], []
    nodes, gpus, c = read(text)
    p, t, world = c.parallelism, c.training, nodes * gpus
    replicate, shard, cp, tp, pp, ep = (p.data_parallel_replicate_degree, p.data_parallel_shard_degree, p.context_parallel_degree,
                                        p.tensor_parallel_degree, p.pipeline_parallel_degree, p.expert_parallel_degree)
    differ(wrong, "ranks", replicate * shard * cp * tp * pp, world)
    differ(wrong, "dp_shard * cp * tp over ep", shard * cp * tp % ep, 0)
    for name, has in (("tp", tp), ("cp", cp), ("pp", pp), ("dp", replicate * shard), ("ep", ep)):
        differ(wrong, name, has, d[name])
    if tp > 1:
        differ(wrong, "sp", p.enable_sequence_parallel, d["sp"])
    experts = [l.moe for l in c.model_spec.model.layers if l.moe]
    if experts:
        differ(wrong, "etp", 1 if ep > 1 else tp, d["etp"])
    tokens = t.num_tokens_per_microbatch_per_dp_rank
    differ(wrong, "tokens that do not divide", tokens % ((tp if p.enable_sequence_parallel else 1) * (2 * cp if cp > 1 else 1)), 0)
    differ(wrong, "microbatch", tokens // t.max_context_length, d["microbatch"])
    each = tokens * (p.num_pp_microbatches if pp > 1 else 1) * replicate * shard
    differ(wrong, "tokens of a step over those of an iteration", t.num_tokens_per_train_step % each, 0)
    again = t.num_tokens_per_train_step // each
    differ(wrong, "microbatches", p.num_pp_microbatches if pp > 1 else again, d["microbatches"])
    differ(wrong, "iterations of a step", again if pp > 1 else 1, 1)
    if d["dp"] * d["cp"] > 1:
        zero = 0 if shard * cp == 1 else 3 if p.fsdp_reshard_after_forward == "always" else 2
        differ(wrong, "zero", zero, d["zero"] if d["shard"] > 1 else 0)
        differ(wrong, "shard", shard * cp, d["shard"] if d["zero"] else 1)
    if cp > 1:
        differ(wrong, "context", "all_gather", d["context"])
    order = [a for a in d["order"] if d[a] > 1]
    differ(wrong, "order", [a for a in ("tp", "cp", "dp", "pp") if d[a] > 1], order)
    again = {"NoneType": "none"}.get(type(c.activation_checkpoint).__name__) or \
        {"FullAC.Config": "full", "SelectiveAC.Config": "selective"}[name_of(c.activation_checkpoint)]
    differ(wrong, "recompute", again, d["recompute"])
    if again == "selective":
        differ(wrong, "parts", ["core_attn"], d["recompute_detail"])
    check_compiled(wrong, c, plan)
    if pp > 1:
        check_pipeline(wrong, p, d, pp)
        differ(wrong, "CUDA graphs off", t.disable_cuda_graphs, True)
    return wrong


def check_compiled(wrong, c, plan):
    """a plan's switches; what torch.distributed.pipelining and tensor parallelism ask of compiled layers"""
    p, told = c.parallelism, c.compile
    whole = p.pipeline_parallel_degree == 1 or plan["decision"]["schedule"] in ("gpipe", "1f1b", "interleaved")
    if told.enable and not whole:
        wrong.append("layers are compiled whose backward passes are in halves")
    if told.enable_async_tensor_parallel and not told.enable:
        wrong.append("asynchronous tensor parallelism without compiled layers")
    asked = pinned(plan, "compile", "yes" if pinned(plan, "target") else None)
    if asked:
        differ(wrong, "compile", told.enable, asked == "yes")
    if pinned(plan, "async_tp") and p.tensor_parallel_degree > 1:
        differ(wrong, "async_tp", told.enable_async_tensor_parallel, pinned(plan, "async_tp") == "yes")


def draw_switched(r):
    """draw_flat(), or half of the time a plan for torchtitan itself, with its switches"""
    model, pins = draw_flat(r)
    if r.random() < 0.5:
        return model, pins
    pins = [p for p in pins if p.split("=")[0] not in ("schedule", "recompute", "order", "context", "zero", "precision")]
    pins += ["target=torchtitan", "adjust=context_gib = 0.1", "precision=bf16", f"zero={r.choice([0, 2, 3])}"]
    pins.append("schedule=" + r.choice(["1f1b", "interleaved", "gpipe", "zb_v", "dualpipe_v", "auto"]))
    pins.append("recompute=" + r.choice(["none", "none", "full", "[core_attn]"]))
    for switch in ("compile", "async_tp"):
        if r.random() < 0.4:
            pins.append(f"{switch}={r.choice(['no', 'yes'])}")
    return model, pins


def name_of(value):
    return getattr(value, "name", type(value).__qualname__)


def check_pipeline(wrong, p, d, pp):
    parts, layer = p.module_fqns_per_model_part, 0
    for i, part in enumerate(parts):
        own = [m for m in part if m.startswith("layers.")]
        differ(wrong, f"layers of stage {i}", own, [f"layers.{layer + k}" for k in range(len(own))])
        layer += len(own)
        differ(wrong, f"others of stage {i}", [m for m in part if m not in own],
               ["tok_embeddings"] * (i == 0) + ["norm", "lm_head"] * (i == len(parts) - 1))
    differ(wrong, "stages", [sum(m.startswith("layers.") for m in part) for part in parts], lines_of(d["layout"]))
    differ(wrong, "vpp", len(parts) / pp, d["vpp"])
    if p.pipeline_parallel_schedule_csv:
        name = p.pipeline_parallel_schedule
        differ(wrong, "schedule beside a file", name, "PipelineScheduleSingle" if d["vpp"] == 1 else "PipelineScheduleMulti")
        differ(wrong, "a file's order", d["schedule"] in ("auto", "file") or (d["schedule"] == "interleaved" and
                                                                             d["microbatches"] % pp > 0), True)
        differ(wrong, "file", os.path.basename(p.pipeline_parallel_schedule_csv), "schedule.csv")
    else:
        differ(wrong, "schedule", SCHEDULES[p.pipeline_parallel_schedule], d["schedule"])


def wanted(plan):
    """the sentences that must be refused of a plan of the tiny models"""
    d, out = plan["decision"], []
    replicas, pp, schedule = d["dp"] * d["cp"], d["pp"], d["schedule"]
    experts, parts = plan["model"]["name"] == "tiny_moe", d["shard"] if d["zero"] else 1
    named = {"gpipe", "1f1b", "interleaved", "zb_v", "dualpipe_v", "auto", "file"}
    if pp > 1 and schedule not in named:
        out.append(f"schedule {schedule}")
    if pp > 1 and d.get("folded"):
        out.append("schedule folded")
    if replicas > 1 and d["zero"] == 1:
        out.append("zero 1")
    if d["zero"] == 1 and d["shard"] < replicas:
        out.append("zero 1 over some of the replicas")
    if d["cp"] > 1 and d["context"] != "all_gather":
        out.append(f"context {d['context']}")
    if d["recompute"] == "selective":
        out += [f"recompute {part}" for part in d["recompute_detail"] if part != "core_attn"]
    counts = lines_of(d["layout"])
    if d["recompute"] == "full" and (d.get("recompute_stages") or any(n > (d.get("recompute_layers") or n) for n in counts)):
        out.append("recompute first_layers")
    axes = [a for a in d["order"] if d[a] > 1]
    if axes != [a for a in ("tp", "cp", "dp", "pp") if d[a] > 1]:
        out.append(f"ranks in {'pp_before_dp' if axes == [a for a in ('tp', 'cp', 'pp', 'dp') if d[a] > 1] else 'another'} order")
    if d["tp"] > (8 if experts else 4):
        out.append("ranks with shared_keys")
    if d["cp"] > 1 and parts % d["cp"]:
        out.append("ranks with context_copies")
    if experts and parts * d["tp"] % (d["ep"] * d["etp"]):
        out.append("ranks with expert_copies")
    if experts and d["ep"] == 1 and d["etp"] != d["tp"]:
        out.append("ranks with whole_experts")
    if d["ep"] > 1 and d["etp"] > 1:
        out.append("ep with etp")
    if pp > 1 and schedule == "dualpipe_v":
        out += [f"schedule dualpipe_v with {what}" for what, so in
                (("no_ep", d["ep"] == 1), ("recompute core_attn", "core_attn" in d["recompute_detail"]),
                 ("recompute full", d["recompute"] == "full" and "recompute first_layers" not in out)) if so]
        if d["microbatches"] < 2 * pp:
            out.append("schedule dualpipe_v with fewer microbatches than stages")
    if experts and "precision=fp32" in plan["pins"]:
        out.append("experts in fp32")
    tokens, over = d["microbatch"] * 256, (d["tp"] if d["sp"] else 1) * (2 * d["cp"] if d["cp"] > 1 else 1)
    if tokens % over:
        out.append(f"microbatches of {tokens} tokens, which {over} does not divide")
    if counts[0] == 0:
        out.append("a stage of the embedding alone, with weight decay that leaves norms out")
    return out


def parameters(m):
    def linear(width, out):
        return width * out
    total = linear(m.dim, m.vocab_size) * (1 if m.enable_weight_tying else 2) + m.dim
    for l in m.layers:
        a = l.attention
        total += 2 * m.dim + a.dim * a.head_dim * (2 * a.n_heads + 2 * a.n_kv_heads) + (2 * a.head_dim if a.qk_norm else 0)
        total += sum(linear(w.in_features, w.out_features) for w in (l.feed_forward.w1, l.feed_forward.w2, l.feed_forward.w3)) \
            if l.feed_forward else l.moe.num_experts * (3 * m.dim * l.moe.routed_experts.hidden_dim + m.dim)
    return total


KNOWN = {"llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496, "mixtral-8x7b": 46_702_792_704}


def known(o):
    """plans for the target have its launch files beside them, and published numbers of parameters"""
    bad = 0
    for name, count in KNOWN.items():
        folder = Path("plans") / name
        code, _, errors = run(o.llmc, "plan", folder / "model.llm", folder.joinpath("cluster").read_text().split()[0], "-q", "-o",
                              o.work / name, "--force", "--set", "target=torchtitan", "--set", "schedule in [1f1b, interleaved]")
        wrong = [errors] if code else []
        if not code:
            text = (o.work / name / "titanplan.py").read_text()
            wrong = check(text, json.loads((o.work / name / "plan.json").read_text()))
            if parameters(read(text)[2].model_spec.model) != count:
                wrong.append(f"{parameters(read(text)[2].model_spec.model)} parameters, published {count}")
        bad += bool(wrong)
        for line in wrong:
            print(f"{name}: {line}")
    return bad


def main():
    o = options(__doc__, [("--known", "worked examples as well")])
    if not installed("torchtitan"):
        sys.meta_path.insert(0, Finder())
        print("torchtitan is not installed: its classes are stood in for")
    os.environ.setdefault("TRAIN_STEPS", "1")
    bad = drawn(o, "torchtitan", check, exactly("torchtitan", wanted), draw_switched, 10)
    return 1 if bad + (known(o) if o.known else 0) else 0


if __name__ == "__main__":
    sys.exit(main())
