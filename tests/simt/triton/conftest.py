import pytest

import undertorch


@pytest.fixture
def machine():
    """Inside of `with undertorch.machine():`, as an A100."""
    with undertorch.machine() as setting:
        yield setting
