"""What a kernel in PTX asks of the hardware, by ptxas: that of a CUDA toolkit on the path, or Triton's.

The driver compiles PTX by itself when it loads it; its ptxas may be of another version, and count a few registers more
or less.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

USED = re.compile(r"Used (\d+) registers")
LINE = re.compile(r"^(\s*\.loc\s+\d+\s+\d+\s+\d+),[^\n]*", re.MULTILINE)
"""A source position and what it was inlined into, which LLVM writes in a form that ptxas does not read (no
`function_name`); it is nothing to registers."""
SHARED = re.compile(r"(\d+) bytes smem")
BARRIERS = re.compile(r"used (\d+) barriers")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
"""As `ptxas -v` reports them, of a kernel; one without static shared memory has no second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Of one compiled kernel."""

    registers: int
    """Per thread."""
    static_shared_bytes: int
    """Per block; what is asked for at the launch comes on top."""
    barriers: int = 0
    """Per block."""
    stack_bytes: int = 0
    """Per thread: local arrays, and what is spilled."""
    spill_store_bytes: int = 0
    """Per thread, in the kernel's text: in a loop as often as it runs."""
    spill_load_bytes: int = 0

    @property
    def spilled_bytes(self) -> int:
        """Stored and loaded."""
        return self.spill_store_bytes + self.spill_load_bytes


@lru_cache(maxsize=256)
def resources(ptx: str, kernel: str, capability: tuple[int, int]) -> Resources | None:
    """What a kernel (by its name in the PTX) needs on GPUs of a compute capability. None where no ptxas is there that
    compiles it for them.
    """
    major, minor = capability
    for program in programs():
        # Files in memory: what a script's run leaves on the disk is counted, and these are not the script's.
        source, cubin = os.memfd_create("kernel.ptx"), os.memfd_create("kernel.cubin")
        try:
            os.pwrite(source, LINE.sub(r"\1", ptx).encode(), 0)
            asked = ("-v", f"-arch=sm_{major}{minor}", "--entry", kernel, "-o", f"/proc/self/fd/{cubin}")
            done = subprocess.run(
                [program, *asked, f"/proc/self/fd/{source}"],
                pass_fds=(source, cubin),
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            os.close(source)
            os.close(cubin)
        used = USED.search(done.stderr)
        if done.returncode == 0 and used is not None:
            shared, barriers, spills = (p.search(done.stderr) for p in (SHARED, BARRIERS, SPILLS))
            return Resources(
                registers=int(used[1]),
                static_shared_bytes=int(shared[1]) if shared else 0,
                barriers=int(barriers[1]) if barriers else 0,
                stack_bytes=int(spills[1]) if spills else 0,
                spill_store_bytes=int(spills[2]) if spills else 0,
                spill_load_bytes=int(spills[3]) if spills else 0,
            )
    return None


def programs() -> tuple[str, ...]:
    """The ptxas that are there. Triton has two: one knows compute capabilities from 10.0 on, the other those before."""
    found = [shutil.which("ptxas")]
    spec = importlib.util.find_spec("triton")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        found += [shutil.which(Path(folder) / "backends/nvidia/bin" / name) for name in ("ptxas", "ptxas-blackwell")]
    return tuple(program for program in found if program is not None)
