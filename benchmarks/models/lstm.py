"""An LSTM language model of words, the large one of Zaremba et al. 2014, "Recurrent Neural Network Regularization".

python benchmarks/models/lstm.py [--batch 20] [--sequence 35] [--layers 2] [--steps 3]

Two layers of 1500 units, unrolled for 35 words of Penn Treebank's 10,000; the state goes on from batch to batch.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 10_000

State = tuple[Tensor, Tensor]


class LanguageModel(nn.Module):
    def __init__(self, layers: int = 2, width: int = 1500, dropout: float = 0.65):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        x = self.dropout(self.tokens(tokens))
        x, state = self.lstm(x, state)
        return self.head(self.dropout(x)), state

    def start(self, batch: int) -> State:
        weight = self.head.weight
        zeros = weight.new_zeros(self.lstm.num_layers, batch, self.lstm.hidden_size)
        return zeros, zeros.clone()


def train(batch: int, sequence: int, layers: int, steps: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LanguageModel(layers=layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    state = model.start(batch)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")
    for _ in range(steps):
        window = torch.randint(VOCABULARY, (sequence + 1, batch), device=device)
        tokens, targets = window[:-1], window[1:]
        state = tuple(part.detach() for part in state)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits, state = model(tokens, state)
            loss = F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
    print(f"loss {loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains an LSTM on random words.")
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--sequence", type=int, default=35)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
