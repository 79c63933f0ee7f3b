"""Names the line of each call of torch in the profiler's trace, without changing the call.

A mode of torch's functions (not of its dispatcher, which would change the ops) sets a range around each call. Its name
is a number; what stood there (line, chain, module, phase) is kept beside the trace.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch._C._profiler import _RecordFunctionFast
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from undertorch.records import Phase, TensorRef
from undertorch.steps.measure import own_ops
from undertorch.steps.measure.exchange import Described, Mark, OwnCall
from undertorch.steps.measure.naming import mark_number, range_name
from undertorch.steps.record.modules import Modules
from undertorch.steps.record.phases import Moment, Phases
from undertorch.steps.record.places import Place, Places

IN_A_MICROBATCH = frozenset({Phase.FORWARD, Phase.LOSS})

VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag"})
"""Attributes of a tensor that autograd makes a node for. The others only answer, and get no range."""

QUIET_CALLS = frozenset(
    function
    for name in (
        *(
            "__hash__",
            "__len__",
            "dim",
            "element_size",
            "is_complex",
            "is_contiguous",
            "is_floating_point",
            "is_pinned",
        ),
        *("is_signed", "nelement", "numel", "size", "storage_offset", "stride", "data_ptr", "untyped_storage"),
        *("ndimension", "has_names", "register_hook", "requires_grad_", "register_post_accumulate_grad_hook"),
    )
    if (function := getattr(torch.Tensor, name, None)) is not None
)
"""Methods that only answer. They are called often and launch nothing."""

NO_NODE = frozenset(
    {
        *("item", "tolist", "numpy", "detach", "detach_", "__bool__", "__int__", "__float__", "__index__", "__repr__"),
        *("__format__", "__contains__", "argmax", "argmin", "argsort", "eq", "ne", "lt", "le", "gt", "ge", "__eq__"),
        *(
            "__ne__",
            "__lt__",
            "__le__",
            "__gt__",
            "__ge__",
            "isnan",
            "isinf",
            "isfinite",
            "isclose",
            "allclose",
            "equal",
        ),
        *("sign", "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "randint_like", "full_like"),
        *("count_nonzero", "nonzero", "any", "all", "searchsorted", "bucketize", "multinomial", "bincount", "histc"),
    }
)
"""Names of functions to which autograd makes no node, whatever they are given: they begin no forward."""

ENGINE_CALLS = frozenset({"backward", "grad"})
"""Names of those that run the engine: `Tensor.backward`, `torch.autograd.grad`."""


class Marks:
    """Keeps what stood around each call, each such state once."""

    def __init__(self, places: Places, modules: Modules, phases: Phases) -> None:
        self._places = places
        self._modules = modules
        self._phases = phases
        self._looked: dict[tuple[int, ...], Place] = {}
        self._codes: list[CodeType] = []
        """Keeps alive those whose identities are in `_looked`."""
        self._numbers: dict[Mark, int] = {}
        self._names: dict[tuple[object, ...], str] = {}
        self._answers: dict[int, tuple[TensorRef, ...]] = {}
        """What own ops made, by the number of their mark."""
        self._kept: list[Place] = []
        """Keeps alive those whose identities are in `_names`."""

    def all(self) -> tuple[Mark, ...]:
        """In the order of their numbers."""
        return tuple(
            replace(mark, own=replace(mark.own, outputs=self._answers.get(number, ()))) if mark.own else mark
            for mark, number in self._numbers.items()
        )

    def look(self, frame: FrameType) -> Place:
        """As `Places.look`; the same stack of calls is looked up once."""
        key: list[int] = []
        up: FrameType | None = frame
        while up is not None:
            key += (id(up.f_code), up.f_lasti)
            up = up.f_back
        found = self._looked.get(tuple(key))
        if found is None:
            found = self._looked[tuple(key)] = self._places.look(frame)
            up = frame
            while up is not None:
                self._codes.append(up.f_code)
                up = up.f_back
        return found

    def call(self, place: Place, name: str, arguments: Sequence[Any]) -> str:
        """The range of a call of one of torch's functions."""
        phase = Phase.BACKWARD if name in ENGINE_CALLS else self._phase(place, arguments, name not in NO_NODE)
        lists, memories = _lists(arguments)
        if phase is Phase.UPDATE and self._phases.updates:
            return self._name(self._phases.updates[-1], None, phase, "call", lists, memories)
        return self._name(place, self._modules.path(), phase, "call", lists, memories)

    def other(self, place: Place, what: str) -> str:
        """The range of something else that launches or waits."""
        if torch._C._current_graph_task_id() != -1:
            return self._name(place, self._modules.path(), None, what)
        return self._name(place, self._modules.path(), self._phase(place, (), False), what)

    def own(self, place: Place, call: OwnCall) -> str:
        """The range of a call of undertorch's own op."""
        phase = self._phase(place, (), False)
        if phase is Phase.UPDATE and self._phases.updates:
            return self._name(self._phases.updates[-1], None, phase, "own", own=call)
        return self._name(place, self._modules.path(), phase, "own", own=call)

    def answered(self, name: str, made: tuple[TensorRef, ...]) -> None:
        """What the call of a range made."""
        number = mark_number(name)
        if number is not None:
            self._answers.setdefault(number, made)

    def _phase(self, place: Place, arguments: Sequence[Any], makes_node: bool) -> Phase | None:
        if torch._C._current_graph_task_id() != -1:
            return Phase.RECOMPUTE if "recompute" in place.doing else None
        tensors = [value for value in _flat(arguments) if isinstance(value, torch.Tensor)]
        gradients = torch.is_grad_enabled()
        return self._phases.phase(
            Moment(
                name="",
                namespace="",
                doing=place.doing,
                gradients=gradients,
                from_host=any(tensor.device.type == "cpu" and tensor.dim() for tensor in tensors),
                trains=makes_node and gradients and any(tensor.requires_grad for tensor in tensors),
                module=self._modules.innermost(),
                module_trains=self._modules.trains(),
                node=None,
                creates_graph=False,
                writes_trained=not gradients and bool(arguments) and isinstance(arguments[0], nn.Parameter),
            )
        )

    def _name(
        self,
        place: Place,
        module: str | None,
        phase: Phase | None,
        what: str,
        lists: tuple[tuple[Described, ...], ...] = (),
        memories: tuple[tuple[int, ...], ...] = (),
        own: OwnCall | None = None,
    ) -> str:
        microbatch = self._phases.microbatch if phase in IN_A_MICROBATCH else None
        key = (id(place), module, phase, microbatch, what, lists, memories, own)
        name = self._names.get(key)
        if name is None:
            mark = Mark(
                where=place.where,
                chain=place.chain,
                module=module,
                phase=phase,
                microbatch=microbatch,
                lists=lists,
                memories=memories,
                own=own,
                what=what,
            )
            number = self._numbers.setdefault(mark, len(self._numbers))
            name = self._names[key] = range_name(number)
            self._kept.append(place)
        return name


def _lists(arguments: Sequence[Any]) -> tuple[tuple[tuple[Described, ...], ...], tuple[tuple[int, ...], ...]]:
    """Of the arguments that are lists of tensors, or empty: what they hold, and which of it is one memory. None of it
    where all are empty.
    """
    lists = [value for value in arguments if isinstance(value, list | tuple) and all(_is_strided(one) for one in value)]
    if not any(lists):
        return (), ()
    numbers: dict[tuple[int, int], int] = {}

    def memory(one: torch.Tensor) -> int:
        return numbers.setdefault((one.untyped_storage()._cdata, int(one.storage_offset())), len(numbers))

    return (
        tuple(
            tuple((str(one.dtype).removeprefix("torch."), tuple(one.shape), tuple(one.stride())) for one in value)
            for value in lists
        ),
        tuple(tuple(memory(one) for one in value) for value in lists),
    )


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _flat(arguments: Sequence[Any]) -> Iterator[Any]:
    for value in arguments:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


class Marking(TorchFunctionMode):
    """While it is the thread's mode, each call of torch has its range."""

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self._marks = marks

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the function as it is."""
        named = kwargs or {}
        name = getattr(func, "__name__", "")
        if func in QUIET_CALLS or name == "__set__" or (name == "__get__" and _attribute(func) not in VIEWS):
            return func(*args, **named)
        place = self._marks.look(sys._getframe(1))
        if place.where is None:
            return func(*args, **named)
        with _RecordFunctionFast(self._marks.call(place, name, args)):
            return func(*args, **named)

    @property
    def active(self) -> bool:
        """Whether it is among this thread's modes."""
        return any(mode is self for mode in _get_current_function_mode_stack())

    @contextmanager
    def on(self) -> Iterator[None]:
        """Active in the block, whether or not it was before."""
        if self.active:
            yield
            return
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Makes it the innermost of this thread's modes."""
        _push_mode(self)

    def leave(self) -> None:
        """Takes it out from among this thread's modes, wherever it stands; the others stay in their order."""
        above = []
        while self.active:
            mode = _pop_mode()
            if mode is self:
                break
            above.append(mode)
        for mode in reversed(above):
            _push_mode(mode)


def _attribute(func: Any) -> str:
    return getattr(getattr(func, "__self__", None), "__name__", "")


def marked(marks: Marks, call: Callable[..., Any], what: str) -> Callable[..., Any]:
    """A function of torch's that no mode sees, with a range around it."""

    def ranged(*arguments: Any, **named: Any) -> Any:
        place = marks.look(sys._getframe(1))
        if place.where is None:
            return call(*arguments, **named)
        with _RecordFunctionFast(marks.other(place, what)):
            return call(*arguments, **named)

    return ranged


def own_op(marks: Marks, operator: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A call of undertorch's own op with its range, which tells what was called even where no line called it (the
    engine's thread)."""
    name = marks.own(marks.look(sys._getframe(1)), own_ops.called(operator, arguments))
    with _RecordFunctionFast(name):
        result = function(*arguments)
    marks.answered(name, own_ops.answered(result))
    return result


def range_of(marks: Marks, frame: FrameType, what: str) -> AbstractContextManager[Any]:
    """A range around a block, named after a frame."""
    return _RecordFunctionFast(marks.other(marks.look(frame), what))
