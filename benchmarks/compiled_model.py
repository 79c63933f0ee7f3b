"""Runs a script of benchmarks/models whose model torch.compile compiles.

    python benchmarks/compiled_model.py SCRIPT MODE [ARGUMENTS…]

MODE: of torch.compile, as `default`. The script is not changed: the class of its model is found by its name.
"""

import importlib.util
import sys
from pathlib import Path

MODELS = {"gpt2": "GPT2", "llama": "Llama", "vit": "ViT", "bert": "BertForMaskedLM", "resnet": "ResNet"}
"""Of each script the class of the model that is trained."""


def compiled(script: str, mode: str) -> None:
    """Runs a script whose model torch.compile compiles."""
    import torch

    spec = importlib.util.spec_from_file_location("model_to_compile", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    name = MODELS[Path(script).stem]
    make = getattr(module, name)

    def made(*given: object, **named: object) -> object:
        return torch.compile(make(*given, **named), mode=None if mode == "default" else mode)

    setattr(module, name, made)
    module.main()


if __name__ == "__main__":
    script, mode, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    compiled(script, mode)
