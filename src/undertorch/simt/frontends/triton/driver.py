"""The machine in the place of Triton's driver: `kernel[grid](…)` compiles for its GPU and runs there."""

from collections.abc import Callable
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver as active
from triton.runtime.autotuner import Autotuner

from undertorch.compilers.triton_gpu import GpuDriver
from undertorch.simt.errors import BadLaunch, SimtError
from undertorch.simt.frontends.kernels import Setting, capability
from undertorch.simt.frontends.triton.compiled import Launcher

NUMBERS: dict[tuple[str, tuple[int, int]], int] = {}
"""Device numbers by GPU and capability. Triton keeps compiled kernels and limits by device number for as long as the
process lives; real devices count from 0, and none of theirs may be mistaken for the machine's."""
FIRST_NUMBER = 1000


class MachineDriver(GpuDriver):
    """Runs what Triton compiles on the machine."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.gpu, capability(setting.gpu))
        self.setting = setting
        self.launcher_cls = Launcher
        self.caches: dict[int, tuple[Any, dict[Any, Any]]] = {}
        """Of each autotuner, by its id: itself, and the configurations that it took here."""
        self.trying = False
        """Whether an autotuner only asks whether a configuration fits."""
        self.found = False
        """Whether the autotuner that runs has found one that does."""

    def get_current_device(self) -> int:
        """A number that no other GPU has in this process."""
        key = (self.gpu.name, capability(self.gpu))
        return NUMBERS.setdefault(key, FIRST_NUMBER + len(NUMBERS))

    def get_current_target(self) -> GPUTarget:
        """The GPU to compile for. Raises BadLaunch for one that does not run PTX."""
        if self.gpu.warp_size != 32:
            raise BadLaunch(f"{self.gpu.name} has warps of {self.gpu.warp_size} lanes; the machine runs PTX, of 32.")
        return super().get_current_target()

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """What runs here once has run often enough: its time says nothing of a GPU's."""
        return once


def once(kernel_call: Callable[[], object], quantiles: Any = None, **settings: Any) -> list[float]:
    """A time for a configuration that ran: any number does."""
    kernel_call()
    return [1.0] * 3


def put_in_place(setting: Setting) -> Callable[[], None]:
    """Makes the machine Triton's active driver. Answers what undoes it.

    Autotuners take the first configuration that fits; with `all_configs` each is run, and the first one's results stay.
    """
    driver = MachineDriver(setting)
    before, run, bench = active._active, Autotuner.run, Autotuner._bench

    def benched(tuner: Any, *arguments: Any, config: Any, **named: Any) -> list[float]:
        if driver.found and not setting.all_configs:
            return [float("inf")] * 3
        driver.trying = not setting.all_configs
        try:
            times: list[float] = bench(tuner, *arguments, config=config, **named)
        except SimtError as error:
            error.add_note(f"This was the configuration {config}.")
            raise
        finally:
            driver.trying = False
        fits = times[0] != float("inf")
        if fits and driver.found:
            times = [2.0] * 3  # so that the first one is taken
        driver.found = driver.found or fits
        return times

    def followed(tuner: Any, *arguments: Any, **named: Any) -> Any:
        """What was never measured must not be found by a run that measures, in memory or on disk, nor the reverse."""
        held = {name: tuner.__dict__.get(name) for name in ("cache", "cache_results", "do_bench")}
        driver.found = False
        _, cache = driver.caches.setdefault(id(tuner), (tuner, {}))
        tuner.__dict__.update(cache=cache, cache_results=False, do_bench=once)
        try:
            return run(tuner, *arguments, **named)
        finally:
            tuner.__dict__.update(held)
            if held["do_bench"] is None:
                del tuner.__dict__["do_bench"]

    active.set_active(driver)
    Autotuner.run, Autotuner._bench = followed, benched

    def undo() -> None:
        active._active, Autotuner.run, Autotuner._bench = before, run, bench

    return undo
