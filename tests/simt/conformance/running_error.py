"""How far a result in floats may lie from the true one: each operation adds its own rounding to what it was given.

Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.3), in float64, whose own
roundings are far below those that are counted. A kernel written in these numbers gives its exact result and a bound.
"""

from dataclasses import dataclass

import numpy as np

SINGLE = 2.0**-24
"""Of a rounding to nearest, relative: float32 has 24 bits."""
HALF, BRAIN = 2.0**-11, 2.0**-8
TENSOR = 2.0**-11
"""Of the cut to tf32, which keeps 11 bits, to nearest (cvt.rna)."""
ULP = 2.0**-23
EX2, DIVIDE, RSQRT, SQRT = 2.1 * ULP, 2.1 * ULP, 2.0**-22.8, 2.0**-22.9
LG2, LG2_NEAR_ONE = 2.0**-21.9, 2.0**-22
"""Approximations, over what the PTX ISA states and what an H200 was found to do (docs/machine.md): of the value; lg2
near 1 absolutely."""
FLUSHED = 2.0**-126
"""What .ftz takes for zero is smaller."""


@dataclass(frozen=True)
class Near:
    """A number's true value, and how far from it a kernel's may be."""

    value: np.ndarray
    error: np.ndarray

    def __add__(self, other):
        other = near(other)
        return rounded(self.value + other.value, self.error + other.error)

    def __sub__(self, other):
        other = near(other)
        return rounded(self.value - other.value, self.error + other.error)

    def __mul__(self, other):
        other = near(other)
        error = abs(self.value) * other.error + abs(other.value) * self.error + self.error * other.error
        return rounded(self.value * other.value, error)

    def __truediv__(self, other):
        """By div.full or div.approx."""
        other = near(other)
        value = self.value / other.value
        error = (self.error + abs(value) * other.error) / (abs(other.value) - other.error)
        return rounded(value, error, DIVIDE)

    def __getitem__(self, at):
        return Near(self.value[at], self.error[at])

    @property
    def turned(self):
        """Transposed."""
        return Near(self.value.swapaxes(-1, -2), self.error.swapaxes(-1, -2))


def near(x):
    """A number that is known exactly."""
    return x if isinstance(x, Near) else Near(np.asarray(x, float), np.zeros(np.shape(x)))


def rounded(value, error, unit=SINGLE, least=FLUSHED):
    """After one more rounding."""
    return Near(value, error + unit * (abs(value) + error) + least)


def total(x, axis, depth):
    """A sum in which no number goes through more than `depth` additions."""
    sizes = (abs(x.value) + x.error).sum(axis)
    grown = (1 + SINGLE) ** depth - 1
    return Near(x.value.sum(axis), x.error.sum(axis) + grown * sizes)


def largest(x, axis):
    return Near(x.value.max(axis), x.error.max(axis))


def exp2(x):
    value = np.exp2(x.value)
    return rounded(value, value * np.expm1(x.error * np.log(2)), EX2)


def exp(x):
    """ex2 of x·log₂e, as Triton writes it: the constant is a float32."""
    return exp2(x * Near(np.asarray(np.log2(np.e)), np.asarray(SINGLE * np.log2(np.e))))


def log2(x):
    value = np.log2(x.value)
    error = -np.log1p(-x.error / x.value) / np.log(2)
    return Near(value, error + np.maximum(LG2 * abs(value), LG2_NEAR_ONE))


def log(x):
    """lg2 of x, times ln 2."""
    return log2(x) * Near(np.asarray(np.log(2)), np.asarray(SINGLE))


def _root(x, power, unit):
    value = x.value**power
    return rounded(value, abs((x.value - x.error) ** power - value), unit)


def sqrt(x):
    return _root(x, 0.5, SQRT)


def rsqrt(x):
    return _root(x, -0.5, RSQRT)


def to_half(x):
    return rounded(x.value, x.error, HALF, 2.0**-25)


def to_brain(x):
    return rounded(x.value, x.error, BRAIN)


def to_tensor(x):
    return rounded(x.value, x.error, TENSOR)


def dot(a, b, added=0.0):
    """A product on tensor cores, in float32. They cut where others round, behind at least 24 bits of a group's largest
    summand (numerics.py): for each product a cut of 2^-23 of it at most, and one of the sum, each time."""
    a, b, added = near(a), near(b), near(added)
    error = abs(a.value) @ b.error + a.error @ abs(b.value) + a.error @ b.error + added.error
    sizes = (abs(a.value) + a.error) @ (abs(b.value) + b.error) + abs(added.value) + added.error
    depth = a.value.shape[-1] + 2
    return Near(a.value @ b.value + added.value, error + depth * 2 * ULP * sizes)
