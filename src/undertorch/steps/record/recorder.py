"""Sees every call into ATen that the script makes, runs it on fake tensors, and keeps those that touch the GPU."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from undertorch.records import Op, Phase, TensorRef
from undertorch.steps.record.backward import Backward, Node
from undertorch.steps.record.calls import Call
from undertorch.steps.record.execution import Execution
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.functions import Functions
from undertorch.steps.record.inplace import as_on_a_gpu
from undertorch.steps.record.modules import Modules
from undertorch.steps.record.phases import Moment, Phases
from undertorch.steps.record.places import Place, Places
from undertorch.steps.record.refs import Refs, tensors_in
from undertorch.steps.record.schemas import composed, written
from undertorch.steps.record.storages import Storages
from undertorch.steps.record.tape import Tape

aten = torch.ops.aten
BOOKKEEPING = {"prim", "profiler"}
"""Namespaces of ops that do nothing on a device."""
QUESTIONS = {aten._fused_sdp_choice.default}
"""Ops that only ask which other op to call."""
IN_A_MICROBATCH = {Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.RECOMPUTE, Phase.ACCUMULATE}


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

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by torch for each op, below autograd and autocast."""
        named = kwargs or {}
        if func.namespace in BOOKKEEPING and not isinstance(args[0], FakeTensor):
            return func(*args, **named)
        if func.namespace in BOOKKEEPING or _hidden_detach(func):
            return self._fakes.run(func, types, args, named)
        tensors = tensors_in(args, named)
        if not self._fakes.wanted(func, types, args, named, tensors):
            self._backward.made(None)
            return func(*args, **named)
        if composed(func):
            # In inference mode torch leaves to the mode what it takes apart by itself otherwise.
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **named)
        if func in QUESTIONS:
            return self._execution.run(Call(func=func, types=types, args=args, named=named, where=None)).result
        place = self._places.look(sys._getframe(1))
        if _on_device(tensors, named):
            return self._record(func, types, args, named, tensors, place)
        self._backward.made(None)
        return self._execution.run(Call(func=func, types=types, args=args, named=named, where=place.where)).result

    def _record(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any],
        named: Mapping[str, Any],
        tensors: Sequence[torch.Tensor],
        place: Place,
    ) -> Any:
        number = self._tape.next
        node = self._backward.node()
        if node is not None and (place.where is None or not node.runs):
            func, args, named = as_on_a_gpu(func, args, named, node)
        trains = self._backward.made(number) or self._functions.gradients()
        phase = self._phases.phase(self._moment(func, tensors, place, node, trains))
        microbatch = self._phases.microbatch if phase in IN_A_MICROBATCH else None
        arguments = self._refs.arguments(func._schema, args, named)
        answer = self._execution.run(Call(func=func, types=types, args=args, named=named, where=place.where))
        outputs = self._outputs(func, answer.result)
        forward, place, module = self._belongs(place, node, phase)
        self._tape.append(
            Op(
                id=number,
                name=func._schema.name,
                overload=func._overloadname,
                torch=str(torch.__version__),
                where=place.where,
                chain=place.chain,
                module=module,
                phase=phase,
                microbatch=microbatch,
                arguments=arguments,
                outputs=outputs,
                forward=forward if phase is Phase.BACKWARD else None,
                node=node.name if node is not None and phase is Phase.BACKWARD else None,
                assumed=answer.assumed,
            ),
            self._storages.live_bytes,
        )
        return answer.result

    def _moment(
        self,
        func: torch._ops.OpOverload,
        tensors: Sequence[torch.Tensor],
        place: Place,
        node: Node | None,
        trains: bool,
    ) -> Moment:
        return Moment(
            name=func._schema.name,
            namespace=func.namespace,
            doing=place.doing,
            gradients=torch.is_grad_enabled() or self._functions.gradients(),
            from_host=any(tensor.device.type == "cpu" and tensor.dim() for tensor in tensors),
            trains=trains,
            module=self._modules.innermost(),
            module_trains=self._modules.trains(),
            node=node,
            creates_graph=self._backward.creates_graph,
        )

    def _belongs(self, place: Place, node: Node | None, phase: Phase) -> tuple[int | None, Place, str | None]:
        """The forward Op that an op belongs to, the line it is given, and its module."""
        if phase is Phase.UPDATE and self._phases.updates:
            return None, self._phases.updates[-1], None
        if node is None or phase is Phase.RECOMPUTE:
            return None, place, self._modules.path()
        forward = self._backward.forward_of(node)
        op = None if forward is None else self._tape.op(forward)
        module = None if op is None else op.module
        if node.parameter is not None:
            module = self._modules.parameter(node.parameter) or module
        if op is None:
            return None, place, module
        return forward, Place(where=op.where, chain=op.chain, doing=place.doing), module

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


def _on_device(tensors: Sequence[torch.Tensor], named: Mapping[str, Any]) -> bool:
    """Whether an op works on a tensor of the GPU or makes one there."""
    if any(tensor.device.type == "cuda" for tensor in tensors):
        return True
    device = named.get("device")
    return device is not None and torch.device(device).type == "cuda"
