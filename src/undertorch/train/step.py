"""One training step: gradients of its microbatches, their norm, the update; on a GPU as CUDA graphs.

The step stops between gradients and update, where the loss and the norm are read: what is no number must not reach the
weights. On a GPU that wait costs about 0.1 % of a step, and a step is three graphs: a microbatch, its end, the update.
Under DDP they hold its sums over the processes too. FSDP2 is not captured but for its update (update_graphs.py).

What is summed in which precision: gradients are of the dtype that the model computes in, bfloat16 on a GPU. Those of
several microbatches add up in float32. Over processes DDP sums them as they are; of several microbatches their float32
sums, once, when all are there; FSDP2 sums float32.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from undertorch import ops
from undertorch.train.config import Settings
from undertorch.train.distributed import Group, gradients, spares
from undertorch.train.loader import Rows
from undertorch.train.update import Update
from undertorch.train.update_graphs import UpdateGraphs

EAGER_STEPS, EAGER_STEPS_OF_DDP = 2, 11
"""Steps before the graphs are captured: in them kernels are compiled, chosen and loaded. DDP wants 11 ("CUDA Graphs" in
PyTorch's notes)."""

ATTENTION = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
"""In this order: on an H200, causal bfloat16, cuDNN's forward and backward take 60 % of the time of torch's flash."""


def attention_backends(device: torch.device) -> AbstractContextManager[object]:
    """Inside, torch's attention takes the fastest kernel that serves a call."""
    return sdpa_kernel(list(ATTENTION), set_priority=True) if device.type == "cuda" else nullcontext()


ALIGNED = 64
"""Elements that a sum begins at a multiple of: 256 bytes, as torch's allocator has it, and kernels that read 16."""


def own_stream(settings: Settings, one: Group) -> torch.cuda.Stream | None:
    """That a step runs on where it is captured; None: it is not. FSDP2 and compiled DDP wait, and free memory, in ways
    that a graph does not hold.
    """
    if one.device.type != "cuda" or not torch.cuda.is_available() or not settings.graphs:
        return None
    held = not one.grouped or (settings.parallel == "ddp" and not settings.compiled)
    return torch.cuda.Stream() if held else None


def padded(p: Tensor) -> int:
    """Elements of a sum, and of the gap after it."""
    return -(-p.numel() // ALIGNED) * ALIGNED


class Step:
    """`gradients` of microbatches, then `update`. As a context it lets its graphs go at the end, which must come before
    that of the process group: graphs hold on to NCCL's communicator, whose end waits for them.
    """

    def __init__(
        self, model: nn.Module, update: Update, settings: Settings, one: Group, stream: torch.cuda.Stream | None = None
    ) -> None:
        """`model`: as it is called, wrapped for several processes or compiled. `update` has its parameters. `stream`:
        of `own_stream`, for a step that is to be captured.
        """
        self.model, self.updating, self.settings, self.one, self.stream = model, update, settings, one, stream
        self.shared: nn.Module = getattr(model, "_orig_mod", model)
        """Without what torch.compile put around it."""
        self.device = device = one.device
        shape = (settings.batch, settings.shape.context)
        self.tokens = torch.zeros(shape, dtype=torch.int64, device=device)
        self.targets = torch.zeros(shape, dtype=torch.int64, device=device)
        on_gpu = device.type == "cuda" and torch.cuda.is_available()
        self.staged = [
            torch.empty((2, *shape), dtype=torch.int64, pin_memory=on_gpu) for _ in range(settings.accumulate + 1)
        ]
        """Where rows wait for the GPU: a copy from other memory, or from rows with gaps, holds the host up. One more
        than a step has: the next step's first are loaded while it may still read its own.
        """
        self.stages, self.loaded = 0, None
        self.said = torch.zeros(3, pin_memory=on_gpu)
        """`found` for the host, when `told` has come."""
        self.told = torch.cuda.Event() if on_gpu else None
        self.found = torch.zeros(3, device=device)
        self.loss, self.asked, self.norm = self.found.unbind()
        """The first two of this process, then the mean over all."""
        self.named = {name: p for group in update.groups for name, p in zip(group.names, group.parameters, strict=True)}
        fsdp = one.grouped and settings.parallel == "fsdp"
        half = any(p.dtype != torch.float32 for p in self.named.values())
        self.sum_of_all = self.sums = None
        if half and settings.accumulate > 1:
            self.sum_of_all = torch.zeros(sum(map(padded, self.named.values())), device=device)
            places = self.sum_of_all.split([padded(p) for p in self.named.values()])
            self.sums = [place[: p.numel()].view(p.shape) for place, p in zip(places, self.named.values(), strict=True)]
        self.stays = settings.accumulate > 1 and not (fsdp and spares(settings, one))
        """Whether gradients are summed over the processes when those of all microbatches are there."""
        self.graphs: dict[str, torch.cuda.CUDAGraph] | None = None
        self.replays = UpdateGraphs(update) if on_gpu and fsdp and settings.graphs else None
        self.done = 0
        self.eager_steps = EAGER_STEPS_OF_DDP if one.grouped else EAGER_STEPS

    sum_of_all: Tensor | None
    sums: list[Tensor] | None
    """Sums of the microbatches' gradients where these are of fewer bits, float32, and all in one; float32 ones add up
    where they are.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Lets the graphs go. What still runs of them runs to its end (CUDA driver API, cuGraphExecDestroy); it is
        waited for only where nothing went wrong: a sum over processes of which one is gone has no end.
        """
        if kind is None and self.told is not None:
            torch.cuda.synchronize(self.device)
        for graph in (self.graphs or {}).values():
            graph.reset()
        self.graphs = None
        if self.replays is not None:
            self.replays.let_go()

    def gradients(self, microbatches: Sequence[Rows]) -> tuple[float, float]:
        """The mean loss of the microbatches and the norm of its gradient; the weights are as before."""
        self.compute(microbatches)
        return self.numbers()[:2]

    def numbers(self) -> tuple[float, float, float]:
        """Of what was computed last: loss, norm, and the share of processes that were asked to stop when it began.
        Waits for the GPU.
        """
        if self.told is not None:
            self.told.synchronize()
        loss, asked, norm = self.said.tolist()
        return loss, norm, asked

    loaded: Rows | None
    """Whose tokens the GPU has, or is about to have."""

    def load(self, rows: Rows) -> None:
        """Begins to bring the next step's first rows to the GPU, which still computes this one."""
        with self._stream():
            self._load(rows)

    def compute(self, microbatches: Sequence[Rows], asked: bool = False) -> None:
        """Begins to compute gradients, as many microbatches as the settings say. `asked`: to stop after this step."""
        with self._stream():
            self._compute(microbatches, asked)

    def _compute(self, microbatches: Sequence[Rows], asked: bool) -> None:
        if self.graphs is None and self.stream is not None and self.done >= self.eager_steps:
            self._capture()
        self.loss.zero_()
        self.asked.fill_(float(asked))
        for number, rows in enumerate(microbatches, 1):
            if rows is not self.loaded:
                self._load(rows)
            with self._gradients_where(number):
                self._run("microbatch", self._microbatch)
            self.loaded = None
        self._run("end", self._end)
        self.said.copy_(self.found, non_blocking=True)
        if self.told is not None:
            self.told.record()
        if self.replays is not None:  # while the GPU computes
            self.replays.look(self._own_gradients())

    def update(self, rate: float) -> None:
        """Changes the weights, at this learning rate."""
        with self._stream():
            self.updating.rate.fill_(rate)
            self._run("update", self._update)
            if self.graphs is None and (self.sums is None or self.stream is None):
                for p in self.named.values():
                    p.grad = None
        self.done += 1

    def _gradients_where(self, number: int) -> AbstractContextManager[object]:
        """Of microbatch `number`, counted from 1. Sums of fewer bits than float32 never go over the processes."""
        if not self.one.grouped or not self.stays:
            return nullcontext()
        return gradients(self.shared, self.sums is not None or number < self.settings.accumulate)

    def _load(self, rows: Rows) -> None:
        given, staged = torch.from_numpy(rows.tokens), self.staged[self.stages % len(self.staged)]
        self.stages, self.loaded = self.stages + 1, rows
        staged[0].copy_(given[:, :-1])
        staged[1].copy_(given[:, 1:])
        self.tokens.copy_(staged[0], non_blocking=True)
        self.targets.copy_(staged[1], non_blocking=True)

    def _microbatch(self) -> None:
        if self.sums is not None:
            for p in self.named.values():
                p.grad = None
        with attention_backends(self.device):
            loss = self.model(self.tokens, self.targets)
        # Where the sums go over the processes here and not in DDP, which divides them, the loss is divided instead.
        parts = self.settings.accumulate * (1 if self.sums is None else self.one.world)
        (loss if parts == 1 else loss * (1 / parts)).backward()
        self.loss.add_(loss.detach(), alpha=1 / self.settings.accumulate)
        if self.sums is not None:
            torch._foreach_add_(self.sums, list(self._own_gradients().values()))

    def _end(self) -> None:
        if self.one.grouped:
            if self.sum_of_all is not None:
                dist.all_reduce(self.sum_of_all)
            dist.all_reduce(self.found[:2])
            self.found[:2].div_(self.one.world)
        self.norm.copy_(ops.grad_norm(self._gradients().values()))

    def _update(self) -> None:
        if self.replays is not None:
            self.replays(self.norm)
            return
        self.updating.step(self._gradients(), self.norm)
        if self.sum_of_all is not None:
            self.sum_of_all.zero_()

    def _gradients(self) -> dict[str, Tensor]:
        if self.sums is not None:
            return dict(zip(self.named, self.sums, strict=True))
        return self._own_gradients()

    def _own_gradients(self) -> dict[str, Tensor]:
        return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in self.named.items()}

    @contextmanager
    def _stream(self) -> Iterator[None]:
        """A step runs on a stream of its own, as capturing asks for, after and before what else the program does."""
        if self.stream is None:
            yield
            return
        outside = torch.cuda.current_stream()
        self.stream.wait_stream(outside)
        with torch.cuda.stream(self.stream):
            yield
        outside.wait_stream(self.stream)

    def _run(self, name: str, body: Callable[[], None]) -> None:
        if self.graphs is None:
            body()
        else:
            self.graphs[name].replay()

    def _capture(self) -> None:
        """The three graphs, over one pool of memory: gradients lie where the first writes and the others read them."""
        for p in self.named.values():
            p.grad = None
        pool, graphs = torch.cuda.graph_pool_handle(), {}
        for name, body in (("microbatch", self._microbatch), ("end", self._end), ("update", self._update)):
            graphs[name] = torch.cuda.CUDAGraph()
            # Other threads (NCCL's watchdog) go on calling CUDA meanwhile.
            with (
                self._gradients_where(self.settings.accumulate),
                torch.cuda.graph(graphs[name], pool=pool, stream=self.stream, capture_error_mode="thread_local"),
            ):
                body()
        self.graphs = graphs
