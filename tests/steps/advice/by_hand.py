"""A Step written down Op by Op, for tests of advice. Each Op is one launch; its bytes are those of its tensors."""

from dataclasses import dataclass, field, replace

from steps_by_hand import STEP, kernel, launch, tensor
from undertorch.records import (
    Accounting,
    Argument,
    Bound,
    Environment,
    Idle,
    Kind,
    Math,
    Op,
    Phase,
    Step,
    TensorRef,
    Where,
)

SCRIPT = "train.py"


@dataclass
class Tape:
    """Ops one after another, on one stream, without gaps."""

    ops: list[Op] = field(default_factory=list)
    launches: list = field(default_factory=list)
    storages: int = 0
    now: float = 0.0

    def new(self, *shape: int, dtype: str = "bfloat16") -> TensorRef:
        """A contiguous tensor in a storage of its own."""
        self.storages += 1
        return tensor(*shape, dtype=dtype, storage=self.storages)

    def call(
        self,
        name: str,
        inputs: dict[str, object],
        outputs: tuple[TensorRef, ...] = (),
        kind: Kind = Kind.ELEMENTWISE,
        us: float = 100,
        line: int = 1,
        phase: Phase = Phase.FORWARD,
        launches: int = 1,
        read: int | None = None,
        written: int | None = None,
        flops: int = 0,
        math: Math | None = None,
        node: str | None = None,
        forward: int | None = None,
        bound: Bound = Bound.MEMORY,
        tf32: bool = False,
    ) -> Op:
        """Reads each input once and writes each output once, unless said otherwise. Without launches it is a view."""
        op = Op(
            id=len(self.ops),
            name=name if "::" in name else f"aten::{name}",
            overload="default",
            where=Where(file=SCRIPT, line=line, function="forward"),
            phase=phase,
            microbatch=0,
            arguments=tuple(Argument(name=key, value=value) for key, value in inputs.items()),
            outputs=outputs,
            node=node,
            forward=forward,
            tf32=tf32,
        )
        self.ops.append(op)
        for _ in range(launches):
            made = kernel(
                f"{name}_kernel",
                kind,
                read=sum(one.bytes for one in op.inputs) if read is None else read,
                written=sum(one.bytes for one in op.results) if written is None else written,
                flops=flops,
                math=math,
            )
            self.launches.append(launch(made, (op.id,), phase, self.now, us, bound=bound))
            self.now += us
        return op

    def step(self, source: str = "", idle: tuple[Idle, ...] = ()) -> Step:
        """All of it."""
        return replace(
            STEP,
            ops=tuple(self.ops),
            launches=tuple(self.launches),
            idle=idle,
            step_us=self.now + sum(one.time_us for one in idle),
            accounting=Accounting(launches=len(self.launches), time_with_line=1.0),
            environment=Environment(script=SCRIPT, step=2, sources={SCRIPT: source}),
        )


def view(of: TensorRef, *shape: int, strides: tuple[int, ...] | None = None, offset: int = 0) -> TensorRef:
    """Another shape in the same storage."""
    fresh = tensor(*shape, dtype=of.dtype, storage=of.storage)
    return replace(fresh, strides=strides or fresh.strides, offset=offset)
