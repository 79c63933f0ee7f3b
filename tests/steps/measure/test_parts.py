"""The small parts: which steps do what, whether there is a GPU, what a function is called."""

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from undertorch.steps.measure.boundaries import Boundaries
from undertorch.steps.measure.devices import has_cuda
from undertorch.steps.measure.plan import plan
from undertorch.steps.qualnames import qualname


def test_ordinarily_three_steps_warm_up_five_are_timed_and_three_profiled():
    made = plan(None)
    assert (made.clock, made.profiler, made.shown, made.last) == (3, 8, 10, 12)


@pytest.mark.parametrize("step", range(2, 20))
def test_a_step_that_is_asked_for_is_profiled_alone_and_never_the_first(step):
    made = plan(step)
    assert 1 <= made.clock <= made.profiler < made.shown == made.last == step
    assert made.profiler - made.clock <= 5


def test_this_machine_is_asked_without_importing_torch(monkeypatch):
    """Where the environment hides every GPU there is none, whatever is built in."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not has_cuda()


def test_a_line_is_in_the_function_that_python_names(tmp_path):
    source = tmp_path / "model.py"
    source.write_text(
        "import os\n"
        "class Net:\n"
        "    def forward(self):\n"
        "        return [\n"
        "            1,\n"
        "        ]\n"
        "def main():\n"
        "    def step():\n"
        "        pass\n"
        "    step()\n"
    )
    lines = {1: "<module>", 5: "Net.forward", 9: "main.<locals>.step", 10: "main"}
    assert {line: qualname(str(source), line) for line in lines} == lines
    assert qualname(str(tmp_path / "none.py"), 3) is None


def test_a_step_within_a_step_is_one_and_one_that_failed_is_none():
    """Of a class whose step() calls that of the class below, and whose first step raises: four calls, three steps."""
    told: list[int] = []
    boundaries = Boundaries(told.append, lambda frame: None, lambda frame: None)

    class Failing(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            self.calls += 1
            if self.calls == 1:
                raise RuntimeError("the first step fails")
            return super().step(closure)

    weight = torch.zeros(2, requires_grad=True)
    weight.grad = torch.ones(2)
    torch.optim.SGD([weight], lr=1.0)  # torch puts its hooks around a class's step() when the first of it is made
    outer = Failing([weight], lr=1.0)
    hooks = (
        register_optimizer_step_pre_hook(boundaries._begins),
        register_optimizer_step_post_hook(boundaries._done),
    )
    try:
        with pytest.raises(RuntimeError, match="the first step fails"):
            outer.step()
        for _ in range(3):
            outer.step()
    finally:
        for hook in hooks:
            hook.remove()
    assert told == [1, 2, 3]
