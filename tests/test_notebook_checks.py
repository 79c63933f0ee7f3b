"""`%%check` in a notebook's shell, which runs in a process of its own."""

import json
import subprocess
import sys

import pytest

from undertorch.compilers.nvrtc import nvrtc_version

CELLS = """
import json
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_cell("%load_ext undertorch")
shell.run_cell("import numpy as np, undertorch\\nfile = undertorch.cuda('__global__ void k(int* x) { x[0] += 1; }')")
found = shell.run_cell("%%check H200 --seeds 2\\nx = np.zeros(8, np.int32)\\nfile['k'][2, 1](x)\\nafter = True").result
bad = shell.run_cell("%%check --wrong\\nx = 1")
none = shell.run_cell("%%check --seeds 0\\nx = 1")
one = shell.run_cell("undertorch.check(file['k'], 2, 1, x)").result
shown, _ = shell.display_formatter.format(one)
print()
print(json.dumps({
    "repr": repr(found), "html": found._repr_html_(),
    "gpu": found.checked[0].gpu, "runs": found.checked[0].runs,
    "went on": shell.user_ns["after"], "bad": str(bad.error_before_exec or bad.error_in_exec),
    "one": shown["text/html"], "none": str(none.error_before_exec or none.error_in_exec),
}))
"""


@pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")
def test_a_cell_is_checked_and_findings_show_themselves():
    pytest.importorskip("IPython")
    done = subprocess.run([sys.executable, "-c", CELLS], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["repr"] == "<1 kernel in 1 launch: 1 error.>"
    assert (told["gpu"], told["runs"], told["went on"]) == ("H200", 2, True)
    assert "race-global" in told["html"]
    assert "race-global" in told["one"]
    assert "write %%check H200 --seeds 4" in told["bad"]
    assert told["none"].startswith("seeds=0: it is a number of orders of warps")


RAISES = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_cell("%load_ext undertorch")
shell.run_cell("import numpy as np, undertorch\\nfile = undertorch.cuda('__global__ void k(int* x) { x[0] += 1; }')")
shell.run_cell("%%check\\nfile['k'][2, 1](np.zeros(8, np.int32))\\nraise ValueError('its own')")
"""


@pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")
def test_a_cell_that_raises_shows_what_was_found_before():
    pytest.importorskip("IPython")
    done = subprocess.run([sys.executable, "-c", RAISES], capture_output=True, text=True, check=True)
    assert "1 kernel in 1 launch: 1 error." in done.stdout
    assert "its own" in done.stdout
