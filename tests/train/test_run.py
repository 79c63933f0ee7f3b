"""Whole runs of a tiny model on the CPU: what they learn, what they leave, and how they go on."""

import errno
import json
import math
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from tiny_training import ALONE, SMALL, a_run, asked_for, some_text, tiny, words
from undertorch.train import checkpoint, kept, loop
from undertorch.train.checkpoint import latest, read
from undertorch.train.config import PRESETS, changed, preset
from undertorch.train.errors import BadCheckpoint, BadNumbers, BadSetting, NotSaved
from undertorch.train.loop import CHECKPOINTS, Ended
from undertorch.train.model import GPT, made
from undertorch.train.report import METRICS, Report, picture, read_metrics
from undertorch.train.start import RUN, alone_in, start

CPU = torch.device("cpu")
FAMILIES = ("nano", "nano-llama")


@pytest.fixture
def text(tmp_path):
    return some_text(tmp_path, tiny())


def losses(folder):
    """By step."""
    return {row["step"]: (row["loss"], row["norm"]) for row in read_metrics(folder / METRICS) if "loss" in row}


def weights(run):
    return {name: tensor.clone() for name, tensor in run.update.tensors().items()}


def gone_on(folder, settings, text):
    """A new process's run, from the last whole checkpoint."""
    run = a_run(folder, settings, text)
    found, _ = latest(folder / CHECKPOINTS)
    loop.resume(run, found)
    return run


@pytest.mark.parametrize("name", FAMILIES)
def test_it_learns_which_words_are_frequent(tmp_path, text, name):
    run = a_run(tmp_path / "run", tiny(preset=name, steps=60, rate=1e-2, evaluate_every=100), text)
    before = loop.bits_a_byte(run)
    assert loop.train(run) is Ended.DONE
    assert loop.bits_a_byte(run) < 0.75 * before


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_parameters_and_matmuls_that_it_says(name):
    """6 FLOPs a weight that is multiplied with, forward and backward; GPT-2 124M's own size is 124,439,808 with 50,257
    tokens (its model card), and Llama 3.2 1B's 1.24e9 with tied embeddings."""
    shape = preset(name).shape
    with torch.device("meta"):
        model = GPT(preset(name))
    assert sum(p.numel() for p in model.parameters()) == shape.parameters
    matrices = [p for part in model.blocks for p in part.parameters() if p.dim() == 2]
    multiplied = sum(p.numel() for p in matrices) + model.head_weight.numel()
    biases_and_norms = sum(p.numel() for p in model.parameters() if p.dim() == 1)
    attention = 6 * shape.layers * shape.width * shape.context
    assert shape.flops_a_token == 6 * (multiplied + biases_and_norms) + attention
    assert shape.padded % 128 == 0
    if name == "gpt2-124m":
        assert shape.parameters - (shape.padded - shape.vocabulary) * shape.width == 124_439_808


@pytest.mark.parametrize("name", FAMILIES)
def test_a_place_knows_nothing_of_what_follows(name):
    settings = tiny(preset=name)
    model = made(settings, CPU, torch.float32)
    tokens = torch.randint(0, 300, (2, 16), generator=torch.Generator().manual_seed(1))
    other = tokens.clone()
    other[:, 9:] = (other[:, 9:] + 1) % 300
    a, b = model(tokens), model(other)
    assert torch.equal(a[:, :9], b[:, :9])
    assert not torch.equal(a[:, 9:], b[:, 9:])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("fused", [True, False])
def test_the_loss_is_that_of_its_logits(name, fused):
    """As torch's cross-entropy has it, in float64."""
    settings = replace(tiny(preset=name), fused_loss=fused)
    model = made(settings, CPU, torch.float64)
    tokens = torch.randint(0, 300, (2, 17), generator=torch.Generator().manual_seed(2))
    targets = tokens[:, 1:].clone()
    targets[1, 4:] = -1
    expected = torch.nn.functional.cross_entropy(
        model(tokens[:, :-1]).flatten(0, 1), targets.flatten(), ignore_index=-1
    )
    assert model(tokens[:, :-1], targets).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_recomputing_changes_no_gradient(name):
    gradients = []
    for recompute in (False, True):
        model = made(replace(tiny(preset=name), recompute=recompute), CPU, torch.float32)
        tokens = torch.randint(0, 300, (2, 17), generator=torch.Generator().manual_seed(3))
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_accumulating_is_a_larger_batch(tmp_path, text):
    """The mean over two microbatches of 2 rows is that over 4; the rows are the same."""
    large = a_run(tmp_path / "a", tiny(batch=4, steps=3, evaluate_every=9), text)
    small = a_run(tmp_path / "b", tiny(batch=2, accumulate=2, steps=3, evaluate_every=9), text)
    loop.train(large)
    loop.train(small)
    for step, (loss, norm) in losses(tmp_path / "a").items():
        assert losses(tmp_path / "b")[step] == pytest.approx((loss, norm), rel=1e-5)


def test_the_rate_rises_straight_and_falls_by_a_cosine():
    settings = tiny(steps=110, rate=1.0)
    settings = replace(settings, warmup=10, last_rate=0.1)
    assert [loop.learning_rate(step, settings) for step in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert loop.learning_rate(60, settings) == pytest.approx(0.55)
    assert loop.learning_rate(110, settings) == pytest.approx(0.1)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_resumed_run_is_the_run_that_was_left_alone_bit_for_bit(tmp_path, text, name):
    settings = tiny(preset=name, steps=8)
    whole = a_run(tmp_path / "whole", settings, text)
    loop.train(whole)
    first = a_run(tmp_path / "run", settings, text)
    first.settings = replace(settings, steps=settings.steps)
    with stopped_after(first, 5):
        assert loop.train(first) is Ended.TERMINATED
    torch.rand(100)  # the generator of this process is elsewhere by now
    second = gone_on(tmp_path / "run", settings, text)
    assert second.done == 5
    assert loop.train(second) is Ended.DONE
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    assert all(torch.equal(tensor, weights(second)[name]) for name, tensor in weights(whole).items())


@contextmanager
def stopped_after(run, step):
    """SIGTERM arrives in the middle of that step."""
    compute = run.step.compute

    def then_stop(*given):
        if run.done == step - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return compute(*given)

    run.step.compute = then_stop
    yield


@pytest.mark.parametrize(
    ("number", "ended"),
    [(signal.SIGINT, Ended.INTERRUPTED), (signal.SIGTERM, Ended.TERMINATED), (signal.SIGHUP, Ended.TERMINATED)],
)
def test_a_run_that_is_asked_to_stop_saves_the_step_it_is_in(tmp_path, text, number, ended):
    run = a_run(tmp_path / "run", tiny(checkpoint_every=100), text)
    compute = run.step.compute
    run.step.compute = lambda *given: (os.kill(os.getpid(), number) if run.done == 1 else None, compute(*given))[1]
    usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # the tests may run under nohup, which ignores one
    try:
        assert loop.train(run) is ended
        assert latest(tmp_path / "run" / CHECKPOINTS)[0].progress.step == 2
        assert signal.getsignal(number) is usual
    finally:
        signal.signal(number, before)


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with loop.stopping() as asked:
            os.kill(os.getpid(), signal.SIGHUP)
            assert asked() is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_last_and_the_best_checkpoints_are_kept(tmp_path, text):
    run = a_run(tmp_path, tiny(keep=2, checkpoint_every=100, evaluate_every=100), text)
    for step, bits in enumerate((3.0, 2.0, 2.5, 2.6, None), 1):
        run.done = step
        loop.save(run, bits)
    assert [path.name for path in checkpoint.every(tmp_path / CHECKPOINTS)] == [checkpoint.name(n) for n in (5, 4, 2)]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("cut", "weights.safetensors has"),
        ("flipped", "the content of weights.safetensors"),
        ("gone", "optimizer.safetensors is missing"),
        ("no list", "checkpoint.json is missing"),
        ("list", "checkpoint.json is not what was written"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_it_used(tmp_path, text, damage, said):
    run = a_run(tmp_path, tiny(steps=6, checkpoint_every=3), text)
    loop.train(run)
    last = checkpoint.every(tmp_path / CHECKPOINTS)[0]
    file = last / "weights.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[:-1])
    elif damage == "flipped":
        content[-9] ^= 1
        file.write_bytes(content)
    elif damage == "gone":
        (last / "optimizer.safetensors").unlink()
    elif damage == "no list":
        (last / checkpoint.ABOUT).unlink()
    else:
        listed = last / checkpoint.ABOUT
        listed.write_text(listed.read_text().replace('"place": 24', '"place": 23'))
    with pytest.raises(BadCheckpoint, match=said):
        read(last)
    found, damaged = latest(tmp_path / CHECKPOINTS)
    assert found.progress.step == 3
    assert len(damaged) == 1
    assert str(last) in str(damaged[0])


def test_a_disk_that_is_full_loses_no_earlier_checkpoint(tmp_path, text, capsys):
    """The kernel refuses bytes beyond RLIMIT_FSIZE in a file as it refuses those that have no room, with an OSError."""
    run = a_run(tmp_path, tiny(steps=6, checkpoint_every=3), text)
    save, signals = loop.save, signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fuller(run, bits=None):
        if run.done == 6:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
        save(run, bits)

    try:
        loop.save = fuller
        assert loop.train(run) is Ended.DONE
    finally:
        loop.save = save
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, signals)
    assert "the checkpoint of step 6 could not be written" in capsys.readouterr().out
    found, damaged = latest(tmp_path / CHECKPOINTS)
    assert (found.progress.step, damaged) == (3, [])
    assert [path.name for path in (tmp_path / CHECKPOINTS).iterdir()] == [checkpoint.name(3)]


def test_a_run_whose_last_checkpoint_finds_no_room_says_where_it_goes_on(tmp_path, monkeypatch):
    """After all that it has to tell, with an error: whoever started it is not to believe that the weights are safe."""
    write = kept.write

    def fuller(folder, update):
        if "step-00000006" in folder.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(folder, update)

    monkeypatch.setattr(kept, "write", fuller)
    (tmp_path / "text.txt").write_text(words())
    asked = asked_for(tmp_path / "run", tmp_path / "text.txt", steps=6, checkpoint_every=3)
    with pytest.raises(NotSaved, match=r"step 6 could not be written .No space left .*goes on from step-00000003"):
        start(asked, None)


def test_a_resume_that_is_refused_leaves_the_run_as_it_was(tmp_path):
    text, other, folder = tmp_path / "text.txt", tmp_path / "other.txt", tmp_path / "run"
    text.write_text(words())
    other.write_text(words(seed=1))
    start(asked_for(folder, text), None)
    before = (folder / RUN).read_bytes()
    with pytest.raises(BadSetting, match=r"--width 64: the run in .* has 32"):
        start(asked_for(folder, text, resume=True, width=64), None)
    with pytest.raises(BadCheckpoint, match="another text"):
        start(asked_for(folder, other, resume=True), None)
    assert (folder / RUN).read_bytes() == before
    assert start(asked_for(folder, text, resume=True, steps=4), None) is Ended.DONE


def test_copies_that_somebody_keeps_beside_the_checkpoints_are_left_alone(tmp_path, text):
    run = a_run(tmp_path, tiny(keep=1, checkpoint_every=100), text)
    folder = tmp_path / CHECKPOINTS
    for name in ("step-00000001-good", "step-before-finetune", "step-best"):
        (folder / name).mkdir(parents=True)
    loop.train(run)
    assert [path.name for path in checkpoint.every(folder)] == [checkpoint.name(8)]
    assert len(list(folder.iterdir())) == 4
    (folder / checkpoint.name(9)).mkdir()
    (folder / checkpoint.name(9) / "checkpoint.json").write_text("[]")
    found, damaged = latest(folder)
    assert (found.progress.step, len(damaged)) == (8, 1)


@pytest.mark.parametrize("left", [None, "", "{"])
def test_a_run_whose_settings_file_is_lost_goes_on_with_its_checkpoints(tmp_path, left):
    text, folder = tmp_path / "text.txt", tmp_path / "run"
    text.write_text(words())
    start(asked_for(folder, text), None)
    before = (folder / RUN).read_text()
    (folder / RUN).unlink()
    if left is not None:
        (folder / RUN).write_text(left)
    assert start(replace(asked_for(folder, text, resume=True), texts=[]), None) is Ended.DONE
    assert json.loads((folder / RUN).read_text()) == json.loads(before)


def test_fewer_steps_than_were_made_are_refused(tmp_path):
    text, folder = tmp_path / "text.txt", tmp_path / "run"
    text.write_text(words())
    start(asked_for(folder, text), None)
    with pytest.raises(BadSetting, match=r"--steps 2: the run in .* has made 3 already"):
        start(asked_for(folder, text, resume=True, steps=2), None)


def test_a_run_whose_reader_has_gone_goes_on_and_saves(tmp_path):
    """As `undertorch train | head -1` does: the pipe's other end is closed before anything is written."""
    text, folder = tmp_path / "text.txt", tmp_path / "run"
    text.write_text(words())
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-m", "undertorch", "train", str(text), *SMALL, "--out", str(folder), "--steps", "3"],
        stdout=writes, stderr=subprocess.PIPE, text=True, check=False, timeout=300,
    )  # fmt: skip
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, "")
    assert latest(folder / CHECKPOINTS)[0].progress.step == 3


def test_a_second_interrupt_at_the_end_says_nothing(tmp_path):
    """The first is heard in a step, which is saved; the second comes while the process ends, from its last function."""
    text = tmp_path / "text.txt"
    text.write_text(words())
    code = (
        "import atexit, os, signal, sys\n"
        "from undertorch.train import loop\n"
        "from undertorch.cli.main import main\n"
        "rate = loop.learning_rate\n"
        "def asked(step, settings):\n"
        "    if step == 1:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return rate(step, settings)\n"
        "loop.learning_rate = asked\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "train", str(text), *SMALL, "--out", str(tmp_path / "run"), "--steps", "9"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == -signal.SIGINT
    assert "Traceback" not in done.stderr
    assert latest(tmp_path / "run" / CHECKPOINTS)[0].progress.step == 3  # the one in which it was seen


def test_a_file_is_no_folder_of_a_run(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(words())
    with pytest.raises(BadSetting, match=r"text.txt cannot be a run's folder .*exists.*; pass --out for another"):
        start(asked_for(text, text), None)


def test_an_export_never_goes_where_something_is(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "config.json").write_text("{}")
    asked = replace(asked_for(tmp_path / "run", tmp_path / "no.txt"), export=tmp_path / "precious")
    with pytest.raises(BadSetting, match="something there already"):
        start(asked, None)


def test_a_folder_holds_one_run_at_a_time(tmp_path):
    with alone_in(tmp_path / "run", ALONE):
        (tmp_path / "run" / RUN).write_text("{}")
        with pytest.raises(BadSetting, match=f"already .process {os.getpid()}."), alone_in(tmp_path / "run", ALONE):
            pass
    with alone_in(tmp_path / "run", ALONE):
        pass
    with pytest.raises(ValueError, match="too short"), alone_in(tmp_path / "another", ALONE):
        raise ValueError("too short")
    assert not (tmp_path / "another").exists()


def test_rows_of_metrics_for_which_there_is_no_room_are_missing_as_is_told_once(tmp_path, capsys):
    """What is written to /dev/full has no room, by the kernel's word."""
    report = Report(folder=tmp_path, settings=tiny(), world=1, peak=None, speaks=True)
    (tmp_path / METRICS).symlink_to("/dev/full")
    for step in (1, 2):
        report.step(step, 5.0, 1.0, 0.1, 1.0)
    assert capsys.readouterr().out.count("No space left on device") == 1
    (tmp_path / METRICS).unlink()
    (tmp_path / METRICS).write_text('{"step": 1, "lo')  # half a row, as a full disk leaves it
    for step in (3, 4):
        report.step(step, 5.0, 1.0, 0.1, 1.0)
    assert [row["step"] for row in read_metrics(tmp_path / METRICS)] == [3, 4]


def test_a_checkpoint_of_another_model_is_refused(tmp_path, text):
    run = a_run(tmp_path, tiny(steps=3), text)
    loop.train(run)
    other = a_run(tmp_path / "other", tiny(width=64), text)
    with pytest.raises(BadCheckpoint, match="of another model"):
        loop.resume(other, latest(tmp_path / CHECKPOINTS)[0])
    deeper = a_run(tmp_path / "other", tiny(layers=3), text)
    with pytest.raises(BadCheckpoint, match="of another model"):
        loop.resume(deeper, latest(tmp_path / CHECKPOINTS)[0])


def test_bfloat16_weights_come_back_from_their_masters(tmp_path, text):
    """What a GPU's run does: the parameters are the masters, rounded."""
    from undertorch.train.update import Update

    settings = tiny()
    model = made(settings, CPU, torch.bfloat16)
    update = Update(model, settings)
    with torch.no_grad():
        for name, tensor in update.tensors().items():
            if name.startswith("weights."):
                tensor.add_(0.001)
    update.restored(5)
    for group in update.groups:
        for p, master, steps in zip(group.parameters, group.masters, group.steps, strict=True):
            assert torch.equal(p, master.bfloat16())
            assert steps == 5


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda model: model.blocks[1].mlp.down.weight.data[3].fill_(math.nan),
            "is the weight blocks.1.mlp.down.weight",
        ),
        (lambda model: model.blocks[0].attention.qkv.weight.data.mul_(1e30), r"what blocks\.0\.attention\S* answers"),
    ],
)
def test_numbers_that_go_bad_stop_the_run_with_step_place_and_tensor(tmp_path, text, spoil, said):
    run = a_run(tmp_path, tiny(), text)
    compute = run.step.compute

    def spoiled(*given):
        if run.done == 2:
            spoil(run.model)
        return compute(*given)

    run.step.compute = spoiled
    with pytest.raises(BadNumbers, match=said) as error:
        loop.train(run)
    assert str(error.value).startswith("step 3: the loss is nan")
    first = run.loader.rows(8).places[0]
    assert f"begin at tokens {first}, " in str(error.value)


def test_a_gradient_that_goes_bad_is_named(tmp_path, text):
    """A backward that answers infinity where the forward was finite."""
    run = a_run(tmp_path, tiny(), text)

    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * math.inf

    run.model.blocks[0].mlp.register_forward_hook(lambda module, given, answer: Bad.apply(answer))
    with pytest.raises(BadNumbers, match=r"first gradient that is not is that of blocks\.0\.mlp\.down"):
        loop.train(run)


def test_a_run_that_is_worse_than_guessing_has_diverged(tmp_path, text):
    run = a_run(tmp_path, tiny(steps=40, rate=1e4, evaluate_every=100), text)
    run.settings = replace(run.settings, warmup=1)
    with pytest.raises(BadNumbers, match=r"diverged|the loss is|norm"):
        loop.train(run)


def test_metrics_have_each_step_and_the_picture_every_point(tmp_path, text):
    loop.train(a_run(tmp_path, tiny(), text))
    rows = read_metrics(tmp_path / METRICS)
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 9))
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"step": 9, "lo')  # a crash in the middle of a row
    assert read_metrics(tmp_path / METRICS) == rows
    drawn = picture(rows)
    points = drawn.split('points="')[1].split('"')[0].split()
    assert len(points) == 8
    heights = [float(point.split(",")[1]) for point in points]
    values = [row["loss"] for row in rows if "loss" in row]
    assert np.argsort(heights).tolist() == np.argsort([-value for value in values]).tolist()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "--steps is 0"),
        ({"rate": 0.0}, "--rate"),
        ({"vocabulary": 100}, "--vocabulary"),
        ({"heads": 5}, "heads"),
        ({"heads": 0}, "--heads is 0"),
        ({"heads": -2}, "--heads is -2"),
        ({"width": 0}, "--width is 0"),
        ({"layers": -1}, "--layers is -1"),
        ({"rate": math.inf}, "--rate is inf"),
        ({"seed": -1}, "--seed is -1"),
        ({"seed": 2**64}, "--seed"),
        ({"preset": "nano-llama", "width": 30, "heads": 2}, "a head has 15 elements"),
        ({"parallel": "all"}, "--parallel is 'all'"),
        ({"sparing": False}, "--no-sparing are of --parallel fsdp"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, said):
    name = changes.get("preset", "nano")
    with pytest.raises(BadSetting, match=said):
        changed(preset(name), **{key: value for key, value in changes.items() if key != "preset"})
    with pytest.raises(BadSetting, match="there is no preset"):
        preset("nanp")


def test_what_a_checkpoint_keeps_can_be_read_without_undertorch(tmp_path, text):
    from safetensors.torch import load_file

    run = a_run(tmp_path, tiny(steps=3), text)
    loop.train(run)
    folder = checkpoint.every(tmp_path / CHECKPOINTS)[0]
    kept = load_file(folder / "weights.safetensors")
    assert {name.removeprefix("weights.") for name in kept} == {name for name, _ in run.model.named_parameters()}
    about = json.loads((folder / checkpoint.ABOUT).read_text())["progress"]
    assert (about["step"], about["place"]) == (3, 12)
    assert about["settings"]["shape"]["width"] == 32
