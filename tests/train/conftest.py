"""A cache of its own for each test, so that nothing is found that another run has left."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("UNDERTORCH_CACHE", str(folder))
    return folder
