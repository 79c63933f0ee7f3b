"""A kernel that Triton has compiled: its PTX, and its launch on the machine."""

import linecache
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from triton.runtime import _allocation
from triton.runtime import driver as active
from triton.runtime.cache import get_cache_manager

from undertorch.simt.errors import BadLaunch
from undertorch.simt.frontends.kernels import Setting
from undertorch.simt.frontends.torch_op import without_values
from undertorch.simt.frontends.triton.arguments import flattened
from undertorch.simt.frontends.triton.calls import with_calls
from undertorch.simt.frontends.triton.files import with_files_of
from undertorch.simt.frontends.triton.reach import reachable
from undertorch.simt.frontends.true_devices import true_devices
from undertorch.simt.launch import Memory
from undertorch.simt.program import parsed


class Sources(Mapping[str, str]):
    """Text of Python files, read when a message quotes one of their lines."""

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, file: str) -> str:
        return "".join(linecache.getlines(file))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def get(self, file: str, default: Any = "") -> Any:
        """The file's text; nothing where there is none."""
        return self[file] or default


class Launcher:
    """What Triton calls in the place of its own launcher, once a compiled kernel is to run."""

    def __init__(self, source: Any, metadata: Any) -> None:
        if metadata.num_ctas != 1:
            raise BadLaunch(f"{metadata.name} asks for num_ctas={metadata.num_ctas}; the machine has no clusters: 1.")
        self._source = source
        self._metadata = metadata
        self._memory = Memory()

    @cached_property
    def _ptx(self) -> str:
        """Triton keeps what it compiles in its cache, and leaves the PTX there beside the binary."""
        cached = get_cache_manager(self._metadata.hash).get_group(f"{self._source.name[:150]}.json") or {}
        path = next((path for name, path in cached.items() if name.endswith(".ptx")), None)
        if path is None:
            raise BadLaunch(
                f"Triton kept no PTX of {self._metadata.name}: unset TRITON_STORE_BINARY_ONLY, which the machine needs."
            )
        function = getattr(self._source, "fn", None)
        text = with_calls(Path(path).read_text())
        return text if function is None else with_files_of(function, text, self._metadata.name)

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: int, packed: Any, launch_metadata: Any, enter: Any,
        leave: Any, *arguments: Any,
    ) -> None:  # fmt: skip
        """Runs it to its end, between the hooks that are told of launches."""
        driver = active.active
        setting = getattr(driver, "setting", None)
        if not isinstance(setting, Setting):
            raise BadLaunch(
                f"{self._metadata.name} was compiled for undertorch's machine: run it inside "
                "`with undertorch.machine():`."
            )
        if driver.trying or without_values(arguments):
            return
        if enter is not None:
            enter(launch_metadata)
        if x * y * z:
            with true_devices():
                self._run((int(x), int(y), int(z)), stream, arguments, setting)
        if leave is not None:
            leave(launch_metadata)

    def _run(self, grid: tuple[int, int, int], stream: int, arguments: tuple[Any, ...], setting: Setting) -> None:
        metadata = self._metadata
        named = list(flattened(self._source.signature, arguments))
        given = [value for _, value in named]
        parameters = len(parsed(self._ptx)[0].functions[metadata.name].parameters)
        given += self._scratch(grid, stream)[: parameters - len(given)]
        result = setting.launched_by(
            self._ptx,
            metadata.name,
            grid,
            (setting.gpu.warp_size * metadata.num_warps, 1, 1),
            given,
            gpu=setting.gpu,
            dynamic_shared=metadata.shared,
            instrument=setting.instrument,
            seed=setting.seed,
            threads=setting.threads,
            patience=setting.patience,
            mma=setting.mma,
            memory=self._memory,
            reachable=reachable(given),
            cooperative=metadata.launch_cooperative_grid,
            sources=Sources(),
            names=[name for name, _ in named],
        )
        setting.launches.append(result)

    def _scratch(self, grid: tuple[int, int, int], stream: int) -> list[object]:
        """Memory beside the arguments, from the allocators that triton.set_allocator was given; None where unasked."""
        blocks, m = grid[0] * grid[1] * grid[2], self._metadata
        asked = (
            (m.global_scratch_size, m.global_scratch_align, _allocation._allocator),
            (m.profile_scratch_size, m.profile_scratch_align, _allocation._profile_allocator),
        )
        return [allocator.get()(blocks * size, align, stream) if size else None for size, align, allocator in asked]
