"""Least bytes and FLOPs of what ran, from the cost of the call that launched it.

A cost names the kernels that a call usually launches. Libraries take others, an own op may have measured another of its
ways to be faster: what ran meets what was expected by kind and order, not by name.
"""

from collections.abc import Sequence
from dataclasses import replace

from undertorch import costs
from undertorch.costs.gemm.parts import REDUCES, parts
from undertorch.records import Gpu, Kernel, Kind, Math, Op

FAILS = (LookupError, TypeError, ValueError, AttributeError)
"""What a cost raises for a call whose arguments the trace describes in part."""

OWN, LIBRARY = "undertorch::", "undertorch"
"""Begins the names of undertorch's own ops; whose their kernels are."""

PRODUCTS = (Kind.MATMUL, Kind.ATTENTION, Kind.CONVOLUTION)

CALLED = ("cuBLAS", "CUTLASS", "driver")
"""Whose kernels an own op launches past ATen, beside its own (cuBLASLt)."""

LARGE = 10
"""A product does more than so many times less FLOPs than a call's largest; what only adds up its parts does not."""

LEAST_PARTS = 2
"""Of a product that was cut: where neither name nor grid tell how many, as many there are at least."""

BATCHED = "bmm"
"""Is in the names of the calls whose results have a batch in front; of others all but the last dimension are rows."""

FLOAT32 = 4
"""Bytes of an element of a part."""


def with_costs(op: Op, ran: list[Kernel], times: list[float], gpu: Gpu) -> list[Kernel]:
    """The kernels that a call launched, with the figures of those that its cost names.

    Where both are as many, they are the same in order. Otherwise only products have figures, which follow from the
    call's shapes however many kernels a library cuts them into: those of the largest stand at the kernel that ran
    longest, and so on.
    """
    if not op.arguments:
        return ran
    try:
        ways = costs.ways(op, gpu)
    except FAILS:
        return ran
    if not any(ways):
        return ran
    if op.name.startswith(OWN):
        return _own(op, ways, ran, times)
    expected = ways[0]
    if len(expected) == len(ran) and all(map(_alike, expected, ran)):
        found = list(map(_figures, expected, ran))
        return _products(op, expected, found, times) if any(map(_reduces, ran)) else found
    return _products(op, expected, ran, times)


def _alike(expected: Kernel, ran: Kernel) -> bool:
    """Whether one can be the other: the driver's work is no kernel's, and adding up parts is no product."""
    return (expected.grid is None) == (ran.library == "driver") and _reduces(expected) == _reduces(ran)


def _reduces(kernel: Kernel) -> bool:
    """Whether it adds up the parts of a product that was cut along its inner dimension."""
    return kernel.name.startswith(REDUCES)


def _own(op: Op, ways: Sequence[Sequence[Kernel]], ran: list[Kernel], times: list[float]) -> list[Kernel]:
    """What an own op launched itself: the calls into ATen that it makes stand apart, with figures of their own."""
    library = [place for place, kernel in enumerate(ran) if kernel.library in CALLED]
    own = [place for place, kernel in enumerate(ran) if kernel.library not in CALLED]
    found = list(ran)
    fitting = _fitting(ways, [ran[place] for place in own])
    for place, kernel in zip(own, fitting, strict=True):
        if kernel is not None:
            found[place] = replace(_figures(kernel, ran[place]), library=LIBRARY)
    called = _products(op, ways[0], [ran[place] for place in library], [times[place] for place in library])
    for place, kernel in zip(library, called, strict=True):
        found[place] = kernel
    return found


def _fitting(ways: Sequence[Sequence[Kernel]], ran: list[Kernel]) -> list[Kernel | None]:
    """Of each own kernel that ran the one that was expected: by the first way that has as many, of the same kinds in
    the same order. Where there is none, those of the usual way that have its name.
    """
    for way in ways:
        expected = [kernel for kernel in way if kernel.library == LIBRARY]
        names = {kernel.name for kernel in expected}
        if len(expected) == len(ran) and all(
            one.name == other.name or (other.name not in names and other.kind in (one.kind, Kind.CUSTOM))
            for one, other in zip(expected, ran, strict=True)
        ):
            return list(expected)
    left = [kernel for kernel in ways[0] if kernel.library == LIBRARY]
    found: list[Kernel | None] = []
    for kernel in ran:
        place = next((place for place, one in enumerate(left) if one.name == kernel.name), None)
        found.append(None if place is None else left[place])
        del left[: 0 if place is None else place + 1]
    return found


def _products(op: Op, expected: Sequence[Kernel], ran: list[Kernel], times: list[float]) -> list[Kernel]:
    """Products have their figures by what they are of, whether they were cut or not."""
    wholes = _wholes(expected)
    most = max((kernel.flops or 0 for kernel in wholes), default=0)
    large = sorted(
        (kernel for kernel in wholes if (kernel.flops or 0) * LARGE > most), key=lambda kernel: -(kernel.flops or 0)
    )
    likely = sorted(
        (place for place, kernel in enumerate(ran) if kernel.kind in PRODUCTS and not _reduces(kernel)),
        key=lambda place: -times[place],
    )
    if len(likely) < len(large):
        return ran
    found = list(ran)
    for place, whole in zip(likely, large, strict=False):
        after = _after(ran, place)
        if after is None:
            found[place] = _figures(whole, ran[place])
        else:
            found[place], found[after] = _cut(op, whole, ran[place], ran[after])
    return found


def _wholes(expected: Sequence[Kernel]) -> list[Kernel]:
    """The products as if none was cut: what adds up the parts of one writes its result."""
    found: list[Kernel] = []
    for kernel in expected:
        if kernel.kind not in PRODUCTS:
            continue
        if found and _reduces(kernel):
            found[-1] = _whole(found[-1], kernel)
        else:
            found.append(kernel)
    return found


def _whole(main: Kernel, reduce: Kernel) -> Kernel:
    """What the second reads beside the parts is a bias."""
    read, written, again = main.min_bytes_read, main.min_bytes_written, reduce.min_bytes_read
    if read is None or written is None or again is None:
        return main
    return replace(main, min_bytes_read=read + again - written, min_bytes_written=reduce.min_bytes_written)


def _after(ran: Sequence[Kernel], place: int) -> int | None:
    """Where the parts of the product that ran there were added up; None where it was not cut."""
    for later in range(place + 1, len(ran)):
        if _reduces(ran[later]):
            return later
        if ran[later].kind in PRODUCTS:
            return None
    return None


def _cut(op: Op, whole: Kernel, main: Kernel, reduce: Kernel) -> tuple[Kernel, Kernel]:
    """Of a product that was cut: its parts are written, and read again. A bias is counted with the product."""
    result = next((one for one in op.results if len(one.shape) > 1), None)
    if result is None or whole.kind is not Kind.MATMUL or whole.min_bytes_written != result.bytes:
        return main, reduce
    columns = result.shape[-1]
    batch = result.shape[0] if BATCHED in op.name else 1
    rows = result.elements // (batch * columns)
    if result.strides[-1] != 1:
        rows, columns = columns, rows
    many = parts(main, rows, columns, batch) or LEAST_PARTS
    size = many * result.elements * FLOAT32
    adds = replace(whole, min_bytes_read=size, flops=(many - 1) * result.elements, math=Math.FP32, note=None)
    return replace(_figures(whole, main), min_bytes_written=size), _figures(adds, reduce)


def _figures(expected: Kernel, ran: Kernel) -> Kernel:
    if ran.library == "driver":
        return ran
    return replace(
        ran,
        kind=expected.kind,
        library=expected.library if ran.library in ("Triton", "unknown") else ran.library,
        min_bytes_read=expected.min_bytes_read,
        min_bytes_written=expected.min_bytes_written,
        flops=expected.flops,
        math=expected.math,
        bytes_origin=expected.bytes_origin,
        note=expected.note if expected.kind in PRODUCTS else None,
    )
