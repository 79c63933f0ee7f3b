"""A training loop that saves at every turn as careful people do, logs to a file and over the network, and cleans up.

python saves.py PORT [raises|waits]
"""
# As scripts are written.
# ruff: noqa: PTH105, PTH107, PTH123

import atexit
import json
import logging
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import torch
from torch import nn

PORT = int(sys.argv[1])
HOW = sys.argv[2] if len(sys.argv) > 2 else ""
OUT = Path("out")
KEPT = 2


class Saver:
    def __del__(self):
        print("__del__ ran")


atexit.register(print, "atexit ran")
saver = Saver()
logging.basicConfig(filename=OUT / "train.log", level=logging.INFO)


def save(step, model, optimizer):
    """Whole or not at all, and no more than two."""
    aside = OUT / "checkpoint.tmp"
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, aside)
    os.replace(aside, OUT / f"checkpoint-{step}.pt")  # checkpoints
    for old in sorted(OUT.glob("checkpoint-*.pt"), key=lambda path: int(path.stem.split("-")[1]))[:-KEPT]:
        os.remove(old)  # the oldest


def report(step, loss):
    with open(OUT / "metrics.jsonl", "a") as metrics:
        metrics.write(json.dumps({"step": step, "loss": loss}) + "\n")
    logging.info("step %d", step)
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{PORT}/log?step={step}", timeout=5)  # the network
    except urllib.error.URLError:
        pass
    else:
        raise AssertionError("the server was reached")


def look(step, model):
    """What was written is there, as it was written."""
    names = {path.name for path in OUT.glob("checkpoint-*.pt")}
    assert names == {f"checkpoint-{number}.pt" for number in range(max(100, step - 1) if step > 100 else 99, step + 1)}
    assert not (OUT / "checkpoint.tmp").exists()
    saved = torch.load(OUT / f"checkpoint-{step}.pt")
    assert saved["step"] == step
    assert saved["model"].keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        again = saved["model"][name]
        assert (again.shape, again.dtype, again.device) == (tensor.shape, tensor.dtype, tensor.device)
    lines = (OUT / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"step": 99, "loss": 3.0}
    assert [json.loads(line)["step"] for line in lines[1:]] == list(range(100, step + 1))
    assert f"step {step}" in (OUT / "train.log").read_text()


def tag(step):
    subprocess.run(["sh", "-c", f"echo {step} > out/tag; rm -f out/config.json"], check=True)  # a program
    assert (OUT / "tag").read_text() == f"{step}\n"
    assert not (OUT / "config.json").exists()


def train():
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    try:
        for step in range(100, 104):
            loss = model(torch.ones(4, 8, device="cuda")).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            save(step, model, optimizer)
            report(step, loss.item())
            look(step, model)
            tag(step)
            if HOW == "raises":
                raise ValueError("the loss is negative")
            if HOW == "waits":
                print("waiting", flush=True)
                time.sleep(600)
    finally:
        save(999, model, optimizer)
        report(999, 0.0)
        (OUT / "finished").write_text("yes")
        print("finally ran")


train()
