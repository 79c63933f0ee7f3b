"""Times every way to cut the norms and the softmax on a GPU: those that `choose` measures, and all others.

    PYTHONPATH=src python3 benchmarks/row_ways.py OUT [--limit SECONDS] [--only WORD] [--on cpu]

As benchmarks/transformer_ways.py; OUT/row_ways.jsonl.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from transformer_ways import BF16, FEW, FP32, SMS, Case, copy_cases, main, randn, softmax_gradient
from undertorch.costs.training_norms import NormCut, bias_apart, tiling
from undertorch.costs.training_ops import padded
from undertorch.ops import norms
from undertorch.ops.choose import LIBRARY
from undertorch.ops.norm_cuts import Held, Pieces, backward_tiles, forward_tiles, tile_of

softmax = import_module("undertorch.ops.softmax")  # the package has the function of that name

EPS = 1e-5

FORWARDS = (
    ("rms_norm", 8192, 32768, BF16), ("layer_norm", 8192, 12288, BF16), ("layer_norm", 32768, 768, BF16),
    ("layer_norm", 4096, 768, BF16), ("rms_norm", 8192, 16384, BF16), ("layer_norm", 32768, 1600, BF16),
    ("rms_norm", 2048, 131072, BF16), ("rms_norm", 16384, 8192, BF16), ("add_rms_norm", 16384, 8192, BF16),
    ("rms_norm", 16384, 4096, BF16), ("layer_norm", 16384, 8192, BF16), ("rms_norm", 8192, 5120, BF16),
    ("rms_norm", 65536, 128, BF16), ("layer_norm", 16384, 4096, BF16), ("rms_norm", 16384, 4096, FP32),
    ("add_rms_norm", 2048, 4096, BF16), ("layer_norm", 8192, 32768, BF16),
)  # fmt: skip
BACKWARDS = (
    ("rms_norm", 8192, 32768, BF16), ("rms_norm", 8192, 16384, BF16), ("layer_norm", 8192, 12288, BF16),
    ("layer_norm", 8192, 16384, BF16), ("layer_norm", 32768, 768, BF16), ("rms_norm", 8192, 5120, BF16),
    ("layer_norm", 32768, 1600, BF16), ("rms_norm", 16384, 8192, BF16), ("layer_norm", 8192, 32768, BF16),
    ("rms_norm", 2048, 131072, BF16), ("add_rms_norm", 8192, 16384, BF16), ("rms_norm", 4096, 16384, FP32),
)  # fmt: skip
SOFTMAXES = ((2048, 131072), (4096, 65536), (4096, 32768), (65536, 1024))

ROWS, WARPS = (1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32)
ELEMENTS_OF_A_THREAD = range(8, 65)
PIECES = ((4096, 8), (4096, 16), (8192, 16), (8192, 32), (16384, 32))
"""Of the backward: elements and warps."""


def forward_ways(width: int, rows: int, centred: bool, residual: bool) -> tuple[Any, ...]:
    """What is listed, then every cut of the tiles and of one tile that gives a thread 8 to 64 elements."""
    listed = forward_tiles(width, rows, SMS, centred=centred, residual=residual)
    others = []
    if padded(width) <= 32768:
        for (tile, tiles), at_once, warps in itertools.product(
            {tiling(width), (padded(width), 1), (padded(width) // 4, 4)}, ROWS, WARPS
        ):
            held = at_once * tile * tiles
            if held <= 32768 and held // (32 * warps) in ELEMENTS_OF_A_THREAD:
                others.append(tile_of(NormCut(rows=at_once, warps=warps, tile=tile, tiles=tiles), width))
    cuts = [cut for cut in itertools.product(((2048, 4), *PIECES), (1, 2, 4, 8)) if width >= 4096]
    more = (Pieces(block=size, warps=warps, unroll=n) for (size, warps), n in cuts if n == 1 or size * n <= width)
    return tuple(dict.fromkeys((*listed, *others, *more)))


def backward_ways(width: int, rows: int, centred: bool, residual: bool, itemsize: int) -> tuple[Any, ...]:
    """What is listed, then cuts of rows in tiles: on their way through shared memory, read twice, or in it."""
    listed = backward_tiles(width, rows, SMS, centred=centred, total=residual, itemsize=itemsize)
    tile, tiles = tiling(width)
    columns, keep = tile * tiles, width <= 8192
    others = []
    for most, warps, stages in itertools.product((1024, 2048, 4096, 8192), (4, 8, 16, 32), (1, 2, 3)):
        size = min(most, tile)
        if 4096 <= width <= 32768 and columns // (32 * warps) in ELEMENTS_OF_A_THREAD:
            cut = NormCut(rows=1, warps=warps, tile=size, tiles=columns // size, stages=stages)
            walk = replace(cut, blocks_per_sm=max(16 // warps, 1), keep=keep, twice=stages == 1)
            others.append(tile_of(walk, width))
    more = (Pieces(block=block, warps=warps) for block, warps in PIECES if width > 8192)
    apart = bias_apart(width, centred=centred)
    held = (
        Held(tile=size, tiles=width // size, warps=warps, more=more, bias_apart=apart)
        for (size, warps), more in itertools.product(((4096, 16), (8192, 16)), (0, 1, 2, 4))
        if width > 8192 and width % size == 0
    )
    return tuple(dict.fromkeys((*listed, *others, *more, *held)))


def norm_tensors(op: str, here: int, width: int, dtype: torch.dtype, device: str) -> tuple[Any, ...]:
    """x, residual, weight, bias."""
    adds, centred = op.startswith("add"), "layer" in op
    x, residual, weight, bias = (randn(device, *shape, dtype=dtype) for shape in ((here, width),) * 2 + ((width,),) * 2)
    return x, residual if adds else None, weight, bias if centred else None


def forward_cases(device: str, few: bool) -> Iterator[Case]:
    for op, rows, width, dtype in FORWARDS:
        x, residual, weight, bias = norm_tensors(op, FEW if few else rows, width, dtype, device)
        ways = forward_ways(width, rows, bias is not None, residual is not None)
        yield Case(
            name=f"{op} forward {rows}x{width} {dtype}",
            tensors=(x, residual, weight, bias),
            ways=(*ways, LIBRARY),
            call=partial(norm_forward, op),
            least_bytes=(2 if residual is None else 4) * rows * width * x.element_size(),
            exact=exactly,
        )


def norm_forward(op: str, way: Any, given: Sequence[Any]) -> Tensor:
    return norms.forward(*given, EPS, centred="layer" in op, name=op, tile=way)[0]


def exactly(given: Sequence[Any]) -> Tensor:
    x, residual, weight, bias = given
    total = (x if residual is None else x + residual).double()
    if bias is None:
        return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + EPS) * weight.double()
    return functional.layer_norm(total, total.shape[-1:], weight.double(), bias.double(), EPS)


def backward_cases(device: str, few: bool) -> Iterator[Case]:
    for op, rows, width, dtype in BACKWARDS:
        x, dtotal, weight, bias = norm_tensors(op, FEW if few else rows, width, dtype, device)
        mean = None if bias is None else x.float().mean(-1)
        yield Case(
            name=f"{op} backward {rows}x{width} {dtype}",
            tensors=(torch.randn_like(x), dtotal, x, weight, mean, torch.rsqrt(x.float().var(-1) + EPS)),
            ways=(*backward_ways(width, rows, bias is not None, dtotal is not None, x.element_size()), LIBRARY),
            call=partial(norm_backward, op),
            least_bytes=(3 if dtotal is None else 4) * rows * width * x.element_size(),
            exact=exact_backward,
        )


def norm_backward(op: str, way: Any, given: Sequence[Any]) -> Any:
    centred = given[4] is not None
    needs = (given[2].dtype if centred else None, True, True, centred)
    return norms.backward(*given, *needs, centred=centred, name=op, tile=way)


def exact_backward(given: Sequence[Any]) -> Any:
    dy, dtotal, x, weight, mean, rstd = (None if tensor is None else tensor.double() for tensor in given)
    normal = (x - (0 if mean is None else mean[:, None])) * rstd[:, None]
    g = dy * weight
    dx = g - normal * (g * normal).mean(-1, keepdim=True)
    if mean is not None:
        dx -= g.mean(-1, keepdim=True)
    dx *= rstd[:, None]
    return [dx if dtotal is None else dx + dtotal, (dy * normal).sum(0), *(() if mean is None else (dy.sum(0),))]


def softmax_cases(device: str, few: bool) -> Iterator[Case]:
    for rows, width in SOFTMAXES:
        x, dy = (randn(device, FEW if few else rows, width) for _ in range(2))
        more = [
            *(softmax.Pieces(block=b, warps=w, blocks_per_sm=n) for b, w, n in ((8192, 32, 2), (4096, 32, 1))),
            *clusters(width),
        ]
        yield Case(
            name=f"softmax forward {rows}x{width}",
            tensors=(x,),
            ways=tuple(
                dict.fromkeys((*softmax.ways(width, rows, SMS, cuda=True), *more, *clusters(width, bulk=True), LIBRARY))
            ),
            call=unless_on_host(softmax.forward),
            least_bytes=2 * rows * width * 2,
            exact=lambda given: given[0].double().softmax(-1),
        )
        yield Case(
            name=f"softmax backward {rows}x{width}",
            tensors=(dy, x.softmax(-1)),
            ways=tuple(dict.fromkeys((*softmax.ways(width, rows, SMS, backward=True, cuda=True), *more, LIBRARY))),
            call=unless_on_host(softmax.backward),
            least_bytes=3 * rows * width * 2,
            exact=lambda given: softmax_gradient(given[0].double(), given[1].double()),
        )


CLUSTERS = {
    131072: ((8, 256, 3, 1), (8, 256, 4, 0), (8, 512, 2, 1), (8, 512, 2, 0), (4, 1024, 1, 1), (4, 512, 2, 0)),
    65536: ((4, 256, 3, 1), (4, 256, 4, 0), (4, 512, 2, 1), (8, 256, 4, 1), (8, 256, 6, 0)),
    32768: ((2, 256, 3, 1), (2, 256, 4, 0), (2, 512, 2, 1), (2, 512, 3, 0), (4, 256, 6, 0)),
}  # fmt: skip
"""Blocks, threads, blocks on an SM, whether exponentials are kept."""


def clusters(width: int, *, bulk: bool = False) -> Iterator[Any]:
    """Of those above; `bulk`: a forward's rows come by bulk copies."""
    for blocks, threads, resident, keep in CLUSTERS.get(width, ()):
        yield softmax.Cluster(blocks=blocks, threads=threads, resident=resident, keep=bool(keep), bulk=bulk)


def unless_on_host(function: Callable[..., Tensor]) -> Callable[[Any, Sequence[Any]], Tensor | None]:
    """Kernels in CUDA C++ are compiled where they run."""

    def call(way: Any, given: Sequence[Any]) -> Tensor | None:
        runs = given[0].is_cuda or not isinstance(way, softmax.Cluster)
        return function(*given, tile=way) if runs else None

    return call


GROUPS: tuple[Callable[[str, bool], Iterator[Case]], ...] = (copy_cases, backward_cases, softmax_cases, forward_cases)

if __name__ == "__main__":
    main(GROUPS, __file__, __doc__)
