"""Two processes under torchrun, by gloo, on the CPU."""

import os
import shutil
import subprocess
import sys

import pytest

from tiny_training import SMALL, words
from undertorch.train.loop import CHECKPOINTS
from undertorch.train.report import METRICS, read_metrics


def trained(folder, text, steps, *options, processes=1, microbatches=1, code=None):
    """A run of a process of its own, or of several; the whole batch is 8 rows of all, in so many microbatches."""
    run = ["-m", "undertorch"] if code is None else ["-c", code]
    if processes > 1:
        script = folder.parent / "entry.py"
        script.write_text(code or "from undertorch.cli.main import main\nmain()\n")
        run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", str(script)]
    arguments = ["train", str(text), *SMALL, "--out", str(folder), "--steps", str(steps), *options]
    arguments += ["--batch", str(8 // processes // microbatches), "--accumulate", str(microbatches)]
    return subprocess.run(
        [sys.executable, *run, *arguments], capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(words())
    return path


def losses(folder):
    return [row["loss"] for row in read_metrics(folder / METRICS) if "loss" in row]


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_saved_by_two_processes_it_goes_on_in_one_and_the_reverse(tmp_path, text, parallel):
    """A step's rows are the same on any number of processes, so the losses agree up to the order of sums."""
    alone = trained(tmp_path / "alone", text, 6)
    assert alone.returncode == 0, alone.stderr
    for first, then in ((2, 1), (1, 2)):
        folder = tmp_path / f"{first}{then}"
        how = ("--parallel", parallel) if first > 1 else ()  # one alone has no way to be parallel, and is told so
        begun = trained(folder, text, 6, *how, "--checkpoint-every", "3", processes=first)
        assert begun.returncode == 0, begun.stderr
        shutil.rmtree(folder / CHECKPOINTS / "step-00000006")  # as if it had been stopped after 3
        ended = trained(folder, text, 6, "--parallel", parallel, "--resume", processes=then)
        assert ended.returncode == 0, ended.stderr
        assert "after step 3" in ended.stdout
        assert losses(folder) == pytest.approx(losses(tmp_path / "alone"), rel=2e-3)
        assert (folder / CHECKPOINTS / "step-00000006").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("how", [("ddp",), ("fsdp",), ("fsdp", "--sparing")])
def test_microbatches_of_two_processes_are_the_batch_of_one(tmp_path, text, how):
    alone = trained(tmp_path / "alone", text, 5)
    assert alone.returncode == 0, alone.stderr
    both = trained(tmp_path / "both", text, 5, "--parallel", *how, processes=2, microbatches=2)
    assert both.returncode == 0, both.stderr
    assert losses(tmp_path / "both") == pytest.approx(losses(tmp_path / "alone"), rel=2e-3)


@pytest.mark.slow
def test_shares_of_four_processes_go_on_in_two(tmp_path, text):
    """torch.distributed.checkpoint hands each of the two what two of the four wrote."""
    alone = trained(tmp_path / "alone", text, 4)
    assert alone.returncode == 0, alone.stderr
    folder = tmp_path / "run"
    begun = trained(folder, text, 4, "--parallel", "fsdp", "--checkpoint-every", "2", processes=4)
    assert begun.returncode == 0, begun.stderr
    shares = folder / CHECKPOINTS / "step-00000002" / "shares"
    assert len(list(shares.glob("*.distcp"))) == 4
    shutil.rmtree(folder / CHECKPOINTS / "step-00000004")  # as if it had been stopped after 2
    ended = trained(folder, text, 4, "--parallel", "fsdp", "--resume", processes=2)
    assert ended.returncode == 0, ended.stderr
    assert "after step 2" in ended.stdout
    assert losses(folder) == pytest.approx(losses(tmp_path / "alone"), rel=2e-3)


@pytest.mark.slow
def test_one_process_that_fails_ends_all_and_its_error_is_shown(tmp_path, text):
    code = (
        "import os\n"
        "from undertorch.cli.main import main\n"
        "from undertorch.train.step import Step\n"
        "update = Step.update\n"
        "def fails(step, rate):\n"
        "    if os.environ['RANK'] == '1' and step.done == 2:\n"
        "        raise RuntimeError('the second process has had enough')\n"
        "    update(step, rate)\n"
        "Step.update = fails\n"
        "main()\n"
    )
    done = trained(tmp_path / "run", text, 50, processes=2, code=code)
    assert done.returncode != 0
    assert "the second process has had enough" in done.stderr


@pytest.mark.slow
def test_who_is_left_when_a_process_is_killed_says_so_in_a_sentence(tmp_path, text):
    code = (
        "import os, signal\n"
        "from undertorch.cli.main import main\n"
        "from undertorch.train.step import Step\n"
        "update = Step.update\n"
        "def dies(step, rate):\n"
        "    if os.environ['RANK'] == '1' and step.done == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    update(step, rate)\n"
        "Step.update = dies\n"
        "main()\n"
    )
    done = trained(tmp_path / "run", text, 50, "--parallel", "fsdp", "--checkpoint-every", "1", processes=2, code=code)
    assert done.returncode != 0
    assert "another process of the run has ended" in done.stderr
    assert "fault of undertorch" not in done.stderr
    assert (tmp_path / "run" / CHECKPOINTS / "step-00000002").is_dir()
