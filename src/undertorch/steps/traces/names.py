"""A kernel's name made short, and what it does and whose it is, told from that name."""

import re
from dataclasses import dataclass

from undertorch.records import Kind

FUNCTOR = re.compile(
    r"CUDAFunctor(?:OnSelf|OnOther)?_(?P<on>\w+)|(?P<name>[A-Za-z]\w*?)(?:_kernel_cuda|_kernel_impl|_functor|Functor)\b"
)
"""Says which element-by-element function a template was made for."""

GENERIC = ("gpu", "Binary", "AUnary", "BUnary", "Unary", "elementwise")
"""Wrap others."""

BEFORE_NAME = re.compile(r"\(anonymous namespace\)::|<unnamed>::|^void |^std::enable_if<.*?>::type ")
"""Namespaces without a name, and what the kernel returns."""

MANGLED = re.compile(r"_ZN?[rVK]*")
"""Begins a name that is still encoded, as the compiler writes it and AMD's tracer leaves it (Itanium C++ ABI, 5.1)."""

LENGTH = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What kernels do and whose they are, whose name holds the pattern."""

    pattern: str
    kind: Kind
    library: str


COLLECTIVE = r"nccl|rccl"
"""Is in the names of the kernels of NCCL and RCCL."""

ROWS = (
    Row(pattern=COLLECTIVE, kind=Kind.COLLECTIVE, library="NCCL"),
    # Inductor: the first letters of the kind of loop, then what was fused (torch/_inductor/codegen/triton.py).
    Row(pattern=r"^triton_tem_\w*(attention|sdpa)", kind=Kind.ATTENTION, library="Inductor"),
    Row(pattern=r"^triton_tem_\w*convolution", kind=Kind.CONVOLUTION, library="Inductor"),
    Row(pattern=r"^triton_(tem_|mm|bmm)", kind=Kind.MATMUL, library="Inductor"),
    Row(pattern=r"^triton_(red|per|coo|mix)_\w*_softmax", kind=Kind.SOFTMAX, library="Inductor"),
    Row(pattern=r"^triton_(red|per|coo|mix)_\w*(layer|rms|batch|group)_norm", kind=Kind.NORM, library="Inductor"),
    Row(pattern=r"^triton_(red|per|coo|mix)_", kind=Kind.REDUCTION, library="Inductor"),
    Row(pattern=r"^triton_spl_", kind=Kind.SCAN, library="Inductor"),
    Row(pattern=r"^triton_(poi|for)_", kind=Kind.ELEMENTWISE, library="Inductor"),
    Row(pattern=r"^triton_", kind=Kind.CUSTOM, library="Inductor"),
    Row(pattern=r"multimem|all_?reduce|all_?gather|reduce_scatter", kind=Kind.COLLECTIVE, library="PyTorch"),
    Row(pattern=r"cudnn.*sdpa|compute_dot_do_o|convert_dq_to_16bits", kind=Kind.ATTENTION, library="cuDNN"),
    Row(pattern=r"fmha_cutlass", kind=Kind.ATTENTION, library="PyTorch"),
    Row(pattern=r"fmha|flash_(fwd|bwd)|attn_(fwd|bwd)", kind=Kind.ATTENTION, library="flash"),
    Row(pattern=r"nchwToNhwc|nhwcToNchw|nhwcAddPadding", kind=Kind.COPY, library="cuDNN"),
    Row(pattern=r"transpose_(CNHW|NCHW)|batched_transpose", kind=Kind.COPY, library="MIOpen"),
    Row(pattern=r"MIOpenBatchNorm", kind=Kind.NORM, library="MIOpen"),
    Row(pattern=r"cudnn.*(bn_(fw|bw)|batch_norm)", kind=Kind.NORM, library="cuDNN"),
    Row(pattern=r"igemm_|2ck16tensor_operation|ck::tensor|SubTensorOp", kind=Kind.CONVOLUTION, library="MIOpen"),
    Row(pattern=r"scalePackedTensor", kind=Kind.FILL, library="cuDNN"),
    Row(
        pattern=r"winograd|[fdw]prop|dgrad|wgrad|implicit_gemm|cudnn|[Cc]onv(olution|olve|_|\d)",
        kind=Kind.CONVOLUTION,
        library="cuDNN",
    ),
    Row(pattern=r"Cijk_", kind=Kind.MATMUL, library="rocBLAS"),
    Row(pattern=r"cutlass.*(gemm|tensorop|simt)", kind=Kind.MATMUL, library="CUTLASS"),
    Row(pattern=r"nvjet|gemm|splitKreduce|gemv|cublas|^bmm_", kind=Kind.MATMUL, library="cuBLAS"),
    Row(pattern=r"multi_tensor_apply.*(Adam|[Ss]gd|SGD|Lamb|Adagrad|RMS)", kind=Kind.OPTIMIZER, library="PyTorch"),
    Row(pattern=r"multi_tensor_apply.*Norm|lpnorm", kind=Kind.REDUCTION, library="PyTorch"),
    Row(pattern=r"(layer|rms|batch|group)_norm|GroupNorm|LayerNorm", kind=Kind.NORM, library="PyTorch"),
    Row(pattern=r"GammaBeta|RowwiseMoments|InternalGradients|FusedParams", kind=Kind.NORM, library="PyTorch"),
    Row(pattern=r"nll_loss|cross_entropy|mse_|bce_|_loss", kind=Kind.LOSS, library="PyTorch"),
    Row(pattern=r"[Ss]oft_?[Mm]ax", kind=Kind.SOFTMAX, library="PyTorch"),
    Row(pattern=r"rotary", kind=Kind.ELEMENTWISE, library="unknown"),
    Row(
        pattern=r"[Ee]mbedding|gather|scatter|index_|indexing|indexSelect|compute_grad_weight",
        kind=Kind.EMBEDDING,
        library="PyTorch",
    ),
    Row(pattern=r"partial_segment|partials_per_segment", kind=Kind.SORT, library="PyTorch"),
    Row(pattern=r"RadixSort|DeviceUnique|CompactInit|DeviceSelect", kind=Kind.SORT, library="CUB"),
    Row(pattern=r"bitonicSort|topk|TopK", kind=Kind.SORT, library="PyTorch"),
    Row(pattern=r"DeviceScan", kind=Kind.SCAN, library="CUB"),
    Row(pattern=r"scan_", kind=Kind.SCAN, library="PyTorch"),
    Row(pattern=r"distribution_|dropout|philox|randperm", kind=Kind.RANDOM, library="PyTorch"),
    Row(pattern=r"Fill|fill_", kind=Kind.FILL, library="PyTorch"),
    Row(pattern=r"CatArray|_copy", kind=Kind.COPY, library="PyTorch"),
    Row(pattern=r"DeviceReduce", kind=Kind.REDUCTION, library="CUB"),
    Row(pattern=r"reduce_kernel", kind=Kind.REDUCTION, library="PyTorch"),
    Row(pattern=r"elementwise|multi_tensor_apply|max_pool|avg_pool|upsample", kind=Kind.ELEMENTWISE, library="PyTorch"),
)
"""Tried from the top."""


def short(name: str) -> str:
    """Without return type, namespaces and the tail of the template: `vectorized_elementwise_kernel<4, add>`."""
    mangled = MANGLED.match(name)
    if mangled is not None:
        return _last_of(name, mangled.end()) or name
    bare = BEFORE_NAME.sub("", name)
    found = re.match(r"[\w:~.]+", bare)
    if found is None:
        return name
    base = found.group().rsplit("::", 1)[-1] or found.group()
    rest = bare[found.end() :]
    if not rest.startswith("<"):
        return base
    numbers = re.match(r"<((?:\d+(?:, |(?=>)))*)", rest)
    inside = [text for text in numbers[1].split(", ") if text] if numbers else []
    template = rest.partition(">(")[0]
    made_for = (found["on"] or found["name"] for found in FUNCTOR.finditer(template))
    functor = next((name for name in made_for if name not in GENERIC), None)
    if functor is not None:
        inside.append(functor)
    return f"{base}<{', '.join(inside)}>" if inside else base


def fused(name: str) -> str:
    """What a kernel of Inductor's is called as an Op: `triton_poi_fused_gelu_view_10` `inductor::fused_gelu_view`."""
    bare = re.sub(r"_\d+$", "", re.sub(r"^(triton|cpp)_((red|per|poi|tem|for|coo|mix|spl)_)?", "", name))
    return f"inductor::{bare or 'kernel'}"


def _last_of(name: str, place: int) -> str | None:
    """Of an encoded name: each of its parts stands behind its length, namespaces first, then the function."""
    found = None
    while (length := LENGTH.match(name, place)) is not None:
        place = length.end() + int(length.group())
        found = name[length.end() : place]
    return found


def told(name: str) -> tuple[Kind, str]:
    """What a kernel does and whose it is; CUSTOM and `unknown` where its name says nothing."""
    row = next((row for row in ROWS if re.search(row.pattern, name)), None)
    return (Kind.CUSTOM, "unknown") if row is None else (row.kind, row.library)
