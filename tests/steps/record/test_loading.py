"""Data on its way to the GPU has its values; the GPU's side has shapes."""

from undertorch.records.steps import WRITTEN_BY_INDUCTOR


def test_loaders_workers_memory_maps_and_pinned_memory_work(recording):
    """The script asserts what it reads; that it was recorded to its second step shows that all held."""
    assert recording("loader.py").environment.step == 2


def test_a_batch_is_copied_from_the_host_once_a_tensor(recording, line_of):
    """Of the DataLoader's batch two tensors, and two of each batch() of the training and of both evaluations."""
    copies = [op for op in recording("loader.py").ops if op.inputs and op.inputs[0].device == "cpu"]
    assert {op.name for op in copies} == {"aten::_to_copy"}
    assert all(tensor.device == "cuda:0" for op in copies for tensor in op.results)
    assert len(copies) == 2 + 2 + 2 * 2


def test_samples_are_those_of_every_batch(recording):
    assert recording("loader.py").samples == 8 + 4


def test_a_compiled_model_is_said_at_its_line(recording, line_of):
    (assumption,) = (a for a in recording("loader.py").assumptions if a.what.startswith(WRITTEN_BY_INDUCTOR))
    assert assumption.where.line == line_of("loader.py", "torch.compile(")
