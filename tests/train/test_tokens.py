"""Tokens in shards, their order in training, and bits a byte."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from tiny_training import ALONE, some_text, tiny, words
from undertorch.train import tokens
from undertorch.train.bytes_model import order_2_bits
from undertorch.train.corpus import corpus
from undertorch.train.errors import BadText, TrainError
from undertorch.train.judge import bits_a_byte, token_bytes
from undertorch.train.loader import Loader, check_length, validation_count, validation_rows
from undertorch.train.tokens import opened, read_shard, tokenized, write_shard


def test_the_tokens_are_the_text(tmp_path):
    text = some_text(tmp_path, tiny())
    whole = text.tokenizer.decode(text.training.window(0, len(text.training)).tolist(), skip_special_tokens=True)
    given = corpus([str(tmp_path / "text.txt")])
    assert whole.encode() == b"".join(document.text for document in given.training)
    place, name = text.training.documents[3]
    assert text.training.window(place, 1)[0] == text.end_of_text
    assert text.training.document(place + 1) == name


def test_a_second_time_they_come_from_the_cache(tmp_path, monkeypatch):
    first = some_text(tmp_path, tiny())
    monkeypatch.setattr(tokens, "_make", None)
    assert some_text(tmp_path, tiny()).folder == first.folder
    monkeypatch.undo()


def test_another_text_or_vocabulary_has_other_tokens(tmp_path):
    first = some_text(tmp_path, tiny()).folder
    assert some_text(tmp_path, tiny(vocabulary=310)).folder != first
    assert some_text(tmp_path, tiny(), words() + "more\n").folder != first


@pytest.mark.parametrize("damage", ["cut", "flipped", "header", "gone"])
def test_a_damaged_shard_in_the_cache_is_refused_and_made_again(tmp_path, damage):
    text = some_text(tmp_path, tiny())
    path = next(text.folder.glob("training-*"))
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-3])
    elif damage == "gone":
        (text.folder / "text.json").unlink()
    else:
        content[{"flipped": 200, "header": 2}[damage]] ^= 4
        path.write_bytes(content)
    with pytest.raises(TrainError):
        opened(text.folder)
    assert len(some_text(tmp_path, tiny()).training) == len(text.training)


def test_windows_cross_shards(tmp_path, monkeypatch):
    whole = some_text(tmp_path, tiny()).training
    monkeypatch.setattr(tokens, "SHARD_TOKENS", 1000)
    monkeypatch.setattr(tokens, "VERSION", 2)
    cut = some_text(tmp_path, tiny()).training
    assert len(cut.shards) > 5
    assert (cut.window(0, len(cut)) == whole.window(0, len(whole))).all()
    assert (cut.window(990, 30) == whole.window(990, 30)).all()


def test_a_shard_comes_back_as_it_was_written(tmp_path):
    for dtype in ("<u2", "<u4"):
        made = np.arange(777).astype(dtype)
        write_shard(tmp_path / "a.tokens", made)
        assert (read_shard(tmp_path / "a.tokens") == made).all()


def test_an_epoch_takes_every_window_once_and_another_seed_another_order(tmp_path):
    text = some_text(tmp_path, tiny())
    one = Loader(tokens=text.training, context=16, batch=1, seed=1)
    other = Loader(tokens=text.training, context=16, batch=1, seed=2)
    epoch = [one.begin(window) for window in range(one.windows)]
    assert len(set(epoch)) == one.windows
    assert all(0 <= begin <= len(text.training) - 17 for begin in epoch)
    assert epoch != [other.begin(window) for window in range(other.windows)]
    assert one.begin(one.windows) not in epoch[:1]  # the next epoch is shuffled anew
    assert one.rows(one.windows).epoch == 1


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_share_the_rows_that_one_process_would_take(tmp_path, world):
    text = some_text(tmp_path, tiny())
    alone = Loader(tokens=text.training, context=16, batch=8, seed=1).rows(24)
    ranks = [
        Loader(tokens=text.training, context=16, batch=8 // world, seed=1, rank=rank, world=world).rows(24)
        for rank in range(world)
    ]
    assert [place for rank in ranks for place in rank.places] == list(alone.places)
    assert (np.concatenate([rank.tokens for rank in ranks]) == alone.tokens).all()


def test_targets_of_validation_are_every_token_but_the_first(tmp_path):
    held = some_text(tmp_path, tiny()).validation
    rows = validation_rows(held, 16, 0, validation_count(held, 16) + 2)
    targets = rows[:, 1:][rows[:, 1:] >= 0]
    assert (targets == held.window(1, len(held) - 1)).all()


def test_bits_a_byte_of_a_model_that_guesses_evenly(tmp_path):
    """Every token costs log2 of the number of tokens; bytes are those of the held-out text."""
    settings = tiny()
    text = some_text(tmp_path, settings)

    class Even(torch.nn.Module):
        def forward(self, given, targets):
            return torch.tensor(math.log(512.0), dtype=torch.float64)

    assert token_bytes(text)[text.validation.window(0, len(text.validation))].sum() == text.validation.text_bytes
    expected = 9.0 * (len(text.validation) - 1) / text.validation.text_bytes
    assert bits_a_byte(Even(), text, 16, 4, ALONE) == pytest.approx(expected, rel=1e-12)


def test_the_model_of_two_bytes_by_hand(tmp_path):
    """Witten and Bell's formula in dictionaries, byte after byte."""
    path = tmp_path / "a.txt"
    path.write_text(words(3, 700))
    given = corpus([str(path)])
    seen = [Counter(), {}, {}]
    for document in given.training:
        padded = b"\n\n" + document.text
        for at in range(2, len(padded)):
            seen[0][padded[at]] += 1
            for order in (1, 2):
                seen[order].setdefault(padded[at - order : at], Counter())[padded[at]] += 1
    bits, size = 0.0, 0
    for document in given.validation:
        padded = b"\n\n" + document.text
        for at in range(2, len(padded)):
            chance = (seen[0][padded[at]] + 1) / (sum(seen[0].values()) + 256)
            for order in (1, 2):
                counts = seen[order].get(padded[at - order : at])
                if counts:
                    chance = (counts[padded[at]] + len(counts) * chance) / (sum(counts.values()) + len(counts))
            bits, size = bits - math.log2(chance), size + 1
    assert order_2_bits(given) == pytest.approx(bits / size, rel=1e-12)


def test_too_short_a_text_is_said_with_its_length(tmp_path):
    settings = tiny(context=16)
    text = some_text(tmp_path, settings, "a few words\nand a second line\n")
    with pytest.raises(BadText, match=r"too short: .* rows of 16 tokens"):
        check_length(text, 16, "text.txt")


def test_a_tokenizer_of_ones_own_is_taken_and_a_strange_one_refused(tmp_path):
    made = some_text(tmp_path, tiny())
    given = corpus([str(tmp_path / "text.txt")])
    own = tmp_path / "tokenizer.json"
    made.tokenizer.save(str(own))
    again = tokenized(given, 999, str(own))
    assert again.tokenizer.get_vocab_size() == made.tokenizer.get_vocab_size()
    own.write_text("{}")
    with pytest.raises(BadText, match="is no tokenizer"):
        tokenized(given, 999, str(own))
