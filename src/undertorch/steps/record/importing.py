"""Imports torch after the guard's hooks, without the remark that a CUDA build makes about them."""

import os
import tempfile

REMARK = b"Higher priority item already registered, skipping registration of CUDAHooks"
"""c10::Registry prints this when torch's own hooks give way to the guard's."""


def import_torch() -> None:
    """Whatever else is written to standard error meanwhile comes through, afterwards."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            import torch  # noqa: F401
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            aside.seek(0)
            for line in aside:
                if REMARK not in line:
                    os.write(2, line)
