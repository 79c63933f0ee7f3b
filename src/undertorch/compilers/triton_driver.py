"""A driver for Triton without the GPU: it compiles as for that GPU, runs nothing, and tells of each launch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from triton.runtime import driver as active
from triton.runtime.autotuner import Autotuner

from undertorch.compilers.triton_gpu import GpuDriver
from undertorch.records import Dim3, Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonLaunch:
    """One launch of a compiled Triton kernel."""

    name: str
    file: str
    """Where its source stands."""
    line: int
    grid: Dim3
    block: Dim3
    registers: int | None
    """Per thread; None where the compiled kernel does not tell."""
    shared_bytes: int
    """Per block."""
    arguments: Mapping[str, Any]
    """By parameter name, constants too."""


class Driver(GpuDriver):
    """Stands for one Gpu. `put_in_place` makes it the active driver."""

    def __init__(self, gpu: Gpu, launched: Callable[[TritonLaunch], None], chosen: Callable[[str, int], None]) -> None:
        """`chosen` is told when the first of a kernel's configurations that fits was taken, and of how many."""
        super().__init__(gpu, gpu.compute_capability or (9, 0))
        self.launched = launched
        self.chosen = chosen
        self.choosing = False
        """Whether an autotuner tries a configuration: such launches are not told of."""
        self.found = False
        """Whether the autotuner that runs has found a configuration that fits."""

    def launcher_cls(self, source: Any, metadata: Any) -> "_Launcher":
        """What runs a compiled kernel."""
        return _Launcher(source, metadata, self)

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Nothing runs, so nothing is fast or slow."""
        return _compiled


class _Launcher:
    """Stands for the launch of one compiled kernel."""

    def __init__(self, source: Any, metadata: Any, driver: Driver) -> None:
        self._function = source.fn
        self._metadata = metadata
        self._driver = driver

    def __call__(self, x: int, y: int, z: int, stream: int, function: int, *settings_and_arguments: Any) -> None:
        if self._driver.choosing:
            return
        code = self._function.fn.__code__
        # After the packed metadata, those of the launch, and the hooks before and after it.
        arguments = settings_and_arguments[4:]
        self._driver.launched(
            TritonLaunch(
                name=self._function.fn.__name__,
                file=code.co_filename,
                line=code.co_firstlineno,
                grid=(int(x), int(y), int(z)),
                block=(self._driver.get_current_target().warp_size * self._metadata.num_warps, 1, 1),
                registers=self._driver.utils.registers[function],
                shared_bytes=self._metadata.shared,
                arguments=dict(zip(self._function.arg_names, arguments, strict=False)),
            )
        )


def put_in_place(driver: Driver) -> Callable[[], None]:
    """Makes it Triton's active driver, and lets autotuners take the first configuration that fits the GPU.

    Answers what undoes it.
    """
    before, run, bench = active._active, Autotuner.run, Autotuner._bench

    def benched(tuner: Any, *arguments: Any, config: Any, **named: Any) -> list[float]:
        """The first configuration that compiles and fits is said to be the fastest; the others are not compiled."""
        if driver.found:
            return [float("inf")] * 3
        driver.choosing = True
        try:
            times: list[float] = bench(tuner, *arguments, config=config, **named)
        finally:
            driver.choosing = False
        driver.found = times[0] != float("inf")
        return times

    def followed(tuner: Any, *arguments: Any, **named: Any) -> Any:
        driver.found = False
        tuner.cache_results = False  # what was never measured must not be found on disk by a run that measures
        tuner.__dict__["do_bench"] = _compiled
        known = len(tuner.cache)
        result = run(tuner, *arguments, **named)
        if len(tuner.cache) > known:
            driver.chosen(tuner.base_fn.__name__, len(tuner.configs))
        return result

    active.set_active(driver)
    Autotuner.run, Autotuner._bench = followed, benched

    def undo() -> None:
        active._active, Autotuner.run, Autotuner._bench = before, run, bench

    return undo


def _compiled(kernel_call: Callable[[], object], quantiles: Any = None, **settings: Any) -> list[float]:
    """A time for a configuration that compiles: any number does. What does not fit the GPU raises."""
    kernel_call()
    return [1.0] * 3
