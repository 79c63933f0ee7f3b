"""What transformers makes of an exported model: the same logits."""

import pytest
import torch

from tiny_training import some_text, tiny
from undertorch.train.export import export
from undertorch.train.model import made

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.wild


@pytest.mark.parametrize("name", ["nano", "nano-llama"])
def test_transformers_has_the_logits_of_the_exported_model(tmp_path, name):
    settings = tiny(preset=name)
    text = some_text(tmp_path, settings)
    model = made(settings, torch.device("cpu"), torch.float32)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())), alpha=0.05)
    export(model, settings, text, tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokens = torch.randint(0, 300, (3, 16), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, model(tokens), rtol=1e-4, atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    sentence = "some words, ünd more"
    assert tokenizer(sentence)["input_ids"] == text.tokenizer.encode(sentence).ids
