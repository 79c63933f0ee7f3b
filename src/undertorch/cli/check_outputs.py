"""What `check` writes: its report, JSON, SARIF, a page, annotations."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from undertorch.cli.exits import BadInput, say
from undertorch.cli.outputs import STDOUT, check_writable, refuse_inputs, same_file, write_out, writing
from undertorch.cli.terminal import terminal

if TYPE_CHECKING:
    from undertorch.records import Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Files as they were asked for; None: not wanted. `json` may be standard output."""

    json: Path | None
    sarif: Path | None
    page: Path | None
    github: bool

    def check(self, inputs: Sequence[Path]) -> None:
        """Raises BadInput where one of them could not be written, is an input, or two are the same."""
        wanted = [path for path in (self.json, self.sarif, self.page) if path is not None]
        for path in (self.sarif, self.page):
            if path == STDOUT:
                raise BadInput("- stands for standard output, which only --json writes to; give the name of a file.")
        if self.github and self.json == STDOUT:
            raise BadInput("--github prints to standard output, as --json - does; give --json the name of a file.")
        for number, path in enumerate(wanted):
            if any(same_file(path, other) for other in wanted[:number]):
                raise BadInput(f"{path} is asked for twice; give each file a name of its own.")
            refuse_inputs(path, inputs)
            check_writable(path)

    @contextmanager
    def of_programs(self) -> Iterator[None]:
        """Around a program that prints: where JSON goes to standard output, its own output goes to standard error."""
        with redirect_stdout(sys.stderr) if self.json == STDOUT else nullcontext():
            yield

    def write(self, checked: "Sequence[Checked]", stale: Sequence[str] = ()) -> None:
        """Everything that is wanted; files first, for the reader of the report may leave. Raises BadInput."""
        from undertorch.records.checked_files import to_json
        from undertorch.records.files import write_whole
        from undertorch.reports.findings_page import findings_page
        from undertorch.reports.github import annotations
        from undertorch.reports.sarif import to_sarif
        from undertorch.reports.terminal.findings import show_all

        for path, draw in ((self.json, to_json), (self.sarif, to_sarif), (self.page, findings_page)):
            if path is not None and path != STDOUT:
                with writing(path):
                    write_whole(path, draw(checked))
        if self.json == STDOUT:
            write_out(to_json(checked))
        else:
            show_all(checked, terminal())
        if self.github:
            for line in annotations(checked):
                print(line, flush=True)
        for sentence in stale:
            say(sentence)
