"""How a GPU's tensor cores add: a frozen record for each generation, and the choice that a launch makes.

`fast` multiplies and adds in float32 with one rounding to nearest a product, k ascending. That is more exact than a
tensor core, and never its bits. `exact` models the sums of one generation: TERMS products and C are aligned to the
largest exponent, cut off behind `fraction_bits`, added, and the sum is cut off to float32 (or rounded to float16).

Figures: Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores" (arXiv 2511.10909), whose
tables agree with Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (arXiv 2512.07004) and, for the first
generations, with Fasi et al., "Numerical behavior of NVIDIA tensor cores" (PeerJ Computer Science 7:e330, 2021).
float64 needs no model: both modes are a chain of fused multiply-adds, k ascending, as those papers find it.
Integers are exact.
"""

from dataclasses import dataclass

from undertorch.records import Gpu
from undertorch.simt.errors import BadLaunch

MODES = ("fast", "exact")
LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}
"""Exponent of the smallest normal number (IEEE 754; OFP8 for e4m3 and e5m2)."""
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedSum:
    """One sum of products and C."""

    terms: int
    """Products in it; an instruction of more of them chains several sums."""
    fraction_bits: int
    """Bits behind the point of the largest exponent that every summand keeps."""
    kept_bits: int = 23
    """Of the float32 result's fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorNumerics:
    """The sums of one generation of tensor cores, for mma.sync."""

    generation: str
    bytes: int
    """Of a row of A that one sum takes."""
    fraction_bits: int
    narrow_fraction_bits: int | None = None
    """Of 8-bit floats; None: as the others."""
    narrow_kept_bits: int = 23
    narrow_as: str | None = None
    """What 8-bit floats are converted to, exactly, before they are multiplied; None: nothing."""
    wmma_tf32_terms: int | None = None
    """Products of tf32 to a sum, in wmma; None: as in mma."""

    def multiplied_as(self, kind: str) -> str:
        """The type that a factor has in the tensor core."""
        return self.narrow_as if self.narrow_as is not None and BYTES.get(kind) == 1 else kind

    def fused_sum(self, kind: str, depth: int, *, wmma: bool = False) -> FusedSum:
        """Of an instruction with `depth` products of a type."""
        factor = self.multiplied_as(kind)
        terms = min(depth, self.bytes // BYTES[factor])
        if factor != kind:
            terms = depth // 2
        elif wmma and kind == "tf32" and self.wmma_tf32_terms is not None:
            terms = self.wmma_tf32_terms
        narrow = BYTES[factor] == 1 and self.narrow_fraction_bits is not None
        bits = self.narrow_fraction_bits if narrow else self.fraction_bits
        assert bits is not None
        return FusedSum(
            terms=terms,
            fraction_bits=bits,
            kept_bits=self.narrow_kept_bits if narrow else 23,
        )


GENERATIONS = {
    (7, 0): TensorNumerics(generation="Volta", bytes=8, fraction_bits=23),
    (7, 5): TensorNumerics(generation="Turing", bytes=16, fraction_bits=24),
    (8, 0): TensorNumerics(generation="Ampere", bytes=16, fraction_bits=24),
    (8, 9): TensorNumerics(
        generation="Ada Lovelace", bytes=16, fraction_bits=24, narrow_fraction_bits=13, narrow_kept_bits=13
    ),
    (9, 0): TensorNumerics(generation="Hopper", bytes=32, fraction_bits=25, narrow_as="f16", wmma_tf32_terms=4),
    (10, 0): TensorNumerics(generation="Blackwell", bytes=32, fraction_bits=25),
}
"""By the compute capability that a generation starts at. MMA-Sim's tables; Hopper's two last figures fit an H200's
answers (tests/golden/h200_tensor.json.gz): its mma of 8-bit floats multiplies float16, and its wmma adds tf32 by fours.
"""


def numerics_of(gpu: Gpu, mode: str) -> TensorNumerics | None:
    """The record that a launch runs with; None: `fast`. Raises BadLaunch where there is no model of the GPU."""
    if mode not in MODES:
        raise BadLaunch(f"mma={mode!r}: it is one of {', '.join(MODES)}.")
    if mode == "fast":
        return None
    older = [c for c in GENERATIONS if gpu.compute_capability is not None and c <= gpu.compute_capability]
    if gpu.vendor != "NVIDIA" or not older:
        known = ", ".join(n.generation for n in GENERATIONS.values())
        raise BadLaunch(f"mma='exact': how {gpu.name} adds is not modelled, only {known}; pass mma='fast'.")
    return GENERATIONS[max(older)]
