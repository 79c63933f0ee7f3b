"""`undertorch.seeing` and `%%see` in a notebook's shell, which runs in a process of its own."""

import json
import subprocess
import sys

import pytest

CELLS = '''
import json
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()


def run(cell):
    result = shell.run_cell(cell, store_history=True)
    return result


run("%load_ext undertorch")
run("import torch, undertorch\\nfrom torch import nn\\nnn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()")
LOOP = """model = nn.Linear(64, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    loss = model(torch.randn(8, 64, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
went_on = True
"""
magic = run("%%see A100-80GB --step 3\\n" + LOOP)
indented = "".join("    " + line for line in LOOP.splitlines(keepends=True))
block = run("with undertorch.seeing(gpu='L4') as seen:\\n" + indented + "seen")
bad_gpu = run("%%see --gpu NOTHING\\nx = 1")
bad_flag = run("%%see --wrong\\nx = 1")
untrained = run("%%see H200\\nx = 1")
assumed = run("%%see H200 --assume 6=0.25\\n" + LOOP.replace("optimizer.zero_grad()", "print(loss.item())"))


def told(result):
    seen = result.result
    return {
        "gpu": seen.step.gpu,
        "number": seen.step.environment.step,
        "files": sorted({op.where.file for op in seen.step.ops}),
        "forward": sorted({op.where.line for op in seen.step.ops if op.phase == "forward"}),
        "functions": sorted({frame.function for op in seen.step.ops for frame in (op.where, *op.chain)}),
        "sources": {name: text.splitlines() for name, text in seen.step.environment.sources.items()},
        "html": seen._repr_html_(),
        "repr": repr(seen),
    }


print()
print(
    json.dumps(
        {
            "magic": told(magic),
            "block": told(block),
            "went on": "went_on" in shell.user_ns,
            "bad gpu": str(bad_gpu.error_in_exec),
            "bad flag": str(bad_flag.error_in_exec),
            "untrained": str(untrained.error_in_exec),
            "kinds": [type(one.error_in_exec).__name__ for one in (bad_gpu, bad_flag, untrained)],
        }
    )
)
'''


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    done = subprocess.run(
        [sys.executable, "-c", CELLS],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**__import__("os").environ, "IPYTHONDIR": str(folder)},
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_the_cell_magic_sees_the_cells_step(shown):
    assert (shown["magic"]["gpu"], shown["magic"]["number"]) == ("A100-80GB", 3)
    assert not shown["went on"]


def test_lines_are_those_that_the_notebook_shows(shown):
    """The magic's own line is the cell's first; the forward stands in the fifth. In the block's cell too."""
    for name, cell in (("magic", "In[3]"), ("block", "In[4]")):
        told = shown[name]
        assert told["files"] == [cell]
        assert told["forward"] == [5]
        assert told["functions"] == ["<module>"]
        assert "loss = model(" in told["sources"][cell][4]


def test_a_small_table_is_shown(shown):
    html = shown["block"]["html"]
    assert "In[4]:5" in html
    assert "step 2, on L4" in html
    assert "<script" not in html
    assert len(html) < 10_000
    assert shown["block"]["repr"].startswith("<In[4], step 2, on L4: ")


def test_what_is_wrong_is_one_sentence(shown):
    assert shown["kinds"] == ["UsageError"] * 3
    assert "NOTHING" in shown["bad gpu"]
    assert "write %%see H200" in shown["bad flag"]
    assert "without a backward" in shown["untrained"]
