"""What docs/triton.md shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "triton.md").read_text(encoding="utf-8")


def test_the_first_kernel_and_its_mistake(tmp_path):
    """Triton reads a kernel's source from its file, so the page's pieces are put into one."""
    kernel, mistake = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2]
    script = tmp_path / "softmax.py"
    script.write_text(kernel + mistake)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=tmp_path)
    shown = re.search(r"```\n(Fault: .*?)```", PAGE, re.DOTALL)[1]
    said = done.stderr[done.stderr.index("undertorch.simt.errors.Fault: ") :].removeprefix("undertorch.simt.errors.")
    said = re.sub(r"0x[0-9a-f]+", "…", said).replace(str(script), "softmax.py")
    said = re.sub(r"\(@?%?\w* ?ld\.global[^)]*\)", "(…)", said)
    assert said.split() == shown.split()
