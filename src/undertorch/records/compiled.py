"""What a script compiles, of a step that is shown as it runs without."""

from dataclasses import dataclass

from undertorch.records.ops import Op, Where
from undertorch.records.steps import UNCAPTURED, UNCOMPILED, UNCOMPILED_FUNCTION, WITHOUT_GRAPHS, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What the step would run otherwise."""

    models: bool
    """Whether a model is compiled: then all that stands in modules is taken for it."""
    functions: frozenset[tuple[str, str]]
    """Functions that are compiled, by file and name."""
    graphs: bool
    """Whether CUDA graphs launch what is compiled."""
    captured: bool
    """Whether the script captures CUDA graphs of its own, with or without compiling."""
    where: Where | None
    """The line that compiles, the first one."""

    def takes(self, op: Op) -> bool:
        """Whether the script may well compile an Op."""
        if self.models and op.module is not None:
            return True
        frames = (*op.chain, op.where) if self.functions else ()
        return any(where is not None and (where.file, where.function) in self.functions for where in frames)


def compiled(step: Step) -> Compiled:
    """Told by the step's assumptions."""
    found = [one for one in step.accounting.assumed if one.what.startswith((UNCOMPILED, UNCOMPILED_FUNCTION))]
    return Compiled(
        models=any(one.what.startswith(UNCOMPILED) for one in found),
        functions=frozenset(
            (one.where.file, one.where.function)
            for one in found
            if one.where is not None and one.what.startswith(UNCOMPILED_FUNCTION)
        ),
        graphs=any(WITHOUT_GRAPHS in one.what for one in found),
        captured=any(one.what.startswith(UNCAPTURED) for one in step.accounting.assumed),
        where=found[0].where if found else None,
    )
