"""`pytest --undertorch`: the Triton and CUDA kernels that tests launch are checked, and a finding fails its test.

Tests need no change: inside, `device="cuda"` is served in the CPU's memory. Without the option nothing is imported.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from undertorch.checks.suppressions import Suppression
    from undertorch.records import Checked, Finding, Gpu, Severity

WORKER = "undertorch"
"""Under this name a worker of pytest-xdist hands over what it found."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Names the options."""
    group = parser.getgroup("undertorch", "GPU kernels checked with no GPU")
    group.addoption("--undertorch", action="store_true", help="Run and check Triton and CUDA kernels in software.")
    group.addoption("--undertorch-severity", default="error", choices=("error", "warning", "note", "none"),
                    help="From which severity on a finding fails its test; none: never.")  # fmt: skip
    group.addoption("--undertorch-gpu", default="A100-80GB", metavar="NAME", help="The GPU whose limits hold.")
    group.addoption("--undertorch-seeds", default=1, type=int, metavar="N", help="Orders of warps to try.")
    group.addoption("--undertorch-every-launch", action="store_true",
                    help="Look at each launch of a test, not at some of many equal ones.")  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Puts the GPU in place before any conftest.py asks for it. Raises UsageError."""
    asked = early_config.known_args_namespace
    if not asked.undertorch:
        return
    from undertorch import gpus
    from undertorch.records import Severity

    if asked.undertorch_seeds < 1:
        raise pytest.UsageError(f"--undertorch-seeds {asked.undertorch_seeds}: it is a number from 1 on.")
    try:
        sheet = gpus.find(asked.undertorch_gpu)
    except (gpus.UnknownGpu, gpus.BadSheet) as error:
        raise pytest.UsageError(f"--undertorch-gpu: {error}") from error
    severity = None if asked.undertorch_severity == "none" else Severity(asked.undertorch_severity)
    plugin = Checking(gpu=sheet, every=asked.undertorch_every_launch, seeds=asked.undertorch_seeds, fail_on=severity)
    early_config.pluginmanager.register(plugin, "undertorch-checking")
    inside = ExitStack()
    inside.enter_context(plugin.watching())
    early_config.add_cleanup(inside.close)


class Checking:
    """Watches over one run of pytest."""

    def __init__(self, *, gpu: "Gpu", every: bool, seeds: int, fail_on: "Severity | None", tells: bool = True) -> None:
        """`fail_on`: from which severity on a finding fails its test, None: never. `tells`: whether a summary ends."""
        from undertorch.checks.launches import Launches

        self._gpu = gpu
        self._fail_on = fail_on
        self._tells = tells
        self._launches = Launches(every=every, seeds=seeds)
        self._found: list[Checked] = []
        """Of tests that are over, here and in workers."""
        self._said: set[tuple[str, str]] = set()
        """Kernels and fingerprints that the test which runs was told of."""
        self._accepted: tuple[Suppression, ...] = ()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, kernels run on the machine."""
        from undertorch.checks.programs import watching

        with watching(self._gpu, self._launches):
            yield

    def checked(self) -> "tuple[Checked, ...]":
        """Each kernel once, with all that was found in all tests."""
        from undertorch.checks.launches import joined

        self._keep()
        return joined(self._found)

    # -- what pytest calls

    def pytest_configure(self, config: pytest.Config) -> None:
        """Reads what the project accepts. Raises UsageError."""
        from undertorch.checks.suppressions import BadSuppression, suppressions

        try:
            self._accepted = suppressions(config.rootpath)
        except BadSuppression as error:
            raise pytest.UsageError(str(error)) from error

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """A test begins: of equal launches the first of each test is looked at."""
        self._keep()
        self._said.clear()
        return (yield from self._phase(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """The test itself."""
        return (yield from self._phase(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """What it leaves."""
        return (yield from self._phase(item, "teardown"))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker hands over what it found."""
        import msgspec

        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[WORKER] = msgspec.json.encode(self.checked()).decode()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Takes what a worker found."""
        import msgspec

        from undertorch.records import Checked

        said = getattr(node, "workeroutput", {}).get(WORKER)
        if said is not None:
            self._found += msgspec.json.decode(said, type=tuple[Checked, ...])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What was checked, what is less grave than what fails, and what pyproject.toml accepts in vain."""
        from undertorch.checks.suppressions import suppressed
        from undertorch.reports.terminal.findings import skipped, summary

        if not self._tells:
            return
        checked, stale = suppressed(self.checked(), self._accepted)
        terminalreporter.section("undertorch")
        if not checked:
            terminalreporter.line("No Triton or CUDA kernel was launched: nothing was checked.")
            return
        targets = ", ".join(sorted({one.target for one in checked}))
        terminalreporter.line(f"{summary(checked)} ({targets} code as on {self._gpu.name})")
        for sentence in skipped(checked):
            terminalreporter.line(sentence)
        graver = [] if self._fail_on is None else [f for one in checked for f in one.at_least(self._fail_on)]
        for one in checked:
            for finding in one.findings:
                if finding not in graver:
                    place = f"{finding.place.file}:{finding.place.line}"
                    terminalreporter.line(f"{place}: {finding.severity}: {finding.kind} in {one.kernel}")
            if one.missed is not None:
                terminalreporter.line(f"{one.kernel}: launches that could not be looked at: {one.missed}")
        for sentence in stale:
            terminalreporter.line(sentence)

    # -- its own

    def _keep(self) -> None:
        """Puts what the test before found, or loading the tests, to what was found."""
        self._found += [self._relative(one) for one in self._launches.checked()]
        self._launches.begin()

    def _relative(self, checked: "Checked") -> "Checked":
        from undertorch.checks.relative import relative

        return relative(checked, Path.cwd())

    def _phase(self, item: pytest.Item, when: str) -> Generator[None, Any, Any]:
        try:
            result = yield
        except BaseException as error:
            _end_at_the_launch(error)
            said = self._news()
            if said:
                item.add_report_section(when, "undertorch", said)
            raise
        said = self._news()
        if said:
            pytest.fail(said, pytrace=False)
        return result

    def _news(self) -> str:
        """What the test was not told yet, and is grave enough, as text."""
        from undertorch.checks.suppressions import suppressed

        if self._fail_on is None or not self._launches.kernels:
            return ""
        checked, _ = suppressed([self._relative(one) for one in self._launches.checked()], self._accepted)
        return _drawn([only for one in checked if (only := self._grave(one)) is not None])

    def _grave(self, checked: "Checked") -> "Checked | None":
        from dataclasses import replace

        assert self._fail_on is not None
        kept: list[Finding] = []
        for finding in checked.at_least(self._fail_on):
            key = (checked.kernel, finding.fingerprint)
            if key not in self._said:
                self._said.add(key)
                kept.append(finding)
        return replace(checked, findings=tuple(kept), suppressed=()) if kept else None


def _end_at_the_launch(error: BaseException) -> None:
    """Cuts the traceback of a kernel's fault behind the last line of the project's: what ran it is not at fault."""
    import sysconfig

    from undertorch.simt.errors import Deadlock, Fault

    if not isinstance(error, Fault | Deadlock):
        return
    others = [Path(__file__).parent, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))]
    trace, last = error.__traceback__, None
    while trace is not None:
        if not any(Path(trace.tb_frame.f_code.co_filename).is_relative_to(place) for place in others):
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None


def _drawn(checked: "Sequence[Checked]") -> str:
    """As `undertorch check` shows it."""
    import io

    from undertorch.cli.terminal import terminal
    from undertorch.reports.terminal.findings import show_checked

    if not checked:
        return ""
    console = terminal()
    console.file = io.StringIO()
    for one in checked:
        show_checked(one, console)
    first, *others = [(one, finding) for one in checked for finding in one.findings]
    more = f", and {len(others)} more" if others else ""
    said = f"{first[1].kind} in {first[0].kernel} at {first[1].place.file}:{first[1].place.line}{more}"
    return f"{said}\n\n{console.file.getvalue().rstrip()}"
