"""Which dimension of a model's input counts the samples."""

import pytest
import torch

from undertorch.steps.record.samples import Batch, Samples

SEQUENCE, BATCH, WIDTH = 7, 4, 6


def counted(*arguments, loaded=None, layer=None, **named):
    """Of a call, after a loader brought a batch; `layer` is called inside with a hidden state."""
    samples = Samples()
    samples.loaded(loaded)
    found = samples.called(arguments, named)
    if layer is not None:
        found = samples.layer_called(layer, (torch.empty(SEQUENCE, BATCH, WIDTH),), {}) or found
    return found and found.samples


def test_the_first_dimension_counts_where_nothing_else_is_known():
    assert counted(torch.empty(BATCH, 3, 8, 8)) == BATCH
    assert counted(None, 0.5, images=torch.empty(BATCH, 3)) == BATCH
    assert counted({"ids": torch.empty(BATCH, 3)}) == BATCH


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_a_recurrent_layer_says_where_its_batch_is(kind):
    """Called with (7, 4, 6): the batch is 4 with batch_first=False, and 7 with batch_first=True."""
    tokens = torch.empty(SEQUENCE, BATCH)
    assert counted(tokens, layer=kind(WIDTH, WIDTH)) == BATCH
    assert counted(tokens, layer=kind(WIDTH, WIDTH, batch_first=True)) == SEQUENCE


def test_attention_says_where_its_batch_is():
    assert counted(torch.empty(SEQUENCE, BATCH), layer=torch.nn.MultiheadAttention(WIDTH, 2)) == BATCH


def test_a_layer_on_something_else_says_nothing():
    """A recurrence over the rows of images: neither of its dimensions is one of the model's input."""
    assert counted(torch.empty(2, 3, 8, 8), layer=torch.nn.LSTM(WIDTH, WIDTH)) == 2


def test_the_loader_knows_how_many_there_are():
    assert counted(torch.empty(BATCH, SEQUENCE), loaded=BATCH) == BATCH
    assert counted(torch.empty(SEQUENCE, BATCH), loaded=BATCH) == BATCH
    assert counted([torch.empty(3, 20, 30), torch.empty(3, 10, 10)], loaded=2) == 2


def test_a_part_of_a_batch_and_two_views_of_it_count_as_what_the_model_gets():
    assert counted(torch.empty(8, 5), loaded=32) == 8
    assert counted(torch.empty(64, 5), loaded=32) == 64


def test_what_the_loader_contradicts_is_unknown():
    """Such as the nodes of 32 graphs, and a list of images that nobody counted."""
    samples = Samples()
    samples.loaded(32)
    assert samples.called((torch.empty(611, 5),), {}) == Batch(samples=None)
    assert samples.called(([torch.empty(3, 20, 30)],), {}) == Batch(samples=None)


def test_a_call_without_data_has_no_batch():
    assert Samples().called((3, "mean"), {"scale": torch.tensor(1.0)}) is None


def test_a_loaders_word_is_about_one_call():
    """The batches of an evaluation tell nothing of what is trained on afterwards."""
    samples = Samples()
    samples.loaded(100)
    samples.called((torch.empty(100, 3),), {})
    assert samples.called((torch.empty(BATCH, 3),), {}) == Batch(samples=BATCH)
