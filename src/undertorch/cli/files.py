"""The files that `see` writes beside its report."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from undertorch.cli.exits import BadInput
from undertorch.cli.outputs import STDOUT, check_writable, refuse_inputs, same_file, writing

if TYPE_CHECKING:
    from undertorch.records import Gpu, Step
    from undertorch.records.ranks import RanksReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Each as it was asked for; None: not wanted. `json` may be standard output, which is not written here."""

    json: Path | None
    page: Path | None
    perfetto: Path | None

    def check(self, inputs: Sequence[Path]) -> None:
        """Raises BadInput where one of them could not be written, is an input, or two are the same."""
        wanted = [path for path in (self.json, self.page, self.perfetto) if path is not None]
        for path in (self.page, self.perfetto):
            if path == STDOUT:
                raise BadInput("- stands for standard output, which only --json writes to; give the name of a file.")
        for place, path in enumerate(wanted):
            if any(same_file(path, other) for other in wanted[:place]):
                raise BadInput(f"{path} is asked for twice; give each file a name of its own.")
            refuse_inputs(path, inputs)
            check_writable(path)

    @contextmanager
    def written(
        self, seen: Sequence[tuple["Gpu", "Step"]], as_list: bool = False, ranks: "RanksReport | None" = None
    ) -> Iterator[None]:
        """Writes those that are wanted, then goes into the block that shows the report.

        First, since the reader of the report may leave before its end (`| head`). Where a file cannot be written the
        report is shown all the same. Raises BadInput then.
        """
        failure: Exception | None = None
        try:
            self._write(seen, as_list, ranks)
        except (BadInput, BrokenPipeError) as error:
            failure = error
        try:
            yield
        finally:
            if failure is not None:
                raise failure

    def _write(self, seen: Sequence[tuple["Gpu", "Step"]], as_list: bool, ranks: "RanksReport | None") -> None:
        """Writes those that are wanted. The Perfetto file is that of the first GPU. Raises BadInput."""
        from undertorch.records.files import write_steps
        from undertorch.reports.page import write_page
        from undertorch.reports.perfetto import write_perfetto

        steps = [step for _, step in seen]
        if self.json is not None and self.json != STDOUT:
            with writing(self.json):
                write_steps(self.json, steps, as_list=as_list, ranks=ranks)
        if self.page is not None:
            with writing(self.page):
                write_page(self.page, steps, {gpu.name: gpu for gpu, _ in seen}, ranks)
        if self.perfetto is not None:
            with writing(self.perfetto):
                write_perfetto(self.perfetto, steps[0])
