"""What the tests of the page in a browser share."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from browsing import driven

    with driven(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def silent(browser):
    """Afterwards the console must have said nothing."""
    from browsing import complaints

    yield browser
    assert complaints(browser) == []
    browser.execute_script("localStorage.clear()")


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    """The page and the Perfetto file of GPT-2, as the command line writes them."""
    folder = tmp_path_factory.mktemp("gpt2")
    page, trace = folder / "step.html", folder / "step.perfetto.json"
    command = ["-m", "undertorch", "see", "--gpu", "H200", "--page", page, "--perfetto", trace, "train_gpt.py"]
    subprocess.run([sys.executable, *map(str, command)], cwd=EXAMPLES, check=True, capture_output=True)
    return page, trace
