"""What `torch.cuda` and its neighbours answer: the GPU that was named, present, idle and obedient."""

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from undertorch.gpus.device_properties import device_properties
from undertorch.records import Gpu
from undertorch.steps.record.fakes import only_gpu
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import put
from undertorch.steps.record.storages import POOLS, Gauge, Storages

CUDA_VERSION = "13.0"
"""What torch's default wheels are built for; a CPU build answers this."""
CUDNN_VERSION = 91501
"""As guard.cpp answers to torch itself."""
CONTEXT_BYTES = 512 << 20
"""What mem_get_info leaves out for the driver's context; about that much on an H200 with CUDA 13."""


class Device(contextlib.AbstractContextManager[None]):
    """`torch.cuda.device` and `torch.cuda.device_of`: there is one device, and it is current."""

    def __init__(self, device: Any = None) -> None:
        _only_one(device)
        self.idx = 0
        self.prev_idx = 0

    def __exit__(self, *error: object) -> None:
        return None


class Event:
    """`torch.cuda.Event`: recorded at once, since nothing runs."""

    def __init__(self, notes: Notes | None = None, *settings: Any, **named: Any) -> None:
        self._notes = notes
        self.cuda_event = 0
        self.device = torch.device("cuda", 0)

    def record(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Done."""
        return True

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds between two events: 1.0, since no time is known while the script runs."""
        if self._notes is not None:
            self._notes.note("asked for the time between two CUDA events; no GPU runs, and 1.0 ms was answered.")
        return 1.0


class Stream:
    """`torch.cuda.Stream`: a name for an order in which nothing runs. Ops are recorded in the order they are called."""

    def __init__(self, device: Any = None, priority: int = 0, **named: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.device_index = 0
        self.device_type = 1
        self.cuda_stream = 0
        self.stream_id = 0
        self.priority = priority

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that is done."""
        return event or Event()

    def query(self) -> bool:
        """Done."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        return None


class Graph:
    """`torch.cuda.CUDAGraph` and `torch.cuda.graph`: nothing can be captured."""

    def __init__(self, *settings: Any, **named: Any) -> None:
        raise NotImplementedError(
            "A CUDA graph holds what a GPU ran, and there is none: run the step without torch.cuda.graph to see it."
        )


Waited = Callable[[str], None]
"""Is told of each call that waits for the GPU, by CUDA's name for it."""


def _classes(notes: Notes, waited: Waited) -> tuple[type[Event], type[Stream]]:
    """Event and Stream as the script gets them: with notes, and such that waiting for them is told."""

    class ToldEvent(Event):
        def __init__(self, *settings: Any, **named: Any) -> None:
            super().__init__(notes, *settings, **named)

        def synchronize(self) -> None:
            waited("cudaEventSynchronize")

    class ToldStream(Stream):
        def record_event(self, event: Event | None = None) -> Event:
            return event or ToldEvent()

        def synchronize(self) -> None:
            waited("cudaStreamSynchronize")

    ToldEvent.__name__, ToldStream.__name__ = "Event", "Stream"
    return ToldEvent, ToldStream


def _synchronize(waited: Waited) -> Callable[..., None]:
    def synchronize(device: Any = None) -> None:
        _only_one(device)
        waited("cudaDeviceSynchronize")

    return synchronize


def answers(gpu: Gpu, storages: Storages, notes: Notes, waited: Waited) -> dict[str, Any]:
    """The functions of `torch.cuda` that ask a device, by name, and what they answer for a GPU."""
    event_class, stream_class = _classes(notes, waited)
    stream = stream_class()
    return {
        **_device(gpu),
        **_random(),
        **_memory(gpu, storages),
        "Stream": stream_class,
        "Event": event_class,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "set_stream": lambda stream: None,
        "stream": lambda stream: contextlib.nullcontext(),
        "StreamContext": Device,
        "synchronize": _synchronize(waited),
        "is_current_stream_capturing": lambda: False,
        "set_sync_debug_mode": lambda mode: None,
        "get_sync_debug_mode": lambda: 0,
        "ipc_collect": lambda: None,
        "_sleep": lambda cycles: None,
        "CUDAGraph": Graph,
        "graph": Graph,
    }


def install(gpu: Gpu, storages: Storages, notes: Notes, waited: Waited) -> None:
    """Puts the answers in the place of torch's own functions, wherever torch keeps them."""
    homes = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs)
    for name, answer in answers(gpu, storages, notes, waited).items():
        for home in homes:
            if home is torch.cuda or hasattr(home, name):
                put(home, name, answer)
    for name, answer in _memory(gpu, storages).items():
        if hasattr(torch.accelerator, name):
            put(torch.accelerator, name, answer)
    put(torch.accelerator, "synchronize", _synchronize(waited))
    if hasattr(torch.accelerator, "empty_host_cache"):  # it asks for the pinned memory's allocator, which is no cache
        put(torch.accelerator, "empty_host_cache", lambda: None)
    put(torch.cuda.nvtx, "_nvtx", _Nvtx())
    put(torch.cuda, "cudart", _Runtime)
    for home in (torch.cuda, torch.cuda.profiler):
        put(home, "check_error", lambda status: None)
    put(torch.cuda.profiler, "cudart", _Runtime)
    put(torch.backends.cudnn, "version", lambda: CUDNN_VERSION)
    put(torch.backends.cudnn, "is_available", lambda: True)
    # Asked before the weights of recurrent layers are laid into one buffer, which changes no op of a step.
    put(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    put(torch.backends.cuda, "is_built", lambda: True)
    if torch.version.cuda is None:
        put(torch.version, "cuda", CUDA_VERSION)


def _device(gpu: Gpu) -> dict[str, Any]:
    capability = gpu.compute_capability or (9, 0)
    properties = _properties(gpu, capability)
    return {
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "is_initialized": lambda: True,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _only_one,
        "device": Device,
        "device_of": Device,
        "get_device_name": _of_the_only_one(gpu.full_name),
        "get_device_capability": _of_the_only_one(capability),
        "get_device_properties": _of_the_only_one(properties),
        "can_device_access_peer": lambda device, peer: False,
        # bfloat16 arithmetic came with compute capability 8.0; before it torch emulates it and answers True all the
        # same.
        "is_bf16_supported": lambda including_emulation=True: including_emulation or capability >= (8, 0),
        "is_tf32_supported": lambda: capability >= (8, 0),
        "get_arch_list": lambda: [f"sm_{capability[0]}{capability[1]}"],
        "get_gencode_flags": lambda: "",
        "utilization": lambda device=None: 0,
        "memory_usage": lambda device=None: 0,
    }


def _of_the_only_one(answer: Any) -> Callable[..., Any]:
    """A function of a device that answers for the one there is."""

    def answered(device: Any = None) -> Any:
        _only_one(device)
        return answer

    return answered


def _only_one(device: Any = None) -> None:
    """Raises torch.AcceleratorError for what names a second GPU: a number, a text, a torch.device."""
    if isinstance(device, int):
        device = f"cuda:{max(device, 0)}"  # below 0: none is meant
    if isinstance(device, str | torch.device):
        only_gpu(torch.device(device))


def _properties(gpu: Gpu, capability: tuple[int, int]) -> SimpleNamespace:
    """The fields of cudaDeviceProp that torch shows."""
    found = device_properties(gpu, capability)
    found.uuid = "00000000-0000-0000-0000-000000000000"
    found.pci_bus_id = found.pci_device_id = found.pci_domain_id = 0
    return found


def _random() -> dict[str, Any]:
    generator = torch.Generator("cuda")
    return {
        "default_generators": (generator,),
        "manual_seed": lambda seed: generator.manual_seed(int(seed)),
        "manual_seed_all": lambda seed: generator.manual_seed(int(seed)),
        "seed": lambda: None,
        "seed_all": lambda: None,
        "initial_seed": generator.initial_seed,
        # 16 bytes: the seed and the offset of CUDA's Philox generator.
        "get_rng_state": lambda device="cuda": torch.zeros(16, dtype=torch.uint8),
        "get_rng_state_all": lambda: [torch.zeros(16, dtype=torch.uint8)],
        "set_rng_state": lambda state, device="cuda": None,
        "set_rng_state_all": lambda states: None,
    }


BYTES = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
BLOCKS = ("allocation", "active", "segment")
SPLIT = ("inactive_split", "inactive_split_bytes")
EVENTS = (
    *("max_split_size", "num_alloc_retries", "num_device_alloc", "num_device_free", "num_oom_rejections", "num_ooms"),
    "num_sync_all_streams",
)
"""The names of torch.cuda.memory_stats (its documentation), by what they count."""


def _figures(name: str, gauge: Gauge) -> dict[str, int]:
    return {
        f"{name}.current": gauge.now,
        f"{name}.peak": gauge.most,
        f"{name}.allocated": gauge.added,
        f"{name}.freed": gauge.taken,
    }


def _memory(gpu: Gpu, storages: Storages) -> dict[str, Any]:
    """What the caching allocator would say of the storages that are alive; reserved stands for allocated."""

    def allocated(device: Any = None) -> int:
        return storages.live_bytes

    def most(device: Any = None) -> int:
        return storages.most_bytes

    def forget(device: Any = None) -> None:
        storages.forget_most()

    def stats(device: Any = None) -> OrderedDict[str, Any]:
        # No block is split, so none is left over. In torch.cuda.memory_stats's order, which is that of the alphabet.
        nothing = Gauge()
        figures = dict.fromkeys(EVENTS, 0)
        figures |= _figures("oversize_allocations", nothing) | _figures("oversize_segments", nothing)
        for pool in POOLS:
            for kinds, gauge in ((BYTES, storages.bytes[pool]), (BLOCKS, storages.blocks[pool]), (SPLIT, nothing)):
                for kind in kinds:
                    figures |= _figures(f"{kind}.{pool}", gauge)
        return OrderedDict(sorted(figures.items()))

    def info(device: Any = None) -> tuple[int, int]:
        return max(gpu.memory_bytes - CONTEXT_BYTES - storages.live_bytes, 0), gpu.memory_bytes

    return {
        "memory_allocated": allocated,
        "memory_reserved": allocated,
        "memory_cached": allocated,
        "max_memory_allocated": most,
        "max_memory_reserved": most,
        "max_memory_cached": most,
        "reset_peak_memory_stats": forget,
        "reset_max_memory_allocated": forget,
        "reset_max_memory_cached": forget,
        "reset_accumulated_memory_stats": lambda device=None: storages.forget_totals(),
        "memory_stats": stats,
        "memory_summary": lambda device=None, abbreviated=False: (
            f"{storages.live_bytes} bytes alive, {storages.most_bytes} at most"
        ),
        "memory_snapshot": lambda *settings, **named: [],
        "mem_get_info": info,
        "get_memory_info": info,
        "device_memory_used": allocated,
        "empty_cache": lambda: None,
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "_record_memory_history": lambda *settings, **named: None,
        "_dump_snapshot": lambda *settings, **named: None,
        "_snapshot": lambda *settings, **named: {"segments": [], "device_traces": []},
    }


class _Runtime:
    """`torch.cuda.cudart()`: what scripts call of it switches a profiler on and off, of which there is none."""

    cudaError = SimpleNamespace(success=0)

    def __getattr__(self, name: str) -> Any:
        """A call that succeeds."""
        if not name.startswith("cuda"):
            raise AttributeError(name)
        return lambda *settings: self.cudaError.success


class _Nvtx:
    """The NVTX calls that torch.cuda.nvtx makes; nobody listens to their ranges."""

    def rangePushA(self, message: str) -> int:
        return 0

    def rangePop(self) -> int:
        return 0

    def rangeStartA(self, message: str) -> int:
        return 0

    def rangeEnd(self, number: int) -> None:
        return None

    def markA(self, message: str) -> None:
        return None
