"""A script that is seen runs as it would alone, and each of its calls gets the line that made it."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from steps.measure.runs import SCRIPTS, Run, line
from undertorch import gpus
from undertorch.records import Phase
from undertorch.steps.measure import exchange
from undertorch.steps.measure.naming import mark_number
from undertorch.steps.measure.spawn import run_measured
from undertorch.steps.record import record
from undertorch.steps.record.errors import MissingScript, NoStep, RecordError, ScriptFailed

STEP = "ProfilerStep#"


def calls(trace: dict, number: int | None = None) -> list[dict]:
    """Calls into ATen, those of a step where one is named."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    begin, end = float("-inf"), float("inf")
    if number is not None:
        step = next(event for event in events if event["name"] == f"{STEP}{number}")
        begin, end = step["ts"], step["ts"] + step["dur"]
    return [e for e in events if e["cat"] == "cpu_op" and e["name"].startswith("aten::") and begin <= e["ts"] <= end]


def opened(path: Path) -> dict:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def test_the_losses_are_the_same_bits(eager: Run):
    losses = eager.seen["losses"]
    assert len(losses) == 12
    assert losses == eager.alone["losses"][:12]


def test_markers_leave_the_ops_as_they_are(eager: Run, tmp_path):
    """Held against torch's profiler without markers, over the same step."""
    plain = tmp_path / "plain.json"
    script = SCRIPTS / "everything.py"
    command = [sys.executable, SCRIPTS / "profiled.py", "11", plain, script, tmp_path / "losses"]
    subprocess.run(command, check=True)
    seen = calls(opened(eager.folder / exchange.TRACE), 11)
    assert Counter(call["name"] for call in seen) == Counter(call["name"] for call in calls(opened(plain)))


def test_the_script_is_stopped_after_the_last_profiled_step_and_its_finally_runs(eager: Run):
    """3 steps warm up, 5 are timed, 1 settles the profiler, 3 are profiled: `finally:` wrote the losses of 12."""
    assert eager.measured.steps == (10, 11, 12)
    assert len(eager.measured.timed_us) == 5
    assert not eager.measured.ended_early


def test_two_microbatches_of_24_samples_make_48(eager: Run):
    assert eager.measured.samples == (48, 48, 48)


def sources(run: Run) -> list:
    """Of each call of step 11 that computes something, the place that it is given."""
    lines = run.lines
    step = next(one for one in lines.joined.trace.on_cpu if one.name == f"{STEP}11")
    found = []
    for event in lines.joined.trace.on_cpu:
        if event.name.startswith("aten::") and step.start <= event.start <= step.end:
            found.append(lines._plain(event, event, lines._around(event)))
    return found


def test_every_call_has_a_line(eager: Run):
    """But those that torch's optimizer makes after its own end, where the profiler's step begins."""
    without = [one.name for one in sources(eager) if one.where is None]
    assert without == []


@pytest.mark.parametrize(
    ("name", "phase", "comment", "function"),
    [
        ("aten::addmm", Phase.FORWARD, "first", "Net.block"),
        ("aten::addmm", Phase.RECOMPUTE, "first", "Net.block"),
        ("aten::addmm", Phase.FORWARD, "last", "Net.forward"),
        ("aten::mul", Phase.FORWARD, "in Square.forward", "Square.forward"),
        ("aten::mul", Phase.BACKWARD, "apply", "Net.forward"),
        ("aten::mm", Phase.BACKWARD, "first", "Net.block"),
        ("aten::mm", Phase.BACKWARD, "last", "Net.forward"),
        ("aten::nll_loss_forward", Phase.LOSS, "model", "train"),
        ("aten::nll_loss_backward", Phase.BACKWARD, "model", "train"),
        ("aten::ones_like", Phase.BACKWARD, "backward", "train"),
        ("aten::randn", Phase.OTHER, "batch", "train"),
        ("aten::_foreach_norm", Phase.CLIP, "clip", "train"),
        ("aten::_local_scalar_dense", Phase.OTHER, "read", "train"),
        ("aten::_foreach_lerp_", Phase.UPDATE, "step", "train"),
    ],
)
def test_a_call_stands_at_the_line_that_made_it(eager: Run, name, phase, comment, function):
    """A backward call at its forward's, and what a custom Function's backward runs at the line that called it."""
    places = {
        (one.where.line, one.where.function)
        for one in sources(eager)
        if one.name == name and one.phase is phase and one.where is not None
    }
    assert (line(comment), function) in places


def test_lines_and_phases_are_those_of_the_step_recorded_without_a_gpu(eager: Run, tmp_path):
    """Of every call that both know by one name. The recorder tells them by a mode of the dispatcher, in the script's
    process; measuring by ranges in the profiler's trace, afterwards.

    Left out: detach, which the recorder hides; the step of the optimizer, which reads its counters on a CPU; a gelu
    that checkpointing begins to compute again and breaks off: the profiler sees it begin.
    """
    recording = record(SCRIPTS / "everything.py", [str(tmp_path / "losses")], gpus.find("H200"), step=3)
    seen = list({source.key: source for source in sources(eager)}.values())
    names = {op.name for op in recording.ops} & {source.name for source in seen} - {"aten::detach"}
    recorded, measured = (
        Counter(
            (one.name, one.where.line, one.where.function, one.phase)
            for one in some
            if one.name in names
            and one.phase is not Phase.UPDATE
            and (one.name, one.phase) != ("aten::gelu", Phase.RECOMPUTE)
        )
        for some in (recording.ops, seen)
    )
    assert len(names) > 25
    assert measured == recorded


def test_gradients_are_added_up_at_the_line_of_the_forward(eager: Run):
    """The second microbatch adds to what the first left: of six parameters, at the lines of their modules."""
    added = [one for one in sources(eager) if one.phase is Phase.ACCUMULATE]
    assert {one.where.line for one in added} >= {line("first"), line("last")}
    assert all(one.name == "aten::add_" for one in added)


def test_modules_are_named_as_the_model_names_them(eager: Run):
    modules = {one.module for one in sources(eager) if one.phase is Phase.FORWARD}
    assert {"first", "norm", "last"} <= modules


@pytest.mark.slow
def test_compiled_code_stays_compiled(compiled: Run):
    """One graph and no break, seen as alone; the same losses bit for bit."""
    assert compiled.seen["losses"] == compiled.alone["losses"][:12]
    for counters in (compiled.seen["counters"], compiled.alone["counters"]):
        assert counters["stats"]["unique_graphs"] == 1
        assert not counters.get("graph_break")


@pytest.mark.slow
def test_compiled_code_runs_without_markers(compiled: Run):
    """Its calls stand at the line that called it."""
    inside = {line("first"), line("apply"), line("last"), line("checkpoint")}
    assert inside.isdisjoint(mark.where.line for mark in compiled.measured.marks if mark.where is not None)
    whats = {mark.where.line for mark in compiled.measured.marks if mark.what == "compiled" and mark.where is not None}
    assert whats == {line("model")}


@pytest.mark.slow
def test_inductor_names_the_lines_of_its_kernels(compiled: Run):
    """Of the graph that the net became: the products at their modules' lines."""
    found = {
        (call.name, chain[0].line, chain[0].function)
        for calls in compiled.measured.compiled.values()
        for call in calls
        for chain in call.wheres
    }
    assert ("extern_kernels.addmm", line("first"), "Net.block") in found
    assert ("extern_kernels.addmm", line("last"), "Net.forward") in found


@pytest.mark.slow
def test_graphs_that_inductor_does_not_cache_are_told_apart(tmp_path, monkeypatch):
    """They have no key of its cache, and the profiler would show forward and backward under one name: with torch 2.11
    on a GPU those that recompute what draws numbers (torch/_prims/rng_prims.py), here those without a cache."""
    monkeypatch.setenv("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")
    script = SCRIPTS.parents[1] / "record" / "scripts" / "compiled_checkpoint.py"
    measured = run_measured(script, [], tmp_path, without_gpu=True)
    trace = opened(tmp_path / exchange.TRACE)
    ran = {event["name"].split()[3] for event in trace["traceEvents"] if "CompiledFxGraph" in event.get("name", "")}
    assert len(ran) == 2
    assert ran == set(measured.compiled)


def test_a_range_is_named_by_its_mark(eager: Run):
    numbers = {mark_number(one.name) for one in eager.lines.joined.trace.on_cpu} - {None}
    assert numbers
    assert max(numbers) < len(eager.measured.marks)


def test_without_an_optimizer_a_step_ends_with_its_backward(tmp_path):
    measured = run_measured(SCRIPTS / "by_hand.py", ["30"], tmp_path, without_gpu=True)
    assert measured.steps == (10, 11, 12)
    assert measured.boundary is not None


def test_a_script_that_ends_too_early_is_told_how_many_steps_it_takes(tmp_path):
    with pytest.raises(NoStep, match=r"ended after 5 steps, and measuring takes 12 .* or pass --step 5\."):
        run_measured(SCRIPTS / "by_hand.py", ["5"], tmp_path, without_gpu=True)


def test_a_step_that_is_asked_for_is_the_one_profiled(tmp_path):
    measured = run_measured(SCRIPTS / "by_hand.py", ["5"], tmp_path, step=5, without_gpu=True)
    assert measured.steps == (5,)
    assert len(measured.timed_us) == 2  # steps 2 and 3: the first warms up, in the fourth the profiler settles


@pytest.mark.slow
def test_a_script_that_ends_among_the_profiled_steps_shows_those_it_made(tmp_path):
    measured = run_measured(SCRIPTS / "by_hand.py", ["11"], tmp_path, without_gpu=True)
    assert measured.steps == (10, 11)
    assert measured.ended_early


def test_bad_input_gets_one_sentence(tmp_path):
    failing = tmp_path / "failing.py"
    failing.write_text("raise RuntimeError('no data')\n")
    with pytest.raises(ScriptFailed, match=r"raised RuntimeError; its traceback is above"):
        run_measured(failing, [], tmp_path, without_gpu=True)
    with pytest.raises(MissingScript, match="there is no such file"):
        run_measured(tmp_path / "none.py", [], tmp_path, without_gpu=True)
    with pytest.raises(RecordError, match="--step 1"):
        run_measured(failing, [], tmp_path, step=1, without_gpu=True)


def test_what_the_script_does_as_it_is_stopped_is_its_own_affair(tmp_path):
    """It catches the stop and trains on: it is told again at each step, and its process ended at last."""
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(
        "import torch\n"
        "p = torch.nn.Parameter(torch.ones(3))\n"
        "optimizer = torch.optim.SGD([p], lr=0.1)\n"
        "while True:\n"
        "    try:\n"
        "        p.sum().backward()\n"
        "        optimizer.step()\n"
        "    except BaseException:\n"
        "        pass\n"
    )
    measured = run_measured(stubborn, [], tmp_path, without_gpu=True)
    assert measured.steps == (10, 11, 12)
