"""One training step: gradients of its microbatches, their norm, the update; on a GPU as CUDA graphs.

The step stops between gradients and update, where the loss and the norm are read: what is no number must not reach the
weights. On a GPU that wait costs about 0.1 % of a step, and a step is three graphs: a microbatch, its end, the update.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from undertorch import ops
from undertorch.train.config import Settings
from undertorch.train.loader import Rows
from undertorch.train.update import Update

EAGER_STEPS, EAGER_STEPS_OF_DDP = 2, 11
"""Steps before the graphs are captured: in them kernels are compiled, chosen and loaded. DDP wants 11 ("CUDA Graphs" in
PyTorch's notes)."""

ATTENTION = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
"""In this order: on an H200, causal bfloat16, cuDNN's forward and backward take 60 % of the time of torch's flash."""


def attention_backends(device: torch.device) -> AbstractContextManager[object]:
    """Inside, torch's attention takes the fastest kernel that serves a call."""
    return sdpa_kernel(list(ATTENTION), set_priority=True) if device.type == "cuda" else nullcontext()


class Step:
    """`gradients` of microbatches, then `update`."""

    def __init__(
        self,
        model: nn.Module,
        update: Update,
        settings: Settings,
        device: torch.device,
        captures: bool | None = None,
    ) -> None:
        """`model`: as it is called, wrapped for several processes or compiled. `update` has its parameters. `captures`:
        whether CUDA graphs are; None: on a GPU, where this process is alone.
        """
        self.model, self.updating, self.settings, self.device = model, update, settings, device
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
        self.said = torch.zeros(2, pin_memory=on_gpu)
        """Loss and norm, for the host, when `told` has come."""
        self.told = torch.cuda.Event() if on_gpu else None
        self.loss = torch.zeros((), device=device)
        self.norm = torch.zeros((), device=device)
        self.both = torch.zeros(2, device=device)
        self.named = {name: p for group in update.groups for name, p in zip(group.names, group.parameters, strict=True)}
        half = any(p.dtype != torch.float32 for p in self.named.values())
        self.sums = [torch.zeros_like(p, dtype=torch.float32) for p in self.named.values()] if half and (
            settings.accumulate > 1
        ) else None  # fmt: skip
        """Sums of the microbatches' gradients where these are of fewer bits; float32 ones add up where they are."""
        self.graphs: dict[str, torch.cuda.CUDAGraph] | None = None
        self.done = 0
        alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
        self.eager_steps = EAGER_STEPS if alone else EAGER_STEPS_OF_DDP
        self.captures = on_gpu and (alone if captures is None else captures)
        self.stream = torch.cuda.Stream() if self.captures else None

    def gradients(self, microbatches: Sequence[Rows]) -> tuple[float, float]:
        """The mean loss of the microbatches and the norm of its gradient; the weights are as before."""
        self.compute(microbatches)
        return self.numbers()

    def numbers(self) -> tuple[float, float]:
        """Loss and norm of what was computed last: waits for the GPU."""
        if self.told is not None:
            self.told.synchronize()
        loss, norm = self.said.tolist()
        return loss, norm

    loaded: Rows | None
    """Whose tokens the GPU has, or is about to have."""

    def load(self, rows: Rows) -> None:
        """Begins to bring the next step's first rows to the GPU, which still computes this one."""
        with self._stream():
            self._load(rows)

    def compute(self, microbatches: Sequence[Rows]) -> None:
        """Begins to compute gradients, as many microbatches as the settings say."""
        with self._stream():
            self._compute(microbatches)

    def _compute(self, microbatches: Sequence[Rows]) -> None:
        if self.graphs is None and self.captures and self.done >= self.eager_steps:
            self._capture()
        self.loss.zero_()
        for rows in microbatches:
            if rows is not self.loaded:
                self._load(rows)
            self._run("microbatch", self._microbatch)
            self.loaded = None
        self._run("end", self._end)
        self.said.copy_(self.both, non_blocking=True)
        if self.told is not None:
            self.told.record()

    def update(self, rate: float) -> None:
        """Changes the weights, at this learning rate."""
        with self._stream():
            self.updating.rate.fill_(rate)
            self._run("update", self._update)
            if self.graphs is None and (self.sums is None or not self.captures):
                for p in self.named.values():
                    p.grad = None
        self.done += 1

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
        share = 1 / self.settings.accumulate
        (loss if share == 1 else loss * share).backward()
        self.loss.add_(loss.detach(), alpha=share)
        if self.sums is not None:
            torch._foreach_add_(self.sums, list(self._own_gradients().values()))

    def _end(self) -> None:
        self.norm.copy_(ops.grad_norm(self._gradients().values()))
        torch.stack((self.loss, self.norm), out=self.both)

    def _update(self) -> None:
        self.updating.step(self._gradients(), self.norm)
        if self.sums is not None:
            torch._foreach_zero_(self.sums)

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
            with torch.cuda.graph(graphs[name], pool=pool, stream=self.stream, capture_error_mode="thread_local"):
                body()
        self.graphs = graphs
