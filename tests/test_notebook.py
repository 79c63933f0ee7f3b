"""`undertorch.seeing` and `%%see` in a notebook's shell, which runs in a process of its own; examples/see.ipynb."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLE = Path(__file__).parents[1] / "examples" / "see.ipynb"

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
        env={**os.environ, "IPYTHONDIR": str(folder)},
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


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook of examples/ as Jupyter runs it, in a kernel of its own: what each cell showed."""
    folder = tmp_path_factory.mktemp("jupyter")
    notebook = nbformat.read(EXAMPLE, as_version=4)
    environment = {**os.environ, "IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)}
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}})
    client.execute(env=environment)
    return [cell["outputs"] for cell in notebook.cells if cell["cell_type"] == "code"]


def rows(outputs):
    """The rows of the table that a cell shows, as texts."""
    (html,) = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    return [re.sub(r"<[^>]+>", " ", row) for row in html.split("<tr>")]


def test_the_example_notebook_shows_a_step_under_each_cell(executed):
    """The forward stands in the second cell. The update reads and writes 28 bytes for each of 33,568,768 parameters
    (7 float32: parameter, gradient and two moments in, parameter and two moments out), which is 940 MB."""
    _, _, magic, block, _ = executed
    assert "In[3], step 2, on H200" in rows(magic)[0]
    assert "In[4], step 2, on A100-80GB" in rows(block)[0]
    for outputs, update in ((magic, "In[3]:9"), (block, "In[4]:9")):
        assert any("In[2]:9" in row and "self.down" in row for row in rows(outputs))
        (step,) = [row for row in rows(outputs) if update in row]
        assert "940 MB" in step


def test_after_its_cells_torch_is_as_it_was(executed):
    """The last cell asks torch.cuda.is_available()."""
    import torch

    assert executed[-1][-1]["data"]["text/plain"] == str(torch.cuda.is_available())


def test_what_the_repository_shows_of_the_notebook_are_steps_too():
    """Whoever reads it where nothing runs sees the tables."""
    cells = [cell for cell in nbformat.read(EXAMPLE, as_version=4).cells if cell["cell_type"] == "code"]
    assert "on H200" in rows(cells[2]["outputs"])[0]
    assert "on A100-80GB" in rows(cells[3]["outputs"])[0]
