"""The machine's counts against what Nsight Compute counted on an H200 (tests/golden/h200_counters.json.gz)."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from checks import counted
from undertorch.checks import banks, coalescing

GOLDEN = json.loads(gzip.decompress((Path(__file__).parents[1] / "golden/h200_counters.json.gz").read_bytes()))
COUNTS, LINES = GOLDEN["counts"], GOLDEN["lines"]
PATTERNS = [pattern for pattern in counted.patterns() if pattern.name in COUNTS]
MERGED_BY_PTXAS = {
    "tiled_matmul": "64 ld.shared of a thread become 32 LDS and 8 LDS.128",
    "register_tiled_matmul": "loads of eight neighbours become two LDS.128",
}
OTHER_ORDER = {
    "loop_by_lane: 48 threads, 0, 3": "rounds of an unrolled loop: lanes that are done meet the others elsewhere",
    "loop_by_hash: 96 threads, 100": "likewise",
}
"""Launches whose accesses are not those of the PTX, and why."""


def test_hundreds_of_patterns_were_counted():
    assert len(PATTERNS) >= 300
    assert {p.kernel for p in PATTERNS} >= {f"shared_ld_{width}" for width in counted.WIDTHS}


@pytest.mark.parametrize("kernel", sorted({p.kernel for p in PATTERNS}))
def test_every_access_of_one_warp_takes_what_it_takes_on_an_h200(kernel):
    """Wavefronts or sectors, and the ideal: of the machine, and of the definitions that findings are made by."""
    for pattern in PATTERNS:
        if pattern.kernel != kernel:
            continue
        theirs = counted.of_gpu(pattern, COUNTS[pattern.name])
        assert counted.of_machine(pattern) == theirs, pattern.name
        lanes = [o if pattern.active >> lane & 1 else None for lane, o in enumerate(pattern.offsets)]
        if "ldmatrix" in kernel:
            count = int(kernel.rsplit("_x", maxsplit=1)[1])
            lanes = [o if lane < 8 * count else None for lane, o in enumerate(lanes)]
        rules = banks if kernel.startswith("shared") else coalescing
        taken = banks.wavefronts if rules is banks else coalescing.sectors
        said = (taken(lanes, pattern.bytes), rules.ideal(lanes, pattern.bytes))
        assert said == (theirs[:2] if rules is banks else theirs[2:]), pattern.name


def test_where_the_profiler_counts_otherwise_than_the_hardware_lanes_share_addresses():
    """Nsight Compute counts wavefronts by the hardware's counter, of a launch, and by software, of an instruction. The
    machine gives the hardware's. They differ only for wide accesses of which lanes share addresses."""
    different = []
    for pattern in PATTERNS:
        row = COUNTS[pattern.name]
        if pattern.kernel.startswith("shared") and row["wavefronts"] != row["wavefronts_by_l1tex"] - 1:
            different.append(pattern)
    assert 0 < len(different) < 0.1 * len(PATTERNS)
    for pattern in different:
        active = [o for lane, o in enumerate(pattern.offsets) if pattern.active >> lane & 1]
        assert pattern.bytes >= 8
        assert len(set(active)) < len(active)


@pytest.mark.parametrize("launch", [*counted.wholes(), *counted.branches()], ids=lambda launch: launch.name)
def test_whole_kernels_take_what_they_take_on_an_h200(launch):
    if launch.name in COUNTS:
        same = counted.of_machine(launch) == counted.of_gpu(launch, COUNTS[launch.name])
        assert same == (launch.name not in MERGED_BY_PTXAS | OTHER_ORDER)


@pytest.mark.parametrize("launch", counted.wholes(), ids=lambda launch: launch.name)
def test_each_line_takes_the_same_or_ptxas_changed_its_instructions(launch):
    """A line's requests are as many on the GPU as in the PTX, and then take as much; or they are fewer, and wider."""
    mine: Counter[tuple[str, str]] = Counter()
    for access in counted.launched(launch).accesses:
        place, space = access.place, access.space
        units = access.wavefronts if space == "shared" else access.sectors
        while place is not None and space in {"shared", "global"}:  # inlined code: ncu names one of its lines
            for key, value in (("requests", access.requests), ("units", units), ("ideal", access.ideal)):
                mine[f"{place.file}:{place.line}", f"{space} {key}"] += value
            place = place.inlined_at
    changed = set()
    for place, opcodes in LINES[launch.name].items():
        theirs: Counter[str] = Counter()
        for opcode, (requests, wavefronts, wavefronts_ideal, sectors, sectors_ideal) in opcodes.items():
            space = "shared" if opcode.startswith(("LDS", "STS", "ATOMS")) else "global"
            units = (wavefronts, wavefronts_ideal) if space == "shared" else (sectors, sectors_ideal)
            for key, value in zip(("requests", "units", "ideal"), (requests, *units), strict=True):
                theirs[f"{space} {key}"] += value
        for space in {name.split()[0] for name in theirs}:
            if theirs[f"{space} requests"] < mine[place, f"{space} requests"]:
                changed.add(place)
                continue
            assert theirs[f"{space} units"] == mine[place, f"{space} units"], place
            assert theirs[f"{space} ideal"] == mine[place, f"{space} ideal"], place
    assert bool(changed) == (launch.name in MERGED_BY_PTXAS)


def test_lanes_an_instruction_are_those_of_an_h200_where_ptxas_leaves_the_branches():
    """Thread over warp instructions. Instructions of the GPU's code are others than the PTX's: of 49 launches most
    come within a lane; where an arm is a few instructions, ptxas makes it predicated and the GPU's lanes are more."""
    near = 0
    launches = [w for w in counted.branches() if w.name in COUNTS]
    for launch in launches:
        row, own = COUNTS[launch.name], counted.launched(launch)
        theirs = row["thread_instructions"] / row["warp_instructions"]
        near += abs(own.thread_instructions / own.warp_instructions - theirs) < 1
    assert near >= 0.6 * len(launches)
