"""Object code: kept on disk, made in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from undertorch.simt import SimtError
from undertorch.simt.codegen.objects import Worker
from undertorch.simt.codegen.worker import send

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


def test_an_exception_while_it_compiles_leaves_no_answer_for_the_next_request():
    """Ctrl-C or an alarm between a request and its answer: the next one got that answer, and it was kept on disk."""
    worker, seven, eight = Worker(), RIGHT, RIGHT.replace("7", "8")
    try:
        assert worker.compile(seven, 0) != worker.compile(eight, 0)
        right = worker.compile(eight, 0)

        def alarm():
            raise TimeoutError

        with pytest.raises(TimeoutError):
            worker.compile(seven, 0, meanwhile=alarm)
        assert worker.compile(eight, 0) == right
    finally:
        worker.close()


def test_an_answer_to_another_request_is_not_taken():
    worker = Worker()
    try:
        worker.start()
        send(worker.process.stdin, b"\0" + RIGHT.encode())  # somebody's who never read the answer
        with pytest.raises(SimtError, match="another request"):
            worker.compile(RIGHT.replace("7", "8"), 0)
        assert worker.compile(RIGHT.replace("7", "8"), 0)
    finally:
        worker.close()


def test_a_compiler_that_the_system_killed_is_no_mistake_of_the_kernel():
    worker = Worker()
    try:
        with pytest.raises(SimtError, match="memory"):
            worker.compile(RIGHT, 0, meanwhile=lambda: (worker.process.kill(), worker.process.wait()))
    finally:
        worker.close()


def test_a_python_that_does_not_know_where_it_is_says_so(monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(SimtError, match=r"sys\.executable"):
        Worker().compile(RIGHT, 0)


FORKED = """
import os, sys
import numpy as np, undertorch

def gives(number):
    y = np.zeros(1, np.int32)
    head = ".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k(.param .u64 p) {.reg .b64 %rd1;"
    undertorch.ptx(f"{head} ld.param.u64 %rd1,[p]; st.global.u32 [%rd1],{number}; ret;}}")["k"][1, 1](y)
    return int(y[0]) == number

assert gives(1)
children = []
for child in (1, 2):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if all(gives(100 * child + n) for n in range(5)) else 1)
    children.append(pid)
assert all(gives(1000 + n) for n in range(5))
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


def test_forked_processes_have_a_compiler_each(tmp_path):
    """They read each other's answers from the pipe that they had in common."""
    environment = os.environ | {"UNDERTORCH_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FORKED], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "[0, 0]\n", done.stderr
