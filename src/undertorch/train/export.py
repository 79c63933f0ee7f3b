"""A trained model as Hugging Face's transformers loads it: config.json, model.safetensors, tokenizer files.

GPT-2 there keeps its matrices the other way round (Conv1D); Llama has queries, keys and values apart. Logits are equal
up to rounding. The padded rows of the vocabulary go along.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undertorch.train.config import Settings, Shape
from undertorch.train.model import GPT, ROPE_BASE
from undertorch.train.tokens import END_OF_TEXT, Text


@torch.no_grad()
def export(model: GPT, settings: Settings, text: Text, folder: Path, writes: bool = True) -> None:
    """Writes the folder. Of a model in shares all processes call it, of which one `writes`. Raises OSError."""
    from safetensors.torch import save_file

    shape = settings.shape
    named = {name: _whole(p).float().cpu() for name, p in model.named_parameters()}
    if not writes:
        return
    folder.mkdir(parents=True, exist_ok=True)
    weights = _gpt2(named, shape) if shape.family == "gpt2" else _llama(named, shape)
    save_file({name: w.contiguous() for name, w in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    config = {**(_gpt2_config(shape) if shape.family == "gpt2" else _llama_config(shape))}
    end = text.end_of_text
    config |= {"bos_token_id": end, "eos_token_id": end, "vocab_size": shape.padded, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    text.tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT,
        "model_max_length": shape.context,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=2), "utf-8")


def _whole(p: Tensor) -> Tensor:
    """Shares put together, by all processes; any other tensor itself."""
    given: Any = p.detach()
    whole: Tensor = given.full_tensor() if hasattr(given, "full_tensor") else given
    return whole


def _gpt2(named: dict[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    made = {"transformer.wte.weight": named["tokens.weight"], "transformer.wpe.weight": named["positions.weight"]}
    made |= {f"transformer.ln_f.{kind}": named[f"norm.{kind}"] for kind in ("weight", "bias")}
    ours = {
        "attn.c_attn": "attention.qkv",
        "attn.c_proj": "attention.out",
        "mlp.c_fc": "mlp.up",
        "mlp.c_proj": "mlp.down",
    }
    for layer in range(shape.layers):
        here, there = f"blocks.{layer}", f"transformer.h.{layer}"
        for theirs, name in ours.items():
            made[f"{there}.{theirs}.weight"] = named[f"{here}.{name}.weight"].t()
            made[f"{there}.{theirs}.bias"] = named[f"{here}.{name}.bias"]
        for theirs, name in {"ln_1": "norm1", "ln_2": "norm2"}.items():
            made |= {f"{there}.{theirs}.{kind}": named[f"{here}.{name}.{kind}"] for kind in ("weight", "bias")}
    return made


def _llama(named: dict[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    made = {"model.embed_tokens.weight": named["tokens.weight"], "model.norm.weight": named["norm.weight"]}
    if not shape.tied:
        made["lm_head.weight"] = named["head.weight"]
    keys = shape.kv_heads * shape.head_width
    for layer in range(shape.layers):
        here, there = f"blocks.{layer}", f"model.layers.{layer}"
        qkv = named[f"{here}.attention.qkv.weight"].split((shape.width, keys, keys))
        for name, weight in zip("qkv", qkv, strict=True):
            made[f"{there}.self_attn.{name}_proj.weight"] = weight
        made[f"{there}.self_attn.o_proj.weight"] = named[f"{here}.attention.out.weight"]
        for name in ("gate", "up", "down"):
            made[f"{there}.mlp.{name}_proj.weight"] = named[f"{here}.mlp.{name}.weight"]
        made[f"{there}.input_layernorm.weight"] = named[f"{here}.norm1.weight"]
        made[f"{there}.post_attention_layernorm.weight"] = named[f"{here}.norm2.weight"]
    return made


def _gpt2_config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": shape.layers, "n_embd": shape.width,
        "n_head": shape.heads, "n_positions": shape.context, "n_inner": shape.hidden,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    }  # fmt: skip


def _llama_config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": shape.layers,
        "hidden_size": shape.width, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.hidden, "max_position_embeddings": shape.context, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "rope_theta": ROPE_BASE[shape.family], "tie_word_embeddings": shape.tied,
        "attention_bias": False, "mlp_bias": False,
    }  # fmt: skip
