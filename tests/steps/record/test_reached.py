"""Which step a script has come to is said while it runs."""

from undertorch.gpus import find
from undertorch.steps.record import reached, record

SCRIPT = """
import time, torch
from torch import nn
model = nn.Linear(3, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    model(torch.randn(4, 3, device="cuda")).sum().backward()
    optimizer.step()
    if step == 4:
        time.sleep(1.05)
    elif step == 5:
        time.sleep(0.2)
"""


def test_the_steps_come_in_their_order(tmp_path, monkeypatch):
    """The second is written as it ends; then one a second, which is the sixth: it ends after the sleep."""
    monkeypatch.setattr(reached, "SAID_EVERY_S", 0.05)
    script, told = tmp_path / "train.py", []
    script.write_text(SCRIPT)
    recording = record(script, (), find("H200"), step=8, progress=told.append)
    said = [stage for stage in told if " is done" in stage]
    assert said == ["train.py: step 2 of 8 is done", "train.py: step 6 of 8 is done"]
    assert recording.assumptions == ()


def test_nobody_is_told_where_nobody_asks(tmp_path):
    write = reached.writer("")
    write(3)
    with reached.said(str(tmp_path / "step"), "train.py", 8, None):
        write(4)
    assert list(tmp_path.iterdir()) == []
