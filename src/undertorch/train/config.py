"""What a run is asked to do: the model's shape, and how it is trained. Presets by name. Imports no torch."""

import math
from dataclasses import dataclass, replace
from typing import Any

from undertorch.train.errors import BadSetting

VOCABULARY_MULTIPLE = 128
"""The vocabulary is padded to a multiple of it: each row of logits then begins at a multiple of 16 bytes, which matmul
and cross-entropy read at a time, and the last matmul has whole tiles. GPT-2's 50,257 tokens become 50,304."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model. `gpt2`: learned positions, LayerNorm, GELU, biases, tied embeddings. `llama`: RoPE, RMSNorm, SwiGLU."""

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    """Heads of keys and values; fewer than `heads`: several queries share one (GQA)."""
    hidden: int
    """Width inside the MLP."""
    context: int
    """Tokens of a row."""
    vocabulary: int
    """Tokens that the text is cut into, before padding."""
    tied: bool
    """Whether the last layer is the embedding itself."""

    @property
    def padded(self) -> int:
        """Rows of the embedding."""
        return -(-self.vocabulary // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    @property
    def layers_said(self) -> str:
        """As a sentence has it: `4 layers of 128`."""
        return f"{self.layers} layer{'' if self.layers == 1 else 's'} of {self.width}"

    @property
    def head_width(self) -> int:
        """Elements of one head."""
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """Of the model, with its embeddings."""
        gpt2 = self.family == "gpt2"
        attention = self.width * (self.width + 2 * self.kv_heads * self.head_width) + self.width**2
        mlp = (2 if gpt2 else 3) * self.width * self.hidden
        biases = (3 * self.width + self.width + self.hidden + self.width) if gpt2 else 0
        norm = self.width * (2 if gpt2 else 1)
        tables = self.padded * self.width * (1 if self.tied else 2) + (self.context * self.width if gpt2 else 0)
        return self.layers * (attention + mlp + biases + 2 * norm) + norm + tables

    @property
    def flops_a_token(self) -> int:
        """Of the matmuls, forward and backward, as PaLM counts them for MFU (Chowdhery et al. 2022, appendix B), with
        attention's two matmuls over the causal half only: 6 a weight that is multiplied with, and 6 · layers · width ·
        context.
        """
        head = self.padded * self.width
        tables = head * (1 if self.tied else 2) + (self.context * self.width if self.family == "gpt2" else 0)
        return 6 * (self.parameters - tables + head) + 6 * self.layers * self.width * self.context


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a model is trained."""

    preset: str
    shape: Shape
    steps: int
    batch: int
    """Rows of one forward on one device."""
    accumulate: int = 1
    """Forwards and backwards before an update."""
    rate: float
    """The highest learning rate, after the warm-up."""
    warmup: int
    """Steps in which the rate rises from 0."""
    last_rate: float = 0.1
    """What is left of the rate at the last step, by a cosine."""
    weight_decay: float = 0.1
    """Of matrices; vectors have none."""
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    """Gradients whose norm is above it are scaled down to it."""
    seed: int = 1337
    evaluate_every: int = 50
    checkpoint_every: int = 50
    keep: int = 2
    """Last checkpoints that are kept, beside the best."""
    recompute: bool = False
    """Whether a block's activations are computed again in the backward (activation checkpointing)."""
    compiled: bool = False
    """Whether torch.compile makes the model's kernels."""
    fused_loss: bool = True
    """Whether the logits are made a part at a time (ops.linear_cross_entropy), and never exist whole."""
    parallel: str = "ddp"
    """Of several processes: `ddp`, each with the whole model, or `fsdp`, each with a share of it."""
    sparing: bool | None = None
    """Whether `fsdp` gathers weights anew for the backward, and sums gradients over the processes at every microbatch:
    less memory, more communication. None: where the GPU has no room (distributed.py)."""
    graphs: bool = True
    """Whether a GPU replays a step as CUDA graphs where it can."""
    deterministic: bool = False
    """Whether only kernels run whose result is the same every time, also on a GPU."""
    tokenizer: str | None = None
    """A tokenizer.json to use; None: one is trained on the text."""

    @property
    def tokens_a_step(self) -> int:
        """Of one process."""
        return self.batch * self.accumulate * self.shape.context


def _gpt2(layers: int, width: int, heads: int, context: int = 1024, vocabulary: int = 50257) -> Shape:
    return Shape(
        family="gpt2", layers=layers, width=width, heads=heads, kv_heads=heads, hidden=4 * width, context=context,
        vocabulary=vocabulary, tied=True,
    )  # fmt: skip


def _llama(layers: int, width: int, heads: int, kv_heads: int, hidden: int, context: int, vocabulary: int) -> Shape:
    return Shape(
        family="llama", layers=layers, width=width, heads=heads, kv_heads=kv_heads, hidden=hidden, context=context,
        vocabulary=vocabulary, tied=vocabulary < 2**17,
    )  # fmt: skip


def _large(name: str, shape: Shape, batch: int, rate: float) -> Settings:
    return Settings(
        preset=name, shape=shape, steps=20_000, batch=batch, rate=rate, warmup=700, evaluate_every=250,
        checkpoint_every=1000,
    )  # fmt: skip


# Shapes and rates: GPT-2 (Radford et al. 2019) with the rates of GPT-3's table 2.1; Llama 3.2 1B's config.json.
# nano's rate, batch and size: tuned on two cores for what three minutes can learn.
PRESETS = {
    settings.preset: settings
    for settings in (
        Settings(
            preset="nano", shape=_gpt2(4, 128, 4, context=128, vocabulary=2048), steps=200, batch=16, rate=3e-3,
            warmup=30, evaluate_every=100, checkpoint_every=100,
        ),
        Settings(
            preset="nano-llama", shape=_llama(4, 128, 4, 2, 384, context=128, vocabulary=2048), steps=200, batch=16,
            rate=3e-3, warmup=30, evaluate_every=100, checkpoint_every=100,
        ),
        _large("gpt2-124m", _gpt2(12, 768, 12), 32, 6e-4),
        _large("gpt2-350m", _gpt2(24, 1024, 16), 16, 3e-4),
        _large("gpt2-774m", _gpt2(36, 1280, 20), 8, 2.5e-4),
        _large("gpt2-1.5b", _gpt2(48, 1600, 25), 4, 2e-4),
        _large("llama-150m", _llama(12, 768, 12, 4, 2048, context=2048, vocabulary=32000), 16, 6e-4),
        _large("llama-1b", _llama(16, 2048, 32, 8, 8192, context=4096, vocabulary=128256), 4, 3e-4),
    )
}  # fmt: skip


def preset(name: str) -> Settings:
    """The settings of that name. Raises BadSetting."""
    if name not in PRESETS:
        raise BadSetting(f"there is no preset {name!r}; there are: {', '.join(PRESETS)}.")
    return PRESETS[name]


OF_SHAPE = ("context", "vocabulary", "layers", "width", "heads")


def changed(settings: Settings, **changes: object) -> Settings:
    """The settings with what is not None in `changes`, some of which are the shape's. Raises BadSetting."""
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    of_shape = {name: given.pop(name) for name in OF_SHAPE if name in given}
    if given.get("parallel") == "ddp":
        given.setdefault("sparing", None)  # of a run that was fsdp's
    shape = settings.shape
    if of_shape:
        follow = {
            "kv_heads": of_shape.get("heads", shape.kv_heads),
            "hidden": shape.hidden * of_shape.get("width", shape.width) // shape.width,
        }
        shape = replace(shape, **{**follow, **of_shape})
    result = replace(settings, shape=shape, **given)
    check(result)
    return result


def check(settings: Settings) -> None:
    """Raises BadSetting for what cannot be trained."""
    shape = settings.shape
    counted = {name: getattr(settings, name) for name in ("steps", "batch", "accumulate", "evaluate_every",
               "checkpoint_every", "keep")}  # fmt: skip
    counted |= {name: getattr(shape, name) for name in ("context", "layers", "width", "heads")}
    for name, value in counted.items():
        if value < 1:
            raise BadSetting(f"--{name.replace('_', '-')} is {value}; it is 1 or more.")
    if not 0 < settings.rate < math.inf:
        raise BadSetting(f"--rate is {settings.rate}; it is above 0, and finite.")
    if not 0 <= settings.seed < 2**63:
        raise BadSetting(f"--seed is {settings.seed}; it is from 0 to 2^63 - 1.")
    if shape.vocabulary < 257:
        raise BadSetting(f"--vocabulary is {shape.vocabulary}; it is 257 or more: 256 bytes and the end of a text.")
    if shape.width % shape.heads or shape.heads % shape.kv_heads:
        raise BadSetting(
            f"a width of {shape.width} is not divided by {shape.heads} heads, or these by {shape.kv_heads}."
        )
    if shape.family == "llama" and shape.head_width % 2:
        raise BadSetting(
            f"a head has {shape.head_width} elements (--width {shape.width} by --heads {shape.heads}): RoPE turns "
            "pairs of them, so pass a width of an even number a head."
        )
    if settings.parallel not in ("ddp", "fsdp"):
        raise BadSetting(f"--parallel is {settings.parallel!r}; it is ddp or fsdp.")
    if settings.sparing is not None and settings.parallel != "fsdp":
        raise BadSetting("--sparing and --no-sparing are of --parallel fsdp, and this is ddp; leave them out.")
