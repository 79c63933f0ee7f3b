"""The machine where neither torch, triton nor CUDA's packages are installed."""

import os
import subprocess
import sys
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels" / "classics.ptx"
CODE = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "triton", "cuda", "nvidia"}:
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Refused())
import numpy as np
import undertorch

text = open(sys.argv[1]).read()
x = np.arange(100, dtype=np.float32)
undertorch.ptx(text)["doubling"][1, 128](x, 100)
assert np.array_equal(x, 2 * np.arange(100))
with undertorch.machine(gpu="H200", instrument="counters", threads=2):
    assert undertorch.ptx(text)["doubling"][4, 32](x, np.int32(100)).counters.thread_instructions
try:
    undertorch.cuda("__global__ void k() {}")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_ptx_runs_on_numpy_arrays_and_cuda_says_what_it_needs(tmp_path):
    """In a process that cannot import them, with an empty cache: all of it is compiled there too."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(KERNELS)],
        env=os.environ | {"UNDERTORCH_CACHE": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "CudaError CUDA C++ needs NVRTC: pip install 'undertorch[cuda]'.\n"
    assert list(tmp_path.rglob("*"))
