"""Grid and block as profilers write them, and where they cannot be told."""

import gzip
import json

import pytest

from steps.traces.by_hand import Script, path
from undertorch.records import Origin
from undertorch.steps.traces import see_trace
from undertorch.steps.traces.names import short


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


@pytest.mark.parametrize(
    ("encoded", "name"),
    [
        ("_ZN2ck16tensor_operation6device12_GLOBAL__N_118kernel_gemm_xdlopsINS_4TypeEEEvT_", "kernel_gemm_xdlops"),
        ("_Z9saxpy_oneIfEvT_PS0_", "saxpy_one"),
        ("_Z10reduce_allPKfPf", "reduce_all"),
        ("_ZNK5space5thing3runEv", "run"),
    ],
)
def test_a_name_that_is_still_encoded_is_that_of_its_function(encoded, name):
    """c++filt: ck::tensor_operation::device::(anonymous namespace)::kernel_gemm_xdlops<…>, saxpy_one<float>,
    reduce_all, space::thing::run."""
    assert short(encoded) == name


def test_without_registers_it_is_said_that_occupancy_is_not_known():
    """ROCm's tracer writes none for any kernel."""
    step = see_trace(path("mi300_resnet_checkpoint_train"))[0]
    kernels = [one for one in step.launches if one.kernel.block is not None]
    assert all(one.occupancy is None for one in kernels)
    (said,) = [one.what for one in step.accounting.assumed if "registers" in one.what]
    assert f"occupancy of {len(kernels)} launches" in said
