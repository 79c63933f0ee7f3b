"""How good the model is: bits a byte of held-out text, and samples."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from undertorch.train.distributed import Group
from undertorch.train.loader import validation_count, validation_rows
from undertorch.train.model import GPT, NO_TARGET
from undertorch.train.tokens import Array, Text

TEMPERATURE = 0.8
"""Of samples: the logits are divided by it."""


def token_bytes(text: Text) -> Array:
    """Bytes of each token. A byte-level token is spelled in one character a byte; the end of a text has none."""
    tokenizer = text.tokenizer
    made = np.array([len(tokenizer.id_to_token(number)) for number in range(tokenizer.get_vocab_size())])
    made[text.end_of_text] = 0
    return made


@torch.no_grad()
def bits_a_byte(model: nn.Module, text: Text, context: int, batch: int, one: Group, most: int | None = None) -> float:
    """Of the held-out text, or of its first `most` rows. Every token is predicted from those before it in its row."""
    rows = validation_count(text.validation, context)
    rows = rows if most is None else min(rows, most)
    lengths = token_bytes(text)
    nats = torch.zeros((), dtype=torch.float64, device=one.device)
    size = 0
    model.eval()
    for first in range(0, rows, batch * one.world):
        # All processes make as many calls, of rows that may be beyond the end: sharded parameters are gathered by all.
        begin = first + one.rank * batch
        made = validation_rows(text.validation, context, begin, batch)
        made[max(rows - begin, 0) :] = NO_TARGET
        targets = made[:, 1:]
        count = int((targets != NO_TARGET).sum())
        given = torch.from_numpy(np.where(made == NO_TARGET, text.end_of_text, made)[:, :-1]).to(one.device)
        loss = model(given, torch.from_numpy(targets).to(one.device))
        if count:
            nats += loss.double() * count
            size += int(lengths[targets[targets != NO_TARGET]].sum())
    model.train()
    total, bytes_ = one.means(float(nats), float(size))
    return total / math.log(2) / bytes_


@torch.no_grad()
def samples(model: GPT, text: Text, prompts: Sequence[str], tokens: int, seed: int, device: torch.device) -> list[str]:
    """What the model writes after each prompt, drawn at TEMPERATURE with a generator of this seed; none is selected."""
    generator = torch.Generator().manual_seed(seed)
    rows = [[text.end_of_text, *text.tokenizer.encode(prompt, add_special_tokens=False).ids] for prompt in prompts]
    known = text.tokenizer.get_vocab_size()
    model.eval()
    written = []
    for row in rows:
        for _ in range(tokens):
            given = torch.tensor([row[-model.shape.context :]], device=device)
            logits = model(given)[0, -1, :known].float().cpu()  # what the vocabulary is padded with is no token
            chances = torch.softmax(logits / TEMPERATURE, dim=-1)
            token = int(torch.multinomial(chances, 1, generator=generator))
            if token == text.end_of_text:
                break
            row.append(token)
        written.append(text.tokenizer.decode(row[1:]))
    model.train()
    return written
