"""What a script is told whose GPU package is there without its compiled part, or without CUDA's libraries."""

import importlib
import subprocess
import sys

import pytest
import torch

from undertorch.steps.record.remedies import remedy

pytestmark = pytest.mark.builds


def raised(call):
    """The error of a call."""
    with pytest.raises((ImportError, OSError, RuntimeError)) as caught:
        call()
    return caught.value


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a package whose only module holds a text; answers its folder."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)

    def install(name, text):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)
        importlib.invalidate_caches()
        return folder

    yield install
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def linked_against_cuda(tmp_path):
    """Compiles a library that needs the libcudart.so of CUDA 8, which no package of torch's brings along."""

    def compiled(path):
        aside, source = tmp_path / "libcudart.so.8.0", tmp_path / "empty.c"
        source.touch()
        subprocess.run(["cc", "-shared", source, "-Wl,-soname,libcudart.so.8.0", "-o", aside], check=True)
        subprocess.run(["cc", "-shared", source, "-Wl,--no-as-needed", aside, "-o", path], check=True)
        aside.unlink()

    return compiled


@pytest.mark.parametrize(
    ("package", "extension", "instead"),
    [
        ("flash_attn", "flash_attn_2_cuda", "scaled_dot_product_attention takes the same kernels"),
        ("flash_attn_interface", "flash_attn_3._C", "scaled_dot_product_attention stands in"),
        ("xformers", "xformers._C", "scaled_dot_product_attention stands in"),
        ("apex", "amp_C", "torch has its parts by now"),
        ("apex", "fused_layer_norm_cuda", "torch has its parts by now"),
        ("transformer_engine", "transformer_engine_torch", "take nn.Linear and nn.LayerNorm"),
        ("causal_conv1d", "causal_conv1d_cuda", "fall back on nn.Conv1d"),
        ("mamba_ssm", "selective_scan_cuda", "fall back on plain torch"),
        ("of_ones_own", "of_ones_own_cuda", "fall back on torch's own ops"),
    ],
)
def test_a_package_without_its_compiled_part_is_not_told_to_be_installed(installed, package, extension, instead):
    installed(package, f"import {extension}\n")
    said = remedy(raised(lambda: importlib.import_module(package)))
    assert instead in said
    assert "Install" not in said


def test_an_extension_that_finds_no_library_of_cuda_has_the_same_remedy(installed, linked_against_cuda):
    """The loader's own error: `libcudart.so.8.0: cannot open shared object file`."""
    folder = installed("flash_attn", "import flash_attn_2_cuda\n")
    linked_against_cuda(folder / "flash_attn_2_cuda.so")
    error = raised(lambda: importlib.import_module("flash_attn"))
    assert "libcudart.so.8.0: cannot open shared object file" in str(error)
    assert "scaled_dot_product_attention takes the same kernels" in remedy(error)


def test_a_library_that_a_package_loads_by_hand_has_it_too(installed, linked_against_cuda):
    """ctypes names no module, so the package is the one that asked; and it may say so in an error of its own."""
    folder = installed(
        "bitsandbytes",
        "import ctypes\n"
        "try:\n    ctypes.CDLL(f'{__path__[0]}/libbitsandbytes_cuda126.so')\n"
        "except OSError as error:\n    raise RuntimeError('CUDA setup failed') from error\n",
    )
    linked_against_cuda(folder / "bitsandbytes" / "libbitsandbytes_cuda126.so")
    assert "take torch.optim's optimizer" in remedy(raised(lambda: importlib.import_module("bitsandbytes")))


@pytest.mark.parametrize(
    ("package", "instead"),
    [
        ("flash_attn", "scaled_dot_product_attention"),
        ("xformers.ops", "scaled_dot_product_attention"),
        ("bitsandbytes", "torch.optim"),
        ("apex", "AdamW"),
        ("deepspeed", "plain loop"),
    ],
)
def test_a_package_that_only_a_gpu_has_is_told_what_to_do_without(package, instead):
    said = remedy(raised(lambda: importlib.import_module(package)))
    assert instead in said
    assert "Install" not in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, whose driver answers")
def test_what_asks_for_a_driver_that_is_not_there_is_called_a_limit_of_undertorch():
    """torch itself, of which no part is replaced here."""
    with pytest.raises((RuntimeError, AssertionError)) as asked:
        torch.zeros(1, device="cuda")
    assert "a limit of undertorch, not the script's fault" in remedy(asked.value)


def test_a_plain_package_that_is_missing_is_to_be_installed():
    assert "Install nowhere_to_be_found" in remedy(
        raised(lambda: importlib.import_module("nowhere_to_be_found.at_all"))
    )
