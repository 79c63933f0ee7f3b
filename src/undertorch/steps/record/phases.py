"""In which phase of the step an op runs (records/kinds.py says what each means)."""

from dataclasses import dataclass
from types import CodeType

import torch
from torch import nn
from torch.nn.modules import loss as loss_modules
from torch.nn.utils import clip_grad
from torch.utils import checkpoint

from undertorch.records import Phase
from undertorch.steps.record.backward import Node
from undertorch.steps.record.places import ENGINE, Place

LOSSES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "linear_cross_entropy",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
)
"""torch.nn.functional's loss functions (torch's documentation lists them under this heading)."""


def mark(code: CodeType) -> str | None:
    """What torch is doing while one of its functions runs, where that decides a phase."""
    if code.co_filename == clip_grad.__file__:
        return "clip"
    if code.co_filename == checkpoint.__file__ and code.co_name == "unpack_hook":
        return "recompute"
    if code.co_filename == torch.autograd.graph.__file__ and code.co_name == "_engine_run_backward":
        return ENGINE
    if code is torch.autograd.backward.__code__ or code is torch.autograd.grad.__code__:
        return "backward"
    return "loss" if code in _LOSS_CODES else None


_LOSS_CODES = frozenset(getattr(nn.functional, name).__code__ for name in LOSSES if hasattr(nn.functional, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What the rules ask of an op and of the moment it is called in."""

    name: str
    namespace: str
    doing: frozenset[str]
    """Marks of torch's functions that are running (`mark`)."""
    gradients: bool
    """Whether autograd records, or did as a custom Function took over."""
    from_host: bool
    """Whether an argument lies in host memory: a batch on its way to the GPU."""
    trains: bool
    """Whether autograd made a node for the op, or it is part of a custom Function's forward."""
    module: nn.Module | None
    """The innermost one whose forward runs."""
    module_trains: bool
    """Whether the outermost one was called with gradients on."""
    node: Node | None
    """The backward node that runs."""
    creates_graph: bool
    """Whether the backward builds a graph of itself."""
    writes_trained: bool = False
    """Whether it writes into a tensor that received a gradient."""


class Phases:
    """Tells phases, and remembers what that takes: whether forward and loss have begun, which optimizer steps."""

    def __init__(self) -> None:
        self._loss = False
        self._begun = False
        self._microbatch_done = False
        self.updates: list[Place] = []
        """Where the optimizers that are stepping were called, the innermost last."""
        self._hooked: list[bool] = []
        """Of each of these, whether it steps inside a backward (in a gradient's hook)."""
        self.microbatch = 0
        """Which forward and backward of the run it is, counted from 0."""

    @property
    def next_microbatch(self) -> int:
        """The microbatch that a forward which begins now belongs to."""
        return self.microbatch + self._microbatch_done

    @property
    def forward_begun(self) -> bool:
        """Whether a forward has begun since the last backward."""
        return self._begun

    def module_called(self, module: nn.Module) -> None:
        """A model that goes on after a loss was computed in it is back in the forward."""
        if not isinstance(module, loss_modules._Loss):
            self._loss = False

    def backward_started(self) -> None:
        """The forward ends."""
        self._loss = False
        self._begun = False

    def backward_ended(self) -> None:
        """The next forward begins a microbatch."""
        self._microbatch_done = True

    def update_begins(self, place: Place, in_backward: bool) -> None:
        """An optimizer steps, called at a place."""
        self.updates.append(place)
        self._hooked.append(in_backward)

    def updates_go_on(self, count: int) -> None:
        """Only so many of the optimizers that began are stepping still."""
        del self.updates[count:]
        del self._hooked[count:]

    def update_ends(self) -> None:
        """The one that began last is done."""
        self.updates.pop()
        self._hooked.pop()

    def phase(self, moment: Moment) -> Phase:
        """The phase of an op."""
        if moment.namespace in {"c10d", "_c10d_functional"}:
            return Phase.COMMUNICATE
        if "clip" in moment.doing:
            return Phase.CLIP
        if moment.node is not None:
            return self._in_engine(moment, moment.node)
        if "backward" in moment.doing:
            return Phase.BACKWARD  # the gradient of the loss itself, made before the engine starts
        if moment.module_trains or (moment.gradients and (moment.trains or (self._begun and not moment.from_host))):
            return self._forward(moment)
        return Phase.UPDATE if self.updates or moment.writes_trained else Phase.OTHER

    def _in_engine(self, moment: Moment, node: Node) -> Phase:
        if self._hooked and self._hooked[-1]:
            return Phase.UPDATE
        if "recompute" in moment.doing or (moment.gradients and not moment.creates_graph):
            return Phase.RECOMPUTE
        if node.parameter is not None and moment.name in {"aten::add", "aten::add_"}:
            return Phase.ACCUMULATE
        return Phase.BACKWARD

    def _forward(self, moment: Moment) -> Phase:
        if self._microbatch_done:
            self._microbatch_done = False
            self.microbatch += 1
        self._begun = True
        if "loss" in moment.doing or isinstance(moment.module, loss_modules._Loss):
            self._loss = True
        return Phase.LOSS if self._loss else Phase.FORWARD
