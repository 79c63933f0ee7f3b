"""Sharded parameters: clipped and updated in their local parts, with the norm of the whole. Sharded rows too."""

import pytest
from torch import distributed
from torch.multiprocessing import spawn

from ops_on_two_ranks import train

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="this torch has no torch.distributed")


def test_two_ranks_train_as_one(tmp_path):
    spawn(train, (str(tmp_path),), nprocs=2)
