"""Tensors without values can be saved, and read back as what they were."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from undertorch import gpus
from undertorch.steps.record import record
from undertorch.steps.record.overlay.saving import layout

SCRIPT = Path(__file__).with_name("scripts") / "loads.py"


def test_what_is_saved_without_values_is_loaded_without_values(tmp_path, monkeypatch, tree):
    """The assertions stand in the script."""
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    arguments = ("safetensors",) if find_spec("safetensors") else ()
    recording = record(SCRIPT, arguments, gpus.find("H200"))
    assert tree(tmp_path) == before
    (saved,) = (one for one in recording.assumptions if one.what.startswith("saved tensors without values: the file")
                and one.where.line == len(SCRIPT.read_text().splitlines()) - 1)  # fmt: skip
    assert saved.where.function == "<module>"


def test_a_safetensors_file_begins_with_its_own_layout():
    """The format (github.com/huggingface/safetensors): 8 bytes of length, JSON, then each tensor where it says."""
    tensors = {"small": torch.zeros(3, dtype=torch.int8), "large": torch.zeros(2, 5)}
    head, size = layout(tensors, {torch.int8: "I8", torch.float32: "F32"}, {"step": "7"})
    assert int.from_bytes(head[:8], "little") == len(head) - 8
    assert len(head) % 8 == 0
    assert json.loads(head[8:]) == {
        "__metadata__": {"step": "7"},
        "large": {"dtype": "F32", "shape": [2, 5], "data_offsets": [0, 40]},
        "small": {"dtype": "I8", "shape": [3], "data_offsets": [40, 43]},
    }
    assert size == 43


def test_safetensors_reads_what_it_begins():
    safetensors = pytest.importorskip("safetensors.torch")
    names = {dtype: name for name, dtype in safetensors._TYPES.items()}
    tensors = {"a": torch.zeros(3, 2, dtype=torch.bfloat16), "b": torch.zeros(5, dtype=torch.int64)}
    head, size = layout(tensors, names, None)
    again = safetensors.load(head + bytes(size))
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in again.items()} == {
        name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()
    }
