"""The models of benchmarks/models: their sizes against the published ones, and their steps' FLOPs against formulas.

A matmul with P weights takes 2·P FLOPs a token forward and 4·P backward: 6·P. Attention takes two products of all
queries with all keys forward (QKᵀ, PV) and five backward: those of flash attention, which makes the scores again
(Dao et al. 2022). With a causal mask only the scores on and below the diagonal are counted.
"""

import os
import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from undertorch.records import Kind, Phase, Step
from undertorch.records.files import read_steps

# All ten models are seen for it, which takes a minute or two.
pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
MODELS = HERE.parents[1] / "benchmarks" / "models"
SMALL = runpy.run_path(str(HERE / "see_small.py"))["SMALL"]


@pytest.fixture(scope="module")
def steps(tmp_path_factory) -> dict[str, Step]:
    """Of each model one step on an H200; all are seen once, in one process, whatever the number of pytest's workers."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "models"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            aside = tmp_path_factory.mktemp("seen")
            subprocess.run([sys.executable, HERE / "see_small.py", aside], check=True, stdout=subprocess.DEVNULL)
            aside.rename(folder)
    return {name: read_steps(folder / f"{name}.json")[0] for name in SMALL}


def model(name: str) -> dict:
    """The names that the script of a model defines."""
    return runpy.run_path(str(MODELS / f"{name}.py"))


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def products(step: Step, *kinds: Kind, phases: tuple[Phase, ...] = tuple(Phase)) -> int:
    """FLOPs of matmuls, attention and convolutions (or of the kinds named), but not of the small kernels beside them
    that add up split products or heads, or multiply attention's output with its gradient and convert the result."""
    wanted = kinds or (Kind.MATMUL, Kind.ATTENTION, Kind.CONVOLUTION)
    beside = ("splitKreduce", "compute_dot", "convert_dq", "reduce_head")
    return sum(
        launch.kernel.flops or 0
        for launch in step.launches
        if launch.kernel.kind in wanted and launch.phase in phases and not any(b in launch.kernel.name for b in beside)
    )


def test_every_model_has_a_small_step():
    assert {name.split("-")[0] for name in SMALL} == {path.stem for path in MODELS.glob("*.py")}


@pytest.mark.parametrize("name", SMALL)
def test_every_launch_has_a_cost_and_a_line(steps, name):
    accounting = steps[name].accounting
    assert accounting.ops_without_cost == ()
    assert accounting.time_with_line >= 0.99
    assert accounting.launches > 50


@pytest.mark.parametrize("name", SMALL)
def test_the_lines_are_those_of_the_model_and_cover_forward_backward_and_update(steps, name):
    step = steps[name]
    assert {Path(op.where.file).name for op in step.ops if op.where is not None} == {f"{name.split('-')[0]}.py"}
    assert {Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.UPDATE} <= {launch.phase for launch in step.launches}


@pytest.mark.parametrize(
    ("name", "make", "published"),
    [
        # Hugging Face's gpt2: 124,439,808 with the head tied.
        pytest.param("gpt2", lambda m: m["GPT2"](), 124_439_808, id="GPT-2"),
        # Their model cards' safetensors: Llama-3.2-1B, Llama-3.1-8B.
        pytest.param("llama", lambda m: m["Llama"](m["SHAPES"]["1b"], 16, 8), 1_235_814_400, id="Llama 3.2 1B"),
        pytest.param("llama", lambda m: m["Llama"](m["SHAPES"]["8b"], 32, 8), 8_030_261_248, id="Llama 3.1 8B"),
        # bert-large-uncased has 335,141,888 with a pooler (1024² + 1024) and no head (1024² + 1024 + 2·1024 + 30522).
        pytest.param("bert", lambda m: m["BertForMaskedLM"](), 335_141_888 + 2 * 1024 + 30522, id="BERT-large"),
        # torchvision's tables of ViT_B_16_Weights and ResNet50_Weights.
        pytest.param("vit", lambda m: m["ViT"](), 86_567_656, id="ViT-B/16"),
        pytest.param("resnet", lambda m: m["ResNet"](), 25_557_032, id="ResNet-50"),
        # Hugging Face's stable-diffusion-v1-5/unet.
        pytest.param("unet", lambda m: m["UNet"](), 859_520_964, id="Stable Diffusion 1"),
        # Mixtral-8x7B's model card, 46.7 billion; this file's blocks at Mixtral's sizes.
        pytest.param("moe", lambda m: m["Mixture"](m["MIXTRAL"]), 46_702_792_704, id="Mixtral 8x7B"),
    ],
)
def test_parameters_are_as_many_as_published(name, make, published):
    with torch.device("meta"):
        assert parameters(make(model(name))) == published


def test_the_lstm_is_the_large_one_of_zaremba():
    """66 million (their table 1); torch has a second bias a gate, 2 · 4 · 1500 more."""
    with torch.device("meta"):
        count = parameters(model("lstm")["LanguageModel"]())
    embedding, head = 10_000 * 1500, 1500 * 10_000 + 10_000
    assert count == embedding + head + 2 * (4 * 1500 * (1500 + 1500) + 2 * 4 * 1500)
    assert round(count / 1e6) == 66


def test_the_dlrm_has_540_million_parameters():
    """Criteo Kaggle's 33,762,577 categories in 16 numbers each (facebookresearch/dlrm), and the MLPs 13-512-256-64-16
    and 367-512-256-1: 351 pairs of 27 vectors, and 16."""
    with torch.device("meta"):
        count = parameters(model("dlrm")["DLRM"]())
    mlps = (13, 512, 256, 64, 16), (16 + 27 * 26 // 2, 512, 256, 1)
    linear = sum(into * out + out for mlp in mlps for into, out in pairwise(mlp))
    assert count == 33_762_577 * 16 + linear


def causal(sequence: int) -> int:
    """Scores on and below the diagonal."""
    return sequence * (sequence + 1) // 2


def test_gpt2_takes_six_flops_a_weight_and_token_and_seven_products_of_the_scores(steps):
    batch, sequence, layers, width, vocabulary = 2, 64, 2, 768, 50257
    weights = layers * 12 * width**2 + vocabulary * width
    scores = batch * layers * 12 * causal(sequence)
    assert products(steps["gpt2"]) == 6 * weights * batch * sequence + 7 * 2 * 64 * scores


@pytest.mark.parametrize(
    ("name", "width", "hidden", "heads"), [("llama", 2048, 8192, 32), ("llama-8b", 4096, 14336, 32)]
)
def test_llama_computes_its_blocks_again_but_for_their_last_matmul(steps, name, width, hidden, heads):
    """A quarter of the heads for keys and values. The recomputation stops once what backward needs is there
    (torch.utils.checkpoint, set_checkpoint_early_stop): the last projection's output is not among it."""
    batch, sequence, layers, vocabulary = 2, 64, 2, 128256
    attention = 2 * width**2 + 2 * width * width // 4
    blocks = layers * (attention + 3 * width * hidden)
    again = blocks - layers * hidden * width
    scores = batch * layers * heads * causal(sequence)
    tokens = batch * sequence
    expected = 6 * (blocks + vocabulary * width) * tokens + 2 * again * tokens
    assert products(steps[name]) == expected + (2 + 2 + 5) * 2 * (width // heads) * scores


def test_bert_attends_to_all_tokens(steps):
    """Padding is masked, and computed all the same."""
    batch, sequence, layers, width, vocabulary = 2, 64, 2, 1024, 30522
    weights = layers * 12 * width**2 + width**2 + vocabulary * width
    scores = batch * layers * 16 * sequence**2
    assert products(steps["bert"]) == 6 * weights * batch * sequence + 7 * 2 * 64 * scores


def test_vit_does_without_the_gradient_of_its_images(steps):
    batch, patches, layers, width = 2, (64 // 16) ** 2, 2, 768
    tokens = batch * (patches + 1)
    patch = 2 * batch * patches * width * 3 * 16 * 16
    scores = batch * layers * 12 * (patches + 1) ** 2
    linear = 6 * layers * 12 * width**2 * tokens + 6 * width * 1000 * batch
    assert products(steps["vit"]) == linear + 2 * patch + 7 * 2 * 64 * scores


def test_resnet_multiplies_4089_million_times_an_image_forward_and_twice_that_backward(steps):
    """torchvision's ResNet50_Weights name 4.089 · 10⁹ at 224 × 224. The stem's images need no gradient."""
    batch, step = 2, steps["resnet"]
    forward = products(step, phases=(Phase.FORWARD,))
    stem = 2 * batch * 112 * 112 * 64 * 3 * 7 * 7
    assert forward == pytest.approx(2 * 4.089e9 * batch, rel=2e-4)
    assert products(step) == 3 * forward - stem


def test_the_unet_multiplies_as_often_as_torch_counts(steps):
    """Torch's own counter, on tensors without values. At full size it counts 339 · 10⁹ multiplications without those
    of attention, as Kim et al. 2023 (BK-SDM, table 1) do for Stable Diffusion v1.4."""
    unet = model("unet")
    small = counted(unet["UNet"](width=64, layers=1), image=128 // 8, backward=True)
    full = counted(unet["UNet"](), image=64, backward=False)
    assert products(steps["unet"], Kind.MATMUL, Kind.CONVOLUTION) == small
    assert full == pytest.approx(2 * 339e9, rel=2e-3)


def counted(unet: torch.nn.Module, image: int, backward: bool) -> int:
    """FLOPs of convolutions and linear layers, those of attention (batched products) left out."""
    from torch.utils.flop_counter import FlopCounterMode

    unet = unet.to("meta")
    noisy = torch.empty(1, 4, image, image, device="meta")
    times = torch.empty(1, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        guess = unet(noisy, times, torch.empty(1, 77, 768, device="meta"))
        if backward:
            guess.sum().backward()
    counts = counter.get_flop_counts()["Global"]
    return sum(count for name, count in counts.items() if name not in (torch.ops.aten.bmm, torch.ops.aten.baddbmm))


def test_an_lstm_multiplies_four_gates_by_input_and_state(steps):
    batch, sequence, layers, width, vocabulary = 4, 8, 2, 1500, 10_000
    weights = layers * 4 * width * (width + width) + width * vocabulary
    assert products(steps["lstm"]) == 6 * weights * batch * sequence


def test_of_eight_experts_each_token_takes_two(steps):
    """Which they are is made up: as many for each expert."""
    batch, sequence, layers, width, hidden, vocabulary = 2, 64, 2, 1024, 3584, 32000
    attention = 2 * width**2 + 2 * width * width // 4
    weights = layers * (attention + 8 * width + 2 * 3 * width * hidden) + vocabulary * width
    scores = batch * layers * 16 * causal(sequence)
    assert products(steps["moe"]) == 6 * weights * batch * sequence + 7 * 2 * 64 * scores
    assert any("32 of 256" in one.what for one in steps["moe"].accounting.assumed)


def test_dlrm_multiplies_all_pairs_of_27_vectors(steps):
    """Both gradients of a product with itself are products of that size; the dense features need no gradient."""
    batch = 128
    mlps = (13, 512, 256, 64, 16), (16 + 27 * 26 // 2, 512, 256, 1)
    weights = sum(into * out for mlp in mlps for into, out in pairwise(mlp))
    pairs = 3 * 2 * batch * 27 * 27 * 16
    assert products(steps["dlrm"]) == 6 * weights * batch - 2 * 13 * 512 * batch + pairs


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in MODELS.glob("*.py")))
def test_every_model_is_seen_at_its_full_size(name, tmp_path):
    """By the command line, as a reader of the README would."""
    path = tmp_path / "step.json"
    command = [sys.executable, "-m", "undertorch", "see", "--gpu", "H200", "--json", path, MODELS / f"{name}.py"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (step,) = read_steps(path)
    assert step.accounting.ops_without_cost == ()
    assert step.accounting.time_with_line >= 0.99
