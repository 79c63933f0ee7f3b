"""Findings written by hand, for tests of what reads and draws them."""

from undertorch.records import Checked, Figures, Finding, FindingKind, LineLanes, Place, Request, Severity, Unit

SOURCE = """__global__ void k(int* x) {
    __shared__ int tile[1024];
    tile[threadIdx.x * 32] = x[threadIdx.x];

    if (threadIdx.x & 1) x[threadIdx.x] += 1;
    x[threadIdx.x * 3] = tile[31 - threadIdx.x];
}
"""


def finding(kind=FindingKind.RACE_SHARED, severity=Severity.ERROR, line=3, other=None, **named):
    place = Place(file="src/k.cu", line=line, column=5)
    given = {
        "message": "a write and a read of the same bytes.",
        "evidence": "thread 1 reads",
        "count": 1,
        "remedy": "a barrier",
        "fingerprint": "0123456789abcdef",
    }
    elsewhere = None if other is None else Place(file="src/k.cu", line=other, column=5)
    return Finding(kind=kind, severity=severity, place=place, other=elsewhere, **given | named)


def checked(*findings, kernel="k", **named):
    given = {"grid": (8, 1, 1), "block": (32, 4, 1), "gpu": "H200", "target": "sm_80", "runs": 1}
    return Checked(kernel=kernel, findings=tuple(findings), sources={"src/k.cu": SOURCE}, **given | named)


def bank_conflict():
    """Lanes 128 bytes apart: all 32 in bank 0, one word each."""
    example = Request(bytes=4, addresses=tuple(128 * lane for lane in range(32)), taken=32, ideal=1,
                      banks=(32, *(0,) * 31))  # fmt: skip
    return finding(FindingKind.BANK_CONFLICT, Severity.WARNING, 3, figures=Figures(
        unit=Unit.WAVEFRONTS, taken=32, ideal=1, requests=1, share=0.9, example=example))  # fmt: skip


def uncoalesced():
    """Lanes 12 bytes apart: 384 bytes are 12 sectors, where 128 bytes would be 4."""
    example = Request(bytes=4, addresses=tuple(12 * lane for lane in range(32)), taken=12, ideal=4)
    return finding(FindingKind.UNCOALESCED, Severity.WARNING, 6, figures=Figures(
        unit=Unit.SECTORS, taken=12, ideal=4, requests=1, share=0.5, example=example))  # fmt: skip


def divergence():
    """Every second lane."""
    return finding(FindingKind.DIVERGENCE, Severity.NOTE, 5, figures=Figures(
        unit=Unit.INSTRUCTIONS, taken=100, ideal=50,
        lines=(LineLanes(line=5, warp_instructions=100, thread_instructions=1600),)))  # fmt: skip
