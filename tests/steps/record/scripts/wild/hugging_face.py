"""A Hugging Face model from its config: gpt2, llama or bert."""

import sys

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}


def gpt2():
    model = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=1000, n_positions=128))
    model.gradient_checkpointing_enable()
    return model


def llama():
    return LlamaForCausalLM(LlamaConfig(**SMALL, intermediate_size=128, num_key_value_heads=2))


def bert():
    return BertForSequenceClassification(BertConfig(**SMALL, intermediate_size=128, num_labels=3))


kind = sys.argv[1]
model = {"gpt2": gpt2, "llama": llama, "bert": bert}[kind]().cuda()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(3):
    tokens = torch.randint(1000, (4, 32), device="cuda")
    labels = torch.randint(3, (4,), device="cuda") if kind == "bert" else tokens
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
