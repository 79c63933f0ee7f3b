"""Whether torch may use TF32 at a call: torch.set_float32_matmul_precision, allow_tf32 and fp32_precision."""

import torch

CONVOLUTION, RECURRENT, MATMUL = "conv", "rnn", "matmul"
"""Operations that torch keeps a precision of its own for (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)."""


def tf32(name: str) -> bool:
    """Whether the op of that name, such as `aten::mm`, may round float32 to TF32.

    The getter behind `fp32_precision` is what ATen itself asks (at::Context::float32Precision). The older settings
    write to it too, and it raises nothing where a script mixes both, as the older getters do.
    """
    return torch._C._get_fp32_precision_getter("cuda", _operation(name)) == "tf32"


def _operation(name: str) -> str:
    if "conv" in name:
        return CONVOLUTION
    return RECURRENT if name.startswith("aten::_cudnn_rnn") else MATMUL
