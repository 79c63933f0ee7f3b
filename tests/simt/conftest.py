from pathlib import Path

import pytest

from undertorch.gpus import find
from undertorch.simt import launch

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(scope="session")
def a100():
    return find("A100-80GB")


@pytest.fixture(scope="session")
def run(a100):
    """Launches a kernel of tests/simt/kernels, the file found by the kernel's name."""
    texts = [path.read_text() for path in sorted(KERNELS.glob("*.ptx"))]

    def run(kernel, grid, block, *arguments, **options):
        text = next(t for t in texts if f".entry {kernel}(" in t)
        return launch(text, kernel, grid, block, arguments, gpu=a100, **options)

    return run
