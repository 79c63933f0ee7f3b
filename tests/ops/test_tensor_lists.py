"""Tables of many tensors: what a CUDA graph was captured with has to stay, and to be complete before it is replayed.

A graph replays addresses, so a table that was let go is read after others have its memory: on an H200 that ended AdamW
in `misaligned address`, once more tables were made than are kept. CPU tensors stand for a GPU's here.
"""

import weakref
from contextlib import contextmanager

import pytest
import torch

from undertorch.ops import tensor_lists
from undertorch.ops.tensor_lists import KEPT, Tables, by_dtypes


@pytest.fixture
def capturing(monkeypatch):
    """A function that says whether a graph is being captured from now on."""
    aside = []

    @contextmanager
    def beside_capture():
        aside.append(True)
        yield

    monkeypatch.setattr(tensor_lists, "beside_capture", beside_capture)

    def set_to(now):
        monkeypatch.setattr(tensor_lists, "captures", lambda tensor: now)
        return aside

    set_to(False)
    return set_to


def points_at(table, tensors):
    return table.pointers[0].tolist() == [tensor.data_ptr() for tensor in tensors]


def test_a_table_says_where_each_tensor_and_each_block_begins():
    """7, 0 and 20 elements in chunks of 8: one block, none, and three."""
    tensors = [torch.empty(size) for size in (7, 0, 20)]
    table = Tables().of([tensors], 8)
    assert points_at(table, tensors)
    assert table.sizes.tolist() == [7, 0, 20]
    assert table.tensor_of_block.tolist() == [0, 2, 2, 2]
    assert table.start_of_block.tolist() == [0, 0, 8, 16]


def test_a_graphs_table_stays_when_others_are_made_and_when_it_is_asked_for_again(capturing):
    tables, sets = Tables(), [[torch.empty(5), torch.empty(9)] for _ in range(KEPT + 3)]
    capturing(True)
    held = weakref.ref(tables.of([sets[0]], 4).pointers)
    for turn in (False, True, False):
        capturing(turn)
        for some in sets[1:]:
            tables.of([some], 4)
    assert held() is not None
    capturing(True)
    assert tables.of([sets[0]], 4).pointers is held()


def test_a_graph_does_not_take_a_table_that_may_be_let_go(capturing):
    """One that eager code made lies in memory that its stream gets back."""
    tables, tensors = Tables(), [torch.empty(5)]
    before = tables.of([tensors], 4)
    capturing(True)
    assert tables.of([tensors], 4) is not before


def test_a_graphs_table_is_uploaded_beside_the_capture(capturing):
    """Captured, the upload would not have run when something else finds the table."""
    aside = capturing(True)
    Tables().of([[torch.empty(5)]], 4)
    assert aside == [True]


def test_eager_code_keeps_a_few_tables():
    tables, sets = Tables(), [[torch.empty(5)] for _ in range(KEPT + 1)]
    held = [weakref.ref(tables.of([some], 4).pointers) for some in sets]
    assert [table() is not None for table in held] == [False] + [True] * KEPT


def test_a_tensor_at_an_odd_address_does_not_share_a_launch_with_the_others():
    """All of a launch are read in the width that suits the least aligned of them."""
    whole, odd = [torch.empty(8) for _ in range(3)], torch.empty(9)[1:]
    groups = list(by_dtypes([*whole[:2], odd, whole[2]]))
    assert [[place[0].data_ptr() for place in group] for group in groups] == [
        [tensor.data_ptr() for tensor in whole],
        [odd.data_ptr()],
    ]
