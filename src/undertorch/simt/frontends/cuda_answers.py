"""What `torch.cuda` answers inside `undertorch.machine()`: one GPU, which has done each launch when it returns."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from undertorch.gpus.device_properties import device_properties
from undertorch.records import Gpu


class Device(contextlib.AbstractContextManager[None]):
    """`torch.cuda.device` and `torch.cuda.device_of`: there is one device, and it is current."""

    def __init__(self, device: Any = None) -> None:
        self.idx = 0
        self.prev_idx = 0

    def __exit__(self, *error: object) -> None:
        return None


class Event:
    """`torch.cuda.Event`: the host's clock, for what is launched has run when the launch returns."""

    def __init__(self, *settings: Any, **named: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.cuda_event = 0
        self.at: float | None = None

    def record(self, stream: Any = None) -> None:
        """Now."""
        self.at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Done."""
        return True

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds of the host between two events: the machine's time, which says nothing of a GPU's."""
        if self.at is None or end.at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end.at - self.at) * 1000


class Stream(contextlib.AbstractContextManager["Stream"]):
    """`torch.cuda.Stream`: everything runs in the order it is called, whatever its stream."""

    def __init__(self, device: Any = None, priority: int = 0, **named: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.device_index = 0
        self.cuda_stream = 0
        self.stream_id = 0
        self.priority = priority

    def __exit__(self, *error: object) -> None:
        return None

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event at this moment."""
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        """Done."""
        return True

    def is_capturing(self) -> bool:
        """There are no CUDA graphs here."""
        return False

    def synchronize(self) -> None:
        """Nothing to wait for."""


class Nvtx:
    """The calls that torch.cuda.nvtx makes; nobody listens to their ranges."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *arguments: 0


def answers(gpu: Gpu, capability: tuple[int, int]) -> dict[str, Any]:
    """The functions of `torch.cuda` that ask a device, by name. `capability`: of the code that the machine runs."""
    stream = Stream()
    found = device_properties(gpu, capability)
    return {
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "is_initialized": lambda: True,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device": Device,
        "device_of": Device,
        "get_device_name": lambda device=None: gpu.full_name,
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": lambda device=None: found,
        "is_bf16_supported": lambda including_emulation=True: including_emulation or capability >= (8, 0),
        "is_tf32_supported": lambda: capability >= (8, 0),
        "get_arch_list": lambda: [f"sm_{capability[0]}{capability[1]}"],
        "synchronize": lambda device=None: None,
        "Event": Event,
        "Stream": Stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "set_stream": lambda stream: None,
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda device, peer_device: False,
        **_memory(gpu),
        **_random(),
    }


def accelerator_answers(cuda: dict[str, Any]) -> dict[str, Any]:
    """The functions of `torch.accelerator` that ask the driver, by name, from what `torch.cuda` answers.

    torch built for CUDA asks them in each step of Adam, and would look for a driver; a DataLoader asks whether to
    pin. Each is a function of its own: Dynamo knows functions by their identity, and refuses one that has two names.
    """
    return {
        "current_device_index": lambda: 0,
        "set_device_index": lambda device: None,
        "device_index": Device,
        "current_stream": lambda device=None: cuda["current_stream"](),
        "set_stream": lambda stream: None,
        "synchronize": lambda device=None: None,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "get_memory_info": lambda device=None: cuda["mem_get_info"](),
        "empty_cache": lambda: None,
        **_unused("reset_peak_memory_stats", "reset_accumulated_memory_stats", answer=None),
        **_unused("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", answer=0),
    }


def _unused(*names: str, answer: int | None) -> dict[str, Any]:
    return {name: lambda device=None: answer for name in names}


def _memory(gpu: Gpu) -> dict[str, Any]:
    """Of a GPU whose memory nobody uses: tensors lie in the CPU's."""
    free = int(gpu.memory_bytes)
    return {
        "mem_get_info": lambda device=None: (free, free),
        "memory_summary": lambda device=None, abbreviated=False: (
            "undertorch.machine(): tensors lie in the CPU's memory."
        ),
        **_unused("reset_peak_memory_stats", "reset_accumulated_memory_stats", answer=None),
        "ipc_collect": lambda: None,
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
    }


def _random() -> dict[str, Any]:
    """Numbers for the GPU are drawn by the CPU's generator: its state stands for the GPU's."""
    generator = torch.default_generator

    def seeded(seed: int) -> None:
        generator.manual_seed(int(seed))

    return {
        "manual_seed": seeded,
        "manual_seed_all": seeded,
        "seed": generator.seed,
        "seed_all": generator.seed,
        "initial_seed": generator.initial_seed,
        "get_rng_state": lambda device="cuda": generator.get_state(),
        "get_rng_state_all": lambda: [generator.get_state()],
        "set_rng_state": lambda state, device="cuda": generator.set_state(state),
        "set_rng_state_all": lambda states: generator.set_state(states[0]),
    }
