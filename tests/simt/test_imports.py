"""Being told that a module was imported."""

import importlib
import importlib.util
import sys

import pytest

from undertorch.simt.frontends.imports import after_import


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that nobody has imported."""
    (tmp_path / "imported_only_here.py").write_text("ready = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "imported_only_here"
    sys.modules.pop("imported_only_here", None)


def test_a_module_that_is_imported_later_is_told_once_and_ready(module):
    told = []
    after_import(module, lambda: told.append(sys.modules[module].ready))
    importlib.import_module(module)
    importlib.reload(sys.modules[module])
    assert told == [True]


def test_a_module_that_was_only_looked_for_is_still_watched(module):
    """torch built for CUDA asks whether triton is there (find_spec) long before anybody imports it."""
    told = []
    after_import(module, lambda: told.append(module))
    assert importlib.util.find_spec(module) is not None
    assert told == []
    importlib.import_module(module)
    assert told == [module]


def test_a_watch_that_ended_tells_nothing(module):
    told = []
    after_import(module, lambda: told.append(module))()
    importlib.import_module(module)
    assert told == []


def test_two_that_wait_for_one_module_are_both_told(module):
    told = []
    after_import(module, lambda: told.append("first"))
    after_import(module, lambda: told.append("second"))
    importlib.import_module(module)
    assert sorted(told) == ["first", "second"]
