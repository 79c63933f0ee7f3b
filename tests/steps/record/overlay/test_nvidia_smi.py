"""nvidia-smi answers for the GPU that was named, in nvidia-smi's own form (`nvidia-smi --help-query-gpu`)."""

import shutil
import subprocess

import pytest

from undertorch import gpus
from undertorch.steps.record.overlay.library import served
from undertorch.steps.record.overlay.scratch import Scratch


@pytest.fixture
def ask():
    if not served():
        pytest.skip("only Linux loads a library before libc")

    def asked(*arguments, gpu="H200"):
        with Scratch() as scratch:
            environment = scratch.environment({"PATH": "/usr/bin:/bin"}, gpus.find(gpu))
            program = shutil.which("nvidia-smi", path=environment["PATH"].partition(":")[0])
            if program is None:
                return None
            return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout

    return asked


def test_the_memory_of_the_gpu_as_a_number(ask):
    """An H200's 150,109,880,320 bytes, as torch counts them; nvidia-smi counts what the driver reserves too."""
    assert ask("--query-gpu=memory.total", "--format=csv,noheader,nounits") == f"{150_109_880_320 // 2**20}\n"


def test_several_fields_with_header_and_units(ask):
    shown = ask("--query-gpu=name,memory.used,compute_cap,power.draw", "--format=csv")
    assert shown == "name, memory.used [MiB], compute_cap, power.draw\nNVIDIA H200, 0 MiB, 9.0, [N/A]\n"


def test_the_list_of_gpus(ask):
    assert ask("-L").startswith("GPU 0: NVIDIA H200 (UUID: GPU-")


def test_the_table_names_the_gpu(ask):
    assert "NVIDIA H200" in ask()


def test_for_another_vendors_gpu_there_is_no_nvidia_smi(ask):
    assert ask(gpu="MI300X") is None
