"""Saves what has no values in every way there is, and reads it back."""

import copy
import io
import pickle
import sys

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 6), nn.Embedding(5, 3)).cuda()
model[0].weight.requires_grad_(False)
optimizer = torch.optim.AdamW(model[0].parameters())


def alike(left, right, device="cuda:0"):
    return (left.shape, left.stride(), left.dtype, str(right.device)) == (
        right.shape,
        right.stride(),
        right.dtype,
        device,
    ) and left.requires_grad == right.requires_grad


def through(found, **named):
    kept = io.BytesIO()
    torch.save(found, kept)
    kept.seek(0)
    return torch.load(kept, **named)


# A tensor, its gradient flag, its strides; beside it what has values.
turned = torch.randn(3, 5, device="cuda", dtype=torch.bfloat16).t()
again = through({"turned": turned, "real": torch.arange(3), "nested": [{"x": (turned, 1.5)}]})
assert alike(turned, again["turned"])
assert again["real"].tolist() == [0, 1, 2]
assert alike(turned, again["nested"][0]["x"][0])
assert again["nested"][0]["x"][1] == 1.5

# To the host and back.
assert str(through(turned, map_location="cpu").device) == "cpu"
assert str(through([turned], map_location={"cuda:0": "cpu"})[0].device) == "cpu"
assert alike(turned.cpu(), through(turned.cpu()), "cpu")

# A whole model, and its parameters as such.
whole = through(model, weights_only=False)
assert isinstance(whole[0].weight, nn.Parameter)
assert not whole[0].weight.requires_grad
assert whole[0].bias.requires_grad
tied = {"one": model[0].weight, "two": model[0].weight}
assert (loaded := through(tied))["one"] is loaded["two"]

# In a pickle, and deep copies as ever.
assert alike(turned, pickle.loads(pickle.dumps(turned)))
assert alike(turned, copy.deepcopy(turned))

# In a file, and by its older format.
torch.save(model.state_dict(), "model.pt", _use_new_zipfile_serialization=False)
model.load_state_dict(torch.load("model.pt"))
assert copy.deepcopy(model)[0].weight.is_cuda

if "safetensors" in sys.argv:
    from safetensors import safe_open
    from safetensors.torch import load_file, save, save_file, save_model

    save_file(model.state_dict(), "model.safetensors", metadata={"step": "1"})
    again = load_file("model.safetensors")
    assert again.keys() == model.state_dict().keys()
    assert again["0.weight"].shape == (6, 4)
    assert again["0.weight"].abs().sum() == 0
    assert safe_open("model.safetensors", "pt").metadata() == {"step": "1"}
    save_file({"real": torch.arange(3)}, "real.safetensors")
    assert load_file("real.safetensors")["real"].tolist() == [0, 1, 2]
    assert len(save({"x": turned.contiguous()})) > 30
    model.tied = model[0]
    save_model(model, "tied.safetensors")
    assert not {"tied.weight", "0.weight"} <= load_file("tied.safetensors").keys()

for _ in range(3):
    model[0](torch.ones(2, 4, device="cuda")).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), "optimizer.pt")
    optimizer.load_state_dict(torch.load("optimizer.pt"))
