"""Object code: kept on disk, made in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from undertorch.simt import SimtError
from undertorch.simt.codegen.objects import Worker

KERNELS = Path(__file__).parent / "kernels" / "classics.ptx"
CODE = """
import sys
import numpy as np, undertorch
from undertorch.simt.codegen.objects import linker

x = np.arange(100, dtype=np.float32)
undertorch.ptx(open(sys.argv[1]).read())["doubling"][1, 128](x, 100)
assert np.array_equal(x, 2 * np.arange(100))
print("compiled" if linker().worker.process else "kept", "undertorch.simt.codegen.kernel" in sys.modules)
"""
RIGHT = "define i32 @f() {\n  ret i32 7\n}\n"


def launched(folder):
    command = [sys.executable, "-c", CODE, str(KERNELS)]
    environment = os.environ | {"UNDERTORCH_CACHE": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_a_kept_kernel_starts_no_compiler_and_a_damaged_one_is_made_again(tmp_path):
    assert launched(tmp_path) == ["compiled", "True"]
    assert launched(tmp_path) == ["kept", "False"]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert launched(tmp_path)[0] == "compiled"
    assert launched(tmp_path)[0] == "kept"


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path):
    (tmp_path / "objects").write_text("a file where the cache's folder would be")
    assert launched(tmp_path)[0] == "compiled"


def test_a_compiler_that_died_is_started_again():
    worker = Worker()
    try:
        assert worker.compile(RIGHT, 0)
        worker.process.kill()
        worker.process.wait()
        assert worker.compile(RIGHT, 0)
    finally:
        worker.close()


def test_what_llvm_refuses_is_said_and_the_next_module_compiled():
    worker = Worker()
    try:
        with pytest.raises(SimtError, match="LLVM does not take generated code"):
            worker.compile("define i32 @f() {\n  ret i64 7\n}\n", 0)
        assert worker.compile(RIGHT, 2)
    finally:
        worker.close()


def test_a_text_longer_than_the_pipe_has_room_arrives():
    worker = Worker()
    long = "; " + "x" * (3 << 20) + "\n" + RIGHT
    called = []
    try:
        assert worker.compile(long, 0, meanwhile=lambda: called.append(1))
    finally:
        worker.close()
    assert called == [1]
