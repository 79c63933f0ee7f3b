"""Grid and block as profilers write them, and where they cannot be told."""

import gzip
import json

import pytest

from steps.traces.by_hand import Script, path
from undertorch.records import Origin
from undertorch.steps.traces import see_trace


@pytest.mark.parametrize("written", [[8, 2, 1], "[8, 2, 1]", "8,2,1"])
def test_sizes_in_a_text_are_the_same_as_in_a_list(written, tmp_path):
    script = Script()
    script.kernel("kernel", 0, 5, 10, grid=written)
    (launch,) = see_trace(script.write(tmp_path))[0].launches
    assert launch.kernel.grid == (8, 2, 1)


def test_a_grid_of_nothing_is_not_known(tmp_path):
    script = Script()
    script.kernel("kernel", 0, 5, 10, grid=[0, 0, 0])
    (launch,) = see_trace(script.write(tmp_path))[0].launches
    assert (launch.kernel.grid, launch.kernel.geometry_origin) == (None, None)


def test_on_amd_a_grid_whose_launch_is_lost_is_of_nobody_knows_what(tmp_path):
    """hipExtModuleLaunchKernel counts threads, hipLaunchKernel blocks: without the launch the kernel does not tell."""
    with gzip.open(path("normalization_layers"), "rt") as source:
        whole = json.load(source)
    lost = {**whole, "traceEvents": [one for one in whole["traceEvents"] if one.get("cat") != "cuda_runtime"]}
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(lost))
    found = see_trace(file)[0].launches
    assert found
    assert all(launch.kernel.grid is None and launch.kernel.geometry_origin is not Origin.MEASURED for launch in found)
