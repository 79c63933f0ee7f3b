"""Each whole kernel of Triton (tests/simt/triton/whole_kernels.py) in numbers that carry their error, and what a GPU
made of it beside what the machine makes of it.

A result is `exact` where nothing in its kernel is left open: the same operations on the same bits, in the order that
the PTX gives. The others go through approximations (ex2, lg2, rsqrt, div.full), which the PTX ISA specifies by their
error alone, or add in an order that is free: both the GPU and the machine have to lie within the error of the true
value.
"""

from base64 import b64decode
from dataclasses import dataclass

import numpy as np

from simt.conformance import launched
from simt.conformance import running_error as e
from simt.conformance.launched import OnMachine
from simt.conformance.running_error import SINGLE, Near, dot, exp, exp2, near, to_half, total

BOUNDS = {}
"""By case: a function of its inputs' values that gives a bound for each result that is not exact."""
EXACT_IF_ADDED_AS_THE_GPU_DOES = {"matmul_f16", "matmul_bf16", "matmul_tf32", "grouped_gemm"}
"""Cases on tensor cores and nothing else that is open."""


def bound(name):
    def kept(function):
        BOUNDS[name] = function
        return function

    return kept


def along_a_row(block, threads):
    """Additions that a number goes through in a sum of Triton's: those of its thread, then log₂ of the threads."""
    return block // threads + int(np.log2(threads))


@bound("softmax")
def softmax(t):
    x = near(t["x"])
    weights = exp(x - e.largest(x, 1)[:, None])
    return {"y": weights / total(weights, 1, along_a_row(1024, 128))[:, None]}


@bound("rms_norm")
def rms_norm(t):
    x = near(t["x"])
    scales = e.rsqrt(total(x * x, 1, along_a_row(1024, 128)) / x.value.shape[1] + Near(*epsilon(1e-6)))
    return {"scales": scales, "y": e.to_brain(x * scales[:, None] * near(t["w"]))}


def epsilon(value):
    """As the float32 that a kernel gets."""
    return np.asarray(value), np.asarray(SINGLE * value)


@bound("layer_norm")
def layer_norm(t):
    x, w, dy = near(t["x"]), near(t["w"]), near(t["dy"])
    n, depth = x.value.shape[1], along_a_row(512, 64)
    means = total(x, 1, depth) / n
    centred = x - means[:, None]
    scales = near(1.0) / e.sqrt(total(centred * centred, 1, depth) / n + Near(*epsilon(1e-5)))
    normed = centred * scales[:, None]
    inner = dy * w
    along, mean = (total(part, 1, depth) / n for part in (inner * normed, inner))
    dws = dy * normed
    return {
        "means": means,
        "scales": scales,
        "y": normed * w + near(t["b"]),
        "dx": (inner - (normed * along[:, None] + mean[:, None])) * scales[:, None],
        "dws": dws,
        "dw": total(dws, 0, 8),
    }


@bound("cross_entropy")
def cross_entropy(t):
    """The running sum shrinks at each block of 256: an exponential and a product more for each, four times."""
    logits, labels = near(t["logits"]), t["labels"]
    most = e.largest(logits, 1)[:, None]
    weights = exp(logits - most)
    for _ in range(4):
        weights = weights * Near(np.asarray(1.0), exp(near(0.0)).error)
    sums = total(weights, 1, along_a_row(256, 128) + 4)[:, None]
    at = np.maximum(labels, 0)[:, None]
    picked = Near(*(np.take_along_axis(part, at, 1) for part in (logits.value, logits.error)))
    kept = labels != -100
    losses = (most + e.log(sums) - picked)[:, 0]
    gradients = exp(logits - most) / sums - near(np.arange(logits.value.shape[1]) == labels[:, None])
    return {
        "losses": Near(losses.value * kept, losses.error * kept),
        "gradients": Near(gradients.value * kept[:, None], gradients.error * kept[:, None]),
    }


@bound("dropout")
def dropout(t):
    """By div.full; what is kept is exact."""
    return {"y": near(t["x"]) / near(0.75)}


def product(round_inputs=near):
    return lambda t: {"c": dot(round_inputs(near(t["a"])), round_inputs(near(t["b"])).turned)}


BOUNDS |= {"matmul_f16": product(), "matmul_bf16": product(), "matmul_tf32": product(e.to_tensor)}


@bound("grouped_gemm")
def grouped_gemm(t):
    return {f"c{n}": to_half(dot(t[f"a{n}"], t[f"b{n}"])) for n in range(3)}


def attention(causal):
    """In blocks the weights are taken relative to the largest score so far, and shrink as it grows: an exponential and
    a product more for each block of 32 keys."""

    def bounds(t):
        q, k, v, do = (near(t[name]) for name in ("q", "k", "v", "do"))
        tokens, head = q.value.shape[-2:]
        plain, scale = (Near(*epsilon(x)) for x in (head**-0.5, head**-0.5 * np.log2(np.e)))
        allowed = np.tri(tokens, dtype=bool) if causal else np.ones((tokens, tokens), bool)
        products = dot(q, k.turned)
        scores = products * scale
        blocks = tokens // 32
        most = Near(
            *(np.where(allowed, part, low).max(-1) for part, low in ((scores.value, -np.inf), (scores.error, 0)))
        )
        weights = masked(exp2(scores - most[..., None]), allowed)
        for _ in range(blocks):
            weights = weights * Near(np.asarray(1.0), exp2(Near(np.asarray(0.0), most.error.max())).error)
        sums = total(weights, -1, along_a_row(32, 4) + blocks)
        o = to_half(dot(to_half(weights), v) / sums[..., None])
        logs = most + e.log2(sums)
        weights = masked(exp2(scores - logs[..., None]), allowed)
        deltas = total(o * do, -1, head)
        slopes = to_half(weights * (dot(do, v.turned) - deltas[..., None]))
        return {
            "o": o,
            "logs": logs,
            "deltas": deltas,
            "dv": to_half(dot(to_half(weights).turned, do)),
            "dk": to_half(dot(slopes.turned, q) * plain),
            "dq": to_half(dot(slopes, k) * plain),
        }

    return bounds


def masked(x, allowed):
    return Near(np.where(allowed, x.value, 0), np.where(allowed, x.error, 0))


BOUNDS |= {"attention": attention(False), "attention_causal": attention(True)}


@bound("float_atomics")
def float_atomics(t):
    """The order is free: any number may go through all additions, 64 to a sum."""
    x = near(t["x"]).value.reshape(-1, 16)
    sizes = abs(x).sum(0)
    halves = sizes * ((1 + 2.0**-11) ** 65 - 1)
    return {"singles": Near(x.sum(0), sizes * 65 * SINGLE), "halves": Near(x.sum(0), halves)}


@bound("libdevice")
def libdevice(t):
    """CUDA C++ Programming Guide, "Mathematical Functions", in units of the last place: erff 2, log1pf 1, tanhf 2,
    cbrtf 1, powf 4. NaN and infinities aside."""
    from math import erf

    x = t["x"]
    right = {
        "erf": np.vectorize(erf)(x), "log1p": np.log1p(abs(x)), "tanh": np.tanh(x), "cbrt": np.cbrt(x),
        "power": abs(x) ** x,
    }  # fmt: skip
    units = {"erf": 2, "log1p": 1, "tanh": 2, "cbrt": 1, "power": 4}
    return {
        name: e.rounded(value, np.zeros(value.shape), 2 * (units[name] + 1) * SINGLE) for name, value in right.items()
    }


# -- verdicts


@dataclass(frozen=True)
class Verdict:
    """One result of the machine beside a GPU's."""

    case: str
    result: str
    mma: str
    """How tensor cores added; empty where there are none."""
    count: int
    differ: int
    """Elements whose bits differ."""
    apart: float
    """The farthest, over the largest value."""
    of_bound: float | None
    """The largest error over its bound, the GPU's or the machine's; None where bits have to be the same."""

    @property
    def holds(self):
        return self.differ == 0 or (self.of_bound is not None and self.of_bound <= 1)

    def line(self):
        """For people."""
        said = "the GPU's bits"
        if self.differ:
            said = f"{self.differ} of {self.count} differ, by {self.apart:.1e} of the largest value at most"
        within = "" if self.of_bound is None else f"; errors are {self.of_bound:.3f} of their bound at most"
        how = f" mma={self.mma}" if self.mma else ""
        return f"{'' if self.holds else 'WRONG '}{self.case}.{self.result}{how}: {said}{within}"


def ways(sequence, texts):
    """How tensor cores may add: it is the same where a case has none."""
    return ("exact", "fast") if any("mma.sync" in texts[one.ptx] for one in sequence.launches) else ("",)


def verdicts(sequence, texts, golden, gpu="H200"):
    """Each result of a case that the GPU was asked for. Raises LookupError where it was asked for another one."""
    from undertorch.gpus import find

    recorded = golden["results"].get(sequence.name)
    if recorded is None or recorded["digest"] != sequence.digest(texts):
        raise LookupError(f"{sequence.name} is not recorded as it is now: {golden['errors'].get(sequence.name, '')}")
    before = {
        name: launched.filled(fill, {})
        for name, fill in sequence.buffers.items()
        if not isinstance(fill, launched.Addresses)
    }
    inputs = {name: launched.widened(array, sequence.dtypes[name]) for name, array in before.items()}
    bounds = BOUNDS.get(sequence.name, lambda t: {})(inputs)
    for mma in ways(sequence, texts):
        ours = launched.ran(sequence, texts, OnMachine(find(gpu), mma or "fast"))
        for name, array in ours.items():
            data = recorded["buffers"].get(name)
            if data is None and array.tobytes() == before[name].tobytes():
                continue  # an input
            theirs = before[name] if data is None else np.frombuffer(b64decode(data), array.dtype).reshape(array.shape)
            exact = mma == "exact" and sequence.name in EXACT_IF_ADDED_AS_THE_GPU_DOES
            yield verdict(sequence, name, mma, array, theirs, None if exact else bounds.get(name))


def verdict(sequence, name, mma, ours, theirs, allowed):
    dtype = sequence.dtypes[name]
    a, b = (launched.widened(array, dtype).astype(float) for array in (ours, theirs))
    differ = ours.view(f"u{ours.itemsize}") != theirs.view(f"u{theirs.itemsize}")
    of_bound = None
    if allowed is not None:
        error = np.maximum(abs(a - allowed.value), abs(b - allowed.value))
        if sequence.name == "dropout":
            error = error * ((a != 0) | (b != 0))
        of_bound = float((error / np.maximum(allowed.error, 1e-300)).max())
    apart = float(abs(a - b).max() / max(abs(b).max(), 1e-300))
    return Verdict(sequence.name, name, mma, differ.size, int(differ.sum()), apart, of_bound)
