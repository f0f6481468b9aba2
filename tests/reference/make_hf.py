#!/usr/bin/env python3
"""References from Hugging Face transformers: loss, every parameter gradient and eight AdamW steps of tiny models.

The models are those of the transformers package with random weights, run in float64 (some of their norms and routers
round to float32 inside, which limits them to about 1e-7); nothing here is shared with the compiler or its kernels.
Files are those of make_fixtures.py, whose writer this uses:

    python3 tests/reference/make_hf.py [NAME ...]     rewrites tests/reference/<name>/ for the models below

Weights have the names of published checkpoints, also where transformers fuses them in memory (experts), gradients those
of llmrun's dumps.  Two families differ from their checkpoints: GPT-NeoX's fused query_key_value is written as the separate q_proj, k_proj and v_proj that
our language has, and Gemma's norm gains are written as gains (a checkpoint has them minus one).

The committed files were made with torch 2.15 and transformers 5.23 on a CPU.
"""

import json
import os
import sys

import torch
import torch.nn.functional as F
import transformers as hf

from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer, DeepseekV3RMSNorm

import make_fixtures as base

SEQUENCE, BATCH, VOCAB = 16, 8, 67
TRAIN = f"""
train {{
    sequence  {SEQUENCE}
    batch     {BATCH} sequences
    precision fp32
    optimizer adamw(lr={base.LR}, beta1={base.BETAS[0]}, beta2={base.BETAS[1]}, eps=1e-8, weight_decay={base.DECAY})
    clip      {base.CLIP}
}}
"""


def text(name, norm, layers, head, embed="tokens"):
    return f"""llmc 1

model {name} {{
    vocab {VOCAB}
    width 24
    norm  {norm}

    embed {embed}
{layers}
    head {head}
}}
{TRAIN}"""


COMMON = dict(vocab_size=VOCAB, hidden_size=24, num_attention_heads=4, max_position_embeddings=64,
              attention_dropout=0.0, attn_implementation="eager", experts_implementation="eager")


def mixtral():
    c = hf.MixtralConfig(**COMMON, num_hidden_layers=2, num_key_value_heads=2, intermediate_size=20, num_local_experts=4,
                         num_experts_per_tok=2, rope_theta=500.0, rms_norm_eps=1e-5, sliding_window=None)
    return hf.MixtralForCausalLM(c), text("mixtral", "rmsnorm(eps=1e-5)", """    repeat 2 {
        layer {
            attn gqa(heads=4, kv=2, rope=500)
            moe  swiglu(20) {
                experts 4
                active  2
            }
        }
    }""", "untied")


def qwen3_moe():
    c = hf.Qwen3MoeConfig(**COMMON, num_hidden_layers=2, num_key_value_heads=2, head_dim=8, intermediate_size=40,
                          moe_intermediate_size=12, num_experts=8, num_experts_per_tok=2, norm_topk_prob=True,
                          rope_theta=500.0, rms_norm_eps=1e-6, decoder_sparse_step=1, mlp_only_layers=[])
    return hf.Qwen3MoeForCausalLM(c), text("qwen3_moe", "rmsnorm(eps=1e-6)", """    repeat 2 {
        layer {
            attn gqa(heads=4, kv=2, head=8, rope=500, qk_norm=head)
            moe  swiglu(12) {
                experts 8
                active  2
            }
        }
    }""", "untied")


def qwen3():
    c = hf.Qwen3Config(**COMMON, num_hidden_layers=2, num_key_value_heads=2, head_dim=8, intermediate_size=40,
                       rope_theta=500.0, rms_norm_eps=1e-6, use_sliding_window=False, tie_word_embeddings=True)
    return hf.Qwen3ForCausalLM(c), text("qwen3", "rmsnorm(eps=1e-6)", """    repeat 2 {
        layer {
            attn gqa(heads=4, kv=2, head=8, rope=500, qk_norm=head)
            ffn  swiglu(40)
        }
    }""", "tied")


def olmo2():
    c = hf.Olmo2Config(**COMMON, num_hidden_layers=2, num_key_value_heads=2, intermediate_size=40, rope_theta=500.0,
                       rms_norm_eps=1e-6, tie_word_embeddings=False, pad_token_id=None)
    return hf.Olmo2ForCausalLM(c), text("olmo2", "rmsnorm(eps=1e-6, place=post)", """    repeat 2 {
        layer {
            attn gqa(heads=4, kv=2, rope=500, qk_norm=full)
            ffn  swiglu(40)
        }
    }""", "untied")


def deepseek(experts):
    c = hf.DeepseekV3Config(**COMMON, num_hidden_layers=2, num_key_value_heads=4, intermediate_size=32,
                            moe_intermediate_size=10, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1,
                            n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5, q_lora_rank=12,
                            kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, rope_theta=500.0,
                            rms_norm_eps=1e-6, first_k_dense_replace=1 if experts else 2)
    attn = "attn mla(heads=4, q_rank=12, kv_rank=8, nope=6, rope=4, v=5, theta=500)"
    dense = f"""        layer {{
            {attn}
            ffn  swiglu(32)
        }}"""
    moe = f"""    layer {{
        {attn}
        moe  swiglu(10) {{
            experts 8
            active  2
            shared  1
            router  sigmoid(groups=4, pick=2, bias=yes, rate=0, scale=2.5)
        }}
    }}"""
    layers = "    repeat %d {\n%s\n    }" % (1 if experts else 2, dense) + ("\n" + moe if experts else "")
    return hf.DeepseekV3ForCausalLM(c), text("deepseek_v3" if experts else "mla", "rmsnorm(eps=1e-6)", layers, "untied")


AHEAD, AHEAD_WEIGHT = 2, 0.3


def deepseek_mtp():
    """DeepSeek-V3 with its prediction modules (arXiv:2412.19437, section 2.2), which transformers leaves out: each is one of
    its layers behind the others, with the norms and the projection that the paper puts in front"""
    model, llm = deepseek(True)
    c = model.config
    for k in range(AHEAD):
        layer = DeepseekV3DecoderLayer(c, c.num_hidden_layers + k)
        for name in ("enorm", "hnorm"):
            setattr(layer, name, DeepseekV3RMSNorm(c.hidden_size, c.rms_norm_eps))
        layer.eh_proj = torch.nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)
        layer.shared_head = torch.nn.Module()
        layer.shared_head.norm = DeepseekV3RMSNorm(c.hidden_size, c.rms_norm_eps)
        model.model.layers.append(layer)
    return model, llm.replace("deepseek_v3", "deepseek_mtp").replace(
        "head untied", f"head untied\n    predict {AHEAD} ahead {{ weight {AHEAD_WEIGHT} }}")


def prediction_loss(model, inputs, targets):
    """weight / K times the sum of the modules' losses; a sample has S + 1 tokens, and each module's mean is over S places"""
    body, c = model.model, model.config
    kept = []
    hook = body.norm.register_forward_pre_hook(lambda _, x: kept.append(x[0]))
    body(inputs, use_cache=False)
    hook.remove()
    before, place = kept[0], torch.arange(SEQUENCE).unsqueeze(0)
    turns = body.rotary_emb(before, place)
    mask = torch.full((SEQUENCE, SEQUENCE), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    ids, total = torch.cat([inputs, targets[:, -1:]], 1), 0
    for k in range(1, AHEAD + 1):
        layer = body.layers[c.num_hidden_layers + k - 1]
        shifted = F.pad(ids, (0, AHEAD))[:, k:k + SEQUENCE]
        pair = torch.cat([layer.enorm(body.embed_tokens(shifted)), layer.hnorm(before)], -1)
        before = layer(layer.eh_proj(pair), attention_mask=mask, position_ids=place, position_embeddings=turns)
        logits = model.lm_head(layer.shared_head.norm(before))
        wanted = F.pad(ids, (0, AHEAD), value=-1)[:, k + 1:k + 1 + SEQUENCE]
        total += F.cross_entropy(logits.reshape(-1, VOCAB), wanted.reshape(-1), ignore_index=-1, reduction="sum")
    return AHEAD_WEIGHT / AHEAD * total / wanted.numel()


def gemma2():
    c = hf.Gemma2Config(**COMMON, num_hidden_layers=4, num_key_value_heads=2, head_dim=8, intermediate_size=40,
                        query_pre_attn_scalar=20, rms_norm_eps=1e-6, attn_logit_softcapping=5.0,
                        final_logit_softcapping=3.0, sliding_window=6, rope_theta=500.0,
                        hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, pad_token_id=None,
                        layer_types=["sliding_attention", "full_attention"] * 2)
    return hf.Gemma2ForCausalLM(c), text("gemma2", "rmsnorm(eps=1e-6, place=both)", """    repeat 2 {
        layer {
            attn gqa(heads=4, kv=2, head=8, rope=500, window=6, softcap=5, scale=20)
            ffn  geglu(40)
        }
        layer {
            attn gqa(heads=4, kv=2, head=8, rope=500, softcap=5, scale=20)
            ffn  geglu(40)
        }
    }""", "tied(softcap=3)", "tokens(scale=yes)")


def neox():
    common = {k: v for k, v in COMMON.items()}
    c = hf.GPTNeoXConfig(**common, num_hidden_layers=4, intermediate_size=48, hidden_act="gelu", rotary_pct=0.67,
                         rotary_emb_base=500.0, layer_norm_eps=1e-5, use_parallel_residual=True, attention_bias=True,
                         hidden_dropout=0.0, tie_word_embeddings=False,
                         rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.67})
    return hf.GPTNeoXForCausalLM(c), text("gpt_neox", "layernorm(eps=1e-5)", """    repeat 4 {
        layer parallel(norms=2) {
            attn mha(heads=4, bias=yes, rope=rotary(500, dims=4))
            ffn  gelu(48, bias=yes, approx=none)
        }
    }""", "untied")


MODELS = {"mixtral": mixtral, "qwen3_moe": qwen3_moe, "qwen3": qwen3, "olmo2": olmo2, "deepseek_v3": lambda: deepseek(True), "mla": lambda: deepseek(False), "deepseek_mtp": deepseek_mtp,
          "gemma2": gemma2, "gpt_neox": neox}


# ---- from the tensors in memory to those of the files ---------------------------------------------------------------

def split_experts(name, t, mixtral_names):
    """[experts, ...] in memory -> one tensor per expert and product"""
    stem = name.rsplit(".", 1)[0]
    for e in range(t.shape[0]):
        parts = t[e].chunk(2, 0) if name.endswith("gate_up_proj") else (t[e],)
        kinds = ("gate_proj", "up_proj") if len(parts) == 2 else ("down_proj",)
        for kind, part in zip(kinds, parts):
            if mixtral_names:
                kind = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[kind]
            yield f"{stem}.{e}.{kind}.weight".replace("mlp.", "block_sparse_moe." if mixtral_names else "mlp."), part


def split_neox(name, t, heads):
    """query_key_value: per head q, k, v, one below the other"""
    parts = t.reshape(heads, 3, -1, *t.shape[1:]).transpose(0, 1).flatten(1, 2)
    for letter, part in zip("qkv", parts):
        yield name.replace("query_key_value", f"{letter}_proj"), part


NEOX_NAMES = (("gpt_neox.embed_in", "model.embed_tokens"), ("gpt_neox.final_layer_norm", "model.norm"),
              ("embed_out", "lm_head"), ("gpt_neox.layers", "model.layers"), ("attention.dense", "self_attn.o_proj"),
              ("attention.", "self_attn."), ("mlp.dense_h_to_4h", "mlp.up_proj"), ("mlp.dense_4h_to_h", "mlp.down_proj"))


def in_files(kind, config, named, gradient):
    out = {}
    for name, t in named.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            pairs = split_experts(name, t, kind == "mixtral" and not gradient)
        elif "query_key_value" in name:
            pairs = split_neox(name, t, config.num_attention_heads)
        else:
            pairs = [(name, t)]
        for n, part in pairs:
            if kind == "gpt_neox":
                for a, b in NEOX_NAMES:
                    n = n.replace(a, b, 1) if not n.startswith(b) and b not in n else n
            if kind == "mixtral" and not gradient:
                n = n.replace("mlp.gate.", "block_sparse_moe.gate.")
            if kind == "gemma2" and "norm" in n and not gradient:
                part = part + 1
            out[n] = part.detach()
    return out


# ---- one fixture ----------------------------------------------------------------------------------------------------

def initialise(kind, model, generator):
    """weights much larger than usual, gains and biases random: a missing term shows in the first digits"""
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            if p.dim() == 1:
                gain = "norm" in name and name.endswith("weight") and kind != "gemma2"
                x = 0.3 * x + (1.0 if gain else 0.0)
            else:
                x = x * (0.5 if "embed" in name else 1.2 / 24 ** 0.5)
            p.copy_(x.to(torch.float32))
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(0.1 * torch.randn(b.shape, generator=generator, dtype=torch.float64).to(torch.float32))


def make(name, folder):
    model, llm = MODELS[name]()
    model = model.double().train()
    config = model.config
    g = torch.Generator().manual_seed(sum(name.encode()))
    initialise(name, model, g)
    n = 5 * BATCH * SEQUENCE + 1 + 7
    data = (torch.rand(n, generator=g, dtype=torch.float64) ** 1.5 * VOCAB).long()
    c = {"sequence": SEQUENCE, "batch": BATCH}
    os.makedirs(folder, exist_ok=True)

    def losses_of(step):
        """what is printed, and what the modules that predict further add to the gradients"""
        inputs, targets = base.batch_of(c, data, step)
        logits = model(inputs, use_cache=False).logits
        ahead = prediction_loss(model, inputs, targets) if name == "deepseek_mtp" else 0
        return F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1)), ahead

    parameters = dict(model.named_parameters())
    tensors = in_files(name, config, parameters, False)
    for key, b in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            tensors[key] = b
    base.write_safetensors(f"{folder}/model.safetensors", tensors, "F32", {"format": "pt"})
    sum(losses_of(0)).backward()
    gradients = in_files(name, config, {k: p.grad for k, p in parameters.items()}, True)
    for key, b in model.named_buffers():
        if key.endswith("e_score_correction_bias"):  # moved by counts, not by a gradient
            gradients[key] = torch.zeros_like(b)
    base.write_safetensors(f"{folder}/expected.safetensors", gradients, "F32",
                           {"torch": torch.__version__, "transformers": hf.__version__, "dtype": "float64",
                            "made_by": "tests/reference/make_hf.py"})
    groups = [{"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": base.DECAY},
              {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=base.LR, betas=base.BETAS, eps=base.EPS)
    lines = []
    for step in range(base.STEPS):
        optimizer.zero_grad()
        loss, ahead = losses_of(step)
        (loss + ahead).backward()
        norm = torch.nn.utils.clip_grad_norm_(list(parameters.values()), base.CLIP)
        optimizer.step()
        lines.append(json.dumps({"step": step, "loss": float(loss), "grad_norm": float(norm)}))
    with open(f"{folder}/expected.jsonl", "w") as f:
        f.write("\n".join(lines) + "\n")
    with open(f"{folder}/model.llm", "w") as f:
        f.write(llm)
    with open(f"{folder}/tokens.bin", "wb") as f:
        f.write(data.numpy().astype("<u2").tobytes())
    print(f"{name}: {sum(p.numel() for p in parameters.values())} parameters, {lines[0]}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    here = os.path.dirname(os.path.abspath(__file__))
    for name in sys.argv[1:] or MODELS:
        make(name, os.path.join(here, name))
