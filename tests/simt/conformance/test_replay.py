"""Recording and comparing, with the machine in the GPU's place."""

import numpy as np
import pytest

from simt.conformance import replay
from simt.conformance.programs import plain_programs, real_forms
from simt.conformance.replay import Result, compared, results, summary, ulps
from undertorch.gpus import find

SOME = ("add.s32", "fma.rn.f32", "add.f64", "ex2.approx.f32", "cvt.rn.f16x2.f32", "setp.lt.f16x2")


@pytest.fixture(scope="module")
def recorded():
    """What a recording would hold of some forms, and the results themselves."""
    launch = replay.machine(find("H200"))
    found = []
    for program in plain_programs({o: t for o, t in real_forms().items() if o in SOME}):
        found += list(results(program, launch))
    return found, {r.name: summary(r) for r in found}


def test_a_recording_agrees_with_itself(recorded):
    found, golden = recorded
    assert {r.name.split()[0] for r in found} == set(SOME)
    for result in found:
        verdict = compared(result, golden[result.name])
        assert (verdict.held, verdict.ulps) == ("bounded" if result.bounded else "exact", 0)


def test_one_other_bit_is_a_difference_and_another_payload_is_told_apart(recorded):
    found, golden = recorded
    for result in found:
        bits = result.bits.copy()
        bits[100] ^= bits.dtype.type(1)
        verdict = compared(Result(result.name, result.kind, bits, result.bounded), golden[result.name])
        assert verdict.ulps > 0 if result.bounded else verdict.held == "differs", result.name
    (sums,) = (r for r in found if r.name == "add.f64")
    nans = np.flatnonzero((sums.bits & np.uint64(2**63 - 1)) > np.uint64(0x7FF << 52))
    other = sums.bits.copy()
    other[nans[0]] ^= np.uint64(1)
    assert compared(Result("add.f64", "f64", other, False), golden["add.f64"]).held == "payload"


def test_units_of_the_last_place_are_counted_over_zero_and_for_halves():
    def bits(*values, dtype=np.float32):
        return np.array(values, dtype).view(np.uint32 if dtype == np.float32 else np.uint16)

    tiny = np.float32(2.0**-149)
    assert ulps("f32", bits(1.0, -tiny, 0.0), bits(1 + 2.0**-23, tiny, -0.0)) == 2
    assert (
        ulps(
            "f16x2",
            bits(1.0, 2.0, dtype=np.float16).view(np.uint32),
            bits(1.0, 2.002, dtype=np.float16).view(np.uint32),
        )
        == 1
    )
