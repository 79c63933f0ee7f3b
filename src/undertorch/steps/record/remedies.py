"""What to do about the errors with which scripts end that are no fault of theirs: one sentence each."""

import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from undertorch.steps.record.values import EndlessLoop

NO_BUILD = "is built with CUDA's compiler, on a machine with a GPU; `see` asks for none of its kernels"

GPU_PACKAGES = {
    "apex": f"apex {NO_BUILD}: torch has its parts by now (AdamW(fused=True), nn.LayerNorm, torch.autocast).",
    "bitsandbytes": "bitsandbytes is not installed here, and its kernels would not run: take torch.optim's optimizer"
    " and an unquantized model in its place.",
    "awq": f"AutoAWQ {NO_BUILD}: take an unquantized model in its place.",
    "causal_conv1d": f"causal_conv1d {NO_BUILD}: import it in a try, and fall back on nn.Conv1d.",
    "deepspeed": "deepspeed is not installed here, and its engine hides the loop: run the script's plain loop.",
    "flash_attn": f"flash_attn {NO_BUILD}: F.scaled_dot_product_attention takes the same kernels"
    ' (attn_implementation="sdpa" in Hugging Face models).',
    "flash_attn_interface": f"FlashAttention 3 {NO_BUILD}: F.scaled_dot_product_attention stands in for it.",
    "mamba_ssm": f"mamba_ssm {NO_BUILD}: import it in a try, and fall back on plain torch.",
    "transformer_engine": f"transformer_engine {NO_BUILD}: take nn.Linear and nn.LayerNorm in its place.",
    "vllm": f"vllm {NO_BUILD}: take the layers of torch or of Hugging Face in its place.",
    "xformers": f"xformers {NO_BUILD}: F.scaled_dot_product_attention stands in for its memory_efficient_attention.",
}
"""By the name of a package that needs a GPU, what to do where it is not installed, or not built."""

EXTENSIONS = {
    "amp_C": "apex",
    "apex_C": "apex",
    "awq_ext": "awq",
    "causal_conv1d_cuda": "causal_conv1d",
    "distributed_adam_cuda": "apex",
    "dropout_layer_norm": "flash_attn",
    "fast_layer_norm": "apex",
    "fast_multihead_attn": "apex",
    "flash_attn_2_cuda": "flash_attn",
    "flash_attn_3": "flash_attn_interface",
    "flash_attn_3_cuda": "flash_attn_interface",
    "flash_attn_cuda": "flash_attn",
    "fused_adam_cuda": "apex",
    "fused_dense_cuda": "apex",
    "fused_dense_lib": "flash_attn",
    "fused_layer_norm_cuda": "apex",
    "fused_lamb_cuda": "apex",
    "fused_weight_gradient_mlp_cuda": "apex",
    "mlp_cuda": "apex",
    "rotary_emb": "flash_attn",
    "scaled_masked_softmax_cuda": "apex",
    "scaled_upper_triang_masked_softmax_cuda": "apex",
    "selective_scan_cuda": "mamba_ssm",
    "syncbn": "apex",
    "transformer_engine_torch": "transformer_engine",
    "xentropy_cuda": "apex",
    "xentropy_cuda_lib": "flash_attn",
}
"""Modules that these packages compile and keep beside themselves (their setup.py), by the package: it is installed, and
was not built with CUDA.
"""

CUDA_LIBRARY = re.compile(r"\blib(cu|nv|nccl)[\w+-]*\.so|\blibbitsandbytes\w*\.so|bitsandbytes native library")
"""In an error's text: a library of CUDA, or one that is linked against it, cannot be loaded."""


def remedy(error: BaseException) -> str | None:
    """What the one who runs the script can do about an error; None where its traceback says it all."""
    return next((said for rule in RULES if (said := rule(error)) is not None), None)


def _missing_package(error: BaseException) -> str | None:
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    package = error.name.partition(".")[0]
    return f"Install {package} into the Python that undertorch runs in, as the script's own."


def _needs_a_gpu(error: BaseException) -> str | None:
    """A package that is built with CUDA's compiler: absent, or there without its compiled part or CUDA's libraries."""
    for one in _with_causes(error):
        lacks_cuda = isinstance(one, ImportError | OSError | RuntimeError) and CUDA_LIBRARY.search(str(one)) is not None
        if not lacks_cuda and (not isinstance(one, ImportError) or "cannot import name" in str(one)):
            continue
        names = [_package(one.name)] if isinstance(one, ImportError) and one.name is not None else []
        # What loads a library by hand names no module: the package is the one whose file asked for it.
        names += _packages_running(one) if lacks_cuda else []
        known = next((GPU_PACKAGES[name] for name in names if name in GPU_PACKAGES), None)
        if known is not None:
            return known
        if names and (lacks_cuda or names[0].endswith("_cuda")):
            return f"{names[0]} {NO_BUILD}: import it in a try, and fall back on torch's own ops."
    return None


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised from."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _package(module: str) -> str:
    """The package that a module is of, or that it was compiled for."""
    top = module.partition(".")[0]
    return EXTENSIONS.get(top, top)


def _packages_running(error: BaseException) -> list[str]:
    """The installed packages whose code an error passed through, the innermost first."""
    files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [
        file.parts[file.parts.index("site-packages") + 1].removesuffix(".py")
        for file in reversed(files)
        if "site-packages" in file.parts and "torch" not in file.parts
    ]


def _relative_import(error: BaseException) -> str | None:
    """`from .model import …` in a script that was named as a file."""
    if not isinstance(error, ImportError) or "no known parent package" not in str(error):
        return None
    return "It is a module of a package: name it as `python -m` does, such as package.train, from the folder above."


def _no_weights(error: BaseException) -> str | None:
    """`from_pretrained` of a model that is not in the local cache."""
    names = {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
    if not isinstance(error, OSError) or "from_pretrained" not in names:
        return None
    return (
        "from_pretrained finds nothing in the local cache and cannot fetch it; the values of weights are not needed, so"
        " make the model from its config (AutoModel….from_config), or give the folder of a model on this disk."
    )


def _cuda_toolkit(error: BaseException) -> str | None:
    """torch.utils.cpp_extension, which compiles CUDA code."""
    if not isinstance(error, OSError) or "CUDA_HOME" not in str(error):
        return None
    return "The script compiles CUDA code, which cannot run without a GPU: have it fall back on torch's own ops."


NO_DRIVER = re.compile(
    r"CUDA driver version is insufficient|no CUDA-capable device|Found no NVIDIA driver|not compiled with CUDA"
    r"|has no attribute '_cuda"
)
"""In an error's text: CUDA's own words where there is no driver, torch's, and those of a CPU build."""


def _asks_the_driver(error: BaseException) -> str | None:
    """What torch asks of CUDA by a way that nothing stands in for yet."""
    if NO_DRIVER.search(str(error)) is None:
        return None
    return (
        "That is a limit of undertorch, not the script's fault: the call at the traceback's end asks the CUDA driver,"
        " which is not here. Leave that call out to see the rest, and please report it."
    )


def _second_gpu(error: BaseException) -> str | None:
    """cuda:1, and further."""
    if "invalid device ordinal" not in str(error):
        return None
    return "One GPU is seen, cuda:0: run the script with the arguments for a single one, or write cuda in the place."


LAUNCHERS_SETTINGS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _launcher(error: BaseException) -> str | None:
    """What torchrun tells a script through its environment."""
    if not isinstance(error, KeyError | ValueError | TypeError):
        return None
    said = str(error)
    if not any(name in said for name in LAUNCHERS_SETTINGS) and not _reads_a_launchers_setting(error):
        return None
    return (
        "It asks for what torchrun sets: put RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500"
        " before the command."
    )


def _reads_a_launchers_setting(error: BaseException) -> bool:
    """`int(os.environ.get("RANK"))` where there is none: the line says so, the error does not."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return any(
        "environ" in (frame.line or "") and name in (frame.line or "") for frame in last for name in LAUNCHERS_SETTINGS
    )


def _endless_loop(error: BaseException) -> str | None:
    """A script that waits for a value."""
    return error.remedy if isinstance(error, EndlessLoop) else None


def _nested(error: BaseException) -> str | None:
    """Nested tensors, whose shapes are values."""
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)}
    if "NestedTensorImpl" not in str(error) and not any("/torch/nested/" in file for file in files):
        return None
    return "A nested tensor keeps its lengths on the GPU, where there are no values: pad the batch to see its step."


def _no_rule(error: BaseException) -> str | None:
    """Execution's own sentence, which names the op."""
    if not isinstance(error, NotImplementedError) or "There is no GPU to run" not in str(error):
        return None
    return "That op cannot be seen without a GPU: put plain ops in its place, or leave it out, to see the rest."


def _too_large(error: BaseException) -> str | None:
    """A single tensor that the GPU has no memory for."""
    if "Tried to allocate" not in str(error):
        return None
    return "That tensor alone is larger than the GPU's memory: make the batch smaller, or name a larger GPU (--gpu)."


RULES: tuple[Callable[[BaseException], str | None], ...] = (
    _needs_a_gpu,
    _missing_package,
    _relative_import,
    _no_weights,
    _cuda_toolkit,
    _asks_the_driver,
    _second_gpu,
    _launcher,
    _endless_loop,
    _nested,
    _no_rule,
    _too_large,
)
"""Each answers for one kind of error, and None for all others."""
