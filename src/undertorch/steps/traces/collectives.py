"""Which collective operation a kernel is, as far as the trace tells: what names it on every rank."""

import re
from collections.abc import Iterable

import msgspec

from undertorch.records.ranks import Collective
from undertorch.steps.traces.fields import Args, Is, number, printable
from undertorch.steps.traces.joining import Joined
from undertorch.steps.traces.names import COLLECTIVE
from undertorch.steps.traces.nesting import outwards
from undertorch.steps.traces.reading import Seen

RECORDED = "record_param_comms"
"""The call around a collective that describes it (torch/csrc/distributed/c10d/ParamCommsUtils.hpp)."""

RANGE = "nccl:"
"""Begins the name of the range that torch puts around a collective (ProcessGroupNCCL.cpp)."""

OPERATIONS = (
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_reduce", r"all_?reduce"),
    ("all_gather", r"all_?gather"),
    ("all_to_all", r"all_?to_?all"),
    ("broadcast", r"broadcast"),
    ("barrier", r"barrier"),
    ("scatter", r"scatter"),
    ("gather", r"gather"),
    ("reduce", r"reduce"),
    ("recv", r"recv"),
    ("send", r"send"),
)
"""Names of torch.distributed, and what of those that c10d and NCCL's kernels have is one of them; tried from the top.
(`_allgather_base`, `ncclKernel_AllReduce_RING_LL_Sum_float`, `allreduce_coalesced`.)"""

BOTH_WAYS = re.compile(r"send_?recv", re.IGNORECASE)
"""A kernel of NCCL's that serves all-to-all as well as single messages."""

BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Int": 4, "Long": 8, "Half": 2, "Float": 4, "Double": 8, "BFloat16": 2,
    "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip
"""Of an element, by c10's name of its type (c10/core/ScalarType.h)."""


def collectives(joined: Joined, on_gpu: Iterable[Seen]) -> tuple[Collective, ...]:
    """Of what ran on the GPU in a step, in this order, those that are collectives and say which."""
    found = []
    for place, event in enumerate(on_gpu):
        if event.kind is Is.KERNEL and re.search(COLLECTIVE, event.name):
            one = _collective(joined, place, event)
            if one is not None:
                found.append(one)
    return tuple(sorted(found, key=lambda one: one.launch))


def is_of_collective(launch: Seen) -> bool:
    """Whether a call into the runtime launched one, or belongs to one."""
    return any(one.name == RECORDED or one.name.startswith(RANGE) for one in outwards(launch))


def operation(name: str) -> str | None:
    """What torch.distributed calls it; None where the name does not tell."""
    if BOTH_WAYS.search(name):
        return None
    return next((word for word, pattern in OPERATIONS if re.search(pattern, name, re.IGNORECASE)), None)


def _collective(joined: Joined, place: int, event: Seen) -> Collective | None:
    """None where the operation is not known."""
    around = list(outwards(joined.launch_of(event)))
    named = joined.calls.get(number(event.args.external) or -1)
    around += [] if named is None else list(outwards(named))
    recorded = next((one for one in around if one.name == RECORDED), None)
    args = [one for one in (event.args, None if recorded is None else recorded.args) if one is not None]
    ranged = (one.name for one in around if one.name.startswith(RANGE))
    said = next((one.collective for one in args if one.collective), None) or next(ranged, None) or event.name
    what = operation(said)
    if what is None:
        return None
    described = next((one for one in args if one.collective), Args())
    group = described.group
    if group is None and described.group_number is not None:
        group = str(described.group_number)
    sequences = (number(one.group_sequence) for one in args)
    return Collective(
        launch=place,
        operation=what,
        group=printable(group or ""),
        ranks=_ranks(described.group_ranks),
        sequence=next((one for one in sequences if one is not None), None),
        bytes=_bytes(described),
    )


def _ranks(said: str | list[int] | None) -> tuple[int, ...]:
    """Of a group; empty where it is not said, or cut short (`[0, 1, ...]`)."""
    if isinstance(said, str):
        try:
            said = msgspec.json.decode(said, type=list[int])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ()
    return tuple(said or ())


def _bytes(args: Args) -> int | None:
    elements, size = number(args.elements), BYTES.get(args.element_type or "")
    return None if elements is None or size is None else elements * size
