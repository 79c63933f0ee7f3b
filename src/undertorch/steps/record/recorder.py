"""Sees every call into ATen that the script makes, runs it on fake tensors, and keeps those that touch the GPU."""

import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from undertorch.records import Argument, Op, Phase, TensorRef
from undertorch.records.ops import LINES
from undertorch.steps.record.backward import Backward, Node
from undertorch.steps.record.boundaries import Boundaries
from undertorch.steps.record.calls import Call
from undertorch.steps.record.compiled.unseen import unseen
from undertorch.steps.record.execution import Execution
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.functions import Functions
from undertorch.steps.record.inplace import as_on_a_gpu
from undertorch.steps.record.modules import Modules
from undertorch.steps.record.phases import Moment, Phases
from undertorch.steps.record.places import Place, Places
from undertorch.steps.record.precision import tf32
from undertorch.steps.record.refs import Refs, tensors_in
from undertorch.steps.record.schemas import composed, declared, python_kernel, written
from undertorch.steps.record.storages import Storages
from undertorch.steps.record.tape import Tape

aten = torch.ops.aten
BOOKKEEPING = {"prim", "profiler"}
"""Namespaces of ops that do nothing on a device."""
QUESTIONS = {
    aten._fused_sdp_choice.default,
    *(
        getattr(packet, overload)
        for packet in (getattr(aten, name, None) for name in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"))
        if packet is not None
        for overload in packet.overloads()
    ),
}
"""Ops that only ask which other op to call."""
OPENED = {aten._pack_padded_sequence.default}
"""Ops that stand for the ops that they call, on a GPU too, and whose shape rule asks for values that are there: lengths
in host memory.
"""
IN_A_MICROBATCH = {Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.RECOMPUTE, Phase.ACCUMULATE}


DRAWN_AGAIN = "graphsafe_run_with_rng_state"
"""By which compiled code calls an op that draws numbers, or might (attention), in the forward and again where the
backward recomputes it (checkpointing), so that it draws the same; no kernel is launched for the state
(torch/_prims/rng_prims.py)."""


class Recorder(TorchDispatchMode):
    """The dispatch mode under which the script runs."""

    def __init__(
        self,
        fakes: Fakes,
        execution: Execution,
        places: Places,
        modules: Modules,
        functions: Functions,
        backward: Backward,
        phases: Phases,
        storages: Storages,
        tape: Tape,
        boundaries: Boundaries,
    ) -> None:
        enter: Any = super().__init__
        enter()
        self._fakes = fakes
        self._execution = execution
        self._places = places
        self._modules = modules
        self._functions = functions
        self._backward = backward
        self._phases = phases
        self._storages = storages
        self._refs = Refs(storages)
        self._tape = tape
        self._boundaries = boundaries
        self._trained: set[int] = set()
        """Storages of what received gradients."""
        self._gradients: set[int] = set()
        """Storages of these gradients."""
        self._one_at_a_time = threading.RLock()
        """Of ops that the script's threads call side by side. Held by none that runs others, which a backward, on
        a thread of its own, might be among.
        """

    supports_higher_order_operators = True

    @unseen
    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by torch for each op, below autograd and autocast."""
        named = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            return self._higher(func, args, named)
        if any(_has_dispatch(kind) for kind in types):
            return NotImplemented  # the class says what it is made of, and comes back with that
        tensors = tensors_in(args, named)
        if self._fakes.of_others(tensors):
            return func(*args, **named)
        if func.namespace in BOOKKEEPING and not isinstance(args[0], FakeTensor):
            return func(*args, **named)
        if func.namespace in BOOKKEEPING or (_hidden_detach(func) and isinstance(args[0], FakeTensor)):
            return self._fakes.run(func, types, args, named)
        if not self._fakes.wanted(func, types, args, named, tensors):
            self._backward.made(None)
            return func(*args, **named)
        if composed(func) or func in OPENED:
            # In inference mode torch leaves to the mode what it takes apart by itself otherwise.
            kind = "CompositeExplicitAutograd" if func in OPENED else "CompositeImplicitAutograd"
            with self:
                return func._op_dk(getattr(torch._C.DispatchKey, kind), *args, **named)
        if (key := python_kernel(func)) is not None:
            return self._inside(func, key, types, args, named, tensors)
        if func in QUESTIONS:
            return self._execution.run(Call(func=func, types=types, args=args, named=named, where=None)).result
        place = self._places.look(sys._getframe(1))
        with self._one_at_a_time:
            if _on_device(tensors, named):
                return self._record(func, types, args, named, tensors, place)
            self._backward.made(None)
            return self._execution.run(Call(func=func, types=types, args=args, named=named, where=place.where)).result

    def _higher(self, func: torch._ops.HigherOrderOperator, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """An operator that takes functions (flex_attention, cond) is what it calls where nothing is compiled."""
        if func.name() == DRAWN_AGAIN:
            run, *given = args
            named = {name: value for name, value in named.items() if name != "rng_state"}
            with self:
                return run(*given, **named)
        kernel = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
        if kernel is None:
            raise NotImplementedError(f"{func.name()} calls functions in a way that cannot be seen: call them by hand.")
        with self:
            return kernel(*args, **named)

    def _inside(
        self,
        func: torch._ops.OpOverload,
        key: torch._C.DispatchKey,
        types: Sequence[type],
        args: Sequence[Any],
        named: Mapping[str, Any],
        tensors: Sequence[torch.Tensor],
    ) -> Any:
        """A custom op written in Python is what it calls. Where that cannot run on fake tensors, it stays one op."""
        before = self._tape.next
        try:
            with self:
                return func._op_dk(key, *args, **named)
        except Exception:
            if not declared(func):
                raise
        self._tape.drop(before)
        with self._one_at_a_time:
            return self._record(func, types, args, named, tensors, self._places.look(sys._getframe(2)))

    def launched(self, name: str, tensors: Sequence[torch.Tensor], arguments: tuple[Argument, ...]) -> None:
        """A kernel that was launched past ATen. Where Inductor wrote it out of several lines, each but the first has an
        Op of its own after the kernel's, without arguments.
        """
        place = self._places.look(sys._getframe(1))
        node = self._backward.node()
        namespace, _, _ = name.partition("::")
        with self._one_at_a_time:
            trains = self._backward.made(self._tape.next) or self._functions.gradients()
            moment = self._moment(name, namespace, tensors, place, node, trains, by_hand=False)
            phase = self._phases.phase(moment)
            others = place.others if namespace == "inductor" else ()
            if others:
                arguments = (*arguments, Argument(name=LINES, value=1 + len(others)))
            self._keep(name, "", moment, phase, place, arguments, (), ())
            for first, *above in others:
                also = replace(place, where=first, chain=tuple(above), others=())
                self._keep(name, "", moment, phase, also, (), (), ())

    def called(
        self,
        name: str,
        tensors: Sequence[torch.Tensor] = (),
        arguments: tuple[Argument, ...] = (),
        outputs: tuple[TensorRef, ...] = (),
    ) -> None:
        """What the script had CUDA do past ATen that is no kernel: a wait, a copy. Autograd has no part in it."""
        place = self._places.look(sys._getframe(1))
        with self._one_at_a_time:
            moment = self._moment(name, "", tensors, place, self._backward.node(), trains=False, by_hand=False)
            self._keep(name, "", moment, self._phases.phase(moment), place, arguments, outputs, ())

    def _record(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any],
        named: Mapping[str, Any],
        tensors: Sequence[torch.Tensor],
        place: Place,
    ) -> Any:
        node = self._backward.node()
        if node is not None and (place.where is None or not node.runs):
            func, args, named = as_on_a_gpu(func, args, named, node)
        trains = self._backward.made(self._tape.next) or self._functions.gradients()
        if node is not None and node.parameter is not None:
            self._trained.add(self._storages.number(node.parameter))
        by_hand = node is None and not self._phases.updates and self._writes(func, args, self._trained)
        moment = self._moment(func._schema.name, func.namespace, tensors, place, node, trains, by_hand)
        arguments = self._refs.arguments(func._schema, args, named)
        phase = self._phases.phase(moment)
        answer = self._execution.run(Call(func=func, types=types, args=args, named=named, where=place.where))
        outputs = self._outputs(func, answer.result)
        self._keep(func._schema.name, func._overloadname, moment, phase, place, arguments, outputs, answer.assumed)
        if node is not None and node.parameter is not None:
            self._gradients.update(tensor.storage for tensor in outputs if tensor is not None)
        elif by_hand and phase is Phase.UPDATE:
            self._boundaries.written_by_hand()
        elif node is None and self._writes(func, args, self._gradients):
            self._boundaries.gradient_written()
        return answer.result

    def _keep(
        self,
        name: str,
        overload: str,
        moment: Moment,
        phase: Phase,
        place: Place,
        arguments: tuple[Argument, ...],
        outputs: tuple[TensorRef | None, ...],
        assumed: tuple[str, ...],
    ) -> None:
        """Puts an Op on the tape."""
        node = moment.node
        forward, place, module = self._belongs(place, node, phase)
        self._tape.append(
            Op(
                id=self._tape.next,
                name=name,
                overload=overload,
                torch=str(torch.__version__),
                where=place.where,
                chain=place.chain,
                module=module,
                phase=phase,
                microbatch=self._phases.microbatch if phase in IN_A_MICROBATCH else None,
                arguments=arguments,
                outputs=outputs,
                forward=forward if phase is Phase.BACKWARD else None,
                node=node.name if node is not None and phase is Phase.BACKWARD else None,
                tf32=tf32(name),
                assumed=assumed,
            ),
            self._storages.live_bytes,
        )

    def _writes(self, func: torch._ops.OpOverload, args: Sequence[Any], storages: set[int]) -> bool:
        """Whether an op writes into one of some storages."""
        targets = tensors_in([args[position] for position in written(func) if position < len(args)], {})
        return any(self._storages.number(target) in storages for target in targets)

    def _moment(
        self,
        name: str,
        namespace: str,
        tensors: Sequence[torch.Tensor],
        place: Place,
        node: Node | None,
        trains: bool,
        by_hand: bool,
    ) -> Moment:
        return Moment(
            name=name,
            namespace=namespace,
            doing=place.doing,
            gradients=torch.is_grad_enabled() or self._functions.gradients(),
            from_host=any(tensor.device.type == "cpu" and tensor.dim() for tensor in tensors),
            trains=trains,
            module=self._modules.innermost(),
            module_trains=self._modules.trains(),
            node=node,
            creates_graph=self._backward.creates_graph,
            writes_trained=by_hand,
        )

    def _belongs(self, place: Place, node: Node | None, phase: Phase) -> tuple[int | None, Place, str | None]:
        """The forward Op that an op belongs to, the line it is given, and its module."""
        if phase is Phase.UPDATE and self._phases.updates:
            return None, self._phases.updates[-1], None
        forward = None if node is None else self._backward.forward_of(node)
        op = None if forward is None else self._tape.op(forward)
        if node is None or phase is Phase.RECOMPUTE:
            if place.where is None and op is not None:  # a module of torch's, called by torch: that of its first run
                place = Place(where=op.where, chain=op.chain, doing=place.doing)
            return None, place, self._modules.path()
        module = None if op is None else op.module
        if node.parameter is not None:
            module = self._modules.parameter(node.parameter) or module
        called = self._backward.function_of(node)
        if place.compiled:
            # The compiled function's frame stands innermost where it was called.
            place = place if called is None else replace(place, chain=(*place.chain, *called.chain))
        elif called is not None and called.where is not None:
            place = Place(where=called.where, chain=called.chain, doing=place.doing)
        elif op is not None:
            place = Place(where=op.where, chain=op.chain, doing=place.doing)
        return (None if op is None else forward), place, module

    def _outputs(self, func: torch._ops.OpOverload, result: Any) -> tuple[TensorRef | None, ...]:
        """Results, lists flattened; what is no tensor (a number) is left out."""
        returned = result if isinstance(result, list | tuple) else (result,)
        flat = [item for value in returned for item in (value if isinstance(value, list | tuple) else (value,))]
        in_place = bool(written(func))
        return tuple(
            self._refs.tensor(item, written=in_place) if isinstance(item, torch.Tensor) else None
            for item in flat
            if item is None or isinstance(item, torch.Tensor)
        )


def _hidden_detach(func: torch._ops.OpOverload) -> bool:
    """A detach that torch makes for tensor subclasses alone: `.data`, and a result that is saved for its backward.

    It reaches a dispatch mode without passing the dispatcher, so the keys above the mode are not switched off.
    """
    above = torch._C.DispatchKey.ADInplaceOrView
    return func is aten.detach.default and not torch._C._dispatch_tls_is_dispatch_key_excluded(above)


@cache
def _has_dispatch(kind: type) -> bool:
    """Whether a class of tensors has its own word on ops, as DTensor has."""
    own = getattr(kind, "__torch_dispatch__", torch._C._disabled_torch_dispatch_impl)
    return own is not torch._C._disabled_torch_dispatch_impl and not issubclass(kind, FakeTensor)


def _on_device(tensors: Sequence[torch.Tensor], named: Mapping[str, Any]) -> bool:
    """Whether an op works on a tensor of the GPU or makes one there."""
    if any(tensor.device.type == "cuda" for tensor in tensors):
        return True
    device = named.get("device")
    return device is not None and torch.device(device).type == "cuda"
