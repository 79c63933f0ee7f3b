"""How much of a spec sheet's peak real kernels reach: the figures that a plain roofline lacks.

Every figure was measured on one H200 (torch 2.11.0+cu130, cuDNN 9.19, driver 580) and is kept under tests/golden/:
`h200_ops.json.gz`, single calls with cold caches. Other GPUs are predicted with the same shares of their own peaks,
which is an assumption. Rows are tried from the top; the first whose pattern is found in the kernel's name holds.
"""

import re
from dataclasses import dataclass

from undertorch.records import Kernel, Kind, Math

BANDWIDTH = 0.89
"""Share of the specified global bandwidth that a large copy kernel reaches: 4.27 of 4.8 TB/s."""

ISSUE_SLOTS = 4
"""Warp instructions an SM starts in a clock, one a scheduler (CUDA C++ programming guide; all since Volta)."""


SECTORS_A_CLOCK = 0.61
"""Sectors of 32 bytes that an SM gets, or hands over, in a clock where each lane of a warp asks for another: 8.4 M
elements transposed took 64 µs in float32 (302 MB of sectors), 58 in bfloat16 (285 MB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure for the kernels whose name the pattern is found in."""

    pattern: str
    value: float


BANDWIDTH_SHARES: tuple[Row, ...] = (
    # A block takes a chunk of 65,536 elements: _foreach_mul_ of 124 M float32 (1.0 GB) took 283 µs, _fused_adamw_ of as
    # many (3.5 GB) 1002: 3.5 TB/s either way.
    Row(pattern=r"^multi_tensor_apply_kernel", value=0.82),
    # Of GPT-2 as Inductor writes it (tests/golden/measured/gpt2-compile): reductions in loops over what they reduce, 26
    # to 101 MB, reached 3.2 to 3.5 TB/s; a norm's gradients, to input and weight in one kernel, 126 and 176 MB, 3.2.
    Row(pattern=r"^triton_red_", value=0.80),
    Row(pattern=r"^triton_per_fused_(?!\w*layer_norm_native)\w*layer_norm_backward", value=0.77),
)
"""Share of what a large copy reaches, of kernels that were seen to reach less however much they move."""


def bandwidth_share(kernel: Kernel) -> float:
    """1 for those that were not."""
    return _first(BANDWIDTH_SHARES, kernel.name) or 1.0


INSTRUCTIONS_PER_THREAD: tuple[Row, ...] = (
    # Four elements a thread, each cast by a switch over dtypes at run time: bfloat16 → float32 of 38.6 M took 112 µs.
    Row(pattern=r"^unrolled_elementwise_kernel", value=400),
    # Offsets from strides by integer division: add with a broadcast bias, 25.2 M elements, two a thread, took 76 µs.
    Row(pattern=r"^elementwise_kernel<128, 2", value=200),
    Row(pattern=r"^elementwise_kernel<128, 4", value=370),
    # cuDNN turns images between layouts, 32 × 32 of them a block: 25.7 MB each way of bfloat16 took 24 µs.
    Row(pattern=r"^(nchwToNhwc|nhwcToNchw)Kernel", value=240),
    # Each of the 128 elements of a thread is cast, squared and added: norms of 124 M bfloat16 took 108 µs.
    Row(pattern=r"^multi_tensor_apply_kernel<LpNorm", value=3400),
    # Bfloat16 GELU computes tanh in float32: 25.2 M elements, eight a thread, took 34 µs; its backward, 100 M, 155 µs.
    Row(pattern=r"^vectorized_elementwise_kernel<8.*gelu_backward", value=410),
    Row(pattern=r"^vectorized_elementwise_kernel<8.*gelu", value=330),
    # Inductor's, eight elements a thread too: 50.3 M took 63 µs, their gradients 78.
    Row(pattern=r"^triton_poi_\w*gelu_backward", value=410),
    Row(pattern=r"^triton_poi_\w*(gelu|silu|sigmoid|tanh|erf)", value=330),
    Row(pattern=r"^vectorized_elementwise_kernel<8.*(log|sin|cos|sqrt|silu|sigmoid|tanh|pow|erf)", value=280),
)
"""Instructions that one thread issues, where that and not the memory sets the pace: time × issue slots / threads."""


def instructions_per_thread(kernel: Kernel) -> float | None:
    """None for kernels whose pace the issue of instructions was not seen to set."""
    return _first(INSTRUCTIONS_PER_THREAD, kernel.name)


INSTRUCTIONS_PER_NUMBER = 40
"""For each random number that attention draws for its dropout (ten rounds of Philox, with two wide products each, make
four). Of the recordings only BERT's have any: 512 heads of 512 by 512, forward 272 µs and backward 436, where four
times what a quarter of the heads takes without dropout is 103 and 257: 171 and 179 µs for 134 M numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakShare:
    """Share of a math unit's peak for the kernels of a kind whose name the pattern is found in."""

    kind: Kind
    pattern: str
    math: Math | None
    """None: any."""
    value: float
    memory: float = 0.0
    """Times of the memory term that come on top, where loads and arithmetic do not overlap."""
    older: bool = False
    """Whether it was built for GPUs before Hopper: its instructions do as much in a clock of any newer SM, however much
    more that SM's own could do. `value` is the share of the H200's peak."""


H200_A_CLOCK = {Math.TENSOR_BF16: 4096, Math.TENSOR_FP16: 4096, Math.TENSOR_TF32: 2048}
"""Operations of an H200's SM in a clock: its peak over 132 SMs at 1830 MHz."""

OLDER_AT_MOST = 0.76
"""Share of its own peak that a GPU reaches with such kernels at most: what the H200 reaches with its own."""

PEAK_SHARES: tuple[PeakShare, ...] = (
    # Rows of an odd number of bytes keep to the instructions of Turing: 16384×50257×768 reached 95 TFLOP/s, its
    # gradients 142 to the input and 153 to the weight, with 97 and 99 % of the SMs busy (tests/golden/measured).
    PeakShare(kind=Kind.MATMUL, pattern=r"cutlass_75_tensorop\w*_tn_", math=None, value=0.097, older=True),
    PeakShare(kind=Kind.MATMUL, pattern=r"cutlass_75_tensorop\w*_nn_", math=None, value=0.148, older=True),
    PeakShare(kind=Kind.MATMUL, pattern=r"cutlass_75_tensorop\w*_nt_", math=None, value=0.156, older=True),
    PeakShare(kind=Kind.MATMUL, pattern=r"cutlass_75_tensorop", math=None, value=0.12, older=True),
    # Rows of whole 4 bytes and not of 16 keep to those of Ampere: 700×10000×1500 and its gradients, 171 to 185 TFLOP/s
    # with nine tenths of the SMs busy.
    PeakShare(kind=Kind.MATMUL, pattern=r"cutlass_80_(wmma_)?tensorop_(bf|f)16", math=None, value=0.20, older=True),
    # bf16 32768×3072×768: 705 of 989 TFLOP/s; 3072×768×32768: 759; 4096³: 765.
    PeakShare(kind=Kind.MATMUL, pattern="", math=Math.TENSOR_BF16, value=0.76),
    PeakShare(kind=Kind.MATMUL, pattern="", math=Math.TENSOR_FP16, value=0.76),
    # float32 without TF32, 32768×3072×768: 50 of 67 TFLOP/s.
    PeakShare(kind=Kind.MATMUL, pattern="", math=Math.FP32, value=0.76),
    PeakShare(kind=Kind.MATMUL, pattern="", math=None, value=0.70),
    # Attention: each row solves the causal and the full call of two shapes (32×12×1024×64, 4×32×4096×128) for a share
    # of the peak and a part that grows with the bytes: what a block loads before it can begin. cuDNN's are of the tiles
    # that it works off, the masked halves of those on the diagonal among them; the others of the pairs that count.
    PeakShare(kind=Kind.ATTENTION, pattern=r"fprop.*_64x128x64_", math=None, value=0.53, memory=1.03),
    PeakShare(kind=Kind.ATTENTION, pattern=r"fprop", math=None, value=0.75, memory=1.09),
    PeakShare(kind=Kind.ATTENTION, pattern=r"bprop.*_64x64x64_", math=None, value=0.60, memory=1.48),
    PeakShare(kind=Kind.ATTENTION, pattern=r"bprop", math=None, value=0.66, memory=0.95),
    PeakShare(kind=Kind.ATTENTION, pattern=r"^flash_fwd", math=None, value=0.42, memory=2.5, older=True),
    PeakShare(kind=Kind.ATTENTION, pattern=r"^flash_bwd_dq", math=None, value=0.33, memory=1.3, older=True),
    PeakShare(kind=Kind.ATTENTION, pattern=r"^fmha_cutlassF", math=None, value=0.17, memory=2.5, older=True),
    PeakShare(kind=Kind.ATTENTION, pattern=r"^fmha_cutlassB", math=None, value=0.145, memory=3.7, older=True),
    # Images of 3 channels, 64×3×224×224 with 64 filters of 7×7, 15.1 GFLOP: forward 390 µs (TF32 369), to the image
    # 817 (949), to the filters 229 (244).
    PeakShare(
        kind=Kind.CONVOLUTION, pattern=r"fprop_implicit_gemm_indexed", math=Math.TENSOR_TF32, value=0.083, older=True
    ),
    PeakShare(
        kind=Kind.CONVOLUTION, pattern=r"dgrad_implicit_gemm_indexed", math=Math.TENSOR_TF32, value=0.032, older=True
    ),
    PeakShare(
        kind=Kind.CONVOLUTION, pattern=r"^ImplicitGemmConvolution", math=Math.TENSOR_TF32, value=0.125, older=True
    ),
    PeakShare(kind=Kind.CONVOLUTION, pattern=r"fprop_implicit_gemm_indexed", math=None, value=0.039, older=True),
    PeakShare(kind=Kind.CONVOLUTION, pattern=r"dgrad_implicit_gemm_indexed", math=None, value=0.0187, older=True),
    PeakShare(kind=Kind.CONVOLUTION, pattern=r"^ImplicitGemmConvolution", math=None, value=0.067, older=True),
    # Tiles of 64 channels have half as many FLOPs for what they load: 64 images of 56×56 by 64×64×3×3, 14.8 GFLOP, took
    # 37 µs forward, 43 to the image and 37 to the filters. Wider ones are matrix products like any other.
    PeakShare(kind=Kind.CONVOLUTION, pattern=r"^sm90_xmma.*tilesize\d+x64x", math=None, value=0.40),
    PeakShare(kind=Kind.CONVOLUTION, pattern=r"^(sm90_xmma|nvjet)", math=None, value=0.76),
    PeakShare(kind=Kind.CONVOLUTION, pattern="", math=None, value=0.5),
)
OTHER = PeakShare(kind=Kind.CUSTOM, pattern="", math=None, value=0.5)
"""Plain arithmetic (half of the instructions of such kernels are loads, stores and addresses)."""


def peak_share(kernel: Kernel) -> PeakShare:
    """The row that holds for a kernel."""
    return next(
        (
            row
            for row in PEAK_SHARES
            if row.kind is kernel.kind and row.math in (None, kernel.math) and re.search(row.pattern, kernel.name)
        ),
        OTHER,
    )


START_US = 0.6
"""From the start of a kernel to its first block's work, and from its last block's end to its own: a one-element add
took 1.0 µs, of which its one block has the rest."""

COPY_START_US = 0.8
"""A memset of a few bytes, or the start of a memcpy on the device."""

PCIE_SHARE = 0.84
"""Share of PCIe's rate that a copy from pinned memory reaches: 4 MB in 78 µs over 64 GB/s."""
PCIE_BANDWIDTH = 32e9
"""Bytes a second where a sheet names none: PCIe 4.0, 16 lanes."""
PAGEABLE_TO_DEVICE = 11.9e9
PAGEABLE_TO_HOST = 18.9e9
"""Bytes a second from and to pageable memory (4 MB in 351 and 222 µs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLife:
    """How long a block lives when the memory has time for it: `first_us`, and `byte_us` for each byte a thread moves.

    `first_us` holds the dependent trips that every block of such a kernel makes (load, reduce across the block, store);
    `byte_us` is a trip to global memory over the bytes a thread has under way: 0.02 is 0.55 µs for 28 bytes. `flop_us`
    is for each FLOP of a thread, where it goes element by element: a trip is as long for two bytes as for four.
    """

    pattern: str
    first_us: float
    byte_us: float
    flop_us: float = 0.0
    over_memory_us: float | None = None
    """At most so much longer than the memory term: of persistent blocks that load ahead, only the first loads and the
    last stores of all are waited for. None: there is no such limit."""
    whole: bool = False
    """Whether waves are whole: a few long blocks an SM, which begin together and last alike, so that those of a last
    wave begin when all before them end."""


BLOCK_LIVES: tuple[BlockLife, ...] = (
    # A tile's first loads, its tensor maps and barriers: 128×128×128 took 2.4 µs, 512³ 3.7. Products that wait for
    # memory: 784×128×60000 (113 MB) took 37 to 52 µs, 64 images of 56×56 by 256×64 (128 MB) 36, scores of attention as
    # products (906 MB) 236 and 254.
    BlockLife(pattern=r"^(nvjet|sm90_xmma)", first_us=1.8, byte_us=0.016, over_memory_us=10),
    BlockLife(pattern=r"^vectorized_elementwise_kernel", first_us=0.3, byte_us=0.01),
    BlockLife(pattern=r"^unrolled_elementwise_kernel", first_us=1.3, byte_us=0.005),
    BlockLife(pattern=r"^multi_tensor_apply_kernel", first_us=1.0, byte_us=0.02),
    BlockLife(pattern=r"^reduce_kernel", first_us=2.0, byte_us=0.02),
    BlockLife(pattern=r"^cunn_SoftMaxBackwardSmem", first_us=5.0, byte_us=0.02),
    BlockLife(pattern=r"^cunn_SoftMaxForwardReg", first_us=2.5, byte_us=0.02),
    BlockLife(pattern=r"^cunn_SoftMax", first_us=5.0, byte_us=0.03),
    BlockLife(pattern=r"^softmax_warp_forward", first_us=0.8, byte_us=0.04),
    BlockLife(pattern=r"^softmax_warp_backward", first_us=0.5, byte_us=0.02),
    BlockLife(pattern=r"^vectorized_layer_norm_kernel", first_us=2.7, byte_us=0.03),
    BlockLife(pattern=r"^layer_norm_grad_input_kernel_vectorized", first_us=1.6, byte_us=0.02),
    BlockLife(pattern=r"^layer_norm_grad_input_kernel", first_us=4.0, byte_us=0.02),
    BlockLife(pattern=r"^GammaBetaBackward", first_us=0.5, byte_us=0.02),
    BlockLife(pattern=r"^RowwiseMoments", first_us=4.0, byte_us=0.12),
    BlockLife(pattern=r"^LayerNormForward", first_us=2.5, byte_us=0.02),
    # Channels last a thread goes down the rows of one channel, four elements under way. Of the 53 batch norms of
    # ResNet-50 in bfloat16 (tests/golden/measured): 0.46 µs an element of the moments, where each adds to the mean of
    # those before (four FLOPs); 0.23 of their gradients (five); 0.35 and 0.45 of what is written (four, five).
    BlockLife(pattern=r"^batch_norm_collect_statistics_channels", first_us=3.6, byte_us=0, flop_us=0.115, whole=True),
    BlockLife(pattern=r"^batch_norm_backward_reduce_channels", first_us=3.6, byte_us=0, flop_us=0.046, whole=True),
    BlockLife(pattern=r"^batch_norm_transform_input_channels", first_us=1.8, byte_us=0, flop_us=0.0875, whole=True),
    BlockLife(pattern=r"^batch_norm_backward_elemt_channels", first_us=2.0, byte_us=0, flop_us=0.09, whole=True),
    # Each element is compared in, or looked up by, every 3 × 3 window that it lies in: 822 MB in 838 and 1831 µs.
    BlockLife(pattern=r"^max_pool_forward_nhwc", first_us=2.0, byte_us=0.23),
    BlockLife(pattern=r"^max_pool_backward_nhwc", first_us=2.0, byte_us=0.47),
    BlockLife(pattern=r"^batch_norm_collect", first_us=2.0, byte_us=0.12),
    BlockLife(pattern=r"^compute_grad_weight", first_us=1.0, byte_us=0.12),
    BlockLife(pattern=r"^sum_and_scatter", first_us=1.6, byte_us=0.005),
    BlockLife(pattern=r"^vectorized_gather_kernel", first_us=2.5, byte_us=0.005),
    BlockLife(pattern=r"^(index_elementwise|_scatter_gather)", first_us=4.0, byte_us=0.03),
    BlockLife(pattern=r"^embedding_backward_feature", first_us=0.3, byte_us=0.12),
    BlockLife(pattern=r"^distribution_elementwise", first_us=1.0, byte_us=0.06),
    BlockLife(pattern=r"^fused_dropout", first_us=0.8, byte_us=0.04),
    # Element by element, with a division for each dimension of the strided pieces: 302 MB in 290 µs.
    BlockLife(pattern=r"^CatArrayBatchedCopy(<|$)", first_us=0.8, byte_us=0.26),
    BlockLife(pattern=r"^CatArrayBatchedCopy", first_us=0.8, byte_us=0.01),
    BlockLife(pattern=r"^tensor_kernel_scan_innermost", first_us=1.3, byte_us=0.08),
    BlockLife(pattern=r"(bitonic|sbtopk|mbtopk::gather)", first_us=4.0, byte_us=0.02),
    # Inductor's smallest, of 768 to 12,288 elements, took 0.9 to 1.5 µs.
    BlockLife(pattern=r"^triton_", first_us=0.4, byte_us=0.02),
    BlockLife(pattern="", first_us=0.8, byte_us=0.02),
)
"""Fitted to the golden calls: for each row, the two figures with the least error of log(predicted / measured)."""


def block_life(kernel: Kernel) -> BlockLife:
    """The row that holds for a kernel."""
    return next(row for row in BLOCK_LIVES if re.search(row.pattern, kernel.name))


REDUCE_TAIL_US = 1.5
REDUCE_ROUND_US = 0.3
"""`reduce_kernel` over several blocks an output: the last block adds the others' partial sums, one trip to L2 a round
(fitted to the sums over 16 to 1024 blocks)."""

GAP_US = 1.3
"""From the end of one kernel to the start of the next with the queue full (median of 808 launches of a GPT-2 step:
1.2 between kernels, 1.6 beside a memset). A sheet's own `launch_gap_us` comes first."""

HOST_OP_US = 36.0
"""CPU time of an eager Op that launches, in Python, ATen, autograd and the driver; of one host, the H200's: a GPT-2
step of 1×64 tokens, 651 Ops that launch and 845 that do not, took 32.3 ms there (tests/golden/h200_scripts.json),
shared out as 7 to 2. Other hosts need half or less: what is bound by launches is bound by the CPU."""
HOST_INDUCTOR_US = 18.0
"""CPU time of a launch in the Python that Inductor writes. On that host two of them that follow one another were begun
18 µs apart at the least and 30 in the median, with the profiler on (the forward of tests/golden/measured/gpt2-compile).
"""
HOST_VIEW_US = 10.0
"""CPU time of an Op that launches nothing."""


def _first(rows: tuple[Row, ...], name: str) -> float | None:
    return next((row.value for row in rows if re.search(row.pattern, name)), None)
