"""Process groups of one process. What NCCL does with one rank: src/device/onerank.cu of its source."""

from collections import Counter

import pytest

from undertorch import gpus
from undertorch.records import Phase
from undertorch.steps.record import ScriptFailed, record

SCRIPT = "distributed.py"
PARAMETERS = 4
pytestmark = pytest.mark.builds


def counted(recording, how):
    return Counter((op.phase, op.name) for op in recording(SCRIPT, how).ops)


def test_ddp_scales_each_gradient_into_its_bucket_and_copies_it_back(recording):
    """torch/csrc/distributed/c10d/reducer.cpp: a multiplication and a copy a parameter, besides what the model does;
    the sum over one rank, in place, launches nothing.
    """
    extra = counted(recording, "ddp") - counted(recording, "plain")
    views = ("aten::detach", "aten::as_strided", "aten::t")
    launched = {key: count for key, count in extra.items() if key[1] not in views}
    assert launched == {(Phase.BACKWARD, "aten::mul"): PARAMETERS, (Phase.BACKWARD, "aten::copy_"): PARAMETERS}


def test_fsdp_gathers_computes_and_updates_its_shards(recording):
    names = counted(recording, "fsdp")
    assert names[Phase.FORWARD, "aten::addmm"] == 2
    assert names[Phase.UPDATE, "aten::_foreach_add_"] == 1
    # The gradients on their way into the reduce-scatter (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py).
    assert names[Phase.BACKWARD, "aten::_chunk_cat"] == 1


def test_tensor_parallelism_of_one_process_launches_what_the_model_does(recording):
    """A layer of which one process has all: no collective moves anything, and the shapes that DTensor asks torch for,
    with fake tensors of its own, are no ops of the step. Those that launch are the plain model's."""
    launching = {
        (phase, name): count for (phase, name), count in counted(recording, "tensors").items() if kernels(name)
    }
    assert launching == {(p, name): count for (p, name), count in counted(recording, "plain").items() if kernels(name)}


def kernels(name):
    """Whether an op of these scripts launches anything: views do not, nor does a collective of one process."""
    views = ("aten::detach", "aten::t", "aten::view", "aten::alias", "aten::expand")
    return name not in views and not name.startswith("_c10d_functional")


def test_a_second_process_is_not_waited_for(scripts, capfd):
    with pytest.raises(ScriptFailed):
        record(scripts / SCRIPT, ("two",), gpus.find("H200"))
    assert "wants 2 processes, and one is seen: run the script with WORLD_SIZE=1" in capfd.readouterr().err


def test_what_torchrun_would_have_set_is_named(scripts):
    with pytest.raises(ScriptFailed, match="put RANK=0 LOCAL_RANK=0 WORLD_SIZE=1"):
        record(scripts / SCRIPT, ("bare",), gpus.find("H200"))
