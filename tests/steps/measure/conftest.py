"""The runs that several tests look at."""

import pytest

from steps.measure.runs import Run, everything, shared


@pytest.fixture(scope="session")
def eager(tmp_path_factory) -> Run:
    return everything(shared(tmp_path_factory) / "measured_eager")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory) -> Run:
    return everything(shared(tmp_path_factory) / "measured_compiled", "inductor")
