"""Which collective a kernel is: by what stands beside it, around its launch, or in its name."""

import json
from collections import Counter

import pytest

from steps.traces.by_hand import Script, events, path
from undertorch.steps.traces import see_rank
from undertorch.steps.traces.collectives import operation

NAMES = [
    ("allreduce", "all_reduce"),
    ("allreduce_coalesced", "all_reduce"),
    ("_allgather_base", "all_gather"),
    ("_reduce_scatter_base", "reduce_scatter"),
    ("nccl:all_to_all", "all_to_all"),
    ("alltoall_base", "all_to_all"),
    ("nccl:broadcast", "broadcast"),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
    ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
    ("ncclDevKernel_Reduce_Sum_f32_RING_LL()", "reduce"),
    ("nccl:send 0->1", "send"),
    ("nccl:recv 1<-0", "recv"),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", None),  # all-to-all, or a single message
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_a_name_tells_the_operation_or_nothing(name, expected):
    assert operation(name) == expected


def test_amds_collectives_are_those_that_torch_recorded_around_their_launches():
    """By plain JSON: of the step's 4 kernels of RCCL, named alike, the elements of record_param_comms."""
    ranked = see_rank(path("mi300_resnet_checkpoint_train"), step=17).ranked
    assert (ranked.rank, ranked.world_size) == (0, 8)
    found = events("mi300_resnet_checkpoint_train")
    step = next(e for e in found if e.get("cat") == "user_annotation" and e["name"] == "ProfilerStep#17")
    recorded = [
        e["args"]
        for e in found
        if e["name"] == "record_param_comms" and step["ts"] <= e["ts"] <= step["ts"] + step["dur"]
    ]
    sizes = {"BFloat16": 2, "Float": 4, "Long": 8, "Byte": 1, "Int": 4}
    expected = Counter(
        (args["Collective name"].replace("allreduce", "all_reduce"), args["In msg nelems"] * sizes[args["dtype"]])
        for args in recorded
        if args["Collective name"] != "wait"
    )
    shown = Counter((one.operation, one.bytes) for one in ranked.collectives)
    assert shown <= expected
    assert shown.total() == 4
    assert {(one.group, one.ranks) for one in ranked.collectives} == {("0", tuple(range(8)))}


def test_nvidias_has_its_own_words_beside_the_kernel():
    """vLLM's all-gather of 25,136 bfloat16 a rank, in group 3 of eight."""
    (one,) = see_rank(path("b200_eager_inference")).ranked.collectives
    assert (one.operation, one.group, one.ranks, one.bytes) == ("all_gather", "3", tuple(range(8)), 50272)


def ranked(tmp_path, **args):
    script = Script()
    script.call("aten::add", 0, 10)
    script.kernel("gemm", 5, 20, 8)
    script.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 30, 40, 8, **args)
    content = {**script.content(), "distributedInfo": {"rank": 1, "world_size": 2}}
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(content))
    return see_rank(file).ranked


def test_the_groups_number_and_its_ranks_are_read(tmp_path):
    words = {"Collective name": "allreduce", "Process Group Name": "7", "Process Group Ranks": "[0, 1]", "Seq": 12}
    seen = ranked(tmp_path, **words)
    (one,) = seen.collectives
    assert (seen.rank, seen.world_size) == (1, 2)
    assert (one.launch, one.group, one.ranks, one.sequence) == (1, "7", (0, 1), 12)


def test_a_list_of_ranks_that_is_cut_short_is_not_known(tmp_path):
    (one,) = ranked(tmp_path, **{"Collective name": "allreduce", "Process Group Ranks": "[0, 1, ...]"}).collectives
    assert one.ranks == ()


def test_without_words_its_name_tells_and_group_and_bytes_are_not_known(tmp_path):
    (one,) = ranked(tmp_path).collectives
    assert (one.operation, one.group, one.sequence, one.bytes) == ("all_reduce", "", None, None)


@pytest.mark.parametrize(("name", "rank"), [("trace_rank-3.json", 3), ("rank12.json", 12), ("trace.json", None)])
def test_where_the_file_does_not_say_its_name_tells_the_rank(tmp_path, name, rank):
    script = Script()
    script.call("aten::add", 0, 10)
    script.kernel("gemm", 5, 20, 8)
    file = tmp_path / name
    file.write_text(json.dumps(script.content()))
    seen = see_rank(file).ranked
    assert (None if seen is None else seen.rank) == rank


def test_collectives_whose_kernels_were_lost_are_counted(tmp_path):
    script = Script()
    for place in range(3):
        script.call("record_param_comms", 100 * place, 20)
        script.kernel("ncclDevKernel_AllReduce", 100 * place + 5, 100 * place + 40, 20)
        script.call("aten::add", 100 * place + 30, 20)
        script.kernel("add", 100 * place + 35, 100 * place + 60, 20)
    lost = [event for event in script.events if event["cat"] == "kernel"]
    script.events = [event for event in script.events if event is not lost[2] and event is not lost[3]]
    content = {**script.content(), "distributedInfo": {"rank": 1, "world_size": 2}}
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(content))
    seen = see_rank(file)
    assert (seen.ranked.lost_collectives, seen.step.accounting.lost_launches) == (1, 2)
